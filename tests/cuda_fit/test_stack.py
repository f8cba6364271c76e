"""The GPU stack of a cluster: what is installed, where nodes differ, what is of no release of the operator."""

from __future__ import annotations

import msgspec
import pytest
from test_cuda_fleet import node

from tonnage.cuda_fit import stack
from tonnage.facts import gpu_stack
from tonnage.objects import core


def running(image: str, on: str = "") -> core.Pod:
    spec = {"nodeName": on, "containers": [{"name": "main", "image": image}]}
    return msgspec.convert({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": spec}, core.Pod)


@pytest.mark.parametrize(
    ("image", "component", "version"),
    [
        ("nvcr.io/nvidia/k8s/container-toolkit:v1.17.8-ubuntu20.04", "container-toolkit", "1.17.8"),
        ("nvcr.io/nvidia/k8s-device-plugin:v0.17.4", "device-plugin", "0.17.4"),
        ("nvcr.io/nvidia/k8s/dcgm-exporter:4.3.1-4.4.0-ubuntu22.04", "dcgm-exporter", "4.3.1-4.4.0"),
        ("nvcr.io/nvidia/cloud-native/dcgm:4.4.2-1-ubuntu22.04", "dcgm", "4.4.2-1"),
        ("nvcr.io/nvidia/driver:580.82.07-ubuntu22.04", "driver", "580.82.07"),
        ("mirror.example:5000/nvidia/gpu-operator:v25.10.1@sha256:00", "operator", "25.10.1"),
        ("nvcr.io/nvidia/cloud-native/k8s-mig-manager:v0.12.3-ubuntu20.04", "mig-manager", "0.12.3"),
        ("nvcr.io/nvidia/driver:535-5.15.0-1041-nvidia-ubuntu22.04", "driver", ""),
        ("acme/driver:1.2.3", "", ""),
        ("nginx:1.29", "", ""),
    ],
)
def test_images_of_the_operator_name_component_and_version(image: str, component: str, version: str) -> None:
    assert stack.component_of(image) == (component, version)


def test_nodes_with_other_versions_and_versions_of_no_release_are_found() -> None:
    nodes = [node("a", "580.105.08"), node("b", "580.105.08"), node("c", "570.124.06")]
    pods = [
        running("nvcr.io/nvidia/gpu-operator:v25.10.1", "a"),
        running("nvcr.io/nvidia/k8s/container-toolkit:v1.18.1", "a"),
        running("nvcr.io/nvidia/k8s/container-toolkit:v1.17.8", "b"),
        running("nvcr.io/nvidia/k8s-device-plugin:v0.18.1", "a"),
    ]
    found = stack.stack_of(nodes, pods)
    assert found.operator == "25.10.1"
    assert found.versions["container-toolkit"] == {"1.17.8": ("b",), "1.18.1": ("a",)}
    assert [(one.kind, one.component, one.nodes) for one in stack.findings(found, nodes, "580.105.08")] == [
        ("skew", "container-toolkit", ("a", "b")),
        ("skew", "driver", ("a", "b", "c")),
        ("release", "container-toolkit", ("b",)),
        ("policy", "driver", ("c",)),
    ]


def test_a_stack_of_one_release_has_no_findings() -> None:
    for operator, components in gpu_stack.releases().items():
        names = {component: image for image, component in gpu_stack.images().items()}
        pods = [running(f"nvcr.io/nvidia/{names['operator']}:v{operator}")]
        pods += [running(f"nvcr.io/nvidia/{names[one]}:v{versions[0]}", "a") for one, versions in components.items()]
        nodes = [node("a", components["driver"][0])] if "driver" in components else []
        assert stack.findings(stack.stack_of(nodes, pods), nodes) == [], operator


def test_an_operator_of_no_known_release_is_said_with_those_that_are_known() -> None:
    (found,) = stack.findings(stack.stack_of([], [running("nvcr.io/nvidia/gpu-operator:v99.1.0")]), [])
    assert "operator 99.1.0 is not known; known releases: 26.7.0, 26.3.2, 25.10.1, 24.6.1" in found.message


def test_labels_that_are_older_than_the_driver_are_found() -> None:
    one = node("a", "580.105.08")
    one.metadata.labels["nvidia.com/cuda.runtime-version.full"] = "12.2"
    (found,) = stack.findings(stack.stack_of([one], []), [one])
    assert (found.kind, found.nodes) == ("labels", ("a",))
    assert "labels say CUDA 12.2, driver 580.105.08 reports 13.0" in found.message
