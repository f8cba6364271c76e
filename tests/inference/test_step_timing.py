"""Closed forms of runs of steps, and the roofline."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inference_builders import GPUS, LLAMA_8B, gpu, model

from tonnage.errors import InputError
from tonnage.inference.timing import (
    LinearTiming,
    RooflineTiming,
    check_tensor_parallel,
    run_ps,
    steps_within,
)


@given(st.integers(1, 10**6), st.integers(0, 10**4), st.integers(0, 200))
def test_a_run_takes_the_sum_of_its_steps(first: int, growth: int, steps: int) -> None:
    assert run_ps(first, growth, steps) == sum(first + growth * k for k in range(steps))


@given(st.integers(1, 10**12), st.integers(0, 10**9), st.integers(-5, 10**18))
def test_the_steps_within_a_limit_are_as_many_as_fit(first: int, growth: int, limit: int) -> None:
    steps = steps_within(first, growth, limit)
    assert run_ps(first, growth, steps) <= max(limit, 0)
    assert run_ps(first, growth, steps + 1) > limit


@pytest.mark.parametrize("name", sorted(GPUS))
def test_a_decode_step_of_an_8b_model_takes_its_weights_and_overheads(name: str) -> None:
    timing = RooflineTiming(LLAMA_8B, GPUS[name])
    expected_s = 16.06e9 / (GPUS[name].bandwidth_bytes_per_s * 0.75) + 32 * 7.6e-6
    assert timing.step_ps(0, 0, 0) / 1e12 == pytest.approx(expected_s, rel=0.001)
    per_token_s = 131_072 / (GPUS[name].bandwidth_bytes_per_s * 0.75)
    assert timing.decode_token_ps / 1e12 == pytest.approx(per_token_s, rel=0.05)


def test_a_prefill_adds_two_flops_per_parameter_and_token_and_its_attention() -> None:
    h100 = GPUS["h100"]
    timing = RooflineTiming(LLAMA_8B, h100)
    tokens = 8192
    added_s = (timing.step_ps(tokens, 0, tokens * (tokens + 1) // 2) - timing.step_ps(0, 0, 0)) / 1e12
    linear = 2 * 8.03e9 * tokens
    attention = 4 * 32 * 4096 * tokens**2 / 2
    assert added_s == pytest.approx((linear + attention) / (h100.bf16_flops * 0.45), rel=0.01)


@given(st.integers(0, 64), st.integers(0, 10**6), st.integers(0, 10**6))
def test_one_more_cached_token_adds_exactly_the_decode_constant(tokens: int, cached: int, pairs: int) -> None:
    for timing in (
        LinearTiming(5, 3, 2, 1),
        RooflineTiming(model(active_params=2_000_000_000), GPUS["l40s"]),
    ):
        grown = timing.step_ps(tokens, cached + 1, pairs + 1)
        assert grown - timing.step_ps(tokens, cached, pairs) == timing.decode_token_ps


def test_tensor_parallelism_divides_the_work_and_adds_all_reduces() -> None:
    one, four = (RooflineTiming(LLAMA_8B, GPUS["h100"], tensor_parallel=tp) for tp in (1, 4))
    layers_ps = 32 * (7_600_000 + 2 * 32_000_000)
    assert four.step_ps(0, 0, 0) == pytest.approx((one.step_ps(0, 0, 0) - 32 * 7_600_000) / 4 + layers_ps, rel=1e-6)
    assert one.step_ps(4096, 0, 0) / four.step_ps(4096, 0, 0) > 2
    slow_link = RooflineTiming(LLAMA_8B, gpu("h100", nvlink_bytes_per_s=None), tensor_parallel=4)
    assert slow_link.step_ps(4096, 0, 0) > four.step_ps(4096, 0, 0)


def test_attention_over_a_window_does_not_grow_with_the_context() -> None:
    full, windowed = (RooflineTiming(shape, GPUS["h100"]) for shape in (LLAMA_8B, model(window=128, window_layers=16)))
    assert windowed.decode_token_ps == pytest.approx(full.decode_token_ps / 2, rel=0.01)


def test_a_mixture_of_experts_touches_its_active_weights_first_and_all_of_them_in_a_large_batch() -> None:
    sparse = RooflineTiming(model(active_params=803_000_000), GPUS["h100"])
    dense = RooflineTiming(LLAMA_8B, GPUS["h100"])
    overhead = 32 * 7_600_000
    one = sparse.step_ps(1, 0, 0) - overhead
    assert one == pytest.approx((dense.step_ps(0, 0, 0) - overhead) / 10, rel=0.01)
    growing = [sparse.step_ps(tokens, 0, 0) for tokens in (1, 2, 8, 64, 512)]
    assert growing == sorted(growing)


def test_8_bit_weights_halve_the_bytes_and_use_fp8_units_only_where_there_are_some() -> None:
    full, half = (RooflineTiming(LLAMA_8B, GPUS["a100-40"], weight_bytes_per_param=size) for size in (2, 1))
    assert half.step_ps(0, 0, 0) < 0.6 * full.step_ps(0, 0, 0)
    assert half.step_ps(10_000, 0, 0) - half.step_ps(0, 0, 0) == full.step_ps(10_000, 0, 0) - full.step_ps(0, 0, 0)
    fast = RooflineTiming(LLAMA_8B, GPUS["h100"], weight_bytes_per_param=1)
    plain = RooflineTiming(LLAMA_8B, GPUS["h100"])
    assert (fast.step_ps(10_000, 0, 0) - fast.step_ps(0, 0, 0)) * 2 == pytest.approx(
        plain.step_ps(10_000, 0, 0) - plain.step_ps(0, 0, 0), rel=0.01
    )


def test_timings_of_the_same_model_and_gpu_are_equal_and_hash_alike() -> None:
    first, second = RooflineTiming(LLAMA_8B, GPUS["h100"]), RooflineTiming(LLAMA_8B, GPUS["h100"])
    assert first == second and hash(first) == hash(second)
    assert first != RooflineTiming(LLAMA_8B, GPUS["l40s"])


def test_tensor_parallelism_must_divide_the_heads() -> None:
    with pytest.raises(InputError, match="does not divide the 32"):
        check_tensor_parallel(LLAMA_8B, 3)


def test_a_step_without_duration_is_refused() -> None:
    with pytest.raises(ValueError, match="takes time"):
        LinearTiming(0)
