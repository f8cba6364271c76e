"""Block counts in closed form against counting sequence by sequence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.inference.kv_blocks import KvBlocks


def blocks_of(tokens: int, size: int) -> int:
    return (tokens + size - 1) // size


decoders = st.lists(st.integers(1, 100), min_size=1, max_size=12)


@given(st.integers(1, 16), decoders, st.integers(0, 50), st.integers(0, 70))
def test_a_run_of_decode_steps_takes_what_its_sequences_take_one_by_one(
    size: int, cached: list[int], step: int, steps: int
) -> None:
    blocks = KvBlocks(10_000, size)
    for tokens in cached:
        assert blocks.extend(0, tokens)
        blocks.add_decoder(tokens, step)
    blocks.take_due(step, steps)
    assert blocks.used == sum(blocks_of(tokens + steps, size) for tokens in cached)


@given(st.integers(1, 16), decoders, st.integers(0, 50), st.integers(1, 70), st.integers(0, 60))
def test_a_run_stops_before_the_first_step_that_finds_no_block(
    size: int, cached: list[int], step: int, steps: int, spare: int
) -> None:
    held = sum(blocks_of(tokens, size) for tokens in cached)
    blocks = KvBlocks(held + spare, size)
    for tokens in cached:
        blocks.extend(0, tokens)
        blocks.add_decoder(tokens, step)
    fit = max(k for k in range(steps + 1) if sum(blocks_of(tokens + k, size) for tokens in cached) <= held + spare)
    assert blocks.steps_that_fit(step, steps) == fit


@given(st.integers(1, 16), st.integers(0, 60), st.integers(1, 60))
def test_extending_a_sequence_in_pieces_takes_the_blocks_of_the_whole(size: int, cached: int, tokens: int) -> None:
    blocks = KvBlocks(200, size)
    if cached:
        blocks.extend(0, cached)
    blocks.extend(cached, tokens)
    assert blocks.used == blocks.blocks(cached + tokens)
    blocks.release(cached + tokens)
    assert (blocks.used, blocks.free) == (0, 200)


def test_too_few_free_blocks_take_none() -> None:
    blocks = KvBlocks(2, 16)
    assert not blocks.extend(0, 33)
    assert blocks.used == 0
    assert blocks.extend(0, 32)


def test_freeing_twice_is_noticed() -> None:
    blocks = KvBlocks(4, 16)
    blocks.extend(0, 16)
    blocks.release(16)
    with pytest.raises(RuntimeError, match="twice"):
        blocks.release(16)
