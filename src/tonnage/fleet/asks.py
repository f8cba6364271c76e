"""What a pod asks of a node's devices: whole ones, shares of them, memory, MIG instances.

Two dialects of sharing are read, from annotations and from resources:

- KAI: ``gpu-fraction`` (0 < x < 1) or ``gpu-memory`` (MiB), of ``gpu-fraction-num-devices`` devices. Source:
  kai-scheduler/KAI-Scheduler docs/gpu-sharing.
- HAMi: ``nvidia.com/gpumem`` (MiB), ``nvidia.com/gpumem-percentage`` and ``nvidia.com/gpucores`` (per cent) of each of
  ``nvidia.com/gpu`` devices. Source: Project-HAMi/HAMi docs/develop, pkg/device/nvidia. Nodes of its device plugin do
  not list the first three; a node that lists them as numbers has another plugin, and counts them as any resource.

A value that makes no sense does not raise: the pod is refused everywhere, and the ask says why."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from enum import IntEnum
from functools import lru_cache
from typing import TypeAlias

from tonnage.facts import gpus, tables
from tonnage.facts.labels import GPU, MIG_PREFIX
from tonnage.fleet.geometry import geometry
from tonnage.objects import core

SHARED_GPU = "nvidia.com/gpu.shared"
FRACTION, FRACTION_MEMORY, FRACTION_DEVICES = "gpu-fraction", "gpu-memory", "gpu-fraction-num-devices"
MEMORY_MIB, MEMORY_PERCENT, CORES = "nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"
FULL = 1000
"""Thousandths of a device."""

Annotations: TypeAlias = tuple[tuple[str, str], ...]

ANNOTATIONS = (FRACTION, FRACTION_MEMORY, FRACTION_DEVICES)
VIRTUAL = (MEMORY_MIB, MEMORY_PERCENT, CORES)
_MOST_DEVICES = 1024
"""More devices than this in one pod are a mistake."""


class Kind(IntEnum):
    """What is asked of devices."""

    NONE = 0
    WHOLE = 1
    SHARE = 2
    MEMORY = 3
    MIG = 4


_PARTS = Kind.SHARE, Kind.MEMORY


@dataclass(frozen=True, slots=True)
class Ask:
    """``count`` devices called ``resource``, and of each of them ``milli`` thousandths (1000: all) and, for MEMORY, its
    memory: ``mib``, or ``percent`` of what it has. ``separate``: compute and memory are counted apart, otherwise a
    share is one of both. ``plain``: how many whole devices the same pod requests on a node that counts memory and cores
    as numbers; -1: it asks for neither by a resource.

    MIG: ``profiles``, (resource, instances) by name; ``count`` whole devices may stand beside them.
    ``refused``: why no node can ever give it; empty otherwise."""

    kind: Kind = Kind.NONE
    resource: str = ""
    count: int = 0
    milli: int = 0
    mib: int = 0
    percent: int = 0
    separate: bool = False
    plain: int = -1
    profiles: tuple[tuple[str, int], ...] = ()
    refused: str = ""

    @property
    def shares(self) -> bool:
        """Whether it is of parts of devices that the node's resources do not count."""
        return self.kind in _PARTS

    @property
    def gpu_milli(self) -> int:
        """Thousandths of devices in all; MIG instances not among them."""
        return self.count * self.milli


NOTHING = Ask()


def as_numbers(ask: Ask) -> Ask:
    """The ask on a node that counts memory and cores of GPUs as numbers: of whole devices, whatever HAMi would say."""
    return Ask(Kind.SHARE, GPU, ask.plain, FULL) if ask.plain >= 0 else ask


def relevant(annotations: Mapping[str, str]) -> Annotations:
    """The annotations that placement looks at."""
    return tuple((name, annotations[name]) for name in ANNOTATIONS if name in annotations) if annotations else ()


def read(spec: core.PodSpec, requests: Mapping[str, int], annotations: Mapping[str, str]) -> Ask:
    """The ask of a pod whose spec requests ``requests`` in all (:func:`tonnage.objects.core.pod_requests`).

    Containers that ask for different amounts of a shared device are each counted as the largest."""
    profiles = tuple(sorted((name, n) for name, n in requests.items() if name.startswith(MIG_PREFIX) and n))
    fraction = any(name in annotations for name in ANNOTATIONS)
    virtual = any(requests.get(name) for name in VIRTUAL)
    whole = _whole(requests)
    if fraction:
        ask = _fraction(annotations)
        if whole.count or virtual or profiles:
            named = "a whole GPU" if whole.count else "GPU memory or cores" if virtual else "MIG instances"
            return replace(ask, refused=ask.refused or f"a GPU fraction cannot be combined with a request for {named}")
        return ask
    if virtual:
        ask, wrong = _virtual(spec, requests), "GPU memory cannot be combined with MIG instances"
        return replace(ask, plain=-1, refused=ask.refused or wrong) if profiles else ask
    if profiles:
        return replace(whole, kind=Kind.MIG, profiles=profiles)
    return whole


def counted(ask: Ask, requests: Mapping[str, int]) -> dict[str, int]:
    """The requests that a node's resources count: all but those that stand for parts of devices."""
    dropped = {*VIRTUAL, GPU} if ask.kind is Kind.MEMORY else set(VIRTUAL)
    return {name: amount for name, amount in requests.items() if name not in dropped or not ask.shares}


def numbers(ask: Ask, requests: Mapping[str, int]) -> dict[str, int]:
    """Those of the requests that stand for parts of devices on one node, and are counted as numbers on another."""
    return {name: requests[name] for name in VIRTUAL if requests.get(name)} if ask.plain >= 0 else {}


