"""Types: what Kubernetes refuses when an expression is stored. Source: cel-go checker/checker.go."""

from __future__ import annotations

from collections.abc import Mapping

from tonnage.cel import kinds
from tonnage.cel.failures import CompileError, Err
from tonnage.cel.kinds import BOOL, DYN, INT, STRING, Bindings, Type, general, is_dyn, list_of, map_of, unwrapped
from tonnage.cel.lexer import place
from tonnage.cel.signatures import UNSUPPORTED, Overload, functions
from tonnage.cel.syntax import Fold, Ident, Invocation, ListOf, Literal, MapOf, Select, Struct, SyntaxNode
from tonnage.cel.values import Duration, Timestamp, TypeName, UInt

_LITERALS = {
    bool: BOOL,
    int: INT,
    UInt: kinds.UINT,
    float: kinds.DOUBLE,
    str: STRING,
    bytes: kinds.BYTES,
    type(None): kinds.NULL,
    Timestamp: kinds.TIMESTAMP,
    Duration: kinds.DURATION,
}
_TYPES = {
    t.name or t.kind: t
    for t in (BOOL, INT, kinds.UINT, kinds.DOUBLE, STRING, kinds.BYTES, kinds.NULL, kinds.TIMESTAMP, kinds.DURATION)
} | {
    "list": list_of(DYN),
    "map": map_of(DYN, DYN),
    "type": kinds.TYPE,
    "optional_type": kinds.optional(DYN),
}

Scope = dict[str, Type]


