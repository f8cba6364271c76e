"""From a model, a GPU and vLLM's flags to an engine: memory budget, scheduler limits, timing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from tonnage.errors import InputError, Problem, Where
from tonnage.inference import memory
from tonnage.inference.engine import EngineConfig
from tonnage.inference.estimate import EstimatedTiming, Replica
from tonnage.inference.memory import Precision, ServingMemory, kinds
from tonnage.inference.memory.engines import EngineMemory, engine_memory
from tonnage.inference.timing import check_tensor_parallel
from tonnage.inference.vllm_args import AUTO_MODEL_LEN, VllmArgs, parse_vllm_args
from tonnage.units import GIB

if TYPE_CHECKING:
    from tonnage.facts.gpus import Gpu
    from tonnage.facts.models import ModelShape

__all__ = ["VllmArgs", "engine_config", "parse_vllm_args", "replica"]

_OF_DTYPE = {
    **dict.fromkeys(("auto", "bfloat16", "half", "float16"), "bf16"),
    **dict.fromkeys(("float", "float32"), "fp32"),
}
_PRECISION_OF_QUANTIZATION = {
    **dict.fromkeys(("fp8", "fbgemm_fp8", "ptpc_fp8", "modelopt", "fp8_per_tensor", "fp8_per_block"), "fp8"),
    **dict.fromkeys(("awq", "awq_marlin", "auto_awq", "gptq", "gptq_marlin", "auto_gptq", "moe_wna16"), "int4"),
    **dict.fromkeys(("modelopt_fp4", "nvfp4", "petit_nvfp4"), "fp4"),
    **dict.fromkeys(("mxfp4", "gpt_oss_mxfp4"), "mxfp4"),
    "experts_int8": "int8",
    "bitsandbytes": "nf4",
}
"""Number formats (data/precisions.csv) of vLLM's --quantization. Others say nothing of the bytes of a weight."""


class EngineRefused(InputError):
    """vLLM does not start: ``kind`` is ``weights`` (they do not fit beside the rest), ``cache`` (it holds no sequence
    of --max-model-len) or ``context`` (that is more than the model's own). ``said``: vLLM's own words."""

    def __init__(self, problem: Problem, kind: str, said: str) -> None:
        super().__init__(problem)
        self.kind, self.said = kind, said


def engine_config(
    model: ModelShape,
    gpu: Gpu,
    *,
    tensor_parallel: int = 1,
    max_num_batched_tokens: int | None = None,
    max_num_seqs: int | None = None,
    gpu_memory_utilization: float | None = None,
    max_model_len: int | None = None,
    block_size: int | None = None,
    dtype: str = "auto",
    quantization: str | None = None,
    kv_cache_dtype: str = "auto",
    hybrid_kv_cache: bool = True,
    pipeline_parallel: int = 1,
    context_extended: bool = False,
    pipeline_layers: Sequence[int] = (),
) -> EngineConfig:
    """What vLLM would start with. None takes vLLM's default for this GPU; a ``max_model_len`` of -1 what
    fits. With ``pipeline_parallel`` each GPU has its share of the layers, weights and cache alike: ``pipeline_layers``
    (VLLM_PP_LAYER_PARTITION), else as vLLM deals them out. The stage with the most layers says what fits.
    ``context_extended``: more than the model's own context may be asked for.

    The blocks of a model with sliding windows are those of its groups (``EngineConfig.layout``), unless without
    ``hybrid_kv_cache`` every layer keeps the whole context (--disable-hybrid-kv-cache-manager).

    Raises InputError where vLLM would refuse to start: the weights do not fit, the KV cache cannot hold one
    sequence of ``max_model_len`` tokens, tensor parallelism does not divide the heads, or a value is out of
    range.
    """
    check_tensor_parallel(model, tensor_parallel)
    if gpu_memory_utilization is not None and not 0 < gpu_memory_utilization <= 1:
        raise InputError.at(
            f"--gpu-memory-utilization is {gpu_memory_utilization}",
            field="--gpu-memory-utilization",
            hint="expected a share above 0 and up to 1",
        )
    tokens, seqs = _scheduler_limits(gpu, max_num_batched_tokens, max_num_seqs)
    stages(model, pipeline_parallel, pipeline_layers)
    found = engine_memory(
        model,
        gpu,
        stored=stored_in(dtype, quantization, model),
        kv=kv_stored_in(dtype, kv_cache_dtype),
        tensor_parallel=tensor_parallel,
        pipeline_parallel=pipeline_parallel,
        pipeline_layers=pipeline_layers,
        max_num_batched_tokens=tokens,
        max_num_seqs=seqs,
        utilization=gpu_memory_utilization,
        block_size=block_size,
        hybrid=hybrid_kv_cache,
    )
    kv = found.kv
    known = model.context_tokens
    longest = kv.longest(kv.most_tokens if known is None else max(known, max_model_len or 0))
    if not kv.usable or longest < 1:
        raise does_not_fit(model, gpu, tensor_parallel * pipeline_parallel, found.memory)
    context = _context(model, max_model_len, longest, context_extended, found)
    return EngineConfig(tokens, seqs, context, kv.usable, kv.layout.block_size, layout=kv.layout_of_groups)


