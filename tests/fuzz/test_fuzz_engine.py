"""The engine's closed forms against playing every step."""

from __future__ import annotations

from random import Random

import pytest
from fuzz_budget import seeds

from tonnage.inference.engine import Engine, EngineConfig
from tonnage.inference.timing import LinearTiming


def _engines(rng: Random) -> tuple[Engine, Engine]:
    config = EngineConfig(
        max_num_batched_tokens=rng.choice((1, 8, 40, 256)),
        max_num_seqs=rng.choice((1, 2, 8, 64)),
        max_model_len=rng.choice((60, 200, 1000)),
        kv_blocks=rng.choice((1, 5, 40, 400)),
        block_size=rng.choice((1, 2, 16)),
    )
    timing = LinearTiming(rng.randrange(1, 10**7), rng.randrange(10**5), rng.randrange(100), rng.randrange(5))
    return Engine(config, timing), Engine(config, timing, macro=False)


def _seen(engine: Engine) -> tuple[object, ...]:
    return (
        engine.running,
        engine.waiting,
        engine.blocks_used,
        engine.busy_ns,
        engine.prompt_tokens_total,
        engine.generation_tokens_total,
        engine.preemptions_total,
        engine.take_finished(),
        engine.take_first_tokens(),
    )


@pytest.mark.fuzz
def test_steps_played_together_end_as_steps_played_one_by_one() -> None:
    for seed in seeds():
        rng = Random(seed)
        both = _engines(rng)
        now = 0
        for request in range(rng.randrange(1, 40)):
            now += rng.choice((0, rng.randrange(2_000), rng.randrange(200_000)))
            prompt, output = rng.randrange(1, 120), rng.randrange(1, 80)
            abort = rng.random() < 0.05
            for engine in both:
                engine.advance(now)
                engine.submit(request, now, prompt, output)
                if abort and request in engine._scheduler.requests:
                    engine.abort(request)
            assert _seen(both[0]) == _seen(both[1]), f"seed {seed}"
        for engine in both:
            engine.advance(10**15)
        assert _seen(both[0]) == _seen(both[1]), f"seed {seed}"
        assert (both[0].running, both[0].waiting, both[0].blocks_used) == (0, 0, 0), f"seed {seed}"
