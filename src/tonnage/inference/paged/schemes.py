"""What paging the KV cache is worth: the same requests on engines that differ in nothing but their KV memory.

Every scheme runs on the engine model, with the same step times and limits. Paged memory is the engine's own;
contiguous memory stands as a gate in front of it (contiguous.py). Two measurements for each scheme:

- *Saturated*: all requests wait from the start. While memory is what keeps the next request out (the queue is not
  empty, the step's token budget not used up, the sequence limit not reached), every step adds what the memory holds,
  weighted by the time it takes. The parts are those of the PagedAttention paper (Kwon et al., SOSP 2023, section 3.1):
  *used* tokens; *reserved*, for tokens of the request still to come; *internal* fragmentation, never used by the
  request that holds it; *external*, what is in nobody's reservation and too little or too scattered for the next one
  (the rounding of the buddy allocator is counted here, as in the paper).
- *At one rate*: the requests arrive at a share of the rate that paged memory of 16-token blocks sustains; time to
  first token.

Attention over blocks is not charged more than over contiguous memory; the paper measured 20 to 26 % longer attention
kernels (section 7.1), a small part of a step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from tonnage.inference.engine import Engine, EngineConfig
from tonnage.inference.engine.requests import Finished
from tonnage.inference.paged.claims import CheckedClaim, claims
from tonnage.inference.paged.contiguous import Gate, Reservation, Sized, next_power_of_two, reservation
from tonnage.inference.timing import TICKS_PER_NS, TICKS_PER_S, StepTiming, StepWork

__all__ = ["CheckedClaim", "PagedReport", "Scheme", "SchemeResult", "PagedEngine", "Shares", "Sized", "compare"]

_TICKS_PER_MS = TICKS_PER_S // 1_000
_SCALE = TICKS_PER_NS
"""The engine's nanosecond stands for a tick here, so that a request passes the gate at the very end of a step."""

_END = 1 << 100
"""Later than anything."""

BASELINE_BLOCK = 16
"""vLLM's default block size."""

DEFAULT_LOAD = 0.7
"""Share of the baseline's saturated rate at which the time to first token is measured."""


class Scheme(msgspec.Struct, frozen=True):
    """How KV memory is given out: contiguous by one of three reservations, or in blocks of ``block_size`` tokens."""

    name: str
    kind: Literal["max", "pow2", "exact", "paged"]
    block_size: int = 1


SCHEMES = (
    Scheme("contiguous, max length", "max"),
    Scheme("contiguous, power of two", "pow2"),
    Scheme("contiguous, exact", "exact"),
    *(Scheme(f"paged, blocks of {size}", "paged", size) for size in (1, BASELINE_BLOCK, 32, 64, 128)),
)


class PagedEngine(msgspec.Struct, frozen=True):
    """The engine without its memory scheme. ``kv_tokens`` is the KV memory in tokens; times come from ``timing``."""

    kv_tokens: int
    max_model_len: int
    max_num_batched_tokens: int
    max_num_seqs: int
    timing: StepTiming


class Shares(msgspec.Struct, frozen=True):
    """Parts of the KV memory, 0 to 1 and together 1, on average over the time in which memory was the limit."""

    used: float
    reserved: float
    internal: float
    external: float

    @property
    def wasted(self) -> float:
        """Everything that holds no token."""
        return 1 - self.used


class SchemeResult(msgspec.Struct, frozen=True):
    """One scheme. ``memory`` and ``batch_mean`` are None if memory was never the limit; ``output_tokens_per_s`` and
    ``requests_per_s`` are those of the saturated engine; ``ttft_*`` at ``Report.offered_requests_per_s``."""

    scheme: str
    kind: str
    block_size: int
    memory: Shares | None
    memory_bound: float
    batch_mean: float | None
    batch_max: int
    output_tokens_per_s: float
    requests_per_s: float
    preemptions: int
    ttft_ms_mean: float | None = None
    ttft_ms_p50: float | None = None
    ttft_ms_p99: float | None = None


class PagedReport(msgspec.Struct, frozen=True):
    """All schemes on the same requests. ``refused``: requests longer than ``max_model_len`` or the KV memory, which
    no scheme was given."""

    kv_tokens: int
    max_model_len: int
    requests: int
    refused: int
    mean_prompt_tokens: float
    mean_output_tokens: float
    offered_requests_per_s: float
    schemes: tuple[SchemeResult, ...]
    claims: tuple[CheckedClaim, ...]


