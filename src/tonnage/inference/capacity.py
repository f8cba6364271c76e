"""What one replica sustains: the highest arrival rate at which enough requests meet the SLO, found by trial.

Every trial runs the engine on Poisson arrivals. All rates see the same random numbers (unit gaps are divided
by the rate), so the answer is deterministic and attainment falls smoothly with the rate.
"""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate

import msgspec

from tonnage.inference.engine import Engine, EngineConfig
from tonnage.inference.engine.requests import Finished
from tonnage.inference.timing import BatchTiming, StepTiming
from tonnage.units import NS_PER_S

_LEAST_REQUESTS = 2_000
_MOST_REQUESTS = 6_000
_TRIAL_S = 300  # of arrivals at least, unless that takes too many requests: many times what a request stays
_WARM_UP = 0.2  # share of a trial's requests that is not counted, as they find an engine that is filling up
_SLICES = 40  # looks at the misses so far, so that a hopeless trial ends early
_SLOWEST = 2.0**-10  # requests per second; below it the capacity counts as none
_TOLERANCE = 1.01  # ratio of the rate that fails to the rate that is returned


class Slo(msgspec.Struct, frozen=True):
    """Upper bounds in seconds on the time to first token and the mean time per output token after it."""

    ttft_s: float
    tpot_s: float

    def met(self, request: Finished) -> bool:
        """Whether a request that ended was served within both bounds."""
        if request.state != "finished" or request.ttft_ns is None:
            return False
        return request.ttft_ns <= self.ttft_s * NS_PER_S and request.tpot_ns <= self.tpot_s * NS_PER_S


class RequestMix(msgspec.Struct, frozen=True):
    """(prompt tokens, output tokens) of requests as they come together, with weights (none: equal).

    ``reuse``: the share of every prompt, from 0 to below 1, that its engine finds in its KV cache and does not compute.
    The blocks of that share are counted for each request, though requests that run together may share them.
    """

    pairs: tuple[tuple[int, int], ...]
    weights: tuple[float, ...] = ()
    reuse: float = 0.0

    def __post_init__(self) -> None:
        if not self.pairs or (self.weights and len(self.weights) != len(self.pairs)):
            raise ValueError("a request mix needs at least one pair, and one weight a pair or none")
        if not 0 <= self.reuse < 1:
            raise ValueError(f"a request mix reuses {self.reuse} of its prompts, expected 0 to below 1")

    def computed(self, prompt_tokens: int) -> int:
        """Tokens of a prompt that are in the cache; the last one is always computed."""
        return min(int(self.reuse * prompt_tokens), prompt_tokens - 1)


@lru_cache(maxsize=1024)
def capacity(
    config: EngineConfig,
    timing: StepTiming | BatchTiming,
    mix: RequestMix,
    slo: Slo,
    share: float = 0.99,
    *,
    replicas: int = 1,
    seed: int = 0,
) -> float:
    """The highest Poisson arrival rate a replica, in requests per second, at which ``share`` of the requests
    meet the SLO. With several ``replicas``, each request goes to one with the fewest in flight: together they
    carry more than one by one, as a long prompt holds up fewer others.

    Found to one per cent by bisection; 0 if even requests far apart miss it. A trial counts between 1,600 and
    4,800 requests, so at a share of 0.99 the answer carries a sampling error of a few per cent.
    """
    trials = _Trials(config, timing, mix, slo, seed=seed, replicas=replicas)
    low, high = 0.0, 1.0
    while trials.holds(high, share):
        low, high = high, high * 2
    while low == 0.0:
        if high <= _SLOWEST:
            return 0.0
        if trials.holds(high / 2, share):
            low = high / 2
        else:
            high /= 2
    while high > low * _TOLERANCE:
        middle = (low * high) ** 0.5
        if trials.holds(middle, share):
            low = middle
        else:
            high = middle
    return low


@lru_cache(maxsize=1024)
def mean_latency_s(
    config: EngineConfig, timing: StepTiming | BatchTiming, mix: RequestMix, rate: float, *, seed: int = 0
) -> float:
    """Mean seconds from arrival to last token at ``rate`` requests per second.

    Times the rate it is the mean number of requests in flight (Little's law).
    """
    return _Trials(config, timing, mix, Slo(0.0, 0.0), seed=seed).mean_latency_s(rate)


