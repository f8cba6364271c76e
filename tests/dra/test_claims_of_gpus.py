"""Claims of the shapes in which people ask NVIDIA's DRA driver for GPUs: valid, and allocated of what is published."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from test_nvidia_devices import NODE, a_card, as_slices

from tonnage.dra.allocated import AllocatedState
from tonnage.dra.allocator import Allocation, Allocator, Feasibility
from tonnage.dra.nvidia import device_classes, published
from tonnage.objects import dra
from tonnage.objects.api.device_claims import resource_claim
from tonnage.objects.nvidia_device_configs import device_config

ATTRIBUTES = "device.attributes['gpu.nvidia.com']"


def ask(name: str, class_name: str = "gpu.nvidia.com", *texts: str, **exactly: Any) -> dict[str, Any]:
    selectors = [{"cel": {"expression": text}} for text in texts]
    return {"name": name, "exactly": {"deviceClassName": class_name, "selectors": selectors, **exactly}}


def way(name: str, class_name: str, *texts: str) -> dict[str, Any]:
    return {"name": name, "deviceClassName": class_name, "selectors": [{"cel": {"expression": text}} for text in texts]}


def profile(name: str) -> str:
    return f"{ATTRIBUTES}.profile == '{name}'"


def sharing(kind: str, requests: list[str], **said: Any) -> dict[str, Any]:
    parameters = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": kind, "sharing": said}
    return {"requests": requests, "opaque": {"driver": "gpu.nvidia.com", "parameters": parameters}}


def allocate(claim: dra.ResourceClaim) -> Allocation:
    slices = as_slices([published(a_card(minor=minor, driver="580.159.04", compute=(9, 0))) for minor in range(2)])
    return Allocator(slices, device_classes()).allocate([claim], NODE, AllocatedState())


SHAPES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "one GPU": ({"requests": [ask("gpu")]}, ["gpu-0"]),
    "two GPUs of one claim": ({"requests": [ask("gpus", count=2)]}, ["gpu-0", "gpu-1"]),
    "every GPU of the node": ({"requests": [ask("all", allocationMode="All")]}, ["gpu-0", "gpu-1"]),
    "a GPU by product and memory": (
        {
            "requests": [
                ask(
                    "gpu",
                    "gpu.nvidia.com",
                    f"{ATTRIBUTES}.productName.lowerAscii().matches('^.*h100.*$')",
                    "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('40Gi')) >= 0",
                )
            ]
        },
        ["gpu-0"],
    ),
    "a GPU by driver and compute capability": (
        {
            "requests": [
                ask(
                    "gpu",
                    "gpu.nvidia.com",
                    f"{ATTRIBUTES}.driverVersion.isGreaterThan(semver('570.0.0'))",
                    f"{ATTRIBUTES}.cudaComputeCapability.compareTo(semver('9.0.0')) >= 0",
                )
            ]
        },
        ["gpu-0"],
    ),
    "MIG devices of several profiles on one GPU": (
        {
            "requests": [
                ask("small", "mig.nvidia.com", profile("1g.10gb")),
                ask("middle", "mig.nvidia.com", profile("2g.20gb")),
                ask("large", "mig.nvidia.com", profile("3g.40gb")),
            ],
            "constraints": [{"matchAttribute": "gpu.nvidia.com/parentUUID"}],
        },
        ["gpu-0-mig-1g10gb-19-", "gpu-0-mig-2g20gb-14-", "gpu-0-mig-3g40gb-9-"],
    ),
    "MIG devices on different GPUs": (
        {
            "requests": [ask("two", "mig.nvidia.com", profile("3g.40gb"), count=2)],
            "constraints": [{"distinctAttribute": "gpu.nvidia.com/parentUUID"}],
        },
        ["gpu-0-mig-3g40gb-9-4", "gpu-1-mig-3g40gb-9-4"],
    ),
    "time-sliced and by MPS": (
        {
            "requests": [ask("slices"), ask("mps")],
            "config": [
                sharing("GpuConfig", ["slices"], strategy="TimeSlicing", timeSlicingConfig={"interval": "Long"}),
                sharing("GpuConfig", ["mps"], strategy="MPS", mpsConfig={"defaultActiveThreadPercentage": 50}),
            ],
        },
        ["gpu-0", "gpu-1"],
    ),
    "the first that there is": (
        {
            "requests": [
                {
                    "name": "gpu",
                    "firstAvailable": [
                        way("b200", "gpu.nvidia.com", f"{ATTRIBUTES}.architecture == 'Blackwell'"),
                        way("half", "mig.nvidia.com", profile("3g.40gb")),
                    ],
                }
            ]
        },
        ["gpu-0-mig-3g40gb-9-4"],
    ),
    "beside whoever has it": ({"requests": [ask("look", adminAccess=True, allocationMode="All")]}, ["gpu-0", "gpu-1"]),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_claims_in_the_shapes_that_people_write_are_valid_and_allocated(shape: str) -> None:
    devices, expected = SHAPES[shape]
    made = {"apiVersion": dra.V1, "kind": "ResourceClaim", "metadata": {"name": "c", "namespace": "n"}}
    made["spec"] = {"devices": devices}
    assert resource_claim(made) == []
    found = allocate(msgspec.convert(made, dra.ResourceClaim))
    assert found.feasibility is Feasibility.ALLOCATED, str(found)
    names = [one.device for one in found.results[0].devices.results]
    assert len(names) == len(expected)
    assert all(name.startswith(start) for name, start in zip(names, expected, strict=True))
    for one in found.results[0].devices.config:
        assert one.opaque is not None
        assert device_config(one.opaque.parameters).kind == "GpuConfig"
