"""What is estimated: a replica, the load on it, and the figures of both that the formulas need."""

from __future__ import annotations

from functools import lru_cache
from math import log
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from tonnage.errors import InputError
from tonnage.facts import counting
from tonnage.facts.gpus import Gpu
from tonnage.facts.models import ModelShape
from tonnage.inference import memory
from tonnage.inference.estimate.constants import FRAMEWORKS
from tonnage.inference.estimate.links import Links, domain_of, links
from tonnage.inference.estimate.measured import measured
from tonnage.inference.estimate.replica import Replica
from tonnage.inference.timing import heads_per_gpu
from tonnage.units import GIB

if TYPE_CHECKING:
    from tonnage.inference.memory import Precision

Number = Any
"""A float, or a float64 array of shape (cases,): the same formulas serve both."""

_SIXTEEN_BIT = 2
_NODE = 8
"""GPUs of a node."""
_ALL = 0.999
"""Share of experts that a token is sent to at most: all of them would be a logarithm of 0."""


class Load(msgspec.Struct, frozen=True):
    """``concurrency`` requests in flight at any time, each of ``input_tokens`` and ``output_tokens`` on average.
    ``same_length``: all are exactly as long as that, as some load generators send them."""

    concurrency: float
    input_tokens: float
    output_tokens: float
    same_length: bool = False


class Figures(NamedTuple):
    """What the formulas know of a replica: each field a float, or an array of shape (cases,).

    Bytes and FLOPs are those of one GPU of one pipeline stage's whole depth (all layers), a token's share of them.
    ``is_fp8``: 1 if the dense matrices multiply in FP8 or FP4, ``is_fp4``: 1 if in FP4, ``dense_unpacked``: 1 if their
    weights are unpacked to a wider format first; ``expert_fp8``, ``expert_fp4``, ``expert_unpacked`` and
    ``expert_peak``, FLOP/s, the same of experts. ``expert_rate``: tokens of an expert for each token of all ranks;
    ``expert_varied``: how much of the variation between experts the busiest rank sees. ``expert_moved``,
    ``dense_moved``: bytes of activations that a token of a rank moves through memory. ``unlike``: the distance to the
    nearest measured points (:mod:`tonnage.inference.estimate.measured`). ``index_layers`` have an indexer of sparse
    attention, whose picks count as the window; ``beyond_kv_bytes``: of a token outside of it, kept and not read.
    ``on_nvlink``, ``on_network``: 1 if ranks talk over it; neither is PCIe. ``vllm``, ``sglang``, ``trtllm``: 1 for the
    framework; ``wait_steps`` pass until it takes a request up. ``separate``: 1 if prompts are computed elsewhere,
    ``rack``: 1 if more GPUs than a node's are joined by NVLink, ``unseen``: 1 if no measured point of this GPU or MIG
    profile is behind the constants.
    """

    dense_bytes: Number
    dense_flops: Number
    head_bytes: Number
    head_flops: Number
    expert_bytes: Number
    expert_flops: Number
    kv_bytes: Number
    window_kv_bytes: Number
    window: Number
    state_bytes: Number
    decode_pair_flops: Number
    prefill_pair_flops: Number
    window_pair_flops: Number
    layers: Number
    expert_layers: Number
    hidden_bytes: Number
    sent_experts: Number
    tensor: Number
    data: Number
    pipeline: Number
    bandwidth: Number
    flops: Number
    attention_flops: Number
    link: Number
    is_fp8: Number
    is_fp4: Number
    on_nvlink: Number
    on_network: Number
    vllm: Number
    sglang: Number
    trtllm: Number
    separate: Number
    weight_bytes: Number
    memory_bytes: Number
    kv_tokens: Number
    rack: Number
    unseen: Number
    expert_rate: Number
    expert_varied: Number
    expert_peak: Number
    expert_fp8: Number
    expert_fp4: Number
    expert_unpacked: Number
    dense_unpacked: Number
    expert_moved: Number
    dense_moved: Number
    unlike: Number
    index_layers: Number
    beyond_kv_bytes: Number
    wait_steps: Number


