"""The GPUs of this machine as NVML says: :class:`tonnage.node.devices.Devices` over a driver. Reads only."""

from __future__ import annotations

import ctypes
import math
import re
import time
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec

from tonnage.errors import InputError
from tonnage.facts.mig import MigProfile
from tonnage.node import discover
from tonnage.node.devices import (
    Ancestor,
    CardCondition,
    ComputeInstance,
    DeviceEvent,
    Driver,
    Fabric,
    GpuInstance,
    GpuProcess,
    Identity,
    Link,
    Measured,
    MigState,
    Pcie,
)
from tonnage.node.nvml import Library, Tried
from tonnage.node.nvml_events import WHOLE, EventSet
from tonnage.node.nvml_gpm import Gpm
from tonnage.node.nvml_readings import condition, counters, energy

ENERGY_S = 5.0
"""For how long the last energy reading of a card is given: it takes longer than all the others together."""
_MOST_LINKS = 36
_MINORS = re.compile(r"gpu(\d+)/gi(\d+)(?:/ci(\d+))?/access (\d+)")
_SWITCH = 2
"""NVML_NVLINK_DEVICE_TYPE_SWITCH."""


class NvmlDevices:
    """``library``: open for as long as this is used. ``root``: where /sys and /proc of the machine are."""

    def __init__(self, library: Library, root: Path = Path("/")) -> None:
        self._library, self._root = library, root
        self._handles = [library.tried("nvmlDeviceGetHandleByIndex", index).value for index in range(library.count())]
        self._gpm = Gpm(library)
        self._events: EventSet | None = None
        self._energies: dict[int, tuple[float, Tried]] = {}  # when it was read, and what it said, by card
        self._discovered = {one.index: one for one in discover.discover(library)}
        self._cards = tuple(self._identity(index) for index in range(len(self._handles)))

    def close(self) -> None:
        """Free what the driver keeps for this reader."""
        self._gpm.close()
        if self._events is not None:
            self._events.close()

    def driver(self) -> Driver:
        cuda = self._library.tried("nvmlSystemGetCudaDriverVersion_v2").value
        nvml = self._library.tried("nvmlSystemGetNVMLVersion").value
        version = None if cuda is None else (cuda // 1000, cuda % 1000 // 10)
        return Driver(self._library.driver(), version, _text(nvml))

    def cards(self) -> Sequence[Identity]:
        return self._cards

    def mig(self, card: int) -> MigState | None:
        mode = self._library.mode(card)
        if mode is None:
            return None
        return MigState(*mode, tuple(self._instances(card)) if mode[0] else ())

    def profiles(self, card: int) -> Sequence[MigProfile]:
        return [one.profile for one in self._discovered[card].profiles]

    def links(self) -> Sequence[Link]:
        return [self._link(a, b) for a, b in combinations(range(len(self._handles)), 2)]

    def fabric(self, card: int) -> Fabric | None:
        kind = self._library.constant("c_nvmlGpuFabricInfo_v2_t")
        if kind is None:
            return None
        info = kind()
        asked = ctypes.byref(info)  # pynvml hands this argument on as it is, and the driver writes through it
        if self._library.tried("nvmlDeviceGetGpuFabricInfoV", self._handles[card], asked).why or not info.state:
            return None
        raw = bytes(info.clusterUuid).hex()
        uuid = "-".join((raw[:8], raw[8:12], raw[12:16], raw[16:20], raw[20:]))
        return Fabric(uuid, int(info.cliqueId), int(info.state), int(info.healthMask))

    def pcie(self, card: int) -> Pcie:
        names = ("CurrPcieLinkGeneration", "CurrPcieLinkWidth", "MaxPcieLinkGeneration", "MaxPcieLinkWidth")
        return Pcie(*(self._ask(f"nvmlDeviceGet{name}", card) for name in names))

    def condition(self, card: int) -> CardCondition:
        return condition(self._library, self._handles[card], _MOST_LINKS)

    def measure(self, card: int, gpu_instance: int | None = None) -> Measured:
        handle = self._handles[card]
        values, absent = self._gpm.read(card, handle, gpu_instance)
        device = handle if gpu_instance is None else self._mig_handle(card, gpu_instance)
        counted, missing = counters(self._library, device, self._energy(card) if gpu_instance is None else None)
        return msgspec.convert({**counted, **values, "absent": {**missing, **absent}}, Measured)

    def _energy(self, card: int) -> Tried:
        """The counter, asked again after :data:`ENERGY_S`."""
        at, known = self._energies.get(card, (-math.inf, Tried(None)))
        if time.monotonic() - at >= ENERGY_S:
            known = energy(self._library, self._handles[card])
            self._energies[card] = time.monotonic(), known
        return known

    def processes(self, card: int) -> Sequence[GpuProcess]:
        handle = self._handles[card]
        busy = {
            one.pid: one.smUtil for one in self._library.tried("nvmlDeviceGetProcessUtilization", handle, 0).value or ()
        }
        found: dict[int, GpuProcess] = {}
        for kind in ("Graphics", "MPSCompute", "Compute"):
            for one in self._library.tried(f"nvmlDeviceGet{kind}RunningProcesses_v3", handle).value or ():
                used = None if one.usedGpuMemory is None else int(one.usedGpuMemory) >> 20
                gi, ci = (None if n in (None, WHOLE) else int(n) for n in (one.gpuInstanceId, one.computeInstanceId))
                name = "mps" if kind == "MPSCompute" else kind.lower()
                found[one.pid] = GpuProcess(int(one.pid), name, used, gi, ci, busy.get(one.pid))
        return [found[pid] for pid in sorted(found)]

    def events(self, timeout_s: float) -> Sequence[DeviceEvent]:
        if self._events is None:
            self._events = EventSet(self._library, self._handles)
        return self._events.wait(timeout_s)

    def _ask(self, name: str, card: int) -> Any:
        """The function's answer; None where there is none."""
        handle = self._handles[card]
        return None if handle is None else self._library.tried(name, handle).value

    def _identity(self, index: int) -> Identity:
        one = self._discovered[index]
        bus = self._ask("nvmlDeviceGetPciInfo", index)
        pci = _text(bus.busId)
        minor = self._ask("nvmlDeviceGetMinorNumber", index)
        compute = self._ask("nvmlDeviceGetCudaComputeCapability", index)
        brand = self._ask("nvmlDeviceGetBrand", index)
        return Identity(
            index=index,
            minor=index if minor is None else int(minor),
            uuid=one.uuid,
            product=one.name,
            gpu=one.gpu,
            pci=pci,
            device_id=one.device_id,
            memory_mib=one.memory_mib,
            compute=None if compute is None else (int(compute[0]), int(compute[1])),
            numa=self._numa(pci),
            subsystem_id=int(bus.pciSubSystemId),
            brand="" if brand is None else self._brands.get(int(brand), str(brand)),
            serial=_text(self._ask("nvmlDeviceGetSerial", index)),
            vbios=_text(self._ask("nvmlDeviceGetVbiosVersion", index)),
            pci_class=self._pci_class(pci),
        )

    @cached_property
    def _brands(self) -> dict[int, str]:
        plain = ("UNKNOWN", "QUADRO", "TESLA", "NVS", "GRID", "GEFORCE", "TITAN", "NVIDIA")
        names = (*plain, "QUADRO_RTX", "NVIDIA_RTX", "GEFORCE_RTX", "TITAN_RTX")
        known = ((self._library.constant(f"NVML_BRAND_{name}"), name) for name in names)
        return {int(number): name.lower().replace("_", "") for number, name in known if number is not None}

    def _numa(self, pci: str) -> int | None:
        node = self._sysfs(pci, "numa_node")
        return node if node is not None and node >= 0 else None

    def _pci_class(self, pci: str) -> int | None:
        found = self._sysfs(pci, "class")
        return None if found is None else found >> 8

    def _sysfs(self, pci: str, name: str) -> int | None:
        """A number of a card there, where the domain of a bus id has four digits."""
        try:
            return int((self._root / "sys/bus/pci/devices" / pci[-12:].lower() / name).read_text(), 0)
        except (OSError, ValueError):
            return None

    def _instances(self, card: int) -> Iterator[GpuInstance]:
        parts = self._mig_devices(card)
        minors = self._minors(self._cards[card].minor)
        found = discover.instances(self._library, self._discovered[card])
        if not found and parts:
            hint = "run it as root, with the capability file /proc/driver/nvidia/capabilities/mig/config readable"
            raise InputError.at(f"GPU {card}: the driver does not say where MIG instances are", hint=hint)
        for profile, one in found:
            inside = tuple(part for gi, part in parts if gi == one.id)
            yield GpuInstance(one.id, profile, one.profile_id, one.start, one.size, inside, minors.get(one.id, {}))

    def _mig_devices(self, card: int) -> list[tuple[int, ComputeInstance]]:
        """(GPU instance, its compute instance) of every MIG device."""
        most = self._ask("nvmlDeviceGetMaxMigDeviceCount", card) or 0
        found = []
        for at in range(most):
            device = self._library.tried("nvmlDeviceGetMigDeviceHandleByIndex", self._handles[card], at).value
            if device is None:
                continue
            gi = int(self._library.tried("nvmlDeviceGetGpuInstanceId", device).value)
            ci = int(self._library.tried("nvmlDeviceGetComputeInstanceId", device).value)
            has = self._library.tried("nvmlDeviceGetAttributes", device).value
            uuid = _text(self._library.tried("nvmlDeviceGetUUID", device).value)
            slices = 0 if has is None else int(has.computeInstanceSliceCount)
            found.append((gi, ComputeInstance(ci, uuid, slices)))
        return found

    def _mig_handle(self, card: int, gpu_instance: int) -> Any:
        for at in range(self._ask("nvmlDeviceGetMaxMigDeviceCount", card) or 0):
            device = self._library.tried("nvmlDeviceGetMigDeviceHandleByIndex", self._handles[card], at).value
            if device is None:
                continue
            if self._library.tried("nvmlDeviceGetGpuInstanceId", device).value == gpu_instance:
                return device
        raise InputError.at(f"GPU {card} has no GPU instance {gpu_instance}", hint="its instances have changed")

    def _minors(self, gpu: int) -> dict[int, dict[int | None, int]]:
        """Minor numbers of capability files by GPU instance and compute instance."""
        try:
            text = (self._root / "proc/driver/nvidia-caps/mig-minors").read_text()
        except OSError:
            return {}
        found: dict[int, dict[int | None, int]] = {}
        for owner, gi, ci, minor in _MINORS.findall(text):
            if int(owner) == gpu:
                found.setdefault(int(gi), {})[int(ci) if ci else None] = int(minor)
        return found

    def _link(self, a: int, b: int) -> Link:
        level = self._library.tried("nvmlDeviceGetTopologyCommonAncestor", self._handles[a], self._handles[b]).value
        peers = self._peers
        straight = sum(one == self._cards[b].pci for one in peers[a])
        switched = all("" in peers[card] for card in (a, b))
        return Link(a, b, None if level is None else Ancestor(level), straight, switched)

    @cached_property
    def _peers(self) -> list[list[str]]:
        """By card: the PCI address at the other end of each active link, empty for a switch."""
        return [[*self._ends(handle)] for handle in self._handles]

    def _ends(self, handle: Any) -> Iterator[str]:
        for link in range(_MOST_LINKS):
            if not self._library.tried("nvmlDeviceGetNvLinkState", handle, link).value:
                continue
            if self._library.tried("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link).value == _SWITCH:
                yield ""
                continue
            other = self._library.tried("nvmlDeviceGetNvLinkRemotePciInfo", handle, link).value
            if other is not None:
                yield _text(other.busId)


def _text(value: str | bytes | None) -> str:
    return "" if value is None else value.decode() if isinstance(value, bytes) else value
