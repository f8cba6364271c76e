"""Whether a node plan holds, from the manifests and tables alone: nothing of the planner is asked.

Labels are matched as the Kubernetes API describes its operators, resources are summed from pods, and prices and sizes
are read from the tables of facts."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from benchmarks.provisioning_rules import ZONE, broken, matches
from tonnage.decisions import Ref
from tonnage.facts import instances
from tonnage.facts.prices import PriceBook
from tonnage.objects import core, karpenter
from tonnage.objects.quantity import amount
from tonnage.provisioning.plans import Plan, PlannedClaim
from tonnage.provisioning.pods import BoundPod, ExistingNode, PendingPod, PodShape

MIB = 1 << 20
BINDING = ("NoSchedule", "NoExecute")


def violations(
    plan: Plan,
    pods: Sequence[PendingPod],
    nodes: Sequence[ExistingNode],
    pools: Iterable[karpenter.NodePool],
    types: Mapping[str, instances.InstanceType],
    book: PriceBook,
    *,
    daemon_sets: Sequence[PodShape] = (),
    gangs: Mapping[str, Collection[Ref]] | None = None,
    bound: Sequence[BoundPod] = (),
) -> Iterator[str]:
    """What is wrong with the plan, a sentence each; nothing for a plan that holds. ``bound``: pods on nodes, whose
    rules about others hold too."""
    by_pool = {pool.name: pool for pool in pools}
    shapes = {pod.ref: pod.shape for pod in pods}
    places = Counter(ref for claim in plan.claims for ref in claim.pods)
    places.update(one.pod for one in plan.nominations)
    placed = set(places)
    places.update(one.pod for one in plan.waits)
    yield from (f"{ref} has {places[ref]} answers" for ref in shapes if places[ref] != 1)
    yield from (f"{ref} was not asked for" for ref in places if ref not in shapes)
    for claim, launch in zip(plan.claims, plan.launches, strict=True):
        if claim.ref != launch.claim or claim.pods != launch.pods:
            yield f"{claim.ref} is launched as something else"
        yield from _offered(claim, launch.price_micro_usd_per_hour, book)
        yield from _claim(claim, by_pool[claim.node_pool], types[claim.offering.instance_type], shapes, daemon_sets)
    yield from _limits(plan, nodes, by_pool, types)
    yield from _standing(plan, {node.ref: node for node in nodes}, shapes)
    zones = {one.zone for name in types for one in book.offerings(name)}
    yield from broken(plan, pods, nodes, bound, [zone for zone in sorted(zones) if _reaches(zone, by_pool.values())])
    for name, members in (gangs or {}).items():
        there = sum(ref in placed for ref in members)
        if 0 < there < len(members):
            yield f"gang {name}: {there} of {len(members)} pods are placed"


def _reaches(zone: str, pools: Iterable[karpenter.NodePool]) -> bool:
    """Whether some NodePool may launch a node in the zone."""
    return any(
        all(
            matches({ZONE: zone}, one.key, one.operator, one.values)
            for one in pool.spec.template.spec.requirements
            if one.key == ZONE
        )
        for pool in pools
    )


def _offered(claim: PlannedClaim, price: int, book: PriceBook) -> Iterator[str]:
    of = claim.offering
    found = [
        one.micro_usd_per_hour
        for one in book.offerings(of.instance_type)
        if (one.zone, one.capacity_type) == (of.zone, of.capacity_type)
    ]
    if found != [price]:
        yield f"{claim.ref} costs {price}, and the price book says {found}"


def _claim(
    claim: PlannedClaim,
    pool: karpenter.NodePool,
    of: instances.InstanceType,
    shapes: Mapping[Ref, PodShape],
    daemon_sets: Sequence[PodShape],
) -> Iterator[str]:
    """A new node: it is one of its NodePool, and its pods may stand there together."""
    template = pool.spec.template
    facts = of.labels(claim.offering.zone, claim.offering.capacity_type)
    labels = {**claim.labels, **facts, **template.metadata.labels, "karpenter.sh/nodepool": pool.name}
    yield from (
        f"{claim.ref} says {k}={claim.labels.get(k)}, not {v}" for k, v in labels.items() if claim.labels.get(k) != v
    )
    for one in template.spec.requirements:
        if not matches(labels, one.key, one.operator, one.values):
            yield f"{claim.ref} has {one.key}={labels.get(one.key)}, and its NodePool wants {one.operator} {one.values}"
        if one.min_values is not None and _variety(claim, one.key) < one.min_values:
            yield f"{claim.ref} has {_variety(claim, one.key)} values of {one.key}, fewer than {one.min_values}"
    if tuple(template.spec.taints) != claim.taints:
        yield f"{claim.ref} has other taints than its NodePool"
    used = Counter[str]()
    for shape in daemon_sets:
        if not list(_refusals(shape, labels, claim.taints)):
            used.update({"pods": 1, **shape.requests})
    for ref in claim.pods:
        used.update({"pods": 1, **shapes[ref].requests})
        yield from (f"{ref} on {claim.ref}: {why}" for why in _refusals(shapes[ref], labels, claim.taints))
    has = {**claim.allocatable, "cpu": of.allocatable_cpu_milli, "memory": of.allocatable_memory_mib * MIB}
    has["pods"] = of.max_pods
    if not any(key.startswith("nvidia.com/") for key in claim.labels) and of.resource:
        has[of.resource] = of.resource_count
    for name, wanted in used.items():
        if wanted > has.get(name, 0):
            yield f"{claim.ref} ({of.name}) has {has.get(name, 0)} {name}, and its pods want {wanted}"


def _refusals(shape: PodShape, labels: Mapping[str, str], taints: Sequence[core.Taint]) -> Iterator[str]:
    """Why a node with these labels and taints does not take the pod."""
    for taint in taints:
        if taint.effect in BINDING and not any(_tolerates(one, taint) for one in shape.tolerations):
            yield f"does not tolerate {taint.key}"
    for key, value in shape.node_selector.items():
        if labels.get(key) != value:
            yield f"selects {key}={value}, not {labels.get(key)}"
    affinity = shape.node_affinity
    required = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
    terms = required.node_selector_terms if required is not None else []
    if terms and not any(
        all(matches(labels, one.key, one.operator, one.values) for one in term.match_expressions) for term in terms
    ):
        yield "no term of its node affinity holds"


def _tolerates(one: core.Toleration, taint: core.Taint) -> bool:
    if one.effect and one.effect != taint.effect:
        return False
    if one.operator == "Exists":
        return not one.key or one.key == taint.key
    return one.key == taint.key and (one.value or "") == (taint.value or "")


def _variety(claim: PlannedClaim, key: str) -> int:
    """How many values of the label the instance types have among which EC2 may choose."""
    return len({instances.get(name).labels().get(key) for name in claim.instance_types} - {None})


def _limits(
    plan: Plan,
    nodes: Sequence[ExistingNode],
    pools: Mapping[str, karpenter.NodePool],
    types: Mapping[str, instances.InstanceType],
) -> Iterator[str]:
    used: dict[str, Counter[str]] = defaultdict(Counter)
    for node in nodes:
        if not node.deleted:
            used[node.node_pool].update(node.capacity)
    for claim in plan.claims:
        of = types[claim.offering.instance_type]
        whole = {"nodes": 1, "cpu": 1000 * of.vcpu, "pods": of.max_pods}
        whole["memory"] = (of.memory_mib - math.ceil(0.075 * of.memory_mib)) * MIB
        used[claim.node_pool].update({**whole, **({of.resource: of.resource_count} if of.resource else {})})
    for name, pool in pools.items():
        for resource, written in pool.spec.limits.items():
            limit = amount(resource, written)
            if used[name][resource] > limit:
                yield f"NodePool {name} has {used[name][resource]} {resource}, over its limit {limit}"


def _standing(plan: Plan, nodes: Mapping[Ref, ExistingNode], shapes: Mapping[Ref, PodShape]) -> Iterator[str]:
    used: dict[Ref, Counter[str]] = defaultdict(Counter)
    for one in plan.nominations:
        node, shape = nodes[one.node], shapes[one.pod]
        used[one.node].update({"pods": 1, **shape.requests})
        starting = {(taint.key, taint.effect) for taint in node.startup_taints}
        taints = [t for t in node.taints if node.initialized or (t.key, t.effect) not in starting]
        yield from (f"{one.pod} on {one.node}: {why}" for why in _refusals(shape, node.labels, taints))
        if node.deleted:
            yield f"{one.pod} is put on {one.node}, which is being deleted"
    for ref, amounts in used.items():
        for name, wanted in amounts.items():
            if wanted > nodes[ref].free.get(name, 0):
                yield f"{ref} has {nodes[ref].free.get(name, 0)} {name} free, and its pods want {wanted}"
