"""What slices have in common that publish equal devices, as the nodes of one kind do: everything of the devices but
their attributes and taints, read once."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from tonnage.dra.capacity import nano
from tonnage.dra.features import Features
from tonnage.objects.dra import Device, ResourceSlice

CounterKey = tuple[str, str]
"""Counter set and counter."""


class DeviceShape(NamedTuple):
    """Of a device: what it takes of counters, by set and counter, in 10⁻⁹; whether others may share it; whether it is
    given whole and a request without an amount takes what it has."""

    counters: tuple[tuple[CounterKey, int], ...]
    shared: bool
    plain: bool


class SliceShape(msgspec.Struct, frozen=True, eq=False):
    """Of equal slices. ``sets`` and ``counters``: what their devices take of."""

    names: tuple[str, ...]
    devices: tuple[DeviceShape, ...]
    sets: frozenset[str]
    counters: frozenset[CounterKey]
    waits_for_conditions: bool


class SliceShapes:
    """The shapes of the slices of a cluster, each made once."""

    def __init__(self, features: Features) -> None:
        self._features = features
        self._encoder = msgspec.msgpack.Encoder()
        self._known: dict[bytes, SliceShape] = {}
        self._of: dict[int, SliceShape] = {}

    def of(self, one: ResourceSlice) -> SliceShape:
        """The shape of a slice, which is kept as long as this."""
        found = self._of.get(id(one))
        if found is None:
            devices = one.spec.devices
            text = self._encoder.encode(
                [
                    (
                        each.name,
                        each.consumes_counters,
                        each.capacity,
                        each.allow_multiple_allocations,
                        each.binding_conditions,
                    )
                    for each in devices
                ]
            )
            found = self._known.get(text)
            if found is None:
                found = self._known[text] = self._made(devices)
            self._of[id(one)] = found
        return found

    def _made(self, devices: list[Device]) -> SliceShape:
        return SliceShape(
            tuple(one.name for one in devices),
            tuple(self._device(one) for one in devices),
            frozenset(taken.counter_set for one in devices for taken in one.consumes_counters),
            frozenset(
                (taken.counter_set, name)
                for one in devices
                for taken in one.consumes_counters
                for name in taken.counters
            ),
            any(one.binding_conditions for one in devices),
        )

    def _device(self, device: Device) -> DeviceShape:
        counters: dict[CounterKey, int] = {}
        for taken in device.consumes_counters:
            for name, counter in taken.counters.items():
                at = (taken.counter_set, name)
                counters[at] = counters.get(at, 0) + nano(counter.value)
        shared = bool(device.allow_multiple_allocations) and self._features.consumable_capacity
        plain = not shared and all(has.request_policy is None for has in device.capacity.values())
        return DeviceShape(tuple(sorted(counters.items())), shared, plain)
