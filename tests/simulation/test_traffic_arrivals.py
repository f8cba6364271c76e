"""The arrivals of a run: rates, surges, and that the same seed gives the same bytes."""

from __future__ import annotations

import random

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deep_seeds import examples
from tonnage.errors import InputError, Where
from tonnage.rng import Streams
from tonnage.traffic.arrivals import Arrivals, build
from tonnage.traffic.profile import LengthDistribution, ProfileSource, TrafficProfile
from tonnage.traffic.surges import Surge, SurgeSpec, bound_between, draw_surges, factor_at
from tonnage.traffic.traces import Trace
from tonnage.units import NS_PER_S

S = NS_PER_S
LENGTHS = LengthDistribution((0.0, 0.5, 1.0), (10, 100, 1000), (0.0, 1.0), ((1, 50), (51, 99)))
PROFILE = TrafficProfile(ProfileSource("made up"), 600, 10, (100, 0, 200, 300), LENGTHS)
SURGE = Surge(100 * S, 300 * S, 4.0, 50 * S)


def steady_trace(count: int = 1000, gap_ns: int = S // 10) -> Trace:
    """A request every tenth of a second; each prompt length occurs once."""
    return Trace(
        "made up",
        np.arange(count, dtype=np.int64) * gap_ns,
        np.arange(1, count + 1, dtype=np.int32),
        np.arange(2, count + 2, dtype=np.int32),
    )


SOURCES = {"profile": PROFILE, "trace": steady_trace()}


def built(source: TrafficProfile | Trace, **changes: object) -> Arrivals:
    settings = {"service": "default/chat", "seed": 1, "duration_ns": 400 * S, **changes}
    return build(source, **settings)  # type: ignore[arg-type]


def same_bytes(left: Arrivals, right: Arrivals) -> bool:
    return all(
        getattr(left, name).tobytes() == getattr(right, name).tobytes() for name in ("arrival_ns", "prompt", "output")
    )


def between(arrivals: Arrivals, start_s: float, end_s: float) -> int:
    return int(np.count_nonzero((arrivals.arrival_ns >= start_s * S) & (arrivals.arrival_ns < end_s * S)))


def requests(arrivals: Arrivals) -> list[tuple[int, int, int]]:
    columns = (arrivals.arrival_ns.tolist(), arrivals.prompt.tolist(), arrivals.output.tolist())
    return list(zip(*columns, strict=True))


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("surges", [(), (SURGE,), (Surge(0, 90 * S, 0.25), SURGE)])
@pytest.mark.parametrize("rate", [0.3, 1.0, 2.5])
def test_the_same_seed_gives_the_same_bytes_and_another_does_not(
    name: str, surges: tuple[Surge, ...], rate: float
) -> None:
    arrivals = built(SOURCES[name], surges=surges, rate=rate)
    assert same_bytes(arrivals, built(SOURCES[name], surges=surges, rate=rate))
    other = built(SOURCES[name], surges=surges, rate=rate, seed=2)
    random_at_all = name == "profile" or surges or rate != 1
    assert same_bytes(arrivals, other) != random_at_all


@pytest.mark.parametrize("rate", [0.3, 2.5])
@pytest.mark.parametrize("name", SOURCES)
def test_another_service_draws_other_numbers(name: str, rate: float) -> None:
    first, second = (built(SOURCES[name], service=service, rate=rate) for service in ("a/chat", "b/chat"))
    assert not same_bytes(first, second)


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("rate", [0.3, 1.0, 2.5])
def test_a_longer_run_has_the_same_requests_and_more(name: str, rate: float) -> None:
    surges = (Surge(20 * S, 120 * S, 3.3, 10 * S), Surge(130 * S, 200 * S, 0.4))
    short = built(SOURCES[name], duration_ns=123_456_789_012, rate=rate, surges=surges)
    long = built(SOURCES[name], duration_ns=987 * S, rate=rate, surges=surges)
    assert requests(long)[: len(short)] == requests(short)
    assert long.arrival_ns[len(short)] >= 123_456_789_012


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("rate", [0.3, 1.0, 2.5])
def test_a_surge_only_adds_requests_and_only_while_it_lasts(name: str, rate: float) -> None:
    calm, surged = (built(SOURCES[name], rate=rate, surges=surges) for surges in ((), (SURGE,)))
    added = sorted(set(requests(surged)) - set(requests(calm)))
    assert set(requests(calm)) <= set(requests(surged))
    assert added
    assert SURGE.start_ns <= added[0][0]
    assert added[-1][0] < SURGE.end_ns


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("rate", [0.3, 1.0, 2.5])
def test_a_lull_only_leaves_requests_out_and_only_while_it_lasts(name: str, rate: float) -> None:
    lull = Surge(100 * S, 300 * S, 0.2)
    calm, lulled = (built(SOURCES[name], rate=rate, surges=surges) for surges in ((), (lull,)))
    gone = sorted(set(requests(calm)) - set(requests(lulled)))
    assert set(requests(lulled)) <= set(requests(calm))
    assert all(lull.start_ns <= request[0] < lull.end_ns for request in gone)
    assert between(lulled, 100, 300) == pytest.approx(0.2 * between(calm, 100, 300), rel=0.2)


def test_a_profile_repeats_with_the_rate_of_each_interval() -> None:
    arrivals = built(PROFILE, duration_ns=4000 * S)
    counts = np.histogram(arrivals.arrival_ns, bins=400, range=(0, 4000 * S))[0].reshape(100, 4)
    assert counts[:, 1].sum() == 0
    for column, expected in ((0, 100), (2, 200), (3, 300)):
        assert counts[:, column].mean() == pytest.approx(expected, abs=5 * (expected / 100) ** 0.5)
        assert counts[:, column].var() == pytest.approx(expected, rel=0.6)  # Poisson: the variance is the mean


def test_arrivals_within_an_interval_are_poisson() -> None:
    flat = msgspec.structs.replace(PROFILE, arrivals=(1000,))
    gaps = np.diff(built(flat, duration_ns=500 * S).arrival_ns) / S
    assert gaps.mean() == pytest.approx(0.01, rel=0.02)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.03)
    assert abs(np.corrcoef(gaps[:-1], gaps[1:])[0, 1]) < 0.02