def _whole(requests: Mapping[str, int]) -> Ask:
    named = sorted((name != GPU, name) for name, amount in requests.items() if amount and is_device(name))
    return Ask(Kind.WHOLE, named[0][1], requests[named[0][1]], FULL) if named else NOTHING


def worth(ask: Ask, memory_mib: int) -> int:
    """Thousandths of devices that the ask is worth, wherever it is placed: MIG instances by their compute slices,
    memory as a share of a device with ``memory_mib``, the largest there is (0: not known; it counts as nothing)."""
    part = 10 * ask.percent or (min(FULL, FULL * ask.mib // memory_mib) if memory_mib else 0)
    each = max(ask.milli, part) if ask.kind is Kind.MEMORY else ask.milli
    return ask.count * each + sum(_slices().get(name, 0) * count for name, count in ask.profiles)


def is_device(resource: str) -> bool:
    """Whether a resource counts whole accelerators or replicas of them, as the facts say or as it is named
    (``vendor/gpu``). Any other extended resource is a mere number."""
    return resource.endswith(("/gpu", "/gpu.shared")) or resource in _device_resources()


def is_known(resource: str) -> bool:
    """Whether the facts know the resource: as a device, or as what a GPU is partitioned into."""
    return resource in _device_resources() or resource == SHARED_GPU or resource in _instances()


@lru_cache(maxsize=1)
def _instances() -> frozenset[str]:
    every = (geometry(gpu.name) for gpu in gpus.all())
    return frozenset(name for one in every if one is not None for name in (*one.slots, *one.parts))


@lru_cache(maxsize=1)
def _slices() -> dict[str, int]:
    """Thousandths of a card by the resource of a MIG or a compute instance; of two cards with one name the larger."""
    found: dict[str, int] = {}
    for gpu in gpus.all():
        one = geometry(gpu.name)
        for slot in () if one is None else (*one.slots.values(), *(part.slot for part in one.parts.values())):
            found[slot.resource] = max(found.get(slot.resource, 0), slot.milli)
    return found


def device_resource(offered: Iterable[str]) -> str:
    """The resource that counts the whole devices of a node that offers these; empty where it has none: ``vendor/gpu``
    before others, then the first by name. Cut NVIDIA GPUs have other names, and count as what they are partitioned
    from."""
    names = tuple(offered)
    named = sorted((not name.endswith("/gpu"), name) for name in names if is_device(name) and name != SHARED_GPU)
    if named:
        return named[0][1]
    return GPU if any(name == SHARED_GPU or name.startswith(MIG_PREFIX) for name in names) else ""


@lru_cache(maxsize=1)
def _device_resources() -> frozenset[str]:
    sold = (row["resource"] for row in tables.rows("accelerator_instances.csv") if row["resource"])
    return frozenset((*sold, *(row["resource"] for row in tables.rows("device_resources.csv"))))


def _fraction(annotations: Mapping[str, str]) -> Ask:
    share, memory = annotations.get(FRACTION), annotations.get(FRACTION_MEMORY)
    devices, refused = _number(annotations.get(FRACTION_DEVICES, "1"), FRACTION_DEVICES, _MOST_DEVICES)
    if share is not None and memory is not None:
        return Ask(Kind.SHARE, GPU, devices, refused=f"{FRACTION} and {FRACTION_MEMORY} exclude each other")
    if memory is not None:
        mib, wrong = _number(memory, FRACTION_MEMORY, 1 << 30)
        return Ask(Kind.MEMORY, GPU, devices, mib=mib, refused=wrong or refused)
    if share is None:
        return Ask(Kind.SHARE, GPU, devices, refused=f"{FRACTION_DEVICES} is of no use without {FRACTION}")
    milli, wrong = _share(share)
    return Ask(Kind.SHARE, GPU, devices, milli, refused=wrong or refused)


def _share(written: str) -> tuple[int, str]:
    """Thousandths, rounded up, and what is wrong with them."""
    try:
        value = Decimal(written.strip())
    except InvalidOperation:
        value = Decimal("NaN")
    if not value.is_finite() or not 0 < value < 1:
        return 0, f"{FRACTION} {_short(written)} is not a number between 0 and 1"
    milli = math.ceil(value * FULL)
    return (milli, "") if milli < FULL else (0, f"{FRACTION} {_short(written)} is all of the device: request it whole")


def _number(written: str, name: str, most: int) -> tuple[int, str]:
    text = written.strip()
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 12 else 0
    return (value, "") if 0 < value <= most else (0, f"{name} {_short(written)} is not a whole number from 1 to {most}")


def _short(written: str) -> str:
    return repr(written if len(written) <= 40 else f"{written[:40]}…")


def _virtual(spec: core.PodSpec, requests: Mapping[str, int]) -> Ask:
    """HAMi's resources: a device is asked for whatever else is; no memory named is all of it, no cores are none."""
    each = [core.container_requests(one) for one in (*spec.containers, *spec.init_containers)]
    each = [one for one in each if any(one.get(name) for name in (GPU, *VIRTUAL))]
    mib, cores = (max(one.get(name, 0) for one in each) for name in (MEMORY_MIB, CORES))
    percent = max(0 if one.get(MEMORY_MIB) else one.get(MEMORY_PERCENT) or 100 for one in each)
    if percent and mib:
        wrong = "containers give memory in MiB and in per cent"
        return Ask(Kind.MEMORY, GPU, 1, separate=True, plain=requests.get(GPU, 0), refused=wrong)
    refused = ""
    for name, value in ((MEMORY_PERCENT, percent), (CORES, cores)):
        if value > 100:
            refused = f"{name} {value} is more than 100 per cent"
    whole = requests.get(GPU, 0)
    return Ask(Kind.MEMORY, GPU, whole or 1, 10 * cores, mib, percent, separate=True, plain=whole, refused=refused)
