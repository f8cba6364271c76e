"""NVIDIA's opaque configurations: what its driver takes, and what it refuses with which field."""

from __future__ import annotations

from typing import Any

import pytest

from tonnage.errors import InputError
from tonnage.objects.nvidia_device_configs import (
    ComputeDomainChannelConfig,
    GpuConfig,
    MigDeviceConfig,
    device_config,
    memory_mib,
)

VERSION = "resource.nvidia.com/v1beta1"


def config(kind: str, sharing: dict[str, Any] | None = None, **others: Any) -> dict[str, Any]:
    return {"apiVersion": VERSION, "kind": kind, **({} if sharing is None else {"sharing": sharing}), **others}


def test_sharing_of_gpus_and_mig_devices_is_read() -> None:
    found = device_config(config("GpuConfig", {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}))
    assert isinstance(found, GpuConfig)
    assert found.sharing is not None
    assert found.sharing.time_slicing_config is not None
    assert found.sharing.time_slicing_config.interval == "Long"
    limits = {"defaultActiveThreadPercentage": 50, "defaultPerDevicePinnedMemoryLimit": {"0": "5Gi"}}
    found = device_config(config("MigDeviceConfig", {"strategy": "MPS", "mpsConfig": limits}))
    assert isinstance(found, MigDeviceConfig)
    found = device_config(config("ComputeDomainChannelConfig", domainID="d-1", allocationMode="All"))
    assert found == ComputeDomainChannelConfig(
        api_version=VERSION, kind="ComputeDomainChannelConfig", domain_id="d-1", allocation_mode="All"
    )


@pytest.mark.parametrize(
    ("given", "field", "message"),
    [
        (None, "parameters", "None None is not a configuration"),
        (
            {"apiVersion": "gpu.resource.nvidia.com/v1alpha1", "kind": "GpuConfig"},
            "parameters",
            "is not a configuration",
        ),
        (config("GpuClaimParameters"), "parameters", "is not a configuration"),
        (config("GpuConfig", {"strategy": "Fair"}), "parameters", "Invalid enum value 'Fair'"),
        (config("GpuConfig", {"strategy": "MPS"}, replicas=4), "parameters", "unknown field `replicas`"),
        (
            config("GpuConfig", {"strategy": "TimeSlicing", "mpsConfig": {}}),
            "parameters.sharing.mpsConfig",
            "TimeSlicing",
        ),
        (
            config("MigDeviceConfig", {"strategy": "TimeSlicing", "timeSlicingConfig": {}}),
            "parameters.sharing.timeSlicingConfig",
            "MIG devices have no interval",
        ),
        (
            config("GpuConfig", {"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": 101}}),
            "parameters.sharing.mpsConfig.defaultActiveThreadPercentage",
            "101 is no percentage",
        ),
        (
            config("GpuConfig", {"strategy": "MPS", "mpsConfig": {"defaultPinnedDeviceMemoryLimit": "much"}}),
            "parameters.sharing.mpsConfig.defaultPinnedDeviceMemoryLimit",
            "'much' is no amount of memory",
        ),
    ],
)
def test_what_the_driver_refuses_is_refused_with_its_field(given: Any, field: str, message: str) -> None:
    with pytest.raises(InputError) as raised:
        device_config(given)
    [problem] = raised.value.problems
    assert problem.where.field == field
    assert message in problem.message
    assert problem.hint


def test_limits_of_memory_are_whole_mib() -> None:
    assert memory_mib("8Gi") == 8192
    assert memory_mib("1500000") == 1
    with pytest.raises(InputError, match="is less than 1 MiB"):
        memory_mib("512Ki")
