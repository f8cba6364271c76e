"""Manifests of the shapes in which NVIDIA's DRA driver is shown: taken by the API's rules and by the embedded API, and
allocated on its GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tonnage.apiserver.api import Api
from tonnage.apiserver.inprocess import InProcess
from tonnage.dra import nvidia
from tonnage.dra.allocated import AllocatedState
from tonnage.dra.allocator import Allocator, Feasibility
from tonnage.dra.pools import NodeView
from tonnage.facts import mig
from tonnage.kube.resources import NAMESPACES, SERVICE_ACCOUNTS, by_kind
from tonnage.kube.verbs import Client
from tonnage.objects import compute_domains, dra, load, tree
from tonnage.objects.base import ObjectMeta
from tonnage.objects.nvidia_device_configs import device_config

NODE = NodeView("node-1", {"kubernetes.io/hostname": "node-1"})
HEAD = "apiVersion: resource.k8s.io/v1\nkind: {kind}\nmetadata: {{name: {name}, namespace: gpu-test}}\nspec:\n"
PROFILE = "device.attributes['gpu.nvidia.com'].profile == '{}'"


def claim(devices: str, *, template: bool = False) -> str:
    """A ResourceClaim, or a template of one, with these devices."""
    lines = ["devices:", *("  " + line for line in devices.strip("\n").splitlines())]
    if template:
        lines = ["spec:", *("  " + line for line in lines)]
    head = HEAD.format(kind="ResourceClaimTemplate" if template else "ResourceClaim", name="c")
    return head + "".join(f"  {line}\n" for line in lines)


def pod(containers: int = 1, named: str = "resourceClaimName: c", request: str = "") -> str:
    """A pod whose containers all use the claim."""
    use = f"{{name: gpu, request: {request}}}" if request else "{name: gpu}"
    listed = "".join(
        f"    - {{name: ctr{at}, image: ubuntu, command: [sleep], resources: {{claims: [{use}]}}}}\n"
        for at in range(containers)
    )
    return (
        "---\napiVersion: v1\nkind: Pod\nmetadata: {name: pod, namespace: gpu-test}\nspec:\n  containers:\n"
        f"{listed}  resourceClaims: [{{name: gpu, {named}}}]\n"
        "  tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}]\n"
    )


ONE_GPU = "requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]"
_MIG_REQUEST = '{{name: {}, exactly: {{deviceClassName: mig.nvidia.com, selectors: [{{cel: {{expression: "{}"}}}}]}}}}'
MIG = "requests:\n" + "".join(
    f"  - {_MIG_REQUEST.format(f'mig-{at}', PROFILE.format(profile))}\n"
    for at, profile in enumerate(("1g.5gb", "2g.10gb", "3g.20gb"))
)
MIG += "constraints: [{requests: [], matchAttribute: gpu.nvidia.com/parentUUID}]\n"
SHARING = """\
requests:
  - {name: ts-gpu, exactly: {deviceClassName: gpu.nvidia.com}}
  - {name: mps-gpu, exactly: {deviceClassName: gpu.nvidia.com}}
config:
  - requests: [ts-gpu]
    opaque:
      driver: gpu.nvidia.com
      parameters:
        apiVersion: resource.nvidia.com/v1beta1
        kind: GpuConfig
        sharing: {strategy: TimeSlicing, timeSlicingConfig: {interval: Long}}
  - requests: [mps-gpu]
    opaque:
      driver: gpu.nvidia.com
      parameters:
        apiVersion: resource.nvidia.com/v1beta1
        kind: GpuConfig
        sharing: {strategy: MPS, mpsConfig: {defaultActiveThreadPercentage: 50, defaultPinnedDeviceMemoryLimit: 10Gi}}
"""
FIRST = """\
requests:
  - name: gpu
    firstAvailable:
      - name: h100
        deviceClassName: gpu.nvidia.com
        selectors: [{cel: {expression: "device.attributes['gpu.nvidia.com'].productName.lowerAscii().matches('^.*h100.*$')"}}]
      - name: a100
        deviceClassName: gpu.nvidia.com
        selectors: [{cel: {expression: "device.attributes['gpu.nvidia.com'].productName.lowerAscii().matches('^.*a100.*$')"}}]
"""
LARGE = """\
requests:
  - name: gpu
    exactly:
      deviceClassName: gpu.nvidia.com
      selectors:
        - cel: {expression: "device.attributes['gpu.nvidia.com'].architecture == 'Ampere' && device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('30Gi')) >= 0"}
        - cel: {expression: "device.attributes['gpu.nvidia.com'].driverVersion.isGreaterThan(semver('570.0.0'))"}