def stages(
    model: ModelShape, pipeline_parallel: int, given: Sequence[int], variable: str = "VLLM_PP_LAYER_PARTITION"
) -> Sequence[int]:
    """Layers of each pipeline stage. Raises InputError for a partition that vLLM refuses, and SGLang too, which both
    read from an environment ``variable`` of their own."""
    if not given:
        return memory.stages(model.layers, pipeline_parallel) if pipeline_parallel > 1 else [model.layers]
    said = ",".join(map(str, given))
    if len(given) != pipeline_parallel or sum(given) != model.layers:
        problem = Problem(
            Where(field=variable),
            f"{variable} is {said}, but there are {pipeline_parallel} pipeline stages and {model.layers} layers",
            f"give {pipeline_parallel} numbers that add up to {model.layers}",
        )
        raise EngineRefused(problem, "partition", f"ValueError: {list(map(str, given))} does not match the layers.")
    return given


def replica(model: ModelShape, gpu: Gpu, args: VllmArgs) -> tuple[EngineConfig, EstimatedTiming]:
    """The engine that this command line starts on these GPUs. Raises InputError as ``engine_config`` does.

    Of several data-parallel ranks it is one. Stages of a pipeline are taken to work one after the other, so that a step
    takes as long as without them."""
    config = engine_config(
        model,
        gpu,
        tensor_parallel=args.tensor_parallel_size,
        max_num_batched_tokens=args.max_num_batched_tokens,
        max_num_seqs=args.max_num_seqs,
        gpu_memory_utilization=args.gpu_memory_utilization,
        max_model_len=args.max_model_len,
        block_size=args.block_size,
        dtype=args.dtype,
        quantization=args.quantization,
        kv_cache_dtype=args.kv_cache_dtype,
        hybrid_kv_cache=not args.disable_hybrid_kv_cache_manager,
        pipeline_parallel=args.pipeline_parallel_size,
        context_extended=args.context_extended,
        pipeline_layers=args.pipeline_layers,
    )
    return config, step_times(model, gpu, args)


def step_times(model: ModelShape, gpu: Gpu, args: VllmArgs) -> EstimatedTiming:
    """How long the steps of an engine of any kind with these settings take: the estimate that ``size`` makes too.

    Raises InputError for a format that is not modelled, and where the weights do not fit."""
    replica = Replica(
        model,
        gpu,
        stored_in(args.dtype, args.quantization, model).name,
        kv_stored_in(args.dtype, args.kv_cache_dtype).name,
        tensor_parallel=args.tensor_parallel_size,
        pipeline_parallel=args.pipeline_parallel_size,
        framework=args.engine,
    )
    return _timing(replica)


@lru_cache(maxsize=256)
def _timing(replica: Replica) -> EstimatedTiming:
    """One timing for equal replicas: what is computed of it, as a capacity, is computed once."""
    return EstimatedTiming(replica)


def stored_in(dtype: str, quantization: str | None, model: ModelShape) -> Precision:
    """The number format of the weights: that of --quantization, else of the ``model``'s published checkpoint, else of
    --dtype. Raises InputError for a format that is not modelled, or that the model's weights cannot have."""
    published = model.precision
    chosen = published if quantization is None else _PRECISION_OF_QUANTIZATION.get(quantization, published)
    if quantization is not None and chosen == "bf16":
        known = ", ".join(_PRECISION_OF_QUANTIZATION)
        raise InputError.at(
            f"--quantization {quantization} is not modelled", field="--quantization", hint=f"use one of {known}"
        )
    found = memory.precision(_lookup(_OF_DTYPE, dtype, "--dtype") if chosen == "bf16" else chosen)
    if found.scope == "experts" and not model.experts:
        raise InputError.at(
            f"--quantization {quantization} is a format of experts, and {model.name} has none",
            field="--quantization",
            hint="use fp8 or awq for a dense model",
        )
    return found


def kv_stored_in(dtype: str, kv_cache_dtype: str) -> Precision:
    """The number format of the KV cache. Raises InputError for one that is not modelled."""
    if kv_cache_dtype.startswith("fp8"):
        return memory.precision("fp8", kv=True)
    chosen = dtype if kv_cache_dtype == "auto" else kv_cache_dtype
    return memory.precision(_lookup(_OF_DTYPE, chosen, "--kv-cache-dtype"), kv=True)


