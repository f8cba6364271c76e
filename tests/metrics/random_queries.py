"""Random series and random well-typed queries, and what the evaluator answers to them beside what Prometheus did."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence

from tonnage.metrics.functions import Dialect
from tonnage.metrics.promql import QueryError, Result, Scalar, evaluate, parse
from tonnage.metrics.store import SeriesStore
from tonnage.units import NS_PER_S

LENGTH_S = 1_200
EVAL_TIMES_S = (300, 615, 900, 1_195)
STEP_S = 5
"""Of a subquery that names none."""

Points = dict[int, float | None]  # second → value, None is a stale marker
SeriesKey = tuple[str, tuple[tuple[str, str], ...]]


def make_series(rng: random.Random) -> dict[SeriesKey, Points]:
    """Gauges, counters with resets and histograms; jittered scrapes, gaps, stale ends, NaN and Inf."""
    made: dict[SeriesKey, Points] = {}
    for pod in ("a", "b", "c"):
        for gpu in ("0", "1"):
            labels = (("gpu", gpu), ("pod", pod))
            made[("gauge", labels)] = scrapes(rng, lambda _: rng.choice([rng.uniform(-50, 100), rng.randint(0, 100)]))
            made[("counter", labels)] = scrapes(rng, counter(rng))
        made[("other", (("pod", pod),))] = scrapes(rng, lambda _: float(rng.randint(0, 3)))
        base = [counter(rng, resets=False) for _ in range(5)]
        times = sorted(scrapes(rng, lambda _: 0.0))
        totals = [[step(0.0) for step in base] for _ in times]
        for index, bound in enumerate(("0.1", "0.5", "2", "10", "+Inf")):
            key = ("lat_bucket", (("le", bound), ("pod", pod)))
            made[key] = {t: sum(row[: index + 1]) for t, row in zip(times, totals, strict=True)}
    odd = made[("gauge", (("gpu", "1"), ("pod", "c")))]
    for second, value in zip(sorted(odd)[::9], (math.nan, math.inf, -math.inf), strict=False):
        odd[second] = value
    return made


def counter(rng: random.Random, *, resets: bool = True):
    state = [float(rng.choice([0, 0, 3, 500]))]

    def step(_: float) -> float:
        state[0] = 0.0 if resets and rng.random() < 0.03 else state[0] + rng.choice([0, 1, 2.5, rng.uniform(0, 40)])
        return state[0]

    return step


def scrapes(rng: random.Random, value) -> Points:
    interval, points = rng.choice([5, 15, 30]), {}
    second = rng.randint(0, 400) if rng.random() < 0.3 else rng.randint(0, interval)
    jitter = rng.choice([0, 0, 2])
    while second < LENGTH_S:
        at = second + rng.randint(0, jitter)
        if rng.random() < 0.95:
            points[at] = value(0.0)
        if rng.random() < 0.01:
            points[at + 1] = None
            second += rng.choice([0, 200])
        second += interval
    return {t: v for t, v in points.items() if t < LENGTH_S}


class Queries:
    """A random well-typed query."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def selector(self, names: tuple[str, ...] = ("gauge", "counter", "other")) -> str:
        matchers = self.rng.choice(
            ["", "", '{pod="a"}', '{pod=~"a|b"}', '{pod!="c"}', '{gpu!~"1.*"}', '{gpu=""}', '{pod=~".+",gpu="0"}']
        )
        return self.rng.choice(names) + matchers

    def offset(self) -> str:
        return self.rng.choice(["", "", "", " offset 1m", " offset 90s"])

    def ranged(self) -> str:
        window = self.rng.choice(["15s", "1m", "90s", "5m", "4m59s", "10m"])
        if self.rng.random() < 0.5:
            function = self.rng.choice(["rate", "increase", "irate"])
            return f"{function}({self.selector(('counter',))}[{window}]{self.offset()})"
        function = self.rng.choice(
            [
                "delta",
                "avg_over_time",
                "max_over_time",
                "min_over_time",
                "sum_over_time",
                "count_over_time",
                "last_over_time",
            ]
        )
        return f"{function}({self.selector()}[{window}]{self.offset()})"

    def number(self) -> str:
        return self.rng.choice(["0", "1", "2.5", "-3", "100", "0.9"])

    def vector(self, depth: int) -> str:
        kind = self.rng.random()
        if depth <= 0 or kind < 0.15:
            return self.selector() + self.offset() if self.rng.random() < 0.5 else self.ranged()
        if kind < 0.4:
            group = self.rng.choice(
                ["", "by (pod)", "by (gpu)", "without (gpu)", "by (pod, gpu)", "by ()", "without ()", "by (missing)"]
            )
            return f"{self.rng.choice(['sum', 'avg', 'min', 'max', 'count'])} {group} ({self.vector(depth - 1)})"
        if kind < 0.5:
            return f"-({self.vector(depth - 1)})"
        if kind < 0.65:
            op = self.rng.choice(["+", "-", "*", "/", "%", "^", ">", "<=", "== bool", "!=", "> bool"])
            pair = [self.vector(depth - 1), self.number()]
            self.rng.shuffle(pair)
            return f"({pair[0]}) {op} ({pair[1]})"
        if kind < 0.85:
            op = self.rng.choice(["+", "-", "*", "/", ">", "<= bool", "or", "and", "unless", "=="])
            match = self.rng.choice(["", "", "on (pod)", "ignoring (gpu)", "on (pod, gpu)", "on ()"])
            return f"({self.vector(depth - 1)}) {op} {match} ({self.vector(depth - 1)})"
        if kind < 0.92:
            return f"{self.rng.choice(['clamp_min', 'clamp_max'])}({self.vector(depth - 1)}, {self.number()})"
        if kind < 0.96:
            by = self.rng.choice(["sum by (le)", "sum by (le, pod)", ""])
            quantile = self.rng.choice(["0.5", "0.9", "0.99", "0", "1.5"])
            window = self.rng.choice(["1m", "5m"])
            return f"histogram_quantile({quantile}, {by} (rate(lat_bucket[{window}])))"
        return f"vector(scalar({self.vector(depth - 1)}))"


