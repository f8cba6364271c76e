"""The scheduler keeps a pod off nodes that cannot run its image's CUDA, where labels and image say so, and only there."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from builders import GPU, fleet, node, placed, pod, verdict
from tonnage.fleet.state import FleetPod
from tonnage.objects import core

H100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/cuda.driver-version.full": "535.161.08"}
NEW = {**H100, "nvidia.com/cuda.driver-version.full": "580.65.06"}
V100 = {"nvidia.com/gpu.product": "Tesla-V100-SXM2-16GB", "nvidia.com/cuda.driver-version.full": "570.124.06"}
TORCH = "pytorch/pytorch:2.11.0-cuda13.0-cudnn9-runtime"


def gpu_pod(image: str, name: str = "p", gpus: int = 1, **environment: str) -> FleetPod:
    env = [{"name": key, "value": value} for key, value in environment.items()]
    requests: dict[str, Any] = {GPU: str(gpus)} if gpus else {}
    container = {"name": "main", "image": image, "env": env, "resources": {"requests": requests}}
    return pod(name, spec=msgspec.convert({"containers": [container]}, core.PodSpec))


def test_a_pod_goes_to_the_node_whose_driver_runs_its_image() -> None:
    made = fleet(node("a", gpus=4, labels=H100), node("b", gpus=4, labels=NEW), pods=[gpu_pod(TORCH)])
    assert placed(made) == {"p": "b"}


def test_the_reason_says_what_the_driver_lacks() -> None:
    made = fleet(node("a", gpus=4, labels=H100), node("b", gpus=4, labels=V100), pods=[gpu_pod(TORCH)])
    said = verdict(made, "p")
    assert said.startswith("0/2 nodes are available: ")
    assert "1 node(s) cannot run the image's CUDA: the driver runs CUDA 12.2 at most, the image has 13.0" in said
    assert "1 node(s) cannot run the image's CUDA: the driver runs CUDA 12.8 at most" in said


def test_a_gpu_without_code_in_the_image_is_refused_by_its_product_alone() -> None:
    product = {"nvidia.com/gpu.product": "Tesla-V100-SXM2-16GB"}
    made = fleet(node("a", gpus=4, labels=product), pods=[gpu_pod("vllm/vllm-openai:v0.20.0")])
    assert "no kernel image is available for 7.0" in verdict(made, "p")


@pytest.mark.parametrize(
    ("labels", "image", "environment"),
    [
        ({}, TORCH, {}),
        ({}, "acme/own:1", {"NVIDIA_REQUIRE_CUDA": "cuda>=99"}),
        ({"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}, TORCH, {}),
        (H100, "acme/own:1", {}),
        (H100, "acme/own:torch-cu130", {}),  # a convention is not knowledge
        (H100, "acme/own:1", {"NVIDIA_REQUIRE_CUDA": "foo>=99"}),  # no matter of the node
        (H100, "acme/own:1", {"NVIDIA_REQUIRE_CUDA": "cuda>=99", "NVIDIA_DISABLE_REQUIRE": "1"}),
        (H100, "vllm/vllm-openai:v0.20.0", {}),  # its cuda-compat runs on R535
        ({**H100, "nvidia.com/cuda.driver-version.full": "530.30.02"}, "nvidia/cuda:12.4.1-base", {}),  # list unasked
        ({"nvidia.com/cuda.driver-version.full": "weird"}, TORCH, {}),
    ],
)
def test_what_labels_or_image_do_not_say_is_no_reason_to_refuse(
    labels: dict[str, str], image: str, environment: dict[str, str]
) -> None:
    made = fleet(node("a", gpus=4, labels=labels), pods=[gpu_pod(image, **environment)])
    assert placed(made) == {"p": "a"}


def test_a_condition_that_the_pod_states_is_asked() -> None:
    made = fleet(node("a", gpus=4, labels=H100), pods=[gpu_pod("acme/own:1", NVIDIA_REQUIRE_CUDA="cuda>=12.4")])
    assert "unsatisfied condition: cuda>=12.4" in verdict(made, "p")


def test_a_container_without_a_gpu_is_not_asked() -> None:
    made = fleet(node("a", gpus=4, labels=H100), pods=[gpu_pod(TORCH, gpus=0)])
    assert placed(made) == {"p": "a"}


def test_pods_that_differ_in_an_unknown_image_are_of_one_class_as_ever() -> None:
    made = fleet(node("a", gpus=4), pods=[gpu_pod("acme/own:1", "p"), gpu_pod("acme/own:2", "q")])
    assert len(made.classes.rows) == len(made.classes.shapes) == 1
    made = fleet(node("a", gpus=4), pods=[gpu_pod(TORCH, "p"), gpu_pod("acme/own:2", "q")])
    assert len(made.classes.rows) == 2


def test_an_upgraded_driver_opens_the_node() -> None:
    made = fleet(node("a", gpus=4, labels=H100), pods=[gpu_pod(TORCH)])
    assert placed(made) == {}
    made.set_labels(made.node_by_name["a"], NEW)
    assert placed(made) == {"p": "a"}


def test_a_node_refused_by_an_earlier_filter_is_counted_there() -> None:
    made = fleet(node("a", gpus=4, labels=H100, taints=["x=y:NoSchedule"]), pods=[gpu_pod(TORCH)])
    assert verdict(made, "p") == "0/1 nodes are available: 1 node(s) had untolerated taint {x: y}"
