"""Prometheus' text exposition format, version 0.0.4 (prometheus.io/docs/instrumenting/exposition_formats)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import TypeAlias

from tonnage.facts import metric_names
from tonnage.facts.metric_names import HISTOGRAM_PARTS
from tonnage.metrics.store import NAME, SeriesStore

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Exposed: TypeAlias = tuple[str, Mapping[str, str], float]
"""Name, labels and value of one sample."""

_TYPES = frozenset({"gauge", "counter", "histogram"})
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def current(store: SeriesStore, at_ns: int) -> Iterator[Exposed]:
    """The newest sample of every series that is alive at ``at_ns``, with the labels it was stored with.

    Whoever scrapes this has to honour the labels (``honorLabels: true``), or its own push them aside.
    """
    for series in store:
        value = series.at(at_ns)
        if value is not None:
            yield series.labels[NAME], series.labels, value


def render(samples: Iterable[Exposed]) -> str:
    """The samples as text, families in order of name, each with the type that is known for it.

    Samples of one family keep the order in which they come: buckets of a histogram must come in order.
    """
    families: dict[tuple[str, str], list[Exposed]] = {}
    for sample in samples:
        families.setdefault(_family(sample[0]), []).append(sample)
    lines = []
    for (name, kind), members in sorted(families.items()):
        lines.append(f"# TYPE {name} {kind}")
        lines += [f"{sample}{_labels(labels)} {number(value)}" for sample, labels, value in members]
    return "\n".join(lines) + "\n" if lines else ""


def number(value: float) -> str:
    """A float as Prometheus writes it: the shortest digits that read back the same, no exponent, NaN, +Inf, -Inf."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if value == int(value) and abs(value) < 1 << 53:
        return f"{value:.0f}"
    return f"{Decimal(repr(value)):f}".removesuffix(".0")


def _family(name: str) -> tuple[str, str]:
    """The name and type under which a sample is declared."""
    metric = metric_names.find(name)
    kind = metric.type if metric is not None and metric.type in _TYPES else "untyped"
    if kind != "histogram":
        return name, kind
    part = next((part for part in HISTOGRAM_PARTS if name.endswith(part)), "")
    return name.removesuffix(part), kind


def _labels(labels: Mapping[str, str]) -> str:
    return labelled({label: value for label, value in sorted(labels.items()) if label != NAME})


def labelled(labels: Mapping[str, str]) -> str:
    """Labels as they follow a metric's name, in the order in which they come; empty where there are none."""
    pairs = [f'{label}="{value.translate(_ESCAPES)}"' for label, value in labels.items()]
    return f"{{{','.join(pairs)}}}" if pairs else ""


def help_text(text: str) -> str:
    """What may follow ``# HELP name``."""
    return text.replace("\\", "\\\\").replace("\n", "\\n")
