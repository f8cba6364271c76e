"""What one replica does at a number of requests in flight: times, throughput, and how far off they may be.

The times come from :mod:`tonnage.inference.estimate`; here the request and the plan are put in its words. The bands are
of constant width (data/sizing_bands.csv).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import msgspec

from tonnage.errors import InputError
from tonnage.inference import memory
from tonnage.inference.estimate.case import Replica, figures
from tonnage.inference.estimate.constants import constants
from tonnage.inference.estimate.serve import serve

if TYPE_CHECKING:
    from tonnage.inference.sizing.fit import Plan
    from tonnage.inference.sizing.request import Request


class Point(msgspec.Struct, frozen=True):
    """A replica with ``concurrency`` requests in flight, in steady state. Bands are 90 % intervals of the estimate.
    ``reason`` says why there is no estimate, where there is none; times are then None and rates 0."""

    concurrency: int
    ttft_s: float | None
    tpot_s: float | None
    ttft_band_s: tuple[float, float] | None
    tpot_band_s: tuple[float, float] | None
    requests_per_s: float
    output_tokens_per_s: float
    total_tokens_per_s: float
    reason: str = ""


def point(request: Request, plan: Plan, concurrency: int) -> Point:
    """The point of ``plan`` with ``concurrency`` requests in flight, all of which must fit its KV cache. Where the
    estimator refuses the replica the point has its reason instead of times."""
    mean_in, mean_out = request.lengths.input_mean, request.lengths.output_mean
    try:
        known = figures(replica(request, plan))
    except InputError as error:
        return Point(concurrency, None, None, None, None, 0.0, 0.0, 0.0, str(error))
    served = serve(constants(), known, concurrency, mean_in, mean_out, plan.max_num_batched_tokens)
    ttft, tpot = float(served.ttft_s), float(served.tpot_s)
    per_second = concurrency / (ttft + tpot * max(mean_out - 1, 0))
    return Point(
        concurrency=concurrency,
        ttft_s=ttft,
        tpot_s=tpot,
        ttft_band_s=_band("ttft", ttft),
        tpot_band_s=_band("tpot", tpot),
        requests_per_s=per_second,
        output_tokens_per_s=per_second * mean_out,
        total_tokens_per_s=per_second * (mean_in + mean_out),
    )


def _band(of: str, value: float) -> tuple[float, float]:
    shares = _shares()
    return value * shares[f"{of}_low"], value * shares[f"{of}_high"]


@cache
def _shares() -> dict[str, float]:
    return {row["name"]: float(row["value"]) for row in memory.rows("sizing_bands.csv")}


def replica(request: Request, plan: Plan) -> Replica:
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
    )


def most_in_flight(request: Request, plan: Plan) -> tuple[Point, float]:
    """(the point with the most requests in flight that meets the targets, 0). Where not even one request does: the
    point of one request, and how many times too slow it is. Times grow with the requests in flight, so this is found
    by bisection."""
    least = point(request, plan, 1)
    excess = _excess(request, least)
    if excess > 1:
        return least, excess
    low, high, best = 1, plan.sequences + 1, least
    while high - low > 1:
        middle = plan.sequences if high > plan.sequences else (low + high) // 2
        found = point(request, plan, middle)
        if _excess(request, found) <= 1:
            low, best = middle, found
        else:
            high = middle
    return best, 0.0


def _excess(request: Request, one: Point) -> float:
    """The larger of the ratios of times to targets; infinite without an estimate, 0 without targets."""
    if one.ttft_s is None or one.tpot_s is None:
        return float("inf")
    targets = request.targets
    first = one.ttft_s / targets.ttft_s if targets.ttft_s is not None else 0.0
    return max(first, one.tpot_s / targets.tpot_s if targets.tpot_s is not None else 0.0)


def kv_bytes_per_token(request: Request, plan: Plan) -> int:
    """KV bytes of one token on one GPU of the plan."""
    return memory.kv_token_bytes(request.shape, request.kv, plan.tensor_parallel)
