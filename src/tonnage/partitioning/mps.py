"""CUDA MPS: processes that run on one GPU at the same time, each with its part of the SMs and a limit on memory.

Limits are the defaults of the device plugin's MPS daemon: a client gets 1/replicas of the memory and of the threads.
They hold for a process: a container that starts two has twice as much.
Source: NVIDIA/k8s-device-plugin cmd/mps-control-daemon/mps; NVIDIA, Multi-Process Service (error containment).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from msgspec import Struct

from tonnage.errors import InputError, Problem, Where
from tonnage.facts import cuda, mig
from tonnage.partitioning.turns import ProcessShare

MOST_CLIENTS = 48
"""Clients of one server. Source: NVIDIA/k8s-device-plugin cmd/mps-control-daemon/mps."""

MOST_CLIENTS_OLD = 16
"""Clients of one server on GPUs older than :data:`SINCE`. Source: the same."""

SINCE: cuda.Version = (7, 5)
"""The compute capability from which :data:`MOST_CLIENTS` holds."""

_EXACT = 10_000
"""Speeds in :func:`side_by_side` are rounded to fractions with no larger denominator."""

REACH = 0.9
"""The part of the memory bandwidth that clients reach together: four that stream weights on an H100
(benchmarks/data/gpu_mps_h100.csv)."""


class Isolation(Struct, frozen=True):
    """What one process cannot do to another. ``memory``: take its memory; ``fault``: end it by a fault of its own;
    ``speed``: slow it down. Each "yes", "part" or "no"."""

    memory: str
    fault: str
    speed: str


ISOLATION = Isolation(memory="part", fault="no", speed="part")
"""Memory is limited, but per process, not per container; SMs are apart, memory bandwidth and caches are shared. A
client that writes to an address that nobody has, and often one that is killed while its kernels run, ended all others
on an H100 with driver 580; a failed ``assert`` in a kernel, or an allocation beyond the client's limit of memory, ended
that client only (benchmarks/gpu_mps.py)."""


class MpsLimits(Struct, frozen=True):
    """What each process may have: ``percent`` of the threads (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE) and ``memory_mib`` of
    device memory (CUDA_MPS_PINNED_DEVICE_MEM_LIMIT). ``clients``: the most that the server takes."""

    replicas: int
    percent: int
    memory_mib: int
    clients: int


def too_many(gpus: Sequence[str], replicas: int) -> str:
    """Why the device plugin's MPS daemon does not start on a node with these GPUs, so that they are not offered: one of
    them takes fewer clients. Empty where it starts."""
    for gpu in dict.fromkeys(gpus):
        if replicas > most_clients(gpu):
            return f"{replicas} replicas of a GPU, and MPS takes {most_clients(gpu)} clients on {gpu}"
    return ""


def limits(gpu: str, replicas: int, where: Where | None = None) -> MpsLimits:
    """The default limits on a GPU shared by ``replicas``.

    Raises InputError, at ``where``, for a MIG instance (``h100:1g.10gb``), fewer than 2 replicas or more than there can
    be clients, and an unknown GPU."""
    at = where or Where()
    refuse_mig(gpu, at)
    card, _ = mig.resolve(gpu)
    clients = most_clients(card.name)
    if not 2 <= replicas <= clients:
        message = f"{replicas} replicas on {card.name}"
        raise InputError(Problem(at, message, f"MPS takes 2 to {clients} clients there"))
    return MpsLimits(replicas, 100 // replicas, card.memory_mib // replicas, clients)


def refuse_mig(gpu: str, where: Where) -> None:
    """Raises InputError, at ``where``, for a MIG instance: the device plugin has no MPS there."""
    if ":" in gpu:
        raise InputError(Problem(where, f"MPS on the MIG instance {gpu}", "MPS is refused with MIG: use time-slicing"))


def most_clients(gpu: str) -> int:
    """How many clients a server on this GPU takes."""
    return MOST_CLIENTS if cuda.at_least(cuda.gpu(gpu).arch, SINCE) else MOST_CLIENTS_OLD


@dataclass(frozen=True, slots=True)
class MpsClient:
    """A process while it runs on the GPU: the part of the SMs that its kernels fill, and of the memory bandwidth that
    they use, when alone (0 to 1). ``percent``: its limit of threads."""

    sms: float = 1.0
    bandwidth: float = 1.0
    percent: float = 100.0


def divide(clients: Sequence[MpsClient]) -> tuple[float, ...]:
    """The speed of each, as a part of its speed alone, while all of them run.

    A client has at most its percentage of the SMs. Where these are more than all, all have less by the same factor;
    then the same for memory bandwidth, which nothing limits. That holds where the percentages are at most 100 in all,
    as the device plugin sets them: without limits, a client of long kernels starves one of short kernels (measured).
    Raises ValueError for parts outside (0, 1]."""
    if any(not 0 < part <= 1 for one in clients for part in (one.sms, one.bandwidth, one.percent / 100)):
        raise ValueError("parts of SMs, bandwidth and threads are above 0 and at most 1")
    speeds = [min(1.0, one.percent / 100 / one.sms) for one in clients]
    bandwidths = [one.bandwidth for one in clients]
    for used, limit in (([one.sms for one in clients], 1.0), (bandwidths, max([REACH, *bandwidths]))):
        total = sum(speed * part for speed, part in zip(speeds, used, strict=True))
        speeds = [speed / max(1.0, total / limit) for speed in speeds]
    return tuple(speeds)


def side_by_side(clients: Sequence[MpsClient]) -> list[ProcessShare]:
    """The part of the GPU's time and the speed of each client while all of them run (:func:`divide`). Those that use
    other parts of the GPU than their neighbours are faster together than in turns; their parts of its time never add up
    to more than the GPU all the same. Raises ValueError as :func:`divide` does."""
    speeds = [Fraction(speed).limit_denominator(_EXACT) for speed in divide(clients)]
    total = max(Fraction(1), sum(speeds, Fraction(0)))
    return [ProcessShare(speed / total, speed) for speed in speeds]
