"""Kinds of engines: where vLLM, SGLang and TensorRT-LLM differ for memory and scheduling, as data.

The scheduler is one (engine.py); a kind is a row of whole numbers that it reads, and the defaults that such a server
starts with. Tables with their sources: data/engine_kinds.csv, data/engine_kind_limits.csv, data/vllm_defaults.csv.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import msgspec

from tonnage.facts import names
from tonnage.inference import tables
from tonnage.inference.engine import EngineConfig
from tonnage.inference.memory import serving
from tonnage.units import GIB, MIB

if TYPE_CHECKING:
    from tonnage.facts.gpus import Gpu

VLLM = "vllm"
_ALIASES = {"trtllm": "tensorrt-llm", "trt-llm": "tensorrt-llm", "tensorrt_llm": "tensorrt-llm", "sgl": "sglang"}
_SGLANG_SEQS = (512, 2048, 4096)
LEAST_SEQS = _SGLANG_SEQS[1]
"""max_running_requests = clamp(512 * KV tokens / context, 2048, 4096): sglang srt/model_executor/model_runner.py."""

_SGLANG_CONSTANT_MIB, _SGLANG_MIB_PER_TOKEN, _SGLANG_LEAST_CHUNK = 512, 1.5, 2048
_SGLANG_MIB_PER_GRAPH, _SGLANG_MIB_PER_RANK, _SGLANG_LEAST_MIB = 2, 128, 10 * 1024
_SGLANG_LARGE_GPU_MIB = 60 * 1024
"""What mem_fraction_static leaves out: sglang srt/server_args.py, _handle_gpu_memory_settings."""


class EngineKind(msgspec.Struct, frozen=True):
    """What the scheduler and the memory budget need to know of a kind of engine. Shares are in permille (1/1000).

    - ``page_size``: tokens of a block by default, and the granularity of prefix hits.
    - ``reserve_output_permille``: of the output tokens still to come (at most ``reserve_clip_tokens`` each, 0: no
      limit), admission leaves this share free, for the new request and those running. SGLang lowers it to
      ``reserve_output_least_permille`` over ``reserve_decay_steps`` decode steps and raises it after a retraction.
    - ``reserve_full_prompt``: a request is admitted only if its whole prompt finds room.
    - ``preempts``: a running request that finds no block costs another one its blocks, to be computed again.
    - ``mixed_steps``: a step holds prefill chunks and decodes; else it is one of them, prefill first.
    - ``prefix_cache``: on by default.
    - ``memory_*``: see :func:`kv_cache_bytes`.
    - ``metric_*``: Prometheus names.
    """

    name: str
    page_size: int
    reserve_output_permille: int
    reserve_output_least_permille: int
    reserve_decay_steps: int
    reserve_clip_tokens: int
    reserve_full_prompt: bool
    preempts: bool
    mixed_steps: bool
    prefix_cache: bool
    memory_permille: int
    memory_activations_inside: bool
    memory_of_free: bool
    metric_running: str
    metric_waiting: str
    metric_kv_usage: str
    metric_ttft: str

    @property
    def reserve_output(self) -> bool:
        """A request is admitted only if it and all running ones can run to their end (GUARANTEED_NO_EVICT)."""
        return self.reserve_output_permille >= 1000 and not self.preempts


class EngineDefaults(msgspec.Struct, frozen=True):
    """Defaults that depend on the GPU: tokens per step, sequences (0: from the KV cache), sequences of CUDA graphs."""

    max_num_batched_tokens: int
    max_num_seqs: int
    graph_batch: int = 0


def engine_kind(name: str) -> EngineKind:
    """The kind called ``name``, in any letter case: vllm, sglang, tensorrt-llm (or trtllm).

    Raises InputError with near names for another name.
    """
    plain = name.strip().lower()
    known = _kinds()
    found = known.get(_ALIASES.get(plain, plain))
    if found is None:
        raise names.unknown("engine kind", name, (*known, *_ALIASES), hint=f"use one of {', '.join(known)}")
    return found


def kinds() -> tuple[EngineKind, ...]:
    """Every kind."""
    return tuple(_kinds().values())


def sources(name: str) -> dict[str, str]:
    """Where each field of the kind called ``name`` comes from. Raises InputError for another name."""
    kind = engine_kind(name)
    found: dict[str, str] = {}
    for row in tables.rows("engine_kinds.csv"):
        if row["engine"] == kind.name:
            found[row["name"]] = _meant(row["source"], found)
    return found


def limits(kind: EngineKind, gpu: Gpu, *, tensor_parallel: int = 1) -> EngineDefaults:
    """What a server of this kind sets for itself on this GPU."""
    if kind.name == VLLM:
        row = next(
            row
            for row in tables.scheduler_defaults()
            if gpu.memory_mib * MIB >= row.min_memory_gib * GIB
            and not (row.except_gpu and gpu.name.startswith(row.except_gpu))
        )
        return EngineDefaults(row.max_num_batched_tokens, row.max_num_seqs)
    known = [row for row in tables.rows("engine_kind_limits.csv") if row["engine"] == kind.name]
    chosen = next(row for row in known if gpu.memory_mib >= int(row["min_memory_mib"]))
    graphs = chosen["graph_batch_tp4" if tensor_parallel >= 4 else "graph_batch"]
    return EngineDefaults(int(chosen["max_num_batched_tokens"]), int(chosen["max_num_seqs"] or 0), int(graphs or 0))


def engine_config(
    kind: EngineKind, gpu: Gpu, *, kv_tokens: int, max_model_len: int, tensor_parallel: int = 1
) -> EngineConfig:
    """The EngineConfig that such a server starts with, given a KV cache of ``kv_tokens`` tokens.

    A share of the output that is reserved but not all of it (SGLang) has no place in an EngineConfig. Raises ValueError
    if the cache does not hold a page or ``max_model_len`` is below 1.
    """
    if kv_tokens < kind.page_size or max_model_len < 1:
        raise ValueError(f"a KV cache of {kv_tokens} tokens holds no page, or the context of {max_model_len} no token")
    own = limits(kind, gpu, tensor_parallel=tensor_parallel)
    seqs = own.max_num_seqs
    if seqs == 0:
        factor, least, most = _SGLANG_SEQS
        seqs = min(max(kv_tokens * factor // max_model_len, least), most)
    return EngineConfig(
        max_num_batched_tokens=own.max_num_batched_tokens,
        max_num_seqs=seqs,
        max_model_len=max_model_len,
        kv_blocks=kv_tokens // kind.page_size,
        block_size=kind.page_size,
        reserve_full_prompt=kind.reserve_full_prompt,
        reserve_output=kind.reserve_output,
        mixed_steps=kind.mixed_steps,
    )


def kv_cache_bytes(
    kind: EngineKind,
    gpu: Gpu,
    *,
    weights: int,
    others: int,
    tensor_parallel: int = 1,
    permille: int | None = None,
    memory_share: float = 1.0,
) -> int:
    """Bytes of one GPU that become KV cache; negative if the model does not fit.

    ``weights`` of this rank, ``others``: activations, graphs and memory outside the framework. ``permille`` replaces
    the default share. vLLM: share of all memory, minus both. SGLang: share of all memory, minus the weights, where the
    default share leaves room for the others. TensorRT-LLM: share of what is free once both are there. All memory is
    what CUDA shows of the GPU; ``memory_share`` of it where several replicas share one.
    """
    total = int(serving.visible_bytes(gpu) * memory_share)
    if permille is None:
        part = msgspec.structs.replace(gpu, memory_mib=int(gpu.memory_mib * memory_share))
        permille = memory_permille(kind, part, tensor_parallel=tensor_parallel)
    share = permille
    if kind.memory_of_free:
        return (total - weights - others) * share // 1000
    return total * share // 1000 - weights - (others if kind.memory_activations_inside else 0)


def memory_permille(kind: EngineKind, gpu: Gpu, *, tensor_parallel: int = 1) -> int:
    """The default share of memory in permille; SGLang's follows from chunk size, CUDA graphs and ranks."""
    if kind.memory_permille:
        return kind.memory_permille
    own = limits(kind, gpu, tensor_parallel=tensor_parallel)
    left_out = (
        _SGLANG_CONSTANT_MIB
        + max(own.max_num_batched_tokens, _SGLANG_LEAST_CHUNK) * _SGLANG_MIB_PER_TOKEN
        + own.graph_batch * _SGLANG_MIB_PER_GRAPH
        + tensor_parallel * _SGLANG_MIB_PER_RANK
    )
    if gpu.memory_mib > _SGLANG_LARGE_GPU_MIB:
        left_out = max(left_out, _SGLANG_LEAST_MIB)
    return round((gpu.memory_mib - left_out) / gpu.memory_mib * 1000)


@cache
def _kinds() -> dict[str, EngineKind]:
    cells: dict[str, dict[str, str]] = {}
    for row in tables.rows("engine_kinds.csv"):
        cells.setdefault(row["engine"], {"name": row["engine"]})[row["name"]] = row["value"]
    return {name: msgspec.convert(row, EngineKind, strict=False) for name, row in cells.items()}


def _meant(source: str, before: dict[str, str]) -> str:
    """``same`` and what follows it stand for the source of the row before."""
    if source.partition(":")[0] != "same":
        return source
    return next(reversed(before.values())).partition(":")[0] + source.removeprefix("same")
