"""Estimates of serving points: one, many, their bands, their domain."""

from __future__ import annotations

import csv
import itertools
from importlib.resources import files

import numpy as np
import pytest
from msgspec.structs import replace

from inference.estimate.estimate_builders import replica
from tonnage.errors import InputError
from tonnage.facts import gpus, models
from tonnage.inference.estimate import FRAMEWORKS, Load, Replica, estimate, estimate_many, step_seconds
from tonnage.inference.estimate.case import check_room
from tonnage.inference.estimate.constants import REGIMES, bands, constants

LOAD = Load(16, 1024, 512)


def many() -> list[tuple[Replica, Load]]:
    """Every framework and kind of model, cards of all kinds, light and heavy loads."""
    found = []
    shapes = ("Llama-3.1-8B", "Qwen3-235B-A22B", "DeepSeek-V3", "gpt-oss-120b", "Qwen3.5-35B-A3B", "gemma-3-27b")
    kinds = itertools.product(shapes, ("h100", "h200", "gb200", "l40s"), (1, 8), (1, 4), FRAMEWORKS)
    for name, gpu, tp, dp, framework in kinds:
        one = Replica(
            models.get(name), gpus.get(gpu), "fp8", tensor_parallel=tp, data_parallel=dp, framework=framework,
            separate_prefill=gpu == "gb200", pipeline_parallel=2 if gpu == "l40s" else 1,
        )  # fmt: skip
        try:
            check_room(one)
        except InputError:
            continue
        found += [(one, Load(concurrency, 3000, 300)) for concurrency in (1, 33, 4000)]
    return found


def test_one_estimate_and_many_at_once_agree() -> None:
    cases = many()
    assert len(cases) > 200
    together = estimate_many(cases)
    for index, (one, load) in enumerate(cases):
        alone = estimate(one, load)
        for name in ("ttft_s", "tpot_s", "running", "room", "requests_per_s", "ttft_band_s", "tpot_band_s"):
            np.testing.assert_allclose(getattr(together, name)[index], getattr(alone, name), rtol=1e-12)


def test_every_estimate_is_positive_and_inside_its_band() -> None:
    found = estimate_many(many())
    for value, band in ((found.ttft_s, found.ttft_band_s), (found.tpot_s, found.tpot_band_s)):
        assert np.all((band[:, 0] > 0) & (band[:, 0] < value) & (value < band[:, 1]) & np.isfinite(band[:, 1]))
    assert np.all((found.requests_per_s > 0) & (found.running > 0))


def test_more_requests_in_flight_are_slower_each_and_faster_together() -> None:
    points = [estimate(replica(), Load(concurrency, 1024, 512)) for concurrency in (1, 2, 8, 32, 64)]
    for name in ("ttft_s", "tpot_s", "output_tokens_per_s"):
        values = [getattr(point, name) for point in points]
        assert values == sorted(values)
        assert values[0] < values[-1]


def test_throughput_is_that_of_the_requests_in_flight() -> None:
    found = estimate(replica(), LOAD)
    assert found.requests_per_s * (found.ttft_s + 511 * found.tpot_s) == pytest.approx(16)
    assert found.output_tokens_per_s == pytest.approx(512 * found.requests_per_s)
    assert found.total_tokens_per_s == pytest.approx(1536 * found.requests_per_s)


def test_requests_beyond_the_room_wait_and_the_estimate_says_so() -> None:
    small = replica(kv_tokens=20_000)
    found, easy = estimate(small, Load(40, 1024, 512)), estimate(replica(), Load(40, 1024, 512))
    assert found.running == found.room < 40 == easy.running
    assert found.ttft_s > 10 * easy.ttft_s
    assert any("KV cache" in note for note in found.notes)
    assert not easy.notes
    assert found.tpot_band_s[0] / found.tpot_s < easy.tpot_band_s[0] / easy.tpot_s


def test_a_card_without_measured_points_has_a_wider_band_and_a_note() -> None:
    seen, unseen = estimate(replica(), LOAD), estimate(replica(gpu="a100-80"), LOAD)
    assert unseen.tpot_band_s[1] / unseen.tpot_s > seen.tpot_band_s[1] / seen.tpot_s
    assert any("a100-80" in note for note in unseen.notes)


def test_frameworks_cost_time_and_none_costs_none() -> None:
    bare = estimate(replica(framework=""), LOAD)
    for framework in FRAMEWORKS:
        assert estimate(replica(framework=framework), LOAD).tpot_s > bare.tpot_s
    assert any("no framework" in note for note in bare.notes)


@pytest.mark.parametrize("load", [Load(16, 1024, 1024), Load(64, 8192, 512), Load(1, 1024, 128)])
def test_a_request_waits_until_the_engine_looks_for_requests(load: Load) -> None:
    often, seldom = (estimate(replica(framework="sglang", wait_steps=steps), load) for steps in (0.0, 14.5))
    assert seldom.tpot_s == often.tpot_s
    waited = seldom.ttft_s - often.ttft_s
    if load.concurrency == 1:
        assert waited == 0
    else:
        assert 0.85 * 14.5 * decode_step(load) < waited < 15 * seldom.tpot_s * (1 + load.concurrency / 16)


