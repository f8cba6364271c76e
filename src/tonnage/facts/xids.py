"""Xids, NVIDIA's numbers of GPU errors: what each means for the GPU, and what is to be done.

Tables: ``data/xids.csv`` (NVIDIA's catalogue for Ampere and newer), ``data/gpu_actions.csv``,
``data/gpu_recovery_actions.csv``.
"""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct

from tonnage.facts import tables

VERSION = "2026-08"
"""Of NVIDIA's catalogue; it changes between driver releases."""

COUNT, APPLICATION, FAULT, DECODED = EFFECTS = ("count", "application", "fault", "decoded")
"""What an Xid does to its GPU: nothing; nothing, but the process that met it ends; it takes the GPU out of service; it
does so unless the driver says that no recovery is needed."""


class Action(Struct, frozen=True):
    """What is to be done. ``rank``: of several the highest holds. ``target``: what it is done to: none, process, gpu,
    node or person, who has to look. ``drain``: whether the pods on the GPU have to go first. ``help``: in words."""

    name: str
    rank: int
    target: str
    drain: bool
    help: str
    source: str


class Xid(Struct, frozen=True):
    """One Xid. ``effect``: one of :data:`EFFECTS`. ``action``: NVIDIA's immediate action, a name of :func:`actions`;
    empty where the catalogue has none. ``scope``: ``gpu``, with every MIG device and replica of it, or ``process``.
    ``clears``: Xids whose end it reports. ``device_plugin``: what NVIDIA's device plugin does: ``ignored``, or
    ``unhealthy`` until it is restarted."""

    xid: int
    name: str
    action: str
    effect: str
    scope: str
    clears: tuple[int, ...]
    device_plugin: str
    source: str


def get(xid: int) -> Xid:
    """The Xid with this number. One that the catalogue does not have is a fault for which to contact support, as
    NVIDIA says of unused numbers; what the driver says of recovery ends it like any other."""
    found = all().get(xid)
    if found is not None:
        return found
    source = "not in the catalogue"
    return Xid(xid, "Unknown Xid", "CONTACT_SUPPORT", FAULT, "gpu", (), "unhealthy", source)


@lru_cache(maxsize=1)
def all() -> dict[int, Xid]:
    """Every Xid of the catalogue by number."""
    return {
        int(row["xid"]): Xid(
            int(row["xid"]),
            row["name"],
            row["action"],
            row["effect"],
            row["scope"],
            tuple(map(int, row["clears"].split())),
            row["device_plugin"],
            row["source"],
        )
        for row in tables.rows("xids.csv")
    }


@lru_cache(maxsize=1)
def actions() -> dict[str, Action]:
    """Every action by name."""
    return {
        row["action"]: Action(
            row["action"], int(row["rank"]), row["target"], row["drain"] == "true", row["help"], row["source"]
        )
        for row in tables.rows("gpu_actions.csv")
    }


@lru_cache(maxsize=1)
def recovery_actions() -> dict[int, str]:
    """By value of NVML's field 230, the action that the driver asks for; empty: none. Values that are not in the
    table are newer than it, and ask for support."""
    return {int(row["value"]): row["action"] for row in tables.rows("gpu_recovery_actions.csv")}
