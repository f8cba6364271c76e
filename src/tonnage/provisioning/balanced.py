"""Whether a move is worth what it disrupts, as consolidationPolicy ``Balanced`` asks: the share of its NodePool's bill
that it saves has to be at least half the share of its NodePool's disruption that it costs.

Source: kubernetes-sigs/karpenter pkg/controllers/disruption/balanced.go and types.go (ScoreResult),
designs/balanced-consolidation.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from tonnage.provisioning.candidates import NODE_COST, Candidate, RunningNode, eviction_cost, price_of
from tonnage.provisioning.catalogue import Catalogue

BALANCED = "Balanced"
K = 2
"""Disruption may be this many times the savings, both as shares of the NodePool (BalancedK)."""


class Totals(Struct, frozen=True):
    """Of a NodePool: micro-USD per hour of all its nodes, and what it costs to move all of their pods, in pods."""

    price: int
    cost: float


def totals(nodes: Iterable[RunningNode], catalogue: Catalogue) -> dict[str, Totals]:
    """By NodePool; nodes that cannot go count too."""
    price: Counter[str] = Counter()
    cost: dict[str, float] = {}
    for one in nodes:
        name = one.state.node_pool
        if name:
            price[name] += price_of(one.node, catalogue)
            cost[name] = cost.get(name, 0.0) + node_cost(one)
    return {name: Totals(price[name], cost[name]) for name in sorted(cost)}


def node_cost(one: RunningNode) -> float:
    """What it costs to drain a node: 1, and for each of its pods what it costs to move it."""
    return NODE_COST + sum(max(0.0, eviction_cost(pod)) for pod in one.pods if not pod.belongs)


def score(saves: float, cost: float, of: Totals) -> float:
    """Share of the bill saved by share of the disruption; 0 where nothing is saved."""
    if of.price <= 0 or of.cost <= 0 or saves <= 0:
        return 0.0
    return (saves / of.price) / (cost / of.cost)


def approved(going: Sequence[Candidate], saves: int, all_of: Mapping[str, Totals]) -> bool:
    """Whether every NodePool with this policy that nodes are taken from agrees. ``saves``: micro-USD per hour, shared
    out among the NodePools by the price of their nodes that go."""
    price: Counter[str] = Counter()
    cost: dict[str, float] = {}
    balanced = set()
    for one in going:
        name = one.pool.metadata.name
        price[name] += one.price
        cost[name] = cost.get(name, 0.0) + one.cost
        if one.pool.spec.disruption.consolidation_policy == BALANCED:
            balanced.add(name)
    whole = sum(price.values())
    for name in balanced:
        own = saves * price[name] / whole if whole > 0 and len(price) > 1 else saves
        if score(own, cost[name], all_of[name]) < 1 / K:
            return False
    return True
