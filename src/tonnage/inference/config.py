"""From a model, a GPU and vLLM's flags to an engine: memory budget, scheduler limits, timing."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING

import msgspec

from tonnage.errors import InputError, Problem, Where
from tonnage.inference import memory, tables
from tonnage.inference.engine import EngineConfig
from tonnage.inference.hybrid import Layout, layout, model_layers
from tonnage.inference.timing import RooflineTiming, check_tensor_parallel, heads_per_gpu
from tonnage.inference.vllm_args import AUTO_MODEL_LEN, VllmArgs, parse_vllm_args
from tonnage.units import GIB, MIB

if TYPE_CHECKING:
    from tonnage.facts.gpus import Gpu
    from tonnage.facts.models import ModelShape

__all__ = ["MemoryBudget", "VllmArgs", "engine_config", "memory_budget", "parse_vllm_args", "replica"]

_BYTES_OF_DTYPE = {"auto": 2, "bfloat16": 2, "half": 2, "float16": 2, "float": 4, "float32": 4}
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


class MemoryBudget(msgspec.Struct, frozen=True):
    """Where the memory of one GPU goes, in bytes. What is left of ``requested`` is the KV cache.

    The rule is vLLM's (v1/worker/gpu_worker.py): requested = ceil(total · utilization), and the KV cache gets
    requested − weights − activation peak − memory outside torch − CUDA graphs. Weights are exact; the last
    three are estimates (data/vllm_memory.csv), as vLLM measures them while it starts.
    """

    total: int
    requested: int
    weights: int
    activations: int
    non_torch: int
    cuda_graphs: int

    @property
    def kv_cache(self) -> int:
        """Bytes for the KV cache; negative if the model does not fit."""
        return self.requested - self.weights - self.activations - self.non_torch - self.cuda_graphs


def memory_budget(
    model: ModelShape,
    gpu: Gpu,
    *,
    tensor_parallel: int,
    max_num_batched_tokens: int,
    max_num_seqs: int,
    gpu_memory_utilization: float,
    weight_bytes_per_param: float = 2,
    pipeline_parallel: int = 1,
    pipeline_layers: Sequence[int] = (),
) -> MemoryBudget:
    """The budget of each of ``tensor_parallel`` GPUs of the pipeline stage with the most layers, of the weights its
    layers' share. ``pipeline_layers``: of each stage; empty: as vLLM deals them out.

    The activation peak is that of vLLM's profiling run: either the widest layer over
    ``max_num_batched_tokens`` 16-bit activations or the 32-bit logits of ``max_num_seqs`` sequences,
    whichever is larger.
    """
    known = tables.vllm_memory()
    widths = known["residual_widths"] + known["split_widths"] / tensor_parallel
    layer = ceil(max_num_batched_tokens * model.hidden * 2 * widths)
    logits = int(max_num_seqs * model.vocab * 4 * known["logits_copies"])
    total = gpu.memory_mib * MIB
    ranks, largest = tensor_parallel * pipeline_parallel, max(stages(model, pipeline_parallel, pipeline_layers))
    return MemoryBudget(
        total=total,
        requested=ceil(total * gpu_memory_utilization),
        weights=-(-model.weight_bytes(weight_bytes_per_param) * largest // (model.layers * tensor_parallel)),
        activations=max(layer, logits),
        non_torch=int(known["non_torch_bytes"] + (known["nccl_bytes"] if ranks > 1 else 0)),
        cuda_graphs=int(known["cuda_graph_bytes"]),
    )


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
    if gpu_memory_utilization is None:
        gpu_memory_utilization = tables.vllm_memory()["gpu_memory_utilization"]
    if not 0 < gpu_memory_utilization <= 1:
        raise InputError.at(
            f"--gpu-memory-utilization is {gpu_memory_utilization}",
            field="--gpu-memory-utilization",
            hint="expected a share above 0 and up to 1",
        )
    tokens, seqs = _scheduler_limits(gpu, max_num_batched_tokens, max_num_seqs)
    budget = memory_budget(
        model,
        gpu,
        tensor_parallel=tensor_parallel,
        max_num_batched_tokens=tokens,
        max_num_seqs=seqs,
        gpu_memory_utilization=gpu_memory_utilization,
        weight_bytes_per_param=weight_bytes(dtype, quantization, model),
        pipeline_parallel=pipeline_parallel,
        pipeline_layers=pipeline_layers,
    )
    largest = max(stages(model, pipeline_parallel, pipeline_layers))
    cache = budget.kv_cache * model.layers // largest
    size = block_size or 16
    element = kv_bytes(dtype, kv_cache_dtype)
    if model.window_layers and hybrid_kv_cache:
        plan = layout(model_layers(model, tensor_parallel=tensor_parallel, bytes_per_element=element), size)
        size, blocks = plan.block_size, plan.pool(cache)
        longest = _longest(plan, max(blocks, 0), tokens, model)
    else:
        plan = None
        token_bytes = kv_bytes_per_token_per_gpu(model, tensor_parallel, element)
        blocks = cache // (size * token_bytes) - 1  # vLLM keeps the first block as its null block
        longest = blocks * size
    if longest < 1:
        raise does_not_fit(model, gpu, tensor_parallel * pipeline_parallel, budget)
    token = kv_bytes_per_token_per_gpu(model, tensor_parallel, element) * largest / model.layers
    context = _context(model, max_model_len, longest, context_extended, (token, budget.kv_cache))
    return EngineConfig(tokens, seqs, context, blocks, size, layout=plan)


def stages(model: ModelShape, pipeline_parallel: int, given: Sequence[int]) -> Sequence[int]:
    """Layers of each pipeline stage. Raises InputError for a partition that vLLM refuses."""
    if not given:
        return memory.stages(model.layers, pipeline_parallel) if pipeline_parallel > 1 else [model.layers]
    said = ",".join(map(str, given))
    if len(given) != pipeline_parallel or sum(given) != model.layers:
        field = "VLLM_PP_LAYER_PARTITION"
        problem = Problem(
            Where(field=field),
            f"{field} is {said}, but there are {pipeline_parallel} pipeline stages and {model.layers} layers",
            f"give {pipeline_parallel} numbers that add up to {model.layers}",
        )
        raise EngineRefused(problem, "partition", f"ValueError: {list(map(str, given))} does not match the layers.")
    return given


def _longest(plan: Layout, blocks: int, max_num_batched_tokens: int, model: ModelShape) -> int:
    """Tokens of the longest sequence that ``blocks`` blocks hold, as far as the model's context goes."""
    most = model.context_tokens or blocks * max(group.block_size for group in plan.groups)
    return bisect_right(range(1, most + 1), blocks, key=lambda one: plan.most_blocks(one, max_num_batched_tokens))


