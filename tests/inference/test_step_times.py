"""Runs of decode steps against adding up step after step."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deep_seeds import examples
from tonnage.inference.engine.requests import Request
from tonnage.inference.engine.step_times import StepTimes
from tonnage.inference.timing import TICKS_PER_PS, LinearTiming, PolynomialTiming, StepWork

LINEAR = LinearTiming(base_ps=7_000_000, token_ps=60_001, cached_ps=41, pair_ps=3)
POLYNOMIAL = PolynomialTiming(20_000)
both = pytest.mark.parametrize("timing", [LINEAR, POLYNOMIAL], ids=["linear", "polynomial"])


def ticks(timing: LinearTiming | PolynomialTiming, decoders: int, cached: int) -> int:
    if isinstance(timing, LinearTiming):
        return timing.step(StepWork(decoders, cached))
    return timing.decode_ps(decoders, cached + decoders) * TICKS_PER_PS


@both
@settings(max_examples=examples(200), deadline=None)
@given(
    decoders=st.integers(1, 40),
    length=st.integers(1, 800),
    steps=st.one_of(st.integers(1, 60), st.integers(1, 9_000)),
    limit=st.floats(0, 1.2),
    gap=st.one_of(st.none(), st.floats(0, 1.2)),
)
def test_a_run_ends_in_time_and_with_the_step_in_flight_at_the_gap(
    timing: LinearTiming | PolynomialTiming, decoders: int, length: int, steps: int, limit: float, gap: float | None
) -> None:
    cached = decoders * length
    whole = sum(ticks(timing, decoders, cached + decoders * at) for at in range(steps))
    limit_ticks, gap_ticks = round(whole * limit), None if gap is None else 1 + round(whole * gap)
    taken = total = 0
    while taken < steps and (gap_ticks is None or total < gap_ticks):
        longer = total + ticks(timing, decoders, cached + decoders * taken)
        if longer > limit_ticks:
            break
        taken, total = taken + 1, longer
    times = StepTimes(timing)
    assert times.run(decoders, cached, steps, limit_ticks, gap_ticks) == (taken, total)
    assert times.after(decoders, cached, steps) == whole
    assert times.decodes(decoders, cached, steps) <= whole


@both
@given(
    decoders=st.integers(0, 40),
    cached=st.integers(0, 9_000),
    chunks=st.lists(st.tuples(st.integers(0, 900), st.integers(1, 900)), max_size=4),
)
def test_a_step_takes_what_its_decodes_and_chunks_take_together(
    timing: LinearTiming | PolynomialTiming, decoders: int, cached: int, chunks: list[tuple[int, int]]
) -> None:
    requests = []
    for passed, chunk in chunks:
        request = Request(0, 0, 0, passed + chunk, 1)
        request.passed, request.computed = passed, passed + chunk
        requests.append(request)
    if isinstance(timing, LinearTiming):
        pairs = sum(at + 1 for passed, chunk in chunks for at in range(passed, passed + chunk))
        tokens, behind = sum(chunk for _, chunk in chunks), sum(passed for passed, _ in chunks)
        expected = timing.step(StepWork(decoders, cached, 0, len(chunks), tokens, behind, pairs))
    else:
        expected = timing.decode_ps(decoders, cached + decoders)
        expected += timing.prefill_ps(len(chunks), sum(map(sum, chunks)), sum(passed for passed, _ in chunks))
        expected *= TICKS_PER_PS
    assert StepTimes(timing).step(decoders, cached, requests) == expected
