"""The approximate index: what a worker should hold since requests were sent to it, for a time.

No events are needed. A prompt that is dispatched will be in its worker's cache soon, so its blocks are entered at once,
and leave after ``ttl_ns`` without another use, or when a worker has more than ``max_blocks`` (oldest use first). Beside
an exact index, one with a time to live of seconds bridges the time until the events come (ai-dynamo/dynamo,
router-concepts.md: predict on route; 120 s without events).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from tonnage.inference.index.runs import Groups, RunIndex
from tonnage.inference.index.workers import Slots

LONG_TTL_NS = 120_000_000_000
SHORT_TTL_NS = 5_000_000_000
_SLACK = 1024  # key references beyond the blocks held that may wait for their time


class _Uses:
    """One worker's uses of blocks, oldest first."""

    __slots__ = ("bit", "last", "queue", "references")

    def __init__(self, bit: int) -> None:
        self.bit = bit
        self.last: dict[int, int] = {}  # key to the number of its last use
        self.queue: deque[tuple[int, int, Sequence[int]]] = deque()  # (expires ns, number, keys)
        self.references = 0


class PredictedIndex:
    """Prompts dispatched of late. Time must not run backwards."""

    def __init__(self, ttl_ns: int = LONG_TTL_NS, max_blocks: int = 1 << 16) -> None:
        self.ttl_ns = ttl_ns
        self.max_blocks = max_blocks
        self.slots = Slots()
        self._index = RunIndex()
        self._uses: dict[str, _Uses] = {}
        self._due: deque[tuple[int, _Uses]] = deque()
        self._number = 0

    def __len__(self) -> int:
        """Distinct blocks."""
        return len(self._index)

    def held(self, name: str) -> int:
        """Blocks of a worker, those past their time that no lookup has met included."""
        uses = self._uses.get(name)
        return len(uses.last) if uses is not None else 0

    def dispatched(self, name: str, keys: Sequence[int], now_ns: int) -> None:
        """A prompt with these keys goes to this worker. Of one longer than ``max_blocks`` the head is kept."""
        self._expire(now_ns)
        uses = self._uses.get(name)
        if uses is None:
            uses = self._uses[name] = _Uses(1 << self.slots.add(name))
        kept = list(keys[: self.max_blocks])
        if not kept:
            return
        self._number += 1
        uses.last.update(dict.fromkeys(kept, self._number))
        uses.queue.append((now_ns + self.ttl_ns, self._number, kept))
        uses.references += len(kept)
        self._due.append((now_ns + self.ttl_ns, uses))
        self._index.store(uses.bit, None, kept)
        while len(uses.last) > self.max_blocks:
            self._drop_oldest(uses)
        if uses.references > 2 * len(uses.last) + _SLACK:
            _compact(uses)

    def groups(self, keys: Sequence[int], now_ns: int) -> Groups:
        """How many leading blocks each worker should hold."""
        self._expire(now_ns)
        return self._index.groups(keys)

    def scores(self, keys: Sequence[int], now_ns: int) -> dict[str, int]:
        """The same by worker."""
        return self.slots.scores(self.groups(keys, now_ns))

    def clear(self, name: str) -> None:
        """The worker's cache is empty."""
        uses = self._uses.get(name)
        if uses is not None:
            self._index.clear(uses.bit, uses.last)
            uses.last.clear()
            uses.queue.clear()
            uses.references = 0

    def remove_worker(self, name: str) -> None:
        """Forget a worker."""
        if name in self._uses:
            self.clear(name)
            del self._uses[name]
            self.slots.release(name)

    def _expire(self, now_ns: int) -> None:
        due = self._due
        while due and due[0][0] <= now_ns:
            uses = due.popleft()[1]
            while uses.queue and uses.queue[0][0] <= now_ns:
                self._drop_oldest(uses)

    def _drop_oldest(self, uses: _Uses) -> None:
        _, number, keys = uses.queue.popleft()
        uses.references -= len(keys)
        last = uses.last
        gone = [key for key in reversed(keys) if last.get(key) == number]
        for key in gone:
            del last[key]
        self._index.remove(uses.bit, gone)


def _compact(uses: _Uses) -> None:
    """Forget uses that a later one of the same block has replaced."""
    last = uses.last
    kept: deque[tuple[int, int, Sequence[int]]] = deque()
    for expires, number, keys in uses.queue:
        still = [key for key in keys if last.get(key) == number]
        if still:
            kept.append((expires, number, still))
    uses.queue = kept
    uses.references = len(last)
