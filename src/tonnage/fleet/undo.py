"""The undo log of what-ifs."""

from __future__ import annotations

from typing import Any

Entry = tuple[Any, ...]


class UndoLog:
    """What undoes the changes since the innermost what-if began. An entry is the name of the method that undoes a
    change, and what that is called with: a tuple of plain values is no work for the garbage collector."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: list[Entry] | None = None

    @property
    def records(self) -> bool:
        """Whether a what-if has begun and not ended."""
        return self._entries is not None

    def note(self, inverse: str, *arguments: Any) -> None:
        """A change was made that ``inverse`` undoes."""
        if self._entries is not None:
            self._entries.append((inverse, *arguments))

    def begin(self) -> list[Entry] | None:
        """A what-if begins; returns what was noted for the one around it, for :meth:`end`."""
        outer, self._entries = self._entries, []
        return outer

    def end(self, changed: object, outer: list[Entry] | None) -> None:
        """The what-if ends: call the noted methods of ``changed``, the last change first."""
        noted, self._entries = self._entries or [], None
        for inverse, *arguments in reversed(noted):
            getattr(changed, inverse)(*arguments)
        self._entries = outer
