"""The sequences of one engine that decode: each gets a token in every step in which they take part.

Only sums are kept, over all of them: what a sequence has follows from the number of the step (requests.py), so that a
decode step, or a run of them, touches no request.
"""

from __future__ import annotations

from heapq import heappop, heappush

from tonnage.inference.engine.kv_cache import KvCache
from tonnage.inference.engine.requests import Request
from tonnage.inference.engine.step_times import NO_WINDOWS, Windows
from tonnage.inference.engine.window_tokens import WindowTokens


class Decoding:
    """``steps``: completed ones in which they took part. ``cached``: tokens that they have in the KV cache together.
    ``windows``: how many of these are in the windows of the model's layers, None without such layers."""

    __slots__ = ("_blocks", "cached", "finishing", "steps", "windows")

    def __init__(self, blocks: KvCache, window: int) -> None:
        self._blocks = blocks
        self.steps = 0
        self.cached = 0
        self.windows = WindowTokens(window) if window else None
        self.finishing: list[tuple[int, int, Request]] = []  # heap of (step, turn); entries may be outdated

    def clear(self, blocks: KvCache) -> None:
        """No sequence is left, and ``blocks`` is the KV cache from now on."""
        self._blocks = blocks
        self.cached = 0
        self.finishing.clear()
        if self.windows is not None:
            self.windows.clear()

    def add(self, request: Request) -> None:
        """From the next step on a request decodes; its prefill has given its first token, or the next one."""
        steps, computed = self.steps, request.computed
        request.finish_step = finish = steps + request.output_tokens - request.generated - 1
        self._blocks.add_decoder(computed, steps)
        if self.windows is not None:
            self.windows.add(computed, steps)
        self.cached += computed
        heappush(self.finishing, (finish, request.turn, request))

    def remove(self, request: Request) -> int:
        """A request decodes no more; it keeps its blocks. How many tokens it has in them."""
        request.passed = cached = request.last - request.finish_step + self.steps  # as Request.cached says
        self._blocks.remove_decoder(cached, self.steps)
        if self.windows is not None:
            self.windows.remove(cached, self.steps)
        self.cached -= cached
        request.finish_step = -1
        return cached

    def pass_steps(self, steps: int) -> int:
        """All have got a token in each of ``steps`` steps; how many tokens that are."""
        if self.windows is not None:
            self.windows.pass_steps(self.steps, steps)
        tokens = steps * self._blocks.decoders
        self.steps += steps
        self.cached += tokens
        return tokens

    def seen(self) -> Windows:
        """What window layers read of them now."""
        return NO_WINDOWS if self.windows is None else (self.windows.tokens, self.windows.growing)

    def next_finish(self) -> int | None:
        """The step whose end finishes one of them first."""
        heap = self.finishing
        while heap and heap[0][2].finish_step != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def pop_finished(self) -> Request | None:
        """One that has all its tokens, the first to have them; None if none has."""
        heap, steps = self.finishing, self.steps
        while heap and heap[0][0] <= steps:
            finish, turn, request = heappop(heap)
            if request.finish_step == finish and request.turn == turn:
                return request
        return None
