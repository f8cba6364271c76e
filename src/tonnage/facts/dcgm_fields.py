"""Which reading of a GPU stands behind each of dcgm-exporter's metrics. Table: ``data/dcgm_fields.csv``.

Type, unit and range of a metric are in :mod:`tonnage.facts.metric_names`."""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct

from tonnage.facts import tables

INSTANCE, CARD, NONE = MIG = ("instance", "card", "none")
"""What a MIG instance has of a field: its own value, that of the whole card, or none, as DCGM has it."""


class DcgmField(Struct, frozen=True):
    """One field. ``value``: what is read, a field of :class:`tonnage.node.devices.Measured`, or ``rows.…``,
    ``errors.…``, ``health.…``, ``driver.…`` with a field of those. ``mig``: one of :data:`MIG`. ``help``: what it says.
    ``absent``: why Tonnage does not serve it; empty: it does."""

    name: str
    value: str
    mig: str
    help: str
    absent: str
    source: str


@lru_cache(maxsize=1)
def all() -> dict[str, DcgmField]:
    """Every field by name."""
    return {
        row["name"]: DcgmField(row["name"], row["value"], row["mig"], row["help"], row["absent"], row["source"])
        for row in tables.rows("dcgm_fields.csv")
    }
