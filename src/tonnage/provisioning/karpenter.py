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
from typing import TypeAlias

import numpy as np

from tonnage.decisions import Alternative, Reason, Ref, Wait
from tonnage.objects import karpenter
from tonnage.provisioning import bought, explain
from tonnage.provisioning.catalogue import Catalogue, TypeMask
from tonnage.provisioning.claim_order import ClaimOrder
from tonnage.provisioning.compiled import have_soft_taints, left_of_limits, market_of, template_of
from tonnage.provisioning.domains import Pick
from tonnage.provisioning.load import ClaimLoad, Market
from tonnage.provisioning.packing import NewNodeClaim, Packing, buy
from tonnage.provisioning.plans import Nomination, Plan, PlanSettings
from tonnage.provisioning.pod_classes import AlikePods, Attempt, PodClasses
from tonnage.provisioning.pods import ExistingNode, PendingPod
from tonnage.provisioning.requirements import Requirement
from tonnage.provisioning.reserving import Reserving, with_reserved
from tonnage.provisioning.standing import StandingNode
from tonnage.provisioning.template import PoolTemplate
from tonnage.provisioning.topology import PodTopology, Verdict
from tonnage.units import NS_PER_S

QueuedPod: TypeAlias = tuple[PendingPod, AlikePods]
"""A pod, and those like it with what is known of where they fit."""


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
    return buy(pack(pods, nodes, node_pools, catalogue, settings), settings)


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
    made = packer(nodes, node_pools, catalogue, settings, pick)
    return made.rest(made.queue(pods))


def packer(
    nodes: Iterable[ExistingNode],
    node_pools: Iterable[karpenter.NodePool],
    catalogue: Catalogue,
    settings: PlanSettings,
    pick: Pick | None = None,
) -> Packer:
    """A planning round in which nothing is planned yet; the arguments are those of :func:`pack`."""
    catalogue = with_reserved(catalogue, settings.reservations)
    market = market_of(catalogue, settings)
    node_pools = list(node_pools)
    dynamic = [pool for pool in node_pools if not pool.is_static]
    templates = [template_of(pool, catalogue, settings) for pool in dynamic]
    templates.sort(key=lambda one: (one.weight, one.name), reverse=True)
    there = list(nodes)
    topology = PodTopology(catalogue, dynamic, there, settings, pick)
    static = [pool for pool in node_pools if pool.is_static]
    return Packer(market, templates, there, settings, topology, static)


