"""Which measured points are behind the constants, and how unlike them a replica is. Table:
``data/estimator_measured.csv``, written by benchmarks/estimator_fit.py.

The distance of a replica to a group of points is a sum of what differs, by weights chosen before a band was fitted:

==============  ======================================================================================================
format          0.5 another format that multiplies at the same rate, 1 another
card            0.5 another card of the same architecture, 1 of another
framework       0.5 another, or none
parallelism     a third for each doubling of GPUs; 0.5 each if only one of both has attention data parallelism, pipeline
                stages
shape           1 a mixture and a dense model, 0.5 another kind of attention (latent, windows, states, or none of them);
                a quarter for each doubling of the parameters of a token, and of the ratio of all parameters to them
==============  ======================================================================================================

A model of the same name differs in nothing of its shape.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, lru_cache
from math import log2
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tonnage.facts import gpus, models
from tonnage.inference import memory, tables

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tonnage.facts.gpus import Gpu
    from tonnage.facts.models import ModelShape
    from tonnage.inference.estimate.replica import Replica

FARTHEST = 3.0
"""A distance counts up to this."""
_FIRST = 3
_HOPPER = frozenset(("h100", "h200", "h20", "gh200"))


class MeasuredGroup(NamedTuple):
    """Points of one model in one format on one card, framework and parallelism."""

    model: str
    gpu: str
    precision: str
    framework: str
    tensor_parallel: int
    data_parallel: int
    pipeline_parallel: int
    points: int
    concurrency: tuple[float, float]

    def __str__(self) -> str:
        ranks = f"TP {self.tensor_parallel}" + (f" DP {self.data_parallel}" if self.data_parallel > 1 else "")
        low, high = (f"{end:g}" for end in self.concurrency)
        flight = low if low == high else f"{low}-{high}"
        return (
            f"{self.model} in {self.precision} on {self.gpu}, {self.framework}, {ranks}: {self.points} points, "
            f"{flight} in flight"
        )


class MeasuredGroups:
    """Groups of points, to find those that are nearest to a replica."""

    def __init__(self, groups: Sequence[MeasuredGroup], shapes: Sequence[ModelShape]) -> None:
        """``shapes`` are those of the groups' models, one a group. Raises ValueError without a group."""
        if not groups:
            raise ValueError("no measured points")
        self.groups = tuple(groups)
        self._names = np.array([shape.name for shape in shapes])
        self._shapes = np.array([_shape_numbers(shape) for shape in shapes]).T
        self._formats = np.array([_format(group.precision) for group in groups]).T
        self._gpus = np.array([group.gpu for group in groups])
        self._architectures = np.array([_architecture(gpus.get(group.gpu)) for group in groups])
        self._frameworks = np.array([group.framework for group in groups])
        ranks = [(g.tensor_parallel, g.data_parallel, g.pipeline_parallel) for g in groups]
        self._ranks = np.array([_rank_numbers(*counts) for counts in ranks]).T

    def distances(self, replica: Replica) -> NDArray[np.float64]:
        """The distance of ``replica`` to each group, shape (groups,)."""
        name, kind = _format(replica.precision)
        gpu = replica.gpu.name.partition(":")[0]
        found = np.where(self._formats[0] == name, 0.0, np.where(self._formats[1] == kind, 0.5, 1.0))
        found += np.where(self._gpus == gpu, 0.0, np.where(self._architectures == _architecture(replica.gpu), 0.5, 1.0))
        found += np.where(self._frameworks == replica.framework, 0.0, 0.5)
        many, data, stages = _rank_numbers(replica.tensor_parallel, replica.data_parallel, replica.pipeline_parallel)
        found += np.abs(self._ranks[0] - many) / 3
        found += 0.5 * ((self._ranks[1] != data).astype(float) + (self._ranks[2] != stages))
        mixture, attention, active, ratio = _shape_numbers(replica.shape)
        other = 1.0 * (self._shapes[0] != mixture) + 0.5 * (self._shapes[1] != attention)
        other += (np.abs(self._shapes[2] - active) + np.abs(self._shapes[3] - ratio)) / 4
        return found + np.where(self._names == replica.shape.name, 0.0, other)

    def distance(self, replica: Replica) -> float:
        """That to the nearest group, up to :data:`FARTHEST`."""
        return min(float(self.distances(replica).min()), FARTHEST)

    def nearest(self, replica: Replica, count: int = _FIRST) -> tuple[tuple[MeasuredGroup, float], ...]:
        """The ``count`` nearest groups with their distances, nearest first."""
        distances = self.distances(replica)
        order = np.argsort(distances, kind="stable")[:count]
        return tuple((self.groups[index], float(distances[index])) for index in order)


@cache
def measured() -> MeasuredGroups:
    """What the constants that ship were fitted to."""
    groups = [
        MeasuredGroup(
            row["model"],
            row["gpu"],
            row["precision"],
            row["framework"],
            int(row["tensor_parallel"]),
            int(row["data_parallel"]),
            int(row["pipeline_parallel"]),
            int(row["points"]),
            (float(row["concurrency_low"]), float(row["concurrency_high"])),
        )
        for row in tables.rows("estimator_measured.csv")
    ]
    return MeasuredGroups(groups, [models.get(group.model) for group in groups])


@lru_cache(maxsize=4096)
def nearest(replica: Replica) -> tuple[str, ...]:
    """The nearest measured points in words, nearest first: "Qwen/Qwen3-32B in fp8 on h100, vllm, TP 2: 12 points, 4-64
    in flight"."""
    return tuple(str(group) for group, _ in measured().nearest(replica))


def _format(precision: str) -> tuple[str, str]:
    stored = memory.precision(precision)
    return stored.name, stored.arithmetic


def _architecture(gpu: Gpu) -> str:
    if gpu.fp4_flops is not None:
        return "blackwell"
    name = re.split("[-:]", gpu.name)[0]
    return "hopper" if name in _HOPPER else name


def _rank_numbers(tensor: int, data: int, pipeline: int) -> tuple[float, float, float]:
    return log2(tensor * data * pipeline), float(data > 1), float(pipeline > 1)


def _shape_numbers(shape: ModelShape) -> tuple[float, float, float, float]:
    attention = 1.0 * bool(shape.kv_lora_rank) + 2.0 * bool(shape.window_layers) + 4.0 * bool(shape.state_layers)
    active = max(shape.active_params, 1)
    return float(shape.active_params < shape.params), attention, log2(active), log2(max(shape.params, 1) / active)
