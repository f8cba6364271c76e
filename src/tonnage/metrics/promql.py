"""PromQL instant queries over a :class:`~tonnage.metrics.store.SeriesStore`.

The part that autoscaling, alerts and dashboards of GPUs use; everything else is refused by name when the query is
parsed. An empty vector means "no data", which is not zero. Semantics follow prometheus/prometheus
promql/engine.go.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from tonnage.errors import Problem
from tonnage.metrics import elements
from tonnage.metrics import functions as fn
from tonnage.metrics.aggregations import aggregated
from tonnage.metrics.functions import PROMETHEUS_2, PROMETHEUS_3, Dialect, Samples
from tonnage.metrics.matching import OPERATORS, applied, combined, drops_name, matched
from tonnage.metrics.store import LOOKBACK_NS, NAME, MatchOp, Series, SeriesStore
from tonnage.metrics.syntax import (
    DATE_FUNCTIONS,
    ELEMENT_FUNCTIONS,
    SET_OPERATORS,
    Aggregate,
    At,
    Binary,
    Call,
    Negate,
    Node,
    Number,
    Query,
    Selector,
    Subquery,
    Text,
    UnsupportedQuery,
    Window,
    children,
    parse,
    parse_any,
)
from tonnage.metrics.vectors import LabelKey, QueryError, Result, Sample, Scalar, Vector, key, nameless
from tonnage.units import NS_PER_MS, NS_PER_S

__all__ = [
    "DEFAULT_STEP_NS",
    "PROMETHEUS_2",
    "PROMETHEUS_3",
    "Dialect",
    "Query",
    "QueryError",
    "Result",
    "Sample",
    "Scalar",
    "UnsupportedQuery",
    "Vector",
    "evaluate",
    "is_range",
    "matrix",
    "parse",
    "parse_any",
]

DEFAULT_STEP_NS = 60 * NS_PER_S
"""The step of a subquery that names none: Prometheus' ``global.evaluation_interval``."""

LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


def evaluate(
    query: Query,
    store: SeriesStore,
    at_ns: int,
    *,
    lookback_ns: int = LOOKBACK_NS,
    dialect: Dialect = PROMETHEUS_3,
    step_ns: int = DEFAULT_STEP_NS,
    epoch_ns: int = 0,
) -> Result:
    """The answer to ``query`` at the instant ``at_ns``.

    ``step_ns`` is the step of subqueries that name none; ``epoch_ns`` is added to the store's times to make them Unix
    times, for ``@``, ``time()``, ``timestamp()``, dates and where a subquery's steps lie.

    Raises QueryError when Prometheus would answer with an error (ambiguous matches, duplicate label
    sets), or when the query reaches further back than the store remembers.
    """
    evaluator = _Evaluator(_Setting(query, store, at_ns, lookback_ns, dialect, step_ns, epoch_ns), at_ns)
    evaluator.check_reach(query.root)
    return evaluator.result(query.root)


def matrix(
    query: Query,
    store: SeriesStore,
    at_ns: int,
    *,
    dialect: Dialect = PROMETHEUS_3,
    step_ns: int = DEFAULT_STEP_NS,
    epoch_ns: int = 0,
) -> list[tuple[Mapping[str, str], Samples]]:
    """The labels and samples of each series of a range vector (:func:`parse_any`) at the instant ``at_ns``, those
    without samples left out. The arguments, and what is raised, are those of :func:`evaluate`."""
    evaluator = _Evaluator(_Setting(query, store, at_ns, LOOKBACK_NS, dialect, step_ns, epoch_ns), at_ns)
    evaluator.check_reach(query.root)
    return [(labels, found) for labels, found in evaluator.ranges(query.root) if found.times]


def is_range(query: Query) -> bool:
    """Whether a query of any type is a range vector."""
    return isinstance(query.root, Window | Subquery)


class _Setting(Struct, frozen=True):
    """What is the same for a whole query. ``at_ns``: its instant."""

    query: Query
    store: SeriesStore
    at_ns: int
    lookback_ns: int
    dialect: Dialect
    step_ns: int
    epoch_ns: int


