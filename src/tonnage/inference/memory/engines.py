"""What an engine of any kind makes of the memory of its GPUs: weights and overheads, and the KV cache in blocks.

The one rule of memory: the simulated engine, ``size``, the findings of ``check``, routing and KV tiers all ask here.
vLLM's parts are those of :mod:`tonnage.inference.memory.serving`; SGLang and TensorRT-LLM say otherwise how much of the
memory becomes KV cache (:func:`tonnage.inference.memory.kinds.kv_cache_bytes`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from tonnage.inference import tables
from tonnage.inference.memory import kinds, serving
from tonnage.inference.memory.formats import Precision
from tonnage.inference.memory.serving import KvCapacity, MemoryPart, ServingMemory

if TYPE_CHECKING:
    from tonnage.facts.gpus import Gpu
    from tonnage.facts.models import ModelShape


class EngineMemory(msgspec.Struct, frozen=True):
    """The fullest GPU of an engine: ``memory``, where its bytes go; ``kv``, the blocks of what is left of them."""

    memory: ServingMemory
    kv: KvCapacity


def engine_memory(
    shape: ModelShape,
    gpu: Gpu,
    *,
    stored: Precision,
    kv: Precision,
    max_num_batched_tokens: int,
    max_num_seqs: int,
    engine: str = kinds.VLLM,
    tensor_parallel: int = 1,
    pipeline_parallel: int = 1,
    pipeline_layers: Sequence[int] = (),
    utilization: float | None = None,
    memory_share: float = 1.0,
    block_size: int | None = None,
    hybrid: bool = True,
    cuda_graphs: bool = True,
    sorts_logits: bool = False,
    extra: tuple[MemoryPart, ...] = (),
) -> EngineMemory:
    """The memory of ``shape`` on each of ``tensor_parallel`` · ``pipeline_parallel`` GPUs under a server of kind
    ``engine``.

    ``utilization``: the server's own share of memory (--gpu-memory-utilization, --mem-fraction-static, the free
    fraction of TensorRT-LLM); None takes its default. ``memory_share``: the part of the GPU that a replica may have
    where several share it. ``block_size``: tokens of a block, None the server's default. ``hybrid`` False: every layer
    keeps the whole context (--disable-hybrid-kv-cache-manager). ``pipeline_layers``: of each pipeline stage; empty: as
    vLLM deals them out. ``cuda_graphs``, ``sorts_logits``, ``extra``: see :func:`serving.serving_memory`.

    Raises InputError as :func:`serving.weights` does; a model that does not fit has a negative ``memory.kv_cache``.
    """
    kind = kinds.engine_kind(engine)
    is_vllm = kind.name == kinds.VLLM
    share = utilization or tables.vllm_memory()["gpu_memory_utilization"]
    found = serving.serving_memory(
        shape,
        gpu,
        stored=stored,
        tensor_parallel=tensor_parallel,
        pipeline_parallel=pipeline_parallel,
        pipeline_layers=pipeline_layers,
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_seqs=max_num_seqs,
        utilization=share * memory_share,
        cuda_graphs=cuda_graphs,
        sorts_logits=sorts_logits,
        extra=extra,
    )
    if not is_vllm:
        cache = kinds.kv_cache_bytes(
            kind,
            gpu,
            weights=found.weights,
            others=found.used - found.weights,
            tensor_parallel=tensor_parallel,
            permille=round(utilization * 1000) if utilization else None,
            memory_share=memory_share,
        )
        requested = found.used + cache
        found = msgspec.structs.replace(found, requested=requested, utilization=round(requested / found.visible, 4))
    held = serving.kv_capacity(
        shape,
        kv,
        max(0, found.kv_cache),
        tensor_parallel=tensor_parallel,
        pipeline_parallel=pipeline_parallel,
        pipeline_layers=pipeline_layers,
        max_num_batched_tokens=max_num_batched_tokens,
        block_size=block_size or kind.page_size,
        hybrid_layers=hybrid,
        null_blocks=1 if is_vllm else 0,
    )
    return EngineMemory(found, held)
