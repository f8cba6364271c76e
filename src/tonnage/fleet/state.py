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
from typing import Literal, Self, Unpack

from tonnage.fleet import holding, offers
from tonnage.fleet.cards import FREE_DEVICE, NO_DEVICE, SHARED_DEVICE, Chosen
from tonnage.fleet.classes import ClassTable
from tonnage.fleet.columns import Journal
from tonnage.fleet.devices import Cut
from tonnage.fleet.holding import Place
from tonnage.fleet.offers import Amounts
from tonnage.fleet.rows import HOSTNAME, Conflict, NodeFacts, NodeRow, NodeSpec, PodRow, PodSpec
from tonnage.fleet.tables import BASE_RESOURCES, CPU, MEMORY, PODS, Requests, Tables
from tonnage.fleet.undo import UndoLog
from tonnage.fleet.volumes import VolumeNeed
from tonnage.objects import core

__all__ = [
    "BASE_RESOURCES",
    "CPU",
    "FREE_DEVICE",
    "HOSTNAME",
    "MEMORY",
    "NO_DEVICE",
    "PODS",
    "SHARED_DEVICE",
    "Conflict",
    "Fleet",
    "NodeRow",
    "NodeSpec",
    "PodRow",
    "PodSpec",
]


class Fleet(Tables):
    """Nodes, devices and pods, and every change of them. The columns are those of :class:`Tables`."""

    def __init__(self) -> None:
        super().__init__()
        self._free_node_rows: list[int] = []
        self._free_pod_rows: list[int] = []
        self._undo = UndoLog()
        self._changes = 0
        """Of the nodes, so far."""

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

    # ---- nodes ----

    def add_node(self, spec: NodeSpec, *, schedulable: bool = True) -> int:
        """Add a node and return its row. Raises Conflict when a node of that name is there."""
        if spec.name in self.node_by_name:
            raise Conflict(f"node {spec.name} exists")
        row = self._free_node_rows.pop() if self._free_node_rows else len(self.nodes)
        if row == len(self.nodes):
            self.nodes.append(None)
            self.reserve_nodes(row + 1)
        self._put_node(row, NodeRow(spec, spec.labelled(), spec.taints, set(), spec.created_ns), schedulable)
        offers.put_allocatable(self, row, offers.amounts(self, spec.allocatable))
        self._undo.note("remove_node", row)
        self._topology_changed()
        return row

    def remove_node(self, row: int) -> None:
        """Remove an empty node. Raises Conflict while pods are bound to it."""
        node = self.node(row)
        if node.pods:
            raise Conflict(f"node {node.spec.name} still holds {len(node.pods)} pods")
        self._undo.note("_restore_node", row, node, bool(self.schedulable[row]), self.allocatable_of(row))
        offers.put_allocatable(self, row, offers.amounts(self, {}))
        self.nodes[row] = None
        del self.node_by_name[node.spec.name]
        self.alive[row] = self.schedulable[row] = False
        self._free_node_rows.append(row)
        self._topology_changed()

    def _restore_node(self, row: int, node: NodeRow, schedulable: bool, allocatable: Mapping[str, int]) -> None:
        self._free_node_rows.pop()  # undone in reverse order, so this row is the last one there
        self._put_node(row, node, schedulable)
        offers.put_allocatable(self, row, offers.amounts(self, allocatable))
        self._topology_changed()

    def _put_node(self, row: int, node: NodeRow, schedulable: bool) -> None:
        self.nodes[row] = node
        self.node_by_name[node.spec.name] = row
        self.alive[row] = True
        self.schedulable[row] = schedulable
        shared = {key: value for key, value in node.labels.items() if key != HOSTNAME}
        self.label_set[row] = self.label_sets.intern(tuple(sorted(shared.items())), shared)
        self.taint_set[row] = self.taint_sets.intern(node.taints, node.taints)

    def set_labels(self, row: int, labels: Mapping[str, str]) -> None:
        """Replace the node's labels. Where they say that its devices are repartitioned, its pods keep what there is."""
        node = self.node(row)
        before = row, node.labels, node.spec, self.allocatable[row].copy(), holding.held(self, row)
        self._undo.note("_restore_outfit", *before)
        offers.put_labels(self, row, labels)
        offers.put_allocatable(self, row, self.allocatable[row].copy())
        self._topology_changed()

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
        amounts = offers.amounts(self, allocatable)
        if not observed:
            offers.check_kept(self, row, amounts)
            node = self.node(row)
            before = self.allocatable[row].copy(), holding.held(self, row)
            self._undo.note("_restore_outfit", row, node.labels, node.spec, *before)
        offers.put_allocatable(self, row, amounts)
        self._topology_changed()

    def set_cuts(self, row: int, cuts: Sequence[Cut]) -> None:
        """Partition the devices that the node has now; what they offer then replaces in its allocatable what they
        offered. Those that are missing are cut as before when they are back.

        Raises Conflict when a pod holds a device or an instance that would be gone, and ValueError when there is not
        one cut for each device."""
        node, held = self.node(row), holding.held(self, row)
        labels, spec, before = node.labels, node.spec, self.allocatable[row].copy()
        after, allocatable = offers.recut(self, row, tuple(cuts), held)
        self._undo.note("_restore_outfit", row, labels, spec, before, held)
        self._restore_outfit(row, labels, after, offers.amounts(self, allocatable), held)

    def _restore_outfit(
        self, row: int, labels: Mapping[str, str], spec: NodeSpec, amounts: Amounts, held: Mapping[int, Chosen]
    ) -> None:
        self.node(row).spec = spec
        offers.put_labels(self, row, labels)
        offers.put_allocatable(self, row, amounts, held)
        self._topology_changed()

    def set_schedulable(self, row: int, value: bool) -> None:
        """Ready and not cordoned, or not."""
        if bool(self.schedulable[row]) == value:
            return
        self.schedulable[row] = value
        self._undo.note("set_schedulable", row, not value)
        self._topology_changed()

    def set_taints(self, row: int, taints: tuple[core.Taint, ...]) -> None:
        """Replace the node's taints."""
        node = self.node(row)
        self._undo.note("set_taints", row, node.taints)
        node.taints = taints
        self.taint_set[row] = self.taint_sets.intern(taints, taints)
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

    def describe(self, row: int, **changes: str | tuple[Cut, ...]) -> None:
        """Replace parts of the node's spec that are known later than the node: ``node_pool``, ``provider_id``,
        ``device_resource``; ``cuts``, which count from the next change of its allocatable on."""
        node = self.node(row)
        self._undo.note("_described", row, node.spec)
        node.spec = replace(node.spec, **changes)  # type: ignore[arg-type]

    def _described(self, row: int, spec: NodeSpec) -> None:
        self.node(row).spec = spec

    # ---- pods ----

    def add_pod(self, spec: PodSpec) -> int:
        """Add a pending pod and return its row. Raises Conflict when a pod of that name is there."""
        key = (spec.namespace, spec.name)
        if key in self.pod_by_key:
            raise Conflict(f"pod {spec.namespace}/{spec.name} exists")
        row = self._free_pod_rows.pop() if self._free_pod_rows else len(self.pods)
        if row == len(self.pods):
            self.pods.append(None)
        self._put_pod(row, PodRow(spec, self._class_of(spec)))
        self._undo.note("remove_pod", row)
        return row

    def _class_of(self, spec: PodSpec) -> int:
        return self.classes.intern(spec.namespace, spec.labels, spec.spec, spec.annotations, spec.volumes)

    def set_leaving(self, row: int, value: bool = True) -> None:
        """The pod is being deleted; it holds what it has until it is removed."""
        pod = self.pod(row)
        if pod.spec.leaving == value:
            return
        if pod.node >= 0:
            _add(self.leaving.setdefault(pod.class_id, {}), pod.node, 1 if value else -1)
        pod.spec = replace(pod.spec, leaving=value)
        self.revision += 1
        self._undo.note("set_leaving", row, not value)

    def set_volumes(self, row: int, volumes: VolumeNeed) -> None:
        """The claims of a pending pod have changed. Not inside a what-if. Raises Conflict when it is bound."""
        pod = self.pod(row)
        if pod.spec.volumes == volumes:
            return
        if pod.node >= 0:
            raise Conflict(f"pod {pod.key} is bound already")
        if self._undo.records:
            raise RuntimeError("claims do not change inside a what-if")
        pod.spec = replace(pod.spec, volumes=volumes)
        pod.class_id = self._class_of(pod.spec)
        self.revision += 1

    def remove_pod(self, row: int) -> None:
        """Remove a pod; unbinds it first."""
        pod = self.pod(row)
        if pod.node >= 0:
            self.unbind(row)
        self.pods[row] = None
        del self.pod_by_key[pod.spec.namespace, pod.spec.name]
        del self.pending[row]
        if pod.spec.gang:
            members = self.gang_pods[pod.spec.gang]
            del members[row]
            if not members:
                del self.gang_pods[pod.spec.gang]
        self._free_pod_rows.append(row)
        self._undo.note("_restore_pod", row, pod)
        self.revision += 1

    def _restore_pod(self, row: int, pod: PodRow) -> None:
        self._free_pod_rows.pop()  # undone in reverse order, so this row is the last one there
        self._put_pod(row, pod)

    def _put_pod(self, row: int, pod: PodRow) -> None:
        self.pods[row] = pod
        self.pod_by_key[pod.spec.namespace, pod.spec.name] = row
        self.pending[row] = None
        if pod.spec.gang:
            self.gang_pods.setdefault(pod.spec.gang, {})[row] = None
        self.revision += 1

    def bind(
        self,
        pod_row: int,
        node_row: int,
        devices: Sequence[int] | None = None,
        *,
        observed: bool = False,
        places: Sequence[Place] = (),
    ) -> tuple[int, ...]:
        """Bind a pending pod; returns the devices that it is on: those given, else the lowest free ones, and for parts
        of devices the tightest that have room. ``places``: where what was observed stands, if that is known.

        Raises Conflict when the pod is bound, the node is gone, a resource is short or a device is not free. What was
        ``observed`` is so, whether it fits or not: free amounts turn negative, and devices that are missing are not
        held."""
        pod, node = self.pod(pod_row), self.node(node_row)
        if pod.node >= 0:
            raise Conflict(f"pod {pod.key} is bound already")
        pod_class = self.classes.rows[pod.class_id]
        requests = self.requests(pod_class.shape)
        if not observed:
            free = self.free[node_row].tolist()
            for column, amount in requests:
                if free[column] < amount:
                    name = self.resources[column]
                    raise Conflict(f"node {node.spec.name} has {free[column]} {name} free, the pod requests {amount}")
        if places:
            chosen = holding.stand(self, pod_class, node_row, places)
        else:
            chosen = holding.choose(self, pod_class, node_row, devices, observed=observed)
        self._put_on(pod_row, pod, node_row, node, requests, chosen)
        return chosen[0]

    def claim(self, pod_row: int, node_row: int) -> None:
        """Bind a pending pod to the node where room is made for it, whether or not it is free yet: as :meth:`bind` what
        is ``observed``, and where devices are missing, nobody gets more of the shared ones meanwhile. Raises Conflict
        when the pod is bound or the node is gone."""
        pod = self.pod(pod_row)
        self.node(node_row)
        if pod.node >= 0:
            raise Conflict(f"pod {pod.key} is bound already")
        self._attach(pod_row, node_row, holding.claim(self, self.classes.rows[pod.class_id], node_row))

    def _attach(self, pod_row: int, node_row: int, chosen: Chosen) -> None:
        pod = self.pod(pod_row)
        requests = self.requests(self.classes.rows[pod.class_id].shape)
        self._put_on(pod_row, pod, node_row, self.node(node_row), requests, chosen)

    def _put_on(
        self, pod_row: int, pod: PodRow, node_row: int, node: NodeRow, requests: Requests, chosen: Chosen
    ) -> None:
        """Let the pod stand on the node, on devices that are free."""
        free = self.free[node_row]
        for column, amount in requests:
            free[column] -= amount
        if chosen[0]:
            holding.take(self, node_row, chosen, pod_row)
        pod.devices, pod.pieces = chosen
        pod.node = node_row
        node.pods.add(pod_row)
        del self.pending[pod_row]
        self._count(pod, node_row, 1)
        self._undo.note("unbind", pod_row)

    def unbind(self, pod_row: int) -> None:
        """Take a bound pod from its node; it is pending again."""
        pod = self.pod(pod_row)
        if pod.node < 0:
            raise Conflict(f"pod {pod.key} is not bound")
        node_row, chosen = pod.node, (pod.devices, pod.pieces)
        requests = self.requests(self.classes.rows[pod.class_id].shape)
        free = self.free[node_row]
        for column, amount in requests:
            free[column] += amount
        if pod.devices:
            holding.give_back(self, node_row, chosen)
        self.node(node_row).pods.discard(pod_row)
        pod.node, pod.devices, pod.pieces = -1, (), ()
        self.pending[pod_row] = None
        self._count(pod, node_row, -1)
        self._undo.note("_attach", pod_row, node_row, chosen)

    def _count(self, pod: PodRow, node_row: int, sign: Literal[1, -1]) -> None:
        """One bound pod more (+1) or less (-1)."""
        on_nodes = self.bound.get(pod.class_id)
        if on_nodes is None:
            on_nodes = self.bound[pod.class_id] = {}
        count = on_nodes.get(node_row, 0) + sign
        if count:
            on_nodes[node_row] = count
        else:
            del on_nodes[node_row]
        if pod.spec.leaving:
            _add(self.leaving.setdefault(pod.class_id, {}), node_row, sign)
        _add(self.priorities, pod.spec.priority, sign)
        self.journal.append((sign, pod.class_id, node_row))
        self.revision += 1

    def forget_classes(self) -> None:
        """Drop the pod classes that no pod has any more; the others get new numbers. Not inside a what-if.

        Tables that others derive from classes are void: they see that ``classes`` is another object."""
        if self._undo.records:
            raise RuntimeError("classes cannot be renumbered inside a what-if")
        self.classes = ClassTable()
        self._requests = {}
        self.bound, self.leaving = {}, {}
        self.journal = Journal()
        for pod in filter(None, self.pods):
            pod.class_id = self._class_of(pod.spec)
            if pod.node >= 0:
                on_nodes = self.bound.setdefault(pod.class_id, {})
                on_nodes[pod.node] = on_nodes.get(pod.node, 0) + 1
                if pod.spec.leaving:
                    _add(self.leaving.setdefault(pod.class_id, {}), pod.node, 1)
        self._topology_changed()


def _add(counts: dict[int, int], key: int, more: int) -> None:
    """Count this many more; what is counted zero times is left out."""
    count = counts.get(key, 0) + more
    if count:
        counts[key] = count
    else:
        del counts[key]
