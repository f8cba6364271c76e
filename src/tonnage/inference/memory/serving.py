"""Where the memory of a GPU goes that serves a model: weights, activations, CUDA, graphs, KV cache.

The rule is vLLM's (v1/worker/gpu_worker.py): of the memory that the driver shows it may use a share, and what weights,
the activation peak of its profiling run, memory outside torch and CUDA graphs leave of it is the KV cache. Weights
follow from the shape (:mod:`tonnage.facts.counting`) and from how vLLM deals matrices to the ranks; the other parts are
estimates (data/vllm_memory.csv), as vLLM measures them while it starts.

Every part carries its formula with its numbers, so that a person can check it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import ceil
from typing import TYPE_CHECKING

import msgspec

from tonnage.errors import InputError
from tonnage.facts import counting
from tonnage.inference import hybrid, tables
from tonnage.inference.memory import activations
from tonnage.inference.memory.formats import Precision
from tonnage.inference.timing import check_tensor_parallel, heads_per_gpu
from tonnage.units import GIB, MIB

if TYPE_CHECKING:
    from tonnage.facts.gpus import Gpu
    from tonnage.facts.models import ModelShape

_SIXTEEN_BIT = 2
_TORCH_SHARE = 0.99
"""What CUDA shows of the memory of a card without a row in data/visible_memory.csv: the lowest of those that have one
and no ECC in their memory is 0.985, the highest 0.994."""


class MemoryPart(msgspec.Struct, frozen=True):
    """Bytes on one GPU, and how they come about."""

    name: str
    bytes: int
    formula: str


class ServingMemory(msgspec.Struct, frozen=True):
    """One GPU. ``visible``: what the driver shows; ``requested``: what the engine may use of it; ``parts``: all but
    the KV cache, weights first."""

    visible: int
    requested: int
    utilization: float
    parts: tuple[MemoryPart, ...]

    @property
    def used(self) -> int:
        """Bytes of everything but the KV cache."""
        return sum(part.bytes for part in self.parts)

    @property
    def kv_cache(self) -> int:
        """Bytes left for the KV cache; negative if the rest does not fit."""
        return self.requested - self.used

    @property
    def weights(self) -> int:
        """Bytes of the weights."""
        return self.bytes_of("weights")

    def bytes_of(self, name: str) -> int:
        """Bytes of the parts whose name begins with ``name``."""
        return sum(part.bytes for part in self.parts if part.name.startswith(name))


class KvCapacity(msgspec.Struct, frozen=True):
    """What fits in the KV memory of each GPU: ``blocks`` of the common pool, as vLLM counts them when it starts.
    ``stage_share``: the part of the layers that the GPU has, less than 1 with pipeline parallelism. ``null_blocks``:
    blocks that no request gets (vLLM keeps the first one)."""

    layout: hybrid.Layout
    blocks: int
    max_num_batched_tokens: int
    stage_share: float = 1.0
    null_blocks: int = 1

    @property
    def usable(self) -> int:
        """Blocks that requests can use."""
        return max(0, self.blocks - self.null_blocks)

    @property
    def most_tokens(self) -> int:
        """Tokens of all blocks, were they of the group with the largest."""
        return self.blocks * max(group.block_size for group in self.layout.groups)

    @property
    def layout_of_groups(self) -> hybrid.Layout | None:
        """The layout, where blocks are not simply those of the whole context in every layer; else None."""
        groups = self.layout.groups
        return None if len(groups) == 1 and groups[0].count == 1 and groups[0].layers.kind == "full" else self.layout

    def needed(self, tokens: int) -> int:
        """The most bytes on the GPU that a sequence of ``tokens`` tokens ever holds, as vLLM reserves them to start."""
        blocks = self.layout.most_blocks(tokens, self.max_num_batched_tokens)
        return ceil(blocks * self.layout.block_bytes * self.stage_share)

    @property
    def tokens(self) -> int:
        """vLLM's "GPU KV cache size": blocks over groups, times the tokens of a block. Where a model has several
        groups this is not what a request needs; :meth:`concurrency` is."""
        groups = sum(group.count for group in self.layout.groups)
        return self.blocks // groups * self.layout.block_size

    def concurrency(self, tokens: int) -> float:
        """vLLM's "Maximum concurrency for ``tokens`` tokens per request"."""
        return self.blocks / self.layout.most_blocks(tokens, self.max_num_batched_tokens)

    def sequences(self, tokens: int) -> int:
        """Sequences of ``tokens`` tokens that decode at once."""
        return self.usable // self.layout.blocks(tokens)

    def longest(self, limit: int) -> int:
        """The longest sequence up to ``limit`` tokens that fits alone; 0 if none does."""
        low, high = 0, limit
        while low < high:
            middle = (low + high + 1) // 2
            if self.concurrency(middle) >= 1:
                low = middle
            else:
                high = middle - 1
        return low


