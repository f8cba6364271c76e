"""Lines of Python, indented, with constants beside them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from tonnage.cel import costs, runtime
from tonnage.cel.failures import Abort, Err, ErrorKind
from tonnage.cel.values import NONE, Maybe, Names, equal, no_overload

_HELPERS = (
    *(runtime.index, runtime.index_maybe, runtime.has, runtime.has_maybe, runtime.opened, runtime.kept, runtime.mapped),
    *(runtime.elements, runtime.pairs, runtime.member, runtime.plain, runtime.matched, runtime.logical),
    *(runtime.conjoined, runtime.disjoined, Abort, Err, ErrorKind, Maybe, equal, no_overload),
)


class Emitted(NamedTuple):
    """A local variable or constant, and whether it may hold an error."""

    code: str
    fails: bool = True


class CodeWriter:
    """``names``: what the code finds in its module."""

    def __init__(self, *, counted: bool) -> None:
        self.names: dict[str, Any] = {helper.__name__: helper for helper in _HELPERS}
        self.names |= {
            "ABSENT": runtime.ABSENT,
            "UNSET": runtime.UNSET,
            "NONE": NONE,
            "EMPTY": Names(),
            "LIMIT": costs.LIMIT,
        }
        self._counted = counted
        self._lines: list[str] = []
        self._depth = 1
        self._count = 0

    def constant(self, value: Any) -> str:
        """The name of a constant."""
        self._count += 1
        self.names[f"k{self._count}"] = value
        return f"k{self._count}"

    def _emit(self, line: str) -> None:
        self._lines.append("    " * self._depth + line)

    @contextmanager
    def _block(self, head: str) -> Iterator[None]:
        self._emit(head)
        self._depth += 1
        before = len(self._lines)
        yield
        if len(self._lines) == before:
            self._emit("pass")
        self._depth -= 1

    def _new(self, letter: str = "t") -> str:
        self._count += 1
        return f"{letter}{self._count}"

    def _cost(self, amount: int | str) -> None:
        if self._counted and amount:
            self._emit(f"c += {amount}")

    def _set(self, expression: str, *, fails: bool = True) -> Emitted:
        name = self._new()
        self._emit(f"{name} = {expression}")
        return Emitted(name, fails)
