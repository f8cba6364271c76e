"""Steps that take longer than on a GPU alone, because others use the GPU as well."""

from __future__ import annotations

from fractions import Fraction

from tonnage.inference.timing import BatchTiming, StepTiming, StepWork


class Stretched:
    """A timing of which the GPU's part of every step takes ``factor`` times as long; that of a step with prompt tokens
    takes ``prompts`` times as long, but for what decoding sequences read from the KV cache. What the engine does
    between takes as long as alone. Linear in the cached tokens, as the engine asks of a
    :class:`~tonnage.inference.timing.StepTiming`: the cost of one is rounded down to a tick, then counted."""

    __slots__ = ("_alone", "_factor", "_prompts", "decode_token", "window", "window_token")

    def __init__(self, alone: StepTiming, factor: Fraction, prompts: Fraction | None = None) -> None:
        self._alone = alone
        self._factor, self._prompts = factor, factor if prompts is None else prompts
        self.window = alone.window
        self.decode_token = alone.decode_token * factor.numerator // factor.denominator
        self.window_token = alone.window_token * factor.numerator // factor.denominator

    def step(self, work: StepWork) -> int:
        by = self._prompts if work.tokens else self._factor
        host = self._alone.host(work)
        first = self._alone.step(work._replace(cached=0, window_cached=0)) - host
        read = self.decode_token * work.cached + self.window_token * work.window_cached
        return first * by.numerator // by.denominator + host + read

    def host(self, work: StepWork) -> int:
        return self._alone.host(work)


def stretched(timing: StepTiming | BatchTiming, factor: Fraction, prompts: Fraction) -> StepTiming:
    """``timing`` with steps ``factor``, and those with prompt tokens ``prompts`` times as long.

    Raises ValueError for a BatchTiming, and for ``prompts`` below ``factor``."""
    if not isinstance(timing, StepTiming):
        raise ValueError("only a timing by step can be stretched")
    if prompts < factor:
        raise ValueError("steps with prompt tokens are not stretched less than others")
    return Stretched(timing, factor, prompts)