@lru_cache(maxsize=4096)
def figures(replica: Replica) -> Figures:
    """The figures of ``replica``, floats. Raises InputError where it cannot run; see :func:`check`."""
    check(replica)
    shape, gpu, tp, dp = replica.shape, replica.gpu, replica.tensor_parallel, replica.data_parallel
    stored, kv = memory.precision(replica.precision), memory.precision(replica.kv_precision, kv=True)
    weights = _weights(shape, stored, tp, dp)
    experts = _rate(gpu, stored)
    dense = experts if stored.scope != "experts" else _Rate(gpu.bf16_flops)
    ranks = tp * dp if replica.expert_parallel else dp
    wires: Links = links(gpu, tp * dp)
    domain = domain_of(gpu)
    decode, prefill, window = _pair_flops(shape, gpu, tp)
    size = kv.kv_bytes or _SIXTEEN_BIT
    held = heads_per_gpu(shape.kv_heads, tp) / shape.kv_heads
    latent = shape.kv_bytes_per_token(1) * size * held
    window_held = heads_per_gpu(shape.window_kv_heads, tp) / shape.window_kv_heads if shape.window_layers else 0
    return Figures(
        *weights[:-2],
        kv_bytes=_index_bytes(shape) if shape.index_tokens else latent,
        window_kv_bytes=latent if shape.index_tokens else shape.window_kv_bytes_per_token(1) * size * window_held,
        window=shape.index_tokens or shape.window,
        state_bytes=shape.state_layers * shape.state_bytes / tp,
        decode_pair_flops=decode,
        prefill_pair_flops=prefill,
        window_pair_flops=window,
        layers=shape.layers,
        expert_layers=shape.moe_layers,
        hidden_bytes=shape.hidden * _SIXTEEN_BIT,
        sent_experts=min(shape.experts_per_token, dp),
        tensor=tp,
        data=dp,
        pipeline=replica.pipeline_parallel,
        bandwidth=gpu.bandwidth_bytes_per_s,
        flops=dense.flops,
        attention_flops=gpu.bf16_flops,
        link=wires.bytes_per_s,
        is_fp8=dense.fp8,
        is_fp4=dense.fp4,
        on_nvlink=float(wires.kind == "nvlink"),
        on_network=float(wires.kind == "network"),
        **dict(
            zip(("vllm", "sglang", "trtllm"), (float(replica.framework == name) for name in FRAMEWORKS), strict=True)
        ),
        separate=float(replica.separate_prefill),
        weight_bytes=weights.held / replica.pipeline_parallel,
        memory_bytes=memory.visible_bytes(gpu),
        kv_tokens=replica.kv_tokens or 0,
        rack=float(domain.gpus > _NODE),
        unseen=float(":" in gpu.name or not domain.measured),
        expert_rate=-log(1 - weights.expert_share),
        expert_varied=2 * log(ranks) * ranks / max(shape.experts, ranks),
        expert_peak=experts.flops,
        expert_fp8=experts.fp8,
        expert_fp4=experts.fp4,
        expert_unpacked=experts.unpacked,
        dense_unpacked=dense.unpacked,
        expert_moved=_expert_moved(shape, tp, dp, ranks),
        dense_moved=_dense_moved(shape, tp),
        unlike=measured().distance(replica),
        index_layers=shape.index_layers,
        beyond_kv_bytes=latent if shape.index_tokens else 0.0,
        wait_steps=replica.wait_steps,
    )


def check(replica: Replica) -> None:
    """Raise InputError if the replica cannot run as described: TP does not divide the heads, a count is below 1, PP
    exceeds the layers, or framework or precision are not known."""
    shape = replica.shape
    for field in ("tensor_parallel", "data_parallel", "pipeline_parallel"):
        if getattr(replica, field) < 1:
            raise _refused(field, f"{field} is {getattr(replica, field)}", "expected a whole number above 0")
    if shape.heads % replica.tensor_parallel:
        raise _refused(
            "tensor_parallel",
            f"tensor parallel size {replica.tensor_parallel} does not divide the {shape.heads} attention heads of "
            f"{shape.name}",
            "use a divisor of the number of attention heads",
        )
    if replica.pipeline_parallel > shape.layers:
        raise _refused(
            "pipeline_parallel",
            f"pipeline parallel size {replica.pipeline_parallel} with {shape.layers} layers",
            "use 1 up to the number of layers",
        )
    if replica.framework and replica.framework not in FRAMEWORKS:
        raise _refused(
            "framework", f"unknown framework {replica.framework!r}", f"use one of {', '.join(FRAMEWORKS)}, or none"
        )


