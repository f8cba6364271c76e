"""Throughput against latency as an SVG, drawn by hand: one line for each option, from one request in flight to the
most that fit."""

from __future__ import annotations

from html import escape
from math import ceil, log10
from typing import TYPE_CHECKING

import msgspec

from tonnage.inference.sizing import point

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tonnage.inference.sizing.options import SizingOption
    from tonnage.inference.sizing.request import SizingRequest

_WIDTH, _HEIGHT = 860, 520
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 250, 40, 55
_STEPS = 24
_COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#7f7f7f")


class ThroughputCurve(msgspec.Struct, frozen=True):
    """(milliseconds per output token, output tokens per second and GPU, requests in flight) of an option's replica."""

    label: str
    points: tuple[tuple[float, float, int], ...]
    chosen: tuple[float, float] | None


def curves(request: SizingRequest, options: Sequence[SizingOption]) -> list[ThroughputCurve]:
    """The curves of ``options``, each at up to 24 numbers of requests in flight, evenly spaced by ratio."""
    return [_curve(request, option) for option in options]


def _curve(request: SizingRequest, option: SizingOption) -> ThroughputCurve:
    plan, most = option.plan, option.plan.sequences
    counts = sorted({round(most ** (step / (_STEPS - 1))) for step in range(_STEPS)})
    gpus = plan.gpus / plan.card.per_gpu
    found = []
    for count in counts:
        one = point.point(request, plan, count)
        if one.tpot_s is not None:
            found.append((one.tpot_s * 1000, one.output_tokens_per_s / gpus, count))
    at = option.point
    chosen = None if at.tpot_s is None else (at.tpot_s * 1000, at.output_tokens_per_s / gpus)
    best = option.best
    where = f", {best.instance_type}" if best and best.instance_type else ""
    return ThroughputCurve(plan.label + where, tuple(found), chosen)


def svg(title: str, found: Sequence[ThroughputCurve], target_ms: float | None = None) -> str:
    """An SVG document: time per output token to the right, output tokens per second and GPU upwards, both logarithmic.
    ``target_ms`` is drawn as a line."""
    every = [one for curve in found for one in curve.points] or [(1.0, 1.0, 1)]
    x_low, x_high = _decade([one[0] for one in every] + ([target_ms] if target_ms else []))
    y_low, y_high = _decade([one[1] for one in every])

    def x(value: float) -> float:
        return _LEFT + (log10(value) - x_low) / (x_high - x_low) * (_WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return _HEIGHT - _BOTTOM - (log10(value) - y_low) / (y_high - y_low) * (_HEIGHT - _TOP - _BOTTOM)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        'font-size="12">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
        f'<text x="{_LEFT}" y="22" font-size="14">{escape(title)}</text>',
    ]
    for value in _ticks(x_low, x_high):
        out.append(_line(x(value), _TOP, x(value), _HEIGHT - _BOTTOM, "#ddd"))
        out.append(f'<text x="{x(value):.1f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{value:g}</text>')
    for value in _ticks(y_low, y_high):
        out.append(_line(_LEFT, y(value), _WIDTH - _RIGHT, y(value), "#ddd"))
        out.append(f'<text x="{_LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>')
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    out.append(f'<text x="{middle}" y="{_HEIGHT - 14}" text-anchor="middle">ms per output token</text>')
    centre = (_TOP + _HEIGHT - _BOTTOM) / 2
    out.append(
        f'<text x="16" y="{centre}" text-anchor="middle" transform="rotate(-90 16 {centre})">'
        "output tokens per second and GPU</text>"
    )
    if target_ms:
        out.append(_line(x(target_ms), _TOP, x(target_ms), _HEIGHT - _BOTTOM, "#000", dash="4 3"))
    for index, curve in enumerate(found):
        colour = _COLOURS[index % len(_COLOURS)]
        path = " ".join(f"{x(one[0]):.1f},{y(one[1]):.1f}" for one in curve.points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        if curve.chosen:
            out.append(f'<circle cx="{x(curve.chosen[0]):.1f}" cy="{y(curve.chosen[1]):.1f}" r="5" fill="{colour}"/>')
        place = _TOP + 10 + 20 * index
        out.append(_line(_WIDTH - _RIGHT + 14, place, _WIDTH - _RIGHT + 34, place, colour, width=3))
        out.append(f'<text x="{_WIDTH - _RIGHT + 40}" y="{place + 4}">{escape(curve.label)}</text>')
    return "\n".join((*out, "</svg>", ""))


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, *, width: int = 1, dash: str = "") -> str:
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
        f'stroke-width="{width}"{dashed}/>'
    )


def _decade(values: Sequence[float]) -> tuple[float, float]:
    """Logarithms of round bounds around ``values``, at least a third of a decade apart."""
    low, high = log10(min(values)), log10(max(values))
    bounds = [exponent + log10(digit) for exponent in range(int(low) - 2, ceil(high) + 2) for digit in (1, 2, 5)]
    below = max(bound for bound in bounds if bound <= low + 1e-9)
    above = min(bound for bound in bounds if bound >= high - 1e-9)
    return (below, above) if above > below else (below, below + log10(2))


def _ticks(low: float, high: float) -> list[float]:
    exponents = range(int(low) - 2, ceil(high) + 2)
    values = [digit * 10.0**exponent for exponent in exponents for digit in (1, 2, 5)]
    return [value for value in values if low - 1e-9 <= log10(value) <= high + 1e-9]
