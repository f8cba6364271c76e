"""A fleet as it would be: pods that wait are bound for a trial, and GPUs cut otherwise so that more of them can be.

Everything happens inside a what-if of the fleet. What a pod asks of a node beyond its devices is looked at as far as
one node says it: resources, selectors, affinity to nodes, taints. Rules about other pods are the scheduler's affair.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from tonnage.decisions import Instances
from tonnage.fleet.asks import GPU, Ask, Kind
from tonnage.fleet.cards import FREE_DEVICE, NO_DEVICE
from tonnage.fleet.devices import OPEN, Cut, How
from tonnage.fleet.geometry import MEDIA, Geometry, geometry
from tonnage.fleet.outfit import node_gpu
from tonnage.fleet.state import Conflict, Fleet
from tonnage.objects import selectors
from tonnage.partitioning import fleet_plan
from tonnage.partitioning.fleet_plan import Card, CardPlan, Demand
from tonnage.partitioning.layouts import Layout, Placement, resource
from tonnage.partitioning.node_cuts import MIG_STRATEGY
from tonnage.partitioning.patterns import Prices

ALLOWED = "tonnage.dev/mig-relayout"
"""The label of a node whose GPUs may be cut otherwise: ``true``. Its MIG strategy has to be ``mixed`` then: each
profile is a resource of its own."""
Device = tuple[int, int]
"""(row of the node, index of the device)."""


@dataclass(frozen=True, slots=True)
class Site:
    """A GPU that may be cut otherwise. One that is whole and idle is planned as a card with an instance that takes all
    of it."""

    device: Device
    card: Card
    whole: bool


def instances_of(fleet: Fleet, device: Device) -> Instances:
    """How the GPU is cut now, as a decision writes it. Raises ValueError where its instances are made on demand, or are
    shared."""
    cut = fleet.cards.cut_of(*device)
    if cut == OPEN:
        return None
    if not has_layout(cut):
        raise ValueError("the GPU has no layout")
    return as_instances(layout_of(cut))


def has_layout(cut: Cut) -> bool:
    """Whether the GPU gives its MIG instances, made beforehand, each as one of its own resource."""
    return cut.how is How.MIG and not cut.dynamic and cut.replicas == 1 and not cut.resource


def layout_of(cut: Cut) -> Layout:
    """The instances of a MIG device."""
    slots = cut.geometry.slots
    return tuple(sorted(Placement(start, slots[name].name) for name, start in cut.instances or ()))


def as_instances(layout: Layout) -> Instances:
    """A layout as a decision writes it."""
    return tuple((one.profile, one.start) for one in layout)


def as_layout(instances: Instances) -> Layout:
    """The layout that a decision writes; of a whole GPU none."""
    return tuple(sorted(Placement(start, profile) for profile, start in instances or ()))


def busy_in(fleet: Fleet, device: Device) -> Layout:
    """The instances of a MIG device that pods hold."""
    cut, mask = fleet.cards.cut_of(*device), int(fleet.cards.mask[device]) & ~MEDIA
    on = cut.geometry
    return tuple(one for one in layout_of(cut) if on.span(resource(on, one.profile), one.start) & mask)


def cut_as(on: Geometry, instances: Instances) -> Cut:
    """A GPU with these instances, or whole."""
    if instances is None:
        return OPEN
    made = sorted((resource(on, profile), start) for profile, start in instances)
    return Cut(How.MIG, isolated=True, gpu=on.gpu, instances=tuple(made))


def lay(fleet: Fleet, device: Device, instances: Instances) -> None:
    """Cut the GPU so. Raises Conflict when it is not there, or something that is in use would be gone."""
    row, number = device
    node = fleet.node(row)
    on = geometry(node_gpu(node.labels, node.spec.gpu))
    if on is None:
        raise Conflict(f"node {node.spec.name}: no MIG profiles of its GPU are known")
    cuts = [fleet.cards.cut_of(row, one) for one in range(_devices(fleet, row))]
    if number >= len(cuts):
        raise Conflict(f"node {node.spec.name}: GPU {number} is not there")
    cuts[number] = cut_as(on, instances)
    fleet.set_cuts(row, cuts)


def _devices(fleet: Fleet, row: int) -> int:
    """How many devices the node has now."""
    return int((fleet.devices[row] != NO_DEVICE).sum())


def pieces(ask: Ask) -> list[str]:
    """What a pod asks of GPUs that can be cut, a MIG resource or ``nvidia.com/gpu`` for a whole one, each once."""
    whole = [GPU] * (ask.count if ask.resource == GPU and ask.kind in (Kind.WHOLE, Kind.MIG) else 0)
    return [*whole, *(name for name, n in ask.profiles for _ in range(n))]


@dataclass(slots=True)
class Attempt:
    """A part of a trial; ``keep``: it stands when it is over, else all that was done in it is undone."""

    keep: bool = False


@dataclass(slots=True)
class Trial:
    """What the fleet would be. ``changing``: devices that are being cut otherwise already. ``done``: in order, the rows
    of the pods bound, and the devices cut otherwise with what they were before."""

    fleet: Fleet
    whole: bool
    prices: Prices | None = None
    changing: frozenset[Device] = frozenset()
    done: list[int | tuple[Device, Instances]] = field(default_factory=list)
    _admitting: dict[int, tuple[int, ...]] = field(default_factory=dict)

    @contextmanager
    def attempt(self) -> Iterator[Attempt]:
        """What is done inside the block is undone when it ends, unless it is to be kept."""
        attempt, mark = Attempt(), len(self.done)
        yield attempt
        while not attempt.keep and len(self.done) > mark:
            last = self.done.pop()
            if isinstance(last, int):
                self.fleet.unbind(last)
            else:
                lay(self.fleet, *last)

    def cut(self) -> dict[Device, Instances]:
        """The devices that are cut otherwise, and how they were before."""
        found: dict[Device, Instances] = {}
        for one in self.done:
            if isinstance(one, tuple):
                found.setdefault(*one)
        return found

    def gained(self) -> dict[Device, list[int]]:
        """The pods that were bound, by the devices that they are on."""
        found: dict[Device, list[int]] = {}
        for pod in (one for one in self.done if isinstance(one, int)):
            row = self.fleet.pod(pod)
            for device in row.devices:
                found.setdefault((row.node, device), []).append(pod)
        return found

    def asks(self, pod: int) -> list[str]:
        """:func:`pieces` of the pod in this row."""
        return pieces(self.fleet.classes.shapes[self.fleet.pod_class(pod).shape].ask)

    def admitting(self, pod: int) -> tuple[int, ...]:
        """Rows of the nodes, by name, that would let the pod in if they had room."""
        fleet, number = self.fleet, self.fleet.pod(pod).class_id
        if number not in self._admitting:
            spec = fleet.classes.rows[number].spec
            self._admitting[number] = tuple(
                row
                for row in fleet.node_rows()
                if fleet.schedulable[row]
                and selectors.node_admits(spec, (node := fleet.node(row)).labels, node.taints, node.spec.name)
            )
        return self._admitting[number]

    def bind(self, pod: int) -> bool:
        """Bind the pod where it fits, on the first node by name."""
        fleet, rows = self.fleet, self.admitting(pod)
        enough = np.ones(len(rows), bool)
        for column, amount in fleet.requests(fleet.pod_class(pod).shape):
            enough &= fleet.free[list(rows), column] >= amount
        for row, fits in zip(rows, enough, strict=True):
            if not fits:
                continue
            try:
                fleet.bind(pod, row)
            except Conflict:
                continue
            self.done.append(pod)
            return True
        return False

    def sites(self, rows: Iterable[int]) -> list[Site]:
        """The GPUs of these nodes that may be cut otherwise, by node and index."""
        return [site for row in rows for site in self._on_node(row)]

    def _on_node(self, row: int) -> list[Site]:
        fleet, node = self.fleet, self.fleet.node(row)
        on = geometry(node_gpu(node.labels, node.spec.gpu))
        if on is None or node.labels.get(ALLOWED) != "true" or node.labels.get(MIG_STRATEGY) != "mixed":
            return []
        found = []
        for device in range(_devices(fleet, row)):
            at, cut = (row, device), fleet.cards.cut_of(row, device)
            name = f"{node.spec.name}/{device}"
            if at in self.changing:
                continue
            if has_layout(cut):
                found.append(Site(at, Card(name, on, layout_of(cut), busy_in(fleet, at), node.spec.name), False))
            elif self.whole and cut == OPEN and fleet.devices[at] == FREE_DEVICE and node.spec.device_resource == GPU:
                found.append(Site(at, Card(name, on, (all_of(on),), (), node.spec.name), True))
        return found

    def make_room(self, pods: Sequence[int], rows: Sequence[int]) -> int:
        """Cut GPUs of these nodes otherwise, so that as many as can be of the pods have what they ask for, with the
        fewest instances destroyed. Returns how many instances that are."""
        wanted = Counter(piece for pod in pods for piece in self.asks(pod))
        sites, destroyed = self.sites(rows), 0
        for gpu in sorted({site.card.on.gpu for site in sites}):
            among = [site for site in sites if site.card.on.gpu == gpu]
            on = among[0].card.on
            if not self.whole:
                wanted.pop(GPU, None)
            demands = [
                Demand(name, count, all_of(on).profile if name == GPU else name)
                for name, count in sorted(wanted.items())
                if name == GPU or name in on.slots
            ]
            if not demands:
                continue
            plan = fleet_plan.plan([site.card for site in among], demands, self.prices)
            for demand, served in zip(demands, plan.served, strict=True):
                wanted[demand.name] -= served
            wanted = +wanted
            for site, card in zip(among, plan.cards, strict=True):
                destroyed += self._change(site, card, [demand.name for demand in demands])
        return destroyed

    def _change(self, site: Site, planned: CardPlan, names: Sequence[str]) -> int:
        """Cut one GPU as planned; the number of instances that go."""
        after, serves = planned.change.after, [names[number] for _, number in planned.serves]
        goal = None if GPU in serves else as_instances(after)
        now = instances_of(self.fleet, site.device)
        if not serves or goal == now:
            return 0
        lay(self.fleet, site.device, goal)
        self.done.append((site.device, now))
        return sum(one not in as_layout(goal) for one in as_layout(now))


def all_of(on: Geometry) -> Placement:
    """The instance that takes all of a card."""
    largest = max(on.slots.values(), key=lambda slot: (slot.mib, slot.milli, "+" not in slot.name, slot.name))
    return Placement(0, largest.name)