class _Trials:
    """Trials at different rates a replica on the same draws."""

    def __init__(
        self,
        config: EngineConfig,
        timing: StepTiming | BatchTiming,
        mix: RequestMix,
        slo: Slo,
        *,
        seed: int,
        replicas: int = 1,
    ) -> None:
        self._replicas = replicas
        self._config = config
        self._timing = timing
        self._mix = mix
        self._slo = slo
        self._rng = random.Random(seed)
        self._cumulative = list(accumulate(mix.weights or (1.0,) * len(mix.pairs)))
        self._draws: list[tuple[float, int, int]] = []  # arrival at one request per second, prompt, output

    def holds(self, rate: float, share: float) -> bool:
        """Whether at least ``share`` of the requests meet the SLO at ``rate``."""
        count = self._count(rate)
        counted = count - int(count * _WARM_UP)
        allowed = int(counted * (1 - share) + 1e-9)
        return self._misses(rate, allowed) <= allowed

    def share(self, rate: float) -> float:
        """Share of the requests that meet the SLO at ``rate``."""
        count = self._count(rate)
        counted = count - int(count * _WARM_UP)
        return 1 - self._misses(rate, counted) / counted

    def mean_latency_s(self, rate: float) -> float:
        """Mean latency of the requests after the warm-up."""
        count = self._count(rate)
        self._draw(count)
        engine = Engine(self._config, self._timing)
        for request_id, (at, _, _) in enumerate(self._draws[:count]):
            self._submit(engine, request_id, int(at / rate * NS_PER_S))
        _run_dry(engine)
        first = int(count * _WARM_UP)
        ended = [r for r in engine.take_finished() if r.request_id >= first and r.state == "finished"]
        return sum(r.finish_ns - r.arrival_ns for r in ended) / max(len(ended), 1) / NS_PER_S

    def _count(self, rate: float) -> int:
        """Requests of a trial: enough to fill the engine and to count one per cent of them."""
        return min(max(_LEAST_REQUESTS, int(rate * _TRIAL_S)), _MOST_REQUESTS)

    def _misses(self, rate: float, enough: int) -> int:
        """Requests after the warm-up that miss the SLO; stops counting when more than ``enough`` have."""
        count = self._count(rate)
        self._draw(count)
        arrivals = [int(at / (rate * self._replicas) * NS_PER_S) for at, _, _ in self._draws[:count]]
        first = int(count * _WARM_UP)
        if self._replicas > 1:
            return self._misses_shared(arrivals, first, enough)
        engine = Engine(self._config, self._timing)
        for request_id, arrival_ns in enumerate(arrivals):
            self._submit(engine, request_id, arrival_ns)
        stops = [arrivals[count * part // _SLICES - 1] for part in range(1, _SLICES)]
        misses = 0
        for stop in (*stops, None):
            if stop is None:
                _run_dry(engine)
            else:
                engine.advance(stop)
            misses += sum(
                request.request_id >= first and not self._slo.met(request) for request in engine.take_finished()
            )
            if misses > enough:
                break
        return misses

    def _misses_shared(self, arrivals: Sequence[int], first: int, enough: int) -> int:
        """The misses when several replicas share the arrivals, each request going to one with the fewest."""
        engines = [Engine(self._config, self._timing) for _ in range(self._replicas)]
        changes: list[int | None] = [None] * len(engines)
        misses = 0

        def take(engine: Engine) -> int:
            return sum(r.request_id >= first and not self._slo.met(r) for r in engine.take_finished())

        for request_id, arrival_ns in enumerate(arrivals):
            for index, engine in enumerate(engines):
                change = changes[index]
                if change is not None and change <= arrival_ns:
                    engine.advance(arrival_ns)
                    misses += take(engine)
                    changes[index] = engine.next_change_ns()
            if misses > enough:
                return misses
            index = min(range(len(engines)), key=lambda i: engines[i].running + engines[i].waiting)
            self._submit(engines[index], request_id, arrival_ns)
            changes[index] = engines[index].next_change_ns()
        for engine in engines:
            _run_dry(engine)
            misses += take(engine)
        return misses

    def _submit(self, engine: Engine, request_id: int, arrival_ns: int) -> None:
        _, prompt, output = self._draws[request_id]
        engine.submit(request_id, arrival_ns, prompt, output, computed=self._mix.computed(prompt))

    def _draw(self, count: int) -> None:
        """Extend the draws; those of a shorter trial begin those of a longer one."""
        at = self._draws[-1][0] if self._draws else 0.0
        while len(self._draws) < count:
            at += self._rng.expovariate(1.0)
            pick = bisect(self._cumulative, self._rng.random() * self._cumulative[-1])
            prompt, output = self._mix.pairs[min(pick, len(self._mix.pairs) - 1)]
            self._draws.append((at, prompt, output))


def _run_dry(engine: Engine) -> None:
    while (change := engine.next_change_ns()) is not None:
        engine.advance(change)
