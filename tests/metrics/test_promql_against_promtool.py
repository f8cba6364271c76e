"""The evaluator against the real Prometheus engine: random series, random queries, answers compared label by label."""

from __future__ import annotations

import json
import math
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from deep_seeds import deep
from tonnage.metrics.functions import Dialect
from tonnage.metrics.promql import QueryError, Scalar, Vector, evaluate, parse
from tonnage.metrics.store import SeriesStore
from tonnage.units import NS_PER_S

PROMTOOL = shutil.which("promtool")
pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (apt-get install prometheus)"),
]

LENGTH_S = 1_200
EVAL_TIMES_S = (300, 615, 900, 1_195)
SENTINEL = {"labels": "sentinel", "value": 1}  # never equal, so that promtool prints what it got

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


def notation(points: Points) -> str:
    """promtool's series notation at one point a second."""
    words, silent = [], 0
    for second in range(LENGTH_S):
        if second not in points:
            silent += 1
            continue
        if silent:
            words.append(f"_x{silent}")
            silent = 0
        value = points[second]
        words.append(
            "stale"
            if value is None
            else "NaN"
            if math.isnan(value)
            else f"{value:g}"
            if math.isinf(value)
            else repr(value)
        )
    return " ".join(words)


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


def ask_promtool(folder: Path, series: dict[SeriesKey, Points], cases: list[tuple[str, int]]) -> list[str]:
    """What promtool got for each case: the text after ``got:``, or ``err`` for an error."""
    spec = {
        "evaluation_interval": "5s",  # promtool loads samples up to the last whole interval only
        "tests": [
            {
                "interval": "1s",
                "input_series": [
                    {
                        "series": name + json.dumps(dict(labels)).replace(": ", "=").replace('"', "'"),
                        "values": notation(points),
                    }
                    for (name, labels), points in series.items()
                ],
                "promql_expr_test": [{"expr": q, "eval_time": f"{t}s", "exp_samples": [SENTINEL]} for q, t in cases],
            }
        ],
    }
    for item in spec["tests"][0]["input_series"]:
        item["series"] = re.sub(r"'(\w+)'=", r"\1=", item["series"])
    path = folder / "rules.yml"
    path.write_text(json.dumps(spec))
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, "test", "rules", str(path)], capture_output=True, text=True, check=False)
    blocks = (done.stdout + done.stderr).split('    expr: "')[1:]
    assert len(blocks) == len(cases), done.stderr[-2000:]
    return ["err" if " err: " in block.splitlines()[0] else block.rpartition("got:")[2].strip() for block in blocks]


def read_vector(text: str) -> dict[tuple[tuple[str, str], ...], float]:
    if text in ("nil", "[]"):
        return {}
    found = re.findall(r"\{([^}]*)\} ([^,\s]+)", text)
    return {tuple(sorted(re.findall(r'(\w+)="([^"]*)"', labels))): float(value) for labels, value in found}


def dialect() -> Dialect:
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, "--version"], capture_output=True, text=True, check=False)
    major, minor = re.findall(r"version (\d+)\.(\d+)", done.stdout + done.stderr)[0]
    return Dialect.of(int(major), int(minor))


def store_of(series: dict[SeriesKey, Points]) -> SeriesStore:
    store = SeriesStore()
    for (name, labels), points in series.items():
        for second in sorted(points):
            value = points[second]
            if value is None:
                store.mark_stale(name, dict(labels), second * NS_PER_S)
            else:
                store.append(name, dict(labels), second * NS_PER_S, value)
    return store


def same(a: float, b: float, largest: float) -> bool:
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return a == b or abs(a - b) <= 1e-9 * max(abs(a), abs(b), largest)


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


@pytest.mark.parametrize("seed", range(12))
def test_random_queries_give_what_prometheus_gives(seed: int, tmp_path: Path) -> None:
    hold_beside(random.Random(seed), Queries, tmp_path, 80)


@pytest.mark.parametrize("seed", range(100, 106))
def test_functions_of_dashboards_give_what_prometheus_gives(seed: int, tmp_path: Path) -> None:
    hold_beside(random.Random(seed), MoreQueries, tmp_path, 60)


@pytest.mark.parametrize("seed", deep(range(200, 230)))
def test_many_functions_give_what_prometheus_gives(seed: int, tmp_path: Path) -> None:
    hold_beside(random.Random(seed), MoreQueries, tmp_path, 60)


def hold_beside(rng: random.Random, kind: type[Queries], tmp_path: Path, least: int) -> None:
    series = make_series(rng)
    if kind is MoreQueries:  # what is first among equals depends on the order in which series come: there are none
        for index, (key, points) in enumerate(series.items()):
            if key[0] == "gauge":
                series[key] = {at: value if value is None else value + index / 1024 for at, value in points.items()}
    queries = kind(rng)
    cases = [(queries.vector(rng.choice([0, 1, 2, 3])), rng.choice(EVAL_TIMES_S)) for _ in range(200)]
    expected = ask_promtool(tmp_path, series, cases)
    store, version = store_of(series), dialect()
    finite = [abs(v) for points in series.values() for v in points.values() if v is not None and math.isfinite(v)]
    answered = 0
    for (text, second), theirs in zip(cases, expected, strict=True):
        label = f"{text} at {second} s: promtool says {theirs}"
        try:
            ours = evaluate(parse(text), store, second * NS_PER_S, dialect=version, step_ns=5 * NS_PER_S)
        except QueryError as error:
            assert theirs == "err", f"{label}, we say {error}"
            continue
        assert theirs != "err", label
        if isinstance(ours, Scalar):
            assert same(ours.value, next(iter(read_vector(theirs).values())), 0.0), label
            continue
        assert isinstance(ours, Vector)
        found = {tuple(sorted(s.labels.items())): s.value for s in ours}
        wanted = read_vector(theirs)
        assert found.keys() == wanted.keys(), f"{label}, we say {found}"
        for key, value in wanted.items():
            assert same(found[key], value, max(finite)), f"{label}, we say {found[key]}"
        answered += bool(wanted)
    assert answered > least  # the comparison has substance
