"""On which GPUs pods may land."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tonnage.health.landing import Landing, Machine, PodGpu
from tonnage.objects import core, karpenter
from tonnage.provisioning.catalogue import Catalogue

CATALOGUE = Catalogue.load()


def spec(resources: dict[str, Any], **more: Any) -> core.PodSpec:
    """A pod with one container that asks for these."""
    return msgspec.convert({"containers": [{"name": "c", "resources": {"limits": resources}}], **more}, core.PodSpec)


def node(name: str, product: str, has: int = 4, **labels: str) -> Machine:
    """A node with a GPU."""
    given = {"nvidia.com/gpu.product": product, **{f"nvidia.com/{key}": value for key, value in labels.items()}}
    return Machine(name, given, (), {"cpu": 32_000, "memory": 1 << 38, "nvidia.com/gpu": has})


def pool(**requirements: list[str]) -> karpenter.NodePool:
    """A NodePool of instances with these labels."""
    listed = [
        {"key": f"karpenter.k8s.aws/{key.replace('_', '-')}", "operator": "In", "values": values}
        for key, values in requirements.items()
    ]
    template = {
        "spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "x"},
            "requirements": listed,
        }
    }
    made = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "gpu"}}
    return msgspec.convert({**made, "spec": {"template": template}}, karpenter.NodePool)


def cards(landing: Landing, pod: core.PodSpec) -> set[PodGpu | None]:
    """What the pod may get."""
    return {place.card for place in landing.places(pod, {})}


def test_nodes_take_what_they_have_and_select() -> None:
    landing = Landing([node("a", "NVIDIA-L40S"), node("b", "NVIDIA-H100-80GB-HBM3", has=2)], [], CATALOGUE)
    assert cards(landing, spec({"nvidia.com/gpu": 2})) == {PodGpu("l40s"), PodGpu("h100")}
    assert cards(landing, spec({"nvidia.com/gpu": 3})) == {PodGpu("l40s")}
    chosen = spec({"nvidia.com/gpu": 1}, nodeSelector={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"})
    assert cards(landing, chosen) == {PodGpu("h100")}
    assert cards(landing, spec({"nvidia.com/gpu": 5})) == set()


def test_a_part_of_a_card_is_what_the_pod_gets() -> None:
    replicas = {"gpu.replicas": "4", "gpu.count": "1"}
    sliced = Landing([node("a", "NVIDIA-L40S-SHARED", **replicas)], [], CATALOGUE)
    assert cards(sliced, spec({"nvidia.com/gpu": 1})) == {PodGpu("l40s", sharers=4)}
    mps = Landing([node("a", "NVIDIA-L40S", **replicas, **{"gpu.sharing-strategy": "mps"})], [], CATALOGUE)
    assert cards(mps, spec({"nvidia.com/gpu": 1})) == {PodGpu("l40s", sharers=4, part=0.25)}
    single = Landing([node("a", "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", has=7)], [], CATALOGUE)
    assert cards(single, spec({"nvidia.com/gpu": 1})) == {PodGpu("a100-80:1g.10gb")}


def test_node_pools_offer_what_their_types_have() -> None:
    landing = Landing([], [pool(instance_gpu_name=["l4", "l40s"])], CATALOGUE)
    assert cards(landing, spec({"nvidia.com/gpu": 1})) == {PodGpu("l4"), PodGpu("l40s")}
    assert all(place.bought and place.pool == "gpu" for place in landing.places(spec({"nvidia.com/gpu": 1}), {}))
    assert cards(landing, spec({"nvidia.com/gpu": 16})) == set()


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ({"nvidia.com/gpu.product": "NVIDIA-H200"}, {PodGpu("h200")}),
        ({"cloud.google.com/gke-accelerator": "nvidia-l4"}, {PodGpu("l4")}),
        ({"node.kubernetes.io/instance-type": "g6e.xlarge"}, {PodGpu("l40s")}),
    ],
)
def test_without_nodes_it_is_any_gpu_that_the_pod_selects(selector: dict[str, str], found: set[PodGpu]) -> None:
    landing = Landing([], [], CATALOGUE)
    assert cards(landing, spec({"nvidia.com/gpu": 1}, nodeSelector=selector)) == found
    assert len(cards(landing, spec({"nvidia.com/gpu": 1}))) > 10
    assert all(place.anywhere for place in landing.places(spec({"nvidia.com/gpu": 1}), {}))