@pytest.mark.parametrize("rate", [0.25, 1.0, 3.0, 3.5])
@pytest.mark.parametrize("name", SOURCES)
def test_the_rate_multiplies_the_number_of_requests(name: str, rate: float) -> None:
    expected = {"profile": 6000, "trace": 4000}[name]
    arrivals = built(SOURCES[name], rate=rate)
    assert len(arrivals) == pytest.approx(expected * rate, rel=0.06)


@pytest.mark.parametrize("name", SOURCES)
def test_speed_plays_the_same_source_in_less_time(name: str) -> None:
    twice = built(SOURCES[name], speed=2.0, duration_ns=200 * S)
    once = built(SOURCES[name], duration_ns=400 * S)
    assert len(twice) == len(once)
    assert twice.arrival_ns * 2 == pytest.approx(once.arrival_ns, abs=2)
    assert twice.prompt.tolist() == once.prompt.tolist()


def test_a_trace_at_its_own_rate_is_played_as_it_is() -> None:
    trace = steady_trace()
    arrivals = built(trace, duration_ns=100 * S)
    assert arrivals.arrival_ns.tolist() == trace.arrivals_ns.tolist()
    assert arrivals.prompt.tolist() == trace.prompt.tolist()
    assert arrivals.output.tolist() == trace.output.tolist()


