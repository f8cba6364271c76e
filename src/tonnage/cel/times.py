"""Timestamps and durations. Source: cel-go common/types/timestamp.go, duration.go and Go's time package."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

from tonnage.cel.failures import Err, ErrorKind
from tonnage.cel.quantity import INT_MAX, INT_MIN
from tonnage.cel.registry import function
from tonnage.cel.values import Duration, Timestamp, Value

_SECOND = 10**9
_FIRST, _LAST = -62135596800, 253402300799
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = {
    "ns": 1,
    "us": 1000,
    "µs": 1000,
    "μs": 1000,
    "ms": 10**6,
    "s": _SECOND,
    "m": 60 * _SECOND,
    "h": 3600 * _SECOND,
}
_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)")
_RFC3339 = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:[.,](\d+))?(Z|[+-]\d\d:\d\d)", re.ASCII)


def general_float(value: float) -> str:
    """A double as Go's %g writes it: the shortest digits, an exponent below 1e-4 and from 1e6."""
    if math.isnan(value) or math.isinf(value):
        return "NaN" if math.isnan(value) else ("+Inf" if value > 0 else "-Inf")
    sign, digits, exponent = _shortest(value)
    if exponent < -4 or exponent >= 6:
        fraction = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{fraction}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"
    return sign + _plain(digits, exponent)


def _shortest(value: float) -> tuple[str, str, int]:
    mantissa, _, power = f"{value!r}".partition("e")
    if not power:
        mantissa, _, power = format(
            value, f".{max(0, len(repr(value).replace('-', '').replace('.', '')) - 1)}e"
        ).partition("e")
        best = next(d for d in range(18) if float(format(value, f".{d}e")) == value)
        mantissa, _, power = format(value, f".{best}e").partition("e")
    digits = mantissa.lstrip("-").replace(".", "").rstrip("0") or "0"
    return ("-" if math.copysign(1.0, value) < 0 else ""), digits, int(power)


def _plain(digits: str, exponent: int) -> str:
    if exponent < 0:
        return "0." + "0" * (-exponent - 1) + digits
    if len(digits) <= exponent + 1:
        return digits + "0" * (exponent + 1 - len(digits))
    return digits[: exponent + 1] + "." + digits[exponent + 1 :]


def _bounded(ns: int) -> Value:
    return Duration(ns) if INT_MIN <= ns <= INT_MAX else Err(ErrorKind.OVERFLOW, "duration overflow")


def _moment(ns: int) -> Value:
    inside = _FIRST <= ns // _SECOND <= _LAST
    return Timestamp(ns) if inside else Err(ErrorKind.OVERFLOW, "timestamp overflow")


@function("_+_", takes=(Duration, Duration))
def _add(a: Duration, b: Duration) -> Value:
    return _bounded(a.ns + b.ns)


@function("_-_", takes=(Duration, Duration))
def _subtract(a: Duration, b: Duration) -> Value:
    return _bounded(a.ns - b.ns)


@function("_+_", takes=(Timestamp, Duration))
@function("_+_", takes=(Duration, Timestamp))
def _later(a: Timestamp | Duration, b: Timestamp | Duration) -> Value:
    return _moment(a.ns + b.ns)


@function("_-_", takes=(Timestamp, Duration))
def _earlier(a: Timestamp, b: Duration) -> Value:
    return _moment(a.ns - b.ns)


@function("_-_", takes=(Timestamp, Timestamp))
def _between(a: Timestamp, b: Timestamp) -> Value:
    return _bounded(a.ns - b.ns)


@function("-_", takes=(Duration,))
def _negate(a: Duration) -> Value:
    return _bounded(-a.ns)


