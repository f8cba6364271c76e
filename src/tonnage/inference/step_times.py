"""How long the steps of one engine take, by either kind of timing (timing.py)."""

from __future__ import annotations

from collections.abc import Sequence

from tonnage.inference.requests import Request
from tonnage.inference.timing import BatchTiming, StepTiming, run_ps, shortest_ps, steps_within

_FEW_STEPS = 16  # a run that is not longer is added up without an array
_MANY_STEPS = 4096  # an array is not longer


class StepTimes:
    """Durations in ps of steps and of runs of decode steps. ``shortest``: no step takes less."""

    __slots__ = ("_by_batch", "_by_step", "shortest")

    def __init__(self, timing: StepTiming | BatchTiming) -> None:
        self._by_step = timing if isinstance(timing, StepTiming) else None
        self._by_batch = None if isinstance(timing, StepTiming) else timing
        self.shortest = shortest_ps(timing)

    def step_ps(self, decoders: int, cached: int, chunks: Sequence[Request]) -> int:
        """Duration of a step of ``decoders`` sequences with ``cached`` tokens in the KV cache together, and of chunks.

        A request of ``chunks`` computes its tokens from ``passed`` to ``computed``.
        """
        if self._by_batch is not None:
            duration = 0
            if chunks:
                total = before = 0
                for request in chunks:
                    total += request.computed
                    before += request.passed
                duration = self._by_batch.prefill_ps(len(chunks), total, before)
            if decoders:
                duration += self._by_batch.decode_ps(decoders, cached + decoders)
            return duration
        assert self._by_step is not None
        tokens, pairs = decoders, cached + decoders
        for request in chunks:
            before = request.passed
            chunk = request.computed - before
            tokens += chunk
            cached += before
            pairs += chunk * before + chunk * (chunk + 1) // 2
        return self._by_step.step_ps(tokens, cached, pairs)

    def decodes_ps(self, decoders: int, cached: int, steps: int) -> int:
        """What ``steps`` decode steps take together, or less, where that is not known in closed form."""
        if self._by_step is not None:
            first = self._by_step.step_ps(decoders, cached, cached + decoders)
            return run_ps(first, self._by_step.decode_token_ps * decoders, steps)
        assert self._by_batch is not None
        return self._by_batch.decode_ps(decoders, cached + decoders) * steps  # a later one is not shorter

    def after_ps(self, decoders: int, cached: int, steps: int) -> int:
        """What ``steps`` decode steps in a row take together."""
        if self._by_batch is None or steps == 0:
            return self.decodes_ps(decoders, cached, steps)
        return int(self._by_batch.decode_run_ps(decoders, cached + decoders, steps)[-1])

    def run(self, decoders: int, cached: int, steps: int, limit: int, gap: int | None) -> tuple[int, int]:
        """How many of ``steps`` decode steps end within ``limit`` ps and start before ``gap``, and what they take.

        ``decoders`` sequences have ``cached`` tokens in the KV cache together. ``gap`` is positive.
        """
        if self._by_step is not None:
            first = self._by_step.step_ps(decoders, cached, cached + decoders)
            growth = self._by_step.decode_token_ps * decoders
            steps = min(steps, steps_within(first, growth, limit))
            if gap is not None:  # the step in flight then is the last
                steps = min(steps, steps_within(first, growth, gap - 1) + 1)
            return steps, run_ps(first, growth, steps)
        assert self._by_batch is not None
        return _summed(self._by_batch, decoders, cached + decoders, steps, limit, gap)


def _summed(
    timing: BatchTiming, decoders: int, context: int, steps: int, limit: int, gap: int | None
) -> tuple[int, int]:
    """``StepTimes.run`` by adding up step after step; in the first, the sequences are ``context`` tokens long."""
    if gap is None or gap > limit:
        gap = limit + 1  # no step that ends in time starts so late
    decode_ps = timing.decode_ps
    total = taken = 0
    while True:
        duration = decode_ps(decoders, context)
        ahead = min(steps - taken, (gap - total) // duration + 1)  # no more can start before the gap
        if ahead <= _FEW_STEPS:
            break
        ends = timing.decode_run_ps(decoders, context, min(ahead, _MANY_STEPS))
        size = len(ends)
        fit = min(size, int(ends.searchsorted(gap - total)) + 1)
        if ends[fit - 1] > limit - total:
            fit = int(ends.searchsorted(limit - total, "right"))
        if fit:
            total += int(ends[fit - 1])
            taken += fit
            context += decoders * fit
        if fit < size or taken == steps or total >= gap:
            return taken, total
    for _ in range(ahead):
        if total + duration > limit:
            break
        total += duration
        taken += 1
        if total >= gap:
            break
        context += decoders
        duration = decode_ps(decoders, context)
    return taken, total
