"""What is said of nodes on which claims cannot be allocated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tonnage.dra.allocator import Allocation

_SHOWN = 5


def by_reason(refused: Mapping[str, Allocation]) -> tuple[str, ...]:
    """What is said of the nodes, by their names, those together of which the same is said."""
    found: dict[str, list[str]] = {}
    for name, one in refused.items():
        parts = [one.error] if one.error else [*map(str, one.reasons), *one.pools] or [one.feasibility.value]
        for part in parts:
            found.setdefault(part, []).append(name)
    return tuple(f"{named(names)}: {reason}" for reason, names in found.items())


def named(names: Sequence[str]) -> str:
    """The names, or the first of them."""
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
