"""The engine's part in a split: blocks that outlive their request, and requests that come with their prompt computed."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deep_seeds import examples
from tonnage.inference.engine import Engine, EngineConfig
from tonnage.inference.timing import LinearTiming, PolynomialTiming
from tonnage.units import NS_PER_MS

MS = 1_000_000_000
TIMING = LinearTiming(base_ps=10 * MS, token_ps=MS // 10)
CONFIG = EngineConfig(max_num_batched_tokens=64, max_num_seqs=8, max_model_len=1024, kv_blocks=40)


def _engine(**changes: object) -> Engine:
    return Engine(CONFIG, TIMING, **changes)  # type: ignore[arg-type]


def test_a_prefill_keeps_its_blocks_until_they_are_released() -> None:
    engine = _engine()
    engine.submit(1, 0, 100, 1, hold=True)
    engine.advance(1_000 * NS_PER_MS)
    (ended,) = engine.take_finished()
    assert (ended.state, ended.output_tokens, engine.running, engine.blocks_used) == ("finished", 1, 0, 7)
    engine.release(1)
    assert engine.blocks_used == 0
    with pytest.raises(KeyError):
        engine.release(1)


def test_held_blocks_leave_less_room_for_others_and_their_release_admits_who_waits() -> None:
    engine = _engine()
    engine.submit(1, 0, 480, 1, hold=True)  # 30 of 40 blocks
    engine.advance(1_000 * NS_PER_MS)
    engine.submit(2, 1_000 * NS_PER_MS, 200, 5)
    engine.advance(2_000 * NS_PER_MS)
    assert engine.waiting + engine.running == 1 and not [f for f in engine.take_finished() if f.request_id == 2]
    engine.release(1)
    engine.advance(4_000 * NS_PER_MS)
    assert [f.request_id for f in engine.take_finished()] == [2]


def test_a_request_whose_prompt_is_computed_takes_one_step_to_its_first_token() -> None:
    engine = _engine()
    assert engine.reserve(1, 200)
    assert engine.blocks_used == 13
    engine.submit(1, 0, 200, 5, computed=199)
    engine.advance(NS_PER_MS)
    assert engine.blocks_used == 13, "the blocks that were reserved are those it runs on"
    engine.advance(1_000 * NS_PER_MS)
    ((_, _, first),) = engine.take_first_tokens()
    assert first == TIMING.step_ps(1, 199, 200) // 1000
    assert engine.blocks_used == 0


def test_without_the_room_nothing_is_reserved() -> None:
    engine = _engine()
    assert engine.reserve(1, 400)
    assert not engine.reserve(2, 400)
    with pytest.raises(ValueError, match="already"):
        engine.reserve(1, 16)
    engine.unreserve(1)
    engine.unreserve(1)
    assert engine.blocks_used == 0 and engine.reserve(2, 400)


def test_requests_with_blocks_of_their_own_do_not_queue_behind_one_that_waits_for_those_blocks() -> None:
    engine = _engine()
    engine.submit(1, 0, 600, 2)  # 38 of 40 blocks
    assert engine.reserve(2, 100)
    engine.submit(2, 0, 100, 2, computed=99)
    engine.advance(5_000 * NS_PER_MS)
    assert [f.request_id for f in engine.take_finished()] == [2, 1]


def test_an_abort_before_admission_gives_the_reservation_back() -> None:
    engine = _engine()
    engine.reserve(1, 100)
    engine.submit(1, 0, 100, 5, computed=99)
    engine.abort(1)
    assert engine.blocks_used == 0


def test_a_request_that_can_never_fit_gives_its_reservation_back() -> None:
    engine = _engine()
    engine.reserve(1, 600)
    engine.submit(1, 0, 600, 100, computed=599)
    assert engine.take_finished()[0].state == "rejected"
    assert engine.blocks_used == 0


def test_a_preempted_request_computes_its_prompt_itself_the_second_time() -> None:
    engine = Engine(EngineConfig(64, 8, 1024, 20), TIMING)
    engine.submit(1, 0, 150, 100)
    engine.advance(100 * NS_PER_MS)
    assert engine.reserve(2, 150)
    engine.submit(2, 100 * NS_PER_MS, 150, 100, computed=149)
    engine.advance(20_000 * NS_PER_MS)
    one, two = sorted(engine.take_finished(), key=lambda f: f.request_id)
    assert (one.preemptions, two.state) == (0, "finished") and two.preemptions > 0
    assert engine.blocks_used == 0


def test_the_whole_prompt_cannot_have_come_from_elsewhere() -> None:
    with pytest.raises(ValueError, match="computed already"):
        _engine().submit(1, 0, 100, 5, computed=100)


def test_what_was_found_here_and_what_was_sent_share_the_blocks() -> None:
    engine = _engine(prefix_caching=True)
    path = ((0, 12),)
    engine.submit(1, 0, 200, 2, path=path)
    engine.advance(1_000 * NS_PER_MS)
    assert engine.cache is not None and engine.cache.match(path, 12)[0] == 12
    engine.reserve(2, 200)
    engine.submit(2, 1_000 * NS_PER_MS, 200, 2, path=path, computed=199)
    engine.advance(2_000 * NS_PER_MS)
    assert engine.blocks_used == 0
    assert engine.cache.match(path, 12)[0] == 12


@pytest.mark.parametrize("caching", [False, True], ids=["no cache", "prefix cache"])
@settings(max_examples=examples(60), deadline=None)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 40))
def test_no_block_is_leaked_or_freed_twice_and_looking_step_by_step_changes_nothing(
    caching: bool, seed: int, count: int
) -> None:
    engines = [_engine(prefix_caching=caching, macro=macro) for macro in (True, False)]
    outcomes = []
    for engine in engines:
        rng = random.Random(seed)
        now, held, finished = 0, [], []
        for number in range(count):
            now += rng.randrange(200) * NS_PER_MS
            engine.advance(now)
            ended = engine.take_finished()
            finished += ended
            held += [f.request_id for f in ended if f.state == "finished" and f.request_id % 3 == 0]
            assert 0 <= engine.blocks_used <= engine.blocks_total
            while held and rng.random() < 0.6:
                engine.release(held.pop(rng.randrange(len(held))))
            prompt, output = rng.randrange(2, 300), rng.randrange(1, 30)
            path = ((0, min(5, prompt // 16)),) if rng.random() < 0.5 else ()
            if number % 3 == 0:
                engine.submit(number, now, prompt, 1, path=path, hold=True)
            elif number % 3 == 1 and engine.reserve(number, prompt):
                fate = rng.random()
                if fate < 0.2:
                    engine.unreserve(number)
                else:
                    engine.submit(number, now, prompt, output, path=path, computed=rng.randrange(1, prompt))
                    if fate > 0.8 and not any(f.request_id == number for f in engine.take_finished()):
                        engine.abort(number)
            else:
                engine.submit(number, now, prompt, output, path=path)
        for _ in range(count + 1):
            now += 20_000 * NS_PER_MS
            engine.advance(now)
            for done in engine.take_finished():
                finished.append(done)
                if done.state == "finished" and done.request_id % 3 == 0:
                    held.append(done.request_id)
            while held:
                engine.release(held.pop())
        assert (engine.running, engine.waiting, engine.blocks_used) == (0, 0, 0)
        outcomes.append(finished)
    assert outcomes[0] == outcomes[1]


def test_a_replica_that_dies_holds_nothing() -> None:
    engine = _engine()
    engine.submit(3, 0, 100, 1, hold=True)
    engine.reserve(1, 100)
    engine.advance(1_000 * NS_PER_MS)
    assert engine.drain_all() == []
    assert engine.blocks_used == 0 and engine.reserve(1, 640)


def test_what_was_generated_is_found_by_the_next_turn_if_the_path_names_it() -> None:
    for named, expected in ((True, 17), (False, 12)):
        engine = _engine(prefix_caching=True)
        first = ((0, 17),) if named else ((0, 12),)
        engine.submit(1, 0, 200, 80, path=first)  # 279 cached tokens
        engine.advance(5_000 * NS_PER_MS)
        engine.submit(2, 5_000 * NS_PER_MS, 300, 2, path=((0, 18),))
        engine.advance(9_000 * NS_PER_MS)
        assert engine.take_finished()[1].cached_tokens == expected * 16
        assert engine.blocks_used == 0


@pytest.mark.parametrize("timing", [TIMING, PolynomialTiming(640)], ids=["linear", "polynomial"])
@pytest.mark.parametrize("macro", [True, False])
def test_an_engine_full_of_held_blocks_is_idle_until_they_are_released(
    timing: LinearTiming | PolynomialTiming, macro: bool
) -> None:
    engine = Engine(CONFIG, timing, macro=macro)
    assert engine.reserve(1, 600)
    engine.submit(2, 0, 100, 2)
    engine.advance(1_000 * NS_PER_MS)
    assert (engine.busy_ns, engine.waiting, engine.next_change_ns()) == (0, 1, None)
    engine.unreserve(1)
    engine.advance(2_000 * NS_PER_MS)
    assert [one.request_id for one in engine.take_finished()] == [2]
    assert engine.blocks_used == 0


def test_an_id_whose_blocks_are_held_is_in_use() -> None:
    engine = _engine()
    engine.submit(1, 0, 100, 1, hold=True)
    engine.advance(1_000 * NS_PER_MS)
    with pytest.raises(ValueError, match="already here"):
        engine.submit(1, 1_000 * NS_PER_MS, 48, 1)
    with pytest.raises(ValueError, match="has blocks here"):
        engine.reserve(1, 48)
    with pytest.raises(ValueError, match="need no blocks"):
        engine.reserve(2, -100)
    engine.release(1)
    assert engine.blocks_used == 0


@pytest.mark.parametrize("macro", [True, False])
def test_a_dead_engine_gives_its_requests_back_in_order_of_submission(macro: bool) -> None:
    config = EngineConfig(64, 2, 1024, 40, policy="priority")
    engine = Engine(config, TIMING, macro=macro)
    for request_id, priority in ((9, 3), (8, 1), (7, 2), (6, 0), (5, 0)):
        engine.submit(request_id, 0, 30, 50, priority)
    engine.advance(100 * NS_PER_MS)
    assert [one.request_id for one in engine.drain_all()] == [9, 8, 7, 6, 5]