def decode_step(load: Load) -> float:
    shape, context = models.get("Llama-3.1-8B"), load.input_tokens + load.output_tokens / 2
    return step_seconds(shape, "h100", batch=int(load.concurrency), context=context, framework="sglang")


def test_launches_are_paid_in_steps_with_prompts_and_where_there_is_a_framework() -> None:
    shape, more = models.get("Llama-3.1-8B"), replace(constants(), launch_layer_s=constants().launch_layer_s + 1e-4)
    for framework, prompt, paid in (("vllm", 512, 32e-4), ("vllm", 0, 0.0), ("", 512, 0.0)):
        usual, slower = (
            step_seconds(shape, "h100", batch=4, context=100, prompt_tokens=prompt, framework=framework, constants=c)
            for c in (constants(), more)
        )
        assert slower - usual == pytest.approx(paid, abs=1e-12)


def test_the_tokens_of_a_prompt_cost_time_before_its_first_token_alone() -> None:
    more = replace(constants(), prompt_token_s=constants().prompt_token_s + 1e-5)
    usual, slower = (estimate(replica(), LOAD, constants=c) for c in (constants(), more))
    assert slower.ttft_s - usual.ttft_s == pytest.approx(1024e-5)
    assert slower.tpot_s == usual.tpot_s


@pytest.mark.parametrize(("ranks", "paid"), [(1, 0.0), (8, 2 * 58e-4)])
def test_two_all_to_alls_of_a_layer_of_experts_wait_where_attention_is_data_parallel(ranks: int, paid: float) -> None:
    one = replica("DeepSeek-V3", "b200", "fp8", tensor_parallel=8 // ranks, data_parallel=ranks)
    more = replace(constants(), all_to_all_s=constants().all_to_all_s + 1e-4)
    usual, slower = (estimate(one, Load(1, 1024, 256), constants=c) for c in (constants(), more))
    assert slower.tpot_s - usual.tpot_s == pytest.approx(paid)


def test_prompts_computed_elsewhere_do_not_delay_decoding() -> None:
    load = Load(2048, 8192, 1024)
    together, apart = (
        estimate(replica("DeepSeek-V3", "gb200", "fp8", data_parallel=32, separate_prefill=apart), load)
        for apart in (False, True)
    )
    assert apart.tpot_s < 0.7 * together.tpot_s


def test_wide_expert_parallelism_spreads_the_experts_it_reads() -> None:
    eight, wide = (
        estimate(replica("DeepSeek-V3", "gb200", "fp8", data_parallel=ranks), Load(64 * ranks, 1024, 1024))
        for ranks in (8, 64)
    )
    assert wide.tpot_s < eight.tpot_s
    assert wide.output_tokens_per_s > 8 * eight.output_tokens_per_s


def test_pipeline_stages_share_the_layers_and_the_requests() -> None:
    whole = estimate(replica("Llama-3.1-70B", "h200", "fp8"), Load(64, 1024, 512))
    halves = estimate(replica("Llama-3.1-70B", "h200", "fp8", pipeline_parallel=2), Load(64, 1024, 512))
    assert halves.room > 2 * whole.room  # the second GPU holds no second copy of the weights
    assert halves.tpot_s < whole.tpot_s
    given = replica("Llama-3.1-70B", "h200", "fp8", pipeline_parallel=2, kv_tokens=100_000)
    assert estimate(given, LOAD).room == pytest.approx(100_000 / (1024 + 0.5 * 512), rel=0.01)


@pytest.mark.parametrize(
    ("one", "load", "said"),
    [
        (replica("Llama-3.1-70B", "l4"), LOAD, r"needs .* GiB of weights on each of 1 x l4"),
        (replica(tensor_parallel=3), LOAD, "does not divide the 32 attention heads"),
        (replica(data_parallel=0), LOAD, "data_parallel is 0"),
        (replica(pipeline_parallel=33), LOAD, "pipeline parallel size 33 with 32 layers"),
        (replica(framework="ollama"), LOAD, "unknown framework 'ollama'"),
        (replica(precision="fp5"), LOAD, "fp5"),
        (replica(kv_precision="int4"), LOAD, "no engine keeps its KV cache in int4"),
        (replica(), Load(0, 1024, 512), "concurrency is 0"),
        (replica(), Load(1, 0, 512), "input_tokens is 0"),
        (replica(), Load(1, 10, float("nan")), "output_tokens is nan"),
        (replica("Qwen3-8B"), Load(1, 40_000, 2_000), "has a context of 40960"),
    ],
)
def test_outside_its_domain_it_refuses_and_says_why(one: Replica, load: Load, said: str) -> None:
    with pytest.raises(InputError, match=said):
        estimate(one, load)
    with pytest.raises(InputError, match=said):
        estimate_many([(replica(), LOAD), (one, load)])


def test_every_constant_has_a_unit_and_a_source_and_is_used() -> None:
    text = (files("tonnage.inference") / "data" / "estimator.csv").read_text()
    rows = list(csv.DictReader(text.splitlines()))
    assert {row["name"] for row in rows} == set(constants().__struct_fields__)
    assert all(row["unit"] and row["source"] for row in rows)
    assert set(bands()) == {"tpot", "ttft"}
    assert all(len(band.low) == len(band.high) == len(REGIMES) for band in bands().values())
