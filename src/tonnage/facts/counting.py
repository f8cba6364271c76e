"""How many parameters a model has, part by part, from its shape.

A decoder layer has attention, an FFN (dense, or a router and experts, of which some may be shared) and norms. All FFNs
here are gated: three matrices of hidden size by width. Source: the modelling code of each architecture in
huggingface/transformers (src/transformers/models); the sums equal the published counts.

Words in ``ModelShape.traits``, all of which add or drop parameters:

===================  =================================================================================================
tied                 the output head is the embedding matrix
qkv-bias, o-bias     biases of the query, key and value projections; of the output projection
qk-norm              a norm of one head's size for queries and one for keys, in each layer
qk-norm-wide         the same over all heads
four-norms           four norms of the hidden size a layer, not two (Gemma)
sinks                one learned attention sink a head and layer (gpt-oss)
expert-bias          biases of each expert's projections (gpt-oss)
router-bias          a bias for each expert
k-eq-v               full layers project keys only and use them as values too (Gemma 4)
q-gate               the query projection is doubled, its second half gates the output (Qwen3.5)
shared-gate          a vector of the hidden size gates the shared experts (Qwen3.5)
===================  =================================================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from tonnage.facts.models import ModelShape

TRAITS = frozenset(
    (
        *("tied", "qkv-bias", "o-bias", "qk-norm", "qk-norm-wide", "four-norms", "sinks", "expert-bias"),
        *("router-bias", "k-eq-v", "q-gate", "shared-gate"),
    )
)
_CONVOLUTION = 4
"""Taps of the convolution in front of linear attention (linear_conv_kernel_dim)."""


class ParameterCounts(Struct, frozen=True):
    """Parameters by part. ``attention`` is queries and output, ``keys_values`` the projections to keys and values;
    with latent attention ``latent`` is what projects down (held by every rank) and ``attention`` the rest.
    ``small`` is norms, biases and the like."""

    embedding: int
    head: int
    attention: int
    keys_values: int
    latent: int
    states: int
    dense_ffn: int
    experts: int
    shared: int
    router: int
    small: int

    @property
    def total(self) -> int:
        """All parameters."""
        return sum(getattr(self, name) for name in self.__struct_fields__)


def known(shape: ModelShape) -> bool:
    """Whether the shape says enough to count its parameters."""
    return bool(shape.ffn or shape.expert_ffn)


def count(shape: ModelShape) -> ParameterCounts:
    """The parameters of ``shape`` by part. Raises ValueError if it does not say enough (see :func:`known`)."""
    if not known(shape):
        raise ValueError(f"the widths of the FFN layers of {shape.name} are not known")
    attention, keys_values, latent, small = _attention(shape)
    embedding = shape.vocab * shape.hidden
    moe = shape.moe_layers
    dense = shape.layers - moe
    small += shape.hidden * (1 + shape.layers * (4 if "four-norms" in shape.traits else 2))
    if "router-bias" in shape.traits:
        small += moe * shape.experts
    if "expert-bias" in shape.traits:
        small += moe * shape.experts * (2 * shape.expert_ffn + shape.hidden)
    if "shared-gate" in shape.traits:
        small += moe * shape.hidden
    states, state_small = _states(shape)
    return ParameterCounts(
        embedding=embedding,
        head=0 if "tied" in shape.traits else embedding,
        attention=attention,
        keys_values=keys_values,
        latent=latent,
        states=states,
        dense_ffn=dense * 3 * shape.hidden * shape.ffn,
        experts=moe * shape.experts * 3 * shape.hidden * shape.expert_ffn,
        shared=moe * 3 * shape.hidden * shape.shared_ffn,
        router=moe * shape.experts * shape.hidden,
        small=small + state_small,
    )


def active(shape: ModelShape) -> int:
    """Parameters that one token passes through: all but the experts that it is not sent to, both embeddings among
    them. Raises ValueError as :func:`count` does."""
    counts = count(shape)
    if not shape.experts:
        return counts.total
    expert = counts.experts // shape.experts
    if "expert-bias" in shape.traits:
        expert += shape.moe_layers * (2 * shape.expert_ffn + shape.hidden)
    return counts.total - (shape.experts - shape.experts_per_token) * expert


def _attention(shape: ModelShape) -> tuple[int, int, int, int]:
    """(queries and output, keys and values, latent projections, norms and biases) of all layers with KV."""
    if shape.kv_lora_rank:
        return _latent_attention(shape)
    full = _layer(shape, shape.kv_heads, shape.head_dim, 1 if "k-eq-v" in shape.traits else 2)
    window = _layer(shape, shape.window_kv_heads, shape.window_head_dim, 2)
    pairs = [shape.full_layers * a + shape.window_layers * b for a, b in zip(full, window, strict=True)]
    return pairs[0], pairs[1], 0, pairs[2]


def _layer(shape: ModelShape, kv_heads: int, head_dim: int, projections: int) -> tuple[int, int, int]:
    queries, keys = shape.heads * head_dim, kv_heads * head_dim
    traits = shape.traits
    small = (queries + 2 * keys) * ("qkv-bias" in traits) + shape.hidden * ("o-bias" in traits)
    small += 2 * head_dim * ("qk-norm" in traits) + (queries + keys) * ("qk-norm-wide" in traits)
    small += shape.heads * ("sinks" in traits)
    return shape.hidden * queries * (3 if "q-gate" in traits else 2), shape.hidden * keys * projections, small


def _latent_attention(shape: ModelShape) -> tuple[int, int, int, int]:
    heads, rank, rope = shape.heads, shape.kv_lora_rank, shape.qk_rope_head_dim
    query_head = shape.qk_nope_head_dim + rope
    down = shape.hidden * (shape.q_lora_rank + rank + rope)
    up = (shape.q_lora_rank or shape.hidden) * heads * query_head
    out = heads * shape.v_head_dim * shape.hidden
    keys_values = rank * heads * (shape.qk_nope_head_dim + shape.v_head_dim)
    each = (up + out, keys_values, down, shape.q_lora_rank + rank)
    attention, kv, latent, small = (shape.full_layers * part for part in each)
    return attention, kv, latent, small


def _states(shape: ModelShape) -> tuple[int, int]:
    """(matrices, the rest) of linear attention: projections to queries, keys, values, the output gate and two
    numbers a head; a convolution; a norm of one head's size."""
    keys, values = shape.state_key_heads * shape.state_head_dim, shape.state_value_heads * shape.state_head_dim
    heads = shape.state_value_heads
    matrices = shape.hidden * (2 * keys + 2 * values + 2 * heads) + values * shape.hidden
    small = _CONVOLUTION * (2 * keys + values) + 2 * heads + shape.state_head_dim
    return shape.state_layers * matrices, shape.state_layers * small
