"""Pods that ask for devices which nothing here has, simulates or looks after: other accelerators than NVIDIA's.

Source of the names: the device plugins of their vendors; of EC2's, aws/karpenter-provider-aws pkg/apis/v1/labels.go.
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.facts import instances
from tonnage.facts.labels import NVIDIA
from tonnage.health.blocker import UNSCHEDULABLE, Blocker
from tonnage.health.setting import Pods, Setting
from tonnage.objects import core
from tonnage.provisioning.catalogue import EFA

NOT_SIMULATED = "device-not-simulated"
_VENDORS = {
    "amd.com": "AMD GPUs",
    "aws.amazon.com": "AWS Neuron devices",
    "google.com": "Google TPUs",
    "gpu.intel.com": "Intel GPUs",
    "habana.ai": "Intel Gaudi devices",
    "huawei.com": "Huawei Ascend devices",
    "qualcomm.com": "Qualcomm devices",
}
_WORDS = ("gpu", "tpu", "npu", "neuron", "gaudi", "ascend", "qaic", "xe", "i915")


def not_simulated(setting: Setting) -> Iterator[Blocker]:
    """Accelerators that no Node of the files offers, and that no instance type here is launched for."""
    there = {name for node in setting.inventory.of_kind("Node") for name in _offers(node)}
    for pods in setting.pods:
        for name, field in _asked(pods):
            what = described(name)
            if what and name not in there:
                yield Blocker(
                    "device-not-simulated",
                    UNSCHEDULABLE,
                    pods.ref,
                    pods.where(field),
                    f"{name}: no Node offers {what}, and none is launched for them: only NVIDIA GPUs are simulated and "
                    "managed here, the pods stay Pending",
                    "ask for nvidia.com/gpu, or add the Nodes that offer the device",
                    "Unschedulable",
                    f"Insufficient {name}",
                )
                break


def described(resource: str) -> str:
    """What a resource is, where it is an accelerator that is not NVIDIA's; else empty."""
    vendor, _, name = resource.partition("/")
    if not name or resource.startswith(NVIDIA) or resource == EFA:
        return ""
    if vendor in _VENDORS and any(word in name.lower() for word in _WORDS):
        return _VENDORS[vendor]
    return "such devices" if resource in _bought() else ""


def _bought() -> set[str]:
    return {one.resource for one in instances.all() if one.resource and not one.resource.startswith(NVIDIA)}


def _offers(node: object) -> Iterator[str]:
    if isinstance(node, core.Node):
        yield from (
            name for name, amount in core.amounts(node.status.allocatable or node.status.capacity).items() if amount
        )


def _asked(pods: Pods) -> Iterator[tuple[str, str]]:
    """(resource, field) of what the containers ask for."""
    for part, containers in (("containers", pods.spec.containers), ("initContainers", pods.spec.init_containers)):
        for index, container in enumerate(containers):
            for kind, amounts in (("limits", container.resources.limits), ("requests", container.resources.requests)):
                for name in amounts:
                    yield name, f"{part}[{index}].resources.{kind}.{name}"
