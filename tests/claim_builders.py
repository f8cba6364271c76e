"""Fleets whose nodes have devices for claims, and pods with ResourceClaims."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import msgspec

from builders import node, pod
from device_allocations import DRIVER, cel, claim, device, device_class, request, resource_slice
from tonnage.decisions import Bind, Decision
from tonnage.dra import nvidia
from tonnage.facts.instances import InstanceType
from tonnage.fleet.claim_plans import published_slices
from tonnage.fleet.device_claims import DeviceClaims
from tonnage.fleet.invariants import violations
from tonnage.fleet.rows import FleetPod
from tonnage.fleet.state import Fleet
from tonnage.objects import dra

NAMESPACE = "team"
OURS = device_class("gpu", f"device.driver == '{DRIVER}'")


def gpus(on: str, count: int = 2, **fields: Any) -> dra.ResourceSlice:
    """Whole devices of a node: gpu-0, gpu-1, …"""
    return resource_slice(f"{on}-slice", *(device(f"gpu-{n}", **fields) for n in range(count)), pool=on, nodeName=on)


def partitioned(on: str, cards: int = 1, slices: int = 4) -> list[dra.ResourceSlice]:
    """Cards of which each can be one whole device or so many small ones, which take its counters."""
    sets = {f"card-{n}": {"memory": slices} for n in range(cards)}
    devices = [
        device(name, attributes={"kind": kind}, counters={f"card-{n}": {"memory": amount}})
        for n in range(cards)
        for name, kind, amount in (
            (f"card-{n}", "whole", slices),
            *((f"card-{n}-part-{m}", "part", 1) for m in range(slices)),
        )
    ]
    return [
        resource_slice(f"{on}-counters", counters=sets, pool=on, count=2, nodeName=on),
        resource_slice(f"{on}-devices", *devices, pool=on, count=2, nodeName=on),
    ]


def of_kind(kind: str) -> dict[str, Any]:
    """A request for a device of the kind."""
    return request("r", "gpu", f"device.attributes['{DRIVER}'].kind == '{kind}'")


def fleet_of(
    *nodes: str, slices: Iterable[dra.ResourceSlice] = (), classes: Iterable[dra.DeviceClass] = (OURS,)
) -> Fleet:
    """Nodes with 16 CPUs, and what drivers have published."""
    made = Fleet()
    for name in nodes:
        made.add_node(node(name, pods=300))
    for one in (*slices, *classes):
        made.device_claims.see(one)
    return made


def see_claim(made: Fleet, name: str, *requests: dict[str, Any], **changes: Any) -> dra.ResourceClaim:
    """A claim of its own name; without requests for one device."""
    one = claim(*(requests or (request(),)), name=name)
    if changes:
        one = msgspec.structs.replace(one, **changes)
    made.device_claims.see(one)
    return one


def claiming(
    known: DeviceClaims, selector: str = "", count: int = 1, name: str = "p", of: str = nvidia.GPU_CLASS
) -> FleetPod:
    """A pod with one claim for so many devices."""
    exactly = {"count": count, **({"selectors": cel(selector)} if selector else {})}
    one = claim({"name": "r", "exactly": {"deviceClassName": of, **exactly}}, name=f"{name}-claim")
    known.see(one)
    written = [{"name": "gpu", "resourceClaimName": one.name}]
    made = pod(name, namespace=NAMESPACE, resourceClaims=written)
    return replace(made, claims=known.need(NAMESPACE, name, made.uid, made.spec))


def slices_of(itype: InstanceType, node: str, *, on_demand: bool = False) -> list[dra.ResourceSlice]:
    """What NVIDIA's driver publishes of a node of the type."""
    return published_slices(itype.gpu, itype.gpu_count, itype.gpu_memory_mib, node, on_demand=on_demand)


def own(made: Fleet, name: str, *requests: dict[str, Any], **fields: Any) -> FleetPod:
    """A pod with a claim that was made for it."""
    see_claim(made, f"{name}-claim", *requests)
    made.device_claims.note_pod(NAMESPACE, name, [{"name": "gpu", "resourceClaimName": f"{name}-claim"}])
    return _with(made, pod(name, namespace=NAMESPACE, resourceClaims=[_by_template()], **fields))


def sharing(made: Fleet, name: str, *claims: str, **fields: Any) -> FleetPod:
    """A pod that names these claims."""
    named = [{"name": one, "resourceClaimName": one} for one in claims]
    return _with(made, pod(name, namespace=NAMESPACE, resourceClaims=named, **fields))


def _by_template() -> dict[str, str]:
    return {"name": "gpu", "resourceClaimTemplateName": "one-gpu"}


def _with(made: Fleet, one: FleetPod) -> FleetPod:
    need = made.device_claims.need(one.namespace, one.name, one.uid, one.spec)
    return replace(one, claims=need)


def add(made: Fleet, *pods: FleetPod) -> None:
    """They are pending."""
    for one in pods:
        made.add_pod(one)


def bind_all(made: Fleet, decisions: Iterable[Decision]) -> None:
    """Bind what was decided, with the devices that it was decided with."""
    for one in decisions:
        if isinstance(one, Bind):
            given = {(each.claim.namespace, each.claim.name): each.allocation for each in one.claims}
            row = made.pod_by_key[one.pod.namespace, one.pod.name]
            made.bind(row, made.node_by_name[one.node.name], one.devices, allocations=given)
    assert violations(made) == []


def commit(made: Fleet, name: str) -> None:
    """The status of the pod's claims says what they have, and that they are reserved for it."""
    row = made.pod_by_key[NAMESPACE, name]
    spec = made.pod(row).spec
    for key in spec.claims.keys:
        one, allocation = made.device_claims.claims[key], made.device_claims.allocation_of(key)
        consumer = dra.ResourceClaimConsumerReference(resource="pods", name=name, uid=spec.uid)
        status = dra.ResourceClaimStatus(allocation=allocation, reserved_for=[*one.status.reserved_for, consumer])
        made.device_claims.see(msgspec.structs.replace(one, status=status))


def devices(made: Fleet) -> dict[str, list[str]]:
    """Claim → its devices."""
    known = made.device_claims
    return {
        name: [one.device for one in given.devices.results]
        for (_, name) in sorted(known.claims)
        if (given := known.allocation_of((NAMESPACE, name))) is not None
    }
