"""A re-layout as steps that survive a crash at any point: what was meant is written down, what is so is looked at.

The journal holds both layouts with every place in it, so nothing has to be remembered but the direction: the next step
follows from the journal and from the instances that are there now. All that goes, goes before anything is made; so as
long as an instance that should go is in use, nothing has been made yet and turning back is possible.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from msgspec import Struct

from tonnage.fleet.geometry import Geometry
from tonnage.partitioning.layouts import Layout, Placement, mask_of
from tonnage.partitioning.relayout import Step


@dataclass(frozen=True, slots=True)
class Journal:
    """What is being done to one card; written before the first step. ``back``: to ``before`` again."""

    card: str
    before: Layout
    after: Layout
    back: bool = False

    @property
    def goal(self) -> Layout:
        """The layout that it ends in as things stand."""
        return self.before if self.back else self.after

    def turned(self) -> Journal:
        """The same in the other direction. Raises ValueError when it goes back already."""
        if self.back:
            raise ValueError("there is no way further back")
        return replace(self, back=True)


class Waiting(Struct, frozen=True):
    """Nothing can be done until these instances are idle, or have been dealt with by whoever made them."""

    instances: Layout
    why: str


class TurnBack(Struct, frozen=True):
    """An instance that was to go is in use: write the turned journal, and go on."""

    instances: Layout


Next = Step | Waiting | TurnBack | None
"""None: the goal is reached, the journal can be closed."""


def next_step(on: Geometry, journal: Journal, there: Layout, busy: Collection[Placement] = ()) -> Next:
    """What to do now that these instances are ``there``, of which ``busy`` are in use.

    Of the same journal and card the same step follows however often it is asked, so a step that was done but not noted
    is not done twice. Raises InputError for instances that the card cannot have."""
    mask_of(on, there)
    strangers = tuple(one for one in there if one not in journal.before and one not in journal.after)
    if strangers:
        return Waiting(strangers, "made by somebody else")
    goal = journal.goal
    going = tuple(one for one in there if one not in goal)
    held = tuple(one for one in going if one in busy)
    if held:
        return Waiting(held, "in use") if journal.back else TurnBack(held)
    if going:
        return Step("destroy", going[0])
    missing = tuple(one for one in goal if one not in there)
    return Step("create", missing[0]) if missing else None
