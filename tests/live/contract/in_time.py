"""A scenario with training in real time: what becomes of its gangs and pods, as a watch on the API records it."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tonnage.apiserver.inprocess import InProcess
from tonnage.decisions import Applied, Decision, Evict, Outcome
from tonnage.fleet.invariants import violations
from tonnage.hollow.up import Up, UpSettings
from tonnage.kube.informer import Informers
from tonnage.kube.resources import PODS
from tonnage.kube.verbs import Client
from tonnage.live.watching import watch
from tonnage.machines.cluster import SimulatedCluster
from tonnage.machines.training.part import WorkloadPart
from tonnage.objects import core
from tonnage.simulation.run import SetUp

LOOK_S = 0.05
MADE_ONCE = ("Pod", "PodGroup")
"""Kinds of training whose pods nobody makes again: who evicts them ends them for good."""
EVICTED = " was evicted"
REST_S = 1.0
"""Real seconds after the end in which nothing comes any more."""


@dataclass
class Seen:
    """Implements Observer. ``halves``: for how many real seconds each gang was bound in part without a break, at most;
    while the API server is away nobody can mend it, and it does not count.

    ``disturbed``: whether the disturbance came before the end; ``succeeded``: the pods that were seen in the API to have
    done their work, ``finished``: those of which the machines know it. A pod that is ``evicted`` when it has just done
    it is deleted at once, and while the API server is away nobody sees it before; one beyond its gang's minimum may be
    ``unbound``, for want of room, when the others have done the work. ``failed_for``: why a workload has failed,
    but for those made once that were evicted: when that comes to whom depends on when the API server was away."""

    errors: list[str] = field(default_factory=list)
    applied: Counter[str] = field(default_factory=Counter)
    halves: dict[str, float] = field(default_factory=dict)
    changes: int = 0
    disturbed: bool = False
    over: bool = False
    succeeded: set[str] = field(default_factory=set)
    finished: set[str] = field(default_factory=set)
    evicted: set[str] = field(default_factory=set)
    unbound: set[str] = field(default_factory=set)
    failed_for: dict[str, str] = field(default_factory=dict)
    _standing: set[str] = field(default_factory=set)
    _parts: dict[str, WorkloadPart] = field(default_factory=dict)
    _since: dict[str, float] = field(default_factory=dict)

    def decided(self, controller: str, loop: str, decision: Decision, outcome: Outcome) -> None:
        if isinstance(decision, Evict):
            self.evicted.add(decision.pod.name)  # also where the answer was lost
        if isinstance(outcome, Applied):
            self.applied[type(decision).__name__] += 1

    def failed(self, loop: str, error: Exception) -> None:
        self.errors.append(f"{loop}: {error}")

    def ticked(self, loop: str, seconds: float, taken: int) -> None:
        return

    def know(self, cluster: SimulatedCluster) -> None:
        """The gangs that there will be."""
        parts = [part for one in cluster.training.values() for part in one.parts if part.gang is not None]
        self._parts = {name: part for part in parts for name in part.replicas}

    def see(self, old: core.Pod | None, new: core.Pod | None) -> None:
        """A pod was added, changed or deleted: whether its gang is bound in part now, and since when."""
        self.changes += 1
        name = (new or old).name  # type: ignore[union-attr]
        self._standing.discard(name)
        if new is not None:
            (self.unbound.discard if new.spec.node_name else self.unbound.add)(name)
        if new is not None and new.status.phase == "Succeeded":
            self.succeeded.add(name)
        if new is not None and _stands(new):
            self._standing.add(name)
        part = self._parts.get(name)
        if part is None:
            return
        assert part.gang is not None
        if self._in_part(part):
            self._since.setdefault(part.gang.key, time.monotonic())
        elif (since := self._since.pop(part.gang.key, None)) is not None:
            self._note(part.gang.key, since)

    def _in_part(self, part: WorkloadPart) -> bool:
        """Whether pods of it stand, and with those that have succeeded fewer than it takes."""
        standing = part.replicas.keys() & self._standing
        return bool(standing) and not part.enough(standing | part.replicas.keys() & self.succeeded)

    def _note(self, gang: str, since: float) -> None:
        self.halves[gang] = max(self.halves.get(gang, 0.0), time.monotonic() - since)

    def look(self) -> None:
        """Count what is still in part."""
        for gang, since in self._since.items():
            self._note(gang, since)

    def back(self) -> None:
        """The API server is there again."""
        self._since = dict.fromkeys(self._since, time.monotonic())

    @property
    def unseen(self) -> set[str]:
        """The pods that have done their work, were not evicted, and were not seen to have done it: but for those beyond
        a gang's minimum that had no room when it ended."""
        unseen = self.finished - self.succeeded - self.evicted
        return {name for name in unseen if name not in self.unbound or not self._spare(name)}

    def _spare(self, name: str) -> bool:
        """Whether those of its part that were seen to have done their work, or were evicted, are enough."""
        part = self._parts.get(name)
        return part is not None and part.enough(part.replicas.keys() & (self.succeeded | self.evicted))

    @property
    def in_part(self) -> set[str]:
        """The gangs that are bound in part now."""
        return set(self._since)

    @property
    def longest_s(self) -> float:
        """For how long a gang was bound in part, at most."""
        return max(self.halves.values(), default=0.0)


