"""Disjoint ranges of block numbers with something attached to each, and two uses of them: what a tier holds, in the
order in which it will be evicted; and how often blocks were used.

Everything works on ranges, so that a prompt costs as much as it has ranges, however many blocks they are. Ranges are
cut where a call begins or ends inside one, and joined again when they are touched together.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from heapq import heapify, heappop, heappush

Span = tuple[int, int]
"""A half-open range of block numbers."""

_VALUE_CAP = 1 << 30


class _Piece:
    """Blocks ``low`` to ``high``. What ``value`` and ``time`` mean is the owner's affair."""

    __slots__ = ("high", "low", "time", "value")

    def __init__(self, low: int, high: int, value: int, time: int) -> None:
        self.low = low
        self.high = high
        self.value = value
        self.time = time

    def __lt__(self, other: _Piece) -> bool:
        """For heaps, where the order of equals does not matter."""
        return False


class _Ranges:
    """Pieces in order of block number."""

    __slots__ = ("_pieces", "_starts", "blocks")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._pieces: list[_Piece] = []
        self.blocks = 0

    def _between(self, low: int, high: int) -> tuple[int, int]:
        """The pieces that overlap, as a slice."""
        first = bisect_right(self._starts, low) - 1
        if first < 0 or self._pieces[first].high <= low:
            first += 1
        return first, bisect_left(self._starts, high, first)

    def _cut(self, low: int, high: int) -> tuple[int, int]:
        """Cut the pieces that lie across either end; then the slice of those inside."""
        for at in (low, high):
            index = bisect_left(self._starts, at) - 1
            if index >= 0 and self._pieces[index].high > at:
                piece = self._pieces[index]
                tail = _Piece(at, piece.high, piece.value, piece.time)
                piece.high = at
                self._starts.insert(index + 1, at)
                self._pieces.insert(index + 1, tail)
                self._was_cut(tail)
        return bisect_left(self._starts, low), bisect_left(self._starts, high)

    def _was_cut(self, tail: _Piece) -> None:
        """A piece got a second half."""

    def _put(self, first: int, last: int, pieces: list[_Piece]) -> None:
        self._pieces[first:last] = pieces
        self._starts[first:last] = [piece.low for piece in pieces]

    def gaps(self, low: int, high: int) -> list[Span]:
        """What of a range is not here."""
        first, last = self._between(low, high)
        missing: list[Span] = []
        for piece in self._pieces[first:last]:
            if piece.low > low:
                missing.append((low, piece.low))
            low = piece.high
        if low < high:
            missing.append((low, high))
        return missing


