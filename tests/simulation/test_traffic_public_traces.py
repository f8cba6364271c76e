"""The public traces themselves: they load, and the shipped profile is a good fit of its own."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from tonnage.traffic.profile import fit, sample
from tonnage.traffic.profile_file import read_profile
from tonnage.traffic.traces import Trace, load_trace

REPOSITORY = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("TONNAGE_DATA") or REPOSITORY.parent / "shared" / "data") / "traces"
PROFILE = REPOSITORY / "examples" / "traffic-surge" / "traffic" / "azure-2023-conv.yaml"

pytestmark = pytest.mark.trace


def public_trace(name: str) -> Trace:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{path} is not there; set TONNAGE_DATA to the folder of the public data files")
    return load_trace(path)


def rank_correlation(left: np.ndarray, right: np.ndarray) -> float:
    def ranks(values: np.ndarray) -> np.ndarray:
        return np.argsort(np.argsort(values, kind="stable"), kind="stable")

    return float(np.corrcoef(ranks(left), ranks(right))[0, 1])


def test_the_azure_trace_loads() -> None:
    trace = public_trace("azure2023_conv.csv.gz")
    assert len(trace) == 19_366
    assert trace.span_ns == 3_501_721_937_000
    assert (int(trace.prompt.sum()), int(trace.output.sum())) == (22_361_870, 4_088_665)


def test_the_mooncake_trace_loads() -> None:
    trace = public_trace("mooncake_synthetic_trace.jsonl.gz")
    assert len(trace) == 3_993
    assert trace.span_ns == 1_022_025_000_000
    assert int(trace.prompt.max()) == 191_378


def test_the_shipped_profile_is_the_fit_of_the_azure_trace() -> None:
    shipped = read_profile(PROFILE)
    assert fit(public_trace("azure2023_conv.csv.gz"), shipped.source) == shipped


@pytest.mark.parametrize("name", ["azure2023_conv.csv.gz", "mooncake_synthetic_trace.jsonl.gz"])
def test_lengths_drawn_from_the_fit_are_those_of_the_trace(name: str) -> None:
    trace = public_trace(name)
    profile = fit(trace, read_profile(PROFILE).source)
    prompt, output = sample(profile, np.random.default_rng(1), 200_000)
    for drawn, real in ((prompt, trace.prompt), (output, trace.output)):
        assert drawn.mean() == pytest.approx(real.mean(), rel=0.03)
        assert np.percentile(drawn, (50, 90, 99)) == pytest.approx(np.percentile(real, (50, 90, 99)), rel=0.05)
    assert rank_correlation(prompt, output) == pytest.approx(rank_correlation(trace.prompt, trace.output), abs=0.02)
