"""The scheduling decision: which pending pod goes to which node, and why the others wait.

Pods are taken by priority (highest first), then age, then name. Each goes to the best node that passes all filters;
nothing is held for a pod that fits nowhere, and a pod that fits somewhere is never refused. A gang has one place in
this order, and is bound whole or not at all (:mod:`tonnage.scheduling.gangs`).
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

import numpy as np

from tonnage.decisions import Alternative, Bind, Decision, Reason, Ref, Scalar, Wait
from tonnage.fleet.rows import split_key
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import Fleet
from tonnage.scheduling.assumed import Assumed
from tonnage.scheduling.beyond import beyond
from tonnage.scheduling.cache import Cache, keys_of
from tonnage.scheduling.defrag import DefragPlan, Limits, NoDefrag, movable
from tonnage.scheduling.defrag import plan as defrag_plan
from tonnage.scheduling.gangs.queue import MADE_FOR_IT, Gangs
from tonnage.scheduling.order import Unit, in_turn, units_of
from tonnage.scheduling.policies import POLICIES
from tonnage.scheduling.preempt import Preemptor
from tonnage.scheduling.refusals import Refusals
from tonnage.scheduling.trial import Trial
from tonnage.scheduling.view import NEVER, TIE_BITS, Ints, ShapeView

__all__ = ["DEFAULTS", "POLICIES", "Cache", "Settings", "decide", "defragment", "feasible", "keys_of"]


SCHEDULER_NAME, DEFAULT_SCHEDULER = "tonnage", "default-scheduler"
"""The schedulerName of pods that Tonnage places, and that which Kubernetes gives to a pod that says none."""
EVERYBODY = ("", DEFAULT_SCHEDULER, SCHEDULER_NAME)
"""Where there is no other scheduler."""


@dataclass(frozen=True, slots=True)
class Settings:
    """``policy``: one of :data:`tonnage.scheduling.policies.POLICIES`. ``receipts``: record scores and runners-up.

    ``scheduler_names``: the schedulerName of the pods that are placed here. ``strict``: pods that name a group
    which is not known here wait; otherwise each is placed on its own.
    ``preemption``: pods and gangs take the room of lower priority; ``respect_budgets``: never beyond what
    PodDisruptionBudgets allow, which kube-scheduler only tries; ``defrag``: how many pods may be moved, before, to make
    room, None for no moves. Moves need no preemption."""

    policy: str = "tonnage"
    receipts: bool = True
    scheduler_names: tuple[str, ...] = EVERYBODY
    strict: bool = False
    preemption: bool = True
    respect_budgets: bool = True
    defrag: Limits | None = None


DEFAULTS = Settings()


def decide(
    snapshot: Snapshot, settings: Settings = DEFAULTS, cache: Cache | None = None, asked: Set[int] | None = None
) -> list[Decision]:
    """A Bind for every pending pod that fits now, a Wait with the reason for every other, then whom to evict for them.

    ``asked``: rows of the pending pods that are looked at, None for all. Pods with scheduling gates, pods of other
    schedulers and pods that could not be bound a moment ago are left alone. Changes nothing. Raises ValueError for a
    cache of another fleet."""
    fleet = snapshot.fleet
    cache = cache or Cache(fleet)
    if not cache.fits(fleet):
        raise ValueError("the cache is that of another fleet")
    rows = _queue(snapshot, settings, asked)
    left = _beyond(snapshot, rows, strict=settings.strict)
    rows = [row for row in rows if row not in left]
    turns = _Turns(snapshot, cache, settings, rows)
    binds: list[Decision] = []
    waiting: list[Unit] = []
    with fleet.what_if():
        for band in turns.preemptor.bands():
            waiting += band
            again = True
            while again:  # a pod placed later may be the company that one refused earlier asks for
                found, waiting = turns.round(waiting)
                binds += found
                again = (bool(found) and not turns.refused_for_good) or turns.make_room(waiting)
        reasons = [(row, turns.reason(unit, row)) for unit in waiting for row in unit.rows]
    nominated = turns.preemptor.nominated()
    waits = [
        Wait(fleet.pod(row).spec.ref, why, nominated=nominated.get(row, "")) for row, why in (*reasons, *left.items())
    ]
    return [*binds, *waits, *turns.preemptor.evictions]


def _beyond(snapshot: Snapshot, rows: list[int], *, strict: bool) -> dict[int, Reason]:
    """The pods among them that wait whatever the nodes are, and why."""
    fleet, absent = snapshot.fleet, snapshot.absent_groups
    nodes = len(fleet.node_by_name)
    asked = ((row, beyond(fleet.pod(row).spec, nodes, strict=strict, absent=absent)) for row in rows)
    return {row: Reason(why, ((why, None),)) for row, why in asked if why}


def feasible(fleet: Fleet, row: int, cache: Cache | None = None) -> list[int]:
    """The rows of the nodes that pass all filters for this pod now, by name; its scheduling gates are not looked at.

    Raises ValueError for a cache of another fleet."""
    cache = cache or Cache(fleet)
    if not cache.fits(fleet):
        raise ValueError("the cache is that of another fleet")
    pod_class = fleet.pod_class(row)
    view = cache.view(pod_class, "binpack")  # the policy does not change what fits
    key = keys_of(cache.topology, pod_class, view, cache.topology.masks(pod_class, view))
    return [node for node in fleet.node_rows() if key[node] != NEVER]


def defragment(
    snapshot: Snapshot, key: str, limits: Limits | None = None, policy: str = DEFAULTS.policy
) -> DefragPlan | NoDefrag:
    """The moves that make room for a pending pod (namespace/name) or for the pending pods of a gang (its key, or the
    name of one of them). Other pods that wait are not thought of.

    Changes nothing. Raises KeyError where neither waits."""
    fleet = snapshot.fleet
    pod = fleet.pod_by_key.get(split_key(key))
    if pod is not None and fleet.pod(pod).node < 0 and fleet.pod(pod).spec.gang:
        key, pod = fleet.pod(pod).spec.gang, None
    rows = [row for row in (fleet.gang_pods.get(key, ()) if pod is None else (pod,)) if fleet.pod(row).node < 0]
    if not rows:
        raise KeyError(key)
    (unit,) = units_of(snapshot, rows)
    cache = Cache(fleet)
    trial = Trial(snapshot, cache, policy, Assumed(fleet))
    with fleet.what_if():
        if trial.place(unit) is not None:
            return NoDefrag(f"{unit.about} fits without moves")
    limits = limits or Limits()
    return defrag_plan(snapshot, unit, trial, limits, movable(snapshot, cache.bound, limits, frozenset(fleet.pending)))


def _queue(snapshot: Snapshot, settings: Settings, asked: Set[int] | None = None) -> list[int]:
    fleet = snapshot.fleet
    rows = [
        row
        for row in (fleet.pending if asked is None else sorted(asked & fleet.pending.keys()))
        if not (spec := fleet.pod(row).spec.spec).scheduling_gates and spec.scheduler_name in settings.scheduler_names
    ]
    return in_turn(snapshot, _tried_now(snapshot, rows))


def _tried_now(snapshot: Snapshot, rows: list[int]) -> list[int]:
    """These pods without those that could not be bound a moment ago, and without their gangs."""
    fleet, off = snapshot.fleet, snapshot.backing_off
    if not off:
        return rows
    specs = {row: fleet.pod(row).spec for row in rows}
    held = {row for row, spec in specs.items() if spec.uid in off}
    gangs = {specs[row].gang for row in held} - {""}
    return [row for row in rows if row not in held and specs[row].gang not in gangs]


class _Turns:
    """Each unit's turn: where room was made for it, else on the best node or with its gang. Inside a what-if only."""

    def __init__(self, snapshot: Snapshot, cache: Cache, settings: Settings, rows: Sequence[int]) -> None:
        lives = dict(snapshot.lives)
        snapshot = replace(snapshot, lives=lives)  # who is chosen to be evicted leaves from then on, for all who ask
        self._fleet = snapshot.fleet
        self._cache = cache
        self._settings = settings
        self._refusals = Refusals(cache.topology)
        assumed = Assumed(snapshot.fleet)
        self._trial = Trial(snapshot, cache, settings.policy, assumed)
        self._gangs = Gangs(snapshot, cache, rows, assumed, receipts=settings.receipts)
        self._placed = 0
        self.preemptor = Preemptor(
            snapshot,
            self._trial,
            rows,
            lives,
            preemption=settings.preemption,
            respect_budgets=settings.respect_budgets,
            defrag=settings.defrag,
        )

    def round(self, queue: Sequence[Unit]) -> tuple[list[Bind], list[Unit]]:
        """One turn for each of these: what is bound, and what of them waits. Room that is coming is held for who waits
        from those who come after."""
        binds: list[Bind] = []
        waiting: list[Unit] = []
        self.preemptor.lift()
        for unit in queue:
            self.preemptor.keep_for_others(unit)
            found = self._take(unit)
            self._placed += len(found)
            binds += found
            if found and self.preemptor.stands_elsewhere(unit):
                self._reopen()
            if rest := unit.pending(self._fleet):
                waiting.append(rest)
                self.preemptor.hold(rest)
        return binds, waiting

    @property
    def refused_for_good(self) -> bool:
        """Whether no pod that is placed can help one that was refused."""
        return self._refusals.for_good and self._gangs.refused_for_good

    def make_room(self, waiting: Sequence[Unit]) -> bool:
        """See to it that there will be room for those who wait; whether room was given up that others may have now."""
        given_up = self.preemptor.preempt(waiting)
        if given_up:
            self._reopen()
        return given_up

    def _reopen(self) -> None:
        self._refusals.reopen()
        self._gangs.reopen()

    def _take(self, unit: Unit) -> list[Bind]:
        """Bind what of the unit fits now."""
        binds = self._where_room_was_made(unit) if self.preemptor.is_nominated(unit) else []
        with self.preemptor.leaving_claims(unit) as others:
            if unit.gang:
                return [*binds, *self._gangs.place(unit.gang, self._placed + len(binds), lasting=not others)]
            if not binds and not self._refusals.stands(self._fleet.pod_class(unit.rows[0]), self._placed):
                return self._place(unit.rows[0], lasting=not others)
        return binds

    def _where_room_was_made(self, unit: Unit) -> list[Bind]:
        key = self._trial.keys(unit.rows[0]).copy()
        places = self.preemptor.seat(unit)
        if places is None:
            return []
        if unit.gang:
            reason = self._gangs.made_for(unit.gang)
        else:
            view = self._trial.view(unit.rows[0])
            reason = Reason(MADE_FOR_IT, _evidence(view, key, places[0][1]) if self._settings.receipts else ())
        return [self._bind_of(row, reason) for row, _ in places]

    def reason(self, unit: Unit, row: int) -> Reason:
        """Why the pod of the unit waits, and which budgets keep from it the room of others."""
        reason = self._gangs.reason(row) or self._refusals.reason(self._fleet.pod_class(row))
        budgets = self.preemptor.guarded_by(unit)
        if not budgets:
            return reason
        names = ", ".join(budgets)
        text = f"{reason.verdict}; preemption: PodDisruptionBudget{'s' * (len(budgets) > 1)} {names} in the way"
        return Reason(text, (*reason.evidence, ("budgets", names)), reason.alternatives)

    def _place(self, row: int, *, lasting: bool) -> list[Bind]:
        """Bind the pod to its best node, or note why there is none."""
        key = self._trial.keys(row)
        best = int(key.argmax())
        if key[best] == NEVER:
            pod_class = self._fleet.pod_class(row)
            self._refusals.add(pod_class, self._trial.refusal(pod_class), self._placed, lasting=lasting)
            return []
        reason = _receipt(self._trial.view(row), key, best) if self._settings.receipts else Reason("best node")
        self._trial.seat(row, best)
        return [self._bind_of(row, reason)]

    def _bind_of(self, row: int, reason: Reason) -> Bind:
        pod = self._fleet.pod(row)
        node = self._fleet.node(pod.node).spec
        return Bind(pod.spec.ref, Ref("Node", node.name, uid=node.uid), reason, pod.devices)


def _evidence(view: ShapeView, key: Ints, node: int) -> tuple[tuple[str, Scalar], ...]:
    return ("nodes_that_fit", int(np.count_nonzero(key != NEVER))), ("score", view.score(int(key[node])))


def _receipt(view: ShapeView, key: Ints, best: int) -> Reason:
    evidence, winner = _evidence(view, key, best), int(key[best])
    if evidence[0][1] == 1:
        return Reason("best node", evidence)
    key[best] = NEVER
    second = int(key.argmax())
    key[best] = winner
    lower = key[second] >> TIE_BITS < winner >> TIE_BITS
    why = "lower score" if lower else "same score, later name"
    other = Alternative(view.fleet.node(second).spec.name, why, view.score(int(key[second])))
    return Reason("best node", evidence, (other,))
