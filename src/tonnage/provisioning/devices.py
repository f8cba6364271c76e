"""The devices of nodes that are planned, on their way or there, and what pods would take of them.

Nothing is worked out here: which device gives a piece, and what is left of it, is the fleet's to say
(:mod:`tonnage.fleet.search`, :mod:`tonnage.fleet.cards`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tonnage.dra import nvidia
from tonnage.errors import Problem
from tonnage.facts import gpus, instances, mig_devices
from tonnage.facts.labels import GPU, GPU_MEMORY
from tonnage.fleet import search
from tonnage.fleet.asks import FULL, SHARED_GPU, Ask, Kind
from tonnage.fleet.cards import FREE_DEVICE, NO_DEVICE, SHARED_DEVICE, Cards
from tonnage.fleet.columns import distinct
from tonnage.fleet.devices import Cut, How
from tonnage.fleet.geometry import MEDIA, geometry
from tonnage.fleet.outfit import Outfit, offered, outfit
from tonnage.fleet.rows import FleetNode, NodeRow
from tonnage.fleet.state import Fleet
from tonnage.partitioning.node_cuts import OWN, READ, STATED, Configurations, NodeCuts, cut_node
from tonnage.provisioning.requirements import Requirements

Mask = NDArray[np.bool_]
Rows = NDArray[np.intp]
Amounts = NDArray[np.int64]

_UNNUMBERED = -1
_MOST_PARTS = np.iinfo(np.intp).max
_NOTHING = Outfit((), 0, 0, "", {})
SOMEBODY = 0
"""In place of the pod that holds a device: which one it is does not matter here."""


def beyond_counting(ask: Ask) -> bool:
    """Whether the resources of an instance type do not tell if its nodes give this."""
    return ask.shares or bool(ask.profiles) or ask.resource == SHARED_GPU


def cut_by(labels: Mapping[str, str], configurations: Configurations = OWN) -> bool:
    """Whether nodes with these labels may have GPUs that are partitioned."""
    named = bool(configurations.default) or any(key in labels for key in READ)
    return named or nvidia.has_driver(labels)


def machine(
    of: instances.InstanceType,
    labels: Mapping[str, str],
    allocatable: Mapping[str, int] | None = None,
    configurations: Configurations = OWN,
) -> Outfit:
    """The devices of a node of this type, with what they offer in its allocatable: cut as these labels say, else whole.

    ``allocatable``: what the node will have, where that is known already."""
    made = _cut(of, labels, configurations)
    offers = made.offers if allocatable is None else allocatable
    stated = {GPU_MEMORY: str(_memory(of)), **labels}
    spec = FleetNode(
        of.name, offers, stated, instance_type=of.name, gpu=of.gpu, device_resource=of.resource, cuts=made.cuts
    )
    return outfit(NodeRow(spec, stated, (), set()), offers)


def _cut(of: instances.InstanceType, labels: Mapping[str, str], configurations: Configurations) -> NodeCuts:
    if of.resource != GPU or not cut_by(labels, configurations):
        return NodeCuts(offers={of.resource: of.resource_count} if of.resource else {})
    if nvidia.has_driver(labels):
        cuts = (by_claim(of.gpu, on_demand=nvidia.partitions_on_demand(labels)),) * of.resource_count
        return NodeCuts(cuts, offered(cuts, GPU))
    return cut_node(configurations, labels, of.gpu, of.resource_count)


def by_claim(gpu: str, *, on_demand: bool) -> Cut:
    """A GPU that a DRA driver publishes whole, and in every placement of its MIG profiles where it partitions it
    ``on_demand``: never in shares."""
    if on_demand and geometry(gpu) is not None:
        return Cut(How.MIG, GPU, isolated=True, gpu=gpu, whole=True)
    return Cut(How.REPLICAS, GPU, isolated=True)


def _memory(of: instances.InstanceType) -> int:
    """MiB of one GPU: the least that the cloud, the driver and the GPU's own entry state, which every node has."""
    drivers = mig_devices.label_memory().get(of.gpu, of.gpu_memory_mib)
    own = gpus.get(of.gpu).memory_mib if of.gpu else of.gpu_memory_mib
    return min(of.gpu_memory_mib, drivers, own)


