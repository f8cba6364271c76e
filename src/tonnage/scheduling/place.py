"""The scheduling decision: which pending pod goes to which node, and why the others wait.

Pods are taken by priority (highest first), then age, then name. Each goes to the best node that passes all filters;
nothing is held for a pod that fits nowhere, and a pod that fits somewhere is never refused. A gang has one place in
this order, and is bound whole or not at all (:mod:`tonnage.scheduling.gangs`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tonnage.decisions import Alternative, Bind, Decision, Reason, Ref, Scalar, Wait
from tonnage.fleet.classes import PodClass
from tonnage.fleet.rows import split_key
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import Fleet
from tonnage.scheduling import device_choice
from tonnage.scheduling.beyond import beyond
from tonnage.scheduling.defrag import DefragPlan, Limits, NoDefrag
from tonnage.scheduling.defrag import plan as defrag_plan
from tonnage.scheduling.explain import explain
from tonnage.scheduling.gangs.plan import NoPlan, plan
from tonnage.scheduling.gangs.queue import Gangs
from tonnage.scheduling.levels import LevelTables
from tonnage.scheduling.make_room import Places, Unit
from tonnage.scheduling.policies import POLICIES, Views
from tonnage.scheduling.preempt import Preemptor
from tonnage.scheduling.topology import Masks, Topology
from tonnage.scheduling.value.mix import Mix
from tonnage.scheduling.view import (
    NEVER,
    OPEN,
    PREFERENCE_WEIGHT,
    TIE_BITS,
    Ints,
    Mask,
    ShapeView,
    points_of,
)

__all__ = ["DEFAULTS", "POLICIES", "Cache", "Settings", "decide", "feasible"]


@dataclass(frozen=True, slots=True)
class Settings:
    """``policy``: one of :data:`tonnage.scheduling.policies.POLICIES`. ``receipts``: record scores and runners-up.

    ``scheduler_names``: the schedulerName of the pods that are placed here. ``strict``: pods that ask for what cannot
    be weighed here (volume claims, resource claims, host ports) wait; otherwise these wishes are passed over.
    ``preemption``: pods and gangs take the room of lower priority; ``respect_budgets``: never beyond what
    PodDisruptionBudgets allow, which kube-scheduler only tries; ``defrag``: how many pods may be moved, before, to make
    room, None for no moves."""

    policy: str = "tonnage"
    receipts: bool = True
    scheduler_names: tuple[str, ...] = ("", "default-scheduler", "tonnage")
    strict: bool = False
    preemption: bool = True
    respect_budgets: bool = True
    defrag: Limits | None = None


DEFAULTS = Settings()


class Cache:
    """Derived tables of one fleet that survive between decisions. Dropping it changes speed only, and that the mix of
    pods is read anew (:class:`tonnage.scheduling.policies.Views`). ``mix``: pods to think of other than the fleet's."""

    def __init__(self, fleet: Fleet, mix: Mix | None = None) -> None:
        self.fleet = fleet
        self.classes = fleet.classes
        self.topology = Topology(fleet)
        self.levels = LevelTables(fleet)
        self._views = Views(fleet, mix)

    def fits(self, fleet: Fleet) -> bool:
        """Whether these are the tables of this fleet, with the classes that it has now."""
        return self.fleet is fleet and self.classes is fleet.classes

    def view(self, pod_class: PodClass, policy: str) -> ShapeView:
        """The up-to-date view of the class's shape."""
        return self._views.get(pod_class, policy)


def decide(snapshot: Snapshot, settings: Settings = DEFAULTS, cache: Cache | None = None) -> list[Decision]:
    """A Bind for every pending pod that fits now, a Wait with the reason for every other, then whom to evict for them.

    Pods with scheduling gates and pods of other schedulers are left alone. Changes nothing. Raises ValueError for a
    cache of another fleet."""
    fleet = snapshot.fleet
    cache = cache or Cache(fleet)
    if not cache.fits(fleet):
        raise ValueError("the cache is that of another fleet")
    rows = _queue(snapshot, settings)
    left = _beyond(fleet, rows) if settings.strict else {}
    rows = [row for row in rows if row not in left]
    turns = _Turns(snapshot, cache, settings, rows)
    binds: list[Decision] = []
    waiting: list[Unit] = []
    with fleet.what_if():
        for band in turns.preemptor.bands():
            waiting += band
            placed = -1
            while placed < len(binds):  # a pod placed later may be the company that one refused earlier asks for
                placed = len(binds)
                queue, waiting = waiting, []
                turns.preemptor.lift()
                for unit in queue:
                    binds += turns.take(unit)
                    if rest := unit.pending(fleet):
                        waiting.append(rest)
                        turns.preemptor.hold(rest)
            turns.preemptor.preempt(waiting)
        reasons = [(row, turns.reason(row)) for unit in waiting for row in unit.rows]
    nominated = turns.preemptor.nominated()
    waits = [
        Wait(fleet.pod(row).spec.ref, why, nominated=nominated.get(row, "")) for row, why in (*reasons, *left.items())
    ]
    return [*binds, *waits, *turns.preemptor.evictions]


