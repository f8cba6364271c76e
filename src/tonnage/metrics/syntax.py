"""PromQL as typed nodes: what the evaluator and the analysis of triggers walk.

The grammar is promql-parser's (Prometheus 3). What is not evaluated is refused here, by name, before
anything runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

from tonnage.errors import InputError, Problem, Where
from tonnage.metrics.store import NAME, Matcher, MatchOp

RANGE_FUNCTIONS = frozenset(
    {
        "rate",
        "irate",
        "increase",
        "delta",
        "avg_over_time",
        "max_over_time",
        "min_over_time",
        "sum_over_time",
        "count_over_time",
        "last_over_time",
    }
)
VECTOR_FUNCTIONS = frozenset({"histogram_quantile", "clamp_min", "clamp_max", "scalar", "vector"})
AGGREGATIONS = frozenset({"sum", "avg", "min", "max", "count"})
ARITHMETIC = frozenset({"+", "-", "*", "/", "%", "^"})
COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">="})
SET_OPERATORS = frozenset({"or", "and", "unless"})


class UnsupportedQuery(InputError):
    """A query that Prometheus may know but that is not evaluated here; the message names the construct."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number literal."""

    value: float


@dataclass(frozen=True, slots=True)
class Selector:
    """An instant vector selector. ``matchers`` include the one for the metric's name."""

    matchers: tuple[Matcher, ...]
    offset_ns: int = 0

    @property
    def name(self) -> str:
        """The metric's name; "" when it is not given by equality."""
        return next((m.value for m in self.matchers if m.label == NAME and m.op is MatchOp.EQUAL), "")


@dataclass(frozen=True, slots=True)
class Window:
    """A range vector selector: ``selector[window]``."""

    selector: Selector
    window_ns: int


@dataclass(frozen=True, slots=True)
class Call:
    """A function call."""

    function: str
    args: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """``op by (labels) (expr)``, or ``without``."""

    op: str
    expr: Node
    labels: tuple[str, ...] = ()
    without: bool = False


@dataclass(frozen=True, slots=True)
class Negate:
    """Unary minus."""

    expr: Node


@dataclass(frozen=True, slots=True)
class Binary:
    """``lhs op rhs``. Two vectors match on the labels in ``labels`` (``on``) or on all others
    (``ignoring``).
    """

    op: str
    lhs: Node
    rhs: Node
    labels: tuple[str, ...] = ()
    on: bool = False
    bool_result: bool = False


_NOWHERE = Where()

Node: TypeAlias = Number | Selector | Window | Call | Aggregate | Negate | Binary


@dataclass(frozen=True, slots=True)
class Query:
    """A parsed query: its text, its tree, and where it was written."""

    text: str
    root: Node
    where: Where = _NOWHERE

    def selectors(self) -> tuple[Selector, ...]:
        """Every selector of the query, from left to right."""
        return tuple(node for node in walk(self.root) if isinstance(node, Selector))


def walk(node: Node) -> Iterator[Node]:
    """A node and everything below it, parents first, from left to right."""
    yield node
    for child in children(node):
        yield from walk(child)


def children(node: Node) -> tuple[Node, ...]:
    """The nodes directly below ``node``, from left to right."""
    if isinstance(node, Call):
        return node.args
    if isinstance(node, Aggregate | Negate):
        return (node.expr,)
    if isinstance(node, Binary):
        return (node.lhs, node.rhs)
    if isinstance(node, Window):
        return (node.selector,)
    return ()


def parse(text: str, where: Where | None = None) -> Query:
    """Parse a PromQL instant query.

    Raises InputError when it is not PromQL, and UnsupportedQuery when it uses something that is not
    evaluated.
    """
    import promql_parser

    place = where or Where()
    try:
        tree = promql_parser.parse(text)
    except ValueError as error:
        problem = Problem(place, f"not a PromQL query: {error}", hint=f"the query is {text.strip()!r}")
        raise InputError(problem) from error
    root = _Reader(place).node(tree)
    if isinstance(root, Window):
        raise InputError(Problem(place, "the query is a range vector", hint="wrap it in a function such as rate()"))
    return Query(text.strip(), root, place)


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
            raise self._unsupported("subqueries ([range:step])")
        raise self._unsupported(f"{type(tree).__name__} ({tree.prettify()})")

    def _selector(self, tree: Any) -> Selector:
        if tree.at is not None:
            raise self._unsupported("the @ modifier")
        if tree.matchers.or_matchers:
            raise self._unsupported('"or" between label matchers')
        matchers = [Matcher(m.name, _MATCH_OPS[str(m.op).rpartition(".")[2]], m.value) for m in tree.matchers.matchers]
        if tree.name is not None:
            matchers.insert(0, Matcher(NAME, MatchOp.EQUAL, tree.name))
        return Selector(tuple(matchers), _ns(tree.offset) if tree.offset is not None else 0)

    def _aggregate(self, tree: Any) -> Aggregate:
        import promql_parser as pp

        op = str(tree.op)
        if op not in AGGREGATIONS:
            raise self._unsupported(f"the aggregation {op}()")
        if tree.modifier is None:
            return Aggregate(op, self.node(tree.expr))
        without = tree.modifier.type == pp.AggModifierType.Without
        return Aggregate(op, self.node(tree.expr), tuple(tree.modifier.labels), without)

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
        if modifier.card in (pp.VectorMatchCardinality.ManyToOne, pp.VectorMatchCardinality.OneToMany):
            left = modifier.card == pp.VectorMatchCardinality.ManyToOne
            raise self._unsupported("group_left" if left else "group_right")
        if modifier.fill_values.lhs is not None or modifier.fill_values.rhs is not None:
            raise self._unsupported("the fill modifier")
        matching = modifier.matching
        if matching is None:
            return Binary(op, lhs, rhs, bool_result=modifier.return_bool)
        on = matching.type == pp.LabelModifierType.Include
        return Binary(op, lhs, rhs, tuple(matching.labels), on, modifier.return_bool)

    def _unsupported(self, construct: str) -> UnsupportedQuery:
        hint = "use selectors, rate and the _over_time functions, sum avg min max count and operators"
        return UnsupportedQuery(Problem(self._where, f"{construct} is not evaluated by Tonnage", hint))


_MATCH_OPS = {
    "Equal": MatchOp.EQUAL,
    "NotEqual": MatchOp.NOT_EQUAL,
    "Re": MatchOp.REGEX,
    "NotRe": MatchOp.NOT_REGEX,
}


def _ns(delta: timedelta) -> int:
    return (delta.days * 86_400 + delta.seconds) * 1_000_000_000 + delta.microseconds * 1_000