class MoreQueries(Queries):
    """Queries with the functions of dashboards: those of ranges and dates, labels, ranks, subqueries and ``@``."""

    def ranged(self) -> str:
        if self.rng.random() < 0.3:
            return super().ranged()
        return self.call(self.selector() + f"[{self.rng.choice(['1m', '90s', '5m', '10m'])}]" + self.moved())

    def call(self, ranged: str) -> str:
        name = self.rng.choice(
            [
                "changes",
                "resets",
                "deriv",
                "idelta",
                "stddev_over_time",
                "stdvar_over_time",
                "present_over_time",
                "absent_over_time",
                "predict_linear",
                "quantile_over_time",
            ]
        )
        if name == "predict_linear":  # within a subquery releases differ on the time of a prediction with @
            return f"predict_linear({ranged.partition(' ')[0]}, {self.rng.choice(['60', '-30', '3600'])})"
        if name == "quantile_over_time":
            return f"quantile_over_time({self.rng.choice(['0.5', '0.9', '0', '1', '-1', '2'])}, {ranged})"
        return f"{name}({ranged})"

    def moved(self) -> str:
        """What lies after the instant of the query promtool has not read: times before it only."""
        at = self.rng.choice(["", "", " @ 150", " @ 200.5", " @ start()", " @ end()"])
        ahead = " offset -30s" if at in (" @ 150", " @ 200.5") else ""
        return at + self.rng.choice(["", "", " offset 1m", ahead])

    def subquery(self, depth: int) -> str:
        step = self.rng.choice(["", "7s", "30s", "1m"])
        name = self.rng.choice(["max_over_time", "avg_over_time", "count_over_time", "last_over_time", "sum_over_time"])
        inner, window = self.vector(depth - 1), self.rng.choice(["1m", "2m", "5m"])
        return f"{name}(({inner})[{window}:{step}]{self.moved()})"

    def vector(self, depth: int) -> str:
        kind = self.rng.random()
        if depth <= 0:
            return self.selector() + self.moved() if self.rng.random() < 0.5 else self.ranged()
        if kind < 0.2:
            return super().vector(depth).replace(" % ", " + ")  # the last digit of a mean decides a remainder
        if kind < 0.3:
            return self.subquery(depth)
        inner = self.vector(depth - 1)
        if kind < 0.4:
            group = self.rng.choice(["", "by (pod)", "without (gpu)"])
            op = self.rng.choice(["stddev", "stdvar", "group", "quantile", "count_values"])
            if op == "count_values":  # prints all digits, of which functions get the last ones differently
                inner = self.selector() + self.moved()
            param = {"quantile": self.rng.choice(["0.3, ", "1, ", "7, "]), "count_values": '"v", '}.get(op, "")
            return f"{op} {group} ({param}{inner})"
        if kind < 0.5:
            distinct = f'gauge{{pod!="c"}}{self.moved()}'
            op, count = self.rng.choice(["topk", "bottomk"]), self.rng.choice(["1", "2", "9", "0", "1.7"])
            return f"{op} {self.rng.choice(['', 'by (pod)', 'without (pod)'])} ({count}, {distinct})"
        if kind < 0.62:
            name = self.rng.choice(
                [
                    "abs",
                    "ceil",
                    "floor",
                    "round",
                    "sqrt",
                    "exp",
                    "ln",
                    "log2",
                    "log10",
                    "sgn",
                    "deg",
                    "rad",
                    "sort",
                    "sort_desc",
                    "absent",
                ]
            )
            return f"{name}({inner})"
        if kind < 0.68:
            name = ["minute", "hour", "day_of_week", "day_of_month", "day_of_year", "days_in_month", "month", "year"]
            scaled = f"({inner}) * 100000 + 1700000000 < 1e11 > 0"
            return f"{self.rng.choice(name)}({scaled})" if self.rng.random() < 0.7 else f"{self.rng.choice(name)}()"
        if kind < 0.78:
            regex, text = self.rng.choice([("(.*)", "x-$1"), ("(a|b)", "${1}z"), ("c", ""), ("(?P<n>[ab]).*", "$n$$")])
            if self.rng.random() < 0.3:
                return f'label_join({inner}, "new", "-", "pod", "missing", "gpu")'
            return f'label_replace({inner}, "{self.rng.choice(["new", "pod"])}", "{text}", "pod", "{regex}")'
        if kind < 0.92:
            side, include = self.rng.choice(["left", "right"]), self.rng.choice(["", "extra", "gpu"])
            op = self.rng.choice(["+", "*", "/", ">", "<= bool", "atan2", "=="])
            one = 'label_replace(other, "extra", "$1", "pod", "(.*)")'
            pair = (f"({inner})", one) if side == "left" else (one, f"({inner})")
            return f"{pair[0]} {op} on (pod) group_{side}({include}) {pair[1]}"
        bounds = self.rng.choice(["-5, 60", "10, 2", "0, 1"])
        return self.rng.choice(
            [
                f"clamp({inner}, {bounds})",
                f"timestamp(-({inner}))",
                f"timestamp({self.selector()}{self.offset()})",
                f"vector(time()) - on () group_right () ({inner})",
                f"round({inner}, {self.rng.choice(['0.5', '10', '0.1'])})",
                f"absent({self.selector(('missing',))})",
                f"({inner}) * pi()",
            ]
        )