def replica(model: ModelShape, gpu: Gpu, args: VllmArgs) -> tuple[EngineConfig, RooflineTiming]:
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
    timing = RooflineTiming(
        model,
        gpu,
        tensor_parallel=args.tensor_parallel_size,
        weight_bytes_per_param=weight_bytes(args.dtype, args.quantization, model),
        kv_bytes_per_element=kv_bytes(args.dtype, args.kv_cache_dtype),
    )
    return config, timing


def kv_bytes_per_token_per_gpu(model: ModelShape, tensor_parallel: int, bytes_per_element: int) -> int:
    """KV cache bytes of one token on one of ``tensor_parallel`` ranks.

    Each rank holds ceil(KV heads / TP) heads; an MLA latent (one KV head) is held by every rank. Window
    layers are counted as if they kept the whole context, as vLLM does with --disable-hybrid-kv-cache-manager.
    """
    full = model.kv_bytes_per_token(bytes_per_element)
    held = full // model.kv_heads * heads_per_gpu(model.kv_heads, tensor_parallel)
    if model.window_layers:
        window = model.window_kv_bytes_per_token(bytes_per_element)
        held += window // model.window_kv_heads * heads_per_gpu(model.window_kv_heads, tensor_parallel)
    return held


def weight_bytes(dtype: str, quantization: str | None, model: ModelShape | None = None) -> float:
    """Bytes of one parameter, on average: in the format of --quantization, else in that of the ``model``'s published
    checkpoint, else of --dtype. Raises InputError for a format that is not modelled."""
    published = "bf16" if model is None else model.precision
    stored = published if quantization is None else _PRECISION_OF_QUANTIZATION.get(quantization, published)
    if quantization is not None and stored == "bf16":
        known = ", ".join(_PRECISION_OF_QUANTIZATION)
        raise InputError.at(
            f"--quantization {quantization} is not modelled", field="--quantization", hint=f"use one of {known}"
        )
    if stored == "bf16":
        return _lookup(_BYTES_OF_DTYPE, dtype, "--dtype")
    if model is None or published == "bf16" or stored != published:
        known_as = memory.precision(stored)
        return 1 if known_as.bytes_per_weight == 1 else known_as.bytes_per_weight
    return memory.weight_bytes(model, memory.precision(stored)) / model.params