def visible_bytes(gpu: Gpu) -> int:
    """Memory that CUDA shows of ``gpu``, in bytes: measured where a start-up log was found, else 99 % of what the
    vendor says. A MIG instance shows what its profile has."""
    measured = _visible().get(gpu.name)
    if measured is not None:
        return int(measured * GIB)
    return int(gpu.memory_mib * MIB * (1 if ":" in gpu.name else _TORCH_SHARE))


def weight_bytes(shape: ModelShape, stored: Precision) -> int:
    """Bytes of the whole model in ``stored`` as a checkpoint has it, scales included, rounded up. Embedding, head,
    router and norms stay in 16 bits unless the format is for all weights. Raises InputError if the shape does not say
    which weights are experts and the format needs it."""
    return sum(part.bytes for part in weights(shape, msgspec.structs.replace(stored, pads=())))


def weights(
    shape: ModelShape,
    stored: Precision,
    tensor_parallel: int = 1,
    pipeline_parallel: int = 1,
    pipeline_layers: Sequence[int] = (),
) -> list[MemoryPart]:
    """Weights of the fullest GPU, as vLLM deals them out, or with ``pipeline_layers`` on each stage.

    Attention heads, FFN columns, experts and the vocabulary are divided by TP. Where there are fewer KV heads than
    ranks, each rank holds one, so that key and value projections are replicated; latent projections (MLA), the router
    and norms are held by every rank. The stages of PP differ: the first has the embedding and the dense layers of a
    mixture of experts, the last the head (both if they are tied), and what PP does not divide goes to those before the
    last. The stage with most bytes counts.

    Raises InputError if TP does not divide the heads, PP exceeds the layers, or a format for experts meets a model
    without.
    """
    check_tensor_parallel(shape, tensor_parallel)
    if not 1 <= pipeline_parallel <= shape.layers:
        raise InputError.at(
            f"pipeline parallel size {pipeline_parallel} with {shape.layers} layers of {shape.name}",
            field="--pipeline-parallel-size",
            hint="use 1 up to the number of layers",
        )
    held = pipeline_layers or stages(shape.layers, pipeline_parallel)
    if not counting.known(shape):
        return [_lumped(shape, stored, tensor_parallel, max(held))]
    if stored.scope == "experts" and not shape.experts:
        raise InputError.at(
            f"{stored.name} is a format of experts, {shape.name} has none",
            field="--precision",
            hint="use fp8, int4 or fp4 for a dense model",
        )
    found = [_dealt(shape, stored, tensor_parallel, held, stage) for stage in range(pipeline_parallel)]
    return max(found, key=lambda parts: sum(part.bytes for part in parts))


