"""Policies that look at load, and those of other routers by their published formulas."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from routing_builders import BLOCK, MS, PlainCosts, holds, request, router, workers

from tonnage.errors import InputError
from tonnage.inference.routing import NAMES, Overlap, RouteRequest, RoutingPolicy, Worker, make_policy
from tonnage.inference.routing.book import Book
from tonnage.inference.routing.peers import Dynamo, DynamoSettings, LlmD, LlmDSettings, SgLang, SgLangSettings
from tonnage.inference.routing.policies import LeastLoaded, PowerOfTwo, RoundRobin


def busy(book: Book, worker: int, *, requests: int = 1, blocks: int = 0, start: int = 1_000) -> None:
    for number in range(start + worker * 1_000, start + worker * 1_000 + requests):
        book.dispatched(request(number, blocks), worker, 0, prefill_tokens=blocks * BLOCK)


def test_round_robin_takes_turns_and_stays_in_step_when_workers_come_and_go() -> None:
    routed = router(RoundRobin(), 3)
    order = [routed.route(request(number)).worker for number in range(4)]
    routed.worker_removed(1, 0)
    order += [routed.route(request(number)).worker for number in range(4, 7)]
    routed.worker_added(Worker(3))
    order += [routed.route(request(number)).worker for number in range(7, 11)]
    assert order == [0, 1, 2, 0, 2, 0, 2, 3, 0, 2, 3]


def test_least_loaded_takes_the_fewest_requests_then_the_fewest_tokens() -> None:
    book = Book()
    busy(book, 0, requests=2)
    busy(book, 1, blocks=9)
    busy(book, 2, blocks=5)
    choice = LeastLoaded().choose(request(1), Overlap(), workers(3), book, 0, Random(0))
    assert choice.worker == 2
    assert choice.costs == ((0, 2.0), (1, 1.0), (2, 1.0))


def test_power_of_two_never_takes_the_worst_of_three() -> None:
    book = Book()
    busy(book, 1, requests=1)
    busy(book, 2, requests=9)
    chosen = {
        PowerOfTwo().choose(request(1), Overlap(), workers(3), book, 0, Random(seed)).worker for seed in range(50)
    }
    assert chosen == {0, 1}
    assert PowerOfTwo().choose(request(1), Overlap(), workers(1), book, 0, Random(0)).worker == 0


@pytest.mark.parametrize("name", NAMES)
def test_uniform_requests_spread_over_all_workers(name: str) -> None:
    routed = router(make_policy(name, PlainCosts()), 8)
    now = 0
    for number in range(400):
        now += 5 * MS
        routed.route(request(number, 20), Overlap(), now)
        if number >= 16:  # sixteen run side by side
            routed.first_token(number - 16, now)
            routed.ended(number - 16, now)
    counts = Counter(receipt.worker for receipt in routed.receipts())
    assert len(counts) == 8
    most = 75 if name == "random" else 65
    assert max(counts.values()) <= most
    assert min(counts.values()) >= (25 if name == "random" else 35)


# --- dynamo -----


def test_dynamo_adds_the_prefill_left_after_hits_to_the_decode_blocks() -> None:
    book = Book()
    # 30 blocks in flight on worker 0, 20 of them to compute: (20 + 10 - 4) + (30 + 10) = 66
    book.dispatched(request(100, 30), 0, 0, prefill_tokens=20 * BLOCK)
    # Worker 1 computes nothing: (0 + 10 - 0) + (25 + 10) = 45
    book.dispatched(request(101, 25), 1, 0, prefill_tokens=25 * BLOCK)
    book.first_token(101, MS)
    choice = Dynamo().choose(request(1, 10), holds(w0=4), workers(2), book, MS, Random(0))
    assert choice.costs == ((0, 66.0), (1, 45.0))
    assert choice.worker == 1
    assert choice.prefill_tokens == 10 * BLOCK


def test_dynamo_counts_a_prefix_that_others_decode_once() -> None:
    book = Book()
    book.dispatched(request(100, 30, path=((0, 30),)), 0, 0, prefill_tokens=0)
    shared = request(1, 10, path=((0, 8), (50, 52)))
    choice = Dynamo().choose(shared, holds(w0=8), workers(1), book, 0, Random(0))
    assert choice.costs == ((0, (10 - 8) + (30 + 10 - 8)),)
    assert choice.prefill_tokens == 2 * BLOCK


def test_dynamo_counts_the_last_part_of_a_block_as_prefill_but_not_as_a_block() -> None:
    ragged = RouteRequest(1, 0, 10 * BLOCK + 32, 10, ((0, 10),))
    choice = Dynamo().choose(ragged, holds(w0=10), workers(1), Book(), 0, Random(0))
    assert choice.costs == ((0, 0.5 + 10),)
    assert choice.prefill_tokens == 32


def test_dynamo_weighs_lower_tiers_and_floors_the_prefill_at_zero() -> None:
    overlap = Overlap({0: 4}, {0: 4}, {0: 2})
    choice = Dynamo().choose(request(1, 10), overlap, workers(1), Book(), 0, Random(0))
    assert choice.costs == ((0, (10 - 4 - 0.75 * 4 - 0.25 * 2) + 10),)
    over = Dynamo().choose(request(1, 10), holds(w0=12), workers(1), Book(), 0, Random(0))
    assert over.costs == ((0, 10.0),)


def test_dynamo_lets_the_credit_decay_with_the_prefill_above_the_least() -> None:
    book = Book()
    busy(book, 0, blocks=40)
    settings = DynamoSettings(overlap_score_credit_decay=1.0, prefill_load_scale=2.0, decode_active_request_weight=3.0)
    choice = Dynamo(settings).choose(request(1, 10), holds(w0=10, w1=10), workers(2), book, 0, Random(0))
    # 40 blocks of excess over a request of 10 blocks: the credit is 10 / (1 + 4) = 2.
    assert choice.costs == ((0, 2 * (40 + 10 - 2) + (40 + 10) + 3.0), (1, 2 * 0.0 + 10))


def test_dynamo_draws_among_equal_workers() -> None:
    drawn = {Dynamo().choose(request(1), Overlap(), workers(3), Book(), 0, Random(seed)).worker for seed in range(40)}
    assert drawn == {0, 1, 2}


@pytest.mark.parametrize("field", ["overlap_score_credit", "prefill_load_scale"])
def test_dynamo_refuses_weights_that_it_would_refuse(field: str) -> None:
    with pytest.raises(InputError, match=field):
        DynamoSettings(**{field: -1.0})
    with pytest.raises(InputError, match="from 0 to 1"):
        DynamoSettings(overlap_score_credit=1.5)


# --- llm-d -----


def test_llm_d_sums_its_scorers_by_weight() -> None:
    book = Book()
    busy(book, 0, requests=4, blocks=2)
    busy(book, 1, requests=1, blocks=20)
    pool = workers(3, total_blocks=100)
    choice = LlmD().choose(request(1, 10), holds(w0=10, w1=5), pool, book, 0, Random(0))
    scores = [-cost for _, cost in choice.costs]
    assert scores == pytest.approx(
        [2 * 0 + 2 * (1 - 0.08) + 3 * 1.0, 2 * 0.75 + 2 * (1 - 0.2) + 3 * 0.5, 2 * 1.0 + 2 * 1.0 + 3 * 0]
    )
    assert choice.worker == 0


def test_llm_d_finds_equal_queues_all_best() -> None:
    choice = LlmD().choose(request(1, 10), holds(w1=1), workers(2), Book(), 0, Random(0))
    assert [-cost for _, cost in choice.costs] == pytest.approx([4.0, 4.3])


def test_llm_d_scores_adapters_active_then_room_then_waiting() -> None:
    book = Book()
    book.dispatched(request(100, 0, lora="sql"), 0, 0, prefill_tokens=0)
    book.dispatched(request(101, 0, lora="chat"), 1, 0, prefill_tokens=0)
    book.dispatched(request(102, 0, lora="chat"), 2, 0, prefill_tokens=0)
    pool = [Worker(0, max_loras=1), Worker(1, max_loras=2), Worker(2, max_loras=1), Worker(3)]
    asked = request(1, 0, lora="sql")
    only = LlmDSettings(queue=0, kv_utilization=0, prefix=0, lora=1)
    choice = LlmD(only).choose(asked, Overlap(), pool, book, 0, Random(0))
    assert [-cost for _, cost in choice.costs] == [1.0, 0.8, 0.6, 0.0]


# --- sglang -----


def test_sglang_follows_a_match_above_its_threshold_while_loads_are_close() -> None:
    book = Book()
    busy(book, 0, requests=60)
    assert SgLang().choose(request(1, 10), holds(w0=4), workers(2), book, 0, Random(0)).worker == 0
    assert SgLang().choose(request(1, 10), holds(w0=3), workers(2), book, 0, Random(0)).worker == 1


def test_sglang_goes_by_load_when_both_thresholds_are_passed() -> None:
    book = Book()
    busy(book, 0, requests=65)
    assert SgLang().choose(request(1, 10), holds(w0=10), workers(2), book, 0, Random(0)).worker == 1
    busy(book, 1, requests=50)
    assert SgLang().choose(request(1, 10), holds(w0=10), workers(2), book, 0, Random(0)).worker == 0


def test_sglang_gives_cold_requests_to_the_smallest_tree_in_which_shared_blocks_count_once() -> None:
    routed = router(SgLang(), 2)
    first = routed.route(request(1, 50, path=((0, 50),)), Overlap(), 0).worker
    assert routed.route(request(2, 40, path=((100, 140),)), Overlap(), MS).worker == 1 - first
    again = Overlap({1 - first: 40})
    assert routed.route(request(3, 45, path=((100, 140), (200, 205))), again, MS).worker == 1 - first
    # 50 blocks here and 45 there, though more requests are in flight there.
    assert routed.route(request(4, 10), Overlap(), MS).worker == 1 - first


def test_sglang_forgets_the_oldest_of_a_tree_that_is_too_large() -> None:
    policy = SgLang(SgLangSettings(max_tree_size=100 * BLOCK * 4))
    routed = router(policy, 1)
    for number in range(20):
        routed.route(request(number, 30), Overlap(), 0)
    assert policy._trees[0].blocks == 90
    assert len(policy._trees[0]._ends) == 3


def restarted(policy: RoutingPolicy) -> list[int]:
    """How many of 60 cold requests that come at once each of three workers gets, one of which is new."""
    routed = router(policy, 3)
    for number in range(300):
        at = number * 60 * MS
        routed.route(request(number, 50), Overlap(), at)
        routed.first_token(number, at + 50 * MS)
        routed.ended(number, at + 50 * MS)
    routed.worker_removed(1, 18_000 * MS)
    routed.worker_added(Worker(3, block_size=BLOCK))
    for number in range(300, 360):
        routed.route(request(number, 50), Overlap(), 18_000 * MS)
    return [routed.book.load(index).requests for index in (0, 2, 3)]


@pytest.mark.report(22)
def test_cold_requests_do_not_pile_up_on_a_worker_with_an_empty_cache() -> None:
    loads = restarted(make_policy("tonnage", PlainCosts()))
    assert max(loads) - min(loads) <= 1
    assert restarted(SgLang()) == [0, 0, 60], "the published rule: its tree is the smallest, whatever waits there"


@pytest.mark.report(26)
def test_locality_still_counts_among_the_least_loaded_when_loads_are_apart() -> None:
    book = Book()
    for worker, count in enumerate((100, 3, 2)):
        for number in range(count):
            booked = request(1_000 * worker + 1_000 + number, 5)
            book.dispatched(booked, worker, 0, prefill_tokens=5 * BLOCK, prefill_s=0.005)
    held = holds(w0=10, w1=8)
    ours = make_policy("tonnage", PlainCosts()).choose(request(1, 10), held, workers(3), book, 0, Random(0))
    assert ours.worker == 1
    theirs = SgLang().choose(request(1, 10), held, workers(3), book, 0, Random(0))
    assert theirs.worker == 2, "the published rule: the shortest queue, whatever is cached where"


# --- what a cache spares at most -----


@pytest.mark.parametrize(("tokens", "left"), [(10 * BLOCK, BLOCK), (10 * BLOCK + 1, 1), (10 * BLOCK - 1, BLOCK - 1)])
@pytest.mark.parametrize("name", ["round-robin", "least-loaded", "llm-d", "sglang", "tonnage"])
def test_the_block_of_the_last_token_is_always_computed(name: str, tokens: int, left: int) -> None:
    whole = RouteRequest(1, 0, tokens, tokens // BLOCK, ((0, tokens // BLOCK),))
    policy = make_policy(name, PlainCosts())
    choice = policy.choose(whole, holds(w0=tokens // BLOCK), workers(1), Book(), 0, Random(0))
    assert choice.prefill_tokens == left


# --- by name -----


def test_every_policy_is_made_by_its_name() -> None:
    assert [make_policy(name, PlainCosts()).name for name in NAMES] == list(NAMES)
    assert set(NAMES) == {
        "round-robin", "random", "least-loaded", "power-of-two", "dynamo", "llm-d", "sglang", "tonnage",
    }  # fmt: skip


def test_an_unknown_policy_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(InputError, match=r"'fastest'.*one of round-robin"):
        make_policy("fastest")


def test_the_policy_that_predicts_seconds_is_refused_without_a_timing() -> None:
    with pytest.raises(InputError, match="no timing of the engine"):
        make_policy("tonnage")
