"""What a replica can run on: whole GPUs, MIG instances, a share of the time of a GPU."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec.structs import replace

from tonnage.errors import InputError
from tonnage.facts import gpus, instances, mig
from tonnage.facts.gpus import Gpu

Kind = Literal["gpu", "mig", "time-slice"]
_SHARES = (2, 4)
"""Replicas of a time-sliced GPU that are considered unless asked for otherwise."""


class EngineGpu(msgspec.Struct, frozen=True):
    """``gpu`` is what the engine sees: for a MIG instance its share of memory, bandwidth and arithmetic. A GPU that is
    time-sliced among ``per_gpu`` replicas shows each all of itself: each must keep to its part of the memory and gets
    its part of the time. ``whole``: the name of the GPU that is bought."""

    name: str
    gpu: Gpu
    whole: str
    kind: Kind
    per_gpu: int

    @property
    def memory_share(self) -> float:
        """Share of the memory shown that one replica may have."""
        return 1 / self.per_gpu if self.kind == "time-slice" else 1.0

    @property
    def sliced(self) -> bool:
        """Whether several replicas share one GPU."""
        return self.kind != "gpu"


def get(name: str) -> EngineGpu:
    """The card called ``name``: a GPU (``l40s``), a MIG instance (``h100:1g.10gb``) or a time-sliced share
    (``l4/4``). Raises InputError with near names if there is none, or for a share below two replicas."""
    if "/" in name:
        whole, _, count = name.partition("/")
        if not count.isdigit() or int(count) < 2:
            raise InputError.at(
                f"{name!r} is not a share of a GPU",
                field="--gpu",
                hint="write GPU/N for one of N replicas, N at least 2",
            )
        if ":" in whole:
            raise InputError.at(
                f"{name!r} would share a MIG instance, which is not sized",
                field="--gpu",
                hint=f"use {whole}, or a smaller instance",
            )
        return _slice(gpus.get(whole), int(count))
    gpu, profile = mig.resolve(name)
    if profile is None:
        return EngineGpu(gpu.name, gpu, gpu.name, "gpu", 1)
    return EngineGpu(gpu.name, gpu, profile.gpu, "mig", profile.max_instances)


def shares(gpu: Gpu) -> tuple[EngineGpu, ...]:
    """The MIG instances of ``gpu`` and its time-sliced shares; not the instance that is the whole GPU."""
    found = [
        EngineGpu(f"{gpu.name}:{profile.name}", mig.as_gpu(gpu, profile), gpu.name, "mig", profile.max_instances)
        for profile in mig.profiles(gpu.name)
        if profile.max_instances > 1
    ]
    return (*found, *(_slice(gpu, count) for count in _SHARES))


def rentable() -> tuple[EngineGpu, ...]:
    """Every GPU that a priced EC2 type of x86-64 has, whole, with its shares."""
    names = sorted({kind.gpu for kind in instances.all() if kind.gpu and kind.gpu_count and kind.arch == "amd64"})
    found: list[EngineGpu] = []
    for name in names:
        gpu = gpus.get(name)
        found.append(EngineGpu(gpu.name, gpu, gpu.name, "gpu", 1))
        found += shares(gpu)
    return tuple(found)


def _slice(gpu: Gpu, count: int) -> EngineGpu:
    """Peak rates are divided by the replicas: each has the GPU for its turn, and under load all take theirs."""

    def part(rate: float | None) -> float | None:
        return None if rate is None else rate / count

    shown = replace(
        gpu,
        name=gpu.name,
        bandwidth_bytes_per_s=round(gpu.bandwidth_bytes_per_s / count),
        bf16_flops=gpu.bf16_flops / count,
        fp8_flops=part(gpu.fp8_flops),
        fp4_flops=part(gpu.fp4_flops),
    )
    return EngineGpu(f"{gpu.name}/{count}", shown, gpu.name, "time-slice", count)
