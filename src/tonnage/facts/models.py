"""Shapes of large language models: what decides their memory and arithmetic. Table: ``data/models.csv``."""

from __future__ import annotations

import math
import re
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from tonnage.facts import names, tables

_TUNINGS = ("-instruct", "-it", "-chat", "-hf")
"""Ends of published names that do not change the shape."""

_QUANTIZED = (
    (re.compile(r"-(gptq-)?int8$|-(quantized\.)?w8a(8|16)$"), "int8"),
    (re.compile(r"-(awq|gptq)(-int4)?$|-int4$|-(quantized\.)?w4a16$"), "int4"),
    (re.compile(r"-fp8(-dynamic|-block)?$"), "fp8"),
    (re.compile(r"(-unsloth)?-bnb-4bit$"), "nf4"),
    (re.compile(r"-(nv)?fp4$"), "fp4"),
)
"""Ends of published names that tell in which format the weights are (the names of inference/data/precisions.csv)."""

_OPTIONAL = (
    "ffn",
    "experts",
    "experts_per_token",
    "expert_ffn",
    "shared_ffn",
    "dense_layers",
    "q_lora_rank",
    "qk_nope_head_dim",
    "v_head_dim",
    "state_layers",
    "state_key_heads",
    "state_value_heads",
    "state_head_dim",
    "index_tokens",
    "index_heads",
    "index_head_dim",
    "index_layers",
)
"""Columns that are empty where they do not apply."""


class ModelShape(Struct, frozen=True):
    """One model. ``params`` counts every parameter, ``active_params`` those that one token passes through.

    ``layers`` counts all layers. In ``window_layers`` of them a token attends to the last ``window`` tokens
    only, and they may have their own ``window_kv_heads`` and ``window_head_dim``; ``kv_heads`` and
    ``head_dim`` are those of the full layers. A model with multi-head latent attention has ``kv_lora_rank`` >
    0, and ``kv_heads`` is 1: its one latent is held by every tensor-parallel rank. ``context_tokens`` is the
    longest context of its configuration (max_position_embeddings), None if not known. ``state_layers`` keep no
    tokens but ``state_bytes`` a layer and sequence (linear attention).

    What follows ``source`` says where the parameters are (see :mod:`tonnage.facts.counting`); ``ffn`` and
    ``expert_ffn`` are both 0 where that is not known. ``ffn`` is the width of dense FFN layers, of which a mixture of
    experts has ``dense_layers``; ``shared_ffn`` is the width of its shared experts together. ``precision`` is that of
    the published checkpoint, ``traits`` are words that counting explains. With sparse attention (DeepSeek-V3.2's DSA) a
    token attends to the ``index_tokens`` tokens that an indexer of ``index_heads`` heads of ``index_head_dim`` picks;
    ``index_layers`` have one of their own, the others use that of a layer before. Its parameters are not counted.
    """

    name: str
    params: int
    active_params: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    vocab: int
    context_tokens: int | None
    kv_lora_rank: int
    qk_rope_head_dim: int
    window: int
    window_layers: int
    window_kv_heads: int
    window_head_dim: int
    source: str
    ffn: int = 0
    experts: int = 0
    experts_per_token: int = 0
    expert_ffn: int = 0
    shared_ffn: int = 0
    dense_layers: int = 0
    q_lora_rank: int = 0
    qk_nope_head_dim: int = 0
    v_head_dim: int = 0
    state_layers: int = 0
    state_key_heads: int = 0
    state_value_heads: int = 0
    state_head_dim: int = 0
    precision: str = "bf16"
    traits: tuple[str, ...] = ()
    index_tokens: int = 0
    index_heads: int = 0
    index_head_dim: int = 0
    index_layers: int = 0

    @property
    def full_layers(self) -> int:
        """Layers that keep every token of the context."""
        return self.layers - self.window_layers - self.state_layers

    @property
    def moe_layers(self) -> int:
        """Layers whose FFN is a mixture of experts."""
        return self.layers - self.dense_layers if self.experts else 0

    @property
    def state_bytes(self) -> int:
        """Bytes that a sequence keeps in each state layer, whatever its length: the 16-bit inputs of the last three
        tokens of the convolution, and a 32-bit matrix for each value head (Gated DeltaNet; vLLM
        v1/attention/backends/gdn_attn.py, mamba_ssm_dtype float32 in the configurations)."""
        keys, values = self.state_key_heads * self.state_head_dim, self.state_value_heads * self.state_head_dim
        return 3 * (2 * keys + values) * 2 + values * self.state_head_dim * 4

    def weight_bytes(self, bytes_per_param: float = 2) -> int:
        """Bytes of all weights, rounded up: 2 a parameter for BF16, 1 for FP8, 0.5 for FP4 without scales."""
        return math.ceil(self.params * bytes_per_param)

    def kv_bytes_per_token(self, bytes_per_element: int = 2) -> int:
        """KV cache bytes that each token of the context keeps in the full layers, without parallelism.

        Multi-head and grouped-query attention store a key and a value of ``head_dim`` for each KV head and
        layer, latent attention one latent and one rotary key a layer. What window layers hold, of at most
        ``window`` tokens, comes on top: see :meth:`kv_bytes`.
        """
        if self.kv_lora_rank:
            return self.layers * (self.kv_lora_rank + self.qk_rope_head_dim) * bytes_per_element
        return self.full_layers * 2 * self.kv_heads * self.head_dim * bytes_per_element

    def window_kv_bytes_per_token(self, bytes_per_element: int = 2) -> int:
        """KV cache bytes that a token keeps in the window layers, for as long as it is inside the window."""
        return self.window_layers * 2 * self.window_kv_heads * self.window_head_dim * bytes_per_element

    def kv_bytes(self, tokens: int, bytes_per_element: int = 2) -> int:
        """KV cache bytes of one sequence of ``tokens`` tokens, window layers and states included."""
        windowed = self.window_kv_bytes_per_token(bytes_per_element) * min(tokens, self.window)
        states = self.state_layers * self.state_bytes
        return self.kv_bytes_per_token(bytes_per_element) * tokens + windowed + states


