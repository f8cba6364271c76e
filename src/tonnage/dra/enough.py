"""Whether there can be enough devices at all: a count that overlooks counters, constraints and capacities."""

from __future__ import annotations

from collections.abc import Sequence

from tonnage.dra.node_devices import NodeDevices
from tonnage.dra.ways import ClaimWays


def too_few(on: NodeDevices, claims: Sequence[ClaimWays]) -> bool:
    """Whether no choice gives every request its devices, each to one of them. Requests that may have a share or admin
    access are left out (augmenting paths, Kuhn 1955)."""
    places: list[list[int]] = []
    for claim in claims:
        for ways in claim.requests:
            wanted = sorted({number for way in ways for number in way.devices})
            if not any(way.admin for way in ways) and not any(on.devices[number].shared for number in wanted):
                places += [wanted] * min(way.count for way in ways)
    owner: dict[int, int] = {}
    return any(not _placed(at, places, owner, set()) for at in range(len(places)))


def _placed(start: int, places: Sequence[Sequence[int]], owner: dict[int, int], seen: set[int]) -> bool:
    """Find a device for a place, and others for those that it moves."""
    came: dict[int, int] = {}
    queue = [start]
    while queue:
        at = queue.pop()
        for device in places[at]:
            if device in seen:
                continue
            seen.add(device)
            came[device] = at
            if device not in owner:
                _move(device, came, owner, start)
                return True
            queue.append(owner[device])
    return False


def _move(device: int, came: dict[int, int], owner: dict[int, int], start: int) -> None:
    holds = {place: one for one, place in owner.items()}
    while True:
        place = came[device]
        owner[device] = place
        if place == start:
            return
        device = holds[place]
