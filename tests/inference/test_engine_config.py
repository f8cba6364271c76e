"""vLLM's memory rule, default limits and refusals."""

from __future__ import annotations

import msgspec
import pytest
from inference_builders import GPUS, LLAMA_8B, LLAMA_70B, gpu

from tonnage.errors import InputError
from tonnage.facts import models
from tonnage.inference import memory
from tonnage.inference.config import engine_config, kv_token_bytes, parse_vllm_args, replica
from tonnage.inference.memory import precision
from tonnage.inference.memory.engines import engine_memory
from tonnage.inference.timing import StepWork
from tonnage.inference.vllm_args import VllmArgs
from tonnage.units import GIB

BF16, BF16_KV = precision("bf16"), precision("bf16", kv=True)


def test_blocks_fill_what_the_other_parts_leave_of_the_requested_memory_less_the_null_block() -> None:
    l40s = GPUS["l40s"]
    found = engine_memory(LLAMA_8B, l40s, stored=BF16, kv=BF16_KV, max_num_batched_tokens=2048, max_num_seqs=256)
    budget, config = found.memory, engine_config(LLAMA_8B, l40s)
    assert budget.requested == -(-memory.visible_bytes(l40s) * 92 // 100)
    assert budget.weights == 2 * LLAMA_8B.params
    assert budget.bytes_of("activations") == 256 * LLAMA_8B.vocab * 4 * 2  # the logits outweigh the layers
    assert GIB <= budget.bytes_of("CUDA") <= 3 * GIB
    assert config.kv_blocks == budget.kv_cache // (16 * 131_072) - 1
    assert 12_000 < config.kv_blocks < 13_500


@pytest.mark.parametrize(
    ("name", "tokens", "seqs"),
    [
        ("l40s", 2048, 256),
        ("a100-40", 2048, 256),
        ("a100-80", 2048, 256),
        ("h100", 8192, 1024),
        ("b200", 16384, 1024),
    ],
)
def test_default_limits_follow_the_gpus_memory(name: str, tokens: int, seqs: int) -> None:
    config = engine_config(LLAMA_8B, GPUS[name])
    assert (config.max_num_batched_tokens, config.max_num_seqs) == (tokens, seqs)


def test_a_small_batch_lowers_the_default_number_of_sequences() -> None:
    assert engine_config(LLAMA_8B, GPUS["h100"], max_num_batched_tokens=512).max_num_seqs == 512


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gpu_memory_utilization": 0.0}, "gpu-memory-utilization"),
        ({"gpu_memory_utilization": 1.5}, "gpu-memory-utilization"),
        ({"max_num_batched_tokens": 64, "max_num_seqs": 65}, "max-num-seqs is 65"),
        ({"max_model_len": 10_000_000}, "has a context of 131072"),
        ({"tensor_parallel": 5}, "does not divide"),
        ({"quantization": "gguf"}, "not modelled"),
        ({"dtype": "int3"}, "not modelled"),
        ({"gpu_memory_utilization": 0.3}, "does not fit"),
    ],
)
def test_what_vllm_would_not_start_with_is_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        engine_config(LLAMA_8B, GPUS["l40s"], **settings)  # type: ignore[arg-type]


def test_a_70b_model_needs_several_gpus_or_8_bit_weights() -> None:
    with pytest.raises(InputError, match=r"does not fit 1 x h100: each GPU needs 13\d\.\d GiB"):
        engine_config(LLAMA_70B, GPUS["h100"])
    with pytest.raises(InputError, match="--max-model-len is 131072, but the KV cache holds"):
        engine_config(LLAMA_70B, GPUS["h100"], tensor_parallel=2)
    two = engine_config(LLAMA_70B, GPUS["h100"], tensor_parallel=2, max_model_len=8192)
    four = engine_config(LLAMA_70B, GPUS["h100"], tensor_parallel=4)
    assert four.kv_blocks > 5 * two.kv_blocks
    h200 = gpu("h200", memory_mib=143_771)
    assert engine_config(LLAMA_70B, h200, quantization="fp8").kv_blocks > 10_000


def test_an_8_bit_kv_cache_holds_twice_as_much() -> None:
    full = engine_config(LLAMA_8B, GPUS["l40s"])
    half = engine_config(LLAMA_8B, GPUS["l40s"], kv_cache_dtype="fp8")
    assert half.kv_blocks == pytest.approx(2 * full.kv_blocks, abs=2)


