"""The words that a container runs, as the kubelet and a shell make them of its command, args and environment.

Source: Kubernetes documentation, "Define a Command and Arguments for a Container" and "Define Dependent Environment
Variables" (``$(NAME)``, ``$$`` for a dollar); POSIX shell for ``$NAME``, ``${NAME}`` and ``${NAME:-default}``.
"""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tonnage.objects import core
from tonnage.objects.base import LINE
from tonnage.workloads.variables import ANY

SHELLS = ("sh", "bash", "ash", "dash", "zsh")
_OPERATORS = frozenset(";&|\n()<>")
_KUBELET = re.compile(r"\$\$|\$\(([-._a-zA-Z][-._a-zA-Z0-9]*)\)")
_SHELL = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?-([^}]*))?\})")
_LEFT = re.compile(r"\$[({\w]")
_GIVEN = re.compile(
    r"(KUBERNETES|LWS|RAY|PET|MASTER|RANK|WORLD|LOCAL|NODE|JOB|VC|VK|TPU|NVIDIA|TASK|GROUP)(_|$)"
    r"|.*_(SERVICE_HOST|SERVICE_PORT|PORT)(_|$)"
)
"""Variables that controllers, webhooks and the kubelet add to a container."""
_LONGEST = 128 * 1024
"""Characters of one word with its variables: more than execve takes (MAX_ARG_STRLEN) is left as it is written."""


class Word(NamedTuple):
    """One word, and the field of the container in which it stands: ``args[2]``, in a script of several lines with its
    line (:data:`tonnage.objects.base.LINE`). ``is_open``: whether it names a
    variable whose value the manifest does not have. What nothing will be put into stays as it is written."""

    text: str
    field: str
    is_open: bool = False


def commands(container: core.Container) -> Iterator[list[Word]]:
    """Each command that the container runs: one, or those of its shell script."""
    values = environment(container)
    words = [
        _word(container, _expanded(text, values), f"{part}[{index}]")
        for part, listed in (("command", container.command), ("args", container.args))
        for index, text in enumerate(listed)
    ]
    script = _script(words)
    if script is None:
        yield words
    else:
        yield from _parsed(script, values)


def _word(container: core.Container, text: str, field: str) -> Word:
    """A word that no shell reads: of it the kubelet replaces ``$(NAME)`` alone, where there is a variable NAME."""
    unset = {variable.name for variable in container.env if not variable.value}
    names = [match[1] for match in _KUBELET.finditer(text) if match[1]]
    return Word(text, field, any(name in unset or ANY in unset or _GIVEN.match(name) for name in names))


def environment(container: core.Container) -> dict[str, str]:
    """The variables whose values the manifest has; those before are known to those after."""
    values: dict[str, str] = {}
    for variable in container.env:
        if variable.value:
            values[variable.name] = _expanded(variable.value, values)
    return values


def _expanded(text: str, values: Mapping[str, str]) -> str:
    def one(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else values.get(match[1], match[0])

    longest = sum(len(values.get(match[1], "")) for match in _KUBELET.finditer(text)) + len(text)
    return _KUBELET.sub(one, text) if longest <= _LONGEST else text


def _script(words: list[Word]) -> Word | None:
    """The script of ``sh -c SCRIPT``; None where no shell is called with one."""
    if not words or words[0].text.rpartition("/")[2] not in SHELLS:
        return None
    for index, word in enumerate(words[1:-1], 1):
        if not word.text.startswith("-"):
            return None
        if not word.text.startswith("--") and "c" in word.text:
            return next((one for one in words[index + 1 :] if not one.text.startswith("-")), None)
    return None


def _parsed(script: Word, values: Mapping[str, str]) -> Iterator[list[Word]]:
    """The simple commands of a script; nothing of one that a shell could not read."""
    text = script.text.replace("\\\n", "  ")  # as long as before
    stream = io.StringIO(text)
    lexer = shlex.shlex(stream, posix=True, punctuation_chars=";&|\n()<>")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    made: list[Word] = []
    try:
        for token in lexer:
            if token and set(token) <= _OPERATORS:
                yield made
                made = []
            else:
                line = script.text.count("\n", 0, max(0, stream.tell() - 1))
                field = f"{script.field}{LINE}{line}" if "\n" in script.text else script.field
                meant = _substituted(token, values)
                made.append(Word(meant, field, _LEFT.search(meant) is not None))
    except ValueError:
        return
    yield made


def _substituted(text: str, values: Mapping[str, str]) -> str:
    def one(match: re.Match[str]) -> str:
        default = match[3] if match[3] is not None else match[0]
        return values.get(match[1] or match[2], default)

    longest = sum(len(one(match)) for match in _SHELL.finditer(text)) + len(text)
    return _SHELL.sub(one, text) if longest <= _LONGEST else text