def get(name: str) -> ModelShape:
    """The model called ``name``: a Hugging Face id, with or without organisation and -Instruct, in any case; also one
    whose name ends in the format of its weights, such as -AWQ or -FP8.

    Raises :class:`~tonnage.errors.InputError` with near names if the model is not known.
    """
    found = _by_name().get(_plain(name)) or _quantized(name)
    if found is None:
        short = name.rpartition("/")[2]
        known = [model.name.rpartition("/")[2] for model in all()]
        raise names.unknown("model", short, known, hint="names are those of Hugging Face, like Qwen/Qwen3-8B")
    return found


@lru_cache(maxsize=1)
def all() -> tuple[ModelShape, ...]:
    """Every known model, sorted by name."""
    return tuple(sorted((model for model, _ in _read()), key=lambda model: model.name))


@lru_cache(maxsize=1)
def _by_name() -> dict[str, ModelShape]:
    return {_plain(name): model for model, aliases in _read() for name in (model.name, *aliases)}


@lru_cache(maxsize=1)
def _read() -> tuple[tuple[ModelShape, tuple[str, ...]], ...]:
    return tuple((_model(row), tuple(row["aliases"].split())) for row in tables.rows("models.csv"))


def _model(row: dict[str, str]) -> ModelShape:
    return ModelShape(
        name=row["name"],
        params=int(row["params"]),
        active_params=int(row["active_params"]),
        layers=int(row["layers"]),
        heads=int(row["heads"]),
        kv_heads=int(row["kv_heads"]),
        head_dim=int(row["head_dim"]),
        hidden=int(row["hidden"]),
        vocab=int(row["vocab"]),
        context_tokens=tables.whole(row["context_tokens"]),
        kv_lora_rank=tables.whole(row["kv_lora_rank"]) or 0,
        qk_rope_head_dim=tables.whole(row["qk_rope_head_dim"]) or 0,
        window=tables.whole(row["window"]) or 0,
        window_layers=tables.whole(row["window_layers"]) or 0,
        window_kv_heads=tables.whole(row["window_kv_heads"]) or 0,
        window_head_dim=tables.whole(row["window_head_dim"]) or 0,
        source=row["source"],
        precision=row["precision"],
        traits=tuple(row["traits"].split()),
        **{name: tables.whole(row[name]) or 0 for name in _OPTIONAL},
    )


def _quantized(name: str) -> ModelShape | None:
    """The model without the end that tells its format, in that format."""
    lower = name.strip().lower()
    for end, precision in _QUANTIZED:
        found = _by_name().get(_plain(end.sub("", lower))) if end.search(lower) else None
        if found is not None:
            return replace(found, name=f"{found.name}{name.strip()[len(end.sub('', lower)) :]}", precision=precision)
    return None


def _plain(name: str) -> str:
    plain = name.strip().lower().rpartition("/")[2].removeprefix("meta-")
    for tuning in _TUNINGS:
        plain = plain.removesuffix(tuning)
    return plain
