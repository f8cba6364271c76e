"""Who waits for room that a workload could give up.

A pod waits for a workload's room if it is not one of the workload's own, finds no room now, and would be placed if what
is idle of the workload went. The scheduler says whether: its answer is passed in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Protocol

from msgspec import Struct

from tonnage.fleet.filters import Filters
from tonnage.fleet.rows import FleetPod
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import Fleet


class Seats(Protocol):
    """What the scheduler would do (:class:`tonnage.scheduling.seats.SchedulerSeats`). Changes nothing."""

    def __call__(self, snapshot: Snapshot, waiting: Set[int], /) -> Set[int]:
        """Those of these pods, rows of some that wait, that would be bound now, all of them together."""

    def filters(self, fleet: Fleet, /) -> Filters:
        """Which nodes of the snapshot's fleet take a pod."""


class ForOthers(Struct, frozen=True):
    """``gives_up``: the workloads whose idle room would let others be scheduled. ``first``: whether others come before
    free room is filled: pods that fit there, or will when what is given up has gone."""

    gives_up: frozenset[str] = frozenset()
    first: bool = False


def look(snapshot: Snapshot, idle: Mapping[str, Sequence[int]], more: Mapping[str, int], seats: Seats) -> ForOthers:
    """``idle``: by workload, the rows of the pods that it could give up. ``more``: by workload, the replicas that are
    being ordered: they wait from now on, as copies of the workload's first pod."""
    fleet = snapshot.fleet
    waits = {row: fleet.pod(row).spec.owner for row in fleet.pending if not fleet.pod(row).spec.daemon}
    owners = {pod.row: name for name, workload in snapshot.workloads.items() for pod in workload.pods}
    waits = {row: owners.get(row, owner) for row, owner in waits.items()}
    if not waits and not any(more.values()):
        return ForOthers()
    there = frozenset(waits)
    with fleet.what_if():
        waits |= _ordered(snapshot, more)
        now = seats(snapshot, waits.keys())
        left = {row: owner for row, owner in waits.items() if row not in now}
        alone = {name for name, rows in idle.items() if _helps(snapshot, {name: rows}, left, seats)}
        able = {name: rows for name, rows in idle.items() if any(fleet.pod(row).node >= 0 for row in rows)}
        if not alone and len(able) > 1 and _helps(snapshot, able, left, seats):
            alone = set(able)
    return ForOthers(frozenset(alone), bool(alone or not there.isdisjoint(now)))


def another(snapshot: Snapshot, name: str, number: int) -> FleetPod | None:
    """A pod that the workload may order, like its first; ``number`` tells it from others. None where it has none."""
    pods = snapshot.workloads[name].pods
    if not pods:
        return None
    first = snapshot.fleet.pod(pods[0].row).spec
    return replace(first, name=f"{first.name}/{number}", uid="", leaving=False)


def _ordered(snapshot: Snapshot, more: Mapping[str, int]) -> dict[int, str]:
    """Let the replicas wait that are being ordered; row → workload."""
    fleet, found = snapshot.fleet, dict[int, str]()
    for name, count in more.items():
        for number in range(count):
            if (pod := another(snapshot, name, number)) is not None:
                found[fleet.add_pod(pod)] = name
    return found


def _helps(snapshot: Snapshot, idle: Mapping[str, Sequence[int]], left: Mapping[int, str], seats: Seats) -> bool:
    """Whether others that wait would be placed if the idle pods of these workloads went."""
    fleet = snapshot.fleet
    going = [row for rows in idle.values() for row in rows if fleet.pod(row).node >= 0]
    others = {row for row, owner in left.items() if len(idle) > 1 or owner not in idle}
    if not (going and others):
        return False
    with fleet.what_if():
        for row in going:
            fleet.unbind(row)
        return bool(seats(snapshot, others))
