"""Traffic profiles: the fit, the draw, the file."""

from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import yaml_text
from deep_seeds import examples
from tonnage.errors import InputError
from tonnage.traffic.profile import ProfileSource, TrafficProfile, fit, sample
from tonnage.traffic.profile_file import read_profile, to_yaml
from tonnage.traffic.traces import Trace
from tonnage.units import NS_PER_S

SOURCE = ProfileSource("made up", licence="CC0-1.0", fitted=datetime.date(2026, 7, 1))


def trace_of(requests: list[tuple[float, int, int]]) -> Trace:
    """A trace of (arrival in seconds, prompt, output)."""
    return Trace(
        "made up",
        np.array([round(second * NS_PER_S) for second, _, _ in requests], dtype=np.int64),
        np.array([prompt for _, prompt, _ in requests], dtype=np.int32),
        np.array([output for _, _, output in requests], dtype=np.int32),
    )


def random_trace(count: int, seed: int = 1) -> Trace:
    """Log-normal prompts, outputs that fall as prompts grow; the first request at 0 and the last at 95 s."""
    rng = np.random.default_rng(seed)
    seconds = np.concatenate(([0.0], np.sort(rng.uniform(0, 95, count - 2)), [95.0]))
    prompts = rng.lognormal(6.5, 0.9, count).astype(int) + 1
    outputs = np.maximum(1, (60_000 / prompts * rng.uniform(0.5, 1.5, count)).astype(int))
    return trace_of(list(zip(seconds, prompts, outputs, strict=True)))


PROFILE = fit(random_trace(5000), SOURCE)


def test_arrivals_are_counted_in_whole_intervals() -> None:
    profile = fit(trace_of([(0, 1, 1), (9.999, 1, 1), (10, 1, 1), (29.9, 1, 1), (30, 1, 1), (34, 1, 1)]), SOURCE)
    assert profile.arrivals == (2, 1, 1)
    assert profile.requests == 6
    assert profile.span_ns == 30 * NS_PER_S
    assert profile.mean_rate == pytest.approx(4 / 30)


def test_a_trace_shorter_than_an_interval_is_refused() -> None:
    with pytest.raises(InputError, match=r"spans 9\.5 s, expected at least 10 s"):
        fit(trace_of([(0, 1, 1), (9.5, 1, 1)]), SOURCE)


def test_the_same_trace_gives_the_same_profile() -> None:
    assert fit(random_trace(5000), SOURCE) == PROFILE


def test_drawn_lengths_have_the_traces_distribution_and_rank_correlation() -> None:
    trace = random_trace(5000)
    prompt, output = sample(PROFILE, np.random.default_rng(2), 50_000)
    for drawn, real in ((prompt, trace.prompt), (output, trace.output)):
        assert drawn.mean() == pytest.approx(real.mean(), rel=0.03)
        assert np.percentile(drawn, (50, 90, 99)) == pytest.approx(np.percentile(real, (50, 90, 99)), rel=0.05)
        assert (drawn.min(), drawn.max()) >= (real.min(), 0)
        assert drawn.max() <= real.max()
    assert rank_correlation(prompt, output) == pytest.approx(rank_correlation(trace.prompt, trace.output), abs=0.02)


def test_a_longer_draw_starts_with_the_shorter_one() -> None:
    short = sample(PROFILE, np.random.default_rng(3), 10)
    long = sample(PROFILE, np.random.default_rng(3), 1000)
    assert short[0].tolist() == long[0][:10].tolist()
    assert short[1].tolist() == long[1][:10].tolist()


@settings(max_examples=examples(100), deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 200_000), st.integers(1, 5_000)), min_size=2, max_size=60),
    seed=st.integers(0, 2**32),
)
def test_lengths_drawn_from_any_fit_stay_within_the_traces(lengths: list[tuple[int, int]], seed: int) -> None:
    seconds = np.linspace(0, 20, len(lengths))
    trace = trace_of([(second, *length) for second, length in zip(seconds, lengths, strict=True)])
    profile = fit(trace, SOURCE)
    prompt, output = sample(profile, np.random.default_rng(seed), 200)
    for drawn, real in ((prompt, trace.prompt), (output, trace.output)):
        assert real.min() <= drawn.min()
        assert drawn.max() <= real.max()


def rank_correlation(left: np.ndarray, right: np.ndarray) -> float:
    def ranks(values: np.ndarray) -> np.ndarray:
        return np.argsort(np.argsort(values, kind="stable"), kind="stable")

    return float(np.corrcoef(ranks(left), ranks(right))[0, 1])


def test_a_profile_reads_back_as_it_was_written_with_the_same_bytes(tmp_path: Path) -> None:
    path = tmp_path / "profile.yaml"
    path.write_text(to_yaml(PROFILE), encoding="utf-8")
    assert read_profile(path) == PROFILE
    assert to_yaml(read_profile(path)) == to_yaml(PROFILE)


def test_a_profile_file_is_readable() -> None:
    lines = to_yaml(PROFILE).splitlines()
    assert lines[:6] == [
        "kind: TrafficProfile",
        "source:",
        "  name: made up",
        "  licence: CC0-1.0",
        "  fitted: 2026-07-01",
        "requests: 5000",
    ]
    assert max(len(line) for line in lines) <= 110


