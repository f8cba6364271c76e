"""What every world does with the ResourceClaims of a pod that it binds (claims.yaml)."""

from __future__ import annotations

from typing import Any

import msgspec

from live.contract.small import WHY, Small
from tonnage.decisions import Applied, Bind, ClaimAllocation, Ref
from tonnage.kube.resources import RESOURCE_CLAIMS
from tonnage.objects.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from tonnage.objects.dra import (
    NODE_NAME_FIELD,
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimStatus,
)

MINE, OTHER = ("inference", "mine"), ("inference", "other")


def allocation(device: str, node: str = "base-02") -> AllocationResult:
    one = DeviceRequestAllocationResult(request="gpu", driver="gpu.example.com", pool=node, device=device)
    field = NodeSelectorRequirement(key=NODE_NAME_FIELD, operator="In", values=[node])
    selector = NodeSelector(node_selector_terms=[NodeSelectorTerm(match_fields=[field])])
    return AllocationResult(devices=DeviceAllocationResult(results=[one]), node_selector=selector)


def claimer(small: Small, index: int = 0) -> Ref:
    """One of the pods that share the claim."""
    pods = small.world.snapshot().fleet
    rows = sorted((pods.pod(row).spec.name, row) for (_, name), row in pods.pod_by_key.items() if "claimer" in name)
    return pods.pod(rows[index][1]).spec.ref


def claimed(small: Small, *devices: str, index: int = 0, node: str = "base-02", uid: str | None = None) -> Bind:
    """A bind of a claimer with these devices for its claim; without any where it has some already."""
    known = small.world.snapshot().fleet.device_claims.claims[MINE]
    ref = Ref("ResourceClaim", MINE[1], MINE[0], known.metadata.uid if uid is None else uid)
    given = tuple(ClaimAllocation(ref, allocation(one)) for one in devices)
    return Bind(claimer(small, index), small.node(node), WHY, (), given)


def allocate_elsewhere(small: Small, name: str, device: str) -> None:
    """Another scheduler allocates the claim."""
    if small.steps is None:
        known = small.made.cluster.fleet.device_claims
        known.see(_with_status(known.claims["inference", name], device))
        return
    one = small.client.get(RESOURCE_CLAIMS, name, "inference")
    one["status"] = {"allocation": msgspec.to_builtins(allocation(device))}
    small.client.replace(RESOURCE_CLAIMS, one, "inference", "status")
    small.settle()


def _with_status(one: ResourceClaim, device: str) -> ResourceClaim:
    return msgspec.structs.replace(one, status=ResourceClaimStatus(allocation=allocation(device)))


def status(small: Small) -> dict[str, Any]:
    """What the API says of the claim, where there is one."""
    return small.client.get(RESOURCE_CLAIMS, *reversed(MINE)).get("status") or {}


def check_allocated(small: Small) -> None:
    """The claim has the device, and is reserved for the pod, wherever it is looked at; a second pod uses it too."""
    second = small.apply(claimed(small, index=1))
    assert second == Applied()
    for fleet in (small.world.snapshot().fleet, small.made.cluster.fleet):
        known = fleet.device_claims
        given = known.allocation_of(MINE)
        assert given is not None and [one.device for one in given.devices.results] == ["gpu-1"]
        assert len(known.users(MINE)) == 2
    if small.steps is not None:
        assert [one["name"] for one in status(small)["reservedFor"]] == [claimer(small, n).name for n in (0, 1)]
        assert status(small)["allocation"]["devices"]["results"][0]["device"] == "gpu-1"
