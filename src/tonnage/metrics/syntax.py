"""PromQL as typed nodes: what the evaluator and the analysis of triggers walk.

The grammar is promql-parser's (Prometheus 3). What is not evaluated is refused here, by name, before
anything runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from msgspec import Struct

from tonnage.errors import InputError, Problem, Where
from tonnage.metrics.store import NAME, Matcher, MatchOp

RANGE_FUNCTIONS = frozenset(
    {
        "rate",
        "irate",
        "increase",
        "delta",
        "idelta",
        "deriv",
        "predict_linear",
        "changes",
        "resets",
        "avg_over_time",
        "max_over_time",
        "min_over_time",
        "sum_over_time",
        "count_over_time",
        "last_over_time",
        "present_over_time",
        "absent_over_time",
        "quantile_over_time",
        "stddev_over_time",
        "stdvar_over_time",
    }
)
SCALAR_FUNCTIONS = frozenset({"scalar", "time", "pi"})
"""Functions whose answer is a number without labels."""
DATE_FUNCTIONS = frozenset(
    {"minute", "hour", "day_of_week", "day_of_month", "day_of_year", "days_in_month", "month", "year"}
)
ELEMENT_FUNCTIONS = frozenset(
    {
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
        "clamp",
        "clamp_min",
        "clamp_max",
    }
)
"""Functions of one element after another; further arguments are scalars."""
LABEL_FUNCTIONS = frozenset({"label_replace", "label_join"})
VECTOR_FUNCTIONS = (
    frozenset({"histogram_quantile", "vector", "absent", "sort", "sort_desc", "timestamp"})
    | SCALAR_FUNCTIONS
    | DATE_FUNCTIONS
    | ELEMENT_FUNCTIONS
    | LABEL_FUNCTIONS
)
AGGREGATIONS = frozenset(
    {
        "sum",
        "avg",
        "min",
        "max",
        "count",
        "group",
        "stddev",
        "stdvar",
        "topk",
        "bottomk",
        "quantile",
        "count_values",
    }
)
ARITHMETIC = frozenset({"+", "-", "*", "/", "%", "^", "atan2"})
COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">="})
SET_OPERATORS = frozenset({"or", "and", "unless"})


class UnsupportedQuery(InputError):
    """A query that Prometheus may know but that is not evaluated here; the message names the construct."""


class Number(Struct, frozen=True):
    """A number literal."""

    value: float


class Text(Struct, frozen=True):
    """A string literal: a label's name, a pattern, a separator."""

    value: str


class At(Struct, frozen=True):
    """The ``@`` modifier. ``unix_ns`` None: ``start()`` or ``end()``, the instant of the whole query."""

    unix_ns: int | None


class Selector(Struct, frozen=True):
    """An instant vector selector. ``matchers`` include the one for the metric's name."""

    matchers: tuple[Matcher, ...]
    offset_ns: int = 0
    at: At | None = None

    @property
    def name(self) -> str:
        """The metric's name; "" when it is not given by equality."""
        return next((m.value for m in self.matchers if m.label == NAME and m.op is MatchOp.EQUAL), "")


class Window(Struct, frozen=True):
    """A range vector selector: ``selector[window]``."""

    selector: Selector
    window_ns: int


class Subquery(Struct, frozen=True):
    """``expr[range:step]``: a range vector of what ``expr`` gives every ``step_ns``; 0 is the default step."""

    expr: Node
    range_ns: int
    step_ns: int = 0
    offset_ns: int = 0
    at: At | None = None


class Call(Struct, frozen=True):
    """A function call."""

    function: str
    args: tuple[Node, ...]


class Aggregate(Struct, frozen=True):
    """``op by (labels) (expr)``, or ``without``. ``param``: how many, which quantile or the label's name."""

    op: str
    expr: Node
    labels: tuple[str, ...] = ()
    without: bool = False
    param: Node | None = None


class Negate(Struct, frozen=True):
    """Unary minus."""

    expr: Node


