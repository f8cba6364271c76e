"""Whether a profile fits beside what a card holds, where, and if not, who is in the way."""

from __future__ import annotations

from tonnage.fleet.geometry import Geometry
from tonnage.partitioning.layouts import Layout, Placement, mask_of, resource, span


def fits(on: Geometry, layout: Layout, profile: str) -> Placement | None:
    """Where an instance of ``profile`` can be made beside ``layout``; None: nowhere. Of several places, the one after
    which the most placements of all profiles are left.

    Raises InputError for a profile that the card has not, or a layout that overlaps."""
    wanted = resource(on, profile)
    start = on.best_start(mask_of(on, layout), wanted)
    return None if start is None else Placement(start, on.slots[wanted].name)


def blockers(on: Geometry, layout: Layout, profile: str) -> dict[int, Layout]:
    """For each start of the profile, the instances that stand in its way there."""
    spans = on.slots[resource(on, profile)].spans
    return {start: tuple(one for one in layout if span(on, one) & bits) for start, bits in spans.items()}
