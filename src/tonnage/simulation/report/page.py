"""Assembles the report: one HTML file with styles, scripts and data inside, that loads nothing."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files

import msgspec

from tonnage.simulation.report.comparison import Comparison, compare
from tonnage.simulation.report.headline import Headline, headline, labels
from tonnage.simulation.result import Result

STYLES = ("vendor/uPlot.min.css", "assets/base.css", "assets/sections.css")
SCRIPTS = (
    "assets/dom.js",
    "assets/state.js",
    "assets/charts.js",
    "assets/timeline.js",
    "assets/heatmap.js",
    "assets/pods.js",
    "assets/list.js",
    "assets/logs.js",
    "assets/headline.js",
    "assets/stopped.js",
    "assets/costs.js",
    "assets/training.js",
    "assets/main.js",
)
"""In the order in which they are joined; they share one function scope."""

_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")


class Payload(msgspec.Struct):
    """The data in the page (``<script id="data" type="application/json">``): the results as they were given,
    and the figures derived from them."""

    results: list[Result]
    headlines: list[Headline]
    comparison: Comparison | None  # only with several results


def render(results: Sequence[Result]) -> str:
    """One HTML page of one or several results. Equal input gives equal text.

    Raises ValueError without results.
    """
    if not results:
        raise ValueError("a report needs at least one result")
    names = labels(results)
    payload = Payload(
        list(results),
        [headline(result, name) for result, name in zip(results, names, strict=True)],
        compare(results) if len(results) > 1 else None,
    )
    title = f"{results[0].scenario}: {', '.join(names)}"
    return _fill(
        _asset("assets/report.html"),
        {
            "title": html.escape(title),
            "styles": "\n".join(_asset(name) for name in STYLES),
            "data": json_for_html(msgspec.json.Encoder(order="deterministic").encode(payload)),
            "chart_licence": _asset("vendor/LICENSE"),
            "chart_library": _asset("vendor/uPlot.iife.min.js"),
            "script": "\n".join(_asset(name) for name in SCRIPTS),
        },
    )


def json_for_html(data: bytes) -> str:
    """JSON that may stand inside a script element, of the same value.

    Nothing in it can close the element or open a comment, and the two separators that old JavaScript parsers
    take for line ends are escaped.
    """
    text = data.decode()
    for char in "<>\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


@cache
def _asset(name: str) -> str:
    return (files("tonnage.simulation.report") / name).read_text(encoding="utf-8").strip()


def _fill(template: str, values: Mapping[str, str]) -> str:
    """Replaces each ``{{name}}`` of the template; placeholders inside a value stay as they are."""
    return _PLACEHOLDER.sub(lambda match: values[match[1]], template)
