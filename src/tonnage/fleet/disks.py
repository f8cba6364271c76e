"""Disks that pods name themselves, without a claim, and that two pods on one node may not mount both.

Source: kubernetes/kubernetes v1.36 pkg/scheduler/framework/plugins/volumerestrictions (isVolumeConflict).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tonnage.objects import core


class Disk(NamedTuple):
    """A volume of a kind of which one pod a node has the say. ``name``: what is the same of two that are one;
    ``monitors``: of a Ceph cluster, of which one in common is enough."""

    kind: str
    name: str
    read_only: bool = False
    monitors: tuple[str, ...] = ()

    def meets(self, other: Disk) -> bool:
        """Whether both cannot be mounted on one node."""
        same = (self.kind, self.name) == (other.kind, other.name)
        if not same or (self.read_only and other.read_only):
            return False
        return not self.monitors or not set(self.monitors).isdisjoint(other.monitors)


def inline_disks(spec: core.PodSpec) -> tuple[Disk, ...]:
    """The disks that the pod names: of Google, of AWS, iSCSI, Ceph RBD."""
    if not spec.volumes:
        return ()
    return tuple(sorted({disk for volume in spec.volumes for disk in _disks(volume)}))


def _disks(volume: Mapping[str, Any]) -> Iterable[Disk]:
    for kind, names in _KINDS.items():
        written = volume.get(kind)
        if not isinstance(written, dict):
            continue
        name = "/".join(str(written.get(part) or default) for part, default in names.items())
        monitors = written.get("monitors") if kind == "rbd" else None
        yield Disk(
            kind,
            name,
            kind != "awsElasticBlockStore" and written.get("readOnly") is True,
            tuple(sorted(map(str, monitors))) if isinstance(monitors, list) else (),
        )


_KINDS: Mapping[str, Mapping[str, str]] = {
    "awsElasticBlockStore": {"volumeID": ""},
    "gcePersistentDisk": {"pdName": ""},
    "iscsi": {"iqn": ""},
    "rbd": {"pool": "rbd", "image": ""},
}
"""Of each kind, the parts of its name, with what they are where nothing is said."""


def in_each_others_way(mine: Iterable[Disk], others: Iterable[Disk]) -> bool:
    """Whether pods with these disks cannot stand on one node."""
    theirs = tuple(others)
    return any(disk.meets(other) for disk in mine for other in theirs)