Answer = Mapping[tuple[tuple[str, str], ...], float]
"""An instant vector: labels in order → value."""
ERROR: Answer = {(("error", "error"),): math.nan}
"""What stands for an error."""


class Inquiry:
    """Series of a seed, and queries of them: (PromQL, second)."""

    def __init__(self, rng: random.Random, kind: type[Queries], number: int = 200) -> None:
        self.series = make_series(rng)
        if kind is MoreQueries:  # what is first among equals depends on the order in which series come: there are none
            for index, (key, points) in enumerate(self.series.items()):
                if key[0] == "gauge":
                    self.series[key] = {at: v if v is None else v + index / 1024 for at, v in points.items()}
        queries = kind(rng)
        self.cases = [(queries.vector(rng.choice([0, 1, 2, 3])), rng.choice(EVAL_TIMES_S)) for _ in range(number)]
        self.store = self._store()
        values = (value for points in self.series.values() for value in points.values() if value is not None)
        self.largest = max(abs(value) for value in values if math.isfinite(value))

    def _store(self) -> SeriesStore:
        store = SeriesStore()
        for (name, labels), points in self.series.items():
            for second in sorted(points):
                value = points[second]
                if value is None:
                    store.mark_stale(name, dict(labels), second * NS_PER_S)
                else:
                    store.append(name, dict(labels), second * NS_PER_S, value)
        return store

    def hold(self, answers: Sequence[Answer], dialect: Dialect) -> int:
        """Assert that the evaluator's answer to each case is Prometheus' own; how many were of some series."""
        answered = 0
        for (text, second), theirs in zip(self.cases, answers, strict=True):
            ours = self._ours(text, second, dialect)
            said = f"{text} at {second} s: Prometheus says {theirs}, we say {ours}"
            assert self.same(ours, theirs), said
            answered += bool(theirs) and theirs is not ERROR
        return answered

    def _ours(self, text: str, second: int, dialect: Dialect) -> Answer:
        try:
            found = evaluate(parse(text), self.store, second * NS_PER_S, dialect=dialect, step_ns=STEP_S * NS_PER_S)
        except QueryError:
            return ERROR
        return answer_of(found)

    def same(self, one: Answer, other: Answer) -> bool:
        """Whether two answers have the same labels, and values that differ by no more than arithmetic does."""
        if one is ERROR or other is ERROR:
            return one is other
        return one.keys() == other.keys() and all(_near(one[key], other[key], self.largest) for key in one)


def answer_of(found: Result) -> Answer:
    """A result of any type; a scalar has no labels."""
    if isinstance(found, Scalar):
        return {(): found.value}
    return {tuple(sorted(one.labels.items())): one.value for one in found}


def _near(a: float, b: float, largest: float) -> bool:
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return a == b or abs(a - b) <= 1e-9 * max(abs(a), abs(b), largest)
