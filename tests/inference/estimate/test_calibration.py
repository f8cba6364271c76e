"""One factor from a person's own measurements."""

from __future__ import annotations

from math import exp, log

import numpy as np
import pytest
from estimate_builders import replica

from tonnage.errors import InputError
from tonnage.inference.estimate import Load, Replica, calibrate, estimate
from tonnage.inference.estimate.calibrate import MeasuredLatency

HEADER = "gpu,concurrency,input_tokens,output_tokens,tpot_ms,ttft_ms\n"
LOADS = [Load(n, tokens, 512) for n in (1, 8, 32, 64) for tokens in (512, 2048)]


def readings(factor: float, noise: float = 0.0, count: int = 8, engine: Replica | None = None) -> list[MeasuredLatency]:
    """Measurements that are ``factor`` times the estimate, give or take."""
    chance = np.random.default_rng(3)
    engine = engine or replica()
    found = []
    for load in LOADS[:count]:
        said, off = estimate(engine, load), factor * exp(noise * chance.standard_normal())
        found.append(MeasuredLatency(engine, load, said.ttft_s * off, said.tpot_s * off))
    return found


@pytest.mark.parametrize("factor", [0.6, 1.0, 1.7])
def test_the_factor_of_rows_that_are_all_off_by_it_is_found(factor: float) -> None:
    found = calibrate.fit(readings(factor), "mine.csv")
    assert found.factor == pytest.approx(factor, rel=0.01)
    assert (found.rows, found.model) == (8, "meta-llama/Llama-3.1-8B")
    calibrated = calibrate.apply(estimate(replica(), LOADS[0]), found)
    plain = estimate(replica(), LOADS[0])
    assert calibrated.tpot_s == pytest.approx(found.factor * plain.tpot_s)
    assert calibrated.output_tokens_per_s == pytest.approx(plain.output_tokens_per_s / found.factor)


@pytest.mark.parametrize(("noise", "count"), [(0.05, 3), (0.1, 5), (0.15, 8)])
def test_a_handful_of_noisy_rows_brings_estimates_of_others_nearer(noise: float, count: int) -> None:
    found = calibrate.fit(readings(1.4, noise, count), "mine.csv")
    assert abs(log(found.factor / 1.4)) < 2 * noise
    assert found.spread >= 0.05


def test_one_row_that_is_far_off_does_not_move_the_factor_of_five() -> None:
    rows = readings(1.2, count=5)
    wild = MeasuredLatency(rows[0].replica, LOADS[5], None, 40 * estimate(replica(), LOADS[5]).tpot_s)
    assert calibrate.fit([*rows, wild], "mine.csv").factor == pytest.approx(1.2, rel=0.1)


def test_the_band_narrows_with_rows_that_agree_and_never_widens() -> None:
    plain = estimate(replica(), LOADS[3])
    widths = []
    for noise in (0.0, 0.3, 3.0):
        band = calibrate.apply(plain, calibrate.fit(readings(1.3, noise), "mine.csv")).tpot_band_s
        widths.append(log(band[1] / band[0]))
    before = log(plain.tpot_band_s[1] / plain.tpot_band_s[0])
    assert before / 4 - 1e-9 <= widths[0] < widths[1] < widths[2] == pytest.approx(before)
    after = calibrate.apply(plain, calibrate.fit(readings(1.3), "mine.csv"))
    low, high = after.output_tokens_per_s_band
    assert low < after.output_tokens_per_s < high
    assert high / low < plain.output_tokens_per_s_band[1] / plain.output_tokens_per_s_band[0]


def test_rows_of_a_file_are_of_what_is_sized_save_what_they_say() -> None:
    text = HEADER.replace("tpot_ms", "tensor_parallel,precision,tpot_ms") + "h200,8,1024,256,2,fp8,9.5,\n"
    (found,) = calibrate.parse(text, "mine.csv", replica())
    assert found.replica == replica(gpu="h200", precision="fp8", tensor_parallel=2)
    assert (found.load, found.tpot_s, found.ttft_s, found.line) == (Load(8, 1024, 256), 0.0095, None, 2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gpu,concurrency\n", "mine.csv:1: no column input_tokens, output_tokens"),
        ("gpu,concurrency,input_tokens,output_tokens\n", "mine.csv:1: no column tpot_ms or ttft_ms"),
        (HEADER, "mine.csv: no row"),
        (HEADER + "h101,8,1024,256,9,\n", "mine.csv:2:gpu: unknown GPU 'h101'"),
        (
            HEADER + "h100,8,1024,256,9,\nh100,0,1024,256,9,\n",
            "mine.csv:3:concurrency: '0' is not a number of 1 or more",
        ),
        (HEADER + "h100,8,1024,many,9,\n", "mine.csv:2:output_tokens: 'many' is not a number of 1 or more"),
        (HEADER + "h100,8,1024,256,-2,\n", "mine.csv:2:tpot_ms: '-2' is not a number of 0 or more"),
        (HEADER + "h100,8,1024,256,nan,1\n", "mine.csv:2:tpot_ms: 'nan' is not a number of 0 or more"),
        (HEADER + "h100,8,1024,256,,\n", "mine.csv:2:tpot_ms: no time is given"),
    ],
)
def test_a_file_that_cannot_be_used_says_where_and_why(text: str, said: str) -> None:
    with pytest.raises(InputError) as refused:
        calibrate.parse(text, "mine.csv", replica())
    assert str(refused.value).startswith(said)
    assert "(" in str(refused.value)


def test_a_row_that_the_estimator_refuses_is_named() -> None:
    rows = calibrate.parse(HEADER + "l4,8,1024,256,9,\n", "mine.csv", replica("Llama-3.1-70B"))
    with pytest.raises(InputError, match=r"mine\.csv:2:gpu: .*needs .* GiB of weights"):
        calibrate.fit(rows, "mine.csv")


def test_rows_of_several_models_or_none_have_no_factor() -> None:
    rows = readings(1.0, count=1) + readings(1.0, count=1, engine=replica("Qwen3-8B"))
    with pytest.raises(InputError, match=r"measurements of Qwen/Qwen3-8B, meta-llama/Llama-3\.1-8B"):
        calibrate.fit(rows, "mine.csv")
    with pytest.raises(InputError, match="measurements of none"):
        calibrate.fit([], "mine.csv")
