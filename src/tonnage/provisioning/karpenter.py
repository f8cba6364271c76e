"""Which nodes Karpenter would launch for pending pods: its planning order and launch choice, reproduced.

Pods are taken by CPU, then memory, largest first. Each goes to the first existing node that can take it,
else to the planned NodeClaim with the fewest pods that can, else a new NodeClaim is planned from the first
NodePool (by weight, then name, both descending) that can. A planned NodeClaim keeps every instance type
that still fits its pods; nothing compares one larger node with two smaller ones. Only at the end is each
NodeClaim bought as its cheapest offering.

Not weighed: topology spread, pod affinity, volumes, host ports, dynamic resource allocation, capacity
reservations; :attr:`Plan.unplanned` counts the pods for which that may matter. A custom label that a pod
merely tolerates (NotIn or DoesNotExist) is not put on the NodeClaim, so pods never depend on one another
and one pass over them is enough.

Pods that ask for parts of devices (shares, memory, MIG instances, replicas) are given those that the fleet would give
them (:mod:`tonnage.provisioning.devices`), on nodes whose GPUs are partitioned as labels of the NodePool say, or in one
of the ways that its requirements on those labels list: a planned NodeClaim keeps every way that still fits its pods, as
it does instance types. Karpenter itself does not plan for such pods.

Source: kubernetes-sigs/karpenter pkg/controllers/provisioning/scheduling (queue.go, scheduler.go,
nodeclaim.go).
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from tonnage.decisions import Alternative, Launch, Reason, Ref, Scalar, Wait
from tonnage.fleet.asks import SHARED_GPU, Kind
from tonnage.objects import karpenter, selectors
from tonnage.partitioning.node_cuts import STATED
from tonnage.provisioning import explain
from tonnage.provisioning.catalogue import NODES, Catalogue, TypeMask
from tonnage.provisioning.launch import Choice, choose
from tonnage.provisioning.load import Load, Market, Stage
from tonnage.provisioning.plans import Nomination, Plan, PlannedClaim, PlanSettings
from tonnage.provisioning.pods import ExistingNode, PendingPod, PodShape, relaxations, uses_match_fields
from tonnage.provisioning.requirements import Requirements
from tonnage.provisioning.template import ALL_EFFECTS, Template, compile_pool
from tonnage.units import NS_PER_S, usd


def plan(
    pods: Iterable[PendingPod],
    nodes: Iterable[ExistingNode],
    node_pools: Iterable[karpenter.NodePool],
    catalogue: Catalogue,
    settings: PlanSettings | None = None,
) -> Plan:
    """Plan nodes for pending pods. The order of the inputs does not matter.

    Static NodePools (``replicas`` set) are left out. Raises :class:`~tonnage.errors.InputError` for a
    requirement that cannot be read.
    """
    settings = settings or PlanSettings()
    market = Market(catalogue, catalogue.available(settings.unavailable), settings.strict_min_values)
    templates = [
        compile_pool(
            pool,
            catalogue,
            settings.daemon_sets,
            settings.node_classes.get(pool.spec.template.spec.node_class_ref.name),
            settings.configurations,
        )
        for pool in node_pools
        if pool.spec.replicas is None
    ]
    templates.sort(key=lambda one: (one.weight, one.name), reverse=True)
    return _Planner(market, templates, list(nodes), settings).run(list(pods))


STARTING_TAINTS = frozenset(
    {
        ("node.kubernetes.io/not-ready", "NoSchedule"),
        ("node.kubernetes.io/not-ready", "NoExecute"),
        ("node.kubernetes.io/unreachable", "NoSchedule"),
        ("node.cloudprovider.kubernetes.io/uninitialized", "NoSchedule"),
        ("karpenter.sh/unregistered", "NoExecute"),
    }
)
"""Taints of a node that is starting (kubernetes-sigs/karpenter pkg/scheduling/taints.go,
KnownEphemeralTaints).
"""


@dataclass(slots=True, eq=False)
class _Claim:
    """A planned NodeClaim. It is tried in order of ``(len(pods), turn)``.

    Karpenter sorts its list of planned claims stably by pod count before each pod. A claim that has just
    taken a pod is then ahead of the others with its new count, and a new claim behind the others with one
    pod: hence ``turn``.
    """

    load: Load
    pods: list[Ref]
    turn: int

    def key(self, index: int) -> tuple[int, int, int]:
        return (len(self.pods), self.turn, index)


@dataclass(slots=True, eq=False)
class _PodClass:
    """Pods that planning cannot tell apart."""

    stages: list[Stage]
    refused: Reason | None = None
    waiting: list[Ref] = field(default_factory=list)


class _Planner:
    """One planning round."""

    def __init__(
        self, market: Market, templates: list[Template], nodes: list[ExistingNode], settings: PlanSettings
    ) -> None:
        self.market = market
        self.templates = templates
        self.settings = settings
        self.relax_taints = any(t.effect == "PreferNoSchedule" for one in templates for t in one.taints)
        usable = sorted((n for n in nodes if not n.deleted), key=lambda n: (not n.initialized, n.ref.name, n.ref))
        self.nodes = [_Node(node) for node in usable]
        self.claims: list[_Claim] = []
        self.nominations: list[Nomination] = []
        self.turns = 0
        self.stages = 0
        self.remaining = {one.name: dict(one.limits) for one in templates}
        for node in nodes:
            for resource in self.remaining.get(node.node_pool, ()):
                self.remaining[node.node_pool][resource] -= node.capacity.get(resource, 0)
        self.empty_loads: dict[tuple[str, bytes], Load] = {}

    def run(self, pods: list[PendingPod]) -> Plan:
        classes = _Classes(self)
        for pod in sorted(pods, key=_queue_key):
            pod_class = classes.of(pod.shape)
            if pod_class.refused is None and not any(self._place(pod.ref, stage) for stage in pod_class.stages):
                # Nodes and claims only fill up and limits only shrink: pods like this one stay refused.
                pod_class.refused = self._refusal(pod_class)
            if pod_class.refused is not None:
                pod_class.waiting.append(pod.ref)
        waits = [Wait(ref, one.refused, "provisioner") for one in classes.all() if one.refused for ref in one.waiting]
        return self._finish(waits, _unplanned(pods))

    def _place(self, pod: Ref, stage: Stage) -> bool:
        return self._on_node(pod, stage) or self._on_claim(pod, stage) or self._on_new_claim(pod, stage)

    def _on_node(self, pod: Ref, stage: Stage) -> bool:
        while stage.node < len(self.nodes):
            node = self.nodes[stage.node]
            if node.take(stage):
                self.nominations.append(Nomination(pod, node.ref))
                return True
            stage.node += 1
        return False

    def _on_claim(self, pod: Ref, stage: Stage) -> bool:
        for index in range(stage.seen, len(self.claims)):
            heapq.heappush(stage.claims, self.claims[index].key(index))
        stage.seen = len(self.claims)
        heap = stage.claims
        while heap:
            index = heap[0][2]
            claim = self.claims[index]
            key = claim.key(index)
            if heap[0] != key:  # it took other pods since
                heapq.heapreplace(heap, key)
                continue
            load = claim.load.join(stage)
            if load is None:  # and never will: its types only get fewer
                heapq.heappop(heap)
                continue
            self.turns += 1
            claim.load, claim.turn = load, -self.turns
            claim.pods.append(pod)
            return True
        return False

    def _on_new_claim(self, pod: Ref, stage: Stage) -> bool:
        for template in self.templates:
            remaining = self.remaining[template.name]
            types = template.within(remaining, self.market.catalogue)
            load = self._empty(template, types).join(stage)
            if load is None:
                continue
            largest = load.largest()
            for resource in remaining:
                column = self.market.catalogue.column.get(resource)
                remaining[resource] -= 0 if column is None else int(largest[column])
            self.turns += 1
            self.claims.append(_Claim(load, [pod], self.turns))
            return True
        return False

    def _empty(self, template: Template, types: TypeMask) -> Load:
        key = (template.name, types.tobytes())
        if key not in self.empty_loads:
            self.empty_loads[key] = Load.empty(self.market, template, types)
        return self.empty_loads[key]

    def _refusal(self, pod_class: _PodClass) -> Reason:
        """Why each NodePool refuses the pod, once everything that it would rather have has been given up."""
        last = pod_class.stages[-1]
        beaten = tuple(
            Alternative(f"NodePool {one.name}", explain.refusal(self.market, one, last, self.remaining[one.name]))
            for one in self.templates
        )
        return Reason("no node and no NodePool can take it", _amounts_of(last.amounts), beaten)

    def _finish(self, waits: list[Wait], unplanned: dict[str, int]) -> Plan:
        launches: list[Launch] = []
        claims: list[PlannedClaim] = []
        chosen: dict[int, Choice | str] = {}
        for claim in self.claims:
            load = claim.load
            if id(load) not in chosen:
                chosen[id(load)] = choose(
                    self.market.offers, load.requirements, load.types, strict=self.market.strict_min_values
                )
            choice = chosen[id(load)]
            if isinstance(choice, str):
                reason = Reason(f"NodePool {load.template.name} cannot launch a node: {choice}")
                waits.extend(Wait(pod, reason, "provisioner") for pod in claim.pods)
                continue
            name = f"{load.template.name}-{self.settings.first_claim + len(claims):05d}"
            claims.append(_planned(Ref("NodeClaim", name), claim, choice))
            launches.append(_launch(claims[-1], load, choice))
        waits.sort(key=lambda wait: wait.pod)
        return Plan(tuple(launches), tuple(claims), tuple(self.nominations), tuple(waits), unplanned)


class _Node:
    """An existing node while pods are being added to it."""

    def __init__(self, node: ExistingNode) -> None:
        self.ref = node.ref
        self.labels = Requirements.of_labels(node.labels)
        self.free = dict(node.free)
        self.devices = node.devices and node.devices.copy()
        self.taints = node.taints
        if not node.initialized:
            passing = {(taint.key, taint.effect) for taint in node.startup_taints} | STARTING_TAINTS
            self.taints = tuple(taint for taint in node.taints if (taint.key, taint.effect) not in passing)

    def take(self, stage: Stage) -> bool:
        """Add such a pod if the node's taints, labels, free resources and devices allow it."""
        if any(self.free.get(resource, 0) < amount for resource, amount in stage.amounts.items() if amount):
            return False
        if selectors.untolerated(self.taints, stage.step.tolerations, ALL_EFFECTS) is not None:
            return False
        if not self.labels.compatible(stage.step.requirements):
            return False
        if self.devices is None:
            if stage.ask.shares:
                return False
        elif stage.ask.kind is not Kind.NONE and not self.devices.take(0, stage.ask, stage.amounts):
            return False
        for resource, amount in stage.amounts.items():
            if amount:
                self.free[resource] -= amount
        return True


