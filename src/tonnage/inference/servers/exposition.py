"""What an engine shows to Prometheus, under vLLM's metric names.

The labels that are the same for all samples of a server (``model_name``, ``engine``) are left to the caller.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from typing import NamedTuple

from tonnage.inference import tables
from tonnage.inference.engine import Engine
from tonnage.inference.engine.requests import End, Finished
from tonnage.inference.memory import kinds
from tonnage.inference.servers.engine_metrics import EngineMetrics, engine_metrics
from tonnage.units import seconds

_TTFT = "vllm:time_to_first_token_seconds"
_TPOT = "vllm:request_time_per_output_token_seconds"
_E2E = "vllm:e2e_request_latency_seconds"
_QUEUE = "vllm:request_queue_time_seconds"
_PROMPT = "vllm:request_prompt_tokens"
_OUTPUT = "vllm:request_generation_tokens"
_LENGTHS = tuple(float(m * 10**e) for e in range(8) for m in (1, 2, 5))
"""Upper edges of vLLM's histograms of lengths; an engine shows those up to its context (vllm v1/metrics/loggers.py)."""

# Output lengths are given, so every answer stops by itself. vLLM does not count requests that it refuses.
_FINISHED_REASONS: tuple[tuple[str, End | None], ...] = (
    ("stop", "finished"),
    ("length", None),
    ("abort", "aborted"),
)


class ExpositionSample(NamedTuple):
    """One sample of an exposition."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float


@lru_cache(maxsize=64)
def _buckets(name: str, edges: tuple[float, ...]) -> list[tuple[str, tuple[tuple[str, str], ...]]]:
    """Name and labels of a histogram's buckets: the same of every engine."""
    return [(f"{name}_bucket", (("le", edge),)) for edge in (*map(repr, edges), "+Inf")]


class Histogram:
    """A Prometheus histogram: counts by upper edge (inclusive), the number and the sum of all values."""

    def __init__(self, name: str, edges: tuple[float, ...]) -> None:
        self._edges = edges
        self._counts = [0] * (len(edges) + 1)
        self._sum = 0.0
        self._buckets = _buckets(name, edges)
        self._sum_name = f"{name}_sum"
        self._count_name = f"{name}_count"

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._edges, value)] += 1
        self._sum += value

    def samples(self, most: float = math.inf) -> Iterator[ExpositionSample]:
        """Cumulative buckets, then ``_sum`` and ``_count``. ``most``: no edges above it."""
        shown = bisect_right(self._edges, most)
        total = 0
        for (name, labels), count in zip(self._buckets[:shown], self._counts[:shown], strict=True):
            total += count
            yield ExpositionSample(name, labels, float(total))
        total += sum(self._counts[shown:])
        name, labels = self._buckets[-1]
        yield ExpositionSample(name, labels, float(total))
        yield ExpositionSample(self._sum_name, (), self._sum)
        yield ExpositionSample(self._count_name, (), float(total))


class ServingStats:
    """The histograms and request counters of one server, fed with what its engine reports."""

    def __init__(self) -> None:
        self._histograms = {name: Histogram(name, edges) for name, edges in tables.histogram_edges().items()}
        self._lengths = {name: Histogram(name, _LENGTHS) for name in (_PROMPT, _OUTPUT)}
        self._ended: dict[End, int] = {"finished": 0, "aborted": 0, "rejected": 0}

    def observe(self, first_tokens: Iterable[tuple[int, int, int]], finished: Iterable[Finished]) -> None:
        """Add what ``Engine.take_first_tokens`` and ``Engine.take_finished`` returned."""
        ttft = self._histograms[_TTFT]
        for _, arrival_ns, first_token_ns in first_tokens:
            ttft.observe(seconds(first_token_ns - arrival_ns))
        for request in finished:
            self._ended[request.state] += 1
            if request.state == "finished" and request.admitted_ns is not None:
                self._histograms[_E2E].observe(seconds(request.finish_ns - request.arrival_ns))
                self._histograms[_QUEUE].observe(seconds(request.admitted_ns - request.arrival_ns))
                self._histograms[_TPOT].observe(request.tpot_ns / 1e9)
                self._lengths[_PROMPT].observe(request.prompt_tokens)
                self._lengths[_OUTPUT].observe(request.output_tokens)

    def samples(self, context: int) -> Iterator[ExpositionSample]:
        """Every sample; ``context``: the tokens that the engine allows a request."""
        for reason, end in _FINISHED_REASONS:
            count = 0 if end is None else self._ended[end]
            yield ExpositionSample("vllm:request_success_total", (("finished_reason", reason),), float(count))
        for histogram in self._histograms.values():
            yield from histogram.samples()
        for histogram in self._lengths.values():
            yield from histogram.samples(context)


def vllm_samples(engine: Engine, stats: ServingStats | None) -> Iterator[ExpositionSample]:
    """Every sample of one scrape, as of the time that the engine was advanced to; without ``stats`` no histograms.

    vLLM counts what it looks up in its prefix cache when a request is admitted, here it counts with the first token;
    what came from a lower tier counts as found.
    """
    yield ExpositionSample("vllm:num_requests_running", (), float(engine.running))
    yield ExpositionSample("vllm:num_requests_waiting", (), float(engine.waiting))
    yield ExpositionSample("vllm:kv_cache_usage_perc", (), engine.kv_usage)
    yield ExpositionSample("vllm:prompt_tokens_total", (), float(engine.prompt_tokens_total))
    yield ExpositionSample("vllm:generation_tokens_total", (), float(engine.generation_tokens_total))
    yield ExpositionSample("vllm:num_preemptions_total", (), float(engine.preemptions_total))
    if engine.cache is not None:
        yield ExpositionSample("vllm:prefix_cache_queries_total", (), float(engine.prompt_tokens_total))
        yield ExpositionSample("vllm:prefix_cache_hits_total", (), float(engine.cached_tokens_total))
    if stats is not None:
        yield from stats.samples(engine.config.max_model_len)


def of_kind(samples: Iterable[ExpositionSample], engine: str) -> Iterable[ExpositionSample]:
    """The samples under the names that this kind of engine has for them; those without a known name are left out."""
    if engine == kinds.VLLM:
        return samples
    named = _names(engine)
    found: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for sample in samples:
        base = sample.name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count")
        for name in named.get(base, ()):
            labels = () if name == _WITHOUT_REASON else sample.labels
            key = (name + sample.name.removeprefix(base), labels)
            found[key] = found.get(key, 0.0) + sample.value
    return [ExpositionSample(name, labels, value) for (name, labels), value in found.items()]


_WITHOUT_REASON = "sglang:num_requests_total"
"""SGLang counts requests that have ended without saying how."""


@cache
def _names(engine: str) -> dict[str, tuple[str, ...]]:
    """By vLLM's names those that the engine has for the same."""
    ours, theirs = kinds.engine_kind(kinds.VLLM), kinds.engine_kind(engine)
    found: dict[str, tuple[str, ...]] = {ours.metric_kv_usage: (theirs.metric_kv_usage,)}
    mine, other = engine_metrics(kinds.VLLM), engine_metrics(engine)
    for role in EngineMetrics.__struct_fields__[1:]:
        name = getattr(other, role)
        if name and name not in (known for names in found.values() for known in names):
            found[getattr(mine, role)] = (*found.get(getattr(mine, role), ()), name)
    return found
