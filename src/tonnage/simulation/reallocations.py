"""A scenario's reallocations as a loop beside those that set replicas."""

from __future__ import annotations

from collections.abc import Sequence

from tonnage.control.holders import holder
from tonnage.control.loops import Loop
from tonnage.control.reallocating import Move, Reallocator
from tonnage.documents import duration_ns
from tonnage.errors import InputError, Problem
from tonnage.machines.cluster import SimulatedCluster
from tonnage.objects.base import KubeObject
from tonnage.simulation.scenario import Scenario


def reallocations(scenario: Scenario, objects: Sequence[KubeObject], cluster: SimulatedCluster) -> list[Loop]:
    """The loop, where there is any. Raises InputError for workloads that are not among the objects."""
    entries = scenario.spec.reallocations
    problems: list[Problem] = []
    for i, entry in enumerate(entries):
        found = []
        for name, value in (("from", entry.source), ("to", entry.target)):
            try:
                found.append(holder(objects, value).ref)
            except InputError as error:
                (one,) = error.problems
                problems.append(scenario.document.problem(f"reallocations[{i}].{name}", one.message, one.hint))
        if len(found) > len(set(found)):
            message = f'"{entry.target}" is the workload that gives up the GPUs'
            problems.append(scenario.document.problem(f"reallocations[{i}].to", message, "name two workloads"))
    if problems:
        raise InputError(*problems)
    if not entries:
        return []
    moves = [
        Move(duration_ns(one.at), one.source, one.target, one.gpus, duration_ns(one.until) if one.until else None)
        for one in entries
    ]
    return [Reallocator(objects, moves, cluster.declared.moved_bounds).loop()]
