"""What is in flight: booked at dispatch, freed once."""

from __future__ import annotations

import pytest
from routing_builders import BLOCK, MS, S, request

from tonnage.inference.routing.book import Book, WorkerLoad


def booked(*blocks: int, worker: int = 0, seconds: float = 1.0) -> Book:
    book = Book()
    for number, count in enumerate(blocks):
        book.dispatched(request(number, count), worker, 0, prefill_tokens=count * BLOCK, prefill_s=seconds)
    return book


def counts(load: WorkerLoad) -> tuple[int, ...]:
    return (
        load.requests,
        load.prefilling,
        load.prefill_tokens,
        load.decoding,
        load.context_tokens,
        load.output_tokens,
        load.blocks,
    )


def test_a_request_is_prefill_until_its_first_token_and_decode_until_its_end() -> None:
    book = Book()
    book.dispatched(request(1, 4, expected_output=100), 0, 0, prefill_tokens=4 * BLOCK, prefill_s=0.5)
    assert counts(book.load(0)) == (1, 1, 4 * BLOCK, 0, 0, 100, 4)
    assert book.first_token(1, 5 * MS)
    assert counts(book.load(0)) == (1, 0, 0, 1, 4 * BLOCK, 100, 4)
    assert book.freed(1, 9 * MS) is not None
    assert counts(book.load(0)) == (0,) * 7
    assert len(book) == 0


def test_an_abort_before_the_first_token_frees_the_prefill_too() -> None:
    book = booked(4)
    book.freed(0, MS)
    assert counts(book.load(0)) == (0,) * 7
    assert book.load(0).wait_s(MS) == 0


def test_what_is_said_twice_or_of_a_request_that_is_not_there_changes_nothing() -> None:
    book = booked(4)
    assert book.first_token(0, MS)
    assert not book.first_token(0, 2 * MS)
    assert book.freed(0, 3 * MS) is not None
    assert book.freed(0, 4 * MS) is None
    assert not book.first_token(0, 5 * MS)
    assert not book.progress(0, 1, 5 * MS)
    assert counts(book.load(0)) == (0,) * 7


def test_a_request_in_flight_cannot_be_dispatched_again() -> None:
    with pytest.raises(ValueError, match="already in flight"):
        booked(4).dispatched(request(0), 1, 0, prefill_tokens=1)


def test_a_worker_with_requests_cannot_be_forgotten() -> None:
    book = booked(4)
    with pytest.raises(ValueError, match="in flight"):
        book.worker_removed(0)


def test_blocks_that_requests_share_count_once_and_unknown_content_counts_whole() -> None:
    book = Book()
    book.dispatched(request(1, 10, path=((0, 10),)), 0, 0, prefill_tokens=1)
    book.dispatched(request(2, 12, path=((0, 6), (50, 56))), 0, 0, prefill_tokens=1)
    book.dispatched(request(3, 7, path=()), 0, 0, prefill_tokens=1)
    assert book.load(0).blocks == 10 + 6 + 7
    assert book.shared_blocks(((0, 6), (50, 60))) == {0: 12}
    book.freed(1, MS)
    assert book.load(0).blocks == 12 + 7


@pytest.mark.report(8)
def test_a_worker_nobody_has_heard_of_has_no_load_rather_than_a_whole_prompt() -> None:
    book = booked(4)
    assert counts(book.load(77)) == (0,) * 7
    assert book.load(77).wait_s(S) == 0


@pytest.mark.report(11)
def test_a_request_that_runs_for_hours_is_still_load() -> None:
    book = booked(4)
    book.first_token(0, MS)
    for hour in range(1, 6):
        book.dispatched(request(hour), 1, hour * 3600 * S, prefill_tokens=1)
    assert book.load(0).requests == 1
    assert book.load(0).blocks == 4


def test_the_wait_is_what_was_predicted_less_what_has_passed() -> None:
    load = booked(4, 4, seconds=1.0).load(0)
    assert load.wait_s(0) == pytest.approx(2.0)
    assert load.wait_s(400 * MS) == pytest.approx(1.6)


def test_first_tokens_that_come_late_stretch_what_is_still_owed() -> None:
    book = booked(4, 4, 4, seconds=1.0)
    book.first_token(0, 3 * S)
    load = book.load(0)
    assert load.slowness == pytest.approx((3 + 1) / (1 + 1))
    assert load.wait_s(3 * S) == pytest.approx(2 * 2.0)


def test_slowness_is_forgotten_as_a_worker_keeps_up_again() -> None:
    book, now = Book(), 0
    for number in range(60):
        book.dispatched(request(number), 0, now, prefill_tokens=1, prefill_s=1.0)
        now += (5 if number < 10 else 1) * S
        book.first_token(number, now)
        book.freed(number, now)
        if number == 9:
            assert book.load(0).slowness > 3
    assert book.load(0).slowness == pytest.approx(1, abs=0.05)


@pytest.mark.report(35)
def test_a_worker_that_stalls_is_expected_to_take_as_long_again() -> None:
    load = booked(4, seconds=1.0).load(0)
    assert load.wait_s(1 * S) == pytest.approx(0.0)
    assert load.wait_s(11 * S) == pytest.approx(10.0), "overdue by ten seconds"


def test_the_decode_rate_is_observed_and_silence_is_counted_while_something_decodes() -> None:
    book = booked(4)
    book.first_token(0, S)
    book.progress(0, 10, 2 * S)
    book.progress(0, 10, 3 * S)
    load = book.load(0)
    assert load.tokens_per_s == pytest.approx(10)
    assert load.silent_s(5 * S) == pytest.approx(2)
    book.freed(0, 5 * S)
    assert load.silent_s(50 * S) == 0
    book.dispatched(request(7), 0, 60 * S, prefill_tokens=1)
    book.first_token(7, 61 * S)
    assert load.silent_s(62 * S) == pytest.approx(1), "silence before there was anything to say is not counted"


def test_a_worker_that_leaves_takes_the_blocks_of_unknown_prompts_along() -> None:
    book = Book()
    book.dispatched(request(1, 5, path=()), 3, 0, prefill_tokens=1)
    assert book.load(3).blocks == 5
    book.freed(1, 0)
    book.worker_removed(3)
    assert book._private == {}
    book.dispatched(request(2, 4, path=()), 3, 0, prefill_tokens=1)
    assert book.load(3).blocks == 4
