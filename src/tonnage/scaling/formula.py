"""The formula of KEDA's scalingModifiers: one number made of several triggers' values.

The language is expr (github.com/expr-lang/expr), the part of it that makes a number of numbers: arithmetic,
comparisons, logic, the conditional, ``??``, ``let``, arrays and the functions over them. What is not evaluated is
refused by name. Source: kedacore/keda v2.21 apis/keda/v1alpha1/scaledobject_webhook.go
(ValidateAndCompileScalingModifiers); the operators' order is that of expr's parser/operator.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tonnage.scaling.formula_functions import FUNCTIONS, FormulaError, Value, binary, number

__all__ = ["Formula", "FormulaError", "compile_formula"]

_DUMMY = -1.0  # what KEDA's webhook tries a formula with

_Scope: TypeAlias = Mapping[str, Value]
_Node: TypeAlias = Callable[[_Scope], Value]

_TOKEN = re.compile(
    r"""\s*(?:(?P<number>(?:0[xX][0-9a-fA-F_]+|(?:\d[\d_]*(?:\.(?!\.)[\d_]*)?|\.\d[\d_]*)(?:[eE][+-]?\d+)?))
    |(?P<name>[A-Za-z_$][\w$]*)|(?P<sign>\?\?|\*\*|==|!=|<=|>=|&&|\|\||\.\.|[-+*/%^<>!?:,;()\[\]{}=|#.]))""",
    re.VERBOSE,
)
_BINARY = {
    "or": 10, "||": 10, "and": 15, "&&": 15, "==": 20, "!=": 20, "<": 20, ">": 20, "<=": 20, ">=": 20, "in": 20,
    "..": 25, "+": 30, "-": 30, "*": 60, "/": 60, "%": 60, "**": 100, "^": 100, "??": 500,
}  # fmt: skip
_UNARY = {"not": 50, "!": 50, "-": 90, "+": 90}
_KEYWORDS = ("true", "false", "nil", "let", *(word for word in (*_BINARY, *_UNARY) if word.isalpha()))


@dataclass(frozen=True, slots=True)
class Formula:
    """A formula that can be evaluated. ``text`` is as it was written."""

    text: str
    names: tuple[str, ...]
    _root: _Node

    def evaluate(self, values: Mapping[str, float | None]) -> float | None:
        """The composite metric; None where the formula comes to nil, which only one with ``??`` may.

        ``values`` is by trigger; None is a trigger that has no value. Raises :class:`FormulaError` where expr fails.
        """
        found = self._root(dict(values))
        if found is None and "??" in self.text:
            return None
        return float(number(found, "the formula"))


def compile_formula(text: str, names: Sequence[str]) -> Formula:
    """Read a formula over these triggers and try it, as KEDA's webhook does.

    Raises :class:`FormulaError`, whose text says what is wrong where.
    """
    reader = _Reader(text, frozenset(names))
    made = Formula(text, tuple(names), reader.whole())
    made.evaluate(dict.fromkeys(names, _DUMMY))
    return made


class _Reader:
    """Precedence climbing over the tokens. Each node is a function of the values in scope."""

    def __init__(self, text: str, names: frozenset[str]) -> None:
        self._tokens = list(self._split(text))
        self._at = 0
        self._known = set(names)

    @staticmethod
    def _split(text: str) -> list[tuple[str, str]]:
        found, at = [], 0
        text = text.rstrip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                rest = text[at:].lstrip()
                place = len(text) - len(rest) + 1
                raise FormulaError(f"{rest.split()[0]!r} at character {place} is not evaluated by Tonnage")
            found.append((str(match.lastgroup), match[str(match.lastgroup)]))
            at = match.end()
        return found

    def whole(self) -> _Node:
        root = self._statement()
        if self._at < len(self._tokens):
            raise FormulaError(f"{self._peek()!r} is not expected there")
        return root

    def _peek(self) -> str:
        return self._tokens[self._at][1] if self._at < len(self._tokens) else "the end"

    def _take(self, expected: str = "") -> str:
        if self._at >= len(self._tokens) or (expected and self._peek() != expected):
            raise FormulaError(f"expected {expected or 'a value'}, not {self._peek()}")
        self._at += 1
        return self._tokens[self._at - 1][1]

    def _next_is(self, sign: str) -> bool:
        if self._at < len(self._tokens) and self._peek() == sign:
            self._at += 1
            return True
        return False

    def _statement(self) -> _Node:
        """``let name = value; rest``, or an expression."""
        if not self._next_is("let"):
            return self._expression()
        name = self._take()
        self._take("=")
        value = self._expression()
        self._take(";")
        self._known.add(name)
        rest = self._statement()
        return lambda scope: rest({**scope, name: value(scope)})

    def _expression(self) -> _Node:
        condition = self._operand(0)
        if not self._next_is("?"):
            return condition
        if self._next_is(":"):
            chosen, other = condition, self._expression()
            return lambda scope: chosen(scope) or other(scope)
        then = self._expression()
        self._take(":")
        otherwise = self._expression()
        return lambda scope: then(scope) if _truth(condition(scope)) else otherwise(scope)

    def _operand(self, least: int) -> _Node:
        left = self._unary()
        while (order := _BINARY.get(self._peek(), -1)) >= max(least, 0) and self._at < len(self._tokens):
            sign = self._take()
            right = self._operand(order if sign in ("**", "^") else order + 1)
            left = _joined(sign, left, right)
        return left

    def _unary(self) -> _Node:
        sign = self._peek()
        if self._at >= len(self._tokens) or sign not in _UNARY:
            return self._primary()
        self._at += 1
        inner = self._operand(_UNARY[sign])
        if sign in ("not", "!"):
            return lambda scope: not _truth(inner(scope))
        factor = -1 if sign == "-" else 1
        return lambda scope: factor * number(inner(scope), sign)

    def _primary(self) -> _Node:
        kind = self._tokens[self._at][0] if self._at < len(self._tokens) else ""
        token = self._take()
        if kind == "number":
            literal = _literal(token)
            return lambda scope: literal
        if token == "(":
            inner = self._statement()
            self._take(")")
            return inner
        if token == "[":
            items = self._list("]")
            return lambda scope: [item(scope) for item in items]
        if token == "#":
            return lambda scope: scope["#"]
        if token in ("true", "false", "nil"):
            constant: Value = None if token == "nil" else token == "true"
            return lambda scope: constant
        if kind == "name" and token not in _KEYWORDS:
            return self._call(token) if self._next_is("(") else self._variable(token)
        raise FormulaError(f"{token!r} is not expected there")

    def _variable(self, name: str) -> _Node:
        if name not in self._known:
            raise FormulaError(f"no trigger is named {name}; there are: {', '.join(sorted(self._known)) or 'none'}")
        return lambda scope: scope.get(name)

    def _call(self, name: str) -> _Node:
        function = FUNCTIONS.get(name)
        if function is None:
            raise FormulaError(f"the function {name}() is not evaluated by Tonnage")
        if not function.predicate:
            arguments = self._list(")")
            return lambda scope: function.of([argument(scope) for argument in arguments])
        array = self._expression()
        condition = self._predicate() if self._next_is(",") else None
        self._take(")")

        def each(scope: _Scope) -> Value:
            items = array(scope)
            if not isinstance(items, list):
                raise FormulaError(f"{name}() is of an array")
            if condition is None:
                return function.of([items])
            return function.of([items, [condition({**scope, "#": item}) for item in items]])

        return each

    def _predicate(self) -> _Node:
        braced = self._next_is("{")
        inner = self._expression()
        if braced:
            self._take("}")
        return inner

    def _list(self, end: str) -> list[_Node]:
        found: list[_Node] = []
        while not self._next_is(end):
            if found:
                self._take(",")
            found.append(self._expression())
        return found


def _joined(sign: str, left: _Node, right: _Node) -> _Node:
    if sign in ("or", "||"):
        return lambda scope: _truth(left(scope)) or _truth(right(scope))
    if sign in ("and", "&&"):
        return lambda scope: _truth(left(scope)) and _truth(right(scope))
    if sign == "??":
        return lambda scope: right(scope) if (value := left(scope)) is None else value
    return lambda scope: binary(sign, left(scope), right(scope))


def _truth(value: Value) -> bool:
    if not isinstance(value, bool):
        raise FormulaError(f"expected true or false, not {value}")
    return value


def _literal(token: str) -> Value:
    written = token.replace("_", "")
    if written.lower().startswith("0x"):
        return int(written, 16)
    found = float(written)
    return int(written) if written.isdigit() else found if math.isfinite(found) else math.inf
