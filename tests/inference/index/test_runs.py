"""Runs of blocks that the same workers hold, against plain sets."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from index_models import SetModel, engine_hash

from deep_seeds import examples
from tonnage.inference.index import runs
from tonnage.inference.index.runs import RunIndex

WORKERS = 5
paths = st.lists(st.integers(0, 1), min_size=1, max_size=12)
operation = st.one_of(
    st.tuples(st.just("store"), st.integers(0, WORKERS - 1), paths, st.integers(0, 11)),
    st.tuples(st.just("remove"), st.integers(0, WORKERS - 1), paths, st.integers(0, 11)),
    st.tuples(st.just("clear"), st.integers(0, WORKERS - 1), paths, st.just(0)),
)


def keys_of(labels: list[int]) -> list[int]:
    return [engine_hash(labels[: end + 1]) for end in range(len(labels))]


def by_worker(groups: runs.Groups) -> dict[int, int]:
    out = {}
    for depth, mask in groups:
        for worker in range(mask.bit_length()):
            if mask >> worker & 1:
                assert worker not in out
                out[worker] = depth
    return out


def play(operations: list[tuple[str, int, list[int], int]]) -> tuple[RunIndex, SetModel]:
    index, model = RunIndex(), SetModel()
    for what, worker, labels, first in operations:
        keys = keys_of(labels)
        first = min(first, len(labels) - 1)
        if what == "store":
            parent = keys[first - 1] if first else None
            again = index.store(1 << worker, parent, keys[first:])
            mine = model.copies.get(worker, {})
            said = {first + at for low, high in again for at in range(low, high)}
            assert said == {at for at in range(first, len(labels)) if tuple(labels[: at + 1]) in mine}
            model.store(worker, labels, first, count=False)
        elif what == "remove":
            gone = keys[first:][::-1] if len(labels) % 2 else keys[first:]
            held = [
                path for path in range(first, len(labels)) if tuple(labels[: path + 1]) in model.copies.get(worker, {})
            ]
            assert index.remove(1 << worker, gone) == len(gone) - len(held)
            for end in held:
                model.remove(worker, labels[: end + 1])
        else:
            index.clear(1 << worker, [engine_hash(path) for path in model.copies.get(worker, {})])
            model.clear(worker)
        index.check()
    return index, model


@pytest.mark.parametrize("longest", [1, 3, 1024])
@settings(max_examples=examples(150))
@given(operations=st.lists(operation, max_size=30), asked=st.lists(paths, min_size=1, max_size=6))
def test_every_worker_gets_the_prefix_that_a_plain_set_gives(longest, operations, asked):
    before, runs.MAX_RUN = runs.MAX_RUN, longest
    try:
        index, model = play(operations)
        for labels in [*asked, *(one[2] for one in operations)]:
            assert by_worker(index.groups(keys_of(labels))) == model.scores(labels)
        assert len(index) == len({path for mine in model.copies.values() for path in mine})
    finally:
        runs.MAX_RUN = before


@settings(max_examples=examples(100))
@given(
    operations=st.lists(operation, max_size=25),
    labels=paths,
    starts=st.lists(st.integers(0, 12), min_size=WORKERS, max_size=WORKERS),
)
def test_a_lower_tier_is_counted_from_where_the_upper_one_ends(operations, labels, starts):
    index, model = play(operations)
    masks: dict[int, int] = {}
    for worker, start in enumerate(starts):
        masks[start] = masks.get(start, 0) | 1 << worker
    want = {}
    for worker, start in enumerate(starts):
        end = start
        while end < len(labels) and tuple(labels[: end + 1]) in model.copies.get(worker, {}):
            end += 1
        if end > start:
            want[worker] = end - start
    assert by_worker(index.beyond(keys_of(labels), list(masks.items()))) == want


def test_blocks_of_one_holder_that_come_one_by_one_are_one_run():
    index = RunIndex()
    keys = list(range(1, 501))
    for at, key in enumerate(keys):
        index.store(1, keys[at - 1] if at else None, [key])
    assert index.runs() == 1


def test_a_second_worker_that_fills_up_block_by_block_leaves_two_runs_on_the_way_and_one_at_the_end():
    index = RunIndex()
    keys = list(range(1, 501))
    index.store(1, None, keys[:])
    for at, key in enumerate(keys):
        index.store(2, keys[at - 1] if at else None, [key])
        assert index.runs() <= 2
    assert index.groups(keys) == [(500, 3)] and index.runs() == 1


def test_evicting_a_shared_tail_block_by_block_does_not_scatter_the_index():
    index = RunIndex()
    keys = list(range(1, 501))
    index.store(1, None, keys[:])
    index.store(2, None, keys[:])
    for key in reversed(keys[100:]):
        assert index.remove(2, [key]) == 0
        assert index.runs() <= 2
    assert index.groups(keys) == [(100, 2), (500, 1)]


def test_a_lookup_visits_runs_not_blocks():
    rng = random.Random(5)
    index, keys = RunIndex(), list(range(1, 1025))
    for worker in range(64):
        index.store(1 << worker, None, keys[: rng.randrange(1, 1025)])
    visits = []
    index.find = lambda key: visits.append(key) or index._where.get(key)
    assert sum(mask.bit_count() for _, mask in index.groups(keys)) == 64
    assert len(visits) <= 65


def test_a_chain_that_repeats_a_block_keeps_it_once():
    index = RunIndex()
    index.store(1, None, [1, 2, 1])
    index.check()
    assert len(index) == 2 and index.remove(1, [1]) == 0
    index.check()
    assert len(index) == 1
