"""One step from a shape and a card."""

from __future__ import annotations

import csv
from math import exp, log
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from msgspec.structs import replace

from tonnage.errors import InputError
from tonnage.facts import gpus, mig, models
from tonnage.inference.estimate import Constants, plain_shape, step_seconds
from tonnage.inference.estimate.constants import constants as shipped

LAYERS = Path(__file__).parents[3] / "benchmarks" / "data" / "gpu_layers_h100.csv"
SIZES = {
    "llama-8b": {"hidden": 4096, "heads": 32, "kv_heads": 8, "head_dim": 128, "ffn": 14336},
    "llama-70b": {"hidden": 8192, "heads": 64, "kv_heads": 8, "head_dim": 128, "ffn": 28672},
    "qwen-7b": {"hidden": 3584, "heads": 28, "kv_heads": 4, "head_dim": 128, "ffn": 18944},
}
LLAMA = models.get("Llama-3.1-8B")


measured = pytest.mark.skipif(not LAYERS.exists(), reason="no measured layers beside this checkout")


def measured_layers() -> list[dict[str, str]]:
    with LAYERS.open() as lines:
        return list(csv.DictReader(lines))


def ratio(row: dict[str, str], constants: Constants | None = None) -> float:
    """What is said of a layer over what was measured."""
    tokens = int(row["context"])
    asked: dict[str, Any] = {"prompt_tokens": tokens}
    if row["kind"] == "decode":
        asked = {"batch": int(row["batch"]), "context": tokens}
    layer = plain_shape(layers=1, **SIZES[row["shape"]])
    return step_seconds(layer, "h100", constants=constants, **asked) * 1e6 / float(row["us"])


@measured
@pytest.mark.parametrize("column", ["kind", "shape"])
def test_layers_of_a_real_h100_take_what_is_said_to_10_percent_in_the_median(column: str) -> None:
    rows = measured_layers()
    for value in {row[column] for row in rows}:
        off = [abs(ratio(row) - 1) for row in rows if row[column] == value]
        assert len(off) >= 9
        assert median(off) < 0.10


@measured
def test_efficiencies_fitted_on_one_shape_hold_for_the_others_to_15_percent_in_the_median() -> None:
    optimize = pytest.importorskip("scipy.optimize", reason="fitting needs scipy")
    rows, names = measured_layers(), ("weight_bandwidth", "kv_bandwidth", "compute", "attention_compute", "layer_s")

    def changed(logs: Any) -> Constants:
        return replace(shipped(), **dict(zip(names, map(exp, logs), strict=True)))

    def residuals(logs: Any) -> list[float]:
        fitted = changed(logs)
        return [log(ratio(row, fitted)) for row in rows if row["shape"] == "llama-8b"]

    start = [log(prior) for prior in (0.8, 0.8, 0.7, 0.5, 1e-5)]
    fitted = changed(optimize.least_squares(residuals, start, loss="soft_l1", f_scale=0.05).x)
    assert median(abs(ratio(row, fitted) - 1) for row in rows if row["shape"] != "llama-8b") < 0.15


@pytest.mark.parametrize(
    "card", ["h100", "h100:1g.10gb", "a100-40:2g.10gb", "l40s", "t4", "v100", "b300", "rtx-pro-6000"]
)
def test_one_layer_with_or_without_vocabulary_has_a_time_on_every_card(card: str) -> None:
    sizes = SIZES["llama-8b"]
    bare, headed = plain_shape(layers=1, **sizes), plain_shape(layers=1, vocab=128256, **sizes)
    for asked in ({"batch": 8, "context": 1024}, {"prompt_tokens": 2048}):
        one, more = (step_seconds(shape, card, **asked) for shape in (bare, headed))
        assert 0 < one < more
    assert more - one > 128256 * 4096 / gpus.get(card.partition(":")[0]).bandwidth_bytes_per_s


def test_a_step_is_never_faster_than_reading_the_weights_or_multiplying_them() -> None:
    h100 = gpus.get("h100")
    read = (LLAMA.params - LLAMA.vocab * LLAMA.hidden) * 2 / h100.bandwidth_bytes_per_s
    assert read < step_seconds(LLAMA, h100, batch=1, context=1) < 1.6 * read
    multiplied = 2 * (LLAMA.params - 2 * LLAMA.vocab * LLAMA.hidden) * 8192 / h100.bf16_flops
    assert multiplied < step_seconds(LLAMA, h100, prompt_tokens=8192) < 2.5 * multiplied


def test_a_shape_from_its_sizes_is_the_one_of_the_table() -> None:
    given = plain_shape(layers=32, hidden=4096, heads=32, kv_heads=8, head_dim=128, ffn=14336, vocab=128256)
    assert given.params == LLAMA.params
    one, other = (step_seconds(shape, "h100", batch=8, context=700) for shape in (given, LLAMA))
    assert one == other


def test_layers_add_up() -> None:
    sizes = SIZES["llama-8b"]
    one, four = (step_seconds(plain_shape(layers=n, **sizes), "a100", batch=4, context=512) for n in (1, 4))
    assert four == pytest.approx(4 * one, rel=1e-4)  # but for the last norm


