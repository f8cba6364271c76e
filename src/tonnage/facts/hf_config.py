"""A model's shape from the ``config.json`` that Hugging Face publishes with it.

Read are Llama and its like (Mistral, Qwen2, Qwen2.5, Qwen3, Phi-3, SmolLM), Mixtral, Qwen3-MoE, MiniMax-M2, gpt-oss,
DeepSeek-V3 and what follows its configuration (R1, V3.2, Kimi-K2, GLM-5), Gemma 2, 3 and 4, and Qwen3.5. Multi-modal
configurations are read for their language model (``text_config``). An architecture that is not known is read like Llama
if it has the same fields, which :attr:`ShapeReading.notes` says.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from tonnage.errors import InputError
from tonnage.facts import counting
from tonnage.facts.models import ModelShape

_TRAITS = {
    "qwen2": ("qkv-bias",),
    "qwen3": ("qk-norm",),
    "qwen3_moe": ("qk-norm",),
    "qwen3_vl_text": ("qk-norm",),
    "qwen3_vl_moe_text": ("qk-norm",),
    "gpt_oss": ("qkv-bias", "o-bias", "sinks", "expert-bias", "router-bias"),
    "gemma2": ("four-norms",),
    "gemma3": ("four-norms", "qk-norm"),
    "gemma3_text": ("four-norms", "qk-norm"),
    "gemma4_text": ("four-norms", "qk-norm", "k-eq-v"),
    "minimax_m2": ("qk-norm-wide", "router-bias"),
    "deepseek_v3": ("router-bias",),
    "deepseek_v32": ("router-bias",),
    "kimi_k2": ("router-bias",),
    "glm_moe_dsa": ("router-bias",),
    "qwen3_5_text": ("qk-norm", "q-gate"),
    "qwen3_5_moe_text": ("qk-norm", "q-gate", "shared-gate"),
    "llama": (),
    "mistral": (),
    "mixtral": (),
    "phi3": (),
}
"""Traits by ``model_type``; the fields of a configuration that say more are in :func:`_traits`."""

_TIED_BY_DEFAULT = ("gemma2", "gemma3", "gemma3_text", "gemma4_text")
"""Architectures whose configurations leave tie_word_embeddings out and mean true."""

_QUANTIZATIONS = {
    ("fp8", None): "fp8",
    ("fbgemm_fp8", None): "fp8",
    ("mxfp4", None): "mxfp4",
    ("gptq", 4): "int4",
    ("gptq", 8): "int8",
    ("awq", 4): "int4",
    ("awq", None): "int4",
    ("bitsandbytes", 4): "nf4",
    ("bitsandbytes", 8): "int8",
    ("modelopt", "FP8"): "fp8",
    ("modelopt", "NVFP4"): "nvfp4",
    ("modelopt", None): "nvfp4",
    ("compressed-tensors", "float8"): "fp8",
    ("compressed-tensors", "float4"): "nvfp4",
    ("compressed-tensors", "int8"): "int8",
    ("compressed-tensors", "int4"): "int4",
}
"""Precision by ``quant_method`` and what says more of it: bits, the algorithm, or type and bits."""

_GENERATES = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")
"""Ends of the names of architectures that write tokens (huggingface/transformers, auto classes)."""
_NO_DECODERS = ("bert", "roberta", "xlm-roberta", "distilbert", "albert", "electra", "deberta", "deberta-v2", "vit")
"""Values of model_type that are encoders, where a configuration names no architecture."""


class ShapeReading(msgspec.Struct, frozen=True):
    """A shape, and what a person should know of how it was read."""

    shape: ModelShape
    notes: tuple[str, ...] = ()


def read(file: Path, *, precision: str | None = None) -> ShapeReading:
    """Read a config.json. ``precision`` is taken instead of what its quantization_config says. Raises InputError naming
    file and field where it cannot be read or contradicts itself."""
    try:
        config = msgspec.json.decode(file.read_bytes())
    except OSError as error:
        raise InputError.at(
            f"cannot read {file}: {error.strerror}", file=str(file), hint="give the config.json of a model"
        ) from None
    except msgspec.DecodeError as error:
        raise InputError.at(f"not JSON: {error}", file=str(file), hint="give the config.json of a model") from None
    except RecursionError:
        raise InputError.at("nested too deep", file=str(file), hint="give the config.json of a model") from None
    name = config.get("_name_or_path") if isinstance(config, dict) else None
    stem = file.parent.name if file.stem == "config" else file.stem
    return parse(config, name=str(name or stem or file.name), file=str(file), precision=precision)


def parse(config: Any, *, name: str, file: str = "", precision: str | None = None) -> ShapeReading:
    """The shape in the decoded ``config``. Raises InputError as :func:`read` does; ``file`` is for its message."""
    if not isinstance(config, dict):
        raise InputError.at("expected an object", file=file, hint="give the config.json of a model")
    outer: dict[str, Any] = config
    inner = outer.get("text_config")
    config = inner if isinstance(inner, dict) else outer
    kind = str(config.get("model_type", outer.get("model_type", "")))
    _check_writes(outer, kind, file)
    fields = _Fields({**{k: v for k, v in outer.items() if k != "text_config"}, **config}, file)
    notes = []
    if kind not in _TRAITS:
        notes.append(f"model_type {kind or '(none)'} is not known: read as a Llama-like decoder")
    if fields.whole("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules"):
        notes.append("layers for multi-token prediction are not counted: engines load them for speculation only")
    if kind in ("deepseek_v32", "glm_moe_dsa"):
        notes.append("the indexer of sparse attention is not counted, neither its weights nor its cache")
    shape = _shape(fields, kind, name, precision or _quantization(file, outer, config) or "bf16")
    check(shape, file=file)
    counts = counting.count(shape)
    return ShapeReading(replace(shape, params=counts.total, active_params=counting.active(shape)), tuple(notes))


def check(shape: ModelShape, *, file: str = "") -> None:
    """Raise InputError if the numbers of ``shape`` contradict each other."""

    def refuse(field: str, message: str, hint: str) -> None:
        raise InputError.at(message, file=file, field=field, hint=hint)

    for field in ("layers", "hidden", "heads", "kv_heads", "head_dim", "vocab"):
        if getattr(shape, field) < 1:
            refuse(field, f"{field} is {getattr(shape, field)}", "expected a whole number above 0")
    if not shape.kv_lora_rank and shape.heads % shape.kv_heads:
        refuse(
            "kv_heads",
            f"{shape.heads} attention heads cannot be shared by {shape.kv_heads} KV heads",
            "the number of KV heads divides the number of heads",
        )
    if shape.experts and not 1 <= shape.experts_per_token <= shape.experts:
        refuse(
            "experts_per_token",
            f"a token goes to {shape.experts_per_token} of {shape.experts} experts",
            "expected at least one and at most all",
        )
    if shape.experts and shape.dense_layers >= shape.layers:
        refuse(
            "first_k_dense_replace",
            f"{shape.dense_layers} dense layers of {shape.layers} layers leave none for the {shape.experts} experts",
            "expected fewer dense layers than layers",
        )
    if shape.window_layers + shape.state_layers > shape.layers:
        refuse(
            "window_layers",
            f"{shape.window_layers} window layers and {shape.state_layers} state layers of {shape.layers} layers",
            "there cannot be more than layers",
        )


class _Fields:
    """Whole numbers of a configuration, under any of several names."""

    def __init__(self, config: dict[str, Any], file: str) -> None:
        self.config = config
        self.file = file

    def whole(self, *names: str, default: int | None = 0) -> int:
        for name in names:
            value = self.config.get(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise InputError.at(
                    f"{name} is {value!r}", file=self.file, field=name, hint="expected a whole number, 0 or more"
                )
            return value
        if default is None:
            raise InputError.at(
                f"has no {names[0]}",
                file=self.file,
                field=names[0],
                hint="give the config.json of a decoder-only language model, or its shape with --params and --layers",
            )
        return default


def _shape(fields: _Fields, kind: str, name: str, precision: str) -> ModelShape:
    config = fields.config
    hidden, heads = fields.whole("hidden_size", default=None), fields.whole("num_attention_heads", default=None)
    layers = fields.whole("num_hidden_layers", default=None)
    head_dim = fields.whole("head_dim") or (hidden // heads if heads else 0)
    kv_heads = fields.whole("num_key_value_heads", default=heads)
    latent = fields.whole("kv_lora_rank")
    experts = fields.whole("num_local_experts", "num_experts", "n_routed_experts")
    expert_ffn = fields.whole("moe_intermediate_size") if experts else 0
    ffn = fields.whole("intermediate_size", default=0 if expert_ffn else None)
    expert_ffn = expert_ffn or (ffn if experts else 0)
    windows = _windows(fields, kind, layers)
    window_heads, window_dim = kv_heads, head_dim
    if kind == "gemma4_text":
        kv_heads = fields.whole("num_global_key_value_heads") or kv_heads
        head_dim = fields.whole("global_head_dim") or head_dim
    states = _layers_of(config, "linear_attention")
    if latent:
        kv_heads, head_dim = 1, fields.whole("qk_nope_head_dim") + fields.whole("qk_rope_head_dim")
    return ModelShape(
        name=name,
        params=0,
        active_params=0,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        hidden=hidden,
        vocab=fields.whole("vocab_size", default=None),
        context_tokens=fields.whole("max_position_embeddings") or None,
        kv_lora_rank=latent,
        qk_rope_head_dim=fields.whole("qk_rope_head_dim") if latent else 0,
        window=fields.whole("sliding_window") if windows else 0,
        window_layers=windows,
        window_kv_heads=window_heads if windows else 0,
        window_head_dim=window_dim if windows else 0,
        source=f"config.json ({kind or 'no model_type'})",
        ffn=ffn if not experts or fields.whole("first_k_dense_replace") else 0,
        experts=experts,
        experts_per_token=fields.whole("num_experts_per_tok", "top_k_experts", "experts_per_token"),
        expert_ffn=expert_ffn,
        shared_ffn=fields.whole("shared_expert_intermediate_size", "shared_intermediate_size")
        or fields.whole("n_shared_experts") * expert_ffn,
        dense_layers=fields.whole("first_k_dense_replace"),
        q_lora_rank=fields.whole("q_lora_rank"),
        qk_nope_head_dim=fields.whole("qk_nope_head_dim") if latent else 0,
        v_head_dim=fields.whole("v_head_dim") if latent else 0,
        state_layers=states,
        state_key_heads=fields.whole("linear_num_key_heads") if states else 0,
        state_value_heads=fields.whole("linear_num_value_heads") if states else 0,
        state_head_dim=fields.whole("linear_value_head_dim") if states else 0,
        precision=precision,
        traits=_traits(config, kind),
        **_index(fields, layers),
    )


def _index(fields: _Fields, layers: int) -> dict[str, int]:
    """The indexer of sparse attention; nothing without one."""
    best = fields.whole("index_topk")
    if not best or not fields.whole("kv_lora_rank"):
        return {}
    listed = fields.config.get("indexer_types")
    return {
        "index_tokens": best,
        "index_heads": fields.whole("index_n_heads"),
        "index_head_dim": fields.whole("index_head_dim"),
        "index_layers": listed.count("full") if isinstance(listed, list) else layers,
    }


def _traits(config: dict[str, Any], kind: str) -> tuple[str, ...]:
    found = list(_TRAITS.get(kind, ()))
    if config.get("tie_word_embeddings", kind in _TIED_BY_DEFAULT):
        found.insert(0, "tied")
    if config.get("attention_bias") and "qkv-bias" not in found:
        found += ["qkv-bias", "o-bias"]
    return tuple(found)


def _layers_of(config: dict[str, Any], kind: str) -> int:
    listed = config.get("layer_types")
    return listed.count(kind) if isinstance(listed, list) else 0


def _windows(fields: _Fields, kind: str, layers: int) -> int:
    """Layers with a sliding window."""
    config = fields.config
    listed = _layers_of(config, "sliding_attention")
    if listed:
        return listed
    if not fields.whole("sliding_window") or config.get("use_sliding_window") is False:
        return 0
    if kind.startswith(("qwen2", "qwen3")):
        whole = fields.whole("max_window_layers", default=layers) if config.get("use_sliding_window") else layers
        return max(0, layers - whole)
    if kind in ("gemma3", "gemma3_text"):
        every = fields.whole("sliding_window_pattern", default=6)
        return layers - layers // every
    if kind == "gemma2":
        return layers - layers // 2
    return layers


def _check_writes(config: dict[str, Any], kind: str, file: str) -> None:
    """Raise InputError for an architecture that is not a decoder of a language model."""
    found = config.get("architectures")
    named = [str(name) for name in found] if isinstance(found, list) else []
    hint = "give a decoder-only language model, whose architecture ends in ForCausalLM"
    if named and not any(name.endswith(_GENERATES) for name in named):
        raise InputError.at(f"{', '.join(named)} writes no tokens", file=file, field="architectures", hint=hint)
    if config.get("is_encoder_decoder") is True or (not named and kind in _NO_DECODERS):
        raise InputError.at(f"{kind or 'it'} is not a decoder-only model", file=file, field="model_type", hint=hint)


def _quantization(file: str, *configs: dict[str, Any]) -> str | None:
    """The precision in the first quantization_config found, None without one. Raises InputError if it is not known."""
    for config in configs:
        found = config.get("quantization_config")
        if not isinstance(found, dict):
            continue
        method = str(found.get("quant_method", "")).removesuffix("_marlin")
        detail = _quantization_detail(method, found)
        known = _QUANTIZATIONS.get((method, detail))
        if known is None:
            said = f"{method or '(none)'}" + (f" with {detail}" if detail is not None else "")
            methods = ", ".join(sorted({name for name, _ in _QUANTIZATIONS}))
            raise InputError.at(
                f"quant_method {said} is not known",
                file=file,
                field="quantization_config",
                hint=f"name the format with --precision; known are {methods}",
            )
        return known
    return None


def _quantization_detail(method: str, config: dict[str, Any]) -> int | str | None:
    """What says more than the method: bits, NVIDIA's algorithm, or type and bits of the first group."""
    if method in ("gptq", "awq"):
        bits = config.get("bits", config.get("w_bit"))
        return bits if isinstance(bits, int | str) else None
    if method == "bitsandbytes":
        return 8 if config.get("load_in_8bit") else 4
    if method == "modelopt":
        algorithm = config.get("quant_algo")
        return None if algorithm is None else str(algorithm).partition("_")[0].upper()
    if method == "compressed-tensors":
        groups = config.get("config_groups")
        first = next(iter(groups.values()), None) if isinstance(groups, dict) else None
        weights = first.get("weights") if isinstance(first, dict) else None
        return f"{weights.get('type')}{weights.get('num_bits')}" if isinstance(weights, dict) else None
    return None
