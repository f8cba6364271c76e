"""The policy that predicts seconds, one consideration at a time. A block costs a millisecond to compute."""

from __future__ import annotations

from random import Random

import pytest
from routing_builders import BLOCK, MS, PlainCosts, S, holds, request, router, tonnage, workers

from tonnage.errors import InputError
from tonnage.inference.routing import (
    CostParts,
    EngineCosts,
    Overlap,
    Router,
    StepCosts,
    Tonnage,
    TonnageSettings,
    Worker,
    make_policy,
    seconds,
)
from tonnage.inference.routing.book import Book
from tonnage.inference.timing import LinearTiming, PolynomialTiming


def plain(count: int = 2, **settings: float) -> Router:
    """Only what is asked for counts; ties go to the best alone."""
    weights = dict.fromkeys(("later_weight", "evict_weight", "decode_weight", "session_s", "tie_s", "tie_share"), 0.0)
    return router(tonnage(**(weights | settings)), count)


def costs(routed: Router) -> list[float]:
    return [cost for _, cost in routed.receipts()[-1].costs]


def test_the_cost_is_the_wait_and_the_prefill_left_after_hits() -> None:
    routed = plain()
    routed.book.dispatched(request(100, 20), 0, 0, prefill_tokens=20 * BLOCK, prefill_s=0.020)
    receipt = routed.route(request(1, 10), holds(w0=6), 5 * MS)
    assert costs(routed) == pytest.approx([0.020 - 0.005 + 0.004, 0.010])
    assert receipt.worker == 1
    assert receipt.predicted_s == pytest.approx(0.010)
    assert routed.book.load(1).owed_s == pytest.approx(0.010)


def test_a_hit_in_a_lower_tier_counts_by_what_it_saves() -> None:
    routed = plain(4, host_block_s=0.0002, disk_block_s=0.0005)
    overlap = Overlap({0: 2, 1: 2, 2: 2}, {1: 4}, {1: 1, 2: 4})
    routed.route(request(1, 10), overlap)
    assert costs(routed) == pytest.approx([0.008, 0.003 + 4 * 0.0002 + 0.0005, 0.004 + 4 * 0.0005, 0.010])


def test_a_tier_that_is_slower_than_computing_is_not_used() -> None:
    routed = plain(1, host_block_s=0.002)
    routed.route(request(1, 10), Overlap({}, {0: 10}))
    assert costs(routed) == pytest.approx([0.010])


def test_work_counts_more_the_busier_the_workers_are() -> None:
    routed = plain(1, later_weight=1.0)
    for number in range(1, 400):
        now = number * 20 * MS
        routed.route(request(number, 10), now_ns=now)
        if number == 1:
            assert costs(routed) == pytest.approx([0.010]), "nothing was busy"
        routed.first_token(number, now + 10 * MS)
        routed.ended(number, now + 10 * MS)
    own = 0.010
    assert costs(routed)[0] == pytest.approx(own * 2, rel=0.15), "half the time busy: as much again for those behind"


def test_prefill_in_the_way_of_running_sequences_costs() -> None:
    routed = plain(2, decode_weight=0.1)
    for number in (100, 101, 102):
        routed.book.dispatched(request(number, 0), 0, 0, prefill_tokens=0)
        routed.first_token(number, 0)
    routed.route(request(1, 10), now_ns=0)
    assert costs(routed) == pytest.approx([0.010 + 0.1 * 3 * 0.010, 0.010])


def test_evicting_costs_once_the_cache_was_filled_and_prompts_are_used_again() -> None:
    routed = router(
        tonnage(later_weight=0, decode_weight=0, tie_s=0, tie_share=0, evict_weight=1.0), 2, total_blocks=100
    )

    def pass_through_worker_0(number: int, overlap: Overlap) -> None:
        routed.worker_state(1, healthy=False)
        routed.route(request(number, 60, path=((0, 60),) if number > 2 else None), overlap, 0)
        routed.first_token(number, 0)
        routed.ended(number, 0)
        routed.worker_state(1, healthy=True)

    pass_through_worker_0(1, Overlap())
    pass_through_worker_0(2, Overlap())  # 120 blocks went to a cache of 100
    routed.route(request(3, 10), now_ns=0)
    assert costs(routed) == [0.010, 0.010], "nothing was ever used again, so nothing is lost"
    routed.ended(3, 0)
    pass_through_worker_0(4, holds(w0=60))
    routed.route(request(5, 10), now_ns=0)
    # 59 of 190 blocks were hits (a last one is always computed), and worker 0 was given all the new ones: twice the
    # mean of the two.
    assert costs(routed) == pytest.approx([0.010 + 59 / 190 * 2 * 0.010, 0.010])
    routed.cache_cleared(0)
    routed.route(request(6, 10), now_ns=0)
    assert routed.receipts()[-1].parts[-1][1].evict == 0.0, "an empty cache evicts nothing"


