"""Functions by name and by the types of what they are handed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tonnage.cel.values import Value, no_overload

Function = Callable[..., Value]
F = TypeVar("F", bound=Function)
Types = tuple[type, ...]

_VARIANTS: dict[str, list[tuple[Types, Function]]] = {}


def function(*names: str, takes: tuple[type, ...] | None = None) -> Callable[[F], F]:
    """Registers a function of values of these types; ``object`` stands for any type, ``dict`` for any map."""

    def register(f: F) -> F:
        for name in names:
            _VARIANTS.setdefault(name, []).append((takes or (), f))
        return f

    return register


def dispatcher(name: str) -> Function:
    """A function that chooses its variant by what it is handed, and is an error for what none takes."""
    variants = _VARIANTS[name]
    known: dict[Any, Function | None] = {}

    def call(*arguments: Value) -> Value:
        types = tuple(map(type, arguments))
        try:
            chosen = known[types]
        except KeyError:
            chosen = known[types] = _chosen(variants, types)
        return chosen(*arguments) if chosen is not None else no_overload(*arguments)

    return call


def _chosen(variants: list[tuple[Types, Function]], types: Types) -> Function | None:
    for takes, variant in variants:
        if len(takes) == len(types) and all(_accepts(t, given) for t, given in zip(takes, types, strict=True)):
            return variant
    return None


def _accepts(expected: type, given: type) -> bool:
    return expected is object or expected is given or (expected is dict and issubclass(given, dict))


def variant(name: str, types: Types) -> Function | None:
    """The variant that takes values of these types."""
    return _chosen(_VARIANTS[name], types) if name in _VARIANTS else None
