"""Who waits for room that a workload could give up.

A pod waits for a workload's room if it is not one of the workload's own, finds no room now, and would be placed if what
is idle of the workload went. The scheduler says whether: its answer is passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from tonnage.fleet.fits import fits
from tonnage.fleet.snapshot import Snapshot
from tonnage.objects import selectors

Seats: TypeAlias = Callable[[Snapshot, Set[int]], Set[int]]
"""(a snapshot, rows of pods that wait) → those of them that would be bound now. Changes nothing."""


@dataclass(frozen=True, slots=True)
class ForOthers:
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


def alone(snapshot: Snapshot, waiting: Set[int]) -> Set[int]:
    """Those of these pods that a node has room for, each asked by itself."""
    return {row for row in waiting if _has_room(snapshot, row)}


def _has_room(snapshot: Snapshot, row: int) -> bool:
    fleet = snapshot.fleet
    spec, shape = fleet.pod(row).spec.spec, fleet.classes.shapes[fleet.pod_class(row).shape]
    if spec.scheduling_gates:
        return False
    nodes = [(node, fleet.node(node)) for node in fleet.node_rows() if fleet.schedulable[node]]
    open_to = [n for n, one in nodes if selectors.node_admits(spec, one.labels, one.taints, one.spec.name)]
    return bool(open_to) and bool(fits(fleet, np.array(open_to), shape).any())


def _ordered(snapshot: Snapshot, more: Mapping[str, int]) -> dict[int, str]:
    """Let the replicas wait that are being ordered; row → workload."""
    fleet, found = snapshot.fleet, dict[int, str]()
    for name, count in more.items():
        pods = snapshot.workloads[name].pods
        for number in range(count if pods else 0):
            spec = fleet.pod(pods[0].row).spec
            found[fleet.add_pod(replace(spec, name=f"{spec.name}/{number}", uid="", leaving=False))] = name
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
