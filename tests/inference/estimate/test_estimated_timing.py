"""The estimator's step time drives the simulator's engine."""

from __future__ import annotations

import pytest

from inference.estimate.estimate_builders import replica
from tonnage.errors import InputError
from tonnage.inference.engine import Engine, EngineConfig
from tonnage.inference.estimate import EstimatedTiming, step_seconds
from tonnage.inference.timing import StepTiming


def test_it_is_a_step_timing_equal_and_hashed_by_what_it_is_made_of() -> None:
    one, same = EstimatedTiming(replica()), EstimatedTiming(replica())
    assert isinstance(one, StepTiming)
    assert one == same
    assert hash(one) == hash(same)
    assert one != EstimatedTiming(replica(gpu="h200"))


@pytest.mark.parametrize("model", ["Llama-3.1-8B", "DeepSeek-V3", "gpt-oss-120b", "Qwen3-30B-A3B"])
def test_one_more_cached_token_of_a_decoding_sequence_adds_exactly_its_time(model: str) -> None:
    tp = 4 if model == "Qwen3-30B-A3B" else 8
    timing = EstimatedTiming(replica(model, "h200", "fp8", tensor_parallel=tp))
    shorter, longer = timing.step_ps(7, 5000, 5007), timing.step_ps(7, 5001, 5008)
    assert longer - shorter == timing.decode_token_ps > 0


@pytest.mark.parametrize("framework", ["", "vllm"])
def test_a_decode_step_takes_what_step_seconds_says_save_the_time_of_each_sequence(framework: str) -> None:
    one = replica("Llama-3.1-70B", precision="fp8", tensor_parallel=4, framework=framework)
    found = EstimatedTiming(one).step_ps(16, 16 * 2000, 16 * 2001) / 1e12
    said = step_seconds(
        one.shape, one.gpu, batch=16, context=2000, precision="fp8", tensor_parallel=4, framework=framework
    )
    assert found == pytest.approx(said, rel=0.03 if framework else 0.01)


def test_steps_summed_in_closed_form_equal_steps_played_one_by_one() -> None:
    ends = []
    for macro in (True, False):
        engine = Engine(EngineConfig(2048, 64, 8192, 10_000), EstimatedTiming(replica()), macro=macro)
        for number in range(12):
            engine.submit(number, number * 3_000_000, 100 + 57 * number, 20 + 13 * number)
        engine.advance(10**12)
        ends.append([(done.request_id, done.first_token_ns, done.finish_ns) for done in engine.take_finished()])
    assert ends[0] == ends[1]
    assert len(ends[0]) == 12


def test_a_model_that_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match="GiB of weights"):
        EstimatedTiming(replica("Llama-3.1-70B", "l4"))
