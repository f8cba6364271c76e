"""Parameters counted from shapes, and shapes read from the configurations that Hugging Face publishes."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tonnage.errors import InputError
from tonnage.facts import counting, hf_config, models

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 32,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
}
GPT_OSS = {
    "model_type": "gpt_oss",
    "attention_bias": True,
    "head_dim": 64,
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
    "max_position_embeddings": 131072,
    "num_attention_heads": 64,
    "num_experts_per_tok": 4,
    "num_hidden_layers": 24,
    "num_key_value_heads": 8,
    "num_local_experts": 32,
    "quantization_config": {"quant_method": "mxfp4"},
    "sliding_window": 128,
    "tie_word_embeddings": False,
    "vocab_size": 201088,
}
DEEPSEEK = {
    "model_type": "deepseek_v3",
    "first_k_dense_replace": 3,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "kv_lora_rank": 512,
    "max_position_embeddings": 163840,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_attention_heads": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 61,
    "num_key_value_heads": 128,
    "num_nextn_predict_layers": 1,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "quantization_config": {"quant_method": "fp8"},
    "tie_word_embeddings": False,
    "v_head_dim": 128,
    "vocab_size": 129280,
}
GEMMA_3 = {
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text",
        "head_dim": 128,
        "hidden_size": 5376,
        "intermediate_size": 21504,
        "num_attention_heads": 32,
        "num_hidden_layers": 62,
        "num_key_value_heads": 16,
        "sliding_window": 1024,
        "max_position_embeddings": 131072,
        "vocab_size": 262208,
    },
}
QWEN_35 = {
    "model_type": "qwen3_5",
    "text_config": {
        "model_type": "qwen3_5_text",
        "head_dim": 256,
        "hidden_size": 5120,
        "intermediate_size": 17408,
        "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 16,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 48,
        "linear_value_head_dim": 128,
        "max_position_embeddings": 262144,
        "num_attention_heads": 24,
        "num_hidden_layers": 64,
        "num_key_value_heads": 4,
        "vocab_size": 248320,
    },
    "tie_word_embeddings": False,
}


@pytest.mark.parametrize("shape", models.all(), ids=lambda shape: shape.name)
def test_the_parameters_of_every_model_follow_from_its_shape(shape: models.ModelShape) -> None:
    assert counting.count(shape).total == shape.params
    assert counting.active(shape) == shape.active_params
    assert set(shape.traits) <= counting.TRAITS
    hf_config.check(shape)


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (LLAMA, "Llama-3.1-8B"),
        (GPT_OSS, "gpt-oss-20b"),
        (DEEPSEEK, "DeepSeek-V3"),
        (GEMMA_3, "gemma-3-27b"),
        (QWEN_35, "Qwen3.5-27B"),
    ],
)
def test_a_configuration_gives_the_shape_that_the_table_has(config: dict[str, Any], name: str) -> None:
    read, known = hf_config.parse(config, name="here").shape, models.get(name)
    for field in read.__struct_fields__:
        if field not in ("name", "source"):
            assert getattr(read, field) == getattr(known, field), field


@pytest.mark.parametrize(
    ("quantization", "precision"),
    [
        ({"quant_method": "gptq", "bits": 4}, "int4"),
        ({"quant_method": "gptq_marlin", "bits": 8}, "int8"),
        ({"quant_method": "awq", "bits": 4}, "int4"),
        ({"quant_method": "fbgemm_fp8", "modules_to_not_convert": []}, "fp8"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "nf4"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"type": "int", "num_bits": 4}}}},
            "int4",
        ),
    ],
)
def test_the_format_of_a_quantized_checkpoint_is_read(quantization: dict[str, Any], precision: str) -> None:
    config = {**LLAMA, "quantization_config": quantization}
    assert hf_config.parse(config, name="x").shape.precision == precision
    assert hf_config.parse(config, name="x", precision="bf16").shape.precision == "bf16"


def test_qwen_has_windows_from_a_layer_on_if_it_uses_them() -> None:
    qwen = {**LLAMA, "model_type": "qwen2", "sliding_window": 4096, "max_window_layers": 16}
    assert hf_config.parse(qwen, name="x").shape.window_layers == 0
    shape = hf_config.parse({**qwen, "use_sliding_window": True}, name="x").shape
    assert (shape.window_layers, shape.full_layers, shape.window) == (16, 16, 4096)


def test_what_a_configuration_has_beside_the_decoder_is_said() -> None:
    notes = hf_config.parse(DEEPSEEK, name="x").notes
    assert any("multi-token prediction" in note for note in notes)
    assert hf_config.parse(LLAMA, name="x").notes == ()
    strange = hf_config.parse({**LLAMA, "model_type": "frontier"}, name="x")
    assert strange.notes == ("model_type frontier is not known: read as a Llama-like decoder",)
    assert strange.shape.params == 8_030_261_248


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_key_value_heads": 5}, "32 attention heads cannot be shared by 5 KV heads"),
        ({"hidden_size": None}, "hidden_size: has no hidden_size"),
        ({"hidden_size": "4096"}, "hidden_size is '4096'"),
        ({"num_hidden_layers": -1}, "num_hidden_layers is -1"),
        ({"num_attention_heads": 0}, "heads is 0"),
        ({"num_local_experts": 4, "num_experts_per_tok": 8}, "a token goes to 8 of 4 experts"),
        ({"num_key_value_heads": 0}, "kv_heads is 0"),
        (
            {"num_local_experts": 8, "num_experts_per_tok": 2, "first_k_dense_replace": 99},
            "99 dense layers of 32 layers leave none for the 8 experts",
        ),
        ({"quantization_config": {"quant_method": "weird"}}, "quant_method weird is not known"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 3}}, "quant_method gptq with 3 is not known"),
        ({"architectures": ["BertForMaskedLM"]}, "BertForMaskedLM writes no tokens"),
        ({"model_type": "bert"}, "bert is not a decoder-only model"),
        ({"is_encoder_decoder": True}, "llama is not a decoder-only model"),
    ],
)
def test_a_contradictory_configuration_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        hf_config.parse({**LLAMA, **change}, name="x", file="config.json")


def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        hf_config.read(tmp_path / "config.json")
    (tmp_path / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match="not JSON"):
        hf_config.read(tmp_path / "config.json")
    (tmp_path / "config.json").write_text("[1]", encoding="utf-8")
    with pytest.raises(InputError, match="expected an object"):
        hf_config.read(tmp_path / "config.json")


def test_a_model_without_a_name_is_called_after_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "my-llama"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    assert hf_config.read(folder / "config.json").shape.name == "my-llama"


def test_a_shape_without_ffn_widths_cannot_be_counted() -> None:
    shape = models.ModelShape("x", 1, 1, 1, 1, 1, 1, 1, 1, None, 0, 0, 0, 0, 0, 0, "here")
    assert not counting.known(shape)
    with pytest.raises(ValueError, match="not known"):
        counting.count(shape)


_PUBLISHED = {
    "deepseek-ai--DeepSeek-R1": "DeepSeek-R1",
    "deepseek-ai--DeepSeek-V3.2": "DeepSeek-V3.2",
    "meta-llama--Meta-Llama-3.1-405B": "Llama-3.1-405B",
    "meta-llama--Meta-Llama-3.1-70B": "Llama-3.1-70B",
    "MiniMaxAI--MiniMax-M2.5": "MiniMax-M2.5",
    "mistralai--Mixtral-8x22B-v0.1": "Mixtral-8x22B",
    "mistralai--Mixtral-8x7B-v0.1": "Mixtral-8x7B",
    "moonshotai--Kimi-K2-Instruct": "Kimi-K2",
    "openai--gpt-oss-120b": "gpt-oss-120b",
    "Qwen--Qwen3-0.6B": "Qwen3-0.6B",
    "Qwen--Qwen3-235B-A22B": "Qwen3-235B-A22B",
    "Qwen--Qwen3-30B-A3B": "Qwen3-30B-A3B",
    "Qwen--Qwen3-32B": "Qwen3-32B",
    "Qwen--Qwen3-Coder-480B-A35B-Instruct": "Qwen3-Coder-480B-A35B",
    "Qwen--Qwen3.5-397B-A17B": "Qwen3.5-397B-A17B",
    "zai-org--GLM-5": "GLM-5",
}


@pytest.mark.peer
@pytest.mark.parametrize(("file", "name"), list(_PUBLISHED.items()))
def test_published_configurations_give_the_parameters_and_kv_bytes_of_the_table(file: str, name: str) -> None:
    spec = find_spec("aiconfigurator_core")
    if spec is None or spec.origin is None:
        pytest.skip("aiconfigurator-core is not installed")
    read = hf_config.read(Path(spec.origin).parent / "model_configs" / f"{file}_config.json").shape
    known = models.get(name)
    assert (read.params, read.active_params) == (known.params, known.active_params)
    assert read.kv_bytes(5_000) == known.kv_bytes(5_000)