class Binary(Struct, frozen=True):
    """``lhs op rhs``. Two vectors match on the labels in ``labels`` (``on``) or on all others
    (``ignoring``). ``many``: the side of which several may match one of the other, "left" (``group_left``) or "right";
    ``include`` are labels that the one lends to the many.
    """

    op: str
    lhs: Node
    rhs: Node
    labels: tuple[str, ...] = ()
    on: bool = False
    bool_result: bool = False
    many: str = ""
    include: tuple[str, ...] = ()


_NOWHERE = Where()

Node: TypeAlias = Number | Text | Selector | Window | Subquery | Call | Aggregate | Negate | Binary


@dataclass(frozen=True, slots=True)
class Query:
    """A parsed query: its text, its tree, and where it was written."""

    text: str
    root: Node
    where: Where = _NOWHERE

    def selectors(self) -> tuple[Selector, ...]:
        """Every selector of the query, from left to right."""
        return tuple(node for node in walk(self.root) if isinstance(node, Selector))

    def age(self) -> str:
        """PromQL for how many seconds old the samples are that the query reads, on average; empty where it reads none,
        those of several selectors, or others than the newest."""
        found = self.selectors()
        ranged = any(isinstance(node, Window | Subquery) for node in walk(self.root))
        if len(found) != 1 or ranged or found[0].offset_ns or found[0].at is not None:
            return ""
        matchers = ",".join(f"{m.label}{m.op.value}{json.dumps(m.value)}" for m in found[0].matchers)
        return f"time() - avg(timestamp({{{matchers}}}))"


def walk(node: Node) -> Iterator[Node]:
    """A node and everything below it, parents first, from left to right."""
    yield node
    for child in children(node):
        yield from walk(child)


def children(node: Node) -> tuple[Node, ...]:
    """The nodes directly below ``node``, from left to right."""
    if isinstance(node, Call):
        return node.args
    if isinstance(node, Aggregate):
        return (node.expr,) if node.param is None else (node.param, node.expr)
    if isinstance(node, Negate | Subquery):
        return (node.expr,)
    if isinstance(node, Binary):
        return (node.lhs, node.rhs)
    if isinstance(node, Window):
        return (node.selector,)
    return ()


def parse(text: str, where: Where | None = None) -> Query:
    """Parse a PromQL instant query.

    Raises InputError when it is not PromQL or a range vector, and UnsupportedQuery when it uses something that is not
    evaluated.
    """
    found = parse_any(text, where)
    if isinstance(found.root, Window | Subquery):
        hint = "wrap it in a function such as rate()"
        raise InputError(Problem(found.where, "the query is a range vector", hint=hint))
    return found


def parse_any(text: str, where: Where | None = None) -> Query:
    """Parse PromQL of any type: also a range vector by itself, which Prometheus answers with its samples.

    Raises as :func:`parse` does, but for range vectors.
    """
    import promql_parser

    place = where or Where()
    try:
        tree = promql_parser.parse(text)
    except ValueError as error:
        problem = Problem(place, f"not a PromQL query: {error}", hint=f"the query is {text.strip()!r}")
        raise InputError(problem) from error
    return Query(text.strip(), _Reader(place).node(tree), place)