def compare(
    requests: Sequence[Sized],
    setting: PagedEngine,
    *,
    load: float = DEFAULT_LOAD,
    schemes: Sequence[Scheme] = SCHEMES,
    observe: Callable[[int], None] | None = None,
) -> PagedReport:
    """Play ``requests`` (arrival in ns, in order) under every scheme. Deterministic; no random number is drawn.

    ``observe`` is called twice for each scheme, after each of its measurements, with the number of ``requests``.

    Raises ValueError if no request fits the engine, if ``load`` is not above 0, or if the KV memory is smaller than
    one sequence of ``max_model_len`` tokens.
    """
    if setting.kv_tokens < setting.max_model_len:
        raise ValueError(f"a KV cache of {setting.kv_tokens} tokens cannot hold one sequence of the longest context")
    if load <= 0:
        raise ValueError("the offered load must be above 0")
    kept = [one for one in requests if _fits(one, setting, schemes)]
    if not kept:
        raise ValueError("no request fits the engine")
    mean_output = sum(one.output for one in kept) / len(kept)
    saturated = [one._replace(arrival=0) for one in kept]
    seen = observe or _unseen
    results = []
    for scheme in schemes:
        results.append(_saturated(saturated, scheme, setting, mean_output))
        seen(len(requests))
    baseline = next(
        (one for one in results if one.kind == "paged" and one.block_size == BASELINE_BLOCK), results[-1]
    ).requests_per_s
    rate = load * baseline
    paced = _at_rate(kept, rate)
    for place, scheme in enumerate(schemes):
        results[place] = _with_latency(results[place], paced, scheme, setting)
        seen(len(requests))
    return PagedReport(
        kv_tokens=setting.kv_tokens,
        max_model_len=setting.max_model_len,
        requests=len(kept),
        refused=len(requests) - len(kept),
        mean_prompt_tokens=sum(one.prompt for one in kept) / len(kept),
        mean_output_tokens=mean_output,
        offered_requests_per_s=rate if paced else 0.0,
        schemes=tuple(results),
        claims=claims([(one.kind, one.block_size, _measures(one)) for one in results], BASELINE_BLOCK),
    )


def _unseen(requests: int) -> None:
    """Nobody looks on."""