class HeldBlocks(_Ranges):
    """What one tier holds: at most ``room`` blocks (None: unlimited), the least recently used is evicted first.

    Of blocks that were used together the last goes first, as the beginning of a prompt is of use without its end and
    not the other way round. Each block has the time in ps from which it can be read.
    """

    __slots__ = ("_clock", "_heap", "room")

    def __init__(self, room: int | None = None) -> None:
        super().__init__()
        self.room = room
        self._clock = 0
        self._heap: list[tuple[int, int, _Piece]] = []  # (last use, -low); entries may be outdated

    def reach(self, low: int, high: int, now: int) -> int:
        """The end of the blocks from ``low`` on that are here and can be read; ``low`` if there is none."""
        first, last = self._between(low, high)
        for piece in self._pieces[first:last]:
            if piece.low > low or piece.time > now:
                return low
            low = min(piece.high, high)
        return low

    def touch(self, low: int, high: int, now: int) -> None:
        """Those of the blocks that are here were used."""
        first, last = self._between(low, high)
        if first < last:
            self._clock += 1
            self._renew(low, high, now)

    def add(self, low: int, high: int, ready: int, now: int, since: int | None = None) -> list[Span]:
        """Take these blocks in, readable from ``ready`` on; all were used, and those from ``since`` on with them.

        Returns what had to be evicted: ranges in order, each from its end to its beginning."""
        missing = self.gaps(low, high)
        for gap_low, gap_high in missing:
            piece = _Piece(gap_low, gap_high, 0, ready)
            at = bisect_left(self._starts, gap_low)
            self._starts.insert(at, gap_low)
            self._pieces.insert(at, piece)
            self.blocks += gap_high - gap_low
        self._clock += 1
        self._renew(low if since is None else since, high, now)
        return self._shrink()

    def drop_unready(self, low: int, high: int, now: int) -> int:
        """Forget the blocks that cannot be read yet; how many."""
        first, last = self._between(low, high)
        if not any(piece.time > now for piece in self._pieces[first:last]):
            return 0
        first, last = self._cut(low, high)
        kept = []
        lost = 0
        for piece in self._pieces[first:last]:
            if piece.time > now:
                lost += piece.high - piece.low
                piece.value = -1
            else:
                kept.append(piece)
        self._put(first, last, kept)
        self.blocks -= lost
        return lost

    def _renew(self, low: int, high: int, now: int) -> None:
        """Give the blocks of a range the present time of use, and join what now is alike."""
        first, last = self._cut(low, high)
        joined: list[_Piece] = []
        for piece in self._pieces[first:last]:
            before = joined[-1] if joined else None
            alike = before is not None and (before.time == piece.time or max(before.time, piece.time) <= now)
            if before is not None and alike and before.high == piece.low:
                before.high = piece.high
                before.time = max(before.time, piece.time)
                piece.value = -1
            else:
                joined.append(piece)
        if len(joined) < last - first:
            self._put(first, last, joined)
        for piece in joined:
            piece.value = self._clock
            self._queue(piece)

    def _shrink(self) -> list[Span]:
        """Evict what there is no room for."""
        evicted: list[Span] = []
        if self.room is None:
            return evicted
        excess = self.blocks - self.room
        while excess > 0:
            used, low, piece = self._heap[0]
            if piece.value != used or piece.low != -low:
                heappop(self._heap)
                continue
            size = piece.high - piece.low
            gone, high = min(size, excess), piece.high
            if gone == size:
                heappop(self._heap)
                at = bisect_left(self._starts, piece.low)
                del self._starts[at], self._pieces[at]
                piece.value = -1
            piece.high -= gone
            self.blocks -= gone
            excess -= gone
            if evicted and evicted[-1][0] == high:
                high = evicted.pop()[1]
            evicted.append((piece.high, high))
        return evicted

    def _was_cut(self, tail: _Piece) -> None:
        self._queue(tail)

    def _queue(self, piece: _Piece) -> None:
        if self.room is None:
            return
        heappush(self._heap, (piece.value, -piece.low, piece))
        if len(self._heap) > 64 + 4 * len(self._pieces):
            self._heap = [(each.value, -each.low, each) for each in self._pieces]
            heapify(self._heap)


class Frequencies(_Ranges):
    """How often blocks were used lately: 1 at the first use, doubled at each further one, less 1 at each decay step;
    a block that comes to 0 is forgotten. Above ``most`` blocks, decay steps are added until they are fewer.

    Source: ai-dynamo/dynamo lib/llm/src/block_manager/offload/filter.rs.
    """

    __slots__ = ("_extra", "most")

    def __init__(self, most: int = 1_000_000) -> None:
        super().__init__()
        self.most = most
        self._extra = 0

    def use(self, low: int, high: int, step: int) -> None:
        """The blocks were used in decay step ``step``, which never goes back."""
        step += self._extra
        first, last = self._cut(low, high)
        used: list[_Piece] = []
        at = low
        for piece in self._pieces[first:last]:
            if piece.low > at:
                used.append(_Piece(at, piece.low, 1, step))
            value = piece.value - (step - piece.time)
            used.append(_Piece(piece.low, piece.high, min(2 * value, _VALUE_CAP) if value > 0 else 1, step))
            at = piece.high
        if at < high:
            used.append(_Piece(at, high, 1, step))
        joined: list[_Piece] = []
        for piece in used:
            if joined and joined[-1].value == piece.value:
                joined[-1].high = piece.high
            else:
                joined.append(piece)
        self.blocks += high - low - sum(piece.high - piece.low for piece in self._pieces[first:last])
        self._put(first, last, joined)
        if self.blocks > self.most:
            self._forget(step - self._extra)

    def at_least(self, low: int, high: int, value: int, step: int) -> Iterator[Span]:
        """The parts of a range that were used this often."""
        step += self._extra
        first, last = self._between(low, high)
        start = end = low
        for piece in self._pieces[first:last]:
            if piece.value - (step - piece.time) < value:
                continue
            if piece.low > end or start == end:
                if end > start:
                    yield start, end
                start = max(piece.low, low)
            end = min(piece.high, high)
        if end > start:
            yield start, end

    def _forget(self, step: int) -> None:
        """Drop what has come to 0, then one more decay step at a time until few enough are left."""
        while True:
            now = step + self._extra
            kept = [piece for piece in self._pieces if piece.value > now - piece.time]
            self._put(0, len(self._pieces), kept)
            self.blocks = sum(piece.high - piece.low for piece in kept)
            if self.blocks <= self.most:
                return
            self._extra += 1
