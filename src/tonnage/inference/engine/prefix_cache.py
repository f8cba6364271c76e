"""Which blocks of one engine's KV cache hold known content, who uses them, and which go first when room is needed.

The rules are vLLM's (vllm/v1/core/block_pool.py): a full block can be found by its content as soon as it is scheduled
to be computed; a block that nobody uses stays findable, in a queue from which the oldest is evicted; a request that
ends frees its blocks from the last to the first, so that tails go before heads; a hit takes a block out of the queue.
The same content can be held twice, when two requests computed it side by side; only the first copy is found, the others
wait hidden until it is evicted. Copies are cut at the same places.

Blocks are not kept one by one. What is computed, used, freed and evicted together is an *extent*, a range of block
numbers (tonnage.inference.prompts); it is split when a prompt shares only its beginning. A request is a handful of
extents however long it is, which is what makes a trace of millions of blocks cheap to play.

The cache counts only what nobody uses (``idle``). Blocks in use are counted by the engine; together they must fit.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeAlias

from tonnage.inference.prompts import Path


class Extent:
    """Blocks ``low`` to ``high`` that are used by the same ``users`` requests and were freed at the same time."""

    __slots__ = ("high", "low", "next", "users")

    def __init__(self, low: int, high: int, users: int, follower: Extent | None = None) -> None:
        self.low = low
        self.high = high
        self.users = users
        self.next = follower  # the part that was split off, if a user of this extent may also use that


Lease: TypeAlias = list[tuple[Extent, int]]
"""What one request uses, in order: from an extent's beginning to a block number, through what was split off."""

Event: TypeAlias = tuple[bool, int, int, int]
"""(stored or removed, low, high, when in ps): content became findable here, or is no more."""


