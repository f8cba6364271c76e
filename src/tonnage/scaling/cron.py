"""KEDA's cron trigger: so many replicas between a start and an end that come again and again.

Source: kedacore/keda v2.21 pkg/scalers/cron_scaler.go. It asks which of the two comes next: while that is the end, the
window is open. A window may therefore pass midnight, and from a start that never came to the first end it is open too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from tonnage.units import NS_PER_S

FIELDS = ("timezone", "start", "end", "desiredReplicas")
"""What a cron trigger's metadata has."""


@dataclass(frozen=True, slots=True)
class CronWindow:
    """``start`` and ``end`` are five cron fields, in the local time of ``timezone`` (an IANA name)."""

    start: str
    end: str
    timezone: str
    replicas: int

    def is_open(self, unix_ns: int) -> bool:
        """Whether the window is open at this Unix time."""
        now = datetime.fromtimestamp(unix_ns // NS_PER_S, tz=_zone(self.timezone))
        return _next(self.end, now) <= _next(self.start, now)

    def value(self, unix_ns: int) -> float:
        """The trigger's metric at this Unix time: its replicas, or 0 outside the window."""
        return float(self.replicas) if self.is_open(unix_ns) else 0.0

    @property
    def metric(self) -> str:
        """The name of the external metric, without its index."""
        fields = [_spelt(written) for written in (self.start, self.end)]
        return normalized(f"cron-{self.timezone}-{fields[0]}-{fields[1]}")


def schedule_problem(written: str) -> str:
    """Why this is no schedule that ever comes; "" if it is one."""
    if len(written.split()) != 5:
        return "five fields: minute, hour, day of month, month, day of week"
    if not _FIELDS.fullmatch(written):
        return "five fields of cron with numbers, names, * ? , - and / alone"
    try:
        _next(written, datetime(2024, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        return f"five fields of cron ({error})"
    except StopIteration:
        return "a time that comes"
    return ""


def count_problem(written: str) -> str:
    """Why this is not a number of replicas above 0; "" if it is one."""
    is_count = written.isascii() and written.isdecimal() and int(written) > 0
    return "" if is_count else 'a whole number above 0 as a string, e.g. "3"'


def zone_problem(name: str) -> str:
    """Why this is not a time zone; "" if it is one."""
    if not name:
        return "an IANA time zone, e.g. Europe/Berlin or Etc/UTC"
    try:
        _zone(name)
    except (ValueError, OSError, KeyError):
        return "an IANA time zone, e.g. Europe/Berlin or Etc/UTC"
    return ""


def normalized(name: str) -> str:
    """A metric's name as KEDA writes it: slashes, dots, colons, percent signs and parentheses become dashes."""
    return re.sub(r"[/.:%()]", "-", name)


_FIELDS = re.compile(r"[0-9A-KM-Za-km-z*?,/\s-]+")
"""What a field of KEDA's cron has: no L and no #, which others know."""


def _next(schedule: str, after: datetime) -> float:
    return next(CronSim(schedule.replace("?", "*"), after)).timestamp()


def _zone(name: str) -> tzinfo:
    return UTC if name in ("", "UTC", "Etc/UTC") else ZoneInfo(name)


def _spelt(schedule: str) -> str:
    for sign, word in ((" ", ""), ("*", "x"), ("/", "Sl"), ("?", "Qm"), (",", "Cm")):
        schedule = schedule.replace(sign, word)
    return schedule
