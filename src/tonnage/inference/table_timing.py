"""Step times from a table of measured points, interpolated.

Two kinds of rows: what a prefill of this many tokens takes, and what one decode step of this many sequences with so
long a context takes. Between points, times are linear in the context and then in the number of sequences (or tokens);
the grid may be ragged, as large batches of long contexts fit no GPU. All arithmetic is on integers (ps), with one
rounding at the end, so equal tables give equal times everywhere.

A step's time is the sum of its prefill and decode parts (see BatchTiming in timing.py), as the parts are measured
apart. What a table does not know:

- Prefill attention of several prompts in one step: a batch counts as one prompt of all its new tokens, which is too
  slow where attention matters.
- Without the column ``cached``, new tokens after a cached prefix cost what they cost at the start of a prompt.
- Contexts of unequal length: the mean counts. Attention reads are linear in the context, so the mean is right.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Literal

from tonnage.errors import InputError, Problem, Where
from tonnage.inference.timing import run_one_by_one

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_PS_PER_MS = 1_000_000_000
_LEAST_PS = 1
COLUMNS = ("kind", "tokens", "cached", "sequences", "context", "ms")
"""Columns of a table. ``prefill`` rows have tokens and maybe cached, ``decode`` rows sequences and context."""

Points = Mapping[tuple[int, int], int]
"""Time in ps by (tokens, cached) or by (sequences, context)."""


class Grid:
    """Times over (x, y), for each x a row of y. Piecewise linear along y, then along x; immutable, hashable."""

    __slots__ = ("_rows", "_times", "_xs", "_ys")

    def __init__(self, points: Points) -> None:
        """Raises ValueError without points, or if an x is below 1, a y below 0 or a time below 1 ps."""
        if not points or any(x < 1 or y < 0 or ps < _LEAST_PS for (x, y), ps in points.items()):
            raise ValueError("a grid needs points with x of 1 or more, y of 0 or more and times above 0")
        rows: dict[int, list[tuple[int, int]]] = {}
        for (x, y), ps in sorted(points.items()):
            rows.setdefault(x, []).append((y, ps))
        self._xs = tuple(rows)
        self._ys = tuple(tuple(y for y, _ in row) for row in rows.values())
        self._times = tuple(tuple(ps for _, ps in row) for row in rows.values())
        self._rows = tuple(tuple(row) for row in rows.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Grid) and (self._xs, self._rows) == (other._xs, other._rows)

    def __hash__(self) -> int:
        return hash((self._xs, self._rows))

    @property
    def columns(self) -> int:
        """The most points of a row."""
        return max(len(row) for row in self._ys)

    def covers(self, x: int, total: int, parts: int = 1) -> bool:
        """Whether (x, total / parts) lies between measured points: in the range of x, and in that of y in both rows
        beside x."""
        if not self._xs[0] <= x <= self._xs[-1]:
            return False
        low, high = self._beside(x)
        return all(self._ys[row][0] * parts <= total <= self._ys[row][-1] * parts for row in {low, high})

    def at(self, x: int, total: int, parts: int = 1) -> int:
        """Time in ps at (x, total / parts), rounded to the nearest, halves up. Outside: see ``TableTiming``."""
        low, high = self._beside(x)
        above, below = self._along(low, total, parts)
        if low == high:
            return _rounded(above, below)
        other_above, other_below = self._along(high, total, parts)
        span = self._xs[high] - self._xs[low]
        left = above * other_below * (self._xs[high] - x)
        right = other_above * below * (x - self._xs[low])
        return _rounded(left + right, below * other_below * span)

    def _beside(self, x: int) -> tuple[int, int]:
        """The two rows to interpolate between, the last two beyond the last; one row twice where there is no other."""
        xs = self._xs
        place = bisect_right(xs, x) - 1
        if place < 0:
            return 0, 0
        if xs[place] == x or len(xs) == 1:
            return place, place
        place = min(place, len(xs) - 2)
        return place, place + 1

    def _along(self, row: int, total: int, parts: int) -> tuple[int, int]:
        """The time in this row at total / parts, as numerator and denominator."""
        ys, times = self._ys[row], self._times[row]
        place = bisect_right(ys, total // parts) - 1
        if place < 0 or len(ys) == 1:
            return times[0], 1
        place = min(place, len(ys) - 2)
        left, right = ys[place], ys[place + 1]
        above = times[place] * (right * parts - total) + times[place + 1] * (total - left * parts)
        return above, (right - left) * parts


class TableTiming:
    """A BatchTiming over measured points, in ps.

    ``outside`` says what happens beyond the measured points. ``refuse``: InputError that names the step and the range.
    ``flag``: below the smallest point its time, beyond the largest the slope of the last two (the last time, where
    there is one only), never under 1 ps; ``outside_steps`` counts such steps and ``outside_worst`` keeps the first
    largest one of either kind, so that a report can say so.
    """

    def __init__(self, prefill: Points, decode: Points, *, outside: Literal["refuse", "flag"] = "refuse") -> None:
        """Raises ValueError as ``Grid`` does."""
        self._prefill = Grid(prefill)
        self._decode = Grid(decode)
        self._with_cached = any(cached for _, cached in prefill)
        self._outside = outside
        self.outside_steps = 0
        self.outside_worst: dict[str, tuple[int, int]] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TableTiming) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Grid, Grid, str]:
        return self._prefill, self._decode, self._outside

    def prefill_ps(self, requests: int, total_tokens: int, cached_tokens: int) -> int:
        """Computing ``total_tokens`` − ``cached_tokens`` new tokens, of ``requests`` requests together. 0 for none."""
        new = total_tokens - cached_tokens
        if requests == 0 or new <= 0:
            return 0
        cached = cached_tokens if self._with_cached else 0
        return self._time("prefill", self._prefill, new, cached, 1)

    def decode_ps(self, sequences: int, context_tokens: int) -> int:
        """One token for each of ``sequences`` sequences, ``context_tokens`` long together. 0 for none."""
        if sequences == 0:
            return 0
        return self._time("decode", self._decode, sequences, context_tokens, sequences)

    def decode_run_ps(self, sequences: int, context_tokens: int, steps: int) -> NDArray[np.int64]:
        """When each of ``steps`` decode steps in a row ends, as ``BatchTiming`` says. Shape (steps,)."""
        return run_one_by_one(self, sequences, context_tokens, steps)

    def _time(self, kind: str, grid: Grid, x: int, total: int, parts: int) -> int:
        if not grid.covers(x, total, parts):
            names = ("tokens", "cached") if kind == "prefill" else ("sequences", "mean context")
            if self._outside == "refuse":
                raise InputError.at(
                    f"the step-time table has no {kind} of {x} {names[0]} with {total // parts} {names[1]} tokens",
                    field=kind,
                    hint="measure larger and smaller steps, or allow extrapolation and read the flagged steps",
                )
            self.outside_steps += 1
            self.outside_worst[kind] = max(self.outside_worst.get(kind, (0, 0)), (x, total // parts))
        return max(grid.at(x, total, parts), _LEAST_PS)


def from_rows(
    rows: Iterable[tuple[int, Mapping[str, str | None]]],
    *,
    file: str = "",
    outside: Literal["refuse", "flag"] = "refuse",
) -> TableTiming:
    """A timing from the rows of a table, as (line, cells by COLUMNS); times are milliseconds.

    Empty cells and absent columns count as absent; an absent ``cached`` is 0. Raises InputError that names every bad
    cell, points given twice, and a kind of row without any.
    """
    problems: list[Problem] = []
    points: dict[str, dict[tuple[int, int], int]] = {"prefill": {}, "decode": {}}
    for line, row in rows:
        kind = (row.get("kind") or "").strip()
        if kind not in points:
            problems.append(_problem(file, line, "kind", kind, "prefill or decode"))
            continue
        first, second = ("tokens", "cached") if kind == "prefill" else ("sequences", "context")
        x = _whole(row, first, 1, file, line, problems)
        y = _whole(row, second, 0, file, line, problems)
        ps = _picoseconds(row, file, line, problems)
        if x is None or y is None or ps is None:
            continue
        if (x, y) in points[kind]:
            problems.append(_problem(file, line, first, f"{x} with {second} {y}", "each point once"))
        points[kind][x, y] = ps
    for kind, found in points.items():
        if not found and not problems:
            problems.append(Problem(Where(file, 0, "kind"), f"no {kind} row", "measure both prefill and decode"))
    if problems:
        raise InputError(*problems)
    return TableTiming(points["prefill"], points["decode"], outside=outside)


def _whole(
    row: Mapping[str, str | None], field: str, least: int, file: str, line: int, problems: list[Problem]
) -> int | None:
    text = (row.get(field) or "").strip()
    if not text and field == "cached":
        return 0
    if not (text.isascii() and text.isdigit() and int(text) >= least):
        problems.append(_problem(file, line, field, text, f"a whole number of {least} or more"))
        return None
    return int(text)


def _picoseconds(row: Mapping[str, str | None], file: str, line: int, problems: list[Problem]) -> int | None:
    text = (row.get("ms") or "").strip()
    try:
        value = Decimal(text)
    except InvalidOperation:
        value = Decimal(0)
    if not value.is_finite() or not 0 < value < 10**9:
        problems.append(_problem(file, line, "ms", text, "milliseconds above 0"))
        return None
    return max(_LEAST_PS, round(value * _PS_PER_MS))


def _problem(file: str, line: int, field: str, value: str, expected: str) -> Problem:
    return Problem(Where(file, line, field), f"{value!r}, expected {expected}", "correct or remove the row")


def _rounded(above: int, below: int) -> int:
    return (2 * above + below) // (2 * below)
