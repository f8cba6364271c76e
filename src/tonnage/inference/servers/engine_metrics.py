"""The Prometheus metrics by which kinds of engines say what they were asked and how they did.

Tables with their sources: data/engine_metrics.csv; running, waiting and TTFT are in data/engine_kinds.csv.
"""

from __future__ import annotations

from functools import cache

import msgspec

from tonnage.inference import tables
from tonnage.inference.memory import kinds


class EngineMetrics(msgspec.Struct, frozen=True):
    """Names of one kind of engine; empty where it has none.

    Counters: ``finished`` requests, ``prompt_tokens``, ``generation_tokens``, and of the prompt tokens looked for in
    the prefix cache (``queried_tokens``) those found there (``cached_tokens``). Gauges: requests ``running`` and
    ``waiting``. Histograms: ``prompt_lengths`` and ``output_lengths`` in tokens a request, ``ttft`` and ``tpot`` in
    seconds.
    """

    engine: str
    running: str
    waiting: str
    ttft: str
    finished: str = ""
    prompt_tokens: str = ""
    generation_tokens: str = ""
    queried_tokens: str = ""
    cached_tokens: str = ""
    prompt_lengths: str = ""
    output_lengths: str = ""
    tpot: str = ""


@cache
def engine_metrics(name: str) -> EngineMetrics:
    """Those of the kind called ``name``. Raises InputError for another name."""
    kind = kinds.engine_kind(name)
    rows = {row["role"]: row["metric"] for row in tables.rows("engine_metrics.csv") if row["engine"] == kind.name}
    return EngineMetrics(kind.name, kind.metric_running, kind.metric_waiting, kind.metric_ttft, **rows)
