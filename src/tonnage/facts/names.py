"""Names that are nearly right: what a person may have meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from tonnage.errors import InputError, Problem, Where

_AT_MOST = 3


def near(name: str, names: Iterable[str]) -> tuple[str, ...]:
    """Up to three of ``names`` that look like ``name``, most alike first; letter case does not matter."""
    spelt = {one.lower(): one for one in sorted(names)}
    return tuple(spelt[one] for one in get_close_matches(name.lower(), list(spelt), n=_AT_MOST))


def unknown(kind: str, name: str, names: Iterable[str], *, where: Where | None = None, hint: str = "") -> InputError:
    """The error for a ``name`` that no ``kind`` has: proposes near names, or else gives ``hint``."""
    guesses = near(name, names)
    advice = f"did you mean {' or '.join(guesses)}?" if guesses else hint
    return InputError(Problem(where or Where(), f"unknown {kind} {name!r}", advice))
