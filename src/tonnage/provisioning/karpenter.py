"""Which nodes Karpenter would launch for pending pods: its planning order and launch choice, reproduced.

Pods are taken by CPU, then memory, largest first. Each goes to the first existing node that can take it,
else to the planned NodeClaim with the fewest pods that can, else a new NodeClaim is planned from the first
NodePool (by weight, then name, both descending) that can. A planned NodeClaim keeps every instance type
that still fits its pods; nothing compares one larger node with two smaller ones. Only at the end is each
NodeClaim bought as its cheapest offering. A pod that nothing takes gives up what it only prefers, one thing after the
other, and is tried again after the others until a whole turn changes nothing.

Topology spread and pod affinity are weighed as in :mod:`tonnage.provisioning.topology`. Where Karpenter takes any of
several equally good domains, the first by name is taken here. A label that a pod asks to be anything but some value is
from then on one that the NodeClaim may have: pods that ask for another value of it join.

Pods for which capacity reservations are held by what the plan launches wait for the next plan
(:mod:`tonnage.provisioning.reserving`), as with Karpenter.

Not weighed: limits of a node's volumes, dynamic resource allocation.

Pods that ask for parts of devices (shares, memory, MIG instances, replicas) are given those that the fleet would give
them (:mod:`tonnage.provisioning.devices`), on nodes whose GPUs are partitioned as labels of the NodePool say, or in one
of the ways that its requirements on those labels list: a planned NodeClaim keeps every way that still fits its pods, as
it does instance types. Karpenter itself does not plan for such pods.

Source: kubernetes-sigs/karpenter pkg/controllers/provisioning/scheduling (queue.go, scheduler.go,
nodeclaim.go, existingnode.go).
"""

from __future__ import annotations

import itertools
from array import array
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec import Struct

from tonnage.decisions import Alternative, Launch, Reason, Ref, Wait
from tonnage.objects import karpenter
from tonnage.provisioning import bought, explain
from tonnage.provisioning.catalogue import Catalogue, TypeMask
from tonnage.provisioning.claim_order import ClaimOrder
from tonnage.provisioning.domains import Pick
from tonnage.provisioning.launch import LaunchChoice, choose
from tonnage.provisioning.load import ClaimLoad, Market
from tonnage.provisioning.nodeclass import storage_key
from tonnage.provisioning.plans import Nomination, Plan, PlannedClaim, PlanSettings
from tonnage.provisioning.pod_classes import AlikePods, Attempt, PodClasses
from tonnage.provisioning.pods import ExistingNode, PendingPod
from tonnage.provisioning.requirements import Requirement
from tonnage.provisioning.reserving import Reserving, with_reserved
from tonnage.provisioning.standing import StandingNode
from tonnage.provisioning.template import PoolTemplate, compile_pool
from tonnage.provisioning.topology import PodTopology, Verdict
from tonnage.units import NS_PER_S


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
    return _bought(pack(pods, nodes, node_pools, catalogue, settings), settings)


@dataclass(slots=True, eq=False)
class NewNodeClaim:
    """A planned NodeClaim. ``host`` stands for the name that its node will have."""

    load: ClaimLoad
    pods: list[Ref]
    host: str


class Packing(Struct, frozen=True):
    """Where each pod goes, before anything is bought. ``claims`` in the order of planning; ``unplanned`` as in
    :class:`Plan`."""

    market: Market
    claims: tuple[NewNodeClaim, ...]
    nominations: tuple[Nomination, ...]
    waits: tuple[Wait, ...]
    unplanned: dict[str, int]
    reserving: Reserving | None = None


def pack(
    pods: Iterable[PendingPod],
    nodes: Iterable[ExistingNode],
    node_pools: Iterable[karpenter.NodePool],
    catalogue: Catalogue,
    settings: PlanSettings,
    pick: Pick | None = None,
) -> Packing:
    """Put the pods on nodes and planned NodeClaims. ``pick`` says which of several equally good domains is taken: the
    first by name where it is not given."""
    catalogue = with_reserved(catalogue, settings.reservations)
    market = Market(catalogue, catalogue.available(settings.unavailable), settings.strict_min_values)
    node_pools = list(node_pools)
    dynamic = [pool for pool in node_pools if not pool.is_static]
    templates = [
        compile_pool(
            pool,
            catalogue,
            settings.daemon_sets,
            settings.node_classes.get(storage_key(pool)),
            settings.configurations,
        )
        for pool in dynamic
    ]
    templates.sort(key=lambda one: (one.weight, one.name), reverse=True)
    there = list(nodes)
    topology = PodTopology(catalogue, dynamic, there, settings, pick)
    static = [pool for pool in node_pools if pool.is_static]
    return _Planner(market, templates, there, settings, topology, static).run(list(pods))


