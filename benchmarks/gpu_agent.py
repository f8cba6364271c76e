"""The node agent on a real GPU, read only: beside `nvidia-smi -q -x`, nvidia-ctk and a load of known shape.

    PYTHONPATH=src python benchmarks/gpu_agent.py OUT.json [NVIDIA-CTK]   # where a GPU, nvidia-ml-py and msgspec are

Compared are identity, memory, MIG mode, PCIe, ECC, remapped rows, clocks, temperature and power of every card, the
labels that follow from them, and, where nvidia-ctk is given, devices, nodes, mounts, environment and hooks of the CDI
specification. Then, with torch, matrix products run on the first card for known parts of the time: the share of active
engines has to be 0.9 or more at full load, 0.02 or less idle, and in order between; power as nvidia-smi's within 5 %.
Last, the cost of the exporter at an interval of a second. No mode is changed, nothing reset. Exit code 1: it differs.
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tonnage.node import cdi
from tonnage.node.counters import default_counters
from tonnage.node.device_health import DeviceHealth
from tonnage.node.devices import Devices, Identity
from tonnage.node.driver_files import RealFiles
from tonnage.node.exporter import NodeExporter
from tonnage.node.features import node_labels
from tonnage.node.health_watch import HealthWatch
from tonnage.node.nvml import Library
from tonnage.node.nvml_devices import NvmlDevices

DUTIES = (0.0, 0.33, 0.66, 1.0)
"""Parts of the time in which the load works."""
SECONDS = 6.0
BUSY, IDLE = 0.9, 0.02
POWER_TOLERANCE = 0.05
COST_S = 10.0
READ = ("graphics_active", "sm_active", "tensor_active", "dram_active", "gpu_utilization", "power_w")


class Compared(NamedTuple):
    """One value: ours and theirs. ``agrees``: None where one of them has none."""

    what: str
    ours: Any
    theirs: Any
    agrees: bool | None


def compared(what: str, ours: Any, theirs: Any, tolerance: float = 0.0) -> Compared:
    """Numbers agree within a part of the greater, texts when they are equal."""
    if ours is None or theirs is None:
        return Compared(what, ours, theirs, None)
    if isinstance(ours, int | float) and isinstance(theirs, int | float):
        return Compared(what, ours, theirs, abs(ours - theirs) <= tolerance * max(abs(ours), abs(theirs)))
    return Compared(what, ours, theirs, ours == theirs)


def smi() -> ET.Element:
    """All that nvidia-smi says."""
    text = subprocess.run(["nvidia-smi", "-q", "-x"], capture_output=True, text=True, check=True).stdout
    return ET.fromstring(text)


def text(at: ET.Element, path: str) -> str | None:
    """What stands there; None where nothing does, or that it is not available."""
    found = (at.findtext(path) or "").strip()
    return None if found in ("", "N/A", "[N/A]", "Requested functionality has been deprecated") else found


def number(at: ET.Element, *paths: str) -> float | None:
    """The number at the first of these paths that has one."""
    for path in paths:
        match = re.match(r"-?\d+(\.\d+)?", text(at, path) or "")
        if match:
            return float(match[0])
    return None


def flag(at: ET.Element, path: str, on: tuple[str, ...] = ("Enabled", "Yes")) -> bool | None:
    """Whether it is on."""
    found = text(at, path)
    return None if found is None else found in on


def of_card(devices: Devices, one: Identity, theirs: ET.Element) -> Iterator[Compared]:
    """Everything that both say of a card."""
    name = f"GPU {one.index}"
    pcie, now, mig = devices.pcie(one.index), devices.condition(one.index), devices.mig(one.index)
    yield compared(f"{name} uuid", one.uuid, text(theirs, "uuid"))
    yield compared(f"{name} product", one.product, text(theirs, "product_name"))
    yield compared(f"{name} minor", one.minor, number(theirs, "minor_number"))
    yield compared(f"{name} bus", one.pci.lower(), (theirs.get("id") or "").lower())
    device = text(theirs, "pci/pci_device_id")
    yield compared(f"{name} device id", f"{one.device_id:08X}", None if device is None else device[-8:].upper())
    yield compared(f"{name} vbios", one.vbios or None, text(theirs, "vbios_version"))
    yield compared(f"{name} serial", one.serial or None, text(theirs, "serial"))
    yield compared(f"{name} memory MiB", one.memory_mib, number(theirs, "fb_memory_usage/total"))
    yield compared(f"{name} MIG", None if mig is None else mig.enabled, flag(theirs, "mig_mode/current_mig"))
    link = "pci/pci_gpu_link_info"
    yield compared(f"{name} PCIe width", pcie.width, _width(theirs, f"{link}/link_widths/current_link_width"))
    yield compared(f"{name} PCIe width at most", pcie.max_width, _width(theirs, f"{link}/link_widths/max_link_width"))
    yield compared(
        f"{name} PCIe generation at most",
        pcie.max_generation,
        number(theirs, f"{link}/pcie_gen/max_link_gen"),
    )
    yield compared(f"{name} ECC", now.ecc, flag(theirs, "ecc_mode/current_ecc"))
    yield compared(f"{name} persistence", now.persistence, flag(theirs, "persistence_mode"))
    mode = text(theirs, "compute_mode")
    yield compared(f"{name} compute mode", now.compute_mode or None, None if mode is None else mode.lower())
    limits = ("gpu_power_readings/current_power_limit", "power_readings/enforced_power_limit")
    yield compared(f"{name} power limit W", now.power_limit_w, number(theirs, *limits), 0.001)
    if now.rows is not None:
        at = "remapped_rows/remapped_row"
        yield compared(f"{name} rows remapped, correctable", now.rows.correctable, number(theirs, f"{at}_corr"))
        yield compared(f"{name} rows remapped, uncorrectable", now.rows.uncorrectable, number(theirs, f"{at}_unc"))
        yield compared(f"{name} rows pending", now.rows.pending, flag(theirs, f"{at}_pending"))
        yield compared(f"{name} row remapping failed", now.rows.failed, flag(theirs, f"{at}_failure"))


def measured(devices: Devices, index: int) -> Iterator[Compared]:
    """What changes from one moment to the next, read as closely together as can be."""
    ours = devices.measure(index)
    theirs = smi().findall("gpu")[index]
    name = f"GPU {index}"
    power = ("gpu_power_readings/average_power_draw", "gpu_power_readings/power_draw", "power_readings/power_draw")
    yield compared(f"{name} power W", ours.power_w, number(theirs, *power), POWER_TOLERANCE)
    yield compared(f"{name} SM clock MHz", ours.sm_clock_mhz, number(theirs, "clocks/sm_clock"), 0.1)
    yield compared(f"{name} memory clock MHz", ours.memory_clock_mhz, number(theirs, "clocks/mem_clock"))
    yield compared(f"{name} temperature C", ours.gpu_temperature_c, number(theirs, "temperature/gpu_temp"), 0.1)
    hot = number(theirs, "temperature/memory_temp")
    yield compared(f"{name} memory temperature C", ours.memory_temperature_c, hot, 0.1)
    for part in ("used", "free", "reserved"):
        mine = getattr(ours, f"framebuffer_{part}_mib")
        yield compared(f"{name} memory {part} MiB", mine, number(theirs, f"fb_memory_usage/{part}"), 0.02)


def _width(at: ET.Element, path: str) -> float | None:
    found = text(at, path)
    return None if found is None else float(found.rstrip("x"))


def of_labels(devices: Devices, theirs: ET.Element) -> Iterator[Compared]:
    """Labels that follow from what nvidia-smi says."""
    labels = node_labels(devices).labels
    cards = theirs.findall("gpu")
    product = text(cards[0], "product_name") or ""
    yield compared("label gpu.product", labels.get("nvidia.com/gpu.product"), product.replace(" ", "-"))
    yield compared("label gpu.count", labels.get("nvidia.com/gpu.count"), str(len(cards)))
    memory = number(cards[0], "fb_memory_usage/total")
    yield compared("label gpu.memory", labels.get("nvidia.com/gpu.memory"), None if memory is None else f"{memory:.0f}")
    version = labels.get("nvidia.com/cuda.driver-version.full")
    yield compared("label cuda.driver-version.full", version, text(theirs, "driver_version"))
    version = labels.get("nvidia.com/cuda.runtime-version.full")
    yield compared("label cuda.runtime-version.full", version, text(theirs, "cuda_version"))
    mode = flag(cards[0], "mig_mode/current_mig")
    yield compared("label mig.capable", labels.get("nvidia.com/mig.capable"), str(mode is not None).lower())


def of_specification(devices: Devices, program: Path) -> Iterator[Compared]:
    """Ours beside nvidia-ctk's: names, and all that stands in both as sorted lists."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "spec.json"
        words = [str(program), "--quiet", "cdi", "generate", "--format=json", f"--output={out}"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            yield Compared("nvidia-ctk cdi generate", None, done.stderr.strip()[-300:], None)
            return
        theirs = json.loads(out.read_text())
        ours = cdi.spec_of(devices, RealFiles(devices.driver().version))
        mine = Path(folder) / "ours"
        cdi.write(ours, cdi.path_of(cdi.KIND, mine))
        listed = subprocess.run(
            [str(program), "--quiet", "cdi", "list", "--spec-dir", str(mine)],
            capture_output=True,
            text=True,
            check=False,
        )
    yield compared(
        "nvidia-ctk lists ours",
        sorted(listed.stdout.split()),
        sorted(f"{ours['kind']}={one['name']}" for one in ours["devices"]),
    )
    named = [{one["name"]: one["containerEdits"] for one in spec["devices"]} for spec in (ours, theirs)]
    yield compared("CDI names", sorted(named[0]), sorted(named[1]))
    for name in sorted(set(named[0]) & set(named[1])):
        nodes = [sorted(n["path"] for n in each[name].get("deviceNodes", ())) for each in named]
        yield compared(f"CDI nodes of {name}", *nodes)
    common = [spec.get("containerEdits", {}) for spec in (ours, theirs)]
    yield compared("CDI environment", *(sorted(each.get("env", ())) for each in common))
    yield compared("CDI common nodes", *(sorted(n["path"] for n in each.get("deviceNodes", ())) for each in common))
    yield compared("CDI mounts", *(sorted(m["containerPath"] for m in each.get("mounts", ())) for each in common))
    yield compared("CDI hooks", *(sorted(h["args"][1] for h in each.get("hooks", ())) for each in common))


def work(duty: float, ended: threading.Event) -> None:
    """Matrix products for this part of every tenth of a second."""
    import torch

    left = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    right = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    while not ended.is_set():
        begun = time.monotonic()
        while time.monotonic() - begun < 0.1 * duty:
            torch.matmul(left, right)
            torch.cuda.synchronize()
        time.sleep(max(0.0, 0.1 - (time.monotonic() - begun)))


def under_load(devices: Devices) -> tuple[list[dict[str, Any]], list[Compared]]:
    """(readings by duty, what is held of them)."""
    rows: list[dict[str, Any]] = []
    held: list[Compared] = []
    for duty in DUTIES:
        ended = threading.Event()
        load = threading.Thread(target=work, args=(duty, ended)) if duty else None
        if load is not None:
            load.start()
            time.sleep(4)
        devices.measure(0)
        time.sleep(SECONDS)
        now = devices.measure(0)
        held += [one for one in measured(devices, 0) if duty and "power" in one.what]
        ended.set()
        if load is not None:
            load.join()
        shares = {name: getattr(now, name) for name in READ}
        rows.append({"duty": duty, **shares, "absent": dict(now.absent)})
        time.sleep(2)
    shares = [row["graphics_active"] for row in rows]
    if None not in shares:
        held.append(Compared("engines idle", shares[0], f"<= {IDLE}", shares[0] <= IDLE))
        held.append(Compared("engines at full load", shares[-1], f">= {BUSY}", shares[-1] >= BUSY))
        held.append(Compared("engines in order of load", shares, sorted(shares), shares == sorted(shares)))
    return rows, held


def cost(devices: Devices) -> dict[str, float]:
    """Part of a core, and MiB, that `tonnage agent metrics --interval 1` takes beside answering scrapes."""
    health = DeviceHealth()
    exporter, watch = NodeExporter(devices, health, "here", default_counters()), HealthWatch(devices, health)
    begun, cpu = time.monotonic(), time.process_time()
    while time.monotonic() - begun < COST_S:
        watch.take(devices.events(1.0), time.time_ns())
        exporter.text(time.time_ns(), {})
    used = (time.process_time() - cpu) / (time.monotonic() - begun)
    return {"core": round(used, 5), "mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def main(out: Path, program: Path | None) -> int:
    """Compare, print, write ``out``; 1 where something differs."""
    with Library() as library:
        devices = NvmlDevices(library)
        seen = cost(devices)  # before torch, whose memory is not the agent's
        theirs = smi()
        found = [each for one, at in zip(devices.cards(), theirs.findall("gpu"), strict=True)
                 for each in of_card(devices, one, at)]  # fmt: skip
        found += [each for one in devices.cards() for each in measured(devices, one.index)]
        found += list(of_labels(devices, theirs))
        if program is not None:
            found += list(of_specification(devices, program))
        rows: list[dict[str, Any]] = []
        try:
            import torch  # noqa: F401
        except ImportError:
            print("no torch: no load")
        else:
            rows, held = under_load(devices)
            found += held
        links = [{"a": one.a, "b": one.b, "ancestor": None if one.ancestor is None else one.ancestor.name,
                  "nvlinks": one.nvlinks, "switched": one.switched} for one in devices.links()]  # fmt: skip
        answer = {
            "driver": devices.driver().version,
            "cards": [one.product for one in devices.cards()],
            "absent": {one.index: dict(devices.measure(one.index).absent) for one in devices.cards()},
            "links": links,
            "topology": subprocess.run(
                ["nvidia-smi", "topo", "-m"], capture_output=True, text=True, check=False
            ).stdout,
            "labels": node_labels(devices).labels,
            "load": rows,
            "cost": seen,
            "compared": [one._asdict() for one in found],
        }
        devices.close()
    out.write_text(json.dumps(answer, indent=1, default=str) + os.linesep)
    for one in found:
        said = {True: "agrees", False: "DIFFERS", None: "absent"}[one.agrees]
        print(f"{said:8} {one.what}: {one.ours} | {one.theirs}")
    print(f"cost: {seen['core']:.2%} of a core, {seen['mib']:.0f} MiB")
    for row in rows:
        print(row)
    return int(any(one.agrees is False for one in found))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None))
