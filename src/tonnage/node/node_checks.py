"""The steps that find why a GPU workload does not run, on the node itself: from the driver up to what fits in memory.

Each has a verdict and what it rests on. What only the API server or the container knows is said to be unknown here.
The steps are those of the first GPU debugging checklist of the guide ``gpu-basics``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from tonnage.errors import InputError
from tonnage.facts import cuda
from tonnage.node import cdi
from tonnage.node.devices import Devices, MigState, RecoveryAction
from tonnage.node.kubelet_api import KUBELET_SOCKET
from tonnage.node.offers import NodeOffer

PASSED, WARNING, FAILED, UNKNOWN = "passed", "warning", "failed", "unknown"
CHECKPOINT = "kubelet_internal_checkpoint"


class NodeCheck(Struct, frozen=True):
    """``verdict``: one of the four above. ``evidence``: what was seen; ``help``: what to do, empty where it passed."""

    name: str
    verdict: str
    evidence: tuple[str, ...]
    help: str = ""


def steps(devices: Devices, offered: NodeOffer, kubelet: Path, specs: Path, dev: Path | None) -> list[NodeCheck]:
    """The seven steps. ``kubelet``: its folder of device plugins; ``specs``: the runtime's folder of CDI
    specifications; ``dev``: where device nodes are, None for simulated cards.

    Raises InputError where the driver fails."""
    known = checkpoint(kubelet)
    return [
        visible(devices),
        plugin_serves(kubelet),
        registered(known, offered),
        requested(known),
        containers(devices, specs, dev),
        cuda_runs(devices),
        memory(devices),
    ]


class _Held(Struct):
    PodUID: str
    ContainerName: str
    ResourceName: str
    DeviceIDs: dict[str, list[str]] | None = None


class _Data(Struct):
    PodDeviceEntries: list[_Held] | None = None
    RegisteredDevices: dict[str, list[str] | None] | None = None


def checkpoint(kubelet: Path) -> Mapping[str, Any] | None:
    """What the kubelet wrote down of devices: which are registered, which pods hold some; None where it did not, or
    where something else is in its file."""
    try:
        found = msgspec.json.decode((kubelet / CHECKPOINT).read_bytes())
        data = found.get("Data") if isinstance(found, dict) else None
        msgspec.convert(data, _Data)
    except (OSError, RecursionError, msgspec.DecodeError):
        return None
    return data if isinstance(data, dict) else None


def visible(devices: Devices) -> NodeCheck:
    """Step 1: the driver answers, and so does every card."""
    driver, cards = devices.driver(), devices.cards()
    name = "1 the driver sees the GPUs"
    if not cards:
        return NodeCheck(name, FAILED, (f"driver {driver.version} sees no GPU",), "lspci -d 10de: shows what is there")
    seen = [f"driver {driver.version}, {len(cards)} GPUs"]
    wrong = []
    for one in cards:
        now = devices.condition(one.index)
        if now.lost:
            wrong.append(f"GPU {one.index} {one.pci} does not answer")
        elif now.recovery:
            action = RecoveryAction(now.recovery).name.lower().replace("_", " ")
            wrong.append(f"GPU {one.index} {one.pci}: the driver asks for: {action}")
        if now.rows is not None and now.rows.failed:
            wrong.append(f"GPU {one.index} {one.pci}: a memory row cannot be remapped")
    if not wrong:
        return NodeCheck(name, PASSED, tuple(seen))
    help_ = "drain the pods of these GPUs, then reset them or reboot the node; dmesg | grep Xid says what happened"
    return NodeCheck(name, FAILED, (*seen, *wrong), help_)


def plugin_serves(kubelet: Path) -> NodeCheck:
    """Step 2: the kubelet and a device plugin of this node have their sockets."""
    name = "2 a device plugin runs on this node"
    if not (kubelet / KUBELET_SOCKET).exists():
        return NodeCheck(
            name, UNKNOWN, (f"no {KUBELET_SOCKET} in {kubelet}",), "is this the node, with its folder mounted?"
        )
    found = sorted(one.name for one in kubelet.glob("*.sock") if one.name != KUBELET_SOCKET)
    if found:
        return NodeCheck(name, PASSED, tuple(found))
    help_ = "no DaemonSet of a device plugin has a pod here: look at its node selector and the node's taints"
    return NodeCheck(name, FAILED, (f"no plugin has a socket in {kubelet}",), help_)


def registered(known: Mapping[str, Any] | None, offered: NodeOffer) -> NodeCheck:
    """Step 3: the kubelet knows of the devices, as many as there are."""
    name = "3 the kubelet knows the devices"
    if offered.problems:
        return NodeCheck(name, FAILED, offered.problems, "see tonnage agent labels -o json")
    if known is None:
        return NodeCheck(name, UNKNOWN, ("the kubelet's checkpoint cannot be read",), "run it as root on the node")
    there = {key: ids for key, ids in (known.get("RegisteredDevices") or {}).items() if ids}
    seen, wrong = [], False
    for resource, devices in offered.resources.items():
        count = len(there.get(resource, ()))
        seen.append(f"{resource}: {count} healthy of {len(devices)}")
        wrong = wrong or count < len(devices)
    if not wrong:
        return NodeCheck(name, PASSED, tuple(seen))
    others = sorted(set(there) - set(offered.resources))
    seen += [f"{resource}: {len(there[resource])}, by another configuration" for resource in others]
    help_ = (
        "unhealthy devices are listed by the device plugin's log; other names come of another sharing or MIG strategy"
    )
    return NodeCheck(name, WARNING if others else FAILED, tuple(seen), help_)


def requested(known: Mapping[str, Any] | None) -> NodeCheck:
    """Step 4: which pods got devices: who has none asked for none, in limits."""
    name = "4 pods ask for GPUs"
    if known is None:
        return NodeCheck(name, UNKNOWN, ("the kubelet's checkpoint cannot be read",), "run it as root on the node")
    held = [
        f"{entry['ResourceName']}: {sum(map(len, (entry['DeviceIDs'] or {}).values()))} by {entry['ContainerName']} "
        f"of pod {entry['PodUID']}"
        for entry in known.get("PodDeviceEntries") or ()
    ]
    if held:
        return NodeCheck(name, PASSED, tuple(held))
    help_ = "a container gets a GPU only with resources.limits, as in nvidia.com/gpu: 1"
    return NodeCheck(name, UNKNOWN, ("no container on this node has been given a device",), help_)


def containers(devices: Devices, specs: Path, dev: Path | None) -> NodeCheck:
    """Step 5: what a container is given exists: device nodes, and CDI devices for all cards and MIG devices."""
    name = "5 containers can be given the GPUs"
    wanted = [names for names, _, _ in cdi.called(devices)]
    paths = (f"nvidia{one.minor}" for one in devices.cards())
    missing = [f"/dev/{path}" for path in paths if dev is not None and not (dev / path).exists()]
    if missing:
        return NodeCheck(
            name, FAILED, tuple(f"{path} is not there" for path in missing), "nvidia-modprobe -c N makes it"
        )
    found = {path: cdi.read(path) for path in sorted([*specs.glob("*.json"), *specs.glob("*.yaml")])}
    broken = tuple(f"{path.name} is no CDI specification" for path, spec in found.items() if spec is None)
    kinds = {
        path: spec
        for path, spec in found.items()
        if spec is not None and spec["kind"].endswith("/gpu") and not spec["kind"].startswith(cdi.MANAGEMENT)
    }
    if broken and not kinds:
        return NodeCheck(name, FAILED, broken, "the runtime passes over them: write them again, or remove them")
    if not kinds:
        help_ = "with CDI: tonnage agent cdi --folder /var/run/cdi; without, nvidia has to be the runtime's class"
        return NodeCheck(name, UNKNOWN, (f"no CDI specification of GPUs in {specs}",), help_)
    seen, stale = list(broken), False
    for path, spec in kinds.items():
        names = {one["name"] for one in spec.get("devices", ())}
        by = next((by for by in ("uuid", "index", "type-index") if any(one[by] in names for one in wanted)), "uuid")
        absent = [one[by] for one in wanted if one[by] not in names]
        stale = stale or bool(absent)
        seen.append(f"{path.name}: {len(names)} devices" + (f", without {', '.join(absent)}" if absent else ""))
    help_ = "it was written before MIG instances changed: write it again with tonnage agent cdi --folder"
    return NodeCheck(name, WARNING if stale else PASSED, tuple(seen), help_ if stale else "")


def cuda_runs(devices: Devices) -> NodeCheck:
    """Step 6: which CUDA images run on this driver."""
    name = "6 the driver runs the image's CUDA"
    driver = devices.driver()
    runs = driver.cuda or cuda.driver_cuda(cuda.parse_version(driver.version))
    if runs is None:
        return NodeCheck(name, UNKNOWN, (f"driver {driver.version} is not in the table",), "tonnage cuda check IMAGE")
    version = cuda.parse_version(driver.version)
    majors = [f"{major}.x" for major, floor in sorted(cuda.floors().items()) if cuda.at_least(version, floor)]
    seen = (f"driver {driver.version}: CUDA up to {cuda.cuda_text(runs)}", f"minor versions run of {', '.join(majors)}")
    return NodeCheck(name, PASSED, seen, "")


def memory(devices: Devices) -> NodeCheck:
    """Step 7: how much memory a model finds: of a card, or with MIG on of each instance."""
    name = "7 the model fits in memory"
    seen: list[str] = []
    full = []
    for one in devices.cards():
        state = devices.mig(one.index)
        if state is not None and state.enabled:
            seen += _instances(devices, one.index, state)
            if not state.instances:
                full.append(one.index)
            continue
        try:
            now = devices.measure(one.index)
        except InputError as error:
            seen.append(f"GPU {one.index}: {error.problems[0].message}")
            continue
        free = now.framebuffer_free_mib
        if free is None:
            continue
        seen.append(f"GPU {one.index}: {free} of {one.memory_mib} MiB free")
        if free < one.memory_mib / 10:
            full.append(one.index)
        if not devices.processes(one.index) and (now.framebuffer_used_mib or 0) > one.memory_mib / 10:
            seen.append(
                f"GPU {one.index}: memory is in use and no process is seen: it is of another container or has died"
            )
    help_ = "tonnage size MODEL says what a model needs; nvidia-smi shows who holds the memory" if full else ""
    return NodeCheck(name, WARNING if full else PASSED if seen else UNKNOWN, tuple(seen), help_)


def _instances(devices: Devices, card: int, state: MigState) -> Iterator[str]:
    """What a model finds on the MIG instances of a card."""
    if not state.instances:
        yield f"GPU {card}: MIG is on and no instance is there"
    for part in state.instances:
        called = f"GPU {card} instance {part.id} ({part.profile})"
        try:
            now = devices.measure(card, part.id)
        except InputError as error:
            yield f"{called}: {error.problems[0].message}"
            continue
        if now.framebuffer_free_mib is not None and now.framebuffer_used_mib is not None:
            total = now.framebuffer_free_mib + now.framebuffer_used_mib
            yield f"{called}: {now.framebuffer_free_mib} of {total} MiB free"


def worst(checks: Sequence[NodeCheck]) -> str:
    """The most serious verdict."""
    order = (PASSED, UNKNOWN, WARNING, FAILED)
    return max((one.verdict for one in checks), key=order.index, default=PASSED)
