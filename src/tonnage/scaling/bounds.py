"""What a query can ever answer: bounds of its values and whether it can give more than one series.

An interval analysis over the PromQL tree. It starts from the ranges of known metrics
(:mod:`tonnage.facts.metric_names`) and is sound: a value outside the bounds cannot occur, while not every
value inside has to. "No data" is not a value and is dealt with by the caller.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from itertools import product

from msgspec import Struct

from tonnage.facts import metric_names
from tonnage.facts.metric_names import ExportedMetric
from tonnage.metrics.functions import divide
from tonnage.metrics.syntax import (
    COMPARISONS,
    SCALAR_FUNCTIONS,
    Aggregate,
    Binary,
    Call,
    Negate,
    Node,
    Number,
    Selector,
    Subquery,
    Text,
    Window,
)

_KEEPING = (
    "avg_over_time",
    "max_over_time",
    "min_over_time",
    "last_over_time",
    "label_replace",
    "label_join",
    "sort",
    "sort_desc",
    "scalar",
    "vector",
)
_RISING = (
    "rate",
    "irate",
    "increase",
    "changes",
    "resets",
    "stddev_over_time",
    "stdvar_over_time",
    "abs",
    "sqrt",
    "exp",
    "time",
    "timestamp",
    "year",
)
"""Functions whose values are not negative, whatever their arguments are."""


class Interval(Struct, frozen=True):
    """A closed interval of values; infinite where nothing is known."""

    low: float = -math.inf
    high: float = math.inf

    def hull(self, other: Interval) -> Interval:
        """The smallest interval that holds both."""
        return Interval(min(self.low, other.low), max(self.high, other.high))


PER_POD_LABELS = frozenset(
    {"pod", "exported_pod", "instance", "container", "le", "gpu", "UUID", "device", "pci_bus_id", "Hostname"}
)
"""Labels that differ between two pods, or between the GPUs or buckets of one; grouping by them leaves
several series.
"""

ANY = Interval()
NOT_NEGATIVE = Interval(0.0, math.inf)


def resolve(name: str) -> ExportedMetric | None:
    """The metric that a name means: itself, ``vllm:…`` written with an underscore, or what a removed one
    became.
    """
    found = metric_names.find(name)
    if found is None and name.startswith("vllm_"):
        found = metric_names.find(name.replace("vllm_", "vllm:", 1))
    if found is not None and found.status == "removed" and found.replacement:
        return metric_names.find(found.replacement) or found
    return found


def bounds(node: Node) -> Interval:
    """The interval that holds every value the node can give."""
    if isinstance(node, Number):
        return Interval(node.value, node.value)
    if isinstance(node, Selector):
        return _of_metric(node.name)
    if isinstance(node, Text):
        return ANY
    if isinstance(node, Window):
        return bounds(node.selector)
    if isinstance(node, Subquery):
        return bounds(node.expr)
    if isinstance(node, Negate):
        inner = bounds(node.expr)
        return Interval(-inner.high, -inner.low)
    if isinstance(node, Aggregate):
        return _aggregated(node)
    if isinstance(node, Call):
        return _called(node)
    return _binary(node)


def several_series(node: Node) -> bool:
    """Whether the answer has more than one series as soon as two pods export the metric.

    Metrics that are not known are taken to have one series: they may come from a recording rule."""
    if isinstance(node, Number | Text):
        return False
    if isinstance(node, Selector):
        return resolve(node.name) is not None or node.name.endswith("_bucket")
    if isinstance(node, Window):
        return several_series(node.selector)
    if isinstance(node, Negate | Subquery):
        return several_series(node.expr)
    if isinstance(node, Aggregate):
        apart = node.without or not PER_POD_LABELS.isdisjoint(node.labels)
        kept = node.op in ("topk", "bottomk", "count_values") and node.param != Number(1.0)
        return (apart or kept) and several_series(node.expr)
    if isinstance(node, Call):
        if node.function in ("vector", "absent", "absent_over_time") or is_scalar(node):
            return False
        if node.function == "histogram_quantile":
            return not _only_le(node.args[1]) and several_series(node.args[1])
        return any(several_series(argument) for argument in node.args)
    return _several_matched(node)


def _several_matched(node: Binary) -> bool:
    left, right = several_series(node.lhs), several_series(node.rhs)
    if node.op == "or":
        return left or right
    if node.op in ("and", "unless"):
        return left
    if node.many:
        return left if node.many == "left" else right
    one_group = node.on and not node.labels
    if is_scalar(node.lhs) or is_scalar(node.rhs):
        return left or right
    return left and right and not one_group


def is_scalar(node: Node) -> bool:
    """Whether the answer is a number without labels."""
    if isinstance(node, Binary):
        return is_scalar(node.lhs) and is_scalar(node.rhs)
    if isinstance(node, Negate):
        return is_scalar(node.expr)
    return isinstance(node, Number) or (isinstance(node, Call) and node.function in SCALAR_FUNCTIONS)


def additive(node: Node) -> bool:
    """Whether the value grows with the number of pods under equal load per pod: a sum or a count."""
    if isinstance(node, Aggregate):
        return node.op in ("sum", "count")
    if isinstance(node, Binary):
        if node.op == "/":
            return additive(node.lhs) and not additive(node.rhs)
        return additive(node.lhs) or additive(node.rhs)
    if isinstance(node, Negate):
        return additive(node.expr)
    if isinstance(node, Call) and node.function in ("clamp_min", "clamp_max", "clamp", "scalar", "vector"):
        return additive(node.args[0])
    return False


def _only_le(node: Node) -> bool:
    return isinstance(node, Aggregate) and not node.without and set(node.labels) <= {"le"}


def _of_metric(name: str) -> Interval:
    metric = resolve(name)
    if metric is None:
        return NOT_NEGATIVE if name.endswith(("_bucket", "_count", "_total")) else ANY
    if metric.type in ("histogram", "counter"):
        return NOT_NEGATIVE
    return Interval(
        -math.inf if metric.minimum is None else metric.minimum,
        math.inf if metric.maximum is None else metric.maximum,
    )


def _aggregated(node: Aggregate) -> Interval:
    if node.op in ("count", "count_values"):
        return Interval(1.0, math.inf)
    if node.op == "group":
        return Interval(1.0, 1.0)
    if node.op in ("stddev", "stdvar"):
        return NOT_NEGATIVE
    inner = bounds(node.expr)
    if node.op == "quantile" and not _is_share(node.param):
        return ANY
    return _summed(inner) if node.op == "sum" else inner


def _is_share(node: Node | None) -> bool:
    """Whether a quantile lies among the values; others are infinite."""
    return isinstance(node, Number) and 0 <= node.value <= 1


def _summed(inner: Interval) -> Interval:
    """The sum of one or more values, nobody knows how many."""
    return Interval(
        inner.low if inner.low >= 0 else -math.inf,
        inner.high if inner.high <= 0 else math.inf,
    )


def _called(node: Call) -> Interval:
    if node.function in _RISING:
        return NOT_NEGATIVE
    if node.function in _FIXED:
        return _FIXED[node.function]
    if node.function == "quantile_over_time":
        return bounds(node.args[1]) if _is_share(node.args[0]) else ANY
    if not node.args:
        return ANY
    inner = bounds(node.args[0])
    if node.function in _KEEPING:
        return inner
    if node.function == "sum_over_time":
        return _summed(inner)
    if node.function == "clamp":
        low, high = bounds(node.args[1]), bounds(node.args[2])
        return Interval(min(max(inner.low, low.low), high.low), min(max(inner.high, low.high), high.high))
    if node.function in ("clamp_min", "clamp_max"):
        edge = bounds(node.args[1])
        pick = max if node.function == "clamp_min" else min
        return Interval(pick(inner.low, edge.low), pick(inner.high, edge.high))
    return ANY  # delta is extrapolated; a quantile may be -Inf, +Inf or lie in a negative bucket


_FIXED = {
    "count_over_time": Interval(1.0, math.inf),
    "present_over_time": Interval(1.0, 1.0),
    "absent_over_time": Interval(1.0, 1.0),
    "absent": Interval(1.0, 1.0),
    "pi": Interval(math.pi, math.pi),
    "sgn": Interval(-1.0, 1.0),
    "minute": Interval(0.0, 59.0),
    "hour": Interval(0.0, 23.0),
    "day_of_week": Interval(0.0, 6.0),
    "day_of_month": Interval(1.0, 31.0),
    "day_of_year": Interval(1.0, 366.0),
    "days_in_month": Interval(28.0, 31.0),
    "month": Interval(1.0, 12.0),
}
"""Functions whose values lie between bounds of their own."""


def _binary(node: Binary) -> Interval:
    left, right = bounds(node.lhs), bounds(node.rhs)
    if node.op in COMPARISONS:
        return Interval(0.0, 1.0) if node.bool_result else _filtered(node, left, right)
    if node.op == "or":
        return left.hull(right)
    if node.op in ("and", "unless"):
        return left
    if node.op == "+":
        return _corners(left, right, operator.add)
    if node.op == "-":
        return _corners(left, right, operator.sub)
    if node.op == "*":
        return _corners(left, right, _times)
    if node.op == "/":
        return _ratio(node, left, right)
    return ANY  # remainders and powers do not occur in triggers that are worth bounding


def _filtered(node: Binary, left: Interval, right: Interval) -> Interval:
    """What ``left op right`` lets through; a scalar on the left filters the vector on the right."""
    if is_scalar(node.lhs):
        return right
    if not is_scalar(node.rhs):
        return left
    low = max(left.low, right.low) if node.op in (">", ">=", "==") else left.low
    high = min(left.high, right.high) if node.op in ("<", "<=", "==") else left.high
    return Interval(low, high) if low <= high else left


def _ratio(node: Binary, left: Interval, right: Interval) -> Interval:
    whole = _terms(node.rhs)
    if node.lhs in whole and left.low >= 0 and all(bounds(term).low >= 0 for term in whole):
        return Interval(0.0, 1.0)  # a part of the whole
    if _is_mean(node):
        assert isinstance(node.lhs, Aggregate)
        return bounds(node.lhs.expr)
    if right.low > 0 or right.high < 0:
        return _corners(left, right, divide)
    return NOT_NEGATIVE if left.low >= 0 and right.low >= 0 else ANY


def _is_mean(node: Binary) -> bool:
    """``sum(x) / count(x)``."""
    left, right = node.lhs, node.rhs
    if not (isinstance(left, Aggregate) and isinstance(right, Aggregate)):
        return False
    same = (left.expr, left.labels, left.without) == (right.expr, right.labels, right.without)
    return left.op == "sum" and right.op == "count" and same


def _terms(node: Node) -> list[Node]:
    if isinstance(node, Binary) and node.op == "+":
        return [*_terms(node.lhs), *_terms(node.rhs)]
    return [node]


def _times(a: float, b: float) -> float:
    return 0.0 if a == 0 or b == 0 else a * b


def _corners(left: Interval, right: Interval, operation: Callable[[float, float], float]) -> Interval:
    """The bounds of an operation that takes its extremes at the ends of both intervals."""
    pairs = product((left.low, left.high), (right.low, right.high))
    values = [value for value in (operation(a, b) for a, b in pairs) if not math.isnan(value)]
    return Interval(min(values), max(values)) if values else ANY
