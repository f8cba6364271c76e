"""resource.nvidia.com/v1beta1: what NVIDIA's DRA driver takes as the opaque configuration of devices.

Source: kubernetes-sigs/dra-driver-nvidia-gpu v0.5.0 api/nvidia.com/resource/v1beta1 (types and what they refuse).
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from tonnage.errors import InputError
from tonnage.objects.quantity import parse as quantity

API_VERSION = "resource.nvidia.com/v1beta1"
TIME_SLICING, MPS = "TimeSlicing", "MPS"
Interval: TypeAlias = Literal["Default", "Short", "Medium", "Long"]


class _Strict(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Unknown fields are refused, as the driver does."""


class TimeSlicingConfig(_Strict, frozen=True, kw_only=True):
    """``interval``: how long a process runs before the next one does."""

    interval: Interval = "Default"


class MpsConfig(_Strict, frozen=True, kw_only=True):
    """Limits of each client: percent of the threads, and memory, of all devices or by UUID or index."""

    default_active_thread_percentage: int | None = None
    default_pinned_device_memory_limit: str | None = None
    default_per_device_pinned_memory_limit: dict[str, str] = {}


class DeviceSharing(_Strict, frozen=True, kw_only=True):
    """How the containers of a claim share its devices."""

    strategy: Literal["TimeSlicing", "MPS"] = "TimeSlicing"
    time_slicing_config: TimeSlicingConfig | None = None
    mps_config: MpsConfig | None = None


class _Config(_Strict, frozen=True, kw_only=True):
    api_version: str
    kind: str


class GpuConfig(_Config, frozen=True, kw_only=True):
    """Of whole GPUs."""

    sharing: DeviceSharing | None = None


class MigDeviceConfig(_Config, frozen=True, kw_only=True):
    """Of MIG devices, which have no time-slicing interval of their own."""

    sharing: DeviceSharing | None = None


class VfioDeviceConfig(_Config, frozen=True, kw_only=True):
    """Of GPUs that are passed to virtual machines."""


class ComputeDomainChannelConfig(_Config, frozen=True, kw_only=True):
    """Of the IMEX channels of a ComputeDomain. ``domain_id``: its UID; ``allocation_mode``: Single or All."""

    domain_id: str = msgspec.field(default="", name="domainID")
    allocation_mode: Literal["", "Single", "All"] = ""


class ComputeDomainDaemonConfig(_Config, frozen=True, kw_only=True):
    """Of the IMEX daemons of a ComputeDomain."""

    domain_id: str = msgspec.field(default="", name="domainID")


DeviceConfig: TypeAlias = (
    GpuConfig | MigDeviceConfig | VfioDeviceConfig | ComputeDomainChannelConfig | ComputeDomainDaemonConfig
)
_KINDS: dict[str, type[DeviceConfig]] = {
    "GpuConfig": GpuConfig,
    "MigDeviceConfig": MigDeviceConfig,
    "VfioDeviceConfig": VfioDeviceConfig,
    "ComputeDomainChannelConfig": ComputeDomainChannelConfig,
    "ComputeDomainDaemonConfig": ComputeDomainDaemonConfig,
}


def device_config(parameters: Any, field: str = "parameters") -> DeviceConfig:
    """The configuration in ``opaque.parameters``. Raises InputError for what the driver would refuse."""
    given = parameters if isinstance(parameters, dict) else {}
    version, kind = given.get("apiVersion"), given.get("kind")
    if version != API_VERSION or kind not in _KINDS:
        hint = f"expected {API_VERSION} with one of the kinds {', '.join(_KINDS)}"
        raise InputError.at(f"{version!r} {kind!r} is not a configuration of this driver", field=field, hint=hint)
    try:
        made = msgspec.convert(given, _KINDS[kind])
    except msgspec.ValidationError as error:
        hint = f"see {kind} of {API_VERSION}"
        raise InputError.at(f"{kind}: {error}", field=field, hint=hint) from error
    sharing = getattr(made, "sharing", None)
    if sharing is not None:
        _check(sharing, kind, f"{field}.sharing")
    return made


def _check(sharing: DeviceSharing, kind: str, field: str) -> None:
    if sharing.strategy == TIME_SLICING and sharing.mps_config is not None:
        raise InputError.at("is given with the strategy TimeSlicing", field=f"{field}.mpsConfig", hint="remove one")
    if sharing.strategy == MPS and sharing.time_slicing_config is not None:
        raise InputError.at("is given with the strategy MPS", field=f"{field}.timeSlicingConfig", hint="remove one")
    if kind == "MigDeviceConfig" and sharing.time_slicing_config is not None:
        hint = "MIG devices are time-sliced with the default interval: remove it"
        raise InputError.at("MIG devices have no interval of their own", field=f"{field}.timeSlicingConfig", hint=hint)
    limits = sharing.mps_config
    if limits is None:
        return
    percent = limits.default_active_thread_percentage
    if percent is not None and not 0 <= percent <= 100:
        where = f"{field}.mpsConfig.defaultActiveThreadPercentage"
        raise InputError.at(f"{percent} is no percentage", field=where, hint="expected 0 to 100")
    named: dict[str, str | None] = {"defaultPinnedDeviceMemoryLimit": limits.default_pinned_device_memory_limit}
    for key, own in limits.default_per_device_pinned_memory_limit.items():
        named[f"defaultPerDevicePinnedMemoryLimit.{key}"] = own
    for name, text in named.items():
        if text is not None:
            memory_mib(text, f"{field}.mpsConfig.{name}")


def memory_mib(text: str, field: str = "") -> int:
    """A limit of memory in whole MiB, of which CUDA takes no parts. Raises InputError for less than one, and for what
    is no quantity."""
    try:
        mib = int(quantity(text)) >> 20
    except (InputError, ValueError) as error:
        raise InputError.at(f"{text!r} is no amount of memory", field=field, hint="write it like 8Gi") from error
    if mib < 1:
        raise InputError.at(f"{text!r} is less than 1 MiB", field=field, hint="write it like 8Gi")
    return mib
