"""Tonnage as a kubectl plugin: `kubectl tonnage …` runs the same command line, and kubectl completes it.

kubectl finds a plugin by the name of an executable on the PATH, ``kubectl-tonnage``, and asks
``kubectl_complete-tonnage`` for completions. Source: kubernetes/kubectl v0.36 pkg/cmd/plugin/plugin_completion.go;
spf13/cobra v1.9 completions.go for the directives.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem, ShellComplete

from tonnage.cli import cli, terminal
from tonnage.cli import main as run

PROGRAM = "kubectl tonnage"

FILES = 0
"""cobra's ShellCompDirectiveDefault: the shell completes file names when nothing else fits."""
NOTHING_ELSE = 4
"""cobra's ShellCompDirectiveNoFileComp: only what was printed."""
FOLDERS = 16
"""cobra's ShellCompDirectiveFilterDirs: the shell completes the names of folders."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of ``kubectl-tonnage``; exits as `tonnage` does."""
    run(arguments, PROGRAM)


def complete(arguments: Sequence[str] | None = None) -> None:
    """Entry point of ``kubectl_complete-tonnage``: its arguments are the words typed so far, the last one unfinished.

    Prints one completion a line, with a tab before its description, and at last a colon and the directive."""
    words = list(sys.argv[1:] if arguments is None else arguments) or [""]
    try:
        items = ShellComplete(cli, {}, PROGRAM, "").get_completions(words[:-1], words[-1])
    except click.UsageError:  # what was typed names no command: there is nothing to offer
        items = []
    for item in items:
        if item.type == "plain":
            terminal.echo(f"{item.value}\t{' '.join(item.help.split())}" if item.help else item.value)
    terminal.echo(f":{directive(items)}")


def directive(items: Sequence[CompletionItem[str]]) -> int:
    """What the shell shall complete besides: file names, names of folders, or nothing."""
    kinds = {item.type for item in items}
    return FILES if "file" in kinds else FOLDERS if "dir" in kinds else NOTHING_ELSE
