"""How long the steps of one engine take, by either kind of timing (inference/timing.py)."""

from __future__ import annotations

from collections.abc import Sequence

from tonnage.inference.engine.requests import Request
from tonnage.inference.timing import (
    TICKS_PER_PS,
    BatchTiming,
    StepTiming,
    StepWork,
    run_of,
    shortest,
    steps_within,
    window_pairs,
)

_FEW_STEPS = 16  # a run that is not longer is added up without an array
_MANY_STEPS = 4096  # an array is not longer

Windows = tuple[int, int]
"""Of the decoding sequences: their cached tokens inside the window together, and how many sequences are shorter than
the window, so that the next step adds one for each. (0, 0) without window layers."""
NO_WINDOWS: Windows = (0, 0)


class StepTimes:
    """Durations in ticks of steps and of runs of decode steps. ``shortest``: no step takes less. ``window``: tokens
    that window layers see, 0 without such layers."""

    __slots__ = ("_alone", "_by_batch", "_by_step", "_token", "_window_token", "shortest", "window")

    def __init__(self, timing: StepTiming | BatchTiming) -> None:
        self._by_step = timing if isinstance(timing, StepTiming) else None
        self._by_batch = None if isinstance(timing, StepTiming) else timing
        self.shortest = shortest(timing)
        self._alone: dict[int, int] = {}  # ticks of so many decoding sequences that read nothing
        self._token = self._window_token = self.window = 0
        if self._by_step is not None:
            self.window = self._by_step.window
            self._token, self._window_token = self._by_step.decode_token, self._by_step.window_token

    def step(self, decoders: int, cached: int, chunks: Sequence[Request], window_cached: int = 0) -> int:
        """Duration of a step of ``decoders`` sequences with ``cached`` tokens in the KV cache together,
        ``window_cached`` of them inside the window, and of chunks.

        A request of ``chunks`` computes its tokens from ``passed`` to ``computed``.
        """
        if len(chunks) == 1:
            return self.chunk(decoders, cached, chunks[0].passed, chunks[0].computed, window_cached)
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
            return duration * TICKS_PER_PS
        assert self._by_step is not None
        if not chunks:
            return self._by_step.step(StepWork(decoders, cached, window_cached))
        window = self.window
        tokens = behind = pairs = inside = 0
        for request in chunks:
            before = request.passed
            chunk = request.computed - before
            tokens += chunk
            behind += before
            pairs += chunk * before + chunk * (chunk + 1) // 2
            if window:
                inside += window_pairs(chunk, before, window)
        work = StepWork(decoders, cached, window_cached, len(chunks), tokens, behind, pairs, inside)
        return self._by_step.step(work)

    def chunk(self, decoders: int, cached: int, passed: int, computed: int, window_cached: int = 0) -> int:
        """The same with one chunk, of the tokens from ``passed`` to ``computed``."""
        if self._by_batch is not None:
            duration = self._by_batch.prefill_ps(1, computed, passed)
            if decoders:
                duration += self._by_batch.decode_ps(decoders, cached + decoders)
            return duration * TICKS_PER_PS
        assert self._by_step is not None
        tokens, window = computed - passed, self.window
        pairs = tokens * passed + tokens * (tokens + 1) // 2
        inside = window_pairs(tokens, passed, window) if window else 0
        return self._by_step.step(StepWork(decoders, cached, window_cached, 1, tokens, passed, pairs, inside))

    def decodes(self, decoders: int, cached: int, steps: int, windows: Windows = NO_WINDOWS) -> int:
        """What ``steps`` decode steps take together, or less, where that is not known in closed form. No sequence
        reaches its window before the last of them."""
        if self._by_step is not None:
            return run_of(*self._series(decoders, cached, windows), steps)
        assert self._by_batch is not None
        # A later one is not shorter.
        return self._by_batch.decode_ps(decoders, cached + decoders) * steps * TICKS_PER_PS

    def at_least(self, decoders: int, cached: int, steps: int, full: int | None, windows: Windows) -> int:
        """What ``steps`` decode steps take together, or less: a sequence fills its window after ``full`` of them (None:
        none does), and from then on as good as all have."""
        first = steps if full is None else min(steps, max(1, full))
        total = self.decodes(decoders, cached, first, windows)
        if first < steps:
            filled = windows[0] + windows[1] * first, 0
            total += self.decodes(decoders, cached + decoders * first, steps - first, filled)
        return total

    def after(self, decoders: int, cached: int, steps: int, windows: Windows = NO_WINDOWS) -> int:
        """What ``steps`` decode steps in a row take together; likewise."""
        if self._by_batch is None or steps == 0:
            return self.decodes(decoders, cached, steps, windows)
        return int(self._by_batch.decode_run_ps(decoders, cached + decoders, steps)[-1]) * TICKS_PER_PS

    def run(
        self, decoders: int, cached: int, steps: int, limit: int, gap: int | None, windows: Windows = NO_WINDOWS
    ) -> tuple[int, int]:
        """How many of ``steps`` decode steps end within ``limit`` ticks and start before ``gap``, and what they take.

        ``decoders`` sequences have ``cached`` tokens in the KV cache together; none reaches its window before the last
        step. ``gap`` is positive.
        """
        if self._by_step is not None:
            first, growth = self._series(decoders, cached, windows)
            total = run_of(first, growth, steps)
            if total > limit:
                steps = steps_within(first, growth, limit)
                total = run_of(first, growth, steps)
            if gap is not None and total >= gap:  # the step in flight then is the last
                steps = min(steps, steps_within(first, growth, gap - 1) + 1)
                total = run_of(first, growth, steps)
            return steps, total
        assert self._by_batch is not None
        until = None if gap is None else -(-gap // TICKS_PER_PS)
        steps, ps = _summed(self._by_batch, decoders, cached + decoders, steps, limit // TICKS_PER_PS, until)
        return steps, ps * TICKS_PER_PS

    def _series(self, decoders: int, cached: int, windows: Windows) -> tuple[int, int]:
        """What the first of a run of decode steps takes, and how much longer each next one is."""
        alone = self._alone.get(decoders)
        if alone is None:
            assert self._by_step is not None
            alone = self._alone[decoders] = self._by_step.step(StepWork(decoders))
        token = self._token
        if not self.window:
            return alone + token * cached, token * decoders
        inside, growing = windows
        return alone + token * cached + self._window_token * inside, token * decoders + self._window_token * growing


def _summed(
    timing: BatchTiming, decoders: int, context: int, steps: int, limit: int, gap: int | None
) -> tuple[int, int]:
    """``StepTimes.run`` in ps, step after step; in the first the sequences are ``context`` tokens long together."""
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
