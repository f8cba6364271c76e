"""Metrics that GPU exporters and engines publish: type, unit, range, labels, new names of renamed ones.

Table: ``data/metric_names.csv`` (DCGM exporter and vLLM).
"""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct

from tonnage.facts import names, tables

HISTOGRAM_PARTS = ("_bucket", "_sum", "_count")


class ExportedMetric(Struct, frozen=True):
    """One metric. ``minimum`` and ``maximum`` bound its values, None where unbounded or not known.

    ``exporter``: "dcgm-exporter" or "vllm". ``type``: gauge, counter, histogram, or label (DCGM: published as
    a label of every other metric). ``status``: "default" (published as the exporter comes), "optional" (has
    to be switched on) or "removed"; a removed one has a ``replacement`` unless nothing takes its place.
    ``labels`` are those that the exporter itself puts on it.
    """

    name: str
    exporter: str
    type: str
    unit: str
    minimum: float | None
    maximum: float | None
    status: str
    labels: tuple[str, ...]
    replacement: str
    source: str


def get(name: str) -> ExportedMetric:
    """The metric that a series called ``name`` belongs to.

    A histogram's ``_bucket``, ``_sum`` and ``_count`` belong to it. Raises
    :class:`~tonnage.errors.InputError` with near names if no exporter here publishes or published it.
    """
    found = find(name)
    if found is None:
        raise names.unknown("metric", name, _by_name())
    return found


def find(name: str) -> ExportedMetric | None:
    """As :func:`get`, but None for a metric that is not in the table, as most of a cluster are not."""
    table = _by_name()
    if name in table:
        return table[name]
    for part in HISTOGRAM_PARTS:
        whole = table.get(name.removesuffix(part))
        if name.endswith(part) and whole is not None and whole.type == "histogram":
            return whole
    return None


def near(name: str) -> tuple[str, ...]:
    """Known metrics with a name like ``name``, most alike first."""
    return names.near(name, _by_name())


def all() -> tuple[ExportedMetric, ...]:
    """Every known metric, sorted by name."""
    return tuple(sorted(_by_name().values(), key=lambda metric: metric.name))


@lru_cache(maxsize=1)
def _by_name() -> dict[str, ExportedMetric]:
    return {row["name"]: _metric(row) for row in tables.rows("metric_names.csv")}


def _metric(row: dict[str, str]) -> ExportedMetric:
    return ExportedMetric(
        name=row["name"],
        exporter=row["exporter"],
        type=row["type"],
        unit=row["unit"],
        minimum=tables.scaled(row["min"], 1),
        maximum=tables.scaled(row["max"], 1),
        status=row["status"],
        labels=tuple(row["labels"].split()),
        replacement=row["replacement"],
        source=row["source"],
    )