class Packer:
    """One planning round: what has been planned so far, and what is left of limits and nodes."""

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
        self.placed: list[Ref] = []
        self.reserving = Reserving(settings.reservations) if settings.reservations else None
        self.remaining = left_of_limits(templates, ((node.node_pool, node.capacity) for node in usable))
        self.empty_loads: dict[tuple[str, bytes], ClaimLoad] = {}

    def queue(self, pods: Iterable[PendingPod]) -> list[QueuedPod]:
        """The pods in the order in which they are tried. To be called once, before any is placed."""
        ordered = sorted(pods, key=queue_key)
        relax_taints = have_soft_taints(self.templates)
        classes = PodClasses(self.market.catalogue, self.settings, self.topology, ordered, relax_taints=relax_taints)
        queued = [(pod, classes.of(pod)) for pod in ordered]
        classes.met()
        for node in self.nodes:
            self.topology.register(node.host)
        return queued

    def rest(self, queued: Sequence[QueuedPod]) -> Packing:
        """Place these pods of the queue after those that have a place already."""
        queue = deque(queued)
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
        classes = {id(pod_class): pod_class for _, pod_class in queued}.values()
        waits = [Wait(ref, one.refused, "provisioner") for one in classes if one.refused for ref in one.waiting]
        waits.sort(key=lambda wait: wait.pod)
        return Packing(
            self.market,
            tuple(self.claims),
            tuple(self.nominations),
            tuple(waits),
            dict(sorted(Counter(name for pod, _ in queued for name in pod.shape.unplanned).items())),
            tuple(self.placed),
            self.reserving,
        )

    def _schedule(self, pod: Ref, pod_class: AlikePods) -> bool:
        """Place the pod, giving up one thing after the other. Nothing changes for its like while no pod is placed."""
        if pod_class.seen == len(self.placed):
            return False
        pod_class.held_back = ""
        self.topology.pick.turn(pod)
        for attempt in pod_class.all_attempts(self.topology):
            attempt.full.extend(bytes(len(self.nodes) - len(attempt.full)))
            if self.reserving is not None:
                self.reserving.short = ""
            if self._on_node(pod, attempt) or self._on_claim(pod, attempt) or self._on_new_claim(pod, attempt):
                self.placed.append(pod)
                return True
            if self.reserving is not None and self.reserving.short:
                pod_class.held_back = self.reserving.short
                break  # nothing is given up as long as reserved capacity may come free
        pod_class.seen = len(self.placed)
        return False

    def _on_node(self, pod: Ref, attempt: Attempt) -> bool:
        full = attempt.full
        at = full.find(0)
        while at >= 0:
            verdict = self.nominate(pod, attempt, self.nodes[at])
            if verdict is Verdict.YES:
                return True
            if verdict is Verdict.NEVER:
                full[at] = 1
            at = full.find(0, at + 1)
        return False

    def nominate(self, pod: Ref, attempt: Attempt, node: StandingNode) -> Verdict:
        """Put the pod on a node that is there if it takes it; otherwise whether it will take no such pod any more."""
        stage = attempt.stage
        if node.full(stage):
            return Verdict.NEVER
        wanted = node.wanted(stage)
        if wanted is None:
            return Verdict.NOT_NOW
        verdict = self.topology.on_host(attempt.rules, node.host)
        narrowed = self.topology.narrowed(attempt.rules, wanted) if verdict is Verdict.YES else None
        if narrowed is None or not node.add(stage, wanted, narrowed):
            return Verdict.NOT_NOW if verdict is Verdict.YES else verdict
        self.topology.record(attempt.peers, node.taints, node.requirements, node.host)
        self.nominations.append(Nomination(pod, node.ref))
        return Verdict.YES

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
                    self.add(pod, number, load, attempt)
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
        number, host = len(self.claims), self.next_host
        for template in self.templates:
            remaining = self.remaining[template.name]
            types = template.within(remaining, self.market.catalogue)
            empty = self.empty(template, types)
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
            self.order.append()
            self.opened(load)
            self.add(pod, number, load, attempt)
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

    @property
    def next_host(self) -> str:
        """What stands for the name of the next node to be planned."""
        return f"{_HOST}-{len(self.claims)}"

    def opened(self, load: ClaimLoad) -> int:
        """A new NodeClaim, which gets its first pod next. Its number."""
        number = len(self.claims)
        self.claims.append(NewNodeClaim(load, [], self.next_host))
        self.areas.append(0)
        self.topology.register(self.claims[-1].host)
        return number

    def add(self, pod: Ref, number: int, load: ClaimLoad, attempt: Attempt) -> None:
        """The pod joins the NodeClaim, whose load is this one with it."""
        claim = self.claims[number]
        claim.load = load
        self.areas[number] = self.topology.area(load.requirements)
        claim.pods.append(pod)
        self.topology.record(attempt.peers, load.template.taints, load.requirements, claim.host)
        if attempt.rules.hosts and self.topology.on_host(attempt.rules, claim.host) is Verdict.NEVER:
            attempt.rules.barred.append(number)

    def empty(self, template: PoolTemplate, types: TypeMask) -> ClaimLoad:
        """A NodeClaim without pods, with these types to choose from."""
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


_HOST = "planned"
"""How the name begins that stands for the one of a planned node. No rule can name it."""


def queue_key(pod: PendingPod) -> tuple[int, int, int, str, Ref]:
    """By which pods are sorted: most CPU, then most memory, then age, then uid."""
    requests = pod.shape.requests
    created = pod.creation_ns // NS_PER_S
    return (-requests.get("cpu", 0), -requests.get("memory", 0), created, pod.ref.uid, pod.ref)
