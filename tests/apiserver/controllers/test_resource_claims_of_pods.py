"""ResourceClaims that are made for pods, reserved, and given up when the pods end."""

from __future__ import annotations

from typing import Any

from managed_cluster import Cluster

from tonnage.decisions import Applied, ClaimAllocation, Outcome, Ref, Stale
from tonnage.kube.resources import EVENTS, PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from tonnage.live.reserving import release, reserve
from tonnage.objects.dra import (
    POD_CLAIM_NAME,
    V1,
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
)

SPEC = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}


def given(device: str = "gpu-0") -> AllocationResult:
    one = DeviceRequestAllocationResult(request="gpu", driver="gpu.nvidia.com", pool="n", device=device)
    return AllocationResult(devices=DeviceAllocationResult(results=[one]))


AT_NS = 1_767_323_045 * 10**9
"""2026-01-02T03:04:05Z."""


def cluster(*, template: bool = True) -> Cluster:
    """With a template ``one-gpu`` of claims."""
    made = Cluster()
    if template:
        make_template(made)
    return made


def make_template(made: Cluster) -> None:
    meta = {"name": "one-gpu"}
    inner = {"metadata": {"labels": {"team": "a"}}, "spec": SPEC}
    body = {"apiVersion": V1, "kind": "ResourceClaimTemplate", "metadata": meta, "spec": inner}
    made.client.create(RESOURCE_CLAIM_TEMPLATES, body, "default")


def pod(made: Cluster, name: str = "p", **claim: str) -> dict[str, Any]:
    claims = [{"name": "gpu", **(claim or {"resourceClaimTemplateName": "one-gpu"})}]
    container = {"name": "c", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}
    made.client.create(PODS, {**body, "spec": {"containers": [container], "resourceClaims": claims}}, "default")
    made.step()
    return made.get(PODS, name)


def own_claim(made: Cluster, name: str = "own") -> None:
    body = {"apiVersion": V1, "kind": "ResourceClaim", "metadata": {"name": name}, "spec": SPEC}
    made.client.create(RESOURCE_CLAIMS, body, "default")


def claim_of(made: Cluster, name: str = "p") -> dict[str, Any]:
    (said,) = made.get(PODS, name)["status"]["resourceClaimStatuses"]
    return made.get(RESOURCE_CLAIMS, said["resourceClaimName"])


def ref(kind: str, one: dict[str, Any]) -> Ref:
    return Ref(kind, one["metadata"]["name"], "default", one["metadata"]["uid"])


def reserved(made: Cluster, user: dict[str, Any], claim: dict[str, Any], device: str | None = "gpu-0") -> Outcome:
    target = ref("ResourceClaim", claim)
    allocation = ClaimAllocation(target, given(device)) if device is not None else None
    return reserve(made.client, ref("Pod", user), target, allocation, AT_NS)


