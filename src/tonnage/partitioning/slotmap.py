"""A card's memory slices as text: who stands where, and who is in the way."""

from __future__ import annotations

import re
from collections.abc import Collection

from tonnage.facts import mig
from tonnage.fleet.geometry import Geometry
from tonnage.partitioning.layouts import Layout, Placement, resource

_CELL = 10


def slices(on: Geometry) -> int:
    """Memory slices of the card."""
    return mig.profiles(on.gpu)[0].of_memory_slices


def length(on: Geometry, profile: str) -> int:
    """Memory slices that an instance covers; of a compute instance its compute slices."""
    found = mig.get(on.gpu, on.named(resource(on, profile)).name)
    return found.compute_slices if found.parent else found.memory_slices


def draw(on: Geometry, layout: Layout, busy: Collection[Placement] = ()) -> list[str]:
    """Two lines of at most 80 columns: the slices' numbers, and the instances there, those in use in ``< >``."""
    count = slices(on)
    cells = ["·" * (_CELL - 1) + " "] * count
    line, at = "", 0
    for one in sorted(layout):
        line += "".join(cells[at : one.start])
        width = _CELL * length(on, one.profile) - 1
        name = one.profile if len(one.profile) <= width - 2 else _short(one.profile)
        ends = "<>" if one in busy else "[]"
        line += ends[0] + name.center(width - 2, "-") + ends[1] + " "
        at = one.start + length(on, one.profile)
    line += "".join(cells[at:])
    return ["".join(str(i).ljust(_CELL) for i in range(count)).rstrip(), line.rstrip()]


def _short(profile: str) -> str:
    """Without the memory: ``1g+me`` for ``1g.10gb+me``, ``1c.7g`` for ``1c.7g.80gb``."""
    return re.sub(r"\.\d+gb", "", profile)
