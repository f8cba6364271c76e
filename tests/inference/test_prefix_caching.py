"""The engine with prefix caching against the block-by-block oracle, and its invariants."""

from __future__ import annotations

from typing import Any

import pytest
from engine_checks import check_blocks
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from reference_caching import CachingReference, CachingRequest

from deep_seeds import examples
from tonnage.inference.engine import Engine, EngineConfig, Finished
from tonnage.inference.engine.prefix_cache import PrefixCache
from tonnage.inference.hybrid import Layers, Layout, layout
from tonnage.inference.prompts import BlockNames
from tonnage.inference.timing import LinearTiming, PolynomialTiming

LINEAR = LinearTiming(base_ps=7_000_000, token_ps=60_001, cached_ps=41, pair_ps=3)
FOREVER = 10**18


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Full and window layers, or windows alone; one or several groups of each, with blocks of one or two sizes."""
    kinds = [Layers("window", draw(st.integers(1, 3)), draw(st.sampled_from([8, 16])), span=draw(st.integers(1, 20)))]
    if draw(st.booleans()):
        kinds.append(Layers("window", draw(st.integers(1, 3)), 8, span=draw(st.integers(1, 20))))
    if draw(st.booleans()):
        kinds.append(Layers("full", draw(st.integers(1, 3)), draw(st.sampled_from([8, 16]))))
    return layout(kinds, draw(st.sampled_from([1, 2])))


@st.composite
def any_configs(draw: st.DrawFn, hybrid: bool = False) -> EngineConfig:
    plan = draw(layouts()) if hybrid else None
    return EngineConfig(
        max_num_batched_tokens=draw(st.integers(2, 40)),
        max_num_seqs=draw(st.integers(1, 8)),
        max_model_len=400,
        kv_blocks=draw(st.integers(8, 120 if hybrid else 40)),
        block_size=plan.block_size if plan else draw(st.sampled_from([1, 2, 4])),
        policy=draw(st.sampled_from(["fcfs", "priority"])),
        reserve_full_prompt=draw(st.booleans()),
        reserve_output=draw(st.integers(0, 3)) == 0,
        mixed_steps=draw(st.integers(0, 2)) > 0,
        layout=plan,
    )


configs = any_configs()
prompts = st.tuples(
    st.integers(0, 200_000),  # ns since the last
    st.lists(st.integers(0, 2), max_size=6),  # hashes of 4 tokens
    st.integers(0, 9),  # tokens beyond them
    st.integers(1, 20),  # output
    st.integers(-1, 1),  # priority
)
loads = st.lists(prompts, min_size=1, max_size=20)


def requests_of(config: EngineConfig, drawn: list[Any]) -> list[CachingRequest]:
    """Those that can be served at all, in order of arrival."""
    names = BlockNames(config.block_size, 4)
    now, made = 0, []
    for gap, hashes, beyond, output, priority in drawn:
        now += gap
        tokens = max(1, 4 * len(hashes) + beyond)
        if CachingReference(config, LINEAR).most(tokens + output - 1) <= config.kv_blocks:
            made.append(CachingRequest(len(made), now, tokens, output, priority, names.path(hashes, tokens)))
    return made


def play(
    config: EngineConfig, timing: LinearTiming | PolynomialTiming, requests: list[CachingRequest], macro: bool
) -> tuple[Engine, list[Finished]]:
    engine = Engine(config, timing, macro=macro, prefix_caching=True, record_events=True)
    for one in requests:
        engine.advance(one.arrival_ns)
        check_blocks(engine)
        engine.submit(one.request_id, one.arrival_ns, one.prompt, one.output, one.priority, one.path)
    while (change := engine.next_change_ns()) is not None:
        engine.advance(change)
        check_blocks(engine)
    return engine, sorted(engine.take_finished(), key=lambda one: one.request_id)


def facts(done: Finished) -> tuple[Any, ...]:
    return (done.admitted_ns, done.first_token_ns, done.finish_ns, done.cached_tokens, done.preemptions)


def check_schedule(timing: LinearTiming | PolynomialTiming, config: EngineConfig, drawn: list[Any]) -> None:
    requests = requests_of(config, drawn)
    engine, finished = play(config, timing, requests, macro=True)
    oracle = CachingReference(config, timing)
    oracle.run(requests)
    expected = sorted(oracle.done, key=lambda one: one.request_id)
    assert [facts(one) for one in finished] == [
        (one.admitted_ns, one.first_token_ns, one.finish_ns, one.reused, one.preemptions) for one in expected
    ]
    assert (engine.blocks_used, engine.running, engine.waiting) == (0, 0, 0)
    if config.reserve_output:
        assert engine.preemptions_total == 0


def block_events(cache: PrefixCache | None) -> list[tuple[int, bool, int]]:
    """The events block by block: at each time, what was stored and removed. None without a cache (windows alone)."""
    if cache is None:
        return []
    events = [(at, stored, block) for stored, low, high, at in cache.take_events() for block in range(low, high)]
    return sorted(events)


def check_single_steps(config: EngineConfig, drawn: list[Any]) -> None:
    requests = requests_of(config, drawn)
    for timing in (LINEAR, PolynomialTiming(100)):
        (one, fast), (other, slow) = (play(config, timing, requests, macro=macro) for macro in (True, False))
        assert fast == slow
        assert block_events(one.cache) == block_events(other.cache)


@pytest.mark.parametrize("timing", [LINEAR, PolynomialTiming(100)], ids=["linear", "polynomial"])
@settings(max_examples=examples(250), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(config=configs, drawn=loads)
@example(  # preempted twice in a row: what was generated each time is found again
    config=EngineConfig(5, 3, 400, 19, block_size=2, policy="priority"),
    drawn=[(0, [0], 0, 12, 1), (0, [0, 0, 0], 0, 16, 0), (0, [], 5, 9, 0)],
)
def test_the_schedule_is_that_of_the_oracle(
    timing: LinearTiming | PolynomialTiming, config: EngineConfig, drawn: list[Any]
) -> None:
    check_schedule(timing, config, drawn)


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(config=configs, drawn=loads)
def test_playing_every_step_gives_the_same(config: EngineConfig, drawn: list[Any]) -> None:
    check_single_steps(config, drawn)


@settings(max_examples=examples(250), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(config=any_configs(hybrid=True), drawn=loads)
def test_the_schedule_with_window_groups_is_that_of_the_oracle(config: EngineConfig, drawn: list[Any]) -> None:
    check_schedule(LINEAR, config, drawn)


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(config=any_configs(hybrid=True), drawn=loads)
def test_playing_every_step_with_window_groups_gives_the_same(config: EngineConfig, drawn: list[Any]) -> None:
    check_single_steps(config, drawn)


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(config=configs, drawn=loads)
def test_events_say_what_can_be_found(config: EngineConfig, drawn: list[Any]) -> None:
    requests = requests_of(config, drawn)
    engine, _ = play(config, LINEAR, requests, macro=True)
    cache = engine.cache
    assert cache is not None
    told: set[int] = set()
    for stored, low, high, _ in cache.take_events():
        blocks = set(range(low, high))
        assert not blocks & told if stored else blocks <= told
        told = told | blocks if stored else told - blocks
    for one in requests:
        found = cache.match(one.path, 10**9)[0]
        listed = [number for low, high in one.path for number in range(low, high)]
        assert set(listed[:found]) <= told
        assert found == len(listed) or listed[found] not in told
