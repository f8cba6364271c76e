"""PromQL's binary operators between two vectors. Source: prometheus/prometheus promql/engine.go (VectorBinop)."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping

from tonnage.errors import Problem
from tonnage.metrics import functions as fn
from tonnage.metrics.functions import Dialect
from tonnage.metrics.store import NAME
from tonnage.metrics.syntax import COMPARISONS, Binary, Query
from tonnage.metrics.vectors import LabelKey, QueryError, Sample, Vector, kept, key

OPERATORS: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": fn.divide,
    "%": fn.modulo,
    "^": fn.power,
    "atan2": math.atan2,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

Answers = list[tuple[Mapping[str, str], float]]


def applied(node: Binary, left: float, right: float, kept_value: float) -> float | None:
    """The value of ``left op right``; a comparison without ``bool`` gives ``kept_value`` or drops the element
    (None).
    """
    value = OPERATORS[node.op](left, right)
    if node.op not in COMPARISONS or node.bool_result:
        return float(value)
    return kept_value if value else None


def matched(query: Query, node: Binary, lhs: Vector, rhs: Vector, dialect: Dialect) -> Answers:
    """Matching on the labels of ``on``, or on all but those of ``ignoring``: one to one, or with ``group_left`` and
    ``group_right`` several of that side to one of the other. Raises QueryError where a match is ambiguous.
    """
    if not lhs.samples or not rhs.samples:  # Prometheus does not look for duplicates then
        return []
    many, single, one_side = (rhs, lhs, "left") if node.many == "right" else (lhs, rhs, "right")
    ones: dict[LabelKey, Sample] = {}
    for sample in single:
        signature = _signature(node, sample.labels)
        if signature in ones:
            raise _error(
                query, f"found duplicate series for the match group {dict(signature)} on the {one_side} of {node.op}"
            )
        ones[signature] = sample
    seen: set[tuple[LabelKey, LabelKey]] = set()
    answers: Answers = []
    for sample in many:
        signature = _signature(node, sample.labels)
        other = ones.get(signature)
        if other is None:
            continue
        left, right = (other, sample) if node.many == "right" else (sample, other)
        value = applied(node, left.value, right.value, left.value)
        if value is None and not dialect.filtered_matches_count:
            continue
        labels = _result_labels(node, sample.labels, other.labels, drops_name=drops_name(node, dialect))
        # Of one side alone each signature may occur once; of the many each result.
        place = (signature, key(labels.items()) if node.many else ())
        if place in seen:
            raise _error(query, _ambiguous(node, signature))
        seen.add(place)
        if value is not None:
            answers.append((labels, value))
    return answers


def combined(node: Binary, lhs: Vector, rhs: Vector) -> Answers:
    """``and``, ``or`` and ``unless``."""
    left = {_signature(node, sample.labels) for sample in lhs}
    right = {_signature(node, sample.labels) for sample in rhs}
    if node.op == "and":
        return [(s.labels, s.value) for s in lhs if _signature(node, s.labels) in right]
    if node.op == "unless":
        return [(s.labels, s.value) for s in lhs if _signature(node, s.labels) not in right]
    added = [(s.labels, s.value) for s in rhs if _signature(node, s.labels) not in left]
    return [(s.labels, s.value) for s in lhs] + added


def _ambiguous(node: Binary, signature: LabelKey) -> str:
    if node.many:
        return f"several series on the {node.many} of {node.op} match {dict(signature)} with the same labels"
    return f"several series on the left of {node.op} match {dict(signature)}: needs group_left"


def _signature(node: Binary, labels: Mapping[str, str]) -> LabelKey:
    return key(kept(labels, frozenset(node.labels), without=not node.on))


def drops_name(node: Binary, dialect: Dialect) -> bool:
    """Whether the answer of an operator has no metric name: all but plain comparisons."""
    if node.op == "atan2":
        return dialect.atan2_is_nameless
    return node.op not in COMPARISONS or node.bool_result


def _result_labels(
    node: Binary, labels: Mapping[str, str], lent: Mapping[str, str], *, drops_name: bool
) -> Mapping[str, str]:
    """What a match is called: one to one its signature, else all labels of the many side and those that are lent; only
    a plain comparison keeps the name.
    """
    if node.many:
        result = dict(labels)
        if drops_name:
            result.pop(NAME, None)
        for label in node.include:
            result.pop(label, None)
            if lent.get(label):
                result[label] = lent[label]
        return result
    result = dict(_signature(node, labels))
    if drops_name:
        result.pop(NAME, None)
    elif NAME in labels and not node.on and NAME not in node.labels:
        result[NAME] = labels[NAME]
    return result


def _error(query: Query, message: str) -> QueryError:
    return QueryError(Problem(query.where, message, hint=f"in the query {query.text!r}"))
