"""Replicas, and an engine of the simulator under a fixed number of clients."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tonnage.facts import gpus, models
from tonnage.inference.engine import Engine, EngineConfig
from tonnage.inference.estimate import Load, Replica
from tonnage.inference.timing import StepTiming


def replica(model: str = "Llama-3.1-8B", gpu: str = "h100", precision: str = "bf16", **rest: object) -> Replica:
    return Replica(models.get(model), gpus.get(gpu), precision, **rest)  # type: ignore[arg-type]


def simulate(
    timing: StepTiming,
    load: Load,
    *,
    kv_tokens: int,
    batched: int = 8192,
    rounds: int = 10,
    spread: float = 0.2,
    mixed_steps: bool = True,
) -> tuple[float, float]:
    """(mean TTFT, mean TPOT) in seconds of clients that each send ``rounds`` requests, one after another, whose lengths
    are uniform within ``spread`` of the load's. Without ``mixed_steps`` the engine computes prompts first."""
    clients = int(load.concurrency)
    lengths = _lengths(load, clients * rounds, spread)
    engine = Engine(EngineConfig(batched, 4096, 10**6, kv_tokens // 16, mixed_steps=mixed_steps), timing)
    sent = 0
    for _ in range(clients):
        engine.submit(sent, 0, *next(lengths))
        sent += 1
    first, each, now = [], [], 0
    while len(first) < clients * rounds:
        change = engine.next_change_ns()
        assert change is not None
        now = max(now, change)
        engine.advance(now)
        for done in engine.take_finished():
            assert done.ttft_ns is not None
            first.append(done.ttft_ns)
            each.append(done.tpot_ns)
            if sent < clients * rounds:
                engine.submit(sent, now, *next(lengths))
                sent += 1
    return float(np.mean(first)) / 1e9, float(np.mean(each)) / 1e9


def _lengths(load: Load, count: int, spread: float) -> Iterator[tuple[int, int]]:
    drawn = 1 + spread * (2 * np.random.default_rng(0).random((count, 2)) - 1)
    for one, other in drawn.tolist():
        yield max(1, round(load.input_tokens * one)), max(2, round(load.output_tokens * other))
