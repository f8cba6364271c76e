"""Messages as bytes: both encodings, damage, order, gaps and replays."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from index_models import BLOCK, CLEARED, batch, flat, frames, payload, removed, stored

from deep_seeds import examples
from tonnage.inference.index import CacheView, EventStream, KvIndex, TierBlocks, canonical, decode_batch, from_topic
from tonnage.inference.index.events import (
    AllBlocksCleared,
    Batch,
    BatchDecoder,
    BlockRemoved,
    BlockStored,
    MalformedMessage,
)

ORDER = {
    "BlockStored": ["block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name"],
    "BlockRemoved": ["block_hashes", "medium"],
    "AllBlocksCleared": [],
}
END = [b"", (-1).to_bytes(8, "big", signed=True), b""]


def positional(event: dict) -> list:
    """The event as an array that begins with its type, trailing absent fields left out."""
    fields = [event[name] for name in ORDER[event["type"]] if name in event]
    return [event["type"], *fields]


def test_maps_and_arrays_of_the_same_events_are_equal():
    events = [stored([1, 2, 3], 1), removed([1, 2, 3]), CLEARED]
    for read in (
        decode_batch(payload(*events)),
        decode_batch(msgspec.msgpack.encode([1.0, [positional(event) for event in events], 0])),
        decode_batch(msgspec.msgpack.encode([1.0, [positional(event) for event in events]])),
        decode_batch(msgspec.msgpack.encode([1.0, [events[0], positional(events[1]), events[2]]])),
        decode_batch(msgspec.msgpack.encode({"ts": 1.0, "events": events, "data_parallel_rank": 0})),
    ):
        first, second, third = read.events
        assert (
            isinstance(first, BlockStored) and isinstance(second, BlockRemoved) and isinstance(third, AllBlocksCleared)
        )
        assert first.tokens() == flat([2, 3]) and first.token_count() == 2 * BLOCK and first.block_size == BLOCK
        assert first.block_hashes == events[0]["block_hashes"] and first.medium == "GPU"
        assert second.block_hashes == events[1]["block_hashes"] and read.problems == ()


def test_events_of_early_releases_that_end_at_the_adapter_are_read():
    event = stored([1, 2])
    short = ["BlockStored", event["block_hashes"], None, event["token_ids"], BLOCK, None]
    read = decode_batch(msgspec.msgpack.encode([1.0, [short, ["BlockRemoved", [4]]]]))
    index = KvIndex(BLOCK)
    index.apply_batch("a", read)
    assert index.scores(index.prompt_keys(flat([1, 2]))) == {"a": 2}


def test_a_bad_or_unknown_event_costs_only_itself():
    read = decode_batch(payload(stored([1]), {"type": "BlockMigrated", "x": 1}, {"type": "BlockStored"}, removed([1])))
    assert [type(event).__mro__[1] for event in read.events] == [BlockStored, BlockRemoved]
    assert len(read.problems) == 2 and "event 1" in read.problems[0] and "block_hashes" in read.problems[1]


@pytest.mark.parametrize(
    "bad", [b"", b"\xc1", b"\x01", b"\x93\x01", msgspec.msgpack.encode([1.0]), msgspec.msgpack.encode({"a": 1})]
)
def test_what_is_no_batch_is_a_value_that_says_why(bad):
    assert isinstance(decode_batch(bad), MalformedMessage)


@settings(max_examples=examples(300))
@given(st.binary(max_size=60), st.integers(0, 200), st.integers(0, 255))
def test_damaged_bytes_never_raise(noise, at, byte):
    good = bytearray(payload(stored([1, 2]), removed([1])))
    good[at % len(good)] = byte
    stream, index = EventStream(), KvIndex(BLOCK)
    for body in (noise, bytes(good)):
        for message in ([b"", (0).to_bytes(8, "big"), body], [body, body, body], [body]):
            for one in stream.receive(message, 0).batches:
                index.apply_batch("a", one)
    read = decode_batch(bytes(good))
    if isinstance(read, Batch):
        index.apply_batch("a", read)


def numbers(received) -> list[float]:
    return [one.ts - 100.0 for one in received.batches]


def test_messages_in_order_pass_at_once():
    stream = EventStream()
    assert [numbers(stream.receive(frames(number), 0)) for number in range(3)] == [[0], [1], [2]] and not stream.gap


def test_a_gap_holds_back_what_follows_until_the_replay_fills_it():
    stream = EventStream()
    stream.receive(frames(0), 0)
    late = stream.receive(frames(3), 5)
    assert numbers(late) == [] and late.request == [b"", (1).to_bytes(8, "big")] and stream.gap
    assert stream.receive(frames(4), 6).request is None
    assert numbers(stream.replayed(frames(1))) == [1]
    assert numbers(stream.replayed(frames(2)[1:])) == [2, 3, 4] and not stream.gap
    assert numbers(stream.replayed(frames(3))) == [] and stream.replayed(END).lost == 0


@pytest.mark.report(14)
def test_a_stream_joined_late_asks_for_everything_from_the_begin():
    first = EventStream().receive(frames(7), 0)
    assert first.request == [b"", (0).to_bytes(8, "big")]


@pytest.mark.report(10)
def test_a_replay_that_has_no_more_or_never_comes_is_given_up_and_counted():
    stream = EventStream(patience_ns=100)
    stream.receive(frames(0), 0)
    stream.receive(frames(5), 10)
    stream.replayed(frames(3))
    done = stream.replayed(END)
    assert numbers(done) == [3, 5] and done.lost == 3 and not stream.gap
    stream.receive(frames(9), 20)
    assert numbers(stream.tick(119)) == [] and stream.gap
    assert numbers(stream.tick(120)) == [9] and stream.lost == 6


def test_what_waits_for_a_replay_is_bounded():
    stream = EventStream(max_waiting=10)
    got = [batch for number in range(1, 40) for batch in stream.receive(frames(number), 0).batches]
    assert len(got) == 39 and stream.lost == 1


def test_a_message_that_comes_late_closes_its_gap_without_a_replay():
    stream = EventStream()
    assert [numbers(stream.receive(frames(number), 0)) for number in (0, 2, 1, 3)] == [[0], [], [1, 2], [3]]


def test_a_repeated_message_is_dropped_and_a_restart_is_told_by_the_clock():
    stream = EventStream()
    for number in range(5):
        stream.receive(frames(number), 0)
    assert not stream.receive(frames(2), 0).restarted and stream.repeated == 1
    again = stream.receive(frames(0, ts=500.0), 0)
    assert again.restarted and len(again.batches) == 1
    missed = EventStream()
    for number in range(5):
        missed.receive(frames(number), 0)
    seen = missed.receive(frames(2, ts=500.0), 0)
    assert seen.restarted and seen.batches == [] and seen.request == [b"", (0).to_bytes(8, "big")]


@settings(max_examples=examples(100))
@given(st.permutations(list(range(8))), st.sets(st.integers(0, 7)))
def test_in_any_order_of_arrival_events_are_applied_in_the_order_they_happened(order, dropped):
    stream, got = EventStream(max_waiting=100), []
    for number in order:
        if number not in dropped:
            got += stream.receive(frames(number), 0).batches
    for number in range(8):
        got += stream.replayed(frames(number)).batches
    got += stream.replayed(END).batches
    assert [one.ts - 100.0 for one in got] == list(range(8))


def test_a_decoder_keeps_to_the_encoding_that_came_last():
    decoder = BatchDecoder()
    array = msgspec.msgpack.encode([1.0, [positional(removed([1]))]])
    for body in (array, payload(removed([1])), array, array):
        assert len(decoder.decode(body).events) == 1


@pytest.mark.report(16)
@pytest.mark.parametrize(
    "spelling",
    ["10.0.0.7", "10.0.0.7:8000", "tcp://10.0.0.7:8000", "http://10.0.0.7:8000/", " 10.0.0.7 ", "10.0.0.7:8000/dp0"],
)
def test_a_pod_has_one_name_however_it_is_told(spelling):
    assert canonical(spelling) == "10.0.0.7:8000"


@pytest.mark.report(16)
def test_events_and_dispatches_of_the_same_pod_meet():
    view = CacheView(KvIndex(BLOCK))
    told = from_topic("kv@10.0.0.7:8000@meta-llama/Llama-3.1-8B")
    assert told == ("10.0.0.7:8000", "meta-llama/Llama-3.1-8B")
    view.dispatched(canonical("10.0.0.7"), view.index.prompt_keys(flat([1, 2, 3])), 0)
    view.receive(told[0], frames(0, stored([1, 2])), 1)
    assert view.overlap(view.index.prompt_keys(flat([1, 2, 3])), 2) == {"10.0.0.7:8000": TierBlocks(3)}


def test_other_spellings_and_topics():
    assert canonical("fd00::7") == canonical("[fd00::7]:8000") == "[fd00::7]:8000"
    assert canonical("pod-1:9000", rank=2) == canonical("pod-1:9000/dp2") == "pod-1:9000/dp2" != canonical("pod-1:9000")
    assert from_topic("") is None and from_topic("kv@x") is None and from_topic("zz@a@b") is None


def test_a_view_forgets_a_worker_that_restarted():
    view = CacheView(KvIndex(BLOCK))
    for number in range(3):
        view.receive("a", frames(number, stored([number, 1])), 0)
    view.receive("a", frames(0, stored([9]), ts=900.0), 1)
    assert view.index.held("a") == 1


def test_batches_with_problems_are_counted_by_the_view():
    view = CacheView(KvIndex(BLOCK))
    view.receive("a", frames(0, {"type": "Nonsense"}), 0)
    view.receive("a", [b"", b"", b""], 0)
    assert view.problems == 2 and batch().events == []
