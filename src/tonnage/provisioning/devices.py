"""The devices of nodes that are planned, on their way or there, and what pods would take of them.

Nothing is worked out here: which device gives a piece, and what is left of it, is the fleet's to say
(:mod:`tonnage.fleet.search`, :mod:`tonnage.fleet.cards`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tonnage.facts import gpus, instances, mig_devices
from tonnage.fleet import search
from tonnage.fleet.asks import FULL, GPU, Ask, Kind
from tonnage.fleet.cards import NO_DEVICE, SHARED_DEVICE, Cards
from tonnage.fleet.geometry import MIG_PREFIX, geometry
from tonnage.fleet.holding import unit
from tonnage.fleet.outfit import MEMORY_LABEL, REPLICAS_LABEL, Outfit, outfit
from tonnage.fleet.rows import NodeRow, NodeSpec
from tonnage.fleet.state import Fleet

Mask = NDArray[np.bool_]
Rows = NDArray[np.intp]
Amounts = NDArray[np.int64]

CONFIG_LABEL = "nvidia.com/mig.config"
MIG_STRATEGY_LABEL = "nvidia.com/mig.strategy"
ALL = "all-"
"""Begins the name of a configuration of mig-parted that makes as many instances of one profile as a card holds."""
_UNNUMBERED = -1
_SOMEBODY = 0
"""In place of the pod that holds a device: which one it is does not matter here."""


def cut_by(labels: Mapping[str, str]) -> bool:
    """Whether nodes with these labels offer their devices in replicas or in MIG instances (strategy ``mixed``)."""
    config = labels.get(CONFIG_LABEL, "")
    mixed = labels.get(MIG_STRATEGY_LABEL) == "mixed"
    return REPLICAS_LABEL in labels or (mixed and config.startswith(ALL) and config != f"{ALL}disabled")


def machine(
    of: instances.InstanceType, labels: Mapping[str, str], allocatable: Mapping[str, int] | None = None
) -> Outfit:
    """The devices of a node of this type, with what they offer in its allocatable: as these labels say, else whole.

    ``allocatable``: what the node will have, where that is known already."""
    offers = _offers(of, labels) if allocatable is None else allocatable
    stated = {MEMORY_LABEL: str(_memory(of)), **labels}
    spec = NodeSpec(of.name, offers, stated, instance_type=of.name, gpu=of.gpu, device_resource=of.resource)
    return outfit(NodeRow(spec, stated, (), set()), offers)


def _memory(of: instances.InstanceType) -> int:
    """MiB of one GPU: the least that the cloud, the driver and the GPU's own entry state, which every node has."""
    drivers = mig_devices.label_memory().get(of.gpu, of.gpu_memory_mib)
    own = gpus.get(of.gpu).memory_mib if of.gpu else of.gpu_memory_mib
    return min(of.gpu_memory_mib, drivers, own)


def _offers(of: instances.InstanceType, labels: Mapping[str, str]) -> dict[str, int]:
    if of.resource != GPU or not cut_by(labels):
        return {of.resource: of.resource_count} if of.resource else {}
    replicas = labels.get(REPLICAS_LABEL, "")
    if replicas.isascii() and replicas.isdigit() and len(replicas) < 4:
        return {GPU: of.resource_count * max(1, int(replicas))}
    resource = MIG_PREFIX + labels.get(CONFIG_LABEL, "").removeprefix(ALL)
    how = geometry(of.gpu)
    each = how.capacity(0).get(resource, 0) if how else 0
    if how is None:
        return {GPU: of.resource_count}
    return {resource: each * of.resource_count} if each else {}