"""
ADMIN = "requests: [{name: all, exactly: {deviceClassName: gpu.nvidia.com, allocationMode: All, adminAccess: true}}]"
COUNT = "requests: [{name: gpus, exactly: {deviceClassName: gpu.nvidia.com, allocationMode: ExactCount, count: 2}}]"

SHAPES = {
    "a GPU for a pod, by a template": (claim(ONE_GPU, template=True) + pod(named="resourceClaimTemplateName: c"), 1),
    "a GPU for two containers of a pod": (claim(ONE_GPU) + pod(2), 1),
    "a GPU for two pods by one claim": (claim(ONE_GPU) + pod() + pod().replace("name: pod", "name: pod-2"), 1),
    "two GPUs by one request": (claim(COUNT) + pod(request="gpus"), 2),
    "MIG devices of one GPU": (
        claim(MIG, template=True) + pod(named="resourceClaimTemplateName: c", request="mig-0"),
        3,
    ),
    "time-slicing and MPS": (claim(SHARING) + pod(request="ts-gpu"), 2),
    "one of two kinds of GPUs": (claim(FIRST) + pod(request="gpu"), 1),
    "a GPU by architecture, memory and driver": (claim(LARGE) + pod(), 1),
    "every GPU, for an administrator": (claim(ADMIN) + pod(), 2),
}


def node_slices() -> list[dra.ResourceSlice]:
    """Two A100 that are partitioned on demand."""
    cards = [
        nvidia.published(
            nvidia.DraCard(
                minor=minor,
                uuid=f"GPU-{minor}",
                product="NVIDIA A100-SXM4-40GB",
                memory_mib=40960,
                gpu="a100-40",
                brand="nvidia",
                compute=(8, 0),
                driver="580.65.06",
                partitions=tuple(mig.profiles("a100-40")),
            )
        )
        for minor in range(2)
    ]
    return [
        dra.ResourceSlice(api_version=dra.V1, kind="ResourceSlice", metadata=ObjectMeta(name=f"s{at}"), spec=spec)
        for at, spec in enumerate(nvidia.slice_specs(cards, "node-1", 1))
    ]


@pytest.mark.parametrize("name", SHAPES)
def test_manifests_of_these_shapes_are_taken_and_allocated(name: str, tmp_path: Path) -> None:
    text, count = SHAPES[name]
    (tmp_path / "m.yaml").write_text(text)
    manifest = load.read([tmp_path / "m.yaml"])
    assert manifest.problems == ()
    wanted = [
        *manifest.of(dra.ResourceClaim),
        *(
            dra.ResourceClaim(api_version=dra.V1, kind="ResourceClaim", metadata=one.metadata, spec=one.spec.spec)
            for one in manifest.of(dra.ResourceClaimTemplate)
        ),
    ]
    for one in wanted[0].spec.devices.config:
        assert one.opaque is not None and device_config(one.opaque.parameters)
    found = Allocator(node_slices(), nvidia.device_classes()).allocate(wanted, NODE, AllocatedState())
    assert found.feasibility is Feasibility.ALLOCATED, str(found)
    assert len(found.results[0].devices.results) == count


@pytest.mark.parametrize("name", SHAPES)
def test_the_embedded_api_stores_them_as_they_are_written(name: str) -> None:
    client = Client(InProcess(Api()))
    labels = {"resource.kubernetes.io/admin-access": "true"}
    client.create(NAMESPACES, {"metadata": {"name": "gpu-test", "labels": labels}})
    client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}, "gpu-test")
    for body in (one.value for one in tree.parse(SHAPES[name][0], "m.yaml")):
        resource = by_kind(body["apiVersion"], body["kind"])
        assert resource is not None
        client.create(resource, body, "gpu-test")
        stored = client.get(resource, body["metadata"]["name"], "gpu-test")
        assert _within(body["spec"], stored["spec"])


def _within(written: Any, stored: Any) -> bool:
    """Whether everything that is written is stored; defaults may be beside it."""
    if isinstance(written, dict):
        return all(key in stored and _within(value, stored[key]) for key, value in written.items())
    if isinstance(written, list):
        return len(written) <= len(stored) and all(map(_within, written, stored))
    return bool(written == stored)


def test_mig_devices_with_one_parent_are_of_one_gpu(tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text(claim(MIG))
    (one,) = load.read([tmp_path / "m.yaml"]).of(dra.ResourceClaim)
    found = Allocator(node_slices(), nvidia.device_classes()).allocate([one], NODE, AllocatedState())
    names = [each.device for each in found.results[0].devices.results]
    assert len({name[: len("gpu-0")] for name in names}) == 1
    assert [name.split("-mig-")[1].split("-")[0] for name in names] == ["1g5gb", "2g10gb", "3g20gb"]


def test_a_compute_domain_and_the_claim_for_its_channel_are_taken_and_allocated(tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text("""\
apiVersion: resource.nvidia.com/v1beta1
kind: ComputeDomain
metadata: {name: imex, namespace: gpu-test}
spec: {numNodes: 0, channel: {resourceClaimTemplate: {name: imex-channel}}}
""")
    manifest = load.read([tmp_path / "m.yaml"])
    assert manifest.problems == ()
    template = compute_domains.channel_template(manifest.of(compute_domains.ComputeDomain)[0])
    wanted = dra.ResourceClaim(
        api_version=dra.V1, kind="ResourceClaim", metadata=template.metadata, spec=template.spec.spec
    )
    channel = dra.ResourceSlice(
        api_version=dra.V1,
        kind="ResourceSlice",
        metadata=ObjectMeta(name="channels"),
        spec=nvidia.channel_spec("node-1"),
    )
    found = Allocator([*node_slices(), channel], [nvidia.channel_class()]).allocate([wanted], NODE, AllocatedState())
    (given,) = found.results[0].devices.results
    assert (given.driver, given.device) == ("compute-domain.nvidia.com", "channel-0")
