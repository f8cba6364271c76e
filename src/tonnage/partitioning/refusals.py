"""Why a set of instances cannot be on a card: who is in the way, in a sentence and as a slot map."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tonnage.facts import mig
from tonnage.fleet.geometry import Geometry
from tonnage.partitioning.fit import blockers
from tonnage.partitioning.layouts import Layout, place, resource
from tonnage.partitioning.relayout import text
from tonnage.partitioning.slotmap import draw


def why_not(on: Geometry, profiles: Sequence[str], around: Layout = ()) -> tuple[str, tuple[str, ...]]:
    """Why these profiles, which the card has, do not fit on it together beside ``around``, and the slot map of the
    largest of them that do: a sentence that names who is in the way. Raises ValueError where they fit."""
    for name, count in Counter(profiles).items() if not around else ():
        most = mig.get(on.gpu, name).max_instances
        if count > most:
            return f"at most {most} x {name} fit", tuple(draw(on, place(on, [name] * most) or ()))
    order = list(on.slots)
    largest = sorted(profiles, key=lambda name: order.index(resource(on, name)), reverse=True)
    there = around
    for count in range(1, len(largest) + 1):
        whole = place(on, largest[:count], around)
        if whole is None:
            last = largest[count - 1]
            held = text(on, (one.profile for one in there))
            wanted = [*(one.profile for one in around), *profiles]
            why = f"{_slices(on, wanted)}beside {held} there is no place for {last}{_ways(on, there, last)}"
            return why, tuple(draw(on, there))
        there = whole
    raise ValueError("the profiles fit")


def _slices(on: Geometry, profiles: Sequence[str]) -> str:
    """That more compute slices are wanted than the card has; empty where that is not so."""
    wanted = [mig.get(on.gpu, name) for name in profiles]
    need, there = sum(one.compute_slices for one in wanted), max(one.compute_slices for one in mig.profiles(on.gpu))
    return f"they need {need} compute slices, it has {there}; " if need > there else ""


def _ways(on: Geometry, layout: Layout, profile: str) -> str:
    against = blockers(on, layout, profile)
    in_way = sorted({f"{one.profile} at {one.start}" for who in against.values() for one in who})
    starts = ", ".join(map(str, against))
    return f" (it starts at {starts}; in the way: {', '.join(in_way)})" if in_way else " (the media engines are taken)"