def test_a_kv_cache_that_is_all_in_use_makes_the_request_wait() -> None:
    routed = router(tonnage(tie_s=0.0, tie_share=0.0, evict_weight=0.0), 2, total_blocks=100)
    for number in range(100, 104):
        routed.book.dispatched(request(number, 24, expected_output=1000), 0, 0, prefill_tokens=0)
        routed.first_token(number, 0)
    assert routed.route(request(1, 10), holds(w0=10), 0).worker == 1


def test_a_hot_prefix_is_replicated_when_its_worker_is_too_busy_to_be_worth_it() -> None:
    routed = plain()
    held = holds(w0=90)
    receipts = [
        routed.route(request(number, 100, path=((0, 90), (1000 + number * 10, 1010 + number * 10))), held, 0)
        for number in range(12)
    ]
    assert receipts[0].worker == 0
    assert receipts[0].reason == "prefix"
    assert "replicate" in {receipt.reason for receipt in receipts}
    moved = next(index for index, receipt in enumerate(receipts) if receipt.worker == 1)
    assert moved == 10, "ten requests of ten milliseconds wait before ninety blocks are computed again"
    assert receipts[moved].text({0: "a", 1: "b"}).startswith(f"request {moved} to b by tonnage (replicate)")


def test_blocks_are_expected_where_a_prompt_was_sent_before_any_event_says_so() -> None:
    routed = plain(4)
    first = routed.route(request(1, 10, path=((0, 10),)), now_ns=0)
    routed.first_token(1, 20 * MS)
    routed.ended(1, 30 * MS)
    again = routed.route(request(2, 12, path=((0, 10), (50, 52))), now_ns=40 * MS)
    assert again.worker == first.worker
    assert again.reason == "prefix"
    assert routed.book.load(again.worker).prefill_tokens == 2 * BLOCK


def test_the_session_is_a_bonus_and_not_a_rule() -> None:
    routed = plain(4, session_s=0.005)
    first = routed.route(request(1, 3, session="a"), now_ns=0).worker
    routed.first_token(1, 10 * MS)
    routed.ended(1, 10 * MS)
    second = routed.route(request(2, 3, session="a"), now_ns=20 * MS)
    assert (second.worker, second.reason) == (first, "session")
    third = routed.route(request(3, 3, session="a"), now_ns=20 * MS)
    assert third.worker == first, "three milliseconds of queue are less than the bonus"
    assert routed.route(request(4, 3, session="a"), now_ns=20 * MS).worker != first


@pytest.mark.report(7)
def test_the_second_turn_follows_its_prefix_though_all_workers_look_alike() -> None:
    for seed in range(20):
        routed = router(tonnage(), 2, seed)
        first = routed.route(request(1, 10, path=((0, 10),), session="chat"), now_ns=0)
        routed.first_token(1, 20 * MS)
        routed.ended(1, 900 * MS)
        second = routed.route(request(2, 14, path=((0, 10), (20, 24)), session="chat"), now_ns=S)
        assert second.worker == first.worker


def test_near_equal_workers_are_drawn_and_the_less_loaded_of_two_is_taken() -> None:
    seen = set()
    for seed in range(40):
        routed = router(tonnage(), 3, seed)
        routed.book.dispatched(request(100, 0), 2, 0, prefill_tokens=0)
        seen.add(routed.route(request(1, 10), now_ns=0).worker)
    assert seen == {0, 1}


def test_an_adapter_is_looked_for_where_it_is_loaded_and_only_where_it_can_be() -> None:
    pool = [
        Worker(0, block_size=BLOCK),
        Worker(1, block_size=BLOCK, max_loras=2),
        Worker(2, block_size=BLOCK, max_loras=2),
    ]
    pool[2].loras = frozenset({"sql"})
    routed = Router(tonnage(lora_load_s=0.5), pool, rng=Random(0))
    receipt = routed.route(request(1, 10, lora="sql"), now_ns=0)
    assert (receipt.worker, receipt.reason) == (2, "lora")
    assert dict(receipt.costs)[1] == pytest.approx(0.510, abs=0.001)
    assert {worker for worker, _ in receipt.costs} == {1, 2}
    assert routed.route(request(2, 10, lora="chat"), now_ns=0).worker == 1
    assert routed.route(request(3, 10, lora="chat"), now_ns=0).worker == 1, "requests in flight have it loaded"