@dataclass(frozen=True, slots=True, eq=False)
class FreeDevices:
    """What is free of the devices of some kinds of nodes: ``outfits``, one row of ``cards`` each."""

    outfits: tuple[Outfit, ...]
    cards: Cards

    @classmethod
    def untouched(cls, outfits: Sequence[Outfit]) -> FreeDevices:
        """Of nodes without pods."""
        cards = Cards(len(outfits), max((one.count for one in outfits), default=0))
        for row, one in enumerate(outfits):
            cards.lay(row, one.cuts, one.count, one.memory, _UNNUMBERED)
        return cls(tuple(outfits), cards)

    @classmethod
    def of_node(cls, fleet: Fleet, row: int) -> FreeDevices:
        """Of a node that is there, as they are now."""
        cards, node = fleet.cards.select([row]), fleet.node(row)
        count, memory = int((cards.holder[0] != NO_DEVICE).sum()), int(cards.memory[0])
        return cls((Outfit(node.cuts, count, memory, fleet.device_unit(row), fleet.allocatable_of(row)),), cards)

    def parts(self, row: int) -> tuple[int, int] | None:
        """The thousandths of compute and of memory that are free of devices which are partitioned where they are asked
        for; None where others are among them, whose parts add up to no more than is offered."""
        compute, memory, cards = 0, 0, self.cards
        for device in range(self.outfits[row].count):
            cut, holder = cards.cut_of(row, device), int(cards.holder[row, device])
            if not cut.whole:
                return None
            if holder in (FREE_DEVICE, SHARED_DEVICE):
                slices = cut.geometry.memory_slices
                compute += int(cards.milli[row, device])
                memory += FULL * (slices - (int(cards.mask[row, device]) & ~MEDIA).bit_count()) // slices
        return compute, memory

    def only(self, row: int) -> FreeDevices:
        """A copy of one row."""
        return FreeDevices((self.outfits[row],), self.cards.select([row]))

    def copy(self) -> FreeDevices:
        """Another to go on with."""
        return FreeDevices(self.outfits, self.cards.select(range(len(self.outfits))))

    def in_use(self, row: int) -> dict[str, int]:
        """How many devices something is on, by the resource that counts whole ones."""
        holder = self.cards.holder[row]
        return {self.outfits[row].unit: int(((holder >= 0) | (holder == SHARED_DEVICE)).sum())}

    def hold(self, row: int, count: int) -> None:
        """Let ``count`` whole devices or replicas be taken."""
        unit = self.outfits[row].unit
        if count:
            self.take(row, Ask(Kind.WHOLE, unit, count, FULL), {unit: count})

    def take(self, row: int, ask: Ask, amounts: Mapping[str, int]) -> bool:
        """Give a pod that requests ``amounts`` the devices that the fleet would; False where it would give none. What
        of the amounts no device gives is not looked at."""
        of = self.outfits[row]
        if (ask.shares or ask.resource in (GPU, SHARED_GPU)) and ask.resource != of.unit:
            return False
        if any(n > of.allocatable.get(name, 0) for name, n in ask.profiles):
            return False
        count = amounts.get(of.unit, 0) if of.unit else 0
        chosen, missing = search.choose(self.cards, row, ask, count)
        if not missing:
            self.cards.take(row, chosen, of.unit, SOMEBODY)
        return not missing


def coming(
    instance_type: str,
    labels: Mapping[str, str],
    allocatable: Mapping[str, int],
    held: Mapping[str, int],
    configurations: Configurations = OWN,
) -> FreeDevices | None:
    """The devices of a node on its way that will have ``allocatable``, of which ``held`` are taken whole; None where
    nothing is known of its type."""
    if not instances.known(instance_type):
        return None
    made = FreeDevices.untouched([machine(instances.get(instance_type), labels, allocatable, configurations)])
    made.hold(0, held.get(made.outfits[0].unit, 0))
    return made