@dataclass(frozen=True, slots=True, eq=False)
class Devices:
    """What is free of the devices of some kinds of nodes: ``outfits``, one row of ``cards`` each."""

    outfits: tuple[Outfit, ...]
    cards: Cards

    @classmethod
    def untouched(cls, outfits: Sequence[Outfit]) -> Devices:
        """Of nodes without pods."""
        cards = Cards(len(outfits), max((one.count for one in outfits), default=0))
        for row, one in enumerate(outfits):
            cards.lay(row, one.cuts, one.count, one.memory, _UNNUMBERED)
        return cls(tuple(outfits), cards)

    @classmethod
    def of_node(cls, fleet: Fleet, row: int) -> Devices:
        """Of a node that is there, as they are now."""
        cards, node = fleet.cards.select([row]), fleet.node(row)
        count, memory = int((cards.holder[0] != NO_DEVICE).sum()), int(cards.memory[0])
        return cls((Outfit(node.cuts, count, memory, unit(fleet, row), fleet.allocatable_of(row)),), cards)

    def only(self, row: int) -> Devices:
        """A copy of one row."""
        return Devices((self.outfits[row],), self.cards.select([row]))

    def copy(self) -> Devices:
        """Another to go on with."""
        return Devices(self.outfits, self.cards.select(range(len(self.outfits))))

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
        if ask.shares and ask.resource != of.unit:
            return False
        if any(n > of.allocatable.get(name, 0) for name, n in ask.profiles):
            return False
        count = amounts.get(of.unit, 0) if of.unit else 0
        chosen, missing = search.choose(self.cards, row, ask, count)
        if not missing:
            self.cards.take(row, chosen, of.unit, _SOMEBODY)
        return not missing


def coming(
    instance_type: str, labels: Mapping[str, str], allocatable: Mapping[str, int], held: Mapping[str, int]
) -> Devices | None:
    """The devices of a node on its way that will have ``allocatable``, of which ``held`` are taken whole; None where
    nothing is known of its type."""
    if not instances.known(instance_type):
        return None
    made = Devices.untouched([machine(instances.get(instance_type), labels, allocatable)])
    made.hold(0, held.get(made.outfits[0].unit, 0))
    return made


class Machines:
    """The devices that new nodes of one NodePool would have, by instance type; types with equal ones share a row.

    ``labels``: those of the NodePool. ``cut``: whether they say that devices are cut."""

    def __init__(self, types: Sequence[instances.InstanceType], labels: Mapping[str, str]) -> None:
        self._types, self._labels = types, labels
        self.cut = cut_by(labels)

    @cached_property
    def outfits(self) -> list[Outfit]:
        """By index of the type."""
        return [machine(one, self._labels) for one in self._types]

    @cached_property
    def rows(self) -> Rows:
        """The row of each type in :attr:`untouched`, -1 where it has no devices."""
        numbers = {key: row for row, key in enumerate(self._distinct)}
        return np.array([numbers.get(_key(one), -1) for one in self.outfits], np.intp)

    @cached_property
    def untouched(self) -> Devices:
        """The devices of new nodes."""
        return Devices.untouched(list(self._distinct.values()))

    @cached_property
    def _distinct(self) -> dict[tuple[object, ...], Outfit]:
        return {_key(one): one for one in self.outfits if one.count}

    def of(self, devices: Devices, index: int) -> Devices | None:
        """Those of one type; None where it has none."""
        row = int(self.rows[index])
        return devices.only(row) if row >= 0 else None

    def held(self, columns: Mapping[str, int], requests: Amounts, types: Mask) -> Devices:
        """The devices of new nodes on which pods have so many whole ones, of these types at least."""
        made = self.untouched.copy()
        for row in self.rows_of(types):
            column = columns.get(made.outfits[row].unit)
            made.hold(row, 0 if column is None else int(requests[column]))
        return made

    def rows_of(self, types: Mask) -> list[int]:
        """The rows that these types have."""
        return sorted({row for row in self.rows[types].tolist() if row >= 0})

    def joined(self, devices: Devices, ask: Ask, amounts: Mapping[str, int], types: Mask) -> tuple[Devices, Mask]:
        """The devices once one more pod has what it asks of them, and those of the types that give it."""
        after = devices.copy()
        given = np.zeros(len(after.outfits) + 1, np.bool_)  # the last is that of types without devices
        given[-1] = not (ask.shares or ask.profiles)
        for row in self.rows_of(types):
            given[row] = after.take(row, ask, amounts)
        return after, types & given[self.rows]


def _key(of: Outfit) -> tuple[object, ...]:
    return of.cuts, of.count, of.memory, of.unit
