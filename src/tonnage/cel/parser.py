"""From tokens to a tree, by precedence climbing."""

from __future__ import annotations

from typing import Any

from tonnage.cel.failures import CompileError
from tonnage.cel.lexer import RESERVED, Token, place, syntax, tokens
from tonnage.cel.macros import GLOBAL, RECEIVER, Expansion
from tonnage.cel.quantity import INT_MAX
from tonnage.cel.syntax import Ident, Invocation, ListOf, Literal, MapOf, Select, Struct, SyntaxNode

_RELATIONS = ("<", "<=", ">=", ">", "==", "!=", "in")
_LEVELS = (_RELATIONS, ("+", "-"), ("*", "/", "%"))
DEEPEST = 64
"""How deep parts of an expression may be nested in each other. Kubernetes allows more, and no selector needs it."""


class Parser:
    """Reads one expression."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._tokens = tokens(text)
        self._place = 0
        self._depth = 0

    def parse(self) -> SyntaxNode:
        """The tree, macros expanded. Raises CompileError."""
        node = self._expression()
        if self._now.kind != "end":
            raise self._unexpected("the end of the expression")
        return node

    @property
    def _now(self) -> Token:
        return self._tokens[self._place]

    def _next(self) -> Token:
        token = self._now
        self._place += 1
        return token

    def _is(self, *signs: str) -> bool:
        return self._now.kind == "sign" and self._now.text in signs

    def _take(self, *signs: str) -> bool:
        if self._is(*signs):
            self._place += 1
            return True
        return False

    def _expect(self, sign: str) -> Token:
        if not self._is(sign):
            raise self._unexpected(repr(sign))
        return self._next()

    def _unexpected(self, expected: str) -> CompileError:
        return syntax(self.text, self._now.at, f"found {self._now.text!r}, expected {expected}")

    def _expression(self) -> SyntaxNode:
        self._depth += 1
        if self._depth > DEEPEST:
            raise CompileError("nesting", f"nested more than {DEEPEST} deep", *place(self.text, self._now.at))
        node = self._either()
        if self._is("?"):
            at = self._next().at
            then = self._either()
            self._expect(":")
            node = Invocation(at, "_?_:_", None, [node, then, self._expression()])
        self._depth -= 1
        return node

    def _either(self) -> SyntaxNode:
        return self._chain("||", lambda: self._chain("&&", lambda: self._binary(0)))

    def _chain(self, sign: str, term: Any) -> SyntaxNode:
        node: SyntaxNode = term()
        if not self._is(sign):
            return node
        at, terms = self._now.at, [node]
        while self._take(sign):
            terms.append(term())
        return Invocation(at, f"_{sign}_", None, terms)

    def _binary(self, level: int) -> SyntaxNode:
        if level == len(_LEVELS):
            return self._unary()
        node = self._binary(level + 1)
        while self._is(*_LEVELS[level]):
            sign = self._next()
            right = self._binary(level + 1)
            node = Invocation(sign.at, "@in" if sign.text == "in" else f"_{sign.text}_", None, [node, right])
        return node

    def _unary(self) -> SyntaxNode:
        if not self._is("!", "-"):
            return self._member()
        first = self._next()
        count = 1
        while self._take(first.text):
            count += 1
        if first.text == "-" and count == 1 and self._now.kind == "number":
            return self._member(negative=True)
        node = self._member()
        if count % 2 == 0:
            return node
        return Invocation(first.at, "!_" if first.text == "!" else "-_", None, [node])

    def _member(self, *, negative: bool = False) -> SyntaxNode:
        node = self._primary(negative)
        while self._is(".", "["):
            at = self._now.at
            if self._take("["):
                maybe = self._take("?")
                node = Invocation(at, "_[?_]" if maybe else "_[_]", None, [node, self._expression()])
                self._expect("]")
                continue
            self._next()
            maybe = self._take("?")
            name = self._name()
            if maybe:
                node = Invocation(at, "_?._", None, [node, Literal(name.at, name.text)])
            elif self._is("("):
                node = self._call(name, node)
            else:
                node = Select(at, node, name.text)
        if self._is("{") and _qualified(node):
            return Struct(node.at, self.text[node.at : self._now.at])
        return node

    def _name(self) -> Token:
        if self._now.kind != "name":
            raise self._unexpected("a name")
        return self._next()

    def _call(self, name: Token, target: SyntaxNode | None) -> SyntaxNode:
        self._expect("(")
        arguments = self._arguments(")")
        macro = (GLOBAL if target is None else RECEIVER).get((name.text, len(arguments)))
        if macro is not None:
            expanded = macro(Expansion(self.text, name.at), target, arguments)
            if expanded is not None:
                return expanded
        return Invocation(name.at, name.text, target, arguments)

    def _arguments(self, closing: str) -> list[SyntaxNode]:
        found: list[SyntaxNode] = []
        while not self._is(closing):
            found.append(self._expression())
            if not self._take(","):
                break
        self._expect(closing)
        return found

    def _primary(self, negative: bool) -> SyntaxNode:
        token = self._now
        if token.kind == "number":
            self._next()
            return Literal(token.at, self._signed(token, negative))
        if token.kind == "literal":
            self._next()
            return Literal(token.at, token.value)
        if self._take("("):
            node = self._expression()
            self._expect(")")
            return node
        if self._take("["):
            return self._list(token.at)
        if self._take("{"):
            return self._map(token.at)
        rooted = self._take(".")
        name = self._name()
        if name.text in RESERVED:
            raise syntax(self.text, name.at, f"{name.text} is a reserved word")
        if self._is("("):
            return self._call(name, None)
        return Ident(name.at, ("." if rooted else "") + name.text)

    def _signed(self, token: Token, negative: bool) -> Any:
        if negative:
            if type(token.value) not in (int, float):
                raise syntax(self.text, token.at, "an unsigned number has no sign")
            return -token.value
        if type(token.value) is int and token.value > INT_MAX:
            raise syntax(self.text, token.at, f"{token.text} does not fit 64 bits")
        return token.value

    def _list(self, at: int) -> SyntaxNode:
        elements: list[SyntaxNode] = []
        maybe: list[bool] = []
        while not self._is("]"):
            maybe.append(self._take("?"))
            elements.append(self._expression())
            if not self._take(","):
                break
        self._expect("]")
        return ListOf(at, elements, maybe)

    def _map(self, at: int) -> SyntaxNode:
        entries: list[tuple[SyntaxNode, SyntaxNode, bool]] = []
        while not self._is("}"):
            maybe = self._take("?")
            key = self._expression()
            self._expect(":")
            entries.append((key, self._expression(), maybe))
            if not self._take(","):
                break
        self._expect("}")
        return MapOf(at, entries)


def _qualified(node: SyntaxNode) -> bool:
    while isinstance(node, Select):
        node = node.operand
    return isinstance(node, Ident)
