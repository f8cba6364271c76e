"""ResourceQuotas on ResourceClaims: what the embedded API refuses, and what is told to be in use."""

from __future__ import annotations

from typing import Any

import pytest
from managed_cluster import Cluster

from tonnage.kube.resources import (
    DEVICE_CLASSES,
    EVENTS,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
)
from tonnage.kube.transport import ApiError
from tonnage.objects.dra import V1

BIG = "big.deviceclass.resource.k8s.io/devices"
SMALL = "small.deviceclass.resource.k8s.io/devices"
COUNT = "count/resourceclaims.resource.k8s.io"
SERVED, IMPLICIT = "requests.nvidia.com/gpu", "requests.deviceclass.resource.kubernetes.io/big"


def exactly(of: str = "big", **fields: Any) -> dict[str, Any]:
    return {"name": "r", "exactly": {"deviceClassName": of, **fields}}


def either(*ways: tuple[str, int]) -> dict[str, Any]:
    listed = [{"name": f"w{at}", "deviceClassName": of, "count": n} for at, (of, n) in enumerate(ways)]
    return {"name": "e", "firstAvailable": listed}


def cluster(**hard: str) -> Cluster:
    """With a class that serves nvidia.com/gpu, one that serves nothing, and a quota."""
    made = Cluster()
    for name, spec in (("big", {"extendedResourceName": "nvidia.com/gpu"}), ("small", {})):
        made.client.create(
            DEVICE_CLASSES, {"apiVersion": V1, "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}
        )
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": hard}}
    made.client.create(RESOURCE_QUOTAS, body, "default")
    return made


def claim(made: Cluster, name: str, *requests: dict[str, Any], **meta: Any) -> None:
    body = {"apiVersion": V1, "kind": "ResourceClaim", "metadata": {"name": name, **meta}}
    made.client.create(RESOURCE_CLAIMS, {**body, "spec": {"devices": {"requests": list(requests)}}}, "default")


def used(made: Cluster) -> dict[str, str]:
    made.settle()
    found: dict[str, str] = made.get(RESOURCE_QUOTAS, "q")["status"]["used"]
    return found


@pytest.mark.parametrize(
    ("request_", "counted"),
    [
        (exactly(), {BIG: "1", SERVED: "1", IMPLICIT: "1", SMALL: "0"}),
        (exactly(count=3), {BIG: "3", SERVED: "3", IMPLICIT: "3", SMALL: "0"}),
        (exactly("small", count=2), {BIG: "0", SERVED: "0", IMPLICIT: "0", SMALL: "2"}),
        (exactly(allocationMode="All"), {BIG: "32", SERVED: "32", IMPLICIT: "32", SMALL: "0"}),
        (either(("big", 1), ("small", 4), ("big", 2)), {BIG: "2", SERVED: "2", IMPLICIT: "2", SMALL: "4"}),
    ],
    ids=["one", "three", "of a class that serves nothing", "all", "the most of each class among alternatives"],
)
def test_a_claim_counts_as_the_devices_that_it_can_have_at_most(
    request_: dict[str, Any], counted: dict[str, str]
) -> None:
    made = cluster(**dict.fromkeys((COUNT, *counted), "100"))
    claim(made, "c", request_)
    assert used(made) == {COUNT: "1", **counted}


def test_a_claim_beyond_the_quota_is_refused_with_what_is_asked_used_and_limited() -> None:
    made = cluster(**{BIG: "3"})
    claim(made, "first", exactly(count=2))
    with pytest.raises(ApiError) as caught:
        claim(made, "second", exactly(count=2))
    assert caught.value.code == 403
    assert str(caught.value.message) == (
        'resourceclaims.resource.k8s.io "second" is forbidden: exceeded quota: q, '
        f"requested: {BIG}=2, used: {BIG}=2, limited: {BIG}=3"
    )
    claim(made, "third", exactly(count=1))
    assert used(made) == {BIG: "3"}
    made.client.delete(RESOURCE_CLAIMS, "first", "default")
    assert used(made) == {BIG: "1"}


def test_the_claim_of_a_template_that_is_refused_is_told_of_its_pod() -> None:
    made = cluster(**{BIG: "0"})
    body = {"apiVersion": V1, "kind": "ResourceClaimTemplate", "metadata": {"name": "t"}}
    made.client.create(
        RESOURCE_CLAIM_TEMPLATES, {**body, "spec": {"spec": {"devices": {"requests": [exactly()]}}}}, "default"
    )
    spec = {
        "containers": [{"name": "c", "image": "i"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}],
    }
    made.client.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}, "default")
    made.settle()
    said = [one["message"] for one in made.client.list(EVENTS) if one["reason"] == "FailedResourceClaimCreation"]
    assert said and "exceeded quota: q" in said[0]
    assert made.client.list(RESOURCE_CLAIMS) == []


def test_a_claim_for_extended_resources_counts_what_its_pod_does_not_count_already() -> None:
    made = cluster(**{SERVED: "3", BIG: "10"})
    limits = {"nvidia.com/gpu": "2"}
    spec = {"containers": [{"name": "c", "image": "i", "resources": {"limits": limits}}]}
    made.client.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}, "default")
    assert used(made) == {SERVED: "2", BIG: "0"}
    uid = made.get(PODS, "p")["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": True}
    mark = {"resource.kubernetes.io/extended-resource-claim": "true"}
    claim(made, "p-extended-resources-x", exactly(count=2), annotations=mark, ownerReferences=[owner])
    assert used(made) == {SERVED: "2", BIG: "2"}
    claim(made, "own", exactly(count=1))
    assert used(made) == {SERVED: "3", BIG: "3"}
    with pytest.raises(ApiError, match="exceeded quota"):
        made.client.create(
            PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "q"}, "spec": spec}, "default"
        )


def test_a_quota_with_scopes_counts_no_claims() -> None:
    made = cluster(**{SERVED: "5"})
    spec = {"hard": {SERVED: "0"}, "scopes": ["NotTerminating"]}
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "scoped"}, "spec": spec}
    made.client.create(RESOURCE_QUOTAS, body, "default")
    claim(made, "c", exactly())
    assert used(made) == {SERVED: "1"}
    assert made.get(RESOURCE_QUOTAS, "scoped")["status"]["used"] == {SERVED: "0"}