def stages(layers: int, pipeline_parallel: int) -> list[int]:
    """Layers of each pipeline stage, as vLLM deals them out (distributed/utils.py, get_pp_indices): one more for those
    before the last where PP does not divide them."""
    held = [layers // pipeline_parallel] * pipeline_parallel
    for index in range(2, layers % pipeline_parallel + 2):
        held[-index] += 1
    return held


def _dealt(shape: ModelShape, stored: Precision, tp: int, held: Sequence[int], stage: int) -> list[MemoryPart]:
    counts = counting.count(shape)
    dense_layers = shape.layers - shape.moe_layers
    first = sum(held[:stage])
    dense_here = max(0, min(dense_layers, first + held[stage]) - first)
    dense = dense_here / max(1, dense_layers)
    moe = (held[stage] - dense_here) / max(1, shape.moe_layers)
    linear = stored.bytes_per_weight if stored.scope in ("all", "linear") else _SIXTEEN_BIT
    other = stored.bytes_per_weight if stored.scope == "all" else _SIXTEEN_BIT
    padding = _padding(shape, stored, tp)
    layers = held[stage] / shape.layers
    if shape.kv_lora_rank:
        kv_share = 1 / tp
    else:
        kv_share = heads_per_gpu(shape.kv_heads, tp) / shape.kv_heads
    dealt = (
        ("attention", counts.attention, linear, layers / tp),
        ("keys and values", counts.keys_values, linear, layers * kv_share),
        ("latent projections", counts.latent, linear, layers),
        ("linear attention", counts.states, linear, layers / tp),
        ("FFN", counts.dense_ffn, linear, dense / tp),
        ("experts", counts.experts, stored.bytes_per_weight, moe / tp * padding),
        ("shared experts", counts.shared, linear, moe / tp),
        ("router", counts.router, other, moe),
        ("norms and biases", counts.small, other, layers),
    )
    parts = [_padded(_weight(*row), padding) for row in dealt if row[1] and row[3]]
    last = stage == len(held) - 1
    if stage == 0 or (last and not counts.head):
        parts.append(_weight("embedding", counts.embedding, other, 1 / tp))
    if counts.head and last:
        parts.append(_weight("output head", counts.head, other, 1 / tp))
    return parts


def _padding(shape: ModelShape, stored: Precision, tp: int) -> float:
    """How much larger padding makes the experts of a rank."""
    if not stored.pads or not shape.experts:
        return 1.0
    hidden, width = stored.pads
    padded = ceil(shape.hidden / hidden) * hidden * ceil(shape.expert_ffn / tp / width) * width
    return padded / (shape.hidden * shape.expert_ffn / tp)


def _weight(name: str, params: int, size: float, share: float) -> MemoryPart:
    of = "" if share == 1 else f" x {share:.6g}"
    return MemoryPart(f"weights: {name}", ceil(params * size * share), f"{params:,} parameters x {size:g} B{of}")


def _padded(part: MemoryPart, padding: float) -> MemoryPart:
    if padding == 1 or part.name != "weights: experts":
        return part
    return msgspec.structs.replace(part, formula=f"{part.formula}, of which x {padding:.4g} is padding")


def _lumped(shape: ModelShape, stored: Precision, tp: int, layers: int) -> MemoryPart:
    size = stored.bytes_per_weight
    total = ceil(shape.params * size / tp * layers / shape.layers)
    text = f"{shape.params:,} parameters x {size:g} B / TP {tp} x {layers} of {shape.layers} layers"
    return MemoryPart("weights: all", total, text)


def kv_kinds(
    shape: ModelShape, kv: Precision, tensor_parallel: int = 1, *, hybrid_layers: bool = True
) -> tuple[hybrid.Layers, ...]:
    """The kinds of layers of ``shape`` with the KV bytes of a token on one GPU: those with the whole context, with a
    window, with a state. Without ``hybrid_layers`` window layers keep the whole context too, and all of these count as
    one layer (--disable-hybrid-kv-cache-manager). Raises InputError if TP does not divide the heads."""
    check_tensor_parallel(shape, tensor_parallel)
    size = kv.kv_bytes
    if size is None:
        raise ValueError(f"{kv.name} is not a format of a KV cache")
    found = []
    if shape.full_layers:
        held = heads_per_gpu(shape.kv_heads, tensor_parallel) / shape.kv_heads
        layer = shape.kv_bytes_per_token(1) / shape.full_layers
        found.append(hybrid.Layers("full", shape.full_layers, ceil(layer * size * held)))
    if shape.window_layers:
        held = heads_per_gpu(shape.window_kv_heads, tensor_parallel) / shape.window_kv_heads
        layer = shape.window_kv_bytes_per_token(1) / shape.window_layers
        found.append(hybrid.Layers("window", shape.window_layers, ceil(layer * size * held), span=shape.window))
    if shape.state_layers:
        state = ceil(shape.state_bytes / tensor_parallel)
        found.append(hybrid.Layers("state", shape.state_layers, state_bytes=state))
    if hybrid_layers or not shape.window_layers:
        return tuple(found)
    whole = hybrid.Layers("full", 1, sum(kind.layers * kind.token_bytes for kind in found if kind.kind != "state"))
    return (whole, *(kind for kind in found if kind.kind == "state"))


def kv_token_bytes(shape: ModelShape, kv: Precision, tensor_parallel: int = 1) -> int:
    """KV bytes of one token on one GPU while it is inside every window, states left out."""
    return sum(kind.layers * kind.token_bytes for kind in kv_kinds(shape, kv, tensor_parallel))


def kv_capacity(
    shape: ModelShape,
    kv: Precision,
    kv_bytes: int,
    *,
    tensor_parallel: int = 1,
    pipeline_parallel: int = 1,
    max_num_batched_tokens: int = 8192,
    block_size: int = 16,
    pipeline_layers: Sequence[int] = (),
    hybrid_layers: bool = True,
    null_blocks: int = 1,
) -> KvCapacity:
    """The blocks that an engine makes of ``kv_bytes`` on each GPU. With PP the stage with the most layers counts:
    ceil(layers / PP), or the largest of ``pipeline_layers``. ``hybrid_layers``: see :func:`kv_kinds`; ``null_blocks``:
    see :class:`KvCapacity`."""
    layout = hybrid.layout(kv_kinds(shape, kv, tensor_parallel, hybrid_layers=hybrid_layers), block_size)
    held = max(pipeline_layers or stages(shape.layers, pipeline_parallel)) / shape.layers
    blocks = max(0, int(kv_bytes // (layout.block_bytes * held)))
    return KvCapacity(layout, blocks, max_num_batched_tokens, held, null_blocks)


def serving_memory(
    shape: ModelShape,
    gpu: Gpu,
    *,
    stored: Precision,
    tensor_parallel: int = 1,
    pipeline_parallel: int = 1,
    max_num_batched_tokens: int,
    max_num_seqs: int,
    utilization: float,
    cuda_graphs: bool = True,
    sorts_logits: bool = False,
    extra: tuple[MemoryPart, ...] = (),
    pipeline_layers: Sequence[int] = (),
) -> ServingMemory:
    """Memory of the fullest GPU under vLLM's rule. ``utilization`` is --gpu-memory-utilization, times the share of
    the GPU that a replica may have where several share it. ``extra`` parts count as used (LoRA adapters).

    The activations are :func:`activations.peak`; ``sorts_logits``: vLLM before 0.16. Raises InputError as
    :func:`weights` does.
    """
    known = tables.vllm_memory()
    visible = visible_bytes(gpu)
    parts = weights(shape, stored, tensor_parallel, pipeline_parallel, pipeline_layers)
    size, text = activations.peak(
        shape,
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_seqs=max_num_seqs,
        tensor_parallel=tensor_parallel,
        sorts=sorts_logits,
    )
    parts.append(MemoryPart("activations", size, text))
    parts.append(MemoryPart("CUDA context and libraries", int(known["non_torch_bytes"]), "estimate from start-up logs"))
    if tensor_parallel * pipeline_parallel > 1:
        parts.append(MemoryPart("NCCL buffers", int(known["nccl_bytes"]), "estimate, per GPU with TP or PP"))
    if cuda_graphs:
        parts.append(MemoryPart("CUDA graphs", int(known["cuda_graph_bytes"]), "estimate from start-up logs"))
    return ServingMemory(visible, ceil(visible * utilization), utilization, (*parts, *extra))


def lora_params(shape: ModelShape, rank: int, *, all_linear: bool = True, tensor_parallel: int = 1) -> int:
    """Parameters of one LoRA adapter of ``rank`` on one GPU: rank · (in + out) for each adapted matrix. ``all_linear``:
    every matrix of attention and dense or shared FFNs, else queries and values only. Routed experts are not adapted.

    TP divides the half of an adapter that lies beside the divided side of its matrix, and only that: the output of
    queries, keys, values, gate and up, the input of the output and down projections; the half beside the hidden size
    is held whole by every rank (vLLM lora/layers without --fully-sharded-loras).
    Source: Hu et al., LoRA (2021); defaults of huggingface/peft."""
    queries, keys = shape.heads * shape.head_dim / tensor_parallel, shape.head_dim
    if shape.kv_lora_rank:
        keys = shape.kv_lora_rank + shape.qk_rope_head_dim
    else:
        keys *= heads_per_gpu(shape.kv_heads, tensor_parallel)
    sides = [queries, keys]
    if all_linear:
        width = (shape.shared_ffn if shape.experts else shape.ffn) / tensor_parallel
        sides += [queries, keys, *([width] * 3 if width else [])]
    return ceil(rank * sum(shape.hidden + side for side in sides) * shape.layers)


@cache
def _visible() -> dict[str, float]:
    return {row["gpu"]: float(row["gib"]) for row in tables.rows("visible_memory.csv")}
