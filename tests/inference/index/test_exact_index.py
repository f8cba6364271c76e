"""The exact index under every kind of event, against plain sets."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from index_models import BLOCK, CLEARED, SetModel, batch, engine_hash, flat, removed, stored, tokens_of

from deep_seeds import examples
from tonnage.inference.index import KvIndex, TierBlocks, prompt_keys
from tonnage.inference.index.hashes import blake2b_64

WORKERS = ["a:8000", "b:8000", "c:8000"]
labels_of = st.lists(st.integers(0, 1), min_size=1, max_size=9)
operation = st.tuples(
    st.sampled_from(["store", "store", "store", "remove", "clear", "restart", "leave"]),
    st.sampled_from(WORKERS),
    labels_of,
    st.integers(0, 8),
)


def index_of(mode: str, **more) -> KvIndex:
    return KvIndex(BLOCK, keys=mode, **more)


def asked(index: KvIndex, labels: list[int], mode: str) -> dict[str, int]:
    if mode == "tokens":
        return index.scores(index.prompt_keys(flat(labels)))
    return index.scores([engine_hash(labels[: end + 1]) for end in range(len(labels))])


def play(index: KvIndex, model: SetModel, operations, count: bool, salts: dict[str, int]) -> None:
    """Stores come with their parents held, as an engine sends them; removals are of any block, so holes appear."""
    for what, worker, labels, first in operations:
        salt = salts.get(worker, 0)
        mine = model.copies.get(worker, {})
        if what == "store":
            first = min(first, len(labels) - 1)
            while first and tuple(labels[:first]) not in mine:
                first -= 1
            index.apply_batch(worker, batch(stored(labels, first, salt)))
            model.store(worker, labels, first, count)
        elif what == "remove":
            index.apply_batch(worker, batch(removed(labels, salt=salt)))
            model.remove(worker, labels)
        elif what == "leave":
            index.remove_worker(worker)
            model.leave(worker)
        else:
            index.apply_batch(worker, batch(CLEARED))
            model.clear(worker)


@pytest.mark.parametrize("count", [True, False])
@pytest.mark.parametrize("mode", ["tokens", "engine"])
@settings(max_examples=examples(120))
@given(operations=st.lists(operation, max_size=40), questions=st.lists(labels_of, min_size=1, max_size=5))
def test_the_index_answers_as_plain_sets_do(mode, count, operations, questions):
    index, model = index_of(mode, count_copies=count), SetModel()
    salts = {"b:8000": 7} if mode == "tokens" else {}
    play(index, model, operations, count, salts)
    for labels in [*questions, *(one[2] for one in operations)]:
        assert asked(index, labels, mode) == model.scores(labels)
    for worker in WORKERS:
        assert index.held(worker) == len(model.copies.get(worker, {}))
        index.remove_worker(worker)
    assert len(index) == 0


@settings(max_examples=examples(60))
@given(
    chains=st.lists(labels_of, min_size=1, max_size=5),
    order=st.randoms(use_true_random=False),
    mode=st.sampled_from(["tokens", "engine"]),
)
def test_single_blocks_may_come_in_any_order(chains, order, mode):
    index, model = index_of(mode, count_copies=False), SetModel()
    events = [(labels[: end + 1], end) for labels in chains for end in range(len(labels))]
    order.shuffle(events)
    for labels, first in events:
        index.apply_batch("a", batch(stored(labels, first)))
        model.store("a", labels, first, count=False)
    for labels in chains:
        assert asked(index, labels, mode) == model.scores(labels) == {"a": len(labels)}


@pytest.mark.report(12)
def test_a_block_with_two_physical_copies_stays_until_the_second_is_removed():
    index = index_of("tokens")
    index.apply_batch("a", batch(stored([1, 2, 3]), stored([1, 2, 3])))
    index.apply_batch("a", batch(removed([1, 2, 3])))
    assert asked(index, [1, 2, 3], "tokens") == {"a": 3}
    index.apply_batch("a", batch(removed([1, 2, 3])))
    assert asked(index, [1, 2, 3], "tokens") == {"a": 2}


@pytest.mark.report(12)
def test_a_removal_that_tells_the_copies_left_is_believed():
    index = index_of("engine")
    index.apply_batch("a", batch(stored([1, 2]), removed([1, 2], remaining_copy_counts=[2])))
    index.apply_batch("a", batch(removed([1, 2])))
    assert asked(index, [1, 2], "engine") == {"a": 2}
    index.apply_batch("a", batch(removed([1, 2], remaining_copy_counts=[0])))
    assert asked(index, [1, 2], "engine") == {"a": 1}


@pytest.mark.report(12)
def test_without_counting_copies_a_block_removed_too_early_is_back_when_stored_again():
    index = index_of("tokens", count_copies=False)
    index.apply_batch("a", batch(stored([1, 2, 3]), stored([1, 2, 3]), removed([1, 2])))
    assert asked(index, [1, 2, 3], "tokens") == {"a": 1}
    index.apply_batch("a", batch(stored([1, 2], 1)))
    assert asked(index, [1, 2, 3], "tokens") == {"a": 3}


@pytest.mark.report(13)
def test_a_parent_that_was_never_announced_neither_drops_nor_misplaces_its_children():
    index = index_of("tokens")
    index.apply_batch("a", batch(stored([1, 2, 3, 4], 2)))
    assert asked(index, [1, 2, 3, 4], "tokens") == {} == asked(index, [3, 4], "tokens")
    index.apply_batch("a", batch(stored([1, 2])))
    assert asked(index, [1, 2, 3, 4], "tokens") == {"a": 4} and index.counts.adopted == 2


@pytest.mark.report(13)
@pytest.mark.parametrize("mode", ["tokens", "engine"])
def test_tokens_that_span_skipped_blocks_are_not_laid_to_the_wrong_block(mode):
    index = index_of(mode)
    sparse = stored([1, 2, 3], 1)
    del sparse["block_hashes"][0]  # the hash of the last block, the tokens of the last two
    index.apply_batch("a", batch(stored([1]), sparse))
    assert asked(index, [1, 2, 3], mode) == {"a": 1} == asked(index, [1, 2], mode)
    assert asked(index, [1, 3], mode) == {"a": 1}
    assert index.counts.misaligned == 1


@pytest.mark.report(14)
@pytest.mark.parametrize("mode", ["tokens", "engine"])
def test_blocks_stored_before_the_index_listened_are_placed_when_their_parents_are_known(mode):
    index = index_of(mode)
    index.apply_batch("a", batch(stored([1, 2, 3, 4, 5], 4), stored([1, 2, 3, 4], 2), removed([1, 2, 3, 4, 5])))
    index.apply_batch("a", batch(stored([1, 2])))
    assert asked(index, [1, 2, 3, 4, 5], mode) == {"a": 4}


@pytest.mark.report(14)
def test_blocks_that_wait_for_a_parent_are_bounded_and_the_oldest_are_given_up():
    index = index_of("tokens", max_orphans=4)
    for label in range(10, 20):
        index.apply_batch("a", batch(stored([label, 1, 2], 1)))
    assert index.counts.orphaned == 20 and index.counts.orphans_dropped == 16
    for label in range(10, 20):
        index.apply_batch("a", batch(stored([label])))
    assert [asked(index, [label, 1, 2], "tokens")["a"] for label in range(10, 20)] == [1] * 8 + [3, 3]


@pytest.mark.report(15)
@pytest.mark.parametrize("mode", ["tokens", "engine"])
def test_all_blocks_cleared_clears_that_worker_alone(mode):
    index = index_of(mode)
    for worker in ("a", "b"):
        index.apply_batch(worker, batch(stored([1, 2, 3])))
    index.apply_batch("a", batch(CLEARED))
    assert asked(index, [1, 2, 3], mode) == {"b": 3} and index.held("a") == 0


@pytest.mark.report(27)
@pytest.mark.parametrize("mode", ["tokens", "engine"])
def test_a_worker_that_never_removes_anything_stays_within_its_cap(mode):
    index = index_of(mode, max_blocks=64)
    for label in range(200):
        index.apply_batch("a", batch(stored([label, 1, 2, 3])))
        assert index.held("a") <= 64 and len(index) <= 64
    assert index.counts.over_cap >= 200 * 4 - 64
    assert asked(index, [199, 1, 2, 3], mode) == {"a": 4} and asked(index, [0, 1, 2, 3], mode) == {}


@pytest.mark.report(27)
def test_over_the_cap_tails_go_before_heads_and_the_least_recently_stored_first():
    index = index_of("engine", max_blocks=6, count_copies=False)
    index.apply_batch("a", batch(stored([1, 2, 3]), stored([4, 5, 6]), stored([1, 2, 3])))
    index.apply_batch("a", batch(stored([7])))
    assert asked(index, [1, 2, 3], "engine") == {"a": 3} and asked(index, [4, 5, 6], "engine") == {"a": 2}


def test_memory_comes_back_when_workers_leave_and_is_reported_per_million_blocks():
    index = index_of("tokens")
    for worker in range(4):
        for label in range(300):
            index.apply_batch(str(worker), batch(stored([label + 1000 * worker, 1, 2, 3])))
    use = index.memory()
    assert use.blocks == use.held == 4800
    assert 80e6 < use.bytes_per_million_blocks < 600e6
    for worker in range(4):
        index.remove_worker(str(worker))
    assert index.memory().blocks == 0 and index.memory().held == 0


@pytest.mark.parametrize("how", [{"lora_name": "sql"}, {"lora_id": 3}, {"extra_keys": [["tenant-1"], None]}])
def test_adapters_and_salts_keep_equal_tokens_apart(how):
    index = index_of("tokens")
    index.apply_batch("a", batch(stored([1, 2], **how)))
    assert asked(index, [1, 2], "tokens") == {}
    lora = how.get("lora_name") or (str(how["lora_id"]) if "lora_id" in how else None)
    salt = "tenant-1" if "extra_keys" in how else None
    assert index.scores(index.prompt_keys(flat([1, 2]), lora, salt)) == {"a": 2}
    assert prompt_keys(flat([1, 2]), BLOCK, lora, salt) == index.prompt_keys(flat([1, 2]), lora, salt)


def test_an_adapter_that_is_also_listed_in_every_block_counts_once():
    index = index_of("tokens")
    index.apply_batch("a", batch(stored([1, 2], lora_name="sql", extra_keys=[["sql"], ["sql"]])))
    assert index.scores(index.prompt_keys(flat([1, 2]), "sql")) == {"a": 2}


def test_tiers_are_kept_apart_and_continue_each_other():
    index = index_of("tokens")
    index.apply_batch("a", batch(stored([1, 2, 3, 4, 5, 6])))
    index.apply_batch("a", batch(stored([1, 2, 3, 4, 5, 6], medium="CPU", token_ids=[], parent_block_hash=None)))
    gone = [removed([1, 2, 3, 4, 5, 6][:end]) for end in (6, 5, 4, 3)]
    index.apply_batch("a", batch(*gone, removed([1, 2, 3, 4, 5, 6], medium="CPU")))
    index.apply_batch("b", batch(stored([1, 2]), stored([1, 2, 3], 2, medium="STORAGE")))
    index.apply_batch("c", batch(stored([1, 2], medium="CPU")))
    keys = index.prompt_keys(flat([1, 2, 3, 4, 5, 6]))
    assert index.overlap(keys) == {"a": TierBlocks(2, 3, 0), "b": TierBlocks(2, 0, 1), "c": TierBlocks(0, 2, 0)}
    assert index.scores(keys) == {"a": 2, "b": 2}


def test_offloaded_blocks_without_tokens_are_known_from_the_gpu_or_counted():
    index = index_of("tokens")
    index.apply_batch("a", batch(stored([1, 2], medium="CPU", token_ids=[])))
    assert index.counts.without_tokens == 2 and len(index) == 0


def test_sliding_window_groups_do_not_count_and_their_removals_remove_nothing():
    index = index_of("tokens")
    index.apply_batch("a", batch(stored([1, 2], group_idx=0, kv_cache_spec_kind="full_attention")))
    index.apply_batch("a", batch(stored([1, 2], group_idx=1, kv_cache_spec_kind="sliding_window")))
    index.apply_batch("a", batch(removed([1], group_idx=1)))
    assert asked(index, [1, 2], "tokens") == {"a": 2}
    index.apply_batch("a", batch(removed([1, 2], group_idx=0)))
    assert asked(index, [1, 2], "tokens") == {"a": 1}


@pytest.mark.parametrize(
    "event, field",
    [
        (stored([1, 2], block_size=BLOCK * 2), "other_block_size"),
        (stored([1, 2], token_ids=[0] * 7), "misaligned"),
        (stored([1, 2], token_ids=[-1] * 8), "bad_tokens"),
        (stored([1, 2], token_ids=["x"] * 8), "bad_tokens"),
        (stored([1, 2], medium="MOON"), "unknown_medium"),
        (stored([1, 2], block_hashes=[5, 5]), "repeated"),
        (removed([1, 2]), "removed_unknown"),
    ],
)
def test_what_cannot_be_used_is_counted_and_changes_nothing(event, field):
    index = index_of("tokens")
    index.apply_batch("a", batch(event))
    assert getattr(index.counts, field) > 0 and len(index) == 0


def test_a_slot_is_used_again_with_a_new_generation():
    index = index_of("tokens")
    for worker in ("a", "b"):
        index.apply_batch(worker, batch(stored([1])))
    slot = index.slots.slot["a"]
    index.remove_worker("a")
    index.apply_batch("c", batch(stored([1, 2])))
    assert index.slots.slot["c"] == slot and index.slots.generations[slot] == 1
    assert asked(index, [1, 2], "tokens") == {"b": 1, "c": 2}
    assert index.slots.scores([(1, 1 << slot | 1 << index.slots.slot["b"])]) == {"c": 1, "b": 1}


def test_bytes_and_integers_of_the_same_engine_hash_are_one_block():
    index = index_of("tokens")
    event = stored([1, 2])
    wide = {**event, "block_hashes": [b"\x99" * 24 + one.to_bytes(8, "big") for one in event["block_hashes"]]}
    index.apply_batch("a", batch(wide, removed([1, 2])))
    assert asked(index, [1, 2], "tokens") == {"a": 1}


def test_the_standard_library_hash_gives_the_same_answers():
    index = index_of("tokens", hash=blake2b_64)
    index.apply_batch("a", batch(stored([1, 2, 3]), stored([1, 5], 1)))
    assert asked(index, [1, 2, 3], "tokens") == {"a": 3} and asked(index, [1, 5, 3], "tokens") == {"a": 2}


def test_a_hash_that_an_engine_uses_anew_stands_for_the_new_block():
    index = index_of("tokens")
    event = stored([1, 2])
    again = {**stored([3, 4]), "block_hashes": event["block_hashes"]}
    index.apply_batch("a", batch(event, again))
    assert asked(index, [1, 2], "tokens") == {} and asked(index, [3, 4], "tokens") == {"a": 2}
    assert len(index) == 2


def test_two_engine_hashes_for_the_same_tokens_are_removed_one_by_one():
    index = index_of("tokens")
    index.apply_batch("a", batch(stored([1, 2]), stored([1, 2], salt=9)))
    index.apply_batch("a", batch(removed([1, 2])))
    assert asked(index, [1, 2], "tokens") == {"a": 2}
    index.apply_batch("a", batch(removed([1, 2], salt=9)))
    assert asked(index, [1, 2], "tokens") == {"a": 1}


def test_a_growing_conversation_hashes_only_what_is_new():
    from tonnage.inference.index import PromptKeys

    whole = [token for label in range(9) for token in tokens_of(label)]
    grown = PromptKeys(BLOCK, "sql", "tenant")
    for at in range(0, len(whole), 5):
        keys = grown.extend(whole[at : at + 5])
    assert keys == prompt_keys(whole, BLOCK, "sql", "tenant") and len(keys) == 9


def test_an_event_that_lists_a_block_twice_leaves_nothing_behind_when_it_is_removed():
    index = index_of("engine")
    index.apply_batch("b", batch(stored([1])))
    one, two = engine_hash([1]), engine_hash([1, 2])
    index.apply_batch("a", batch(stored([1, 2, 3], block_hashes=[one, two, one])))
    index.apply_batch("a", batch(removed([1]), removed([1, 2])))
    assert index.scores([one, two]) == {"b": 1} and index.held("a") == 0