@pytest.mark.report(35)
def test_a_worker_that_slows_down_is_left_alone_until_it_makes_progress_again() -> None:
    """Uniform requests at four fifths of the capacity; one of four workers stops for two seconds."""
    routed = router(tonnage(), 4)
    done = [0] * 4  # when each worker is through with what it was given
    pending: list[tuple[int, int]] = []
    late = sent = 0
    for number in range(1_000):
        now = number * 4 * MS
        for end, ended in sorted(pending):
            if end <= now:
                routed.first_token(ended, end)
                routed.ended(ended, end)
        pending = [(end, other) for end, other in pending if end > now]
        worker = routed.route(request(number, 12), now_ns=now).worker
        stalled = worker == 0 and S <= max(now, done[0]) < 3 * S
        done[worker] = (3 * S if stalled else max(now, done[worker])) + 12 * MS
        pending.append((done[worker], number))
        sent += S + 200 * MS <= now < 3 * S
        late += S + 200 * MS <= now < 3 * S and worker == 0
    assert sent == 450
    assert late <= 5, "the stalled worker gets next to nothing"
    after = [receipt.worker for receipt in routed.receipts()[-100:]]
    assert after.count(0) >= 10, "it is used again once it works"


@pytest.mark.report(36)
def test_how_much_locality_counts_is_a_setting_that_a_log_can_fit() -> None:
    chosen = {}
    for weight in (0.0, 4.0):
        routed = plain(2, decode_weight=weight)
        routed.book.dispatched(request(100, 0), 1, 0, prefill_tokens=0)
        routed.first_token(100, 0)
        routed.book.dispatched(request(101, 8), 0, 0, prefill_tokens=8 * BLOCK, prefill_s=0.008)
        chosen[weight] = routed.route(request(1, 10), holds(w0=5), 0).worker
    assert chosen == {0.0: 1, 4.0: 0}
    assert all(isinstance(getattr(TonnageSettings(), field), float) for field in TonnageSettings.__struct_fields__)


@pytest.mark.report(36)
def test_a_worker_that_joins_late_gets_its_share_of_cold_requests() -> None:
    routed = router(tonnage(), 3)
    for number in range(60):
        routed.route(request(number, 10), now_ns=number * MS)
    routed.worker_added(Worker(3, block_size=BLOCK))
    late = [routed.route(request(number, 10), now_ns=number * MS).worker for number in range(60, 90)]
    assert late.count(3) >= 20, "it is the idle one"


@pytest.mark.parametrize("field", TonnageSettings.__struct_fields__)
@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_weights_that_make_no_sense_are_refused(field: str, value: float) -> None:
    with pytest.raises(InputError, match=field):
        TonnageSettings(**{field: value})


def test_memory_of_no_time_is_refused() -> None:
    with pytest.raises(InputError, match="busy_memory_s"):
        TonnageSettings(busy_memory_s=0.0)


