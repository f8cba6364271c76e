"""mig-parted's configuration file, version v1: read, checked, written.

Rules: NVIDIA/mig-parted api/spec/v1 and pkg/types (v0.15). Stricter here: a count of 0 and an empty list
of devices are refused, since they make nothing. What a configuration makes on a card:
:mod:`tonnage.partitioning.mig_cards`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from msgspec import Struct

from tonnage.errors import InputError, Problem, Where
from tonnage.facts import names
from tonnage.facts.mig_devices import VENDOR
from tonnage.objects.decode import show
from tonnage.partitioning.documents import ConfigDocument, check_version, typed, unknown_fields, yaml_text

WHO = "mig-parted"
_FIELDS = ("version", "mig-configs")
_MOST = 64
"""A count above is a mistake; one below may be too many for a card, which is said with its slot map."""
_PROFILE = re.compile(r"(?:\d+c\.)?\d+g\.\d+gb(?:[+-][A-Za-z][A-Za-z0-9.,]*)?")
_ID = re.compile(r"0[xX][0-9a-fA-F]{1,8}")
_ID_HINT = 'expected "0xDDDDVVVV", device before vendor, as in "0x233010DE"; a subsystem follows as ":0xDDDDVVVV"'


class DeviceId(NamedTuple):
    """A PCI id as in a device filter: 16 bits of device and of vendor; ``subsystem``: both of them in 32 bits."""

    device: int
    vendor: int
    subsystem: int | None = None

    def __str__(self) -> str:
        text = f"0x{self.device:04X}{self.vendor:04X}"
        return text if self.subsystem is None else f"{text}:0x{self.subsystem:08X}"


def device_id(text: str) -> DeviceId:
    """Read ``0x233010DE`` or ``0x233010DE:0x16C110DE``. Raises ValueError for anything else."""
    parts = text.split(":")
    if len(parts) > 2 or not all(_ID.fullmatch(part) for part in parts):
        raise ValueError(f"{text!r} is not a device id")
    whole = int(parts[0], 16)
    return DeviceId(whole >> 16, whole & 0xFFFF, int(parts[1], 16) if len(parts) == 2 else None)


class Entry(Struct, rename="kebab", frozen=True):
    """How some GPUs of a node are partitioned. ``device_filter``: for these ids only, empty for all. ``devices``:
    ``all`` or indices. ``mig_devices``: profile → count; None where MIG is off."""

    devices: str | list[int]
    mig_enabled: bool
    device_filter: str | list[str] = ""
    mig_devices: dict[str, int] | None = None

    @property
    def filters(self) -> list[str]:
        """The filter as a list."""
        if isinstance(self.device_filter, list):
            return self.device_filter
        return [self.device_filter] if self.device_filter else []

    @property
    def ids(self) -> tuple[DeviceId, ...]:
        """The ids of the filter; none for all GPUs."""
        return tuple(device_id(text) for text in self.filters)

    @property
    def profiles(self) -> tuple[str, ...]:
        """The profiles, each as often as it is wanted."""
        return tuple(name for name, count in (self.mig_devices or {}).items() for _ in range(count))

    def overlaps(self, other: Entry) -> bool:
        """Whether a GPU can match both."""
        mine, theirs = self.ids, other.ids
        same = not mine or not theirs or any(_match(a, b) for a in mine for b in theirs)
        if isinstance(self.devices, str) or isinstance(other.devices, str):
            return same
        return same and bool(set(self.devices) & set(other.devices))


def _match(one: DeviceId, other: DeviceId) -> bool:
    subsystems = {one.subsystem, other.subsystem} - {None}
    return one[:2] == other[:2] and len(subsystems) < 2


class Spec(Struct, frozen=True):
    """The named configurations of a file, in its order, and where they stand."""

    configs: Mapping[str, tuple[Entry, ...]]
    document: ConfigDocument | None = None

    def where(self, name: str, entry: int | None = None, field: str = "") -> Where:
        """The place of a configuration, one of its entries, or a field of that."""
        if self.document is None:
            return Where(field=name)
        return self.document.where(path(name, entry, field))


def path(name: str, entry: int | None = None, field: str = "") -> str:
    """The field of a configuration, one of its entries, or a field of that."""
    whole = f"mig-configs.{name}" if entry is None else f"mig-configs.{name}[{entry}]"
    return f"{whole}.{field}" if field else whole


def parse(document: ConfigDocument) -> Spec:
    """The configurations of a document. Raises InputError with everything that mig-parted would refuse, by line."""
    value = document.value
    if not isinstance(value, dict):
        raise InputError(document.problem("", f"{show(value)} is not a mapping", "expected version and mig-configs"))
    problems = check_version(document, required=True)
    for key in value:
        if key not in _FIELDS:
            near = names.near(key, _FIELDS)
            hint = f"did you mean {near[0]}?" if near else "mig-parted refuses a file with it"
            problems.append(document.problem(key, f"unknown field {key!r}", hint))
    configs = value.get("mig-configs")
    found: dict[str, tuple[Entry, ...]] = {}
    if not isinstance(configs, dict) or not configs:
        message = "the field is missing" if configs is None else "no configuration in it"
        problems.append(document.problem("mig-configs", message, "expected names, each with a list of entries"))
        configs = {}
    written = document.tree.value.get("mig-configs")
    configs = dict.fromkeys(written if isinstance(written, dict) else ()) | configs  # with those that are null
    for name, entries in configs.items():
        if not isinstance(entries, list) or not entries:
            hint = "expected entries with devices, mig-enabled and mig-devices"
            problems.append(document.problem(path(name), "expected a list with at least one entry", hint))
            continue
        made = [_entry(document, content, path(name, number), problems) for number, content in enumerate(entries)]
        found[name] = tuple(entry for entry in made if entry is not None)
    if problems:
        raise InputError(*sorted(problems, key=lambda problem: problem.where.line))
    return Spec(found, document)


def _entry(document: ConfigDocument, content: Any, at: str, problems: list[Problem]) -> Entry | None:
    if not isinstance(content, dict):
        problems.append(document.problem(at, f"{show(content)} is not a mapping", "expected devices and mig-enabled"))
        return None
    problems += unknown_fields(document, content, Entry, at, "mig-parted refuses a file with it")
    made = typed(document, content, Entry, at, WHO)
    if isinstance(made, list):
        problems += made
        return None
    wrong = [document.problem(f"{at}.{field}", message, hint) for field, message, hint in _wrong(made)]
    problems += wrong
    return None if wrong else made


def _wrong(entry: Entry) -> Iterator[tuple[str, str, str]]:
    """(field, message, hint) of everything that is wrong with an entry."""
    listed = isinstance(entry.device_filter, list)
    for number, text in enumerate(entry.filters):
        field = f"device-filter[{number}]" if listed else "device-filter"
        try:
            vendor = device_id(text).vendor
        except ValueError as error:
            yield field, str(error), _ID_HINT
            continue
        if vendor != VENDOR:
            yield field, f"{text}: vendor {vendor:04X} makes no NVIDIA GPU", _ID_HINT
    if isinstance(entry.devices, str):
        if entry.devices != "all":
            yield "devices", f"{entry.devices!r} names no devices", "expected all, or a list of indices like [0, 1]"
    elif not entry.devices:
        yield "devices", "an empty list matches no GPU", "expected all, or a list of indices like [0, 1]"
    else:
        for number, index in enumerate(entry.devices):
            if index < 0 or index in entry.devices[:number]:
                why = "appears twice" if index >= 0 else "is not an index"
                yield f"devices[{number}]", f"{index} {why}", "indices are as nvidia-smi -L lists them, from 0"
    yield from _wrong_counts(entry)


def _wrong_counts(entry: Entry) -> Iterator[tuple[str, str, str]]:
    counts = entry.mig_devices
    if entry.mig_enabled and counts is None:
        yield "mig-devices", "the field is missing", "required where mig-enabled is true; {} makes no instance"
    elif not entry.mig_enabled and counts:
        yield "mig-devices", "instances, and mig-enabled is false", "set mig-enabled: true, or leave mig-devices out"
    if not counts:
        return
    if not any(counts.values()):
        yield "mig-devices", "all counts are 0", "mig-devices: {} makes no instance"
        return
    for name, count in counts.items():
        if not _PROFILE.fullmatch(name):
            yield f"mig-devices.{name}", f"{name!r} is not a MIG profile", "profiles are like 1g.10gb or 1g.10gb+me"
        if count <= 0:
            yield f"mig-devices.{name}", f"{count}: expected a count of 1 or more", "leave out what is not wanted"
        if count > _MOST:
            yield f"mig-devices.{name}", f"{count} instances on one card", "a card holds 7 at most"


def render(spec: Spec) -> str:
    """The file that mig-parted reads."""
    return yaml_text({"version": "v1", "mig-configs": {n: [_plain(e) for e in es] for n, es in spec.configs.items()}})


def _plain(entry: Entry) -> dict[str, Any]:
    made: dict[str, Any] = {} if entry.device_filter == "" else {"device-filter": entry.device_filter}
    made |= {"devices": entry.devices, "mig-enabled": entry.mig_enabled}
    return made if entry.mig_devices is None else made | {"mig-devices": entry.mig_devices}