SMALL = """kind: TrafficProfile
source:
  name: small
requests: 4
interval_s: 10
arrivals: [3, 1]
lengths:
  prompt_levels: [0.0, 0.5, 1.0]
  prompt_tokens: [10, 20, 40]
  output_levels: [0.0, 1.0]
  output_tokens:
  - [1, 9]
  - [5, 5]
"""


def problem_of(tmp_path: Path, text: str) -> str:
    path = tmp_path / "p.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_profile(path)
    return str(caught.value).replace(str(tmp_path), "")


def test_a_small_handwritten_profile_is_fine(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(SMALL)
    profile = read_profile(path)
    assert isinstance(profile, TrafficProfile)
    prompt, output = sample(profile, np.random.default_rng(4), 1000)
    assert set(output[prompt > 20].tolist()) == {5}
    assert set(output[prompt < 20].tolist()) == set(range(1, 10))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("kind: TrafficProfile", "kind: Profile", "/p.yaml:1:kind: not a traffic profile, expected the line kind: TrafficProfile"),
        ("kind: TrafficProfile\n", "", "/p.yaml:1:kind: not a traffic profile"),
        ("interval_s: 10", "interval_s: ten", '/p.yaml:5:interval_s: "ten": expected int, got str'),
        ("interval_s: 10", "interval_s: 0", '/p.yaml:5:interval_s: "0": expected int >= 1'),
        ("interval_s: 10\n", "", "/p.yaml:1:interval_s: the field is missing"),
        ("interval_s: 10\n", "interval_s: 10\ninterval: 3\n", "/p.yaml:6:interval: unknown field"),
        ("  name: small", "  name: small\n  year: 2020", "/p.yaml:4:source.year: unknown field"),
        ("  name: small", "  url: x", "/p.yaml:3:source.name: the field is missing"),
        ("[3, 1]", "[3,\n  -1]", '/p.yaml:7:arrivals[1]: "-1": expected int >= 0'),
        ("[3, 1]", "[0, 0]", "/p.yaml:6:arrivals: no interval has an arrival, expected at least one"),
        ("[3, 1]", "[]", "/p.yaml:6:arrivals: expected array of length >= 1"),
        ("[0.0, 0.5, 1.0]", "[0.0, 0.5, 0.9]", "/p.yaml:8:lengths.prompt_levels: from 0 to 0.9, expected from 0 to 1"),
        ("[0.0, 0.5, 1.0]", "[0.0, 0.0, 1.0]", "/p.yaml:8:lengths.prompt_levels: 0 follows 0, expected ascending levels"),
        ("[0.0, 0.5, 1.0]", "[0.0, 1.5, 1.0]", '/p.yaml:8:lengths.prompt_levels[1]: "1.5": expected float <= 1.0'),
        ("[10, 20, 40]", "[10, 20]", "/p.yaml:9:lengths.prompt_tokens: 2 quantiles, expected 3, one for each level"),
        ("[10, 20, 40]", "[10, 40, 20]", "/p.yaml:9:lengths.prompt_tokens: 20 follows 40, expected quantiles that do not fall"),
        ("  - [5, 5]\n", "", "/p.yaml:12:lengths.output_tokens: 1 rows, expected 2, one for each prompt bin"),
        ("[5, 5]", "[5, 5, 6]", "/p.yaml:13:lengths.output_tokens[1]: 3 quantiles, expected 2, one for each level"),
        ("[5, 5]", "[0, 5]", '/p.yaml:13:lengths.output_tokens[1][0]: "0": expected int >= 1'),
        ("[5, 5]", "[5, 5", "/p.yaml:14: not valid YAML: did not find expected ',' or ']'"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_profile_is_named_with_its_place(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in SMALL
    assert said in problem_of(tmp_path, SMALL.replace(old, new))


def test_several_mistakes_are_named_at_once(tmp_path: Path) -> None:
    said = problem_of(tmp_path, SMALL.replace("[10, 20, 40]", "[10, 20]").replace("[5, 5]", "[6, 5]"))
    assert len(said.splitlines()) == 2


@pytest.mark.parametrize(("text", "said"), [("", "the file is empty"), ("- 1\n", "not a traffic profile")])
def test_a_file_that_is_no_profile_at_all_is_refused(tmp_path: Path, text: str, said: str) -> None:
    assert said in problem_of(tmp_path, text)


def test_a_missing_profile_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.yaml: cannot be read: No such file"):
        read_profile(tmp_path / "none.yaml")


def test_the_shipped_profile_is_valid_and_names_its_source() -> None:
    path = Path(__file__).parents[2] / "examples" / "traffic-surge" / "traffic" / "azure-2023-conv.yaml"
    profile = read_profile(path)
    assert (profile.requests, len(profile.arrivals), profile.interval_s) == (19_366, 350, 10)
    assert profile.source.licence == "CC-BY-4.0"
    assert "ISCA 2024" in profile.source.citation
    assert to_yaml(profile) == path.read_text(encoding="utf-8")
    assert yaml_text.load(path.read_text(encoding="utf-8"))["kind"] == "TrafficProfile"
