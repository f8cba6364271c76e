"""Whether a profile fits beside what a card holds, where, and if not, who is in the way."""

from __future__ import annotations

from tonnage.fleet.compute import beside
from tonnage.fleet.geometry import Geometry
from tonnage.partitioning.layouts import Layout, Placement, mask_of, resource


def fits(on: Geometry, layout: Layout, profile: str) -> Placement | None:
    """Where an instance of ``profile`` can be made beside ``layout``; None: nowhere. Of several places, the one after
    which the most placements of all profiles are left.

    Raises InputError for a profile that the card has not, or a layout that overlaps."""
    wanted, mask = resource(on, profile), mask_of(on, layout)
    if wanted in on.parts:
        start = beside(on, wanted, _compute_instances(on, layout))
        room = on.best_start(mask, on.parts[wanted].parent) if start is None else None
        start = start if room is None else room + on.parts[wanted].within[0]
    else:
        start = on.best_start(mask, wanted)
    return None if start is None else Placement(start, on.named(wanted).name)


def _compute_instances(on: Geometry, layout: Layout) -> list[tuple[str, int]]:
    named = ((resource(on, one.profile), one.start) for one in layout)
    return [(name, start) for name, start in named if name in on.parts]


def blockers(on: Geometry, layout: Layout, profile: str) -> dict[int, Layout]:
    """For each start of the profile, of a compute instance that of its GPU instance, the instances in its way there."""
    wanted = resource(on, profile)
    spans = on.slots[on.parts[wanted].parent if wanted in on.parts else wanted].spans
    stands = {one: on.span(*on.owner(resource(on, one.profile), one.start)) for one in layout}
    return {start: tuple(one for one in layout if stands[one] & bits) for start, bits in spans.items()}
