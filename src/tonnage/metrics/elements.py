"""PromQL's functions of one element: mathematics, dates and labels.

Source: prometheus/prometheus promql/functions.go.
"""

from __future__ import annotations

import calendar
import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from tonnage.metrics.functions import clamp


def _log(of: Callable[[float], float]) -> Callable[[float], float]:
    def call(value: float) -> float:
        if value == 0:
            return -math.inf
        return of(value) if value > 0 else math.nan

    return call


def _kept(of: Callable[[float], float]) -> Callable[[float], float]:
    """Infinities and NaN stay as they are."""
    return lambda value: float(of(value)) if math.isfinite(value) else value


def _exp(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def _sign(value: float) -> float:
    return value if math.isnan(value) or value == 0 else math.copysign(1.0, value)


def _round(value: float, nearest: float = 1.0) -> float:
    """Half up. Small steps are multiplied by their inverse, which is nearer to what is meant."""
    inverse = 1.0 / nearest if nearest else math.inf
    scaled = value * inverse + 0.5
    return (math.floor(scaled) if math.isfinite(scaled) else scaled) / inverse


ELEMENT: dict[str, Callable[..., float]] = {
    "abs": abs,
    "ceil": _kept(math.ceil),
    "floor": _kept(math.floor),
    "round": _round,
    "sqrt": lambda value: math.nan if value < 0 else math.sqrt(value),
    "exp": _exp,
    "ln": _log(math.log),
    "log2": _log(math.log2),
    "log10": _log(math.log10),
    "sgn": _sign,
    "deg": lambda value: value * 180 / math.pi,
    "rad": lambda value: value * math.pi / 180,
    "clamp": lambda value, low, high: clamp(value, low=low, high=high),
    "clamp_min": lambda value, low: clamp(value, low=low),
    "clamp_max": lambda value, high: clamp(value, high=high),
}
"""Functions of a value and scalars."""

DATE: dict[str, Callable[[datetime], int]] = {
    "minute": lambda at: at.minute,
    "hour": lambda at: at.hour,
    "day_of_week": lambda at: at.isoweekday() % 7,
    "day_of_month": lambda at: at.day,
    "day_of_year": lambda at: at.timetuple().tm_yday,
    "days_in_month": lambda at: calendar.monthrange(at.year, at.month)[1],
    "month": lambda at: at.month,
    "year": lambda at: at.year,
}
"""Parts of a date in UTC; Sunday is 0."""


def date_part(name: str, unix_s: float) -> float:
    """A part of the date of a Unix time; NaN for what is not between the years 1 and 9999."""
    try:
        return float(DATE[name](datetime.fromtimestamp(math.trunc(unix_s), tz=UTC)))
    except (ValueError, OverflowError, OSError):
        return math.nan


def replaced(labels: Mapping[str, str], target: str, template: str, source: str, pattern: re.Pattern[str]) -> str:
    """``label_replace``: what the label ``target`` becomes."""
    match = pattern.fullmatch(labels.get(source, ""))
    if match is None:
        return labels.get(target, "")
    return re.sub(r"\$(?:(\$)|(\w+)|\{(\w+)\})", lambda found: _expanded(match, found), template)


def _expanded(match: re.Match[str], found: re.Match[str]) -> str:
    """``$$``, ``$1``, ``$name``, ``${1}`` and ``${name}``; what is no group is nothing."""
    if found[1]:
        return "$"
    name = found[2] or found[3]
    try:
        return match[int(name)] or "" if name.isdecimal() else match[name] or ""
    except IndexError:
        return ""


def shown(value: float) -> str:
    """A value as Go's strconv writes it in decimal notation, for ``count_values``."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    text = format(value, "f") if value == int(value) and abs(value) < 1e15 else _decimal(value)
    return text.rstrip("0").rstrip(".") if "." in text else text


def _decimal(value: float) -> str:
    from decimal import Decimal

    return format(Decimal(repr(value)), "f")


def joined(labels: Mapping[str, str], separator: str, sources: Sequence[str]) -> str:
    """``label_join``: the values of labels, absent ones included."""
    return separator.join(labels.get(source, "") for source in sources)
