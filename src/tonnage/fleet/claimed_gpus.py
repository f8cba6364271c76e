"""What pods hold of GPUs by their ResourceClaims, as NVIDIA's driver names devices."""

from __future__ import annotations

import re
from collections import Counter
from fractions import Fraction

from tonnage.dra import nvidia
from tonnage.dra.capacity import nano
from tonnage.fleet.state import Fleet
from tonnage.objects.dra import DeviceRequestAllocationResult

_GPU = re.compile(r"gpu-(?P<minor>\d+)(?P<part>-mig-.+)?")


def whole(fleet: Fleet, row: int) -> tuple[int, ...]:
    """The minor numbers of the whole GPUs of its node that the pod in this row has by claims, of which others may have
    some too."""
    return tuple(sorted(minor for minor, part, _ in _devices(fleet, row) if not part))


def share(fleet: Fleet, row: int) -> Fraction:
    """The GPUs that the pod has by claims: of a partition its part of the GPU's memory; what it shares with others is
    divided by how many they are."""
    found = Fraction(0)
    for minor, part, users in _devices(fleet, row):
        found += (_of_memory(fleet, row, minor, part) if part else Fraction(1)) / users
    return found


def holders(fleet: Fleet, node_row: int) -> dict[int, int]:
    """Minor number of each whole GPU that claims hold on the node → the first pod (by row) that has it."""
    found: dict[int, int] = {}
    for row in sorted(fleet.node(node_row).pods, reverse=True):
        found.update(dict.fromkeys(whole(fleet, row), row))
    return found


def free(fleet: Fleet, node_row: int) -> int | None:
    """The whole GPUs of the node that claims could have now; None where it has none for claims."""
    view, state = fleet.node_view(node_row), fleet.device_claims.state
    found, taken = set[str](), set[str]()
    for one in fleet.device_claims.allocator.devices(view).devices:
        match = _GPU.fullmatch(one.id.device) if one.id.driver == nvidia.DRIVER else None
        if match is None or one.id.pool != view.name:
            continue
        if not match["part"]:
            found.add(match["minor"])
        if state.is_held(one.id) or (one.taints and not match["part"]):
            taken.add(match["minor"])
    return len(found - taken) if found else None


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


def _devices(fleet: Fleet, row: int) -> list[tuple[int, str, int]]:
    """(minor number, the name of the partition, how many pods use the claim) of each."""
    pod = fleet.pod(row)
    if pod.node < 0:
        return []
    here = fleet.node(pod.node).spec.name
    found = []
    for key in fleet.device_claims.used_by(row):
        given = fleet.device_claims.allocation_of(key)
        users = max(1, len(fleet.device_claims.users(key)))
        for one in given.devices.results if given is not None else ():
            match = _GPU.fullmatch(one.device)
            if _is_here(one, here) and match is not None:
                found.append((int(match["minor"]), one.device if match["part"] else "", users))
    return found


def _is_here(one: DeviceRequestAllocationResult, node: str) -> bool:
    return one.driver == nvidia.DRIVER and one.pool == node and not one.admin_access


def _of_memory(fleet: Fleet, row: int, minor: int, part: str) -> Fraction:
    on = fleet.device_claims.allocator.devices(fleet.node_view(fleet.pod(row).node))
    memory = {
        one.id.device: nano(has.value) for one in on.devices if (has := one.device.capacity.get("memory")) is not None
    }
    total, own = memory.get(nvidia.gpu_name(minor), 0), memory.get(part, 0)
    return Fraction(own, total) if total else Fraction(1)
