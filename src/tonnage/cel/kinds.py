"""Types of expressions, and which can stand for which."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Type:
    """``kind``: bool, int, …, list, map, opaque, struct, param. ``name`` of the last three. ``of``: its parameters."""

    kind: str
    name: str = ""
    of: tuple[Type, ...] = ()

    def __str__(self) -> str:
        label = self.name or self.kind
        return f"{label}({', '.join(map(str, self.of))})" if self.of else label


BOOL, INT, UINT, DOUBLE = Type("bool"), Type("int"), Type("uint"), Type("double")
STRING, BYTES, NULL = Type("string"), Type("bytes"), Type("null", "null_type")
DYN, ANY, ERROR = Type("dyn"), Type("any", "google.protobuf.Any"), Type("error")
TIMESTAMP = Type("timestamp", "google.protobuf.Timestamp")
DURATION = Type("duration", "google.protobuf.Duration")
QUANTITY, SEMVER = Type("struct", "kubernetes.Quantity"), Type("struct", "kubernetes.Semver")
IP, CIDR = Type("opaque", "net.IP"), Type("opaque", "net.CIDR")
DEVICE = Type("struct", "kubernetes.DRADevice")
TYPE = Type("type", "type")

_NULLABLE = ("opaque", "struct", "any", "duration", "timestamp", "null")


def list_of(element: Type) -> Type:
    """list(element)"""
    return Type("list", "list", (element,))


def map_of(key: Type, value: Type) -> Type:
    """map(key, value)"""
    return Type("map", "map", (key, value))


def optional(value: Type) -> Type:
    """optional_type(value)"""
    return Type("opaque", "optional_type", (value,))


def param(name: str) -> Type:
    """A type that is still to be found."""
    return Type("param", name)


def is_dyn(t: Type) -> bool:
    """Whether its values are of types that only the evaluation tells."""
    return t.kind in ("dyn", "any")


def unwrapped(t: Type) -> tuple[Type, bool]:
    """What an optional holds, and whether it was one."""
    return (t.of[0], True) if t.kind == "opaque" and t.name == "optional_type" else (t, False)


class Bindings:
    """What type parameters stand for. A trial changes nothing unless it succeeds."""

    def __init__(self) -> None:
        self._bound: dict[Type, Type] = {}
        self._count = 0

    def fresh(self) -> Type:
        """A parameter of its own."""
        self._count += 1
        return param(f"_{self._count}")

    def assignable(self, values: list[Type], to: list[Type]) -> bool:
        """Whether values of these types can stand where those are expected; parameters are bound by it."""
        before = dict(self._bound)
        if len(values) == len(to) and all(self._fits(a, b) for a, b in zip(values, to, strict=True)):
            return True
        self._bound = before
        return False

    def resolve(self, t: Type, *, free_is_dyn: bool = False) -> Type:
        """The type with all that is bound put in."""
        if t in self._bound:
            return self.resolve(self._bound[t], free_is_dyn=free_is_dyn)
        if t.kind == "param":
            return DYN if free_is_dyn else t
        if not t.of:
            return t
        return Type(t.kind, t.name, tuple(self.resolve(one, free_is_dyn=free_is_dyn) for one in t.of))

    def _fits(self, a: Type, b: Type) -> bool:
        if b.kind == "param":
            valid, bound = self._substitutes(a, b)
            if valid or bound:
                return valid
        if a.kind == "param":
            return self._substitutes(b, a)[0]
        if is_dyn(a) or is_dyn(b) or "error" in (a.kind, b.kind):
            return True
        if a.kind == "null" or b.kind == "null":
            return (b if a.kind == "null" else a).kind in _NULLABLE
        if a.kind == "type":
            return b.kind == "type"
        if a.kind != b.kind or a.name != b.name or len(a.of) != len(b.of):
            return False
        return all(self._fits(x, y) for x, y in zip(a.of, b.of, strict=True))

    def _substitutes(self, value: Type, parameter: Type) -> tuple[bool, bool]:
        """Whether the parameter can stand for the value, and whether it already stood for something."""
        if value == parameter:
            return True, True
        known = self._bound.get(parameter)
        if known is None:
            if self._occurs(parameter, value):
                return False, False
            self._bound[parameter] = value
            return True, False
        if value == known:
            return True, True
        if not self._fits(value, known):
            return False, True
        wider = general(value, known)
        if not self._occurs(parameter, wider):
            self._bound[parameter] = wider
        return True, True

    def _occurs(self, parameter: Type, within: Type) -> bool:
        if parameter == within:
            return True
        if within.kind == "param":
            return within in self._bound and self._occurs(parameter, self._bound[within])
        return any(self._occurs(parameter, one) for one in within.of)


def general(a: Type, b: Type) -> Type:
    """The wider of two types that fit each other."""
    return a if _less_specific(a, b) else b


def _less_specific(a: Type, b: Type) -> bool:
    if is_dyn(a) or a.kind == "param":
        return True
    if is_dyn(b) or b.kind == "param":
        return False
    if a.kind != b.kind:
        return False
    if a.kind == "type":
        return True
    if a.kind in ("opaque", "list", "map"):
        return a.name == b.name and len(a.of) == len(b.of) and all(map(_less_specific, a.of, b.of))
    return a == b
