"""PromQL instant queries over a :class:`~tonnage.metrics.store.SeriesStore`.

The subset that autoscaling and alerts on GPUs use; everything else is refused by name when the query is
parsed. An empty vector means "no data", which is not zero. Semantics follow prometheus/prometheus
promql/engine.go.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tonnage.errors import InputError, Problem
from tonnage.metrics import functions as fn
from tonnage.metrics.functions import PROMETHEUS_2, PROMETHEUS_3, Dialect, Samples
from tonnage.metrics.store import LOOKBACK_NS, NAME, Series, SeriesStore
from tonnage.metrics.syntax import (
    COMPARISONS,
    SET_OPERATORS,
    Aggregate,
    Binary,
    Call,
    Negate,
    Node,
    Number,
    Query,
    Selector,
    UnsupportedQuery,
    Window,
    parse,
    walk,
)
from tonnage.units import NS_PER_S

__all__ = [
    "PROMETHEUS_2",
    "PROMETHEUS_3",
    "Dialect",
    "EvaluationError",
    "Query",
    "Sample",
    "Scalar",
    "UnsupportedQuery",
    "Vector",
    "evaluate",
    "parse",
]


class EvaluationError(InputError):
    """A query that parses but cannot be answered: two series fall on one label set, or it reaches too far
    back.
    """


@dataclass(frozen=True, slots=True)
class Sample:
    """One element of a vector: its labels (the metric's name under ``__name__``, if it has one) and its
    value.
    """

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number without labels."""

    value: float


@dataclass(frozen=True, slots=True)
class Vector:
    """Samples at one instant. Empty means "no data"."""

    samples: tuple[Sample, ...] = ()

    def __iter__(self) -> Iterator[Sample]:
        return iter(self.samples)

    def __len__(self) -> int:
        return len(self.samples)

    def value(self) -> float | None:
        """The value of the only sample; None for "no data". Raises ValueError when there are several."""
        if len(self.samples) > 1:
            raise ValueError(f"{len(self.samples)} series where one was expected")
        return self.samples[0].value if self.samples else None


Result: TypeAlias = Vector | Scalar


def evaluate(
    query: Query,
    store: SeriesStore,
    at_ns: int,
    *,
    lookback_ns: int = LOOKBACK_NS,
    dialect: Dialect = PROMETHEUS_3,
) -> Result:
    """The answer to ``query`` at the instant ``at_ns``.

    Raises EvaluationError when Prometheus would answer with an error (ambiguous matches, duplicate label
    sets), or when the query reaches further back than the store remembers.
    """
    _check_reach(query, store, lookback_ns)
    return _Evaluator(query, store, at_ns, lookback_ns, dialect).result(query.root)


def _check_reach(query: Query, store: SeriesStore, lookback_ns: int) -> None:
    windows = {id(node.selector): node.window_ns for node in walk(query.root) if isinstance(node, Window)}
    for selector in query.selectors():
        reach = selector.offset_ns + windows.get(id(selector), lookback_ns)
        if reach > store.retention_ns:
            kept_s = store.retention_ns / NS_PER_S
            message = f"the query reaches {reach / NS_PER_S:g} s back, but only {kept_s:g} s are kept"
            raise EvaluationError(Problem(query.where, message, hint="shorten the range or keep more of the past"))


class _Evaluator:
    def __init__(self, query: Query, store: SeriesStore, at_ns: int, lookback_ns: int, dialect: Dialect) -> None:
        self._query = query
        self._store = store
        self._at_ns = at_ns
        self._lookback_ns = lookback_ns
        self._dialect = dialect

    def result(self, node: Node) -> Result:
        if isinstance(node, Number):
            return Scalar(node.value)
        if isinstance(node, Selector):
            return self._instant(node)
        if isinstance(node, Call):
            return self._call(node)
        if isinstance(node, Aggregate):
            return self._aggregate(node)
        if isinstance(node, Negate):
            inner = self.result(node.expr)
            if isinstance(inner, Scalar):
                return Scalar(-inner.value)
            return self._vector((_nameless(s.labels), -s.value) for s in inner)
        if isinstance(node, Binary):
            return self._binary(node)
        raise AssertionError("a range vector stands only inside a range function; the parser sees to it")

    def _scalar(self, node: Node) -> float:
        inner = self.result(node)
        assert isinstance(inner, Scalar)  # the parser checks the types of arguments
        return inner.value

    def _samples(self, node: Node) -> Vector:
        inner = self.result(node)
        assert isinstance(inner, Vector)
        return inner

    def _instant(self, node: Selector) -> Vector:
        at_ns, open_end = self._at_ns - node.offset_ns, self._dialect.left_open
        found = ((s, s.at(at_ns, self._lookback_ns, left_open=open_end)) for s in self._store.select(node.matchers))
        return Vector(tuple(Sample(series.labels, value) for series, value in found if value is not None))

    def _call(self, node: Call) -> Result:
        name, args = node.function, node.args
        if name == "vector":
            return Vector((Sample({}, self._scalar(args[0])),))
        if name == "scalar":
            vector = self._samples(args[0])
            return Scalar(vector.samples[0].value if len(vector) == 1 else float("nan"))
        if name == "clamp_min":
            low = self._scalar(args[1])
            return self._vector((_nameless(s.labels), fn.clamp(s.value, low=low)) for s in self._samples(args[0]))
        if name == "clamp_max":
            high = self._scalar(args[1])
            return self._vector((_nameless(s.labels), fn.clamp(s.value, high=high)) for s in self._samples(args[0]))
        if name == "histogram_quantile":
            return self._histogram_quantile(self._scalar(args[0]), self._samples(args[1]))
        assert isinstance(args[0], Window)
        return self._over_window(name, args[0])

    def _over_window(self, name: str, node: Window) -> Vector:
        end_ns = self._at_ns - node.selector.offset_ns
        answers: list[tuple[Mapping[str, str], float]] = []
        for series in self._store.select(node.selector.matchers):
            value = self._over_series(name, series, end_ns - node.window_ns, end_ns)
            if value is not None:
                keeps_name = name == "last_over_time"
                answers.append((series.labels if keeps_name else _nameless(series.labels), value))
        return self._vector(answers)

    def _over_series(self, name: str, series: Series, start_ns: int, end_ns: int) -> float | None:
        times, values = series.window(start_ns, end_ns, left_open=self._dialect.left_open)
        samples = Samples(times, values, start_ns, end_ns)
        if name in fn.OVER_TIME:
            return fn.OVER_TIME[name](values) if values else None
        if name == "irate":
            return fn.instant_rate(samples)
        return fn.extrapolated(samples, self._dialect, counter=name != "delta", per_second=name == "rate")

    def _histogram_quantile(self, quantile: float, vector: Vector) -> Vector:
        histograms: dict[_Key, list[tuple[float, float]]] = {}
        for sample in vector:
            try:
                bound = float(sample.labels.get("le", ""))
            except ValueError:
                continue  # not a bucket of a classic histogram
            key = _key(label for label in sample.labels.items() if label[0] not in ("le", NAME))
            histograms.setdefault(key, []).append((bound, sample.value))
        return self._vector((dict(key), fn.histogram_quantile(quantile, h)) for key, h in histograms.items())

    def _aggregate(self, node: Aggregate) -> Vector:
        groups: dict[_Key, list[float]] = {}
        listed = frozenset(node.labels)
        for sample in self._samples(node.expr):
            key = _key(_kept(sample.labels, listed, without=node.without))
            groups.setdefault(key, []).append(sample.value)
        reduce = _REDUCERS[node.op]
        return Vector(tuple(Sample(dict(key), reduce(values)) for key, values in groups.items()))

    def _binary(self, node: Binary) -> Result:
        lhs, rhs = self.result(node.lhs), self.result(node.rhs)
        if isinstance(lhs, Scalar) and isinstance(rhs, Scalar):
            return Scalar(float(_OPERATORS[node.op](lhs.value, rhs.value)))
        if isinstance(lhs, Vector) and isinstance(rhs, Vector):
            return self._set(node, lhs, rhs) if node.op in SET_OPERATORS else self._matched(node, lhs, rhs)
        if isinstance(lhs, Vector):
            assert isinstance(rhs, Scalar)
            pairs = ((s.labels, s.value, rhs.value, s.value) for s in lhs)
        else:
            assert isinstance(rhs, Vector)
            pairs = ((s.labels, lhs.value, s.value, s.value) for s in rhs)
        answers = ((labels, _apply(node, left, right, kept)) for labels, left, right, kept in pairs)
        named = node.op in COMPARISONS and not node.bool_result
        return self._vector((ls if named else _nameless(ls), value) for ls, value in answers if value is not None)

    def _matched(self, node: Binary, lhs: Vector, rhs: Vector) -> Vector:
        """One-to-one matching on the labels of ``on``, or on all but those of ``ignoring``."""
        if not lhs.samples or not rhs.samples:  # Prometheus does not look for duplicates then
            return Vector()
        right: dict[_Key, Sample] = {}
        for sample in rhs:
            signature = _signature(node, sample.labels)
            if signature in right:
                raise self._error(
                    f"found duplicate series for the match group {dict(signature)} on the right of {node.op}"
                )
            right[signature] = sample
        matched: set[_Key] = set()
        answers: list[tuple[Mapping[str, str], float]] = []
        for sample in lhs:
            signature = _signature(node, sample.labels)
            if signature not in right:
                continue
            value = _apply(node, sample.value, right[signature].value, sample.value)
            if value is None and not self._dialect.filtered_matches_count:
                continue
            if signature in matched:
                raise self._error(f"several series on the left of {node.op} match {dict(signature)}: needs group_left")
            matched.add(signature)
            if value is not None:
                answers.append((_result_labels(node, sample.labels), value))
        return self._vector(answers)

    def _set(self, node: Binary, lhs: Vector, rhs: Vector) -> Vector:
        left = {_signature(node, sample.labels) for sample in lhs}
        right = {_signature(node, sample.labels) for sample in rhs}
        if node.op == "and":
            return Vector(tuple(s for s in lhs if _signature(node, s.labels) in right))
        if node.op == "unless":
            return Vector(tuple(s for s in lhs if _signature(node, s.labels) not in right))
        added = [(s.labels, s.value) for s in rhs if _signature(node, s.labels) not in left]
        return self._vector([(s.labels, s.value) for s in lhs] + added)

    def _vector(self, answers: Iterable[tuple[Mapping[str, str], float]]) -> Vector:
        """A vector, after the check that no two elements have the same labels."""
        samples = tuple(Sample(labels, value) for labels, value in answers)
        if len(samples) > 1 and len({_key(s.labels.items()) for s in samples}) < len(samples):
            raise self._error("the answer would hold two series with the same labels")
        return Vector(samples)

    def _error(self, message: str) -> EvaluationError:
        return EvaluationError(Problem(self._query.where, message, hint=f"in the query {self._query.text!r}"))


_Key: TypeAlias = tuple[tuple[str, str], ...]

_OPERATORS: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": fn.divide,
    "%": fn.modulo,
    "^": fn.power,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

_REDUCERS: dict[str, Callable[[Sequence[float]], float]] = {
    "sum": fn.total,
    "avg": fn.mean,
    "min": fn.smallest,
    "max": fn.largest,
    "count": lambda values: float(len(values)),
}


def _apply(node: Binary, left: float, right: float, kept: float) -> float | None:
    """The value of ``left op right``; a comparison without ``bool`` gives ``kept`` or drops the element
    (None).
    """
    value = _OPERATORS[node.op](left, right)
    if node.op not in COMPARISONS or node.bool_result:
        return float(value)
    return kept if value else None


def _key(labels: Iterable[tuple[str, str]]) -> _Key:
    return tuple(sorted(labels))


def _nameless(labels: Mapping[str, str]) -> Mapping[str, str]:
    return {label: value for label, value in labels.items() if label != NAME} if NAME in labels else labels


def _kept(labels: Mapping[str, str], listed: frozenset[str], *, without: bool) -> Iterable[tuple[str, str]]:
    """The labels that stay under by(listed), or under without(listed), which drops the name too."""
    if without:
        return ((label, value) for label, value in labels.items() if label not in listed and label != NAME)
    return ((label, labels[label]) for label in listed if label in labels)


def _signature(node: Binary, labels: Mapping[str, str]) -> _Key:
    return _key(_kept(labels, frozenset(node.labels), without=not node.on))


def _result_labels(node: Binary, labels: Mapping[str, str]) -> Mapping[str, str]:
    """What a one-to-one match is called: its signature; only a plain comparison keeps the left side's
    name.
    """
    result = dict(_signature(node, labels))
    if node.op not in COMPARISONS or node.bool_result:
        result.pop(NAME, None)
    elif NAME in labels and not node.on and NAME not in node.labels:
        result[NAME] = labels[NAME]
    return result
