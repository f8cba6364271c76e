"""PromQL's aggregations. Source: prometheus/prometheus promql/engine.go (aggregation, aggregationK, count_values)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from tonnage.metrics import functions as fn
from tonnage.metrics.elements import shown
from tonnage.metrics.functions import Dialect
from tonnage.metrics.syntax import Aggregate
from tonnage.metrics.vectors import LabelKey, Sample, Vector, kept, key

_REDUCERS: dict[str, Callable[[Sequence[float]], float]] = {
    "sum": fn.total,
    "avg": fn.mean,
    "min": fn.smallest,
    "max": fn.largest,
    "count": lambda values: float(len(values)),
    "group": lambda values: 1.0,
    "stddev": fn.deviation,
    "stdvar": fn.variance,
}


def aggregated(
    node: Aggregate, vector: Vector, number: float, text: str, dialect: Dialect
) -> Iterable[tuple[Mapping[str, str], float]]:
    """The aggregation's answer. ``number`` is the parameter of topk, bottomk and quantile, ``text`` that of
    count_values.
    """
    if node.op == "count_values":
        return _counted(node, vector, text)
    groups = _groups(node, vector)
    if node.op in ("topk", "bottomk"):
        return [(s.labels, s.value) for samples in groups.values() for s in _first(node.op, samples, number)]
    if node.op == "quantile":
        return [(dict(labels), fn.quantile(number, [s.value for s in group])) for labels, group in groups.items()]
    reduce = _REDUCERS[node.op]
    if node.op in ("stddev", "stdvar") and not dialect.infinite_spread:
        return [(dict(ls), reduce([s.value for s in group]) if len(group) > 1 else 0.0) for ls, group in groups.items()]
    return [(dict(labels), reduce([s.value for s in group])) for labels, group in groups.items()]


def _groups(node: Aggregate, vector: Vector) -> dict[LabelKey, list[Sample]]:
    listed = frozenset(node.labels)
    groups: dict[LabelKey, list[Sample]] = {}
    for sample in vector:
        groups.setdefault(key(kept(sample.labels, listed, without=node.without)), []).append(sample)
    return groups


def _first(op: str, samples: Sequence[Sample], number: float) -> Sequence[Sample]:
    """The ``number`` largest or smallest, in that order; NaN comes last."""
    sign = -1.0 if op == "topk" else 1.0
    ordered = sorted(samples, key=lambda s: (math.isnan(s.value), 0.0 if math.isnan(s.value) else sign * s.value))
    return ordered[: max(0, int(min(number, len(samples))))]


def _counted(node: Aggregate, vector: Vector, label: str) -> Iterable[tuple[Mapping[str, str], float]]:
    listed = frozenset(node.labels) if node.without else frozenset(node.labels) | {label}
    counts: dict[LabelKey, int] = {}
    for sample in vector:
        found = key(kept({**sample.labels, label: shown(sample.value)}, listed, without=node.without))
        counts[found] = counts.get(found, 0) + 1
    return [(dict(labels), float(count)) for labels, count in counts.items()]