def _stands(pod: core.Pod) -> bool:
    return bool(pod.spec.node_name) and pod.status.phase not in core.FINISHED and not pod.metadata.deletion_timestamp


def finished(cluster: SimulatedCluster) -> set[str]:
    """The pods that have done their work, without those that are made once."""
    return {name for one in cluster.training.values() if one.kind not in MADE_ONCE for name in one.succeeded}


def bare(cluster: SimulatedCluster) -> set[str]:
    """The training pods that nobody would make again."""
    return {r.name for one in cluster.training.values() if one.kind in MADE_ONCE for r in one.replicas}


@dataclass(frozen=True, slots=True)
class Disturbance:
    """What is done once, when this many decisions of this kind have been carried out."""

    act: Callable[[], object]
    kind: str
    times: int = 1


def played(made: SetUp, settings: UpSettings, patience_s: float, disturb: Disturbance | None = None) -> Seen:
    """Run it until every workload is over, but not for longer than this many real seconds."""
    seen = Seen()
    seen.know(made.cluster)
    with Up(made, settings, seen) as up:
        client = settings.client or Client(InProcess(up.server.api))  # type: ignore[union-attr]
        informers = Informers(client, time.time, random.Random(0))
        watch(informers, PODS, core.Pod, seen.see)
        try:
            _watched(up, informers, seen, time.monotonic() + patience_s, disturb)
        finally:
            informers.stop()
    return seen


def _watched(up: Up, informers: Informers, seen: Seen, deadline: float, disturb: Disturbance | None) -> None:
    cluster = up.made.cluster
    while time.monotonic() < deadline and not seen.over:
        informers.pump(LOOK_S)
        if disturb is not None and seen.applied[disturb.kind] >= disturb.times and not seen.disturbed:
            seen.disturbed = True
            disturb.act()
            seen.back()
        seen.look()
        with up.lock:
            assert violations(cluster.fleet) == []
            working = any(pod.workload.controller is not None for pod in cluster.pods.values())
            seen.over = all(one.over for one in cluster.training.values()) and not working
    seen.finished = finished(cluster)
    seen.failed_for = {
        one.key: one.verdict
        for one in cluster.training.values()
        if one.failed and not (one.kind in MADE_ONCE and one.verdict.endswith(EVICTED))
    }
    rest = time.monotonic() + REST_S
    while time.monotonic() < rest:
        informers.pump(LOOK_S)
    seen.look()
