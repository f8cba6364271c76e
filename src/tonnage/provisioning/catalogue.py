"""What can be launched: instance types with their resources and labels, and the offerings (zone, capacity
type, price).

A :class:`Catalogue` is columnar, one column an instance type in order of name, so that questions about many
types are array operations. :class:`Offers` are the offerings that are available at one moment.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tonnage.facts import instances, prices
from tonnage.facts.own_types import VM_MEMORY_OVERHEAD
from tonnage.facts.price_book import DEFAULT_REGION, OWNED, Offering, PriceBook
from tonnage.provisioning import labels
from tonnage.provisioning.nodeclass import NodeStorage
from tonnage.provisioning.requirements import Requirement, Requirements
from tonnage.units import MIB

TypeMask = NDArray[np.bool_]
"""Which instance types, by index in the catalogue."""

Amounts = NDArray[np.int64]
"""Resources in the order of ``Catalogue.resources``; cpu in millicores, memory and ephemeral-storage in
bytes.
"""

EPHEMERAL_STORAGE = "ephemeral-storage"
EFA = "vpc.amazonaws.com/efa"
NODES = "nodes"
NO_OFFER = np.iinfo(np.int64).max
"""Stands in price tables where there is no offering; larger than any price."""


class OfferingKey(NamedTuple):
    """One thing that can be launched: an instance type in a zone as one capacity type (``spot`` or
    ``on-demand``).
    """

    instance_type: str
    zone: str
    capacity_type: str


class Catalogue:
    """Instance types and their offerings. Immutable once made.

    ``names``, ``types``: the instance types, sorted by name. ``resources``: names of the columns of
    ``allocatable`` and ``capacity`` (types × resources). ``pairs``: the (zone, capacity type) pairs, the
    rows of ``prices`` (pairs × types, micro-USD an hour, ``NO_OFFER`` where there is none).
    """

    def __init__(self, types: Iterable[instances.InstanceType], book: PriceBook) -> None:
        self.types = tuple(sorted(types, key=lambda one: one.name))
        self.names = tuple(one.name for one in self.types)
        self.book = book
        self._index = {name: i for i, name in enumerate(self.names)}
        devices = sorted({one.resource for one in self.types if one.resource})
        self.resources = ("cpu", "memory", "pods", EPHEMERAL_STORAGE, EFA, NODES, *devices)
        self.column = {name: i for i, name in enumerate(self.resources)}
        self._selected: dict[Requirement, TypeMask] = {}
        self._stored: dict[NodeStorage, tuple[Amounts, Amounts]] = {}

    # Tables are made when somebody asks: whoever launches no nodes needs none of them.

    @cached_property
    def capacity(self) -> Amounts:
        return self._amounts([_capacity(one) for one in self.types])

    @cached_property
    def allocatable(self) -> Amounts:
        return self._amounts([{**_capacity(one), **_allocatable(one)} for one in self.types])

    @cached_property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        offers = (offer for name in self.names for offer in self._offered(name))
        return tuple(sorted({(offer.zone, offer.capacity_type) for offer in offers}))

    @cached_property
    def prices(self) -> NDArray[np.int64]:
        rows = {pair: row for row, pair in enumerate(self.pairs)}
        table = np.full((len(rows), len(self.types)), NO_OFFER, dtype=np.int64)
        for i, name in enumerate(self.names):
            for offer in self._offered(name):
                table[rows[offer.zone, offer.capacity_type], i] = offer.micro_usd_per_hour
        return table

    @cached_property
    def exotic(self) -> TypeMask:
        """Types that are launched only if nothing plainer is left: with GPU or accelerator, or metal."""
        return np.array([bool(one.resource_count) or "metal" in one.size for one in self.types], dtype=np.bool_)

    @classmethod
    def load(cls, overrides: Path | None = None, region: str = DEFAULT_REGION, *, own_types: bool = False) -> Catalogue:
        """Every known instance type with the bundled prices of a region, or with those of ``overrides`` on top, and the
        types that these describe, where ``own_types`` may be among them."""
        if overrides is None:
            return _bundled(region)
        book = prices.load(overrides, region, own_types=own_types)
        return cls([*instances.all(), *book.own_types], book)

    def index(self, name: str) -> int:
        """Column of the instance type ``name``. Raises :class:`KeyError` when it is not in the catalogue."""
        return self._index[name]

    def amounts(self, resources: dict[str, int]) -> Amounts:
        """A resource map as a row; names that no instance type has are left out (ask :meth:`unknown`)."""
        row: Amounts = self._amounts([resources])[0]
        return row

    def unknown(self, resources: dict[str, int]) -> list[str]:
        """Requested resources that no instance type has."""
        return sorted(name for name, amount in resources.items() if amount > 0 and name not in self.column)

    def as_map(self, amounts: Amounts) -> dict[str, int]:
        """A row as a resource map, without zeros."""
        return {name: int(amount) for name, amount in zip(self.resources, amounts, strict=True) if amount}

    def capacity_of(self, name: str) -> dict[str, int]:
        """The capacity of the instance type ``name`` as a resource map; empty when it is not in the catalogue."""
        at = self._index.get(name)
        return {} if at is None else self.as_map(self.capacity[at])

    def select(self, requirements: Requirements) -> TypeMask:
        """Types whose own labels meet the requirements.

        Zone and capacity type belong to offerings: see :class:`Offers`. A label of which the facts say nothing,
        and one of the user's, does not narrow the choice.
        """
        mask = np.ones(len(self.types), dtype=np.bool_)
        for key, requirement in requirements.items():
            if key in _CARRIED:
                mask &= self._select_one(requirement)
        return mask

    def values(self, key: str, types: TypeMask) -> set[str]:
        """The different values that the label ``key`` has among these types or, for zone and capacity type,
        their offerings.
        """
        if key in _CARRIED:
            listed, number = self._labels[_CARRIED[key]]
            return {value for value in map(listed.__getitem__, set(number[types].tolist())) if value is not None}
        position = {labels.ZONE: 0, labels.CAPACITY_TYPE: 1}.get(key)
        if position is None:
            return set()
        offered = ((self.prices != NO_OFFER) & types).any(axis=1)
        return {pair[position] for pair, there in zip(self.pairs, offered, strict=True) if there}

    def forget(self) -> None:
        """Nothing that was worked out of it before counts any more."""
        self._selected, self._stored = {}, {}

    def with_storage(self, storage: NodeStorage) -> tuple[Amounts, Amounts]:
        """Capacity and allocatable with ephemeral-storage filled in, to be changed by nobody."""
        known = self._stored.get(storage)
        if known is None:
            capacity, allocatable = self.capacity.copy(), self.allocatable.copy()
            column = self.column[EPHEMERAL_STORAGE]
            capacity[:, column] = [storage.capacity_bytes(one) for one in self.types]
            allocatable[:, column] = [storage.allocatable_bytes(one) for one in self.types]
            capacity.flags.writeable = allocatable.flags.writeable = False
            known = self._stored[storage] = capacity, allocatable
        return known

    def available(self, unavailable: Collection[OfferingKey] = ()) -> Offers:
        """The offerings without those that are known to be out of stock."""
        table = self.prices
        if unavailable:
            table = table.copy()
            rows = {pair: i for i, pair in enumerate(self.pairs)}
            for key in unavailable:
                row = rows.get((key.zone, key.capacity_type))
                if row is not None and key.instance_type in self._index:
                    table[row, self._index[key.instance_type]] = NO_OFFER
        return Offers(self, table)

    @cached_property
    def _labels(self) -> dict[str, tuple[list[str | None], NDArray[np.int32]]]:
        """Of each label its different values, None where a type has none, and by type the index of its value there."""
        own_labels = [one.labels() for one in self.types]
        found: dict[str, tuple[list[str | None], NDArray[np.int32]]] = {}
        for key in sorted(set(_CARRIED.values())):
            index: dict[str | None, int] = {}
            numbers = [index.setdefault(own.get(key), len(index)) for own in own_labels]
            found[key] = list(index), np.array(numbers, np.int32)
        return found

    def _select_one(self, requirement: Requirement) -> TypeMask:
        mask = self._selected.get(requirement)
        if mask is None:
            values, number = self._labels[_CARRIED[requirement.key]]
            mask = np.array([requirement.has(value) for value in values], dtype=np.bool_)[number]
            self._selected[requirement] = mask
        return mask

    def _amounts(self, rows: list[dict[str, int]]) -> Amounts:
        table = np.zeros((len(rows), len(self.resources)), dtype=np.int64)
        for i, row in enumerate(rows):
            for name, amount in row.items():
                if name in self.column:
                    table[i, self.column[name]] = amount
        return table

    def _offered(self, name: str) -> Iterator[Offering]:
        """What of a type can be launched: no machines that one owns."""
        return (offer for offer in self.book.offerings(name) if offer.capacity_type != OWNED)


class Offers:
    """Offerings that can be launched now: ``prices`` as in :class:`Catalogue`."""

    def __init__(self, catalogue: Catalogue, table: NDArray[np.int64], selected: frozenset[str] = frozenset()) -> None:
        """``selected``: the capacity reservations whose offerings are among them."""
        self.catalogue = catalogue
        self.prices = table
        self.selected = selected
        self._rows: dict[tuple[Requirement | None, ...], tuple[int, ...]] = {}
        self._open: dict[tuple[int, ...], TypeMask] = {(): np.zeros(len(catalogue.types), dtype=np.bool_)}

    def rows(self, requirements: Requirements) -> tuple[int, ...]:
        """Rows of ``prices`` whose zone and capacity type the requirements allow.

        Which capacity reservation or placement group an offering comes from is not told apart, and zone ids are not
        known, so a requirement for one of those labels leaves no row.
        """
        asked = tuple(map(requirements.get, _SAYS_OFFERING))
        known = self._rows.get(asked)
        if known is None:
            known = self._rows[asked] = self._allowed(requirements)
        return known

    def _allowed(self, requirements: Requirements) -> tuple[int, ...]:
        if any(key in requirements and not requirements[key].absent for key in _OFFERING_ONLY):
            return ()
        return tuple(
            row
            for row, (zone, capacity_type) in enumerate(self.catalogue.pairs)
            if requirements.allows(labels.ZONE, zone)
            and requirements.allows(labels.CAPACITY_TYPE, capacity_type)
            and requirements.allows(labels.REGION, instances.region_of(zone))
        )

    def open_to(self, requirements: Requirements) -> TypeMask:
        """Types with at least one offering that the requirements allow."""
        rows = self.rows(requirements)
        if rows not in self._open:
            self._open[rows] = (self.prices[list(rows)] != NO_OFFER).any(axis=0)
        return self._open[rows]


_UNTOLD = frozenset(
    labels.OF_TYPE + name for name in ("encryption-in-transit-supported", "cpu-sustained-clock-speed-mhz")
)
"""Labels of instance types that our facts say nothing of, so that no type is ruled out by them."""

_TOLD = labels.of_instance_type() - _UNTOLD
_CARRIED = {**{key: key for key in _TOLD}, **{labels.auto_mode(key): key for key in _TOLD}}
"""Labels that types have, by what a requirement may call them: EKS Auto Mode has names of its own."""

_OFFERING_ONLY = labels.of_offering() - {labels.ZONE, labels.CAPACITY_TYPE}
_SAYS_OFFERING = (labels.ZONE, labels.CAPACITY_TYPE, labels.REGION, *sorted(_OFFERING_ONLY))


def _capacity(one: instances.InstanceType) -> dict[str, int]:
    """Whole capacity as Karpenter charges it against limits: memory less the hypervisor's share, in whole
    MiB.
    """
    memory_mib = one.memory_mib - math.ceil(one.memory_mib * VM_MEMORY_OVERHEAD)
    found = {
        "cpu": one.vcpu * 1000,
        "memory": memory_mib * MIB,
        "pods": one.max_pods,
        EFA: one.efa,
        NODES: 1,
    }
    if one.resource:
        found[one.resource] = one.resource_count
    return found


def _allocatable(one: instances.InstanceType) -> dict[str, int]:
    return {"cpu": one.allocatable_cpu_milli, "memory": one.allocatable_memory_mib * MIB}


@cache
def _bundled(region: str) -> Catalogue:
    return Catalogue(instances.all(), prices.load(None, region))
