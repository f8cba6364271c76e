"""How a claim's device is to be shared, by the configuration in its allocation: which of several counts, and what the
driver makes of it.

Source: kubernetes-sigs/dra-driver-nvidia-gpu v0.5.0 cmd/gpu-kubelet-plugin (device_state.go, sharing.go).
"""

from __future__ import annotations

from msgspec import Struct

from tonnage.dra.nvidia import DRIVER
from tonnage.errors import InputError
from tonnage.objects.dra import AllocationResult, DeviceRequestAllocationResult
from tonnage.objects.nvidia_device_configs import (
    MPS,
    TIME_SLICING,
    DeviceSharing,
    GpuConfig,
    MigDeviceConfig,
    device_config,
    memory_mib,
)


class ClientLimits(Struct, frozen=True):
    """What each client of MPS may have of a device: ``percent`` of its threads, and MiB of its memory; None: all."""

    percent: int | None = None
    memory_mib: int | None = None


def sharing_of(
    allocation: AllocationResult, result: DeviceRequestAllocationResult, *, whole: bool
) -> DeviceSharing | None:
    """How a device is to be shared: the last configuration that is about it, the class's before the claim's. ``whole``:
    it is a GPU, no MIG device.

    Raises InputError for a configuration that the driver does not understand, or of another type of device."""
    wanted = GpuConfig if whole else MigDeviceConfig
    found: DeviceSharing | None = None
    names = {result.request, result.request.partition("/")[0]}
    for at, one in enumerate(allocation.devices.config):
        if one.opaque is None or one.opaque.driver != DRIVER or (one.requests and not names & set(one.requests)):
            continue
        config = device_config(one.opaque.parameters, f"config[{at}].opaque.parameters")
        if isinstance(config, wanted):
            found = config.sharing
        elif one.requests:
            what = "a GPU" if whole else "a MIG device"
            raise InputError.at(f"is a {config.kind}, and {result.device} is {what}", field=f"config[{at}]")
    return found


def interval(sharing: DeviceSharing | None) -> str | None:
    """The interval that a card gets; None: it keeps the default one."""
    if sharing is None or sharing.strategy != TIME_SLICING or sharing.time_slicing_config is None:
        return None
    return sharing.time_slicing_config.interval


def client_limits(sharing: DeviceSharing | None, uuid: str, index: int) -> ClientLimits | None:
    """The limits of MPS; None: the device is not shared by it. ``index``: of the device among the claim's. Raises
    InputError for an amount of memory that is none."""
    if sharing is None or sharing.strategy != MPS:
        return None
    limits = sharing.mps_config
    if limits is None:
        return ClientLimits()
    own = limits.default_per_device_pinned_memory_limit
    memory = own.get(uuid, own.get(str(index), limits.default_pinned_device_memory_limit))
    return ClientLimits(limits.default_active_thread_percentage, None if memory is None else memory_mib(memory))
