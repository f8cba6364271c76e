"""Where a gang is tried out: how many pods of a class each node still holds, while pods are put and taken back.

Two rooms with one face. :class:`Sheet` works on copies of the free amounts: right for pods that ask for resources and
whole devices and have no rules about other pods, which is most of them, and fast. :class:`FleetRoom` binds in the
fleet, inside a what-if, pod by pod: right for every pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from tonnage.fleet.disks import in_each_others_way
from tonnage.fleet.filters import OPEN, Mask
from tonnage.fleet.fits import choices, needs_devices
from tonnage.fleet.state import HOSTNAME, Conflict, Fleet
from tonnage.scheduling.cache import Cache
from tonnage.scheduling.policies import ANY_POLICY
from tonnage.scheduling.seat import seat
from tonnage.scheduling.topology import AFFINITY, SPREAD
from tonnage.scheduling.view import NEVER, Ints

if TYPE_CHECKING:
    from tonnage.scheduling.gangs.tree import GroupPods

Rows = NDArray[np.int64]
Devices = tuple[int, ...]
Put = tuple[int, Rows, Ints, Devices | None]
"""An item's number, node rows, how many of its pods each takes, and the devices of a single pod where it matters."""


def depends(fleet: Fleet, cache: Cache, class_id: int) -> bool:
    """Whether a node's room for the class depends on more than its free amounts: on other pods, or on what is left of
    each single device."""
    pod_class = fleet.classes.rows[class_id]
    if needs_devices(fleet, fleet.classes.shapes[pod_class.shape].ask):
        return True
    return bool(cache.topology.masks(pod_class, cache.view(pod_class, ANY_POLICY)))


class Room(Protocol):
    """What planning asks of a room. ``put`` holds what has been placed so far, in order."""

    put: list[Put]

    def count(self, class_id: int) -> Ints:
        """By node row, how many more pods of the class it holds at most: exact in a Sheet, a bound in a FleetRoom."""

    def one_of_each(self, classes: Sequence[int]) -> bool:
        """Whether a node may hold one pod of each of these classes though it holds no two of one."""

    def ways(self, number: int, row: int) -> list[Devices | None]:
        """The choices of devices for one of the item's pods on the node that lead to different outcomes."""

    def take(self, number: int, rows: Rows, counts: Ints, devices: Devices | None = None) -> bool:
        """Put this many of the item's next pods on each of the rows; False, and nothing changed, where they do not
        fit."""

    def back(self, mark: int) -> None:
        """Take back all that was put since ``put`` had this length."""