class _Classes:
    """Sorts pods into classes. Pods of one template share their shape object, which is looked up first."""

    def __init__(self, planner: _Planner) -> None:
        self._planner = planner
        self._encode = msgspec.json.Encoder(order="sorted").encode
        self._by_shape: dict[int, _PodClass] = {}
        self._by_content: dict[bytes, _PodClass] = {}

    def of(self, shape: PodShape) -> _PodClass:
        found = self._by_shape.get(id(shape))
        if found is None:
            content = self._encode(shape)
            if content not in self._by_content:
                self._by_content[content] = self._new(shape)
            found = self._by_shape[id(shape)] = self._by_content[content]
        return found

    def all(self) -> Iterable[_PodClass]:
        return self._by_content.values()

    def _new(self, shape: PodShape) -> _PodClass:
        if uses_match_fields(shape):
            return _PodClass([], Reason("node affinity by matchFields is not supported by Karpenter"))
        if shape.ask.refused:
            return _PodClass([], Reason(shape.ask.refused))
        planner, catalogue = self._planner, self._planner.market.catalogue
        amounts = {"pods": 1, **shape.requests}
        cut = {SHARED_GPU, *dict(shape.ask.profiles)}  # offered, if at all, by what a NodePool makes of its devices
        counted = {name: amount for name, amount in amounts.items() if name not in cut}
        requests, unknown = catalogue.amounts(counted), tuple(catalogue.unknown(counted))
        pod_class = _PodClass([])
        for step in relaxations(
            shape,
            preferences=planner.settings.preferences,
            tolerate_prefer_no_schedule=planner.relax_taints,
        ):
            planner.stages += 1
            pod_class.stages.append(Stage(planner.stages, step, amounts, requests, unknown, shape.ask))
        return pod_class


