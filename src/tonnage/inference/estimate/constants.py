"""The fitted constants of the estimator. Tables: ``data/estimator.csv``, ``data/estimator_bands.csv``."""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files

import msgspec

FRAMEWORKS = ("vllm", "sglang", "tensorrt-llm")
"""Engines whose overheads were fitted."""

BAND_REGIMES = ("wide", "overloaded", "experts", "burst", "busy", "slow_prompt", "unseen")
"""What widens the error band; see :mod:`tonnage.inference.estimate.band`."""


class Constants(msgspec.Struct, frozen=True):
    """Shares of peak rates, seconds, and counts; the unit of each is in the table.

    A pair of fields that ends in the name of an engine holds for that engine. ``fp8_compute`` and ``fp4_compute`` are
    relative to the next higher precision, ``expert_compute`` to dense layers.
    """

    weight_bandwidth: float
    expert_bandwidth: float
    kv_bandwidth: float
    compute: float
    fp8_compute: float
    fp4_compute: float
    expert_compute: float
    attention_compute: float
    layer_s: float
    expert_layer_s: float
    all_reduce_s: float
    link_share: float
    all_to_all_share: float
    sequence_s: float
    request_s: float
    step_s_vllm: float
    step_s_sglang: float
    step_s_tensorrt_llm: float
    first_token_s_vllm: float
    first_token_s_sglang: float
    first_token_s_tensorrt_llm: float
    burst_vllm: float
    burst_sglang: float
    burst_tensorrt_llm: float
    held_output_vllm: float
    held_output_sglang: float
    held_output_tensorrt_llm: float
    pcie_share: float
    pcie_all_reduce_s: float
    network_share: float
    network_all_reduce_s: float
    memory_share: float
    reserved_bytes: float

    def per_framework(self, name: str) -> tuple[float, float, float]:
        """The values of the constant ``name`` in the order of :data:`FRAMEWORKS`."""
        return tuple(getattr(self, f"{name}_{framework.replace('-', '_')}") for framework in FRAMEWORKS)


class Band(msgspec.Struct, frozen=True):
    """Half widths of the 90 % band in natural logarithms: ``base`` and what each regime multiplies it by."""

    low: float
    high: float
    regimes: dict[str, float]


@cache
def constants() -> Constants:
    """The constants that ship with the package."""
    return msgspec.convert({row["name"]: float(row["value"]) for row in rows("estimator.csv")}, Constants)


@cache
def bands() -> dict[str, Band]:
    """The bands of ``tpot`` and ``ttft``."""
    found: dict[str, dict[str, float]] = {}
    for row in rows("estimator_bands.csv"):
        found.setdefault(row["of"], {})[row["name"]] = float(row["value"])
    return {
        of: Band(cells["low"], cells["high"], {name: cells[name] for name in BAND_REGIMES})
        for of, cells in found.items()
    }


def rows(name: str) -> list[dict[str, str]]:
    """The rows of a table of this room, cells by column name."""
    text = (files("tonnage.inference") / "data" / name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))
