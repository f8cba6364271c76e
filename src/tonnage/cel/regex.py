"""Regular expressions of RE2, by Python's ``re``: what RE2 refuses is refused, what differs is rewritten.

Source: https://github.com/google/re2/wiki/Syntax and Go's regexp/syntax.
"""

from __future__ import annotations

import re
from functools import lru_cache

_MOST_REPEATS = 1000
_POSIX = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": r"\x00-\x7f",
    "blank": r"\t ",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\v\f\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
_PERL = {"d": "0-9", "s": r"\t\n\f\r ", "w": "0-9A-Za-z_"}
_CONTROL = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_REPEAT = re.compile(r"[*+?]|\{([0-9]+)(?:(,)([0-9]*))?\}")
_FLAGS = re.compile(r"\?([a-zA-Z]*)(?:-([a-zA-Z]+))?([:)])")
_NAME = re.compile(r"\?P?<([A-Za-z0-9_]+)>")


class NotRe2(ValueError):
    """The pattern is refused; the text says why."""


@lru_cache(maxsize=1024)
def compiled(pattern: str) -> re.Pattern[str]:
    """Raises NotRe2."""
    translated = _Translation(pattern).whole()
    try:
        return re.compile(translated, re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise NotRe2(f"{pattern!r}: {error}") from None


def find_all(pattern: str, text: str, count: int) -> list[str]:
    """Matches from left to right, at most ``count`` unless that is negative; none that is empty right after another."""
    found: list[str] = []
    end = -1
    for match in compiled(pattern).finditer(text):
        if 0 <= count <= len(found):
            break
        if match.end() > match.start() or match.start() != end:
            found.append(match[0])
        end = match.end()
    return found


class _Translation:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._names: set[str] = set()

    def _wrong(self, why: str) -> NotRe2:
        return NotRe2(f"{self._pattern!r} at {self._at + 1}: {why}")

    def _peek(self, text: str) -> bool:
        return self._pattern.startswith(text, self._at)

    def whole(self) -> str:
        out = self._alternatives("", 0)
        if self._at < len(self._pattern):
            raise self._wrong("unexpected )")
        return out

    def _alternatives(self, flags: str, depth: int) -> str:
        """Up to the end or a closing parenthesis. ``flags``: those that are on, of i, m and s."""
        if depth > 200:
            raise self._wrong("nested too deeply")
        out: list[str] = []
        part: list[str] = []
        while self._at < len(self._pattern) and not self._peek(")"):
            if self._peek("|"):
                self._at += 1
                out.append(_flagged("".join(part), flags) + "|")
                part = []
                continue
            changed = self._flag_change(flags)
            if changed is not None:
                part = [_flagged("".join(part), flags)] if part else []
                rest = self._alternatives(changed, depth)
                return "".join(out) + _sequence("".join(part), rest)
            part.append(self._repeated(self._atom(flags, depth)))
        return "".join(out) + _flagged("".join(part), flags)

    def _flag_change(self, flags: str) -> str | None:
        match = _FLAGS.match(self._pattern, self._at + 1) if self._peek("(?") else None
        if match is None or match[3] == ":":
            return None
        self._at = match.end()
        return self._with(flags, match)

    def _with(self, flags: str, match: re.Match[str]) -> str:
        on, off = match[1], match[2] or ""
        if set(on + off) - set("ims") or (match[3] == ")" and not on + off):
            raise self._wrong(f"the flags {match[0]!r} are not supported")
        return "".join(sorted((set(flags) | set(on)) - set(off)))

    def _atom(self, flags: str, depth: int) -> str:
        character = self._pattern[self._at]
        if character == "(":
            return self._group(flags, depth)
        if character == "[":
            return self._class()
        if character == "\\":
            return self._escape(in_class=False)
        if _REPEAT.match(self._pattern, self._at):
            raise self._wrong("nothing to repeat")
        self._at += 1
        if character == "$":
            return "$" if "m" in flags else r"\Z"
        return character if character in "^." else re.escape(character)

    def _group(self, flags: str, depth: int) -> str:
        self._at += 1
        opening, inner = "(", flags
        if self._peek("?"):
            named, scoped = _NAME.match(self._pattern, self._at), _FLAGS.match(self._pattern, self._at)
            if named is not None and named[1] not in self._names:
                self._names.add(named[1])
                self._at = named.end()
            elif scoped is not None and scoped[3] == ":":
                self._at, opening, inner = scoped.end(), "(?:", self._with(flags, scoped)
            else:
                raise self._wrong("RE2 has no such group")
        body = self._alternatives(inner, depth + 1)
        if not self._peek(")"):
            raise self._wrong("missing )")
        self._at += 1
        return f"{opening}{body})"

    def _repeated(self, atom: str) -> str:
        match = _REPEAT.match(self._pattern, self._at)
        if match is None:
            return atom
        least = int(match[1] or 0)
        most = int(match[3]) if match[3] else least
        if max(least, most) > _MOST_REPEATS or most < least:
            raise self._wrong(f"{match[0]} repeats more than {_MOST_REPEATS} times, or backwards")
        self._at = match.end()
        lazy = "?" if self._peek("?") else ""
        self._at += len(lazy)
        if _REPEAT.match(self._pattern, self._at):
            raise self._wrong("a repetition of a repetition")
        return f"(?:{atom}){match[0]}{lazy}"

    def _escape(self, *, in_class: bool) -> str:
        """An escape sequence; in a class, what stands between its brackets."""
        start = self._at
        self._at += 2
        letter = self._pattern[start + 1 : start + 2]
        if letter.lower() in _PERL and letter:
            if letter.islower():
                inner = _PERL[letter]
                return inner if in_class else f"[{inner}]"
            if in_class:
                return _complement(_PERL[letter.lower()])
            return f"[^{_PERL[letter.lower()]}]"
        if not in_class and letter in ("A", "b", "B"):
            return f"\\{letter}"
        if not in_class and letter == "z":
            return r"\Z"
        if not in_class and letter == "Q":
            end = self._pattern.find("\\E", self._at)
            quoted = self._pattern[self._at : end if end >= 0 else None]
            self._at = end + 2 if end >= 0 else len(self._pattern)
            return "".join(re.escape(c) for c in quoted) if len(quoted) < 2 else f"(?:{re.escape(quoted)})"
        return _literal(self._code(letter, start))

    def _code(self, letter: str, start: int) -> int:
        if letter in _CONTROL and letter:
            return _CONTROL[letter]
        if letter and ord(letter) < 128 and not letter.isalnum():
            return ord(letter)
        number = re.compile(r"x([0-9a-fA-F]{2})|x\{([0-9a-fA-F]+)\}|(0[0-7]{0,2}|[1-7][0-7]{1,2})").match(
            self._pattern, start + 1
        )
        if number is None:
            raise self._wrong(f"RE2 has no \\{letter}")
        self._at = number.end()
        code = int(number[3], 8) if number[3] else int(number[1] or number[2], 16)
        if code > 0x10FFFF:
            raise self._wrong("no such character")
        return code

    def _class(self) -> str:
        self._at += 1
        negated = self._peek("^")
        self._at += negated
        out: list[str] = []
        first = True
        while first or not self._peek("]"):
            if self._at >= len(self._pattern):
                raise self._wrong("missing ]")
            first = False
            if self._peek("[:"):
                out.append(self._posix())
                continue
            low, single = self._member()
            if single and self._peek("-") and not self._pattern.startswith("-]", self._at):
                self._at += 1
                if self._at >= len(self._pattern):
                    raise self._wrong("missing ]")
                high, single = self._member()
                if not single or ord(_character(low)) > ord(_character(high)):
                    raise self._wrong("the range is backwards")
                out.append(f"{low}-{high}")
            else:
                out.append(low)
        self._at += 1
        return f"[{'^' if negated else ''}{''.join(out)}]"

    def _member(self) -> tuple[str, bool]:
        if self._peek("\\"):
            letter = self._pattern[self._at + 1 : self._at + 2]
            return self._escape(in_class=True), letter.lower() not in _PERL
        self._at += 1
        return _literal(ord(self._pattern[self._at - 1])), True

    def _posix(self) -> str:
        match = re.compile(r"\[:(\^?)(\w+):\]").match(self._pattern, self._at)
        if match is None or match[2] not in _POSIX:
            raise self._wrong("RE2 has no such class")
        self._at = match.end()
        return _complement(_POSIX[match[2]]) if match[1] else _POSIX[match[2]]


def _literal(code: int) -> str:
    character = chr(code)
    return character if character.isalnum() else f"\\U{code:08x}"


def _character(member: str) -> str:
    return chr(int(member[2:], 16)) if member.startswith("\\U") else member


def _complement(inner: str) -> str:
    """What a class does not hold, to stand in another class."""
    inside = re.compile(f"[{inner}]")
    codes = [code for code in range(128) if not inside.match(chr(code))]
    return "".join(_literal(code) for code in codes) + "\\U00000080-\\U0010ffff"


def _flagged(part: str, flags: str) -> str:
    return f"(?{flags}:{part})" if flags and part else part


def _sequence(before: str, rest: str) -> str:
    """``before`` and then ``rest``, which may have alternatives of its own: they are alternatives of the whole."""
    if not before:
        return rest
    head, bar, tail = _split(rest)
    return f"{before}{head}{bar}{tail}"


def _split(rest: str) -> tuple[str, str, str]:
    depth, at, in_class = 0, 0, False
    while at < len(rest):
        character = rest[at]
        if character == "\\":
            at += 1
        elif in_class:
            in_class = character != "]"
        elif character == "[":
            in_class = True
        elif character in "()":
            depth += 1 if character == "(" else -1
        elif character == "|" and depth == 0:
            return rest[:at], "|", rest[at + 1 :]
        at += 1
    return rest, "", ""
