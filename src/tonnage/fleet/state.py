"""The fleet: nodes, their devices and the pods, as columns.

Rows have stable numbers; the row of what is gone is used again. Every change goes through a method that knows its own
inverse, so a what-if is an undo log over the cells touched and never a copy::

    with fleet.what_if():
        fleet.bind(pod, node)      # gone again when the block ends

Derived state (free resources, devices held, pods per node and per class) is kept where it changes;
:mod:`tonnage.fleet.invariants` rebuilds it from scratch and compares.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Final, Self, Unpack

import numpy as np
from numpy.typing import NDArray

from tonnage.dra.pools import NodeView
from tonnage.facts.labels import HOSTNAME
from tonnage.fleet import offers
from tonnage.fleet.asks import VIRTUAL
from tonnage.fleet.cards import FREE_DEVICE, NO_DEVICE, SHARED_DEVICE, Chosen
from tonnage.fleet.claim_ledger import GivenUp
from tonnage.fleet.claim_needs import ClaimKey, ClaimNeed
from tonnage.fleet.classes import ClassTable, PodClass
from tonnage.fleet.columns import BindingJournal
from tonnage.fleet.device_claims import CannotAllocate, DeviceClaims
from tonnage.fleet.devices import Cut
from tonnage.fleet.holding import Holding, Place
from tonnage.fleet.namespaces import NamespaceLabels
from tonnage.fleet.node_columns import BASE_RESOURCES, CPU, MEMORY, PODS, Amounts, NodeColumns, Requests
from tonnage.fleet.pod_columns import PodColumns
from tonnage.fleet.rows import Conflict, FleetNode, FleetPod, NodeFacts, NodeRow, PodRow
from tonnage.fleet.undo import UndoLog
from tonnage.fleet.volumes import VolumeNeed
from tonnage.objects import core
from tonnage.objects.dra import AllocationResult, ResourceClaim

__all__ = ["BASE_RESOURCES", "CPU", "FREE_DEVICE", "HOSTNAME", "MEMORY", "NO_DEVICE", "PODS", "SHARED_DEVICE"]
__all__ += ["Conflict", "Fleet", "FleetNode", "FleetPod", "NodeRow", "PodRow"]


class Fleet:
    """Nodes, devices and pods, and every change of them.

    They stand in :class:`NodeColumns` and :class:`PodColumns`, where a pod stands is written by :class:`Holding`, and
    a change notes its inverse in the undo log. What of the columns is read has its own name here, and is never set.

    ``topology_revision``: the number of the state that the nodes are in, whatever pods are bound: what is changed gets
    a number that no state had before, and a what-if that ends brings the old one back. ``attach_limits``: node → CSI
    driver → how many volumes of it the node can attach, where that is known. ``device_claims``: ResourceClaims, and
    what they hold.
    """

    def __init__(self) -> None:
        self._nodes: Final = NodeColumns()
        self._pods: Final = PodColumns()
        self._holding: Final = Holding(self._nodes, self._pods)
        self._undo: Final = UndoLog()
        self._changes = 0
        """Of the nodes, so far."""
        self.revision = 0
        self.topology_revision = 0
        self.namespaces = NamespaceLabels()
        self.attach_limits: dict[str, dict[str, int]] = {}
        self.device_claims = DeviceClaims()
        self.nodes: Final = self._nodes.rows
        self.node_by_name: Final = self._nodes.by_name
        self.resources: Final = self._nodes.resources
        self.cards: Final = self._nodes.cards
        self.label_sets: Final = self._nodes.label_sets
        self.label_columns: Final = self._nodes.label_columns
        self.taint_sets: Final = self._nodes.taint_sets
        self.pods: Final = self._pods.rows
        self.node: Final = self._nodes.node
        """The node in a row. Raises Conflict when there is none."""
        self.pod: Final = self._pods.pod
        """The pod in a row. Raises Conflict when there is none."""
        self.pods_in: Final = self._pods.pods
        """The pods in these rows. Raises Conflict when there is none in one of them."""
        self.requests: Final = partial(self._pods.requests, column_of=self._nodes.resource)
        """(column, amount) of each resource that pods of a shape, by its id, request, by column; zero requests are left
        out."""
        self.pod_by_key: Final = self._pods.by_key
        self.pending: Final = self._pods.pending
        self.bound: Final = self._pods.bound
        self.leaving: Final = self._pods.leaving
        self.gang_pods: Final = self._pods.gangs
        self.priorities: Final = self._pods.priorities

    @property
    def device_claims(self) -> DeviceClaims:
        """ResourceClaims, what they hold, and what may be allocated."""
        return self._device_claims

    @device_claims.setter
    def device_claims(self, claims: DeviceClaims) -> None:
        self._device_claims = claims
        claims.on_served = self._serve
        self._serve()

    def _serve(self) -> None:
        """Other extended resources are served by claims."""
        if self._undo.records:
            raise RuntimeError("what claims serve does not change inside a what-if")
        self._nodes.serve(self._device_claims.served)
        self._topology_changed()

    # ---- what-ifs ----

    @contextmanager
    def what_if(self) -> Iterator[Self]:
        """Changes inside the block are undone when it ends, in reverse order, whatever happens. Nests."""
        before, size = self.topology_revision, len(self.alive)
        outer = self._undo.begin()
        try:
            yield self
        finally:
            self._undo.end(self, outer)
            if len(self.alive) == size:  # else whoever has a column of the old length has to see that
                self.topology_revision = before

    def _topology_changed(self) -> None:
        self.revision += 1
        self._changes += 1
        self.topology_revision = self._changes

    # ---- what is read ----

    @property
    def alive(self) -> NDArray[np.bool_]:
        """Whether there is a node, by row."""
        return self._nodes.alive

    @property
    def schedulable(self) -> NDArray[np.bool_]:
        """Whether it is Ready and not cordoned, by row."""
        return self._nodes.schedulable

    @property
    def free(self) -> NDArray[np.int64]:
        """What is free, by row and column of the resource."""
        return self._nodes.free

    @property
    def allocatable(self) -> NDArray[np.int64]:
        """What can be held, by row and column of the resource."""
        return self._nodes.allocatable

    @property
    def label_set(self) -> NDArray[np.int32]:
        """The number of the node's set of labels, by row."""
        return self._nodes.label_set

    @property
    def taint_set(self) -> NDArray[np.int32]:
        """The number of the node's set of taints, by row."""
        return self._nodes.taint_set

    @property
    def devices(self) -> NDArray[np.int32]:
        """The holder of each device, by node row."""
        return self.cards.holder

    @property
    def classes(self) -> ClassTable:
        """The classes of pods; another object after :meth:`forget_classes`."""
        return self._pods.classes

    @property
    def journal(self) -> BindingJournal:
        """Every change of a binding; another object after :meth:`forget_classes`."""
        return self._pods.journal

    def served(self, row: int) -> frozenset[str]:
        """The extended resources that claims serve on this node, which has none of them itself."""
        return self._nodes.served[row]

    @property
    def uncounted(self) -> NDArray[np.int64]:
        """How much more is free than is counted, by row and column: of what claims serve."""
        return self._nodes.uncounted

    @property
    def parts(self) -> tuple[str, ...]:
        """The resources that stand for parts of devices where a node does not count them itself; none while no pod has
        asked for any."""
        return self._nodes.parts

    def resource(self, name: str) -> int:
        """The column of a resource, made when it is first seen."""
        return self._nodes.resource(name)

    def node_rows(self) -> list[int]:
        """Rows of all nodes, by name."""
        return self._nodes.sorted_rows(self.topology_revision)

    def allocatable_of(self, row: int) -> dict[str, int]:
        """What the node can hold, by resource name."""
        return self._nodes.allocatable_of(row)

    def device_unit(self, row: int) -> str:
        """The resource that counts the node's whole devices or replicas; empty: none."""
        return self._nodes.unit(row)

    def workload_pods(self, row: int) -> int:
        """How many pods of the node would have to move if it went: all but those that belong to it."""
        return sum(not self.pod(pod).spec.daemon for pod in self.node(row).pods)

    def holders(self, node_row: int, device: int) -> list[int]:
        """The rows of the pods that are on the device, whole or on a part of it."""
        return [row for row in sorted(self.node(node_row).pods) if device in self.pod(row).devices]

    def pod_class(self, row: int) -> PodClass:
        """The class of the pod in this row."""
        return self._pods.classes.rows[self._pods.pod(row).class_id]

    # ---- nodes ----

    def add_node(self, spec: FleetNode, *, schedulable: bool = True) -> int:
        """Add a node and return its row. Raises Conflict when a node of that name is there."""
        if spec.name in self.node_by_name:
            raise Conflict(f"node {spec.name} exists")
        row = self._nodes.vacant()
        node = NodeRow(spec, spec.labelled(), spec.taints, set(), spec.created_ns)
        self._put_node(row, node, schedulable, spec.allocatable)
        self._undo.note("remove_node", row)
        return row

    def remove_node(self, row: int) -> None:
        """Remove an empty node. Raises Conflict while pods are bound to it."""
        node = self.node(row)
        if node.pods:
            raise Conflict(f"node {node.spec.name} still holds {len(node.pods)} pods")
        self._undo.note("_restore_node", row, node, bool(self.schedulable[row]), self.allocatable_of(row))
        self._put_allocatable(row, self._nodes.amounts({}))
        self._nodes.drop(row)

    def _restore_node(self, row: int, node: NodeRow, schedulable: bool, allocatable: Mapping[str, int]) -> None:
        self._nodes.vacant()  # undone in reverse order, so this row is the last one there
        self._put_node(row, node, schedulable, allocatable)

    def _put_node(self, row: int, node: NodeRow, schedulable: bool, allocatable: Mapping[str, int]) -> None:
        self._nodes.put(row, node, schedulable)
        self._put_allocatable(row, self._nodes.amounts(allocatable))

    def _put_allocatable(self, row: int, given: Amounts, held: Mapping[int, Chosen] | None = None) -> None:
        offers.put_allocatable(self._holding, row, given, held)
        self._topology_changed()

    def set_labels(self, row: int, labels: Mapping[str, str]) -> None:
        """Replace the node's labels. Where they say that its devices are repartitioned, its pods keep what there is."""
        self._note_outfit(row)
        self._nodes.put_labels(row, labels)
        self._put_allocatable(row, self.allocatable[row].copy())

    def _note_outfit(self, row: int) -> None:
        """What is said of the node and of its devices is about to change."""
        node = self.node(row)
        before = self.allocatable[row].copy(), self._holding.held(row)
        self._undo.note("_restore_outfit", row, node.labels, node.spec, *before)

    def set_features(self, row: int, features: tuple[str, ...]) -> None:
        """Replace what the node's kubelet declares."""
        node = self.node(row)
        self._undo.note("set_features", row, node.spec.features)
        node.spec = replace(node.spec, features=features)
        self._topology_changed()

    def set_allocatable(self, row: int, allocatable: Mapping[str, int], *, observed: bool = False) -> None:
        """Replace what the node can hold (a device plugin registered, say); what is bound stays bound.

        Raises Conflict when its pods hold more than that, or a device that would be gone; unless it was ``observed``:
        then it is so, and pods lose the devices that are gone."""
        amounts = self._nodes.amounts(allocatable)
        if not observed:
            offers.check_kept(self._holding, row, amounts)
            self._note_outfit(row)
        self._put_allocatable(row, amounts)

    def set_cuts(self, row: int, cuts: Sequence[Cut]) -> None:
        """Partition the devices that the node has now; what they offer then replaces in its allocatable what they
        offered. Those that are missing are cut as before when they are back.

        Raises Conflict when a pod holds a device or an instance that would be gone, and ValueError when there is not
        one cut for each device."""
        held = self._holding.held(row)
        after, allocatable = offers.recut(self._holding, row, tuple(cuts), held)
        self._note_outfit(row)
        self._restore_outfit(row, self.node(row).labels, after, self._nodes.amounts(allocatable), held)

    def _restore_outfit(
        self, row: int, labels: Mapping[str, str], spec: FleetNode, amounts: Amounts, held: Mapping[int, Chosen]
    ) -> None:
        self.node(row).spec = spec
        self._nodes.put_labels(row, labels)
        self._put_allocatable(row, amounts, held)

    def set_schedulable(self, row: int, value: bool) -> None:
        """Ready and not cordoned, or not."""
        if bool(self.schedulable[row]) == value:
            return
        self.schedulable[row] = value
        self._undo.note("set_schedulable", row, not value)
        self._topology_changed()

    def set_taints(self, row: int, taints: tuple[core.Taint, ...]) -> None:
        """Replace the node's taints."""
        self._undo.note("set_taints", row, self.node(row).taints)
        self._nodes.put_taints(row, taints)
        self._topology_changed()

    def note(self, row: int, **facts: Unpack[NodeFacts]) -> None:
        """Write down what the node is going through; placement sees none of it."""
        node = self.node(row)
        if self._undo.records:
            self._undo.note("_noted", row, {name: getattr(node, name) for name in facts})
        self._noted(row, facts)

    def _noted(self, row: int, facts: NodeFacts) -> None:
        node = self.node(row)
        if facts.get("bare", node.bare) != node.bare:
            self._topology_changed()
        for name, value in facts.items():
            setattr(node, name, value)

    def describe(self, row: int, **changes: str | bool | tuple[Cut, ...]) -> None:
        """Replace parts of the node's spec that are known later than the node: ``node_pool``, ``provider_id``,
        ``device_resource``; ``cuts`` and ``splits``, which count from the next change of its allocatable on."""
        node = self.node(row)
        self._undo.note("_described", row, node.spec)
        node.spec = replace(node.spec, **changes)  # type: ignore[arg-type]

    def _described(self, row: int, spec: FleetNode) -> None:
        self.node(row).spec = spec

    # ---- pods ----

    def add_pod(self, spec: FleetPod) -> int:
        """Add a pending pod and return its row. Raises Conflict when a pod of that name is there."""
        key = (spec.namespace, spec.name)
        if key in self.pod_by_key:
            raise Conflict(f"pod {spec.namespace}/{spec.name} exists")
        row = self._pods.vacant()
        pod = PodRow(spec, self._pods.class_id(spec))
        if self.classes.shapes[self._pods.class_of(pod).shape].numbers and not self._nodes.parts:
            self._count_parts(VIRTUAL)
            self._undo.note("_count_parts", ())
        self._pods.put(row, pod)
        self.revision += 1
        self._undo.note("remove_pod", row)
        return row

    def _count_parts(self, parts: tuple[str, ...]) -> None:
        self._nodes.count_parts(parts)
        self._topology_changed()

    def set_leaving(self, row: int, value: bool = True) -> None:
        """The pod is being deleted; it holds what it has until it is removed."""
        pod = self.pod(row)
        if pod.spec.leaving == value:
            return
        if pod.node >= 0:
            self._pods.count_leaving(pod, pod.node, 1 if value else -1)
        pod.spec = replace(pod.spec, leaving=value)
        self.revision += 1
        self._undo.note("set_leaving", row, not value)

    def set_volumes(self, row: int, volumes: VolumeNeed) -> None:
        """The claims of a pending pod have changed. Not inside a what-if. Raises Conflict when it is bound."""
        pod = self.pod(row)
        if pod.spec.volumes == volumes:
            return
        self._pending(row)
        if self._undo.records:
            raise RuntimeError("claims do not change inside a what-if")
        pod.spec = replace(pod.spec, volumes=volumes)
        pod.class_id = self._pods.class_id(pod.spec)
        self.revision += 1

    def set_claims(self, row: int, claims: ClaimNeed) -> None:
        """The ResourceClaims of a pod have changed, or more is known of them. A bound pod keeps what it has. Not inside
        a what-if."""
        pod = self.pod(row)
        if pod.spec.claims == claims:
            return
        if self._undo.records:
            raise RuntimeError("claims do not change inside a what-if")
        node, chosen, ledger = pod.node, (pod.devices, pod.pieces), self.device_claims.ledger
        if node >= 0:
            own = [key for key in ledger.used_by(row) if key in ledger.made]
            used = tuple(dict.fromkeys((*claims.used, *own)))
            ledger.leave(row, pod.spec.uid, reserved=False, staying=used)
            self._lift(row, pod)
        pod.spec = replace(pod.spec, claims=claims)
        pod.class_id = self._pods.class_id(pod.spec)
        if node >= 0:
            ledger.join(row, used)
            self._put_on(row, pod, node, self.requests(self._pods.class_of(pod).shape), chosen)
        self.revision += 1

    def remove_pod(self, row: int) -> None:
        """Remove a pod; unbinds it first."""
        pod = self.pod(row)
        if pod.node >= 0:
            self.unbind(row)
        self._pods.drop(row)
        self._undo.note("_restore_pod", row, pod)
        self.revision += 1

    def _restore_pod(self, row: int, pod: PodRow) -> None:
        self._pods.vacant()  # undone in reverse order, so this row is the last one there
        self._pods.put(row, pod)
        self.revision += 1

    def bind(
        self,
        pod_row: int,
        node_row: int,
        devices: Sequence[int] | None = None,
        *,
        observed: bool = False,
        places: Sequence[Place] = (),
        allocations: Mapping[ClaimKey, AllocationResult] | None = None,
    ) -> tuple[int, ...]:
        """Bind a pending pod; returns the devices that it is on: those given, else the lowest free ones, and for parts
        of devices the tightest that have room. ``places``: where what was observed stands, if that is known. Claims
        that have no devices are allocated, by ``allocations`` where given.

        Raises Conflict when the pod is bound, the node is gone, a resource is short, a device is not free or a claim
        cannot be had. What was ``observed`` is so, whether it fits or not: free amounts turn negative, devices that are
        missing are not held, and no claim is allocated."""
        pod, _ = self._pending(pod_row), self.node(node_row)
        pod_class = self._pods.classes.rows[pod.class_id]
        requests = self.requests(pod_class.shape)
        if not observed:
            self._nodes.check_free(node_row, requests)
        if places:
            chosen = self._holding.stand(pod_class, node_row, places)
        else:
            chosen = self._holding.choose(pod_class, node_row, devices, observed=observed)
        taken: tuple[ClaimKey, ...] = ()
        claims = pod.spec.claims
        if claims.asks or claims.used:
            taken = self._claim_devices(pod_row, node_row, allocations, observed=observed)
        self._put_on(pod_row, pod, node_row, requests, chosen, taken)
        return chosen[0]

    def _claim_devices(
        self, pod_row: int, node_row: int, given: Mapping[ClaimKey, AllocationResult] | None, *, observed: bool
    ) -> tuple[ClaimKey, ...]:
        need, claims = self.pod(pod_row).spec.claims, self.device_claims
        if observed:
            claims.ledger.join(pod_row, need.used)
            return ()
        made = self.extended_claim(pod_row, node_row)
        try:
            return claims.bind(pod_row, need.keys, self.node_view(node_row), given, made)
        except CannotAllocate as why:
            raise Conflict(f"node {self.node(node_row).spec.name}: {why}") from None

    def extended_claim(self, pod_row: int, node_row: int) -> ResourceClaim | None:
        """The claim that the pod needs on the node for its extended resources; None where the node has them."""
        spec = self.pod(pod_row).spec
        served = self.served(node_row)
        asks = self.device_claims.asks
        return asks.extended_claim(spec.namespace, spec.name, spec.uid, spec.claims.asks, served) if served else None

    def node_view(self, row: int) -> NodeView:
        """The node as selectors of devices see it."""
        node = self.node(row)
        return NodeView(node.spec.name, node.labels)

    def _pending(self, pod_row: int) -> PodRow:
        pod = self._pods.pod(pod_row)
        if pod.node >= 0:
            raise Conflict(f"pod {pod.key} is bound already")
        return pod

    def claim(self, pod_row: int, node_row: int) -> None:
        """Bind a pending pod to the node where room is made for it, whether or not it is free yet: as :meth:`bind` what
        is ``observed``, and where devices are missing, nobody gets more of the shared ones meanwhile. Raises Conflict
        when the pod is bound or the node is gone."""
        pod, _ = self._pending(pod_row), self.node(node_row)
        chosen, taken = self._holding.claim(self._pods.class_of(pod), node_row), tuple[ClaimKey, ...]()
        if pod.spec.claims.asks or pod.spec.claims.keys:
            try:
                taken = self._claim_devices(pod_row, node_row, None, observed=False)
            except Conflict:
                self.device_claims.ledger.join(pod_row, pod.spec.claims.keys)
        self._put_on(pod_row, pod, node_row, self.requests(self._pods.class_of(pod).shape), chosen, taken)

    def _attach(self, pod_row: int, node_row: int, chosen: Chosen, gave_up: GivenUp) -> None:
        """Undo :meth:`unbind`."""
        if gave_up.used:
            self.device_claims.ledger.come_back(pod_row, gave_up)
        pod = self.pod(pod_row)
        self._put_on(pod_row, pod, node_row, self.requests(self._pods.class_of(pod).shape), chosen)

    def _put_on(
        self,
        pod_row: int,
        pod: PodRow,
        node_row: int,
        requests: Requests,
        chosen: Chosen,
        taken: tuple[ClaimKey, ...] = (),
    ) -> None:
        self._holding.put(pod_row, pod, node_row, requests, chosen)
        self.revision += 1
        self._undo.note("_detach", pod_row, pod, requests, taken)

    def _detach(self, pod_row: int, pod: PodRow, requests: Requests, taken: tuple[ClaimKey, ...]) -> None:
        """Undo :meth:`bind`."""
        if self._device_claims.ledger.used_by(pod_row):
            self._device_claims.ledger.withdraw(pod_row, taken)
        self._holding.lift(pod_row, pod, requests)
        self.revision += 1

    def _lift(self, pod_row: int, pod: PodRow) -> None:
        self._holding.lift(pod_row, pod, self.requests(self._pods.class_of(pod).shape))
        self.revision += 1

    def unbind(self, pod_row: int) -> None:
        """Take a bound pod from its node; it is pending again. Of claims that it was the last to use, those lose their
        devices whose status does not have any; inside a what-if the others too."""
        pod = self.pod(pod_row)
        if pod.node < 0:
            raise Conflict(f"pod {pod.key} is not bound")
        node_row, chosen, gave_up = pod.node, (pod.devices, pod.pieces), GivenUp()
        if self.device_claims.used_by(pod_row):
            gave_up = self.device_claims.ledger.leave(pod_row, pod.spec.uid, reserved=self._undo.records)
        self._lift(pod_row, pod)
        self._undo.note("_attach", pod_row, node_row, chosen, gave_up)

    def forget_classes(self) -> None:
        """Drop the pod classes that no pod has any more; the others get new numbers. Not inside a what-if.

        Tables that others derive from classes are void: they see that ``classes`` is another object."""
        if self._undo.records:
            raise RuntimeError("classes cannot be renumbered inside a what-if")
        self._pods.forget_classes()
        self._topology_changed()


NodeSpec = FleetNode
"""Its former name, for callers from outside."""

PodSpec = FleetPod
"""Its former name, for callers from outside."""
