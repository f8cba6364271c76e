"""Steps that take longer than on a GPU alone, because others use the GPU as well."""

from __future__ import annotations

from fractions import Fraction

from tonnage.inference.timing import BatchTiming, StepTiming


class Stretched:
    """A timing of which every step takes ``factor`` times as long. Linear in the cached tokens, as the engine asks of
    a :class:`~tonnage.inference.timing.StepTiming`: the cost of one is rounded down to a picosecond, then counted."""

    __slots__ = ("_alone", "_lower", "_upper", "decode_token_ps")

    def __init__(self, alone: StepTiming, factor: Fraction) -> None:
        self._alone = alone
        self._upper, self._lower = factor.numerator, factor.denominator
        self.decode_token_ps = alone.decode_token_ps * self._upper // self._lower

    def step_ps(self, tokens: int, cached: int, pairs: int) -> int:
        first = self._alone.step_ps(tokens, 0, pairs - cached)
        return first * self._upper // self._lower + self.decode_token_ps * cached


def stretched(timing: StepTiming | BatchTiming, factor: Fraction) -> StepTiming:
    """``timing`` with steps ``factor`` times as long. Raises ValueError for a BatchTiming."""
    if not isinstance(timing, StepTiming):
        raise ValueError("only a timing by step can be stretched")
    return Stretched(timing, factor)
