"""The columns of the fleet and what is read of them. Who changes them is :class:`tonnage.fleet.state.Fleet`."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from tonnage.fleet import asks
from tonnage.fleet.cards import Cards
from tonnage.fleet.classes import ClassTable, PodClass
from tonnage.fleet.columns import Interned, Journal, Latest, grow
from tonnage.fleet.labels import LabelColumns
from tonnage.fleet.namespaces import Namespaces
from tonnage.fleet.rows import Conflict, NodeRow, PodRow
from tonnage.objects import core

CPU, MEMORY, PODS = 0, 1, 2
MOST_RESOURCES, OTHERS = 512, "other resources"
"""This many kinds have a column each, beside those that are known to be devices; a cluster has a few dozen."""
BASE_RESOURCES = ("cpu", "memory", "pods")

Labels = tuple[tuple[str, str], ...]
Taints = tuple[core.Taint, ...]
Requests = tuple[tuple[int, int], ...]


class Tables:
    """Nodes, devices and pods. ``topology_revision``: the number of the state that the nodes are in, whatever pods are
    bound: what is changed gets a number that no state had before, and a what-if that ends brings the old one back.

    Arrays have one row a node: ``alive``, ``schedulable`` (Ready and not cordoned), ``free`` and ``allocatable``
    (one column for each of ``resources``), ``devices`` (the pod row that holds each device whole, FREE_DEVICE,
    SHARED_DEVICE or NO_DEVICE), and the numbers of the node's ``label_set`` (all labels but the hostname) and
    ``taint_set``. ``cards`` has what is free of each device.

    ``free`` of a resource that devices give says how much more of it alone can be taken: of whole devices, those that
    nothing is on; of replicas and of MIG instances that were made, those without a pod; of MIG instances that are made
    on demand, the most that would still find room.
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
        self.leaving: dict[int, dict[int, int]] = {}
        """The same of those of them that are being deleted."""
        self.gang_pods: dict[str, dict[int, None]] = {}
        """Gang → rows of its pods, bound and pending."""
        self.priorities: Counter[int] = Counter()
        """Priority → number of bound pods that have it."""
        self.attach_limits: dict[str, dict[str, int]] = {}
        """Node → CSI driver → how many volumes of it the node can attach, where that is known."""
        self.namespaces = Namespaces()
        self.revision = 0
        self.topology_revision = 0
        self.journal = Journal()
        self.alive: NDArray[np.bool_] = np.zeros(16, np.bool_)
        self.schedulable: NDArray[np.bool_] = np.zeros(16, np.bool_)
        self.free: NDArray[np.int64] = np.zeros((16, 4), np.int64)
        self.allocatable: NDArray[np.int64] = np.zeros((16, 4), np.int64)
        self.cards = Cards(16, 8)
        self.label_set: NDArray[np.int32] = np.zeros(16, np.int32)
        self.taint_set: NDArray[np.int32] = np.zeros(16, np.int32)
        self.label_sets: Interned[Labels, dict[str, str]] = Interned()
        self.label_columns = LabelColumns(self.label_sets.rows)
        self.taint_sets: Interned[Taints, Taints] = Interned()
        self._resource_ids = {name: i for i, name in enumerate(self.resources)}
        self._requests: dict[int, Requests] = {}
        self._rows_by_name = Latest(lambda: [row for _, row in sorted(self.node_by_name.items())])

    @property
    def devices(self) -> NDArray[np.int32]:
        """The holder of each device, by node row."""
        return self.cards.holder

    def resource(self, name: str) -> int:
        """The column of a resource, made when it is first seen. Of resources of very many kinds those that are seen
        last have one column together, of which no node has anything."""
        column = self._resource_ids.get(name)
        if column is None and len(self.resources) > MOST_RESOURCES and name != OTHERS and not asks.is_known(name):
            return self.resource(OTHERS)
        if column is None:
            column = self._resource_ids[name] = len(self.resources)
            self.resources.append(name)
            if column >= self.free.shape[1]:
                shape = (len(self.free), 2 * self.free.shape[1])
                self.free, self.allocatable = grow(self.free, shape, 0), grow(self.allocatable, shape, 0)
        return column

    def requests(self, shape_id: int) -> Requests:
        """(column, amount) of each resource that pods of this shape request, by column; zero requests are left out."""
        known = self._requests.get(shape_id)
        if known is None:
            written = self.classes.shapes[shape_id].requests
            known = tuple(sorted((self.resource(name), amount) for name, amount in written.items() if amount))
            self._requests[shape_id] = known
        return known

    def node(self, row: int) -> NodeRow:
        """The node in this row. Raises Conflict when there is none."""
        try:
            node = self.nodes[row]
        except IndexError:
            node = None
        if node is None or row < 0:
            raise Conflict(f"no node in row {row}")
        return node

    def node_rows(self) -> list[int]:
        """Rows of all nodes, by name."""
        return list(self._rows_by_name.at(self.topology_revision))

    def allocatable_of(self, row: int) -> dict[str, int]:
        """What the node can hold, by resource name."""
        return {
            name: int(amount) for name, amount in zip(self.resources, self.allocatable[row], strict=False) if amount
        }

    def workload_pods(self, row: int) -> int:
        """How many pods of the node would have to move if it went: all but those that belong to it."""
        return sum(not self.pod(pod).spec.daemon for pod in self.node(row).pods)

    def pod(self, row: int) -> PodRow:
        """The pod in this row. Raises Conflict when there is none."""
        try:
            pod = self.pods[row]
        except IndexError:
            pod = None
        if pod is None or row < 0:
            raise Conflict(f"no pod in row {row}")
        return pod

    def pod_class(self, row: int) -> PodClass:
        """The class of the pod in this row."""
        return self.classes.rows[self.pod(row).class_id]

    def holders(self, node_row: int, device: int) -> list[int]:
        """The rows of the pods that are on the device, whole or on a part of it."""
        return [row for row in sorted(self.node(node_row).pods) if device in self.pod(row).devices]

    def reserve_nodes(self, count: int) -> None:
        """Make room for this many rows of nodes."""
        if count <= len(self.alive):
            return
        size = 2 * len(self.alive)
        self.alive = grow(self.alive, (size,), 0)
        self.schedulable = grow(self.schedulable, (size,), 0)
        self.label_set = grow(self.label_set, (size,), 0)
        self.taint_set = grow(self.taint_set, (size,), 0)
        self.free = grow(self.free, (size, self.free.shape[1]), 0)
        self.allocatable = grow(self.allocatable, (size, self.allocatable.shape[1]), 0)
        self.cards.reserve(size, 0)
