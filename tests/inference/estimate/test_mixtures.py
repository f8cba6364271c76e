"""Mixtures of experts: how tokens lie on experts, what formats and parallelism change, and blocks of a real H200."""

from __future__ import annotations

from statistics import median

import numpy as np
import pytest
from estimate_builders import replica
from msgspec.structs import replace

from benchmarks import estimator_layers, gpu_layers, gpu_mixtures
from tonnage.errors import InputError
from tonnage.facts import models
from tonnage.inference.estimate import Load, estimate, mixture_seconds, plain_shape, step_seconds
from tonnage.inference.estimate.case import figures
from tonnage.inference.estimate.constants import constants
from tonnage.inference.estimate.mixture import spread
from tonnage.inference.estimate.step import expert_seconds

MODEL = "Qwen3-235B-A22B"


def drawn(experts: int, each: int, tokens: int, skew: float, rounds: int = 200) -> np.ndarray:
    """Tokens of each expert, shape (rounds, experts), of tokens that draw distinct experts by their popularity."""
    chance = np.random.default_rng(7)
    counts = np.zeros((rounds, experts))
    for index in range(rounds):
        popular = chance.gamma(skew**-2, skew**2, experts) if skew else np.ones(experts)
        scores = np.log(np.maximum(popular, 1e-9)) + chance.gumbel(size=(tokens, experts))
        chosen = np.argpartition(-scores, each - 1, axis=1)[:, :each]
        counts[index] = np.bincount(chosen.ravel(), minlength=experts)
    return counts


