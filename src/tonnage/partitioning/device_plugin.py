"""The configuration of NVIDIA's device plugin and GPU feature discovery, version v1: read, checked, written.

What the programs read and then ignore is said to be ignored. Source: NVIDIA/k8s-device-plugin v0.20.0 api/config/v1,
cmd/nvidia-device-plugin, cmd/config-manager; flags: ``facts/data/device_plugin_flags.csv``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

from msgspec import Struct, structs

from tonnage.errors import InputError, Problem
from tonnage.facts import names, tables
from tonnage.facts.labels import MIG_PREFIX, NVIDIA
from tonnage.objects import duration
from tonnage.objects.api.errors import SUBDOMAIN
from tonnage.objects.decode import show
from tonnage.partitioning import mps
from tonnage.partitioning.documents import ConfigDocument, check_version, typed, unknown_fields, yaml_text

WHO = "the device plugin"
CONFIG_LABEL = "nvidia.com/device-plugin.config"
FALLBACKS = ("named", "single", "empty")
IGNORED = "the device plugin ignores it"
_MOST_CHARACTERS = 63
_UUID = r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_DEVICE = re.compile(rf"\d+(:\d+)?|(GPU|MIG)-{_UUID}|MIG-GPU-{_UUID}/\d+/\d+")
_BOOLS = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}


class Replicated(Struct, frozen=True):
    """A resource that is shared. ``rename`` and ``devices`` are read and ignored by the device plugin."""

    name: str
    replicas: int
    rename: str = ""
    devices: str | int | list[str | int] = "all"

    @property
    def resource(self) -> str:
        """The resource with its prefix, which may be left out in the file."""
        return self.name if self.name.startswith(NVIDIA) else NVIDIA + self.name


class Replicas(Struct, rename="camel", frozen=True):
    """``sharing.timeSlicing`` or ``sharing.mps``."""

    resources: list[Replicated] = []
    rename_by_default: bool = False
    fail_requests_greater_than_one: bool | None = None


class Sharing(Struct, rename="camel", frozen=True):
    """How devices are shared: one of the two, or not at all."""

    time_slicing: Replicas | None = None
    mps: Replicas | None = None

    @property
    def active(self) -> Replicas:
        """The one that holds; without resources where nothing is shared."""
        return self.mps or self.time_slicing or Replicas()

    @property
    def strategy(self) -> str:
        """``none``, ``time-slicing`` or ``mps``, as in the label nvidia.com/gpu.sharing-strategy."""
        if self.mps is not None:
            return "mps"
        return "none" if self.time_slicing is None else "time-slicing"

    @property
    def one_each(self) -> bool:
        """Whether a container that asks for more than one replica is refused: by default under MPS alone."""
        given = self.active.fail_requests_greater_than_one
        return self.mps is not None if given is None else given

    def replicas(self, resource: str) -> int:
        """Replicas of each device of a resource; 1 where it is not shared."""
        return next((one.replicas for one in self.active.resources if one.resource == resource), 1)

    def advertised(self, resource: str) -> str:
        """The name under which a resource is offered: ``.shared`` behind it where shared resources are renamed."""
        renamed = self.active.rename_by_default and self.replicas(resource) > 1
        return f"{resource}.shared" if renamed else resource


class ResourcePattern(Struct, frozen=True):
    """An entry of ``resources``: read, then replaced by the device plugin's own."""

    pattern: str
    name: str


class PluginResources(Struct, frozen=True):
    """``resources``: which devices are offered under which name."""

    gpus: list[ResourcePattern] = []
    mig: list[ResourcePattern] = []


class Imex(Struct, rename={"channel_ids": "channelIDs"}, frozen=True):
    """IMEX channels for containers."""

    channel_ids: list[int] = []
    required: bool = False


class _File(Struct, frozen=True):
    version: str = "v1"
    flags: dict[str, Any] = {}
    resources: PluginResources = PluginResources()
    sharing: Sharing = Sharing()
    imex: Imex = Imex()


@dataclass(frozen=True, slots=True)
class Config:
    """A configuration. ``flags``: those that the file sets, by field (``plugin.deviceListStrategy``). ``ignored``: what
    stands in the file and has no effect."""

    flags: Mapping[str, Any] = field(default_factory=dict)
    resources: PluginResources = field(default_factory=PluginResources)
    sharing: Sharing = field(default_factory=Sharing)
    imex: Imex = field(default_factory=Imex)
    ignored: tuple[Problem, ...] = ()