class Checker:
    """Gives every part of a tree its type and every call its signature."""

    def __init__(self, text: str, variables: Mapping[str, Type], fields: Mapping[Type, Scope]) -> None:
        self._text = text
        self._scopes: list[Scope] = [dict(variables)]
        self._fields = fields
        self._functions = functions()
        self._bindings = Bindings()

    def check(self, node: SyntaxNode) -> Type:
        """The type of the expression. Raises CompileError."""
        self._check(node)
        return self._bindings.resolve(node.type, free_is_dyn=True)

    def resolved(self, t: Type) -> Type:
        """A type with all that is known by now."""
        return self._bindings.resolve(t, free_is_dyn=True)

    def _wrong(self, node: SyntaxNode, kind: str, message: str) -> CompileError:
        return CompileError(kind, message, *place(self._text, node.at))

    def _check(self, node: SyntaxNode) -> Type:
        match node:
            case Literal():
                node.type = _LITERALS[type(node.value)]
            case Ident():
                node.type = self._ident(node)
            case Select():
                node.type = self._select(node)
            case Invocation():
                node.type = self._call(node)
            case ListOf():
                node.type = self._list(node)
            case MapOf():
                node.type = self._map(node)
            case Fold():
                node.type = self._fold(node)
            case Struct():
                raise self._wrong(node, "undeclared reference", f"there is no message {node.name}")
        return node.type

    def _lookup(self, name: str) -> Type | None:
        if name.startswith("."):
            return self._scopes[0].get(name[1:])
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        return None

    def _ident(self, node: Ident) -> Type:
        found = self._lookup(node.name)
        if found is not None:
            return found
        return self._type_name(node, node.name.removeprefix("."))

    def _type_name(self, node: Ident, name: str) -> Type:
        if name not in _TYPES:
            raise self._wrong(
                node, "undeclared reference", f"there is no {name}; the device that is looked at is called device"
            )
        node.constant = TypeName(name)
        return Type("type", "type", (_TYPES[name],))

    def _select(self, node: Select) -> Type:
        if not node.test and (name := _dotted(node)) in _TYPES and self._lookup(name.split(".")[0]) is None:
            ident = Ident(node.at, name)
            ident.type = self._type_name(ident, name)
            node.operand, node.name = ident, ""
            return ident.type
        found = self._field(node, node.operand, node.name)
        return BOOL if node.test else self._bindings.resolve(found)

    def _field(self, node: SyntaxNode, operand: SyntaxNode, name: str, *, maybe: bool = False) -> Type:
        holder, was_optional = unwrapped(self._bindings.resolve(self._check(operand)))
        found = DYN
        if holder.kind == "map":
            found = holder.of[1]
        elif holder.kind == "struct":
            fields = self._fields.get(holder, {})
            if name not in fields:
                has = f"it has {', '.join(sorted(fields))}" if fields else "it has none"
                raise self._wrong(node, "undefined field", f"{holder} has no field {name}; {has}")
            found = fields[name]
        elif holder.kind == "param":
            self._bindings.assignable([DYN], [holder])
        elif not is_dyn(holder):
            raise self._wrong(node, "no field selection", f"a {holder} has no fields, so .{name} cannot stand here")
        return kinds.optional(found) if was_optional or maybe else found

    def _call(self, node: Invocation) -> Type:
        if node.function == "_?._":
            name = node.arguments[1]
            assert isinstance(name, Literal)
            name.type = STRING
            node.overload = "select_optional_field"
            return self._bindings.resolve(self._field(node, node.arguments[0], name.value, maybe=True))
        for argument in node.arguments:
            self._check(argument)
        if node.target is not None:
            prefix = _dotted(node.target)
            if prefix and f"{prefix}.{node.function}" in self._functions:
                node.function, node.target = f"{prefix}.{node.function}", None
        if node.target is not None:
            self._check(node.target)
        node.function = node.function.removeprefix(".")
        if node.function not in self._functions:
            if node.function in UNSUPPORTED:
                raise self._wrong(
                    node, "unsupported function", f"{node.function}() of Kubernetes is not supported here"
                )
            raise self._wrong(node, "undeclared reference", f"there is no function {node.function}")
        return self._resolve(node)

    def _resolve(self, node: Invocation) -> Type:
        member = node.target is not None
        given = [operand.type for operand in node.operands]
        if node.function in ("_&&_", "_||_"):
            for operand in node.operands:
                if not self._bindings.assignable([operand.type], [BOOL]):
                    found = self.resolved(operand.type)
                    raise self._wrong(operand, "type mismatch", f"{node.function} takes bool, not {found}")
            node.overload = "logical"
            return BOOL
        names: list[str] = []
        result: Type | None = None
        for overload in self._functions[node.function]:
            if overload.member != member:
                continue
            arguments, outcome = self._instance(overload)
            if not self._bindings.assignable(given, arguments):
                continue
            names.append(overload.name)
            found = self._bindings.resolve(outcome)
            if result is None:
                result = found
            elif not is_dyn(result) and found != result:
                result = DYN
        if result is None:
            shown = ", ".join(str(self.resolved(t)) for t in given)
            raise self._wrong(node, "no matching overload", f"{node.function} does not take ({shown})")
        node.overload = names[0] if len(names) == 1 else ""
        return result

    def _instance(self, overload: Overload) -> tuple[list[Type], Type]:
        if not overload.generic:
            return list(overload.arguments), overload.result
        fresh: dict[str, Type] = {}

        def put(t: Type) -> Type:
            if t.kind == "param":
                return fresh.setdefault(t.name, self._bindings.fresh())
            return Type(t.kind, t.name, tuple(put(one) for one in t.of)) if t.of else t

        return [put(t) for t in overload.arguments], put(overload.result)

    def _joined(self, node: SyntaxNode, before: Type | None, now: Type) -> Type:
        if before is None:
            return now
        if self._bindings.assignable([before], [now]):
            return general(before, now)
        raise self._wrong(node, "type mismatch", f"expected {self.resolved(before)}, found {self.resolved(now)}")

    def _element(self, node: SyntaxNode, maybe: bool) -> Type:
        t = self._check(node)
        if not maybe:
            return t
        inner, was_optional = unwrapped(t)
        if not was_optional and not is_dyn(inner):
            raise self._wrong(node, "type mismatch", f"expected an optional value, found {self.resolved(t)}")
        return inner

    def _list(self, node: ListOf) -> Type:
        joined: Type | None = None
        for element, maybe in zip(node.elements, node.optional, strict=True):
            joined = self._joined(element, joined, self._element(element, maybe))
        return list_of(joined or self._bindings.fresh())

    def _map(self, node: MapOf) -> Type:
        key: Type | None = None
        value: Type | None = None
        for k, v, maybe in node.entries:
            key = self._joined(k, key, self._check(k))
            value = self._joined(v, value, self._element(v, maybe))
        return map_of(key or self._bindings.fresh(), value or self._bindings.fresh())

    def _fold(self, node: Fold) -> Type:
        self._check(node.range)
        carried = self._check(node.initial)
        over = self._bindings.resolve(node.range.type)
        self._scopes.append({node.accumulator: carried})
        if over.kind == "list":
            first, second = (INT, over.of[0]) if node.second else (over.of[0], DYN)
        elif over.kind == "map":
            first, second = over.of
        elif over.kind in ("dyn", "param"):
            self._bindings.assignable([DYN], [over])
            first = second = DYN
        else:
            raise self._wrong(node.range, "no range", f"a {over} has no elements to go through")
        self._scopes.append({node.variable: first} | ({node.second: second} if node.second else {}))
        self._expect(node.condition, BOOL)
        self._expect(node.step, carried)
        self._scopes.pop()
        self._check(node.result)
        self._scopes.pop()
        return self._bindings.resolve(node.result.type)

    def _expect(self, node: SyntaxNode, expected: Type) -> None:
        self._check(node)
        if not self._bindings.assignable([expected], [node.type]):
            shown, found = self.resolved(expected), self.resolved(node.type)
            raise self._wrong(node, "type mismatch", f"expected {shown}, found {found}")

    def invalid(self, node: SyntaxNode, function: str, error: Err) -> CompileError:
        """A constant argument that the function refuses."""
        return self._wrong(node, "invalid argument", f"invalid argument of {function}: {error.text}")


def _dotted(node: SyntaxNode) -> str:
    if isinstance(node, Ident):
        return node.name
    if isinstance(node, Select) and not node.test:
        prefix = _dotted(node.operand)
        return f"{prefix}.{node.name}" if prefix else ""
    return ""
