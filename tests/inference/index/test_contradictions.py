"""Publishers that contradict each other or themselves, against plain sets of keys."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from index_models import CLEARED, batch

from deep_seeds import examples
from tonnage.inference.index import KvIndex, TierBlocks, runs
from tonnage.inference.index.runs import RunIndex

BLOCK = 1
WORKERS = "abc"
KEYS = 8
key = st.integers(0, KEYS - 1)
names = st.lists(key, min_size=1, max_size=5)
parents = st.none() | key
operation = st.one_of(
    st.tuples(st.just("store"), st.sampled_from(WORKERS), names, parents),
    st.tuples(st.just("store"), st.sampled_from(WORKERS), names, parents),
    st.tuples(st.just("remove"), st.sampled_from(WORKERS), names, st.none()),
    st.tuples(st.sampled_from(["clear", "leave"]), st.sampled_from(WORKERS), st.just([]), st.none()),
)
operations_of = st.lists(operation, max_size=40)
media = st.sampled_from(["GPU", "GPU", "CPU"])
prompts = st.lists(st.lists(key, min_size=1, max_size=8), min_size=1, max_size=6)


class Statements:
    """Which predecessors were stated for each key since the index last had no such key: what a prompt may contradict."""

    def __init__(self) -> None:
        self.of: dict[int, set[int]] = {}

    def store(self, parent: int | None, keys: Sequence[int]) -> None:
        for before, one in zip([parent, *keys], keys, strict=False):
            self.of.setdefault(one, set())
            if before is not None:
                self.of[one].add(before)

    def keep(self, held: set[int]) -> None:
        self.of = {one: stated for one, stated in self.of.items() if one in held}

    def allow(self, prompt: Sequence[int]) -> bool:
        """False if a key follows another than the only one that all publishers state for it."""
        pairs = pairwise(prompt)
        return all(len(stated := self.of.get(one, set())) != 1 or before in stated for before, one in pairs)


def leading(prompt: Sequence[int], held: Any) -> int:
    return next((at for at, one in enumerate(prompt) if one not in held), len(prompt))


def check_answers(answers: dict[Any, int], held: dict[Any, Any], prompt: Sequence[int], allowed: bool) -> None:
    if allowed:
        assert answers == {who: depth for who, mine in held.items() if (depth := leading(prompt, mine))}
    for who, mine in held.items():
        depth = answers.get(who, 0)
        assert depth >= leading(prompt, mine)
        assert depth == len(prompt) or prompt[depth] not in mine


def prompts_of(statements: Statements, asked: list[list[int]]) -> list[list[int]]:
    """Those asked, and the ways back from every key by what was stated, up to where it goes round."""
    ways = []
    for one in statements.of:
        way = [one]
        while len(way) < 6 and (stated := statements.of.get(way[0])):
            way.insert(0, min(stated) if len(way) % 2 else max(stated))
        ways += [way, [*way, *asked[0]]]
    return asked + ways


def stored(names: list[int], parent: int | None, medium: str = "GPU") -> dict[str, Any]:
    told = {"block_hashes": names, "parent_block_hash": parent, "token_ids": [1] * len(names), "block_size": BLOCK}
    return {"type": "BlockStored", "medium": medium, **told}


@pytest.mark.parametrize("longest", [1, 3, 1024])
@settings(max_examples=examples(200), deadline=None)
@given(operations=operations_of, asked=prompts)
def test_runs_whose_parents_contradict_each_other_answer_as_plain_sets_do(longest, operations, asked):
    before, runs.MAX_RUN = runs.MAX_RUN, longest
    index, statements = RunIndex(), Statements()
    held: dict[str, set[int]] = {name: set() for name in WORKERS}
    bits = {name: 1 << number for number, name in enumerate(WORKERS)}
    try:
        for what, name, keys, parent in operations:
            if what == "store":
                again = index.store(bits[name], parent, list(keys))
                said = {at for low, high in again for at in range(low, high)}
                first = {keys.index(one) for one in keys}
                assert said & first == {at for at in first if keys[at] in held[name]}
                held[name].update(keys)
                statements.store(parent, keys)
            elif what == "remove":
                unknown = index.remove(bits[name], keys)
                assert unknown == len(keys) - len(held[name].intersection(keys))
                held[name].difference_update(keys)
            else:
                index.clear(bits[name], list(held[name]))
                held[name].clear()
            index.check()
            statements.keep(set().union(*held.values()))
        assert len(index) == len(set().union(*held.values()))
        for prompt in prompts_of(statements, asked):
            answers = {name: depth for depth, mask in index.groups(prompt) for name in WORKERS if mask & bits[name]}
            check_answers(answers, held, prompt, statements.allow(prompt))
        for name in WORKERS:
            index.clear(bits[name], list(held[name]))
            index.check()
        assert len(index) == 0
    finally:
        runs.MAX_RUN = before


class Copies:
    """What each worker holds in each tier, by engine hash, with the number of copies. A list tells of a block once."""

    def __init__(self, count: bool) -> None:
        self.count = count
        self.tiers: dict[str, dict[str, dict[int, int]]] = {
            medium: {name: {} for name in WORKERS} for medium in ("GPU", "CPU")
        }

    def apply(self, what: str, name: str, keys: list[int], medium: str) -> None:
        mine = self.tiers[medium][name]
        if what == "store":
            for one in set(keys):
                mine[one] = mine.get(one, 0) + 1 if self.count else 1
        elif what == "remove":
            for one in keys:
                if mine.get(one, 0) > 1:
                    mine[one] -= 1
                else:
                    mine.pop(one, None)
        else:
            for held in self.tiers.values():
                held[name].clear()


def apply(index: KvIndex, what: str, name: str, keys: list[int], parent: int | None, medium: str) -> None:
    if what == "leave":
        index.remove_worker(name)
    elif what == "clear":
        index.apply_batch(name, batch(CLEARED))
    elif what == "store":
        index.apply_batch(name, batch(stored(keys, parent, medium)))
    else:
        index.apply_batch(name, batch({"type": "BlockRemoved", "block_hashes": keys, "medium": medium}))


@pytest.mark.parametrize("count", [True, False])
@settings(max_examples=examples(300), deadline=None)
@given(operations=st.lists(st.tuples(operation, media), max_size=40), asked=prompts)
def test_engine_hashes_whose_parents_contradict_each_other_answer_as_plain_sets_do(count, operations, asked):
    index, model = KvIndex(BLOCK, keys="engine", count_copies=count), Copies(count)
    statements = {"GPU": Statements(), "CPU": Statements()}
    for (what, name, keys, parent), medium in operations:
        apply(index, what, name, list(keys), parent, medium)
        model.apply(what, name, keys, medium)
        if what == "store":
            statements[medium].store(parent, keys)
        for tier, told in statements.items():
            told.keep({one for mine in model.tiers[tier].values() for one in mine})
    device, host = model.tiers["GPU"], model.tiers["CPU"]
    for prompt in prompts_of(statements["GPU"], asked):
        check_answers(index.scores(prompt), device, prompt, statements["GPU"].allow(prompt))
        if all(told.allow(prompt) for told in statements.values()):
            want = {}
            for name in WORKERS:
                first = leading(prompt, device[name])
                further = leading(prompt[first:], host[name])
                if first or further:
                    want[name] = TierBlocks(first, further)
            assert index.overlap(prompt) == want
    for tier, medium in enumerate(("GPU", "CPU")):
        assert {name: index.held(name, tier) for name in WORKERS} == {
            name: len(mine) for name, mine in model.tiers[medium].items()
        }
    for name in WORKERS:
        index.remove_worker(name)
    assert len(index) == 0


@settings(max_examples=examples(200), deadline=None)
@given(
    operations=st.lists(st.tuples(operation, media), max_size=40),
    mode=st.sampled_from(["engine", "tokens"]),
    most=st.sampled_from([1, 4, 100]),
    waiting=st.sampled_from([0, 1, 100]),
)
def test_small_caps_and_contradictions_neither_raise_nor_leave_blocks_behind(operations, mode, most, waiting):
    index = KvIndex(BLOCK, keys=mode, max_blocks=most, max_orphans=waiting)
    for (what, name, keys, parent), medium in operations:
        apply(index, what, name, list(keys), parent, medium)
        assert all(index.held(name, tier) <= most for name in WORKERS for tier in (0, 1))
    for name in WORKERS:
        index.remove_worker(name)
    assert len(index) == 0


def play(*told: tuple[str, str, list[int], int | None]) -> KvIndex:
    index = KvIndex(BLOCK, keys="engine")
    for what, name, keys, parent in told:
        apply(index, what, name, keys, parent, "GPU")
    return index


S, R = "store", "remove"


@pytest.mark.parametrize(
    "told",
    [
        [(S, "b", [9], 9), (S, "a", [9], None)],
        [(S, "a", [0, 5], 5), (S, "b", [0], 11), (R, "b", [2, 0, 0], None), (R, "a", [5], None)],
        [
            *[(S, "b", [0, 7], None), (S, "b", [7, 6], None), (R, "b", [0], None)],
            *[(S, "a", [6, 0, 9], 7), (S, "b", [0], None), (S, "a", [7], None)],
        ],
        [(S, "b", [0, 7], 11), (S, "b", [0, 3], None), (S, "b", [11], 3), (S, "a", [11, 0, 9], None)],
    ],
    ids=["own parent", "own descendant as parent", "a circle through a hole", "a circle of two workers"],
)
def test_a_circle_of_parents_leaves_nothing_behind(told):
    index = play(*told)
    for name in "ab":
        index.remove_worker(name)
    assert len(index) == 0


def test_the_first_parent_stated_counts_and_another_is_counted_as_a_contradiction():
    index = play((S, "liar", [1, 9, 3], None), (S, "a", [1, 2, 3], None))
    assert index.counts.contradicted == 1
    assert index.scores([1, 2, 3]) == {"liar": 1, "a": 3}
    assert index.scores([1, 9, 3]) == {"liar": 3, "a": 1}


def test_a_contradicted_block_is_never_passed_over_unseen_when_holders_change_to_the_same():
    index = play((S, "liar", [1, 9, 3, 4], None), (S, "a", [1, 2, 3, 4], None), (S, "a", [9], 1), (R, "a", [2], None))
    assert index.scores([1, 2, 3, 4]) == {"liar": 1, "a": 1}
    assert index.scores([1, 9, 3, 4]) == {"liar": 4, "a": 4}


@pytest.mark.parametrize("rest", [[], [(S, "c", [4, 5], 3)]], ids=["cut", "cut and joined again"])
def test_a_contradicted_block_stays_at_the_beginning_of_its_run_through_cuts_and_joints(rest):
    told = [(S, "b", [1, 9, 3, 4, 5], None), (S, "a", [1, 2, 3, 4, 5], None), (S, "c", [1, 9, 3], None), *rest]
    index = play(*told, (S, "a", [9], 1))
    assert index.scores([1, 2, 3, 4, 5]) == {"a": 5, "b": 1, "c": 1}


@pytest.mark.parametrize(
    ("told", "count"),
    [
        ([(S, "a", [9], 9)], 1),  # follows itself
        ([(S, "a", [9], 9), (S, "b", [9], 4)], 1),  # so its parent was still to be stated
        ([(S, "a", [5, 6], 6)], 1),  # follows its own child
        ([(S, "a", [5, 6, 5], None)], 1),  # listed twice
        ([(S, "a", [5], 4), (S, "b", [5], 4), (S, "b", [5], None)], 0),  # no parent contradicts nothing
        ([(S, "a", [5], None), (S, "b", [5], 4), (S, "c", [5], 3)], 1),  # the first that is stated counts
        ([(S, "a", [5], 4), (R, "a", [5], None), (S, "b", [5], 3)], 0),  # nobody held it: forgotten
    ],
)
def test_contradictions_are_counted(told, count):
    assert play(*told).counts.contradicted == count


def test_a_block_listed_twice_is_one_copy():
    index = play((S, "a", [5, 6, 5], None), (S, "a", [5, 6, 5], None), (R, "a", [5], None))
    assert index.scores([5, 6]) == {"a": 2}
    apply(index, R, "a", [5], None, "GPU")
    assert index.scores([5, 6]) == {}


def test_a_store_without_tokens_and_block_size_says_nothing_of_order():
    index = KvIndex(BLOCK, keys="engine")
    told = {"type": "BlockStored", "block_hashes": [4, 9], "medium": "CPU"}
    index.apply_batch("a", batch(told, stored([8, 9], None, "CPU")))
    assert index.counts.contradicted == 0 and index.held("a", 1) == 3


def test_a_batch_of_contradictions_does_not_keep_a_later_event_from_being_read():
    told = [stored([9], 9), stored([9, 9, 8], 8), stored([8], 9), stored([1, 2], None)]
    index = KvIndex(BLOCK, keys="engine")
    index.apply_batch("a", batch(*told))
    assert index.scores([1, 2]) == {"a": 2} and index.counts.contradicted == 2
