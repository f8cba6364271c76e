"""From a checked tree to one Python function.

Every part of the tree becomes a few statements and a local variable with its value, or an :class:`Err`. Names in the
code are made here, never taken from the expression; its strings are constants beside the code.

``counted`` code also adds up what the evaluation costs, step for step as cel-go's tracker does, errors included: where
Kubernetes would stop, it stops. Sources: planner.go,
interpretable.go, attributes.go and runtimecost.go of cel-go's interpreter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tonnage.cel import costs
from tonnage.cel.calls import PANICS, REGEX, SINGLE, Calls
from tonnage.cel.constants import NOT_CONSTANT, ConstantFolding
from tonnage.cel.failures import Err, ErrorKind
from tonnage.cel.kinds import DYN, Type, unwrapped
from tonnage.cel.macros import RESULT, UNUSED
from tonnage.cel.syntax import Fold, Ident, Invocation, ListOf, MapOf, Select, SyntaxNode
from tonnage.cel.validators import walk
from tonnage.cel.writer import CodeWriter, Emitted

FIELDS = {
    "driver": "driver",
    "attributes": "attributes",
    "capacity": "capacity",
    "allowMultipleAllocations": "allow_multiple_allocations",
}
LOOKUPS = ("_[_]", "_[?_]", "_?._")
"""Functions that look a key up."""


@dataclass(frozen=True, slots=True)
class CodeVariable:
    """A name of the expression in the code. ``lazy``: a function that gives its value, kept in a cell."""

    code: str
    fails: bool
    lazy: str = ""


class Generator(CodeWriter):
    """Writes the code of one expression."""

    def __init__(self, constants: ConstantFolding, *, counted: bool) -> None:
        super().__init__(counted=counted)
        self._constants = constants
        self._scope: dict[str, CodeVariable] = {}
        self._calls = Calls(self.constant)
        self._unsure = False  # whether values may be of other types than the checker found

    def code(self, root: SyntaxNode) -> str:
        """A function ``selector(dev, c)`` that returns the value, and the cost if it is counted."""
        self._unsure = any(map(self._passes_on, walk(root)))
        out = self._value(root)
        body = [*self._lines, f"    return {out.code}{', c' if self._counted else ''}"]
        return "\n".join(["def selector(dev, c):", *body])

    def _value(self, node: SyntaxNode) -> Emitted:
        folded = self._constants.of(node, calls=not self._counted)
        if folded is not NOT_CONSTANT:
            return Emitted(self.constant(folded), False)
        match node:
            case Ident():
                out = self._raw(node)
                self._cost(1)
                return out
            case Select():
                return self._chain(node)
            case Invocation():
                return self._chain(node) if node.function in LOOKUPS else self._call(node)
            case ListOf():
                return self._list(node)
            case MapOf():
                return self._map(node)
            case Fold():
                return self._bind(node) if node.variable == UNUSED else self._fold(node)
        raise AssertionError(node)

    def _raw(self, node: SyntaxNode) -> Emitted:
        """A value that is only looked at further: names and look-ups are cheaper by one."""
        if isinstance(node, Ident) and node.constant is None:
            return self._variable(node.name)
        if (isinstance(node, Select) and node.name) or (isinstance(node, Invocation) and node.function in LOOKUPS):
            return self._chain(node, raw=True)
        return self._value(node)

    def _variable(self, name: str) -> Emitted:
        variable = self._scope.get(name)
        if variable is None:
            return Emitted("dev.whole", False)
        if not variable.lazy:
            return Emitted(variable.code, variable.fails)
        out = self._set(f"{variable.code}[0]")
        with self._block(f"if {out.code} is UNSET:"):
            self._emit(f"{out.code} = {variable.code}[0] = {variable.lazy}()")
        return out

    def _chain(self, node: SyntaxNode, *, raw: bool = False) -> Emitted:
        """Look-ups one after another: ``a.b["c"].?d``."""
        steps: list[tuple[Any, SyntaxNode | None, bool, bool]] = []
        while True:
            if isinstance(node, Select) and node.name:
                steps.append((node.name, None, False, node.test))
                node = node.operand
            elif isinstance(node, Invocation) and node.function in LOOKUPS:
                key = node.arguments[1]
                constant = self._constants.of(key, calls=False)
                steps.append((constant, key if constant is NOT_CONSTANT else None, node.function != "_[_]", False))
                node = node.arguments[0]
            else:
                break
        steps.reverse()
        test = steps[-1][3]
        conditional = isinstance(node, Invocation) and node.function == "_?_:_"
        device = isinstance(node, Ident) and node.name.removeprefix(".") == "device" and node.name not in self._scope
        if device and not steps[0][2] and not test:
            out, optional, steps = self._of_device(steps)
        else:
            out = self._raw(node)
            optional = unwrapped(self._constants.resolved(node.type))[1]
            fails = out.fails
            out = self._set(f"opened({out.code})" if optional else out.code, fails=fails)
        for key, computed, maybe, is_test in steps:
            optional = optional or maybe
            out = self._step(out, key, computed, optional, is_test)
        if optional:
            with self._block(f"if {out.code} is ABSENT:"):
                self._emit(f"{out.code} = {'False' if test else 'NONE'}")
            if not test:
                with self._block(f"elif type({out.code}) is not Err:"):
                    self._emit(f"{out.code} = Maybe(True, {out.code})")
        if test:
            self._cost(-1 if conditional else 0)
        elif not conditional and not raw:
            self._cost(1)
        return out

    def _of_device(self, steps: list[Any]) -> tuple[Emitted, bool, list[Any]]:
        field, rest = steps[0][0], steps[1:]
        code = f"dev.{FIELDS[field]}"
        self._cost(1)
        if field in ("attributes", "capacity") and rest and rest[0][1] is None and not rest[0][2] and not rest[0][3]:
            code = f"{code}.get({self.constant(rest[0][0])}, EMPTY)"
            rest = rest[1:]
            self._cost(1)
            if rest and rest[0][1] is None and not rest[0][2] and not rest[0][3]:
                missing = self.constant(Err(ErrorKind.NO_KEY, f"no such key: {rest[0][0]!r}"))
                self._cost(1)
                return self._set(f"{code}.get({self.constant(rest[0][0])}, {missing})"), False, rest[1:]
        return self._set(code, fails=False), False, rest

    def _step(self, out: Emitted, key: Any, computed: SyntaxNode | None, optional: bool, test: bool) -> Emitted:
        look = ("has" if test else "index") + ("_maybe" if optional else "")
        tests = [f"type({out.code}) is not Err"] if out.fails else []
        tests += [f"{out.code} is not ABSENT"] if optional else []
        with self._block(f"if {' and '.join(tests) or 'True'}:"):
            if computed is None:
                self._emit(f"{out.code} = {look}({out.code}, {self.constant(key)})")
            else:
                by = self._raw(computed)
                failed = f"{by.code} if type({by.code}) is Err else " if by.fails else ""
                self._emit(f"{out.code} = {failed}{look}({out.code}, {by.code})")
            if self._counted:
                found = f"if {out.code} is not ABSENT and type({out.code}) is not Err: " if optional else ""
                self._emit(f"{found}c += 1")
        return Emitted(out.code, True)

    def _call(self, node: Invocation) -> Emitted:
        match node.function:
            case "_&&_":
                return self._logical(node, "conjoined", "False")
            case "_||_":
                return self._logical(node, "disjoined", "True")
            case "_?_:_":
                return self._conditional(node)
            case "or" | "orValue" if node.target is not None:
                return self._or(node)
            case "@not_strictly_false":
                inner = self._value(node.arguments[0])
                self._cost(1)
                return self._set(f"{inner.code} if type({inner.code}) is bool else True", fails=False)
            case "@in" if node.overload == "in_list":
                constant = self._constants.of(node.arguments[1], calls=False)
                if constant is not NOT_CONSTANT and _hashable(constant):
                    return self._membership(node.arguments[0], constant)
            case "_+_" if isinstance(node.arguments[0], Ident) and node.arguments[0].name == RESULT:
                if isinstance(node.arguments[1], ListOf):
                    return self._append(node)
        return self._plain_call(node)

    def _membership(self, node: SyntaxNode, constants: list[Any]) -> Emitted:
        out = self._value(node)
        known = self.constant(frozenset((type(one) is bool, one) for one in constants))
        failed = f"{out.code} if type({out.code}) is Err else " if out.fails else ""
        texts = self.constant(frozenset(constants))
        if all(type(one) is str for one in constants):
            return self._set(
                f"{failed}({out.code} in {texts} if type({out.code}) is str else member({out.code}, {known}))",
                fails=out.fails,
            )
        return self._set(f"{failed}member({out.code}, {known})", fails=out.fails)

    def _append(self, node: Invocation) -> Emitted:
        """What macros collect is one list that grows."""
        carried = self._value(node.arguments[0])
        added = self._value(node.arguments[1])
        out = self._set(carried.code)
        with self._block(f"if type({out.code}) is not Err:"):
            with self._block(f"if type({added.code}) is Err:"):
                self._emit(f"{out.code} = {added.code}")
            with self._block("else:"):
                self._emit(f"{out.code}.extend({added.code})")
        self._cost(1)
        return out

    def _logical(self, node: Invocation, join: str, settled: str) -> Emitted:
        first = self._value(node.arguments[0])
        out = self._set(f"logical({first.code})" if self._may_be_else(node.arguments[0]) else first.code)
        for term in node.arguments[1:]:
            with self._block(f"if {out.code} is not {settled}:"):
                found = self._value(term)
                self._emit(f"{out.code} = {join}({out.code}, {found.code})")
        return out

    def _passes_on(self, node: SyntaxNode) -> bool:
        """Whether the node passes a value on that is no optional, of whatever type it is: ``x.orValue(40)`` is an int
        to the checker where nothing is known of x."""
        if not isinstance(node, Invocation) or node.function not in ("or", "orValue") or node.target is None:
            return False
        return not unwrapped(self._constants.resolved(node.target.type))[1]

    def _type(self, node: SyntaxNode) -> Type:
        """What values of the node are certain to be."""
        return DYN if self._unsure else self._constants.resolved(node.type)

    def _may_be_else(self, node: SyntaxNode) -> bool:
        return self._type(node).kind != "bool"

    def _conditional(self, node: Invocation) -> Emitted:
        test, then, otherwise = node.arguments
        condition = self._value(test)
        out = Emitted(self._new(), True)
        with self._block(f"if {condition.code} is True:"):
            self._emit(f"{out.code} = {self._raw(then).code}")
        with self._block(f"elif {condition.code} is False:"):
            self._emit(f"{out.code} = {self._raw(otherwise).code}")
        with self._block("else:"):
            self._emit(f"{out.code} = logical({condition.code})")
        return out

    def _or(self, node: Invocation) -> Emitted:
        left = self._value(node.operands[0])
        out = self._set(left.code)
        with self._block(f"if type({out.code}) is Maybe:"):
            with self._block(f"if {out.code}.present:"):
                self._emit(f"{out.code} = {out.code}.value" if node.function == "orValue" else "pass")
            with self._block("else:"):
                self._emit(f"{out.code} = {self._value(node.arguments[0]).code}")
        return out

    def _plain_call(self, node: Invocation) -> Emitted:
        operands = node.operands
        pattern = self._constants.of(operands[1], calls=False) if node.function in REGEX and len(operands) > 1 else None
        early = len(operands) > 2 or type(pattern) is str or (not node.overload and node.function not in SINGLE)
        out = Emitted(self._new(), True)
        given: list[Emitted] = []
        depth = self._depth
        for position, operand in enumerate(operands):
            one = self._value(operand)
            given.append(one)
            if early and one.fails and position + 1 < len(operands):
                with self._block(f"if type({one.code}) is Err:"):
                    self._emit(f"{out.code} = {one.code}")
                self._emit("else:")
                self._depth += 1
                given[-1] = Emitted(one.code, False)
        codes = [one.code for one in given]
        types = [self._type(operand) for operand in operands]
        self._guarded(out, given, self._calls.expression(node, codes, types, pattern), node.overload)
        cost = costs.of(node.function, node.overload)
        if self._counted and not isinstance(cost, int):
            self._cost(f"{self.constant(cost)}({', '.join([*codes, out.code])})")
        else:
            self._cost(cost if isinstance(cost, int) else 1)
        self._depth = depth
        return out

    def _guarded(self, out: Emitted, given: list[Emitted], expression: str, overload: str) -> None:
        for ending, (position, expected) in PANICS.items():
            if overload.endswith(ending) and given[position].fails:
                self._emit(f"if type({given[position].code}) is not {expected}: raise Abort(ErrorKind.INTERNAL)")
        word = "if"
        for one in given:
            if one.fails:
                self._emit(f"{word} type({one.code}) is Err: {out.code} = {one.code}")
                word = "elif"
        self._emit(f"{'else: ' if word == 'elif' else ''}{out.code} = {expression}")

    def _list(self, node: ListOf) -> Emitted:
        parts = list(zip(node.elements, node.optional, strict=True))
        out = self._sequence([(self._part(element, maybe), maybe) for element, maybe in parts])
        self._cost(costs.LIST)
        return out

    def _map(self, node: MapOf) -> Emitted:
        steps: list[tuple[Callable[[], Emitted], bool]] = []
        for key, value, maybe in node.entries:
            steps += [(self._part(key, False), False), (self._part(value, maybe), False)]
        out = self._sequence(steps)
        with self._block(f"if type({out.code}) is list:"):
            pairs = f"zip({out.code}[::2], {out.code}[1::2])"
            self._emit(f"{out.code} = mapped((k, v) for k, v in {pairs} if v is not ABSENT)")
        self._cost(costs.MAP)
        return out

    def _part(self, node: SyntaxNode, maybe: bool) -> Callable[[], Emitted]:
        def part() -> Emitted:
            one = self._value(node)
            if not maybe:
                return one
            return self._set(f"{one.code} if type({one.code}) is Err else kept({one.code})")

        return part

    def _sequence(self, parts: list[tuple[Callable[[], Emitted], bool]]) -> Emitted:
        out = self._set("[]")
        depth = self._depth
        may_have_failed = False
        for part, skip in parts:
            if may_have_failed:
                self._depth = depth
                self._emit(f"if type({out.code}) is list:")
                self._depth += 1
            one = part()
            if one.fails:
                may_have_failed = True
                self._emit(f"if type({one.code}) is Err: {out.code} = {one.code}")
                kept = f"elif {one.code} is not ABSENT" if skip else "else"
                self._emit(f"{kept}: {out.code}.append({one.code})")
            else:
                self._emit(f"{out.code}.append({one.code})")
        self._depth = depth
        return out

    def _bind(self, node: Fold) -> Emitted:
        before, self._lines = self._lines, []
        self._depth += 1
        initial = self._value(node.initial)
        self._depth -= 1
        made, self._lines = self._lines, before
        cell = self._new("b")
        if initial.fails or self._counted:
            function = self._new("f")
            self._emit(f"def {function}():")
            if self._counted:
                self._emit("    nonlocal c")
            self._lines += [*made, "    " * (self._depth + 1) + f"return {initial.code}"]
            self._emit(f"{cell} = [UNSET]")
            variable = CodeVariable(cell, True, function)
        else:
            self._lines += [line[4:] for line in made]
            self._emit(f"{cell} = {initial.code}")
            variable = CodeVariable(cell, False)
        with self._names({node.accumulator: variable}):
            return self._value(node.result)

    @contextmanager
    def _names(self, added: dict[str, CodeVariable]) -> Iterator[None]:
        before = self._scope
        self._scope = before | added
        yield
        self._scope = before

    def _fold(self, node: Fold) -> Emitted:
        over = self._value(node.range)
        out = self._set(over.code)
        through = self._new()
        with self._block(f"if type({out.code}) is not Err:"):
            self._emit(f"{out.code} = {through} = {'pairs' if node.second else 'elements'}({out.code})")
        with self._block(f"if type({out.code}) is not Err:"):
            carried = self._new("a")
            fresh = {ListOf: "[]", MapOf: "{}"}.get(type(node.initial))
            self._emit(f"{carried} = {fresh or self._value(node.initial).code}")
            first, second = self._new("v"), self._new("v") if node.second else ""
            names = {node.variable: CodeVariable(first, False), node.accumulator: CodeVariable(carried, True)}
            if node.second:
                names[node.second] = CodeVariable(second, False)
            with self._names(names), self._block(f"for {first}{', ' if second else ''}{second} in {through}:"):
                condition = self._value(node.condition)
                self._emit(f"if {condition.code} is False: break")
                self._emit(f"{carried} = {self._value(node.step).code}")
                if self._counted:
                    self._emit("if c > LIMIT: raise Abort(ErrorKind.COST)")
            with self._names({node.accumulator: CodeVariable(carried, True)}):
                self._emit(f"{out.code} = {self._value(node.result).code}")
        return out


def _hashable(constants: Any) -> bool:
    return type(constants) is list and all(
        type(one) in (bool, int, float, str) or isinstance(one, int) for one in constants
    )