def _fits(request: Sized, setting: PagedEngine, schemes: Sequence[Scheme]) -> bool:
    """By every scheme: whole blocks, or the next power of two in one piece."""
    total, longest = setting.kv_tokens, setting.max_model_len
    if request.prompt + request.output > longest:
        return False
    for scheme in schemes:
        if scheme.kind == "paged":
            size = scheme.block_size
            fits = -(-request.stored // size) <= total // size
        else:
            needed = reservation(scheme.kind, request, longest)
            fits = scheme.kind == "max" or next_power_of_two(needed) <= 1 << (total.bit_length() - 1)
        if not fits:
            return False
    return True


def _measures(result: SchemeResult) -> dict[str, float | None]:
    """For the claims. Where memory never kept a request out, the rate is not one that memory made."""
    if result.memory is None:
        return {"wasted": None, "batch": None, "rate": None}
    return {"wasted": result.memory.wasted, "batch": result.batch_mean, "rate": result.output_tokens_per_s}


class _Meter:
    """The engine's timing, scaled; while ``on``, it sees every step as it starts and weighs what memory holds."""

    def __init__(self, scheme: Scheme, setting: PagedEngine) -> None:
        self.window = setting.timing.window
        self.decode_token = setting.timing.decode_token * _SCALE
        self.window_token = setting.timing.window_token * _SCALE
        self.on = False
        self.engine: Engine | None = None
        self.gate: Gate | None = None
        self.batch_max = 0
        self.elapsed = 0  # ticks of steps
        self.bound = 0  # ticks of steps that memory kept from being larger
        self.sums = [0, 0, 0, 0, 0]  # token·ticks used, reserved, internal, external; sequence·ticks
        self.busy_until = (0, 0)  # (ticks, tokens generated) when the queue was last not empty
        self._setting = setting
        self._block = scheme.block_size

    def step(self, work: StepWork) -> int:
        ticks = self._setting.timing.step(work)
        if self.on and self.engine is not None:
            tokens = work.decoders + work.tokens
            self._weigh(self.engine, tokens, tokens + work.cached + work.prompt_cached, ticks)
        return ticks * _SCALE

    def host(self, work: StepWork) -> int:
        return self._setting.timing.host(work) * _SCALE

    def _weigh(self, engine: Engine, tokens: int, stored: int, ticks: int) -> None:
        """``stored`` tokens are in the cache when the step ends: those read and those computed."""
        setting, gate = self._setting, self.gate
        queued = engine.waiting > 0 or (gate is not None and len(gate.waiting) > 0)
        self.batch_max = max(self.batch_max, engine.running)
        if queued:
            self.busy_until = (self.elapsed, engine.generation_tokens_total)
        self.elapsed += ticks
        if not queued or tokens >= setting.max_num_batched_tokens or engine.running >= setting.max_num_seqs:
            return
        if gate is None:
            needed, held = stored, engine.blocks_used * self._block
        else:
            needed, held = gate.needed, gate.reserved
        self.bound += ticks
        parts = (stored, needed - stored, held - needed, setting.kv_tokens - held, engine.running)
        for place, part in enumerate(parts):
            self.sums[place] += part * ticks


def _engine(scheme: Scheme, setting: PagedEngine, *, metered: bool) -> tuple[Engine, Gate | None, _Meter]:
    """An engine in ticks, the gate before it if its memory is contiguous, and what its steps are weighed by."""
    config = EngineConfig(
        max_num_batched_tokens=setting.max_num_batched_tokens,
        max_num_seqs=setting.max_num_seqs,
        max_model_len=setting.max_model_len,
        kv_blocks=setting.kv_tokens // scheme.block_size,
        block_size=scheme.block_size,
        reserve_full_prompt=True,
    )
    kind: Reservation | Literal["paged"] = scheme.kind
    gate = None if kind == "paged" else Gate(kind, setting.kv_tokens, setting.max_model_len)
    meter = _Meter(scheme, setting)
    engine = _MeteredEngine(config, meter, macro=False) if metered else Engine(config, meter)
    meter.engine, meter.gate = engine, gate
    return engine, gate, meter


def _play(requests: list[Sized], engine: Engine, gate: Gate | None) -> list[Finished]:
    finished: list[Finished] = []
    if gate is not None:
        gate.play(engine, requests, finished.extend)
        return finished
    for number, request in enumerate(requests):
        engine.submit(number, request.arrival, request.prompt, request.output)
    engine.advance(_END)
    return engine.take_finished()


class _MeteredEngine(Engine):
    """An engine whose meter runs only while time moves, not while the next change is looked up."""

    def advance(self, until_ns: int) -> None:
        meter = self.timing
        assert isinstance(meter, _Meter)
        meter.on = True
        super().advance(until_ns)
        meter.on = False


def _saturated(requests: list[Sized], scheme: Scheme, setting: PagedEngine, mean_output: float) -> SchemeResult:
    engine, gate, meter = _engine(scheme, setting, metered=True)
    _play(requests, engine, gate)
    if meter.elapsed != engine.busy_ns:
        raise RuntimeError("a step was not weighed")
    ticks, tokens = meter.busy_until
    if not ticks:  # nobody ever waited
        ticks, tokens = meter.elapsed, engine.generation_tokens_total
    rate = tokens * TICKS_PER_S / ticks if ticks else 0.0
    memory = None
    if meter.bound:
        memory = Shares(*(part / (meter.bound * setting.kv_tokens) for part in meter.sums[:4]))
    return SchemeResult(
        scheme=scheme.name,
        kind=scheme.kind,
        block_size=scheme.block_size if scheme.kind == "paged" else 0,
        memory=memory,
        memory_bound=meter.bound / meter.elapsed if meter.elapsed else 0.0,
        batch_mean=meter.sums[4] / meter.bound if meter.bound else None,
        batch_max=meter.batch_max,
        output_tokens_per_s=rate,
        requests_per_s=rate / mean_output,
        preemptions=engine.preemptions_total,
    )


def _at_rate(requests: list[Sized], rate: float) -> list[Sized]:
    """The same requests with their own spacing stretched to ``rate`` a second, in ticks; none if they have none."""
    first, last = requests[0].arrival, requests[-1].arrival
    if last == first or rate <= 0:
        return []
    span = round((len(requests) - 1) / rate * TICKS_PER_S)
    return [one._replace(arrival=(one.arrival - first) * span // (last - first)) for one in requests]


def _with_latency(result: SchemeResult, paced: list[Sized], scheme: Scheme, setting: PagedEngine) -> SchemeResult:
    if not paced:
        return result
    engine, gate, _ = _engine(scheme, setting, metered=False)
    finished = _play(paced, engine, gate)
    times = sorted(
        (one.first_token_ns - paced[one.request_id].arrival) / _TICKS_PER_MS
        for one in finished
        if one.first_token_ns is not None
    )
    if not times:
        return result
    return msgspec.structs.replace(
        result,
        ttft_ms_mean=sum(times) / len(times),
        ttft_ms_p50=times[(len(times) - 1) // 2],
        ttft_ms_p99=times[(len(times) - 1) * 99 // 100],
    )