def _beyond(fleet: Fleet, rows: list[int]) -> dict[int, Reason]:
    """The pods among them that ask for what is not weighed here, and why they are left."""
    asked = ((row, beyond(fleet.pod(row).spec)) for row in rows)
    return {row: Reason(f"{what} are not placed by this scheduler", ((what, None),)) for row, what in asked if what}


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
    """The moves that make room for a pending pod (namespace/name) or for the pending pods of a gang (its key).

    Changes nothing. Raises KeyError where neither waits."""
    fleet = snapshot.fleet
    row = fleet.pod_by_key.get(split_key(key))
    rows = [row] if row is not None else [row for row in fleet.gang_pods[key] if fleet.pod(row).node < 0]
    trial = _Trial(snapshot, Cache(fleet), policy)
    (unit,) = Preemptor(snapshot, trial, rows, {}, on=False, respect_budgets=True).bands()[0]
    with fleet.what_if():
        if trial.place(unit) is not None:
            return NoDefrag(f"{unit.about} fits without moves")
    return defrag_plan(snapshot, unit, trial, limits or Limits())


class _Refusals:
    """The classes that no node takes. Pods placed since change that only where company or spread is asked for."""

    def __init__(self, cache: Cache) -> None:
        self._fleet = cache.fleet
        self._topology = cache.topology
        self._by_class: dict[int, tuple[Reason, int | None]] = {}  # (why, as of which journal entry; None: for good)

    def add(self, pod_class: PodClass, reason: Reason) -> None:
        """No node takes the class now."""
        rules = self._topology.rules(pod_class)
        revocable = bool(rules.spread or rules.affinity)
        self._by_class[pod_class.id] = (reason, self._fleet.journal.end if revocable else None)

    def stands(self, pod_class: PodClass) -> bool:
        """Whether the class is known to be refused still."""
        known = self._by_class.get(pod_class.id)
        return known is not None and known[1] in (None, self._fleet.journal.end)

    def reason(self, pod_class: PodClass) -> Reason:
        """Why it was refused last."""
        return self._by_class[pod_class.id][0]


def _queue(snapshot: Snapshot, settings: Settings) -> list[int]:
    fleet = snapshot.fleet
    rows = [
        row
        for row in fleet.pending
        if not (spec := fleet.pod(row).spec.spec).scheduling_gates and spec.scheduler_name in settings.scheduler_names
    ]

    priorities = {key: snapshot.gang_priority(key) for key in {fleet.pod(row).spec.gang for row in rows}}

    def order(row: int) -> tuple[int, int, str, str]:
        spec = fleet.pod(row).spec
        gang = snapshot.gangs.get(spec.gang)
        if gang is not None:
            return (-priorities[gang.key], gang.created_ns, *split_key(gang.key))
        return (-spec.priority, spec.created_ns, spec.namespace, spec.name)

    return sorted(rows, key=order)


