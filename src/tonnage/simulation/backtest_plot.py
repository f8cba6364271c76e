"""A backtest as an SVG, drawn by hand: for each service replicas, TTFT and TPOT over time, measured and simulated."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from tonnage.simulation.backtest import Backtest, Curve
from tonnage.simulation.report import formats

_WIDTH, _LEFT, _RIGHT, _TOP = 900, 70, 20, 64
_PANEL, _GAP = 150, 46
_MEASURED, _SIMULATED = "#1f4e79", "#c2410c"
_PANELS = (("replicas",), ("TTFT p50", "TTFT p99"), ("TPOT p50", "TPOT p99"))


def svg(found: Backtest) -> str:
    """An SVG document: a panel a figure, time to the right; lines are measured, dashes simulated; p50 is thin."""
    panels = [
        (service.name, [curve for curve in service.curves if curve.name in names])
        for service in found.services
        for names in _PANELS
    ]
    panels = [(name, curves) for name, curves in panels if curves]
    height = _TOP + len(panels) * (_PANEL + _GAP)
    title = f"{found.scenario}, {found.policy}: measured from {found.start or 'the start'} and simulated"
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" '
        'font-size="12">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>',
        f'<text x="{_LEFT}" y="20" font-size="14">{escape(title)}</text>',
        _line(_LEFT, 38, _LEFT + 30, 38, _MEASURED, width=2),
        f'<text x="{_LEFT + 36}" y="42">measured</text>',
        _line(_LEFT + 120, 38, _LEFT + 150, 38, _SIMULATED, width=2, dash="6 3"),
        f'<text x="{_LEFT + 156}" y="42">simulated</text>',
    ]
    for number, (name, curves) in enumerate(panels):
        out += _panel(found, name, curves, _TOP + number * (_PANEL + _GAP) + 16)
    return "\n".join((*out, "</svg>", ""))


def _panel(found: Backtest, service: str, curves: Sequence[Curve], top: int) -> Iterator[str]:
    values = [one for curve in curves for row in (curve.measured, curve.simulated) for one in row if one is not None]
    most = _round_up(max(values, default=1.0))
    end = found.t_s[-1] if found.t_s else found.duration_s
    names = " and ".join(curve.name for curve in curves)
    yield f'<text x="{_LEFT}" y="{top - 6}">{escape(service)}: {escape(names)} ({escape(curves[0].unit)})</text>'
    for part in range(5):
        y = top + _PANEL * (1 - part / 4)
        yield _line(_LEFT, y, _WIDTH - _RIGHT, y, "#ddd")
        yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{most * part / 4:g}</text>'
    for part in range(7):
        x = _LEFT + (_WIDTH - _LEFT - _RIGHT) * part / 6
        anchor = "end" if part == 6 else "middle"
        yield f'<text x="{x:.1f}" y="{top + _PANEL + 15}" text-anchor="{anchor}">{formats.clock(end * part / 6)}</text>'
    for curve in curves:
        width = 1 if curve.name.endswith("p50") else 2
        for row, colour, dash in ((curve.measured, _MEASURED, ""), (curve.simulated, _SIMULATED, "6 3")):
            for points in _runs(found.t_s, row):
                path = " ".join(
                    f"{_LEFT + (_WIDTH - _LEFT - _RIGHT) * t / end:.1f},{top + _PANEL * (1 - one / most):.1f}"
                    for t, one in points
                )
                dashed = f' stroke-dasharray="{dash}"' if dash else ""
                yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"{dashed}/>'


def _runs(times: Sequence[float], row: Sequence[float | None]) -> Iterator[list[tuple[float, float]]]:
    """What lies between two times without data."""
    points: list[tuple[float, float]] = []
    for t, one in zip(times, row, strict=True):
        if one is not None:
            points.append((t, one))
        elif points:
            yield points
            points = []
    if points:
        yield points


def _round_up(most: float) -> float:
    """1, 2, 4 or 8 times a power of ten, at least ``most``: a quarter of it is a short number."""
    if most <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(most))
    return next(power * digit for digit in (1, 2, 4, 8, 10) if power * digit >= most * 0.9999)


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, *, width: int = 1, dash: str = "") -> str:
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
        f'stroke-width="{width}"{dashed}/>'
    )
