"""Which workers hold which blocks of which prompts, as runs of a chain that the same workers hold.

A key names a block together with everything before it (a chained hash), so the keys of a prompt are a chain and two
prompts that share a key share the whole way to it. Consecutive blocks that exactly the same workers hold are one
:class:`Run`: a list of keys and one bitmask of workers. A lookup goes from run to run: when the last key of a run is
the prompt's key at that place, the whole run is on the prompt's way, by the chain. It therefore costs one dictionary
access per change of the set of holders on the way, not per block, and it needs no assumption on which blocks a worker
drops first: a worker that lacks a block in the middle (a hole) is simply not in that run's mask.

Runs may branch anywhere: a prompt that leaves a run in the middle goes on at the run that its next key is in. Runs are
cut and joined as workers store and drop parts of them; a cut or a joint renames the shorter side.

Publishers may contradict each other, or themselves. Who holds a block never depends on what is said of its parent: that
only says where the block is kept. The first parent stated for a key counts (None states nothing). When another is
stated, the key begins a run from then on and is not joined to what is before it, so no lookup passes over it unseen. A
list that names a key twice states two parents of it. A key that would follow itself has no parent; parents that go
round in a circle by way of other runs stay as they are and harm nothing, since nothing walks along parents. So for
every chain of keys in which no key has another predecessor than all who stated one say, the answers are those of
plain sets of keys. For other lists a worker's answer ends at a block that it lacks or at the end of the list, and may
pass over others that it lacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from sys import getsizeof
from typing import TypeAlias

MAX_RUN = 1024
"""Blocks of the longest run; bounds the search for a key in the middle of one (some microseconds)."""

Groups: TypeAlias = list[tuple[int, int]]
"""(leading blocks held, mask of the workers that hold exactly this many), fewest first; who has none is left out."""

Ranges: TypeAlias = Sequence[tuple[int, int]]
"""Half-open ranges of places in a list of keys."""


class Run:
    """Consecutive blocks of one chain, held by the workers of ``mask``. ``parent``: the key before, None at the root
    or where it is not known. ``disputed``: other parents were stated for the first key. ``next``: a run that followed
    when last seen; it may be out of date."""

    __slots__ = ("disputed", "keys", "mask", "next", "parent")

    def __init__(self, keys: list[int], mask: int, parent: int | None) -> None:
        self.keys = keys
        self.mask = mask
        self.parent = parent
        self.disputed = False
        self.next: Run | None = None


class RunIndex:
    """Keys to holders. Workers are single bits of a mask, any number of them."""

    def __init__(self) -> None:
        self._where: dict[int, Run] = {}
        self.find = self._where.get
        self.contradicted = 0
        """Blocks stored after another parent than the first one stated, or after themselves."""

    def __len__(self) -> int:
        """Distinct blocks held by anyone."""
        return len(self._where)

    def holders(self, key: int) -> int:
        """The mask of the workers that hold this block."""
        run = self._where.get(key)
        return run.mask if run is not None else 0

    # -- lookup ---------------------------------------------------------------------------------------------------

    def groups(self, keys: Sequence[int]) -> Groups:
        """How many leading blocks of the chain ``keys`` each worker holds, workers with equal counts together."""
        out: Groups = []
        total = len(keys)
        if not total:
            return out
        find = self.find
        run = find(keys[0])
        if run is None:
            return out
        mask, at = run.mask, 0
        while True:
            run_keys = run.keys
            end = at + len(run_keys)
            if end <= total and run_keys[-1] == keys[end - 1]:
                at = end
            else:
                offset = 0 if run_keys[0] == keys[at] else run_keys.index(keys[at])
                at += _shared(run_keys, offset, keys, at)
            if at >= total:
                out.append((total, mask))
                return out
            run = find(keys[at])
            if run is None:
                out.append((at, mask))
                return out
            left = mask & run.mask
            if left != mask:
                out.append((at, mask ^ left))
                if not left:
                    return out
                mask = left

    def beyond(self, keys: Sequence[int], starts: Iterable[tuple[int, int]]) -> Groups:
        """(further blocks, mask) of the workers of ``starts``, from where each starts.

        ``starts`` is [(blocks held elsewhere, mask)]. A worker gets the count of consecutive blocks of ``keys`` that
        it holds here from that place on; workers with none are left out.
        """
        out: Groups = []
        total = len(keys)
        for start, mask in starts:
            at = start
            while at < total:
                run = self.find(keys[at])
                left = mask & run.mask if run is not None else 0
                if left != mask:
                    if at > start:
                        out.append((at - start, mask ^ left))
                    mask = left
                if not left or run is None:
                    break
                run_keys = run.keys
                offset = 0 if run_keys[0] == keys[at] else run_keys.index(keys[at])
                at += _shared(run_keys, offset, keys, at)
            else:
                if mask and total > start:
                    out.append((total - start, mask))
        return out

    # -- change ---------------------------------------------------------------------------------------------------

    def store(self, bit: int, parent: int | None, keys: list[int]) -> Ranges:
        """A worker now holds the chain ``keys``, which follows the block ``parent`` (None: it begins a prompt).

        Of a key that is in the list twice the first place counts. Returns the half-open ranges of ``keys`` that the
        worker held already.
        """
        where = self._where
        size = len(where) + len(keys)
        if where.keys().isdisjoint(keys):
            self._append(bit, parent, keys)
            if len(where) == size:
                return ()
            self.remove(bit, keys)  # the list names a key twice: once more, block by block
        held: list[tuple[int, int]] = []
        at, total = 0, len(keys)
        once = len(set(keys)) == total
        while at < total:
            run = where.get(keys[at])
            if run is None:
                end = at + 1
                while once and end < total and keys[end] not in where:
                    end += 1
                self._append(bit, parent, keys[at:end])
            else:
                offset = 0 if run.keys[0] == keys[at] else run.keys.index(keys[at])
                count = _alike(run.keys, offset, keys, at)
                end = at + count
                if parent is not None and parent != (run.keys[offset - 1] if offset else run.parent):
                    run, offset = self._restate(run, offset, parent)
                if run.mask & bit:
                    held.append((at, end))
                else:
                    part = self._cut(run, offset, offset + count)
                    part.mask |= bit
                    self._join_around(part)
            parent = keys[end - 1]
            at = end
        return held

    def grow(self, bit: int, parent: int, key: int) -> bool:
        """:meth:`store` of one new block at the end of a run that this worker alone holds; False, and nothing done,
        when it is not that."""
        where = self._where
        run = where.get(parent)
        if run is None or run.mask != bit or key in where or run.keys[-1] != parent or len(run.keys) >= MAX_RUN:
            return False
        run.keys.append(key)
        where[key] = run
        return True

    def remove(self, bit: int, keys: Sequence[int]) -> int:
        """The worker no longer holds these blocks, in any order. Returns how many of them it did not hold anyway."""
        where = self._where
        unknown = at = 0
        total = len(keys)
        while at < total:
            key = keys[at]
            at += 1
            run = where.get(key)
            if run is None or not run.mask & bit:
                unknown += 1
                continue
            run_keys = run.keys
            last = len(run_keys) - 1
            if run_keys[last] == key:
                low = last
            else:
                low = 0 if run_keys[0] == key else run_keys.index(key)
            high = low + 1
            if at < total:  # neighbours in one go, tail first as engines evict, or head first
                while at < total and low and keys[at] == run_keys[low - 1]:
                    low -= 1
                    at += 1
                while at < total and high <= last and keys[at] == run_keys[high]:
                    high += 1
                    at += 1
            self._drop(run, bit, low, high)
        return unknown

    def clear(self, bit: int, keys: Iterable[int]) -> None:
        """The worker holds nothing any more; ``keys`` are all that it held."""
        find = self.find
        for key in keys:
            run = find(key)
            if run is not None and run.mask & bit:
                self._drop(run, bit, 0, len(run.keys))

    def before(self, key: int) -> int | None:
        """The key that precedes this one in its chain; None at a root or when it is not known."""
        run = self._where.get(key)
        if run is None or run.keys[0] == key:
            return run.parent if run is not None else None
        return run.keys[run.keys.index(key) - 1]

    # -- inside ---------------------------------------------------------------------------------------------------

    def _append(self, bit: int, parent: int | None, keys: list[int]) -> None:
        """Blocks that nobody held."""
        where = self._where
        left = where.get(parent) if parent is not None else None
        if left is None:
            if parent is not None and parent in keys:
                self.contradicted += 1
                parent = None
        elif left.keys[-1] != parent:
            left = None
        if len(keys) > MAX_RUN:
            keys = list(dict.fromkeys(keys))
        if left is not None and left.mask == bit and len(left.keys) + len(keys) <= MAX_RUN:
            self._name(left, keys)
            return
        for at in range(0, len(keys), MAX_RUN):
            run = Run([], bit, parent)
            self._name(run, keys[at : at + MAX_RUN])
            if left is not None:
                left.next = run
            left, parent = run, run.keys[-1]

    def _name(self, run: Run, keys: list[int]) -> None:
        """New keys at the end of a run."""
        where = self._where
        size = len(where) + len(keys)
        for key in keys:  # quicker than dict.update, as measured
            where[key] = run
        run.keys += keys if len(where) == size else dict.fromkeys(keys)

    def _restate(self, run: Run, offset: int, parent: int) -> tuple[Run, int]:
        """Another parent than what is known is stated for the key at ``offset``: where that key is now."""
        if not offset and run.parent is None and self._where.get(parent) is not run:
            run.parent = parent
            return run, 0
        self.contradicted += 1
        if offset:
            run = self._split(run, offset)[1]
        run.disputed = True
        return run, 0

    def _cut(self, run: Run, low: int, high: int) -> Run:
        """The run of exactly the blocks [low, high) of ``run``, after cutting off what is before and after."""
        if high < len(run.keys):
            run = self._split(run, high)[0]
        if low:
            run = self._split(run, low)[1]
        return run

    def _split(self, run: Run, at: int) -> tuple[Run, Run]:
        keys = run.keys
        if at * 2 >= len(keys):
            left, right = run, Run(keys[at:], run.mask, keys[at - 1])
            del keys[at:]
            self._where.update(dict.fromkeys(right.keys, right))
            right.next = left.next
        else:
            left, right = Run(keys[:at], run.mask, run.parent), run
            left.disputed = run.disputed
            right.parent, right.disputed = keys[at - 1], False
            del keys[:at]
            self._where.update(dict.fromkeys(left.keys, left))
            self._follow(left)
        left.next = right
        return left, right

    def _follow(self, run: Run) -> None:
        """The run before this one learns what follows it."""
        before = self._where.get(run.parent) if run.parent is not None else None
        if before is not None and before.keys[-1] == run.parent:
            before.next = run

    def _join_around(self, run: Run) -> None:
        """Join a run whose mask changed with its neighbours where the masks are now equal."""
        parent = run.parent
        if parent is not None:
            left = self._where.get(parent)
            if left is not None and left.mask == run.mask and left.keys[-1] == parent:
                run = self._join(left, run)
        right = run.next
        if right is not None and right.mask == run.mask and right.keys and right.parent == run.keys[-1]:
            self._join(run, right)

    def _join(self, left: Run, right: Run) -> Run:
        """Returns the run that ``right`` is in then. Not joined: a run to itself (parents in a circle), or where the
        parents stated differ."""
        if left is right or right.disputed or len(left.keys) + len(right.keys) > MAX_RUN:
            return right
        if len(left.keys) >= len(right.keys):
            self._where.update(dict.fromkeys(right.keys, left))
            left.keys += right.keys
            left.next = right.next
            right.keys = []
            right.next = None
            return left
        self._where.update(dict.fromkeys(left.keys, right))
        right.keys[:0] = left.keys
        right.parent, right.disputed = left.parent, left.disputed
        left.keys = []
        left.next = None
        self._follow(right)
        return right

    def _drop(self, run: Run, bit: int, low: int, high: int) -> None:
        if run.mask != bit:
            part = self._cut(run, low, high)
            part.mask ^= bit
            self._join_around(part)
            return
        if high < len(run.keys) and low:
            run = self._split(run, high)[0]
        keys = run.keys
        gone = keys[low:high]
        if low == 0 and high < len(keys):
            run.parent, run.disputed = gone[-1], False
        del keys[low:high]
        for key in gone:
            del self._where[key]
        if not keys:
            run.next = None

    # -- memory ---------------------------------------------------------------------------------------------------

    def bytes(self) -> int:
        """Bytes of the dictionary, the runs, their key lists, the keys and the masks (a mask shared by runs counts
        each time). Takes time in proportion to the number of blocks."""
        runs = {id(run): run for run in self._where.values()}.values()
        own = sum(getsizeof(run) + getsizeof(run.keys) + getsizeof(run.mask) for run in runs)
        return getsizeof(self._where) + sum(map(getsizeof, self._where)) + own

    def runs(self) -> int:
        """Number of runs. Takes time in proportion to the number of blocks."""
        return len({id(run) for run in self._where.values()})

    def check(self) -> None:
        """Raise AssertionError unless every key is in exactly the run that the dictionary names."""
        runs = {id(run): run for run in self._where.values()}
        listed = sum(len(run.keys) for run in runs.values())
        if listed != len(self._where):
            raise AssertionError(f"{listed} keys in runs, {len(self._where)} in the dictionary")
        for run in runs.values():
            if not run.mask or any(self.find(key) is not run for key in run.keys):
                raise AssertionError(f"a run of {len(run.keys)} keys is not what the dictionary says")


def _shared(run_keys: list[int], offset: int, keys: Sequence[int], at: int) -> int:
    """How many keys of the run from ``offset`` on equal those of ``keys`` from ``at`` on; the first are equal.

    Both are chains: equal at one place means equal before.
    """
    length = min(len(run_keys) - offset, len(keys) - at)
    if run_keys[offset + length - 1] == keys[at + length - 1]:
        return length
    low, high = 0, length - 1
    while high - low > 1:
        middle = (low + high) >> 1
        if run_keys[offset + middle] == keys[at + middle]:
            low = middle
        else:
            high = middle
    return high


def _alike(run_keys: list[int], offset: int, keys: Sequence[int], at: int) -> int:
    """:func:`_shared` of lists that need not be chains: every key is compared."""
    length = min(len(run_keys) - offset, len(keys) - at)
    if run_keys[offset : offset + length] == keys[at : at + length]:
        return length
    return next(n for n in range(1, length) if run_keys[offset + n] != keys[at + n])