@pytest.mark.parametrize("skew", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("tokens", [1, 8, 64])
@pytest.mark.parametrize(("experts", "each"), [(128, 8), (128, 4), (32, 4)])
def test_as_many_experts_are_touched_as_tokens_that_draw_them_touch(
    experts: int, each: int, tokens: int, skew: float
) -> None:
    shape = plain_shape(
        layers=1, hidden=1024, heads=8, experts=experts, experts_per_token=each, expert_ffn=512, name="drawn"
    )
    known = figures(replace(replica(), shape=shape))
    said = spread(replace(constants(), expert_skew=skew or 0.01), known, float(tokens)).touched
    assert said == pytest.approx((drawn(experts, each, tokens, skew) > 0).mean(), rel=0.08)


def test_the_busiest_rank_of_experts_is_as_busy_as_that_of_tokens_that_draw_them() -> None:
    known = figures(replica(MODEL, "h200", "fp8", data_parallel=8))
    for tokens, skew in ((256, 0.5), (2048, 0.5), (2048, 0.2)):
        loads = drawn(128, 8, tokens, skew, 100).reshape(100, 8, 16).sum(axis=2)
        said = spread(replace(constants(), expert_skew=skew), known, float(tokens)).busiest
        assert said == pytest.approx((loads.max(axis=1) / loads.mean(axis=1)).mean(), rel=0.12)


def test_tiles_are_padded_less_the_fuller_experts_are_and_never_below_what_is_sent() -> None:
    known = figures(replica(MODEL, "h200", "fp8"))
    padded = [spread(constants(), known, float(tokens)).padded for tokens in (1, 16, 256, 4096, 65536)]
    assert padded == sorted(padded, reverse=True)
    assert 1 < padded[-1] < 1.05


def test_one_rank_has_no_busiest_and_ranks_of_whole_experts_have() -> None:
    alone, whole = (
        figures(replica(MODEL, "h200", "fp8", tensor_parallel=8, expert_parallel=parallel))
        for parallel in (False, True)
    )
    assert spread(constants(), alone, 64.0).busiest == 1
    assert spread(constants(), whole, 64.0).busiest > 1.1
    assert whole.expert_moved < alone.expert_moved
    assert expert_seconds(constants(), whole, 8.0) > expert_seconds(constants(), alone, 8.0)


@pytest.mark.parametrize(
    ("gpu", "precision", "unpacked", "fp8", "fp4"),
    [
        ("h100", "mxfp4", 1, 0, 0),
        ("a100", "mxfp4", 1, 0, 0),
        ("b200", "mxfp4", 0, 1, 0),
        ("h100", "fp4", 1, 0, 0),
        ("b200", "fp4", 0, 1, 1),
        ("h200", "fp8", 0, 1, 0),
        ("a100", "fp8", 1, 0, 0),
        ("h200", "int4", 1, 0, 0),
        ("h200", "bf16", 0, 0, 0),
    ],
)
def test_weights_are_unpacked_where_the_tensor_cores_lack_their_format(
    gpu: str, precision: str, unpacked: int, fp8: int, fp4: int
) -> None:
    known = figures(replica("gpt-oss-20b", gpu, precision))
    assert (known.expert_unpacked, known.expert_fp8, known.expert_fp4) == (unpacked, fp8, fp4)
    assert known.dense_unpacked == (0 if precision == "mxfp4" else unpacked)
    assert known.expert_peak >= known.attention_flops


def test_what_tokens_move_does_not_shrink_with_the_width_of_experts() -> None:
    one, eight = (figures(replica(MODEL, "h200", "fp8", tensor_parallel=tp)) for tp in (1, 8))
    assert one.expert_bytes / eight.expert_bytes == pytest.approx(8)
    assert 1.2 < one.expert_moved / eight.expert_moved < 3


def test_a_prompt_through_gpt_oss_on_an_h200_takes_a_third_of_a_second() -> None:
    prompt = mixture_seconds(models.get("gpt-oss-120b"), "h200", 8192, precision="mxfp4")
    assert 0.1 < prompt < 0.4
    bf16 = mixture_seconds(models.get("gpt-oss-120b"), "h200", 8192)
    assert bf16 == pytest.approx(36 * 5.25e-3, rel=0.35)  # 36 blocks as they were measured


def test_blocks_refuse_what_has_no_experts_or_no_tokens() -> None:
    with pytest.raises(InputError, match="has no experts"):
        mixture_seconds(models.get("Llama-3.1-8B"), "h100", 16)
    with pytest.raises(InputError, match="tokens is 0"):
        mixture_seconds(models.get(MODEL), "h100", 0)


def test_measured_blocks_touch_as_many_experts_as_is_said() -> None:
    off = []
    for row in estimator_layers.rows("gpu_mixtures_h200.csv"):
        experts, each, hidden, width = gpu_mixtures.SHAPES[row["shape"]]
        shape = plain_shape(
            layers=1,
            hidden=hidden,
            heads=hidden // 64,
            head_dim=64,
            experts=experts,
            experts_per_token=each,
            expert_ffn=width,
        )
        c = replace(constants(), expert_skew=max(float(row["skew"]), 0.01))
        said = spread(c, figures(replace(replica(), shape=shape)), float(row["tokens"])).touched * experts
        off.append(abs(said / float(row["touched"]) - 1))
    assert len(off) == len(gpu_mixtures.cells())
    assert median(off) < 0.01
    assert max(off) < 0.2


def test_every_block_was_predicted_before_it_was_measured() -> None:
    predicted, found = (
        [(row["shape"], row["format"], float(row["skew"]), int(row["tokens"])) for row in estimator_layers.rows(name)]
        for name in ("gpu_mixtures_predicted.csv", "gpu_mixtures_h200.csv")
    )
    assert predicted == found == gpu_mixtures.cells()


@pytest.mark.parametrize(("form", "least"), [("bf16", 0.15), ("mxfp4", 0.2), ("fp8", 0.3)])
def test_one_factor_of_one_shape_brings_the_blocks_of_others_near_in_the_median(form: str, least: float) -> None:
    errors = estimator_layers.calibrated()[form]
    assert len(errors) > 90
    assert median(errors) < least


def test_layers_in_columns_take_as_long_as_one_by_one() -> None:
    ratios = {
        (card, *(row[name] for name in ("shape", "kind", "batch", "context"))): ratio
        for card, row, ratio in estimator_layers.dense()
    }
    assert len(ratios) == 105
    hidden, heads, kv, size, ffn = gpu_layers.SHAPES["llama-1b"]
    layer = plain_shape(layers=1, hidden=hidden, heads=heads, kv_heads=kv, head_dim=size, ffn=ffn)
    us = {
        tuple(row[name] for name in ("shape", "kind", "batch", "context")): float(row["us"])
        for row in estimator_layers.rows("gpu_layers_h200.csv")
    }
    for kind, batch, tokens in (("decode", 8, 2048), ("prefill", 1, 8192)):
        asked = {"batch": batch, "context": tokens} if kind == "decode" else {"prompt_tokens": tokens}
        which = "llama-1b", kind, str(batch), str(tokens)
        assert ratios["h200", *which] == pytest.approx(step_seconds(layer, "h200", **asked) * 1e6 / us[which])
    experts, each, hidden, width = gpu_mixtures.SHAPES["minimax-tp4"]
    block = plain_shape(
        layers=1,
        hidden=hidden,
        heads=hidden // 64,
        head_dim=64,
        experts=experts,
        experts_per_token=each,
        expert_ffn=width,
    )
    even = replace(constants(), expert_skew=0.01)
    for row, ratio in estimator_layers.mixtures():
        if (row["shape"], row["skew"]) == ("minimax-tp4", "0.0"):
            seconds = mixture_seconds(block, "h200", int(row["tokens"]), precision=row["format"], constants=even)
            assert ratio == pytest.approx(seconds * 1e6 / float(row["us"]))


def test_layers_miss_by_what_their_cards_and_models_were_measured_to_take() -> None:
    everything = {"h100", "h200"}, set(estimator_layers.FAMILIES.values())
    all_layers = estimator_layers.misses(constants(), *everything)
    assert len(all_layers) == 45 + 60 + 96
    assert np.median(np.abs(all_layers)) < 1  # bars, which are their units, hold
    blocks = all_layers[105:]
    assert blocks.mean() == pytest.approx(0, abs=1e-9)  # torch's kernels are slower by a factor, which is no miss
    slower = estimator_layers.misses(replace(constants(), weight_bandwidth=0.4), *everything)
    assert slower[:105].mean() > all_layers[:105].mean() + 1
    np.testing.assert_allclose(slower[105:], blocks)


@pytest.mark.parametrize(
    ("cards", "families", "layers"),
    [
        ({"h100"}, set(estimator_layers.FAMILIES.values()), 45),
        ({"b200", "gb200"}, set(estimator_layers.FAMILIES.values()), 0),
        ({"h100"}, {"Llama-8B"}, 30),
        ({"h200"}, {"Llama-70B"}, 45 + 24),
        ({"h100", "h200"}, set(), 15 + 30 + 24),
    ],
)
def test_layers_of_a_card_or_a_model_that_is_left_out_are_not_seen(
    cards: set[str], families: set[str], layers: int
) -> None:
    assert len(estimator_layers.misses(constants(), cards, families)) == layers


def test_prefill_of_a_small_layer_is_within_10_percent_in_the_median() -> None:
    off = [
        abs(ratio - 1)
        for _, row, ratio in estimator_layers.dense()
        if row["shape"] == "llama-1b" and row["kind"] == "prefill"
    ]
    assert len(off) == 3
    assert median(off) < 0.10


@pytest.mark.parametrize(("model", "gpu"), [("gpt-oss-120b", "h100"), (MODEL, "b200"), ("Mixtral-8x7B", "h200")])
def test_more_in_flight_never_makes_a_token_of_a_mixture_faster(model: str, gpu: str) -> None:
    precision = "mxfp4" if "gpt" in model else "fp8"
    engine = replica(model, gpu, precision, tensor_parallel=4)
    times = [estimate(engine, Load(n, 1024, 512)).tpot_s for n in (1, 2, 4, 8, 16, 32, 64, 128)]
    assert times == sorted(times)