class NewNodeDevices:
    """The devices that new nodes of one NodePool would have, by layout and instance type; those with equal ones share
    a row.

    ``layouts``: the labels of nodes, one mapping for each way that the NodePool offers. ``cut``: whether any of them
    may say that GPUs are partitioned. Of other types than ``wanted`` nothing is worked out: they have no devices
    here."""

    def __init__(
        self,
        types: Sequence[instances.InstanceType],
        wanted: Mask,
        layouts: Sequence[Mapping[str, str]],
        configurations: Configurations = OWN,
    ) -> None:
        self._types, self._wanted, self._configurations = types, wanted.tolist(), configurations
        self.layouts = tuple(layouts)
        self.cut = any(cut_by(labels, configurations) for labels in layouts)

    @cached_property
    def outfits(self) -> list[list[Outfit]]:
        """By layout, then index of the type."""
        known = [
            one if wanted and one.resource else None for one, wanted in zip(self._types, self._wanted, strict=True)
        ]
        return [
            [machine(one, labels, None, self._configurations) if one else _NOTHING for one in known]
            for labels in self.layouts
        ]

    @cached_property
    def rows(self) -> Rows:
        """The row of each layout and type in :attr:`untouched`, -1 where it has no devices."""
        numbers = {key: row for row, key in enumerate(self._distinct)}
        found = [[numbers.get(_key(one), -1) for one in of_types] for of_types in self.outfits]
        return np.array(found, np.intp)

    @cached_property
    def untouched(self) -> FreeDevices:
        """The devices of new nodes."""
        return FreeDevices.untouched(list(self._distinct.values()))

    @cached_property
    def _distinct(self) -> dict[tuple[object, ...], Outfit]:
        return {_key(one): one for of_types in self.outfits for one in of_types if one.count}

    @cached_property
    def _parts(self) -> Rows:
        """Into how many parts of one name a device is divided at most, by layout and type."""
        found = [[parts_of(one) for one in of_types] for of_types in self.outfits]
        return np.array(found, np.intp)

    def allowed(self, requirements: Requirements) -> Mask:
        """The layouts (rows) whose labels these requirements allow, with all types (columns)."""
        wanted = [(key, requirements[key]) for key in STATED if key in requirements]
        fit = [all(requirement.has(of.get(key)) for key, requirement in wanted) for of in self.layouts]
        return np.repeat(np.array(fit, np.bool_)[:, np.newaxis], len(self._types), axis=1)

    def most(self, resource: str) -> list[int]:
        """Of each type, the most of a resource that its devices offer in any layout."""
        return [max(one.allocatable.get(resource, 0) for one in of_type) for of_type in zip(*self.outfits, strict=True)]

    def parts(self, layout: int, index: int) -> tuple[int, int] | None:
        """:meth:`FreeDevices.parts` of new nodes of one layout and type."""
        row = int(self.rows[layout, index])
        return self.untouched.parts(row) if row >= 0 else None

    def of(self, devices: FreeDevices, layout: int, index: int) -> FreeDevices | None:
        """Those of one layout and type; None where it has none."""
        row = int(self.rows[layout, index])
        return devices.only(row) if row >= 0 else None

    def held(self, columns: Mapping[str, int], requests: Amounts, choices: Mask) -> FreeDevices:
        """The devices of new nodes on which pods have this many whole ones, of these layouts and types at least."""
        made = self.untouched.copy()
        for row in self.rows_of(choices):
            column = columns.get(made.outfits[row].unit)
            made.hold(row, 0 if column is None else int(requests[column]))
        return made

    def rows_of(self, choices: Mask) -> list[int]:
        """The rows that these layouts and types have."""
        return [row for row in distinct(self.rows[choices]) if row >= 0]

    def joined(
        self, devices: FreeDevices, ask: Ask, amounts: Mapping[str, int], choices: Mask
    ) -> tuple[FreeDevices, Mask]:
        """The devices once one more pod has what it asks of them, and those of the layouts and types that give it. What
        the pod asks for by a name that means a larger part of a device in one layout than in another, such as
        nvidia.com/gpu, is the largest."""
        after = devices.copy()
        given = np.zeros(len(after.outfits) + 1, np.bool_)  # the last is that of types without devices
        given[-1] = not beyond_counting(ask)
        for row in self.rows_of(choices):
            given[row] = after.take(row, ask, amounts)
        choices = choices & given[self.rows]
        if len(choices) > 1 and ask.resource:
            choices &= self._parts == np.where(choices, self._parts, _MOST_PARTS).min(axis=0)
        return after, choices

    def best(self, choices: Sequence[int], index: int, asked: Iterable[str]) -> int:
        """Of these layouts, that in which the type offers the most of what is asked; the first by name of equals."""
        names = tuple(asked)
        return max(choices, key=lambda at: (sum(self.outfits[at][index].allocatable.get(one, 0) for one in names), -at))

    def problems(self, types: Mask) -> list[Problem]:
        """Why layouts cannot be had on these types, each once."""
        found = {
            problem: None
            for labels in self.layouts
            for index in np.flatnonzero(types).tolist()
            for problem in _cut(self._types[index], labels, self._configurations).problems
        }
        return list(found)


def parts_of(of: Outfit) -> int:
    """Into how many parts of the name that counts whole ones or replicas a device is divided at most."""
    return max((cut.offers(of.unit).get(of.unit, 0) for cut in of.cuts), default=1)


def _key(of: Outfit) -> tuple[object, ...]:
    return of.cuts, of.count, of.memory, of.unit
