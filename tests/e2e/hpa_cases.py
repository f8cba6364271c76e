"""HPAs drawn by a seed, with what their metrics show step by step, and how Tonnage counts their replicas."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from metrics_api import NAMESPACE, Asked, metric_name

from e2e.api import Json
from tonnage.objects import autoscaling, load
from tonnage.scaling import hpa, manifests
from tonnage.scaling.calculator import PodSample as Sample
from tonnage.scaling.calculator import SelectedPod, Windows, group, requested
from tonnage.scaling.releases import Release
from tonnage.scaling.replicas import MetricReading, PodReading, total
from tonnage.units import NS_PER_S

PERIOD_S = 2
DOWNSCALE_S = 5
"""The controller's flags."""
RELEASE = Release("1.36", scale_to_zero=True)
"""The one that runs, with HPAScaleToZero on."""
REQUEST = {"cpu": 1_000, "memory": 128 * 2**20 * 1_000}
"""Of each pod, in thousandths."""
ODD_S = (3, 5, 7)
"""Windows and periods: passes come every two seconds, so none is at the edge of one."""
MOST = 9
MILLI = {
    "10": 10_000,
    "2500m": 2_500,
    "1": 1_000,
    "400": 400_000,
    "700m": 700,
    "80": 80_000,
    "500m": 500,
    "64Mi": 64 * 2**20 * 1_000,
}
"""Targets as they are written, in thousandths."""
STARTED_NS, READY_NS = 0, 10 * NS_PER_S
"""When a pod started and when its readiness changed: long ago, and soon after its start."""


@dataclass(frozen=True)
class Case:
    """``steps``: of each step, what each metric shows: thousandths of series or of one object, or per pod; None:
    nothing. ``unready``, ``silent``: the numbers of pods that are not ready, or without samples of their own."""

    name: str
    manifest: Json
    replicas: int
    steps: tuple[tuple[tuple[int, ...] | None, ...], ...]
    unready: frozenset[int] = frozenset()
    silent: frozenset[int] = frozenset()

    @property
    def metrics(self) -> list[Json]:
        found: list[Json] = self.manifest["spec"]["metrics"]
        return found

    def per_pod(self, metric: int) -> bool:
        return self.metrics[metric]["type"] in ("Pods", "Resource")

    def of_pod(self, step: int, metric: int) -> Callable[[str], int | None] | None:
        """What a pod's sample is; None: the metric is not served."""
        values = self.steps[step][metric]
        if values is None:
            return None

        def sample(pod: str) -> int | None:
            number = int(pod.rpartition("-")[2])
            return None if number in self.silent else values[number % len(values)]

        return sample

    def pod(self, number: int) -> str:
        return f"{self.name}-{number}"


def case(draw: random.Random, name: str, steps: int) -> Case:
    """One of them."""
    kinds = [
        draw.choice(("External",) * 4 + ("Object", "Pods", "Pods", "Resource"))
        for _ in range(draw.choice((1, 1, 1, 2, 3)))
    ]
    kinds = [kind for at, kind in enumerate(kinds) if kind != "Resource" or "Resource" not in kinds[:at]]
    metrics = [_metric(draw, name, at, kind) for at, kind in enumerate(kinds)]
    own_signal = "External" in kinds or "Object" in kinds
    least = 0 if own_signal and draw.random() < 0.35 else draw.choice((1, 1, 2, 3))
    most = draw.randint(max(least, 2), MOST)
    spec: Json = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "minReplicas": least,
        "maxReplicas": most,
        "metrics": metrics,
    }
    if draw.random() < 0.75:
        spec["behavior"] = {way: _rules(draw) for way in ("scaleUp", "scaleDown") if draw.random() < 0.8}
    manifest = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": spec,
    }
    shown = tuple(tuple(_shown(draw, one) for one in metrics) for _ in range(steps))
    replicas = draw.choice((0, 1, 2, 3, 5, MOST + 1)) if draw.random() < 0.4 else draw.randint(max(least, 1), most)
    troubled = draw.random() < 0.4
    return Case(
        name,
        manifest,
        replicas,
        shown,
        frozenset(n for n in range(MOST + 1) if troubled and draw.random() < 0.3),
        frozenset(n for n in range(MOST + 1) if troubled and draw.random() < 0.2),
    )


def _metric(draw: random.Random, owner: str, at: int, kind: str) -> Json:
    named = {"metric": {"name": metric_name(owner, at)}}
    average = {"type": "AverageValue", "averageValue": draw.choice(("10", "2500m", "1", "400"))}
    value = {"type": "Value", "value": draw.choice(("10", "700m", "1", "80"))}
    either = draw.choice((average, value))
    if kind == "External":
        return {"type": kind, "external": {**named, "target": either}}
    if kind == "Object":
        described = {"apiVersion": "v1", "kind": "Service", "name": owner}
        return {"type": kind, "object": {**named, "describedObject": described, "target": either}}
    if kind == "Pods":
        return {"type": kind, "pods": {**named, "target": average}}
    resource = draw.choice(("cpu", "cpu", "memory"))
    target: Json = {"type": "Utilization", "averageUtilization": draw.choice((50, 80, 120))}
    if draw.random() < 0.3:
        target = {"type": "AverageValue", "averageValue": "500m" if resource == "cpu" else "64Mi"}
    return {"type": kind, "resource": {"name": resource, "target": target}}


