"""Changes that would make a waiting pod fit: edits, what each is worth, and applying them.

A change names one node on which the pod fits once all its edits are made. Its measure is (number of edits, sum of their
ranks, sum of their amounts), smaller first, then its text. Ranks, the least trouble first: 0 a node is schedulable
again, 1 a taint is tolerated, 2 a constraint of the pod is dropped (a selector's entry, a requirement of node affinity
or all of it, the node's name, a rule about other pods), 3 the pod asks for less of one resource, 4 a running pod goes
or a GPU is repartitioned, 5 a node comes, 6 the pod does not ask for a resource that no node has, or asks for whole
devices in place of their memory. The amount of asking for less is the thousandths of the request given up, rounded up;
that of a pod which goes, the thousandths of devices that it holds; that of all node affinity, the requirements in it;
all others have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, TypeAlias

import msgspec

from tonnage.decisions import Instances, layout_text
from tonnage.facts.labels import HOSTNAME
from tonnage.fleet.rows import FleetPod, PodRow
from tonnage.fleet.state import Fleet
from tonnage.objects import core
from tonnage.partitioning.fleet_layouts import lay
from tonnage.scheduling.why import requests as why_requests

Cost: TypeAlias = tuple[int, int, int]
"""(edits, ranks, amounts); costs of edits add up."""


class Uncordon(msgspec.Struct, frozen=True, tag="uncordon"):
    """The node is schedulable again: it is ready and not cordoned."""

    rank: ClassVar[int] = 0
    amount: ClassVar[int] = 0
    node: str

    def text(self) -> str:
        return f"make node {self.node} schedulable: it is cordoned or not ready"


class Tolerate(msgspec.Struct, frozen=True, tag="tolerate"):
    """The pod tolerates this taint."""

    rank: ClassVar[int] = 1
    amount: ClassVar[int] = 0
    taint: core.Taint

    def text(self) -> str:
        value = f"={self.taint.value}" if self.taint.value else ""
        return f"tolerate taint {self.taint.key}{value}:{self.taint.effect}"


class DropNodeName(msgspec.Struct, frozen=True, tag="drop-node-name"):
    """The pod does not name a node."""

    rank: ClassVar[int] = 2
    amount: ClassVar[int] = 0
    name: str

    def text(self) -> str:
        return f"drop nodeName {self.name}"


class DropSelector(msgspec.Struct, frozen=True, tag="drop-selector"):
    """One entry of nodeSelector goes."""

    rank: ClassVar[int] = 2
    amount: ClassVar[int] = 0
    key: str
    value: str

    def text(self) -> str:
        return f"drop node selector {self.key}={self.value}"


class DropRequirement(msgspec.Struct, frozen=True, tag="drop-requirement"):
    """One requirement of a term of required node affinity goes (``field``: of its matchFields), and others stay in the
    term: an empty term matches no node. ``terms``: how many there are, of which one has to match."""

    rank: ClassVar[int] = 2
    amount: ClassVar[int] = 0
    term: int
    index: int
    field: bool
    about: str
    terms: int = 1

    def text(self) -> str:
        where = f" from term {self.term + 1} of {self.terms}" if self.terms > 1 else ""
        return f"drop node affinity {self.about}{where}"


class DropAffinity(msgspec.Struct, frozen=True, tag="drop-affinity"):
    """All required node affinity goes. ``about``: its requirements, term by term; none in terms that match no node."""

    rank: ClassVar[int] = 2
    about: tuple[tuple[str, ...], ...]

    @property
    def amount(self) -> int:
        return sum(map(len, self.about))

    def text(self) -> str:
        terms = [" and ".join(term) or "a term that matches nothing" for term in self.about]
        if len(terms) < 2:
            return f"drop node affinity {terms[0] if terms else 'without terms'}"
        return f"drop all {len(terms)} terms of node affinity: {', or '.join(terms)}"


class DropRule(msgspec.Struct, frozen=True, tag="drop-rule"):
    """One hard rule about other pods goes: the ``index``-th of its kind in the pod's spec."""

    rank: ClassVar[int] = 2
    amount: ClassVar[int] = 0
    kind: str
    index: int
    topology_key: str

    def text(self) -> str:
        return f"drop {self.kind} over {self.topology_key}"


