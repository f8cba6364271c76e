"""Which of what a node offers are devices, each with a row of its own, and which are mere numbers."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from live.reading.watched import GPU, Json, Watched, node, pod, why
from tonnage.fleet import invariants

H100, A100 = "NVIDIA-H100-80GB-HBM3", "NVIDIA-A100-SXM4-40GB"
PRODUCT, COUNT = "nvidia.com/gpu.product", "nvidia.com/gpu.count"
MIB = 1 << 20


def cut(product: str, cards: int = 8, **offers: int) -> Json:
    """A node of which every card is partitioned by strategy mixed, so that it has no nvidia.com/gpu."""
    profiles = {f"nvidia.com/mig-{name.replace('_', '.')}": str(count) for name, count in offers.items()}
    return node("n1", {PRODUCT: product, COUNT: str(cards), "nvidia.com/mig.strategy": "mixed"}, offers=profiles)


def asks(name: str, profile: str, count: int = 1) -> Json:
    return pod(name, requests={f"nvidia.com/mig-{profile}": str(count)})


@pytest.mark.parametrize(
    ("product", "offers", "profile"),
    [
        (H100, {"1g_10gb": 16, "2g_20gb": 8, "3g_40gb": 8}, "3g.40gb"),
        (H100, {"1g_10gb": 16, "2g_20gb": 8, "3g_40gb": 8}, "2g.20gb"),
        (A100, {"1g_5gb": 16, "2g_10gb": 8, "3g_20gb": 8}, "3g.20gb"),
        (A100, {"1g_5gb": 16, "2g_10gb": 8, "3g_20gb": 8}, "2g.10gb"),
        (H100, {"3g_40gb": 16}, "3g.40gb"),
        (A100, {"7g_40gb": 8}, "7g.40gb"),
        ("NVIDIA-GB999", {"3g_40gb": 8, "2g_20gb": 8}, "2g.20gb"),
    ],
)
def test_every_instance_of_a_node_without_whole_gpus_is_placed(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, product: str, offers: dict[str, int], profile: str
) -> None:
    there = offers[profile.replace(".", "_")]
    seen = Watched(cut(product, **offers))
    for i in range(there):
        seen.see(asks(f"p{i}", profile))
        assert seen.feasible(f"p{i}") == {"n1"}, i
        seen.state.fleet.bind(seen.state.fleet.pod_by_key["default", f"p{i}"], 0)
    assert invariants.violations(seen.state.fleet) == []
    seen.see(asks("more", profile))
    assert seen.answer("more") == f"0/1 nodes are available: 1 Insufficient nvidia.com/mig-{profile}"
    said = why(capfd, tmp_path, [cut(product, **offers), asks("p", profile)], "p")
    assert "would be bound to n1" in said


def test_a_node_with_cut_and_with_whole_gpus_gives_both() -> None:
    offers = {GPU: "4", "nvidia.com/mig-3g.40gb": "8"}
    seen = Watched(node("n1", {PRODUCT: H100, COUNT: "8", "nvidia.com/mig.strategy": "mixed"}, offers=offers))
    for name, requests in (("whole", {GPU: "4"}), ("cut", {"nvidia.com/mig-3g.40gb": "8"})):
        seen.see(pod(name, requests=requests))
        assert seen.answer(name) == "n1"
        seen.state.fleet.bind(seen.state.fleet.pod_by_key["default", name], 0)
    assert (seen.state.fleet.devices[0] != -2).sum() == 8


@pytest.mark.parametrize(
    ("resource", "amount", "devices"),
    [
        (GPU, 8, 8),
        ("amd.com/gpu", 4, 4),
        ("aws.amazon.com/neuron", 16, 16),
        ("google.com/tpu", 4, 4),
        ("example.com/gpu", 2, 2),
        ("example.com/epc", 64, 0),
        ("devices.kubevirt.io/kvm", 1000, 0),
        ("vpc.amazonaws.com/efa", 4, 0),
        ("nvidia.com/gpumem", 80, 0),
        (GPU, 100_000_000, 0),
    ],
)
def test_devices_are_what_is_known_to_be_devices(resource: str, amount: int, devices: int) -> None:
    seen = Watched(node("n1", offers={resource: str(amount)}))
    fleet = seen.state.fleet
    assert (fleet.devices[fleet.node_by_name["n1"]] != -2).sum() == devices
    if resource != "nvidia.com/gpumem":
        seen.see(pod("all", requests={resource: str(amount)}))
        seen.see(pod("more", requests={resource: str(amount + 1)}))
        assert seen.feasible("all") == {"n1"}
        assert seen.feasible("more") == set()


@pytest.mark.parametrize("resource", ["example.com/gpu", "deviceclass.resource.kubernetes.io/gpu.example.com"])
def test_a_pod_that_asks_for_what_no_node_lists_waits_though_a_device_class_may_stand_for_it(resource: str) -> None:
    """kube-scheduler allocates devices for it from ResourceSlices, which are not read here."""
    seen = Watched(node("n1"), node("n2", offers={"example.com/other": "1"}))
    seen.see(pod("p", requests={resource: "1"}))
    assert seen.feasible("p") == set()
    assert seen.answer("p") == f"0/2 nodes are available: 2 Insufficient {resource}"


@pytest.mark.parametrize(
    ("resource", "amount", "nodes", "most_mib"),
    [
        ("example.com/epc", "2000000", 1, 1),
        ("example.com/epc", "94371840", 1, 1),
        ("example.com/gpu", "94371840", 1, 1),
        ("nvidia.com/gpu.shared", "94371840", 1, 1),
        ("devices.kubevirt.io/kvm", "1k", 3000, 24),
        ("devices.kubevirt.io/tun", "110", 3000, 24),
    ],
)
def test_a_large_number_of_something_costs_no_memory(resource: str, amount: str, nodes: int, most_mib: int) -> None:
    written = [node(f"n{i}", offers={resource: amount}) for i in range(nodes)]
    seen = Watched()
    tracemalloc.start()
    try:
        for one in written:
            seen.see(one)
        used, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < most_mib * MIB, (used / MIB, peak / MIB)
