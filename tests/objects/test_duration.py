from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.objects import duration

S = 1_000_000_000


@pytest.mark.parametrize(
    ("written", "ns"),
    [
        ("0", 0),
        ("0s", 0),
        ("30s", 30 * S),
        ("5m", 300 * S),
        ("1h30m", 5400 * S),
        ("720h", 720 * 3600 * S),
        ("1.5h", 5400 * S),
        (".5s", S // 2),
        ("1.s", S),
        ("100ms", S // 10),
        ("7us", 7000),
        ("7µs", 7000),
        ("3ns", 3),
        ("1m1m", 120 * S),
        ("0.1s", S // 10),
        ("8h0s", 8 * 3600 * S),
    ],
)
def test_a_go_duration_is_exact_nanoseconds(written: str, ns: int) -> None:
    assert duration.parse(written) == ns


@pytest.mark.parametrize(
    "written", ["", "s", "30", "30 s", "1d", "-5m", "5m ", "Never", "1h30", "5M", "1.2.3s", ".s", "\u0663s"]
)
def test_what_go_does_not_take_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        duration.parse(written)


@pytest.mark.parametrize(
    ("written", "ns"),
    [
        ("0", 0),
        ("15s", 15 * S),
        ("1m", 60 * S),
        ("1h30m", 5400 * S),
        ("1d", 86400 * S),
        ("1w", 7 * 86400 * S),
        ("1y", 365 * 86400 * S),
        ("500ms", S // 2),
        ("1d12h", 36 * 3600 * S),
    ],
)
def test_a_prometheus_duration_knows_days_and_years(written: str, ns: int) -> None:
    assert duration.parse_prometheus(written) == ns


@pytest.mark.parametrize("written", ["", "15", "1.5h", "1m1h", "1s1s", "5us", " 5s"])
def test_what_prometheus_does_not_take_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        duration.parse_prometheus(written)


@given(st.integers(0, 999), st.integers(0, 59), st.integers(0, 59))
def test_both_read_whole_hours_minutes_and_seconds_alike(hours: int, minutes: int, seconds: int) -> None:
    text = f"{hours}h{minutes}m{seconds}s"
    assert duration.parse(text) == duration.parse_prometheus(text) == ((hours * 60 + minutes) * 60 + seconds) * S
