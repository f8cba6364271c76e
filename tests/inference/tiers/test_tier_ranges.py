"""Ranges with an order of eviction, and how often blocks are used: each against the same thing block by block."""

from __future__ import annotations

from block_tiers import BlockTier
from hypothesis import given
from hypothesis import strategies as st

from tonnage.inference.tiers import TierSpec
from tonnage.inference.tiers.ranges import Frequencies, HeldBlocks

SPANS = st.tuples(st.integers(0, 24), st.integers(1, 12)).map(lambda pair: (pair[0], pair[0] + pair[1]))


def flat(spans: list[tuple[int, int]]) -> list[int]:
    """Blocks in the order of their eviction."""
    return [block for low, high in spans for block in reversed(range(low, high))]


@given(st.sampled_from([None, 1, 7, 20]), st.lists(st.tuples(st.sampled_from(["add", "touch"]), SPANS), max_size=40))
def test_ranges_are_evicted_in_the_order_in_which_single_blocks_would_be(
    room: int | None, calls: list[tuple[str, tuple[int, int]]]
) -> None:
    held, plain = HeldBlocks(room), BlockTier(TierSpec("host", room), 0)
    for kind, (low, high) in calls:
        if kind == "add":
            assert flat(held.add(low, high, 0, 0)) == plain.write(low, high, 0, low)
        else:
            held.touch(low, high, 0)
            plain.touch(low, high)
        assert held.blocks == len(plain.ready)
        for start in range(36):
            end = held.reach(start, 40, 0)
            assert all(block in plain.ready for block in range(start, end))
            assert end not in plain.ready
            assert held.gaps(start, start + 1) == ([] if start in plain.ready else [(start, start + 1)])


def test_a_prompt_stored_chunk_by_chunk_loses_its_end_first() -> None:
    held = HeldBlocks(8)
    held.add(0, 4, 0, 0)
    held.add(4, 8, 0, 0, since=0)
    assert held.add(50, 52, 0, 0) == [(6, 8)]


def test_many_touches_of_a_full_tier_need_no_more_memory_than_it_has_ranges() -> None:
    held = HeldBlocks(100)
    for number in range(5_000):
        held.add(number % 90, number % 90 + 1, 0, 0)
    assert len(held._heap) <= 64 + 4 * 90


@given(st.lists(st.tuples(SPANS, st.integers(0, 3)), max_size=30), st.integers(1, 5))
def test_use_counts_double_and_decay_as_those_of_single_blocks(
    calls: list[tuple[tuple[int, int], int]], least: int
) -> None:
    counts, plain = Frequencies(), BlockTier(TierSpec("disk", min_frequency=max(2, least)), 0)
    step = 0
    for (low, high), later in calls:
        step += later
        counts.use(low, high, step)
        for block in range(low, high):
            plain.use(block, step)
        enough = set(flat(list(counts.at_least(0, 40, max(2, least), step))))
        assert enough == {block for block in range(40) if plain.admits(block, step)}


def test_a_block_used_twice_within_a_decay_step_is_admitted_and_one_used_too_late_is_not() -> None:
    counts = Frequencies()
    counts.use(0, 4, 0)
    assert list(counts.at_least(0, 4, 2, 0)) == []
    counts.use(0, 2, 0)
    assert list(counts.at_least(0, 4, 2, 0)) == [(0, 2)]
    counts.use(2, 4, 1)
    assert list(counts.at_least(0, 4, 2, 1)) == []


def test_use_counts_are_bounded_by_forgetting_the_least_used_blocks() -> None:
    counts = Frequencies(most=10)
    counts.use(0, 8, 0)
    counts.use(0, 8, 0)
    counts.use(0, 8, 0)
    counts.use(20, 30, 0)
    assert counts.blocks == 8
    assert list(counts.at_least(0, 40, 2, 0)) == [(0, 8)]
