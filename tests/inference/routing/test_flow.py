"""Who waits, who goes next, who is turned away and with which status."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from routing_builders import BLOCK, MS, S, holds, request, router, workers

from tonnage.errors import InputError
from tonnage.inference.routing import FlowControl, FlowSettings, Overlap, Router, RouteRequest, Worker, make_policy
from tonnage.inference.routing.fairness import FairQueue
from tonnage.inference.routing.policies import LeastLoaded
from tonnage.inference.routing.saturation import Saturation, SaturationSettings


def flow(count: int = 1, **settings: object) -> FlowControl:
    """Workers that are full with two requests that have no first token."""
    fields = {"saturation": SaturationSettings(waiting=2)} | settings
    return FlowControl(router(LeastLoaded(), count), FlowSettings(**fields))  # type: ignore[arg-type]


def fill(control: FlowControl, now_ns: int = 0) -> None:
    for number in range(900, 902):
        receipt = control.offer(request(number), now_ns)
        assert receipt is not None and not receipt.refused


def finish(control: FlowControl, number: int, now_ns: int) -> list[int]:
    control.router.first_token(number, now_ns)
    control.router.ended(number, now_ns)
    return [receipt.request_id for receipt in control.pump(now_ns)]


# --- statuses -----


def test_a_request_is_routed_at_once_while_there_is_room() -> None:
    receipt = flow().offer(request(1), 0)
    assert receipt is not None
    assert (receipt.worker, receipt.status) == (0, 200)


def test_a_request_waits_while_every_worker_is_full_and_goes_when_one_has_room() -> None:
    control = flow()
    fill(control)
    assert control.offer(request(1), 0) is None
    assert control.pump(MS) == []
    assert finish(control, 900, 2 * MS) == [1]
    assert control.waiting == 0


def test_a_sheddable_request_does_not_wait() -> None:
    control = flow()
    fill(control)
    receipt = control.offer(request(1, priority=-1), 0)
    assert receipt is not None
    assert (receipt.status, receipt.reason) == (429, "saturated")


def test_a_full_queue_refuses_unless_something_less_urgent_can_be_displaced() -> None:
    control = flow(queue_requests=2)
    fill(control)
    assert control.offer(request(1, priority=0), 0) is None
    assert control.offer(request(2, priority=0), 0) is None
    refused = control.offer(request(3, priority=0), 0)
    assert refused is not None
    assert (refused.status, refused.reason) == (429, "queue-full")
    assert control.offer(request(4, priority=5), 0) is None
    assert [(one.request_id, one.status) for one in control.take_refused(0)] == [(2, 429)]
    assert control.waiting == 2


@pytest.mark.report(19)
def test_no_worker_at_all_is_503_and_not_429() -> None:
    control = flow()
    control.router.worker_state(0, healthy=False)
    for priority in (-1, 0, 1):
        receipt = control.offer(request(10 + priority, priority=priority), 0)
        assert receipt is not None
        assert (receipt.status, receipt.reason) == (503, "no-worker")
    assert router(LeastLoaded(), 0).route(request(1)).status == 503


def test_a_request_that_waits_too_long_is_503() -> None:
    control = flow(queue_s=1.0)
    fill(control)
    control.offer(request(1), 0)
    control.offer(request(2), 500 * MS)
    assert control.take_refused(S - 1) == []
    expired = control.take_refused(S)
    assert [(one.request_id, one.status, one.reason) for one in expired] == [(1, 503, "expired")]
    assert finish(control, 900, S) == [2]


def test_a_request_whose_client_went_away_leaves_the_queue() -> None:
    control = flow(queue_s=1.0)
    fill(control)
    control.offer(request(1), 0)
    assert control.cancel(1)
    assert not control.cancel(1)
    assert control.take_refused(2 * S) == []


def test_a_request_cannot_be_offered_twice() -> None:
    control = flow()
    fill(control)
    control.offer(request(1), 0)
    for number in (1, 900):
        with pytest.raises(ValueError, match="already here"):
            control.offer(request(number), 0)


# --- what is full -----


@pytest.mark.report(18)
def test_saturation_sees_what_is_in_flight_though_no_metric_was_ever_scraped() -> None:
    control = flow(count=2)
    for number in range(4):
        assert control.offer(request(number), 0) is not None
    assert control.offer(request(4), 0) is None


@pytest.mark.report(21)
def test_a_burst_between_two_scrapes_does_not_overshoot() -> None:
    worker, settings = Worker(0, total_blocks=100), SaturationSettings(waiting=5)
    saturation, book = Saturation(settings), router(LeastLoaded(), 1).book
    saturation.scraped(0, 3, 0.1, 0)
    levels = []
    for number in range(3):
        levels.append(saturation.level(worker, book.load(0), MS))
        saturation.sent(0, request(number, 10))
    assert levels == pytest.approx([3 / 5, 4 / 5, 5 / 5])
    saturation.scraped(0, 0, 0.1, 50 * MS)
    assert saturation.level(worker, book.load(0), 50 * MS) == pytest.approx(0.1 / 0.8)


def test_blocks_sent_since_the_scrape_count_as_used() -> None:
    saturation = Saturation(SaturationSettings(kv_share=0.8))
    saturation.scraped(0, 0, 0.5, 0)
    saturation.sent(0, request(1, 40))
    level = saturation.level(Worker(0, total_blocks=100), router(LeastLoaded(), 1).book.load(0), MS)
    assert level == pytest.approx(0.9 / 0.8)


def test_a_stale_scrape_is_not_believed() -> None:
    saturation = Saturation(SaturationSettings(stale_s=1.0))
    saturation.scraped(0, 50, 1.0, 0)
    load = router(LeastLoaded(), 1).book.load(0)
    assert saturation.level(Worker(0), load, S) > 1
    assert saturation.level(Worker(0), load, S + 1) == 0
    saturation.scraped(0, 50, 1.0, S)
    saturation.removed(0)
    assert saturation.level(Worker(0), load, S) == 0


# --- what happens to workers meanwhile -----


@pytest.mark.report(20)
def test_a_request_that_was_admitted_keeps_its_place_when_the_workers_vanish_before_dispatch() -> None:
    control = flow()
    fill(control)
    control.offer(request(1), 0)
    control.router.worker_state(0, healthy=False)
    assert finish(control, 900, MS) == [], "there is nowhere to go, and that is not an error of the request"
    assert control.take_refused(MS) == []
    control.router.worker_state(0, healthy=True)
    assert [receipt.request_id for receipt in control.pump(2 * MS)] == [1]


@pytest.mark.report(20)
def test_a_dispatched_request_whose_worker_dies_goes_first_to_another() -> None:
    control = flow(count=2)
    for number in range(4):
        control.offer(request(number), 0)
    assert control.offer(request(4), 0) is None
    lost = control.worker_removed(0, MS)
    assert len(lost) == 2
    for number in reversed(lost):
        control.again(request(number), MS)
    left = sorted({0, 1, 2, 3} - set(lost))
    assert finish(control, left[0], 2 * MS) == [lost[0]]
    assert finish(control, left[1], 3 * MS) == [lost[1]]
    assert finish(control, lost[0], 4 * MS) == [4]


@pytest.mark.report(17)
def test_a_policy_that_needs_to_know_caches_is_not_run_blind() -> None:
    for name in ("dynamo", "llm-d", "sglang"):
        with pytest.raises(InputError, match="without knowing what workers hold"):
            FlowControl(router(make_policy(name)), FlowSettings())
        FlowControl(router(make_policy(name)), FlowSettings(), lambda asked: Overlap())


def test_what_workers_hold_is_asked_when_a_request_goes_not_when_it_comes() -> None:
    asked = []

    def lookup(one: RouteRequest) -> Overlap:
        asked.append(one.request_id)
        return holds(w0=len(asked))

    control = FlowControl(router(LeastLoaded(), 1), FlowSettings(saturation=SaturationSettings(waiting=2)), lookup)
    fill(control)
    control.offer(request(1), 0)
    assert asked == [900, 901]
    control.router.ended(900, MS)
    assert control.pump(MS)[0].device == 3


@pytest.mark.parametrize("field", ["queue_requests", "queue_s", "quantum_tokens"])
def test_settings_that_make_no_sense_are_refused(field: str) -> None:
    with pytest.raises(InputError, match=field):
        FlowSettings(**{field: -1})


def test_a_saturation_that_is_always_reached_is_refused() -> None:
    with pytest.raises(InputError, match="cannot be full"):
        SaturationSettings(waiting=0)
    with pytest.raises(InputError, match="cannot be full"):
        SaturationSettings(kv_share=0.0)


# --- order -----


def test_a_higher_priority_always_goes_first_and_within_one_who_came_first() -> None:
    control = flow()
    fill(control)
    for number, priority in ((1, 0), (2, 5), (3, 0), (4, 5), (5, -1)):
        if priority >= 0:
            control.offer(request(number, priority=priority), 0)
    order = []
    for done in (900, 901, 2, 4):
        order += finish(control, done, MS)
    assert order == [2, 4, 1, 3]


def test_one_who_comes_does_not_overtake_its_equals_in_the_queue() -> None:
    control = flow()
    fill(control)
    control.offer(request(1), 0)
    control.router.ended(900, MS)
    assert control.offer(request(2), MS) is None, "there is room, but request 1 is first"
    urgent = control.offer(request(3, priority=1), MS)
    assert urgent is not None and not urgent.refused


def test_tenants_get_equal_tokens_whatever_the_size_and_number_of_their_requests() -> None:
    queue = FairQueue(quantum=1_000, output_tokens=0)
    number = 0
    for tenant, blocks, count in (("small", 2, 400), ("large", 40, 40), ("one", 10, 100)):
        for _ in range(count):
            number += 1
            queue.add(request(number, blocks, tenant=tenant))
    served: Counter[str] = Counter()
    while min(served.values(), default=0) < 30_000:
        head = queue.head()
        assert head is not None
        assert queue.head() is head, "asking changes nothing"
        queue.serve(head)
        served[head.tenant] += queue.tokens(head)
        if len(served) == 3:
            assert max(served.values()) - min(served.values()) <= 2 * (1_000 + 40 * BLOCK)


@given(st.integers(0, 2**32))
def test_the_queue_serves_every_request_once_in_order_of_its_tenant(seed: int) -> None:
    rng = Random(seed)
    queue = FairQueue(quantum=rng.choice([1, 100, 8_192]))
    waiting: dict[int, RouteRequest] = {}
    for number in range(80):
        if waiting and rng.random() < 0.4:
            head = queue.head()
            assert head is not None
            assert head.priority == max(one.priority for one in waiting.values()) == queue.highest()
            same = [one for one in waiting.values() if (one.tenant, one.priority) == (head.tenant, head.priority)]
            assert head is same[0]
            queue.serve(head)
            del waiting[head.request_id]
        elif waiting and rng.random() < 0.2:
            gone = rng.choice(list(waiting))
            assert queue.remove(gone) is waiting.pop(gone)
            assert queue.remove(gone) is None
        else:
            one = request(number, rng.randrange(200), priority=rng.randrange(-1, 2), tenant=rng.choice("abc"))
            queue.add(one)
            waiting[number] = one
        assert len(queue) == len(waiting)
        assert all(number in queue for number in waiting)
    while (head := queue.head()) is not None:
        queue.serve(head)
        del waiting[head.request_id]
    assert not waiting


def test_a_quantum_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="serves nobody"):
        FairQueue(0)


def test_a_request_cannot_wait_twice() -> None:
    queue = FairQueue()
    queue.add(request(1))
    with pytest.raises(ValueError, match="waits already"):
        queue.add(request(1))


def test_adapters_wait_for_a_worker_that_can_load_them() -> None:
    pool = workers(2)
    pool[1].max_loras = 1
    control = FlowControl(Router(LeastLoaded(), pool), FlowSettings(saturation=SaturationSettings(waiting=1)))
    first = control.offer(request(1, lora="sql"), 0)
    assert first is not None and first.worker == 1
    assert control.offer(request(2, lora="sql"), 0) is None, "worker 0 is idle and cannot serve it"
    assert finish(control, 1, MS) == [2]
