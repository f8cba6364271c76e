"""Moves on one card that win back room for a large profile, and who has to restart for it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec import Struct

from tonnage.fleet.geometry import Geometry
from tonnage.partitioning.layouts import Layout, Placement, mask_of, place, span
from tonnage.partitioning.relayout import subsets


class InstanceMove(Struct, frozen=True):
    """An instance recreated at another place; ``restarts``: somebody uses it."""

    before: Placement
    after: Placement
    restarts: bool


class Defrag(Struct, frozen=True):
    """``placement``: where the profile goes. ``after``: the layout with it.

    Each of ``moves`` goes where nobody stands any more, but the last ``at_once``: each of them goes where another one
    stands, so that all have to go before any is made."""

    placement: Placement
    moves: tuple[InstanceMove, ...]
    at_once: int
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
        moves.append(InstanceMove(one, to, one in busy))
    ordered, at_once = _in_order(on, running, moves)
    return Defrag(new[0], ordered, at_once, after)


def _in_order(on: Geometry, running: Layout, moves: Sequence[InstanceMove]) -> tuple[tuple[InstanceMove, ...], int]:
    """(moves, each after those that make room for it; how many of the last ones stand in each other's way)."""
    there, left, ordered = set(running), list(moves), list[InstanceMove]()
    while left:
        free = (move for move in left if not span(on, move.after) & mask_of(on, there - {move.before}))
        following = next(free, None)
        if following is None:
            break
        there = there - {following.before} | {following.after}
        left.remove(following)
        ordered.append(following)
    return (*ordered, *left), len(left)