class PrefixCache:
    """The findable blocks of one engine. What is evicted does not count as ``idle`` any more at once, and is gone when
    somebody looks for content, unless others are told of events: it is the oldest, whatever is freed meanwhile.

    ``record`` keeps the events that a router's index would be told, ``news`` the same events for the engine's own lower
    tiers: each is read by one, at its own time.
    """

    __slots__ = ("_events", "_hidden", "_idle", "_news", "_owed", "_own", "_starts", "idle", "now_ps", "silent")

    def __init__(self, *, record: bool = False, news: bool = False) -> None:
        self.idle = 0
        self.now_ps = 0  # what happens is said to happen then
        self._starts: dict[int, Extent] = {}
        self._idle: OrderedDict[Extent, None] = OrderedDict()
        self._hidden: dict[int, list[Extent]] = {}  # further copies of what is findable, by their first block
        self._events: list[Event] | None = [] if record else None
        self._news: list[Event] | None = [] if news else None
        self.silent = not record and not news  # nobody is told of events
        self._owed = 0  # blocks that are evicted and still in the queue
        self._own = -(1 << 62)  # numbers of content that only its request can ask for again

    def match(self, path: Path, most: int) -> tuple[int, int]:
        """(blocks at the beginning of ``path`` that are here, how many of them nobody uses); ``most`` caps both."""
        if self._owed:
            self._forget(self._owed)
        starts = self._starts
        found = idle = 0
        for low, high in path:
            high = min(high, low + most - found)
            at = low
            while at < high:
                extent = starts.get(at)
                if extent is None:
                    return found, idle
                end = extent.high
                if end > high:  # noqa: PLR1730 (twice as fast as min)
                    end = high
                found += end - at
                if not extent.users:
                    idle += end - at
                at = end
            if found >= most:
                break
        return found, idle

    def acquire(self, path: Path, blocks: int) -> Lease:
        """Use the first ``blocks`` blocks of ``path``, which are here."""
        if self._owed:
            self._forget(self._owed)
        lease: Lease = []
        starts = self._starts
        left = blocks
        for low, high in path:
            if left <= 0:
                break
            high = min(high, low + left)
            left -= high - low
            at = low
            while at < high:
                extent = starts[at]
                if extent.high > high:
                    if at in self._hidden:
                        self._cut(at, high)
                    else:
                        extent = self._split(extent, high)
                if not extent.users:
                    del self._idle[extent]
                    self.idle -= extent.high - extent.low
                extent.users += 1
                at = extent.high
                lease.append((extent, at))
        return lease

    def commit(self, lease: Lease, low: int, high: int) -> None:
        """Blocks that the lease's request alone holds, behind what it has, become findable as ``low`` to ``high``."""
        starts, hidden = self._starts, self._hidden
        if self._owed and (hidden or low in starts):
            self._forget(self._owed)
        while low in starts:  # what comes behind a copy is new, or begins where the extent that it copies ends
            if starts[low].high > high:
                self._cut(low, high)
            end = starts[low].high
            copy = Extent(low, end, 1)
            lease.append((copy, end))
            hidden.setdefault(low, []).append(copy)
            low = end
            if low == high:
                return
        if not self.silent:
            self._tell(True, low, high)
        if lease:
            last, end = lease[-1]
            if end == low and last.high == low and last.users == 1 and last.low not in hidden:
                last.high = high
                last.next = None
                lease[-1] = (last, high)
                return
        starts[low] = extent = Extent(low, high, 1)
        lease.append((extent, high))

    def own(self, blocks: int) -> tuple[int, int]:
        """Numbers for content that only one request can ask for again: what it generated before it was preempted.

        They do not adjoin those given before, so that extents end where ranges of a path do.
        """
        low = self._own
        high = low + blocks
        self._own = high + 1
        return low, high

    def release(self, lease: Lease, unknown: int = 0) -> int:
        """Use no more what the lease holds, last block first. Returns how many blocks of it nobody uses any more.

        ``unknown`` full blocks come behind it, with content that nobody can ask for. They go first.
        """
        idle = self._idle
        if unknown > 0:
            idle[Extent(*self.own(unknown), 0)] = None
        freed = 0
        for extent, end in reversed(lease):
            if extent.high < end:
                freed += self._release_parts(extent, end)
                continue
            extent.users -= 1
            if not extent.users:
                idle[extent] = None
                freed += extent.high - extent.low
        self.idle += freed + unknown
        lease.clear()
        return freed

    def evict(self, blocks: int) -> None:
        """Forget the content of ``blocks`` idle blocks, oldest first. Raises RuntimeError when there are too few."""
        if blocks > self.idle:
            raise RuntimeError(f"{blocks} blocks are to be evicted and only {self.idle} are idle")
        self.idle -= blocks
        if self.silent:
            self._owed += blocks
        else:
            self._forget(blocks)

    def _forget(self, blocks: int) -> None:
        """Take what is evicted out of the queue."""
        self._owed = 0
        queue, starts = self._idle, self._starts
        while blocks > 0:
            extent = next(iter(queue))
            low, high = extent.low, extent.high
            keep = high - blocks
            if low in self._hidden:
                if keep > low:
                    self._cut(low, keep)
                    continue
                self._forget_copy(extent)
            elif starts.get(low) is extent:
                if not self.silent:
                    self._tell(False, max(low, keep), high)
                if keep <= low:
                    del starts[low]
            if keep > low:
                extent.high = keep
                return
            del queue[extent]
            blocks -= high - low

    def clear(self) -> None:
        """Forget everything that nobody uses (vLLM's reset_prefix_cache; AllBlocksCleared)."""
        self.evict(self.idle)

    def take_events(self) -> list[Event]:
        """The events since the last call; empty unless they are recorded."""
        if not self._events:
            return []
        taken, self._events = self._events, []
        return taken

    def take_news(self) -> list[Event]:
        """The same events for the tiers below; empty unless they are kept."""
        if not self._news:
            return []
        taken, self._news = self._news, []
        return taken

    def _release_parts(self, extent: Extent | None, end: int) -> int:
        """What ``release`` does for an extent from which parts were split off since."""
        parts = []
        while extent is not None:
            parts.append(extent)
            extent = extent.next if extent.high < end else None
        freed = 0
        for part in reversed(parts):
            part.users -= 1
            if not part.users:
                self._idle[part] = None
                freed += part.high - part.low
        return freed

    def _split(self, extent: Extent, at: int) -> Extent:
        """Cut an extent that is findable and has no copies; its beginning, which is about to be used."""
        if extent.users:
            self._starts[at] = self._part(extent, at)
            return extent
        first = Extent(extent.low, at, 0)
        extent.low = at  # keeps its place in the queue
        self._starts[first.low] = first
        self._starts[at] = extent
        self._idle[first] = None  # its place does not matter
        return first

    def _cut(self, low: int, at: int) -> None:
        """Cut the findable extent that begins at ``low`` and all its copies at ``at``. They keep their places."""
        self._starts[at] = self._part(self._starts[low], at)
        copies = self._hidden.get(low)
        if copies:
            self._hidden[at] = [self._part(copy, at) for copy in copies]

    def _part(self, extent: Extent, at: int) -> Extent:
        """Cut an extent and return its tail. In the queue, which is written again, the tail goes before the rest."""
        tail = Extent(at, extent.high, extent.users, extent.next)
        extent.high = at
        if extent.users:
            extent.next = tail
            return tail
        queued = list(self._idle)
        self._idle.clear()
        for one in queued:
            if one is extent:
                self._idle[tail] = None
            self._idle[one] = None
        return tail

    def _forget_copy(self, extent: Extent) -> None:
        """Forget one of several extents of the same content; another stays findable."""
        copies = self._hidden[extent.low]
        if self._starts[extent.low] is extent:
            self._starts[extent.low] = copies.pop(0)
        else:
            copies.remove(extent)
        if not copies:
            del self._hidden[extent.low]

    def _tell(self, stored: bool, low: int, high: int) -> None:
        if 0 <= low < high:
            event = (stored, low, high, self.now_ps)
            if self._events is not None:
                self._events.append(event)
            if self._news is not None:
                self._news.append(event)
