"""Block counts in closed form against counting sequence by sequence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.inference.engine.hybrid_cache import HybridCache
from tonnage.inference.engine.kv_blocks import KvBlocks
from tonnage.inference.engine.requests import Request
from tonnage.inference.hybrid import Layers, Layout, layout


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


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Full layers and one or two kinds of windows, with blocks of one or two sizes."""
    kinds = [Layers("full", draw(st.integers(1, 3)), draw(st.sampled_from([8, 16])))]
    for _ in range(draw(st.integers(1, 2))):
        kinds.append(Layers("window", draw(st.integers(1, 3)), 8, span=draw(st.integers(1, 30))))
    return layout(kinds, draw(st.integers(1, 8)))


def in_step(plan: Layout, tokens: int) -> int:
    """Blocks of a sequence in the decode step after which it has ``tokens`` tokens."""
    return plan.blocks(tokens)


def at_rest(plan: Layout, tokens: int) -> int:
    """Blocks of a sequence with ``tokens`` tokens that windows have slid over."""
    held = 0
    for group in plan.groups:
        behind = tokens - group.layers.span + 1 if group.layers.kind == "window" else 0
        held += group.count * (blocks_of(tokens, group.block_size) - max(0, behind) // group.block_size)
    return held


def sliding(plan: Layout, cached: list[int], step: int, spare: int) -> HybridCache:
    """A cache in which decoding sequences hold ``cached`` tokens, and ``spare`` blocks are free."""
    held = sum(at_rest(plan, tokens) for tokens in cached)
    cache = HybridCache(held + spare, plan, None, 8)
    cache.used = held
    for tokens in cached:
        cache.add_decoder(tokens, step)
    return cache


@given(layouts(), decoders, st.integers(0, 50), st.lists(st.integers(1, 90), min_size=1, max_size=6))
def test_sequences_in_windows_take_and_free_what_they_do_one_by_one(
    plan: Layout, cached: list[int], step: int, runs: list[int]
) -> None:
    cache = sliding(plan, cached, step, 10_000)
    done = 0
    for steps in runs:
        fit = cache.steps_that_fit(step + done, steps)
        assert 1 <= fit <= steps
        cache.take_due(step + done, fit)
        done += fit
        assert cache.used == sum(at_rest(plan, tokens + done) for tokens in cached)
    for tokens in cached:
        cache.remove_decoder(tokens + done, step + done)
    assert not any((*cache._due, *cache._frees, *cache._leaving.values()))


@given(layouts(), decoders, st.integers(0, 50), st.integers(1, 90), st.integers(0, 60))
def test_a_run_in_windows_stops_before_the_first_step_that_finds_no_block(
    plan: Layout, cached: list[int], step: int, steps: int, spare: int
) -> None:
    cache = sliding(plan, cached, step, spare)
    done = 0
    while done < steps:
        fit = cache.steps_that_fit(step + done, steps - done)
        if fit == 0:
            break
        cache.take_due(step + done, fit)
        done += fit
    room = [sum(in_step(plan, tokens + at) for tokens in cached) <= cache.total for at in range(1, steps + 1)]
    assert done == (room.index(False) if False in room else steps)


@given(layouts(), decoders, st.integers(0, 50), st.integers(1, 90), st.integers(1, 60))
def test_a_run_in_windows_stops_when_as_many_blocks_are_free_as_are_waited_for(
    plan: Layout, cached: list[int], step: int, steps: int, wanted: int
) -> None:
    cache = sliding(plan, cached, step, 40)
    if cache.free >= wanted:
        return
    done = 0
    while done < steps and cache.free < wanted:
        fit = cache.steps_that_fit(step + done, steps - done, wanted)
        if fit == 0:
            break
        cache.take_due(step + done, fit)
        done += fit
    for at in range(1, done):
        assert cache.total - sum(at_rest(plan, tokens + at) for tokens in cached) < wanted


@given(layouts(), st.integers(1, 90), st.integers(1, 12), st.integers(0, 3))
def test_a_prompt_in_chunks_holds_the_blocks_of_its_layout_in_each_step(
    plan: Layout, prompt: int, budget: int, found: int
) -> None:
    cache = HybridCache(10_000, plan, None, budget)
    request = Request(0, 0, 0, prompt, 1)
    computed = min(found * plan.block_size, prompt - 1)
    full = sum(group.count for group in plan.groups if group.layers.kind == "full")
    computed -= computed % plan.block_size
    hit = computed // plan.block_size
    while computed < prompt:
        chunk = min(budget, prompt - computed)
        if request.computed == 0:
            assert cache.fits(request, computed, computed + chunk, 0, 0)
            cache.admit(request, computed, computed + chunk, 0, 0)
        else:
            assert cache.extend(computed, chunk)
            request.passed = computed
        computed += chunk
        request.computed = computed
        assert cache.used == plan.blocks(computed, chunk) <= cache.blocks(prompt)
        cache.slide(request)
        assert cache.used == at_rest(plan, computed)
    assert hit * full <= cache.used
    cache.give_back(request, prompt)
    assert cache.used == 0
