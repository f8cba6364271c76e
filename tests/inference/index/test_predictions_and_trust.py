"""Dispatched prompts as an index, and which source is believed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from index_models import BLOCK, engine_hash, flat, frames, stored

from deep_seeds import examples
from tonnage.inference.index import (
    CacheView,
    KvIndex,
    PredictedIndex,
    TierBlocks,
    TrustedSource,
    TrustSettings,
    WorkerTrust,
)

SECOND = 1_000_000_000


def keys_of(labels: list[int]) -> list[int]:
    return [engine_hash(labels[: end + 1]) for end in range(len(labels))]


@settings(max_examples=examples(150))
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2), st.lists(st.integers(0, 1), min_size=1, max_size=8), st.integers(0, 30), st.booleans()
        ),
        max_size=40,
    )
)
def test_predictions_last_their_time_since_the_last_use(steps):
    index, last, now = PredictedIndex(ttl_ns=40, max_blocks=1000), {}, 0
    for worker, labels, wait, clear in steps:
        now += wait
        if clear and wait > 25:
            index.clear(str(worker))
            last = {one: when for one, when in last.items() if one[0] != worker}
        index.dispatched(str(worker), keys_of(labels), now)
        for end in range(len(labels)):
            last[worker, tuple(labels[: end + 1])] = now
        for asked in (labels, [0] * 8, [1, 0] * 4):
            want = {}
            for one in range(3):
                depth = 0
                while depth < len(asked) and last.get((one, tuple(asked[: depth + 1])), -99) + 40 > now:
                    depth += 1
                if depth:
                    want[str(one)] = depth
            assert index.scores(keys_of(asked), now) == want


@pytest.mark.report(27)
def test_predictions_are_bounded_by_worker_and_the_oldest_use_goes_first():
    index = PredictedIndex(max_blocks=50)
    for label in range(500):
        index.dispatched("a", keys_of([label, *range(7)]), label)
        index.dispatched("a", keys_of([10_000, 1]), label)
        assert index.held("a") <= 50 and len(index) <= 50
    assert index.scores(keys_of([10_000, 1]), 500) == {"a": 2} and index.scores(keys_of([0, 1]), 500) == {}
    assert index._uses["a"].references <= 2 * 50 + 1024 + 8


def test_a_prompt_longer_than_the_bound_keeps_its_head():
    index = PredictedIndex(max_blocks=5)
    index.dispatched("a", keys_of(list(range(9))), 0)
    assert index.scores(keys_of(list(range(9))), 1) == {"a": 5}
    index.remove_worker("a")
    assert len(index) == 0 and index.scores(keys_of([0]), 1) == {}


def trusted(**more) -> WorkerTrust:
    trust = WorkerTrust(TrustSettings(**more))
    trust.heard(gap=False)
    return trust


def test_a_worker_without_events_is_judged_by_what_was_sent_to_it():
    assert WorkerTrust(TrustSettings()).verdict(0) == TrustedSource("approximate", "no events")


def test_events_are_believed_when_nothing_speaks_against_them():
    assert trusted().verdict(10**12) == TrustedSource("exact")


def test_silence_after_new_blocks_were_due_is_stale_and_an_idle_worker_is_not():
    trust = trusted(stale_after_ns=10)
    trust.dispatched(new_blocks=0, now_ns=100)
    assert trust.verdict(10_000).source == "exact"
    trust.dispatched(new_blocks=3, now_ns=100)
    assert trust.verdict(110).source == "exact"
    assert trust.verdict(111) == TrustedSource("approximate", "silent since a dispatch", 11.0, 10.0)
    trust.heard(gap=False)
    assert trust.verdict(10_000).source == "exact"


def test_missing_messages_suspend_trust_and_lost_ones_must_be_made_good_by_reports():
    trust = trusted(proof=4)
    trust.heard(gap=True)
    assert trust.verdict(0).reason == "messages missing"
    trust.heard(gap=False, lost=2)
    assert trust.verdict(0) == TrustedSource("approximate", "messages lost", 2.0)
    for _ in range(4):
        assert trust.verdict(0).source == "approximate"
        trust.reported(exact=10, approximate=9, cached=10, blocks=10)
    assert trust.verdict(0).source == "exact"


def test_a_restart_makes_lost_messages_irrelevant():
    trust = trusted()
    trust.heard(gap=False, lost=2)
    trust.restarted()
    assert trust.verdict(0).source == "exact"


def test_events_that_disagree_with_reported_hits_give_way_to_dispatches_and_those_to_load():
    trust = trusted(proof=3)
    for _ in range(3):
        trust.reported(exact=10, approximate=1, cached=0, blocks=10)
    assert trust.verdict(0) == TrustedSource("approximate", "events disagree with reported hits", 1.0, 0.25)
    for _ in range(20):
        trust.reported(exact=10, approximate=10, cached=0, blocks=10)
    assert trust.verdict(0).source == "load"
    for _ in range(30):
        trust.reported(exact=0, approximate=0, cached=0, blocks=10)
    assert trust.verdict(0).source == "exact"


def test_the_view_falls_back_worker_by_worker():
    view = CacheView(KvIndex(BLOCK), settings=TrustSettings(stale_after_ns=SECOND, proof=2))
    keys = view.index.prompt_keys(flat([1, 2, 3, 4]))
    for name in ("events", "silent", "wrong"):
        view.receive(name, frames(0, stored([1, 2, 3])), 0)
    view.dispatched("silent", keys, 0)
    view.dispatched("new", keys[:2], 0)
    for _ in range(9):
        view.reported("wrong", keys, TierBlocks(3), 3, 0)
    now = 10 * SECOND
    assert {name: view.verdict(name, now).source for name in ("events", "silent", "new", "wrong", "nobody")} == {
        "events": "exact",
        "silent": "approximate",
        "new": "approximate",
        "wrong": "load",
        "nobody": "load",
    }
    assert view.overlap(keys, now) == {"events": TierBlocks(3), "silent": TierBlocks(4), "new": TierBlocks(2)}
    view.remove_worker("events")
    assert "events" not in view.overlap(keys, now)


def test_what_was_just_dispatched_bridges_the_time_until_its_events():
    view = CacheView(KvIndex(BLOCK))
    keys = view.index.prompt_keys(flat([1, 2, 3, 4, 5, 6]))
    view.receive(
        "a",
        frames(0, stored([1, 2]), stored([1, 2, 3, 4], 2, medium="CPU"), stored([1, 2, 3, 4, 5], 4, medium="STORAGE")),
        0,
    )
    assert view.overlap(keys, 0) == {"a": TierBlocks(2, 2, 1)}
    view.dispatched("a", keys[:3], 0)
    assert view.overlap(keys, 1) == {"a": TierBlocks(3, 1, 1)}
    assert view.overlap(keys, 6 * SECOND) == {"a": TierBlocks(2, 2, 1)}


def test_a_replay_that_stays_away_ends_the_gap_and_costs_trust():
    view = CacheView(KvIndex(BLOCK))
    view.receive("a", frames(0, stored([1])), 0)
    assert view.receive("a", frames(4, stored([1, 2], 1)), SECOND) == [b"", (1).to_bytes(8, "big")]
    assert view.verdict("a", SECOND).reason == "messages missing"
    view.tick(20 * SECOND)
    assert view.verdict("a", 20 * SECOND).reason == "messages lost"
    assert view.index.held("a") == 2


def test_a_replay_that_comes_restores_trust():
    view = CacheView(KvIndex(BLOCK))
    view.receive("a", frames(1, stored([1, 2], 1)), 0)
    view.replayed("a", frames(0, stored([1])))
    view.replayed("a", [b"", (-1).to_bytes(8, "big", signed=True), b""])
    assert view.verdict("a", 1) == TrustedSource("exact") and view.index.held("a") == 2
