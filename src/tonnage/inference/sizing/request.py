"""What is to be served: model, formats, lengths, load, targets."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, sqrt
from typing import TYPE_CHECKING, Any

import msgspec

from tonnage.errors import InputError
from tonnage.facts.models import ModelShape
from tonnage.inference.estimate.calibrate import Calibration
from tonnage.inference.memory import Precision
from tonnage.inference.sizing.cards import EngineGpu

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MOST_PAIRS = 256
"""A trace is thinned to this many pairs of lengths."""


class Lengths(msgspec.Struct, frozen=True):
    """(input tokens, output tokens) of requests, equally likely, and where they are from."""

    pairs: tuple[tuple[int, int], ...]
    source: str

    @property
    def input_mean(self) -> float:
        """Mean input tokens."""
        return sum(pair[0] for pair in self.pairs) / len(self.pairs)

    @property
    def output_mean(self) -> float:
        """Mean output tokens."""
        return sum(pair[1] for pair in self.pairs) / len(self.pairs)

    @property
    def longest(self) -> int:
        """Most tokens of a request, input and output."""
        return max(i + o for i, o in self.pairs)

    @property
    def decode_context(self) -> float:
        """Mean tokens in the KV cache of a sequence that decodes: its input and, on average, half its output, each
        request weighted with the steps that it stays."""
        steps = sum(o for _, o in self.pairs)
        return sum(o * (i + o / 2) for i, o in self.pairs) / steps

    @property
    def decode_spread(self) -> float:
        """Standard deviation of the tokens in the KV cache of a sequence that decodes, weighted in the same way."""
        steps = sum(o for _, o in self.pairs)
        square = sum(o * ((i + o / 2) ** 2 + o * o / 12) for i, o in self.pairs) / steps
        return sqrt(max(0.0, square - self.decode_context**2))

    @property
    def resident(self) -> int:
        """Tokens to hold for a sequence, on average over the sequences that run: as above, rounded up."""
        return max(1, ceil(self.decode_context))


class OfferedLoad(msgspec.Struct, frozen=True):
    """Requests in flight at once, or requests per second; one of the two."""

    concurrency: int | None = None
    rate: float | None = None


class Targets(msgspec.Struct, frozen=True):
    """Upper bounds in seconds on the mean time to first token and time per output token; None: no bound."""

    ttft_s: float | None = None
    tpot_s: float | None = None


class SizingRequest(msgspec.Struct, frozen=True):
    """What a model is to be sized for. ``utilization``: vLLM's --gpu-memory-utilization. ``max_num_seqs`` and
    ``max_num_batched_tokens``: None takes vLLM's default for the card; ``cuda_graphs`` False is --enforce-eager.
    ``pipeline_layers``: layers of each stage of as many, else as vLLM deals them out.
    ``adapters`` LoRA adapters of ``lora_rank`` are held at once. ``cards`` are those to consider.
    ``system``: what serves; ``none`` for no engine in particular. With another than vLLM ``utilization`` is its own
    share of memory (SGLang's --mem-fraction-static, TensorRT-LLM's free fraction), 0 its default. ``calibration``: what
    is known of a person's own engine."""

    shape: ModelShape
    stored: Precision
    kv: Precision
    context: int
    lengths: Lengths
    load: OfferedLoad
    targets: Targets
    cards: tuple[EngineGpu, ...]
    utilization: float
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    cuda_graphs: bool = True
    adapters: int = 0
    lora_rank: int = 16
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    pipeline_layers: tuple[int, ...] = ()
    system: str = "vllm"
    calibration: Calibration | None = None


def fixed(input_tokens: int, output_tokens: int) -> Lengths:
    """Every request alike."""
    return Lengths(((input_tokens, output_tokens),), f"{input_tokens:,} in, {output_tokens:,} out")


def of_quantiles(inputs: Sequence[int], outputs: Sequence[int]) -> Lengths:
    """From equally spaced quantiles, e.g. (p10, p50, p90): every pair of one of each, as if independent."""
    pairs = tuple((i, o) for i in inputs for o in outputs)
    return Lengths(pairs, f"quantiles {','.join(map(str, inputs))} in, {','.join(map(str, outputs))} out")


def of_trace(inputs: NDArray[Any], outputs: NDArray[Any], name: str) -> Lengths:
    """From the lengths of a request log, kept together. Of more than 256 requests every n-th by total length."""
    pairs = sorted(zip((int(i) for i in inputs), (int(o) for o in outputs), strict=True), key=sum)
    step = max(1, len(pairs) / _MOST_PAIRS)
    kept = [pairs[int(index * step + step / 2)] for index in range(min(len(pairs), _MOST_PAIRS))]
    return Lengths(tuple(kept), f"{len(pairs):,} requests of {name}")


def context_of(shape: ModelShape, wanted: int | None, lengths: Lengths) -> int:
    """The --max-model-len to plan for: ``wanted``, else the longest request. Raises InputError where the model's own
    limit, or ``wanted``, is below what is asked of it."""
    limit = shape.context_tokens
    if wanted is not None and limit is not None and wanted > limit:
        raise InputError.at(
            f"{wanted:,} tokens, but {shape.name} was made for {limit:,}",
            field="--context",
            hint=f"use {limit} or less",
        )
    most = wanted if wanted is not None else limit
    if most is not None and lengths.longest > most:
        whose = "--context is" if wanted is not None else f"{shape.name} has a context of"
        raise InputError.at(
            f"the longest request has {lengths.longest:,} tokens, but {whose} {most:,}",
            field="--context" if wanted is not None else "--input-tokens",
            hint="use shorter requests, a longer --context or another model",
        )
    return wanted if wanted is not None else lengths.longest
