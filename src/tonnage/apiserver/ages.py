"""Ages as Kubernetes prints them: 45s, 2m30s, 5h12m, 3d4h, 400d.

Source: kubernetes/kubernetes staging/src/k8s.io/apimachinery/pkg/util/duration/duration.go (HumanDuration).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86_400, 365 * 86_400
_FORMS = (
    (10 * _MINUTE, _MINUTE, "m", 1, "s"),
    (3 * _HOUR, _MINUTE, "m", 0, ""),
    (8 * _HOUR, _HOUR, "h", _MINUTE, "m"),
    (2 * _DAY, _HOUR, "h", 0, ""),
    (8 * _DAY, _DAY, "d", _HOUR, "h"),
    (2 * _YEAR, _DAY, "d", 0, ""),
    (8 * _YEAR, _YEAR, "y", _DAY, "d"),
)
"""Below this many seconds: the unit and its letter, and the smaller unit that is shown beside it when not zero."""


def human(seconds: float) -> str:
    """A duration in at most two units. Up to 2 seconds in the future count as none."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 0:
        return "0s"
    if whole < 2 * _MINUTE:
        return f"{whole}s"
    for below, unit, letter, small, small_letter in _FORMS:
        if whole < below:
            rest = whole % unit // small if small else 0
            return f"{whole // unit}{letter}" + (f"{rest}{small_letter}" if rest else "")
    return f"{whole // _YEAR}y"


def since(moment: Any, now_s: float) -> str:
    """The age of a time of the API; ``<unknown>`` without one."""
    if not moment:
        return "<unknown>"
    try:
        then = datetime.fromisoformat(str(moment)).timestamp()
    except ValueError:
        return "<invalid>"
    return human(now_s - then)
