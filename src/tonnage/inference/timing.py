"""How long one engine step takes.

There are two kinds of timing. A ``StepTiming`` knows what the GPU computes in a step, a ``BatchTiming`` was measured or
fitted by what is in the batch (``PolynomialTiming`` here; a table of measured points in table_timing.py).

The time of the first kind must be linear in the cached tokens that it reads once the number of tokens is fixed, because
that is what lets the engine sum a run of decode steps in closed form. Times are integer picoseconds: one
cached token costs from under one to some hundred nanoseconds, so whole nanoseconds would round too much.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt, log2
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from tonnage.errors import InputError
from tonnage.inference import tables

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tonnage.facts.gpus import Gpu
    from tonnage.facts.models import ModelShape

PS_PER_NS = 1_000
_PS_PER_S = 1_000_000_000_000


@runtime_checkable
class StepTiming(Protocol):
    """Duration of a step from what is in it. Must be hashable, so that capacities can be remembered."""

    def __hash__(self) -> int: ...

    @property
    def decode_token_ps(self) -> int:
        """What each cached token of a decoding sequence adds to a step, in ps."""

    def step_ps(self, tokens: int, cached: int, pairs: int) -> int:
        """Duration in ps, above zero, of a step that computes ``tokens`` tokens.

        ``cached`` counts the tokens read from the KV cache, ``pairs`` the (query, key) pairs of attention: n
        tokens computed after c cached ones add (n, c, n·c + n(n+1)/2), with n = 1 for a decoding sequence.
        One more cached token of such a sequence, hence one more pair, must add exactly ``decode_token_ps``.
        """


class BatchTiming(Protocol):
    """Duration of a step as the sum of its prefill part and its decode part. Must be hashable.

    The sum of a run of decode steps has no closed form; it is computed from an array of them.
    """

    def __hash__(self) -> int: ...

    def prefill_ps(self, requests: int, total_tokens: int, cached_tokens: int) -> int:
        """Duration in ps of computing the prompts of ``requests`` requests: ``total_tokens`` is the sum of their
        lengths so far, ``cached_tokens`` the part of it that was in the KV cache before. 0 if nothing is computed."""

    def decode_ps(self, sequences: int, context_tokens: int) -> int:
        """Duration in ps of one token for each of ``sequences`` sequences, ``context_tokens`` long together. It must
        not shrink as the context grows."""

    def decode_run_ps(self, sequences: int, context_tokens: int, steps: int) -> NDArray[np.int64]:
        """When each of ``steps`` such steps in a row ends, in ps after the first begins, the context growing by
        ``sequences`` from one to the next. Shape (steps,)."""


def run_one_by_one(timing: BatchTiming, sequences: int, context_tokens: int, steps: int) -> NDArray[np.int64]:
    """``decode_run_ps`` of a timing that has nothing better."""
    contexts = range(context_tokens, context_tokens + sequences * steps, sequences)
    return np.cumsum([timing.decode_ps(sequences, context) for context in contexts], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class PolynomialTiming:
    """The built-in step time of Dynamo's offline replay, in milliseconds, rounded to nanoseconds::

        prefill = 4.209989e-07 n² + 1.518344e-02 n + 16.50142     n: new tokens of the batch
        decode  = -25.74 p² + 54.01 p + 5.74, at least 1          p: context tokens / ``kv_tokens``, at most 1

    The batch counts as ``requests`` equal requests: lengths are averaged with integer division. Source:
    ai-dynamo/dynamo lib/mocker (dynamo-mocker 1.4 perf_model.rs), aisimulate-core 0.13.
    """

    kv_tokens: int

    def prefill_ps(self, requests: int, total_tokens: int, cached_tokens: int) -> int:
        if requests == 0:
            return 0
        new = requests * (total_tokens // requests - cached_tokens // requests)
        if new == 0:
            return 0
        return round(16.50142e6 + new * (15183.44 + new * 0.4209989)) * PS_PER_NS

    def decode_ps(self, sequences: int, context_tokens: int) -> int:
        if not sequences:
            return 0
        share = min(context_tokens, self.kv_tokens) / self.kv_tokens
        return round(5.74e6 + share * (54.01e6 - 25.74e6 * share)) * PS_PER_NS

    def decode_run_ps(self, sequences: int, context_tokens: int, steps: int) -> NDArray[np.int64]:
        context = np.arange(context_tokens, context_tokens + sequences * steps, sequences, dtype=np.float64)
        if context_tokens + sequences * steps > self.kv_tokens:
            np.minimum(context, self.kv_tokens, out=context)
        share = context
        share /= self.kv_tokens
        ns = share * -25.74e6
        ns += 54.01e6
        ns *= share
        ns += 5.74e6
        ends = np.rint(ns, out=ns).astype(np.int64).cumsum()
        ends *= PS_PER_NS
        return ends


def shortest_ps(timing: StepTiming | BatchTiming) -> int:
    """No step takes less."""
    if isinstance(timing, StepTiming):
        return timing.step_ps(1, 0, 0)
    return min(timing.decode_ps(1, 1), timing.prefill_ps(1, 1, 0))


def run_ps(first: int, growth: int, steps: int) -> int:
    """Sum of ``steps`` durations that start at ``first`` and grow by ``growth`` each."""
    return steps * first + growth * (steps * (steps - 1) // 2)


def steps_within(first: int, growth: int, limit: int) -> int:
    """The most steps of such a run that take ``limit`` ps or less together."""
    if limit < first:
        return 0
    if growth == 0:
        return limit // first
    linear = 2 * first - growth
    return (isqrt(linear * linear + 8 * growth * limit) - linear) // (2 * growth)


@dataclass(frozen=True, slots=True)
class LinearTiming:
    """Four constants in ps: per step, per token computed, per cached token read, per attention pair."""

    base_ps: int
    token_ps: int = 0
    cached_ps: int = 0
    pair_ps: int = 0

    def __post_init__(self) -> None:
        if self.base_ps < 1 or min(self.token_ps, self.cached_ps, self.pair_ps) < 0:
            raise ValueError("a step takes time: base_ps must be positive, the other constants not negative")

    @property
    def decode_token_ps(self) -> int:
        return self.cached_ps + self.pair_ps

    def step_ps(self, tokens: int, cached: int, pairs: int) -> int:
        return self.base_ps + self.token_ps * tokens + self.cached_ps * cached + self.pair_ps * pairs


class RooflineTiming:
    """Step time of a model on the GPUs of one node, from first principles and four fitted constants.

    The parts are added up, as the constants were fitted to the sum (a mixed step does not hide one behind
    another)::

        step = (weight bytes touched + KV bytes read) / (bandwidth · memory_efficiency)
             + (2 · active parameters · tokens + 4 · full layers · heads · head_dim · pairs)
               / (FLOP/s · compute_efficiency)
             + layers · (layer_overhead + all_reduce_overhead · log2 TP)
             + all-reduce bytes / link bandwidth

    Bytes and FLOPs are those of one GPU, i.e. divided by TP, save the KV cache where it is replicated (fewer
    KV heads than ranks, or one MLA latent). Only layers that keep the whole context count as KV bytes and
    pairs; what sliding windows add is bounded and left out. A mixture of experts touches 1 - (1 -
    active/total)^tokens of its parameters. Each layer all-reduces its hidden state twice, 2·(TP-1)/TP of it
    over one GPU's link.

    Source of the constants: data/roofline.csv (fitted on the measured points published with aiconfigurator
    0.12; median TPOT error about 17 %, time to first token about 40 %).
    """

    __slots__ = (
        "_active_share",
        "_base_ps",
        "_cached_ps",
        "_pair_ps",
        "_token_ps",
        "_touched",
        "_weights_ps",
    )

    def __init__(
        self,
        model: ModelShape,
        gpu: Gpu,
        *,
        tensor_parallel: int = 1,
        weight_bytes_per_param: float = 2,
        kv_bytes_per_element: int = 2,
    ) -> None:
        check_tensor_parallel(model, tensor_parallel)
        fit = tables.roofline()
        bandwidth = gpu.bandwidth_bytes_per_s * fit["memory_efficiency"]
        quantized = weight_bytes_per_param == 1 and gpu.fp8_flops is not None
        peak = gpu.fp8_flops if quantized and gpu.fp8_flops is not None else gpu.bf16_flops
        flops = peak * fit["compute_efficiency"] * tensor_parallel
        layer_s = fit["layer_overhead_s"] + fit["all_reduce_overhead_s"] * log2(tensor_parallel)
        weights_s = model.weight_bytes(weight_bytes_per_param) / tensor_parallel / bandwidth
        token_s = 2 * model.active_params / flops
        if tensor_parallel > 1:
            link = gpu.nvlink_bytes_per_s or gpu.pcie_bytes_per_s
            share = 2 * (tensor_parallel - 1) / tensor_parallel
            token_s += 2 * model.layers * share * model.hidden * 2 / link
        kv_bytes = model.kv_bytes_per_token(kv_bytes_per_element)
        kv_bytes = kv_bytes // model.kv_heads * heads_per_gpu(model.kv_heads, tensor_parallel)
        self._weights_ps = _ps(weights_s)
        self._active_share = model.active_params / model.params
        self._base_ps = _ps(model.layers * layer_s)
        self._token_ps = _ps(token_s)
        self._cached_ps = _ps(kv_bytes / bandwidth)
        self._pair_ps = _ps(4 * model.full_layers * model.heads * model.head_dim / flops)
        self._touched: dict[int, int] = {}

    @property
    def decode_token_ps(self) -> int:
        return self._cached_ps + self._pair_ps

    def step_ps(self, tokens: int, cached: int, pairs: int) -> int:
        weights = self._weights_ps if self._active_share >= 1 else self._touched_ps(tokens)
        return weights + self._base_ps + self._token_ps * tokens + self._cached_ps * cached + self._pair_ps * pairs

    def _touched_ps(self, tokens: int) -> int:
        known = self._touched.get(tokens)
        if known is None:
            share: float = 1 - (1 - self._active_share) ** tokens
            known = self._touched[tokens] = round(self._weights_ps * share)
        return known

    def _key(self) -> tuple[int, float, int, int, int, int]:
        return (
            self._weights_ps,
            self._active_share,
            self._base_ps,
            self._token_ps,
            self._cached_ps,
            self._pair_ps,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RooflineTiming) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


def heads_per_gpu(heads: int, tensor_parallel: int) -> int:
    """KV heads that each rank holds: an even share, at least one, so that few heads are replicated."""
    return -(-heads // tensor_parallel)


def check_tensor_parallel(model: ModelShape, tensor_parallel: int) -> None:
    """Raise InputError unless the attention heads can be dealt out evenly, as vLLM asks."""
    if tensor_parallel < 1 or model.heads % tensor_parallel:
        raise InputError.at(
            f"tensor parallel size {tensor_parallel} does not divide the {model.heads} attention heads of {model.name}",
            field="--tensor-parallel-size",
            hint="use a divisor of the number of attention heads",
        )


def _ps(seconds: float) -> int:
    return round(seconds * _PS_PER_S)
