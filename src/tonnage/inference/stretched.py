"""Steps that take longer than on a GPU alone, because others use the GPU as well."""

from __future__ import annotations

from fractions import Fraction

from tonnage.inference.timing import BatchTiming, StepTiming


class Stretched:
    """A timing of which every step takes ``factor`` times as long, and ``prompts`` times as long where it computes
    more than one token of a prompt. Linear in the cached tokens, as the engine asks of a
    :class:`~tonnage.inference.timing.StepTiming`: the cost of one is rounded down to a picosecond, then counted."""

    __slots__ = ("_alone", "_factor", "_prompts", "decode_token_ps")

    def __init__(self, alone: StepTiming, factor: Fraction, prompts: Fraction) -> None:
        self._alone, self._factor, self._prompts = alone, factor, prompts
        self.decode_token_ps = alone.decode_token_ps * factor.numerator // factor.denominator

    def step_ps(self, tokens: int, cached: int, pairs: int) -> int:
        own = pairs - cached  # one for each token that is decoded, more for those of a prompt
        factor = self._prompts if own > tokens else self._factor
        first = self._alone.step_ps(tokens, 0, own)
        return first * factor.numerator // factor.denominator + self.decode_token_ps * cached


def stretched(timing: StepTiming | BatchTiming, factor: Fraction, prompts: Fraction) -> StepTiming:
    """``timing`` with steps ``factor`` times as long, or ``prompts`` times where they compute prompts. Raises
    ValueError for a BatchTiming."""
    if not isinstance(timing, StepTiming):
        raise ValueError("only a timing by step can be stretched")
    return Stretched(timing, factor, prompts)
