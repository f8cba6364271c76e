"""Time as a cluster tells it: nanoseconds since the Unix epoch, or the clock of whoever drives it."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

from tonnage.units import NS_PER_S, from_rfc3339


class Clock(Protocol):
    """What the time is, and what an object's timestamp means on it."""

    def now_ns(self) -> int:
        """Now, in nanoseconds."""
        ...

    def of(self, timestamp: str | None) -> int:
        """The time of an RFC 3339 timestamp that was just observed, in nanoseconds; now where there is none."""
        ...


class WallClock:
    """The machine's own clock. Timestamps mean what they say."""

    def now_ns(self) -> int:
        return time.time_ns()

    def of(self, timestamp: str | None) -> int:
        return from_rfc3339(timestamp) if timestamp else self.now_ns()


def rfc3339(at_ns: int) -> str:
    """As Kubernetes writes times: UTC, whole seconds."""
    return datetime.fromtimestamp(at_ns // NS_PER_S, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
