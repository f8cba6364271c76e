"""Block numbers of prompts against a dictionary of everything that comes before a block."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deep_seeds import examples
from tonnage.inference.prompts import BlockNames, between, head, length, numbers

sizes = st.sampled_from([(1, 1), (1, 3), (2, 4), (4, 4), (16, 64)])  # tokens of a block and of a hash
prompts = st.lists(
    st.tuples(
        st.sampled_from([None, "adapter"]),
        st.lists(st.integers(0, 2), max_size=7),
        st.integers(1, 200),  # tokens that the last hash stands for, or of content beyond the hashes
        st.booleans(),
    ),
    min_size=1,
    max_size=14,
)
paths = st.lists(st.tuples(st.integers(0, 99), st.integers(1, 9)), max_size=5).map(
    lambda drawn: tuple((1000 * at + low, 1000 * at + low + size) for at, (low, size) in enumerate(drawn))
)


def tokens_of(hashes: list[int], more: int, beyond: bool, hash_block: int) -> int:
    """Tokens of a prompt that goes on behind its last hash, or ends within it."""
    if beyond or not hashes:
        return len(hashes) * hash_block + more
    return (len(hashes) - 1) * hash_block + 1 + more % hash_block


@settings(max_examples=examples(300))
@given(sizes, prompts)
def test_blocks_have_the_same_number_exactly_if_all_up_to_them_is_the_same(
    size: tuple[int, int], drawn: list[tuple[str | None, list[int], int, bool]]
) -> None:
    block, hash_block = size
    names = BlockNames(block, hash_block)
    known: dict[object, int] = {}
    made = []
    for prompt, (root, hashes, more, beyond) in enumerate(drawn):
        tokens = tokens_of(hashes, more, beyond, hash_block)
        path = names.path(hashes, tokens, root)
        assert length(path) == tokens // block
        keys: list[object] = []
        for at in range(tokens // block):
            hashed = at * block // hash_block
            own = prompt if hashed >= len(hashes) else None
            keys.append((root, tuple(hashes[: hashed + 1]), at, own))
        for key, number in zip(keys, numbers(path), strict=True):
            assert known.setdefault(key, number) == number
        made.append((keys, path))
    assert len(set(known.values())) == len(known)
    assert not known or 0 <= min(known.values()) <= max(known.values()) < names.count
    for keys, path in made:
        for others, other in made:
            common = 0
            while common < min(len(keys), len(others)) and keys[common] == others[common]:
                common += 1
            assert head(path, common) == head(other, common), "what is shared is cut into the same ranges"


@given(sizes, prompts)
def test_ranges_are_as_long_as_can_be(
    size: tuple[int, int], drawn: list[tuple[str | None, list[int], int, bool]]
) -> None:
    block, hash_block = size
    names = BlockNames(block, hash_block)
    for root, hashes, more, beyond in drawn:
        path = names.path(hashes, tokens_of(hashes, more, beyond, hash_block), root)
        assert all(low < high for low, high in path)
        assert all(first[1] != second[0] for first, second in pairwise(path))


@given(paths, st.integers(0, 50), st.integers(0, 50))
def test_a_part_of_a_path_is_the_part_of_its_numbers(path: tuple[tuple[int, int], ...], start: int, stop: int) -> None:
    assert numbers(between(path, start, stop)) == numbers(path)[start : max(start, stop)]
    assert numbers(head(path, stop)) == numbers(path)[:stop]
    assert length(path) == len(numbers(path))


def test_fresh_content_has_numbers_that_no_prompt_has() -> None:
    names = BlockNames(16, 64)
    ((low, high),) = names.path([1, 2], 128)
    assert names.fresh(3) == (high, high + 3)
    assert names.path([1, 2, 3], 192) == ((low, high), (high + 3, high + 7))


@pytest.mark.parametrize(("hashes", "tokens"), [([1, 2], 64), ([1, 2, 3], 100), ([1], 0)])
def test_more_hashes_than_tokens_are_refused(hashes: list[int], tokens: int) -> None:
    with pytest.raises(ValueError, match="hashes"):
        BlockNames(16, 64).path(hashes, tokens)


@pytest.mark.parametrize(("block", "hash_block"), [(0, 64), (64, 16), (16, 40)])
def test_a_hash_must_stand_for_whole_blocks(block: int, hash_block: int) -> None:
    with pytest.raises(ValueError, match="whole blocks"):
        BlockNames(block, hash_block)
