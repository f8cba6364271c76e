"""What was observed is so, whatever the node says that it has."""

from __future__ import annotations

import msgspec

from tonnage.fleet.state import Fleet, FleetNode, FleetPod
from tonnage.objects import core

GPU = "nvidia.com/gpu"


def _fleet(gpus: int, pods: int) -> Fleet:
    fleet = Fleet()
    fleet.add_node(FleetNode("n", {"cpu": 8, "memory": 8, "pods": 8, GPU: gpus}, {}, device_resource=GPU))
    spec = msgspec.convert({"containers": [{"name": "c", "resources": {"limits": {GPU: "1"}}}]}, core.PodSpec)
    for number in range(pods):
        fleet.add_pod(FleetPod("default", f"p-{number}", f"p-{number}", {}, spec))
    return fleet


def test_a_pod_on_a_gpu_that_its_node_does_not_have_holds_none() -> None:
    fleet = _fleet(0, 1)
    assert fleet.bind(0, 0, observed=True, places=[(5, None)]) == ()


def test_of_two_pods_on_one_gpu_the_second_holds_none() -> None:
    fleet = _fleet(8, 2)
    assert fleet.bind(0, 0, observed=True, places=[(5, None)]) == (5,)
    assert fleet.bind(1, 0, observed=True, places=[(5, None)]) == ()
