"""The prints of a value: one hash of all of it, and short ones of its parts, to say where another value differs.

Floats count to nine digits: the last bits of exp and log differ from processor to processor.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

DIGITS = 9
DEPTH = 2
"""How far down objects are printed field by field."""
MOST = 64
"""Parts of a list at most; a long list's parts are of more entries each."""
SHORT = 4
"""Hexadecimal digits of a part's print. Whether anything differs at all is up to the hash of the whole."""

Record = dict[str, Any]
"""``all``: SHA-256 of the value; ``parts``: by path a print, of lists ``[length, entries a part, prints in a row]``."""


def record(value: Any) -> Record:
    """The prints of a value made of what JSON has, its floats :func:`rounded`."""
    parts: dict[str, Any] = {}
    for path, one in _leaves(value, "", DEPTH):
        if isinstance(one, list):
            size = -(-len(one) // MOST) or 1
            parts[path] = [len(one), size, "".join(_prints(one, size))]
        else:
            parts[path] = _hash(one)[:SHORT]
    return {"all": _hash(value), "parts": parts}


@dataclass(frozen=True)
class Difference:
    """Where a value differs from what is recorded: the first path, all top-level names, and what is there now."""

    first: str
    sections: tuple[str, ...]
    now: str

    def __str__(self) -> str:
        return f"{self.first} is not as recorded (differing: {', '.join(self.sections)}); it is now {self.now}"


def difference(recorded: Record, value: Any) -> Difference | None:
    """The difference between a value, its floats :func:`rounded`, and the prints recorded; None where there is none."""
    if recorded["all"] == _hash(value):
        return None
    then, now = recorded["parts"], dict(_leaves(value, "", DEPTH))
    found = [(path, text) for path in now | then for text in _changed(path, then.get(path), now)]
    if not found:
        return Difference("(what no part's print shows)", ("unknown",), "other than recorded")
    sections = dict.fromkeys(path.partition(".")[0] for path, _ in found)
    first, text = found[0][1]
    return Difference(first, tuple(sections), text)


def _changed(path: str, then: Any, now: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The place in ``path`` where it differs, and what is there now; nothing where it does not."""
    if path not in now:
        yield path, "gone"
        return
    value = now[path]
    if then is None or isinstance(then, list) != isinstance(value, list):
        yield path, _short(value)
    elif isinstance(then, list):
        length, size, prints = then
        old, new = [prints[i : i + SHORT] for i in range(0, len(prints), SHORT)], list(_prints(value, size))
        both = min(len(old), len(new))
        at = next((i for i in range(both) if old[i] != new[i]), both)
        if old != new or length != len(value):
            begin = at * size
            span = f"{path}[{begin}]" if size == 1 else f"{path}[{begin}:{begin + size}]"
            more = "" if length == len(value) else f" (length {len(value)}, was {length})"
            begins = "" if size == 1 else "a range that begins with "
            yield span, (begins + _short(value[begin]) if begin < len(value) else "gone") + more
    elif then != _hash(value)[:SHORT]:
        yield path, _short(value)


def rounded(value: Any) -> Any:
    """``value`` with floats of nine digits."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(one) for one in value]
    return value


def _leaves(value: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    """Paths and values of what gets prints of its own."""
    if isinstance(value, dict) and depth and value:
        for key, one in value.items():
            yield from _leaves(one, f"{path}.{key}" if path else str(key), depth - 1)
    else:
        yield path, value


def _prints(entries: list[Any], size: int) -> Iterator[str]:
    for at in range(0, len(entries), size):
        yield _hash(entries[at : at + size])[:SHORT]


def _hash(value: Any) -> str:
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def canonical(value: Any) -> str:
    """JSON with sorted keys and nothing between."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _short(value: Any) -> str:
    text = canonical(value)
    return text if len(text) <= 160 else text[:160] + "…"
