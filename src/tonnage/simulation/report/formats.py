"""Numbers as people read them. ``None`` is "no data" and is written as an en dash."""

from __future__ import annotations

from tonnage.units import MICRO_PER_USD

NO_DATA = "–"


def percent(share: float | None) -> str:
    """A share of 0..1. Only exactly 1 is written 100%: "all" and "nearly all" are different answers."""
    if share is None:
        return NO_DATA
    value = 100 * share
    if share < 1 and value > 99.99:
        return ">99.99%"
    if value > 99:
        return f"{value:.2f}%" if share < 1 else "100%"
    return f"{value:.1f}%" if value else "0%"


def dollars(micro_usd: float | None) -> str:
    """Micro-dollars as dollars: cents below $10,000, four digits below 10 cents."""
    if micro_usd is None:
        return NO_DATA
    value = abs(micro_usd) / MICRO_PER_USD
    sign = "-" if micro_usd < 0 else ""
    if 0 < value < 0.1:
        return f"{sign}${value:.4f}"
    return f"{sign}${value:,.2f}" if value < 10_000 else f"{sign}${value:,.0f}"


def milliseconds(value: float | None) -> str:
    """A latency in milliseconds, with three significant digits and the unit that suits."""
    if value is None:
        return NO_DATA
    if value < 999.5:
        return f"{value:.3g} ms" if value < 99.95 else f"{value:.0f} ms"
    return seconds(value / 1000)


def seconds(value: float | None) -> str:
    """A duration in seconds: "1.24 s", "42 s", "3 min 30 s", "1 h 5 min"."""
    if value is None:
        return NO_DATA
    if value < 59.95:
        return f"{value:.3g} s"
    whole = round(value)
    if whole < 3600:
        return _two(whole // 60, "min", whole % 60, "s")
    return _two(whole // 3600, "h", whole % 3600 // 60, "min")


def clock(value: float | None) -> str:
    """An instant of the run, or a span of it, as h:mm:ss."""
    if value is None:
        return NO_DATA
    whole = int(value)
    return f"{whole // 3600}:{whole % 3600 // 60:02d}:{whole % 60:02d}"


def hours(value: float | None) -> str:
    """GPU-hours."""
    if value is None:
        return NO_DATA
    return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"


def factor(value: float | None) -> str:
    """By how much something is longer."""
    return NO_DATA if value is None else f"{value:.3f}"


def count(value: float | None) -> str:
    """A whole number with thousands separated."""
    return NO_DATA if value is None else f"{round(value):,}"


def _two(big: int, big_unit: str, small: int, small_unit: str) -> str:
    return f"{big} {big_unit} {small} {small_unit}" if small else f"{big} {big_unit}"
