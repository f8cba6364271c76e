"""Cases for the HPA's replica calculator, drawn by a seed, and how both sides count them."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tonnage.scaling import calculator
from tonnage.scaling.calculator import Calculated, PodSample, SelectedPod, Windows
from tonnage.scaling.replicas import Tolerance

KINDS = ("resource", "raw_resource", "pods", "object", "object_per_pod", "external", "external_per_pod")
Row = Mapping[str, Any]
NOW_NS = 10**18
MS = 1_000_000


def row(draw: random.Random) -> Row:
    """One case. Times that decide are never equal: the controller's clock goes on while it counts."""
    kind = draw.choice(KINDS)
    resource = draw.choice(("cpu", "cpu", "memory"))
    huge = draw.random() < 0.03
    pods = [_pod(draw, index) for index in range(draw.choice((0, 1, 1, 2, 3, 5, 9)))]
    target = (
        draw.choice((1, 30, 50, 80, 100, 150, 300)) if kind == "resource" else draw.choice((1, 100, 700, 5000, 10**6))
    )
    scale = draw.choice((0.01, 0.3, 0.9, 0.95, 1.0, 1.05, 1.1, 1.6, 4, 40))
    near = target * 10 if kind == "resource" else target

    def value() -> int:
        if huge:
            return draw.choice((2**62, 2**63 - 1, 2**45, -(2**40)))
        return round(near * scale * draw.choice((0, 0.5, 1, 1, 1, 1.1, 2)))

    sampled = [pod["name"] for pod in pods if draw.random() < 0.85]
    sampled += ["gone"] if draw.random() < 0.1 else []
    samples = {
        name: {
            "milli": value(),
            "ago_ms": draw.choice((1_000, 15_000, 45_000)),
            "window_ms": draw.choice((10_000, 30_000, 60_000)),
        }
        for name in sampled
    }
    replicas = draw.choice((0, 1, len(pods), len(pods), len(pods) + 1, 7))
    return {
        "kind": kind,
        "replicas": replicas,
        "target": target,
        "up": draw.choice((0.1, 0.1, 0.0, 0.5)),
        "down": draw.choice((0.1, 0.1, 0.0, 0.5)),
        "resource": resource,
        "container": draw.choice(("", "", "main", "other")) if kind == "resource" else "",
        "cpu_initialization_ms": draw.choice((300_000, 120_000)),
        "initial_readiness_delay_ms": draw.choice((30_000, 10_000)),
        "pods": pods,
        "samples": None if draw.random() < 0.03 else samples,
        "values": [value() for _ in range(draw.choice((0, 1, 1, 2, 4)))],
        "value": value() * (draw.choice((1, len(pods) or 1)) if not huge else 1),
    }


def _pod(draw: random.Random, index: int) -> dict[str, Any]:
    unset = draw.random() < 0.03
    containers = [{"name": "main", "milli": None if unset else draw.choice((500, 1000, 1000, 0))}]
    if draw.random() < 0.4:
        containers.append({"name": "other", "milli": draw.choice((100, 250))})
    whole = draw.random() < 0.1
    return {
        "name": f"pod-{index}",
        "phase": draw.choice(("Running",) * 8 + ("Pending", "Failed", "Succeeded")),
        "ready": draw.choice(("True",) * 6 + ("False", "Unknown", None)),
        "started_ago_ms": draw.choice((None, 5_500, 40_500, 100_500, 200_500, 400_500, 4_000_500)),
        "ready_changed_ago_ms": draw.choice((2_250, 20_250, 39_250, 95_250, 199_250, 3_000_250, 5_000_250)),
        "deleted": draw.random() < 0.08,
        "requests": containers,
        "sidecars": int(len(containers) > 1 and draw.random() < 0.3),
        "pod_level": whole,
        "pod_request": draw.choice((2000, None)) if whole else None,
    }


def ours(case: Row) -> Calculated:
    """What Tonnage counts."""
    pods = [_as_pod(one) for one in case["pods"]]
    tolerance = Tolerance(up=case["up"], down=case["down"])
    windows = Windows(case["cpu_initialization_ms"] * MS, case["initial_readiness_delay_ms"] * MS)
    samples = (
        None
        if case["samples"] is None
        else {
            name: PodSample(one["milli"], NOW_NS - one["ago_ms"] * MS, one["window_ms"] * MS)
            for name, one in case["samples"].items()
        }
    )
    replicas, target = case["replicas"], case["target"]
    match case["kind"]:
        case "resource":
            return calculator.resource_replicas(
                pods,
                samples,
                current_replicas=replicas,
                target_utilization=target,
                resource=case["resource"],
                now_ns=NOW_NS,
                container=case["container"],
                tolerance=tolerance,
                windows=windows,
            )
        case "raw_resource":
            return calculator.raw_resource_replicas(
                pods,
                samples,
                current_replicas=replicas,
                target_milli=target,
                resource=case["resource"],
                now_ns=NOW_NS,
                tolerance=tolerance,
                windows=windows,
            )
        case "pods":
            return calculator.metric_replicas(
                pods, samples, current_replicas=replicas, target_milli=target, tolerance=tolerance
            )
        case "object":
            return calculator.object_replicas(
                pods, case["value"], current_replicas=replicas, target_milli=target, tolerance=tolerance
            )
        case "object_per_pod":
            return calculator.object_per_pod_replicas(
                case["value"], status_replicas=replicas, target_milli=target, tolerance=tolerance
            )
        case "external":
            return calculator.external_replicas(
                pods, case["values"], current_replicas=replicas, target_milli=target, tolerance=tolerance
            )
        case _:
            return calculator.external_per_pod_replicas(
                case["values"], status_replicas=replicas, target_milli=target, tolerance=tolerance
            )


def _as_pod(one: Mapping[str, Any]) -> SelectedPod:
    started = one["started_ago_ms"]
    return SelectedPod(
        name=one["name"],
        phase=one["phase"],
        ready=one["ready"],
        started_ns=None if started is None else NOW_NS - started * MS,
        ready_changed_ns=NOW_NS - one["ready_changed_ago_ms"] * MS,
        deleted=one["deleted"],
        requests={container["name"]: container["milli"] for container in one["requests"]},
        pod_level=one["pod_level"],
        pod_request=one["pod_request"],
    )


def theirs(program: Path, cases: Sequence[Row]) -> list[dict[str, Any]]:
    """What the controller's own calculator counts: replicas, utilization, milli and error."""
    text = "".join(json.dumps(case) + "\n" for case in cases)
    done = subprocess.run([program], input=text, capture_output=True, text=True, check=True, timeout=300)
    return [json.loads(line) for line in done.stdout.splitlines()]
