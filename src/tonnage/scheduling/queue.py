"""The pods that a decision need not look at, because its answer for them is certain.

Equal pods queue together, in the order of their turns. Where the first of a line is refused, so are those behind it: it
had the better turn at the same nodes. So a decision asks the first of each line, and as many behind it as there can be
room for; when all who were asked got something, it is taken again with more of them, as a decision changes nothing.
A line whose first was refused is not even asked for as long as nothing has changed that could help it: no node came
or changed, no room was given up, and nobody could be evicted for it.

What is decided is what :func:`tonnage.scheduling.place.decide` decides for all pending pods, but for the Waits of pods
that have been told the same before. Never in line are pods of gangs, pods for which room is being made, and pods that
ask for others around them or to be spread among them, as who stands before them can help them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeAlias

import numpy as np

from tonnage.decisions import OBSERVING, Applied, Bind, Decision, Evict, Outcome, Reason, Ref, Refused, Wait
from tonnage.fleet.classes import PodClass
from tonnage.fleet.rows import FleetPod, split_key
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import Fleet
from tonnage.scheduling import place
from tonnage.scheduling.beyond import beyond
from tonnage.scheduling.cache import Cache
from tonnage.scheduling.order import nominations
from tonnage.scheduling.view import NEVER
from tonnage.units import NS_PER_S

FLUSH_NS = 300 * NS_PER_S
"""After this long every line is asked and told again, whatever has changed or not.

