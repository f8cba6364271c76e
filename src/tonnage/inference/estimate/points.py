"""Estimates of serving points: one, or many at once in numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from tonnage.inference.estimate import band
from tonnage.inference.estimate import constants as tables
from tonnage.inference.estimate.batch import check_cases, columns
from tonnage.inference.estimate.case import Load, check_case, figures
from tonnage.inference.estimate.measured import nearest
from tonnage.inference.estimate.replica import Replica
from tonnage.inference.estimate.serve import serve

if TYPE_CHECKING:
    from tonnage.inference.estimate.constants import Constants


class Estimate(msgspec.Struct, frozen=True):
    """A replica under a steady load, in seconds and per second. Bands are (lower, upper) ends of 90 % intervals; that
    of the throughput is what both times at their ends make of it.

    ``running``: requests that run at a time, ``room``: how many the KV cache holds at most; the others wait.
    ``notes``: what a person should know of the estimate, such as a GPU without a measured point;
    ``nearest``: the measured points that are most like it, nearest first.
    """

    ttft_s: float
    tpot_s: float
    ttft_band_s: tuple[float, float]
    tpot_band_s: tuple[float, float]
    running: float
    room: float
    requests_per_s: float
    output_tokens_per_s: float
    output_tokens_per_s_band: tuple[float, float]
    total_tokens_per_s: float
    notes: tuple[str, ...] = ()
    nearest: tuple[str, ...] = ()


class Estimates(NamedTuple):
    """Many estimates in columns, each of shape (cases,); ends of bands of shape (cases, 2). Fields as in
    :class:`Estimate`."""

    ttft_s: NDArray[np.float64]
    tpot_s: NDArray[np.float64]
    ttft_band_s: NDArray[np.float64]
    tpot_band_s: NDArray[np.float64]
    running: NDArray[np.float64]
    room: NDArray[np.float64]
    requests_per_s: NDArray[np.float64]


def estimate(replica: Replica, load: Load, *, constants: Constants | None = None) -> Estimate:
    """The estimate of ``load`` on ``replica``; its formulas are in :mod:`tonnage.inference.estimate.serve`.

    Raises InputError outside the domain: a replica that cannot run as described, weights that do not fit the GPUs, a
    number below 1, a request longer than the context of the model.
    """
    check_case(replica, load)
    known, c = figures(replica), constants or tables.constants()
    served = serve(
        c,
        known,
        float(load.concurrency),
        float(load.input_tokens),
        float(load.output_tokens),
        float(replica.max_num_batched_tokens),
        float(load.same_length),
    )
    amounts, bands = band.regimes(known, served), tables.bands()
    replicas = replica.data_parallel * replica.pipeline_parallel
    first = band.limits(bands["ttft"], served.ttft_s, amounts)
    each = band.limits(bands["tpot"], served.tpot_s, amounts)
    rate, fastest, slowest = (
        load.concurrency / (ttft + max(load.output_tokens - 1, 0) * tpot)
        for ttft, tpot in ((served.ttft_s, served.tpot_s), *zip(first, each, strict=True))
    )
    return Estimate(
        ttft_s=served.ttft_s,
        tpot_s=served.tpot_s,
        ttft_band_s=first,
        tpot_band_s=each,
        running=served.running * replicas,
        room=served.room * replicas,
        requests_per_s=rate,
        output_tokens_per_s=rate * load.output_tokens,
        output_tokens_per_s_band=(slowest * load.output_tokens, fastest * load.output_tokens),
        total_tokens_per_s=rate * (load.input_tokens + load.output_tokens),
        notes=_notes(replica, served.wanted > served.running),
        nearest=nearest(replica),
    )


def estimate_many(cases: Sequence[tuple[Replica, Load]], *, constants: Constants | None = None) -> Estimates:
    """The estimates of ``cases``, equal to those of :func:`estimate` to rounding; refuses what that refuses, at the
    first such case."""
    check_cases(cases)
    given, c = columns(cases), constants or tables.constants()
    served = serve(c, *given)
    amounts, bands = band.regimes(given.figures, served), tables.bands()
    replicas = given.figures.data * given.figures.pipeline
    return Estimates(
        ttft_s=served.ttft_s,
        tpot_s=served.tpot_s,
        ttft_band_s=np.stack(band.limits(bands["ttft"], served.ttft_s, amounts), axis=-1),
        tpot_band_s=np.stack(band.limits(bands["tpot"], served.tpot_s, amounts), axis=-1),
        running=served.running * replicas,
        room=served.room * replicas,
        requests_per_s=given.concurrency / (served.ttft_s + np.maximum(given.outputs - 1, 0) * served.tpot_s),
    )


def _notes(replica: Replica, overloaded: bool) -> tuple[str, ...]:
    found = []
    if figures(replica).unseen:
        found.append(f"no measured point of {replica.gpu.name} is behind the constants: the band is wider")
    if overloaded:
        found.append("the KV cache does not hold all requests: TTFT is mostly the wait for room")
    if replica.separate_prefill:
        found.append("prompts are computed on other GPUs, whose number is not known to the estimate")
    if not replica.framework:
        found.append("no framework: what an engine spends between steps is left out")
    return tuple(found)
