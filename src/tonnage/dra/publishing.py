"""From what a driver wants to publish of a node, and what stands in the API, to the calls that make it so.

A pool whose devices are others, or otherwise, gets a new generation: consumers take none of it until all its slices
are there. What only has other taints, or is in one slice alone, is changed in place, so that the pool stays usable.
Source: k8s.io/dynamic-resource-allocation v0.36.3 resourceslice (when a generation is kept).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from tonnage.dra.nvidia import DRIVER, PublishedCard, slice_specs
from tonnage.objects.dra import Device, ResourceSlice, ResourceSliceSpec


class CreateSlice(NamedTuple):
    """Make a slice."""

    spec: ResourceSliceSpec


class UpdateSlice(NamedTuple):
    """Give a slice another spec."""

    there: ResourceSlice
    spec: ResourceSliceSpec


class DeleteSlice(NamedTuple):
    """Remove a slice."""

    there: ResourceSlice


SliceChange: TypeAlias = CreateSlice | UpdateSlice | DeleteSlice


def changes(
    cards: Sequence[PublishedCard], node: str, seen: Sequence[ResourceSlice], driver: str = DRIVER
) -> list[SliceChange]:
    """The calls, in order; none: all is published. ``seen``: the driver's slices of the node as they are now."""
    mine = sorted((one for one in seen if one.spec.driver == driver), key=lambda one: one.name)
    pool = [one for one in mine if one.spec.pool.name == node]
    found: list[SliceChange] = [DeleteSlice(one) for one in mine if one.spec.pool.name != node]
    newest = max((one.spec.pool.generation for one in pool), default=0)
    wanted = slice_specs(cards, node, max(newest, 1), driver)
    pairs = _paired(wanted, [one for one in pool if one.spec.pool.generation == newest])
    if pairs is not None:
        found += [DeleteSlice(one) for one in pool if one.spec.pool.generation != newest]
        different = [(spec, there) for spec, there in pairs if _plain(spec) != _plain(there.spec)]
        if len(different) <= 1 or all(_untainted(spec) == _untainted(there.spec) for spec, there in different):
            return found + [UpdateSlice(there, spec) for spec, there in different]
        found = [one for one in found if isinstance(one, DeleteSlice) and one.there not in pool]
    wanted = slice_specs(cards, node, newest + 1, driver)
    found += [UpdateSlice(there, spec) for spec, there in zip(wanted, pool, strict=False)]
    found += [CreateSlice(spec) for spec in wanted[len(pool) :]]
    return found + [DeleteSlice(one) for one in pool[len(wanted) :]]


def _paired(
    wanted: Sequence[ResourceSliceSpec], there: Sequence[ResourceSlice]
) -> list[tuple[ResourceSliceSpec, ResourceSlice]] | None:
    """Each spec with the slice that has the same devices or counter sets; None: they are others."""
    by_names = {_names(one.spec): one for one in there}
    if len(by_names) != len(there) or len(there) != len(wanted):
        return None
    if any(one.spec.pool.resource_slice_count != len(wanted) for one in there):
        return None
    found = [(spec, by_names.get(_names(spec))) for spec in wanted]
    paired = [(spec, one) for spec, one in found if one is not None]
    return paired if len(paired) == len(wanted) else None


def _names(spec: ResourceSliceSpec) -> tuple[frozenset[str], frozenset[str]]:
    return frozenset(one.name for one in spec.devices), frozenset(one.name for one in spec.shared_counters)


def _plain(spec: ResourceSliceSpec) -> ResourceSliceSpec:
    """Without the times of taints, which the API server fills in."""
    return replace(spec, devices=[_timeless(one) for one in spec.devices])


def _timeless(device: Device) -> Device:
    return replace(device, taints=[replace(one, time_added=None) for one in device.taints])


def _untainted(spec: ResourceSliceSpec) -> ResourceSliceSpec:
    return replace(spec, devices=[replace(one, taints=[]) for one in spec.devices])