class _Planner:
    """One planning round."""

    def __init__(
        self,
        market: Market,
        templates: list[PoolTemplate],
        nodes: list[ExistingNode],
        settings: PlanSettings,
        topology: PodTopology,
        static: Sequence[karpenter.NodePool] = (),
    ) -> None:
        self.static = static
        self.market = market
        self.templates = templates
        self.settings = settings
        self.topology = topology
        usable = sorted((n for n in nodes if not n.deleted), key=lambda n: (not n.initialized, n.ref.name, n.ref))
        self.nodes = [StandingNode(node) for node in usable]
        self.claims: list[NewNodeClaim] = []
        self.areas = array("q")
        self.keys = 0
        self.order = ClaimOrder()
        self.nominations: list[Nomination] = []
        self.placed = 0
        self.reserving = Reserving(settings.reservations) if settings.reservations else None
        self.remaining = {one.name: dict(one.limits) for one in templates}
        for node in usable:
            for resource in self.remaining.get(node.node_pool, ()):
                self.remaining[node.node_pool][resource] -= node.capacity.get(resource, 0)
        self.empty_loads: dict[tuple[str, bytes], ClaimLoad] = {}

    def run(self, pods: list[PendingPod]) -> Packing:
        ordered = sorted(pods, key=_queue_key)
        relax_taints = any(t.effect == "PreferNoSchedule" for one in self.templates for t in one.taints)
        classes = PodClasses(self.market.catalogue, self.settings, self.topology, pods, relax_taints=relax_taints)
        queue = deque((pod, classes.of(pod)) for pod in ordered)
        classes.met()
        for node in self.nodes:
            self.topology.register(node.host)
        last: dict[Ref, int] = {}
        while queue:
            pod, pod_class = queue[0]
            if last.get(pod.ref) == len(queue):
                break
            queue.popleft()
            if pod_class.refused is None and not self._schedule(pod.ref, pod_class):
                queue.append((pod, pod_class))
                last[pod.ref] = len(queue)
            elif pod_class.refused is not None:
                pod_class.waiting.append(pod.ref)
        for pod, pod_class in queue:
            pod_class.refused = pod_class.refused or self._refusal(pod_class)
            pod_class.waiting.append(pod.ref)
        waits = [Wait(ref, one.refused, "provisioner") for one in classes.all() if one.refused for ref in one.waiting]
        waits.sort(key=lambda wait: wait.pod)
        return Packing(
            self.market, tuple(self.claims), tuple(self.nominations), tuple(waits), _unplanned(pods), self.reserving
        )

    def _schedule(self, pod: Ref, pod_class: AlikePods) -> bool:
        """Place the pod, giving up one thing after the other. Nothing changes for its like while no pod is placed."""
        if pod_class.seen == self.placed:
            return False
        pod_class.held_back = ""
        self.topology.pick.turn(pod)
        for attempt in pod_class.all_attempts(self.topology):
            attempt.full.extend(bytes(len(self.nodes) - len(attempt.full)))
            if self.reserving is not None:
                self.reserving.short = ""
            if self._on_node(pod, attempt) or self._on_claim(pod, attempt) or self._on_new_claim(pod, attempt):
                self.placed += 1
                return True
            if self.reserving is not None and self.reserving.short:
                pod_class.held_back = self.reserving.short
                break  # nothing is given up as long as reserved capacity may come free
        pod_class.seen = self.placed
        return False

    def _on_node(self, pod: Ref, attempt: Attempt) -> bool:
        stage, full = attempt.stage, attempt.full
        at = full.find(0)
        while at >= 0:
            node = self.nodes[at]
            if node.full(stage):
                full[at] = 1
            elif (wanted := node.wanted(stage)) is not None:
                verdict = self.topology.on_host(attempt.rules, node.host)
                if verdict is Verdict.NEVER:
                    full[at] = 1
                narrowed = self.topology.narrowed(attempt.rules, wanted) if verdict is Verdict.YES else None
                if narrowed is not None and node.add(stage, wanted, narrowed):
                    self.topology.record(attempt.peers, node.taints, node.requirements, node.host)
                    self.nominations.append(Nomination(pod, node.ref))
                    return True
            at = full.find(0, at + 1)
        return False

    def _on_claim(self, pod: Ref, attempt: Attempt) -> bool:
        open_: bytes | bytearray = attempt.still_open(len(self.claims))
        order = self.order.settle()
        if 1 not in open_:
            return False
        known: dict[int, tuple[Requirement, ...] | None] = {}
        if self.keys < self.topology.keys:  # a rule over one more label has come up
            self.keys = self.topology.keys
            self.areas = array("q", (self.topology.area(claim.load.requirements) for claim in self.claims))
        areas, start = self.areas, 0
        while start < len(order):
            rest = itertools.islice(order, start, None)
            is_open = map(open_.__getitem__, itertools.islice(order, start, None))
            tried = itertools.compress(enumerate(rest, start), is_open)
            start = len(order)
            for place, number in tried:
                load = self._joined(attempt, number, known)
                if load is not None and self._holds(number, load):
                    self.order.took(place)
                    self._add(pod, number, load, attempt)
                    return True
                if known and known.get(area := areas[number], ()) is None:  # none of the same area takes it
                    elsewhere = np.frombuffer(areas, np.int64) != area
                    open_ = (np.frombuffer(open_, np.bool_) & elsewhere).tobytes()
                    start = place + 1
                    break
        return False

    def _joined(
        self, attempt: Attempt, number: int, known: dict[int, tuple[Requirement, ...] | None]
    ) -> ClaimLoad | None:
        """The NodeClaim's load with such a pod. Where it will never take one, that is noted; so is, for this pod, what
        rules about other pods leave to NodeClaims of which the same is ``known``."""
        claim, stage = self.claims[number], attempt.stage
        wanted = claim.load.wanted(stage)
        if wanted is None:
            return None
        if attempt.rules.hosts:
            verdict = self.topology.on_host(attempt.rules, claim.host)
            if verdict is not Verdict.YES:
                if verdict is Verdict.NEVER:
                    attempt.rules.barred.append(number)
                    attempt.open[number] = 0
                return None
        load = claim.load.join(stage)
        if load is None:  # and never will: its types only get fewer
            attempt.open[number] = 0
        if load is None or not attempt.rules:
            return load
        area = self.areas[number]
        if area not in known:
            known[area] = self.topology.narrowed(attempt.rules, wanted)
        narrowed = known[area]
        return None if narrowed is None else claim.load.join(stage, narrowed)

    def _on_new_claim(self, pod: Ref, attempt: Attempt) -> bool:
        number = len(self.claims)
        host = f"{_HOST}-{number}"
        for template in self.templates:
            remaining = self.remaining[template.name]
            types = template.within(remaining, self.market.catalogue)
            empty = self._empty(template, types)
            wanted = empty.wanted(attempt.stage)
            if wanted is None or empty.join(attempt.stage) is None:
                continue
            if self.topology.on_host(attempt.rules, host) is not Verdict.YES:
                return False
            narrowed = self.topology.narrowed(attempt.rules, wanted)
            load = None if narrowed is None else empty.join(attempt.stage, narrowed)
            if load is None:
                continue
            if not self._holds(number, load):
                return False
            largest = load.largest()
            for resource in remaining:
                column = self.market.catalogue.column.get(resource)
                remaining[resource] -= 0 if column is None else int(largest[column])
            self.claims.append(NewNodeClaim(load, [], host))
            self.areas.append(0)
            self.order.append()
            self.topology.register(host)
            self._add(pod, number, load, attempt)
            return True
        return False

    def _holds(self, number: int, load: ClaimLoad) -> bool:
        """Whether the NodeClaim may have this load for all that capacity reservations say, and that it does."""
        if self.reserving is None:
            return True
        held = self.reserving.after(number, load)
        if held is not None:
            self.reserving.take(number, held)
        return held is not None

    def _add(self, pod: Ref, number: int, load: ClaimLoad, attempt: Attempt) -> None:
        claim = self.claims[number]
        claim.load = load
        self.areas[number] = self.topology.area(load.requirements)
        claim.pods.append(pod)
        self.topology.record(attempt.peers, load.template.taints, load.requirements, claim.host)
        if attempt.rules.hosts and self.topology.on_host(attempt.rules, claim.host) is Verdict.NEVER:
            attempt.rules.barred.append(number)

    def _empty(self, template: PoolTemplate, types: TypeMask) -> ClaimLoad:
        key = (template.name, types.tobytes())
        if key not in self.empty_loads:
            market = self.market
            if self.reserving is not None:
                market = self.reserving.market(market, template.reservations)
            self.empty_loads[key] = ClaimLoad.empty(market, template, types)
        return self.empty_loads[key]

    def _refusal(self, pod_class: AlikePods) -> Reason:
        """Why each NodePool refuses the pod, once everything that it would rather have has been given up."""
        last = pod_class.attempts[-1]
        if pod_class.held_back:
            return Reason(f"{pod_class.held_back}: it is planned again once they are launched")
        rules = str(last.rules)
        beaten = tuple(
            Alternative(
                f"NodePool {one.name}",
                explain.refusal(self.market, one, last.stage, self.remaining[one.name], rules),
            )
            for one in self.templates
        ) + tuple(Alternative(f"NodePool {one.name}", explain.static(one.spec.replicas or 0)) for one in self.static)
        return Reason(
            "it fits no node, and no NodePool can launch a node for it", bought.amounts_of(last.stage.amounts), beaten
        )


