"""Moves on one card that win back room for a large profile, and who has to restart for it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tonnage.fleet.geometry import Geometry
from tonnage.partitioning.layouts import Layout, Placement, place
from tonnage.partitioning.relayout import subsets


@dataclass(frozen=True, slots=True)
class Move:
    """An instance made anew at another place; ``restarts``: somebody uses it."""

    before: Placement
    after: Placement
    restarts: bool


@dataclass(frozen=True, slots=True)
class Defrag:
    """``placement``: where the profile goes. ``after``: the layout with it."""

    placement: Placement
    moves: tuple[Move, ...]
    after: Layout


def defrag(on: Geometry, running: Layout, profile: str, busy: Collection[Placement] = ()) -> Defrag | None:
    """Room for one more ``profile`` with the fewest restarts, then the fewest moves; None when the card cannot hold it
    beside what runs, however that is placed. Nothing is given up: what runs still runs, elsewhere.

    Raises InputError for a profile that the card has not."""
    best: tuple[tuple[int, int], Layout, Layout] | None = None
    for kept in subsets(running, ()):
        moved = tuple(one for one in running if one not in kept)
        price = sum(one in busy for one in moved), len(moved)
        if best is not None and price >= best[0]:
            continue
        after = place(on, [*(one.profile for one in moved), profile], kept)
        if after is not None:
            best = price, kept, after
    if best is None:
        return None
    _, kept, after = best
    new = [one for one in after if one not in kept]
    moves = []
    for one in (one for one in running if one not in kept):
        to = next(other for other in new if other.profile == one.profile)
        new.remove(to)
        moves.append(Move(one, to, one in busy))
    return Defrag(new[0], tuple(moves), after)
