"""What the slo policy makes of counted arrivals: the level, a rise, and what chance alone may do."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.scaling.demand import LONG_NS, SHORT_NS, forecast
from tonnage.units import NS_PER_S

Counts = list[tuple[int, float]]
TICK_S = 15
MINUTE_NS = 60 * NS_PER_S


def _counts(*rates: float) -> Counts:
    """The cumulative count at every tick; ``rates``: arrivals a second in the 15 s before each but the first."""
    total, counts = 0.0, [(0, 0.0)]
    for number, rate in enumerate(rates, 1):
        total += rate * TICK_S
        counts.append((number * TICK_S * NS_PER_S, total))
    return counts


def _ahead(
    rates: list[float], horizon_s: float = 60, z: float = 0.0, *, far: bool = False
) -> tuple[float, float, float]:
    found = forecast(_counts(*rates), round(horizon_s * NS_PER_S), z, far=far)
    assert found is not None
    return found.level, found.slope, found.upper


FLAT, LOW = [10.0] * 8, [2.0] * 6


@pytest.mark.parametrize(
    ("rates", "level", "slope", "upper"),
    [
        pytest.param(FLAT, 10, 0, 10, id="flat"),
        pytest.param([0.0] * 8, 0, 0, 0, id="nothing arrives"),
        pytest.param([*LOW, 20.0, 20.0], 20, 18 / 30, 20 + 18, id="a step 30 s ago"),
        pytest.param([*LOW, 2.0, 20.0], 11, 9 / 30, 11 + 9, id="a step 15 s ago"),
        pytest.param([*LOW, *[20.0] * 8], 20, 0, 20, id="a step two minutes ago"),
        pytest.param([2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0], 15, 4 / 30, 15 + 4, id="a ramp"),
        pytest.param([*[20.0] * 6, 2.0, 2.0], 15.5, 0, 15.5, id="a fall is not believed at once"),
        pytest.param([*[20.0] * 6, *[2.0] * 8], 2, 0, 2, id="a fall two minutes ago"),
        pytest.param([10.0] * 6 + [11.0] * 2, 10.25, 0, 10.25, id="a rise within chance"),
    ],
)
def test_level_slope_and_upper_estimate(rates: list[float], level: float, slope: float, upper: float) -> None:
    assert _ahead(rates) == pytest.approx((level, slope, upper))


@pytest.mark.parametrize("horizon_s", [0, 10, 29])
def test_a_rise_is_extended_to_the_horizon(horizon_s: float) -> None:
    level, slope, upper = _ahead([*LOW, 20.0, 20.0], horizon_s)
    assert slope > 0 and upper == pytest.approx(level + slope * horizon_s)


def test_a_rise_is_extended_no_further_than_it_has_lasted() -> None:
    assert _ahead([*LOW, 20.0, 20.0], 30) == _ahead([*LOW, 20.0, 20.0], 1000)


def test_where_help_is_far_a_burst_of_half_a_minute_is_no_level_yet() -> None:
    burst = [*[2.0] * 24, 20.0, 20.0]
    near, far = _ahead(burst, 300, far=True), _ahead(burst, 900, far=True)
    assert near[0] == 20 and far[0] < 10, "the last 90 s, of which 60 s are as before"


LONG = 20 * 60 // TICK_S


@pytest.mark.parametrize(
    ("rates", "level", "upper"),
    [
        pytest.param([5.0] * LONG, 5, 5, id="steady"),
        pytest.param(
            [2 + 6 * (i + 0.5) / LONG for i in range(LONG)], 8, 8 + 6 * 600 / 1200 / 2, id="a rise for 20 minutes"
        ),
        pytest.param([8 - 6 * (i + 0.5) / LONG for i in range(LONG)], 2, 2.75, id="a fall is not extended"),
        pytest.param([*[2.0] * (LONG - 20), *[8.0] * 20], 8, 8, id="a step five minutes ago"),
        pytest.param([*[2.0] * (LONG - 48), *[8.0] * 48], 8, 8, id="a step twelve minutes ago"),
        pytest.param([*[8.0] * (LONG - 10), *[2.0] * 10], 2, 2, id="a fall two minutes and a half ago"),
    ],
)
def test_with_twenty_minutes_of_history(rates: list[float], level: float, upper: float) -> None:
    """A line along all of it where one fits; what came in the last five minutes is served in any case."""
    found = _ahead(rates, 600, far=True)
    assert (found[0], found[2]) == pytest.approx((level, upper), abs=0.05)


@pytest.mark.parametrize("minutes", [4, 8, 14])
def test_a_rise_that_is_over_is_not_taken_to_go_on(minutes: int) -> None:
    """Requests at random, of which there were a quarter as many until some minutes ago."""
    rng = np.random.default_rng(3)
    since = minutes * 60 // TICK_S
    uppers = []
    for _ in range(200):
        numbers = [*rng.poisson(0.25 * TICK_S, LONG - since), *rng.poisson(1.0 * TICK_S, since)]
        uppers.append(_ahead([n / TICK_S for n in numbers], 600, far=True)[2])
    assert np.mean(uppers) < 1.25


@pytest.mark.parametrize("scatter", [1, 4])
def test_what_scatters_more_than_chance_is_found_to(scatter: int) -> None:
    """Requests that come ``scatter`` at once have that many times the variance of a Poisson process."""
    rng = np.random.default_rng(5)
    found = []
    for _ in range(200):
        rates = [float(n) * scatter / TICK_S for n in rng.poisson(30 / scatter, LONG)]
        one = forecast(_counts(*rates), MINUTE_NS, 1.0, far=True)
        assert one is not None
        found.append(one.scatter)
    assert np.mean(found) == pytest.approx(scatter, rel=0.3)


def test_steady_traffic_of_bursts_is_rarely_taken_for_anything_else() -> None:
    rng = np.random.default_rng(5)
    levels = []
    for _ in range(300):
        rates = [float(n) * 3 / TICK_S for n in rng.poisson(10, LONG)]
        levels.append(_ahead(rates, 600, far=True)[0])
    assert np.mean(levels) == pytest.approx(2, rel=0.05) and np.quantile(levels, 0.95) < 2.6


def test_the_uncertainty_of_a_count_comes_on_top() -> None:
    _, _, upper = _ahead(FLAT, z=1.64)
    assert upper == pytest.approx(10 + 1.64 * sqrt(1200) / 120)


def test_the_fewer_seconds_are_counted_the_less_is_certain() -> None:
    long, short = _ahead(FLAT, z=1.64), _ahead(FLAT[:2], z=1.64)
    assert short[2] > long[2] > 10


@pytest.mark.parametrize(("rates", "known"), [([], False), ([5.0], False), ([5.0, 5.0], True)])
def test_less_than_half_a_minute_of_history_is_no_forecast(rates: list[float], known: bool) -> None:
    assert (forecast(_counts(*rates), MINUTE_NS, 1.64) is not None) is known


def test_a_reading_that_is_missing_leaves_the_rate_as_it_was() -> None:
    counts = _counts(*[4.0] * 8)
    del counts[6]
    found = forecast(counts, MINUTE_NS, 0.0)
    assert found is not None and found.upper == pytest.approx(4)


def test_windows_are_those_of_the_docstring() -> None:
    assert (SHORT_NS, LONG_NS) == (30 * NS_PER_S, 120 * NS_PER_S)


@pytest.mark.parametrize("rate", [0.2, 1.0, 5.0, 25.0])
def test_poisson_noise_alone_is_rarely_taken_for_a_rise(rate: float) -> None:
    """One-sided at three standard deviations of the expected count, itself counted: below one per cent."""
    rng = np.random.default_rng(7)
    trials = 4_000
    arrivals = rng.poisson(rate * TICK_S, (trials, 8)) / TICK_S
    alarms = sum(_ahead(list(map(float, row)))[1] > 0 for row in arrivals)
    assert alarms / trials < 0.01


@pytest.mark.parametrize("rate", [0.5, 2.0, 10.0])
def test_a_rise_by_half_is_seen_within_a_minute(rate: float) -> None:
    """Of the two-minute level a rise to four times itself is seen at once, whatever the noise."""
    rng = np.random.default_rng(7)
    seen = 0
    for _ in range(200):
        before, after = rng.poisson(rate * TICK_S, 6), rng.poisson(4 * rate * TICK_S, 2)
        seen += _ahead([float(n) / TICK_S for n in (*before, *after)])[0] > 2 * rate
    assert seen / 200 > 0.99


@given(
    st.lists(st.integers(0, 1000), min_size=2, max_size=16),
    st.floats(0, 600),
    st.floats(0, 3),
)
def test_an_estimate_is_never_below_the_level_nor_negative(counts: list[int], horizon_s: float, z: float) -> None:
    level, slope, upper = _ahead([count / TICK_S for count in counts], horizon_s, z)
    assert 0 <= level <= upper and slope >= 0
