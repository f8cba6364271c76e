"""A model from its sizes alone, where no table and no config.json has it."""

from __future__ import annotations

import re

from msgspec.structs import replace

from tonnage.errors import InputError
from tonnage.facts import counting, hf_config
from tonnage.facts.models import ModelShape

_OFF = 10
"""How many times a count of parameters may be away from what the layers of a usual model have."""
_USUAL = 12
"""Parameters of a layer over the square of its hidden size: 4 of attention and 8 of the FFN (Vaswani et al., 2017)."""
_SCALES = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
_MOST_PARAMETERS = 10**15
VOCABULARY = 128_000
"""Of a model of which it is not said."""


def plain_shape(
    *,
    layers: int,
    hidden: int,
    heads: int,
    kv_heads: int | None = None,
    head_dim: int | None = None,
    ffn: int = 0,
    vocab: int = 0,
    params: int = 0,
    active_params: int = 0,
    experts: int = 0,
    experts_per_token: int = 0,
    expert_ffn: int = 0,
    shared_ffn: int = 0,
    dense_layers: int = 0,
    context_tokens: int | None = None,
    name: str = "given shape",
    source: str = "given",
) -> ModelShape:
    """A decoder with gated FFNs and grouped-query attention, with as many KV heads as heads and a head size of hidden
    over heads unless given. ``vocab`` 0 leaves embedding and head out, so that ``layers=1`` is one layer. With
    ``experts``, all but ``dense_layers`` layers are mixtures of FFNs of ``expert_ffn``.

    ``params`` of them in all are spread over the layers if the widths of the FFNs are not given, ``active_params`` (or
    all) for one token; with widths both are counted.

    Raises InputError if the sizes contradict each other, as that of a config.json does, or do not say how many
    parameters there are.
    """
    if head_dim is None and heads > 0 and hidden % heads:
        raise InputError.at(
            f"a hidden size of {hidden} is not divided by {heads} heads", field="heads", hint="give the head size"
        )
    shape = ModelShape(
        name=name,
        params=params,
        active_params=active_params or params,
        layers=layers,
        heads=heads,
        kv_heads=heads if kv_heads is None else kv_heads,
        head_dim=hidden // max(heads, 1) if head_dim is None else head_dim,
        hidden=hidden,
        vocab=vocab,
        context_tokens=context_tokens,
        kv_lora_rank=0,
        qk_rope_head_dim=0,
        window=0,
        window_layers=0,
        window_kv_heads=0,
        window_head_dim=0,
        source=source,
        ffn=ffn,
        experts=experts,
        experts_per_token=experts_per_token,
        expert_ffn=expert_ffn,
        shared_ffn=shared_ffn,
        dense_layers=dense_layers,
    )
    hf_config.check(replace(shape, vocab=vocab or 1))
    if counting.known(shape):
        return replace(shape, params=counting.count(shape).total, active_params=counting.active(shape))
    if vocab < 0 or params < 1:
        raise InputError.at(
            f"ffn is {ffn}, expert_ffn is {expert_ffn}, params is {params}, vocab is {vocab}",
            field="ffn",
            hint="expected a width of the FFN or of the experts, or all parameters, and a vocabulary of 0 or more",
        )
    if active_params > params:
        raise InputError.at(
            f"{active_params:,} active of {params:,} parameters",
            field="active_params",
            hint="expected at most all of them",
        )
    return shape


def plausible(shape: ModelShape) -> None:
    """Refuse a number of parameters that the layers of ``shape`` cannot have. Raises InputError."""
    heads = shape.layers * 2 * shape.hidden * shape.head_dim * (shape.heads + shape.kv_heads)
    if heads > shape.params:
        raise InputError.at(
            f"{shape.params:,} parameters, but attention alone of {shape.layers:,} layers has {heads:,}",
            field="params",
            hint="check layers, hidden and heads",
        )
    used = shape.active_params - 2 * shape.vocab * shape.hidden
    usual = _USUAL * shape.layers * shape.hidden**2
    if used > _OFF * usual:
        raise InputError.at(
            f"{shape.active_params:,} parameters per token, but {shape.layers:,} layers of hidden size "
            f"{shape.hidden:,} have about {usual:,}",
            field="params",
            hint="check layers and hidden, and give the active ones of a mixture of experts",
        )


def parameters(text: str) -> int:
    """How many parameters ``13B`` or ``850M`` are. Raises InputError for other text."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMBT]?)", text.upper())
    number = round(float(match[1]) * _SCALES[match[2]]) if match else 0
    if not 0 < number <= _MOST_PARAMETERS:
        raise InputError.at(f"{text!r} is not a number of parameters", hint="write it like 13B or 850M, up to 1000T")
    return number
