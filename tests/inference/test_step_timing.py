"""Closed forms of runs of steps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inference_builders import LLAMA_8B

from tonnage.errors import InputError
from tonnage.inference.timing import (
    LinearTiming,
    StepWork,
    check_tensor_parallel,
    prompt_work,
    run_of,
    steps_within,
    window_pairs,
)


@given(st.integers(1, 10**6), st.integers(0, 10**4), st.integers(0, 200))
def test_a_run_takes_the_sum_of_its_steps(first: int, growth: int, steps: int) -> None:
    assert run_of(first, growth, steps) == sum(first + growth * k for k in range(steps))


@given(st.integers(1, 10**12), st.integers(0, 10**9), st.integers(-5, 10**18))
def test_the_steps_within_a_limit_are_as_many_as_fit(first: int, growth: int, limit: int) -> None:
    steps = steps_within(first, growth, limit)
    assert run_of(first, growth, steps) <= max(limit, 0)
    assert run_of(first, growth, steps + 1) > limit


@given(st.integers(0, 64), st.integers(0, 10**6), st.integers(0, 10**6))
def test_one_more_cached_token_adds_exactly_the_decode_constant(decoders: int, cached: int, pairs: int) -> None:
    timing = LinearTiming(5, 3, 2, 1)
    work = StepWork(decoders, cached, pairs=pairs)
    assert timing.step(work._replace(cached=cached + 1)) - timing.step(work) == timing.decode_token


@given(st.integers(1, 300), st.integers(0, 300), st.integers(1, 300))
def test_each_token_of_a_prompt_sees_those_before_it_in_the_window_and_itself(
    tokens: int, cached: int, window: int
) -> None:
    seen = [min(at + 1, window) for at in range(cached, cached + tokens)]
    assert window_pairs(tokens, cached, window) == sum(seen)
    assert prompt_work(tokens, cached, window).pairs == sum(at + 1 for at in range(cached, cached + tokens))


def test_tensor_parallelism_must_divide_the_heads() -> None:
    with pytest.raises(InputError, match="does not divide the 32"):
        check_tensor_parallel(LLAMA_8B, 3)


def test_a_step_without_duration_is_refused() -> None:
    with pytest.raises(ValueError, match="takes time"):
        LinearTiming(0)
