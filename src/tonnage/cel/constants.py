"""Parts of an expression that are known before any device is looked at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tonnage.cel import aggregates, kubernetes, texts, times  # noqa: F401 (they register their functions)
from tonnage.cel.failures import Err
from tonnage.cel.kinds import Type
from tonnage.cel.registry import dispatcher
from tonnage.cel.runtime import mapped
from tonnage.cel.syntax import Ident, Invocation, ListOf, Literal, MapOf, Select, SyntaxNode

NOT_CONSTANT = object()
CONVERSIONS = frozenset(("bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"))
"""Functions that cel-go itself evaluates beforehand; an error of theirs is one of the text."""
_PURE = frozenset(("quantity", "isQuantity", "semver", "isSemver", "ip", "cidr", "lowerAscii", "upperAscii"))
"""Functions that are evaluated beforehand when nobody counts what they cost."""


class ConstantFolding:
    """What is constant in one tree. ``invalid`` makes the error of a conversion that fails."""

    def __init__(self, resolved: Callable[[Type], Type], invalid: Callable[[SyntaxNode, str, Err], Exception]) -> None:
        self.resolved = resolved
        self._invalid = invalid
        self._known: dict[tuple[int, bool], Any] = {}

    def of(self, node: SyntaxNode, *, calls: bool) -> Any:
        """The value, or NOT_CONSTANT. ``calls``: calls of more functions than cel-go evaluates count too."""
        key = (id(node), calls)
        if key not in self._known:
            self._known[key] = self._evaluated(node, calls)
        return self._known[key]

    def _evaluated(self, node: SyntaxNode, calls: bool) -> Any:
        match node:
            case Literal():
                return node.value
            case Ident() if node.constant is not None:
                return node.constant
            case Select() if not node.name and isinstance(node.operand, Ident):
                return node.operand.constant
            case ListOf() if not any(node.optional):
                return _all([self.of(one, calls=calls) for one in node.elements])
            case MapOf() if not any(maybe for _, _, maybe in node.entries):
                flat = _all([self.of(one, calls=calls) for key, value, _ in node.entries for one in (key, value)])
                return flat if flat is NOT_CONSTANT else mapped(zip(flat[::2], flat[1::2], strict=True))
            case Invocation() if node.function in CONVERSIONS or (calls and node.function in _PURE):
                return self._called(node, calls)
        return NOT_CONSTANT

    def _called(self, node: Invocation, calls: bool) -> Any:
        given = _all([self.of(one, calls=calls) for one in node.operands])
        if given is NOT_CONSTANT or (node.function in CONVERSIONS and len(given) != 1):
            return NOT_CONSTANT
        value = dispatcher(node.function)(*given)
        if type(value) is not Err:
            return value
        if (
            node.function in CONVERSIONS
            and _all([self.of(one, calls=False) for one in node.operands]) is not NOT_CONSTANT
        ):
            raise self._invalid(node, node.function, value)
        return NOT_CONSTANT


def _all(values: list[Any]) -> Any:
    return NOT_CONSTANT if any(value is NOT_CONSTANT for value in values) else values
