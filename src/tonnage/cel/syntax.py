"""The tree of an expression."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tonnage.cel.kinds import ERROR, Type


@dataclass(slots=True, eq=False)
class SyntaxNode:
    """A part of an expression, where it stands in the text, and its type once it is checked."""

    at: int
    type: Type = field(default=ERROR, init=False)


@dataclass(slots=True, eq=False)
class Literal(SyntaxNode):
    """A constant."""

    value: Any


@dataclass(slots=True, eq=False)
class Ident(SyntaxNode):
    """A name. ``constant``: the type that it names, as a value."""

    name: str
    constant: Any = field(default=None, init=False)


@dataclass(slots=True, eq=False)
class Select(SyntaxNode):
    """``operand.name``, or the question whether that is there (``has``)."""

    operand: SyntaxNode
    name: str
    test: bool = False


@dataclass(slots=True, eq=False)
class Invocation(SyntaxNode):
    """A function, with a receiver or not. ``overload``: which of its signatures it is, empty when several may be."""

    function: str
    target: SyntaxNode | None
    arguments: list[SyntaxNode]
    overload: str = field(default="", init=False)

    @property
    def operands(self) -> list[SyntaxNode]:
        return self.arguments if self.target is None else [self.target, *self.arguments]


@dataclass(slots=True, eq=False)
class ListOf(SyntaxNode):
    """A list; elements with a question mark are left out when they are absent."""

    elements: list[SyntaxNode]
    optional: list[bool]


@dataclass(slots=True, eq=False)
class MapOf(SyntaxNode):
    """A map, likewise."""

    entries: list[tuple[SyntaxNode, SyntaxNode, bool]]


@dataclass(slots=True, eq=False)
class Struct(SyntaxNode):
    """A message. Kubernetes gives selectors none, so it is always refused."""

    name: str


@dataclass(slots=True, eq=False)
class Fold(SyntaxNode):
    """What macros become: a loop over ``range`` that carries ``accumulator``."""

    range: SyntaxNode
    variable: str
    second: str
    accumulator: str
    initial: SyntaxNode
    condition: SyntaxNode
    step: SyntaxNode
    result: SyntaxNode
