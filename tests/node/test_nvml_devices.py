"""The port over NVML, on a library that answers as drivers do: handles, structures, errors where a card has nothing."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tonnage.errors import InputError
from tonnage.node.cdi import spec_of
from tonnage.node.devices import Ancestor, DeviceEvent, RecoveryAction
from tonnage.node.driver_files import RealFiles
from tonnage.node.features import node_labels
from tonnage.node.nvml import Library
from tonnage.node.nvml_devices import NvmlDevices

WHOLE = 0xFFFFFFFF
ABSENT, LOST, TIMEOUT = 3, 15, 10
PLACES = {0: (19, 1, "1g.10gb", 9984, 16, 7), 2: (9, 3, "3g.40gb", 40448, 60, 2)}


class NvmlError(Exception):
    """As nvidia-ml-py raises it."""

    def __init__(self, value: int) -> None:
        super().__init__({ABSENT: "Not Supported", LOST: "GPU is lost", TIMEOUT: "Timeout"}.get(value, "Unknown Error"))
        self.value = value


class Place(ctypes.Structure):
    _fields_ = [("start", ctypes.c_uint), ("size", ctypes.c_uint)]


class Handle(ctypes.Structure):
    _fields_ = [("card", ctypes.c_uint), ("gi", ctypes.c_int), ("ci", ctypes.c_int)]


class Metric(ctypes.Structure):
    _fields_ = [("metricId", ctypes.c_uint), ("nvmlReturn", ctypes.c_uint), ("value", ctypes.c_double)]


class MetricsGet(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint), ("numMetrics", ctypes.c_uint), ("metrics", Metric * 32)]
    sample1: Any
    sample2: Any


class Fabric(ctypes.Structure):
    _fields_ = [
        ("clusterUuid", ctypes.c_uint8 * 16),
        ("cliqueId", ctypes.c_uint),
        ("state", ctypes.c_uint),
        ("healthMask", ctypes.c_uint),
    ]


class Driver:
    """Two H100s joined by switches: the second has MIG on, with 3g.40gb at 4. What is not a method, no driver has."""

    def __init__(self) -> None:
        self.handles = [ctypes.pointer(Handle(card, -1, -1)) for card in range(2)]
        self.lost: set[int] = set()
        self.events: list[SimpleNamespace] = []
        self.samples = 0

    def module(self) -> SimpleNamespace:
        constants = {
            **{"NVML_ERROR_NOT_SUPPORTED": ABSENT, "NVML_ERROR_INVALID_ARGUMENT": 2, "NVML_ERROR_NO_PERMISSION": 4},
            **{"NVML_ERROR_FUNCTION_NOT_FOUND": 13, "NVML_ERROR_NOT_FOUND": 6, "NVML_ERROR_GPU_IS_LOST": LOST},
            **{"NVML_ERROR_RESET_REQUIRED": 16, "NVML_BRAND_NVIDIA": 14, "nvmlMemory_v2": 0x2000028},
            **{"nvmlEventTypeXidCriticalError": 8, "nvmlEventMigConfigChange": 0x100, "NVML_FI_DEV_MEMORY_TEMP": 82},
            **{"nvmlEventTypeGpuRecoveryAction": 0x8000, "NVML_GPM_METRICS_GET_VERSION": 1},
            **{f"NVML_GPM_METRIC_{name}": at for at, name in enumerate(METRICS, 1)},
            **{"c_nvmlGpuInstancePlacement_t": Place, "c_nvmlGpuInstance_t": ctypes.c_void_p},
            **{"c_nvmlGpuFabricInfo_v2_t": Fabric, "c_nvmlGpmMetricsGet_t": MetricsGet, "NVMLError": NvmlError},
        }
        functions = {name: getattr(self, name) for name in dir(self) if name.startswith("nvml")}
        return SimpleNamespace(**constants, **functions)

    def card(self, handle: Any) -> int:
        card = int(handle.contents.card)
        if card in self.lost:
            raise NvmlError(LOST)
        return card

    def nvmlInit(self) -> None: ...
    def nvmlShutdown(self) -> None: ...
    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.159.04"

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        return 13000

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        return self.handles[index]

    def nvmlDeviceGetName(self, handle: Any) -> bytes:
        self.card(handle)
        return b"NVIDIA H100 80GB HBM3"

    def nvmlDeviceGetUUID(self, handle: Any) -> str:
        one = handle.contents
        return f"GPU-{one.card}" if one.gi < 0 else f"MIG-{one.card}-{one.gi}-{one.ci}"

    def nvmlDeviceGetPciInfo(self, handle: Any) -> SimpleNamespace:
        bus = f"00000000:{0x65 + self.card(handle):02X}:00.0"
        return SimpleNamespace(busId=bus.encode(), pciDeviceId=0x233010DE, pciSubSystemId=0x16C110DE)

    def nvmlDeviceGetMinorNumber(self, handle: Any) -> int:
        return self.card(handle) + 4

    def nvmlDeviceGetCudaComputeCapability(self, _: Any) -> tuple[int, int]:
        return 9, 0

    def nvmlDeviceGetBrand(self, _: Any) -> int:
        return 14

    def nvmlDeviceGetMemoryInfo(self, handle: Any, version: int | None = None) -> SimpleNamespace:
        mib = 40_448 if handle.contents.gi >= 0 else 81_559
        return SimpleNamespace(total=mib << 20, used=100 << 20, free=(mib - 100) << 20, reserved=0)

    def nvmlDeviceGetMigMode(self, handle: Any) -> tuple[int, int]:
        return (1, 1) if self.card(handle) else (0, 0)

    def nvmlDeviceGetGpuInstanceProfileInfo(self, _: Any, number: int) -> SimpleNamespace:
        if number not in PLACES:
            raise NvmlError(ABSENT)
        names = ("id", "sliceCount", "name", "memorySizeMB", "multiprocessorCount", "instanceCount")
        fields = dict(zip(names, PLACES[number], strict=True))
        fields |= {f"{kind}Count": 1 for kind in ("copyEngine", "decoder", "encoder", "jpeg", "ofa")}
        return SimpleNamespace(**fields, _fields_=[(name, None) for name in fields])

    def nvmlDeviceGetGpuInstancePossiblePlacements(self, _: Any, profile: int, array: Any, count: Any) -> int:
        places = [(0, 4), (4, 4)] if profile == 9 else [(start, 1) for start in range(7)]
        for at, (start, size) in enumerate(places):
            array[at].start, array[at].size = start, size
        count._obj.value = len(places)
        return 0

    def nvmlDeviceGetGpuInstances(self, handle: Any, profile: int, array: Any, count: Any) -> int:
        there = self.card(handle) == 1 and profile == 9
        array[0] = 77 if there else 0
        count._obj.value = int(there)
        return 0

    def nvmlGpuInstanceGetInfo(self, handle: Any) -> SimpleNamespace:
        assert handle == 77
        return SimpleNamespace(id=2, profileId=9, placement=SimpleNamespace(start=4, size=4))

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Any) -> int:
        return 7 * self.card(handle)

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, at: int) -> Any:
        if self.card(handle) != 1 or at:
            raise NvmlError(6)
        return ctypes.pointer(Handle(1, 2, 0))

    def nvmlDeviceGetGpuInstanceId(self, handle: Any) -> int:
        return int(handle.contents.gi)

    def nvmlDeviceGetComputeInstanceId(self, handle: Any) -> int:
        return int(handle.contents.ci)

    def nvmlDeviceGetAttributes(self, _: Any) -> SimpleNamespace:
        return SimpleNamespace(computeInstanceSliceCount=3)

    def nvmlDeviceGetTopologyCommonAncestor(self, _: Any, __: Any) -> int:
        return 50

    def nvmlDeviceGetNvLinkState(self, _: Any, link: int) -> int:
        if link > 3:
            raise NvmlError(2)
        return int(link != 3)

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, _: Any, __: int) -> int:
        return 2

    def nvmlDeviceGetGpuFabricInfoV(self, _: Any, pointer: Any) -> None:
        info = pointer._obj  # as ctypes.byref gives it: a structure by value ends the process in a real driver
        info.clusterUuid[:] = bytes(range(16))
        info.cliqueId, info.state, info.healthMask = 5, 3, 0

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: Any) -> int:
        return 1000 + self.card(handle)

    def nvmlDeviceGetRemappedRows(self, _: Any) -> tuple[int, int, int, int]:
        return 3, 1, 1, 0

    def nvmlDeviceGetCurrentClocksEventReasons(self, _: Any) -> int:
        return 0x4 | 0x40

    def nvmlDeviceGetFieldValues(self, _: Any, asked: list[tuple[int, int]]) -> list[SimpleNamespace]:
        values = {230: 4, 82: 48}
        number = asked[0][0]
        value = SimpleNamespace(uiVal=values.get(number, 0))
        return [SimpleNamespace(nvmlReturn=0 if number in values else ABSENT, valueType=1, value=value)]

    def nvmlDeviceGetPowerUsage(self, handle: Any) -> int:
        self.card(handle)
        return 123_456

    def nvmlDeviceGetUtilizationRates(self, handle: Any) -> SimpleNamespace:
        if self.card(handle) == 1:
            raise NvmlError(ABSENT)
        return SimpleNamespace(gpu=55, memory=20)

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle: Any) -> list[SimpleNamespace]:
        gi = 2 if self.card(handle) else WHOLE
        return [SimpleNamespace(pid=7, usedGpuMemory=1 << 30, gpuInstanceId=gi, computeInstanceId=0 if gi == 2 else gi)]

    def nvmlGpmQueryDeviceSupport(self, _: Any) -> SimpleNamespace:
        return SimpleNamespace(isSupportedDevice=1)

    def nvmlGpmSampleAlloc(self) -> int:
        self.samples += 1
        return self.samples

    def nvmlGpmSampleFree(self, _: int) -> None:
        self.samples -= 1

    def nvmlGpmSampleGet(self, _: Any, sample: int) -> int:
        return sample

    def nvmlGpmMigSampleGet(self, _: Any, gi: int, sample: int) -> int:
        return sample

    def nvmlGpmMetricsGet(self, asked: Any) -> None:
        for at in range(asked.numMetrics):
            one = asked.metrics[at]
            one.nvmlReturn, one.value = (ABSENT, 0) if one.metricId == 5 else (0, 50.0)

    def nvmlEventSetCreate(self) -> str:
        return "set"

    def nvmlEventSetFree(self, _: str) -> None: ...
    def nvmlDeviceGetSupportedEventTypes(self, _: Any) -> int:
        return 0x8 | 0x100

    def nvmlDeviceRegisterEvents(self, handle: Any, mask: int, _: str) -> None:
        assert mask == 0x108
        self.card(handle)

    def nvmlEventSetWait_v2(self, _: str, __: int) -> SimpleNamespace:
        if not self.events:
            raise NvmlError(TIMEOUT)
        return self.events.pop(0)


METRICS = (
    *("GRAPHICS_UTIL", "SM_UTIL", "SM_OCCUPANCY", "ANY_TENSOR_UTIL", "DRAM_BW_UTIL", "PCIE_TX_PER_SEC"),
    *("PCIE_RX_PER_SEC", "NVLINK_TOTAL_TX_PER_SEC", "NVLINK_TOTAL_RX_PER_SEC"),
)

Opened = Callable[..., NvmlDevices]


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def devices(driver: Driver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> NvmlDevices:
    monkeypatch.setitem(sys.modules, "pynvml", driver.module())
    node = tmp_path / "sys/bus/pci/devices/0000:65:00.0"
    node.mkdir(parents=True)
    (node / "numa_node").write_text("1\n")
    (node / "class").write_text("0x030200\n")
    minors = tmp_path / "proc/driver/nvidia-caps/mig-minors"
    minors.parent.mkdir(parents=True)
    minors.write_text("config 1\ngpu5/gi2/access 21\ngpu5/gi2/ci0/access 22\ngpu4/gi2/access 99\n")
    library = Library().__enter__()
    return NvmlDevices(library, tmp_path)


def test_cards_are_what_the_driver_and_sysfs_say(devices: NvmlDevices) -> None:
    one, other = devices.cards()
    assert (one.uuid, one.minor, one.gpu, one.pci) == ("GPU-0", 4, "h100", "00000000:65:00.0")
    assert (one.numa, one.pci_class, other.numa, other.pci_class) == (1, 0x0302, None, None)
    assert (one.brand, one.serial, one.compute, one.memory_mib) == ("nvidia", "", (9, 0), 81_559)
    assert devices.driver().cuda == (13, 0)
    (link,) = devices.links()
    assert (link.ancestor, link.nvlinks, link.switched) == (Ancestor.SYSTEM, 0, True)
    fabric = devices.fabric(0)
    assert fabric is not None
    assert (fabric.cluster, fabric.clique) == ("00010203-0405-0607-0809-0a0b0c0d0e0f", 5)


def test_mig_devices_have_their_places_and_capability_files(devices: NvmlDevices) -> None:
    off, on = devices.mig(0), devices.mig(1)
    assert off is not None and not off.enabled
    assert on is not None
    (made,) = on.instances
    assert (made.id, made.profile, made.start, made.size) == (2, "3g.40gb", 4, 4)
    assert (made.compute[0].uuid, made.compute[0].slices) == ("MIG-1-2-0", 3)
    assert dict(made.minors) == {None: 21, 0: 22}
    spec = spec_of(devices, RealFiles("580.159.04", Path("/nowhere")))
    nodes = {one["name"]: [n["path"] for n in one["containerEdits"]["deviceNodes"]] for one in spec["devices"]}
    assert nodes["1:0"] == ["/dev/nvidia5", "/dev/nvidia-caps/nvidia-cap21", "/dev/nvidia-caps/nvidia-cap22"]
    labels = node_labels(devices, "mixed").labels
    assert labels["nvidia.com/mig-3g.40gb.count"] == "1"
    assert labels["nvidia.com/gpu.product"] == "NVIDIA-H100-80GB-HBM3"


def test_signs_of_faults_are_read_and_a_lost_card_says_nothing(devices: NvmlDevices, driver: Driver) -> None:
    now = devices.condition(0)
    assert now.recovery == RecoveryAction.DRAIN_AND_RESET
    assert now.rows is not None and now.rows.pending and not now.rows.failed
    assert now.throttle == ("sw_power_cap", "hw_thermal_slowdown")
    assert now.nvlinks_down == (3,)
    assert now.ecc is None
    driver.lost.add(0)
    assert devices.condition(0).lost
    assert devices.condition(0).recovery is None
    assert not devices.condition(1).lost


def test_what_a_driver_has_not_is_absent_with_its_reason_and_never_zero(devices: NvmlDevices) -> None:
    first = devices.measure(0)
    assert (first.gpu_utilization, first.power_w, first.memory_temperature_c) == (55, 123.456, 48)
    assert first.graphics_active is None
    assert "first sample" in first.absent["graphics_active"]
    second = devices.measure(0)
    assert (second.graphics_active, second.dram_active) == (0.5, None)
    assert second.pcie_sent_bytes_per_s == 50 * (1 << 20)
    assert "NVML error 3" in second.absent["dram_active"]
    with_mig = devices.measure(1)
    assert with_mig.gpu_utilization is None
    assert with_mig.absent["gpu_utilization"] == "Not Supported"
    assert "no nvmlDeviceGetPcieReplayCounter" in with_mig.absent["pcie_replays"]
    inside = devices.measure(1, 2)
    assert (inside.framebuffer_free_mib, inside.power_w) == (40_348, None)
    with pytest.raises(InputError, match="no GPU instance 9"):
        devices.measure(1, 9)


def test_samples_of_the_performance_monitor_are_freed(devices: NvmlDevices, driver: Driver) -> None:
    for _ in range(5):
        devices.measure(0)
    assert driver.samples == 1
    devices.close()
    assert driver.samples == 0


def test_processes_and_events_name_their_instances(devices: NvmlDevices, driver: Driver) -> None:
    (whole,), (inside,) = devices.processes(0), devices.processes(1)
    assert (whole.pid, whole.used_mib, whole.gpu_instance) == (7, 1024, None)
    assert (inside.gpu_instance, inside.compute_instance) == (2, 0)
    assert devices.events(0) == []
    same = ctypes.pointer(driver.handles[1].contents)
    for kind, data, gi in ((8, 79, WHOLE), (8, 31, 2), (0x100, 0, WHOLE), (0x800000, 1, WHOLE)):
        driver.events.append(
            SimpleNamespace(device=same, eventType=kind, eventData=data, gpuInstanceId=gi, computeInstanceId=gi)
        )
    assert devices.events(1) == [
        DeviceEvent(1, "xid", 79),
        DeviceEvent(1, "xid", 31, 2, 2),
        DeviceEvent(1, "mig"),
        DeviceEvent(1, "other", 1),
    ]
