"""Macros: what stands for a loop, a test or a binding. Source: cel-go parser/macro.go, ext, and the optional types."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

from tonnage.cel.failures import CompileError
from tonnage.cel.lexer import place
from tonnage.cel.syntax import Fold, Ident, Invocation, ListOf, Literal, MapOf, Select, SyntaxNode

RESULT = "@result"
UNUSED = "#unused"


@dataclass(frozen=True, slots=True)
class Expansion:
    """Where a macro stands."""

    text: str
    at: int

    def wrong(self, node: SyntaxNode, message: str) -> CompileError:
        """What is wrong with an argument."""
        return CompileError("macro", message, *place(self.text, node.at))

    def name(self, node: SyntaxNode) -> str:
        """The name of a variable that the macro declares."""
        if not isinstance(node, Ident):
            raise self.wrong(node, "a macro's variable must be a simple name")
        if node.name in (RESULT, "__result__"):
            raise self.wrong(node, f"{node.name} is the macro's own variable")
        return node.name

    def result(self) -> SyntaxNode:
        return Ident(self.at, RESULT)

    def literal(self, value: object) -> SyntaxNode:
        return Literal(self.at, value)

    def call(self, function: str, *arguments: SyntaxNode) -> SyntaxNode:
        return Invocation(self.at, function, None, list(arguments))

    def fold(
        self,
        over: SyntaxNode,
        names: tuple[str, str],
        initial: SyntaxNode,
        condition: SyntaxNode,
        step: SyntaxNode,
        result: SyntaxNode,
    ) -> SyntaxNode:
        return Fold(self.at, over, names[0], names[1], RESULT, initial, condition, step, result)

    def bind(self, name: str, value: SyntaxNode, body: SyntaxNode) -> SyntaxNode:
        """``body`` with a name for ``value``, which is evaluated when it is first asked for."""
        empty = ListOf(self.at, [], [])
        return Fold(self.at, empty, UNUSED, "", name, value, self.literal(False), Ident(self.at, name), body)


Macro = Callable[[Expansion, SyntaxNode | None, list[SyntaxNode]], SyntaxNode | None]


def _names(m: Expansion, arguments: list[SyntaxNode], count: int) -> tuple[str, str]:
    if count == 1:
        return m.name(arguments[0]), ""
    first, second = m.name(arguments[0]), m.name(arguments[1])
    if first == second:
        raise m.wrong(arguments[1], f"two variables are called {first}")
    return first, second


def _has(m: Expansion, target: SyntaxNode | None, arguments: list[SyntaxNode]) -> SyntaxNode:
    (tested,) = arguments
    if not isinstance(tested, Select):
        raise m.wrong(tested, "has() takes a field, such as has(a.b)")
    return Select(tested.at, tested.operand, tested.name, test=True)


def _quantifier(kind: str, variables: int) -> Macro:
    def expand(m: Expansion, target: SyntaxNode | None, arguments: list[SyntaxNode]) -> SyntaxNode:
        assert target is not None
        names, test = _names(m, arguments, variables), arguments[-1]
        if kind == "all":
            going = m.call("@not_strictly_false", m.result())
            return m.fold(target, names, m.literal(True), going, m.call("_&&_", m.result(), test), m.result())
        if kind == "exists":
            going = m.call("@not_strictly_false", m.call("!_", m.result()))
            return m.fold(target, names, m.literal(False), going, m.call("_||_", m.result(), test), m.result())
        counted = m.call("_?_:_", test, m.call("_+_", m.result(), m.literal(1)), m.result())
        one = m.call("_==_", m.result(), m.literal(1))
        return m.fold(target, names, m.literal(0), m.literal(True), counted, one)

    return expand


def _to_list(variables: int) -> Macro:
    def expand(m: Expansion, target: SyntaxNode | None, arguments: list[SyntaxNode]) -> SyntaxNode:
        assert target is not None
        names = _names(m, arguments, variables)
        tests = arguments[variables:-1]
        step = m.call("_+_", m.result(), ListOf(m.at, [arguments[-1]], [False]))
        if tests:
            step = m.call("_?_:_", tests[0], step, m.result())
        return m.fold(target, names, ListOf(m.at, [], []), m.literal(True), step, m.result())

    return expand


def _filter(m: Expansion, target: SyntaxNode | None, arguments: list[SyntaxNode]) -> SyntaxNode:
    assert target is not None
    names = _names(m, arguments, 1)
    step = m.call("_+_", m.result(), ListOf(m.at, [arguments[0]], [False]))
    step = m.call("_?_:_", arguments[1], step, m.result())
    return m.fold(target, names, ListOf(m.at, [], []), m.literal(True), step, m.result())


def _to_map(entry: bool) -> Macro:
    def expand(m: Expansion, target: SyntaxNode | None, arguments: list[SyntaxNode]) -> SyntaxNode:
        assert target is not None
        names = _names(m, arguments, 2)
        added = [arguments[-1]] if entry else [Ident(m.at, names[0]), arguments[-1]]
        step = m.call("cel.@mapInsert", m.result(), *added)
        if len(arguments) == 4:
            step = m.call("_?_:_", arguments[2], step, m.result())
        return m.fold(target, names, MapOf(m.at, []), m.literal(True), step, m.result())

    return expand


def _bind(m: Expansion, target: SyntaxNode | None, arguments: list[SyntaxNode]) -> SyntaxNode | None:
    if not isinstance(target, Ident) or target.name != "cel":
        return None
    if not isinstance(arguments[0], Ident):
        raise m.wrong(arguments[0], "cel.bind() takes a simple name first")
    return m.bind(arguments[0].name, arguments[1], arguments[2])


def _optional(flat: bool) -> Macro:
    def expand(m: Expansion, target: SyntaxNode | None, arguments: list[SyntaxNode]) -> SyntaxNode:
        assert target is not None
        if not isinstance(arguments[0], Ident):
            raise m.wrong(arguments[0], "the variable must be a simple name")
        value = Invocation(m.at, "value", copy.deepcopy(target), [])
        body = m.bind(arguments[0].name, value, arguments[1])
        present = Invocation(m.at, "hasValue", target, [])
        found = body if flat else m.call("optional.of", body)
        return m.call("_?_:_", present, found, m.call("optional.none"))

    return expand


def _sort_by(m: Expansion, target: SyntaxNode | None, arguments: list[SyntaxNode]) -> SyntaxNode:
    if isinstance(target, Literal | MapOf):
        raise m.wrong(target, "sortBy() sorts lists")
    assert target is not None
    name = "@__sortBy_input__"
    keys = _to_list(1)(m, Ident(m.at, name), arguments)
    assert keys is not None
    return m.bind(name, target, Invocation(m.at, "@sortByAssociatedKeys", Ident(m.at, name), [keys]))


GLOBAL: dict[tuple[str, int], Macro] = {("has", 1): _has}
RECEIVER: dict[tuple[str, int], Macro] = {
    **{(kind, n + 1): _quantifier(kind, n) for kind in ("all", "exists", "exists_one", "existsOne") for n in (1, 2)},
    ("map", 2): _to_list(1),
    ("map", 3): _to_list(1),
    ("filter", 2): _filter,
    ("transformList", 3): _to_list(2),
    ("transformList", 4): _to_list(2),
    ("transformMap", 3): _to_map(entry=False),
    ("transformMap", 4): _to_map(entry=False),
    ("transformMapEntry", 3): _to_map(entry=True),
    ("transformMapEntry", 4): _to_map(entry=True),
    ("bind", 3): _bind,
    ("optMap", 2): _optional(flat=False),
    ("optFlatMap", 2): _optional(flat=True),
    ("sortBy", 2): _sort_by,
}
"""By name and number of arguments."""
