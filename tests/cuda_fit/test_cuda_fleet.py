"""Drivers of a cluster: what does not run, what an upgrade breaks and mends, in what order."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tonnage.cuda_fit import fleet
from tonnage.cuda_fit.fleet import Cluster, NodeUpgrade
from tonnage.errors import InputError
from tonnage.objects import apps, core

TORCH_130 = "pytorch/pytorch:2.11.0-cuda13.0-cudnn9-runtime"
TORCH_126 = "pytorch/pytorch:2.11.0-cuda12.6-cudnn9-runtime"


def node(name: str, driver: str, product: str = "NVIDIA-H100-80GB-HBM3", gpus: int = 4) -> core.Node:
    labels = {"nvidia.com/gpu.product": product} | ({"nvidia.com/cuda.driver-version.full": driver} if driver else {})
    return made(core.Node, "Node", name, labels=labels, status={"allocatable": {"nvidia.com/gpu": str(gpus)}})


def pod(name: str, on: str, image: str, gpus: int = 1, owner: str = "", phase: str = "Running", **env: str) -> core.Pod:
    variables = [{"name": key, "value": value} for key, value in env.items()]
    container = {"name": "main", "image": image, "env": variables, "resources": {"limits": {"nvidia.com/gpu": gpus}}}
    owners = [{"kind": owner, "name": "x"}] if owner else []
    spec = {"nodeName": on, "containers": [container]}
    return made(core.Pod, "Pod", name, spec=spec, status={"phase": phase}, ownerReferences=owners)


def made(type_: type[Any], kind: str, name: str, labels: dict[str, str] | None = None, **fields: Any) -> Any:
    meta = {"name": name, "namespace": "" if kind == "Node" else "ml", "labels": labels or {}}
    meta["ownerReferences"] = fields.pop("ownerReferences", [])
    return msgspec.convert({"apiVersion": "v1", "kind": kind, "metadata": meta, **fields}, type_)


def cluster(nodes: list[core.Node], *pods: core.Pod) -> Cluster:
    return fleet.cluster(nodes, pods)


def steps(found: Cluster, to: str) -> list[NodeUpgrade]:
    return list(fleet.upgrade(found, to))


def test_pods_that_their_node_does_not_run_are_found_with_the_reason() -> None:
    found = cluster(
        [node("a", "535.161.08"), node("b", "580.65.06")],
        pod("old", "a", TORCH_126),
        pod("new", "a", TORCH_130),
        pod("fine", "b", TORCH_130),
        pod("over", "a", TORCH_130, phase="Succeeded"),
    )
    ((refused, fit),) = fleet.refused(found)
    assert refused.name == "ml/new"
    assert "CUDA 12.2 at most, the image has 13.0" in fit.reason


def test_an_upgrade_mends_what_needed_a_newer_driver_and_takes_that_node_first() -> None:
    found = cluster(
        [node("a", "535.161.08"), node("b", "535.161.08")],
        pod("old", "a", TORCH_126),
        pod("new", "b", TORCH_130),
    )
    first, second = steps(found, "580.65.06")
    assert (first.node, [name for name, _ in first.mends]) == ("b", ["ml/new"])
    assert (second.node, second.mends, second.breaks) == ("a", (), ())


def test_a_node_whose_pod_forbids_the_driver_comes_after_one_whose_pods_only_move() -> None:
    found = cluster(
        [node("a", "570.26"), node("b", "570.26")],
        pod("pinned", "a", TORCH_126, NVIDIA_REQUIRE_CUDA="cuda>=12.0,driver<575"),
        pod("one", "b", TORCH_126),
        pod("two", "b", TORCH_126),
    )
    first, second = steps(found, "580.65.06")
    assert (first.node, first.moves) == ("b", ("ml/one", "ml/two"))
    assert (second.node, second.breaks) == ("a", (("ml/pinned", "unsatisfied condition: cuda>=12.0,driver<575"),))


def test_a_driver_that_has_dropped_a_gpu_leaves_its_nodes_as_they_are() -> None:
    found = cluster([node("h", "570.26"), node("v", "570.26", "Tesla-V100-SXM2-16GB")], pod("p", "v", TORCH_126))
    first, last = steps(found, "590.44.01")
    assert (first.node, first.refused) == ("h", "")
    assert last.node == "v"
    assert last.refused.startswith("R580 is the last driver branch for volta")
    assert last.after == last.before


def test_a_node_that_has_the_driver_or_a_newer_one_is_left_alone() -> None:
    found = cluster([node("a", "580.65.06"), node("b", "595.45.04"), node("c", "570.26")])
    assert [(one.node, one.there) for one in steps(found, "580.65.06")] == [("c", False), ("a", True), ("b", True)]


def test_a_pod_that_no_other_node_has_gpus_for_is_stranded_while_its_node_is_drained() -> None:
    found = cluster(
        [node("a", "570.26"), node("b", "570.26")],
        pod("large", "a", TORCH_126, gpus=4),
        pod("small", "b", TORCH_126, gpus=1),
    )
    first, second = steps(found, "580.65.06")
    assert (first.node, first.stranded) == ("a", ("ml/large",))
    assert (second.node, second.stranded) == ("b", ("ml/small",))
    wider = cluster([node("a", "570.26"), node("b", "570.26", gpus=8)], pod("large", "a", TORCH_126, gpus=4))
    assert [one.stranded for one in steps(wider, "580.65.06")] == [(), ()]


def test_only_nodes_that_run_a_pod_take_it_meanwhile_and_upgraded_ones_count_with_their_new_driver() -> None:
    found = cluster([node("a", "580.65.06"), node("b", "535.161.08")], pod("new", "a", TORCH_130))
    (first, second) = steps(found, "590.44.01")
    assert (first.node, first.stranded) == ("b", ())
    assert (second.node, second.stranded) == ("a", ())  # b runs it by now
    assert [bool(fleet.why_not(found.nodes[0].pods[0], one)) for one in found.nodes] == [False, True]


def test_pods_of_a_daemon_set_do_not_move() -> None:
    found = cluster([node("a", "570.26")], pod("exporter", "a", TORCH_126, owner="DaemonSet"))
    (step,) = steps(found, "580.65.06")
    assert (step.moves, step.stranded) == ((), ())


def test_pods_and_drivers_of_which_nothing_is_known_are_neither_broken_nor_mended() -> None:
    found = cluster([node("a", ""), node("b", "535.161.08")], pod("x", "a", TORCH_130), pod("y", "b", "acme/own:1"))
    assert fleet.refused(found) == []
    assert [(one.breaks, one.mends) for one in steps(found, "580.65.06")] == [((), ()), ((), ())]
    assert found.nodes[1].pods[0].unknown == ("acme/own:1",)


def test_pods_without_gpus_and_nodes_without_gpus_do_not_count() -> None:
    plain = made(core.Node, "Node", "cpu", status={"allocatable": {"cpu": "8"}})
    cpu_pod = made(core.Pod, "Pod", "web", spec={"nodeName": "cpu", "containers": [{"name": "w", "image": "nginx"}]})
    assert cluster([plain, node("a", "570.26")], cpu_pod) == cluster([node("a", "570.26")])


def deployment(name: str, replicas: int = 1) -> apps.Deployment:
    container = {"name": "main", "image": TORCH_130, "resources": {"limits": {"nvidia.com/gpu": 1}}}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    meta = {"name": name, "namespace": "ml"}
    made = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}
    return msgspec.convert(made, apps.Deployment)


def test_a_deployment_stands_for_its_pods_only_while_none_is_there() -> None:
    nodes = [node("a", "570.26")]
    own, other = pod("chat-1", "a", TORCH_130), pod("chat-large-1", "a", TORCH_130)
    own.metadata.labels["app"] = "chat"
    other.metadata.labels["app"] = "chat-large"
    assert [one.name for one in fleet.cluster(nodes, [other], [deployment("chat")]).waiting] == ["ml/chat"]
    assert fleet.cluster(nodes, [own], [deployment("chat")]).waiting == ()
    assert fleet.cluster(nodes, [], [deployment("chat", replicas=0)]).waiting == ()


def with_gpus(one: Any, amounts: dict[str, str]) -> Any:
    """The node or pod with these resources of nvidia.com instead of GPUs."""
    gpus = {f"nvidia.com/{name}": amount for name, amount in amounts.items()}
    plain = msgspec.to_builtins(one)
    if isinstance(one, core.Node):
        plain["status"]["allocatable"] = gpus
    else:
        plain["spec"]["containers"][0]["resources"]["limits"] = gpus
    return msgspec.convert(plain, type(one))


def test_a_slice_moves_only_to_a_node_that_hands_out_such_slices() -> None:
    sliced = with_gpus(node("a", "570.26"), {"mig-1g.10gb": "7"})
    small = with_gpus(pod("small", "a", TORCH_126), {"mig-1g.10gb": "1"})
    (step,) = (one for one in steps(cluster([sliced, node("b", "570.26")], small), "580.65.06") if one.node == "a")
    assert step.stranded == ("ml/small",)
    other = with_gpus(node("b", "570.26"), {"mig-1g.10gb": "7"})
    assert all(not one.stranded for one in steps(cluster([sliced, other], small), "580.65.06"))


def test_a_pod_that_waits_for_resources_that_a_node_has_not_is_told_so() -> None:
    small = with_gpus(pod("small", "", TORCH_126, phase="Pending"), {"mig-1g.10gb": "1"})
    found = cluster([node("a", "570.26")], small)
    assert (
        fleet.why_not(found.waiting[0], found.nodes[0]) == "the node has 0 nvidia.com/mig-1g.10gb, the pod asks for 1"
    )


def test_memory_and_cores_of_a_share_are_no_gpus() -> None:
    share = with_gpus(pod("share", "a", TORCH_126), {"gpu": "1", "gpumem": "3000", "gpucores": "30"})
    found = cluster([node("a", "570.26"), node("b", "570.26")], share)
    assert found.nodes[0].pods[0].gpus == {"nvidia.com/gpu": 1}
    assert all(not one.stranded for one in steps(found, "580.65.06"))


def test_what_is_no_driver_version_is_refused() -> None:
    with pytest.raises(InputError, match="not a version"):
        fleet.upgrade(cluster([node("a", "570.26")]), "latest")
