"""Kubernetes' filters once more, written as plainly as possible: the oracle for the scheduler's tables.

One pod against one node at a time, everything counted again from a list of nodes and a list of placed pods. Shares no code
with the scheduler, its selectors and its quantities.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from tonnage.fleet.state import Fleet, FleetNode, FleetPod
from tonnage.objects import core

HOSTNAME = "kubernetes.io/hostname"
CORDON = core.Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
UNITS = {"m": Fraction(1, 1000), "Mi": Fraction(2**20), "Gi": Fraction(2**30)}


@dataclass(frozen=True)
class World:
    """Nodes with their taints, cordons and sizes as they are now, and which pod stands on which node (by name)."""

    nodes: tuple[FleetNode, ...]
    taints: Mapping[str, Sequence[core.Taint]]
    cordoned: frozenset[str]
    allocatable: Mapping[str, Mapping[str, int]]
    placed: tuple[tuple[FleetPod, str], ...]

    @staticmethod
    def of(fleet: Fleet) -> World:
        """What a fleet's rows say."""
        rows = [row for row, node in enumerate(fleet.nodes) if node is not None]
        specs = tuple(fleet.node(row).spec for row in rows)
        return World(
            specs,
            {fleet.node(row).spec.name: fleet.node(row).taints for row in rows},
            frozenset(fleet.node(row).spec.name for row in rows if not fleet.schedulable[row]),
            {fleet.node(row).spec.name: fleet.allocatable_of(row) for row in rows},
            tuple((p.spec, fleet.node(p.node).spec.name) for p in fleet.pods if p is not None and p.node >= 0),
        )

    def labels(self, node: FleetNode) -> dict[str, str]:
        """A node's labels, its name among them."""
        return {HOSTNAME: node.name, **node.labels}


def refusals(world: World, pod: FleetPod) -> dict[str, list[str]]:
    """Node name → why it does not take the pod; an empty list where it does."""
    return {node.name: _why_not(world, pod, node) for node in world.nodes}


def counted(world: World, pod: FleetPod) -> dict[str, int]:
    """How many nodes there are for each reason."""
    return dict(Counter(reason for reasons in refusals(world, pod).values() for reason in reasons))