class PluginFlag(NamedTuple):
    """One setting: its field in the file, option, variable, type (string, bool, list, duration) and what it may be."""

    field: str
    option: str
    environment: str
    type: str
    values: tuple[str, ...]
    default: Any

    def read(self, value: Any) -> Any:
        """A value as it stands in a file, a variable or an option. Raises ValueError for what it cannot be."""
        if self.type == "bool":
            known = _BOOLS.get(value.lower()) if isinstance(value, str) else value
            if not isinstance(known, bool):
                raise ValueError("expected true or false")
            return known
        if self.type == "list":
            value = value.split(",") if isinstance(value, str) else value
            if not isinstance(value, list) or not value:
                raise ValueError("expected a name or a list of names")
        elif not isinstance(value, str):
            raise ValueError("expected a text")
        if self.type == "duration":
            duration.parse(value)
        for one in value if isinstance(value, list) else [value]:
            if self.values and one not in self.values:
                raise ValueError(f"expected {' or '.join(self.values)}")
        return value


class FlagValue(NamedTuple):
    """What a flag is in the end, and whence: ``command line``, ``environment``, ``file`` or ``default``."""

    value: Any
    source: str


@lru_cache(maxsize=1)
def flags() -> tuple[PluginFlag, ...]:
    """Every flag of the device plugin and of GPU feature discovery."""
    found = []
    for row in tables.rows("device_plugin_flags.csv"):
        made = PluginFlag(
            row["field"], row["option"], row["environment"], row["type"], tuple(row["values"].split()), ""
        )
        default = made.read(row["default"]) if made.type in ("bool", "list") else row["default"]
        found.append(made._replace(default=default))
    return tuple(found)


def parse(document: ConfigDocument) -> Config:
    """The configuration in a document. Raises InputError with everything that the device plugin would refuse."""
    value = document.value
    if not isinstance(value, dict):
        raise InputError(document.problem("", f"{show(value)} is not a mapping", "expected version, flags and sharing"))
    problems = check_version(document, required=False)
    made = typed(document, value, _File, "", WHO)
    if isinstance(made, list):
        raise InputError(*made)
    ignored = unknown_fields(document, value, _File, "", IGNORED)
    ignored = [_with_place(problem, value) for problem in ignored]
    set_here = dict(_set_flags(document, made.flags, problems, ignored))
    problems += [document.problem(*wrong) for wrong in _wrong_sharing(value.get("sharing", {}), made.sharing, set_here)]
    if made.imex.channel_ids not in ([], [0]):
        problems.append(document.problem("imex.channelIDs", show(made.imex.channel_ids), "expected [] or [0]"))
    if problems:
        raise InputError(*sorted(problems, key=lambda problem: problem.where.line))
    ignored += [document.problem(*what) for what in _ignored(made)]
    ordered = tuple(sorted(ignored, key=lambda problem: problem.where.line))
    return Config(set_here, made.resources, made.sharing, made.imex, ordered)


def _with_place(problem: Problem, value: Mapping[str, Any]) -> Problem:
    """Where an option belongs that stands where the device plugin does not look for it."""
    at = problem.where.field
    belongs = _places(value).get(at.rpartition(".")[2], "")
    if not belongs or belongs == at:
        return problem
    return replace(problem, hint=f"it belongs at {belongs}; {IGNORED} here")


def _places(value: Mapping[str, Any]) -> dict[str, str]:
    """The path of each option, by its own name: of flags, and of sharing in the way that the file has."""
    written = value.get("sharing")
    way = "mps" if isinstance(written, dict) and "mps" in written else "timeSlicing"
    shared = [one.encode_name for one in structs.fields(Replicas)]
    found = {name: f"sharing.{way}.{name}" for name in shared}
    found |= {one.encode_name: f"sharing.{one.encode_name}" for one in structs.fields(Sharing)}
    found |= {one.encode_name: f"imex.{one.encode_name}" for one in structs.fields(Imex)}
    found |= {one.encode_name: one.encode_name for one in structs.fields(_File)}
    return found | {flag.field.rpartition(".")[2]: f"flags.{flag.field}" for flag in flags()}