def _rules(draw: random.Random) -> Json:
    rules: Json = {}
    if draw.random() < 0.8:
        rules["stabilizationWindowSeconds"] = draw.choice((0, 0, *ODD_S))
    if draw.random() < 0.6:
        rules["policies"] = [
            {
                "type": kind,
                "value": draw.choice((1, 2) if kind == "Pods" else (25, 50, 100)),
                "periodSeconds": draw.choice(ODD_S),
            }
            for kind in draw.sample(("Pods", "Percent"), draw.choice((1, 2)))
        ]
    if draw.random() < 0.4:
        rules["selectPolicy"] = draw.choice(("Max", "Min", "Min", "Disabled"))
    if draw.random() < 0.3:
        rules["tolerance"] = draw.choice(("0", "50m", "300m"))
    return rules


def _shown(draw: random.Random, metric: Json) -> tuple[int, ...] | None:
    if draw.random() < 0.08:
        return None
    if metric["type"] == "External" and draw.random() < 0.04:
        return ()
    source = next(part for name, part in metric.items() if name != "type")
    goal = source["target"]
    written = goal.get("value") or goal.get("averageValue")
    target = MILLI[written] if written else REQUEST[source["name"]] * goal["averageUtilization"] // 100
    times = draw.choice((0.0, 0.4, 0.85, 0.95, 1.0, 1.08, 1.25, 1.6, 2.3))
    if metric["type"] in ("External", "Object") and "averageValue" in goal:
        times *= draw.choice((1, 2, 4, 6))
    spread = (0.7, 1.0, 1.3) if metric["type"] in ("Pods", "Resource") and draw.random() < 0.5 else (1.0,)
    parts = 2 if metric["type"] == "External" and draw.random() < 0.3 else 1
    return tuple(round(target * times * one / parts) for one in spread * parts)


def spec_of(one: Case, read: load.Manifest) -> hpa.HpaSpec:
    """What Tonnage reads of the object, with the controller's window where it names none."""
    (found,) = [thing for thing in read.of(autoscaling.HorizontalPodAutoscaler) if thing.name == one.name]
    spec = manifests.hpa_spec(found)
    written = one.manifest["spec"].get("behavior", {}).get("scaleDown", {})
    if "stabilizationWindowSeconds" in written:
        return spec
    down = replace(spec.behavior.down, window_ns=DOWNSCALE_S * NS_PER_S)
    return replace(spec, behavior=replace(spec.behavior, down=down))


def counts(
    one: Case, spec: hpa.HpaSpec, passes: Sequence[Sequence[Asked]], pods_at: Callable[[float], int]
) -> tuple[list[tuple[float, int]], hpa.HpaState]:
    """(when, replicas) as Tonnage counts them, given what the controller was told and when, and the last state.
    ``pods_at``: how many pods there were."""
    state, replicas = hpa.HpaState(), one.replicas
    found = [(0.0, replicas)]

    def make_pass(at_s: float, readings: Sequence[MetricReading], pods: int) -> None:
        nonlocal state, replicas
        ready = sum(number not in one.unready for number in range(pods))
        decision, state = hpa.recommend(
            spec,
            state,
            readings,
            current_replicas=replicas,
            status_replicas=pods,
            ready_replicas=ready,
            now_ns=round(at_s * NS_PER_S),
            release=RELEASE,
        )
        if decision is not None:
            replicas = decision.replicas
            found.append((at_s, replicas))

    unanswered = MetricReading(error="not asked, or the API server did not pass it on")
    nothing = [unanswered] * len(spec.metrics)
    if not passes:
        make_pass(0.0, nothing, replicas)
    for asked in passes:
        if not (spec.min_replicas <= replicas <= spec.max_replicas) and replicas:
            make_pass(asked[0].at_s - PERIOD_S, nothing, replicas)  # metrics are not asked for
        at_s = asked[-1].at_s
        pods = pods_at(at_s)
        told = {request.metric: _reading(one, request, pods) for request in asked}
        make_pass(at_s, [told.get(metric, unanswered) for metric in range(len(spec.metrics))], pods)
    return found, state


def _reading(one: Case, asked: Asked, pods: int) -> MetricReading:
    if not one.per_pod(asked.metric):
        if not asked.values:
            return MetricReading(error="nothing is served")
        average = "averageValue" in str(one.metrics[asked.metric])
        return MetricReading(milli=total(asked.values, average=average))
    if not asked.pods:
        return MetricReading(error="nothing is served")
    metric = one.metrics[asked.metric]
    resource = metric["resource"]["name"] if metric["type"] == "Resource" else ""
    selected = [_pod(one, number, resource) for number in range(pods)]
    samples = {name: Sample(milli, at_ns=10**18) for name, milli in asked.pods}
    entered = group(selected, samples, resource, 10**18, Windows())
    requests, _ = requested(selected, resource) if resource else ({}, "")
    return MetricReading(
        pods=tuple(PodReading(each.name, each.milli, requests.get(each.name, 0), each.state) for each in entered)
    )


def _pod(one: Case, number: int, resource: str) -> SelectedPod:
    return SelectedPod(
        one.pod(number),
        ready="False" if number in one.unready else "True",
        started_ns=STARTED_NS,
        ready_changed_ns=READY_NS,
        requests={"main": REQUEST.get(resource)} if resource else {},
    )


def reasons(conditions: Sequence[Any]) -> dict[str, tuple[bool, str]]:
    """What conditions say, by type: of an object's status, or Tonnage's own."""
    if conditions and isinstance(conditions[0], dict):
        return {one["type"]: (one["status"] == "True", one["reason"]) for one in conditions}
    return {one.type: (one.status, one.reason) for one in conditions}
