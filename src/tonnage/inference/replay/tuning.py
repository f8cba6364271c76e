"""Fits the weights of the ``tonnage`` routing policy to a log, by replaying it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias, get_args

import msgspec
import numpy as np

from tonnage.inference.replay.run import Log, Replay, ReplayWorkers, replay
from tonnage.inference.routing.costs import EngineCosts
from tonnage.inference.routing.seconds import Tonnage, TonnageSettings

Goal: TypeAlias = Literal["latency", "ttft", "ttft-p99", "reuse"]
"""What is made small: mean end-to-end latency, mean or 99th percentile of the time to first token; or the reuse is
made large."""

GOALS: tuple[Goal, ...] = get_args(Goal)

_FITTED = ("later_weight", "evict_weight", "decode_weight", "session_s")
_FACTORS = (0.0, 0.25, 0.5, 2.0, 4.0)


class TriedSettings(msgspec.Struct, frozen=True):
    """One setting and what it scored on the part of the log that is fitted to; lower is better."""

    settings: TonnageSettings
    score: float


class NothingServed(ValueError):
    """No engine holds a single request of a half of the log."""

    def __init__(self, half: str, requests: int) -> None:
        super().__init__(f"none of the {requests:,} requests of the {half} half fits into an engine")


class Tuned(msgspec.Struct, frozen=True):
    """The setting to use: the best on the part of the log that is fitted to, or the defaults where that one
    (``rejected``) is worse than they are on the part that it was not fitted to. ``fitted_after``, ``held_out_after``:
    of the best on the fitted part."""

    settings: TonnageSettings
    trials: tuple[TriedSettings, ...]
    fitted_before: float
    fitted_after: float
    held_out_before: float
    held_out_after: float
    rejected: TonnageSettings | None = None

    @property
    def holds(self) -> bool:
        """Whether it is no worse than the defaults on what it was not fitted to."""
        return self.held_out_after <= self.held_out_before


def score(result: Replay, goal: Goal) -> float:
    """A replay in one number, lower is better: seconds, or the share that was not reused; infinite where nothing was
    served."""
    served = result.served
    if not served:
        return float("inf")
    if goal == "reuse":
        return 1 - result.reuse
    if goal == "latency":
        return sum(one.finish_ns - one.arrival_ns for one in served) / len(served) * 1e-9
    ttft_s = result.ttft_ms * 1e-3
    return float(ttft_s.mean() if goal == "ttft" else np.percentile(ttft_s, 99))


def halves(log: Log) -> tuple[Log, Log]:
    """The first and the second half of a log by requests; paths keep their numbers."""
    middle = len(log) // 2
    return _part(log, 0, middle), _part(log, middle, len(log))


def trials(rounds: int) -> int:
    """Replays that ``tune`` makes at most."""
    return 4 + rounds * len(_FITTED) * len(_FACTORS)


def tune(
    log: Log,
    cluster: ReplayWorkers,
    *,
    goal: Goal = "latency",
    rounds: int = 2,
    event_lag_ns: int = 0,
    seed: int = 0,
    known_outputs: bool = False,
    done: Callable[[int], None] = lambda trials: None,
) -> Tuned:
    """Search one weight after the other, ``rounds`` times over, on the first half of ``log``; check on the second.

    ``done`` is told of each replay. The result is the defaults where nothing is better on both halves. Raises
    ValueError for a log of fewer than two requests, NothingServed where no request of a half fits into an engine.
    """
    if len(log) < 2:
        raise ValueError("a log of one request leaves nothing to check on")
    fitted, held_out = halves(log)

    def play(part: Log, settings: TonnageSettings) -> float:
        policy = Tonnage(EngineCosts(cluster.timing, cluster.config.max_num_batched_tokens), settings)
        played = replay(part, cluster, policy, event_lag_ns=event_lag_ns, seed=seed, known_outputs=known_outputs)
        done(1)
        return score(played, goal)

    start = TonnageSettings()
    best = first = TriedSettings(start, play(fitted, start))
    held_out_before = play(held_out, start)
    for half, part, value in (("first", fitted, first.score), ("second", held_out, held_out_before)):
        if value == float("inf"):
            raise NothingServed(half, len(part))
    tried = {start: first.score}
    for _ in range(rounds):
        before = best
        for name in _FITTED:
            for factor in _FACTORS:
                value = getattr(best.settings, name) * factor
                settings = msgspec.structs.replace(best.settings, **{name: value})
                if settings in tried:
                    continue
                tried[settings] = play(fitted, settings)
                if tried[settings] < best.score:
                    best = TriedSettings(settings, tried[settings])
        if best is before:
            break
    held_out_after = play(held_out, best.settings)
    worse = held_out_after > held_out_before
    return Tuned(
        start if worse else best.settings,
        tuple(TriedSettings(settings, value) for settings, value in tried.items()),
        first.score,
        best.score,
        held_out_before,
        held_out_after,
        best.settings if worse else None,
    )


def _part(log: Log, start: int, stop: int) -> Log:
    return Log(
        log.arrival_ns[start:stop],
        log.prompt[start:stop],
        log.output[start:stop],
        log.paths[start:stop],
        log.sessions[start:stop],
        log.priorities[start:stop],
    )
