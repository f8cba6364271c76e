"""The fleet: nodes, their devices and the pods, as columns.

Rows have stable numbers; the row of what is gone is used again. Every change goes through a method that knows its own
inverse, so a what-if is an undo log over the cells touched and never a copy::

    with fleet.what_if():
        fleet.bind(pod, node)      # gone again when the block ends

Derived state (free resources, devices held, pods per node and per class) is kept where it changes;
:mod:`tonnage.fleet.invariants` rebuilds it from scratch and compares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tonnage.fleet.classes import ClassTable, PodClass
from tonnage.fleet.columns import Interned, Journal, grow
from tonnage.fleet.rows import Conflict, NodeRow, NodeSpec, PodRow, PodSpec
from tonnage.objects import core

__all__ = ["FREE_DEVICE", "HOSTNAME", "NO_DEVICE", "Conflict", "Fleet", "NodeRow", "NodeSpec", "PodRow", "PodSpec"]

CPU, MEMORY, PODS = 0, 1, 2
BASE_RESOURCES = ("cpu", "memory", "pods")
FREE_DEVICE, NO_DEVICE = -1, -2
HOSTNAME = "kubernetes.io/hostname"

Labels = tuple[tuple[str, str], ...]
Taints = tuple[core.Taint, ...]


class Fleet:
    """Nodes, devices and pods.

    Arrays have one row a node: ``alive``, ``schedulable`` (Ready and not cordoned), ``free`` and ``allocatable``
    (one column for each of ``resources``), ``devices`` (the pod row that holds each device, FREE_DEVICE or NO_DEVICE),
    and the numbers of the node's ``label_set`` (all labels but the hostname) and ``taint_set``.
    """

    def __init__(self) -> None:
        self.resources: list[str] = list(BASE_RESOURCES)
        self.classes = ClassTable()
        self.nodes: list[NodeRow | None] = []
        self.pods: list[PodRow | None] = []
        self.node_by_name: dict[str, int] = {}
        self.pod_by_key: dict[tuple[str, str], int] = {}
        self.pending: dict[int, None] = {}
        self.bound: dict[int, dict[int, int]] = {}
        """Class id → node row → number of pods of that class bound there."""
        self.revision = 0
        self.topology_revision = 0
        self.journal = Journal()
        self.alive: NDArray[np.bool_] = np.zeros(16, np.bool_)
        self.schedulable: NDArray[np.bool_] = np.zeros(16, np.bool_)
        self.free: NDArray[np.int64] = np.zeros((16, 4), np.int64)
        self.allocatable: NDArray[np.int64] = np.zeros((16, 4), np.int64)
        self.devices: NDArray[np.int32] = np.full((16, 8), NO_DEVICE, np.int32)
        self.label_set: NDArray[np.int32] = np.zeros(16, np.int32)
        self.taint_set: NDArray[np.int32] = np.zeros(16, np.int32)
        self.label_sets: Interned[Labels, dict[str, str]] = Interned()
        self.taint_sets: Interned[Taints, Taints] = Interned()
        self._resource_ids = {name: i for i, name in enumerate(self.resources)}
        self._requests: dict[int, tuple[tuple[int, int], ...]] = {}
        self._free_node_rows: list[int] = []
        self._free_pod_rows: list[int] = []
        self._undo: list[tuple[Callable[..., Any], tuple[Any, ...]]] | None = None

    # ---- resources ----

    def resource(self, name: str) -> int:
        """The column of a resource, made when it is first seen."""
        column = self._resource_ids.get(name)
        if column is None:
            column = self._resource_ids[name] = len(self.resources)
            self.resources.append(name)
            if column >= self.free.shape[1]:
                shape = (len(self.free), 2 * self.free.shape[1])
                self.free, self.allocatable = grow(self.free, shape, 0), grow(self.allocatable, shape, 0)
        return column

    def requests(self, shape_id: int) -> tuple[tuple[int, int], ...]:
        """(column, amount) of each resource that pods of this shape request, by column; zero requests are left out."""
        known = self._requests.get(shape_id)
        if known is None:
            written = self.classes.shapes[shape_id].requests
            known = tuple(sorted((self.resource(name), amount) for name, amount in written.items() if amount))
            self._requests[shape_id] = known
        return known

    # ---- nodes ----

    def add_node(self, spec: NodeSpec, *, schedulable: bool = True) -> int:
        """Add a node and return its row. Raises Conflict when a node of that name is there."""
        if spec.name in self.node_by_name:
            raise Conflict(f"node {spec.name} exists")
        row = self._free_node_rows.pop() if self._free_node_rows else len(self.nodes)
        if row == len(self.nodes):
            self.nodes.append(None)
            self._reserve_nodes(row + 1)
        labels = {HOSTNAME: spec.name, **spec.labels}
        self._put_node(row, NodeRow(spec, labels, spec.taints, set(), spec.created_ns), schedulable)
        self._put_allocatable(row, self._amounts(spec.allocatable))
        self._log(self.remove_node, row)
        self._topology_changed()
        return row

    def remove_node(self, row: int) -> None:
        """Remove an empty node. Raises Conflict while pods are bound to it."""
        node = self.node(row)
        if node.pods:
            raise Conflict(f"node {node.spec.name} still holds {len(node.pods)} pods")
        self._log(self._restore_node, row, node, bool(self.schedulable[row]), self.allocatable_of(row))
        self._put_allocatable(row, self._amounts({}))
        self.nodes[row] = None
        del self.node_by_name[node.spec.name]
        self.alive[row] = self.schedulable[row] = False
        self._free_node_rows.append(row)
        self._topology_changed()

    def _restore_node(self, row: int, node: NodeRow, schedulable: bool, allocatable: Mapping[str, int]) -> None:
        self._free_node_rows.pop()  # undone in reverse order, so this row is the last one there
        self._put_node(row, node, schedulable)
        self._put_allocatable(row, self._amounts(allocatable))
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
        """Replace the node's labels."""
        node = self.node(row)
        self._log(self.set_labels, row, node.labels)
        node.labels = {HOSTNAME: node.spec.name, **labels}
        shared = {key: value for key, value in node.labels.items() if key != HOSTNAME}
        self.label_set[row] = self.label_sets.intern(tuple(sorted(shared.items())), shared)
        self._topology_changed()

    def set_allocatable(self, row: int, allocatable: Mapping[str, int], *, observed: bool = False) -> None:
        """Replace what the node can hold (a device plugin registered, say); what is bound stays bound.

        Raises Conflict when its pods hold more than that, or a device that would be gone; unless it was ``observed``:
        then it is so, and pods lose the devices that are gone."""
        node = self.node(row)
        amounts = self._amounts(allocatable)
        if observed:
            self._drop_devices(row, self._device_count(node, amounts))
            self._put_allocatable(row, amounts)
            self._topology_changed()
            return
        short = np.flatnonzero(amounts < self.allocatable[row] - self.free[row])
        if len(short):
            raise Conflict(f"node {node.spec.name}: its pods hold more {self.resources[short[0]]} than that")
        if (self.devices[row, self._device_count(node, amounts) :] >= 0).any():
            raise Conflict(f"node {node.spec.name}: a device that a pod holds cannot be taken away")
        self._log(self.set_allocatable, row, self.allocatable_of(row))
        self._put_allocatable(row, amounts)
        self._topology_changed()

    def allocatable_of(self, row: int) -> dict[str, int]:
        """What the node can hold, by resource name."""
        return {
            name: int(amount) for name, amount in zip(self.resources, self.allocatable[row], strict=False) if amount
        }

    def set_schedulable(self, row: int, value: bool) -> None:
        """Ready and not cordoned, or not."""
        if bool(self.schedulable[row]) == value:
            return
        self.schedulable[row] = value
        self._log(self.set_schedulable, row, not value)
        self._topology_changed()

    def set_taints(self, row: int, taints: tuple[core.Taint, ...]) -> None:
        """Replace the node's taints."""
        node = self.node(row)
        self._log(self.set_taints, row, node.taints)
        node.taints = taints
        self.taint_set[row] = self.taint_sets.intern(taints, taints)
        self._topology_changed()

    def _amounts(self, by_name: Mapping[str, int]) -> NDArray[np.int64]:
        columns = {self.resource(name): amount for name, amount in by_name.items()}
        amounts = np.zeros(self.free.shape[1], np.int64)
        for column, amount in columns.items():
            amounts[column] = amount
        return amounts

    def _put_allocatable(self, row: int, amounts: NDArray[np.int64]) -> None:
        self.free[row] += amounts - self.allocatable[row]
        self.allocatable[row] = amounts
        count = self._device_count(self.node(row), amounts)
        if count > self.devices.shape[1]:
            self.devices = grow(self.devices, (len(self.devices), count), NO_DEVICE)
        held = self.devices[row]
        held[:count][held[:count] == NO_DEVICE] = FREE_DEVICE
        held[count:] = NO_DEVICE

    def _device_count(self, node: NodeRow, amounts: NDArray[np.int64]) -> int:
        resource = node.spec.device_resource
        return int(amounts[self.resource(resource)]) if resource in self._resource_ids else 0

    def node(self, row: int) -> NodeRow:
        """The node in this row. Raises Conflict when there is none."""
        node = self.nodes[row] if 0 <= row < len(self.nodes) else None
        if node is None:
            raise Conflict(f"no node in row {row}")
        return node

    def node_rows(self) -> list[int]:
        """Rows of all nodes, by name."""
        return [row for _, row in sorted(self.node_by_name.items())]

    def workload_pods(self, row: int) -> int:
        """How many pods of the node would have to move if it went: all but those that belong to it."""
        return sum(not self.pod(pod).spec.daemon for pod in self.node(row).pods)

    # ---- pods ----

    def add_pod(self, spec: PodSpec) -> int:
        """Add a pending pod and return its row. Raises Conflict when a pod of that name is there."""
        key = (spec.namespace, spec.name)
        if key in self.pod_by_key:
            raise Conflict(f"pod {spec.namespace}/{spec.name} exists")
        row = self._free_pod_rows.pop() if self._free_pod_rows else len(self.pods)
        if row == len(self.pods):
            self.pods.append(None)
        self._put_pod(row, PodRow(spec, self.classes.intern(spec.namespace, spec.labels, spec.spec)))
        self._log(self.remove_pod, row)
        return row

    def remove_pod(self, row: int) -> None:
        """Remove a pod; unbinds it first."""
        pod = self.pod(row)
        if pod.node >= 0:
            self.unbind(row)
        self.pods[row] = None
        del self.pod_by_key[pod.spec.namespace, pod.spec.name]
        del self.pending[row]
        self._free_pod_rows.append(row)
        self._log(self._restore_pod, row, pod)
        self.revision += 1

    def _restore_pod(self, row: int, pod: PodRow) -> None:
        self._free_pod_rows.pop()  # undone in reverse order, so this row is the last one there
        self._put_pod(row, pod)

    def _put_pod(self, row: int, pod: PodRow) -> None:
        self.pods[row] = pod
        self.pod_by_key[pod.spec.namespace, pod.spec.name] = row
        self.pending[row] = None
        self.revision += 1

    def pod(self, row: int) -> PodRow:
        """The pod in this row. Raises Conflict when there is none."""
        pod = self.pods[row] if 0 <= row < len(self.pods) else None
        if pod is None:
            raise Conflict(f"no pod in row {row}")
        return pod

    def pod_class(self, row: int) -> PodClass:
        """The class of the pod in this row."""
        return self.classes.rows[self.pod(row).class_id]

    def bind(
        self, pod_row: int, node_row: int, devices: Sequence[int] | None = None, *, observed: bool = False
    ) -> tuple[int, ...]:
        """Bind a pending pod; returns the device indices it holds (the lowest free ones unless given).

        Raises Conflict when the pod is bound, the node is gone, a resource is short or a device is not free. What was
        ``observed`` is so, whether it fits or not: free amounts turn negative, and devices that are missing are not
        held."""
        pod, node = self.pod(pod_row), self.node(node_row)
        if pod.node >= 0:
            raise Conflict(f"pod {pod.key} is bound already")
        requests = self.requests(self.classes.rows[pod.class_id].shape)
        free = self.free[node_row]
        for column, amount in requests:
            if free[column] < amount and not observed:
                name = self.resources[column]
                raise Conflict(f"node {node.spec.name} has {free[column]} {name} free, the pod requests {amount}")
        pod.devices = self._take_devices(pod_row, node_row, node, devices, observed=observed)
        for column, amount in requests:
            free[column] -= amount
        pod.node = node_row
        node.pods.add(pod_row)
        del self.pending[pod_row]
        on_nodes = self.bound.setdefault(pod.class_id, {})
        on_nodes[node_row] = on_nodes.get(node_row, 0) + 1
        self.journal.append((1, pod.class_id, node_row))
        self._log(self.unbind, pod_row)
        self.revision += 1
        return pod.devices

    def unbind(self, pod_row: int) -> None:
        """Take a bound pod from its node; it is pending again."""
        pod = self.pod(pod_row)
        if pod.node < 0:
            raise Conflict(f"pod {pod.key} is not bound")
        node_row, devices = pod.node, pod.devices
        free = self.free[node_row]
        for column, amount in self.requests(self.classes.rows[pod.class_id].shape):
            free[column] += amount
        for device in devices:
            self.devices[node_row, device] = FREE_DEVICE
        self.node(node_row).pods.discard(pod_row)
        pod.node, pod.devices = -1, ()
        self.pending[pod_row] = None
        on_nodes = self.bound[pod.class_id]
        on_nodes[node_row] -= 1
        if not on_nodes[node_row]:
            del on_nodes[node_row]
        self.journal.append((-1, pod.class_id, node_row))
        self._log(self.bind, pod_row, node_row, devices)
        self.revision += 1

    def _drop_devices(self, row: int, count: int) -> None:
        """Pods lose those of the node's devices that are not among the first ``count``."""
        for pod_row in {int(holder) for holder in self.devices[row, count:] if holder >= 0}:
            pod = self.pod(pod_row)
            pod.devices = tuple(device for device in pod.devices if device < count)

    def _take_devices(
        self, pod_row: int, node_row: int, node: NodeRow, wanted: Sequence[int] | None, *, observed: bool
    ) -> tuple[int, ...]:
        resource = node.spec.device_resource
        count = self.pod_class(pod_row).requests.get(resource, 0) if resource else 0
        row = self.devices[node_row]
        if wanted is None:
            chosen = tuple(np.flatnonzero(row == FREE_DEVICE)[:count].tolist()) if count else ()
        else:
            chosen = tuple(wanted)
            if any(not 0 <= d < len(row) or row[d] != FREE_DEVICE for d in chosen):
                raise Conflict(f"node {node.spec.name}: a device of {chosen} is not free")
        if not len(chosen) == len(set(chosen)) == count and not observed:
            raise Conflict(f"node {node.spec.name}: {count} devices requested, not {chosen}")
        for device in chosen:
            row[device] = pod_row
        return chosen

    def forget_classes(self) -> None:
        """Drop the pod classes that no pod has any more; the others get new numbers. Not inside a what-if.

        Tables that others derive from classes are void: they see that ``classes`` is another object."""
        if self._undo is not None:
            raise RuntimeError("classes cannot be renumbered inside a what-if")
        self.classes = ClassTable()
        self._requests = {}
        self.bound = {}
        self.journal = Journal()
        for pod in filter(None, self.pods):
            pod.class_id = self.classes.intern(pod.spec.namespace, pod.spec.labels, pod.spec.spec)
            if pod.node >= 0:
                on_nodes = self.bound.setdefault(pod.class_id, {})
                on_nodes[pod.node] = on_nodes.get(pod.node, 0) + 1
        self._topology_changed()

    # ---- what if ----

    @contextmanager
    def what_if(self) -> Iterator[Fleet]:
        """Changes inside the block are undone when it ends, in reverse order, whatever happens. Nests."""
        outer = self._undo
        log: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        self._undo = log
        try:
            yield self
        finally:
            self._undo = None
            for inverse, arguments in reversed(log):
                inverse(*arguments)
            self._undo = outer

    def _log(self, inverse: Callable[..., Any], *arguments: Any) -> None:
        if self._undo is not None:
            self._undo.append((inverse, arguments))

    # ---- helpers ----

    def _topology_changed(self) -> None:
        self.revision += 1
        self.topology_revision += 1

    def _reserve_nodes(self, count: int) -> None:
        if count <= len(self.alive):
            return
        size = 2 * len(self.alive)
        self.alive = grow(self.alive, (size,), 0)
        self.schedulable = grow(self.schedulable, (size,), 0)
        self.label_set = grow(self.label_set, (size,), 0)
        self.taint_set = grow(self.taint_set, (size,), 0)
        self.free = grow(self.free, (size, self.free.shape[1]), 0)
        self.allocatable = grow(self.allocatable, (size, self.allocatable.shape[1]), 0)
        self.devices = grow(self.devices, (size, self.devices.shape[1]), NO_DEVICE)