class Sheet:
    """A room on copies: resource × node row."""

    def __init__(self, fleet: Fleet, cache: Cache, items: Iterable[GroupPods]) -> None:
        self._items = list(items)
        self.put: list[Put] = []
        self._open: dict[int, Mask] = {}
        self._asked: dict[int, list[tuple[int, int]]] = {}
        self._counts: dict[int, Ints] = {}
        requests = {}
        for class_id in {item.class_id for item in self._items}:
            pod_class = fleet.classes.rows[class_id]
            self._open[class_id] = cache.view(pod_class, ANY_POLICY).why == OPEN
            requests[class_id] = dict(fleet.requests(pod_class.shape))
        columns = sorted({column for asked in requests.values() for column in asked})
        self._free = np.ascontiguousarray(np.maximum(fleet.free[:, columns], 0).T)
        for class_id, asked in requests.items():
            self._asked[class_id] = [(columns.index(column), amount) for column, amount in asked.items()]

    def count(self, class_id: int) -> Ints:
        known = self._counts.get(class_id)
        if known is None:
            known = self._counts[class_id] = self._of(class_id, self._free) * self._open[class_id]
        return known

    def one_of_each(self, classes: Sequence[int]) -> bool:
        return False

    def ways(self, number: int, row: int) -> list[Devices | None]:
        return [None]

    def free_of(self, row: int) -> tuple[int, ...]:
        """What is left of each resource that the gang asks for."""
        return tuple(self._free[:, row].tolist())

    def _of(self, class_id: int, free: NDArray[np.int64]) -> Ints:
        """How many pods of the class the nodes hold of which these are the free amounts."""
        (first, amount), *others = self._asked[class_id]
        held: Ints = free[first] // amount
        for resource, amount in others:
            np.minimum(held, free[resource] // amount, out=held)
        return held

    def take(self, number: int, rows: Rows, counts: Ints, devices: Devices | None = None) -> bool:
        class_id = self._items[number].class_id
        if (self.count(class_id)[rows] < counts).any():
            return False
        self._change(class_id, rows, -counts)
        self.put.append((number, rows, counts, devices))
        return True

    def back(self, mark: int) -> None:
        while len(self.put) > mark:
            number, rows, counts, _ = self.put.pop()
            self._change(self._items[number].class_id, rows, counts)

    def _change(self, class_id: int, rows: Rows, counts: Ints) -> None:
        for resource, amount in self._asked[class_id]:
            self._free[resource, rows] += amount * counts
        free = self._free[:, rows]
        for other, known in self._counts.items():
            known[rows] = self._of(other, free) * self._open[other][rows]


class FleetRoom:
    """A room in the fleet itself; only inside ``fleet.what_if()``."""

    def __init__(self, fleet: Fleet, cache: Cache, items: Iterable[GroupPods]) -> None:
        self._fleet = fleet
        self._cache = cache
        self._items = list(items)
        self._next = [0] * len(self._items)
        self.put: list[Put] = []
        self.alone = {item.class_id: self._one_a_host(item.class_id) for item in self._items}

    def _one_a_host(self, class_id: int) -> bool:
        pod_class = self._fleet.classes.rows[class_id]
        if pod_class.ports or pod_class.alone or in_each_others_way(pod_class.disks, pod_class.disks):
            return True
        terms = self._cache.topology.rules(pod_class).anti_affinity
        return any(term.topology_key == HOSTNAME and term.matches(pod_class, self._fleet.namespaces) for term in terms)

    def count(self, class_id: int) -> Ints:
        """A bound: rules that more pods can only tighten are kept, those about pod affinity and skew are not looked
        at."""
        return self._count(class_id, np.flatnonzero(self.allowed(class_id, lasting=True)))

    def count_now(self, class_id: int, rows: Rows) -> Ints:
        """By node row, how many more pods of the class these nodes hold at most, and other nodes none: the bound of
        :meth:`count` where all rules allow one now."""
        return self._count(class_id, rows[self.allowed(class_id)[rows]])

    def _count(self, class_id: int, rows: Rows) -> Ints:
        fleet = self._fleet
        requests = fleet.requests(fleet.classes.rows[class_id].shape)
        columns, amounts = [c for c, _ in requests], np.array([a for _, a in requests], np.int64)
        held = np.zeros(len(fleet.alive), np.int64)
        held[rows] = (fleet.free[rows[:, None], columns] // amounts).min(axis=1)
        if asks := fleet.classes.rows[class_id].claims:
            most = sum(len(item.pods) for item in self._items)  # classes of one shape are counted together
            for row in rows.tolist():
                up_to, view = min(int(held[row]), most), fleet.node_view(row)
                held[row] = fleet.device_claims.count(asks, view, up_to, fleet.served(row))
        return np.minimum(held, 1) if self.alone[class_id] else held

    def one_of_each(self, classes: Sequence[int]) -> bool:
        return any(self.alone[one] for one in classes) and not self._keep_apart(classes)

    def _keep_apart(self, classes: Sequence[int]) -> bool:
        """Whether each of the classes bars all others from its host."""
        fleet = self._fleet
        rows = [fleet.classes.rows[one] for one in classes]
        if rows[0].ports and all(one.ports == rows[0].ports for one in rows):
            return True
        bars = [
            [term for term in self._cache.topology.rules(one).anti_affinity if term.topology_key == HOSTNAME]
            for one in rows
        ]
        return all(any(term.matches(other, fleet.namespaces) for term in terms) for terms in bars for other in rows)

    def allowed(self, class_id: int, *, lasting: bool = False) -> Mask:
        """The nodes that pass all filters now; ``lasting``: without the rules that pods placed later can satisfy."""
        pod_class = self._fleet.classes.rows[class_id]
        view = self._cache.view(pod_class, ANY_POLICY)
        allowed: Mask = view.key != NEVER
        for why, mask in self._cache.topology.masks(pod_class, view):
            if not (lasting and why in (AFFINITY, SPREAD)):
                allowed = allowed & mask
        return allowed

    def ways(self, number: int, row: int) -> list[Devices | None]:
        ask = self._fleet.classes.shapes[self._fleet.classes.rows[self._items[number].class_id].shape].ask
        if not needs_devices(self._fleet, ask):
            return [None]
        return [choice.devices for choice in choices(self._fleet, row, ask)]

    def take(self, number: int, rows: Rows, counts: Ints, devices: Devices | None = None) -> bool:
        mark = len(self.put)
        for row in np.repeat(rows, counts).tolist():
            if not self.allowed(self._items[number].class_id)[row] or not self.bind(number, row, devices):
                self.back(mark)
                return False
        return True

    def bind(self, number: int, row: int, devices: Devices | None = None) -> bool:
        """Bind the item's next pod, whatever the rules say; False where a resource or a device is short."""
        pod = self._items[number].pods[self._next[number]]
        try:
            held = seat(self._fleet, pod, row, devices)
        except Conflict:
            return False
        self._next[number] += 1
        self.put.append((number, np.array([row]), np.array([1]), held))
        return True

    def back(self, mark: int) -> None:
        while len(self.put) > mark:
            number, *_ = self.put.pop()
            self._next[number] -= 1
            self._fleet.unbind(self._items[number].pods[self._next[number]])