class Lower(msgspec.Struct, frozen=True, tag="lower"):
    """The pod asks for ``by`` less of a resource: cpu in millicores, memory in bytes, gpu-fraction in thousandths of a
    device, gpu-memory in MiB, all else in units."""

    rank: ClassVar[int] = 3
    resource: str
    by: int
    to: int

    @property
    def amount(self) -> int:
        return -(-1000 * self.by // (self.by + self.to))

    def text(self) -> str:
        by, to, was = (why_requests.written(self.resource, n) for n in (self.by, self.to, self.by + self.to))
        return f"request {to} {self.resource} instead of {was}, {by} less"


class DropResource(msgspec.Struct, frozen=True, tag="drop-resource"):
    """The pod does not ask for a resource that no node has; never of whole devices."""

    rank: ClassVar[int] = 6
    amount: ClassVar[int] = 0
    to: ClassVar[int] = 0
    resource: str

    def text(self) -> str:
        return f"drop resource {self.resource}: no node has it"


class AskWhole(msgspec.Struct, frozen=True, tag="ask-whole"):
    """The pod asks for whole devices in place of memory and cores of them, as it cannot be known how much is free."""

    rank: ClassVar[int] = 6
    amount: ClassVar[int] = 0
    node: str
    resource: str
    to: int

    def text(self) -> str:
        why = f"node {self.node} does not say how much its GPUs have"
        return f"request {self.to} whole {self.resource} instead of GPU memory: {why}"


class Recut(msgspec.Struct, frozen=True, tag="recut"):
    """A GPU gets these MIG instances (profile, first memory slice), or is whole. ``mixed``: the node's MIG strategy has
    to become that."""

    rank: ClassVar[int] = 4
    amount: ClassVar[int] = 0
    node: str
    device: int
    instances: Instances
    mixed: bool = False

    def text(self) -> str:
        strategy = ", with MIG strategy mixed" if self.mixed else ""
        return (
            f"change the MIG layout of GPU {self.device} on node {self.node} to {layout_text(self.instances)}{strategy}"
        )


class Leave(msgspec.Struct, frozen=True, tag="leave"):
    """A running pod goes from the node. ``held``: the thousandths of devices that it holds there."""

    rank: ClassVar[int] = 4
    namespace: str
    name: str
    node: str
    held: int

    @property
    def amount(self) -> int:
        return self.held

    def text(self) -> str:
        return f"evict {self.namespace}/{self.name} from node {self.node}"


class AddNode(msgspec.Struct, frozen=True, tag="add-node"):
    """A node like another comes: the same labels but the hostname, taints, size and devices, empty and schedulable."""

    rank: ClassVar[int] = 5
    amount: ClassVar[int] = 0
    like: str

    @property
    def name(self) -> str:
        """Of the node that comes."""
        return f"{self.like}-new"

    def text(self) -> str:
        return f"add one node like {self.like}"


Edit: TypeAlias = (
    Uncordon
    | Tolerate
    | DropNodeName
    | DropSelector
    | DropRequirement
    | DropAffinity
    | DropRule
    | Lower
    | DropResource
    | AskWhole
    | Recut
    | Leave
    | AddNode
)
SPREAD, AFFINITY, ANTI_AFFINITY = "topology spread", "pod affinity", "pod anti-affinity"


def cost_of(edits: Sequence[Edit]) -> Cost:
    """The measure of these edits together."""
    return len(edits), sum(edit.rank for edit in edits), sum(edit.amount for edit in edits)


class PodChange(msgspec.Struct, frozen=True):
    """Edits after which the pod fits on ``node``."""

    node: str
    edits: tuple[Edit, ...]

    @property
    def cost(self) -> Cost:
        """Its measure."""
        return cost_of(self.edits)

    @property
    def order(self) -> tuple[Cost, str, tuple[str, ...]]:
        """Smaller changes first."""
        return self.cost, self.node, tuple(edit.text() for edit in self.edits)


def apply(fleet: Fleet, row: int, change: PodChange) -> int:
    """Make all edits in the fleet; returns the row of the pod, which is pending afterwards. Inside a what-if only, if
    they are to be undone. Raises Conflict where a pod or node of an edit is not there."""
    for edit in change.edits:
        match edit:
            case Uncordon():
                fleet.set_schedulable(fleet.node_by_name[edit.node], True)
            case Leave():
                fleet.remove_pod(fleet.pod_by_key[edit.namespace, edit.name])
            case AddNode():
                add_like(fleet, edit)
            case Recut():
                lay(fleet, (fleet.node_by_name[edit.node], edit.device), edit.instances)
    after = edited(fleet.pod(row).spec, change.edits)
    fleet.remove_pod(row)
    return fleet.add_pod(after)


def add_like(fleet: Fleet, edit: AddNode) -> int:
    """Add the node, with the pods that DaemonSets have on the one that it is like; returns its row."""
    row = fleet.node_by_name[edit.like]
    node = fleet.node(row)
    labels = {key: value for key, value in node.labels.items() if key != HOSTNAME}
    spec = replace(
        node.spec,
        name=edit.name,
        uid="",
        labels=labels,
        taints=node.taints,
        allocatable=fleet.allocatable_of(row),
        cuts=node.cuts,
    )
    there = fleet.add_node(spec)
    for pod in daemons_of(fleet, row):
        own = replace(pod.spec, name=f"{pod.spec.name}-{edit.name}", uid="")
        fleet.bind(fleet.add_pod(own), there, observed=True)
    return there


def daemons_of(fleet: Fleet, row: int) -> list[PodRow]:
    """The pods on the node of this row that come with it and do not leave it: those of DaemonSets."""
    return sorted((pod for pod in map(fleet.pod, fleet.node(row).pods) if pod.spec.daemon), key=lambda pod: pod.key)


def edited(pod: FleetPod, edits: Sequence[Edit]) -> FleetPod:
    """The pod after the edits that concern it."""
    spec = pod.spec
    for edit in edits:
        match edit:
            case Tolerate():
                more = core.Toleration(key=edit.taint.key, value=edit.taint.value, effect=edit.taint.effect)
                spec = msgspec.structs.replace(spec, tolerations=[*spec.tolerations, more])
            case DropNodeName():
                spec = msgspec.structs.replace(spec, node_name="")
            case DropSelector():
                kept = {key: value for key, value in spec.node_selector.items() if key != edit.key}
                spec = msgspec.structs.replace(spec, node_selector=kept)
            case DropAffinity():
                spec = _with_terms(spec, None)
    spec = _without_requirements(spec, [edit for edit in edits if isinstance(edit, DropRequirement)])
    spec = _without_rules(spec, [edit for edit in edits if isinstance(edit, DropRule)])
    after = replace(pod, spec=spec)
    for edit in edits:
        if isinstance(edit, Lower):
            after = why_requests.lowered(after, edit.resource, edit.to)
        elif isinstance(edit, DropResource):
            after = why_requests.without(after, edit.resource)
        elif isinstance(edit, AskWhole):
            after = why_requests.in_whole(after, edit.resource, edit.to)
    return after


def _without_requirements(spec: core.PodSpec, dropped: Sequence[DropRequirement]) -> core.PodSpec:
    required = required_of(spec)
    if not dropped or required is None:
        return spec
    gone = {(edit.term, edit.field, edit.index) for edit in dropped}
    terms = []
    for t, term in enumerate(required.node_selector_terms):
        expressions = [e for i, e in enumerate(term.match_expressions) if (t, False, i) not in gone]
        fields = [f for i, f in enumerate(term.match_fields) if (t, True, i) not in gone]
        terms.append(msgspec.structs.replace(term, match_expressions=expressions, match_fields=fields))
    return _with_terms(spec, msgspec.structs.replace(required, node_selector_terms=terms))


def required_of(spec: core.PodSpec) -> core.NodeSelector | None:
    """The pod's required node affinity."""
    affinity = spec.affinity.node_affinity if spec.affinity else None
    return affinity.required_during_scheduling_ignored_during_execution if affinity else None


def _with_terms(spec: core.PodSpec, required: core.NodeSelector | None) -> core.PodSpec:
    """The pod's spec, which has node affinity, with this as what is required."""
    affinity = spec.affinity
    assert affinity is not None and affinity.node_affinity is not None
    changed = msgspec.structs.replace(
        affinity.node_affinity, required_during_scheduling_ignored_during_execution=required
    )
    return msgspec.structs.replace(spec, affinity=msgspec.structs.replace(affinity, node_affinity=changed))


def _without_rules(spec: core.PodSpec, dropped: Sequence[DropRule]) -> core.PodSpec:
    gone = {kind: {edit.index for edit in dropped if edit.kind == kind} for kind in {edit.kind for edit in dropped}}
    if spread := gone.get(SPREAD):
        kept = [c for i, c in enumerate(spec.topology_spread_constraints) if i not in spread]
        spec = msgspec.structs.replace(spec, topology_spread_constraints=kept)
    affinity = spec.affinity
    if affinity is not None:
        for kind, name in ((AFFINITY, "pod_affinity"), (ANTI_AFFINITY, "pod_anti_affinity")):
            group = getattr(affinity, name)
            if kind in gone and group is not None:
                terms = group.required_during_scheduling_ignored_during_execution
                left = [term for i, term in enumerate(terms) if i not in gone[kind]]
                group = msgspec.structs.replace(group, required_during_scheduling_ignored_during_execution=left)
                affinity = msgspec.structs.replace(affinity, **{name: group})
        spec = msgspec.structs.replace(spec, affinity=affinity)
    return spec


def rules_of(spec: core.PodSpec) -> list[DropRule]:
    """Giving up each hard rule about other pods that the pod has."""
    found = [
        DropRule(SPREAD, i, c.topology_key)
        for i, c in enumerate(spec.topology_spread_constraints)
        if c.when_unsatisfiable == "DoNotSchedule"
    ]
    if spec.affinity is None:
        return found
    for kind, group in ((AFFINITY, spec.affinity.pod_affinity), (ANTI_AFFINITY, spec.affinity.pod_anti_affinity)):
        terms = group.required_during_scheduling_ignored_during_execution if group else []
        found += [DropRule(kind, i, term.topology_key) for i, term in enumerate(terms)]
    return found
