"""The engine with prefix caching against the block-by-block oracle, and its invariants."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reference_caching import CachingReference, CachingRequest

from tonnage.inference.engine import Engine, EngineConfig, Finished
from tonnage.inference.prompts import BlockNames
from tonnage.inference.timing import LinearTiming, PolynomialTiming

LINEAR = LinearTiming(base_ps=7_000_000, token_ps=60_001, cached_ps=41, pair_ps=3)
FOREVER = 10**18

configs = st.builds(
    EngineConfig,
    max_num_batched_tokens=st.integers(2, 40),
    max_num_seqs=st.integers(1, 8),
    max_model_len=st.just(400),
    kv_blocks=st.integers(8, 40),
    block_size=st.sampled_from([1, 2, 4]),
    policy=st.sampled_from(["fcfs", "priority"]),
    reserve_full_prompt=st.booleans(),
)
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
        if -(-(tokens + output - 1) // config.block_size) <= config.kv_blocks:
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


def check_blocks(engine: Engine) -> None:
    """Nothing is held by nobody, nothing is counted twice, and all of it fits."""
    cache, step = engine.cache, engine._steps
    assert cache is not None
    flying = engine._step_end is not None
    held = private = 0
    extents: dict[int, int] = {}
    for request in engine._running.values():
        tokens = request.cached(step) + (flying and request.finish_step >= 0)
        private += -(-tokens // engine.config.block_size) - request.committed
        total = 0
        for extent, end in request.lease:
            while True:
                extents[id(extent)] = extent.high - extent.low
                total += extent.high - extent.low
                if extent.high == end:
                    break
                extent = extent.next
        assert total == request.committed
    held = sum(extents.values())
    assert engine.blocks_used == held + private
    idle = sum(extent.high - extent.low for extent in cache._idle)
    assert idle == cache.idle
    assert engine.blocks_used + idle <= engine.blocks_total


def facts(done: Finished) -> tuple[Any, ...]:
    return (done.admitted_ns, done.first_token_ns, done.finish_ns, done.cached_tokens, done.preemptions)


@pytest.mark.parametrize("timing", [LINEAR, PolynomialTiming(100)], ids=["linear", "polynomial"])
@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(config=configs, drawn=loads)
def test_the_schedule_is_that_of_the_oracle(
    timing: LinearTiming | PolynomialTiming, config: EngineConfig, drawn: list[Any]
) -> None:
    requests = requests_of(config, drawn)
    engine, finished = play(config, timing, requests, macro=True)
    oracle = CachingReference(config, timing)
    oracle.run(requests)
    expected = sorted(oracle.done, key=lambda one: one.request_id)
    assert [facts(one) for one in finished] == [
        (one.admitted_ns, one.first_token_ns, one.finish_ns, one.reused, one.preemptions) for one in expected
    ]
    assert (engine.blocks_used, engine.running, engine.waiting) == (0, 0, 0)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(config=configs, drawn=loads)
def test_playing_every_step_gives_the_same(config: EngineConfig, drawn: list[Any]) -> None:
    requests = requests_of(config, drawn)
    for timing in (LINEAR, PolynomialTiming(100)):
        _, fast = play(config, timing, requests, macro=True)
        _, slow = play(config, timing, requests, macro=False)
        assert fast == slow


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
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
