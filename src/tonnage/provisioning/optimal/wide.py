"""Programs of so many kinds of nodes and classes that no pattern can be proved the best: good ones, and a plain bound.

Patterns come from :mod:`beam`, as long as they make the relaxation cheaper. Whole numbers are those of the relaxation
rounded down, and of what that leaves the best choice among the patterns nearest to paying. The bound is that of prices
of resources (:mod:`pooled`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from tonnage.provisioning.optimal import pooled
from tonnage.provisioning.optimal.beam import Beam
from tonnage.provisioning.optimal.master import Duals, Master
from tonnage.provisioning.optimal.program import EPSILON, Effort, NodePattern, Program, Solution

WIDE = 16_000
"""More pairs of a class and a kind of node than this make a program wide."""
_KINDS = 12
"""Kinds of nodes that a round looks at: those of which a node could hold the most for its price."""
_PATTERNS = 4
"""Patterns of each that it adds at most."""
_WIDTHS = (60, 200)
"""How many a search keeps at a time: more once fewer find little."""
_LITTLE = 2e-4
"""What part of the price is little."""
_PATIENCE = 2
"""Rounds in a row that find little before the search is widened."""
_NEAREST = 80
"""Patterns beside those of the relaxation among which whole numbers are chosen."""


def is_wide(program: Program) -> bool:
    """Whether the program has too many kinds of nodes for its classes. Nodes that may go back are looked at one by one
    in any case, and gangs are placed whole."""
    if program.gangs or any(one.holds for one in program.bins):
        return False
    return len(program.demand) * len({(one.room, one.admits) for one in program.bins}) > WIDE


def solve(program: Program, start: Sequence[tuple[NodePattern, int]], effort: Effort) -> Solution:
    """The best plan found, no dearer than ``start``."""
    master = Master(program)
    master.add(column for column, _ in start)
    duals = _relaxed(program, master, effort)
    least = pooled.bound(program)
    found = _rounded(program, master, duals)
    known = Solution(tuple(start), _left_out(program, start), _cost(program, start), least)
    best = min((found, known), key=lambda one: one.cost)
    return Solution(best.chosen, best.left_out, best.cost, min(least, best.cost))


def _relaxed(program: Program, master: Master, effort: Effort) -> Duals:
    beam, duals, step, stalled = Beam(program), master.relaxed(), 0, 0
    for _ in range(effort.rounds):
        values = [max(0.0, price - program.fare(c)) for c, price in enumerate(duals.pods)]
        prices = [duals.left(program, at) for at in range(len(program.bins))]
        found = beam.patterns(values, prices, _KINDS, _WIDTHS[step], _PATTERNS)
        before = duals.value
        if master.add(one for one in found if _reduced(program, one, duals) < -EPSILON):
            duals = master.relaxed()
        stalled = stalled + 1 if before - duals.value <= _LITTLE * before else 0
        if stalled == _PATIENCE:
            step, stalled = step + 1, 0
            if step == len(_WIDTHS):
                break
    return duals


def _rounded(program: Program, master: Master, duals: Duals) -> Solution:
    """The relaxation rounded down, and the best of the patterns nearest to paying for the rest."""
    sure = [(one, int(n + EPSILON)) for one, n in master.fractions()]
    left = list(program.demand)
    for one, count in sure:
        for c, n in enumerate(program.covers(one)):
            left[c] = max(0, left[c] - count * n)
    bins = [*program.bins]
    limits = [*program.limits]
    for one, count in sure:
        of = bins[one.bin]
        bins[one.bin] = of if of.supply is None else replace(of, supply=of.supply - count)
        for row, amount in of.charges:
            limits[row] -= amount * count
    rest = replace(program, demand=tuple(left), bins=tuple(bins), limits=tuple(max(0.0, one) for one in limits))
    worth = {one: _reduced(program, one, duals) for one in master.columns}
    nearest = sorted(master.columns, key=lambda one: (worth[one], one))[: len(sure) + _NEAREST]
    whole = Master(rest).whole(nearest, (), 1)
    chosen = Counter[NodePattern]()
    for one, count in (*sure, *whole.chosen):
        chosen[one] += count
    listed = tuple((one, count) for one, count in chosen.items() if count)
    return Solution(listed, whole.left_out, _cost(program, listed), 0.0)


def _reduced(program: Program, one: NodePattern, duals: Duals) -> float:
    return duals.left(program, one.bin) - sum(
        (duals.pods[c] - program.fare(c)) * n for c, n in enumerate(one.counts) if n
    )


def _left_out(program: Program, chosen: Sequence[tuple[NodePattern, int]]) -> tuple[int, ...]:
    left = list(program.demand)
    for one, count in chosen:
        for c, n in enumerate(program.covers(one)):
            left[c] -= count * n
    return tuple(max(0, n) for n in left)


def _cost(program: Program, chosen: Sequence[tuple[NodePattern, int]]) -> float:
    """With the price of what it leaves out."""
    missing = program.missing * sum(_left_out(program, chosen))
    return sum(count * program.cost(one) for one, count in chosen) + missing
