"""A world that is over: what was measured in it answers again, at the times at which somebody looks.

Replicas are those that kube-state-metrics counted, whatever is decided now; or, where they are *followed*, those that
was decided on, from a number at the start: then what was measured is taken for what would have been measured, which is
true of traffic and not of what the replicas share, such as a utilisation.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tonnage.control.loops import Appointment, Loop, Timetable, tick
from tonnage.control.workloads_state import WorkloadsState
from tonnage.decisions import UNABLE, Applied, Decision, Outcome, Ref, Refused, Scale
from tonnage.fleet.rows import FleetPod
from tonnage.fleet.snapshot import PodView, Snapshot, WorkloadView
from tonnage.fleet.state import Fleet
from tonnage.metrics.promql import Result, Vector
from tonnage.objects import core

REPLICAS = {"Deployment": "kube_deployment_spec_replicas", "StatefulSet": "kube_statefulset_replicas"}
READY = {
    "Deployment": "kube_deployment_status_replicas_ready",
    "StatefulSet": "kube_statefulset_status_replicas_ready",
}
"""Metrics of kube-state-metrics (docs/metrics/workload/deployment-metrics.md, statefulset-metrics.md), by kind."""


class MeasuredPast(Protocol):
    """Who answers PromQL."""

    def measure(self, query: str, at_ns: int) -> Result:
        """The answer to an instant query. Raises InputError where there is none."""
        ...


@dataclass(frozen=True, slots=True)
class PastWorkload:
    """A workload of which the past is looked at. ``replicas``: those at the start where they are followed; None: as
    measured."""

    kind: str
    namespace: str
    name: str
    template: core.PodSpec
    annotations: Mapping[str, str] = field(default_factory=dict)
    replicas: int | None = None

    @property
    def key(self) -> str:
        return Ref(self.kind, self.name, self.namespace).workload

    def query(self, names: Mapping[str, str]) -> str:
        """PromQL for one of the counts of kube-state-metrics."""
        return f'max({names[self.kind]}{{namespace="{self.namespace}",{self.kind.lower()}="{self.name}"}})'


@dataclass(slots=True)
class _Pods:
    """``born_ns``: of each pod, by row, when it was created."""

    replicas: int = 0
    ready: int = 0
    rows: list[int] = field(default_factory=list)
    born_ns: list[int] = field(default_factory=list)


class Past:
    """The world of these workloads while it lasted. ``ready_after_ns``: what a followed replica takes to be Ready;
    those at the start are."""

    def __init__(self, measured: MeasuredPast, workloads: Sequence[PastWorkload], ready_after_ns: int = 0) -> None:
        self._measured, self._ready_after_ns = measured, ready_after_ns
        self._workloads = {one.key: one for one in workloads}
        self._fleet, self._now_ns, self._made = Fleet(), 0, 0
        self._pods = {key: _Pods() for key in self._workloads}
        self._state = WorkloadsState(self._fleet, self._views)
        self._unknown = set(self._workloads)
        """Workloads of which nothing was counted at this time."""

    def begin(self, at_ns: int) -> None:
        """Go to the start."""
        self.move(at_ns)
        for key, one in self._workloads.items():
            if one.replicas is not None:
                self._resize(key, one.replicas, at_ns - self._ready_after_ns)
                self._unknown.discard(key)
        self.move(at_ns)

    def move(self, at_ns: int) -> None:
        """Go to a later time. Raises InputError where what was measured gives no answer."""
        self._now_ns = at_ns
        for key, one in self._workloads.items():
            pods = self._pods[key]
            if one.replicas is not None:
                pods.ready = sum(born <= at_ns - self._ready_after_ns for born in pods.born_ns)
                continue
            counted = _number(self._measured.measure(one.query(REPLICAS), at_ns))
            if counted is None:
                self._unknown.add(key)
                continue
            ready = _number(self._measured.measure(one.query(READY), at_ns))
            self._unknown.discard(key)
            self._resize(key, counted, at_ns)
            pods.ready = counted if ready is None else min(counted, ready)

    def _resize(self, key: str, replicas: int, born_ns: int) -> None:
        one, pods = self._workloads[key], self._pods[key]
        pods.replicas = replicas
        while len(pods.rows) < replicas:
            self._made += 1
            spec = FleetPod(one.namespace, f"{one.name}-{self._made}", "", {}, one.template, owner=key)
            pods.rows.append(self._fleet.add_pod(spec))
            pods.born_ns.append(born_ns)
        while len(pods.rows) > replicas:
            self._fleet.remove_pod(pods.rows.pop())
            pods.born_ns.pop()

    def now(self) -> int:
        """The time that is looked at."""
        return self._now_ns

    def snapshot(self) -> Snapshot:
        """The workloads of which there are counts, with pods on nodes of which nothing is known."""
        return self._state.snapshot(self._now_ns)

    def _views(self) -> dict[str, WorkloadView]:
        return {key: self._view(one) for key, one in self._workloads.items() if key not in self._unknown}

    def _view(self, one: PastWorkload) -> WorkloadView:
        pods = self._pods[one.key]
        views = [
            PodView(
                row, one.namespace, self._fleet.pod(row).spec.name, "", born, None, born if i < pods.ready else None
            )
            for i, (row, born) in enumerate(zip(pods.rows, pods.born_ns, strict=True))
        ]
        return WorkloadView(one.kind, one.namespace, one.name, pods.replicas, tuple(views), annotations=one.annotations)

    def measure(self, query: str, at_ns: int) -> Result:
        """What was measured."""
        return self._measured.measure(query, at_ns)

    def apply(self, decision: Decision) -> Outcome:
        """Followed replicas become what was decided; all else is past."""
        if isinstance(decision, Scale):
            key = decision.target.workload
            if key in self._workloads and self._workloads[key].replicas is not None:
                self._resize(key, decision.replicas, self._now_ns)
                return Applied()
        return Refused(f"{decision.target}: it is past", UNABLE)

    def apply_all(self, decisions: Sequence[Decision]) -> list[Outcome]:
        """One after the other."""
        return [self.apply(decision) for decision in decisions]

    def note(self, about: Ref, reason: str, message: str, *, warning: bool = True) -> None:
        """Nobody reads it."""

    def woken(self) -> frozenset[str]:
        """Nothing changes by itself."""
        return frozenset()


def play(world: Past, loops: Sequence[Loop], start_ns: int, end_ns: int) -> None:
    """Let the loops look at the past, at their own times after the start, the end included.

    Raises InputError where what was measured gives no answer to the counts of replicas."""
    world.begin(start_ns)
    timetable, waiting, number = Timetable(loops), list[tuple[int, int, Appointment]](), 0
    for one in timetable.begin(start_ns):
        waiting.append((one.at_ns, number, one))
        number += 1
    heapq.heapify(waiting)
    while waiting and waiting[0][0] <= end_ns:
        at_ns, _, due = heapq.heappop(waiting)
        world.move(at_ns)
        tick(due.loop, world)
        after = timetable.keep(due, at_ns)
        if after is not None:
            heapq.heappush(waiting, (after.at_ns, number, after))
            number += 1


def _number(answer: Result) -> int | None:
    value = answer.value() if isinstance(answer, Vector) else answer.value
    return round(value) if value is not None and math.isfinite(value) else None
