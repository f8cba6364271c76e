"""How long one engine step takes.

There are two kinds of timing. A ``StepTiming`` knows what the GPU computes in a step; that of a model on a GPU is
:class:`~tonnage.inference.estimate.timing.EstimatedTiming`. A ``BatchTiming`` was measured or fitted by what is in the
batch (``PolynomialTiming`` here; a table of measured points in table_timing.py).

The time of the first kind must be linear in the cached tokens that it reads once the sequences are fixed, because that
is what lets the engine sum a run of decode steps in closed form. Its times are integer attoseconds (ticks): one cached
token costs from under one to some hundred nanoseconds and a step reads up to some million, so that whole picoseconds
would round it by more than a nanosecond.
"""

from __future__ import annotations

from math import isqrt
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import numpy as np
from msgspec import Struct

from tonnage.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tonnage.facts.models import ModelShape

PS_PER_NS = 1_000
TICKS_PER_PS = 1_000_000
TICKS_PER_NS = 1_000_000_000
TICKS_PER_S = 10**18


class StepWork(NamedTuple):
    """What one step computes. ``decoders`` sequences compute a token each and read ``cached`` tokens of the KV cache
    together, ``window_cached`` of them in layers with a sliding window. ``tokens`` tokens of ``prompts`` prompts are
    computed behind ``prompt_cached`` ones that are in the cache, with ``pairs`` of a query and a key together,
    ``window_pairs`` of them in window layers: n tokens behind c have n·c + n(n+1)/2."""

    decoders: int = 0
    cached: int = 0
    window_cached: int = 0
    prompts: int = 0
    tokens: int = 0
    prompt_cached: int = 0
    pairs: int = 0
    window_pairs: int = 0


def decode_work(sequences: int, context: int, window: int = 0) -> StepWork:
    """``sequences`` sequences that decode, with ``context`` tokens in the cache together, all alike; ``window``: tokens
    that window layers see, 0 without such layers."""
    return StepWork(sequences, context, min(context, sequences * window))


def prompt_work(tokens: int, cached: int, window: int = 0) -> StepWork:
    """``tokens`` tokens of one prompt behind ``cached`` ones."""
    inside = window_pairs(tokens, cached, window) if window else 0
    return StepWork(0, 0, 0, 1, tokens, cached, tokens * cached + tokens * (tokens + 1) // 2, inside)


def window_pairs(tokens: int, cached: int, window: int) -> int:
    """Pairs of a query and a key of ``tokens`` tokens behind ``cached`` ones, each of which sees ``window``."""
    short = max(0, min(window - cached, tokens))  # tokens that see less than the whole window, or just all of it
    return short * cached + short * (short + 1) // 2 + (tokens - short) * window


@runtime_checkable
class StepTiming(Protocol):
    """Duration of a step from what is in it. Must be hashable, so that capacities can be remembered."""

    def __hash__(self) -> int: ...

    @property
    def window(self) -> int:
        """Tokens that layers with a sliding window see; 0 without such layers."""

    @property
    def decode_token(self) -> int:
        """Ticks that each cached token of a decoding sequence adds to a step."""

    @property
    def window_token(self) -> int:
        """Ticks that such a token adds besides while it is inside the window."""

    def step(self, work: StepWork) -> int:
        """Duration in ticks, above zero. One more of ``work.cached`` adds exactly ``decode_token``, one more of
        ``work.window_cached`` exactly ``window_token``."""

    def host(self, work: StepWork) -> int:
        """Ticks of the step in which the engine keeps no GPU busy: others on the same GPU do not lengthen them."""


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


class PolynomialTiming(Struct, frozen=True):
    """The built-in step time of Dynamo's offline replay, in milliseconds, rounded to nanoseconds::

        prefill = 4.209989e-07 n² + 1.518344e-02 n + 16.50142     n: new tokens of the batch
        decode  = -25.74 p² + 54.01 p + 5.74, at least 1          p: context tokens / ``kv_tokens``, at most 1

    The batch counts as ``requests`` equal requests: lengths are averaged with integer division. Source:
    ai-dynamo/dynamo lib/mocker (dynamo-mocker 1.4 perf_model.rs), aisimulate-core 0.13.
    """

    kv_tokens: int

    def prefill_ps(self, requests: int, total_tokens: int, cached_tokens: int) -> int:
        if requests == 1:
            new = total_tokens - cached_tokens
        elif requests:
            new = requests * (total_tokens // requests - cached_tokens // requests)
        else:
            return 0
        if new == 0:
            return 0
        return round(16.50142e6 + new * (15183.44 + new * 0.4209989)) * PS_PER_NS

    def decode_ps(self, sequences: int, context_tokens: int) -> int:
        if not sequences:
            return 0
        share = context_tokens / self.kv_tokens
        if share > 1.0:  # noqa: PLR1730 (twice as fast as min)
            share = 1.0
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


def shortest(timing: StepTiming | BatchTiming) -> int:
    """No step takes fewer ticks."""
    if isinstance(timing, StepTiming):
        return min(timing.step(StepWork(decoders=1)), timing.step(StepWork(prompts=1, tokens=1)))
    return min(timing.decode_ps(1, 1), timing.prefill_ps(1, 1, 0)) * TICKS_PER_PS


def run_of(first: int, growth: int, steps: int) -> int:
    """Sum of ``steps`` durations that start at ``first`` and grow by ``growth`` each."""
    return steps * first + growth * (steps * (steps - 1) // 2)


def steps_within(first: int, growth: int, limit: int) -> int:
    """The most steps of such a run that take ``limit`` or less together."""
    if limit < first:
        return 0
    if growth == 0:
        return limit // first
    linear = 2 * first - growth
    return (isqrt(linear * linear + 8 * growth * limit) - linear) // (2 * growth)


class LinearTiming(Struct, frozen=True):
    """Four constants in ps: per step, per token computed, per cached token read, per attention pair."""

    base_ps: int
    token_ps: int = 0
    cached_ps: int = 0
    pair_ps: int = 0

    def __post_init__(self) -> None:
        if self.base_ps < 1 or min(self.token_ps, self.cached_ps, self.pair_ps) < 0:
            raise ValueError("a step takes time: base_ps must be positive, the other constants not negative")

    @property
    def window(self) -> int:
        """None: every layer reads all tokens."""
        return 0

    @property
    def decode_token(self) -> int:
        """As ``StepTiming`` says."""
        return (self.cached_ps + self.pair_ps) * TICKS_PER_PS

    @property
    def window_token(self) -> int:
        """As ``StepTiming`` says."""
        return 0

    def step(self, work: StepWork) -> int:
        """As ``StepTiming`` says; a decoding sequence has a pair with each token that it reads and with itself."""
        decoders, cached, _, _, tokens, behind, pairs, _ = work
        ps = self.base_ps + self.token_ps * (decoders + tokens) + self.cached_ps * (cached + behind)
        return (ps + self.pair_ps * (cached + decoders + pairs)) * TICKS_PER_PS

    def host(self, work: StepWork) -> int:
        """None: the GPU is busy all the time."""
        return 0


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
