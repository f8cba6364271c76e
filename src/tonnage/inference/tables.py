"""The small tables of this room (data/*.csv), each loaded once."""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files

import msgspec


class SchedulerDefaults(msgspec.Struct, frozen=True):
    """vLLM's scheduler limits on GPUs of at least ``min_memory_gib``, save those named ``except_gpu``…"""

    min_memory_gib: int
    except_gpu: str
    max_num_batched_tokens: int
    max_num_seqs: int


@cache
def rows(name: str) -> tuple[dict[str, str], ...]:
    """The rows of ``data/<name>``, cells by column name. They are the same objects each time: copy before you write."""
    text = (files("tonnage.inference") / "data" / name).read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


@cache
def vllm_memory() -> dict[str, float]:
    """Constants of vLLM's memory budget, by name."""
    return {row["name"]: float(row["value"]) for row in rows("vllm_memory.csv")}


@cache
def scheduler_defaults() -> tuple[SchedulerDefaults, ...]:
    """From the largest GPUs to the smallest; the first that fits counts."""
    return tuple(
        SchedulerDefaults(
            int(row["min_memory_gib"]),
            row["except_gpu"],
            int(row["max_num_batched_tokens"]),
            int(row["max_num_seqs"]),
        )
        for row in rows("vllm_defaults.csv")
    )


@cache
def histogram_edges() -> dict[str, tuple[float, ...]]:
    """Upper bucket edges in seconds of vLLM's histograms, by metric name, in the order of exposition."""
    return {row["metric"]: tuple(float(edge) for edge in row["edges"].split()) for row in rows("vllm_histograms.csv")}