Source: kubernetes/kubernetes pkg/scheduler/backend/queue/scheduling_queue.go, DefaultPodMaxInUnschedulablePodsDuration.
"""
SETTLE_NS = 2 * NS_PER_S
"""Pods that know why they wait are told of another kind of reason once it has stood for this long: a node that joins is
not ready at first, which is no news to thousands."""
Turn: TypeAlias = tuple[int, str, str, int]
"""When a pod was created, its namespace and name, and its row: who is less comes first."""
Kind: TypeAlias = tuple[object, ...]
"""What the pods of a line have in common."""


@dataclass(slots=True)
class _Line:
    """Equal pods. ``reason``: why its first was refused last; ``as_of``: the queue's ``epoch`` then, -1 where it was
    not; ``untold``: rows of pods that have not been told why they wait; ``known``: the kind of reason that the others
    were told; ``other_ns``: since when it is another."""

    kind: Kind
    pods: list[Turn] = field(default_factory=list)
    reason: Reason | None = None
    as_of: int = -1
    untold: set[int] = field(default_factory=set)
    known: str = ""
    other_ns: int | None = None

    def news(self, now_ns: int) -> bool:
        """Whether another kind of reason has stood for long enough to be told."""
        return self.other_ns is not None and now_ns - self.other_ns >= SETTLE_NS

    def rows(self, apart: Set[int] = frozenset(), most: int | None = None) -> list[int]:
        """The first this many, without those who stand apart."""
        if not apart:
            return [turn[3] for turn in self.pods[:most]]
        return list(islice((turn[3] for turn in self.pods if turn[3] not in apart), most))


class Queue:
    """The lines of one scheduler with these settings, kept from one decision to the next."""

    def __init__(self, settings: place.Settings = place.DEFAULTS) -> None:
        self._settings = settings
        self._lines: dict[Kind, _Line] = {}
        self._known: dict[int, tuple[FleetPod, _Line | None]] = {}
        """Pending pods by row, each with its line; None: not placed here."""
        self._classes: object = None
        self._absent: Set[str] = frozenset()
        self._epoch = 0
        self._now_ns = 0
        self._flushes, self._flushed_ns = False, 0
        self._topology_revision, self._claims_opened = -1, -1
        self._cursor = 0
        self._binds = 0
        self._nominations: Mapping[str, str] = {}

    def decide(self, snapshot: Snapshot, cache: Cache) -> list[Decision]:
        """As :func:`tonnage.scheduling.place.decide`, without the Waits of pods that were told the same before."""
        fleet = snapshot.fleet
        self._follow(snapshot, cache)
        self._look(snapshot)
        lines = [line for line in self._lines.values() if not self._rests(fleet, line)]
        alone = self._alone(snapshot)
        apart = alone | self._backing_off(snapshot)
        asked = {line.kind: line.rows(apart, 1 + self._room(fleet, cache, line)) for line in lines}
        while True:
            rows = {row for some in asked.values() for row in some} | alone
            decisions = place.decide(snapshot, self._settings, cache, rows) if rows else []
            refused = _refused(fleet, decisions)
            more = {one.kind: one.rows(apart) for one in lines if not refused.keys() & asked[one.kind]}
            if all(len(more[kind]) == len(asked[kind]) for kind in more):
                break
            asked |= more
        self._cursor = fleet.journal.end  # what the decision tried is undone
        self._binds = sum(isinstance(one, Bind) for one in decisions)
        waits: list[Decision] = [
            wait for line in lines for wait in self._behind(fleet, line, asked[line.kind], apart, refused)
        ]
        if not (waits or any(isinstance(one, Wait) for one in decisions)):
            waits += self._still(fleet)
        evictions = [one for one in decisions if isinstance(one, Evict)]
        return [*decisions[: len(decisions) - len(evictions)], *waits, *evictions]

    def learn(self, taken: Iterable[tuple[Decision, Outcome]]) -> None:
        """Who could not be told is told again."""
        again = {
            decision.pod
            for decision, outcome in taken
            if isinstance(decision, Wait)
            and not isinstance(outcome, Applied)
            and not (isinstance(outcome, Refused) and outcome.code == OBSERVING)
        }
        for row, (spec, line) in self._known.items() if again else ():
            if line is not None and spec.ref in again:
                line.untold.add(row)

    # ---- who stands where ----

    def _follow(self, snapshot: Snapshot, cache: Cache) -> None:
        """Let the lines be those of the pods that are pending now."""
        fleet = snapshot.fleet
        if self._classes is not fleet.classes or self._absent != snapshot.absent_groups:
            self._classes, self._absent = fleet.classes, snapshot.absent_groups
            self._lines, self._known = {}, {}
            self._epoch += 1
        pods, pending = fleet.pods, fleet.pending
        for row in [
            row
            for row, (spec, _) in self._known.items()
            if row not in pending or (pod := pods[row]) is None or pod.spec is not spec
        ]:
            self._leave(row)
        for row in pending.keys() - self._known.keys():
            self._join(fleet, cache, row)
        for line in [line for line in self._lines.values() if line.kind[0] == "shape"]:
            if cache.topology.has_rules(fleet.pod_class(line.pods[0][3])):  # another pod minds who stands near it now
                for row in line.rows():
                    self._leave(row)
                    self._join(fleet, cache, row)

    def _join(self, fleet: Fleet, cache: Cache, row: int) -> None:
        spec = fleet.pod(row).spec
        kind = self._kind(fleet, cache, row, spec)
        if kind is None:
            self._known[row] = (spec, None)
            return
        line = self._lines.get(kind)
        if line is None:
            line = self._lines[kind] = _Line(kind)
        turn = _turn(spec, row)
        if not line.pods or turn < line.pods[0]:
            line.as_of = -1
        insort(line.pods, turn)
        line.untold.add(row)
        self._known[row] = (spec, line)

    def _leave(self, row: int) -> None:
        spec, line = self._known.pop(row)
        if line is None:
            return
        line.untold.discard(row)
        at = bisect_left(line.pods, _turn(spec, row))
        if at == 0:
            line.as_of = -1
        del line.pods[at]
        if not line.pods:
            del self._lines[line.kind]

    def _kind(self, fleet: Fleet, cache: Cache, row: int, spec: FleetPod) -> Kind | None:
        """What the pod has in common with those who get the same answer; None for a pod that is not placed here."""
        if spec.spec.scheduling_gates or spec.spec.scheduler_name not in self._settings.scheduler_names:
            return None
        if spec.gang:
            return ("gang", row)
        if beyond(spec, 0, strict=self._settings.strict, absent=self._absent):
            return ("beyond", row)
        pod_class = fleet.pod_class(row)
        if cache.topology.asks_for_others(pod_class):
            return ("others", row)
        rank = (spec.priority, spec.spec.preemption_policy)
        if cache.topology.has_rules(pod_class):
            return ("class", pod_class.id, *rank)
        return ("shape", pod_class.shape, *rank)

    # ---- who is asked ----

    def _look(self, snapshot: Snapshot) -> None:
        """Note whether anything has changed that could help pods that were refused."""
        fleet, self._now_ns = snapshot.fleet, snapshot.now_ns
        news = fleet.journal.since(self._cursor)
        self._flushes = snapshot.now_ns - self._flushed_ns >= FLUSH_NS
        if self._flushes:
            self._flushed_ns = snapshot.now_ns
        if (
            news is None
            or any(sign < 0 for sign, _, _ in news)
            or len(news) < self._binds  # who was to be bound was not: its room is there
            or fleet.topology_revision != self._topology_revision
            or fleet.device_claims.opened != self._claims_opened
            or snapshot.nominations
            or self._nominations
            or self._flushes
        ):
            self._epoch += 1
        self._topology_revision = fleet.topology_revision
        self._claims_opened = fleet.device_claims.opened
        self._nominations = dict(snapshot.nominations)

    def _rests(self, fleet: Fleet, line: _Line) -> bool:
        """Whether the line need not be asked: it would be refused again, and all have been told."""
        if line.untold or line.news(self._now_ns):
            return False
        if line.kind[0] == "beyond":
            return line.reason is not None
        if line.kind[0] in ("gang", "others") or line.as_of != self._epoch or self._settings.defrag is not None:
            return False
        return not self._may_preempt(fleet, line)

    def _may_preempt(self, fleet: Fleet, line: _Line) -> bool:
        """Whether a pod of lower priority stands that could be evicted for it, were that to make room."""
        spec = fleet.pod(line.pods[0][3]).spec
        lowest = min(fleet.priorities, default=None)
        could = self._settings.preemption and lowest is not None and spec.priority > lowest
        return could and spec.spec.preemption_policy != "Never"

    def _alone(self, snapshot: Snapshot) -> set[int]:
        """Pods for which room is being made, or was on a node that is gone: each is asked."""
        if not snapshot.nominations:
            return set()
        named = {snapshot.fleet.pod_by_key.get(split_key(key), -1) for key in snapshot.nominations}
        return {row for row in named | nominations(snapshot).keys() if row in self._known and self._known[row][1]}

    def _backing_off(self, snapshot: Snapshot) -> set[int]:
        """Pods that are not tried now."""
        off = snapshot.backing_off
        return {row for row, (spec, _) in self._known.items() if spec.uid in off} if off else set()

    def _room(self, fleet: Fleet, cache: Cache, line: _Line) -> int:
        """As many pods of the line as the nodes can have room for now, at most."""
        if len(line.pods) == 1 or line.kind[0] not in ("shape", "class"):
            return len(line.pods)
        view = cache.view(_class_of(fleet, line), self._settings.policy)
        rows = np.flatnonzero(view.key != NEVER)
        if not len(rows):
            return 0
        free = fleet.free[rows][:, view.columns]
        return int((free // np.maximum(view.amounts, 1)).min(axis=1).clip(0).sum())

    # ---- what they are told ----

    def _behind(
        self, fleet: Fleet, line: _Line, asked: Sequence[int], apart: Set[int], refused: Mapping[int, Reason]
    ) -> list[Wait]:
        """What those wait for who were not asked, where they have not been told; and note what the line was told."""
        why = next((refused[row] for row in asked if row in refused), None)
        first = bool(asked) and asked[0] in refused
        line.reason, line.as_of = why, self._epoch if first else -1
        if why is None:
            return []
        anew = self._flushes or self._is_news(line, why.kind)
        spared = {*apart, *asked}
        rows = [row for row in line.rows() if row not in spared] if anew else sorted(line.untold - spared)
        line.untold = {row for row in line.untold if row in spared and row not in refused}
        return [Wait(fleet.pod(row).spec.ref, why) for row in rows]

    def _is_news(self, line: _Line, kind: str) -> bool:
        """Whether all pods of the line are to be told of this kind of reason; notes since when it is another."""
        if kind == line.known:
            line.other_ns = None
            return False
        if line.known and not line.news(self._now_ns):
            line.other_ns = self._now_ns if line.other_ns is None else line.other_ns
            return False
        line.known, line.other_ns = kind, None
        return True

    def _still(self, fleet: Fleet) -> list[Wait]:
        """That somebody waits, where nobody was asked: others look after pending pods."""
        for line in self._lines.values():
            if line.reason is not None:
                return [Wait(fleet.pod(line.pods[0][3]).spec.ref, line.reason)]
        return []


def _turn(spec: FleetPod, row: int) -> Turn:
    return spec.created_ns, spec.namespace, spec.name, row


def _class_of(fleet: Fleet, line: _Line) -> PodClass:
    return fleet.pod_class(line.pods[0][3])


def _refused(fleet: Fleet, decisions: Iterable[Decision]) -> dict[int, Reason]:
    """The rows of the pending pods, with no room coming, and why."""

    def row_of(pod: Ref) -> int:
        return fleet.pod_by_key[pod.namespace, pod.name]

    return {row_of(one.pod): one.reason for one in decisions if isinstance(one, Wait) and not one.nominated}