def _why_not(world: World, pod: FleetPod, node: FleetNode) -> list[str]:
    spec = pod.spec
    if not _named(spec, node.name):
        return ["node(s) didn't satisfy plugin(s) [NodeAffinity]"]
    if node.name in world.cordoned and not _tolerated(CORDON, spec.tolerations):
        return ["node(s) were unschedulable"]
    if spec.node_name and spec.node_name != node.name:
        return ["node(s) didn't match the requested node name"]
    for taint in world.taints[node.name]:
        if taint.effect != "PreferNoSchedule" and not _tolerated(taint, spec.tolerations):
            return [f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"]
    if not _selects_node(spec, world.labels(node), node.name):
        return ["node(s) didn't match Pod's node affinity/selector"]
    short = _short_of(world, pod, node)
    if short:
        return short
    return [reason for reason in (_spread(world, pod, node), _company(world, pod, node)) if reason][:1]


# ---- a node by itself ----


def _tolerated(taint: core.Taint, tolerations: Iterable[core.Toleration]) -> bool:
    for one in tolerations:
        if one.effect not in ("", taint.effect):
            continue
        if one.operator == "Exists":
            if one.key in ("", taint.key):
                return True
        elif one.key == taint.key and one.value == taint.value:
            return True
    return False


def _named(spec: core.PodSpec, name: str) -> bool:
    """Whether a term of required node affinity names this node, or a term names none."""
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    terms = required.node_selector_terms if required else []
    wanted = [[f.values for f in t.match_fields if f.operator == "In"] for t in terms]
    return not terms or any(all(name in values for values in fields) for fields in wanted)


def _selects_node(spec: core.PodSpec, labels: Mapping[str, str], name: str) -> bool:
    for key, value in spec.node_selector.items():
        if labels.get(key) != value:
            return False
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    if required is None:
        return True
    for term in required.node_selector_terms:
        checks = [_holds(e, labels) for e in term.match_expressions]
        checks += [_holds(f, {"metadata.name": name}) for f in term.match_fields]
        if checks and all(checks):
            return True
    return False


def _holds(wanted: core.NodeSelectorRequirement | core.LabelSelectorRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(wanted.key)
    if wanted.operator == "In":
        return value in wanted.values
    if wanted.operator == "NotIn":
        return value not in wanted.values
    if wanted.operator == "Exists":
        return value is not None
    assert wanted.operator == "DoesNotExist"
    return value is None


def _short_of(world: World, pod: FleetPod, node: FleetNode) -> list[str]:
    used: Counter[str] = Counter()
    for other, where in world.placed:
        if where == node.name:
            used.update(_requests(other))
    short = []
    for name, amount in _requests(pod).items():
        if amount and amount > world.allocatable[node.name].get(name, 0) - used[name]:
            short.append("Too many pods" if name == "pods" else f"Insufficient {name}")
    return short


def _requests(pod: FleetPod) -> dict[str, int]:
    total = {"pods": 1}
    for container in pod.spec.containers:
        for name, written in container.resources.requests.items():
            number = str(written).rstrip("miMG")
            amount = Fraction(number) * UNITS.get(str(written)[len(number) :], Fraction(1))
            total[name] = total.get(name, 0) + int(amount * 1000 if name == "cpu" else amount)
    return total


# ---- other pods ----


def _selects(
    selector: core.LabelSelector | None, labels: Mapping[str, str], more: Sequence[core.LabelSelectorRequirement] = ()
) -> bool:
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in selector.match_labels.items()):
        return False
    return all(_holds(e, labels) for e in (*selector.match_expressions, *more))


def _from_keys(pod: FleetPod, keys: Sequence[str], operator: str) -> list[core.LabelSelectorRequirement]:
    return [
        core.LabelSelectorRequirement(key=key, operator=operator, values=[pod.labels[key]])
        for key in keys
        if key in pod.labels
    ]


def _term_selects(owner: FleetPod, term: core.PodAffinityTerm, other: FleetPod) -> bool:
    namespaces = set(term.namespaces)
    if not namespaces and term.namespace_selector is None:
        namespaces = {owner.namespace}
    if other.namespace not in namespaces and not _selects(
        term.namespace_selector, {"kubernetes.io/metadata.name": other.namespace}
    ):
        return False
    more = _from_keys(owner, term.match_label_keys, "In") + _from_keys(owner, term.mismatch_label_keys, "NotIn")
    return _selects(term.label_selector, other.labels, more)


def _required(pod: FleetPod, which: str) -> list[core.PodAffinityTerm]:
    group = getattr(pod.spec.affinity, which) if pod.spec.affinity else None
    return list(group.required_during_scheduling_ignored_during_execution) if group else []


def _company(world: World, pod: FleetPod, node: FleetNode) -> str:
    here = world.labels(node)
    places = [(other, world.labels(next(n for n in world.nodes if n.name == name))) for other, name in world.placed]

    def together(key: str, there: Mapping[str, str]) -> bool:
        return key in here and key in there and here[key] == there[key]

    near = _required(pod, "pod_affinity")
    if near:
        friends = [(o, at) for o, at in places if all(_term_selects(pod, t, o) for t in near)]
        known_places = any(t.topology_key in at for _, at in friends for t in near)
        labelled = all(t.topology_key in here for t in near)
        beside = all(any(together(t.topology_key, at) for _, at in friends) for t in near)
        first = not known_places and all(_term_selects(pod, t, pod) for t in near)
        if not labelled or not (beside or first):
            return "node(s) didn't match pod affinity rules"
    for term in _required(pod, "pod_anti_affinity"):
        if any(together(term.topology_key, at) and _term_selects(pod, term, other) for other, at in places):
            return "node(s) didn't match pod anti-affinity rules"
    for other, at in places:
        for term in _required(other, "pod_anti_affinity"):
            if together(term.topology_key, at) and _term_selects(other, term, pod):
                return "node(s) didn't satisfy existing pods anti-affinity rules"
    return ""


def _spread(world: World, pod: FleetPod, node: FleetNode) -> str:
    hard = [c for c in pod.spec.topology_spread_constraints if c.when_unsatisfiable == "DoNotSchedule"]
    keys = [c.topology_key for c in hard]
    text = "node(s) didn't match pod topology spread constraints"
    for constraint in hard:
        key = constraint.topology_key
        if key not in world.labels(node):
            return text + " (missing required label)"
        more = _from_keys(pod, constraint.match_label_keys, "In")
        per_domain: Counter[str] = Counter()
        for other_node in world.nodes:
            labels = world.labels(other_node)
            if not all(k in labels for k in keys) or not _included(world, pod, constraint, other_node):
                continue
            none = constraint.label_selector == core.LabelSelector() and not more  # selects the pod itself, no others
            per_domain[labels[key]] += sum(
                not none and _selects(constraint.label_selector, other.labels, more)
                for other, name in world.placed
                if name == other_node.name and other.namespace == pod.namespace
            )
        lowest = min(per_domain.values(), default=0)
        if len(per_domain) < (constraint.min_domains or 1):
            lowest = 0
        itself = _selects(constraint.label_selector, pod.labels, more)
        if per_domain[world.labels(node)[key]] + itself - lowest > constraint.max_skew:
            return text
    return ""


def _included(world: World, pod: FleetPod, constraint: core.TopologySpreadConstraint, node: FleetNode) -> bool:
    if constraint.node_affinity_policy == "Honor" and not _selects_node(pod.spec, world.labels(node), node.name):
        return False
    if constraint.node_taints_policy != "Honor":
        return True
    taints = [t for t in world.taints[node.name] if t.effect != "PreferNoSchedule"]
    taints += [CORDON] if node.name in world.cordoned else []
    return all(_tolerated(taint, pod.spec.tolerations) for taint in taints)
