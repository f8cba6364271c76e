"""Whether the rules about other pods hold in a node plan: nothing of the planner is asked.

Pod affinity and anti-affinity hold once all pods stand where the plan says. Topology spread binds a pod as it is
placed: the pods are put on their nodes one by one, in the plan's order, and each has to find the skew within its limit.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from tonnage.objects import core
from tonnage.provisioning.plans import Plan
from tonnage.provisioning.pods import BoundPod, ExistingNode, PendingPod, PodShape

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


class _Placed(NamedTuple):
    """Pods alike on a node with these labels, and the rules by which they keep away from others or spread."""

    name: str
    namespace: str
    labels: Mapping[str, str]
    node: Mapping[str, str]
    away: core.PodAntiAffinity | None
    shape: PodShape | None
    pods: int = 1


def broken(
    plan: Plan,
    pods: Sequence[PendingPod],
    nodes: Sequence[ExistingNode],
    bound: Sequence[BoundPod],
    zones: Sequence[str],
) -> Iterator[str]:
    """What required rules the plan breaks. ``zones``: those that NodePools could launch a node in."""
    there = {node.ref.name: {HOST: node.ref.name, **node.labels} for node in nodes}
    places = {one.pod: there[one.node.name] for one in plan.nominations}
    for claim in plan.claims:
        own = {**claim.labels, HOST: claim.ref.name}
        places.update((ref, own) for ref in claim.pods)
    by_ref = {pod.ref: pod for pod in pods}
    order = dict.fromkeys((*(ref for ref in plan.order if ref in places), *(ref for ref in by_ref if ref in places)))
    placed = [
        _Placed(
            f"a pod on {one.node}", one.namespace, one.labels, there[one.node], one.pod_anti_affinity, None, one.pods
        )
        for one in bound
        if one.node in there
    ]
    placed += [
        _Placed(str(ref), pod.ref.namespace, pod.labels, places[ref], pod.shape.pod_anti_affinity, pod.shape)
        for ref in order
        for pod in (by_ref[ref],)
    ]
    meaning = _Meaning()
    yield from _together(placed, meaning)
    yield from _one_by_one(placed, meaning, {*zones, *(labels.get(ZONE, "") for labels in there.values())} - {""})


class _Meaning:
    """Which pods a rule is about, asked once for all pods alike."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, bytes], bool] = {}
        self._encode = msgspec.json.Encoder(order="sorted").encode

    def name(self, rule: core.PodAffinityTerm | core.TopologySpreadConstraint, namespace: str) -> bytes:
        """The same for rules about the same pods."""
        if isinstance(rule, core.TopologySpreadConstraint):
            return self._encode((namespace, rule.label_selector))
        names = "all" if rule.namespace_selector is not None else rule.namespaces or [namespace]
        return self._encode((names, rule.label_selector))

    def holds(
        self,
        name: bytes,
        rule: core.PodAffinityTerm | core.TopologySpreadConstraint,
        namespace: str,
        other: _Placed,
    ) -> bool:
        """Whether the rule of a pod of that namespace is about the other."""
        key = name, self._encode((other.namespace, other.labels))
        if key not in self._known:
            there = other.namespace == namespace
            if isinstance(rule, core.PodAffinityTerm):
                there = rule.namespace_selector is not None or other.namespace in (rule.namespaces or [namespace])
            self._known[key] = there and _selected(rule.label_selector, other.labels)
        return self._known[key]


def _together(placed: Sequence[_Placed], meaning: _Meaning) -> Iterator[str]:
    """Pod affinity and anti-affinity, once all stand there."""
    counted: dict[tuple[bytes, str], Counter[str]] = {}
    for one in placed:
        near = one.shape.pod_affinity if one.shape is not None else None
        rules = (
            [(term, True) for term in one.away.required_during_scheduling_ignored_during_execution] if one.away else []
        )
        rules += [(term, False) for term in near.required_during_scheduling_ignored_during_execution] if near else []
        for term, away in rules:
            key, name = term.topology_key, meaning.name(term, one.namespace)
            if (name, key) not in counted:
                counts = counted[name, key] = Counter()
                for other in placed:
                    if key in other.node and meaning.holds(name, term, one.namespace, other):
                        counts[other.node[key]] += other.pods
            there = counted[name, key][one.node[key]] if key in one.node else 0
            own = meaning.holds(name, term, one.namespace, one)
            if away and there > own:
                yield f"{one.name} keeps away from {there - own} pods in the same {key}"
            if not away and not there:
                yield f"{one.name} has nobody near in the same {key}"


def _one_by_one(placed: Sequence[_Placed], meaning: _Meaning, zones: set[str]) -> Iterator[str]:
    """DoNotSchedule spread, as the pods come."""
    counts: dict[tuple[bytes, str], Counter[str]] = {}
    rules: dict[tuple[bytes, str], tuple[core.TopologySpreadConstraint, str]] = {}
    for one in placed:
        for rule in one.shape.spread if one.shape is not None else ():
            if rule.when_unsatisfiable == "DoNotSchedule":
                rules.setdefault((meaning.name(rule, one.namespace), rule.topology_key), (rule, one.namespace))
    seen: dict[str, set[str]] = defaultdict(set)
    for one in placed:
        for _, key in rules:
            seen[key].add(one.node.get(key, ""))
    for one in placed:
        for rule in one.shape.spread if one.shape is not None else ():
            if rule.when_unsatisfiable != "DoNotSchedule":
                continue
            key, name = rule.topology_key, meaning.name(rule, one.namespace)
            found = counts.setdefault((name, key), Counter())
            domains = {zone for zone in zones if _may(one.shape, zone)} if key == ZONE else seen[key] - {""}
            least = 0 if key == HOST else min((found[domain] for domain in domains), default=0)
            there = found[one.node.get(key, "")] + meaning.holds(name, rule, one.namespace, one)
            if there - least > rule.max_skew:
                yield f"{one.name} spreads by {key}, and there are {dict(found)}"
        for (name, key), (rule, namespace) in rules.items():
            if key in one.node and meaning.holds(name, rule, namespace, one):
                counts.setdefault((name, key), Counter())[one.node[key]] += one.pods


def _may(shape: PodShape | None, zone: str) -> bool:
    """Whether the pod allows the zone."""
    if shape is None:
        return True
    affinity = shape.node_affinity
    required = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
    terms = required.node_selector_terms if required is not None else []
    there = {ZONE: zone}
    return shape.node_selector.get(ZONE, zone) == zone and (
        not terms
        or any(
            all(matches(there, one.key, one.operator, one.values) for one in term.match_expressions if one.key == ZONE)
            for term in terms
        )
    )


def matches(labels: Mapping[str, str], key: str, operator: str, values: Sequence[str]) -> bool:
    """Whether a node with these labels meets one requirement."""
    has = labels.get(key)
    if operator in ("NotIn", "DoesNotExist"):
        return has is None or (operator == "NotIn" and has not in values)
    if has is None:
        return False
    if operator in ("In", "Exists"):
        return operator == "Exists" or has in values
    if not has.isdigit():
        return False
    number, bound = int(has), int(values[0])
    return {"Gt": number > bound, "Gte": number >= bound, "Lt": number < bound, "Lte": number <= bound}[operator]


def _selected(selector: core.LabelSelector | None, own: Mapping[str, str]) -> bool:
    if selector is None:
        return False
    if any(own.get(key) != value for key, value in selector.match_labels.items()):
        return False
    return all(matches(own, one.key, one.operator, one.values) for one in selector.match_expressions)
