"""Which pods use which devices, from what the kubelet lists: whole GPUs, MIG devices, replicas, renamed resources, DRA.

Devices are known by their ids, whatever the resource is called, so a renamed resource needs no setting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tonnage.dra.nvidia import DRIVER, gpu_name, mig_name
from tonnage.facts.labels import NVIDIA
from tonnage.node.devices import Devices

REPLICA = "::"
"""Between the id of a device and the number of its replica."""


class PodHolder(NamedTuple):
    """A container that was given a device. ``claim``: of DRA, its namespace/name; empty for the device plugin."""

    namespace: str
    pod: str
    container: str
    claim: str = ""


class PluginDevices(NamedTuple):
    """Devices of one resource that a container has, as the device plugin named them."""

    resource: str
    ids: tuple[str, ...]


class ClaimDevice(NamedTuple):
    """A device that a container has through a claim: ``claim`` as namespace/name; driver, pool and device as in the
    ResourceSlice; ``cdi``: its CDI device names."""

    claim: str
    driver: str
    pool: str
    device: str
    cdi: tuple[str, ...] = ()


class ContainerDevices(NamedTuple):
    """What the kubelet lists for one container (pod-resources v1)."""

    namespace: str
    pod: str
    container: str
    plugin: tuple[PluginDevices, ...] = ()
    claims: tuple[ClaimDevice, ...] = ()


class DeviceNames(NamedTuple):
    """The names under which one device can be listed: ``uuid``; ``others``: its index (``0``, ``0:1``), ``nvidia0``,
    ``gpu-0`` and ``gpu-0-mig-1g10gb-19-0`` of the DRA driver. ``gpu``: the UUID of the card that it is on."""

    uuid: str
    others: tuple[str, ...] = ()
    gpu: str = ""


def names_of(devices: Devices) -> list[DeviceNames]:
    """The cards of a machine and their MIG devices, by index."""
    found = []
    for card in devices.cards():
        found.append(DeviceNames(card.uuid, (str(card.index), f"nvidia{card.minor}", gpu_name(card.minor)), card.uuid))
        state = devices.mig(card.index)
        made = [(gi, ci) for gi in (state.instances if state is not None else ()) for ci in gi.compute]
        for number, (gi, ci) in enumerate(made):
            legacy = f"MIG-{card.uuid}/{gi.id}/{ci.id}"
            dra = mig_name(card.minor, gi.profile, gi.profile_id, gi.start)
            found.append(DeviceNames(ci.uuid, (f"{card.index}:{number}", legacy, dra), card.uuid))
    return found


def holders(listed: Iterable[ContainerDevices], devices: Sequence[DeviceNames]) -> dict[str, tuple[PodHolder, ...]]:
    """By UUID of a GPU or MIG device, the containers that have it, in order of name. Devices of others are left out."""
    known = _Known(devices)
    found: dict[str, set[PodHolder]] = {}
    for one in listed:
        for given in one.plugin:
            for id_ in given.ids:
                if uuid := known.given(given.resource, id_):
                    found.setdefault(uuid, set()).add(PodHolder(one.namespace, one.pod, one.container))
        for claim in one.claims:
            if uuid := known.claimed(claim):
                found.setdefault(uuid, set()).add(PodHolder(one.namespace, one.pod, one.container, claim.claim))
    return {uuid: tuple(sorted(pods)) for uuid, pods in sorted(found.items())}


def unattributed(listed: Iterable[ContainerDevices], devices: Sequence[DeviceNames]) -> list[str]:
    """Why containers that were given devices of NVIDIA's resources have no series of their own, in sentences."""
    known = _Known(devices)
    said = []
    for one in listed:
        where = f"{one.namespace}/{one.pod}, container {one.container}"
        for given in one.plugin:
            strange = [id_ for id_ in given.ids if not known.given(given.resource, id_)]
            if strange and given.resource.startswith(NVIDIA):
                said.append(f"{where}: {given.resource} has ids that name no device here: {', '.join(strange)}")
        for claim in one.claims:
            if claim.driver == DRIVER and not known.claimed(claim):
                said.append(f"{where}: claim {claim.claim} has a device that is not here: {claim.device}")
    return said


class _Known:
    """Devices by their names. A UUID is known under any resource; an index only under NVIDIA's, as other plugins count
    from 0 too."""

    def __init__(self, devices: Sequence[DeviceNames]) -> None:
        self._uuids = {one.uuid for one in devices}
        self._others = {name: one.uuid for one in devices for name in one.others}

    def given(self, resource: str, id_: str) -> str:
        device = id_.partition(REPLICA)[0]
        if device in self._uuids:
            return device
        return self._others.get(device, "") if resource.startswith(NVIDIA) else ""

    def claimed(self, claim: ClaimDevice) -> str:
        if claim.driver != DRIVER:
            return ""
        names = (claim.device, *(cdi.rpartition("=")[2] for cdi in claim.cdi))
        return next((found for name in names if (found := self.given(NVIDIA, name))), "")


def by_pod(found: Mapping[str, Sequence[PodHolder]]) -> dict[str, list[str]]:
    """The devices (UUIDs) of each pod (namespace/name), for whoever drains the pods on a device."""
    pods: dict[str, list[str]] = {}
    for uuid, users in found.items():
        for user in users:
            mine = pods.setdefault(f"{user.namespace}/{user.pod}", [])
            if uuid not in mine:
                mine.append(uuid)
    return pods
