"""The engine against the step-by-step oracle, and its invariants."""

from __future__ import annotations

import msgspec
import pytest
from engine_checks import check_blocks
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_engine import ReferenceEngine

from deep_seeds import examples
from tonnage.inference.engine import Engine, EngineConfig, Finished
from tonnage.inference.timing import TICKS_PER_NS, LinearTiming

TIMING = LinearTiming(base_ps=7_000_000, token_ps=60_001, cached_ps=41, pair_ps=3)
FOREVER = 10**18

configs = st.builds(
    EngineConfig,
    max_num_batched_tokens=st.integers(1, 40),
    max_num_seqs=st.integers(1, 12),
    max_model_len=st.integers(60, 200),
    kv_blocks=st.integers(1, 40),
    block_size=st.sampled_from([1, 2, 4, 16]),
)
arrivals = st.lists(st.tuples(st.integers(0, 40_000), st.integers(1, 60), st.integers(1, 40)), min_size=1, max_size=25)


def requests_of(drawn: list[tuple[int, int, int]]) -> list[tuple[int, int, int, int]]:
    """(id, arrival, prompt, output) in order of arrival."""
    now = 0
    requests = []
    for request_id, (gap, prompt, output) in enumerate(drawn):
        now += gap
        requests.append((request_id, now, prompt, output))
    return requests


