"""Traffic of three shapes made from one half of a request log, and the scenario in which it is served.

A shape says how many replicas' worth of requests arrive at which time; a replica's worth is what it sustains within the
SLO. The requests, their lengths and their bursts are the log's own: some are left out, or copies are added within the
same second (:func:`tonnage.traffic.arrivals.build`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Literal

import numpy as np

from benchmarks.common import ROOT
from tonnage.errors import InputError
from tonnage.facts import gpus, models
from tonnage.inference.capacity import Slo, capacity, mean_latency_s
from tonnage.inference.config import replica
from tonnage.inference.vllm_args import parse_vllm_args
from tonnage.objects import apps, load
from tonnage.scaling.target import POOL
from tonnage.simulation.planned import SHARE, request_mix
from tonnage.traffic import arrivals
from tonnage.traffic.surges import Surge
from tonnage.traffic.traces import Trace, load_trace
from tonnage.units import NS_PER_MS, NS_PER_S

MANIFESTS = ROOT / "benchmarks" / "data" / "scaling.yaml"
SERVICE, INSTANCE_TYPE, GPU = "inference/chat", "g6.2xlarge", "L4"
TTFT_S, TPOT_S, GRACE_S = 2.0, 0.075, 900
"""The grace: a cold start (nodes launched, image pulled, weights loaded: 11 to 13 minutes), and the queue after it."""

MINUTE = 60 * NS_PER_S
Half = Literal["tune", "score"]


@dataclass(frozen=True)
class Shape:
    """``base``: replicas' worth of requests without the surges; ``surges`` by half. ``steady``: no surge."""

    name: str
    minutes: int
    base: float
    surges: dict[Half, tuple[Surge, ...]]
    sudden: bool = False

    @property
    def steady(self) -> bool:
        return not any(self.surges.values())


def _surge(start_min: float, minutes: float, factor: float, ramp_min: float) -> Surge:
    start = round(start_min * MINUTE)
    return Surge(start, start + round(minutes * MINUTE), factor, round(ramp_min * MINUTE))


SHAPES = (
    Shape("surge", 80, 1.3, {"tune": (_surge(18, 38, 4.0, 1),), "score": (_surge(20, 38, 3.7, 1),)}, sudden=True),
    Shape("day", 160, 1.2, {"tune": (_surge(20, 130, 5.0, 50),), "score": (_surge(22, 125, 5.3, 48),)}),
    Shape("flat", 50, 4.0, {"tune": (), "score": ()}),
)


def halves(path: Path) -> dict[Half, Trace]:
    """The log cut in the middle of its time, each half at an even pace. Raises InputError for a log that cannot be read
    or is too short."""
    whole = load_trace(path)
    cut = int(np.searchsorted(whole.arrivals_ns, whole.span_ns // 2))
    if min(cut, len(whole) - cut) < 1000:
        message = f"{len(whole)} requests, expected at least 1,000 in each half of its time"
        raise InputError.at(message, file=str(path), hint="give a longer log")
    return {"tune": _even(whole, slice(0, cut)), "score": _even(whole, slice(cut, None))}


def _even(whole: Trace, part: slice) -> Trace:
    """Requests in which each five minutes, stretched or shrunk, have as many as any other: the log's own rise and fall
    is taken out, so that the shape alone is left of what is slow; bursts stay."""
    at = whole.arrivals_ns[part] - whole.arrivals_ns[part][0]
    knots = np.linspace(0, at[-1], max(2, round(at[-1] / (5 * MINUTE)) + 1))
    below = np.searchsorted(at, knots, side="right").astype(np.float64)
    even = np.interp(at, knots, (below - below[0]) / (below[-1] - below[0]) * at[-1])
    return replace(
        whole,
        arrivals_ns=np.floor(even).astype(np.int64),
        prompt=whole.prompt[part],
        output=whole.output[part],
        hashes=None,
    )


def write(folder: Path, shape: Shape, half: Half, trace: Trace, rate_per_replica: float, seed: int = 1) -> Path:
    """The scenario's folder: manifests, the shaped log and who runs it."""
    surges = shape.surges[half]
    log_rate = len(trace) / (trace.span_ns / NS_PER_S)
    made = arrivals.build(
        trace,
        service=f"{SERVICE}/{shape.name}/{half}",
        seed=seed,
        duration_ns=shape.minutes * MINUTE,
        rate=shape.base * rate_per_replica / log_rate,
        surges=surges,
    )
    folder = folder / f"{shape.name}-{half}"
    (folder / "manifests").mkdir(parents=True)
    (folder / "manifests" / "all.yaml").write_text(MANIFESTS.read_text())
    rows = zip(made.arrival_ns.tolist(), made.prompt.tolist(), made.output.tolist(), strict=True)
    (folder / "log.jsonl").write_text(
        "".join(
            f'{{"timestamp": {at / NS_PER_MS:.6f}, "input_length": {prompt}, "output_length": {output}}}\n'
            for at, prompt, output in rows
        )
    )
    apart = [0.0, *(surge.start_ns / NS_PER_S for surge in surges if shape.sudden)]
    (folder / "scenario.yaml").write_text(
        f"kind: Scenario\nname: {shape.name}\nduration: {shape.minutes}m\n"
        f"slo: {{ttft: {TTFT_S:g}s, tpot: {round(TPOT_S * 1000)}ms, grace: {GRACE_S}s}}\n"
        f"fleet: {{nodes: [{{instanceType: {INSTANCE_TYPE}, count: {first(shape)}, nodePool: gpu}}]}}\n"
        f"traffic:\n  - service: {SERVICE}\n    trace: log.jsonl\n    balancing: least-requests\n    surges:\n"
        + "".join(f"      - {{start: {at:g}s, duration: 1s, factor: 1}}\n" for at in apart)
        + "policies:\n  keda: {manifests: manifests, placement: binpack}\n"
        "  slo: {manifests: manifests, placement: binpack, scaling: slo}\n"
    )
    return folder


def first(shape: Shape) -> int:
    """Replicas at the start: what the base load needs, and one."""
    return ceil(shape.base) + 1


def sustained(trace: Trace) -> tuple[float, float]:
    """(requests per second that a replica sustains within the SLO, requests that it then has in flight)."""
    (deployment,) = load.read([MANIFESTS]).of(apps.Deployment)
    args = parse_vllm_args(deployment.spec.template.spec.containers[0].args)
    model = models.get(args.model)
    config, timing = replica(model, gpus.get(GPU), args)
    mix = request_mix(trace)
    rate = capacity(config, timing, mix, Slo(TTFT_S, TPOT_S), SHARE, replicas=POOL)
    if not rate:
        message = f"a replica serves these requests within the SLO at no rate ({TTFT_S:g} s, {TPOT_S * 1000:g} ms)"
        raise InputError.at(message, file=trace.source, hint="give a log with shorter prompts")
    return rate, rate * mean_latency_s(config, timing, mix, rate)
