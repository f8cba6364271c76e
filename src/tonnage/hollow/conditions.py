"""A condition in the status of an object."""

from __future__ import annotations

from typing import Any


def condition(type_: str, status: bool, reason: str, message: str, at: str) -> dict[str, Any]:
    """``at``: since when it is so, as RFC 3339 has it."""
    return {
        "type": type_,
        "status": "True" if status else "False",
        "reason": reason,
        "message": message,
        "lastTransitionTime": at,
    }
