"""What `tonnage share` is given: workloads as options, and pods of manifests with what they ask for."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tonnage.errors import InputError, Problem, Where
from tonnage.facts import mig, names
from tonnage.facts.gpus import Gpu
from tonnage.fleet import asks
from tonnage.fleet.asks import Ask, Kind
from tonnage.objects import apps, core, load, quantity
from tonnage.objects.base import KubeObject, where
from tonnage.partitioning.share import SharingWorkload
from tonnage.units import MIB

_KEYS = ("memory", "util", "every", "step", "latency", "count", "sms", "bound")
_HINT = "expected NAME:KEY=VALUE,... like chat:memory=10GiB,util=25%,count=8"
_TIME = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s)")
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_STEP_S = 0.010
_ANNOTATIONS = tuple(f"{at}metadata.annotations.{asks.FRACTION}" for at in ("", "spec.template."))
"""Where a pod and a Deployment say what part of a GPU they want."""


@dataclass(slots=True)
class ShareInput:
    """Workloads, and where each is written."""

    workloads: list[SharingWorkload] = field(default_factory=list)
    places: list[Where] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def read(paths: Sequence[Path], options: Sequence[str], gpu: Gpu, used: str) -> ShareInput:
    """Everything, in the order given: options first. Raises InputError for what cannot be read."""
    found = ShareInput()
    for text in options:
        name, colon, rest = text.partition(":")
        name = name.strip()
        at = Where(field=f"--workload {name}" if name else "--workload")
        if not colon or not name:
            raise InputError(Problem(Where(field="--workload"), f"{text!r}: no name and keys", _HINT))
        if any(one.name == name for one in found.workloads):
            raise InputError(Problem(at, "given twice", "give each workload a name of its own, or a count"))
        pairs = _pairs(rest, at)
        if "memory" not in pairs or not ({"util", "every"} & pairs.keys()):
            raise InputError(Problem(at, "memory, and util or every, must be given", _HINT))
        found.workloads.append(_workload(name, pairs, at))
        found.places.append(at)
    if used and not paths:
        raise InputError(Problem(Where(field="--used"), "no FILES", "it says what their pods use"))
    if paths:
        _manifests(found, paths, gpu, _pairs(used, Where(field="--used")) if used else {})
    return found


def part(text: str, at: str | Where) -> float:
    """A part of something, as in 25% or 0.25; whether it makes sense is for others to say. Raises InputError."""
    place = Where(field=at) if isinstance(at, str) else at
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(Problem(place, f"{text!r} is not a number", "expected a part above 0, at most 1: 25% or 0.25"))
    return value


def _pairs(text: str, at: Where) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in text.split(","):
        key, equals, value = (one.strip() for one in item.partition("="))
        if not equals or not value:
            raise InputError(Problem(at, f"{item.strip()!r}: expected KEY=VALUE", f"keys are {', '.join(_KEYS)}"))
        if key not in _KEYS:
            raise names.unknown("key", key, _KEYS, where=at, hint=f"keys are {', '.join(_KEYS)}")
        if key in found:
            raise InputError(Problem(at, f"{key} is given twice", "keep one"))
        found[key] = value
    if {"util", "every"} <= found.keys():
        raise InputError(Problem(at, "util and every say the same", "keep one of them"))
    if "every" in found and "step" not in found:
        raise InputError(Problem(at, "every without step", "give step, the GPU time of one: step=20ms,every=80ms"))
    return found


def _workload(name: str, pairs: Mapping[str, str], at: Where) -> SharingWorkload:
    def inside(key: str) -> Where:
        return Where(at.file, at.line, f"{at.field}:{key}")

    step_s = _seconds(pairs["step"], inside("step")) if "step" in pairs else _STEP_S
    if "every" in pairs:
        every_s = _seconds(pairs["every"], inside("every"))
        load = step_s / every_s
    else:
        load = part(pairs["util"], inside("util"))
    return SharingWorkload(
        name,
        _mib(pairs["memory"], inside("memory")),
        load,
        _count(pairs.get("count", "1"), inside("count")),
        step_s,
        _seconds(pairs["latency"], inside("latency")) if "latency" in pairs else None,
        part(pairs.get("sms", "1"), inside("sms")),
        pairs.get("bound", ""),
    )


def _seconds(text: str, at: Where) -> float:
    match = _TIME.fullmatch(text)
    if match is None or not float(match[1]):
        raise InputError(Problem(at, f"{text!r} is not a time above 0", "times are like 20ms, 250us or 1.5s"))
    return float(match[1]) * _UNITS[match[2]]


def _mib(text: str, at: Where) -> int:
    """MiB, rounded up. GiB is read as Gi."""
    try:
        return -(-quantity.bytes_(re.sub(r"iB$", "i", text)) // MIB)
    except ValueError as error:
        raise InputError(Problem(at, str(error), "memory is like 10GiB or 10Gi")) from error


def _count(text: str, at: Where) -> int:
    if re.fullmatch(r"-?[0-9]{1,18}", text) is None:
        raise InputError(Problem(at, f"{text!r} is not a whole number", "expected a count like 8"))
    return int(text)


def _manifests(found: ShareInput, paths: Sequence[Path], gpu: Gpu, used: Mapping[str, str]) -> None:
    """Deployments by their replicas, and the pods that none of them owns."""
    manifest = load.read(paths)
    found.problems += manifest.problems
    deployments = manifest.of(apps.Deployment)
    for one in deployments:
        if one.spec.replicas:
            template = one.spec.template
            _pod(found, one, template.spec, template.metadata.annotations, one.spec.replicas, gpu, used)
    for pod in manifest.of(core.Pod):
        if pod.status.phase not in core.FINISHED and not any(one.selects(pod) for one in deployments):
            _pod(found, pod, pod.spec, pod.metadata.annotations, 1, gpu, used)
    if not found.workloads:
        hint = "expected Pods or Deployments that ask for nvidia.com/gpu, a fraction or a MIG instance"
        raise InputError.at("no pod asks for a GPU", file=", ".join(map(str, paths)), hint=hint)


def _pod(
    found: ShareInput,
    obj: KubeObject,
    spec: core.PodSpec,
    annotations: Mapping[str, str],
    count: int,
    gpu: Gpu,
    used: Mapping[str, str],
) -> None:
    ask = asks.read(spec, core.pod_requests(spec), annotations)
    if ask.kind is Kind.NONE and not ask.refused:
        return
    at = where(obj, _ANNOTATIONS[isinstance(obj, apps.Deployment)] if ask.refused else "")
    place = Where(at.file, at.line, f"{obj.namespace or 'default'}/{obj.name}")
    if ask.refused:
        raise InputError(Problem(place, ask.refused, "no node can ever take it"))
    pieces = sum(n for _, n in ask.profiles) if ask.kind is Kind.MIG else ask.count
    if pieces != 1:
        found.problems.append(
            Problem(place, f"left out: it needs {pieces} GPUs at once", "only parts of one are shared")
        )
        return
    asked = {**_asked(ask, gpu, place), **used}
    if "every" in used:
        del asked["util"]
    found.workloads.append(_workload(place.field, {**asked, "count": str(count)}, place))
    found.places.append(place)


def _asked(ask: Ask, gpu: Gpu, at: Where) -> dict[str, str]:
    """Memory and utilisation that a pod's request says: all of the GPU where it says nothing."""
    memory, share = gpu.memory_mib, 1.0
    if ask.kind is Kind.MIG:
        profile = _profile(gpu, ask.profiles[0][0], at)
        memory, share = profile.usable_mib(gpu), profile.compute_share
    elif ask.kind is Kind.SHARE:
        memory, share = ask.milli * gpu.memory_mib // asks.FULL, ask.milli / asks.FULL
    elif ask.kind is Kind.MEMORY:
        memory = ask.mib or ask.percent * gpu.memory_mib // 100
        share = ask.milli / asks.FULL or min(1.0, memory / gpu.memory_mib)
    return {"memory": f"{memory}Mi", "util": repr(share)}


def _profile(gpu: Gpu, resource: str, at: Where) -> mig.MigProfile:
    """The profile behind nvidia.com/mig-1g.10gb. Raises InputError, at ``at``, for one that the GPU has not."""
    known = {one.resource: one for one in mig.profiles(gpu.name, plain=False)}
    if resource not in known:
        raise names.unknown("MIG resource", resource, known, where=at, hint=f"a {gpu.name} has no MIG")
    return known[resource]
