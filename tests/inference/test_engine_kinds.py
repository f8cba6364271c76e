"""vLLM, SGLang and TensorRT-LLM as rows of data."""

from __future__ import annotations

import msgspec
import pytest
from inference_builders import GPUS

from tonnage.errors import InputError
from tonnage.facts import metric_names
from tonnage.inference import memory, tables
from tonnage.inference.memory import kinds
from tonnage.inference.memory.kinds import EngineKind, engine_kind
from tonnage.units import GIB

H100 = GPUS["h100"]


def test_the_three_kinds_differ_where_it_is_published() -> None:
    vllm, sglang, tensorrt = (engine_kind(name) for name in ("vllm", "sglang", "tensorrt-llm"))
    assert (vllm.page_size, sglang.page_size, tensorrt.page_size) == (16, 1, 32)
    assert (vllm.preempts, sglang.preempts, tensorrt.preempts) == (True, True, False)
    assert (vllm.reserve_output, sglang.reserve_output, tensorrt.reserve_output) == (False, False, True)
    assert (vllm.reserve_output_permille, sglang.reserve_output_permille) == (0, 700)
    assert sglang.reserve_output_least_permille == round(700 * 0.14)
    assert not sglang.mixed_steps and vllm.mixed_steps and tensorrt.mixed_steps


@pytest.mark.parametrize(
    ("spelt", "name"),
    [("vLLM", "vllm"), ("trtllm", "tensorrt-llm"), (" TRT-LLM ", "tensorrt-llm"), ("SGLang", "sglang")],
)
def test_a_kind_is_found_by_its_usual_spellings(spelt: str, name: str) -> None:
    assert engine_kind(spelt).name == name


def test_an_unknown_kind_is_refused_with_near_names() -> None:
    with pytest.raises(InputError, match="did you mean sglang"):
        engine_kind("sglan")
    with pytest.raises(InputError, match="use one of vllm, sglang, tensorrt-llm"):
        engine_kind("xyz")


@pytest.mark.parametrize("kind", kinds.kinds(), ids=lambda kind: kind.name)
def test_every_field_has_its_source(kind: EngineKind) -> None:
    found = kinds.sources(kind.name)
    assert set(found) == set(EngineKind.__struct_fields__) - {"name"}
    assert all(len(source) > 20 and not source.startswith("same") for source in found.values())


@pytest.mark.parametrize("kind", kinds.kinds(), ids=lambda kind: kind.name)
def test_flags_are_whole_numbers_booleans_or_metric_names(kind: EngineKind) -> None:
    for field, value in msgspec.structs.asdict(kind).items():
        assert isinstance(value, str) == (field == "name" or field.startswith("metric_"))
    assert 0 <= kind.reserve_output_least_permille <= kind.reserve_output_permille <= 1000


def test_the_metrics_of_vllm_are_known_to_the_table_of_metrics() -> None:
    vllm = engine_kind("vllm")
    for name in (vllm.metric_running, vllm.metric_waiting, vllm.metric_kv_usage, vllm.metric_ttft):
        assert metric_names.get(name) is not None


@pytest.mark.parametrize(
    ("name", "gpu", "tokens", "seqs"),
    [
        ("vllm", "h100", 8192, 1024),
        ("vllm", "l40s", 2048, 256),
        ("sglang", "l40s", 4096, 4096),
        ("sglang", "h100", 8192, 4096),
        ("sglang", "b200", 16384, 4096),
        ("tensorrt-llm", "l40s", 8192, 2048),
    ],
)
def test_the_limits_are_the_defaults_for_the_gpu(name: str, gpu: str, tokens: int, seqs: int) -> None:
    made = kinds.engine_config(engine_kind(name), GPUS[gpu], kv_tokens=400_000, max_model_len=8192)
    assert (made.max_num_batched_tokens, made.max_num_seqs) == (tokens, seqs)
    assert made.block_size == engine_kind(name).page_size
    assert made.kv_blocks == 400_000 // made.block_size


@pytest.mark.parametrize(("kv_tokens", "seqs"), [(1_000, 2048), (50_000, 3125), (10**6, 4096)])
def test_sglang_derives_its_sequences_from_the_cache_within_bounds(kv_tokens: int, seqs: int) -> None:
    made = kinds.engine_config(engine_kind("sglang"), H100, kv_tokens=kv_tokens, max_model_len=8192)
    assert made.max_num_seqs == seqs


@pytest.mark.parametrize("kind", kinds.kinds(), ids=lambda kind: kind.name)
def test_an_engine_schedules_as_its_kind_does(kind: EngineKind) -> None:
    made = kinds.engine_config(kind, H100, kv_tokens=400_000, max_model_len=8192)
    assert made.reserve_full_prompt == kind.reserve_full_prompt
    assert (made.reserve_output, made.mixed_steps) == (kind.name == "tensorrt-llm", kind.name != "sglang")


def test_sglang_leaves_out_what_its_chunk_graphs_and_ranks_need() -> None:
    sglang = engine_kind("sglang")
    left = 512 + 8192 * 1.5 + 256 * 2 + 128
    assert kinds.memory_permille(sglang, H100) == round((H100.memory_mib - left) / H100.memory_mib * 1000) == 836
    more = kinds.memory_permille(sglang, H100, tensor_parallel=8)
    left = 512 + 8192 * 1.5 + 512 * 2 + 8 * 128
    assert more == round((H100.memory_mib - left) / H100.memory_mib * 1000)


def test_the_same_share_of_memory_means_three_things() -> None:
    total, weights, others = memory.visible_bytes(H100), 16 * GIB, 4 * GIB
    budget = {
        kind.name: kinds.kv_cache_bytes(kind, H100, weights=weights, others=others, permille=900)
        for kind in kinds.kinds()
    }
    assert budget["vllm"] == total * 9 // 10 - weights - others
    assert budget["sglang"] == total * 9 // 10 - weights
    assert budget["tensorrt-llm"] == (total - weights - others) * 9 // 10


def test_vllms_share_is_the_one_that_sizes_its_engines() -> None:
    assert kinds.memory_permille(engine_kind("vllm"), H100) == round(
        1000 * tables.vllm_memory()["gpu_memory_utilization"]
    )


@pytest.mark.parametrize(("kv_tokens", "longest"), [(31, 8), (64, 0)])
def test_an_engine_without_room_is_refused(kv_tokens: int, longest: int) -> None:
    with pytest.raises(ValueError, match="no page"):
        kinds.engine_config(engine_kind("tensorrt-llm"), H100, kv_tokens=kv_tokens, max_model_len=longest)