def test_a_trace_starts_again_a_mean_gap_after_its_last_request() -> None:
    arrivals = built(steady_trace(count=10), duration_ns=3 * S)
    assert arrivals.arrival_ns.tolist() == [index * S // 10 for index in range(30)]
    assert arrivals.prompt.tolist() == [*range(1, 11)] * 3


def test_a_trace_of_one_request_is_played_once_a_second() -> None:
    single = Trace("one", np.array([0]), np.array([5], dtype=np.int32), np.array([6], dtype=np.int32))
    assert requests(built(single, duration_ns=2 * S)) == [(0, 5, 6), (S, 5, 6)]


def test_copies_of_a_traces_requests_stay_within_its_second() -> None:
    trace = steady_trace()
    arrivals = built(trace, rate=3.0, duration_ns=100 * S)
    original_second = trace.arrivals_ns[arrivals.prompt - 1] // S
    assert (arrivals.arrival_ns // S).tolist() == original_second.tolist()
    assert (arrivals.output == arrivals.prompt + 1).all()


@pytest.mark.parametrize("name", SOURCES)
def test_a_surge_multiplies_the_traffic_with_linear_ramps(name: str) -> None:
    source = msgspec.structs.replace(PROFILE, arrivals=(1000,)) if name == "profile" else steady_trace(1000, S // 100)
    arrivals = built(source, surges=(SURGE,))
    shape = {(0, 100): 1, (100, 125): 1.75, (125, 150): 3.25, (150, 250): 4, (250, 300): 2.5, (300, 400): 1}
    for (start, end), factor in shape.items():
        assert between(arrivals, start, end) == pytest.approx(100 * (end - start) * factor, rel=0.04)
    assert arrivals.surges == ((100 * S, 300 * S, 4.0),)


def test_surges_that_overlap_multiply() -> None:
    surges = (Surge(0, 20, 3.0), Surge(10, 30, 0.5, 10))
    times = np.array([5.0, 12.0, 19.0, 20.0, 29.0, 30.0])
    assert factor_at(surges, times).tolist() == pytest.approx([3, 2.7, 1.65, 0.5, 0.95, 1])


def test_a_surge_after_the_run_is_not_reported() -> None:
    late = Surge(400 * S, 500 * S, 2.0)
    assert built(PROFILE, surges=(late,)).surges == ()
    assert same_bytes(built(PROFILE, surges=(late,)), built(PROFILE))


SURGES = st.builds(
    lambda start, ramp, flat, factor: Surge(start, start + 2 * ramp + flat, factor, ramp),
    st.integers(0, 60 * S),
    st.integers(0, 20 * S),
    st.integers(1, 40 * S),
    st.floats(0, 6),
)


@settings(max_examples=examples(60), deadline=None)
@given(
    name=st.sampled_from(sorted(SOURCES)),
    surges=st.lists(SURGES, max_size=3),
    seed=st.integers(0, 100),
    rate=st.floats(0.01, 4),
    speed=st.floats(0.3, 5),
    duration_ns=st.integers(1, 80 * S),
)
def test_arrivals_are_always_sorted_within_the_run_and_have_tokens(  # type: ignore[no-untyped-def]
    name: str, surges: list[Surge], seed: int, rate: float, speed: float, duration_ns: int
) -> None:
    arrivals = built(SOURCES[name], surges=surges, seed=seed, rate=rate, speed=speed, duration_ns=duration_ns)
    assert (arrivals.arrival_ns.dtype, arrivals.prompt.dtype, arrivals.output.dtype) == (
        "int64",
        "int32",
        "int32",
    )
    assert len(arrivals.arrival_ns) == len(arrivals.prompt) == len(arrivals.output)
    if len(arrivals):
        assert arrivals.arrival_ns[0] >= 0
        assert arrivals.arrival_ns[-1] < duration_ns
        assert (np.diff(arrivals.arrival_ns) >= 0).all()
        assert min(arrivals.prompt.min(), arrivals.output.min()) >= 1


@settings(max_examples=examples(100), deadline=None)
@given(surges=st.lists(SURGES, max_size=4), start=st.integers(0, 120 * S), width=st.integers(1, 30 * S))
def test_the_bound_of_a_surge_is_never_exceeded(surges: list[Surge], start: int, width: int) -> None:
    times = np.linspace(start, start + width, 50)[:-1]
    bound = bound_between(surges, np.array([float(start)]), np.array([float(start + width)]))
    assert (factor_at(surges, times) <= bound[0] * (1 + 1e-12)).all()
    assert (factor_at(surges, times) >= 0).all()


@pytest.mark.parametrize("rng", [np.random.default_rng(5), random.Random(5)])
def test_drawn_surges_lie_in_their_ranges_on_whole_milliseconds(
    rng: np.random.Generator | random.Random,
) -> None:
    specs = [SurgeSpec((100, 200), 60, (2, 5), 10), SurgeSpec(7, 1.5, 3)]
    for _ in range(50):
        first, second = draw_surges(specs, rng)
        assert 100 * S <= first.start_ns <= 200 * S
        assert first.start_ns % 1_000_000 == 0
        assert 2 <= first.factor <= 5
        assert (first.end_ns - first.start_ns, first.ramp_ns) == (60 * S, 10 * S)
        assert second == Surge(7 * S, 8_500_000_000, 3.0, 0)


def test_fixing_one_surge_leaves_the_others_where_they_were() -> None:
    drawn = SurgeSpec((100, 200), 60, (2, 5))
    left = draw_surges([drawn, drawn], Streams(1).get("surges/chat"))
    right = draw_surges([SurgeSpec(0, 60, 2), drawn], Streams(1).get("surges/chat"))
    assert left[1] == right[1]
    assert left[0] != left[1]


def test_a_surge_reads_from_plain_data() -> None:
    spec = msgspec.convert({"start_s": [100, 200], "duration_s": 60, "factor": 3}, SurgeSpec)
    assert spec == SurgeSpec((100.0, 200.0), 60.0, 3.0, 0.0)


@pytest.mark.parametrize(
    ("spec", "field", "said"),
    [
        (SurgeSpec(-1, 60, 2), "start_s", "-1, expected a number of at least 0"),
        (SurgeSpec((20, 10), 60, 2), "start_s", "the smaller first"),
        (SurgeSpec(0, 60, float("nan")), "factor", "nan, expected a number"),
        (SurgeSpec(0, 60, float("inf")), "factor", "inf, expected a number"),
        (SurgeSpec(0, 0, 2), "duration_s", "0, expected more than 0 seconds"),
        (SurgeSpec(0, 60, 2, 31), "ramp_s", "31, expected 0 to 30 s, half of duration_s"),
        (SurgeSpec(0, 60, 2, -1), "ramp_s", "-1, expected 0 to 30 s"),
    ],
)
def test_an_impossible_surge_is_refused_with_its_field(spec: SurgeSpec, field: str, said: str) -> None:
    (problem,) = spec.problems(Where("scenario.yaml", 12, "traffic[0].surges[1]"))
    assert str(problem).startswith(f"scenario.yaml:12:traffic[0].surges[1].{field}: ")
    assert said in problem.message
    with pytest.raises(InputError, match=rf"surges\[0\]\.{field}"):
        draw_surges([spec], random.Random(1))


@pytest.mark.parametrize("changes", [{"rate": 0}, {"speed": -1}, {"duration_ns": 0}, {"rate": float("inf")}])
def test_rate_speed_and_duration_must_be_above_zero(changes: dict[str, float]) -> None:
    with pytest.raises(InputError, match=rf"{next(iter(changes))}: .*, expected a finite number above 0"):
        built(PROFILE, **changes)
