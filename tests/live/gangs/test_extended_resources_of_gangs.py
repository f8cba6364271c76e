"""Pods that request an extended resource which claims serve, bound through an API: the claim is made before the binding,
and gone where that fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from live.gangs.gang_cluster import GangCluster
from tonnage.decisions import Applied, Bind, Refused, Stale
from tonnage.fleet.invariants import violations
from tonnage.kube.resources import DEVICE_CLASSES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from tonnage.objects.dra import DELETE_PROTECTION, EXTENDED_CLAIM, V1

DRIVER, GPU = "gpu.nvidia.com", "nvidia.com/gpu"
SECOND = 10**9


class ServedCluster(GangCluster):
    """Nodes without GPUs of a device plugin, whose devices a class serves as nvidia.com/gpu."""

    def node(self, name: str, gpus: int) -> None:
        super().node(name, 0)
        devices = [{"name": f"gpu-{number}"} for number in range(gpus)]
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": devices}
        body = {"apiVersion": V1, "kind": "ResourceSlice", "metadata": {"name": f"{name}-gpus"}, "spec": spec}
        self.client.create(RESOURCE_SLICES, body)
        if not self.client.list(DEVICE_CLASSES):
            selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
            body = {"apiVersion": V1, "kind": "DeviceClass", "metadata": {"name": "gpu"}}
            served = {"selectors": [selector], "extendedResourceName": GPU}
            self.client.create(DEVICE_CLASSES, {**body, "spec": served})

    def claims(self) -> list[dict[str, Any]]:
        return self.client.list(RESOURCE_CLAIMS, "ml")

    def devices(self) -> list[str]:
        """Those that claims in the API have."""
        allocations = [(one.get("status") or {}).get("allocation") for one in self.claims()]
        return sorted(each["device"] for one in allocations if one for each in one["devices"]["results"])


@pytest.fixture(params=[1, 4], ids=["one-call-at-a-time", "four-threads"])
def cluster(request: pytest.FixtureRequest) -> Iterator[ServedCluster]:
    made = ServedCluster(parallel=request.param)
    made.node("a", 4)
    yield made
    made.stop()


def test_the_pod_is_bound_with_a_claim_that_its_status_names(cluster: ServedCluster) -> None:
    cluster.gang("PyTorchJob", 1, "g")
    cluster.tick()
    assert cluster.bound() == {"g": 1}
    (claim,) = cluster.claims()
    (pod,) = [cluster.client.get(PODS, one.name, "ml") for one in cluster.gangs["g"]]
    assert claim["metadata"]["annotations"] == {EXTENDED_CLAIM: "true"}
    assert claim["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"], "as kube-scheduler names it"
    (owner,) = claim["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == (pod["metadata"]["uid"], True)
    (request,) = claim["spec"]["devices"]["requests"]
    assert request["exactly"]["deviceClassName"] == "gpu"
    assert [one["uid"] for one in claim["status"]["reservedFor"]] == [pod["metadata"]["uid"]]
    said = pod["status"]["extendedResourceClaimStatus"]
    assert said["resourceClaimName"] == claim["metadata"]["name"]
    container = pod["spec"]["containers"][0]["name"]
    mapping = {"containerName": container, "resourceName": GPU, "requestName": request["name"]}
    assert said["requestMappings"] == [mapping]
    cluster.see()
    assert violations(cluster.world.fleet) == []


def test_a_gang_gets_devices_that_are_all_different_or_none(cluster: ServedCluster) -> None:
    cluster.gang("JobSet", 3, "fits")
    cluster.gang("JobSet", 2, "waits")
    cluster.tick()
    assert cluster.bound() == {"fits": 3, "waits": 0}
    assert len(set(cluster.devices())) == 3 and len(cluster.claims()) == 3
    cluster.see()
    assert violations(cluster.world.fleet) == []


@pytest.mark.parametrize("fault", ["invalid", "error", "unavailable"])
@pytest.mark.parametrize("write", range(10))
def test_where_one_write_fails_no_pod_of_the_gang_is_bound_and_no_claim_left(
    cluster: ServedCluster, fault: str, write: int
) -> None:
    cluster.gang("JobSet", 2, "g")
    cluster.faulty.next_write(*[""] * write, fault)
    taken = cluster.tick()
    outcomes = [outcome for decision, outcome in taken if isinstance(decision, Bind)]
    if write < 8:  # each of two claims: made, finalizer, status, and the pod's status
        assert all(isinstance(one, Stale | Refused) for one in outcomes)
        assert cluster.bound() == {"g": 0}
        assert cluster.claims() == []
    cluster.see()
    for _ in range(3):
        cluster.clock.at_ns += 11 * SECOND
        cluster.tick()
    assert cluster.bound() == {"g": 2}
    assert len(set(cluster.devices())) == 2 and len(cluster.claims()) == 2
    cluster.see()
    assert violations(cluster.world.fleet) == []


@pytest.mark.parametrize("lost", ["lost-done", "lost-undone"])
def test_a_lost_answer_is_asked_after_and_nothing_is_made_twice(cluster: ServedCluster, lost: str) -> None:
    for write in range(4):
        cluster.gang("PyTorchJob", 1, f"g{write}")
        cluster.faulty.next_write(*[""] * write, lost)
        cluster.tick()
        cluster.clock.at_ns += 11 * SECOND
        cluster.tick()
    assert set(cluster.bound().values()) == {1}
    assert len(cluster.claims()) == 4 and len(set(cluster.devices())) == 4


def test_a_claim_that_a_scheduler_has_left_behind_is_deleted_and_its_pod_bound(cluster: ServedCluster) -> None:
    cluster.gang("PyTorchJob", 1, "g")
    (pod,) = cluster.gangs["g"]
    uid = cluster.client.get(PODS, pod.name, "ml")["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": uid, "controller": True}
    requests = [{"name": "container-0-request-0", "exactly": {"deviceClassName": "gpu", "count": 4}}]
    meta = {"name": "left", "annotations": {EXTENDED_CLAIM: "true"}, "ownerReferences": [owner]}
    body = {"apiVersion": V1, "kind": "ResourceClaim", "metadata": {**meta, "finalizers": [DELETE_PROTECTION]}}
    cluster.client.create(RESOURCE_CLAIMS, {**body, "spec": {"devices": {"requests": requests}}}, "ml")
    claim = cluster.client.get(RESOURCE_CLAIMS, "left", "ml")
    results = [
        {"request": "container-0-request-0", "driver": DRIVER, "pool": "a", "device": f"gpu-{number}"}
        for number in range(4)
    ]
    claim["status"] = {"allocation": {"devices": {"results": results}}}
    cluster.client.replace(RESOURCE_CLAIMS, claim, "ml", "status")
    for _ in range(3):
        cluster.tick()
        cluster.clock.at_ns += 2 * SECOND
    assert cluster.bound() == {"g": 1}
    assert [one["metadata"]["name"] for one in cluster.claims()] != ["left"] and len(cluster.claims()) == 1


def test_a_decision_that_is_taken_before_others_hold_the_devices_is_stale(cluster: ServedCluster) -> None:
    cluster.gang("PyTorchJob", 1, "g")
    cluster.see()
    binds = [*cluster.scheduler.decide(cluster.world)]
    body = {"apiVersion": V1, "kind": "ResourceClaim", "metadata": {"name": "other"}}
    requests = [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]
    cluster.client.create(RESOURCE_CLAIMS, {**body, "spec": {"devices": {"requests": requests}}}, "ml")
    taken = cluster.client.get(RESOURCE_CLAIMS, "other", "ml")
    result = {"request": "gpu", "driver": DRIVER, "pool": "a", "device": "gpu-0"}
    taken["status"] = {"allocation": {"devices": {"results": [result]}}}
    cluster.client.replace(RESOURCE_CLAIMS, taken, "ml", "status")
    cluster.see()
    (found,) = cluster.world.apply_all(binds)
    assert isinstance(found, Stale) and "gpu-0" in found.changed
    assert all(outcome == Applied() for decision, outcome in cluster.tick() if isinstance(decision, Bind))
    assert cluster.devices() == ["gpu-0", "gpu-1"]
