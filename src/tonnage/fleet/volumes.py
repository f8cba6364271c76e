"""What the volumes of a pod ask of its node."""

from __future__ import annotations

from dataclasses import dataclass

from tonnage.objects import core


@dataclass(frozen=True, slots=True)
class Reach:
    """Nodes from which a volume can be reached. ``why``: what kube-scheduler says of the others."""

    why: str
    nodes: core.NodeSelector


@dataclass(frozen=True, slots=True)
class VolumeNeed:
    """``waits``: why no node takes the pod while its claims are as they are, in kube-scheduler's words; empty where one
    may. ``reach``: all of these have to hold of its node. ``alone``: claims (namespace/name) that one pod uses at a
    time (ReadWriteOncePod)."""

    waits: str = ""
    reach: tuple[Reach, ...] = ()
    alone: tuple[str, ...] = ()


NO_VOLUMES = VolumeNeed()
