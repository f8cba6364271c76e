"""Instance types that only a file of prices knows: machines of other clouds, or of EC2 families that are newer than the
tables here. What a node of one has for pods is worked out as Karpenter does for EC2's.

Source: aws/karpenter-provider-aws pkg/providers/instancetype/types.go (kubeReservedResources, evictionThreshold).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping

from tonnage.errors import InputError, Problem, Where
from tonnage.facts import gpus
from tonnage.facts.instances import InstanceType
from tonnage.facts.labels import GPU

NEEDED = ("vcpu", "memory_gib")
COLUMNS = (*NEEDED, "gpu", "gpu_count", "max_pods", "arch")
KUBELET_MAX_PODS = 110
"""The kubelet's default of maxPods."""
ARCHITECTURES = ("amd64", "arm64")
VM_MEMORY_OVERHEAD = 0.075
"""Share of memory that the hypervisor is taken to hold back (aws/karpenter-provider-aws, option
vm-memory-overhead-percent).
"""
_EVICTION_MIB, _CMA_MIB = 100, 64
_NAME = re.compile(r"(?=.{1,63}$)[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_MOST_CORES, _MOST_GIB, _MOST_GPUS, _MOST_PODS = 4096, 65_536, 64, 1000


def read(
    name: str, cells: Mapping[str, str], where: Callable[[str], Where], source: str, problems: list[Problem]
) -> InstanceType | None:
    """The type that a row describes; None where it cannot be used, and ``problems`` say why."""
    before = len(problems)
    if not _NAME.fullmatch(name):
        hint = "it is the value of a label: letters, digits, -, _ and ., 63 at most"
        problems.append(Problem(where("instance_type"), f"{name!r} cannot be the name of an instance type", hint))
    cores = _number("vcpu", cells, where, problems, _MOST_CORES)
    gib = _number("memory_gib", cells, where, problems, _MOST_GIB)
    pods = _number("max_pods", cells, where, problems, _MOST_PODS) if cells.get("max_pods") else KUBELET_MAX_PODS
    arch = cells.get("arch", "") or ARCHITECTURES[0]
    if arch not in ARCHITECTURES:
        problems.append(Problem(where("arch"), f"unknown architecture {arch!r}", f"it is {' or '.join(ARCHITECTURES)}"))
    card, count = None, 0
    if cells.get("gpu"):
        try:
            card = gpus.get(cells["gpu"])
        except InputError as error:
            problems.extend(Problem(where("gpu"), one.message, one.hint) for one in error.problems)
        count = _number("gpu_count", cells, where, problems, _MOST_GPUS)
    elif cells.get("gpu_count"):
        problems.append(Problem(where("gpu"), "gpu_count without a GPU", "name it, like h100"))
    if len(problems) > before:
        return None
    family, _, size = name.partition(".")
    memory_mib = gib * 1024
    return InstanceType(
        name=name,
        family=family,
        size=size,
        arch=arch,
        kind="cpu" if card is None else "gpu",
        vcpu=cores,
        memory_mib=memory_mib,
        allocatable_cpu_milli=cores * 1000 - reserved_milli(cores),
        allocatable_memory_mib=max(0, allocatable_mib(memory_mib, pods, arch)),
        max_pods=pods,
        hypervisor="",
        cpu_manufacturer="",
        source=source,
        gpu=card.name if card else "",
        gpu_count=count,
        gpu_memory_mib=card.memory_mib if card else 0,
        accelerator_name=(card.karpenter_name or card.name) if card else "",
        accelerator_manufacturer="nvidia" if card else "",
        accelerator_count=count,
        resource=GPU if card else "",
        resource_count=count,
    )


def reserved_milli(cores: int) -> int:
    """What the kubelet keeps of the cores: 6 % of the first, 1 % of the second, 0.5 % of two more, 0.25 % of others."""
    parts = ((1, 60), (1, 10), (2, 5))
    reserved, left = 0.0, cores
    for many, milli in parts:
        reserved += min(left, many) * milli
        left -= min(left, many)
    return math.floor(reserved + left * 2.5)


def allocatable_mib(memory_mib: int, pods: int, arch: str) -> int:
    """What is left of memory: less what arm64 machines keep for devices, the hypervisor's share, the kubelet's 255 MiB
    with 11 for each pod, and what evicts pods."""
    memory_mib -= _CMA_MIB if arch == "arm64" else 0
    return memory_mib - math.ceil(memory_mib * VM_MEMORY_OVERHEAD) - (11 * pods + 255) - _EVICTION_MIB


def described(cells: Mapping[str, str]) -> Iterator[str]:
    """The columns of a row that describe a type."""
    return (column for column in COLUMNS if cells.get(column))


def _number(
    column: str, cells: Mapping[str, str], where: Callable[[str], Where], problems: list[Problem], most: int
) -> int:
    text = cells.get(column, "")
    if text.isascii() and text.isdigit() and len(text) < 9 and 0 < int(text) <= most:
        return int(text)
    what = f"{text!r} is not a whole number from 1 to {most}" if text else f"no {column}"
    problems.append(Problem(where(column), what, f"give the {column} of one machine"))
    return 0
