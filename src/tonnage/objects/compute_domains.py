"""ComputeDomains of resource.nvidia.com: nodes of one NVLink fabric whose pods reach each other's GPU memory by IMEX.

NVIDIA's controller makes a ResourceClaimTemplate of each, by which every pod of the domain claims a channel on its
node. Source: kubernetes-sigs/dra-driver-nvidia-gpu v0.5.0 api/nvidia.com/resource/v1beta1 and
cmd/compute-domain-controller.
"""

from __future__ import annotations

from collections.abc import Mapping

from tonnage.objects.base import DEFAULT_NAMESPACE, Field, KubeObject, ObjectMeta
from tonnage.objects.dra import (
    V1,
    DeviceClaim,
    DeviceClaimConfiguration,
    DeviceRequest,
    ExactDeviceRequest,
    OpaqueDeviceConfiguration,
    ResourceClaimSpec,
    ResourceClaimTemplate,
    ResourceClaimTemplateSpec,
)
from tonnage.objects.nvidia_device_configs import API_VERSION

DRIVER = "compute-domain.nvidia.com"
CHANNEL_CLASS = "compute-domain-default-channel.nvidia.com"
"""The class of the one channel of a node by which claims of a domain are served."""
_CHANNEL_CONFIG = "ComputeDomainChannelConfig"


class ChannelTemplateName(Field, frozen=True, kw_only=True):
    """The ResourceClaimTemplate that is made for the domain."""

    name: str = ""


class ComputeDomainChannel(Field, frozen=True, kw_only=True):
    """``allocation_mode``: Single channel of a node, or All."""

    resource_claim_template: ChannelTemplateName = ChannelTemplateName()
    allocation_mode: str = "Single"


class ComputeDomainSpec(Field, frozen=True, kw_only=True):
    """``num_nodes``: deprecated, 0 where nodes are those that its pods come to."""

    num_nodes: int = 0
    channel: ComputeDomainChannel = ComputeDomainChannel()


class ComputeDomain(KubeObject, kw_only=True):
    """resource.nvidia.com ComputeDomain."""

    spec: ComputeDomainSpec = ComputeDomainSpec()


def channel_template(domain: ComputeDomain) -> ResourceClaimTemplate:
    """The template that NVIDIA's controller makes of the domain."""
    identity = domain.metadata.uid or f"{domain.namespace or DEFAULT_NAMESPACE}/{domain.name}"
    parameters = {
        "apiVersion": API_VERSION,
        "kind": _CHANNEL_CONFIG,
        "domainID": identity,
        "allocationMode": domain.spec.channel.allocation_mode,
    }
    devices = DeviceClaim(
        requests=[DeviceRequest(name="channel", exactly=ExactDeviceRequest(device_class_name=CHANNEL_CLASS))],
        config=[
            DeviceClaimConfiguration(
                requests=["channel"], opaque=OpaqueDeviceConfiguration(driver=DRIVER, parameters=parameters)
            )
        ],
    )
    meta = ObjectMeta(name=domain.spec.channel.resource_claim_template.name, namespace=domain.namespace)
    spec = ResourceClaimTemplateSpec(spec=ResourceClaimSpec(devices=devices))
    return ResourceClaimTemplate(api_version=V1, kind="ResourceClaimTemplate", metadata=meta, spec=spec)


def domain_of(spec: ResourceClaimSpec) -> str:
    """The ComputeDomain, by its UID, of a claim for a channel; empty for any other claim."""
    for one in spec.devices.config:
        if one.opaque is None or one.opaque.driver != DRIVER or not isinstance(one.opaque.parameters, Mapping):
            continue
        if one.opaque.parameters.get("kind") == _CHANNEL_CONFIG:
            return str(one.opaque.parameters.get("domainID") or "")
    return ""
