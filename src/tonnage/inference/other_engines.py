"""Engines of SGLang and TensorRT-LLM by their command lines: memory, scheduler limits, timing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tonnage.errors import InputError
from tonnage.inference.config import beyond_context, does_not_fit, kv_stored_in, replica, stages, step_times, stored_in
from tonnage.inference.engine import EngineConfig
from tonnage.inference.estimate import EstimatedTiming
from tonnage.inference.memory import kinds
from tonnage.inference.memory.engines import engine_memory
from tonnage.inference.timing import check_tensor_parallel
from tonnage.inference.vllm_args import AUTO_MODEL_LEN, VllmArgs

if TYPE_CHECKING:
    from tonnage.facts.gpus import Gpu
    from tonnage.facts.models import ModelShape


def replica_of(model: ModelShape, gpu: Gpu, args: VllmArgs) -> tuple[EngineConfig, EstimatedTiming]:
    """The engine that these settings start, of whatever kind: another than vLLM with its own defaults and its own rule
    of memory. Raises InputError as :func:`~tonnage.inference.config.replica` does."""
    if args.engine == kinds.VLLM:
        return replica(model, gpu, args)
    kind, tp, pp = kinds.engine_kind(args.engine), args.tensor_parallel_size, args.pipeline_parallel_size
    check_tensor_parallel(model, tp)
    if not 0 < (args.gpu_memory_utilization or 0.5) <= 1:
        flag = "--mem-fraction-static" if kind.name == "sglang" else "--kv-cache-free-gpu-memory-fraction"
        raise InputError.at(f"{flag} is {args.gpu_memory_utilization}", field=flag, hint="expected up to 1")
    own = kinds.limits(kind, gpu, tensor_parallel=tp)
    tokens = args.max_num_batched_tokens or own.max_num_batched_tokens
    stages(model, pp, args.pipeline_layers, "SGLANG_PP_LAYER_PARTITION")
    found = engine_memory(
        model,
        gpu,
        engine=kind.name,
        stored=stored_in(args.dtype, args.quantization, model),
        kv=kv_stored_in(args.dtype, args.kv_cache_dtype),
        tensor_parallel=tp,
        pipeline_parallel=pp,
        pipeline_layers=args.pipeline_layers,
        max_num_batched_tokens=tokens,
        max_num_seqs=min(args.max_num_seqs or own.max_num_seqs or kinds.LEAST_SEQS, tokens),
        utilization=args.gpu_memory_utilization,
        block_size=args.block_size,
        hybrid=not args.disable_hybrid_kv_cache_manager,
    )
    size = found.kv.layout.block_size
    blocks = found.kv.usable if args.kv_tokens is None else min(found.kv.usable, args.kv_tokens // size)
    kv_tokens = min(found.kv.tokens, blocks * size)
    if found.memory.kv_cache <= 0 or kv_tokens < size:
        raise does_not_fit(model, gpu, tp * pp, found.memory)
    auto = args.max_model_len in (None, AUTO_MODEL_LEN)
    context = (None if auto else args.max_model_len) or model.context_tokens or kv_tokens
    if model.context_tokens is not None and context > model.context_tokens:
        raise beyond_context(model, context)
    made = kinds.engine_config(
        kind, gpu, kv_tokens=kv_tokens, max_model_len=min(context, kv_tokens), tensor_parallel=tp
    )
    config = msgspec.structs.replace(
        made,
        max_num_batched_tokens=tokens,
        max_num_seqs=args.max_num_seqs or made.max_num_seqs,
        kv_blocks=blocks,
        block_size=size,
        mixed_steps=made.mixed_steps or args.mixed_steps,
        layout=found.kv.layout_of_groups,
    )
    return config, step_times(model, gpu, args)
