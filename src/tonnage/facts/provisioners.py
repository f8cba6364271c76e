"""Who makes volumes: which access modes these can have, from where they are reached. ``data/provisioners.csv``."""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct

from tonnage.facts import tables


class VolumeProvisioner(Struct, frozen=True):
    """``modes``: access modes of volumes with a filesystem. ``reach``: the node label whose value a volume shares with
    the nodes that reach it; empty: all do. ``storage``: the row of ``storage.csv`` with its throughput, where known;
    ``classes``: StorageClasses that managed clusters have from the start."""

    name: str
    modes: tuple[str, ...]
    reach: str
    storage: str
    classes: tuple[str, ...]
    source: str


@lru_cache(maxsize=1)
def all() -> dict[str, VolumeProvisioner]:
    """By name."""
    return {
        row["provisioner"]: VolumeProvisioner(
            row["provisioner"],
            tuple(row["modes"].split()),
            row["reach"],
            row["storage"],
            tuple(row["classes"].split()),
            row["source"],
        )
        for row in tables.rows("provisioners.csv")
    }


@lru_cache(maxsize=1)
def of_class() -> dict[str, VolumeProvisioner]:
    """The provisioner of each StorageClass that managed clusters have from the start."""
    return {name: one for one in all().values() for name in one.classes}
