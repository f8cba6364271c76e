"""How long one engine step takes.

A step's time must be linear in the cached tokens that it reads once the number of tokens is fixed, because
that is what lets the engine sum a run of decode steps in closed form. Times are integer picoseconds: one
cached token costs from under one to some hundred nanoseconds, so whole nanoseconds would round too much.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt, log2
from typing import TYPE_CHECKING, Protocol

from tonnage.errors import InputError
from tonnage.inference import tables

if TYPE_CHECKING:
    from tonnage.facts.gpus import Gpu
    from tonnage.facts.models import ModelShape

PS_PER_NS = 1_000
_PS_PER_S = 1_000_000_000_000


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
        weight_bytes_per_param: int = 2,
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