@function("duration", takes=(str,))
def _parse_duration(a: str) -> Value:
    wrong = Err(ErrorKind.CONVERSION, f"{a!r} is no duration, expected e.g. 1h30m or 0.5s")
    sign, rest = (-1 if a[:1] == "-" else 1), a[1:] if a[:1] in "+-" else a
    if rest == "0":
        return Duration(0)
    total, at = 0, 0
    while at < len(rest) or not rest:
        match = _PART.match(rest, at)
        if match is None or not (match[1] or match[2]):
            return wrong
        unit = _UNITS[match[3]]
        fraction = match[2] or ""
        total += int(match[1] or 0) * unit + (int(fraction) * unit // 10 ** len(fraction) if fraction else 0)
        at = match.end()
    return Duration(sign * total) if total <= INT_MAX or (sign < 0 and total == -INT_MIN) else wrong


@function("duration", takes=(int,))
def _int_to_duration(a: int) -> Value:
    return Err(ErrorKind.CONVERSION, "an int is no duration")


@function("timestamp", takes=(int,))
def _int_to_timestamp(a: int) -> Value:
    return _moment(a * _SECOND)


@function("timestamp", takes=(str,))
def _parse_timestamp(a: str) -> Value:
    wrong = Err(ErrorKind.CONVERSION, f"{a!r} is no timestamp, expected e.g. 2026-01-31T12:00:00Z")
    match = _RFC3339.fullmatch(a)
    if match is None:
        return wrong
    year, month, day, hour, minute, second = (int(match[i]) for i in range(1, 7))
    zone = match[8]
    shift = 0 if zone == "Z" else (1 if zone[0] == "+" else -1) * (int(zone[1:3]) * 60 + int(zone[4:]))
    try:
        at = datetime(max(year, 1), month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return wrong
    if zone != "Z" and (int(zone[1:3]) > 23 or int(zone[4:]) > 59):
        return wrong
    whole = int((at - _EPOCH).total_seconds()) - shift * 60
    if year == 0:
        return Err(ErrorKind.OVERFLOW, "timestamp overflow")
    fraction = int((match[7] or "0")[:9].ljust(9, "0"))
    return _moment(whole * _SECOND + fraction)


@function("int", takes=(Timestamp,))
def _seconds(a: Timestamp) -> Value:
    return a.ns // _SECOND


@function("int", takes=(Duration,))
def _nanoseconds(a: Duration) -> Value:
    return a.ns


@function("string", takes=(Duration,))
def _duration_to_string(a: Duration) -> Value:
    whole = abs(a.ns) // _SECOND
    seconds = math.copysign(whole + (abs(a.ns) % _SECOND) / 1e9, a.ns)
    if seconds == 0:
        return "0s"
    sign, digits, exponent = _shortest(seconds)
    return sign + _plain(digits, exponent) + "s"


@function("string", takes=(Timestamp,))
def _timestamp_to_string(a: Timestamp) -> Value:
    at = _EPOCH + timedelta(seconds=a.ns // _SECOND)
    fraction = f"{a.ns % _SECOND:09d}".rstrip("0")
    return at.strftime("%Y").zfill(4) + at.strftime("-%m-%dT%H:%M:%S") + (f".{fraction}" if fraction else "") + "Z"


def _zone(name: str) -> tzinfo | None:
    if ":" in name:
        match = re.fullmatch(r"([+-]?)(\d+):(\d+)", name)
        if match is None:
            return None
        minutes = int(match[2]) * 60 + int(match[3])
        return timezone(timedelta(minutes=-minutes if match[1] == "-" else minutes))
    try:
        return ZoneInfo(name) if name not in ("", "UTC") else UTC
    except (ValueError, OSError, KeyError):
        return None


def _part(of: Callable[[datetime, int], int]) -> Callable[..., Value]:
    def read(a: Timestamp, zone: str = "UTC") -> Value:
        place = _zone(zone)
        if place is None:
            return Err(ErrorKind.ARGUMENT, f"{zone!r} is not a time zone")
        return of((_EPOCH + timedelta(seconds=a.ns // _SECOND)).astimezone(place), a.ns % _SECOND)

    return read


_PARTS: dict[str, Callable[[datetime, int], int]] = {
    "getFullYear": lambda at, ns: at.year,
    "getMonth": lambda at, ns: at.month - 1,
    "getDayOfYear": lambda at, ns: at.timetuple().tm_yday - 1,
    "getDayOfMonth": lambda at, ns: at.day - 1,
    "getDate": lambda at, ns: at.day,
    "getDayOfWeek": lambda at, ns: at.isoweekday() % 7,
    "getHours": lambda at, ns: at.hour,
    "getMinutes": lambda at, ns: at.minute,
    "getSeconds": lambda at, ns: at.second,
    "getMilliseconds": lambda at, ns: ns // 10**6,
}
for _name, _of in _PARTS.items():
    function(_name, takes=(Timestamp,))(_part(_of))
    function(_name, takes=(Timestamp, str))(_part(_of))


def _units(unit: int) -> Callable[[Duration], Value]:
    return lambda a: int(math.copysign(abs(a.ns) // unit, a.ns)) if a.ns else 0


for _name, _unit in (
    ("Hours", 3600 * _SECOND),
    ("Minutes", 60 * _SECOND),
    ("Seconds", _SECOND),
    ("Milliseconds", 10**6),
):
    function(f"get{_name}", takes=(Duration,))(_units(_unit))
