"""How measured points were run, as far as public scripts say it: the columns do not.

Most points are InferenceX's (before: InferenceMAX). Its load generator (``utils/bench_serving``) starts all clients at
once, sends ten prompts a client and draws lengths evenly from 80 to 100 % of those in the columns
(``RANDOM_RANGE_RATIO``); times are means over all requests. Its scripts say how engines are started
(``data/inferencex_engines.csv``), its lists of configurations which GPUs of an NVL72 system decode
(``data/inferencex_systems.csv``). The columns of other points are taken as they are, save for two kinds:

- Points of a Dynamo deployment name its image. Several replicas stand behind one frontend there, or data-parallel
  ranks: ``silicon_concurrency`` is a whole multiple of ``batch_size``, which is what one of them has in flight.
- Sweeps over powers of two alone (lengths and requests in flight) send requests that are all exactly as long.

DeepSeek on TensorRT-LLM was run with speculative decoding too, which no column says. Its lists of configurations
(``data/inferencex_drafts.csv``) do: a shape and concurrency that is only among those with drafts was run with them, and
so was all that was measured on a day on which there is such a one and none that is only among the others.
"""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from math import log2
from typing import NamedTuple

from benchmarks.common import ROOT

_DATA = ROOT / "benchmarks" / "data"
_INFERENCEX = re.compile(r"db-dump/|source_file=\d{4}-\d\d-\d\d\.csv|source_file=qwen3\.5-397b-gap-analysis\.csv")
_DYNAMO = "image="
_MEAN_LENGTH = 0.9
"""Of lengths drawn evenly from 80 to 100 %."""


class Point(NamedTuple):
    """What the columns say of a point; ``data_parallel`` is that of attention."""

    source: str
    model: str
    system: str
    backend: str
    precision: str
    inputs: float
    outputs: float
    concurrency: float
    tensor_parallel: int
    data_parallel: int
    gpus: int
    expert_parallel: int = 1
    version: str = ""

    @property
    def day(self) -> tuple[str, str, str, str]:
        """What was measured together: system, format, version, day."""
        found = re.search(r"measured=([\d-]+)", self.source)
        return self.system, self.precision, self.version, found[1] if found else ""


class Run(NamedTuple):
    """``length_share``: mean length of requests over that in the columns; ``same_length``: no request is longer than
    another; ``wait_steps``: steps until the engine takes a request up, on average; ``batched_tokens``: what a step
    computes at most, ``kv_precision``: format of the KV cache; None where scripts do not say."""

    length_share: float = 1.0
    same_length: bool = False
    wait_steps: float = 0.0
    batched_tokens: int | None = None
    kv_precision: str | None = None


class Decoders(NamedTuple):
    """What of a whole system decodes: ``workers`` replicas of so many ranks; ``drafted``: tokens drafted a step."""

    workers: int
    tensor_parallel: int
    data_parallel: int
    drafted: int


def run_of(point: Point) -> Run:
    """How ``point`` was run."""
    if not _INFERENCEX.match(point.source):
        numbers = (point.inputs, point.outputs, point.concurrency)
        return Run(same_length=_DYNAMO not in point.source and all(_is_power_of_two(number) for number in numbers))
    for row in _engines():
        if (
            row["model"] in point.model.lower()
            and row["backend"] == point.backend
            and row["system"] in ("", point.system)
            and row["precision"] in ("", point.precision)
            and row["tensor_parallel"] in ("", str(point.tensor_parallel))
        ):
            batched = int(row["batched_tokens"]) if row["batched_tokens"] else None
            return Run(_MEAN_LENGTH, False, _wait_steps(row, point), batched, row["kv_precision"] or None)
    return Run(_MEAN_LENGTH)


def in_flight(source: str, batch: float) -> float:
    """Requests in flight on one replica; ``batch``: ``batch_size`` on all of its data-parallel ranks."""
    match = re.search(r"silicon_concurrency=(\d+)", source)
    return batch if match is None or _DYNAMO in source else float(match[1])


def _is_power_of_two(number: float) -> bool:
    return number >= 1 and log2(number).is_integer()


def decoders_of(point: Point) -> Decoders | None:
    """What of a whole NVL72 system decodes; None where scripts do not say."""
    if not _INFERENCEX.match(point.source):
        return None
    for row in _systems():
        if (
            row["backend"] == point.backend
            and float(row["isl"]) == point.inputs
            and int(row["gpus"]) == point.gpus
            and float(row["low"]) <= point.concurrency <= float(row["high"])
        ):
            names = ("workers", "tensor_parallel", "data_parallel", "mtp")
            return Decoders(*(int(row[name]) for name in names))
    return None


def drafted_days(points: Iterable[Point]) -> frozenset[tuple[str, str, str, str]]:
    """The days (:attr:`Point.day`) on which all was run with drafts."""
    kinds: dict[tuple[str, str, str, str], set[frozenset[bool]]] = defaultdict(set)
    for point in points:
        kinds[point.day].add(_with_drafts(point))
    only, never = frozenset((True,)), frozenset((False,))
    return frozenset(day for day, found in kinds.items() if only in found and never not in found)


def drafted(point: Point, days: frozenset[tuple[str, str, str, str]]) -> bool:
    """Whether it was run with speculative decoding, as far as that is known."""
    found = _with_drafts(point)
    return found == {True} or (True in found and point.day in days)


def _with_drafts(point: Point) -> frozenset[bool]:
    """Whether configurations of its shape draft: some do, others do not, both, or there is none."""
    if point.backend != "trtllm" or "deepseek" not in point.model.lower() or not _INFERENCEX.match(point.source):
        return frozenset()
    return frozenset(
        row["mtp"] != "0"
        for row in _drafts()
        if (row["system"], row["precision"]) == (point.system, point.precision)
        and (float(row["isl"]), float(row["osl"])) == (point.inputs, point.outputs)
        and (int(row["gpus"]), int(row["expert_parallel"])) == (point.gpus, point.expert_parallel)
        and (row["attention_dp"] == "1") == (point.data_parallel > 1)
        and float(row["low"]) <= point.concurrency <= float(row["high"])
    )


def _wait_steps(row: dict[str, str], point: Point) -> float:
    """Requests arrive at any time between two looks for them, and those that wait for company wait for the next request
    or the limit, whichever is sooner."""
    between = point.outputs / point.concurrency  # steps from one arrival to the next
    name = "recv_below_16" if point.concurrency < 16 else "recv_from_16"
    if row[name]:
        return (float(row[name]) - 1) / 2
    if row["dp_wait"] and point.data_parallel > 1:
        return min(float(row["dp_wait"]), point.data_parallel * between) / 2
    if row["batch_wait"] and point.inputs == point.outputs == 1024 and point.tensor_parallel < 8:
        return min(float(row["batch_wait"]), between) / 2
    return 0.0


@cache
def _engines() -> list[dict[str, str]]:
    return _table("inferencex_engines.csv")


@cache
def _systems() -> list[dict[str, str]]:
    return _table("inferencex_systems.csv")


@cache
def _drafts() -> list[dict[str, str]]:
    return _table("inferencex_drafts.csv")


def _table(name: str) -> list[dict[str, str]]:
    with (_DATA / name).open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(line for line in lines if not line.startswith("#")))
