"""Engines of SGLang and TensorRT-LLM by their command lines: memory, scheduler limits, timing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tonnage.errors import InputError
from tonnage.inference import kinds
from tonnage.inference.config import (
    beyond_context,
    does_not_fit,
    kv_bytes,
    kv_bytes_per_token_per_gpu,
    memory_budget,
    replica,
    stages,
    weight_bytes,
)
from tonnage.inference.engine import EngineConfig
from tonnage.inference.timing import RooflineTiming, check_tensor_parallel
from tonnage.inference.vllm_args import VllmArgs

if TYPE_CHECKING:
    from tonnage.facts.gpus import Gpu
    from tonnage.facts.models import ModelShape


def replica_of(model: ModelShape, gpu: Gpu, args: VllmArgs) -> tuple[EngineConfig, RooflineTiming]:
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
    stored = weight_bytes(args.dtype, args.quantization, model)
    budget = memory_budget(
        model,
        gpu,
        tensor_parallel=tp,
        max_num_batched_tokens=tokens,
        max_num_seqs=min(args.max_num_seqs or own.max_num_seqs or tokens, tokens),
        gpu_memory_utilization=1.0,
        weight_bytes_per_param=stored,
        pipeline_parallel=pp,
    )
    others = budget.activations + budget.non_torch + budget.cuda_graphs
    permille = round(args.gpu_memory_utilization * 1000) if args.gpu_memory_utilization is not None else None
    cache = kinds.kv_cache_bytes(
        kind, gpu, weights=budget.weights, others=others, tensor_parallel=tp, permille=permille
    )
    element = kv_bytes(args.dtype, args.kv_cache_dtype)
    held = kv_bytes_per_token_per_gpu(model, tp, element) * max(stages(model, pp, ()))
    kv_tokens = min(cache * model.layers // held, args.kv_tokens or cache)
    if kv_tokens < (args.block_size or kind.page_size):
        raise does_not_fit(model, gpu, tp * pp, budget)
    context = args.max_model_len or model.context_tokens or kv_tokens
    if model.context_tokens is not None and context > model.context_tokens:
        raise beyond_context(model, context)
    made = kinds.engine_config(
        kind, gpu, kv_tokens=kv_tokens, max_model_len=min(context, kv_tokens), tensor_parallel=tp
    )
    size = args.block_size or made.block_size
    config = msgspec.structs.replace(
        made,
        max_num_batched_tokens=tokens,
        max_num_seqs=args.max_num_seqs or made.max_num_seqs,
        kv_blocks=kv_tokens // size,
        block_size=size,
        mixed_steps=made.mixed_steps or args.mixed_steps,
    )
    timing = RooflineTiming(model, gpu, tensor_parallel=tp, weight_bytes_per_param=stored, kv_bytes_per_element=element)
    return config, timing