def _set_flags(
    document: ConfigDocument, written: Mapping[str, Any], problems: list[Problem], ignored: list[Problem]
) -> Iterator[tuple[str, Any]]:
    known = {flag.field: flag for flag in flags()}
    flat: dict[str, Any] = {}
    for name, value in written.items():
        if name not in ("plugin", "gfd"):
            flat[name] = value
        elif isinstance(value, dict):
            flat |= {f"{name}.{key}": one for key, one in value.items()}
        else:
            problems.append(document.problem(f"flags.{name}", show(value), "expected a mapping"))
    for name, value in flat.items():
        at = f"flags.{name}"
        if name not in known:
            near = names.near(name, known)
            hint = f"did you mean {near[0]}?" if near else IGNORED
            problem = document.problem(at, f"unknown field {name.rpartition('.')[2]!r}", hint)
            ignored.append(_with_place(problem, document.value))
            continue
        try:
            yield name, known[name].read(value)
        except ValueError as error:
            problems.append(document.problem(at, show(value), str(error)))


def _wrong_sharing(
    written: Mapping[str, Any], sharing: Sharing, set_here: Mapping[str, Any]
) -> Iterator[tuple[str, str, str]]:
    """(path, message, hint) of what is wrong with ``sharing``."""
    if sharing.mps is not None and sharing.time_slicing is not None:
        yield "sharing", "timeSlicing and mps", "a node shares in one way: keep one of them"
    for key, replicas in (("timeSlicing", sharing.time_slicing), ("mps", sharing.mps)):
        if replicas is None:
            continue
        at = f"sharing.{key}.resources"
        if not replicas.resources:
            missing = "resources" not in written.get(key, {})
            yield at, "the field is missing" if missing else "no resource", "expected a list with name and replicas"
        counts = Counter(one.resource for one in replicas.resources)
        for number, one in enumerate(replicas.resources):
            here = f"{at}[{number}]"
            yield from _wrong_resource(here, one)
            if counts[one.resource] > 1:
                yield f"{here}.name", f"{one.resource} appears {counts[one.resource]} times", "keep one of them"
            if key == "mps" and one.resource.startswith(MIG_PREFIX):
                yield f"{here}.name", f"MPS on {one.resource}", "MPS is refused on MIG devices: use timeSlicing"
            if key == "mps" and one.replicas > mps.MOST_CLIENTS:
                yield f"{here}.replicas", f"{one.replicas}", f"MPS takes at most {mps.MOST_CLIENTS} clients on any GPU"
    if sharing.mps is not None and set_here.get("migStrategy") == "mixed":
        yield "flags.migStrategy", "mixed, and sharing.mps", "the device plugin refuses MPS with MIG strategy mixed"


def _wrong_resource(at: str, one: Replicated) -> Iterator[tuple[str, str, str]]:
    name = one.resource.removeprefix(NVIDIA)
    if not re.fullmatch(SUBDOMAIN, name):
        yield f"{at}.name", f"{one.name!r} is not a name of a resource", "names are like nvidia.com/gpu"
    elif len(one.resource) > _MOST_CHARACTERS:
        yield f"{at}.name", f"{one.resource} has {len(one.resource)} characters", "at most 63 with the prefix"
    if one.replicas < 2:
        yield f"{at}.replicas", f"{one.replicas}: expected 2 or more", "a resource that is not shared is left out"
    devices = one.devices if isinstance(one.devices, list) else []
    wrong = [ref for ref in devices if not _DEVICE.fullmatch(str(ref))]
    if one.devices not in ("all",) and isinstance(one.devices, str):
        wrong.append(one.devices)
    if isinstance(one.devices, int) and one.devices < 1:
        wrong.append(one.devices)
    for ref in wrong:
        yield f"{at}.devices", f"{ref!r} names no device", "expected all, a count, or a list of indices and UUIDs"


