"""What a shell and its user expect of a program: `tonnage completion`, `tonnage version`, `tonnage man`."""

from __future__ import annotations

import inspect
import platform
from collections.abc import Iterator
from pathlib import Path

import click
from click.shell_completion import ShellComplete, get_completion_class

from tonnage import __version__
from tonnage.cli import COMPLETING, PROGRAM, answers, cli, files, terminal
from tonnage.cli.options import output_option

SHELLS = ("bash", "zsh", "fish")
_SCHEMA = "tonnage.dev/version/v1"


@click.command(short_help="Completion for bash, zsh or fish.")
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print what makes SHELL complete commands, options and their values.

    \b
    bash   echo 'source <(tonnage completion bash)' >> ~/.bashrc
    zsh    echo 'source <(tonnage completion zsh)' >> ~/.zshrc
    fish   tonnage completion fish > ~/.config/fish/completions/tonnage.fish

    kubectl completes `kubectl tonnage` by itself.
    """
    made = get_completion_class(shell)
    assert made is not None
    terminal.echo(ShellComplete.source(made(cli, {}, PROGRAM, COMPLETING)).strip())


@click.command(short_help="The version.")
@output_option(table="text")
def version(output: str) -> None:
    """Print the version of tonnage, and of the Python that it runs on.

    \b
    tonnage version -o json
    """
    if output != "text":
        import msgspec

        found = {"schema": _SCHEMA, "version": __version__, "python": platform.python_version()}
        answers.show(msgspec.json.encode(found), output)
    else:
        terminal.echo(f"{PROGRAM} {__version__} (Python {platform.python_version()})")


@click.command(short_help="Manual pages, from the text of --help.")
@click.option("--to", "folder", type=click.Path(path_type=Path), metavar="DIR", help="Write one file a command there.")
@click.argument("command", nargs=-1)
def man(folder: Path | None, command: tuple[str, ...]) -> None:
    """Print the manual page of COMMAND, or with --to write those of all commands.

    \b
    tonnage man size | man -l -
    tonnage man --to ~/.local/share/man/man1
    """
    pages = dict(_pages(cli, (PROGRAM,)))
    if folder is not None:
        if not folder.is_dir():
            raise click.UsageError(f"there is no folder {folder}")
        for words, page in pages.items():
            files.write(folder / f"{'-'.join(words)}.1", page)
        terminal.echo(f"{folder}: {len(pages)} pages")
        return
    asked = (PROGRAM, *command)
    if asked not in pages:
        raise click.UsageError(f"no command {' '.join(command)!r}")
    terminal.echo(pages[asked], nl=False)


def _pages(command: click.Command, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """The page of a command and of each command below it, by their words."""
    context = click.Context(command, info_name=" ".join(words))
    yield words, _page(command, context, words)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None:
                yield from _pages(below, (*words, name))


def _page(command: click.Command, context: click.Context, words: tuple[str, ...]) -> str:
    """In man(7): name, synopsis, description, options, commands."""
    name = "-".join(words)
    lines = [f'.TH "{name.upper()}" "1" "" "{PROGRAM} {__version__}" "User Commands"']
    lines += [".SH NAME", f"{_plain(name)} \\- {_plain(command.get_short_help_str(200))}"]
    usage = " ".join(command.collect_usage_pieces(context))
    lines += [".SH SYNOPSIS", f".B {_plain(' '.join(words))}", _plain(usage)]
    lines += [".SH DESCRIPTION", *_paragraphs(command.help or "")]
    given = (one for one in command.get_params(context) if isinstance(one, click.Option))
    options = [record for one in given if (record := one.get_help_record(context))]
    if options:
        lines.append(".SH OPTIONS")
        for option, help_ in options:
            lines += [".TP", f".B {_plain(option)}", _plain(" ".join(help_.split()))]
    if isinstance(command, click.Group):
        lines.append(".SH COMMANDS")
        for one in command.list_commands(context):
            below = command.get_command(context, one)
            if below is not None:
                lines += [".TP", f".B {_plain(f'{name}-{one}')}(1)", _plain(below.get_short_help_str(200))]
    return "\n".join(line for line in lines if line) + "\n"


def _paragraphs(text: str) -> Iterator[str]:
    """The paragraphs of a help text; those that stand under a ``\\b`` keep their lines."""
    for number, paragraph in enumerate(inspect.cleandoc(text).split("\n\n")):
        if number:
            yield ".PP"
        kept = paragraph.startswith("\b")
        lines = paragraph.removeprefix("\b\n").splitlines()
        yield from [".nf", *map(_plain, lines), ".fi"] if kept else [_plain(" ".join(line.strip() for line in lines))]


def _plain(text: str) -> str:
    """As text in man(7): no line begins a request, and hyphens stay what was typed."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    escaped = "".join(one if one.isascii() else f"\\[u{ord(one):04X}]" for one in escaped)
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