def _queue_key(pod: PendingPod) -> tuple[int, int, int, str, Ref]:
    requests = pod.shape.requests
    created = pod.creation_ns // NS_PER_S
    return (-requests.get("cpu", 0), -requests.get("memory", 0), created, pod.ref.uid, pod.ref)


def _planned(ref: Ref, claim: _Claim, choice: Choice) -> PlannedClaim:
    load, template = claim.load, claim.load.template
    catalogue = load.market.catalogue
    index = catalogue.index(choice.offering.instance_type)
    instance = catalogue.types[index]
    layout = load.layout(index) if len(load.choices) > 1 else 0
    cut = {key: value for key, value in template.machines.layouts[layout].items() if key in STATED}
    devices = load.devices and template.machines.of(load.devices, layout, index)
    return PlannedClaim(
        ref=ref,
        node_pool=template.name,
        offering=choice.offering,
        instance_types=choice.instance_types,
        requirements=load.requirements.merged(Requirements.of_labels(cut)),
        labels={
            **_own_labels(load, cut),
            **template.labels,
            **instance.labels(choice.offering.zone, choice.offering.capacity_type),
        },
        taints=template.taints,
        startup_taints=template.startup_taints,
        requests=catalogue.as_map(load.requests) | (devices.in_use(0) if devices else {}),
        daemons=catalogue.as_map(template.daemons[index]),
        allocatable=template.allocatable(index, catalogue, layout),
        capacity=catalogue.as_map(template.capacity[index]),
        pods=tuple(claim.pods),
        devices=devices,
    )


