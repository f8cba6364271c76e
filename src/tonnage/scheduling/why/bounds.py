"""Bounds on the measure of changes, for all nodes at once, and what the search for the smallest one looks up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tonnage.fleet import holding
from tonnage.fleet.asks import FULL, Kind, is_device
from tonnage.fleet.cards import NO_DEVICE
from tonnage.fleet.filters import Mask
from tonnage.fleet.fits import gives, needs_devices
from tonnage.fleet.node_columns import Requests
from tonnage.fleet.outfit import LABELS as OUTFIT
from tonnage.fleet.rows import PodRow
from tonnage.fleet.state import HOSTNAME, PODS, Fleet
from tonnage.scheduling.cache import Cache
from tonnage.scheduling.policies import ANY_POLICY
from tonnage.scheduling.seen import Seen
from tonnage.scheduling.why import requests as why_requests
from tonnage.scheduling.why.changes import Cost, DropResource, Leave, Lower, Recut, required_of, rules_of
from tonnage.scheduling.why.edited import EditedPods
from tonnage.scheduling.why.static import Kin, kin

Ints = NDArray[np.int64]

_EDITS, _RANKS = 40, 24
IMPOSSIBLE = 1 << 60
_LOWER, _LEAVE, _DROP = ((1 << _EDITS) + (edit.rank << _RANKS) for edit in (Lower, Leave, DropResource))


def code(cost: Cost) -> int:
    """A number that orders as the measure does; those of bounds add up."""
    return (cost[0] << _EDITS) + (cost[1] << _RANKS) + cost[2]


def rows_of(table: NDArray[np.integer[Any]]) -> list[bytes]:
    """The rows of a table, to be compared."""
    whole, width = np.ascontiguousarray(table).tobytes(), table.shape[1] * table.itemsize
    return [whole[at : at + width] for at in range(0, len(whole), width)]


class Tables:
    """One waiting pod against the fleet as it is."""

    def __init__(self, fleet: Fleet, row: int, cache: Cache) -> None:
        self.fleet, self.row, self.cache = fleet, row, cache
        self.pod = fleet.pod(row).spec
        pod_class = fleet.pod_class(row)
        self.view = cache.view(pod_class, ANY_POLICY)
        self.shape = fleet.classes.shapes[pod_class.shape]
        self.requests = fleet.requests(self.shape.id)
        self.axes = why_requests.axes(self.pod, self.shape)
        self.device_axes = why_requests.device_axes(self.pod, self.shape)
        self.by_devices = needs_devices(fleet, self.shape.ask)
        self.rules = rules_of(self.pod.spec)
        masks = cache.topology.masks(pod_class, self.view)
        self.ruled = bool(masks)
        self.allowed: Mask = np.ones(len(fleet.alive), np.bool_)
        for _, mask in masks:
            self.allowed = self.allowed & mask
        self.rows = np.array(fleet.node_rows(), np.int64)
        self.recut: dict[int, tuple[Recut, ...]] = {}
        """By node row, how its GPUs would be repartitioned, as far as that was asked."""
        self.recuttable: dict[int, list[int]] = {}
        """By the first node of a group of nodes, those where GPUs repartitioned may help, as far as that was asked."""
        self._in_the_way: dict[int, list[PodRow]] = {}
        self._short: dict[int, frozenset[int]] = {}
        self._leaving: dict[bool, Ints] = {}
        self._alike: dict[int, int] = {}
        self._alike_numbers: dict[tuple[object, ...], int] = {}
        self._asked_of: dict[frozenset[int], dict[int, int]] = {}
        self._asked_numbers: dict[Requests, int] = {(): 0}

    @cached_property
    def edited(self) -> EditedPods:
        """The pod after edits."""
        pod_class = self.fleet.pod_class(self.row)
        return EditedPods(self.fleet, self.pod, pod_class, self.view.nodes, self.cache.topology)

    @cached_property
    def kin(self) -> list[Kin]:
        """The nodes that some edit opens, by what they ask."""
        return [group for group in kin(self.fleet, self.pod, self.view, self.rows) if group.ways]

    @cached_property
    def nowhere(self) -> frozenset[int]:
        """Columns of extended resources that the pod asks for and no node has any of; without the whole devices that it
        asks for its work would not be the same."""
        there = self.fleet.allocatable[self.rows]
        names = self.fleet.resources
        asked = [at for at, _ in self.requests if "/" in names[at] and not is_device(names[at])]
        return frozenset(column for column in asked if len(there) and not there[:, column].any())

    @cached_property
    def unlike(self) -> list[int]:
        """Nodes that can run the pod's images, of those between which nodes like them would make no difference one."""
        fleet, cuda, affinity = self.fleet, self.view.opened.cuda, required_of(self.pod.spec)
        terms = [*(affinity.node_selector_terms if affinity else ())]
        terms += [term for one in self.pod.volumes.reach for term in one.nodes.node_selector_terms]
        also = self.cache.topology.keys(fleet.pod_class(self.row)) - {HOSTNAME} if self.ruled else set()
        also.update(OUTFIT if self.by_devices else ())
        known = self.view.opened.kinds if not (also or self.pod.volumes.reach) else None
        kinds = Seen(fleet, terms, self.shape.node_selector, sorted(also)).refresh() if known is None else known
        taints, sets = fleet.taint_set.tolist(), fleet.label_set.tolist()
        found: dict[tuple[object, ...], int] = {}
        kind_of = kinds.tolist()
        for row in self.rows.tolist():
            if not (cuda and cuda[sets[row]]):
                found.setdefault((kind_of[row], taints[row], self._sizes[row], self.cuts[row]), row)
        return list(found.values())

    @cached_property
    def cuts(self) -> list[object]:
        """By node row, equal where the node's devices are cut alike."""
        fleet, cards = self.fleet, self.fleet.cards
        found: list[object] = [()] * len(fleet.alive)
        count = (cards.holder[: len(found)] != NO_DEVICE).sum(axis=1).tolist()
        numbers = rows_of(cards.cut[: len(found)])
        for row in self.rows.tolist():
            node = fleet.nodes[row]
            if node is not None and node.cuts:  # the cards have the numbers of the cuts, if all devices are there
                whole = len(node.cuts) == count[row]
                found[row] = numbers[row] if whole else node.cuts
        return found

    @cached_property
    def room(self) -> Ints:
        """By node row, a number for all that decides whether the node has what is asked for: equal where it is the
        same."""
        cards, nodes, columns = self.fleet.cards, len(self.fleet.alive), [column for column, _ in self.requests]
        held = np.where(cards.holder[:nodes] >= 0, 0, cards.holder[:nodes])
        devices = [cards.milli, cards.mib, cards.mask, cards.sharers, cards.cut] if self.by_devices else []
        per_node = [cards.memory[:nodes, None], cards.unit[:nodes, None]]
        numbers: dict[bytes, int] = {}
        states = rows_of(
            np.hstack([self.fleet.free[:nodes, columns], held, *per_node, *(one[:nodes] for one in devices)])
        )
        return np.array([numbers.setdefault(state, len(numbers)) for state in states], np.int64)

    def alike(self, row: int) -> int:
        """A number for all that counts of the pods in the way on the node when some of them go: equal where it is the
        same."""
        known = self._alike.get(row)
        if known is None:
            asked, numbers = self._asked(self.short(row)), self._alike_numbers
            held = [(asked[pod.class_id], pod.devices, pod.pieces) for pod in self._blocking(row)]
            held.sort()
            known = self._alike[row] = numbers.setdefault(tuple(held), len(numbers))
        return known

    def _asked(self, among: frozenset[int]) -> dict[int, int]:
        """By class of the pods that are bound, a number for what they ask of these resources: equal where that is
        equal, and 0 for nothing."""
        known = self._asked_of.get(among)
        if known is None:
            fleet, known, numbers = self.fleet, {}, self._asked_numbers
            for class_id in fleet.bound:
                requests = fleet.requests(fleet.classes.rows[class_id].shape)
                asked = tuple([one for one in requests if one[0] in among])
                known[class_id] = numbers.setdefault(asked, len(numbers))
            self._asked_of[among] = known
        return known

    def in_the_way(self, row: int) -> list[PodRow]:
        """The pods of the node that give room which is short, hold devices that are looked at, or fall under a rule;
        those first that hold least of devices."""
        return sorted(self._blocking(row), key=lambda pod: (holding.milli(pod), pod.key))

    def _blocking(self, row: int) -> list[PodRow]:
        """The same in no order."""
        known = self._in_the_way.get(row)
        if known is None:
            asked, ruled, by_devices = self._asked(self.short(row)), self.ruled, self.by_devices
            known = self._in_the_way[row] = [
                pod
                for pod in map(self.fleet.pod, self.fleet.node(row).pods)
                if not pod.spec.daemon  # its DaemonSet makes it again
                and (ruled or pod.pieces or (by_devices and pod.devices) or asked[pod.class_id])
            ]
        return known

    def short(self, row: int) -> frozenset[int]:
        """The resources of which the node has too little free."""
        known = self._short.get(row)
        if known is None:
            free = self.fleet.free[row].tolist()
            known = self._short[row] = frozenset([column for column, need in self.requests if free[column] < need])
        return known

    def leave_of(self, pod: PodRow) -> Leave:
        """That the pod goes."""
        node = self.fleet.node(pod.node).spec.name
        return Leave(pod.spec.namespace, pod.spec.name, node, holding.milli(pod))

    @cached_property
    def _sizes(self) -> list[bytes]:
        """By node row, what it can hold."""
        return rows_of(self.fleet.allocatable)

    @cached_property
    def lacks_devices(self) -> Mask:
        """By node row: the resources are there, but devices do not give what is asked."""
        fleet = self.fleet
        lacks = np.zeros(len(fleet.alive), np.bool_)
        if self.by_devices:
            rows = self.rows[~self.lacks_resources[self.rows]]
            lacks[rows[~gives(fleet, rows, self.shape.ask)]] = True
        return lacks

    @cached_property
    def lacks_resources(self) -> Mask:
        """By node row: some resource is short."""
        lacks = np.zeros(len(self.fleet.alive), np.bool_)
        for column, need in self.requests:
            lacks |= self.fleet.free[:, column] < need
        return lacks

    @cached_property
    def staying(self) -> Ints:
        """By node row, a bound on what asking for less costs there while everybody stays: exact where only resources
        are short, IMPOSSIBLE where somebody has to go."""
        free = self.fleet.free
        cost = np.zeros(len(free), np.int64)
        never = np.zeros(len(free), np.bool_)
        for column, need in self.requests:
            if column in self.nowhere:
                cost += _DROP
                continue
            by = np.maximum(need - free[:, column], 0)
            cost += np.where(by > 0, _LOWER - (-1000 * by // need), 0)
            never |= (by > 0) & ((free[:, column] < 1) | (column == PODS))
        cost += np.where(self.lacks_devices, self._devices_less, 0)
        found: Ints = np.where(never, IMPOSSIBLE, np.minimum(cost, IMPOSSIBLE))
        return found

    def leaving(self, *, lower: bool) -> Ints:
        """By node row, a bound on what it costs if some of its pods go: how many have to for each resource, those that
        hold most of it first, unless the pod asks for ``lower`` amounts; IMPOSSIBLE where nobody stands or all are not
        enough."""
        known = self._leaving.get(lower)
        if known is None:
            known = self._leaving[lower] = self._cost_of_leaving(lower=lower)
        return known

    def _cost_of_leaving(self, *, lower: bool) -> Ints:
        cost = np.full(len(self.fleet.alive), IMPOSSIBLE, np.int64)
        if not len(self._bound[0]) or (self.nowhere and not lower):
            return cost
        pods, counts = self._to_go
        for lowered in range(len(counts) + 1 if lower else 1):
            rest = counts[lowered] if lowered < len(counts) else np.zeros(len(cost), np.int64)
            go = np.maximum(rest, 1)
            one = lowered * _LOWER + go * _LEAVE
            cost = np.minimum(cost, np.where(go > pods, IMPOSSIBLE, one))
        found: Ints = np.minimum(cost + self._held + len(self.nowhere) * _DROP, IMPOSSIBLE)
        return found

    @cached_property
    def _to_go(self) -> tuple[Ints, Ints]:
        """By node row, how many pods there are; and how many have to go for each resource, the most first."""
        nodes, classes = self._bound
        pods = np.bincount(nodes, minlength=len(self.fleet.alive))
        asked = [one for one in self.requests if one[0] not in self.nowhere]
        needed = [self._fewest(column, need, nodes, classes, pods) for column, need in asked]
        return pods, np.sort(np.array(needed), axis=0)[::-1]

    @cached_property
    def _devices_less(self) -> Ints:
        """By node row, a bound on asking devices for less."""
        ask, least = self.shape.ask, self._least_part
        bound = np.full(len(least), _LOWER if self.device_axes else IMPOSSIBLE, np.int64)
        if ask.kind is Kind.SHARE and ask.count == 1:
            by = np.maximum(ask.milli - least, 0)
            bound = np.where(least < 1, IMPOSSIBLE, _LOWER - (-1000 * by // max(ask.milli, 1)))
        return bound

    @cached_property
    def _least_part(self) -> Ints:
        """By node row, thousandths free on the last of as many devices as are asked for, the emptiest first."""
        fleet, count = self.fleet, max(self.shape.ask.count, 1)
        milli = np.sort(fleet.cards.milli[: len(fleet.alive)], axis=1).astype(np.int64)
        return milli[:, -count] if count <= milli.shape[1] else np.zeros(len(milli), np.int64)

    @cached_property
    def _held(self) -> Ints:
        """Thousandths of devices that have to come free: a pod that asks for less instead makes one edit more."""
        ask, fleet = self.shape.ask, self.fleet
        nothing = np.zeros(len(fleet.alive), np.int64)
        if ask.kind is Kind.SHARE:
            return self._held_for_part if ask.count == 1 else np.maximum(ask.milli - self._least_part, 0)
        if ask.kind is not Kind.WHOLE:
            return nothing
        column = fleet.resource(ask.resource)
        missing = np.maximum(ask.count - fleet.free[:, column], 0)
        counts = (fleet.cards.unit[: len(missing)] == column) & ~fleet.cards.special[: len(missing)]
        return np.where(counts, 1000 * missing, nothing)

    @cached_property
    def _held_for_part(self) -> Ints:
        """By node row, thousandths that have to come free on one device: all that is held where one pod holds it."""
        cards, need, nodes = self.fleet.cards, self.shape.ask.milli, len(self.fleet.alive)
        free = cards.milli[:nodes].astype(np.int64)
        held = np.where(cards.sharers[:nodes] <= 1, FULL - free, need - free)
        held = np.where(free >= need, 0, held)
        found: Ints = np.where(cards.holder[:nodes] == NO_DEVICE, FULL, held).min(axis=1)
        return found

    @cached_property
    def _bound(self) -> tuple[Ints, Ints]:
        """(node row, class) of every pod that is bound."""
        pods = self.cache.bound.refresh()
        rows = np.flatnonzero(pods.node >= 0)
        return pods.node[rows], pods.class_id[rows]

    def _fewest(self, column: int, need: int, nodes: Ints, classes: Ints, pods: Ints) -> Ints:
        """By node row, how many pods have to go for one resource; more than there are where all are not enough."""
        fleet = self.fleet
        asked = np.zeros(len(fleet.classes.rows), np.int64)
        for class_id in fleet.bound:
            asked[class_id] = dict(fleet.requests(fleet.classes.rows[class_id].shape)).get(column, 0)
        missing = np.maximum(need - fleet.free[:, column], 0)
        concerned = missing[nodes] > 0
        on, held = nodes[concerned], asked[classes[concerned]]
        found = np.zeros(len(missing), np.int64)
        if not len(on):
            return np.where(missing > 0, pods + 1, found)
        order = np.lexsort((-held, on))
        on, held = on[order], held[order]
        start = np.flatnonzero(np.r_[True, on[1:] != on[:-1]])
        sums = np.cumsum(held)
        within = sums - np.repeat(sums[start] - held[start], np.diff(np.r_[start, len(on)]))
        too_few = np.add.reduceat((within < missing[on]).astype(np.int64), start)
        found[on[start]] = too_few + 1
        return np.where((missing > 0) & (found == 0), pods + 1, found)


def sets_of(pods: Sequence[PodRow], size: int, *, by_devices: bool) -> Iterator[tuple[PodRow, ...]]:
    """Sets of this many; of pods that cannot be told apart, the first by name."""
    kinds = [(pod.class_id, (pod.devices, pod.pieces) if by_devices else len(pod.devices)) for pod in pods]
    seen: set[tuple[object, ...]] = set()
    for numbers in combinations(range(len(pods)), size):
        alike = tuple(kinds[i] for i in numbers)
        if alike not in seen:
            seen.add(alike)
            yield tuple(pods[i] for i in numbers)
