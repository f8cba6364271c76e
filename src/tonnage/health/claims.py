"""What has become of a ResourceClaim: which devices it has, or on which nodes it could have some and why not on the
others."""

from __future__ import annotations

from collections.abc import Sequence

from tonnage.dra.allocated import AllocatedState, DeviceID
from tonnage.dra.allocator import Allocator, Feasibility
from tonnage.dra.pools import NodeView
from tonnage.dra.told import by_reason, named
from tonnage.health.told import NEVER, RUNS, STARTS, WAITS, Told
from tonnage.objects import core, dra
from tonnage.objects.base import KubeObject, where


def of_claim(about: str, claim: dra.ResourceClaim, objects: Sequence[KubeObject]) -> Told:
    """In a line what has become of a claim, and for each reason the nodes on which it cannot be allocated. ``objects``:
    what there is of nodes, slices, classes, taint rules and claims."""
    if claim.status.allocation is not None:
        return _allocated(about, claim, claim.status.allocation)
    others = [one for one in objects if isinstance(one, dra.ResourceClaim) and one is not claim]
    slices = [one for one in objects if isinstance(one, dra.ResourceSlice)]
    allocator = Allocator(
        slices,
        [one for one in objects if isinstance(one, dra.DeviceClass)],
        taint_rules=[one for one in objects if isinstance(one, dra.DeviceTaintRule)],
    )
    state = AllocatedState.of(others)
    found = {node.name: allocator.allocate([claim], node, state) for node in _nodes(objects, slices)}
    fits = {name: one for name, one in found.items() if one.feasibility is Feasibility.ALLOCATED}
    details = by_reason({name: one for name, one in found.items() if name not in fits})
    if fits:
        name, one = next(iter(fits.items()))
        devices = _devices(one.results[0])
        line = f"is pending, and can be allocated on {named(list(fits))}: on {name} it would get {devices}"
        return Told(about, STARTS, line, details, "create a pod that uses it: it is allocated where the pod is placed")
    place = where(claim, "spec.devices.requests")
    wrong = sorted({one.error for one in found.values() if one.error})
    if wrong and all(one.error for one in found.values()):
        line = f"can be allocated on no node: {wrong[0]}"
        return Told(about, NEVER, line, details, "correct the claim or its class", place)
    if any(one.feasibility is Feasibility.NOT_DECIDED for one in found.values()):
        line = f"is pending: not allocated on any of {len(found)} nodes, and not decided in time on some"
        return Told(about, WAITS, line, details, "ask with fewer requests, or with narrower selectors", place)
    nodes = f"it can be allocated on none of {len(found)} nodes" if found else "there are no nodes"
    return Told(about, WAITS, f"is pending: {nodes}", details, "release devices, or request devices that exist", place)


def _allocated(about: str, claim: dra.ResourceClaim, allocation: dra.AllocationResult) -> Told:
    users = [one.name for one in claim.status.reserved_for]
    used = f"reserved for {named(users)}" if users else "reserved for no pod"
    terms = allocation.node_selector.node_selector_terms if allocation.node_selector is not None else []
    names = [name for term in terms for field in term.match_fields for name in field.values]
    there = f" on {named(names)}" if names else ""
    return Told(about, RUNS, f"is allocated{there}: {_devices(allocation)}; {used}")


def _devices(allocation: dra.AllocationResult) -> str:
    shown = [f"{DeviceID(one.driver, one.pool, one.device)} for {one.request}" for one in allocation.devices.results]
    return named(shown)


def _nodes(objects: Sequence[KubeObject], slices: Sequence[dra.ResourceSlice]) -> list[NodeView]:
    """The nodes among the objects, and those of which slices alone tell, by name."""
    known = {one.name: NodeView(one.name, one.metadata.labels) for one in objects if isinstance(one, core.Node)}
    for one in slices:
        for name in (one.spec.node_name, *(device.node_name for device in one.spec.devices)):
            if name:
                known.setdefault(name, NodeView(name))
    return [known[name] for name in sorted(known)]
