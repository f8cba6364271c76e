"""Whether there can be enough devices at all: a count that overlooks constraints, capacities and what goes together."""

from __future__ import annotations

from collections.abc import Sequence

from tonnage.dra.node_devices import NodeDevices
from tonnage.dra.ways import ClaimWays


def too_few(on: NodeDevices, claims: Sequence[ClaimWays], free: Sequence[Sequence[int]]) -> bool:
    """Whether no choice gives every request its devices, each to one, or no component has room for so many of
    its devices. Requests that may have a share or admin access are left out. ``free``: what is left of the counters of
    each component."""
    places: list[list[int]] = []
    for claim in claims:
        for ways in claim.requests:
            wanted = sorted({number for way in ways for number in way.devices})
            if not any(way.admin for way in ways) and not any(on.devices[number].shared for number in wanted):
                places += [wanted] * min(way.count for way in ways)
    return _short(places) or _short(_slots(on, places, free))


def _slots(on: NodeDevices, places: Sequence[Sequence[int]], free: Sequence[Sequence[int]]) -> list[list[int]]:
    """The places with slots of components instead of devices: as many as its counters have room for if each device took
    as little of each counter as any of them does."""
    members: dict[int, list[int]] = {}
    for number in sorted({number for wanted in places for number in wanted}):
        members.setdefault(on.component_of[number], []).append(number)
    slots: dict[int, range] = {}
    next_slot = 0
    for at, numbers in members.items():
        shape = on.components[at].shape
        needs = [dict(shape.needs[on.place_in[number]]) for number in numbers]
        room = len(numbers)
        for counter, left in enumerate(free[at]):
            least = min(one.get(counter, 0) for one in needs)
            if least > 0:
                room = min(room, max(0, left) // least)
        slots[at] = range(next_slot, next_slot + room)
        next_slot += room
    return [
        [slot for at in sorted({on.component_of[number] for number in wanted}) for slot in slots[at]]
        for wanted in places
    ]


def _short(places: Sequence[Sequence[int]]) -> bool:
    """Whether some place goes without (augmenting paths; Kuhn, 1955)."""
    owner: dict[int, int] = {}
    return any(not _placed(at, places, owner) for at in range(len(places)))


def _placed(start: int, places: Sequence[Sequence[int]], owner: dict[int, int]) -> bool:
    """Find something for a place, and other things for the places that it takes from."""
    came: dict[int, int] = {}
    queue = [start]
    while queue:
        at = queue.pop()
        for one in places[at]:
            if one in came:
                continue
            came[one] = at
            if one not in owner:
                _move(one, came, owner, start)
                return True
            queue.append(owner[one])
    return False


def _move(free: int, came: dict[int, int], owner: dict[int, int], start: int) -> None:
    holds = {place: one for one, place in owner.items()}
    while True:
        place = came[free]
        owner[free] = place
        if place == start:
            return
        free = holds[place]