class _Reader:
    """Turns promql-parser's tree into nodes."""

    def __init__(self, where: Where) -> None:
        self._where = where

    def node(self, tree: Any) -> Node:
        import promql_parser as pp

        if isinstance(tree, pp.ParenExpr):
            return self.node(tree.expr)
        if isinstance(tree, pp.NumberLiteral):
            return Number(tree.val)
        if isinstance(tree, pp.StringLiteral):
            return Text(tree.val)
        if isinstance(tree, pp.VectorSelector):
            return self._selector(tree)
        if isinstance(tree, pp.MatrixSelector):
            return Window(self._selector(tree.vector_selector), _ns(tree.range))
        if isinstance(tree, pp.UnaryExpr):
            return Negate(self.node(tree.expr))
        if isinstance(tree, pp.AggregateExpr):
            return self._aggregate(tree)
        if isinstance(tree, pp.Call):
            return self._call(tree)
        if isinstance(tree, pp.BinaryExpr):
            return self._binary(tree)
        if isinstance(tree, pp.SubqueryExpr):
            step_ns, offset_ns = _ns(tree.step or _NO_TIME), _ns(tree.offset or _NO_TIME)
            return Subquery(self.node(tree.expr), _ns(tree.range or _NO_TIME), step_ns, offset_ns, _at(tree.at))
        raise self._unsupported(f"{type(tree).__name__} ({tree.prettify()})")

    def _selector(self, tree: Any) -> Selector:
        if tree.matchers.or_matchers:
            raise self._unsupported('"or" between label matchers')
        matchers = [Matcher(m.name, _MATCH_OPS[str(m.op).rpartition(".")[2]], m.value) for m in tree.matchers.matchers]
        if tree.name is not None:
            matchers.insert(0, Matcher(NAME, MatchOp.EQUAL, tree.name))
        return Selector(tuple(matchers), _ns(tree.offset or _NO_TIME), _at(tree.at))

    def _aggregate(self, tree: Any) -> Aggregate:
        import promql_parser as pp

        op = str(tree.op)
        if op not in AGGREGATIONS:
            raise self._unsupported(f"the aggregation {op}()")
        param = None if tree.param is None else self.node(tree.param)
        if tree.modifier is None:
            return Aggregate(op, self.node(tree.expr), param=param)
        without = tree.modifier.type == pp.AggModifierType.Without
        return Aggregate(op, self.node(tree.expr), tuple(tree.modifier.labels), without, param)

    def _call(self, tree: Any) -> Call:
        name = tree.func.name
        if name not in RANGE_FUNCTIONS and name not in VECTOR_FUNCTIONS:
            raise self._unsupported(f"the function {name}()")
        return Call(name, tuple(self.node(argument) for argument in tree.args))

    def _binary(self, tree: Any) -> Binary:
        import promql_parser as pp

        op = str(tree.op)
        if op not in ARITHMETIC | COMPARISONS | SET_OPERATORS:
            raise self._unsupported(f"the operator {op}")
        lhs, rhs, modifier = self.node(tree.lhs), self.node(tree.rhs), tree.modifier
        if modifier is None:
            return Binary(op, lhs, rhs)
        group = "left" if modifier.card == pp.VectorMatchCardinality.ManyToOne else ""
        group = "right" if modifier.card == pp.VectorMatchCardinality.OneToMany else group
        if modifier.fill_values.lhs is not None or modifier.fill_values.rhs is not None:
            raise self._unsupported("the fill modifier")
        matching = modifier.matching
        if matching is None:
            return Binary(op, lhs, rhs, bool_result=modifier.return_bool, many=group)
        on = matching.type == pp.LabelModifierType.Include
        include = tuple(modifier.group_labels or ())
        return Binary(op, lhs, rhs, tuple(matching.labels), on, modifier.return_bool, group, include)

    def _unsupported(self, construct: str) -> UnsupportedQuery:
        hint = "use selectors, rate and the _over_time functions, aggregations such as sum or topk, and operators"
        return UnsupportedQuery(Problem(self._where, f"{construct} is not evaluated by Tonnage", hint))


_MATCH_OPS = {
    "Equal": MatchOp.EQUAL,
    "NotEqual": MatchOp.NOT_EQUAL,
    "Re": MatchOp.REGEX,
    "NotRe": MatchOp.NOT_REGEX,
}


_NO_TIME = timedelta()


def _at(written: Any) -> At | None:
    if written is None:
        return None
    if written.at is None:
        return At(None)
    return At(_ns(written.at - datetime(1970, 1, 1, tzinfo=UTC)))


def _ns(delta: timedelta) -> int:
    return (delta.days * 86_400 + delta.seconds) * 1_000_000_000 + delta.microseconds * 1_000
