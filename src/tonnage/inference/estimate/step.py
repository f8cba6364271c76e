"""How long one step takes: bytes over bandwidth, FLOPs over peak, overheads and communication.

Weights are read while they are multiplied, so that a block of matrices takes the root of the sum of squares of its two
times; everything else is added up::

    step = matrices(dense) + matrices(experts) + matrices(output head)
         + activation bytes / (bandwidth · move_bandwidth)
         + KV and state bytes / (bandwidth · kv_bandwidth)
         + attention FLOPs / (peak · attention_compute)
         + layers · layer_s + expert layers · expert_layer_s
         + communication

    matrices = √[(weight bytes / (bandwidth · efficiency))² + (FLOPs / (peak · efficiency))²]

Experts that at least one token is sent to are read, their tiles padded and the busiest rank waited for
(:mod:`tonnage.inference.estimate.mixture`); weights that are unpacked to a wider format first reach
``unpacked_compute`` and ``unpacked_bandwidth`` of the efficiency of others. How narrow an expert is costs nothing by
itself (measured: widths of 256 to 7168), but what its tokens move does not shrink with it. Activation bytes are what is
written by one kernel and read by the next: norms and gates, and for experts the permutation of tokens and their
combination. The head is read once and multiplied in 16 bits for each sequence that decodes, not for each token of a
prompt. With tensor parallelism each layer all-reduces its 16-bit hidden state twice, 2·(TP-1)/TP of it over one GPU's
link; with data parallelism each layer of experts sends every token to its experts' ranks and back, dispatch in one byte
an element and the results in two.

Nothing here knows whether its arguments are floats or arrays of shape (cases,).
"""

from __future__ import annotations

from math import log2, sqrt
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tonnage.inference.estimate import mixture
from tonnage.inference.estimate.case import Figures, Number

if TYPE_CHECKING:
    from tonnage.inference.estimate.constants import Constants


class Work(NamedTuple):
    """What a step computes on one data-parallel rank. ``tokens`` in all; ``decoders`` sequences that decode, which
    read ``cached`` tokens of context, ``window_cached`` of them in window layers; ``pairs`` of a query and a key in
    the prompts, ``window_pairs`` of them in window layers; ``prompt_cached`` tokens that prompts read from the cache.
    """

    tokens: Number
    decoders: Number
    cached: Number
    window_cached: Number
    pairs: Number = 0.0
    window_pairs: Number = 0.0
    prompt_cached: Number = 0.0


def decode_work(figures: Figures, sequences: Number, context: Number) -> Work:
    """``sequences`` sequences, each with ``context`` tokens in the cache, decode one token each."""
    return Work(sequences, sequences, sequences * context, sequences * least(context, figures.window))


def add_prompt(figures: Figures, work: Work, tokens: Number, cached: Number = 0.0) -> Work:
    """``work`` and ``tokens`` tokens of a prompt, ``cached`` tokens of which are in the cache already."""
    pairs = tokens * cached + tokens * (tokens + 1) / 2
    inside = least(figures.window, cached + tokens)
    before = most(0.0, inside - cached)  # tokens that see less than the whole window
    window_pairs = tokens * inside - before * (before - 1) / 2
    return work._replace(
        tokens=work.tokens + tokens,
        pairs=work.pairs + pairs,
        window_pairs=work.window_pairs + least(pairs, window_pairs),
        prompt_cached=work.prompt_cached + cached,
    )


class StepParts(NamedTuple):
    """Seconds on the GPUs of a step, by what takes them; see above."""

    dense: Number
    experts: Number
    head: Number
    moves: Number
    kv_cache: Number
    attention: Number
    layers: Number
    communication: Number


def gpu_seconds(c: Constants, f: Figures, work: Work) -> Number:
    """Seconds on the GPUs of a step that computes ``work``, without what the framework adds."""
    return sum(step_parts(c, f, work))


def step_parts(c: Constants, f: Figures, work: Work) -> StepParts:
    """The same by parts."""
    compute = f.flops * c.compute * when(c.fp8_compute, f.is_fp8) * when(c.fp4_compute, f.is_fp4)
    dense = root(
        f.dense_bytes / (f.bandwidth * c.weight_bandwidth * when(c.unpacked_bandwidth, f.dense_unpacked)),
        f.dense_flops * work.tokens / (compute * when(c.unpacked_compute, f.dense_unpacked)),
    )
    moved = (f.dense_moved / c.dense_move_bandwidth + f.expert_moved / c.move_bandwidth) * work.tokens / f.bandwidth
    head = root(
        f.head_bytes / (f.bandwidth * c.weight_bandwidth),
        f.head_flops * work.decoders / (f.attention_flops * c.compute),
    )
    seen = f.kv_bytes * (work.cached + work.prompt_cached) + f.window_kv_bytes * work.window_cached
    states = 2 * f.state_bytes * work.decoders
    kv = (seen + states) / (f.bandwidth * c.kv_bandwidth)
    pairs = f.decode_pair_flops * work.cached + f.prefill_pair_flops * work.pairs
    window_pairs = f.window_pair_flops * (work.window_cached + work.window_pairs)
    attention = (pairs + window_pairs) / (f.attention_flops * c.attention_compute)
    layers = f.layers * c.layer_s + f.expert_layers * c.expert_layer_s + f.index_layers * c.index_layer_s
    experts = expert_seconds(c, f, work.tokens)
    return StepParts(dense, experts, head, moved, kv, attention, layers, communication_seconds(c, f, work.tokens))


