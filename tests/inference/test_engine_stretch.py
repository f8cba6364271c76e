"""An engine whose steps take longer while others use its GPU."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deep_seeds import examples
from tonnage.facts import gpus, models
from tonnage.inference.engine import Engine, EngineConfig
from tonnage.inference.engine.stretched import Stretched
from tonnage.inference.estimate import EstimatedTiming, Replica
from tonnage.inference.timing import TICKS_PER_NS, LinearTiming, PolynomialTiming, StepWork, prompt_work

CONFIG = EngineConfig(512, 8, 4096, 512)
TIMING = LinearTiming(3_000_017, 20_011, 997, 13)
FACTORS = st.fractions(min_value=1, max_value=6, max_denominator=50)
Plan = list[tuple[int, int, int, Fraction]]
"""(ns since the last, prompt tokens, output tokens, the factor from then on)."""


def finishes(plan: Plan, *, macro: bool) -> tuple[list[int], int]:
    engine = Engine(CONFIG, TIMING, macro=macro)
    now = 0
    for number, (gap, prompt, output, factor) in enumerate(plan):
        now += gap
        engine.advance(now)
        engine.stretch(factor)
        engine.submit(number, now, prompt, output)
    while (change := engine.next_change_ns()) is not None:
        engine.advance(max(change, now))
    return [done.finish_ns for done in engine.take_finished()], engine.busy_ns


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 400_000), st.integers(1, 900), st.integers(1, 60), FACTORS), min_size=1, max_size=12
    )
)
def test_runs_of_steps_in_closed_form_are_the_steps_one_by_one(plan: Plan) -> None:
    assert finishes(plan, macro=True) == finishes(plan, macro=False)


@pytest.mark.parametrize("factor", [Fraction(2), Fraction(53, 25), Fraction(100, 97)])
def test_every_step_takes_so_many_times_as_long(factor: Fraction) -> None:
    [alone], busy = finishes([(0, 100, 50, Fraction(1))], macro=True)
    [longer], longer_busy = finishes([(0, 100, 50, factor)], macro=True)
    assert longer == pytest.approx(float(alone * factor), rel=1e-4)
    assert longer_busy == pytest.approx(float(busy * factor), rel=1e-4)


def test_the_step_in_flight_has_what_is_left_of_it_stretched_and_shrunk_again() -> None:
    step = TIMING.step(prompt_work(10, 0)) / TICKS_PER_NS
    engine = Engine(CONFIG, TIMING)
    engine.submit(1, 0, 10, 1)
    engine.advance(round(step / 4))
    engine.stretch(Fraction(3))
    engine.advance(round(step / 4 + 3 * step / 2))  # half of the work
    engine.stretch(Fraction(1))
    engine.advance(10**9)
    [done] = engine.take_finished()
    assert done.finish_ns == pytest.approx(step / 4 + 3 * step / 2 + step / 4, abs=2)


def test_a_stretched_step_costs_the_same_more_for_each_cached_token() -> None:
    timing = Stretched(TIMING, Fraction(53, 25))
    costs = [timing.step(StepWork(4, cached)) for cached in range(100, 110)]
    assert {later - earlier for earlier, later in pairwise(costs)} == {timing.decode_token}


def test_an_engine_by_batch_timing_cannot_be_stretched() -> None:
    engine = Engine(CONFIG, PolynomialTiming(10_000))
    engine.stretch(Fraction(1))
    with pytest.raises(ValueError, match="only a timing by step"):
        engine.stretch(Fraction(2))


def test_steps_with_prompt_tokens_are_stretched_by_a_factor_of_their_own() -> None:
    timing = Stretched(TIMING, Fraction(2), Fraction(5))
    prompt, decoding = prompt_work(100, 0), StepWork(3, 30)
    assert timing.step(prompt) == 5 * TIMING.step(prompt)
    assert timing.step(decoding) == 2 * TIMING.step(decoding)
    both = prompt._replace(decoders=3, cached=30)
    assert timing.step(both) == 5 * TIMING.step(both._replace(cached=0)) + 30 * timing.decode_token


def test_what_the_engine_does_between_its_work_on_the_gpu_is_not_stretched() -> None:
    llama = models.get("Llama-3.1-8B")
    gpu, with_engine = (EstimatedTiming(Replica(llama, gpus.get("h100"), framework=name)) for name in ("", "vllm"))
    work = prompt_work(300, 0)._replace(decoders=5)
    host = with_engine.step(work) - gpu.step(work)
    assert (with_engine.host(work), gpu.host(work)) == (host, 0)
    assert Stretched(with_engine, Fraction(3)).step(work) == 3 * gpu.step(work) + host


def test_the_prompt_in_flight_is_stretched_as_prompts_are() -> None:
    step = TIMING.step(prompt_work(10, 0)) / TICKS_PER_NS
    engine = Engine(CONFIG, TIMING)
    engine.submit(1, 0, 10, 1)
    engine.advance(round(step / 4))
    engine.stretch(Fraction(2), Fraction(5))
    engine.advance(10**9)
    [done] = engine.take_finished()
    assert done.finish_ns == pytest.approx(step / 4 + 5 * 3 * step / 4, abs=2)


def test_steps_with_prompt_tokens_cannot_be_stretched_less_than_others() -> None:
    with pytest.raises(ValueError, match="not stretched less"):
        Engine(CONFIG, TIMING).stretch(Fraction(3), Fraction(2))