def weight_bytes(model: ModelShape, dtype: str = "auto", quantization: str | None = None) -> int:
    """Bytes of the checkpoint that such flags load. Raises InputError as :func:`stored_in` does."""
    return memory.weight_bytes(model, stored_in(dtype, quantization, model))


def kv_token_bytes(model: ModelShape, args: VllmArgs) -> int:
    """KV bytes of one token on all GPUs of an engine with these flags together: what several ranks hold alike counts as
    often. Raises InputError for a format that is not modelled, and where TP does not divide the heads."""
    tp = args.tensor_parallel_size
    return memory.kv_token_bytes(model, kv_stored_in(args.dtype, args.kv_cache_dtype), tp) * tp


def _lookup(table: dict[str, str], value: str, flag: str) -> str:
    if value not in table:
        raise InputError.at(f"{flag} {value} is not modelled", field=flag, hint=f"use one of {', '.join(table)}")
    return table[value]


def _scheduler_limits(gpu: Gpu, tokens: int | None, seqs: int | None) -> tuple[int, int]:
    """(max_num_batched_tokens, max_num_seqs), with vLLM's defaults for this GPU where None."""
    defaults = kinds.limits(kinds.engine_kind(kinds.VLLM), gpu)
    tokens = defaults.max_num_batched_tokens if tokens is None else tokens
    seqs = min(defaults.max_num_seqs, tokens) if seqs is None else seqs
    if not 1 <= seqs <= tokens:
        raise InputError.at(
            f"--max-num-seqs is {seqs} with --max-num-batched-tokens {tokens}",
            field="--max-num-seqs",
            hint="each running sequence needs a token of the batch: expected 1 to --max-num-batched-tokens",
        )
    return tokens, seqs


def _context(
    model: ModelShape, max_model_len: int | None, cache_tokens: int, extended: bool, found: EngineMemory
) -> int:
    """The context asked for, else the model's. As in vLLM, the KV cache must hold one sequence of it, and it holds
    ``cache_tokens`` of one."""
    longest = model.context_tokens or cache_tokens
    if max_model_len == AUTO_MODEL_LEN:
        return min(longest, cache_tokens)
    wanted = longest if max_model_len is None else max_model_len
    if extended:
        longest = max(longest, wanted)
    most = min(longest, cache_tokens)
    if model.context_tokens is not None and wanted > longest:
        raise beyond_context(model, wanted)
    if not 1 <= wanted <= most:
        limit = "the KV cache holds" if cache_tokens < longest else f"{model.name} has a context of"
        problem = Problem(
            Where(field="--max-model-len"),
            f"--max-model-len is {wanted}, but {limit} {most} tokens",
            f"set --max-model-len to {most} or less, or use more or larger GPUs",
        )
        raise EngineRefused(problem, "cache", _too_little(wanted, most, found))
    return wanted


def beyond_context(model: ModelShape, wanted: int) -> EngineRefused:
    """That the model's own context is shorter than ``wanted`` tokens."""
    most = model.context_tokens
    problem = Problem(
        Where(field="--max-model-len"),
        f"--max-model-len is {wanted}, but {model.name} has a context of {most} tokens",
        f"set --max-model-len to {most} or less",
    )
    said = (
        f"ValueError: User-specified max_model_len ({wanted}) is greater than the derived max_model_len "
        f"(max_position_embeddings={most} or model_max_length=None in model's config.json)."
    )
    return EngineRefused(problem, "context", said)


def _too_little(wanted: int, most: int, found: EngineMemory) -> str:
    return (
        f"ValueError: To serve at least one request with the models's max seq len ({wanted}), "
        f"({found.kv.needed(wanted) / GIB:.2f} GiB KV cache is needed, which is larger than the available KV cache "
        f"memory ({found.memory.kv_cache / GIB:.2f} GiB). Based on the available memory, the estimated maximum model "
        f"length is {most}. Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing "
        "the engine."
    )


def does_not_fit(model: ModelShape, gpu: Gpu, ranks: int, budget: ServingMemory) -> EngineRefused:
    """That weights and overheads leave no KV cache on ``ranks`` GPUs."""
    problem = Problem(
        Where(field="--tensor-parallel-size"),
        f"{model.name} does not fit {ranks} x {gpu.name}: each GPU needs {budget.used / GIB:.1f} GiB "
        f"({budget.weights / GIB:.1f} of it weights) besides KV cache, of {budget.requested / GIB:.1f}",
        "raise --tensor-parallel-size, use a larger GPU, or --quantization fp8",
    )
    if budget.weights > budget.visible:
        return EngineRefused(problem, "weights", "torch.OutOfMemoryError: CUDA out of memory.")
    said = (
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when "
        "initializing the engine."
    )
    return EngineRefused(problem, "weights", said)
