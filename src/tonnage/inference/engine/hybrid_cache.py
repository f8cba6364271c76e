"""The KV cache of an engine whose model has sliding windows: block groups over one pool (hybrid.py).

Full groups hold every token of a sequence. A window group holds, while ``n`` tokens are computed after ``c`` others,
the blocks of tokens ``max(0, c - span + 1)`` to ``c + n``; what the window has passed is freed when the step ends.
A state group holds one block of a sequence from its admission to its end. Every decoding sequence takes blocks in the
steps of its residues, as in kv_blocks.py; once it has left its window, it also frees a block of every window group each
``size`` steps. So a second count by residues answers for any run of steps in which no sequence leaves its window.

Three things are simpler than in vLLM:

- vLLM frees what a window has passed when the sequence is scheduled again, not at the end of the step before. Seen
  from a step as a whole the counts are equal; only sequences scheduled before it in that step could not use the blocks.
- What can be found by content, and is evicted, are the blocks of full groups alone. A hit takes new blocks for its
  windows and their content is taken to be there; vLLM shares them, evicts them earlier, and shortens the hit where the
  last window before its end is gone.
- A model without full layers keeps no content at all.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import lcm

from tonnage.inference.engine.kv_cache import KvCache
from tonnage.inference.engine.prefix_cache import PrefixCache
from tonnage.inference.engine.requests import Request
from tonnage.inference.hybrid import Layout


class HybridCache(KvCache):
    """Block accounting by groups. ``layout`` has at most one kind of full layers, and any of windows and states.

    ``max_num_batched_tokens``: the most tokens that a step computes of one sequence.
    """

    __slots__ = ("_cycle", "_exits", "_frees", "_full", "_groups", "_leaving", "_states", "_windows")

    def __init__(
        self,
        total: int,
        layout: Layout,
        cache: PrefixCache | None,
        max_num_batched_tokens: int,
        *,
        to_the_end: bool = False,
    ) -> None:
        self._full = sum(group.count for group in layout.groups if group.layers.kind == "full")
        super().__init__(total, layout.block_size, cache if self._full else None, to_the_end=to_the_end)
        self._groups = [(group.count, group.block_size) for group in layout.groups if group.layers.kind != "state"]
        self._states = sum(group.count for group in layout.groups if group.layers.kind == "state")
        self._windows = [
            (
                group.count,
                group.block_size,
                group.layers.span,
                _most(group.layers.span, group.block_size, max_num_batched_tokens),
            )
            for group in layout.groups
            if group.layers.kind == "window"
        ]
        self._cycle = lcm(*(size for _, size in self._groups))
        self._due = [0] * self._cycle  # blocks that are taken, by the residue of the step
        self._frees = [0] * self._cycle  # blocks that windows have passed at the end of the step
        self._leaving: dict[tuple[int, int], int] = {}  # (step, window) -> sequences that first free a block then
        self._exits: list[tuple[int, int]] = []  # heap of its keys

    # --- blocks of one sequence -----

    def blocks(self, tokens: int) -> int:
        held = self._full * -(-tokens // self.block_size) + self._states
        return held + sum(count * min(-(-tokens // size), most) for count, size, _, most in self._windows)

    def _in_windows(self, passed: int, tokens: int) -> int:
        """Blocks of window and state groups while tokens ``passed`` to ``tokens`` are computed."""
        held = self._states
        for count, size, span, _ in self._windows:
            behind = passed - span + 1
            held += count * (-(-tokens // size) - (behind // size if behind > 0 else 0))
        return held

    def due_of(self, cached: int) -> int:
        return sum(count for count, size in self._groups if cached % size == 0)

    def extra(self, cached: int, tokens: int) -> int:
        end = cached + tokens
        return sum(count * (-(-end // size) + (-cached // size)) for count, size in self._groups)

    def slide(self, request: Request) -> None:
        """A step ends that computed a chunk of the request: free what its windows have passed."""
        for count, size, span, _ in self._windows:
            old, new = request.passed - span + 1, request.computed - span + 1
            if new > 0:
                self.used -= count * (new // size - (old // size if old > 0 else 0))
        request.passed = request.computed

    # --- admission and end -----

    def fits(self, request: Request, computed: int, tokens: int, hit: int, idle: int, reserved: int = 0) -> bool:
        shared = self._full * (idle - hit)
        if self.to_the_end:
            return self.promised + self.blocks(request.last) + shared <= self.total + reserved
        needed = self._full * -(-tokens // self.block_size) + shared
        most = self.blocks(tokens) - self._full * -(-tokens // self.block_size)
        needed += min(self._in_windows(computed, tokens), most)  # a whole prompt is computed in chunks
        return needed <= self.total - self.used + reserved

    def least_free(self, computed: int, tokens: int, hit: int, idle: int) -> int | None:
        """A request that ``fits`` refuses is not admitted while fewer blocks than these are free, whatever is evicted
        meanwhile. None if it is not, whatever is free."""
        if self.to_the_end:
            return None
        if idle:
            return self.blocks(tokens - computed)
        full = self._full * -(-tokens // self.block_size)
        return full - self._full * hit + min(self._in_windows(computed, tokens), self.blocks(tokens) - full)

    def admit(self, request: Request, computed: int, tokens: int, hit: int, idle: int) -> None:
        shared = self._full * (idle - hit)
        self.used += self._full * -(-tokens // self.block_size) + shared + self._in_windows(computed, tokens)
        if self.to_the_end:
            self.promised += self.blocks(request.last) + shared
        request.passed = computed
        self._share(request, hit)

    def give_back(self, request: Request, tokens: int, *, comes_back: bool = False) -> None:
        held = -(-tokens // self.block_size)
        windows = self._in_windows(request.passed, tokens)
        whole = self._full * held + windows
        freed = self._full * self._unshare(request, held, tokens, comes_back) + windows
        self.used -= freed
        if self.to_the_end:
            self.promised -= freed + self.blocks(request.last) - whole
        if self.used < 0:
            raise RuntimeError("KV blocks were freed twice")

    def evicts(self, blocks: int) -> bool:
        return self.cache is not None and self.used + blocks + self._full * self.cache.idle > self.total

    def settle(self) -> None:
        cache = self.cache
        if cache is not None:
            excess = self.used + self._full * cache.idle - self.total
            if excess > 0:
                cache.evict(-(-excess // self._full))

    # --- decoding -----

    def add_decoder(self, cached: int, step: int) -> None:
        self._count(cached, step, 1)

    def remove_decoder(self, cached: int, step: int) -> None:
        self._count(cached, step, -1)

    def _count(self, cached: int, step: int, sequences: int) -> None:
        self.decoders += sequences
        for count, size in self._groups:
            for residue in range((step - cached) % size, self._cycle, size):
                self._due[residue] += count * sequences
        for window, (_, size, span, _) in enumerate(self._windows):
            first = step - cached + span + size - 2  # the step in which the window first passes a whole block
            if first < step:
                self._free_from(first, window, sequences)
                continue
            key = (first, window)
            if key not in self._leaving:
                self._leaving[key] = 0
                heappush(self._exits, key)
            self._leaving[key] += sequences

    def _free_from(self, first: int, window: int, sequences: int) -> int:
        """Count in ``_frees`` who frees a block each this many steps; how many blocks that is each time."""
        count, size, _, _ = self._windows[window]
        for residue in range(first % size, self._cycle, size):
            self._frees[residue] += count * sequences
        return count * sequences

    def end_step(self, step: int) -> None:
        """A step ends in which the decoding sequences took part: free what their windows have passed."""
        self.used -= self._frees[step % self._cycle]
        while self._exits and self._exits[0][0] <= step:
            key = heappop(self._exits)
            self.used -= self._free_from(*key, self._leaving.pop(key))

    def due(self, step: int) -> int:
        return self._due[step % self._cycle]

    def take_due(self, step: int, steps: int) -> None:
        """Take and free what ``steps`` decode steps do, no more than ``steps_that_fit`` just said.

        Content is evicted for the step that holds most: one of the last, as sequences hold no less a cycle later.
        """
        cycles, rest = divmod(steps - 1, self._cycle)
        if cycles:
            self.used += (cycles - 1) * (sum(self._due) - sum(self._frees))
            rest += self._cycle
        last = step + steps - 1
        peak = 0
        for at in range(last - rest, last):
            residue = at % self._cycle
            self.used += self._due[residue]
            peak = max(peak, self.used)
            self.used -= self._frees[residue]
        self.used = max(peak, end := self.used + self._due[last % self._cycle])
        self.settle()
        self.used = end
        self.end_step(last)

    def steps_that_fit(self, step: int, steps: int, wanted: int | None = None) -> int:
        """How many of the next ``steps`` decode steps find their blocks, until a sequence has left a window.

        And until ``wanted`` blocks are free: within a cycle or not at all, as no cycle frees more than it takes.
        """
        if self._exits:
            steps = min(steps, self._exits[0][0] - step + 1)
        cycle, due, frees = self._cycle, self._due, self._frees
        free = self.total - self.used
        if wanted is not None and free >= wanted:
            return 0
        level = peak = 0
        for at in range(step, step + cycle):
            level += due[at % cycle]
            peak = max(peak, level)
            level -= frees[at % cycle]
            if wanted is not None and free - level >= wanted:
                steps = min(steps, at - step + 1)
                break
        cycles = steps // cycle if peak <= free else 0
        if cycles and level > 0:
            cycles = min(cycles, (free - peak) // level + 1)
        fit = cycles * cycle
        free -= cycles * level
        while fit < steps:
            residue = (step + fit) % cycle
            free -= due[residue]
            if free < 0:
                break
            free += frees[residue]
            fit += 1
        return fit


def _most(span: int, size: int, new: int) -> int:
    """The most blocks of a sequence in a window group (vllm/v1/kv_cache_interface.py, SlidingWindowSpec)."""
    return -(-(span - 1 + new) // size) + 1
