"""vLLM command lines."""

from __future__ import annotations

import pytest

from tonnage.errors import InputError
from tonnage.inference.vllm_args import AUTO_MODEL_LEN, VllmArgs, parse_vllm_args


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], VllmArgs()),
        (["--model", "org/m"], VllmArgs(model="org/m")),
        (["--model=org/m", "-tp", "4"], VllmArgs(model="org/m", tensor_parallel_size=4)),
        (["-tp=2"], VllmArgs(tensor_parallel_size=2)),
        (["vllm", "serve", "org/m", "--max-num-seqs", "64"], VllmArgs(model="org/m", max_num_seqs=64)),
        (["serve", "org/m"], VllmArgs(model="org/m")),
        (
            ["python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "org/m"],
            VllmArgs(model="org/m"),
        ),
        (["--max_num_batched_tokens=512"], VllmArgs(max_num_batched_tokens=512)),
        (["--max-model-len", "32k"], VllmArgs(max_model_len=32_000)),
        (["--max-model-len", "32K"], VllmArgs(max_model_len=32_768)),
        (["--max-model-len", "1.5k"], VllmArgs(max_model_len=1_500)),
        (["--max-model-len", "auto"], VllmArgs(max_model_len=AUTO_MODEL_LEN)),
        (["--max-model-len", "-1"], VllmArgs(max_model_len=AUTO_MODEL_LEN)),
        (["--gpu-memory-utilization", "0.9"], VllmArgs(gpu_memory_utilization=0.9)),
        (["--block-size=32", "--dtype", "half"], VllmArgs(block_size=32, dtype="half")),
        (["-q", "fp8", "--kv-cache-dtype=fp8"], VllmArgs(quantization="fp8", kv_cache_dtype="fp8")),
        (["--disable-hybrid-kv-cache-manager", "org/m"], VllmArgs(model="org/m", disable_hybrid_kv_cache_manager=True)),
        (["--disable-hybrid-kv-cache-manager", "--no-disable-hybrid-kv-cache-manager"], VllmArgs()),
        (["--served-model-name", "m"], VllmArgs(served_model_name="m")),
        (["--max-num-seqs", "64", "--max-num-seqs", "32"], VllmArgs(max_num_seqs=32)),
    ],
)
def test_flags_are_read_in_both_forms(words: list[str], expected: VllmArgs) -> None:
    assert parse_vllm_args(words) == expected


def test_unknown_flags_are_reported_with_their_values() -> None:
    args = parse_vllm_args(
        ["--swap-space", "4", "--seed=1", "--enforce-eager", "org/m", "--new-switch", "--max-num-seqs", "8"]
    )
    assert args.ignored == ("--swap-space 4", "--seed=1", "--enforce-eager", "--new-switch")
    assert (args.model, args.max_num_seqs) == ("org/m", 8)


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (["--max-num-seqs", "many"], "--max-num-seqs"),
        (["--max-model-len", "1.5K"], "--max-model-len"),
        (["--gpu-memory-utilization=most"], "--gpu-memory-utilization"),
        (["--tensor-parallel-size"], "--tensor-parallel-size"),
        (["--model"], "--model"),
    ],
)
def test_a_value_that_cannot_be_read_names_its_flag(words: list[str], flag: str) -> None:
    with pytest.raises(InputError) as error:
        parse_vllm_args(words)
    assert error.value.problems[0].where.field == flag
