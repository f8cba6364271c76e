"""Pods that no node will ever take: neither one of those that are there, were they empty, nor one that can be launched.

The scheduler and the provisioner answer, each workload alone on a cluster without pods: what waits only because others
run is not a fault of its manifest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from tonnage.control.nodes import Pools
from tonnage.decisions import Alternative, Bind, Launch, Reason, Ref, Wait
from tonnage.errors import Where
from tonnage.fleet.asks import VIRTUAL
from tonnage.fleet.fits import NO_MEMORY
from tonnage.fleet.gangs import Gang
from tonnage.fleet.rows import FleetPod, split_key
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import Fleet
from tonnage.fleet.volumes import folded
from tonnage.health.blocker import NO_NODE, UNSCHEDULABLE, Blocker
from tonnage.health.setting import Pods, requested
from tonnage.objects import core, karpenter
from tonnage.objects.api.placing import REQUIRED
from tonnage.objects.base import where
from tonnage.provisioning import explain, pods, static
from tonnage.provisioning.catalogue import Catalogue
from tonnage.provisioning.plans import Plan
from tonnage.provisioning.pods import ExistingNode
from tonnage.scheduling import place
from tonnage.scheduling.beyond import beyond
from tonnage.scheduling.cache import Cache
from tonnage.scheduling.why.changes import (
    AFFINITY,
    SPREAD,
    AddNode,
    AskWhole,
    DropAffinity,
    DropNodeName,
    DropRequirement,
    DropResource,
    DropRule,
    DropSelector,
    Edit,
    Lower,
    Tolerate,
)

if TYPE_CHECKING:
    from tonnage.scheduling.why.gang_changes import GangEdit

Edits: TypeAlias = "tuple[Edit | GangEdit, ...]"
MOST = 64
"""Pods of one workload that are looked at; what holds for this many holds for more."""
SHORT = "Insufficient "
"""How kube-scheduler begins to say that a resource is short."""
FULL = "Too many pods"
"""How it says that a node holds as many pods as its kubelet allows."""
_LABEL_MEMORY = "label the nodes with nvidia.com/gpu.memory, as GPU feature discovery does"
_SAY_MEMORY = f"{_LABEL_MEMORY}, or ask for whole GPUs and no memory"
_HOLD_MORE = (
    "let the nodes hold more pods (maxPods of the kubelet): those of DaemonSets alone are as many as they may hold"
)


@dataclass(frozen=True, slots=True)
class WorkloadPods:
    """The pods of one workload. ``templates``: what they are made from, one for each role."""

    templates: tuple[Pods, ...]
    pods: tuple[FleetPod, ...]
    gangs: dict[str, Gang]


class Outlook:
    """What a cluster can take. ``snapshot``: its nodes; pods on them are thought away, but those of DaemonSets.
    ``sizes``: of nodes that could be launched nothing is known but how large they may be."""

    def __init__(
        self,
        snapshot: Snapshot,
        settings: place.Settings,
        pools: Pools | None,
        catalogue: Catalogue,
        *,
        sizes: bool = False,
    ) -> None:
        self.snapshot, self.pools, self.catalogue = replace(snapshot, fleet=_emptied(snapshot.fleet)), pools, catalogue
        self.settings = replace(settings, preemption=False, receipts=False, defrag=None)
        self.sizes = sizes
        self.nodes = len(snapshot.fleet.node_by_name)

    def never(self, workload: WorkloadPods) -> Iterator[Blocker]:
        """Where pods of the workload are unschedulable and will stay so: one blocker, or of a gang one for each of its
        templates whose pods have no feasible node."""
        fleet = self.snapshot.fleet
        with fleet.what_if():
            specs = [spec for spec in workload.pods[:MOST] if not beyond(spec, self.nodes, strict=False)]
            rows = {spec.name: fleet.add_pod(spec) for spec in specs}
            snapshot = replace(self.snapshot, gangs={**self.snapshot.gangs, **workload.gangs}, nominations={})
            made = place.decide(snapshot, self.settings)
            bound = {one.pod.name for one in made if isinstance(one, Bind)}
            waits = {one.pod.name: one for one in made if isinstance(one, Wait)}
            left = self._unbought([spec for spec in specs if spec.name in waits])
            if left:
                first = next(spec for spec in specs if spec.name in left)
                some = len(left) < len(specs)
                reason = waits[first.name].reason
                edits: Edits = ()
                homeless = [s for s in specs if s.name in left and s.gang and not place.feasible(fleet, rows[s.name])]
                if not (homeless or bound):
                    edits = self._edits(snapshot, rows[first.name], first)
                if not homeless:
                    template = _templates_of(workload, first)[0]
                    yield self._blocker(template, reason, left[first.name], edits, some=some)
                said: list[Pods] = []
                for spec in homeless:
                    new = [one for one in _templates_of(workload, spec) if all(one is not other for other in said)]
                    if new:
                        said += new
                        reason, edits = self._alone(snapshot, list(rows.values()), spec)
                    for template in new:
                        yield self._blocker(template, reason, left[spec.name], edits, some=some)

    def _alone(self, snapshot: Snapshot, rows: Sequence[int], spec: FleetPod) -> tuple[Reason, Edits]:
        """Why no node is feasible for this pod of a gang, whatever becomes of the others, and the smallest change."""
        fleet = snapshot.fleet
        with fleet.what_if():
            for row in rows:
                fleet.remove_pod(row)
            single = replace(spec, gang="", subgroup="")
            row = fleet.add_pod(single)
            reason = next(one.reason for one in place.decide(snapshot, self.settings) if isinstance(one, Wait))
            return reason, self._edits(snapshot, row, single)

    def launch_for(self, spec: FleetPod) -> Launch | None:
        """The node that would be launched for the pod; None where no NodePool can launch one."""
        if self.pools is None or not self.pools.node_pools:
            return None
        return next(iter(self._plan([spec]).launches), None)

    def _unbought(self, waiting: Sequence[FleetPod]) -> dict[str, Reason | None]:
        """Those for which no NodePool can launch a node, by name, each with the planner's reason if there are
        NodePools."""
        if not waiting or self.pools is None or not self.pools.node_pools:
            return {spec.name: None for spec in waiting}
        waits = self._plan(
            [spec for spec in waiting if not spec.claims.keys],  # of devices to come nothing is known
            [static.to_come(pool) for pool in self.pools.node_pools],
        ).waits
        return {wait.pod.name: wait.reason for wait in waits if not self.sizes or _too_large(wait.reason)}

    def _plan(self, waiting: Sequence[FleetPod], node_pools: Sequence[karpenter.NodePool] = ()) -> Plan:
        """The nodes that the provisioner would launch, with no room on those that are there."""
        assert self.pools is not None
        shapes: dict[int, pods.PodShape] = {}
        pending = []
        for spec in waiting:
            if id(spec.spec) not in shapes:
                shapes[id(spec.spec)] = pods.PodShape.of(folded(spec.spec, spec.volumes), spec.annotations)
            pending.append(pods.PendingPod(spec.ref, shapes[id(spec.spec)], labels=spec.labels))
        from tonnage.provisioning import karpenter as planner

        among = node_pools or self.pools.node_pools
        return planner.plan(pending, self._full(), among, self.catalogue, self.pools.plan_settings())

    def _full(self) -> Iterator[ExistingNode]:
        """The nodes that are there, as what counts against the limits of their NodePools, without room."""
        fleet = self.snapshot.fleet
        for node in map(fleet.node, fleet.node_rows()):
            capacity = self.catalogue.capacity_of(node.spec.instance_type)
            if node.spec.node_pool and capacity:
                yield ExistingNode(
                    ref=Ref("Node", node.spec.name, uid=node.spec.uid),
                    labels=node.labels,
                    free={},
                    node_pool=node.spec.node_pool,
                    capacity=capacity,
                )

    def _edits(self, snapshot: Snapshot, row: int, spec: FleetPod) -> Edits:
        """The smallest change after which the pod fits on a node; of a gang, its minimum."""
        if not self.nodes:
            return ()
        from tonnage.scheduling.why import gang as why_gang  # for pending pods only
        from tonnage.scheduling.why import search

        cache = Cache(snapshot.fleet)
        found = search.smallest(snapshot.fleet, row, cache)
        if found.change is not None and found.change.edits:
            return found.change.edits
        if spec.gang in snapshot.gangs:
            ready = [at for at in snapshot.fleet.gang_pods[spec.gang] if snapshot.fleet.pod(at).node < 0]
            gang = why_gang.GangChangeSearch(snapshot, spec.gang, ready, cache).find(why_gang.EVERY)
            return gang.change.edits if gang.change is not None else ()
        return ()

    def _blocker(self, template: Pods, waits: Reason, unbought: Reason | None, edits: Edits, *, some: bool) -> Blocker:
        place_, help_ = self._at_fault(template, unbought) if unbought is not None and not edits else (None, "")
        if place_ is None:
            field, help_ = _field(template, edits)
            place_ = template.where(field or _short_of(template.spec, waits))
        elif edits:
            help_ = _then(edits)
        pools = f"; no NodePool can launch one: {_text(unbought)}" if unbought is not None else ""
        if self.nodes:
            said = waits.verdict
            cause = f"no feasible node for {'one of ' if some else ''}these pods: {said.removesuffix('.')}{pools}"
        else:
            said = f"no nodes available to schedule pods{pools}"
            cause = pools.removeprefix("; ").replace("can launch one", "can launch a node for these pods") or (
                "there is no node, and no NodePool that can launch one"
            )
        rule = "pods-fit-no-nodepool" if unbought is not None and not self.nodes else "pods-fit-no-node"
        full = waits.evidence and all(text == FULL for text, _ in waits.evidence)
        dumb = any(text == NO_MEMORY for text, _ in waits.evidence)
        otherwise = _SAY_MEMORY if dumb else "ask for less, or add nodes that have it"
        help_ = help_ or (_HOLD_MORE if full else otherwise)
        return Blocker(rule, UNSCHEDULABLE, template.ref, place_, cause, help_, NO_NODE, said, some)

    def _at_fault(self, template: Pods, reason: Reason) -> tuple[Where | None, str]:
        """The place of what a NodePool and the pods disagree about, and what would help. The NodePool that came
        closest, by the check that failed last, is taken at its word."""
        assert self.pools is not None
        known = {f"NodePool {pool.name}": pool for pool in self.pools.node_pools}
        beaten = [one for one in reason.alternatives if one.name in known]
        if not beaten:
            return None, ""
        closest = max(beaten, key=lambda one: (not _has_none(one), _ORDER.index(_kind(one))))
        return _of_pool(template, known[closest.name], closest)


def _emptied(fleet: Fleet) -> Fleet:
    """The nodes again, with the pods of DaemonSets alone: what is tried on them leaves no trace in the fleet."""
    made = Fleet()
    made.attach_limits = fleet.attach_limits
    made.namespaces = fleet.namespaces
    made.device_claims = fleet.device_claims.unallocated()
    for at in fleet.node_rows():
        node = fleet.node(at)
        spec = replace(
            node.spec, labels=node.labels, taints=node.taints, allocatable=fleet.allocatable_of(at), cuts=node.cuts
        )
        row = made.add_node(spec, schedulable=bool(fleet.schedulable[at]))
        for pod in sorted(fleet.pod(one).key for one in node.pods if fleet.pod(one).spec.daemon):
            made.bind(made.add_pod(fleet.pod(fleet.pod_by_key[split_key(pod)]).spec), row, observed=True)
    return made


_ORDER = (
    "",
    explain.STATIC,
    explain.UNTOLERATED,
    explain.CONFLICT,
    explain.NO_TYPE_HAS,
    explain.NO_TYPE_MEETS,
    explain.NO_LABEL,
    explain.TOO_SMALL,
    explain.NO_OFFERING,
    explain.LIMITS,
)


def _too_large(reason: Reason) -> bool:
    """Whether the pod asks for more than any instance type has, by every NodePool that can be asked."""
    kinds = {_kind(one) for one in reason.alternatives}
    return explain.TOO_SMALL in kinds and kinds <= {explain.TOO_SMALL, explain.CONFLICT, explain.UNTOLERATED}


def _has_none(refused: Alternative) -> bool:
    """Whether the NodePool is for other pods: no instance type of it has the resource at all."""
    return _kind(refused) in (explain.TOO_SMALL, explain.NO_TYPE_HAS) and refused.why.endswith((" > 0", ">0"))


def _kind(refused: Alternative) -> str:
    return next((kind for kind in _ORDER[1:] if refused.why.startswith(kind)), "")


def _of_pool(template: Pods, pool: karpenter.NodePool, refused: Alternative) -> tuple[Where, str]:
    kind, why = _kind(refused), refused.why
    if kind == explain.STATIC:
        help_ = f"raise replicas of NodePool {pool.name}, or add a NodePool without replicas"
        return where(pool, "spec.replicas"), help_
    detail = why.removeprefix(kind).lstrip(": ")
    if kind == explain.UNTOLERATED:
        return template.where("tolerations"), f"tolerate the taint {detail} of NodePool {pool.name}"
    if kind == explain.LIMITS:
        resource = detail.split()[0]
        help_ = f"raise the limit on {resource} of NodePool {pool.name}, or ask for less"
        return where(pool, f"spec.limits.{resource}"), help_
    if kind in (explain.TOO_SMALL, explain.NO_TYPE_HAS):
        resource = detail.split()[0].rstrip(",")
        field = requested(template.spec, resource)
        index = _narrows(pool)
        if kind == explain.TOO_SMALL and index is not None:
            return (
                where(pool, f"spec.template.spec.requirements[{index}]"),
                f"let NodePool {pool.name} offer larger instance types, or ask for less {resource}",
            )
        return template.where(field), f"ask for what an instance type has ({detail}), or offer others"
    key = next((key for key in _keys(template.spec) if key in why), "")
    if key:
        return template.where(_selecting(template.spec, key)), f"select what NodePool {pool.name} offers: {detail}"
    index = next((i for i, r in enumerate(pool.spec.template.spec.requirements) if r.key in why), None)
    if index is None and kind == explain.NO_OFFERING:
        index = next(
            (i for i, r in enumerate(pool.spec.template.spec.requirements) if "zone" in r.key or "capacity" in r.key),
            None,
        )
    field = f"spec.template.spec.requirements[{index}]" if index is not None else "spec.template.spec.requirements"
    return where(pool, field), f"widen the requirements of NodePool {pool.name}: {why}"


def _narrows(pool: karpenter.NodePool) -> int | None:
    """The requirement by which a NodePool names the sizes that it offers."""
    sizes = ("instance-type", "instance-size", "instance-gpu-count", "instance-cpu", "instance-memory")
    for index, requirement in enumerate(pool.spec.template.spec.requirements):
        if requirement.key.endswith(sizes):
            return index
    return None


def _keys(spec: core.PodSpec) -> list[str]:
    """The labels that the pod insists on."""
    required = _required(spec)
    terms = required.node_selector_terms if required else []
    return [*spec.node_selector, *(one.key for term in terms for one in term.match_expressions)]


def _required(spec: core.PodSpec) -> core.NodeSelector | None:
    affinity = spec.affinity.node_affinity if spec.affinity else None
    return affinity.required_during_scheduling_ignored_during_execution if affinity else None


def _first_requirement(spec: core.PodSpec) -> str:
    required = _required(spec)
    for t, term in enumerate(required.node_selector_terms if required else ()):
        if term.match_expressions or term.match_fields:
            return f".nodeSelectorTerms[{t}].{'matchExpressions' if term.match_expressions else 'matchFields'}[0]"
    return ""


def _selecting(spec: core.PodSpec, key: str) -> str:
    if key in spec.node_selector:
        return f"nodeSelector.{key}"
    required = _required(spec)
    for t, term in enumerate(required.node_selector_terms if required else ()):
        for i, one in enumerate(term.match_expressions):
            if one.key == key:
                return f"affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[{t}].matchExpressions[{i}]"
    return ""


def _templates_of(workload: WorkloadPods, spec: FleetPod) -> list[Pods]:
    """What the pod was made from: the template whose containers it has, or several that have the same."""
    containers = [(one.name, one.image, one.resources) for one in spec.spec.containers]
    same = [
        one
        for one in workload.templates
        if [(each.name, each.image, each.resources) for each in one.spec.containers] == containers
    ]
    return same or [workload.templates[0]]


def _field(template: Pods, edits: Sequence[Edit | GangEdit]) -> tuple[str, str]:
    """The field of the pod's spec that the change is about, and the change."""
    if not edits:
        return "", ""
    spec, field = template.spec, ""
    match edits[0]:
        case Tolerate():
            field = "tolerations"
        case DropSelector(key=key):
            field = f"nodeSelector.{key}"
        case DropNodeName():
            field = "nodeName"
        case DropRequirement(term=term, index=index, field=fields):
            part = "matchFields" if fields else "matchExpressions"
            field = f"affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[{term}].{part}[{index}]"
        case DropAffinity():
            field = f"affinity.nodeAffinity.{REQUIRED}{_first_requirement(spec)}"
        case DropRule(kind=kind, index=index):
            part = "podAffinity" if kind == AFFINITY else "podAntiAffinity"
            field = f"topologySpreadConstraints[{index}]" if kind == SPREAD else f"affinity.{part}.{REQUIRED}[{index}]"
        case Lower(resource=resource) | DropResource(resource=resource):
            field = requested(spec, resource)
        case AskWhole():
            stated = [name for name in VIRTUAL if core.pod_requests(spec).get(name)]
            field = requested(spec, stated[0]) if stated else ""
        case AddNode():
            field = ""
    return field, _then(edits)


def _short_of(spec: core.PodSpec, waits: Reason) -> str:
    """Where the pod asks for what the nodes do not have enough of; empty where that is not why it waits."""
    lacking = [text.removeprefix(SHORT) for text, _ in waits.evidence if text.startswith(SHORT)]
    return requested(spec, lacking[0]) if lacking else ""


def _then(edits: Sequence[Edit | GangEdit]) -> str:
    said = " and ".join(edit.text() for edit in edits)
    return f"{_LABEL_MEMORY}, or {said}" if any(isinstance(edit, AskWhole) for edit in edits) else said


def _text(reason: Reason | None) -> str:
    if reason is None:
        return ""
    return "; ".join(f"{one.name}: {one.why}" for one in reason.alternatives) or reason.verdict
