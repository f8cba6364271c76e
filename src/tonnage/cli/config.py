"""The config file: defaults of options, for all commands or for one; and `tonnage config`, which says what holds."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

from tonnage.cli import answers, lines, terminal
from tonnage.cli.options import OUTPUT
from tonnage.errors import InputError, Problem, Where

VARIABLE = "TONNAGE_CONFIG"
"""Environment variable: the path of the config file; empty: none is read."""
SCHEMA = "tonnage.dev/config/v1"
_HINT = "options stand without their dashes: seed = 1 for all commands that have it, or below [simulate]"


@dataclass(frozen=True, slots=True)
class ConfigLine:
    """One line of the file: ``where`` it stands, ``option`` as on the command line, and the commands that take it."""

    where: Where
    option: str
    value: Any
    commands: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """What a config file says. ``defaults``: by command and parameter, as click takes them."""

    file: Path | None = None
    settings: list[ConfigLine] = field(default_factory=list)
    defaults: dict[str, Any] = field(default_factory=dict)


def find() -> Path | None:
    """``$TONNAGE_CONFIG``, else ``tonnage/config.toml`` below ``$XDG_CONFIG_HOME`` or ``~/.config``; None where there
    is none. Raises InputError where the variable names no file."""
    named = os.environ.get(VARIABLE)
    if named is not None:
        if named and not Path(named).is_file():
            raise InputError.at("no such file", file=named, field=VARIABLE, hint=f"correct or unset {VARIABLE}")
        return Path(named) if named else None
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    try:
        path = Path(home).expanduser() / "tonnage" / "config.toml"
    except RuntimeError:  # nobody's home: a container whose user has none
        return None
    return path if path.is_file() else None


def load(root: click.Command) -> ConfigFile:
    """The config file, checked against the commands below ``root``. Raises InputError with every line that is wrong."""
    path = find()
    if path is None:
        return ConfigFile()
    try:
        text = path.read_text(encoding="utf-8")
        table = tomllib.loads(text)
    except OSError as error:
        raise InputError.at(f"cannot be read: {error.strerror}", file=str(path), hint="check the path") from error
    except UnicodeDecodeError as error:
        raise InputError.at("not UTF-8 text", file=str(path), hint="a config file is TOML") from error
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        message = f"not valid TOML: {re.sub(r' *[(]at .*[)]', '', str(error))}"
        raise InputError.at(message, file=str(path), line=int(line[1]) if line else 0, hint=_HINT) from error
    reading = _Reading(ConfigFile(path), _lines(text))
    reading.read(table, root, ())
    if reading.problems:
        raise InputError(*reading.problems)
    return reading.config


def _lines(text: str) -> dict[tuple[str, ...], int]:
    """The line of each table and key."""
    found: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        if head := re.match(r"\s*\[([^\[\]]+)\]", line):
            table = _path(f"[{head[1]}]")
            found.setdefault(table, number)
        elif key := re.match(r"\s*([^=\s#][^=#]*)=", line):
            found.setdefault((*table, *_path(f"{key[1]} = {{}}")), number)
    return found


def _path(text: str) -> tuple[str, ...]:
    """The names in a line that makes nested tables; none where it is part of something else."""
    try:
        made: Any = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return ()
    names = []
    while made:
        name, made = next(iter(made.items()))
        names.append(name)
    return tuple(names)


class _Reading:
    """One reading of a file: what it says, and what of it is wrong."""

    def __init__(self, config: ConfigFile, lines_: dict[tuple[str, ...], int]) -> None:
        self.config, self.lines, self.problems = config, lines_, list[Problem]()

    def read(self, table: dict[str, Any], command: click.Command, words: tuple[str, ...]) -> None:
        """Options of the commands below first: what a command says of itself goes before what holds for all."""
        for key, value in sorted(table.items(), key=lambda pair: isinstance(pair[1], dict)):
            if not isinstance(value, dict):
                self._option(key, value, command, words)
                continue
            below = command.get_command(click.Context(command), key) if isinstance(command, click.Group) else None
            if below is None:
                known = command.list_commands(click.Context(command)) if isinstance(command, click.Group) else []
                self._wrong((*words, key), f"no command {' '.join((*words, key))!r}", key, known)
            else:
                self.read(value, below, (*words, key))

    def _option(self, key: str, value: Any, command: click.Command, words: tuple[str, ...]) -> None:
        having = [(at, param) for at, one in _leaves(command, words) for param in one.params if _is(param, key)]
        if any(isinstance(param.type, click.Choice) for _, param in having):
            having = [(at, param) for at, param in having if not isinstance(param.type, click.Path)]  # a file to write
        if not having:
            known = {name for _, one in _leaves(command, words) for param in one.params for name in _names(param)}
            told = f"{' '.join(words)} has no option --{key}" if words else f"no command has the option --{key}"
            self._wrong((*words, key), told, key, sorted(known))
            return
        refusals, taken = [], []
        for at, param in having:
            refusal = _refusal(param, value, at)
            refusals += [refusal] if refusal else []
            if not refusal:
                taken.append(" ".join(at))
                place = self.config.defaults
                for word in at:
                    place = place.setdefault(word, {})
                place[param.name or ""] = value
        if not taken:
            self._wrong((*words, key), refusals[0])
        else:
            self.config.settings.append(ConfigLine(self._where((*words, key)), f"--{key}", value, tuple(taken)))

    def _where(self, path: tuple[str, ...]) -> Where:
        return Where(str(self.config.file), self.lines.get(path, 0), ".".join(path))

    def _wrong(self, path: tuple[str, ...], message: str, key: str = "", known: list[str] | None = None) -> None:
        near = get_close_matches(key, known or [], 1)
        hint = f"did you mean {near[0]}?" if near else _HINT if key else "correct the value"
        self.problems.append(Problem(self._where(path), message, hint))


def _leaves(command: click.Command, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """The commands that do something, by their words."""
    if not isinstance(command, click.Group):
        yield words, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        if below is not None:
            yield from _leaves(below, (*words, name))


def _names(param: click.Parameter) -> list[str]:
    return [one.removeprefix("--") for one in param.opts if one.startswith("--")]


def _is(param: click.Parameter, key: str) -> bool:
    return isinstance(param, click.Option) and key in _names(param)


def _refusal(param: click.Parameter, value: Any, words: tuple[str, ...]) -> str:
    """Why an option does not take a value; empty where it does."""
    flag = isinstance(param, click.Option) and param.is_flag and not param.multiple
    if flag != isinstance(value, bool):
        return f"{value!r}, expected true or false" if flag else f"{value!r} is for options that are on or off"
    if param.multiple != isinstance(value, list):
        return f"{value!r}, expected a list: the option is repeatable" if param.multiple else f"{value!r}: not a list"
    if any(isinstance(one, list | dict) for one in (value if isinstance(value, list) else [value])):
        return f"{value!r}, expected a value as on the command line"
    try:
        param.type_cast_value(click.Context(click.Command(" ".join(words))), value)
    except click.BadParameter as error:
        return error.message.rstrip(".")
    return ""


@click.command(short_help="Defaults of options from the config file: what holds, and from where.")
@OUTPUT
def config(output: str) -> None:
    """Print the defaults that the config file sets, the line of each, and the commands that take it.

    The file is TOML: $TONNAGE_CONFIG, else ~/.config/tonnage/config.toml. What stands above the first table holds for
    every command that has such an option; [simulate] or [trace.fit] for one. A flag goes before a variable of the
    environment, that before the file, the file before the default.

    \b
    tonnage config
    TONNAGE_CONFIG=team.toml tonnage config -o json
    """
    found = load(click.get_current_context().find_root().command)
    if output != "table":
        _document(found, output)
        return
    if found.file is None:
        lines.say(f"no config file: neither ${VARIABLE} nor ~/.config/tonnage/config.toml", "  ")
        return
    terminal.echo(f"{found.file}: {len(found.settings)} setting{'s' if len(found.settings) != 1 else ''}")
    for one in found.settings:
        every = f"{len(one.commands)} commands" if len(one.commands) > 3 else ", ".join(one.commands)
        lines.say(f"line {one.where.line}: {one.option} {_shown(one.value)} for {every}", "    ", "  ")


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _document(found: ConfigFile, output: str) -> None:
    import msgspec

    settings = [
        {"option": s.option, "value": s.value, "line": s.where.line, "commands": list(s.commands)}
        for s in found.settings
    ]
    told = {"schema": SCHEMA, "file": str(found.file) if found.file else None, "settings": settings}
    answers.show(msgspec.json.encode(told), output)
