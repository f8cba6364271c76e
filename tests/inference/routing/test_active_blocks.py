"""Distinct blocks in flight and matches, against plain sets."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from routing_builders import random_paths

from tonnage.inference.prompts import numbers
from tonnage.inference.routing.active import ActiveBlocks
from tonnage.inference.routing.predicted import PredictedInserts


def depth(path: list[int], held: set[int]) -> int:
    count = 0
    for number in path:
        if number not in held:
            break
        count += 1
    return count


@given(st.integers(0, 2**32))
def test_counts_and_matches_are_those_of_a_set_of_blocks_per_worker(seed: int) -> None:
    rng = Random(seed)
    paths = random_paths(rng, 30)
    blocks, held = ActiveBlocks(), []
    for _ in range(60):
        if held and rng.random() < 0.45:
            worker, path = held.pop(rng.randrange(len(held)))
            blocks.remove(worker, path)
        else:
            worker, path = rng.randrange(3), rng.choice(paths)
            held.append((worker, path))
            blocks.add(worker, path)
        sets = {worker: {n for w, path in held if w == worker for n in numbers(path)} for worker in range(3)}
        for worker in range(3):
            assert blocks.blocks(worker) == len(sets[worker])
        asked = rng.choice(paths)
        expected = {worker: depth(numbers(asked), sets[worker]) for worker in range(3)}
        assert blocks.depths(asked) == {worker: count for worker, count in expected.items() if count}
    for worker, path in held:
        blocks.remove(worker, path)
    assert all(not getattr(blocks, slot) for slot in ActiveBlocks.__slots__), "nothing is left behind"


def test_a_path_that_was_not_added_cannot_be_removed() -> None:
    blocks = ActiveBlocks()
    blocks.add(0, ((0, 5),))
    with pytest.raises(KeyError):
        blocks.remove(1, ((0, 5),))


def test_an_empty_path_holds_nothing() -> None:
    blocks = ActiveBlocks()
    blocks.add(0, ())
    blocks.add(0, ())
    blocks.remove(0, ())
    blocks.remove(0, ())
    assert blocks.blocks(0) == 0
    assert blocks.depths(()) == {}


def test_a_prompt_is_expected_where_it_was_sent_until_a_while_after_its_end() -> None:
    expected = PredictedInserts(keep_ns=100)
    expected.sent(1, 0, ((0, 5),))
    assert expected.depths(((0, 8),), 10**9) == {0: 5}, "for as long as it runs"
    expected.ended(1, 10**9, computed=True)
    assert expected.depths(((0, 8),), 10**9 + 99) == {0: 5}
    assert expected.depths(((0, 8),), 10**9 + 100) == {}
    assert len(expected) == 0


def test_a_prompt_that_was_cancelled_before_it_was_computed_is_expected_nowhere() -> None:
    expected = PredictedInserts(keep_ns=100)
    expected.sent(1, 0, ((0, 5),))
    expected.ended(1, 5, computed=False)
    assert expected.depths(((0, 8),), 5) == {}


def test_a_worker_that_is_gone_holds_nothing_even_if_its_index_comes_back() -> None:
    expected = PredictedInserts(keep_ns=100)
    for number, worker in ((1, 0), (2, 1)):
        expected.sent(number, worker, ((0, 5),))
        expected.ended(number, 5, computed=True)
    expected.cleared(0)
    assert expected.depths(((0, 5),), 6) == {1: 5}
