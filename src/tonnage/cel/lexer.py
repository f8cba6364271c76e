"""From text to tokens."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from tonnage.cel.failures import CompileError
from tonnage.cel.quantity import INT_MAX
from tonnage.cel.values import UINT_MAX, UInt

RESERVED = frozenset(
    """as break const continue else for function if import let loop package namespace return
    var void while""".split()  # noqa: SIM905
)
_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n\f]+|//[^\n]*)
    |(?P<string>(?:[rR][bB]?|[bB][rR]?)?(?:\"\"\"|'''|"|'))
    |(?P<number>0[xX][0-9a-fA-F]+[uU]?|(?:[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+
        |\.[0-9]+(?:[eE][+-]?[0-9]+)?)|[0-9]+[uU]?)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<sign>&&|\|\||==|!=|<=|>=|[-+*/%<>!?:.,()\[\]{}])""",
    re.VERBOSE | re.ASCII,
)
_ESCAPE = re.compile(
    r"\\(?:([abfnrtv\\?\"'`])|[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2}))"
)
_PLAIN = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True, slots=True)
class Token:
    """``kind``: name, number, literal (strings, true, false, null), sign or end. ``value`` of literals and numbers."""

    kind: str
    text: str
    at: int
    value: Any = None


def place(text: str, at: int) -> tuple[int, int]:
    """Line and column of an offset, from 1."""
    return text.count("\n", 0, at) + 1, at - (text.rfind("\n", 0, at) + 1) + 1


def syntax(text: str, at: int, message: str) -> CompileError:
    """An error of syntax at an offset."""
    return CompileError("syntax", message, *place(text, at))


def tokens(text: str) -> list[Token]:
    """All tokens of an expression, the last of kind end. Raises CompileError."""
    found: list[Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise syntax(text, at, f"{text[at]!r} cannot stand here")
        kind, word = str(match.lastgroup), match[0]
        if kind == "string":
            value, end = _string(text, at, word)
            found.append(Token("literal", text[at:end], at, value))
            at = end
            continue
        if kind == "number":
            found.append(Token(kind, word, at, number(text, at, word)))
        elif kind == "name" and word in ("true", "false", "null"):
            found.append(Token("literal", word, at, {"true": True, "false": False, "null": None}[word]))
        elif kind != "space":
            found.append(Token("sign" if word == "in" else kind, word, at))
        at = match.end()
    return [*found, Token("end", "the end", len(text))]


def number(text: str, at: int, word: str) -> Any:
    """The value of a number as it is written, a minus sign before it or not. Magnitudes that fit with a sign alone are
    returned as they are: the parser knows whether there is one."""
    if word[-1] in "uU":
        value = int(word[:-1], 0) if word[:2].lower() == "0x" else int(word[:-1])
        if value > UINT_MAX:
            raise syntax(text, at, f"{word} does not fit 64 bits")
        return UInt(value)
    if word[:2].lower() == "0x":
        value = int(word, 16)
    elif word.isdigit():
        value = int(word)
    else:
        if float(word) == float("inf"):
            raise syntax(text, at, f"{word} is no double")
        return float(word)
    if value > INT_MAX + 1:
        raise syntax(text, at, f"{word} does not fit 64 bits")
    return value


def _string(text: str, at: int, start: str) -> tuple[Any, int]:
    prefix = start.rstrip("\"'").lower()
    quote = start[len(prefix) :]
    raw, binary = "r" in prefix, "b" in prefix
    begun = at + len(start)
    end = begun
    while True:
        if end >= len(text) or (len(quote) == 1 and text[end] in "\n\r"):
            raise syntax(text, at, "the string does not end")
        if text.startswith(quote, end):
            break
        end += 2 if text[end] == "\\" and not raw else 1
    body = text[begun:end]
    if not raw:
        parts = _unescaped(text, begun, body, binary)
        return (b"".join(parts) if binary else "".join(parts)), end + len(quote)
    return (body.encode() if binary else body), end + len(quote)


def _unescaped(text: str, begun: int, body: str, binary: bool) -> list[Any]:
    parts: list[Any] = []
    at = 0
    while at < len(body):
        if body[at] != "\\":
            following = body.find("\\", at)
            following = len(body) if following < 0 else following
            parts.append(body[at:following].encode() if binary else body[at:following])
            at = following
            continue
        match = _ESCAPE.match(body, at)
        if match is None:
            raise syntax(text, begun + at, f"{body[at : at + 2]} is no escape sequence")
        plain, hexa, short, long, octal = match.groups()
        if binary and (short or long):
            raise syntax(text, begun + at, f"{match[0]} cannot stand in bytes")
        if plain:
            parts.append(_PLAIN.get(plain, plain).encode() if binary else _PLAIN.get(plain, plain))
        else:
            code = int(octal, 8) if octal else int(hexa or short or long, 16)
            if code > 0x10FFFF or 0xD800 <= code < 0xE000:
                raise syntax(text, begun + at, f"{match[0]} is no character")
            parts.append(bytes([code]) if binary else chr(code))
        at = match.end()
    return parts
