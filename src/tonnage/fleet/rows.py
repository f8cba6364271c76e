"""The rows of the fleet: what a node and a pod are when they arrive, and what changes about them later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypedDict

import msgspec

from tonnage.decisions import Ref
from tonnage.facts.labels import HOSTNAME
from tonnage.fleet.claim_needs import UNKNOWN_CLAIMS, ClaimNeed
from tonnage.fleet.devices import Cut, Piece
from tonnage.fleet.features import KUBELET
from tonnage.fleet.volumes import UNKNOWN, VolumeNeed
from tonnage.objects import core


def split_key(key: str) -> tuple[str, str]:
    """(namespace, name) of a key, namespace/name."""
    namespace, _, name = key.partition("/")
    return namespace, name


class Conflict(Exception):
    """A change whose precondition does not hold; says which. The fleet is as it was before."""


@dataclass(frozen=True, slots=True)
class FleetNode:
    """A node as it joins. ``allocatable``: cpu in millicores, memory in bytes, everything else in units.

    ``provider_id``: how its cloud names the machine, empty where not known. ``cuts``: how each device is partitioned;
    empty: as its labels say, else none is. Devices are there when ``allocatable`` has what they offer. ``features``: of
    the pod API, those that its kubelet declares (``status.declaredFeatures``), by name. ``named``: it has the label of
    its host name, whether or not ``labels`` say so. ``splits``: a device plugin that gives out memory and cores of its
    GPUs says so in the node's annotations.
    """

    name: str
    allocatable: Mapping[str, int]
    labels: Mapping[str, str]
    taints: tuple[core.Taint, ...] = ()
    uid: str = ""
    instance_type: str = ""
    gpu: str = ""
    device_resource: str = ""
    node_pool: str = ""
    capacity_type: str = ""
    zone: str = ""
    price_micro_usd_per_hour: int = 0
    created_ns: int = 0
    provider_id: str = ""
    cuts: tuple[Cut, ...] = ()
    features: tuple[str, ...] = KUBELET
    named: bool = True
    splits: bool = False

    def labelled(self, labels: Mapping[str, str] | None = None) -> dict[str, str]:
        """All labels of the node when these are its own (None: those that it joined with)."""
        own = self.labels if labels is None else labels
        return {HOSTNAME: self.name, **own} if self.named else dict(own)


@dataclass(slots=True)
class NodeRow:
    """The columns of a node that are not numbers. ``pods``: rows of the pods bound to it.

    ``bare``: it takes no pods, and no taint says so. ``shut``: why it takes no pods, nor ever will, although it is not
    cordoned; empty: nothing. ``leaving``: it is terminating. ``returning``: it is marked for termination;
    ``unfinished``: and nothing more has been done about it yet. ``scale_down_disabled``: the Cluster Autoscaler is to
    leave it. ``cuts``: how its devices are partitioned now; empty:
    none is. ``ailing_ns``: since when its condition says that a GPU of it is unhealthy; None: all are healthy.
    """

    spec: FleetNode
    labels: dict[str, str]
    taints: tuple[core.Taint, ...]
    pods: set[int]
    last_pod_event_ns: int = 0
    initialized: bool = False
    leaving: bool = False
    returning: bool = False
    unfinished: bool = False
    do_not_disrupt: bool = False
    scale_down_disabled: bool = False
    cuts: tuple[Cut, ...] = ()
    shut: str = ""
    bare: bool = False
    ailing_ns: int | None = None


class NodeFacts(TypedDict, total=False):
    """What of a NodeRow says what the node is going through."""

    last_pod_event_ns: int
    initialized: bool
    leaving: bool
    returning: bool
    unfinished: bool
    do_not_disrupt: bool
    scale_down_disabled: bool
    shut: str
    bare: bool
    ailing_ns: int | None


@dataclass(frozen=True, slots=True)
class FleetPod:
    """A pod as it is created. ``owner``: namespace/name of its workload. ``priority``: as admission resolved it.

    ``daemon``: it belongs to its node (a DaemonSet's, a static pod) and does not keep the node from being returned.
    ``gang``, ``subgroup``: the gang that it is bound with, and its part of it; empty: none. ``volumes``: what the
    volumes that it claims ask of its node; ``claims``: what its ResourceClaims ask. ``leaving``: it is being deleted.
    """

    namespace: str
    name: str
    uid: str
    labels: dict[str, str]
    spec: core.PodSpec
    owner: str = ""
    priority: int = 0
    created_ns: int = 0
    daemon: bool = False
    annotations: Mapping[str, str] = field(default_factory=dict)
    gang: str = ""
    subgroup: str = ""
    volumes: VolumeNeed = UNKNOWN
    claims: ClaimNeed = UNKNOWN_CLAIMS
    leaving: bool = False

    @property
    def ref(self) -> Ref:
        """Names the pod."""
        return Ref("Pod", self.name, self.namespace, self.uid)


class PodRow(msgspec.Struct, gc=False):
    """The columns of a pod. ``node``: row of the node it is bound to, -1 while it is pending.

    ``devices``: the devices that it is on; ``pieces``: what it holds of those that it does not hold whole."""

    spec: FleetPod
    class_id: int
    node: int = -1
    devices: tuple[int, ...] = ()
    pieces: tuple[Piece, ...] = ()

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.spec.namespace}/{self.spec.name}"
