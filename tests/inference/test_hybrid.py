"""KV blocks of hybrid models: groups, pages, what a sequence holds, capacities."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inference_builders import LLAMA_8B, LLAMA_70B

from tonnage.facts import models
from tonnage.facts.models import ModelShape
from tonnage.inference.hybrid import BlockGroup, Layers, layout
from tonnage.inference.memory import kv_capacity, kv_kinds, kv_token_bytes, precision
from tonnage.units import GIB

KV = precision("bf16", kv=True)
OSS_20B, OSS_120B = models.get("gpt-oss-20b"), models.get("gpt-oss-120b")
GEMMA_3, GEMMA_4 = models.get("gemma-3-27b"), models.get("gemma-4-31b")


@pytest.mark.parametrize(
    ("model", "full", "window", "span"),
    [(OSS_20B, 24_576, 24_576, 128), (OSS_120B, 36_864, 36_864, 128), (GEMMA_3, 81_920, 425_984, 1024)],
    ids=lambda value: getattr(value, "name", None),
)
def test_the_bytes_of_a_token_are_the_published_ones(model: ModelShape, full: int, window: int, span: int) -> None:
    kept, windowed = kv_kinds(model, KV)
    assert (kept.kind, kept.layers * kept.token_bytes) == ("full", full)
    assert (windowed.kind, windowed.layers * windowed.token_bytes, windowed.span) == ("window", window, span)
    assert full * 5000 + window * span == model.kv_bytes(5000)


@pytest.mark.parametrize(
    ("counts", "group_layers", "groups"),
    [
        ((12, 12), 12, (1, 1)),  # gpt-oss-20b
        ((10, 20), 10, (1, 2)),
        ((13, 12), 13, (1, 1)),  # with a drafter's layer: padded, not split
        ((10, 52), 10, (1, 6)),  # Gemma 3: the last of six groups is padded
        ((20, 30), 20, (1, 2)),  # 1.5 times is not under 1.5 times
    ],
)
def test_layers_are_grouped_by_the_rarest_kind(
    counts: tuple[int, int], group_layers: int, groups: tuple[int, int]
) -> None:
    plan = layout([Layers("full", counts[0], 2048), Layers("window", counts[1], 2048, span=128)])
    assert plan.group_layers == group_layers
    assert tuple(group.count for group in plan.groups) == groups
    assert plan.block_bytes == 16 * 2048 * group_layers


def test_pages_become_equal_by_more_tokens_where_a_token_is_smaller() -> None:
    plan = layout(kv_kinds(GEMMA_4, KV))
    assert [(group.layers.kind, group.block_size) for group in plan.groups] == [("full", 32), ("window", 16)]
    assert plan.page_bytes == 16 * 16_384 and plan.block_size == 32


def test_a_page_that_does_not_divide_the_largest_is_padded() -> None:
    plan = layout([Layers("full", 4, 3000), Layers("window", 4, 2000, span=64)])
    assert plan.page_bytes == 16 * 3000 and [group.block_size for group in plan.groups] == [16, 16]


def test_attention_blocks_grow_until_a_page_holds_a_state() -> None:
    plan = layout([Layers("full", 6, 1024), Layers("state", 18, state_bytes=100_000)])
    assert plan.block_size == 112 and plan.page_bytes == 112 * 1024  # 98 tokens, up to a multiple of 16
    assert plan.blocks(112) == 1 + 3 and plan.blocks(10_000) == -(-10_000 // 112) + 3


def needed(kind: str, span: int, computed: int, new: int) -> set[int]:
    """Tokens that the new ones read or write, one by one."""
    tokens: set[int] = set()
    for token in range(computed, computed + new):
        first = {"full": 0, "window": max(0, token - span + 1), "chunk": token // span * span}[kind]
        tokens |= set(range(first, token + 1))
    return tokens


@given(
    st.sampled_from(["full", "window", "chunk"]),
    st.integers(1, 40),
    st.integers(1, 9),
    st.integers(0, 120),
    st.integers(1, 30),
)
def test_a_group_holds_exactly_the_blocks_of_the_tokens_it_needs(
    kind: str, span: int, size: int, computed: int, new: int
) -> None:
    group = BlockGroup(Layers(kind, 1, 8, span=span), 1, size)  # type: ignore[arg-type]
    blocks = {token // size for token in needed(kind, span, computed, new)}
    assert group.blocks(computed, new) == len(blocks)


@given(st.integers(1, 300), st.integers(1, 40), st.integers(1, 3000))
def test_a_decoding_window_group_holds_at_most_its_window_and_one_block(span: int, size: int, tokens: int) -> None:
    held = BlockGroup(Layers("window", 1, 8, span=span), 1, size).blocks(tokens - 1, 1)
    assert held <= min(-(-tokens // size), -(-span // size) + 1)


@given(st.integers(1, 6000), st.integers(1, 512), st.sampled_from([OSS_20B, GEMMA_3, GEMMA_4, LLAMA_8B]))
def test_no_step_holds_more_than_vllm_reserves(tokens: int, budget: int, model: ModelShape) -> None:
    plan = layout(kv_kinds(model, KV))
    most = plan.most_blocks(tokens, budget)
    computed = 0
    while computed < tokens:
        new = min(budget, tokens - computed)
        computed += new
        assert plan.blocks(computed, new) <= most


@pytest.mark.parametrize(
    ("model", "tokens", "hybrid", "whole"),
    [
        (OSS_20B, 1_024, 1_517, 853),
        (OSS_20B, 32_768, 53, 26),
        (OSS_120B, 32_768, 35, 17),
        (GEMMA_3, 1_024, 73, 82),  # shorter than its windows: only the padding of the sixth group is left
        (GEMMA_3, 8_192, 36, 10),
        (GEMMA_3, 32_768, 13, 2),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_sequences_in_40_gib_with_groups_and_with_every_layer_whole(
    model: ModelShape, tokens: int, hybrid: int, whole: int
) -> None:
    assert kv_capacity(model, KV, 40 * GIB).sequences(tokens) == hybrid
    assert kv_capacity(model, KV, 40 * GIB, hybrid_layers=False).sequences(tokens) == whole


@pytest.mark.parametrize("ranks", [1, 8])
def test_a_model_without_windows_has_one_block_of_all_layers(ranks: int) -> None:
    held = kv_token_bytes(LLAMA_70B, KV, ranks)
    found = kv_capacity(LLAMA_70B, KV, 40 * GIB, tensor_parallel=ranks)
    assert (found.blocks, found.usable) == (40 * GIB // (16 * held), 40 * GIB // (16 * held) - 1)
    assert found.layout_of_groups is None


@pytest.mark.parametrize(
    "make",
    [
        lambda: Layers("window", 4, 8),
        lambda: Layers("state", 4, 8),
        lambda: Layers("full", 0, 8),
        lambda: layout([]),
        lambda: layout([Layers("full", 1, 8)], 0),
        lambda: layout([Layers("full", 1, 8)]).blocks(4, 5),
    ],
)
def test_what_cannot_be_laid_out_is_refused(make: object) -> None:
    with pytest.raises(ValueError):
        make()  # type: ignore[operator]
