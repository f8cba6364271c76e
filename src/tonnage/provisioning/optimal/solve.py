"""Column generation, then whole numbers: the cheapest set of patterns, and how much cheaper any could be.

The relaxation is solved over the patterns known; the prices of pods that come of it say which patterns are worth adding
(:mod:`knapsack`), until none is. Its value is then a bound of all plans, and no plan better than the one at hand uses a
pattern whose reduced cost is more than what is between them. All such patterns are listed where there are few enough,
and the integer program over them is exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tonnage.provisioning.optimal import knapsack, pooled, wide
from tonnage.provisioning.optimal.knapsack import Item
from tonnage.provisioning.optimal.master import Duals, Master, Whole
from tonnage.provisioning.optimal.program import EPSILON, Effort, NodePattern, Program, Solution

_FIRST = 300
"""Steps of the search for one pattern while quick ones still find any."""
_ENOUGH = 8
"""Patterns that a round adds before prices are worked out again, at least."""
_SHRINK = (1.0, 0.2, 0.04)
"""Parts of the gap within which all patterns are listed, where the whole has too many."""


def solve(program: Program, start: Sequence[tuple[NodePattern, int]] = (), effort: Effort | None = None) -> Solution:
    """The best plan found, no dearer than ``start``, patterns that fit with their numbers."""
    if not program.demand:
        return Solution((), (), 0.0, 0.0)
    if wide.is_wide(program):
        return wide.solve(program, start, effort or Effort())
    return _Solving(program, effort or Effort()).run(start)


@dataclass(slots=True)
class _Solving:
    program: Program
    effort: Effort
    steps: int = 0
    _master: Master = field(init=False)
    _alike: dict[tuple[tuple[int, ...], tuple[int, ...]], list[int]] = field(init=False)
    """Kinds of nodes by room and classes: their most valuable patterns are the same."""

    def run(self, start: Sequence[tuple[NodePattern, int]]) -> Solution:
        duals, bound = self._started(start)
        bound, whole = self._whole(duals, bound, start)
        return Solution(whole.chosen, whole.left_out, whole.cost, min(bound, whole.cost))

    def _started(self, start: Sequence[tuple[NodePattern, int]]) -> tuple[Duals, float]:
        """The relaxation, and what no plan costs less than by it or by prices of resources."""
        self._master = Master(self.program)
        self._alike = {}
        for at, one in enumerate(self.program.bins):
            self._alike.setdefault((one.room, one.admits), []).append(at)
        self._master.add(column for column, _ in start)
        self._master.add(self._singles())
        duals, bound = self._relax()
        return duals, bound if _final(duals, bound) else max(bound, pooled.bound(self.program))

    def _whole(self, duals: Duals, bound: float, start: Sequence[tuple[NodePattern, int]]) -> tuple[float, Whole]:
        known = list(dict.fromkeys([*(column for column, _ in start), *self._best(duals)]))
        whole = self._master.whole(known, start, self.effort.nodes)
        return self._exact(duals, bound, whole)

    def _singles(self) -> Iterator[NodePattern]:
        """Nodes that hold what they hold already, and as many as there is room for of each class alone."""
        classes = len(self.program.demand)
        for at, one in enumerate(self.program.bins):
            if one.holds:
                yield NodePattern(at, (0,) * classes)
            for c in one.admits:
                most = min(
                    (room // weight for room, weight in zip(one.room, self.program.weights[c], strict=True) if weight),
                    default=self.program.demand[c],
                )
                count = min(most, self.program.demand[c])
                if count:
                    yield NodePattern(at, tuple(count if i == c else 0 for i in range(classes)))

    def _relax(self) -> tuple[Duals, float]:
        """Patterns are added until none pays or the effort is spent: the last prices, and a bound of all plans."""
        limit, bound, duals = _FIRST, 0.0, self._master.relaxed()
        kinds = list(self._alike.items())
        enough = max(_ENOUGH, len(self.program.demand))
        for _ in range(self.effort.rounds):
            new: list[NodePattern] = []
            proved, worst = True, dict[int, float]()
            for passed, ((room, admits), bins) in enumerate(kinds):
                if len(new) >= enough:  # the next round begins with those that this one leaves out
                    kinds = [*kinds[passed:], *kinds[:passed]]
                    break
                floor = max(0.0, min(duals.left(self.program, at) for at in bins))
                found = knapsack.best(self._items(admits, duals), room, limit, floor)
                self.steps += found.steps
                proved &= found.bound <= found.value + EPSILON
                for at in bins:
                    worst[at] = found.bound
                    if found.counts and duals.left(self.program, at) < found.value - EPSILON:
                        new.append(self._column(at, found.counts))
            if len(worst) == len(self.program.bins):
                bound = max(bound, self._bound(duals, worst))
            added = self._master.add(new)
            if not added and (proved or limit >= self.effort.steps):
                break
            if not added:
                limit *= 10
            if self.steps > self.effort.steps:
                break
            if added:
                duals = self._master.relaxed()
        return duals, max(bound, 0.0)

    def _bound(self, duals: Duals, worst: dict[int, float]) -> float:
        """What no plan costs less than, by these prices scaled until no pattern of any kind pays (Farley's bound), and
        what kinds that are counted would still gain taken off."""
        scale, lost = 1.0, 0.0
        for at, value in worst.items():
            left = duals.left(self.program, at)
            if self.program.bins[at].supply is None and value > left:
                scale = min(scale, max(left, 0.0) / value)
        for at, value in worst.items():
            supply = self.program.bins[at].supply
            if supply is not None:
                lost += supply * max(0.0, value - duals.left(self.program, at))
        rest = sum(duals.limits[row] * limit for row, limit in enumerate(self.program.limits))
        rest += sum(price * (self.program.bins[at].supply or 0) for at, price in duals.supply.items())
        return scale * sum(p * n for p, n in zip(duals.pods, self.program.demand, strict=True)) + rest - lost

    def _exact(self, duals: Duals, bound: float, whole: Whole) -> tuple[float, Whole]:
        """The integer program over every pattern that a better plan could use, or over those nearest to paying."""
        relaxed = duals.value
        if not _final(duals, bound):
            return bound, whole  # prices that are not final bound no reduced cost
        for part in _SHRINK:
            slack = part * (whole.cost - relaxed)
            if slack <= EPSILON:
                break
            columns = self._within(duals, slack)
            if columns is None:
                continue
            used = [column for column, _ in whole.chosen]
            again = self._master.whole(list(dict.fromkeys([*columns, *used])), whole.chosen, self.effort.nodes)
            return max(bound, min(again.bound, relaxed + slack)), again
        return bound, whole

    def _within(self, duals: Duals, slack: float) -> list[NodePattern] | None:
        """All patterns with a reduced cost up to ``slack``, of those that cover alike the cheapest; None where there
        are too many."""
        found: dict[tuple[object, ...], tuple[float, NodePattern]] = {}
        left_over = self.effort.steps // 4
        for (room, admits), bins in self._alike.items():
            least = min(duals.left(self.program, at) for at in bins) - slack
            items = self._items(admits, duals, worthless=True)
            patterns, steps, complete = knapsack.above(items, room, least, left_over, self.effort.columns)
            left_over -= steps
            if not complete:
                return None
            for at in bins:
                of, left = self.program.bins[at], duals.left(self.program, at)
                for value, counts in patterns:
                    if value < left - slack - EPSILON:
                        continue
                    column = self._column(at, counts)
                    key = (column.counts, of.holds, of.charges, None if of.supply is None else at)
                    cost = self.program.cost(column)
                    if key not in found or cost < found[key][0]:
                        found[key] = (cost, column)
            if len(found) > self.effort.columns:
                return None
        return [column for _, column in found.values()]

    def _best(self, duals: Duals) -> list[NodePattern]:
        """The patterns known, the nearest to paying first, as many as the effort allows."""
        listed = self._master.columns
        if len(listed) <= self.effort.columns:
            return list(listed)
        worth = {c: self._reduced(c, duals) for c in listed}
        return sorted(listed, key=lambda c: worth[c])[: self.effort.columns]

    def _reduced(self, column: NodePattern, duals: Duals) -> float:
        value = sum((duals.pods[c] - self.program.fare(c)) * n for c, n in enumerate(column.counts) if n)
        return duals.left(self.program, column.bin) - value

    def _items(self, admits: Sequence[int], duals: Duals, *, worthless: bool = False) -> list[Item]:
        program = self.program
        found = [
            Item(c, duals.pods[c] - program.fare(c), program.weights[c], program.demand[c], program.fare(c) == 0.0)
            for c in admits
        ]
        return found if worthless else [one for one in found if one.value > 0]

    def _column(self, at: int, counts: dict[int, int]) -> NodePattern:
        return NodePattern(at, tuple(counts.get(c, 0) for c in range(len(self.program.demand))))


def _final(duals: Duals, bound: float) -> bool:
    """Whether the relaxation is proved: no pattern that is not known would make it cheaper."""
    return duals.value - bound <= EPSILON * max(1.0, abs(duals.value))
