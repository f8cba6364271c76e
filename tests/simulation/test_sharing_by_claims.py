"""Pods that share a GPU or a MIG device by one ResourceClaim: its configuration acts as the device plugin's does."""

from __future__ import annotations

from typing import Any

import pytest
from sharing_builders import cut_node, latencies, serving
from sim_builders import run_until, world

from tonnage.dra import nvidia
from tonnage.facts.labels import DRA_PLUGIN, MIG_RELAYOUT
from tonnage.machines.cluster import SimulatedCluster
from tonnage.machines.objects import SimulatedNode
from tonnage.objects.dra_versions import from_dict
from tonnage.objects.nvidia_device_configs import API_VERSION

ALONE_S = 10.0
"""1,000 tokens at 10 ms each."""
DRIVER = {DRA_PLUGIN: "true"}
SLICED = {"strategy": "TimeSlicing"}


def claim(
    cluster: SimulatedCluster,
    sharing: dict[str, Any] | None = None,
    *,
    name: str = "shared",
    profile: str = "",
    of_class: bool = False,
) -> None:
    """A claim for one GPU, or for a MIG device, with this configuration, or with that of its class."""
    kind = "MigDeviceConfig" if profile else "GpuConfig"
    parameters = {"apiVersion": API_VERSION, "kind": kind, "sharing": sharing}
    config = [{"opaque": {"driver": nvidia.DRIVER, "parameters": parameters}}] if sharing else []
    asked: dict[str, Any] = {"deviceClassName": nvidia.MIG_CLASS if profile else nvidia.GPU_CLASS}
    if profile:
        text = f"device.attributes['{nvidia.DRIVER}'].profile == '{profile}'"
        asked["selectors"] = [{"cel": {"expression": text}}]
    if of_class:
        for one in nvidia.device_classes():
            spec: dict[str, Any] = {"selectors": [{"cel": {"expression": one.spec.selectors[0].cel.expression}}]}  # type: ignore[union-attr]
            see(cluster, "DeviceClass", one.name, {**spec, "config": config})
    devices = {"requests": [{"name": "r", "exactly": asked}], "config": [] if of_class else config}
    see(cluster, "ResourceClaim", name, {"devices": devices})


def see(cluster: SimulatedCluster, kind: str, name: str, spec: dict[str, Any]) -> None:
    metadata = {"name": name, "namespace": "inference"} if kind == "ResourceClaim" else {"name": name}
    body = {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec}
    cluster.fleet.device_claims.see(from_dict(body))


def shared(sharing: dict[str, Any] | None, count: int, **more: Any) -> tuple[SimulatedCluster, SimulatedNode]:
    """So many engines on one GPU by one claim, each with a request after five seconds."""
    cluster = world(start_s=0)
    node = cut_node(cluster, DRIVER)
    claim(cluster, sharing, **more)
    for number in range(count):
        serving(cluster, node, f"model-{number}", 5.0, claims=["shared"])
    return cluster, node


@pytest.mark.parametrize(
    ("interval", "slower"), [("Default", 1.06), ("Short", 1.12), ("Medium", 1.06), ("Long", 1.03), (None, 1.06)]
)
def test_the_interval_of_a_claim_says_what_switching_costs(interval: str | None, slower: float) -> None:
    config = SLICED | ({"timeSlicingConfig": {"interval": interval}} if interval else {})
    cluster, _ = shared(config, 2)
    run_until(cluster, 60)
    assert latencies(cluster, "model-0") == [pytest.approx(2 * slower * ALONE_S, rel=0.001)]


def test_pods_of_a_claim_without_configuration_take_turns() -> None:
    cluster, _ = shared(None, 2)
    run_until(cluster, 60)
    assert latencies(cluster, "model-1") == [pytest.approx(2 * 1.06 * ALONE_S, rel=0.001)]


def test_who_is_alone_on_its_claim_is_as_fast_as_on_a_gpu_of_its_own() -> None:
    cluster, _ = shared(SLICED, 1)
    run_until(cluster, 60)
    assert latencies(cluster, "model-0") == [pytest.approx(ALONE_S, rel=0.001)]


def test_the_configuration_of_the_class_acts_where_the_claim_has_none() -> None:
    cluster, _ = shared(SLICED | {"timeSlicingConfig": {"interval": "Long"}}, 2, of_class=True)
    run_until(cluster, 60)
    assert latencies(cluster, "model-0") == [pytest.approx(2 * 1.03 * ALONE_S, rel=0.001)]


def mps(percent: int | None = None, memory: str | None = None) -> dict[str, Any]:
    limits = {"defaultActiveThreadPercentage": percent, "defaultPinnedDeviceMemoryLimit": memory}
    return {"strategy": "MPS", "mpsConfig": {name: value for name, value in limits.items() if value is not None}}


def test_clients_of_mps_run_side_by_side_within_their_percentage() -> None:
    slow, fast = (shared(mps(percent), 2)[0] for percent in (10, 100))
    turns, _ = shared(SLICED, 2)
    for cluster in (slow, fast, turns):
        run_until(cluster, 200)
    of = [latencies(cluster, "model-0")[0] for cluster in (slow, fast, turns)]
    assert of[0] > 1.5 * of[1], "a tenth of the threads is slower than all of them"
    assert of[1] < of[2], "two that decode side by side are faster than in turns"


@pytest.mark.parametrize(("limit", "gib"), [("9Gi", 9), ("30Gi", 30), (None, 0.9 * 45_776 / 1024)])
def test_an_engine_gets_no_more_memory_than_the_limit_of_its_claim(limit: str | None, gib: float) -> None:
    cluster = world(start_s=0)
    node = cut_node(cluster, DRIVER)
    claim(cluster, mps(memory=limit))
    pod = serving(cluster, node, "model", 5.0, claims=["shared"], utilization=0.9)
    run_until(cluster, 1)
    assert pod.sharer is not None
    assert float(pod.sharer.claimed) * 45_776 / 1024 == pytest.approx(gib, rel=0.001)


def test_pods_that_share_a_mig_device_by_a_claim_are_apart_from_others_on_its_gpu() -> None:
    cluster = world(start_s=0)
    node = cut_node(cluster, {**DRIVER, MIG_RELAYOUT: "true"}, "p5.4xlarge")
    claim(cluster, SLICED, profile="3g.40gb")
    claim(cluster, profile="3g.40gb", name="beside")
    names = {"one": "shared", "two": "shared", "three": "beside"}
    for name, of in names.items():
        serving(cluster, node, name, 5.0, claims=[of])
    run_until(cluster, 200)
    one, two, three = (latencies(cluster, name)[0] for name in names)
    assert one == two == pytest.approx(2 * 1.06 * three, rel=0.01)