def test_the_context_is_as_asked_or_as_much_as_fits() -> None:
    assert engine_config(LLAMA_8B, GPUS["l40s"], max_model_len=4096).max_model_len == 4096
    assert engine_config(LLAMA_8B, GPUS["l40s"]).max_model_len == LLAMA_8B.context_tokens
    roomy = engine_config(LLAMA_8B, GPUS["l40s"], max_model_len=-1)
    assert roomy.max_model_len == LLAMA_8B.context_tokens
    tight = engine_config(LLAMA_8B, GPUS["l40s"], gpu_memory_utilization=0.6, max_model_len=-1)
    assert tight.max_model_len == (tight.kv_blocks + 1) * tight.block_size < 131_072  # vLLM counts its null block


@pytest.mark.parametrize(("ranks", "expected"), [(1, 131_072), (2, 65_536), (8, 16_384), (16, 16_384)])
def test_kv_heads_are_dealt_out_and_then_replicated(ranks: int, expected: int) -> None:
    assert memory.kv_token_bytes(LLAMA_8B, BF16_KV, ranks) == expected
    assert kv_token_bytes(LLAMA_8B, VllmArgs(tensor_parallel_size=ranks)) == expected * ranks


def test_a_latent_is_held_by_every_rank_and_windows_count_as_whole_contexts() -> None:
    deepseek = models.get("deepseek-ai/DeepSeek-V3")
    assert memory.kv_token_bytes(deepseek, BF16_KV, 8) == 70_272
    gpt_oss = models.get("openai/gpt-oss-20b")
    assert memory.kv_token_bytes(gpt_oss, BF16_KV) == 2 * 24_576
    whole = memory.kv_capacity(gpt_oss, BF16_KV, 10 * GIB, hybrid_layers=False)
    assert whole.layout.block_bytes == 16 * 2 * 24_576


@pytest.mark.parametrize("name", ["openai/gpt-oss-20b", "gemma-3-27b", "gemma-4-31b"])
def test_a_model_with_windows_gets_the_blocks_of_its_groups_and_holds_more_sequences(name: str) -> None:
    model = models.get(name)
    groups = engine_config(model, GPUS["b200"], max_model_len=-1)
    whole = engine_config(model, GPUS["b200"], max_model_len=-1, hybrid_kv_cache=False)
    assert whole.layout is None and groups.layout is not None
    assert groups.block_size == groups.layout.block_size
    assert groups.layout.block_bytes * groups.kv_blocks < 192 * GIB
    assert groups.kv_blocks // groups.layout.blocks(32_768) > 1.5 * (whole.kv_blocks // -(-32_768 // whole.block_size))
    args = parse_vllm_args(["--max-model-len", "auto", "--disable-hybrid-kv-cache-manager"])
    assert replica(model, GPUS["b200"], args)[0] == whole


@pytest.mark.parametrize("utilization", [0.55, 0.6, 0.7])
def test_the_longest_context_with_windows_is_the_longest_that_the_blocks_hold(utilization: float) -> None:
    gemma = msgspec.structs.replace(models.get("gemma-3-27b"), context_tokens=10**6)
    made = engine_config(gemma, gpu("h200"), gpu_memory_utilization=utilization, max_model_len=-1)
    assert made.layout is not None and made.max_model_len < 10**6
    budget = made.max_num_batched_tokens
    assert made.layout.most_blocks(made.max_model_len, budget) <= made.kv_blocks + 1
    assert made.layout.most_blocks(made.max_model_len + 1, budget) > made.kv_blocks + 1
    with pytest.raises(InputError, match="KV cache holds"):
        engine_config(gemma, gpu("h200"), gpu_memory_utilization=utilization, max_model_len=made.max_model_len + 1)


def test_a_model_with_windows_that_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match="does not fit"):
        engine_config(models.get("gemma-3-27b"), GPUS["l40s"], gpu_memory_utilization=0.9)


def test_a_command_line_makes_a_replica() -> None:
    args = parse_vllm_args(["--model", "x", "-tp", "2", "--max-model-len=8k", "--quantization", "fp8"])
    config, timing = replica(LLAMA_8B, GPUS["h100"], args)
    assert config.max_model_len == 8000
    assert config == engine_config(LLAMA_8B, GPUS["h100"], tensor_parallel=2, max_model_len=8000, quantization="fp8")
    one = StepWork(decoders=1)
    assert timing.step(one) < replica(LLAMA_8B, GPUS["h100"], parse_vllm_args([]))[1].step(one)
