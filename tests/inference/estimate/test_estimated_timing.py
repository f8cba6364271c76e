"""The estimator's step time drives the simulator's engine."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.estimate.estimate_builders import replica
from inference.reference_engine import ReferenceEngine
from tonnage.errors import InputError
from tonnage.inference.engine import Engine, EngineConfig
from tonnage.inference.estimate import EstimatedTiming, Replica, step_seconds
from tonnage.inference.timing import StepTiming, StepWork, decode_work, prompt_work


def test_it_is_a_step_timing_equal_and_hashed_by_what_it_is_made_of() -> None:
    one, same = EstimatedTiming(replica()), EstimatedTiming(replica())
    assert isinstance(one, StepTiming)
    assert one == same
    assert hash(one) == hash(same)
    assert one != EstimatedTiming(replica(gpu="h200"))


MODELS = ["Llama-3.1-8B", "DeepSeek-V3", "gpt-oss-120b", "Qwen3-30B-A3B", "Qwen3.5-122B-A10B", "gemma-3-27b"]


def on_h200(model: str, framework: str = "vllm") -> Replica:
    tp = 4 if model in ("Qwen3-30B-A3B", "Qwen3.5-122B-A10B") else 8
    return replica(model, "h200", "fp8", tensor_parallel=tp, framework=framework)


@pytest.mark.parametrize("model", MODELS)
def test_one_more_cached_token_of_a_decoding_sequence_adds_exactly_its_time(model: str) -> None:
    timing = EstimatedTiming(on_h200(model))
    work = StepWork(7, 5000, 700, 2, 90, 400, 3000, 500)
    assert timing.step(work._replace(cached=5001)) - timing.step(work) == timing.decode_token > 0
    assert timing.step(work._replace(window_cached=701)) - timing.step(work) == timing.window_token
    assert (timing.window_token > 0) == (timing.window > 0) == (model in ("gpt-oss-120b", "gemma-3-27b"))


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(MODELS),
    st.sampled_from(["", "vllm", "sglang"]),
    st.integers(0, 1024),
    st.integers(1, 8000),
    st.integers(0, 8),
    st.integers(1, 8192),
    st.integers(0, 100_000),
)
def test_a_step_takes_what_step_seconds_says_to_a_nanosecond(
    model: str, framework: str, batch: int, context: int, prompts: int, tokens: int, behind: int
) -> None:
    one = on_h200(model, framework)
    if not batch and not prompts:
        batch = 1
    timing = EstimatedTiming(one)
    single = prompt_work(tokens, behind, timing.window)
    work = StepWork(*decode_work(batch, batch * context, timing.window)[:3], *(prompts * part for part in single[3:]))
    said = step_seconds(
        one.shape,
        one.gpu,
        batch=batch,
        context=context,
        prompt_tokens=tokens if prompts else 0,
        prompts=max(1, prompts),
        prompt_cached=behind,
        precision="fp8",
        tensor_parallel=one.tensor_parallel,
        framework=framework,
    )
    each_rounded = work.cached + work.window_cached + work.prompt_cached + work.pairs + work.window_pairs
    assert timing.step(work) / 1e18 == pytest.approx(said, abs=max(1e-9, 0.51e-18 * each_rounded), rel=1e-12)


def ends(model: str, *, macro: bool, arrivals: list[tuple[int, int, int]], blocks: int = 4000) -> list[object]:
    """When each request ended on an engine, asked for its next change over and over as a simulation does."""
    engine = Engine(EngineConfig(2048, 64, 8192, blocks), EstimatedTiming(on_h200(model)), macro=macro)
    now = 0
    for number, (gap, prompt, output) in enumerate(arrivals):
        now += gap
        engine.advance(now)
        engine.submit(number, now, prompt, output)
    while (change := engine.next_change_ns()) is not None:
        engine.advance(max(now, change))
    found: list[object] = [(one.request_id, one.first_token_ns, one.finish_ns) for one in engine.take_finished()]
    return [*found, engine.busy_ns]


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["Llama-3.1-8B", "gpt-oss-120b", "gemma-3-27b"]),
    st.lists(st.tuples(st.integers(0, 60_000_000), st.integers(1, 1500), st.integers(1, 300)), min_size=1, max_size=14),
    st.sampled_from([120, 250, 4000]),
)
def test_steps_summed_in_closed_form_equal_steps_played_one_by_one(
    model: str, arrivals: list[tuple[int, int, int]], blocks: int
) -> None:
    macro = ends(model, macro=True, arrivals=arrivals, blocks=blocks)
    assert macro == ends(model, macro=False, arrivals=arrivals, blocks=blocks)
    assert len(macro) == len(arrivals) + 1


@pytest.mark.parametrize("model", ["Llama-3.1-8B", "gpt-oss-120b"])
def test_the_engine_takes_the_steps_of_the_scheduler_written_down(model: str) -> None:
    requests = [(number, number * 9_000_000, 60 + 37 * number, 20 + 31 * number) for number in range(9)]
    config, timing = EngineConfig(512, 8, 4096, 300), EstimatedTiming(on_h200(model))
    oracle = ReferenceEngine(config, timing)
    oracle.run(requests)
    engine = Engine(config, timing)
    for request in requests:
        engine.submit(*request)
    engine.advance(10**12)
    found = {one.request_id: (one.first_token_ns, one.finish_ns) for one in engine.take_finished()}
    assert found == {one.request_id: (one.first_token_ns, one.finish_ns) for one in oracle.done}


def test_a_model_that_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match="GiB of weights"):
        EstimatedTiming(replica("Llama-3.1-70B", "l4"))
