"""What the fleet's columns are made of: arrays that grow, values that are stored once, and the journal of bindings."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

Entry: TypeAlias = tuple[int, int, int]
"""One change of a binding: (+1 bound or -1 unbound, class id, node row)."""


def grow(array: NDArray[Any], shape: tuple[int, ...], fill: int) -> NDArray[Any]:
    """A larger copy of ``array``; the new cells hold ``fill``."""
    larger = np.full(shape, fill, array.dtype)
    larger[tuple(slice(0, n) for n in array.shape)] = array
    return larger


def distinct(numbers: NDArray[np.integer[Any]]) -> list[int]:
    """The different values of a flat array, ascending. Where numpy has not looked for masked arrays yet, ``np.unique``
    imports them, which takes longer than the first decision about a hundred pods."""
    return sorted(set(numbers.tolist()))


class Interned(Generic[K, V]):
    """Equal values stored once, by number. ``rows`` only ever grows, so a number stays good."""

    def __init__(self) -> None:
        self.rows: list[V] = []
        self._ids: dict[K, int] = {}

    def intern(self, key: K, value: V) -> int:
        """The number of ``value``, which ``key`` identifies."""
        known = self._ids.get(key)
        if known is None:
            known = self._ids[key] = len(self.rows)
            self.rows.append(value)
        return known


class Latest(Generic[V]):
    """What is worked out of a state that has a number, for the latest two states that were asked for: a what-if leaves
    one and comes back to it."""

    def __init__(self, make: Callable[[], V]) -> None:
        self._make = make
        self._known: dict[int, V] = {}

    def at(self, state: int) -> V:
        """The value of the state, which is the one that ``make`` sees now."""
        known = self._known.pop(state, None)
        if known is None:
            known = self._make()
        self._known[state] = known  # the latest is the last
        if len(self._known) > 2:
            del self._known[next(iter(self._known))]
        return known


class BindingJournal:
    """Every change of a binding in order, so that tables derived elsewhere can follow without looking at all pods.

    Only the latest entries are kept: a reader that has fallen too far behind is told to start afresh.
    """

    KEPT = 1 << 17

    def __init__(self) -> None:
        self.end = 0
        """The position after the last entry."""
        self._entries: list[Entry] = []
        self._dropped = 0

    def append(self, entry: Entry) -> None:
        """Add an entry at the end."""
        self._entries.append(entry)
        self.end += 1
        if len(self._entries) >= 2 * self.KEPT:
            del self._entries[: self.KEPT]
            self._dropped += self.KEPT

    def since(self, position: int) -> list[Entry] | None:
        """The entries from ``position`` on; None when some of them are no longer kept."""
        if position < self._dropped:
            return None
        return self._entries[position - self._dropped :]
