"""One run of shaped traffic under one way to set replicas, and what it gave."""

from __future__ import annotations

import copy
from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tonnage.control.loops import Loop
from tonnage.control.replicas import ReplicaPlanner
from tonnage.objects import apps, keda, load
from tonnage.simulation import run, scenario
from tonnage.simulation.planned import planned
from tonnage.simulation.tuning import ScalerSetting, with_setting

SHARE = 0.99
SETTLED_S = 900
"""From when on changes of direction are counted."""

IN_FLIGHT = (
    'sum(vllm:num_requests_running{namespace="inference"}) + sum(vllm:num_requests_waiting{namespace="inference"})'
)
RATE = 'sum(rate(envoy_cluster_upstream_rq_total{envoy_cluster_name="inference/chat"}[2m]))'
GPU_UTIL = "avg(DCGM_FI_DEV_GPU_UTIL)"


class Setting(NamedTuple):
    """One ScaledObject: a trigger, the scale-down window and minReplicaCount."""

    query: str
    threshold: float
    metric_type: str
    window_s: int
    minimum: int

    def __str__(self) -> str:
        what = {IN_FLIGHT: "in flight", RATE: "requests/s", GPU_UTIL: "GPU_UTIL"}[self.query]
        return f"{what} {self.threshold:.3g}, window {self.window_s} s, min {self.minimum}"


SOURCES_RULE = Setting(GPU_UTIL, 70, "Value", 300, 1)
"""As the published guides have it, with the metric type that makes it act at all."""


@dataclass(frozen=True)
class Outcome:
    """``share``: of the requests outside the grace that met the SLO; ``hours``: of GPUs on nodes that were billed, from
    launch to termination; ``reversals``: changes of direction of the replicas asked for, an hour."""

    share: float
    in_grace: float | None
    hours: float
    most: int
    reversals: float

    @property
    def holds(self) -> bool:
        return self.share >= SHARE


def play(
    folder: Path, policy: str, replicas: int, setting: Setting | None = None, scaler: run.Scaler | None = None
) -> Outcome:
    """Run it from this many replicas: ``keda`` with a setting, ``slo``, or any with a scaler of its own."""
    options = run.RunOptions(tune=partial(_tuned, replicas, setting), scaler=scaler)
    result = run.run(scenario.load(folder), policy, options)
    (service,) = result.services
    asked = tuple(result.series.services[0].replicas_wanted)
    settled = asked[bisect(result.series.t_s, SETTLED_S) :]
    hours = (result.duration_s - SETTLED_S) / 3600
    return Outcome(
        service.overall.share or 0.0,
        service.grace.share,
        result.gpu_hours.paid,
        service.max_ready_replicas,
        reversals(settled) / hours,
    )


def with_z(z: float) -> run.Scaler:
    """The slo policy with this many standard deviations of what is uncertain."""

    def loops(*made: Any) -> list[Loop]:
        told = [replace(one, target=replace(one.target, z=z)) for one in planned(*made, "slo")]
        return [ReplicaPlanner("slo", lambda snapshot: told).loop()]

    return loops


def reversals(replicas: Sequence[int]) -> int:
    """How often a count that rose falls next, or the other way round."""
    steps = [after > before for before, after in pairwise(replicas) if after != before]
    return sum(before != after for before, after in pairwise(steps))


def _tuned(replicas: int, setting: Setting | None, manifest: load.Manifest) -> load.Manifest:
    """The manifests with these replicas at the start, and the ScaledObject as told."""
    return load.Manifest(tuple(_changed(one, replicas, setting) for one in manifest.objects), manifest.problems)


def _changed(one: Any, replicas: int, setting: Setting | None) -> Any:
    set_to = msgspec.structs.replace
    if isinstance(one, apps.Deployment):
        one = copy.copy(one)
        one.spec = set_to(one.spec, replicas=replicas)
    elif isinstance(one, keda.ScaledObject) and setting is not None:
        one = copy.copy(one)
        spec = with_setting(one.spec, ScalerSetting(setting.threshold, setting.window_s, setting.minimum))
        (trigger,) = spec.triggers
        metadata = {**trigger.metadata, "query": setting.query}
        one.spec = set_to(spec, triggers=[set_to(trigger, metric_type=setting.metric_type, metadata=metadata)])
    return one
