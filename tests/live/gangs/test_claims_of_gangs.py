"""Gangs whose pods have ResourceClaims: devices and reservations are written for all before any pod is bound, or for none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from live.gangs.gang_cluster import GangCluster, verdicts
from tonnage.decisions import Applied, Bind, Refused, Stale
from tonnage.fleet.invariants import violations
from tonnage.kube.resources import (
    DEVICE_CLASSES,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from tonnage.objects import core
from tonnage.objects.dra import DELETE_PROTECTION, V1

DRIVER = "gpu.nvidia.com"


class ClaimCluster(GangCluster):
    """Pods have a claim of their own in place of a GPU; nodes have devices for claims."""

    def node(self, name: str, gpus: int) -> None:
        super().node(name, 0)
        devices = [{"name": f"gpu-{number}"} for number in range(gpus)]
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": devices}
        body = {"apiVersion": V1, "kind": "ResourceSlice", "metadata": {"name": f"{name}-gpus"}, "spec": spec}
        self.client.create(RESOURCE_SLICES, body)

    def create(self, pod: core.Pod) -> None:
        if not self.client.list(DEVICE_CLASSES):
            selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
            body = {"apiVersion": V1, "kind": "DeviceClass", "metadata": {"name": "gpu"}}
            self.client.create(DEVICE_CLASSES, {**body, "spec": {"selectors": [selector]}})
        self.claim(pod.name)
        super().create(pod)

    def claim(self, name: str) -> None:
        """A claim for one GPU."""
        requests = [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]
        body = {"apiVersion": V1, "kind": "ResourceClaim", "metadata": {"name": name}}
        self.client.create(RESOURCE_CLAIMS, {**body, "spec": {"devices": {"requests": requests}}}, "ml")

    def spec_of(self, name: str) -> dict[str, Any]:
        spec = super().spec_of(name)
        spec["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
        return {**spec, "resourceClaims": [{"name": "gpu", "resourceClaimName": name}]}

    def held(self) -> dict[str, tuple[str, ...]]:
        """Claim → its devices, of those that the API has allocated."""
        return {
            one["metadata"]["name"]: tuple(
                f"{each['pool']}/{each['device']}" for each in one["status"]["allocation"]["devices"]["results"]
            )
            for one in self.client.list(RESOURCE_CLAIMS, "ml")
            if (one.get("status") or {}).get("allocation")
        }

    def reserved(self) -> set[str]:
        """Claims that are reserved for somebody."""
        found = self.client.list(RESOURCE_CLAIMS, "ml")
        return {one["metadata"]["name"] for one in found if (one.get("status") or {}).get("reservedFor")}


@pytest.fixture(params=[1, 4], ids=["one-call-at-a-time", "four-threads"])
def cluster(request: pytest.FixtureRequest) -> Iterator[ClaimCluster]:
    made = ClaimCluster(parallel=request.param)
    made.node("a", 4)
    yield made
    made.stop()


def test_a_gang_is_bound_with_devices_that_are_all_different(cluster: ClaimCluster) -> None:
    cluster.gang("JobSet", 4, "g")
    cluster.tick()
    assert cluster.bound() == {"g": 4}
    held = cluster.held()
    assert sorted(held.values()) == [(f"a/gpu-{number}",) for number in range(4)]
    assert cluster.reserved() == set(held)
    for one in cluster.client.list(RESOURCE_CLAIMS, "ml"):
        assert one["metadata"]["finalizers"] == [DELETE_PROTECTION]
    cluster.see()
    assert violations(cluster.world.fleet) == []


def test_a_gang_that_finds_too_few_devices_holds_none(cluster: ClaimCluster) -> None:
    cluster.gang("JobSet", 5, "g")
    said = [*verdicts(cluster.tick())]
    assert cluster.bound() == {"g": 0}
    assert cluster.held() == {}
    assert len(said) == 5


@pytest.mark.parametrize("fault", ["invalid", "error", "unavailable"])
@pytest.mark.parametrize("write", range(6))
def test_where_one_claim_cannot_be_written_no_pod_of_the_gang_is_bound_and_no_claim_held(
    cluster: ClaimCluster, fault: str, write: int
) -> None:
    cluster.gang("JobSet", 3, "g")
    cluster.faulty.next_write(*[""] * write, fault)
    taken = cluster.tick()
    outcomes = [outcome for decision, outcome in taken if isinstance(decision, Bind)]
    assert all(isinstance(one, Stale | Refused) for one in outcomes)
    assert cluster.bound() == {"g": 0}
    assert cluster.held() == {} and cluster.reserved() == set()
    cluster.see()
    assert not cluster.world.fleet.device_claims.state.devices
    cluster.clock.at_ns += 11 * 10**9
    cluster.tick()
    assert cluster.bound() == {"g": 3}
    assert len(set(cluster.held().values())) == 3


def test_a_conflict_with_who_wrote_the_claim_meanwhile_is_read_again(cluster: ClaimCluster) -> None:
    cluster.gang("JobSet", 2, "g")
    cluster.faulty.next_write("conflict", "", "conflict")
    assert all(outcome == Applied() for decision, outcome in cluster.tick() if isinstance(decision, Bind))
    assert cluster.bound() == {"g": 2}
    assert len(cluster.held()) == 2


def test_what_a_binding_that_failed_had_reserved_is_taken_back(cluster: ClaimCluster) -> None:
    cluster.gang("PyTorchJob", 1, "g")
    cluster.faulty.next_write("", "", "invalid")  # finalizer, status, binding
    cluster.tick()
    assert cluster.bound() == {"g": 0}
    assert cluster.held() == {} and cluster.reserved() == set()
    cluster.clock.at_ns += 2 * 10**9
    cluster.tick()
    assert cluster.bound() == {"g": 1}


def test_devices_that_somebody_else_allocates_meanwhile_are_not_given_twice(cluster: ClaimCluster) -> None:
    cluster.claim("other")
    cluster.gang("PyTorchJob", 1, "g")
    cluster.see()
    binds = [*cluster.scheduler.decide(cluster.world)]
    (name,) = (pod.name for pod in cluster.gangs["g"])
    taken = cluster.client.get(RESOURCE_CLAIMS, "other", "ml")
    result = {"request": "gpu", "driver": DRIVER, "pool": "a", "device": "gpu-0"}
    taken["status"] = {"allocation": {"devices": {"results": [result]}}}
    cluster.client.replace(RESOURCE_CLAIMS, taken, "ml", "status")
    cluster.see()
    (found,) = cluster.world.apply_all(binds)
    assert isinstance(found, Stale) and f"gpu-0 of claim ml/{name} is allocated" in found.changed
    cluster.tick()
    assert cluster.held() == {"other": ("a/gpu-0",), name: ("a/gpu-1",)}


def test_a_slice_that_appears_wakes_pods_that_wait(cluster: ClaimCluster) -> None:
    cluster.gang("PyTorchJob", 1, "first")
    cluster.tick()
    cluster.gang("JobSet", 4, "g")
    cluster.tick()
    assert cluster.bound()["g"] == 0
    cluster.node("b", 4)
    cluster.tick()
    assert cluster.bound()["g"] == 4


def test_devices_that_pin_a_pending_pod_to_a_node_it_cannot_have_are_given_up(cluster: ClaimCluster) -> None:
    cluster.node("b", 1)
    cluster.gang("PyTorchJob", 1, "g")
    (pod,) = cluster.gangs["g"]
    claim = cluster.client.get(RESOURCE_CLAIMS, pod.name, "ml")
    uid = cluster.client.get(PODS, pod.name, "ml")["metadata"]["uid"]
    result = {"request": "gpu", "driver": DRIVER, "pool": "b", "device": "gpu-0"}
    field = {"key": "metadata.name", "operator": "In", "values": ["b"]}
    selector = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    claim["status"] = {
        "allocation": {"devices": {"results": [result]}, "nodeSelector": selector},
        "reservedFor": [{"resource": "pods", "name": pod.name, "uid": uid}],
    }
    cluster.client.replace(RESOURCE_CLAIMS, claim, "ml", "status")
    cluster.client.patch(NODES, "b", {"spec": {"unschedulable": True}})
    for _ in range(2):
        cluster.tick()
        cluster.clock.at_ns += 2 * 10**9
    assert cluster.client.get(PODS, pod.name, "ml")["spec"]["nodeName"] == "a"
    assert cluster.held() == {pod.name: ("a/gpu-0",)}