def expert_seconds(c: Constants, f: Figures, tokens: Number) -> Number:
    """Reading and multiplying the matrices of the experts for ``tokens`` tokens of a data-parallel rank, all layers."""
    spread = mixture.spread(c, f, tokens * f.data)
    read = f.expert_bytes * least(spread.touched * spread.busiest, 1.0)
    rows = f.expert_flops * tokens * spread.padded * spread.busiest
    rate = f.expert_peak * c.compute * when(c.expert_fp8_compute, f.expert_fp8) * when(c.fp4_compute, f.expert_fp4)
    return root(
        read / (f.bandwidth * c.expert_bandwidth * when(c.unpacked_bandwidth, f.expert_unpacked)),
        rows / (rate * c.expert_compute * when(c.unpacked_compute, f.expert_unpacked)),
    )


def mixture_parts(c: Constants, f: Figures, tokens: Number) -> tuple[Number, Number, Number]:
    """Seconds of the layers of experts alone for ``tokens`` tokens of a data-parallel rank: (matrices, activations that
    are moved, what each layer takes besides). Communication is apart."""
    moved = f.expert_moved * tokens / (f.bandwidth * c.move_bandwidth)
    return expert_seconds(c, f, tokens), moved, f.expert_layers * c.expert_layer_s


def communication_seconds(c: Constants, f: Figures, tokens: Number) -> Number:
    """All-reduces of tensor parallelism and all-to-alls of data parallelism for ``tokens`` tokens of a rank."""
    on_pcie = 1 - f.on_nvlink - f.on_network
    latency = c.all_reduce_s * f.on_nvlink + c.pcie_all_reduce_s * on_pcie + c.network_all_reduce_s * f.on_network
    share = c.link_share * f.on_nvlink + c.pcie_share * on_pcie + c.network_share * f.on_network
    ring = 2 * (f.tensor - 1) / f.tensor * tokens * f.hidden_bytes / (f.link * share)
    reduced = 2 * f.layers * (latency * log(f.tensor) + ring)
    spread = least(f.data - 1, 1.0)
    sent = 1.5 * tokens * f.hidden_bytes * f.sent_experts * (f.data - 1) / f.data
    fraction = c.all_to_all_share * f.on_nvlink + share * (1 - f.on_nvlink)
    started = 2 * (latency + c.all_to_all_s * f.on_nvlink) * spread
    return reduced + f.expert_layers * (sent / (f.link * fraction) + started)


def framework_seconds(c: Constants, f: Figures, sequences: Number) -> Number:
    """What the framework adds to a step with ``sequences`` sequences: scheduling, sampling, answers."""
    fixed = c.step_s_vllm * f.vllm + c.step_s_sglang * f.sglang + c.step_s_tensorrt_llm * f.trtllm
    return fixed + c.sequence_s * sequences * any_framework(f)


def launch_seconds(c: Constants, f: Figures) -> Number:
    """What the framework adds to a step that computes prompts: it is of no size that a CUDA graph was captured for, so
    that the kernels of each layer are launched one by one."""
    return f.layers * c.launch_layer_s * any_framework(f)


def any_framework(f: Figures) -> Number:
    """1 where there is a framework, else 0."""
    return f.vllm + f.sglang + f.trtllm


def least(a: Any, b: Any) -> Number:
    """The smaller, elementwise where one is an array."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.minimum(a, b)
    return min(a, b)


def most(a: Any, b: Any) -> Number:
    """The larger, elementwise where one is an array."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.maximum(a, b)
    return max(a, b)


def when(factor: Any, flag: Any) -> Number:
    """``factor`` where ``flag`` is 1, and 1 where it is 0."""
    return np.where(flag > 0, factor, 1.0) if isinstance(flag, np.ndarray) else (factor if flag else 1.0)


def root(a: Any, b: Any) -> Number:
    """√(a² + b²)."""
    total = a * a + b * b
    return np.sqrt(total) if isinstance(total, np.ndarray) else sqrt(total)


def log(a: Any) -> Number:
    """The logarithm to base 2."""
    return np.log2(a) if isinstance(a, np.ndarray) else log2(a)
