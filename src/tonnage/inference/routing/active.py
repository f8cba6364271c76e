"""Which blocks the requests in flight hold on each worker, shared ones counted once.

A path is a tuple of ranges of block numbers (tonnage.inference.prompts). Ranges that start at the same number are the
same content up to the shorter end, so the union of the ranges of all requests of a worker is known from the furthest
end per start, and a request is added, removed or matched in steps of ranges, not of blocks.
"""

from __future__ import annotations

from tonnage.inference.prompts import Path


class ActiveBlocks:
    """A multiset of paths per worker, with the number of distinct blocks and the depth of a match."""

    __slots__ = ("_ends", "_furthest", "_totals")

    def __init__(self) -> None:
        self._furthest: dict[int, dict[int, int]] = {}  # start of a range -> worker -> furthest end held
        self._ends: dict[tuple[int, int], dict[int, int]] = {}  # (worker, start) -> end -> paths that end there
        self._totals: dict[int, int] = {}

    def blocks(self, worker: int) -> int:
        """Distinct blocks of the paths of ``worker``."""
        return self._totals.get(worker, 0)

    def add(self, worker: int, path: Path) -> None:
        """One more request of ``worker`` holds ``path``."""
        if not path:
            return
        added = 0
        for low, high in path:
            ends = self._ends.get((worker, low))
            if ends is None:
                ends = self._ends[worker, low] = {}
            ends[high] = ends.get(high, 0) + 1
            furthest = self._furthest.get(low)
            if furthest is None:
                furthest = self._furthest[low] = {}
            before = furthest.get(worker, low)
            if high > before:
                furthest[worker] = high
                added += high - before
        self._totals[worker] = self._totals.get(worker, 0) + added

    def remove(self, worker: int, path: Path) -> None:
        """One request fewer holds ``path``. Raises KeyError for a path that was not added to ``worker``."""
        if not path:
            return
        removed = 0
        for low, high in path:
            ends = self._ends[worker, low]
            left = ends[high] - 1
            if left:
                ends[high] = left
                continue
            del ends[high]
            furthest = self._furthest[low]
            if furthest[worker] > high:
                continue
            if ends:
                now = furthest[worker] = max(ends)
                removed += high - now
                continue
            removed += high - low
            del self._ends[worker, low], furthest[worker]
            if not furthest:
                del self._furthest[low]
        total = self._totals[worker] - removed
        if total:
            self._totals[worker] = total
        else:
            del self._totals[worker]

    def depths(self, path: Path) -> dict[int, int]:
        """Leading blocks of ``path`` that requests of a worker hold, by worker; absent where none is held."""
        found: dict[int, int] = {}
        depth = 0
        for low, high in path:
            furthest = self._furthest.get(low)
            if furthest is None:
                break
            full = False
            for worker, end in furthest.items():
                # A worker that holds this range holds all before it, since its own paths led here.
                if end >= high:
                    found[worker] = depth + high - low
                    full = True
                else:
                    found[worker] = depth + end - low
            if not full:
                break
            depth += high - low
        return found
