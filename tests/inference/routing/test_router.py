"""The router: who can be chosen, what is booked and freed, what is written down."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from routing_builders import MS, PlainCosts, S, holds, random_paths, request, router

from deep_seeds import examples
from tonnage.inference.prompts import length
from tonnage.inference.routing import NAMES, Overlap, Router, RouteRequest, Worker, make_policy
from tonnage.inference.routing.policies import LeastLoaded, RoundRobin


def check_book(routed: Router) -> None:
    for worker in range(12):
        load = routed.book.load(worker)
        parts = (
            load.prefilling,
            load.decoding,
            load.prefill_tokens,
            load.context_tokens,
            load.output_tokens,
            load.blocks,
        )
        assert min(parts) >= 0
        assert load.owed_s >= 0
        assert load.requests == load.prefilling + load.decoding == len(routed.book.requests_of(worker))
        assert load.wait_s(10**15) >= 0


@settings(max_examples=examples(60))
@given(st.sampled_from(NAMES), st.integers(0, 2**32))
def test_every_request_is_freed_once_whatever_becomes_of_it_and_its_worker(name: str, seed: int) -> None:
    rng = Random(seed)
    routed = Router(
        make_policy(name, PlainCosts()), [Worker(index, block_size=64, total_blocks=40) for index in range(3)], rng=rng
    )
    paths = random_paths(rng, 20)
    flying: dict[int, int] = {}
    freed: list[int] = []
    added, now = 3, 0
    for number in range(120):
        now += rng.randrange(50 * MS)
        known = rng.choice(sorted(flying)) if flying else None
        event = rng.random()
        if known is None or event < 0.45:
            path = rng.choice(paths)
            asked = RouteRequest(
                number, now, length(path) * 64 + 7, length(path), path, rng.choice([None, 50]), rng.choice([None, "s"])
            )
            overlap = Overlap({worker.index: rng.randrange(length(path) + 1) for worker in routed.workers})
            receipt = routed.route(asked, overlap, now)
            live = {worker.index for worker in routed.workers if worker.healthy and not worker.draining}
            assert receipt.refused == (not live)
            if live:
                assert receipt.worker in live
                assert {worker for worker, _ in receipt.costs} <= live
                flying[number] = receipt.worker
        elif event < 0.6:
            routed.first_token(known, now)
        elif event < 0.65:
            routed.progress(known, 3, now)
        elif event < 0.85:
            end = rng.choice([routed.ended, routed.aborted])
            assert end(known, now)
            assert not end(known, now)
            freed.append(known)
            del flying[known]
        elif event < 0.9:
            index = rng.choice([worker.index for worker in routed.workers] or [0])
            lost = routed.worker_removed(index, now)
            assert lost == [one for one, worker in flying.items() if worker == index]
            for one in lost:
                assert not routed.ended(one, now), "freed with its worker"
                freed.append(one)
                del flying[one]
        elif event < 0.95 and routed.workers:
            worker = rng.choice(routed.workers).index
            routed.worker_state(worker, healthy=rng.random() < 0.7, draining=rng.random() < 0.2)
        else:
            routed.worker_added(Worker(added, block_size=64, total_blocks=40))
            added += 1
        check_book(routed)
        assert len(routed.book) == len(flying)
    for one in list(flying):
        assert routed.ended(one, now)
        freed.append(one)
    assert len(freed) == len(set(freed))
    assert len(routed.book) == 0
    for index in range(added):
        load = routed.book.load(index)
        assert (load.requests, load.prefill_tokens, load.context_tokens, load.blocks, load.owed_s) == (0, 0, 0, 0, 0.0)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_decisions(name: str) -> None:
    def decide() -> list[object]:
        rng = Random(3)
        routed = router(make_policy(name, PlainCosts()), 5, seed=9)
        for number in range(200):
            now = number * MS
            routed.route(request(number, rng.randrange(40)), holds(w1=rng.randrange(3)), now)
            if number > 20:
                routed.first_token(number - 20, now)
                routed.ended(number - 10, now)
        return [*routed.receipts()]

    assert decide() == decide()


@pytest.mark.report(9)
@pytest.mark.parametrize("name", NAMES)
def test_a_dead_worker_is_not_chosen_however_much_it_holds(name: str) -> None:
    routed = router(make_policy(name, PlainCosts()), 3)
    routed.route(request(1, 10, path=((0, 10),), session="a"), holds(w1=10), 0)
    routed.worker_removed(1, MS)
    routed.worker_state(2, draining=True)
    for number in range(2, 12):
        assert routed.route(request(number, 10, path=((0, 10),), session="a"), holds(w1=10, w2=10), 2 * MS).worker == 0


@pytest.mark.report(24)
def test_a_health_check_changes_who_can_be_chosen_and_no_count() -> None:
    routed = router(LeastLoaded(), 2)
    for number in range(6):
        routed.route(request(number), now_ns=0)
    before = [routed.book.load(index).requests for index in (0, 1)]
    for healthy in (False, True, True):
        routed.worker_state(0, healthy=healthy)
        assert [routed.book.load(index).requests for index in (0, 1)] == before == [3, 3]
    assert routed.ended(0, S)


@pytest.mark.report(23)
@pytest.mark.parametrize("name", ["least-loaded", "power-of-two", "dynamo", "llm-d", "sglang", "tonnage"])
def test_streams_of_every_kind_are_load_so_that_no_worker_gets_everything(name: str) -> None:
    """A stream that never reports progress or a first token is counted as well as one that does."""
    routed = router(make_policy(name, PlainCosts()), 4)
    for number in range(80):
        routed.route(request(number, 0 if number % 2 else 10), now_ns=0)
        if number % 4 == 0:
            routed.first_token(number, 0)
    assert max(routed.book.load(index).requests for index in range(4)) <= 30


@pytest.mark.report(25)
def test_load_is_counted_from_dispatch_until_the_stream_ends_or_is_cut() -> None:
    routed = router(LeastLoaded(), 2)
    routed.route(request(1), now_ns=0)
    assert routed.route(request(2), now_ns=0).worker == 1 - routed.receipts()[0].worker, "before any prefill"
    for number in (1, 2):
        routed.first_token(number, MS)
        routed.progress(number, 10, 2 * MS)
    assert [routed.book.load(index).requests for index in (0, 1)] == [1, 1], "answering is not the end"
    routed.ended(1, 3 * MS)
    routed.aborted(2, 3 * MS)
    assert [routed.book.load(index).requests for index in (0, 1)] == [0, 0]


def test_an_id_in_flight_is_refused_and_booked_once() -> None:
    routed = router(RoundRobin())
    routed.route(request(1))
    with pytest.raises(ValueError, match="already in flight"):
        routed.route(request(1))
    assert len(routed.book) == 1


def test_workers_have_indexes_of_their_own() -> None:
    routed = router(RoundRobin())
    with pytest.raises(ValueError, match="already here"):
        routed.worker_added(Worker(1))
    with pytest.raises(KeyError):
        routed.worker_state(7, healthy=True)
    assert routed.worker_removed(7, 0) == []


def test_receipts_are_kept_in_a_bounded_ring() -> None:
    routed = Router(
        make_policy("dynamo"),
        [Worker(index, f"gpu-{index}", block_size=64) for index in range(6)],
        receipts=3,
    )
    for number in range(5):
        routed.route(request(number, 10), holds(w2=10), 0)
    assert [receipt.request_id for receipt in routed.receipts()] == [2, 3, 4]
    with pytest.raises(ValueError):
        Router(RoundRobin(), [], receipts=-1)


def test_a_receipt_is_written_out_on_demand_with_the_candidates_that_were_beaten() -> None:
    routed = router(make_policy("dynamo"), 6)
    receipt = routed.route(request(1, 10), Overlap({2: 8}, {2: 1}), 0)
    names = {worker.index: worker.name for worker in routed.workers}
    assert receipt.text(names) == (
        "request 1 to worker-2 by dynamo (prefix); holds 9 of 10 blocks (8 on the GPU, 1 in host memory, 0 on disk); "
        "cost in blocks: worker-2 11.25, worker-0 20, worker-1 20, worker-3 20 and 2 more"
    )
    assert "expected after 0.010 s" in router(make_policy("tonnage", PlainCosts())).route(request(1, 10)).text()


def test_a_refusal_says_so() -> None:
    receipt = router(RoundRobin(), 0).route(request(7))
    assert receipt.text() == "request 7 refused with 503 (no-worker) by round-robin"
