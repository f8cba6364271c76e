"""The devices that one node sees, numbered, with their components."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from tonnage.dra.allocated import AllocatedState
from tonnage.dra.capacity import nano
from tonnage.dra.components import WHOLE, CounterShape, tied
from tonnage.dra.pools import DevicePool, NodeView, PoolDevice, reaches
from tonnage.dra.selecting import ABSENT, Match, Selectors
from tonnage.dra.slice_shapes import CounterKey


class Component(Struct, frozen=True, eq=False):
    """Devices that share counters. ``keys``: pool and counter of each counter's number."""

    devices: tuple[int, ...]
    pool: int
    keys: tuple[CounterKey, ...]
    shape: CounterShape


class DeviceLayout(Struct, frozen=True, eq=False):
    """What nodes have in common whose slices have the same shapes: by device its pool, its component and its place
    there, and what it is worth; the components."""

    pool_of: list[int]
    component_of: list[int]
    place_in: list[int]
    worths: list[int]
    components: list[Component]


class DeviceLayouts:
    """The layouts of a cluster, each made once."""

    def __init__(self) -> None:
        self._known: dict[object, DeviceLayout] = {}
        self._shapes: dict[object, CounterShape] = {}

    def of(self, pools: Sequence[DevicePool]) -> DeviceLayout:
        """The layout of these pools, one after the other."""
        key = tuple((pool.shapes, tuple(pool.counters.items())) for pool in pools)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._made(pools)
        return known

    def _made(self, pools: Sequence[DevicePool]) -> DeviceLayout:
        devices = [device for pool in pools for device in pool.devices]
        pool_of = [at for at, pool in enumerate(pools) for _ in pool.devices]
        component_of, place_in = [0] * len(devices), [0] * len(devices)
        components: list[Component] = []
        for members in tied(devices):
            for place, number in enumerate(members):
                component_of[number], place_in[number] = len(components), place
            at = pool_of[members[0]]
            components.append(self._component(members, at, [devices[number] for number in members], pools[at]))
        return DeviceLayout(pool_of, component_of, place_in, _worths(devices), components)

    def _component(self, members: Sequence[int], at: int, devices: Sequence[PoolDevice], pool: DevicePool) -> Component:
        keys = sorted({key for one in devices for key, _ in one.counters})
        numbers = {key: number for number, key in enumerate(keys)}
        totals = tuple(pool.counters.get(key, 0) for key in keys)
        needs = tuple(tuple((numbers[key], amount) for key, amount in one.counters) for one in devices)
        shape = self._shapes.get((totals, needs))
        if shape is None:
            shape = self._shapes[totals, needs] = CounterShape(totals, needs)
        return Component(tuple(members), at, tuple(keys), shape)


class NodeDevices:
    """Devices by number, in the order in which kube-scheduler tries them."""

    def __init__(self, node: NodeView, pools: Sequence[DevicePool], layouts: DeviceLayouts) -> None:
        self.node = node
        self.pools = pools
        self.devices = [device for pool in pools for device in pool.devices]
        self.here = [here for pool in pools for part in pool.parts for here in self._are_here(part)]
        layout = layouts.of(pools)
        self.pool_of = layout.pool_of
        self.components = layout.components
        self.component_of = layout.component_of
        self.place_in = layout.place_in
        self.worths = layout.worths
        self._matches: dict[tuple[tuple[str, ...], bool], list[Match]] = {}

    def _are_here(self, part: Sequence[PoolDevice]) -> list[bool]:
        if not part or not part[0].slice.spec.per_device_node_selection:
            return [True] * len(part)
        devices = (one.device for one in part)
        return [reaches(self.node, one.node_name, one.all_nodes, one.node_selector) for one in devices]

    def matches(self, expressions: tuple[str, ...], selectors: Selectors, *, binding: bool) -> list[Match]:
        """What these selectors say of each device. ``binding``: whether devices may have binding conditions."""
        known = self._matches.get((expressions, binding))
        if known is None:
            known = self._matches[expressions, binding] = []
            for pool in self.pools:
                for shape, devices in zip(pool.shapes, pool.parts, strict=True):
                    found = selectors.of_slice(expressions, shape, devices)
                    if shape.waits_for_conditions and not binding:
                        found = [
                            ABSENT if one.device.binding_conditions else match
                            for one, match in zip(devices, found, strict=True)
                        ]
                    known += found
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
