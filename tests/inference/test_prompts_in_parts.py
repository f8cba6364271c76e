"""Long prompts are computed in parts: a row of them is played at once, and nobody sees a difference."""

from __future__ import annotations

import random

import pytest

from tonnage.inference.engine import Engine, EngineConfig
from tonnage.inference.engine.scheduler import EngineScheduler
from tonnage.inference.prompts import BlockNames
from tonnage.inference.timing import BatchTiming, LinearTiming, PolynomialTiming, StepTiming

BLOCK = 4


def seen_of(
    seed: int, timing: StepTiming | BatchTiming, config: EngineConfig, *, macro: bool, caching: bool = True
) -> list[object]:
    """All that can be asked of an engine while it serves prompts of many parts, half of which begin alike."""
    rng, names, seen = random.Random(seed), BlockNames(BLOCK, BLOCK), list[object]()
    engine = Engine(config, timing, macro=macro, prefix_caching=caching)
    beginnings = [[rng.randrange(10**9) for _ in range(120)] for _ in range(2)]
    at = 0
    for number in range(25):
        at += rng.choice((0, rng.randrange(10**7), rng.randrange(10**8)))
        prompt = rng.randint(1, rng.choice((20, 400)))
        own = [rng.randrange(10**9) for _ in range(prompt // BLOCK)]
        common = rng.choice((0, len(own) // 2, len(own)))
        hashes = rng.choice(beginnings)[:common] + own[common:]
        path = names.path(hashes, prompt) if hashes else ()
        engine.advance(rng.randint(engine.now_ns, max(at, engine.now_ns)))
        at = max(at, engine.now_ns)
        seen += [engine.running, engine.waiting, engine.blocks_used, engine.busy_ns, engine.next_change_ns()]
        if engine.cache is not None and rng.random() < 0.3:
            seen.append(engine.cache.match(path, len(hashes)))
        engine.submit(number, at, prompt, rng.randint(1, 30), path=path)
    engine.advance(1 << 60)
    return [*seen, engine.take_finished(), engine.take_first_tokens(), engine.busy_ns, engine.preemptions_total]


@pytest.mark.parametrize("timing", [PolynomialTiming(1_000), LinearTiming(10**9, 10**6, 10**4, 100)])
@pytest.mark.parametrize("blocks", [120, 400], ids=["with preemption", "room for all"])
@pytest.mark.parametrize("caching", [True, False])
def test_parts_in_a_row_are_the_steps_one_by_one(
    timing: StepTiming | BatchTiming, blocks: int, caching: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = EngineConfig(24, 8, 1 << 20, blocks, BLOCK)
    steps: list[int] = []
    schedule = EngineScheduler.schedule

    def counted(self: EngineScheduler, start: int) -> bool:
        steps.append(start)
        return schedule(self, start)

    monkeypatch.setattr(EngineScheduler, "schedule", counted)
    for seed in range(6):
        in_a_row = seen_of(seed, timing, config, macro=True, caching=caching)
        few = len(steps)
        assert in_a_row == seen_of(seed, timing, config, macro=False, caching=caching)
        assert few < 0.7 * (len(steps) - few)
        steps.clear()


def test_what_one_row_of_parts_computes_is_found_by_the_next_prompt() -> None:
    engine = Engine(EngineConfig(8, 4, 1 << 20, 100, BLOCK), LinearTiming(10**9), prefix_caching=True)
    engine.submit(0, 0, 41, 1, path=((0, 10),))
    engine.advance(4_500_000)  # four steps of 1 ms have computed 8 tokens each, and the fifth is in flight
    assert engine.cache is not None
    assert engine.cache.match(((0, 10),), 10) == (10, 0)
    engine.advance(3_600 * 10**9)
    engine.submit(1, 3_600 * 10**9, 41, 1, path=((0, 10),))
    engine.advance(3_601 * 10**9)
    assert [one.cached_tokens for one in engine.take_finished()] == [0, 40]
