"""Static NodePools (``spec.replicas``): as many nodes as they say, whatever pods there are.

What is missing is launched, as far as ``limits.nodes`` allows; what is too much goes, empty nodes first. A node that
has drifted is replaced by one like it, and nothing else takes one back but that and the end of its time: consolidation
does not look at them. The feature gate StaticCapacity is taken to be on where a NodePool has ``replicas``.

Source: kubernetes-sigs/karpenter pkg/controllers/static/provisioning, static/deprovisioning,
pkg/controllers/disruption/staticdrift.go; designs/static-capacity.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tonnage.decisions import Reason, Ref
from tonnage.objects import karpenter
from tonnage.provisioning import bought
from tonnage.provisioning.balanced import node_cost
from tonnage.provisioning.candidates import RunningNode, protected
from tonnage.provisioning.catalogue import NODES, Catalogue
from tonnage.provisioning.compiled import market_of, template_of
from tonnage.provisioning.launch import choose
from tonnage.provisioning.load import ClaimLoad
from tonnage.provisioning.plans import Plan, PlannedClaim, PlanSettings
from tonnage.provisioning.template import limits_of


def missing(pool: karpenter.NodePool, staying: int, every: int) -> int:
    """How many nodes are to be launched. ``staying``: those that it has and that are on their way; ``every``: with
    those that are leaving, as the limit counts them."""
    wanted = max(0, (pool.spec.replicas or 0) - staying)
    most = limits_of(pool).get(NODES)
    return wanted if most is None else max(0, min(wanted, most - every))


def to_come(pool: karpenter.NodePool) -> karpenter.NodePool:
    """A static NodePool as one that launches its nodes for pods, and no more of them, for they come in any case; others
    as they are."""
    if not pool.spec.replicas:
        return pool
    limits = {**pool.spec.limits, NODES: str(pool.spec.replicas)}
    return msgspec.structs.replace(pool, spec=msgspec.structs.replace(pool.spec, replicas=None, limits=limits))


def empty_load(pool: karpenter.NodePool, catalogue: Catalogue, settings: PlanSettings) -> ClaimLoad:
    """A NodeClaim of this NodePool that no pod asks for."""
    template, market = template_of(pool, catalogue, settings), market_of(catalogue, settings)
    fitting = template.types & (template.free >= 0).all(axis=1)
    return ClaimLoad.empty(market, template, fitting)


def plan(
    node_pools: Sequence[karpenter.NodePool],
    staying: Mapping[str, int],
    every: Mapping[str, int],
    catalogue: Catalogue,
    settings: PlanSettings | None = None,
) -> Plan:
    """What static NodePools launch: the cheapest offering of what each allows. ``staying`` and ``every``: as for
    :func:`missing`, by NodePool. One of which nothing can be launched has no part in it."""
    settings = settings or PlanSettings()
    claims: list[PlannedClaim] = []
    launches = []
    for pool in sorted((one for one in node_pools if one.is_static), key=lambda one: one.name):
        there = staying.get(pool.name, 0)
        count = missing(pool, there, every.get(pool.name, 0))
        if not count:
            continue
        load = empty_load(pool, catalogue, settings)
        choice = choose(load.market.offers, load.requirements, load.types, strict=load.market.strict_min_values)
        if isinstance(choice, str):
            continue
        for _ in range(count):
            ref = Ref("NodeClaim", f"{pool.name}-{settings.first_claim + len(claims):05d}")
            claims.append(bought.planned(ref, load, (), choice))
            launch = bought.launch(claims[-1], load, choice)
            evidence = (("replicas", pool.spec.replicas), ("nodes", there), *launch.reason.evidence)
            why = Reason("its static NodePool has fewer nodes than replicas", evidence, launch.reason.alternatives)
            launches.append(msgspec.structs.replace(launch, reason=why))
    return Plan(tuple(launches), tuple(claims), (), (), {})


def beyond(nodes: Sequence[RunningNode], count: int, now_ns: int) -> list[Ref]:
    """Of the nodes of one static NodePool the ``count`` that go first: those without pods, those without a pod that
    karpenter.sh/do-not-disrupt protects, then by what it costs to move their pods; ties by name."""

    def last(one: RunningNode) -> tuple[bool, bool, float, Ref]:
        kept = any(protected(pod, now_ns) for pod in one.pods)
        bare = all(pod.belongs for pod in one.pods) and not kept
        return not bare, kept, node_cost(one), one.ref

    return [one.ref for one in sorted(nodes, key=last)[:count]]