class _Turns:
    """Each unit's turn: where room was made for it, else on the best node or with its gang. Inside a what-if only."""

    def __init__(self, snapshot: Snapshot, cache: Cache, settings: Settings, rows: Sequence[int]) -> None:
        lives = dict(snapshot.lives)
        snapshot = replace(snapshot, lives=lives)  # who is chosen to be evicted leaves from then on, for all who ask
        self._fleet = snapshot.fleet
        self._cache = cache
        self._settings = settings
        self._refusals = _Refusals(cache)
        self._gangs = Gangs(snapshot, cache, rows, receipts=settings.receipts)
        self.preemptor = Preemptor(
            snapshot,
            _Trial(snapshot, cache, settings.policy),
            rows,
            lives,
            on=settings.preemption,
            respect_budgets=settings.respect_budgets,
            defrag=settings.defrag,
        )

    def take(self, unit: Unit) -> list[Bind]:
        """Bind what of the unit fits now."""
        seats = self.preemptor.seat(unit) or ()
        reason = self._gangs.made_for(unit.gang) if unit.gang and seats else _MADE_FOR_IT
        binds = [self._bind_of(row, reason) for row, _ in seats]
        with self.preemptor.leaving_claims(unit):
            if unit.gang:
                return [*binds, *self._gangs.place(unit.gang)]
            if not binds and not self._refusals.stands(self._fleet.pod_class(unit.rows[0])):
                return self._place(unit.rows[0])
        return binds

    def reason(self, row: int) -> Reason:
        """Why the pod waits."""
        return self._gangs.reason(row) or self._refusals.reason(self._fleet.pod_class(row))

    def _place(self, row: int) -> list[Bind]:
        """Bind the pod to its best node, or note why there is none."""
        fleet, topology = self._fleet, self._cache.topology
        pod_class = fleet.pod_class(row)
        view = self._cache.view(pod_class, self._settings.policy)
        masks = topology.masks(pod_class, view)
        key = keys_of(topology, pod_class, view, masks)
        rules = topology.rules(pod_class)
        if self.preemptor.holds and (rules.affinity or rules.spread):
            # Who is nominated is no company yet: the pod has to fit without them too.
            with self.preemptor.without_holds():
                here = keys_of(topology, pod_class, view, topology.masks(pod_class, view))
            key = np.where(here == NEVER, NEVER, key)
        best = int(key.argmax())
        if key[best] == NEVER:
            self._refusals.add(pod_class, explain(fleet, view, masks))
            return []
        reason = _receipt(fleet, key, best) if self._settings.receipts else Reason("best node")
        seat(fleet, view, row, best)
        return [self._bind_of(row, reason)]

    def _bind_of(self, row: int, reason: Reason) -> Bind:
        pod = self._fleet.pod(row)
        node = self._fleet.node(pod.node).spec
        return Bind(pod.spec.ref, Ref("Node", node.name, uid=node.uid), reason, pod.devices)


_MADE_FOR_IT = Reason("room was made for it on this node")


@dataclass(frozen=True, slots=True)
class _Trial:
    """Whether units fit in the fleet as it is, for those who make room."""

    snapshot: Snapshot
    cache: Cache
    policy: str

    def open(self, row: int) -> Mask:
        why: Mask = self.cache.view(self.snapshot.fleet.pod_class(row), self.policy).why == OPEN
        return why

    def keys(self, row: int) -> Ints:
        topology, pod_class = self.cache.topology, self.snapshot.fleet.pod_class(row)
        view = self.cache.view(pod_class, self.policy)
        return keys_of(topology, pod_class, view, topology.masks(pod_class, view))

    def place(self, unit: Unit) -> Places | None:
        fleet = self.snapshot.fleet
        if unit.gang:
            found = plan(self.snapshot, unit.gang, unit.rows, self.cache)
            if isinstance(found, NoPlan):
                return None
            for place in found.minimum:
                fleet.bind(place.pod, place.node, place.devices)
            return tuple((place.pod, place.node) for place in found.minimum)
        key = self.keys(unit.rows[0])
        best = int(key.argmax())
        if key[best] == NEVER:
            return None
        self.bind(unit.rows[0], best)
        return ((unit.rows[0], best),)

    def bind(self, row: int, node: int) -> None:
        seat(self.snapshot.fleet, self.cache.view(self.snapshot.fleet.pod_class(row), self.policy), row, node)


def seat(fleet: Fleet, view: ShapeView, row: int, node: int) -> None:
    """Bind the pod to the node, on the devices that its policy or the node's links choose."""
    fleet.bind(row, node, view.devices(node) or device_choice.for_pod(fleet, row, node))


def keys_of(topology: Topology, pod_class: PodClass, view: ShapeView, masks: Masks) -> Ints:
    """The view's keys with the rules about other pods applied: NEVER where one forbids the node, wishes added."""
    key = view.key
    for _, mask in masks:
        key = np.where(mask, key, NEVER)
    rules = topology.rules(pod_class)
    wishes = topology.preference(pod_class, key != NEVER) if rules.soft_spread or rules.soft_affinity else None
    if wishes is not None:
        key = np.where(key != NEVER, key + (view.scale * PREFERENCE_WEIGHT * wishes << TIE_BITS), NEVER)
    return key


def _receipt(fleet: Fleet, key: Ints, best: int) -> Reason:
    fitting = int(np.count_nonzero(key != NEVER))
    winner = int(key[best])
    evidence: tuple[tuple[str, Scalar], ...] = (("nodes_that_fit", fitting), ("score", points_of(winner)))
    if fitting == 1:
        return Reason("best node", evidence)
    key[best] = NEVER
    second = int(key.argmax())
    key[best] = winner
    score = points_of(int(key[second]))
    why = "lower score" if score < points_of(winner) else "same score, later name"
    return Reason("best node", evidence, (Alternative(fleet.node(second).spec.name, why, float(score)),))
