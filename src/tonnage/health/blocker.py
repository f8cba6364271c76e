"""Why pods never run, or never serve."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tonnage.decisions import Finding, Ref
from tonnage.errors import Where

REFUSED = "refused"
"""The API server or an admission plugin refuses the pods: their controller makes none (event FailedCreate)."""
UNSCHEDULABLE = "unschedulable"
"""The pods are there and unschedulable (condition PodScheduled is False)."""
NO_NODE = "Unschedulable"
"""The reason of that condition."""
CREATING = "creating"
"""Bound, and the containers are never created: what they mount or read does not exist, the image cannot be pulled."""
CRASHING = "crashing"
"""The containers start and end with an error, again and again (CrashLoopBackOff)."""
NOT_READY = "not-ready"
"""The containers run, and the pods never become Ready."""
NO_EFFECT = "no-effect"
"""Of an object that is no workload: it never does what it is there for."""

STAGES = (REFUSED, UNSCHEDULABLE, CREATING, CRASHING, NOT_READY, NO_EFFECT)
"""In the order of the pod lifecycle: what fails first is the cause, what comes after it a symptom."""


class Blocker(msgspec.Struct, frozen=True):
    """One reason why the pods of ``object`` never run or serve, or why ``object`` never does what it is there for.

    ``rule``: a stable identifier in kebab case (docs/reference/findings.md). ``message``: the cause, one sentence with
    the values that decide. ``help``: the change that makes it run. ``reason`` and ``said``: the reason and the message
    that kubectl shows, of the condition, the container's state or the event. ``some``: it holds for some of the pods
    only."""

    rule: str
    stage: str
    object: Ref
    where: Where
    message: str
    help: str
    reason: str = ""
    said: str = ""
    some: bool = False

    def finding(self) -> Finding:
        """As one of the findings on a set of objects."""
        severity = "warning" if self.some else "error"
        return Finding(self.rule, severity, self.object, self.where, self.message, help=self.help)


def in_order(found: Iterable[Blocker]) -> tuple[Blocker, ...]:
    """Those of all pods before those of some, then causes before symptoms, then by object, then as they were found."""
    return tuple(
        sorted(
            found,
            key=lambda one: (one.some, STAGES.index(one.stage), str(one.object)),
        )
    )
