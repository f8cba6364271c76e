"""Steps that take longer than on a GPU alone, because others use the GPU as well."""

from __future__ import annotations

from fractions import Fraction

from tonnage.inference.timing import BatchTiming, StepTiming


class Stretched:
    """A timing of which every step takes ``factor`` times as long; a step with prompt tokens takes ``prompts`` times as
    long, but for what it reads from the KV cache. Linear in the cached tokens, as the engine asks of a
    :class:`~tonnage.inference.timing.StepTiming`: the cost of one is rounded down to a picosecond, then counted."""

    __slots__ = ("_alone", "_factor", "_prompts", "decode_token_ps")

    def __init__(self, alone: StepTiming, factor: Fraction, prompts: Fraction | None = None) -> None:
        self._alone = alone
        self._factor, self._prompts = factor, factor if prompts is None else prompts
        self.decode_token_ps = alone.decode_token_ps * factor.numerator // factor.denominator

    def step_ps(self, tokens: int, cached: int, pairs: int) -> int:
        by = self._factor if pairs - cached <= tokens else self._prompts  # a decoding token is a pair more than cached
        first = self._alone.step_ps(tokens, 0, pairs - cached)
        return first * by.numerator // by.denominator + self.decode_token_ps * cached


def stretched(timing: StepTiming | BatchTiming, factor: Fraction, prompts: Fraction) -> StepTiming:
    """``timing`` with steps ``factor``, and those with prompt tokens ``prompts`` times as long.

    Raises ValueError for a BatchTiming, and for ``prompts`` below ``factor``."""
    if not isinstance(timing, StepTiming):
        raise ValueError("only a timing by step can be stretched")
    if prompts < factor:
        raise ValueError("steps with prompt tokens are not stretched less than others")
    return Stretched(timing, factor, prompts)
