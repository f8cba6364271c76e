"""The devices that one node sees, numbered, with their components."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from tonnage.dra.allocated import AllocatedState
from tonnage.dra.capacity import nano
from tonnage.dra.components import WHOLE, CounterShape, tied
from tonnage.dra.pools import CounterKey, DevicePool, NodeView, PoolDevice, reaches
from tonnage.dra.selecting import ABSENT, Match, Selectors


class Component(Struct, frozen=True, eq=False):
    """Devices that share counters. ``keys``: pool and counter of each counter's number."""

    devices: tuple[int, ...]
    pool: int
    keys: tuple[CounterKey, ...]
    shape: CounterShape


class NodeDevices:
    """Devices by number, in the order in which kube-scheduler tries them."""

    def __init__(self, node: NodeView, pools: Sequence[DevicePool], shapes: dict[object, CounterShape]) -> None:
        self.node = node
        self.pools = pools
        self.devices: list[PoolDevice] = []
        self.pool_of: list[int] = []
        for at, pool in enumerate(pools):
            self.devices += pool.devices
            self.pool_of += [at] * len(pool.devices)
        self.here = [self._is_here(one) for one in self.devices]
        self.components: list[Component] = []
        self.component_of = [0] * len(self.devices)
        self.place_in = [0] * len(self.devices)
        for members in tied(self.devices):
            self._add(members, shapes)
        self._matches: dict[tuple[tuple[str, ...], bool], list[Match]] = {}
        self.worths = _worths(self.devices)

    def _is_here(self, one: PoolDevice) -> bool:
        device = one.device
        return not one.slice.spec.per_device_node_selection or reaches(
            self.node, device.node_name, device.all_nodes, device.node_selector
        )

    def _add(self, members: Sequence[int], shapes: dict[object, CounterShape]) -> None:
        pool = self.pool_of[members[0]]
        keys = sorted({key for number in members for key, _ in self.devices[number].counters})
        numbers = {key: at for at, key in enumerate(keys)}
        totals = tuple(self.pools[pool].counters.get(key, 0) for key in keys)
        needs = tuple(
            tuple((numbers[key], amount) for key, amount in self.devices[number].counters) for number in members
        )
        known = (totals, needs)
        shape = shapes.get(known)
        if shape is None:
            shape = shapes[known] = CounterShape(totals, needs)
        for place, number in enumerate(members):
            self.component_of[number] = len(self.components)
            self.place_in[number] = place
        self.components.append(Component(tuple(members), pool, tuple(keys), shape))

    def matches(self, expressions: tuple[str, ...], selectors: Selectors, *, binding: bool) -> list[Match]:
        """What these selectors say of each device. ``binding``: whether devices may have binding conditions."""
        known = self._matches.get((expressions, binding))
        if known is None:
            known = self._matches[expressions, binding] = [
                ABSENT if one.device.binding_conditions and not binding else selectors.match(expressions, one)
                for one in self.devices
            ]
        return known

    def counters_left(self, state: AllocatedState) -> tuple[list[dict[CounterKey, int]], list[bool]]:
        """What is left of the counters of each pool, and whether more is taken of one of them than there is."""
        left = [dict(pool.counters) for pool in self.pools]
        for at, pool in enumerate(self.pools):
            if not pool.counters:
                continue
            for one in (*pool.devices, *pool.elsewhere):
                if one.counters and state.is_held(one.id):
                    for key, amount in one.counters:
                        left[at][key] -= amount
        return left, [any(amount < 0 for amount in one.values()) for one in left]


def _worths(devices: Sequence[PoolDevice]) -> list[int]:
    """What a device that shares no counters is worth, in millionths: its largest capacity beside the largest of that
    name here. A request that a small device serves so leaves the large one."""
    largest: dict[str, int] = {}
    amounts = [
        {} if each.counters else {name: nano(one.value) for name, one in each.device.capacity.items()}
        for each in devices
    ]
    for one in amounts:
        for name, value in one.items():
            largest[name] = max(largest.get(name, 0), value)
    return [
        max((value * WHOLE // largest[name] for name, value in one.items() if largest[name] > 0), default=WHOLE)
        for one in amounts
    ]
