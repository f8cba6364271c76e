"""KEDA's ScaledJob: how many Jobs a poll creates.

Each poll weighs the triggers, then what runs and waits, by the object's strategy. Nothing is ever scaled down: Jobs
end. Source: kedacore/keda v2.21 pkg/scaling/scaledjob/metrics.go, pkg/scaling/executor/scale_jobs.go,
apis/keda/v1alpha1/scaledjob_types.go.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum

from tonnage.scaling.scaled_object import DEFAULT_MAX_REPLICAS


class Strategy(Enum):
    """How what runs and waits is taken off."""

    DEFAULT = "default"
    CUSTOM = "custom"
    ACCURATE = "accurate"  # for queues from which a message goes when its Job ends
    EAGER = "eager"  # all that is free, at once


class Calculation(Enum):
    """Which of several active triggers counts."""

    MAX = "max"  # the one with the longest queue
    MIN = "min"  # the one with the shortest
    AVG = "avg"
    SUM = "sum"


@dataclass(frozen=True, slots=True)
class JobScaling:
    """What a ScaledJob says. ``deduction`` and ``running_share`` are of the custom strategy; without a share that can
    be read KEDA takes the default one.
    """

    min_replicas: int = 0
    max_replicas: int = DEFAULT_MAX_REPLICAS
    strategy: Strategy = Strategy.DEFAULT
    calculation: Calculation = Calculation.MAX
    deduction: int = 0
    running_share: float | None = None
    pending_conditions: tuple[str, ...] = ()

    @property
    def lowest(self) -> int:
        """The Jobs that always run."""
        return min(self.min_replicas, self.max_replicas)

    @property
    def room(self) -> int:
        """The Jobs that may run beside those; where the minimum is above the maximum, the maximum."""
        if self.min_replicas > self.max_replicas:
            return self.max_replicas
        return self.max_replicas - self.min_replicas


@dataclass(frozen=True, slots=True)
class TriggerQueue:
    """What one trigger gives: how much waits, how much of it one Job is for, and whether the trigger is active."""

    length: float
    target: float
    active: bool = True

    def jobs(self, room: int) -> float:
        """The Jobs that the queue asks for, not rounded; none without a target."""
        return min(self.length / self.target, float(room)) if self.target else 0.0


@dataclass(frozen=True, slots=True)
class Asked:
    """What all triggers ask for: ``scale_to`` as much as waits, ``most`` Jobs."""

    active: bool
    scale_to: int
    most: int


def asked(scaling: JobScaling, queues: Sequence[TriggerQueue]) -> Asked:
    """What the triggers ask for together. A minimum above 0 keeps the ScaledJob active."""
    chosen = _chosen(scaling.calculation, [queue for queue in queues if queue.active])
    length = sum(queue.length for queue in chosen)
    jobs = sum(queue.jobs(scaling.room) for queue in chosen)
    if scaling.calculation is Calculation.AVG and chosen:
        length, jobs = length / len(chosen), jobs / len(chosen)
    most = math.ceil(min(jobs, float(scaling.room)))
    return Asked(bool(chosen) or scaling.lowest > 0, math.ceil(length), most)


def _chosen(calculation: Calculation, active: Sequence[TriggerQueue]) -> list[TriggerQueue]:
    """Queues that count. An empty one is never the longest, and as the shortest it gives way to the next."""
    if calculation in (Calculation.AVG, Calculation.SUM):
        return list(active)
    found: list[TriggerQueue] = []
    length = 0.0
    for queue in active:
        longer = queue.length > length
        shorter = length == 0 or queue.length < length
        if longer if calculation is Calculation.MAX else shorter:
            found, length = [queue], queue.length
    return found


def to_create(scaling: JobScaling, wanted: Asked, *, running: int, pending: int) -> int:
    """How many Jobs the poll creates. ``running`` counts Jobs that have not ended, ``pending`` those of them that wait
    (:func:`is_pending`).
    """
    if not wanted.active:
        return 0
    if running < scaling.lowest:
        return scaling.lowest - running
    most, scale_to = _effective(scaling, wanted, running - scaling.lowest, pending)
    return max(0, min(most, scale_to))


def _effective(scaling: JobScaling, wanted: Asked, running: int, pending: int) -> tuple[int, int]:
    """(the most Jobs to create, what is asked for)."""
    room = scaling.room
    if scaling.strategy is Strategy.ACCURATE:
        if wanted.most + running - pending > room:
            return room - running, wanted.scale_to
        return wanted.most - pending, wanted.scale_to
    if scaling.strategy is Strategy.EAGER:
        return min(room - running - pending, wanted.most), room
    if scaling.strategy is Strategy.CUSTOM and scaling.running_share is not None:
        taken = scaling.deduction + math.trunc(running * scaling.running_share)
        return min(wanted.most - taken, room), wanted.scale_to
    return wanted.most - running, wanted.scale_to


def is_pending(scaling: JobScaling, phases: Sequence[str], conditions: Sequence[Collection[str]] = ()) -> bool:
    """Whether a Job that has not ended waits: none of its pods runs or has run, or, where the object names conditions
    (``pendingPodConditions``), none of them has all of these. ``conditions``: those that are True, by pod.
    """
    if scaling.pending_conditions:
        wanted = set(scaling.pending_conditions)
        return not any(wanted <= set(has) for has in conditions)
    return not any(phase in ("Running", "Succeeded") for phase in phases)


Queue = TriggerQueue
"""Its former name, for callers from outside."""