def kv_bytes(dtype: str, kv_cache_dtype: str) -> int:
    """Bytes of one element of the KV cache. Raises InputError for a format that is not modelled."""
    if kv_cache_dtype.startswith("fp8"):
        return 1
    chosen = dtype if kv_cache_dtype == "auto" else kv_cache_dtype
    return _lookup(_BYTES_OF_DTYPE, chosen, "--kv-cache-dtype")


def _lookup(table: dict[str, int], value: str, flag: str) -> int:
    if value not in table:
        raise InputError.at(f"{flag} {value} is not modelled", field=flag, hint=f"use one of {', '.join(table)}")
    return table[value]


def _scheduler_limits(gpu: Gpu, tokens: int | None, seqs: int | None) -> tuple[int, int]:
    """(max_num_batched_tokens, max_num_seqs), with vLLM's defaults for this GPU where None."""
    defaults = next(
        row
        for row in tables.scheduler_defaults()
        if gpu.memory_mib * MIB >= row.min_memory_gib * GIB
        and not (row.except_gpu and gpu.name.startswith(row.except_gpu))
    )
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
    model: ModelShape, max_model_len: int | None, cache_tokens: int, extended: bool, cache: tuple[float, int]
) -> int:
    """The context asked for, else the model's. As in vLLM, the KV cache must hold one sequence of it. ``cache``: bytes
    of a token on each GPU, and of the whole."""
    longest = model.context_tokens or cache_tokens
    if max_model_len == AUTO_MODEL_LEN:
        return min(longest, cache_tokens)
    wanted = longest if max_model_len is None else max_model_len
    if extended:
        longest = max(longest, wanted)
    most = min(longest, cache_tokens)
    if wanted > longest:
        raise beyond_context(model, wanted)
    if not 1 <= wanted <= most:
        limit = "the KV cache holds" if cache_tokens < longest else f"{model.name} has a context of"
        problem = Problem(
            Where(field="--max-model-len"),
            f"--max-model-len is {wanted}, but {limit} {most} tokens",
            f"set --max-model-len to {most} or less, or use more or larger GPUs",
        )
        raise EngineRefused(problem, "cache", _too_little(wanted, most, *cache))
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


def _too_little(wanted: int, most: int, token: float, cache: int) -> str:
    return (
        f"ValueError: To serve at least one request with the models's max seq len ({wanted}), "
        f"({wanted * token / GIB:.2f} GiB KV cache is needed, which is larger than the available KV cache memory "
        f"({cache / GIB:.2f} GiB). Based on the available memory, the estimated maximum model length is {most}. Try "
        "increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine."
    )


def does_not_fit(model: ModelShape, gpu: Gpu, ranks: int, budget: MemoryBudget) -> EngineRefused:
    needed = budget.requested - budget.kv_cache
    problem = Problem(
        Where(field="--tensor-parallel-size"),
        f"{model.name} does not fit {ranks} x {gpu.name}: each GPU needs {needed / GIB:.1f} GiB "
        f"({budget.weights / GIB:.1f} of it weights) besides KV cache, of {budget.requested / GIB:.1f}",
        "raise --tensor-parallel-size, use a larger GPU, or --quantization fp8",
    )
    if budget.weights > budget.total:
        return EngineRefused(problem, "weights", "torch.OutOfMemoryError: CUDA out of memory.")
    said = (
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when "
        "initializing the engine."
    )
    return EngineRefused(problem, "weights", said)
