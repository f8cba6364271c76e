"""What one replica does at a number of requests in flight: times, throughput, and how far off they may be.

All of it comes from :func:`tonnage.inference.estimate.estimate`; here the request and the plan are put in its words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tonnage.errors import InputError
from tonnage.inference import memory
from tonnage.inference.estimate import Load, Replica, calibrate, estimate
from tonnage.inference.estimate.case import figures
from tonnage.inference.estimate.constants import FRAMEWORKS, constants
from tonnage.inference.estimate.step import decode_work, framework_seconds, step_parts

if TYPE_CHECKING:
    from tonnage.inference.sizing.fit import ReplicaPlan
    from tonnage.inference.sizing.request import SizingRequest


class Point(msgspec.Struct, frozen=True):
    """A replica with ``concurrency`` requests in flight, in steady state. Bands are 90 % intervals of the estimate;
    ``notes`` say what to know of it, ``nearest`` which measured points are most like it. ``reason`` says why there is
    no estimate, where there is none; times are then None and rates 0."""

    concurrency: int
    ttft_s: float | None = None
    tpot_s: float | None = None
    ttft_band_s: tuple[float, float] | None = None
    tpot_band_s: tuple[float, float] | None = None
    requests_per_s: float = 0.0
    output_tokens_per_s: float = 0.0
    output_tokens_per_s_band: tuple[float, float] | None = None
    total_tokens_per_s: float = 0.0
    notes: tuple[str, ...] = ()
    reason: str = ""
    nearest: tuple[str, ...] = ()


def point(request: SizingRequest, plan: ReplicaPlan, concurrency: int) -> Point:
    """The point of ``plan`` with ``concurrency`` requests in flight, all of which must fit its KV cache. Where the
    estimator refuses the replica the point has its reason instead of times."""
    load = Load(concurrency, request.lengths.input_mean, request.lengths.output_mean)
    try:
        found = estimate(replica(request, plan), load)
    except InputError as error:
        return Point(concurrency, reason=str(error))
    if request.calibration is not None:
        found = calibrate.apply(found, request.calibration)
    return Point(
        concurrency=concurrency,
        ttft_s=found.ttft_s,
        tpot_s=found.tpot_s,
        ttft_band_s=found.ttft_band_s,
        tpot_band_s=found.tpot_band_s,
        requests_per_s=found.requests_per_s,
        output_tokens_per_s=found.output_tokens_per_s,
        output_tokens_per_s_band=found.output_tokens_per_s_band,
        total_tokens_per_s=found.total_tokens_per_s,
        notes=found.notes,
        nearest=found.nearest,
    )


def decode_step(request: SizingRequest, plan: ReplicaPlan, sequences: float) -> dict[str, float]:
    """Seconds of one decode step of ``sequences`` sequences in mid-output on all stages of a replica, by what takes
    them; what takes none is left out. Raises InputError where the estimator refuses the replica."""
    engine = replica(request, plan)
    known, fitted = figures(engine), constants()
    context = request.lengths.input_mean + request.lengths.output_mean / 2
    parts = step_parts(fitted, known, decode_work(known, sequences, context))._asdict()
    parts[engine.framework] = framework_seconds(fitted, known, sequences)
    factor = request.calibration.factor if request.calibration is not None else 1.0
    return {name.replace("_", " "): float(seconds) * factor for name, seconds in parts.items() if seconds}


def replica(request: SizingRequest, plan: ReplicaPlan) -> Replica:
    """The engine of ``plan`` in the estimator's words."""
    token = memory.kv_token_bytes(request.shape, request.kv, plan.tensor_parallel)
    return Replica(
        shape=request.shape,
        gpu=plan.card.gpu,
        precision=request.stored.name,
        kv_precision=request.kv.name,
        tensor_parallel=plan.tensor_parallel,
        pipeline_parallel=plan.pipeline_parallel,
        kv_tokens=max(1, plan.memory.kv_cache * plan.pipeline_parallel // token) if token else None,
        max_num_batched_tokens=plan.max_num_batched_tokens,
        framework=request.system if request.system in FRAMEWORKS else FRAMEWORKS[0],
    )


def most_in_flight(request: SizingRequest, plan: ReplicaPlan) -> tuple[Point, float]:
    """(the point with the most requests in flight that meets the targets, 0). Where not even one request does: the
    point of one request, and how many times too slow it is. Times grow with the requests in flight, so this is found
    by bisection."""
    least = point(request, plan, 1)
    missed = excess(request, least)
    if missed > 1:
        return least, missed
    low, high, best = 1, plan.sequences + 1, least
    while high - low > 1:
        middle = plan.sequences if high > plan.sequences else (low + high) // 2
        found = point(request, plan, middle)
        if excess(request, found) <= 1:
            low, best = middle, found
        else:
            high = middle
    return best, 0.0


def excess(request: SizingRequest, one: Point) -> float:
    """The larger of the ratios of times to targets; infinite without an estimate, 0 without targets."""
    if one.ttft_s is None or one.tpot_s is None:
        return float("inf")
    targets = request.targets
    first = one.ttft_s / targets.ttft_s if targets.ttft_s is not None else 0.0
    return max(first, one.tpot_s / targets.tpot_s if targets.tpot_s is not None else 0.0)


def kv_bytes_per_token(request: SizingRequest, plan: ReplicaPlan) -> int:
    """KV bytes of one token on one GPU of the plan."""
    return memory.kv_token_bytes(request.shape, request.kv, plan.tensor_parallel)
