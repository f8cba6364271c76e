"""The most memory that vLLM's profiling run takes beside the weights, from the shape of the model.

The run (v1/worker/gpu_model_runner.py, profile_run) computes one batch of ``max_num_batched_tokens`` tokens, then
samples for ``max_num_seqs`` sequences; the larger of the two is the peak. What is left of the memory is the KV cache:
a large vocabulary and many sequences cost KV cache even where neither is used. Until vLLM 0.15 sampling sorts the
logits of every sequence (pull request 33538 ended that), which takes about ten copies of them.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from tonnage.inference import tables

if TYPE_CHECKING:
    from tonnage.facts.models import ModelShape

_SIXTEEN_BIT = 2
_LOGIT = 4


def peak(
    shape: ModelShape, *, max_num_batched_tokens: int, max_num_seqs: int, tensor_parallel: int = 1, sorts: bool = False
) -> tuple[int, str]:
    """(bytes on one GPU, formula). ``sorts``: sampling sorts the logits, as vLLM before 0.16 does."""
    known = tables.vllm_memory()
    values, text = _values(shape, tensor_parallel)
    batch = ceil(max_num_batched_tokens * values) * _SIXTEEN_BIT
    text = f"{max_num_batched_tokens:,} tokens x {text} x {_SIXTEEN_BIT} B"
    room, room_text = _latent_room(shape, tensor_parallel)
    if room:
        batch, text = batch + room, f"{text} + {room_text}"
    copies = known["sorted_logits_copies" if sorts else "logits_copies"]
    logits = int(max_num_seqs * shape.vocab * _LOGIT * copies)
    if batch >= logits:
        return batch, text
    return logits, f"{max_num_seqs:,} sequences x {shape.vocab:,} vocabulary x {_LOGIT} B x {copies:g} copies"


def _values(shape: ModelShape, tensor_parallel: int) -> tuple[float, str]:
    """16-bit values of a token that are held at once in the widest layer.

    Dense: hidden states, and gate, up and their product, divided by TP. Experts: for each expert of the token its
    input to the next step (the wider of gate with up and the output) and the product, as fused_moe keeps them
    (vLLM model_executor/layers/fused_moe/fused_moe.py, intermediate_cache1 to 3)."""
    known = tables.vllm_memory()
    hidden = shape.hidden * known["hidden_states"]
    if not (shape.ffn or shape.expert_ffn):
        widths = known["residual_widths"] + known["split_widths"] / tensor_parallel
        return shape.hidden * widths, f"{shape.hidden:,} hidden x {widths:g} widths"
    found = [(hidden + 3 * shape.ffn / tensor_parallel, f"3 x {shape.ffn:,} FFN / TP {tensor_parallel}")]
    if shape.experts:
        width = shape.expert_ffn / tensor_parallel
        each = max(2 * width, shape.hidden) + width
        found.append((hidden + shape.experts_per_token * each, f"{shape.experts_per_token} experts x {each:,.0f}"))
    values, text = max(found)
    return values, f"({known['hidden_states']:g} x {shape.hidden:,} hidden + {text})"


def _latent_room(shape: ModelShape, tensor_parallel: int) -> tuple[int, str]:
    """Latent attention computes long prompts in pieces of a context that it expands: the latent of the piece, and keys
    and values of its heads (vLLM v1/attention/backends/mla/common.py, chunked_prefill_workspace_size)."""
    if not shape.kv_lora_rank:
        return 0, ""
    tokens = int(tables.vllm_memory()["latent_workspace_tokens"])
    heads = ceil(shape.heads / tensor_parallel) * (shape.qk_nope_head_dim + shape.v_head_dim)
    width = shape.kv_lora_rank + shape.qk_rope_head_dim + heads
    return tokens * width * _SIXTEEN_BIT, f"{tokens:,} tokens of latent context x {width:,} x {_SIXTEEN_BIT} B"
