"""Stand-ins for the other pod lists of the openb trace, made from the default one: for a look at how a policy bears
another mix. The published lists are better; these say less than they do.

``gpushareNN``: NN % of the GPU demand is shares. ``multigpuNN``: NN % is of several GPUs. ``gpuspecNN``: NN % of the
GPU pods name models. ``cpuNNN``: more or fewer pods without GPUs, by the cores that they ask for beside GPU pods'."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks import openb_data as data
from benchmarks.openb_data import Asked

SEED = 7
CORES_BESIDE = {"050": 0.10, "100": 0.21, "200": 0.47, "250": 0.62}
"""Cores of pods without GPUs over those of GPU pods, by list (alibaba/clusterdata cluster-trace-gpu-v2023)."""
NAMED = (
    ("G2", 25),
    ("T4", 20),
    ("P100", 15),
    ("G2|G3", 15),
    ("V100M16|V100M32", 10),
    ("G3", 5),
    ("V100M32", 5),
    ("A10|T4", 5),
)
"""(models that a pod names, weight)."""
NAMES = ("gpushareNN", "multigpuNN", "gpuspecNN", *(f"cpu{name}" for name in CORES_BESIDE))


@dataclass(frozen=True)
class _Part:
    """Pods to draw from, until their ``measure`` adds up to ``target``."""

    pods: Sequence[Asked]
    target: float
    measure: Callable[[Asked], float]

    def drawn(self, rng: random.Random) -> Iterator[Asked]:
        have, order = 0.0, list[Asked]()
        while have < self.target and self.pods:
            if not order:
                order = rng.sample(self.pods, len(self.pods))
            one = order.pop()
            have += self.measure(one)
            yield one


def make(folder: Path, name: str) -> list[Asked]:
    """The stand-in of that name. Raises FileNotFoundError for a name that is none."""
    listed = data.pods(folder, "default")
    rng = random.Random(f"{SEED}/{name}")
    kind, number = name.rstrip("0123456789"), name[len(name.rstrip("0123456789")) :]
    if kind == "gpuspec" and number:
        return _named(listed, int(number) / 100, data.nodes(folder), rng)
    without = [one for one in listed if not one.gpus]
    shares = [one for one in listed if 0 < one.milli < data.FULL]
    single = [one for one in listed if one.gpus == 1 and one.milli == data.FULL]
    several = [one for one in listed if one.gpus > 1]
    all_of_them = _Part(without, len(without), lambda _: 1)
    if kind == "cpu" and number in CORES_BESIDE:
        beside = CORES_BESIDE[number] * sum(one.cpu for one in (*shares, *single, *several))
        parts = [_Part(without, beside, lambda one: one.cpu)]
        return [*shares, *single, *several, *(one for part in parts for one in part.drawn(rng))]
    if kind == "gpushare" and number:
        parts = _split(shares, (single, several), int(number) / 100)
    elif kind == "multigpu" and number:
        parts = _split(several, (shares, single), int(number) / 100)
    else:
        raise FileNotFoundError(f"{name} is not a list that can be made; those are {', '.join(NAMES)}")
    return [one for part in (all_of_them, *parts) for one in part.drawn(rng)]


def _split(more: Sequence[Asked], others: Sequence[Sequence[Asked]], share: float) -> list[_Part]:
    """The same GPU demand in all, ``share`` of it by pods like ``more``, the rest by the others as they were."""
    demands = [sum(one.gpu_milli for one in part) for part in others]
    total = sum(demands) + sum(one.gpu_milli for one in more)
    rest = (1 - share) * total / sum(demands)
    parts = [_Part(more, share * total, lambda one: one.gpu_milli)]
    return parts + [_Part(p, rest * d, lambda one: one.gpu_milli) for p, d in zip(others, demands, strict=True)]


def _named(
    listed: Sequence[Asked], share: float, machines: Sequence[dict[str, str]], rng: random.Random
) -> list[Asked]:
    """Each GPU pod names models with this probability, such that some node of theirs could take it."""

    def takes(one: Asked, models: str) -> bool:
        return any(
            node["model"] in models.split("|")
            and int(node["gpu"]) >= one.gpus
            and int(node["cpu_milli"]) >= one.cpu
            and int(node["memory_mib"]) >= one.memory
            for node in machines
        )

    able = {one: [(m, w) for m, w in NAMED if takes(one, m)] for one in set(listed) if one.gpus}
    found = []
    for one in listed:
        choices = able.get(one)
        if choices and rng.random() < share:
            models = rng.choices([m for m, _ in choices], [w for _, w in choices])[0]
            one = msgspec.structs.replace(one, models=models)
        found.append(one)
    return found