def check_room(replica: Replica) -> None:
    """Raise InputError if the weights alone are more than the memory of the GPUs."""
    known = figures(replica)
    if known.weight_bytes > known.memory_bytes:
        raise _refused(
            "gpu",
            f"{replica.shape.name} in {replica.precision} needs {known.weight_bytes / GIB:.1f} GiB of weights on each "
            f"of {replica.gpus} x {replica.gpu.name}, which has {known.memory_bytes / GIB:.1f}",
            "use more or larger GPUs, or a narrower precision",
        )


def check_case(replica: Replica, load: Load) -> None:
    """Raise InputError outside the domain of estimates: as :func:`check`, :func:`check_room` and :func:`check_load`,
    and for requests longer than the model's context."""
    check_load(load)
    check_room(replica)
    longest = replica.shape.context_tokens
    if longest is not None and load.input_tokens + load.output_tokens > longest:
        raise _refused(
            "input_tokens",
            f"{load.input_tokens:g} input and {load.output_tokens:g} output tokens, but {replica.shape.name} has a "
            f"context of {longest}",
            "shorten the requests, or take a model with a longer context",
        )


def check_load(load: Load) -> None:
    """Raise InputError unless concurrency and lengths are at least 1."""
    for field in ("concurrency", "input_tokens", "output_tokens"):
        value = getattr(load, field)
        if not 1 <= value < float("inf"):
            raise _refused(field, f"{field} is {value}", "expected a number of at least 1")


class _Weights(NamedTuple):
    """Of one GPU: bytes that a step reads and FLOPs of a token, of dense matrices, of the output head, of experts (an
    expert's FLOPs count the tokens of one data-parallel rank); the share of experts that a token is sent to; bytes
    held."""

    dense_bytes: float
    dense_flops: float
    head_bytes: float
    head_flops: float
    expert_bytes: float
    expert_flops: float
    expert_share: float
    held: float


def _weights(shape: ModelShape, stored: Precision, tp: int, dp: int) -> _Weights:
    linear = stored.bytes_per_weight if stored.scope in ("all", "linear") else _SIXTEEN_BIT
    other = stored.bytes_per_weight if stored.scope == "all" else _SIXTEEN_BIT
    if not counting.known(shape):
        return _lumped(shape, stored.bytes_per_weight, tp)
    parts = counting.count(shape)
    heads_here = 1 / tp if shape.kv_lora_rank else heads_per_gpu(shape.kv_heads, tp) / shape.kv_heads
    split = (parts.attention + parts.states + parts.dense_ffn + parts.shared) / tp + parts.keys_values * heads_here
    dense = (split + parts.latent) * linear + (parts.router + parts.small) * other
    dense_flops = 2 * (split + parts.latent + parts.router)
    head = (parts.head or parts.embedding) / tp
    embedding = (parts.embedding if parts.head else 0) / tp
    held = dense + (head + embedding) * other
    if not shape.experts:
        return _Weights(dense, dense_flops, head * other, 2 * head, 0.0, 0.0, 0.0, held)
    active = min(shape.experts_per_token / shape.experts, _ALL)
    experts = parts.experts / (tp * dp) * stored.bytes_per_weight
    expert_flops = 2 * parts.experts * active / tp
    return _Weights(dense, dense_flops, head * other, 2 * head, experts, expert_flops, active, held + experts)


def _lumped(shape: ModelShape, size: float, tp: int) -> _Weights:
    """The same of a model of which only the parameters are known: all of them count as experts of a mixture."""
    held = shape.params * size / tp
    flops = 2 * shape.active_params / tp
    if shape.active_params >= shape.params:
        return _Weights(held, flops, 0.0, 0.0, 0.0, 0.0, 0.0, held)
    return _Weights(0.0, 0.0, 0.0, 0.0, held, flops, shape.active_params / shape.params, held)


def _index_bytes(shape: ModelShape) -> float:
    """Bytes of the indexer's keys that a token keeps, all layers: an FP8 key and a 32-bit scale."""
    return shape.index_layers * (shape.index_head_dim + 4.0)