def _ignored(made: _File) -> Iterator[tuple[str, str, str]]:
    """(path, message, hint) of what the device plugin reads and then ignores."""
    for key in ("gpus", "mig"):
        if getattr(made.resources, key):
            yield f"resources.{key}", "resources cannot be renamed yet", IGNORED
    for key, replicas in (("timeSlicing", made.sharing.time_slicing), ("mps", made.sharing.mps)):
        for number, one in enumerate(replicas.resources if replicas else []):
            at = f"sharing.{key}.resources[{number}]"
            if one.rename:
                yield f"{at}.rename", one.rename, f"{IGNORED}; renameByDefault: true adds .shared to the name"
            if one.devices != "all":
                yield f"{at}.devices", show(one.devices), f"{IGNORED}: all devices of the resource are shared"


def settle(
    config: Config, environment: Mapping[str, str] | None = None, arguments: Mapping[str, str] | None = None
) -> dict[str, FlagValue]:
    """Each flag by field: the command line wins over the environment, that over the file, that over the default.

    ``environment``: variables by name. ``arguments``: options by name without dashes. Raises InputError for a value
    that a flag cannot have, or an option that does not exist."""
    environment, arguments = environment or {}, arguments or {}
    found = {}
    for flag in flags():
        given = [
            (arguments.get(flag.option), "command line", f"--{flag.option}"),
            (environment.get(flag.environment), "environment", flag.environment),
        ]
        value, source, name = next((one for one in given if one[0] is not None), (None, "file", ""))
        if value is None:
            set_here = flag.field in config.flags
            found[flag.field] = FlagValue(config.flags.get(flag.field, flag.default), "file" if set_here else "default")
            continue
        try:
            found[flag.field] = FlagValue(flag.read(value), source)
        except ValueError as error:
            raise InputError.at(f"{value!r}: {error}", field=name) from error
    for option in arguments:
        if option not in {flag.option for flag in flags()}:
            raise names.unknown("option", option, [flag.option for flag in flags()])
    if not found["nvidiaDevRoot"].value:
        found["nvidiaDevRoot"] = found["nvidiaDriverRoot"]
    return found


def choose(configs: Collection[str], label: str = "", default: str = "", fallbacks: Sequence[str] = FALLBACKS) -> str:
    """The key of the ConfigMap that a node gets, empty for the empty configuration.

    In this order: the node's label nvidia.com/device-plugin.config, the default of the config manager, its fallbacks:
    a configuration ``named`` default, a ``single`` one, the ``empty`` one. Raises InputError where the key that is
    asked for does not exist, or nothing is left."""
    for key, source in ((label, CONFIG_LABEL), (default, "--default-config")):
        if key:
            if key not in configs:
                known = ", ".join(sorted(configs)) or "none"
                error = names.unknown("configuration", key, configs, hint=f"there are: {known}")
                raise InputError.at(error.problems[0].message, field=source, hint=error.problems[0].hint)
            return key
    for fallback in fallbacks:
        if fallback not in FALLBACKS:
            raise names.unknown("fallback", fallback, FALLBACKS, hint=f"expected {', '.join(FALLBACKS)}")
        if fallback == "named" and "default" in configs:
            return "default"
        if fallback == "single" and len(configs) == 1:
            return next(iter(configs))
        if fallback == "empty":
            return ""
    raise InputError.at("no configuration for the node", field=CONFIG_LABEL, hint="label it, or set a default")


def render(config: Config) -> str:
    """The file that the device plugin reads; what is ignored is left out."""
    made: dict[str, Any] = {"version": "v1"}
    nested: dict[str, Any] = {}
    for name, value in config.flags.items():
        part, _, key = name.rpartition(".")
        (nested.setdefault(part, {}) if part else nested)[key] = value
    if nested:
        made["flags"] = nested
    for key, replicas in (("timeSlicing", config.sharing.time_slicing), ("mps", config.sharing.mps)):
        if replicas is not None:
            made["sharing"] = {key: _plain(replicas)}
    if config.imex != Imex():
        made["imex"] = {"channelIDs": config.imex.channel_ids, "required": config.imex.required}
    return yaml_text(made)


def _plain(replicas: Replicas) -> dict[str, Any]:
    found: dict[str, Any] = {"renameByDefault": True} if replicas.rename_by_default else {}
    if replicas.fail_requests_greater_than_one is not None:
        found["failRequestsGreaterThanOne"] = replicas.fail_requests_greater_than_one
    return found | {"resources": [{"name": one.resource, "replicas": one.replicas} for one in replicas.resources]}
