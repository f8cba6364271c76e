"""Units of the core: time is integer nanoseconds, money integer micro-dollars; seconds and dollars at the edges."""

from __future__ import annotations

from datetime import datetime

NS_PER_US = 1_000
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000
NS_PER_HOUR = 3_600 * NS_PER_S
MICRO_PER_USD = 1_000_000
MIB = 1 << 20
GIB = 1 << 30


def ns(seconds: float) -> int:
    """Seconds to nanoseconds, rounded to the nearest."""
    return round(seconds * NS_PER_S)


def seconds(nanoseconds: int) -> float:
    """Nanoseconds to seconds."""
    return nanoseconds / NS_PER_S


def from_rfc3339(timestamp: str) -> int:
    """Nanoseconds since the Unix epoch of an RFC 3339 time. Raises ValueError."""
    moment = datetime.fromisoformat(timestamp.replace("Z", "+00:00"))
    return int(moment.timestamp()) * NS_PER_S + moment.microsecond * 1000


def micro_usd(dollars: float) -> int:
    """Dollars to integer micro-dollars, rounded to the nearest."""
    return round(dollars * MICRO_PER_USD)


def usd(micro: int) -> float:
    """Micro-dollars to dollars."""
    return micro / MICRO_PER_USD
