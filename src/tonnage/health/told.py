"""What has become of a pod, told in a line: why it never runs, what it waits for, or since when it serves."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tonnage.decisions import Ref
from tonnage.errors import Where
from tonnage.health.blocker import CRASHING, NO_EFFECT, REFUSED, Blocker

NEVER, PART, WAITS, COMES, STARTS, FAILS, SERVES, RUNS, ENDED = (
    "never",
    "in-part",
    "waits",
    "node-comes",
    "starts",
    "fails",
    "serves",
    "runs",
    "ended",
)
"""It never runs as it is; some of its pods do, others never; it is unschedulable now; a node is on its way to it; it is
on its node and will run; its containers fail; it is Ready; it runs; it is gone, or has succeeded."""
WELL = (PART, COMES, STARTS, SERVES, RUNS, ENDED)


class Told(msgspec.Struct, frozen=True):
    """``line`` is what is read first, ``details`` what stands behind it, oldest first. ``help``: the change that makes
    it run; ``where``: the line that decides it. Both are empty where nothing has to be changed."""

    about: str
    state: str
    line: str
    details: tuple[str, ...] = ()
    help: str = ""
    where: Where = Where()
    rule: str = ""

    @property
    def well(self) -> bool:
        """Whether it runs, or is about to."""
        return self.state in WELL


def of_blockers(about: str, found: Sequence[Blocker]) -> Told | None:
    """The first of the reasons why all of its pods never run; None where there is none."""
    stops = [one for one in found if not one.some]
    if not stops:
        return None
    first = stops[0]
    shown = ": ".join(part for part in (first.reason, first.said) if part)
    details = [f"kubectl: {shown}"] if shown and first.said not in first.message else []
    details += [f"besides: {one.message}" for one in stops[1:]]
    return Told(about, NEVER, f"{_never(first)}: {first.message}", tuple(details), first.help, first.where, first.rule)


def _never(blocker: Blocker) -> str:
    if blocker.stage == REFUSED:
        return "has no pods"
    if blocker.stage == NO_EFFECT:
        return "does nothing"
    return "crash-loops" if blocker.stage == CRASHING else "never runs"


def about(ref: Ref, found: Sequence[Blocker]) -> tuple[Blocker, ...]:
    """Those of one object."""
    same = (ref.kind.lower(), ref.namespace or "default", ref.name)
    return tuple(
        one for one in found if (one.object.kind.lower(), one.object.namespace or "default", one.object.name) == same
    )
