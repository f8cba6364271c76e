"""The tree of an expression."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tonnage.cel.kinds import ERROR, Type


@dataclass(slots=True, eq=False)
class Node:
    """A part of an expression, where it stands in the text, and its type once it is checked."""

    at: int
    type: Type = field(default=ERROR, init=False)


@dataclass(slots=True, eq=False)
class Literal(Node):
    """A constant."""

    value: Any


@dataclass(slots=True, eq=False)
class Ident(Node):
    """A name. ``constant``: the type that it names, as a value."""

    name: str
    constant: Any = field(default=None, init=False)


@dataclass(slots=True, eq=False)
class Select(Node):
    """``operand.name``, or the question whether that is there (``has``)."""

    operand: Node
    name: str
    test: bool = False


@dataclass(slots=True, eq=False)
class Invocation(Node):
    """A function, with a receiver or not. ``overload``: which of its signatures it is, empty when several may be."""

    function: str
    target: Node | None
    arguments: list[Node]
    overload: str = field(default="", init=False)

    @property
    def operands(self) -> list[Node]:
        return self.arguments if self.target is None else [self.target, *self.arguments]


@dataclass(slots=True, eq=False)
class ListOf(Node):
    """A list; elements with a question mark are left out when they are absent."""

    elements: list[Node]
    optional: list[bool]


@dataclass(slots=True, eq=False)
class MapOf(Node):
    """A map, likewise."""

    entries: list[tuple[Node, Node, bool]]


@dataclass(slots=True, eq=False)
class Struct(Node):
    """A message. Kubernetes gives selectors none, so it is always refused."""

    name: str


@dataclass(slots=True, eq=False)
class Fold(Node):
    """What macros become: a loop over ``range`` that carries ``accumulator``."""

    range: Node
    variable: str
    second: str
    accumulator: str
    initial: Node
    condition: Node
    step: Node
    result: Node
