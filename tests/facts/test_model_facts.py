"""Shapes of models against the published KV-cache table and parameter counts, and against a count from the shape."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.errors import InputError
from tonnage.facts import models


@pytest.mark.parametrize(
    ("name", "billions", "active_billions", "kv_bytes"),
    [
        ("Llama-3.1-8B", 8.030, 8.030, 131_072),
        ("Llama-3.1-70B", 70.554, 70.554, 327_680),
        ("Llama-3.1-405B", 405.853, 405.853, 516_096),
        ("Qwen2.5-0.5B", 0.494, 0.494, 12_288),
        ("Qwen2.5-1.5B", 1.544, 1.544, 28_672),
        ("Qwen2.5-3B", 3.086, 3.086, 36_864),
        ("Qwen2.5-7B", 7.616, 7.616, 57_344),
        ("Qwen2.5-14B", 14.770, 14.770, 196_608),
        ("Qwen2.5-32B", 32.764, 32.764, 262_144),
        ("Qwen2.5-72B", 72.706, 72.706, 327_680),
        ("Qwen3-0.6B", 0.596, 0.596, 114_688),
        ("Qwen3-1.7B", 1.721, 1.721, 114_688),
        ("Qwen3-4B", 4.022, 4.022, 147_456),
        ("Qwen3-8B", 8.191, 8.191, 147_456),
        ("Qwen3-14B", 14.768, 14.768, 163_840),
        ("Qwen3-32B", 32.762, 32.762, 262_144),
        ("Qwen3-30B-A3B", 30.532, 3.353, 98_304),
        ("Qwen3-235B-A22B", 235.094, 22.191, 192_512),
        ("Mixtral-8x7B", 46.703, 12.880, 131_072),
        ("Mixtral-8x22B", 140.621, 39.152, 229_376),
        ("DeepSeek-V3", 671.026, 37.552, 70_272),
        ("DeepSeek-R1", 671.026, 37.552, 70_272),
        ("DeepSeek-V3.2", 671.026, 37.552, 70_272),
        ("Kimi-K2", 1_026.408, 32.862, 70_272),
        ("gpt-oss-20b", 20.915, 4.187, 24_576),
        ("gpt-oss-120b", 116.829, 5.712, 36_864),
        ("gemma-3-27b", 27.009, 27.009, 81_920),
        ("gemma-4-31b", 30.697, 30.697, 10 * 4 * 512 * 2 * 2),
    ],
)
def test_a_model_has_the_published_parameters_and_kv_bytes(
    name: str, billions: float, active_billions: float, kv_bytes: int
) -> None:
    model = models.get(name)
    assert round(model.params / 1e9, 3) == billions
    assert round(model.active_params / 1e9, 3) == active_billions
    assert model.kv_bytes_per_token() == kv_bytes


@pytest.mark.parametrize(
    ("name", "window", "window_bytes"),
    [
        ("gpt-oss-20b", 128, 24_576),
        ("gpt-oss-120b", 128, 36_864),
        ("gemma-3-27b", 1_024, 425_984),
        ("gemma-4-31b", 1_024, 819_200),
        ("Llama-3.1-8B", 0, 0),
    ],
)
def test_a_window_layer_keeps_the_last_tokens_only(name: str, window: int, window_bytes: int) -> None:
    model = models.get(name)
    full = model.kv_bytes_per_token()
    assert (model.window, model.window_kv_bytes_per_token()) == (window, window_bytes)
    assert model.kv_bytes(window) == window * (full + window_bytes)
    assert model.kv_bytes(window + 5_000) == (window + 5_000) * full + window * window_bytes


@pytest.mark.parametrize(
    ("name", "intermediate", "tied", "qkv_bias", "qk_norm"),
    [
        ("Llama-3.1-8B", 14_336, False, False, False),
        ("Llama-3.1-70B", 28_672, False, False, False),
        ("Llama-3.2-1B", 8_192, True, False, False),
        ("Mistral-7B-v0.3", 14_336, False, False, False),
        ("Qwen2.5-7B", 18_944, False, True, False),
        ("Qwen2.5-0.5B", 4_864, True, True, False),
        ("Qwen3-8B", 12_288, False, False, True),
        ("Qwen3-4B", 9_728, True, False, True),
    ],
)
def test_the_parameters_of_a_dense_model_are_those_of_its_layers(
    name: str, intermediate: int, tied: bool, qkv_bias: bool, qk_norm: bool
) -> None:
    m = models.get(name)
    queries, keys = m.heads * m.head_dim, m.kv_heads * m.head_dim
    attention = 2 * m.hidden * queries + 2 * m.hidden * keys
    attention += (queries + 2 * keys) * qkv_bias + 2 * m.head_dim * qk_norm
    layer = attention + 3 * m.hidden * intermediate + 2 * m.hidden
    embeddings = m.vocab * m.hidden * (1 if tied else 2)
    assert m.params == m.layers * layer + m.hidden + embeddings


@given(
    model=st.sampled_from(models.all()),
    tokens=st.integers(0, 200_000),
    more=st.integers(0, 200_000),
    size=st.sampled_from([1, 2]),
)
def test_kv_bytes_grow_with_tokens_and_with_the_size_of_an_element(
    model: models.ModelShape, tokens: int, more: int, size: int
) -> None:
    grown = model.kv_bytes(tokens + more, size) - model.kv_bytes(tokens, size)
    assert more * model.kv_bytes_per_token(size) <= grown
    assert grown <= more * (model.kv_bytes_per_token(size) + model.window_kv_bytes_per_token(size))
    states = model.state_layers * model.state_bytes
    assert model.kv_bytes(tokens, 2) - states == 2 * (model.kv_bytes(tokens, 1) - states)


def test_no_model_has_more_active_parameters_than_parameters() -> None:
    assert [m.name for m in models.all() if not 0 < m.active_params <= m.params] == []


def test_window_layers_leave_at_least_one_full_layer() -> None:
    for model in models.all():
        assert 0 <= model.window_layers < model.layers
        assert (model.window > 0) == (model.window_layers > 0)


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B"),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B"),
        ("llama-3.1-8b", "meta-llama/Llama-3.1-8B"),
        ("meta-llama/Llama-3.3-70B-Instruct", "meta-llama/Llama-3.1-70B"),
        ("Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B"),
        ("google/gemma-3-27b-it", "google/gemma-3-27b"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mistralai/Mixtral-8x7B-v0.1"),
        ("moonshotai/Kimi-K2-Instruct", "moonshotai/Kimi-K2"),
    ],
)
def test_a_model_answers_to_its_hugging_face_ids(spelling: str, name: str) -> None:
    assert models.get(spelling).name == name


def test_an_unknown_model_is_refused_with_near_names() -> None:
    with pytest.raises(InputError, match=r"unknown model 'Llama-3.1-9B'.*did you mean Llama-3.1-8B"):
        models.get("meta-llama/Llama-3.1-9B")
