"""Specifications of the Container Device Interface: which device nodes, mounts and hooks a container gets for a card.

Written with the lowest version that holds what is in them, so that older runtimes read them too. Source:
tags.cncf.io/container-device-interface specs-go (versions), pkg/parser (names); NVIDIA/nvidia-container-toolkit v1.20.0
pkg/nvcdi (what nvidia-ctk puts in).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tonnage.errors import InputError
from tonnage.node.devices import Devices, GpuInstance, Identity
from tonnage.node.driver_files import DriverFiles
from tonnage.node.whole_files import write_whole

Edits = dict[str, Any]
"""containerEdits of the specification, as it is written."""

KIND = "nvidia.com/gpu"
PLUGIN_KIND = "k8s.device-plugin.nvidia.com/gpu"
"""Of the names that device plugins hand to the kubelet."""
CLAIM_KIND = "k8s.gpu.nvidia.com/claim"
"""Of the devices of a claim, as NVIDIA's DRA driver calls them."""
_CLAIM_FILE = f"tonnage-{CLAIM_KIND.replace('/', '-')}-"
FOLDER = Path("/var/run/cdi")
ALL = "all"
MANAGEMENT = "management."
"""How the kind of what has one device with all nodes begins."""
_LOWEST = "0.3.0"
_VENDOR = re.compile(r"[A-Za-z]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._:-]*[A-Za-z0-9])?")
_NOT_FOR_MANAGEMENT = ("nvidia-fs", "nvidia-nvswitch", "nvidia-nvlink")


@dataclass(frozen=True, slots=True)
class NameStrategies:
    """How devices are called: by ``index`` (0, 0:1), ``uuid`` or ``type-index`` (gpu0, mig0:1), and whether there is a
    device of all."""

    namings: tuple[str, ...] = ("index", "uuid")
    whole: bool = True


def spec_of(
    devices: Devices, files: DriverFiles, kind: str = KIND, names: NameStrategies | None = None
) -> dict[str, Any]:
    """The specification of a machine's cards and MIG devices. A card with MIG on has no device of its own, as nothing
    runs on it. Raises InputError for a ``kind`` that is not ``vendor/class``, and where the driver fails."""
    names = names or NameStrategies()
    vendor, slash, class_ = kind.partition("/")
    if not (slash and _VENDOR.fullmatch(vendor) and _VENDOR.fullmatch(class_)):
        raise InputError.at(f"{kind!r} is not a kind", field="--kind", hint="expected vendor/class like nvidia.com/gpu")
    made: list[tuple[str, Edits]] = []
    every: dict[str, dict[str, Any]] = {}
    for called, nodes in _devices(devices, files):
        made += [(called[naming], {"deviceNodes": nodes}) for naming in names.namings]
        every |= {node["path"]: node for node in nodes}
    if names.whole and every:
        made.append((ALL, {"deviceNodes": list(every.values())}))
    return _written(kind, made, files.common())


def management(files: DriverFiles, kind: str = MANAGEMENT + KIND) -> dict[str, Any]:
    """One device ``all`` with every device node of the driver, for containers that look after the cards."""
    nodes = [files.node(path) for path in files.every_node() if not Path(path).name.startswith(_NOT_FOR_MANAGEMENT)]
    return _written(kind, [(ALL, {"deviceNodes": nodes})], files.common(visible=False))


def _written(kind: str, devices: Sequence[tuple[str, Edits]], common: Edits) -> dict[str, Any]:
    for name, _ in devices:
        if not _NAME.fullmatch(name):
            raise InputError.at(f"{name!r} cannot be the name of a CDI device", hint="names are like 0, 0:1 and GPU-…")
    listed = [{"name": name, "containerEdits": edits} for name, edits in devices]
    spec = {"kind": kind, "devices": listed, "containerEdits": common}
    return {"cdiVersion": lowest_version(spec), **spec}


def called(devices: Devices) -> Iterator[tuple[dict[str, str], Identity, tuple[GpuInstance, int] | None]]:
    """(names by naming, card, GPU instance and id of the compute instance) of everything that a container can be
    given; None: the whole card."""
    for one in devices.cards():
        state = devices.mig(one.index)
        if state is None or not state.enabled:
            yield {"index": str(one.index), "uuid": one.uuid, "type-index": f"gpu{one.index}"}, one, None
            continue
        parts = ((instance, part) for instance in state.instances for part in instance.compute)
        for at, (instance, part) in enumerate(parts):
            names = {"index": f"{one.index}:{at}", "uuid": part.uuid, "type-index": f"mig{one.index}:{at}"}
            yield names, one, (instance, part.id)


