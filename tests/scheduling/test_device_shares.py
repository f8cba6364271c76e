"""Pods that ask for parts of devices are placed where one device has room, and told why where none has."""

from __future__ import annotations

import pytest

from builders import GPU, decide, fleet, node, pod, verdict
from tonnage.decisions import Bind
from tonnage.fleet.devices import Cut, How
from tonnage.fleet.outfit import offered
from tonnage.fleet.state import Fleet, FleetPod

MEMORY = {"nvidia.com/gpu.memory": "80000"}


def share(name: str, fraction: str, **more: str) -> FleetPod:
    return pod(name, cpu=0.1, annotations={"gpu-fraction": fraction} | more)


def placed(made: Fleet) -> dict[str, str]:
    return {one.pod.name: one.node.name for one in decide(made) if isinstance(one, Bind)}


def test_a_share_goes_to_a_node_where_one_device_has_room_though_another_has_as_much_in_all() -> None:
    made = fleet(
        node("a", gpus=2, labels=MEMORY),
        node("b", gpus=1, labels=MEMORY),
        bound={"a": [share("x", "0.6"), share("y", "0.6")], "b": [share("z", "0.3")]},
        pods=[share("p", "0.7")],
    )
    decisions = [one for one in decide(made) if isinstance(one, Bind)]
    assert [(one.node.name, one.devices) for one in decisions] == [("b", (0,))]


def test_shares_and_whole_devices_are_placed_in_one_go_without_overlap() -> None:
    pods = [share("p0", "0.5"), share("p1", "0.5"), pod("a", gpus=1), share("p2", "0.5"), share("p3", "0.6")]
    made = fleet(node("a", gpus=3, labels=MEMORY), pods=pods)
    assert set(placed(made)) == {"p0", "p1", "a", "p2"}
    assert verdict(made, "p3") == "0/1 nodes are available: 1 Insufficient nvidia.com/gpu (0.6 of a device)"


def test_what_the_devices_lack_is_in_the_reason() -> None:
    made = fleet(
        node("unlabelled", gpus=1),
        node("full", gpus=1, labels=MEMORY),
        node("without"),
        bound={"full": [pod("x", gpus=1)]},
        pods=[
            pod("m", cpu=0.1, annotations={"gpu-memory": "3000", "gpu-fraction-num-devices": "2"}),
            pod("v", cpu=0.1, gpus=1, resources={"nvidia.com/gpumem-percentage": "50", "nvidia.com/gpucores": "20"}),
        ],
    )
    dumb = "1 node(s) do not say how much memory their GPUs have"
    assert verdict(made, "m") == f"0/3 nodes are available: {dumb}, 2 Insufficient {GPU} (3000 MiB on 2 devices)"
    wanted = "50 % of the memory and 0.2 of a device"
    assert verdict(made, "v") == f"0/3 nodes are available: {dumb}, 2 Insufficient {GPU} ({wanted})"


def test_an_annotation_that_makes_no_sense_is_the_reason_why_the_pod_waits() -> None:
    made = fleet(node("a", gpus=1), node("b", cpu=0), pods=[share("p", "1.5")])
    assert verdict(made, "p") == (
        "0/2 nodes are available: 1 Insufficient cpu, 1 gpu-fraction '1.5' is not a number between 0 and 1"
    )


def test_instances_that_fit_alone_and_not_together_are_refused_with_both_named() -> None:
    card = Cut(How.MIG, gpu="h100")
    both = {"nvidia.com/mig-4g.40gb": "1", "nvidia.com/mig-7g.80gb": "1"}
    made = fleet(
        node("a", resources=offered((card,), GPU), cuts=(card,), device_resource=GPU),
        pods=[pod("p", cpu=0.1, resources=both)],
    )
    assert verdict(made, "p") == (
        "0/1 nodes are available: 1 Insufficient nvidia.com/mig-4g.40gb, nvidia.com/mig-7g.80gb"
    )


def test_a_class_is_placed_again_when_a_share_has_gone() -> None:
    made = fleet(node("a", gpus=1, labels=MEMORY), bound={"a": [share("x", "0.6")]}, pods=[share("p", "0.5")])
    assert placed(made) == {}
    made.unbind(0)
    made.remove_pod(0)
    assert placed(made) == {"p": "a"}


@pytest.mark.parametrize(("memory", "there"), [("81559", "1000"), ("46068", "700"), ("24564", "3000")])
def test_a_share_is_placed_beside_memory_that_leaves_a_device_more_compute_than_memory_in_thousandths(
    memory: str, there: str
) -> None:
    made = fleet(
        node("a", gpus=1, labels={"nvidia.com/gpu.memory": memory}),
        bound={"a": [pod("x", cpu=0.1, annotations={"gpu-memory": there})]},
        pods=[share("p", "0.4"), share("q", "0.1")],
    )
    decisions = [one for one in decide(made) if isinstance(one, Bind)]
    assert sorted((one.pod.name, one.devices) for one in decisions) == [("p", (0,)), ("q", (0,))]
