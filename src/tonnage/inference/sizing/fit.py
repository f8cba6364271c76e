"""What memory allows: a model on a card with TP and PP."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

import msgspec

from tonnage.inference import memory
from tonnage.inference.memory import KvCapacity, MemoryPart, ServingMemory, kinds
from tonnage.inference.memory.engines import engine_memory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tonnage.inference.sizing.cards import EngineGpu
    from tonnage.inference.sizing.request import SizingRequest

TENSOR_PARALLEL = (1, 2, 4, 8)
PIPELINE_PARALLEL = (1, 2, 4)
"""Sizes that are considered unless one is asked for."""

NO_ENGINE = "none"
"""For no engine in particular: all of the memory that is left becomes KV cache."""

_QUANTILE = 1.645
"""Of the standard normal distribution, one-sided 95 %."""


class ReplicaPlan(msgspec.Struct, frozen=True):
    """One replica: ``tensor_parallel`` · ``pipeline_parallel`` cards, and what is in the memory of the fullest one.
    ``sequences``: how many decode at once without running out of blocks 95 % of the time; ``needed``: KV bytes of one
    sequence of the whole context, without which vLLM does not start."""

    card: EngineGpu
    tensor_parallel: int
    pipeline_parallel: int
    memory: ServingMemory
    kv: KvCapacity
    needed: int
    sequences: int
    max_num_seqs: int
    max_num_batched_tokens: int

    @property
    def gpus(self) -> int:
        """Cards of a replica."""
        return self.tensor_parallel * self.pipeline_parallel

    @property
    def fits(self) -> bool:
        """Whether vLLM starts: the weights fit, and the KV cache holds one sequence of the whole context."""
        return self.memory.kv_cache >= self.needed > 0

    @property
    def short(self) -> int:
        """Bytes that are missing on each card; 0 if it fits."""
        return 0 if self.fits else max(1, self.needed - self.memory.kv_cache)

    @property
    def label(self) -> str:
        """As in ``h100 TP 4 x PP 2``."""
        parts = [f"{self.card.name} TP {self.tensor_parallel}"]
        if self.pipeline_parallel > 1:
            parts.append(f"PP {self.pipeline_parallel}")
        return " x ".join(parts)


def plan(
    request: SizingRequest,
    card: EngineGpu,
    tensor_parallel: int,
    pipeline_parallel: int = 1,
    *,
    sorts_logits: bool = False,
) -> ReplicaPlan:
    """The plan of ``request`` on ``card``; ``sorts_logits`` under vLLM before 0.16. Raises InputError if TP does not
    divide the heads, or PP exceeds the layers."""
    tokens, seqs = limits(request, card)
    found = engine_memory(
        request.shape,
        card.gpu,
        engine=kinds.VLLM if request.system == NO_ENGINE else request.system,
        stored=request.stored,
        kv=request.kv,
        tensor_parallel=tensor_parallel,
        pipeline_parallel=pipeline_parallel,
        pipeline_layers=request.pipeline_layers if pipeline_parallel == len(request.pipeline_layers) else (),
        max_num_batched_tokens=tokens,
        max_num_seqs=seqs,
        utilization=request.utilization,
        memory_share=card.memory_share,
        cuda_graphs=request.cuda_graphs,
        sorts_logits=sorts_logits,
        extra=_adapters(request, tensor_parallel),
    )
    kv = found.kv
    sequences = max(1, min(_sequences(request, kv), seqs))
    needed = kv.needed(request.context)
    return ReplicaPlan(card, tensor_parallel, pipeline_parallel, found.memory, kv, needed, sequences, seqs, tokens)


def _sequences(request: SizingRequest, kv: KvCapacity) -> int:
    """The most n with n · mean + z · deviation · sqrt(n) blocks in the pool: what n independent sequences hold is
    about normal."""
    mean = kv.layout.blocks(request.lengths.resident)
    spread = _QUANTILE * mean * request.lengths.decode_spread / request.lengths.resident
    pool = kv.usable
    root = (sqrt(spread * spread + 4 * mean * pool) - spread) / (2 * mean)
    return int(root * root)


def limits(request: SizingRequest, card: EngineGpu) -> tuple[int, int]:
    """(max_num_batched_tokens, max_num_seqs): asked for, or the defaults of the engine, else of vLLM, for this card.
    Where the engine takes its sequences from the KV cache (SGLang), the least that it takes."""
    name = kinds.VLLM if request.system == NO_ENGINE else request.system
    own = kinds.limits(kinds.engine_kind(name), card.gpu)
    tokens = request.max_num_batched_tokens or own.max_num_batched_tokens
    return tokens, min(request.max_num_seqs or own.max_num_seqs or kinds.LEAST_SEQS, tokens)


def sizes(request: SizingRequest, card: EngineGpu, per_node: int) -> Iterator[tuple[int, int]]:
    """(TP, PP) to consider on ``card`` where nothing excludes it (:func:`excluded`), fewest GPUs first: TP divides the
    heads and stays within a node of ``per_node`` GPUs; MIG instances and time-sliced shares are never joined."""
    if card.sliced:
        yield 1, 1
        return
    tensor = TENSOR_PARALLEL if request.tensor_parallel is None else (request.tensor_parallel,)
    pipeline = PIPELINE_PARALLEL if request.pipeline_parallel is None else (request.pipeline_parallel,)
    pairs = [
        (tp, pp)
        for tp in tensor
        for pp in pipeline
        if request.shape.heads % tp == 0 and tp <= per_node and pp <= request.shape.layers
    ]
    yield from sorted(pairs, key=lambda pair: (pair[0] * pair[1], pair[1]))


def excluded(request: SizingRequest, card: EngineGpu, per_node: int) -> str | None:
    """Why there is nothing to try on ``card``, whose nodes have ``per_node`` GPUs: one reason, None without."""
    if card.whole in request.stored.not_on:
        return f"vLLM has no kernel there for weights in {request.stored.name}"
    if not request.kv.kv_on(card.whole):
        return f"vLLM keeps no KV cache in {request.kv.name} there"
    if card.sliced and max(request.tensor_parallel or 1, request.pipeline_parallel or 1) > 1:
        what = "a MIG instance has" if card.kind == "mig" else "replicas that share a GPU have"
        return f"{what} no link to others, TP and PP are 1"
    if (request.tensor_parallel or 1) > per_node:
        return f"no node has {request.tensor_parallel} of them, TP is at most {per_node}"
    return None


def _adapters(request: SizingRequest, tensor_parallel: int) -> tuple[MemoryPart, ...]:
    if not request.adapters:
        return ()
    each = memory.lora_params(request.shape, request.lora_rank, tensor_parallel=tensor_parallel)
    size = request.adapters * each * 2
    text = f"{request.adapters} adapters of rank {request.lora_rank}: {each:,} parameters here x 2 B"
    return (MemoryPart("LoRA adapters", size, text),)