def _devices(devices: Devices, files: DriverFiles) -> Iterator[tuple[dict[str, str], list[dict[str, Any]]]]:
    """(names by naming, device nodes) of everything that a container can be given."""
    for names, card, part in called(devices):
        yield names, nodes_of(files, card, part)


def nodes_of(files: DriverFiles, card: Identity, part: tuple[GpuInstance, int] | None) -> list[dict[str, Any]]:
    """The device nodes of a card, or of a compute instance of it. Raises InputError where its capability files are not
    known."""
    nodes = [files.node(f"/dev/nvidia{card.minor}")]
    if part is not None:
        nodes += [files.node(path) for path in _capabilities(card, *part)]
    return nodes


def claim_spec(files: DriverFiles, devices: Sequence[tuple[str, Edits]]) -> dict[str, Any]:
    """The specification of a claim's devices: (name, what a container with it gets)."""
    return _written(CLAIM_KIND, devices, files.common())


def claim_path(uid: str, folder: Path) -> Path:
    """The file of a claim."""
    return folder / f"{_CLAIM_FILE}{uid}.json"


def claims_in(folder: Path) -> list[str]:
    """UIDs of the claims that have a file."""
    return sorted(one.stem.removeprefix(_CLAIM_FILE) for one in folder.glob(f"{_CLAIM_FILE}*.json"))


def _capabilities(card: Identity, instance: GpuInstance, part: int) -> Iterator[str]:
    for owner in (None, part):
        if owner not in instance.minors:
            what = f"GPU {card.index}, instance {instance.id}"
            hint = "is /proc/driver/nvidia-caps/mig-minors there, and nvidia-caps loaded?"
            raise InputError.at(f"{what}: no capability file is known", hint=hint)
        yield f"/dev/nvidia-caps/nvidia-cap{instance.minors[owner]}"


def lowest_version(spec: Mapping[str, Any]) -> str:
    """The lowest version of the specification that has all that stands in this one."""
    edits = [spec.get("containerEdits", {}), *(one["containerEdits"] for one in spec["devices"])]
    found = [_LOWEST]

    def needs(version: str, condition: bool) -> None:
        if condition:
            found.append(version)

    needs("0.4.0", any("type" in mount for one in edits for mount in one.get("mounts", ())))
    needs("0.5.0", any(one["name"][0].isdigit() for one in spec["devices"]))
    needs("0.5.0", any("hostPath" in node for one in edits for node in one.get("deviceNodes", ())))
    needs("0.6.0", "." in spec["kind"].partition("/")[2])
    needs("0.6.0", bool(spec.get("annotations")) or any(one.get("annotations") for one in spec["devices"]))
    needs("0.7.0", any("intelRdt" in one or "additionalGids" in one for one in edits))
    needs("1.1.0", any("netDevices" in one for one in edits))
    rdt = [one.get("intelRdt", {}) for one in edits]
    needs("1.1.0", any("schemata" in one or "enableMonitoring" in one for one in rdt))
    return max(found, key=lambda text: tuple(map(int, text.split("."))))


def path_of(kind: str, folder: Path = FOLDER) -> Path:
    """The file of a kind: its own, so that nvidia-ctk's stays as it is."""
    return folder / f"tonnage-{kind.replace('/', '-')}.json"


def write(spec: Mapping[str, Any], path: Path) -> bool:
    """Write a specification whole and at once, readable for all; False where it stands there already.

    Raises InputError where it cannot be written."""
    text = msgspec.json.format(msgspec.json.encode(spec), indent=2) + b"\n"
    try:
        if path.exists() and path.read_bytes() == text:
            return False
        write_whole(path, text, mode=0o644)
    except OSError as error:
        raise InputError.at(f"cannot be written: {error.strerror}", file=str(path), hint="run it as root") from error
    return True


def read(path: Path) -> dict[str, Any] | None:
    """The specification in a file, JSON or by its name YAML; None where there is none that can be read: its kind is
    text, and each of its devices has a name."""
    try:
        text = path.read_bytes()
        found = _from_yaml(text) if path.suffix == ".yaml" else msgspec.json.decode(text)
        msgspec.convert(found, _Read)
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


class _NamedDevice(msgspec.Struct):
    name: str


class _Read(msgspec.Struct):
    kind: str
    devices: list[_NamedDevice] = []


def _from_yaml(text: bytes) -> object:
    """What a YAML text holds. Raises ValueError where it is none."""
    import yaml

    from tonnage.objects.tree import LOADER

    try:
        return yaml.load(text, LOADER)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
