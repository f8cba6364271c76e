"""The nodes as columns: which there are, what each can hold, what is free of it, and what is said of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from tonnage.facts.labels import HOSTNAME
from tonnage.fleet import asks
from tonnage.fleet.cards import Cards
from tonnage.fleet.columns import Interned, Latest, grow
from tonnage.fleet.labels import LabelColumns
from tonnage.fleet.rows import Conflict, NodeRow
from tonnage.objects import core

CPU, MEMORY, PODS = 0, 1, 2
MOST_RESOURCES, OTHERS = 512, "other resources"
"""This many kinds have a column each, beside those that are known to be devices; a cluster has a few dozen."""
UNCOUNTED = 1 << 40
"""So much more is free of an extended resource where claims serve it, or parts of devices are meant: what there is of
it, devices say."""
BASE_RESOURCES = ("cpu", "memory", "pods")

Labels = tuple[tuple[str, str], ...]
Taints = tuple[core.Taint, ...]
Amounts = NDArray[np.int64]
"""One for each of the fleet's resources."""
Requests = tuple[tuple[int, int], ...]
"""(column, amount) of each resource that is requested."""


class NodeColumns:
    """Arrays have one row a node: ``alive``, ``schedulable`` (Ready and not cordoned), ``free`` and ``allocatable``
    (one column for each of ``resources``), ``devices`` (the pod row that holds each device whole, FREE_DEVICE,
    SHARED_DEVICE or NO_DEVICE), and the numbers of the node's ``label_set`` (all labels but the hostname) and
    ``taint_set``. ``cards`` has what is free of each device. An array is another one after it has grown.

    ``free`` of a resource that devices give says how much more of it alone can be taken: of whole devices, those that
    nothing is on; of replicas and of MIG instances that were made, those without a pod; of MIG instances that are made
    on demand, the most that would still find room.

    ``served``: by row, the extended resources of which the node has none, and that claims serve there. They are not
    counted: ``uncounted`` says how much more is free of them than that. Nor is what stands for parts of devices, where
    the node does not count that itself (``cards.numbers``).
    """

    def __init__(self) -> None:
        self.resources: list[str] = list(BASE_RESOURCES)
        self.rows: list[NodeRow | None] = []
        self.by_name: dict[str, int] = {}
        self.alive: NDArray[np.bool_] = np.zeros(16, np.bool_)
        self.schedulable: NDArray[np.bool_] = np.zeros(16, np.bool_)
        self.free: Amounts = np.zeros((16, 4), np.int64)
        self.allocatable: Amounts = np.zeros((16, 4), np.int64)
        self.uncounted: Amounts = np.zeros((16, 4), np.int64)
        self.served: list[frozenset[str]] = []
        self._servable: frozenset[str] = frozenset()
        self.parts: tuple[str, ...] = ()
        self.cards = Cards(16, 8)
        self.label_set: NDArray[np.int32] = np.zeros(16, np.int32)
        self.taint_set: NDArray[np.int32] = np.zeros(16, np.int32)
        self.label_sets: Interned[Labels, dict[str, str]] = Interned()
        self.label_columns = LabelColumns(self.label_sets.rows)
        self.taint_sets: Interned[Taints, Taints] = Interned()
        self._resource_ids = {name: i for i, name in enumerate(self.resources)}
        self._sorted = Latest(lambda: [row for _, row in sorted(self.by_name.items())])
        self._vacant: list[int] = []

    @property
    def devices(self) -> NDArray[np.int32]:
        """The holder of each device, by node row."""
        return self.cards.holder

    def resource(self, name: str) -> int:
        """The column of a resource, made when it is first seen. Of resources of very many kinds those that are seen
        last have one column together, of which no node has anything."""
        column = self._resource_ids.get(name)
        own = name == OTHERS or name in asks.VIRTUAL or asks.is_known(name)
        if column is None and len(self.resources) > MOST_RESOURCES and not own:
            return self.resource(OTHERS)
        if column is None:
            column = self._resource_ids[name] = len(self.resources)
            self.resources.append(name)
            if column >= self.free.shape[1]:
                shape = (len(self.free), 2 * self.free.shape[1])
                self.free, self.allocatable = grow(self.free, shape, 0), grow(self.allocatable, shape, 0)
                self.uncounted = grow(self.uncounted, shape, 0)
        return column

    def serve(self, servable: Collection[str]) -> None:
        """Claims serve these extended resources where a node has none of them."""
        self._servable = frozenset(servable)
        for name in sorted(self._servable):  # now, as what is free is remembered by who has seen the columns
            self.resource(name)
        for row in self.by_name.values():
            self._put_served(row)

    def count_parts(self, parts: tuple[str, ...]) -> None:
        """These stand for parts of devices: from now on they are counted only on the nodes that count them."""
        self.parts = parts
        for name in self.parts:
            self.resource(name)
        for row in self.by_name.values():
            self._put_served(row)

    def _put_served(self, row: int) -> None:
        columns = {name: column for name in self._servable if (column := self._resource_ids.get(name)) is not None}
        there = {name: column for name, column in columns.items() if not self.allocatable[row, column]}
        self.served[row] = frozenset(there)
        self.free[row] -= self.uncounted[row]
        self.uncounted[row] = 0
        devices = [] if self.cards.numbers[row] else [self._resource_ids[name] for name in self.parts]
        self.uncounted[row, [*there.values(), *devices]] = UNCOUNTED
        self.free[row] += self.uncounted[row]

    def put_amounts(self, row: int, amounts: Amounts, *, numbers: bool) -> None:
        """Write what the node can hold; what its pods hold they keep. ``numbers``: as ``cards`` has it."""
        self.cards.numbers[row] = numbers
        self.free[row] += amounts - self.allocatable[row]
        self.allocatable[row] = amounts
        if self._servable or self.parts:
            self._put_served(row)

    def amounts(self, by_name: Mapping[str, int]) -> Amounts:
        """Amounts by name as a row of columns; new resources get one. What stands for very many others has none."""
        columns = {self.resource(name): amount for name, amount in by_name.items()}
        found = np.zeros(self.free.shape[1], np.int64)
        for column, amount in columns.items():
            found[column] = amount if self.resources[column] != OTHERS else 0
        return found

    # ---- a node ----

    def node(self, row: int) -> NodeRow:
        """The node in this row. Raises Conflict when there is none."""
        try:
            node = self.rows[row]
        except IndexError:
            node = None
        if node is None or row < 0:
            raise Conflict(f"no node in row {row}")
        return node

    def sorted_rows(self, state: int) -> list[int]:
        """Rows of all nodes, by name. ``state``: the number of the state that the nodes are in."""
        return list(self._sorted.at(state))

    def allocatable_of(self, row: int) -> dict[str, int]:
        """What the node can hold, by resource name."""
        return {
            name: int(amount) for name, amount in zip(self.resources, self.allocatable[row], strict=False) if amount
        }

    def unit(self, row: int) -> str:
        """The resource that counts the node's whole devices or replicas; empty: none."""
        column = self.cards.unit[row]
        return self.resources[column] if column >= 0 else ""

    def check_free(self, row: int, requests: Requests) -> None:
        """Raises Conflict when less is free on the node than is requested."""
        free = self.free[row].tolist()
        for column, amount in requests:
            if free[column] < amount:
                node, name = self.node(row).spec.name, self.resources[column]
                raise Conflict(f"node {node} has {free[column]} {name} free, the pod requests {amount}")

    # ---- what is written of it ----

    def vacant(self) -> int:
        """A row without a node: the one that was given up last, else a new one."""
        if self._vacant:
            return self._vacant.pop()
        self.rows.append(None)
        self.served.append(frozenset())
        self._reserve(len(self.rows))
        return len(self.rows) - 1

    def put(self, row: int, node: NodeRow, schedulable: bool) -> None:
        """Put a node into a vacant row, where it can hold nothing yet."""
        self.rows[row] = node
        self.by_name[node.spec.name] = row
        self.alive[row] = True
        self.schedulable[row] = schedulable
        self._put_label_set(row, node)
        self.taint_set[row] = self.taint_sets.intern(node.taints, node.taints)

    def drop(self, row: int) -> None:
        """Give up the row of a node that can hold nothing any more."""
        del self.by_name[self.node(row).spec.name]
        self.rows[row] = None
        self.alive[row] = self.schedulable[row] = False
        self.free[row] -= self.uncounted[row]
        self.uncounted[row], self.served[row] = 0, frozenset()
        self._vacant.append(row)

    def put_labels(self, row: int, labels: Mapping[str, str]) -> None:
        """Write a node's labels; what it holds stays as it was."""
        node = self.node(row)
        node.labels = node.spec.labelled(labels)
        self._put_label_set(row, node)

    def _put_label_set(self, row: int, node: NodeRow) -> None:
        shared = {key: value for key, value in node.labels.items() if key != HOSTNAME}
        self.label_set[row] = self.label_sets.intern(tuple(sorted(shared.items())), shared)

    def put_taints(self, row: int, taints: Taints) -> None:
        """Write a node's taints."""
        self.node(row).taints = taints
        self.taint_set[row] = self.taint_sets.intern(taints, taints)

    def _reserve(self, count: int) -> None:
        if count <= len(self.alive):
            return
        size = 2 * len(self.alive)
        self.alive = grow(self.alive, (size,), 0)
        self.schedulable = grow(self.schedulable, (size,), 0)
        self.label_set = grow(self.label_set, (size,), 0)
        self.taint_set = grow(self.taint_set, (size,), 0)
        self.free = grow(self.free, (size, self.free.shape[1]), 0)
        self.allocatable = grow(self.allocatable, (size, self.allocatable.shape[1]), 0)
        self.uncounted = grow(self.uncounted, (size, self.uncounted.shape[1]), 0)
        self.cards.reserve(size, 0)