def test_a_claim_is_made_of_the_template_and_the_pod_is_told_its_name() -> None:
    made = cluster()
    one = pod(made)
    claim = claim_of(made)
    assert claim["metadata"]["name"].startswith("p-gpu-")
    assert claim["metadata"]["labels"] == {"team": "a"}
    assert claim["metadata"]["annotations"] == {POD_CLAIM_NAME: "gpu"}
    (owner,) = claim["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Pod", "p", one["metadata"]["uid"])
    assert claim["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == "gpu.nvidia.com"
    made.restart()
    made.step()
    assert len(made.client.list(RESOURCE_CLAIMS)) == 1


def test_a_template_that_comes_later_is_waited_for_and_the_pod_is_told() -> None:
    made = cluster(template=False)
    pod(made)
    assert made.client.list(RESOURCE_CLAIMS) == []
    assert any(one["reason"] == "FailedResourceClaimCreation" for one in made.client.list(EVENTS))
    make_template(made)
    made.step()
    assert claim_of(made)


def test_a_long_name_of_a_pod_leaves_room_for_that_of_its_claim() -> None:
    made = cluster()
    pod(made, "p" * 60)
    name = claim_of(made, "p" * 60)["metadata"]["name"]
    assert len(name) <= 63
    assert "-g" in name


def test_the_claim_of_a_pod_that_is_gone_is_gone_and_its_devices_with_it() -> None:
    made = cluster()
    one = pod(made)
    assert reserved(made, one, claim_of(made)) == Applied()
    assert claim_of(made)["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    made.client.delete(PODS, "p", "default", grace_s=0)
    made.wait(1)
    assert made.client.list(RESOURCE_CLAIMS) == []


def test_a_claim_that_pods_share_keeps_its_devices_until_the_last_of_them_ends() -> None:
    made = cluster()
    own_claim(made)
    first, second = (pod(made, name, resourceClaimName="own") for name in ("a", "b"))
    assert reserved(made, first, made.get(RESOURCE_CLAIMS, "own")) == Applied()
    assert reserved(made, second, made.get(RESOURCE_CLAIMS, "own"), None) == Applied()
    made.step()
    made.client.patch(PODS, "a", {"status": {"phase": "Succeeded"}}, "default", subresource="status")
    made.step()
    status = made.get(RESOURCE_CLAIMS, "own")["status"]
    assert [one["name"] for one in status["reservedFor"]] == ["b"]
    assert status["allocation"]["devices"]["results"][0]["device"] == "gpu-0"
    made.client.delete(PODS, "b", "default", grace_s=0)
    made.wait(1)
    left = made.get(RESOURCE_CLAIMS, "own")
    assert "allocation" not in (left.get("status") or {})
    assert not left["metadata"].get("finalizers")


def test_an_allocation_that_nobody_has_reserved_stays() -> None:
    made = cluster()
    own_claim(made)
    one = pod(made, resourceClaimName="own")
    claim = made.get(RESOURCE_CLAIMS, "own")
    assert reserved(made, one, claim) == Applied()
    found = made.get(RESOURCE_CLAIMS, "own")
    found["status"]["reservedFor"] = []
    made.client.replace(RESOURCE_CLAIMS, found, "default", "status")
    made.client.delete(PODS, "p", "default", grace_s=0)
    made.wait(1)
    assert made.get(RESOURCE_CLAIMS, "own")["status"]["allocation"]


def test_a_pod_that_was_bound_by_hand_gets_its_reservation() -> None:
    made = cluster()
    own_claim(made)
    first = pod(made, "a", resourceClaimName="own")
    assert reserved(made, first, made.get(RESOURCE_CLAIMS, "own")) == Applied()
    second = pod(made, "b", resourceClaimName="own")
    made.client.bind("b", "default", second["metadata"]["uid"], "n")
    made.step()
    assert [one["name"] for one in made.get(RESOURCE_CLAIMS, "own")["status"]["reservedFor"]] == ["a", "b"]


# ---- what a scheduler writes ----


def test_a_claim_that_has_other_devices_meanwhile_is_not_overwritten() -> None:
    made = cluster()
    own_claim(made)
    one, other = (pod(made, name, resourceClaimName="own") for name in ("a", "b"))
    claim = made.get(RESOURCE_CLAIMS, "own")
    assert reserved(made, one, claim, "gpu-1") == Applied()
    said = reserved(made, other, claim, "gpu-0")
    assert said == Stale("ResourceClaim default/own has been allocated otherwise")
    assert made.get(RESOURCE_CLAIMS, "own")["status"]["allocation"]["devices"]["results"][0]["device"] == "gpu-1"


def test_reserving_twice_writes_once() -> None:
    made = cluster()
    own_claim(made)
    one = pod(made, resourceClaimName="own")
    for _ in range(2):
        assert reserved(made, one, made.get(RESOURCE_CLAIMS, "own")) == Applied()
    status = made.get(RESOURCE_CLAIMS, "own")["status"]
    assert len(status["reservedFor"]) == 1
    assert status["allocation"]["allocationTimestamp"] == "2026-01-02T03:04:05Z"


def test_a_claim_of_another_uid_is_another_claim() -> None:
    made = cluster()
    own_claim(made)
    one = pod(made, resourceClaimName="own")
    before = made.get(RESOURCE_CLAIMS, "own")
    made.client.delete(RESOURCE_CLAIMS, "own", "default")
    own_claim(made)
    assert reserved(made, one, before) == Stale("ResourceClaim default/own is gone")


def test_what_is_taken_back_leaves_the_devices_to_those_who_share_them() -> None:
    made = cluster()
    own_claim(made)
    one, other = (pod(made, name, resourceClaimName="own") for name in ("a", "b"))
    target = ref("ResourceClaim", made.get(RESOURCE_CLAIMS, "own"))
    wanted = ClaimAllocation(target, given())
    for each in (one, other):
        assert reserve(made.client, ref("Pod", each), target, wanted, AT_NS) == Applied()
    release(made.client, ref("Pod", one), target, wanted)
    status = made.get(RESOURCE_CLAIMS, "own")["status"]
    assert [each["name"] for each in status["reservedFor"]] == ["b"]
    assert status["allocation"]
    release(made.client, ref("Pod", other), target, wanted)
    assert "allocation" not in (made.get(RESOURCE_CLAIMS, "own").get("status") or {})