def _bought(packing: Packing, settings: PlanSettings) -> Plan:
    """Each planned NodeClaim as its cheapest offering. Pods of one that cannot be bought wait."""
    launches: list[Launch] = []
    claims: list[PlannedClaim] = []
    waits = list(packing.waits)
    chosen: dict[object, LaunchChoice | str] = {}
    market = packing.market
    for number, claim in enumerate(packing.claims):
        load, held = claim.load, frozenset[str]()
        if packing.reserving is not None:
            load, held = packing.reserving.settled(number, load)
        same: object = id(load)  # minValues apart, a choice follows from the types and what of them is offered
        if not load.requirements.has_min_values():
            same = (load.types.tobytes(), market.offers.rows(load.requirements), load.template.reservations, held)
        if same not in chosen:
            blocks = packing.reserving.blocks(held) if packing.reserving is not None else frozenset()
            offers, strict = load.market.offers, market.strict_min_values
            chosen[same] = choose(offers, load.requirements, load.types, strict=strict, blocks=blocks)
        choice = chosen[same]
        if isinstance(choice, str):
            reason = Reason(f"NodePool {load.template.name} cannot launch a node: {choice}")
            waits.extend(Wait(pod, reason, "provisioner") for pod in claim.pods)
            continue
        name = f"{load.template.name}-{settings.first_claim + len(claims):05d}"
        reservation = None
        if held and packing.reserving is not None:
            reservation = packing.reserving.chosen(held, choice.offering.instance_type, choice.offering.zone)
        claims.append(bought.planned(Ref("NodeClaim", name), load, claim.pods, choice, reservation))
        launches.append(bought.launch(claims[-1], load, choice))
    waits.sort(key=lambda wait: wait.pod)
    return Plan(tuple(launches), tuple(claims), packing.nominations, tuple(waits), packing.unplanned)


_HOST = "planned"
"""How the name begins that stands for the one of a planned node. No rule can name it."""


def _queue_key(pod: PendingPod) -> tuple[int, int, int, str, Ref]:
    requests = pod.shape.requests
    created = pod.creation_ns // NS_PER_S
    return (-requests.get("cpu", 0), -requests.get("memory", 0), created, pod.ref.uid, pod.ref)


def _unplanned(pods: Iterable[PendingPod]) -> dict[str, int]:
    found = Counter(name for pod in pods for name in pod.shape.unplanned)
    return dict(sorted(found.items()))
