"""Resource pools as one node sees them: which slices count, which devices can be reached, which counters they share.

Source: k8s.io/dynamic-resource-allocation v0.36.3 structured/internal/experimental/pools_experimental.go and
resourceslice/tracker/tracker.go (taints of rules).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec import Struct

from tonnage.dra.allocated import DeviceID
from tonnage.dra.capacity import nano
from tonnage.dra.features import Features
from tonnage.dra.slice_shapes import CounterKey, SliceShape, SliceShapes
from tonnage.objects.core import NodeSelector
from tonnage.objects.dra import Device, DeviceTaint, DeviceTaintRule, ResourceSlice
from tonnage.objects.selectors import HARD_EFFECTS, any_matches

PoolKey = tuple[str, str]
"""Driver and pool."""


class NodeView(NamedTuple):
    """A node as selectors of devices see it."""

    name: str
    labels: Mapping[str, str] = {}


class PoolDevice(Struct, frozen=True, eq=False, gc=False):
    """A device with what does not change from node to node. ``counters``: what it takes, by set and counter, in 10⁻⁹.
    ``taints``: those that keep claims off. ``slice``: where it was published. ``plain``: it is given whole, and a
    request without an amount takes what it has."""

    id: DeviceID
    device: Device
    slice: ResourceSlice
    counters: tuple[tuple[CounterKey, int], ...]
    taints: tuple[DeviceTaint, ...]
    shared: bool
    plain: bool


@dataclass(slots=True, eq=False)
class DevicePool:
    """A pool. Unusable ones say why and have no devices. ``elsewhere``: devices of the pool that other nodes reach.
    ``parts``: its devices by slice; ``shapes``: of these slices."""

    key: PoolKey
    shapes: tuple[SliceShape, ...] = ()
    parts: tuple[list[PoolDevice], ...] = ()
    unusable: str = ""
    incomplete: bool = False
    devices: list[PoolDevice] = field(default_factory=list)
    elsewhere: list[PoolDevice] = field(default_factory=list)
    counters: dict[CounterKey, int] = field(default_factory=dict)
    waits_for_conditions: bool = False

    @property
    def name(self) -> str:
        """Driver and pool, as they are written."""
        return "/".join(self.key)


def reaches(node: NodeView, name: str | None, everywhere: bool | None, selector: NodeSelector | None) -> bool:
    """Whether a slice or device that says so can be reached from the node."""
    if name:
        return node.name == name
    if everywhere:
        return True
    return selector is not None and any_matches(selector.node_selector_terms, node.labels, node.name)


class Slices:
    """Slices of a cluster, by node and by pool, with the devices that they publish."""

    def __init__(
        self, slices: Iterable[ResourceSlice], features: Features, rules: Iterable[DeviceTaintRule] = ()
    ) -> None:
        self.features = features
        self._rules = [rule for rule in rules if rule.spec.device_selector is not None]
        self._of_node: dict[str, list[ResourceSlice]] = {}
        self._anywhere: list[ResourceSlice] = []
        self._counters: dict[PoolKey, list[ResourceSlice]] = {}
        self._unusable: dict[PoolKey, DevicePool] | None = None
        self._of_pool: dict[PoolKey, list[ResourceSlice]] = {}
        self._devices: dict[int, list[PoolDevice]] = {}
        self._shapes = SliceShapes(features)
        for one in slices:
            spec = one.spec
            self._of_pool.setdefault((spec.driver, spec.pool.name), []).append(one)
            if spec.shared_counters:
                self._counters.setdefault((spec.driver, spec.pool.name), []).append(one)
            elif spec.node_name:
                self._of_node.setdefault(spec.node_name, []).append(one)
            else:
                self._anywhere.append(one)

    def devices(self, one: ResourceSlice) -> list[PoolDevice]:
        """The devices of a slice."""
        known = self._devices.get(id(one))
        if known is None:
            driver, pool = one.spec.driver, one.spec.pool.name
            known = self._devices[id(one)] = [
                PoolDevice(
                    key := DeviceID(driver, pool, device.name),
                    device,
                    one,
                    given.counters,
                    self._taints(key, device),
                    given.shared,
                    given.plain,
                )
                for device, given in zip(one.spec.devices, self._shapes.of(one).devices, strict=True)
            ]
        return known

    def _taints(self, key: DeviceID, device: Device) -> tuple[DeviceTaint, ...]:
        if not self.features.device_taints or not (device.taints or self._rules):
            return ()
        return tuple(taint for taint in (*device.taints, *self._ruled(key)) if taint.effect in HARD_EFFECTS)

    def _ruled(self, device: DeviceID) -> Iterable[DeviceTaint]:
        for rule in self._rules:
            chosen = rule.spec.device_selector
            assert chosen is not None
            if all(
                wanted is None or wanted == has
                for wanted, has in zip((chosen.driver, chosen.pool, chosen.device), device, strict=True)
            ):
                yield rule.spec.taint

    def pools(self, node: NodeView) -> list[DevicePool]:
        """The pools that the node sees, in the order in which kube-scheduler tries them: by driver and name, those with
        binding conditions last."""
        seen: dict[PoolKey, list[ResourceSlice]] = {}
        for one in (*self._of_node.get(node.name, ()), *self._anywhere):
            if self._matters(one, node):
                seen.setdefault((one.spec.driver, one.spec.pool.name), []).append(one)
        found = [pool for key, slices in seen.items() if (pool := self._pool(key, slices)) is not None]
        found += [pool for key, pool in self._without_devices().items() if key not in seen]
        return sorted(found, key=lambda pool: (pool.waits_for_conditions, pool.key))

    def _without_devices(self) -> dict[PoolKey, DevicePool]:
        """Unusable pools of which a node sees the counters alone, as every node does: such a pool has nothing to give,
        and keeps kube-scheduler from allocating all devices."""
        if self._unusable is None:
            made = {key: self._pool(key, []) for key in self._counters} if self.features.partitionable_devices else {}
            self._unusable = {key: pool for key, pool in made.items() if pool is not None and pool.unusable}
        return self._unusable

    def _matters(self, one: ResourceSlice, node: NodeView) -> bool:
        spec = one.spec
        if spec.per_device_node_selection is not None and not self.features.partitionable_devices:
            return False
        if spec.node_name or spec.all_nodes or spec.node_selector is not None:
            return reaches(node, spec.node_name, spec.all_nodes, spec.node_selector)
        return bool(spec.per_device_node_selection) and any(
            reaches(node, device.node_name, device.all_nodes, device.node_selector) for device in spec.devices
        )

    def _pool(self, key: PoolKey, slices: list[ResourceSlice]) -> DevicePool | None:
        """A pool by its slices with devices for a node; None where there is a newer generation that it does not see."""
        if self.features.partitionable_devices:
            slices = [*slices, *self._counters.get(key, ())]
        newest = max(one.spec.pool.generation for one in slices)
        slices = [one for one in slices if one.spec.pool.generation == newest]
        expected, generation = slices[0].spec.pool.resource_slice_count, slices[0].spec.pool.generation
        rest: list[ResourceSlice] = []
        if len(slices) != expected:
            of_pool = self._of_pool[key]
            if any(one.spec.pool.generation > generation for one in of_pool):
                return None
            current = [one for one in of_pool if one.spec.pool.generation == generation]
            if len(current) != expected:
                why = f"has {len(current)} of {expected} slices of generation {generation}"
                return DevicePool(key, unusable=why, incomplete=True)
            rest = [one for one in current if not any(one is other for other in slices)]
        return self._built(key, sorted(slices, key=lambda one: one.name), rest)

    def _built(self, key: PoolKey, slices: Sequence[ResourceSlice], rest: Sequence[ResourceSlice]) -> DevicePool:
        counted = self.features.partitionable_devices
        with_sets = [one for one in slices if one.spec.shared_counters] if counted else []
        with_devices = [one for one in slices if not (counted and one.spec.shared_counters)]
        parts = tuple(self.devices(one) for one in with_devices)
        made = DevicePool(key, tuple(self._shapes.of(one) for one in with_devices), parts)
        made.devices = [device for part in parts for device in part]
        names = [name for shape in made.shapes for name in shape.names]
        sets = [one.name for slice_ in with_sets for one in slice_.spec.shared_counters]
        if counted:
            made.counters = {
                (one.name, name): nano(counter.value)
                for slice_ in with_sets
                for one in slice_.spec.shared_counters
                for name, counter in one.counters.items()
            }
            if made.devices:
                made.elsewhere = [device for one in rest for device in self.devices(one)]
        for what, listed in (("device", names), ("counter set", sets)):
            twice = next((name for name in sorted(listed) if listed.count(name) > 1), "") if _repeats(listed) else ""
            if twice:
                return DevicePool(key, unusable=f"has the {what} {twice} twice")
        if counted:
            wrong = self._unknown_counter(slices, made, set(sets)) or self._unknown_counter(rest, made, set(sets))
            if wrong:
                return DevicePool(key, unusable=wrong)
        made.waits_for_conditions = any(shape.waits_for_conditions for shape in made.shapes)
        return made

    def _unknown_counter(self, slices: Iterable[ResourceSlice], pool: DevicePool, sets: set[str]) -> str:
        for one in slices:
            shape = self._shapes.of(one)
            if shape.sets <= sets and shape.counters <= pool.counters.keys():
                continue
            for device in one.spec.devices:
                for taken in device.consumes_counters:
                    if taken.counter_set not in sets:
                        return f"has the device {device.name} of the counter set {taken.counter_set}, which it has not"
                    for name in taken.counters:
                        if (taken.counter_set, name) not in pool.counters:
                            of = f"{name} of the set {taken.counter_set}"
                            return f"has the device {device.name} of the counter {of}, which it has not"
        return ""


def _repeats(names: Sequence[str]) -> bool:
    return len(set(names)) != len(names)