def _own_labels(load: Load, cut: dict[str, str]) -> dict[str, str]:
    """Labels that follow from the requirements; of those that say how GPUs are partitioned just the ones chosen."""
    return {key: value for key, value in load.requirements.labels().items() if key not in STATED} | cut


def _launch(planned: PlannedClaim, load: Load, choice: Choice) -> Launch:
    evidence = (
        ("pods", load.pods),
        *_amounts_of(planned.requests),
        ("instance_types_considered", int(load.types.sum())),
        ("instance_types_requested", len(choice.instance_types)),
        ("usd_per_hour", usd(choice.micro_usd_per_hour)),
        ("prices_as_of", load.market.catalogue.book.as_of),
    )
    return Launch(
        claim=planned.ref,
        node_pool=planned.node_pool,
        instance_type=choice.offering.instance_type,
        zone=choice.offering.zone,
        capacity_type=choice.offering.capacity_type,
        price_micro_usd_per_hour=choice.micro_usd_per_hour,
        reason=Reason("cheapest offering that holds its pods", evidence, choice.alternatives),
        pods=planned.pods,
        labels=planned.labels,
        allocatable=_without_nodes(planned.allocatable),
        requests=planned.requests,
        daemons=_without_nodes(planned.daemons),
        capacity=planned.capacity,
        taints=planned.taints,
        startup_taints=planned.startup_taints,
    )


def _without_nodes(amounts: dict[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in amounts.items() if name != NODES}


def _amounts_of(amounts: dict[str, int]) -> tuple[tuple[str, Scalar], ...]:
    return tuple((name, amount) for name, amount in sorted(amounts.items()) if name != "pods" and amount)


def _unplanned(pods: Iterable[PendingPod]) -> dict[str, int]:
    found = Counter(name for pod in pods for name in pod.shape.unplanned)
    return dict(sorted(found.items()))
