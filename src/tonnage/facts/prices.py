"""Prices of instance types: dated, by region and zone, on-demand and spot; and how on-demand prices changed.

Tables: ``data/on_demand_prices.csv``, ``data/spot_prices.csv``, ``data/on_demand_price_history.csv``,
``data/zones.csv``. A person's own prices go on top: see :func:`load`.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from tonnage.errors import InputError
from tonnage.facts import instances, price_overrides, tables
from tonnage.facts.price_book import DEFAULT_REGION, ON_DEMAND, OWNED, SPOT, Offering, PriceBook, book, default_zones
from tonnage.units import micro_usd

__all__ = [
    "DEFAULT_REGION",
    "ON_DEMAND",
    "OWNED",
    "SPOT",
    "Offering",
    "PriceBook",
    "PriceChange",
    "default_zones",
    "load",
    "on_demand_history",
    "regions",
]


class PriceChange(Struct, frozen=True):
    """A change of an on-demand price, first seen on the day ``seen_on``; None is "no price", as at first."""

    seen_on: str
    old_micro_usd_per_hour: int | None
    new_micro_usd_per_hour: int | None
    region: str
    source: str


def load(overrides: Path | None = None, region: str = DEFAULT_REGION, *, own_types: bool = False) -> PriceBook:
    """The bundled prices of a region (:func:`regions`), with those of the CSV or YAML file ``overrides`` on top. Of a
    region without bundled prices: those of the file alone, which has to name zones of that region.

    On-demand offerings exist in the zones where the type is known to be sold, else in the default zones of
    ``data/zones.csv``. A type without a known spot price has no spot offering. ``own_types``: whether the file may
    describe instance types that are not known here. Raises
    :class:`~tonnage.errors.InputError` for an override that cannot be used.
    """
    if region not in regions() and overrides is None:
        hint = f"there are prices of {', '.join(regions())}; give this region's prices in a file"
        raise InputError.at(f"no prices of the region {region!r} are known", field="region", hint=hint)
    bundled = _bundled(region if region in regions() else DEFAULT_REGION)
    if overrides is None:
        return bundled
    found = price_overrides.apply(bundled, overrides)
    if found.own_types and not own_types:
        first = found.own_types[0]
        hint = "tonnage plan takes instance types of your own; here the rows of EC2's alone are of use"
        message = f"{first.name} is no type of EC2 that is known here ({first.source})"
        raise InputError.at(message, file=str(overrides), field="instance_type", hint=hint)
    return found


@lru_cache(maxsize=1)
def regions() -> tuple[str, ...]:
    """Regions of which on-demand prices are bundled, sorted."""
    return tuple(sorted({instances.region_of(row["zone"]) for row in tables.rows("zones.csv")}))


def on_demand_history(instance_type: str) -> tuple[PriceChange, ...]:
    """Changes of the type's on-demand price, oldest first; empty if none was recorded.

    Recorded for accelerator types only. Raises :class:`~tonnage.errors.InputError` for an unknown type.
    """
    found = _history().get(instance_type, ())
    if not found:
        instances.get(instance_type)
    return found


@lru_cache(maxsize=8)
def _bundled(region: str) -> PriceBook:
    zone_of = {row["zone_id"]: row["zone"] for row in tables.rows("zones.csv")}
    every = tables.rows("spot_prices.csv")
    spot_rows = [row for row in every if instances.region_of(zone_of[row["zone_id"]]) == region]
    zones: dict[str, list[str]] = {}
    for row in spot_rows:
        zones.setdefault(row["instance_type"], []).append(zone_of[row["zone_id"]])
    found: list[tuple[str, Offering]] = []
    as_of = ""
    for row in tables.rows("on_demand_prices.csv"):
        if row["region"] != region:
            continue
        as_of = max(as_of, row["as_of"])
        name, price = row["instance_type"], micro_usd(float(row["usd_per_hour"]))
        for zone in zones.get(name, default_zones(region)):
            found.append((name, Offering(zone, ON_DEMAND, price, row["as_of"], row["region"], row["source"])))
    for row in spot_rows:
        if row["usd_per_hour"]:
            zone, price = zone_of[row["zone_id"]], micro_usd(float(row["usd_per_hour"]))
            offer = Offering(zone, SPOT, price, row["as_of"], instances.region_of(zone), row["source"])
            found.append((row["instance_type"], offer))
    return book(as_of, region, found)


@lru_cache(maxsize=1)
def _history() -> dict[str, tuple[PriceChange, ...]]:
    changes: dict[str, list[PriceChange]] = {}
    for row in tables.rows("on_demand_price_history.csv"):
        old, new = row["old_usd_per_hour"], row["new_usd_per_hour"]
        change = PriceChange(
            seen_on=row["seen_on"],
            old_micro_usd_per_hour=micro_usd(float(old)) if old else None,
            new_micro_usd_per_hour=micro_usd(float(new)) if new else None,
            region=row["region"],
            source=row["source"],
        )
        changes.setdefault(row["instance_type"], []).append(change)
    return {name: tuple(sorted(found, key=lambda change: change.seen_on)) for name, found in changes.items()}
