"""The rate that one replica sustains."""

from __future__ import annotations

from itertools import pairwise
from math import exp, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tonnage.inference.capacity import RequestMix, Slo, _Trials, capacity
from tonnage.inference.engine import EngineConfig, Finished
from tonnage.inference.timing import BatchTiming, LinearTiming, run_one_by_one

MS = 1_000_000_000  # ps
CONFIG = EngineConfig(max_num_batched_tokens=2048, max_num_seqs=64, max_model_len=8192, kv_blocks=4000)
TIMING = LinearTiming(base_ps=10 * MS, token_ps=MS // 10, cached_ps=50_000)
MIX = RequestMix(((200, 50), (800, 100), (2000, 20)), (5.0, 3.0, 1.0))
SLO = Slo(ttft_s=2.0, tpot_s=0.06)


def test_attainment_is_enough_at_the_capacity_and_too_little_well_above_it() -> None:
    rate = capacity(CONFIG, TIMING, MIX, SLO)
    trials = _Trials(CONFIG, TIMING, MIX, SLO, seed=0)
    assert trials.share(rate) >= 0.99 > trials.share(rate * 1.15)


def test_the_same_question_has_the_same_answer_and_another_seed_a_close_one() -> None:
    rate = capacity(CONFIG, TIMING, MIX, SLO)
    capacity.cache_clear()
    assert capacity(CONFIG, TIMING, MIX, SLO) == rate
    assert capacity(CONFIG, TIMING, MIX, SLO, seed=1) == pytest.approx(rate, rel=0.1)


@pytest.mark.parametrize(
    ("config", "timing", "slo", "share"),
    [
        (CONFIG, TIMING, Slo(4.0, 0.06), 0.99),
        (CONFIG, TIMING, Slo(2.0, 0.12), 0.99),
        (CONFIG, TIMING, SLO, 0.9),
        (CONFIG, LinearTiming(base_ps=5 * MS, token_ps=MS // 10, cached_ps=50_000), SLO, 0.99),
    ],
)
def test_a_looser_slo_or_a_faster_engine_never_carries_less(
    config: EngineConfig, timing: LinearTiming, slo: Slo, share: float
) -> None:
    assert capacity(config, timing, MIX, slo, share) >= capacity(CONFIG, TIMING, MIX, SLO) / 1.01


def test_an_slo_that_a_lone_request_misses_leaves_no_capacity() -> None:
    assert capacity(CONFIG, TIMING, MIX, Slo(ttft_s=0.005, tpot_s=1.0)) == 0.0


def test_requests_of_one_step_served_one_at_a_time_follow_the_m_d_1_queue() -> None:
    """Erlang: P(wait ≤ one service time) = (1 − ρ)·e^ρ."""
    config = EngineConfig(max_num_batched_tokens=100, max_num_seqs=1, max_model_len=200, kv_blocks=100)
    timing = LinearTiming(base_ps=10 * MS)
    rate = capacity(config, timing, RequestMix(((100, 1),)), Slo(ttft_s=0.02, tpot_s=1.0), share=0.8)
    utilization = rate * 0.01
    assert (1 - utilization) * exp(utilization) == pytest.approx(0.8, abs=0.02)


def test_a_request_meets_the_slo_only_if_it_was_served_within_both_bounds() -> None:
    good = Finished(0, 0, 0, 2_000_000_000, 2_060_000_000, 10, 2)
    assert SLO.met(good)
    assert not SLO.met(Finished(0, 0, 0, 2_000_000_001, 2_060_000_000, 10, 2))
    assert not SLO.met(Finished(0, 0, 0, 1_000_000_000, 1_060_000_001, 10, 2))
    assert not SLO.met(Finished(0, 0, None, None, 0, 10, 0, 0, "rejected"))


def test_a_mix_needs_pairs_and_fitting_weights() -> None:
    with pytest.raises(ValueError, match="at least one pair"):
        RequestMix(())
    with pytest.raises(ValueError, match="one weight a pair"):
        RequestMix(((1, 1),), (1.0, 2.0))
    for reuse in (-0.1, 1.0, 1.5, nan):
        with pytest.raises(ValueError, match="expected 0 to below 1"):
            RequestMix(((1, 1),), reuse=reuse)


@given(reuse=st.floats(0, 1, exclude_max=True), prompt=st.integers(1, 10**6))
def test_the_last_token_of_a_prompt_is_always_computed(reuse: float, prompt: int) -> None:
    computed = RequestMix(((prompt, 1),), reuse=reuse).computed(prompt)
    assert 0 <= computed < prompt and computed <= reuse * prompt


def test_what_a_cache_holds_of_prompts_raises_the_capacity() -> None:
    def at(reuse: float) -> float:
        return capacity(CONFIG, TIMING, RequestMix(MIX.pairs, MIX.weights, reuse), SLO)

    rates = [at(reuse) for reuse in (0.0, 0.45, 0.9)]
    assert rates[0] == capacity(CONFIG, TIMING, MIX, SLO)
    assert all(more > less * 1.1 for less, more in pairwise(rates))


def test_a_prompt_that_is_half_cached_is_served_as_one_of_half_its_length() -> None:
    """Nothing is decoded and the KV cache is never full: what counts is what is computed."""
    config = EngineConfig(max_num_batched_tokens=100, max_num_seqs=1, max_model_len=2000, kv_blocks=1000)
    timing, slo = LinearTiming(base_ps=10 * MS), Slo(ttft_s=0.05, tpot_s=1.0)
    half = capacity(config, timing, RequestMix(((400, 1),), reuse=0.5), slo)
    assert half == capacity(config, timing, RequestMix(((200, 1),)), slo)


class _ByBatch:
    """Prefill and decode parts that are told apart."""

    def prefill_ps(self, requests: int, total_tokens: int, cached_tokens: int) -> int:
        return requests and 10 * MS

    def decode_ps(self, sequences: int, context_tokens: int) -> int:
        return sequences and 10 * MS

    def decode_run_ps(self, sequences: int, context_tokens: int, steps: int) -> NDArray[np.int64]:
        return run_one_by_one(self, sequences, context_tokens, steps)


def test_an_engine_with_measured_step_times_has_a_capacity_too() -> None:
    timing: BatchTiming = _ByBatch()
    config = EngineConfig(max_num_batched_tokens=100, max_num_seqs=1, max_model_len=200, kv_blocks=100)
    slo, mix = Slo(ttft_s=0.02, tpot_s=1.0), RequestMix(((100, 1),))
    assert capacity(config, timing, mix, slo) == capacity(config, LinearTiming(base_ps=10 * MS), mix, slo)
