"""What pods hold of GPUs by their ResourceClaims, as NVIDIA's driver names devices."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from tonnage.dra import nvidia
from tonnage.dra import utilization as dra_utilization
from tonnage.dra.capacity import nano
from tonnage.fleet.claim_asks import is_extended
from tonnage.fleet.state import Fleet
from tonnage.objects.dra import POD_CLAIM_NAME, AllocationResult, Device, DeviceRequestAllocationResult

_GPU = re.compile(r"gpu-(?P<minor>\d+)(?P<part>-mig-.+)?")


def whole(fleet: Fleet, row: int) -> tuple[int, ...]:
    """The minor numbers of the whole GPUs of its node that the pod in this row has by claims, of which others may have
    some too."""
    return tuple(sorted(one.minor for one in held(fleet, row) if not one.part))


def share(fleet: Fleet, row: int) -> Fraction:
    """The GPUs that the pod has by claims: of a partition its part of the GPU's memory; what it shares with others is
    divided by how many they are."""
    found, devices = Fraction(0), held(fleet, row)
    there = devices_at(fleet, row) if any(one.part for one in devices) else {}
    for one in devices:
        found += (_of_memory(there, one.minor, one.part) if one.part else Fraction(1)) / one.users
    return found


def holders(fleet: Fleet, node_row: int) -> dict[int, int]:
    """Minor number of each whole GPU that claims hold on the node → the first pod (by row) that has it."""
    found: dict[int, int] = {}
    for row in sorted(fleet.node(node_row).pods, reverse=True):
        found.update(dict.fromkeys(whole(fleet, row), row))
    return found


@dataclass(slots=True)
class PublishedGpu:
    """A GPU of a node as claims can have it. ``whole``: it is published as one device; ``partitioned``: in placements
    of MIG profiles; ``taken``: it is held whole, or has a taint; ``instances``: (profile, start) of those that are
    held."""

    whole: bool = False
    partitioned: bool = False
    taken: bool = False
    instances: list[tuple[str, int]] = field(default_factory=list)

    @property
    def is_free(self) -> bool:
        """Whether it is available whole."""
        return self.whole and not (self.taken or self.instances)


def published(fleet: Fleet, node_row: int) -> dict[int, PublishedGpu]:
    """The GPUs that NVIDIA's driver publishes of the node, by minor number."""
    view, state = fleet.node_view(node_row), fleet.device_claims.state
    found: dict[int, PublishedGpu] = {}
    for one in fleet.device_claims.allocator.devices(view).devices:
        match = _GPU.fullmatch(one.id.device) if one.id.driver == nvidia.DRIVER else None
        if match is None or one.id.pool != view.name:
            continue
        gpu, is_held = found.setdefault(int(match["minor"]), PublishedGpu()), state.is_held(one.id)
        if not match["part"]:
            gpu.whole, gpu.taken = True, gpu.taken or is_held or bool(one.taints)
            continue
        gpu.partitioned = True
        if is_held:
            gpu.instances.append(_placement(one.device))
    return found


def _placement(device: Device) -> tuple[str, int]:
    """The profile and the first memory slice of a MIG device, which its name ends with."""
    said = device.attributes.get("profile")
    start = device.name.rpartition("-")[2]
    return (said.string_value or "" if said is not None else ""), int(start) if start.isdigit() else -1


def free(fleet: Fleet, node_row: int) -> int | None:
    """The whole GPUs of the node that claims could have now; None where it has none for claims."""
    found = [gpu for gpu in published(fleet, node_row).values() if gpu.whole]
    return sum(gpu.is_free for gpu in found) if found else None


def utilization(fleet: Fleet, node_row: int) -> Fraction | None:
    """Which share of the devices that the node publishes is held; None where it publishes none."""
    known = fleet.device_claims
    return dra_utilization.utilization(known.allocator.devices(fleet.node_view(node_row)), known.state)


def allocated(fleet: Fleet) -> int:
    """GPUs that claims hold, or a part of which they hold."""
    return len({(pool, minor) for pool, minor in _held(fleet)})


def _held(fleet: Fleet) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for device in fleet.device_claims.state.devices:
        match = _GPU.fullmatch(device.device) if device.driver == nvidia.DRIVER else None
        if match is not None:
            found[device.pool, match["minor"]] += 1
    return found


class HeldDevice(NamedTuple):
    """A device that a pod has by a claim. ``part``: its name where it is a MIG device, empty for the whole GPU;
    ``users``: the pods that use the claim now; ``several``: whether others may; ``place``: of the device among the
    claim's; ``result`` is of the ``allocation``, which has the configuration."""

    minor: int
    part: str
    users: int
    several: bool
    place: int
    allocation: AllocationResult
    result: DeviceRequestAllocationResult


def held(fleet: Fleet, row: int) -> list[HeldDevice]:
    """What the pod in this row has of its node's GPUs by claims."""
    pod = fleet.pod(row)
    if pod.node < 0:
        return []
    here, known = fleet.node(pod.node).spec.name, fleet.device_claims
    found = []
    for key in known.used_by(row):
        given, claim = known.allocation_of(key), known.claims.get(key)
        own = claim is not None and (POD_CLAIM_NAME in claim.metadata.annotations or is_extended(claim))
        users = max(1, len(known.users(key)))
        for index, one in enumerate(given.devices.results if given is not None else ()):
            match = _GPU.fullmatch(one.device)
            if given is not None and match is not None and _is_here(one, here):
                part = one.device if match["part"] else ""
                found.append(HeldDevice(int(match["minor"]), part, users, not own, index, given, one))
    return found


class MigPart(NamedTuple):
    """A MIG device that a pod has. ``size``: its part of the GPU's memory; ``memory_mib``: of the device."""

    device: str
    profile: str
    size: Fraction
    memory_mib: int


def mig_parts(fleet: Fleet, row: int) -> list[MigPart]:
    """The MIG devices that the pod has by claims and its node's driver publishes, largest first."""
    parts = [one for one in held(fleet, row) if one.part]
    there = devices_at(fleet, row) if parts else {}
    found = [
        MigPart(one.part, _placement(there[one.part])[0], _of_memory(there, one.minor, one.part), mib(there[one.part]))
        for one in parts
        if one.part in there
    ]
    return sorted(found, key=lambda one: (-one.memory_mib, one.device))


def devices_at(fleet: Fleet, row: int) -> dict[str, Device]:
    """What NVIDIA's driver publishes of the pod's node, by name."""
    on = fleet.device_claims.allocator.devices(fleet.node_view(fleet.pod(row).node))
    return {one.id.device: one.device for one in on.devices if one.id.driver == nvidia.DRIVER}


def mib(device: Device) -> int:
    """The memory of a device; 0 where it says none."""
    memory = device.capacity.get("memory")
    return nano(memory.value) // (10**9 << 20) if memory is not None else 0


def _is_here(one: DeviceRequestAllocationResult, node: str) -> bool:
    return one.driver == nvidia.DRIVER and one.pool == node and not one.admin_access


def _of_memory(there: Mapping[str, Device], minor: int, part: str) -> Fraction:
    total, own = (mib(there[name]) if name in there else 0 for name in (nvidia.gpu_name(minor), part))
    return Fraction(own, total) if total else Fraction(1)
