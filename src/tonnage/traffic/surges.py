"""Surges: times during which a service's traffic is a multiple of what it would be."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from tonnage.errors import InputError, Problem, Where
from tonnage.units import NS_PER_MS, NS_PER_S

Range = float | tuple[float, float]
"""A number, or the two ends of the range from which it is drawn uniformly."""


class SurgeSpec(msgspec.Struct, frozen=True):
    """A surge as asked for.

    From ``start_s`` on, the traffic grows linearly over ``ramp_s`` to ``factor`` times itself, stays there,
    and falls back over the last ``ramp_s`` before ``start_s + duration_s``.
    """

    start_s: Range
    duration_s: float
    factor: Range
    ramp_s: float = 0.0

    def problems(self, where: Where) -> list[Problem]:
        """What is wrong with this surge; ``where`` is its place in the scenario."""
        found: list[Problem] = []

        def report(field: str, value: object, expected: str) -> None:
            path = f"{where.field}.{field}" if where.field else field
            found.append(Problem(Where(where.file, where.line, path), f"{value}, expected {expected}"))

        for field, value in (("start_s", self.start_s), ("factor", self.factor)):
            low, high = _ends(value)
            if not 0 <= low <= high < float("inf"):
                report(field, value, "a number of at least 0, or two of them, the smaller first")
        if not 0 < self.duration_s < float("inf"):
            report("duration_s", self.duration_s, "more than 0 seconds")
        elif not 0 <= self.ramp_s <= self.duration_s / 2:
            report("ramp_s", self.ramp_s, f"0 to {self.duration_s / 2:g} s, half of duration_s")
        return found


class Surge(msgspec.Struct, frozen=True):
    """A surge as drawn; times in ns from the start of the run. It acts in [start_ns, end_ns)."""

    start_ns: int
    end_ns: int
    factor: float
    ramp_ns: int = 0


def draw_surges(specs: Sequence[SurgeSpec], rng: np.random.Generator | random.Random) -> tuple[Surge, ...]:
    """Fix what ``specs`` leave open.

    Starts are rounded to milliseconds and factors to thousandths, as reports show them. Two numbers are
    drawn for each surge, needed or not, so fixing one surge leaves the others where they were.

    Raises:
        InputError: a spec has problems.
    """
    problems = [
        problem for index, spec in enumerate(specs) for problem in spec.problems(Where(field=f"surges[{index}]"))
    ]
    if problems:
        raise InputError(*problems)
    surges = []
    for spec in specs:
        start_s, factor = _within(spec.start_s, rng.random()), _within(spec.factor, rng.random())
        start_ns = round(start_s * 1000) * NS_PER_MS
        end_ns = start_ns + round(spec.duration_s * NS_PER_S)
        surges.append(Surge(start_ns, end_ns, round(factor, 3), round(spec.ramp_s * NS_PER_S)))
    return tuple(surges)


def factor_at(surges: Sequence[Surge], times_ns: NDArray[np.float64]) -> NDArray[np.float64]:
    """By how much the traffic is multiplied at each of ``times_ns``. Surges that overlap multiply."""
    factors = np.ones(len(times_ns))
    for surge in surges:
        inside = (times_ns >= surge.start_ns) & (times_ns < surge.end_ns)
        height = np.where(inside, 1.0, 0.0)
        if surge.ramp_ns:
            rising = (times_ns - surge.start_ns) / surge.ramp_ns
            falling = (surge.end_ns - times_ns) / surge.ramp_ns
            height = np.where(inside, np.clip(np.minimum(rising, falling), 0.0, 1.0), 0.0)
        factors *= 1.0 + (surge.factor - 1.0) * height
    return factors


def bound_between(
    surges: Sequence[Surge], starts_ns: NDArray[np.float64], ends_ns: NDArray[np.float64]
) -> NDArray[np.float64]:
    """An upper bound of :func:`factor_at` within each [start, end), at least 1."""
    bounds = np.ones(len(starts_ns))
    for surge in surges:
        touched = (starts_ns < surge.end_ns) & (ends_ns > surge.start_ns)
        bounds *= np.where(touched, max(1.0, surge.factor), 1.0)
    return bounds


def _ends(value: Range) -> tuple[float, float]:
    return value if isinstance(value, tuple) else (value, value)


def _within(value: Range, uniform: float) -> float:
    low, high = _ends(value)
    return low + (high - low) * uniform
