"""The rate one replica can carry."""

from __future__ import annotations

from math import exp

import pytest

from tonnage.inference.capacity import RequestMix, Slo, capacity, capacity_curve
from tonnage.inference.engine import EngineConfig, Finished
from tonnage.inference.timing import LinearTiming

MS = 1_000_000_000  # ps
CONFIG = EngineConfig(max_num_batched_tokens=2048, max_num_seqs=64, max_model_len=8192, kv_blocks=4000)
TIMING = LinearTiming(base_ps=10 * MS, token_ps=MS // 10, cached_ps=50_000)
MIX = RequestMix(((200, 50), (800, 100), (2000, 20)), (5.0, 3.0, 1.0))
SLO = Slo(ttft_s=2.0, tpot_s=0.06)


def test_attainment_is_enough_at_the_capacity_and_too_little_well_above_it() -> None:
    rate = capacity(CONFIG, TIMING, MIX, SLO)
    (_, at), (_, above) = capacity_curve(CONFIG, TIMING, MIX, SLO, (rate, rate * 1.15))
    assert at >= 0.99 > above


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