def _pair_flops(shape: ModelShape, gpu: Gpu, tp: int) -> tuple[float, float, float]:
    """FLOPs on one GPU of one pair of a query and a key, over all layers: while decoding, in a prompt, in the window
    layers. Latent attention decodes in the latent space (DeepSeek-V2, arXiv 2405.04434, section 2.1.3). With sparse
    attention an indexer scores every pair, on every rank and in FP8 where the card has it, and the tokens that it picks
    are a window (DeepSeek-V3.2, section 2)."""
    heads = shape.heads / tp
    if shape.kv_lora_rank:
        latent = 2 * shape.kv_lora_rank + shape.qk_rope_head_dim
        plain = shape.qk_nope_head_dim + shape.qk_rope_head_dim + shape.v_head_dim
        if shape.index_tokens:
            indexed = 2.0 * shape.index_layers * shape.index_heads * shape.index_head_dim * _eight_bits(gpu)
            return indexed, indexed, 2.0 * shape.layers * heads * latent
        return 2.0 * shape.layers * heads * latent, 2.0 * shape.layers * heads * (plain or latent), 0.0
    full = 4.0 * shape.full_layers * heads * shape.head_dim
    return full, full, 4.0 * shape.window_layers * heads * shape.window_head_dim


def _expert_moved(shape: ModelShape, tp: int, dp: int, ranks: int) -> float:
    """Bytes that a token's 16-bit activations move through the memory of a GPU in layers of experts: it is copied to
    the rows of its experts, their hidden states are written, gated and read, their results written and added up. With
    ``ranks`` of them a rank has its share of the pairs of a token and an expert."""
    if not shape.expert_ffn:
        return 0.0
    width = shape.expert_ffn if ranks > dp or tp == 1 else shape.expert_ffn / tp
    pairs = shape.experts_per_token * dp / ranks
    return shape.moe_layers * _SIXTEEN_BIT * (2 * shape.hidden + pairs * (4 * shape.hidden + 6 * width))


def _dense_moved(shape: ModelShape, tp: int) -> float:
    """The same outside of experts: two norms with their residuals, queries and what attention returns, gated FFNs."""
    attended = 4 * shape.heads * shape.head_dim * (shape.full_layers + shape.window_layers)
    gated = 6 * (shape.ffn * (shape.layers - shape.moe_layers) + shape.shared_ffn * shape.moe_layers)
    return _SIXTEEN_BIT * (8 * shape.hidden * shape.layers + (attended + gated) / tp)


def _eight_bits(gpu: Gpu) -> float:
    """What a product takes in FP8, of what it takes in 16 bits."""
    return 1.0 if gpu.fp8_flops is None else gpu.bf16_flops / gpu.fp8_flops


class _Rate(NamedTuple):
    """Peak FLOP/s of matrices; 1 if they multiply in FP8 or FP4, 1 if in FP4, 1 if weights are unpacked first."""

    flops: float
    fp8: float = 0.0
    fp4: float = 0.0
    unpacked: float = 0.0


def _rate(gpu: Gpu, stored: Precision) -> _Rate:
    """Weights in a format that the tensor cores lack are unpacked to 16 bits inside the kernel (Marlin's in vLLM and
    SGLang, Triton's for MXFP4). Where there are FP4 units MXFP4 weights multiply FP8 activations (TensorRT-LLM and vLLM
    with FlashInfer: W4A8, MXFP8)."""
    if stored.arithmetic == "fp4" and gpu.fp4_flops is not None:
        return _Rate(gpu.fp4_flops, 1.0, 1.0)
    if stored.name == "mxfp4" and gpu.fp4_flops is not None and gpu.fp8_flops is not None:
        return _Rate(gpu.fp8_flops, 1.0)
    if stored.arithmetic == "fp8" and gpu.fp8_flops is not None:
        return _Rate(gpu.fp8_flops, 1.0)
    return _Rate(gpu.bf16_flops, unpacked=float(stored.bytes_per_weight < _SIXTEEN_BIT))


def _refused(field: str, message: str, hint: str) -> InputError:
    return InputError.at(message, field=field, hint=hint)
