"""The program that a plan is the answer to, in numbers alone: classes of pods, kinds of nodes, limits, gangs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import msgspec

INF = float("inf")
"""Where a program has no bound."""
EPSILON = 1e-7
"""USD per hour: a smaller reduced cost is none."""


class Effort(msgspec.Struct, frozen=True, kw_only=True):
    """How much work a plan may take, so that equal inputs give equal plans on any machine.

    ``steps``: of the search for patterns (about a microsecond each); ``rounds``: of generating them; ``columns``:
    patterns among which whole numbers are chosen; ``nodes``: of HiGHS's branch and bound, in each of its runs.
    """

    steps: int = 150_000
    rounds: int = 300
    columns: int = 3_000
    nodes: int = 200


@dataclass(frozen=True, slots=True)
class Bin:
    """A kind of node. ``price`` in USD per hour; ``room`` by dimension, in the units of ``Program.weights``;
    ``admits``: the classes (by index) that may stand there; ``supply``: how many there are, None where any number
    can be launched; ``charges``: what one takes of a limit, (index, amount); ``holds``: pods by class that are on it
    and stay if it stays, empty for none.
    """

    price: float
    room: tuple[int, ...]
    admits: tuple[int, ...]
    supply: int | None = None
    charges: tuple[tuple[int, float], ...] = ()
    holds: tuple[int, ...] = ()


class NodePattern(NamedTuple):
    """A pattern: pods by class that one node of the kind ``bin`` (an index) takes, beside those that it holds."""

    bin: int
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """What to cover at least cost.

    ``demand``: pods by class; ``weights`` (classes × dimensions): what one takes of a node's room; ``fares``: what it
    costs to put one pod of the class on a node that does not hold it, USD per hour; ``limits``: upper bounds that
    ``Bin.charges`` count against; ``gangs``: classes that are covered all or none; ``missing``: the price of each pod
    that is left out, far above any node's.
    """

    demand: tuple[int, ...]
    weights: tuple[tuple[int, ...], ...]
    bins: tuple[Bin, ...]
    fares: tuple[float, ...] = ()
    limits: tuple[float, ...] = ()
    gangs: tuple[tuple[int, ...], ...] = ()
    missing: float = 1e4

    def fare(self, of: int) -> float:
        """What moving one pod of the class costs."""
        return self.fares[of] if self.fares else 0.0

    def cost(self, column: NodePattern) -> float:
        """What one node with this pattern costs, USD per hour."""
        price = self.bins[column.bin].price
        return price + sum(self.fare(c) * n for c, n in enumerate(column.counts) if n) if self.fares else price

    def covers(self, column: NodePattern) -> tuple[int, ...]:
        """Pods by class on such a node."""
        holds = self.bins[column.bin].holds
        return tuple(a + b for a, b in zip(column.counts, holds, strict=True)) if holds else column.counts

    def fits(self, column: NodePattern) -> bool:
        """Whether the pattern's pods may stand on such a node together."""
        of = self.bins[column.bin]
        chosen = [(c, n) for c, n in enumerate(column.counts) if n]
        if any(c not in of.admits for c, _ in chosen):
            return False
        return all(sum(n * self.weights[c][d] for c, n in chosen) <= room for d, room in enumerate(of.room))


class Solution(msgspec.Struct, frozen=True):
    """``chosen``: patterns and how many nodes have each; ``left_out``: pods by class; ``cost``, USD per hour, with the
    price of those left out; ``bound``: no plan costs less."""

    chosen: tuple[tuple[NodePattern, int], ...]
    left_out: tuple[int, ...]
    cost: float
    bound: float
