"""Blocks of another size than the index's, and ranks that share a worker's name."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from index_models import batch, frames, payload

from deep_seeds import examples
from tonnage.inference.index import CacheView, KvIndex, TierBlocks

TOKENS = list(range(1000, 1512))


def stored(size: int, first: int, last: int, *, medium: str = "GPU", salt: int = 0, tokens: list[int] = TOKENS):
    """BlockStored for the tokens from ``first`` to below ``last``, in blocks of ``size``."""
    return {
        "type": "BlockStored",
        "block_hashes": [name(size, end, salt, tokens) for end in range(first + size, last + 1, size)],
        "parent_block_hash": name(size, first, salt, tokens) if first else None,
        "token_ids": tokens[first:last],
        "block_size": size,
        "medium": medium,
    }


def removed(size: int, *ends: int, medium: str = "GPU", **more):
    hashes = [name(size, end, 0, TOKENS) for end in ends]
    return {"type": "BlockRemoved", "block_hashes": hashes, "medium": medium, **more}


def name(size: int, end: int, salt: int, tokens: list[int]) -> int:
    return hash((size, salt, tuple(tokens[:end]))) & (2**64 - 1)


def found(index: KvIndex, shared: int, worker: str = "a") -> TierBlocks:
    """Of a prompt that has the first ``shared`` tokens in common with what was stored."""
    prompt = [*TOKENS[:shared], *range(5000, 5000 + 512 - shared)]
    return index.overlap(index.prompt_keys(prompt)).get(worker, TierBlocks(0))


@pytest.mark.report(303)
@pytest.mark.parametrize(
    ("ours", "size", "medium", "tier"),
    [(16, 64, "CPU", 1), (16, 32, "GPU", 0), (16, 256, "DISK", 2), (32, 128, "CPU", 1), (16, 64, "STORAGE", 2)],
)
def test_a_larger_block_of_a_medium_is_several_blocks_that_are_there_together(ours, size, medium, tier):
    index = KvIndex(ours)
    index.apply_batch("a", batch(stored(size, 0, 2 * size, medium=medium)))
    for shared in range(0, 2 * size + ours, ours):
        assert found(index, shared)[tier] == min(shared, 2 * size) // size * size // ours, shared
        assert sum(found(index, shared)) == found(index, shared)[tier]
    assert index.counts.other_block_size == 0
    index.apply_batch("a", batch(removed(size, 2 * size, medium=medium)))
    assert found(index, 2 * size)[tier] == size // ours
    index.apply_batch("a", batch({"type": "AllBlocksCleared"}))
    assert sum(found(index, size)) == len(index) == 0


@pytest.mark.report(303)
@pytest.mark.parametrize(("ours", "size"), [(64, 16), (32, 16), (48, 16), (64, 32)])
def test_smaller_blocks_of_an_engine_are_one_block_once_all_are_there(ours, size):
    index = KvIndex(ours)
    for first in range(0, 2 * ours, size):
        index.apply_batch("a", batch(stored(size, first, first + size)))
        assert found(index, 2 * ours).device == (first + size) // ours
    index.apply_batch("a", batch(removed(size, ours + size)))  # the first part of the second block
    assert found(index, 2 * ours).device == 1
    index.apply_batch("a", batch(stored(size, ours, ours + size)))
    assert found(index, 2 * ours).device == 2
    index.apply_batch("a", batch(removed(size, size)))
    assert found(index, 2 * ours).device == 0
    assert index.counts.other_block_size == index.counts.removed_unknown == 0


def test_small_blocks_wait_for_a_parent_that_comes_later():
    index = KvIndex(64)
    index.apply_batch("a", batch(stored(16, 64, 128)))
    assert found(index, 128).device == 0
    index.apply_batch("a", batch(stored(16, 0, 64)))
    assert found(index, 128).device == 2
    assert index.counts.adopted == 4


def test_host_blocks_of_64_tokens_go_on_where_the_blocks_of_16_on_the_gpu_end():
    index = KvIndex(16)
    index.apply_batch("a", batch(stored(16, 0, 96), stored(64, 0, 192, medium="CPU")))
    assert found(index, 192) == TierBlocks(6, 6)
    assert found(index, 176) == TierBlocks(6, 2)
    assert found(index, 112) == TierBlocks(6, 0)
    index.apply_batch("a", batch(removed(64, 128, medium="CPU")))
    assert found(index, 192) == TierBlocks(6, 0)


def test_an_offloaded_block_without_tokens_is_known_by_the_last_of_its_parts():
    index = KvIndex(16)
    index.apply_batch("a", batch(stored(16, 0, 128)))
    event = stored(16, 0, 64, medium="CPU") | {"token_ids": [], "block_size": 64}
    index.apply_batch("a", batch(event | {"block_hashes": [name(16, 64, 0, TOKENS)]}))
    index.apply_batch("a", batch(removed(16, *range(16, 129, 16))))
    assert found(index, 128) == TierBlocks(0, 4)
    assert found(index, 48) == TierBlocks(0, 0)


def test_sizes_that_do_not_divide_each_other_are_counted():
    index = KvIndex(16)
    index.apply_batch("a", batch(stored(24, 0, 48)))
    assert (index.counts.other_block_size, len(index)) == (2, 0)


steps = st.lists(st.tuples(st.booleans(), st.integers(0, 7), st.sampled_from(["GPU", "CPU"])), max_size=30)


@settings(max_examples=examples(60))
@given(steps=steps)
def test_small_blocks_answer_as_a_set_of_them_does(steps):
    """The index of 64 tokens, fed with blocks of 16 that come and go, has a block where all four are held."""
    index, held = KvIndex(64, count_copies=False), {"GPU": set(), "CPU": set()}
    index.apply_batch("a", batch(stored(16, 0, 128, medium="DISK")))  # so that parents are known
    for store, at, medium in steps:
        if store:
            index.apply_batch("a", batch(stored(16, at * 16, at * 16 + 16, medium=medium)))
            held[medium].add(at)
        else:
            index.apply_batch("a", batch(removed(16, at * 16 + 16, medium=medium)))
            held[medium].discard(at)
    whole = {medium: [set(range(4 * n, 4 * n + 4)) <= there for n in range(2)] for medium, there in held.items()}
    device = 0 if not whole["GPU"][0] else 1 + whole["GPU"][1]
    rest = whole["CPU"][device:]
    host = 0 if not rest or not rest[0] else sum(rest)
    assert found(index, 128) == TierBlocks(device, host, 2 - device - host)


def sent(number: int, rank: int | None, *events, ts: float = 5.0) -> list[bytes]:
    return [b"", number.to_bytes(8, "big", signed=True), payload(*events, ts=ts, rank=rank)]


@pytest.mark.report(304)
@pytest.mark.parametrize("order", [(0, 1), (1, 0), (1, 2), (None, 1)])
def test_ranks_under_one_name_keep_their_own_blocks(order):
    view = CacheView(KvIndex(16))
    one, other = order
    names = ["w" if not rank else f"w/dp{rank}" for rank in order]
    for number in range(3):
        view.receive("w", sent(number, one, stored(16, 32 * number, 32 * number + 32), ts=1.0 + number), 0)
    view.receive("w", sent(0, other, stored(16, 0, 32), ts=9.0), 0)
    keys = view.index.prompt_keys(TOKENS)
    assert view.overlap(keys, 0) == {names[0]: TierBlocks(6), names[1]: TierBlocks(2)}
    assert view.take_cleared() == []
    view.receive("w", sent(1, other, {"type": "AllBlocksCleared"}, ts=10.0), 0)
    assert view.overlap(keys, 0) == {names[0]: TierBlocks(6)}
    assert view.take_cleared() == [names[1]]
    view.remove_worker("w")
    assert view.overlap(keys, 0) == {} == view.index.overlap(keys)


def test_a_rank_that_begins_anew_loses_its_own_blocks_only():
    view = CacheView(KvIndex(16))
    for rank in (0, 1):
        for number in range(2):
            view.receive("w", sent(number, rank, stored(16, 32 * number, 32 * number + 32), ts=1.0 + number), 0)
    view.receive("w", sent(0, 1, stored(16, 0, 16), ts=20.0), 0)
    keys = view.index.prompt_keys(TOKENS)
    assert view.overlap(keys, 0) == {"w": TierBlocks(4), "w/dp1": TierBlocks(1)}


def test_a_gap_of_one_rank_is_asked_for_and_closed_without_the_other():
    view = CacheView(KvIndex(16))
    view.receive("w", sent(0, 0, stored(16, 0, 32)), 0)
    assert view.receive("w", sent(1, 1, stored(16, 32, 64)), 0) is not None
    assert view.verdict("w", 0).source == "exact"
    assert view.verdict("w/dp1", 0).reason == "messages missing"
    view.replayed("w", sent(0, 1, stored(16, 0, 32)))
    view.replayed("w", frames(-1))
    assert view.verdict("w/dp1", 0).source == "exact"
    keys = view.index.prompt_keys(TOKENS)
    assert view.overlap(keys, 0) == {"w": TierBlocks(2), "w/dp1": TierBlocks(4)}


@pytest.mark.parametrize(("name", "rank"), [("w/dp1", 1), ("w/dp11", 11), ("w:8000/dp2", 2), ("w/dp1", 0), ("w", None)])
def test_a_rank_that_its_worker_s_name_says_already_is_not_another_worker(name: str, rank: int | None) -> None:
    view = CacheView(KvIndex(16))
    view.add_worker(name)
    view.receive(name, sent(0, rank, stored(16, 0, 32)), 0)
    assert view.overlap(view.index.prompt_keys(TOKENS), 0) == {name: TierBlocks(2)}
    view.remove_worker(name)
    assert view.overlap(view.index.prompt_keys(TOKENS), 0) == {}


def test_another_rank_than_the_name_says_is_another_worker() -> None:
    view = CacheView(KvIndex(16))
    view.add_worker("w/dp1")
    view.receive("w/dp1", sent(0, 11, stored(16, 0, 32)), 0)
    assert view.overlap(view.index.prompt_keys(TOKENS), 0) == {"w/dp1/dp11": TierBlocks(2)}
