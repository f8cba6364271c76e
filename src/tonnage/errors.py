"""What goes wrong, said so that a person can act on it.

Every error that a user can cause is an :class:`InputError`. It names the place (file, line, field), the value
that stands there, what was expected and what to do, and the command line turns it into one message and exit
code 2. Anything else that escapes is a fault of ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Where:
    """A place in a user's input. ``line`` counts from 1; 0 means that the line is not known."""

    file: str = ""
    line: int = 0
    field: str = ""

    def __str__(self) -> str:
        parts = [self.file] if self.file else []
        if self.line:
            parts.append(str(self.line))
        if self.field:
            parts.append(self.field)
        return ":".join(parts)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong or suspicious in an input: where, what stands there, what was expected, what to do."""

    where: Where
    message: str
    hint: str = ""

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if str(self.where) else self.message
        return f"{text} ({self.hint})" if self.hint else text


class TonnageError(Exception):
    """Base of every error that Tonnage raises on purpose."""

    exit_code = 1


class InputError(TonnageError):
    """The input cannot be used. Carries one or more problems; the command line prints each on its own line, and after
    them ``beside``: what is suspicious in the same places."""

    exit_code = 2

    def __init__(self, *problems: Problem, beside: tuple[Problem, ...] = ()) -> None:
        self.problems, self.beside = problems, beside
        super().__init__("\n".join(str(problem) for problem in problems))

    @classmethod
    def at(cls, message: str, *, file: str = "", line: int = 0, field: str = "", hint: str = "") -> InputError:
        """An error with a single problem."""
        return cls(Problem(Where(file, line, field), message, hint))


class NotAnswered(InputError):
    """Whoever was asked (Prometheus, say) does not answer now. The same question may be answered later, with nothing
    changed; asked again at once, it would only be waited for again."""


def both(first: Callable[[], S], second: Callable[[], T]) -> tuple[S, T]:
    """What two callables give. Raises InputError with the problems of both."""
    problems: list[Problem] = []
    beside: list[Problem] = []
    found: list[Any] = []
    for one in (first, second):
        try:
            found.append(one())
        except InputError as error:
            problems += error.problems
            beside += error.beside
    if problems:
        raise InputError(*problems, beside=tuple(beside))
    return found[0], found[1]
