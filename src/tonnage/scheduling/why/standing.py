"""What planning a gang starts from: its groups, the levels that its rules name, and bounds on the room for it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from tonnage.fleet.snapshot import Snapshot
from tonnage.scheduling.cache import Cache
from tonnage.scheduling.gangs import plan as gangs
from tonnage.scheduling.gangs.limits import GangBounds
from tonnage.scheduling.gangs.room import FleetRoom, Room, Sheet, depends
from tonnage.scheduling.gangs.tree import GangTree
from tonnage.scheduling.levels import Levels, UnknownLevel, order_of


class GangStart(Struct, frozen=True):
    """What planning a gang's pods starts from."""

    tree: GangTree
    levels: Levels
    limits: GangBounds
    room: Room


def standing(snapshot: Snapshot, key: str, pods: Sequence[int], cache: Cache) -> GangStart | None:
    """None where a rule names a level that is not there. Inside a what-if only."""
    tree = GangTree(snapshot, snapshot.gangs[key], pods, gangs.alike(snapshot.fleet, cache, pods))
    try:
        levels = cache.levels.get(order_of((group.rule for group in tree.groups), snapshot.topologies))
    except UnknownLevel:
        return None
    tree.set_levels(levels)
    fleet = snapshot.fleet
    by_pod = any(depends(fleet, cache, item.class_id) for item in tree.items)
    room: Room = FleetRoom(fleet, cache, tree.items) if by_pod else Sheet(fleet, cache, tree.items)
    return GangStart(tree, levels, GangBounds(tree, levels, room, fleet), room)
