"""Blocks of the KV cache of one engine: how many are used, and how many a run of decode steps will need.

Only counts are kept, because without prefix caching one block is as good as another. What makes long runs of
decode steps cheap is that every decoding sequence writes one token a step, hence needs a new block every
``block_size`` steps. Let ``cached`` be the tokens a sequence holds when step number ``step`` starts. It needs
a block in that step if ``cached % block_size == 0``; as ``step - cached`` never changes while it decodes,
that is in the steps congruent to ``step - cached`` modulo ``block_size``, and counting the sequences of each
residue answers for any run of steps.

With prefix caching, ``idle`` blocks hold content that nobody uses: they are as good as free until the engine evicts
them, and what several requests share is counted once.
"""

from __future__ import annotations


class KvBlocks:
    """Block accounting of one engine. ``total`` blocks of ``block_size`` tokens can be used."""

    __slots__ = ("_due", "block_size", "decoders", "total", "used")

    def __init__(self, total: int, block_size: int) -> None:
        if total < 1 or block_size < 1:
            raise ValueError("a KV cache needs at least one block of at least one token")
        self.total = total
        self.block_size = block_size
        self.used = 0
        self.decoders = 0
        self._due = [0] * block_size  # decoding sequences by the residue of the steps in which they need a block

    @property
    def free(self) -> int:
        """Blocks that nobody holds."""
        return self.total - self.used

    def blocks(self, tokens: int) -> int:
        """The most blocks that a sequence of ``tokens`` tokens ever holds."""
        return -(-tokens // self.block_size)

    def extra(self, cached: int, tokens: int) -> int:
        """The blocks that ``tokens`` more need after the ``cached`` ones of a sequence."""
        return -(-(cached + tokens) // self.block_size) + (-cached // self.block_size)

    def extend(self, cached: int, tokens: int) -> bool:
        """Take these blocks; False if too few are free."""
        extra = self.extra(cached, tokens)
        if extra > self.total - self.used:
            return False
        self.used += extra
        return True

    def release(self, tokens: int) -> None:
        """Give back the blocks of a sequence that holds ``tokens`` tokens."""
        self.used += -tokens // self.block_size
        if self.used < 0:
            raise RuntimeError("KV blocks were freed twice")

    def add_decoder(self, cached: int, step: int) -> None:
        """A sequence with ``cached`` tokens takes part in every step from ``step`` on."""
        self._due[(step - cached) % self.block_size] += 1
        self.decoders += 1

    def remove_decoder(self, cached: int, step: int) -> None:
        """The sequence that holds ``cached`` tokens at ``step`` decodes no more; it keeps its blocks."""
        self._due[(step - cached) % self.block_size] -= 1
        self.decoders -= 1

    def due(self, step: int) -> int:
        """Blocks that the decoding sequences need in ``step``."""
        return self._due[step % self.block_size]

    def due_of(self, cached: int) -> int:
        """Blocks that a sequence with ``cached`` tokens needs for its next one."""
        return 0 if cached % self.block_size else 1

    def take_due(self, step: int, steps: int) -> None:
        """Take what ``steps`` decode steps from ``step`` on need; the caller knows that it fits."""
        cycles, rest = divmod(steps, self.block_size)
        start = step % self.block_size
        due = sum(self._due[start : start + rest])
        wrapped = start + rest - self.block_size
        if wrapped > 0:
            due += sum(self._due[:wrapped])
        self.used += cycles * self.decoders + due

    def steps_that_fit(self, step: int, steps: int) -> int:
        """How many of the next ``steps`` decode steps, from ``step`` on, find the blocks that they need."""
        size = self.block_size
        free = self.total - self.used
        if self.decoders * -(-steps // size) <= free:
            return steps
        cycles = min(free // self.decoders, steps // size)
        free -= cycles * self.decoders
        fit = cycles * size
        while fit < steps:
            free -= self._due[(step + fit) % size]
            if free < 0:
                break
            fit += 1
        return fit
