"""What is refused although its types fit: lists and maps of mixed types, and constants that can never be right.

Source: cel-go cel/validator.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tonnage.cel import regex
from tonnage.cel.calls import REGEX
from tonnage.cel.constants import NOT_CONSTANT, ConstantFolding
from tonnage.cel.failures import CompileError
from tonnage.cel.kinds import Type, unwrapped
from tonnage.cel.syntax import Fold, Invocation, ListOf, Literal, MapOf, Select, SyntaxNode
from tonnage.cel.values import name_of

Wrong = Callable[[SyntaxNode, str, str], CompileError]


def children(node: SyntaxNode) -> list[SyntaxNode]:
    """The parts of a node."""
    match node:
        case Select():
            return [node.operand]
        case Invocation():
            return node.operands
        case ListOf():
            return node.elements
        case MapOf():
            return [one for key, value, _ in node.entries for one in (key, value)]
        case Fold():
            return [node.range, node.initial, node.condition, node.step, node.result]
    return []


def walk(node: SyntaxNode) -> Iterator[SyntaxNode]:
    """A node and all that is in it."""
    waiting = [node]
    while waiting:
        one = waiting.pop()
        yield one
        waiting += children(one)


def validate(root: SyntaxNode, constants: ConstantFolding, wrong: Wrong) -> None:
    """Raises CompileError. The tree is checked already."""
    for node in walk(root):
        match node:
            case ListOf():
                _alike(zip(node.elements, node.optional, strict=True), constants, wrong)
            case MapOf():
                _alike(((key, False) for key, _, _ in node.entries), constants, wrong)
                _alike(((value, maybe) for _, value, maybe in node.entries), constants, wrong)
            case Invocation():
                _pattern(node, constants, wrong)
                _key(node, constants, wrong)


def _alike(elements: Iterator[tuple[SyntaxNode, bool]], constants: ConstantFolding, wrong: Wrong) -> None:
    expected: Type | None = None
    for element, maybe in elements:
        found = constants.resolved(element.type)
        if maybe:
            found, optional = unwrapped(found)
            if not optional:
                raise wrong(element, "type mismatch", f"expected an optional value, found {found}")
        if expected is None:
            expected = found
        elif found != expected:
            raise wrong(element, "type mismatch", f"expected type {expected} but found {found}")


def _key(node: Invocation, constants: ConstantFolding, wrong: Wrong) -> None:
    if node.function in ("_[_]", "_[?_]"):
        key = constants.of(node.arguments[1], calls=False)
        if key is not NOT_CONSTANT and not isinstance(key, str | int | float):
            raise wrong(node, "invalid argument", f"a {name_of(key)} cannot be looked up")


def _pattern(node: Invocation, constants: ConstantFolding, wrong: Wrong) -> None:
    if node.function not in REGEX:
        return
    patterns = [constants.of(one, calls=False) for one in node.operands[1:2]]
    if node.function == "matches" and isinstance(node.arguments[0], Literal):
        patterns.append(node.arguments[0].value)
    for pattern in patterns:
        if type(pattern) is str:
            try:
                regex.compiled(pattern)
            except regex.NotRe2 as error:
                raise wrong(node, "invalid argument", str(error)) from None
