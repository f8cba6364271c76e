"""Durations as text: Go's (Karpenter, `1h30m`) and Prometheus' (scrape intervals, `1d12h`)."""

from __future__ import annotations

import re
from fractions import Fraction

from tonnage.units import NS_PER_HOUR, NS_PER_MS, NS_PER_S, NS_PER_US

_GO = {
    "ns": 1,
    "us": NS_PER_US,
    "µs": NS_PER_US,
    "μs": NS_PER_US,
    "ms": NS_PER_MS,
    "s": NS_PER_S,
    "m": 60 * NS_PER_S,
    "h": NS_PER_HOUR,
}
_GO_PART = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_PROMETHEUS = {
    "y": 365 * 24 * NS_PER_HOUR,
    "w": 7 * 24 * NS_PER_HOUR,
    "d": 24 * NS_PER_HOUR,
    "h": NS_PER_HOUR,
    "m": 60 * NS_PER_S,
    "s": NS_PER_S,
    "ms": NS_PER_MS,
}
_PROMETHEUS_FORM = re.compile("".join(f"(?:([0-9]+){unit})?" for unit in _PROMETHEUS))


def parse(written: str) -> int:
    """A Go duration in nanoseconds, fractions of one dropped.

    Raises ValueError for anything but numbers with h, m, s, ms, us or ns. Source: golang/go src/time/format.go
    ParseDuration, without signs: nothing here waits for a negative time.
    """
    if written == "0":
        return 0
    total, end = 0, 0
    for match in _GO_PART.finditer(written):
        if match.start() != end:
            break
        total += int(Fraction(match[1].removesuffix(".")) * _GO[match[2]])
        end = match.end()
    if end != len(written) or not written:
        raise ValueError(f"{written!r} is not a duration, expected e.g. 30s, 5m or 1h30m")
    return total


def parse_prometheus(written: str) -> int:
    """A Prometheus duration in nanoseconds: whole numbers, units from y down to ms, each at most once.

    Raises ValueError for anything else. Source: prometheus/common model/time.go ParseDuration.
    """
    if written == "0":
        return 0
    match = _PROMETHEUS_FORM.fullmatch(written)
    if match is None or not written:
        raise ValueError(f"{written!r} is not a duration, expected e.g. 15s, 1m or 1h30m")
    return sum(int(number) * unit for number, unit in zip(match.groups(default="0"), _PROMETHEUS.values(), strict=True))