def test_a_mig_instance_is_the_card_with_its_shares() -> None:
    h100 = gpus.get("h100")
    profile = mig.get("h100", "3g.40gb")
    named = step_seconds(LLAMA, "h100:3g.40gb", batch=4, context=512)
    shared = step_seconds(
        LLAMA, h100, batch=4, context=512, sm_share=profile.compute_share, bandwidth_share=profile.memory_share
    )
    assert named == pytest.approx(shared, rel=1e-6)
    assert 1.5 < named / step_seconds(LLAMA, h100, batch=4, context=512) < 2.5


def test_half_of_the_bandwidth_slows_decoding_and_half_of_the_arithmetic_slows_prompts() -> None:
    decode: dict[str, Any] = {"batch": 1, "context": 100}
    prompt: dict[str, Any] = {"prompt_tokens": 8192}
    whole_decode, whole_prompt = (step_seconds(LLAMA, "h100", **asked) for asked in (decode, prompt))
    assert step_seconds(LLAMA, "h100", bandwidth_share=0.5, **decode) > 1.6 * whole_decode
    assert step_seconds(LLAMA, "h100", sm_share=0.5, **decode) < 1.05 * whole_decode
    assert step_seconds(LLAMA, "h100", sm_share=0.5, **prompt) > 1.7 * whole_prompt
    assert step_seconds(LLAMA, "h100", bandwidth_share=0.5, **prompt) < 1.2 * whole_prompt


def test_two_prompts_take_the_attention_of_two_and_not_of_one_twice_as_long() -> None:
    two = step_seconds(LLAMA, "h100", prompt_tokens=8192, prompts=2)
    long = step_seconds(LLAMA, "h100", prompt_tokens=16384)
    assert two < long
    behind = step_seconds(LLAMA, "h100", prompt_tokens=8192, prompt_cached=8192)
    assert behind + step_seconds(LLAMA, "h100", prompt_tokens=8192) == pytest.approx(long, rel=0.05)


def test_few_tokens_touch_few_experts() -> None:
    mixture = models.get("Qwen3-235B-A22B")
    times = [
        step_seconds(mixture, "h200", batch=batch, context=1, precision="fp8", tensor_parallel=4)
        for batch in (1, 2, 4, 64, 128)
    ]
    assert times[1] - times[0] > 10 * (times[4] - times[3]) / 64
    assert sorted(times) == times


def test_a_window_bounds_what_a_context_costs() -> None:
    windowed = models.get("gpt-oss-20b")

    def growth(low: int, high: int) -> float:
        ends = [step_seconds(windowed, "h100", batch=16, context=tokens, precision="mxfp4") for tokens in (low, high)]
        return (ends[1] - ends[0]) / (high - low)

    assert growth(10, 128) == pytest.approx(2 * growth(1000, 2000), rel=0.01)


def test_ranks_on_pcie_and_over_the_network_are_slower_than_on_nvlink() -> None:
    seventy = models.get("Llama-3.1-70B")

    def prompt(card: str, ranks: int) -> float:
        return step_seconds(seventy, card, prompt_tokens=4096, precision="fp8", tensor_parallel=ranks)

    slower = gpus.get("h100").bf16_flops / gpus.get("h100-pcie").bf16_flops
    assert prompt("h100-pcie", 8) > 1.5 * slower * prompt("h100", 8)
    assert prompt("b200", 16) > 2 * prompt("gb200", 16)


def test_a_card_without_fp8_multiplies_in_16_bits_and_reads_8() -> None:
    prompts = [step_seconds(LLAMA, "a100", prompt_tokens=8192, precision=name) for name in ("bf16", "fp8")]
    decodes = [step_seconds(LLAMA, "a100", batch=1, precision=name) for name in ("bf16", "fp8")]
    assert prompts[0] < prompts[1] < 1.5 * prompts[0]  # which it unpacks them for
    assert decodes[1] < 0.75 * decodes[0]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, "computes nothing"),
        ({"batch": -1}, "batch is -1"),
        ({"batch": 1, "context": float("inf")}, "context is inf"),
        ({"batch": 1, "tensor_parallel": 3}, "does not divide the 32 attention heads"),
        ({"batch": 1, "tensor_parallel": 0}, "tensor_parallel is 0"),
        ({"batch": 1, "sm_share": 0.0}, r"sm_share is 0\.0"),
        ({"batch": 1, "bandwidth_share": 1.5}, r"bandwidth_share is 1\.5"),
        ({"batch": 1, "framework": "vlm"}, "unknown framework 'vlm'"),
        ({"batch": 1, "precision": "fp7"}, "fp7"),
        ({"prompt_tokens": 10, "prompts": 0}, "prompts is 0"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_was_given(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        step_seconds(LLAMA, "h100", **asked)


def test_an_unknown_card_names_its_neighbours() -> None:
    with pytest.raises(InputError, match="h100"):
        step_seconds(LLAMA, "h10", batch=1)


@pytest.mark.parametrize("wrong", [{"heads": 30}, {"ffn": 0}, {"layers": 0}, {"vocab": -1}])
def test_sizes_that_contradict_each_other_are_refused(wrong: dict[str, int]) -> None:
    sizes = {"layers": 1, **SIZES["llama-8b"], **wrong}
    with pytest.raises(InputError):
        plain_shape(**sizes)
