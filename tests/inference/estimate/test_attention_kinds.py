"""Bytes and FLOPs of each kind of attention, and what was measured of them on a real H200."""

from __future__ import annotations

import json
from typing import Any

import pytest
from estimate_builders import replica
from msgspec.structs import replace

from benchmarks import estimator_layers
from tonnage.facts import gpus, hf_config, models
from tonnage.inference.estimate import Load, estimate, step_seconds
from tonnage.inference.estimate.case import figures

FP8: dict[str, Any] = {"precision": "fp8", "tensor_parallel": 8}


def growth(model: str, low: int, high: int, **asked: Any) -> float:
    """Seconds that a token more of context adds to a decode step of 16 sequences."""
    ends = [step_seconds(models.get(model), "h200", batch=16, context=tokens, **FP8, **asked) for tokens in (low, high)]
    return (ends[1] - ends[0]) / (high - low)


def test_latent_attention_decodes_in_the_latent_space_and_reads_prompts_outside_of_it() -> None:
    known = figures(replica("DeepSeek-V3", "h200", "fp8", tensor_parallel=8))
    assert known.decode_pair_flops == 2 * 61 * 128 / 8 * (2 * 512 + 64)
    assert known.prefill_pair_flops == 2 * 61 * 128 / 8 * (128 + 64 + 128)
    assert known.kv_bytes == 61 * (512 + 64) * 2  # on every rank


def test_sparse_attention_reads_what_its_indexer_picks_and_the_indexer_reads_all() -> None:
    known = figures(replica("DeepSeek-V3.2", "h200", "fp8", tensor_parallel=8))
    assert known.kv_bytes == 61 * (128 + 4)
    assert (known.window, known.window_kv_bytes) == (2048, 61 * (512 + 64) * 2)
    h200 = gpus.get("h200")
    assert known.decode_pair_flops == pytest.approx(2 * 61 * 64 * 128 * h200.bf16_flops / (h200.fp8_flops or 1))


@pytest.mark.parametrize(("model", "dense"), [("DeepSeek-V3.2", "DeepSeek-V3")])
def test_beyond_what_it_picks_a_long_context_costs_sparse_attention_less(model: str, dense: str) -> None:
    assert growth(model, 256, 1024) > growth(dense, 256, 1024)
    assert 4 * growth(model, 8192, 65536) < growth(dense, 8192, 65536)


def test_sparse_attention_keeps_every_token_and_the_keys_of_its_indexer() -> None:
    rooms = [
        estimate(replica(name, "h200", "fp8", tensor_parallel=8), Load(4, 16384, 1024)).room
        for name in ("DeepSeek-V3", "DeepSeek-V3.2")
    ]
    assert rooms[1] / rooms[0] == pytest.approx(61 * 1152 / (61 * 1152 + 61 * 132), rel=0.01)


def test_an_indexer_is_read_from_a_configuration_with_layers_that_share_one() -> None:
    config = {
        "model_type": "glm_moe_dsa",
        "architectures": ["GlmMoeDsaForCausalLM"],
        "hidden_size": 6144,
        "num_hidden_layers": 4,
        "num_attention_heads": 64,
        "vocab_size": 1000,
        "intermediate_size": 12288,
        "kv_lora_rank": 512,
        "q_lora_rank": 2048,
        "qk_nope_head_dim": 192,
        "qk_rope_head_dim": 64,
        "v_head_dim": 256,
        "index_topk": 2048,
        "index_n_heads": 32,
        "index_head_dim": 128,
    }
    shape = hf_config.parse(json.loads(json.dumps(config)), name="sparse").shape
    assert (shape.index_tokens, shape.index_heads, shape.index_head_dim, shape.index_layers) == (2048, 32, 128, 4)
    shared = hf_config.parse({**config, "indexer_types": ["full", "shared", "shared", "full"]}, name="shared").shape
    assert shared.index_layers == 2
    plain = {name: value for name, value in config.items() if not name.startswith("index")}
    assert hf_config.parse(plain, name="plain").shape.index_tokens == 0


def test_a_window_and_a_state_do_not_grow_with_the_context() -> None:
    window = figures(replica("gpt-oss-120b", "h200", "mxfp4"))
    assert window.window_kv_bytes == 18 * 2 * 8 * 64 * 2
    state = figures(replica("Qwen3.5-397B-A17B", "h200", "fp8", tensor_parallel=8))
    assert state.state_bytes == pytest.approx(45 * models.get("Qwen3.5-397B-A17B").state_bytes / 8)
    assert state.kv_bytes == 15 * 2 * 256 * 2


def measured(kind: str, batch: int, context: int) -> float:
    """Seconds that a layer's attention took on an H200."""
    return next(
        float(row["us"]) / 1e6
        for row in estimator_layers.rows("gpu_attention_h200.csv")
        if (row["kind"], int(row["batch"]), int(row["context"])) == (kind, batch, context)
    )


@pytest.mark.parametrize(
    ("kind", "batch", "context", "bytes_read"),
    [
        ("gqa-8x64", 32, 32768, 32 * 32768 * 2 * 8 * 64 * 2),
        ("gqa-8x64", 64, 4096, 64 * 4096 * 2 * 8 * 64 * 2),
        ("mla-absorbed", 32, 32768, 2 * 32 * 32768 * 576 * 2),  # once for the scores, once for the values
        ("sparse-index", 32, 32768, 32 * 32768 * 128 * 2),
        ("linear-64x128", 64, 4096, 2 * 64 * 64 * 128 * 128 * 4),
    ],
)
def test_no_measured_kernel_is_faster_than_the_bytes_that_are_said(
    kind: str, batch: int, context: int, bytes_read: float
) -> None:
    least = bytes_read / gpus.get("h200").bandwidth_bytes_per_s
    assert least < measured(kind, batch, context)


def test_picking_costs_more_than_reading_at_few_sequences_and_attending_to_the_picked_does_not_grow() -> None:
    assert measured("sparse-index", 1, 8192) > 20 * 8192 * 128 * 2 / gpus.get("h200").bandwidth_bytes_per_s
    ratio = measured("sparse-attend-2048", 32, 32768) / measured("sparse-attend-2048", 32, 8192)
    assert ratio == pytest.approx(1, rel=0.1)
    assert measured("mla-absorbed", 32, 32768) / measured("mla-absorbed", 32, 8192) > 2.5


def test_a_shape_without_an_indexer_attends_to_all() -> None:
    sparse = models.get("DeepSeek-V3.2")
    plain = replace(sparse, index_tokens=0, index_heads=0, index_head_dim=0, index_layers=0)
    asked: dict[str, Any] = {"batch": 4, "context": 100_000, **FP8}
    assert step_seconds(plain, "h200", **asked) > step_seconds(sparse, "h200", **asked)