def fits(config: EngineConfig, prompt: int, output: int) -> bool:
    blocks = -(-(prompt + output - 1) // config.block_size)
    return prompt + output <= config.max_model_len and blocks <= config.kv_blocks


def check_state(engine: Engine) -> None:
    """Blocks are those of the running requests; counts agree with the members."""
    step, flying = engine._scheduler.decoding.steps, engine._step_end is not None
    held = decoders = cached = 0
    for request in engine._scheduler.running.values():
        tokens = request.cached(step)
        if request.finish_step >= 0:
            decoders += 1
            cached += tokens
            tokens += flying
        held += -(-tokens // engine.config.block_size)
    assert engine.blocks_used == held <= engine.blocks_total
    assert (engine._scheduler.blocks.decoders, engine._scheduler.decoding.cached) == (decoders, cached)
    assert sum(engine._scheduler.blocks._due) == decoders
    assert min(engine._scheduler.blocks._due) >= 0
    assert engine.running <= engine.config.max_num_seqs
    orders = [request.order for request in (*engine._scheduler.running.values(), *engine._scheduler.waiting)]
    assert orders == sorted(orders)


def play(config: EngineConfig, requests: list[tuple[int, int, int, int]], macro: bool, stops: list[int]) -> Engine:
    """Submit each request on arrival, advance to the stops between, run to the end."""
    engine = Engine(config, TIMING, macro=macro)
    times = sorted([(request[1], 0, request) for request in requests] + [(stop, 1, None) for stop in stops])
    for at, _, request in times:
        engine.advance(at)
        check_state(engine)
        if request is not None:
            engine.submit(*request)
    engine.advance(FOREVER)
    return engine


def totals(engine: Engine) -> tuple[int, ...]:
    return (
        engine.busy_ns,
        engine.prompt_tokens_total,
        engine.generation_tokens_total,
        engine.preemptions_total,
        engine._scheduler.decoding.steps,
    )


@settings(max_examples=examples(400), deadline=None)
@given(configs, arrivals, st.lists(st.integers(0, 400_000), max_size=8).map(sorted))
def test_closed_form_runs_equal_single_steps_and_the_oracle(
    config: EngineConfig, drawn: list[tuple[int, int, int]], stops: list[int]
) -> None:
    requests = requests_of(drawn)
    jumping = play(config, requests, True, stops)
    stepping = play(config, requests, False, [])
    assert totals(jumping) == totals(stepping)
    finished = jumping.take_finished()
    assert finished == stepping.take_finished()
    oracle = ReferenceEngine(config, TIMING)
    oracle.run([request for request in requests if fits(config, *request[2:])])
    assert jumping.busy_ns == oracle.busy_ticks // TICKS_PER_NS
    assert jumping.preemptions_total == oracle.preemptions
    assert {f.request_id: f for f in finished if f.state == "finished"} == {
        r.request_id: Finished(
            r.request_id,
            r.arrival_ns,
            r.admitted_ns,
            r.first_token_ns,
            r.finish_ns or 0,
            r.prompt,
            r.output,
            r.preemptions,
        )
        for r in oracle.done
    }


@settings(max_examples=examples(150), deadline=None)
@given(configs, arrivals)
def test_every_request_ends_exactly_once_and_nothing_leaks(
    config: EngineConfig, drawn: list[tuple[int, int, int]]
) -> None:
    requests = requests_of(drawn)
    engine = play(config, requests, True, [])
    finished = engine.take_finished()
    assert sorted(f.request_id for f in finished) == [request[0] for request in requests]
    for f in finished:
        _, _, prompt, output = requests[f.request_id]
        assert f.state == ("finished" if fits(config, prompt, output) else "rejected")
        if f.state == "finished":
            assert f.admitted_ns is not None and f.first_token_ns is not None
            assert f.arrival_ns <= f.admitted_ns < f.first_token_ns <= f.finish_ns
            assert (f.first_token_ns == f.finish_ns) == (f.output_tokens == 1)
    served = [f for f in finished if f.state == "finished"]
    assert engine.generation_tokens_total == sum(f.output_tokens for f in served)
    assert engine.prompt_tokens_total == sum(f.prompt_tokens for f in served)
    assert engine.preemptions_total == sum(f.preemptions for f in served)
    assert (engine.running, engine.waiting, engine.blocks_used) == (0, 0, 0)
    assert engine.next_change_ns() is None
    admitted = [f.admitted_ns or 0 for f in sorted(served, key=lambda f: f.request_id)]
    assert admitted == sorted(admitted), "admission is first come first served"


@settings(max_examples=examples(150), deadline=None)
@given(configs, arrivals, st.data())
def test_aborts_at_any_time_end_a_request_once_and_free_its_blocks(
    config: EngineConfig, drawn: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    requests = requests_of([(gap + 1, prompt, output) for gap, prompt, output in drawn])
    engine = Engine(config, TIMING)
    ended: list[Finished] = []
    for request in requests:
        engine.submit(*request)
        engine.advance(request[1] + 1)
        check_state(engine)
        ended += engine.take_finished()
        alive = sorted(engine._scheduler.requests)
        cancel: bool = data.draw(st.booleans())
        if alive and cancel:
            engine.abort(data.draw(st.sampled_from(alive)))
            check_state(engine)
    engine.advance(FOREVER)
    ended += engine.take_finished()
    assert sorted(f.request_id for f in ended) == [request[0] for request in requests]
    assert engine.generation_tokens_total == sum(f.output_tokens for f in ended)
    assert engine.blocks_used == 0


@settings(max_examples=examples(150), deadline=None)
@given(configs, arrivals)
def test_nothing_changes_before_the_announced_change_and_advancing_to_it_makes_progress(
    config: EngineConfig, drawn: list[tuple[int, int, int]]
) -> None:
    engine = Engine(config, TIMING)
    for request in requests_of(drawn):
        engine.submit(*request)
    engine.take_finished()  # refused ones
    previous = -1
    while (change := engine.next_change_ns()) is not None:
        assert change > previous
        engine.advance(change - 1)
        assert engine.take_finished() == [] and engine.take_first_tokens() == []
        engine.advance(change)
        assert all(f.finish_ns == change for f in engine.take_finished())
        assert all(first == change for _, _, first in engine.take_first_tokens())
        previous = change
    assert engine.running == engine.waiting == 0


def roomy(**changes: int) -> EngineConfig:
    values = {"max_num_batched_tokens": 100, "max_num_seqs": 8, "max_model_len": 1000, "kv_blocks": 100}
    return EngineConfig(**(values | changes))


def test_a_lone_request_takes_one_prefill_step_and_one_step_per_further_token() -> None:
    timing = LinearTiming(base_ps=1_000_000, token_ps=1_000, cached_ps=10)
    engine = Engine(roomy(), timing)
    engine.submit(7, 500, prompt_tokens=40, output_tokens=3)
    engine.advance(FOREVER)
    (done,) = engine.take_finished()
    prefill = 1_000_000 + 40 * 1_000
    decodes = 2 * (1_000_000 + 1_000) + 10 * (40 + 41)
    assert done.first_token_ns == 500 + prefill // 1000
    assert done.finish_ns == -(-(500_000 + prefill + decodes) // 1000)
    assert engine.busy_ns == (prefill + decodes) // 1000


def test_a_long_prompt_is_computed_in_chunks_of_what_the_decodes_leave_of_the_token_budget() -> None:
    timing = LinearTiming(base_ps=1_000)
    engine = Engine(roomy(max_num_batched_tokens=10), timing)
    engine.submit(0, 0, prompt_tokens=10, output_tokens=50)
    engine.submit(1, 0, prompt_tokens=28, output_tokens=1)
    engine.advance(FOREVER)
    long = next(f for f in engine.take_finished() if f.request_id == 1)
    assert (long.admitted_ns, long.first_token_ns) == (1, 5)  # 9 + 9 + 9 + 1 tokens from the second step on


def test_a_preempted_request_computes_its_prompt_and_its_generated_tokens_again() -> None:
    timing = LinearTiming(base_ps=1_000_000, token_ps=1_000)
    engine = Engine(roomy(kv_blocks=5, block_size=4), timing)
    engine.submit(0, 0, prompt_tokens=8, output_tokens=9)
    engine.submit(1, 0, prompt_tokens=8, output_tokens=9)
    engine.advance(FOREVER)
    first, second = engine.take_finished()
    assert (first.preemptions, second.preemptions) == (0, 1)
    # 16 prefilled together; the second leaves after its first token (no fifth block), so 8 decodes of the first,
    # then 9 tokens again and 7 decodes.
    assert engine.busy_ns == (17 * 1_000_000 + (16 + 8 + 9 + 7) * 1_000) // 1000
    assert engine.generation_tokens_total == 18
    assert engine.prompt_tokens_total == 16


def test_where_prompts_come_first_nobody_decodes_while_one_is_computed() -> None:
    timing = LinearTiming(base_ps=1_000)
    engine = Engine(msgspec.structs.replace(roomy(max_num_batched_tokens=10), mixed_steps=False), timing)
    engine.submit(0, 0, prompt_tokens=10, output_tokens=4)
    engine.submit(1, 2, prompt_tokens=30, output_tokens=2)
    engine.advance(FOREVER)
    first, second = sorted(engine.take_finished(), key=lambda one: one.request_id)
    # a prefill and a decode, three chunks of the other, two decodes; the other ends with the first of these
    assert (first.first_token_ns, first.finish_ns) == (1, 7)
    assert (second.first_token_ns, second.finish_ns) == (5, 6)


def test_where_prompts_come_first_one_takes_the_blocks_of_a_less_important_request_that_waits_for_it() -> None:
    config = roomy(max_num_batched_tokens=8, kv_blocks=6, block_size=4)
    engine = Engine(msgspec.structs.replace(config, mixed_steps=False, policy="priority"), TIMING)
    engine.submit(0, 0, 8, 9, priority=5)
    engine.submit(1, 1, 20, 2, priority=0)
    while (change := engine.next_change_ns()) is not None:
        engine.advance(change)
        check_blocks(engine)
    second, first = engine.take_finished()
    assert (first.request_id, first.preemptions, second.preemptions) == (0, 1, 0)


def test_an_engine_that_reserves_the_output_admits_only_what_it_can_serve_to_its_end() -> None:
    for reserve, together, preempted in ((False, 2, 1), (True, 1, 0)):
        config = msgspec.structs.replace(roomy(kv_blocks=5, block_size=4), reserve_output=reserve)
        engine = Engine(config, LinearTiming(base_ps=1_000_000))
        engine.submit(0, 0, prompt_tokens=8, output_tokens=9)
        engine.submit(1, 0, prompt_tokens=8, output_tokens=9)
        engine.advance(500)
        assert engine.running == together
        engine.advance(FOREVER)
        assert engine.preemptions_total == preempted
        assert [one.state for one in engine.take_finished()] == ["finished", "finished"]


@pytest.mark.parametrize(("prompt", "output"), [(990, 11), (1, 1000), (1601, 1)])
def test_a_request_beyond_context_or_cache_is_refused(prompt: int, output: int) -> None:
    engine = Engine(roomy(max_model_len=1000 if prompt < 1600 else 5000), TIMING)
    engine.submit(1, 5, prompt, output)
    (refused,) = engine.take_finished()
    assert (refused.state, refused.finish_ns, refused.ttft_ns, refused.output_tokens) == (
        "rejected",
        5,
        None,
        0,
    )


def test_a_dying_replica_hands_back_every_unfinished_request_with_its_progress() -> None:
    engine = Engine(roomy(max_num_seqs=1), LinearTiming(base_ps=1_000_000))
    engine.submit(0, 0, 10, 20)
    engine.submit(1, 0, 10, 20)
    engine.advance(5_500)
    left = engine.drain_all()
    assert [(r.request_id, r.generated_tokens) for r in left] == [(0, 5), (1, 0)]
    assert engine.busy_ns == 5_500
    assert (engine.running, engine.waiting, engine.blocks_used) == (0, 0, 0)
    assert engine.next_change_ns() is None


def test_what_lies_in_the_engines_past_or_is_empty_is_refused_as_a_programming_error() -> None:
    engine = Engine(roomy(), TIMING)
    engine.advance(100)
    with pytest.raises(ValueError, match="past"):
        engine.submit(0, 99, 1, 1)
    with pytest.raises(ValueError, match="no output"):
        engine.submit(0, 100, 1, 0)
    engine.submit(0, 100, 1, 1)
    with pytest.raises(ValueError, match="already"):
        engine.submit(0, 100, 1, 1)


def test_latencies_follow_from_the_record() -> None:
    record = Finished(1, 1_000, 1_500, 4_000, 10_000, prompt_tokens=5, output_tokens=4)
    assert (record.ttft_ns, record.tpot_ns) == (3_000, 2_000)
    single = Finished(1, 1_000, 1_500, 4_000, 4_000, prompt_tokens=5, output_tokens=1)
    assert single.tpot_ns == 0


# ---- blocks that others hold ----

TIGHT = EngineConfig(max_num_batched_tokens=64, max_num_seqs=4, max_model_len=100, kv_blocks=4, block_size=16)
LATER = 5_000_000


@pytest.mark.parametrize("how", ["release", "unreserve"])
def test_what_waited_for_blocks_starts_when_they_are_given_back_and_no_earlier(how: str) -> None:
    engine = Engine(TIGHT, TIMING)
    if how == "unreserve":
        assert engine.reserve(0, 64)
    else:
        engine.submit(0, 0, 60, 1, hold=True)
    engine.submit(1, 0, 40, 1)
    engine.advance(1_000_000)
    assert engine.next_change_ns() is None, "nobody can start"
    engine.advance(LATER)
    if how == "release":
        engine.release(0)
    else:
        engine.unreserve(0)
    change = engine.next_change_ns()
    assert change is not None and change > LATER
    engine.advance(FOREVER)
    (last,) = [done for done in engine.take_finished() if done.request_id == 1]
    assert (last.state, last.admitted_ns) == ("finished", LATER)
    assert last.finish_ns > LATER