class _Evaluator:
    """Evaluates nodes at one instant; a subquery makes others, at its own instants."""

    def __init__(self, setting: _Setting, at_ns: int) -> None:
        self._of = setting
        self._at_ns = at_ns

    def check_reach(self, node: Node) -> None:
        """Raises QueryError where something below the node reaches further back than the store remembers."""
        if isinstance(node, Window):
            self._reach(self._instant_of(node.selector) - node.window_ns)
        elif isinstance(node, Selector):
            self._reach(self._instant_of(node) - self._of.lookback_ns)
        elif isinstance(node, Subquery):
            _Evaluator(self._of, self._instant_of(node) - node.range_ns).check_reach(node.expr)
        else:
            for child in children(node):
                self.check_reach(child)

    def _reach(self, oldest_ns: int) -> None:
        back_ns, kept_ns = self._of.at_ns - oldest_ns, self._of.store.retention_ns
        if back_ns > kept_ns:
            reached, kept = back_ns / NS_PER_S, kept_ns / NS_PER_S
            message = f"the query reaches {reached:g} s back, but only {kept:g} s are kept"
            hint = "shorten the range or keep more of the past"
            raise QueryError(Problem(self._of.query.where, message, hint=hint))

    def _instant_of(self, node: Selector | Subquery) -> int:
        """When a selector looks, after ``@`` and ``offset``."""
        at: At | None = node.at
        if at is None:
            return self._at_ns - node.offset_ns
        moved = self._of.at_ns if at.unix_ns is None else at.unix_ns - self._of.epoch_ns
        return moved - node.offset_ns

    def result(self, node: Node) -> Result:
        if isinstance(node, Number):
            return Scalar(node.value)
        if isinstance(node, Selector):
            return Vector(tuple(Sample(series.labels, value) for series, _, value in self._found(node)))
        if isinstance(node, Call):
            return self._call(node)
        if isinstance(node, Aggregate):
            return self._aggregate(node)
        if isinstance(node, Negate):
            inner = self.result(node.expr)
            if isinstance(inner, Scalar):
                return Scalar(-inner.value)
            return self._vector((nameless(s.labels), -s.value) for s in inner)
        if isinstance(node, Binary):
            return self._binary(node)
        raise AssertionError("a range vector or a string stands only inside a function; the parser sees to it")

    def _scalar(self, node: Node) -> float:
        inner = self.result(node)
        assert isinstance(inner, Scalar)  # the parser checks the types of arguments
        return inner.value

    def _samples(self, node: Node) -> Vector:
        inner = self.result(node)
        assert isinstance(inner, Vector)
        return inner

    def _unix_s(self, at_ns: int) -> float:
        return (self._of.epoch_ns + at_ns) // NS_PER_MS / 1000

    def _found(self, node: Selector) -> Iterable[tuple[Series, int, float]]:
        """Series with the time and the value of the sample that counts."""
        at_ns, open_end = self._instant_of(node), self._of.dialect.left_open
        for series in self._of.store.select(node.matchers):
            found = series.sample_at(at_ns, self._of.lookback_ns, left_open=open_end)
            if found is not None:
                yield series, *found

    def _call(self, node: Call) -> Result:
        name, args = node.function, node.args
        if args and isinstance(args[-1 if name == "quantile_over_time" else 0], Window | Subquery):
            return self._over_range(node)
        if name == "pi":
            return Scalar(math.pi)
        if name == "time":
            return Scalar(self._unix_s(self._at_ns))
        if name == "vector":
            return Vector((Sample({}, self._scalar(args[0])),))
        if name == "scalar":
            vector = self._samples(args[0])
            return Scalar(vector.samples[0].value if len(vector) == 1 else math.nan)
        if name in ELEMENT_FUNCTIONS:
            return self._elements(name, self._samples(args[0]), [self._scalar(one) for one in args[1:]])
        if name in DATE_FUNCTIONS:
            times = self._samples(args[0]) if args else Vector((Sample({}, self._unix_s(self._at_ns)),))
            return self._vector((nameless(s.labels), elements.date_part(name, s.value)) for s in times)
        if name == "histogram_quantile":
            return self._histogram_quantile(self._scalar(args[0]), self._samples(args[1]))
        if name == "timestamp":
            return self._timestamp(args[0])
        if name == "absent":
            return Vector(() if self._samples(args[0]).samples else (Sample(_absent_labels(args[0]), 1.0),))
        if name in ("sort", "sort_desc"):
            sign = 1.0 if name == "sort" else -1.0
            return Vector(tuple(sorted(self._samples(args[0]), key=lambda s: _rank(sign * s.value))))
        return self._relabelled(name, self._samples(args[0]), [one.value for one in args[1:] if isinstance(one, Text)])

    def _elements(self, name: str, vector: Vector, scalars: Sequence[float]) -> Vector:
        if name == "clamp" and scalars[1] < scalars[0]:
            return Vector()
        call = elements.ELEMENT[name]
        return self._vector((nameless(s.labels), call(s.value, *scalars)) for s in vector)

    def _timestamp(self, node: Node) -> Vector:
        """Of a selector the time of its samples, of anything else that of the evaluation."""
        if isinstance(node, Selector):
            return self._vector((nameless(s.labels), self._unix_s(at_ns)) for s, at_ns, _ in self._found(node))
        now = self._unix_s(self._at_ns)
        return self._vector((nameless(s.labels), now) for s in self._samples(node))

    def _relabelled(self, name: str, vector: Vector, words: Sequence[str]) -> Vector:
        """``label_replace`` and ``label_join``."""
        target = words[0]
        sources = words[2:] if name == "label_join" else ()
        for label in (target, *sources):
            if not LABEL_NAME.fullmatch(label):
                raise self._error(f"{label!r} is not a label's name")
        pattern = None
        if name == "label_replace":
            try:
                pattern = re.compile(words[3], re.DOTALL | re.ASCII)
            except re.error as error:
                raise self._error(f"the regular expression {words[3]!r} cannot be read: {error}") from error
        answers = []
        for sample in vector:
            if pattern is not None:
                value = elements.replaced(sample.labels, target, words[1], words[2], pattern)
            else:
                value = elements.joined(sample.labels, words[1], sources)
            rest = {label: kept for label, kept in sample.labels.items() if label != target}
            answers.append(({**rest, target: value} if value else rest, sample.value))
        return self._vector(answers)

    def _over_range(self, node: Call) -> Vector:
        """A function of range vectors."""
        name = node.function
        place = 1 if name == "quantile_over_time" else 0
        ranged = node.args[place]
        number = self._scalar(node.args[1 - place]) if len(node.args) > 1 else math.nan
        answers: list[tuple[Mapping[str, str], float]] = []
        for labels, samples in self.ranges(ranged):
            value = self._over_samples(name, samples, number)
            if value is not None:
                answers.append((labels if name == "last_over_time" else nameless(labels), value))
        if name == "absent_over_time":
            return Vector(() if answers else (Sample(_absent_labels(ranged), 1.0),))
        return self._vector(answers)

    def ranges(self, node: Node) -> Iterable[tuple[Mapping[str, str], Samples]]:
        """Each series of a range vector with its samples, oldest first."""
        left_open = self._of.dialect.left_open
        if isinstance(node, Subquery):
            yield from self._subquery(node)
            return
        assert isinstance(node, Window)
        end_ns = self._instant_of(node.selector)
        start_ns = end_ns - node.window_ns
        for series in self._of.store.select(node.selector.matchers):
            times, values = series.window(start_ns, end_ns, left_open=left_open)
            yield series.labels, Samples(times, values, start_ns, end_ns)

    def _subquery(self, node: Subquery) -> Iterable[tuple[Mapping[str, str], Samples]]:
        """The inner expression at every Unix time that is a multiple of the step."""
        end_ns, step_ns, epoch_ns = self._instant_of(node), node.step_ns or self._of.step_ns, self._of.epoch_ns
        start_ns = end_ns - node.range_ns
        first = -(-(start_ns + epoch_ns) // step_ns) * step_ns - epoch_ns
        if first == start_ns and self._of.dialect.left_open:
            first += step_ns
        found: dict[LabelKey, tuple[Mapping[str, str], list[int], list[float]]] = {}
        for at_ns in range(first, end_ns + 1, step_ns):
            inner = _Evaluator(self._of, at_ns).result(node.expr)
            samples = (Sample({}, inner.value),) if isinstance(inner, Scalar) else inner.samples
            for sample in samples:
                _, times, values = found.setdefault(key(sample.labels.items()), (sample.labels, [], []))
                times.append(at_ns)
                values.append(sample.value)
        for labels, times, values in found.values():
            yield labels, Samples(times, values, start_ns, end_ns)

    def _over_samples(self, name: str, samples: Samples, number: float) -> float | None:
        values = samples.values
        if name in fn.OVER_TIME:
            return fn.OVER_TIME[name](values) if values else None
        if name == "absent_over_time":
            return 1.0 if values else None
        if name == "quantile_over_time":
            return fn.quantile(number, values) if values else None
        if name == "irate":
            return fn.instant_rate(samples)
        if name == "idelta":
            return fn.instant_delta(samples)
        if name == "deriv":
            return fn.slope(samples)
        if name == "predict_linear":
            return fn.predicted(samples, self._at_ns, number)
        return fn.extrapolated(samples, self._of.dialect, counter=name != "delta", per_second=name == "rate")

    def _histogram_quantile(self, quantile: float, vector: Vector) -> Vector:
        histograms: dict[LabelKey, list[tuple[float, float]]] = {}
        for sample in vector:
            try:
                bound = float(sample.labels.get("le", ""))
            except ValueError:
                continue  # not a bucket of a classic histogram
            labels = key(label for label in sample.labels.items() if label[0] not in ("le", NAME))
            histograms.setdefault(labels, []).append((bound, sample.value))
        return self._vector((dict(labels), fn.histogram_quantile(quantile, h)) for labels, h in histograms.items())

    def _aggregate(self, node: Aggregate) -> Vector:
        label = node.param.value if isinstance(node.param, Text) else ""
        number = math.nan if node.param is None or isinstance(node.param, Text) else self._scalar(node.param)
        if node.op in ("topk", "bottomk") and math.isnan(number):
            raise self._error(f"the parameter of {node.op} is NaN")
        if node.op == "count_values" and not LABEL_NAME.fullmatch(label):
            raise self._error(f"{label!r} is not a label's name")
        return self._vector(aggregated(node, self._samples(node.expr), number, label, self._of.dialect))

    def _binary(self, node: Binary) -> Result:
        lhs, rhs = self.result(node.lhs), self.result(node.rhs)
        if isinstance(lhs, Scalar) and isinstance(rhs, Scalar):
            return Scalar(float(OPERATORS[node.op](lhs.value, rhs.value)))
        if isinstance(lhs, Vector) and isinstance(rhs, Vector):
            if node.op in SET_OPERATORS:
                return self._vector(combined(node, lhs, rhs)) if node.op == "or" else _as_they_are(node, lhs, rhs)
            return self._vector(matched(self._of.query, node, lhs, rhs, self._of.dialect))
        if isinstance(lhs, Vector):
            assert isinstance(rhs, Scalar)
            pairs = ((s.labels, s.value, rhs.value, s.value) for s in lhs)
        else:
            assert isinstance(rhs, Vector)
            pairs = ((s.labels, lhs.value, s.value, s.value) for s in rhs)
        answers = ((labels, applied(node, left, right, kept)) for labels, left, right, kept in pairs)
        named = not drops_name(node, self._of.dialect)
        return self._vector((ls if named else nameless(ls), value) for ls, value in answers if value is not None)

    def _vector(self, answers: Iterable[tuple[Mapping[str, str], float]]) -> Vector:
        """A vector, after the check that no two elements have the same labels."""
        samples = tuple(Sample(labels, value) for labels, value in answers)
        if len(samples) > 1 and len({key(s.labels.items()) for s in samples}) < len(samples):
            raise self._error("the answer would hold two series with the same labels")
        return Vector(samples)

    def _error(self, message: str) -> QueryError:
        query = self._of.query
        return QueryError(Problem(query.where, message, hint=f"in the query {query.text!r}"))


def _as_they_are(node: Binary, lhs: Vector, rhs: Vector) -> Vector:
    return Vector(tuple(Sample(labels, value) for labels, value in combined(node, lhs, rhs)))


def _rank(value: float) -> tuple[bool, float]:
    return (True, 0.0) if math.isnan(value) else (False, value)


def _absent_labels(node: Node) -> Mapping[str, str]:
    """The labels that a selector's equalities give to what is absent; one that is asked for twice is left out."""
    selector = node.selector if isinstance(node, Window) else node
    if not isinstance(selector, Selector):
        return {}
    labels: dict[str, str] = {}
    seen: set[str] = set()
    for matcher in selector.matchers:
        if matcher.label == NAME:
            continue
        if matcher.op is MatchOp.EQUAL and matcher.label not in seen:
            seen.add(matcher.label)
            labels[matcher.label] = matcher.value
        else:
            labels.pop(matcher.label, None)
    return {label: value for label, value in labels.items() if value}
