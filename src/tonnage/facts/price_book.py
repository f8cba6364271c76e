"""A price book: what is for sale in which zone, and for how much."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from msgspec import Struct

from tonnage.facts import instances, ownership, tables

DEFAULT_REGION = "us-east-1"


ON_DEMAND = "on-demand"


SPOT = "spot"


OWNED = "owned"
"""Capacity that one has bought: it has a price, and nobody can launch more of it."""


RESERVED = "reserved"
"""Capacity of a reservation: so many machines, which are paid for whether they run or not."""


CAPACITY_TYPES = (ON_DEMAND, SPOT, OWNED, RESERVED)


class Offering(Struct, frozen=True, order=True):
    """An instance type for sale in one zone. ``as_of`` is the price's date (ISO 8601), empty if not known."""

    zone: str
    capacity_type: str
    micro_usd_per_hour: int
    as_of: str
    region: str
    source: str


class Reservation(Struct, frozen=True, order=True):
    """A capacity reservation of EC2: ``count`` instances of one type in one zone. ``ends_ns``: when a capacity block
    ends, nanoseconds since the Unix epoch; None: it is an on-demand capacity reservation. ``tags``, ``owner`` (an
    account's id) and ``match`` (open or targeted) are what EC2NodeClasses select by; empty where not said."""

    id: str
    instance_type: str
    zone: str
    count: int
    ends_ns: int | None
    source: str
    tags: tuple[tuple[str, str], ...] = ()
    owner: str = ""
    match: str = ""


class PriceBook(Struct, frozen=True):
    """Every known offering. ``as_of`` and ``region`` are those of the on-demand price list (``as_of`` is empty
    where prices of one's own replace it and have no date). ``reservations`` have no
    price: they are paid for in any case. ``own_types``: instance types that only these prices know."""

    as_of: str
    region: str
    by_type: Mapping[str, tuple[Offering, ...]]
    reservations: tuple[Reservation, ...] = ()
    own_types: tuple[instances.InstanceType, ...] = ()

    def type_of(self, name: str) -> instances.InstanceType:
        """The instance type of this name. Raises :class:`~tonnage.errors.InputError` if there is none."""
        return next((one for one in self.own_types if one.name == name), None) or instances.get(name)

    def offerings(self, instance_type: str) -> tuple[Offering, ...]:
        """The type's offerings, sorted by zone and capacity type; none if it has no known price.

        Raises :class:`~tonnage.errors.InputError` if there is no such instance type.
        """
        found = self.by_type.get(instance_type)
        if found is None:
            self.type_of(instance_type)
            return ()
        return found

    def price(self, instance_type: str, zone: str, capacity_type: str) -> int:
        """Micro-dollars an hour of exactly this; 0 where it is not known, the type among it."""
        found = self.by_type.get(instance_type, ())
        same = (o.micro_usd_per_hour for o in found if (o.zone, o.capacity_type) == (zone, capacity_type))
        return next(same, 0)

    def on_demand(self, instance_type: str) -> int | None:
        """The lowest on-demand price of any zone, in micro-USD an hour; None if there is none."""
        return self._lowest(instance_type, ON_DEMAND)

    def spot(self, instance_type: str, zone: str = "") -> int | None:
        """The spot price in ``zone``, or the lowest of any zone; micro-USD an hour, None if there is none."""
        return self._lowest(instance_type, SPOT, zone)

    def owned(self, instance_type: str, zone: str = "") -> int | None:
        """What an hour costs of a machine like this that one owns, in micro-USD: the price book's row, else the price
        of its GPUs over their life, with what is around them and their energy (:mod:`tonnage.facts.ownership`). None
        where neither is known."""
        found = self._lowest(instance_type, OWNED, zone)
        return ownership.machine_micro_usd(self.type_of(instance_type)) if found is None else found

    def covers(self, zone: str) -> bool:
        """Whether the prices are those of the zone's region; an empty zone is taken to be in it."""
        return zone == "" or instances.region_of(zone) == self.region

    def _lowest(self, instance_type: str, capacity_type: str, zone: str = "") -> int | None:
        found = (
            offer.micro_usd_per_hour
            for offer in self.offerings(instance_type)
            if offer.capacity_type == capacity_type and zone in ("", offer.zone)
        )
        return min(found, default=None)


@lru_cache(maxsize=8)
def default_zones(region: str = DEFAULT_REGION) -> tuple[str, ...]:
    """Zones of a region in which a type is taken to be sold when its zones are not known, sorted."""
    every = (row["zone"] for row in tables.rows("zones.csv") if row["default"])
    return tuple(sorted(zone for zone in every if instances.region_of(zone) == region))


def book(
    as_of: str,
    region: str,
    offerings: Iterable[tuple[str, Offering]],
    reservations: Iterable[Reservation] = (),
    own_types: Iterable[instances.InstanceType] = (),
) -> PriceBook:
    """A price book of (instance type, offering) pairs."""
    by_type: dict[str, list[Offering]] = {}
    for name, offer in offerings:
        by_type.setdefault(name, []).append(offer)
    sold = {name: tuple(sorted(found)) for name, found in sorted(by_type.items())}
    types = tuple(sorted(own_types, key=lambda one: one.name))
    return PriceBook(as_of, region, sold, tuple(sorted(reservations)), types)
