"""The fitted constants of the estimator. Tables: ``data/estimator.csv``, ``data/estimator_bands.csv``."""

from __future__ import annotations

from functools import cache

import msgspec

from tonnage.inference import tables

FRAMEWORKS = ("vllm", "sglang", "tensorrt-llm")
"""Engines whose overheads were fitted."""

REGIMES = ("base", "rack", "overloaded", "unseen", "unlike")
"""What the width of the error band depends on; see :mod:`tonnage.inference.estimate.band`."""


class Constants(msgspec.Struct, frozen=True):
    """Shares of peak rates, seconds, and counts; the unit of each is in the table.

    A field that ends in the name of an engine holds for that engine. ``fp8_compute`` and ``fp4_compute`` are relative
    to the next higher precision, ``expert_compute`` to dense layers, ``unpacked_compute`` and ``unpacked_bandwidth`` to
    weights that are multiplied in the format that they are stored in.
    """

    weight_bandwidth: float
    expert_bandwidth: float
    kv_bandwidth: float
    compute: float
    fp8_compute: float
    fp4_compute: float
    expert_compute: float
    expert_fp8_compute: float
    expert_skew: float
    unpacked_compute: float
    unpacked_bandwidth: float
    move_bandwidth: float
    attention_compute: float
    layer_s: float
    expert_layer_s: float
    all_reduce_s: float
    link_share: float
    all_to_all_share: float
    all_to_all_s: float
    sequence_s: float
    request_s: float
    launch_layer_s: float
    prompt_token_s: float
    prompts_together: float
    step_s_vllm: float
    step_s_sglang: float
    step_s_tensorrt_llm: float
    first_token_s_vllm: float
    first_token_s_sglang: float
    first_token_s_tensorrt_llm: float
    first_steps_vllm: float
    first_steps_sglang: float
    first_steps_tensorrt_llm: float
    index_layer_s: float
    dense_move_bandwidth: float
    burst_share: float
    clients_in_step: float
    held_output_vllm: float
    held_output_sglang: float
    held_output_tensorrt_llm: float
    pcie_share: float
    pcie_all_reduce_s: float
    network_share: float
    network_all_reduce_s: float
    memory_share: float
    tight_memory_share: float
    reserved_bytes: float


class Band(msgspec.Struct, frozen=True):
    """How far the truth may be from an estimate, in natural logarithms of their ratio: the sum over
    :data:`REGIMES` of a weight times how much of the regime there is."""

    low: tuple[float, ...]
    high: tuple[float, ...]


@cache
def constants() -> Constants:
    """The constants that ship with the package."""
    return msgspec.convert({row["name"]: float(row["value"]) for row in tables.rows("estimator.csv")}, Constants)


@cache
def bands() -> dict[str, Band]:
    """The bands of ``tpot`` and ``ttft``."""
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for row in tables.rows("estimator_bands.csv"):
        found.setdefault(row["of"], {})[row["regime"]] = float(row["low"]), float(row["high"])
    return {
        of: Band(tuple(cells[name][0] for name in REGIMES), tuple(cells[name][1] for name in REGIMES))
        for of, cells in found.items()
    }