def test_seconds_come_from_the_engines_own_timing_chunk_by_chunk() -> None:
    linear = EngineCosts(LinearTiming(1_000_000, 10_000, 100, 1), 100)
    # Two chunks: 100 after 50 cached, 30 after 150.
    first = 1_000_000 + 100 * 10_000 + 50 * 100 + (100 * 50 + 100 * 101 // 2)
    second = 1_000_000 + 30 * 10_000 + 150 * 100 + (30 * 150 + 30 * 31 // 2)
    assert linear.prefill_s(130, 50) == pytest.approx((first + second) * 1e-12)
    assert linear.prefill_s(0, 50) == 0
    assert linear.decode_s(0, 0) == 0
    assert linear.decode_s(2, 70) == pytest.approx((1_000_000 + 2 * 10_000 + 70 * 100 + 72) * 1e-12)
    batch = EngineCosts(PolynomialTiming(1_000_000), 2048)
    assert batch.prefill_s(4096, 0) == pytest.approx(0.09873, rel=1e-3)
    with pytest.raises(ValueError, match="chunks"):
        EngineCosts(PolynomialTiming(1), 0)


def test_workers_that_leave_take_what_was_expected_of_them_along() -> None:
    routed = plain(2)
    routed.route(request(1, 10, path=((0, 10),)), now_ns=0)
    gone = routed.receipts()[-1].worker
    assert routed.worker_removed(gone, MS) == [1]
    routed.worker_added(Worker(5, block_size=BLOCK))
    routed.route(request(2, 10, path=((0, 10),)), now_ns=MS)
    assert costs(routed) == pytest.approx([0.010, 0.010])


class Slower(PlainCosts):
    """Four times as slow."""

    def prefill_s(self, tokens: int, context: int) -> float:
        return 4 * super().prefill_s(tokens, context)


def test_each_worker_is_judged_by_the_times_of_its_own_engine() -> None:
    engines: dict[int, StepCosts] = {0: Slower(), 1: PlainCosts()}
    settings = TonnageSettings(later_weight=0, decode_weight=0, tie_s=0, tie_share=0)
    policy = Tonnage(settings=settings, costs_of=engines.__getitem__)
    routed = router(policy, 2)
    receipt = routed.route(request(1, 10), holds(w0=5), 0)
    assert dict(receipt.costs) == pytest.approx({0: 4 * 0.005, 1: 0.010})
    assert receipt.worker == 1
    assert receipt.predicted_s == pytest.approx(0.010)
    assert routed.book.load(1).owed_s == pytest.approx(0.010)
    assert routed.route(request(2, 10), holds(w0=8), 0).worker == 0, "8 ms there are less than 20 ms of waiting here"
    made = make_policy("tonnage", costs_of=engines.__getitem__)
    assert isinstance(made, Tonnage) and [made.costs_of(index) for index in (0, 1)] == list(engines.values())
    for wrong in ({}, {"costs": PlainCosts(), "costs_of": engines.__getitem__}):
        with pytest.raises(ValueError, match="times of the engines"):
            Tonnage(**wrong)  # type: ignore[arg-type]


def test_what_a_worker_says_of_its_tiers_counts_before_the_settings() -> None:
    pool = workers(2)
    pool[0].host_block_s, pool[0].disk_block_s = 0.0001, 0.0004
    routed = Router(tonnage(later_weight=0, host_block_s=0.0005, disk_block_s=0.0009), pool)
    routed.route(request(1, 10), Overlap({}, {0: 4, 1: 4}, {0: 2, 1: 2}))
    assert costs(routed) == pytest.approx([0.004 + 4 * 0.0001 + 2 * 0.0004, 0.004 + 4 * 0.0005 + 2 * 0.0009])


def test_what_a_full_gpu_evicts_is_not_lost_while_a_tier_below_has_room() -> None:
    for lower, lost in ((0, True), (200, False)):
        routed = router(tonnage(later_weight=0, decode_weight=0), 1, total_blocks=100, lower_blocks=lower)
        for number in range(3):
            overlap = Overlap({0: 30}) if number == 2 else Overlap()
            routed.route(request(number, 60, path=((0, 30), (100 * number + 100, 100 * number + 130))), overlap)
            routed.first_token(number, 0)
            routed.ended(number, 0)
        routed.route(request(9, 10))
        assert (routed.receipts()[-1].parts[0][1].evict > 0) == lost
        inside = routed.route(request(10, 10), Overlap({}, {0: 9}))
        assert inside.parts[0][1].evict < 0.001, "blocks from a tier push nothing out of it"


def test_tiers_cannot_spare_the_block_of_the_last_token() -> None:
    routed = plain(1, host_block_s=0.0002)
    routed.route(request(1, 10), Overlap({0: 3}, {0: 7}))
    assert costs(routed) == pytest.approx([0.001 + 6 * 0.0002])


def test_sessions_are_forgotten_with_their_worker_and_the_oldest_when_there_are_too_many() -> None:
    policy = tonnage()
    routed = router(policy, 2)
    for number in range(3):
        routed.route(request(number, 1, session=f"s{number}"), now_ns=0)
    gone = policy._sessions["s0"]
    routed.worker_removed(gone, 0)
    assert "s0" not in policy._sessions
    assert gone not in policy._sessions.values()
    most = seconds._SESSIONS
    try:
        seconds._SESSIONS = 5
        for number in range(10, 30):
            routed.route(request(number, 1, session=f"s{number}"), now_ns=0)
            routed.route(request(100 + number, 1, session="kept"), now_ns=0)
    finally:
        seconds._SESSIONS = most
    assert list(policy._sessions) == ["s26", "s27", "s28", "s29", "kept"]


def test_a_choice_that_is_not_taken_leaves_nothing_behind() -> None:
    """What is booked is the choice that is handed back, not the last one that was made."""
    policy = plain().policy
    assert isinstance(policy, Tonnage)
    pool, book, rng = workers(2), Book(), Random(0)
    first = policy.choose(request(1, 10), holds(w0=6), pool, book, 0, rng)
    policy.choose(request(2, 10), Overlap(), pool, book, 0, rng)
    policy.dispatched(request(1, 10), first, 0)
    assert (first.held, policy._hits, policy._inserted) == (6, 6.0, {0: 4.0})


def test_the_parts_of_a_receipt_add_up_to_its_costs_and_can_be_read() -> None:
    rng = Random(3)
    routed = router(tonnage(), 4, total_blocks=60)
    for number in range(300):
        now = number * 3 * MS
        held = Overlap({rng.randrange(4): rng.randrange(12)})
        asked = request(number, rng.randrange(1, 15), session=f"s{number % 7}")
        receipt = routed.route(asked, held, now)
        by_cost = sorted(receipt.costs, key=lambda pair: pair[1])
        assert receipt.parts[0][0] == receipt.worker
        assert len({worker for worker, _ in receipt.parts}) == 2
        assert by_cost[0][0] in {worker for worker, _ in receipt.parts}, "the best is shown, chosen or not"
        for worker, parts in receipt.parts:
            assert parts.total == pytest.approx(dict(receipt.costs)[worker])
            shown = parts.text().replace(" - ", " + -").split(" + ")
            numbers = [float(term.split()[1]) * (-1 if term.startswith("-") else 1) for term in shown]
            assert sum(numbers) == pytest.approx(parts.total, abs=2e-3)
            assert f"worker {worker}: {parts.text()} = {parts.total:.4g}" in receipt.text()
        if number >= 12:
            routed.first_token(number - 12, now)
            routed.ended(number - 12, now)
    spent = [parts for receipt in routed.receipts() for _, parts in receipt.parts]
    assert all(any(getattr(parts, name) for parts in spent) for name in CostParts.__struct_fields__)


def test_without_predictions_of_its_own_only_the_overlap_counts() -> None:
    path = ((0, 10),)
    for predicts in (True, False):
        routed = router(Tonnage(PlainCosts(), predicts=predicts), 1)
        routed.route(request(1, 10, path=path), now_ns=0)
        routed.first_token(1, 0)
        again = routed.route(request(2, 10, path=path), now_ns=0)
        assert again.predicted_s == pytest.approx(0.001 if predicts else 0.010)
        routed.ended(1, 0)
        routed.worker_removed(0, 0)


def test_a_delayed_sequence_counts_with_the_later_requests_it_is_in_the_way_of() -> None:
    """Half the time busy: what is delayed delays as much again behind it."""

    def decode(weight: float, busy: bool) -> float:
        routed = plain(1, later_weight=1.0, decode_weight=weight)
        now = 0
        for number in range(1, 400 if busy else 2):
            now = number * 20 * MS
            routed.route(request(number, 10), now_ns=now)
            routed.first_token(number, now + 10 * MS)
            routed.ended(number, now + 10 * MS)
        for number in (1_000, 1_001, 1_002):
            routed.book.dispatched(request(number, 0), 0, now, prefill_tokens=0)
            routed.first_token(number, now)
        made = dict(routed.route(request(2_000, 10), now_ns=now + 20 * MS).parts)[0]
        assert made.decode == pytest.approx(weight * 3 * (made.own + made.later))
        return made.decode

    assert decode(0.1, busy=True) == pytest.approx(2 * 0.1 * 3 * 0.010, rel=0.15)
    assert decode(0.1, busy=False) == pytest.approx(0.1 * 3 * 0.010, rel=0.02)
    assert decode(0.0, busy=True) == 0


@pytest.mark.parametrize("seed", range(3))
def test_requests_without_a_prompt_to_speak_of_do_not_pile_up_on_one_worker(seed: int) -> None:
    routed = router(tonnage(), 4, seed)
    for number in range(80):
        routed.route(request(number, 0 if number % 2 else 10), now_ns=0)
        if number % 4 == 0:
            routed.first_token(number, 0)
    assert max(routed.book.load(index).requests for index in range(4)) <= 30
