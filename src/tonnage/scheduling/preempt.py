"""Preemption: what waits takes the room of what matters less, and gets that room when it is free.

A pod or gang that fits nowhere, and that has a priority above that of a pod that stands, is nominated for the node
where evicting least makes room for it (:mod:`tonnage.scheduling.make_room`). Until it is bound there, pods of no higher
priority leave that room alone. Room of pods that are leaving counts as free later, so nobody else is evicted for it.
A gang is given room for all of its minimum, or nobody is evicted.

A pod that is moved is nominated too: as long as it leaves, nobody else gets the room where it is to stand, and the pod
that its controller creates meanwhile to replace it takes the nomination over.

There is no loop of evictions: victims have strictly lower priority than who gets their room, so with each round the
work that stands, compared from the highest priority down, only grows.
Source: kubernetes/kubernetes v1.36 pkg/scheduler/framework/preemption and .../plugins/defaultpreemption.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby

from tonnage.decisions import Alternative, Evict, Reason, Ref
from tonnage.fleet.snapshot import PodLife, Snapshot
from tonnage.scheduling.defrag import DefragLimits, NoDefrag, movable, plan
from tonnage.scheduling.gangs.tree import pods_needed
from tonnage.scheduling.make_room import PreemptionPlan, make_room, rooms
from tonnage.scheduling.order import Places, Unit, nominations, units_of
from tonnage.scheduling.trial import Trial
from tonnage.scheduling.victims import Candidates
from tonnage.scheduling.view import NEVER


class Preemptor:
    """Preemption within one decision over the pending pods ``rows``, which are in the order of their turns. ``lives``:
    the snapshot's, in which whoever is chosen to be evicted is marked as leaving.

    Made before the decision's what-if begins; all else happens inside it. ``preemption``: whether anybody is evicted
    for good; ``respect_budgets``: see Candidates. ``defrag``: before that, pods are moved within these limits. Idle,
    with one band and nothing held, where nobody may be moved and nobody waits who could preempt or is nominated."""

    def __init__(
        self,
        snapshot: Snapshot,
        trial: Trial,
        rows: Sequence[int],
        lives: dict[str, PodLife],
        *,
        preemption: bool,
        respect_budgets: bool,
        defrag: DefragLimits | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._fleet = snapshot.fleet
        self._trial = trial
        self._assumed = trial.assumed
        self._lives = lives
        self._units = units_of(snapshot, rows)
        self._preemption = preemption
        self._lowest = min(self._fleet.priorities, default=None)
        self._held: list[int] = []
        self._settled: set[Ref] = set()
        self._leaving: list[int] = []
        self._claims: dict[int, int] = {}
        self.evictions: list[Evict] = []
        self._others: list[int] = []
        self._moved: dict[int, int] = {}
        self._stand_ins: dict[int, int] = {}
        self._movable: Candidates | None = None
        self._limits = defrag
        self._guarded: dict[Ref, tuple[str, ...]] = {}
        self._blocked: dict[tuple[tuple[int, ...], int, int], tuple[str, ...]] = {}
        self._unguarded: Candidates | None = None
        may = defrag is not None or snapshot.nominations or any(self._may_preempt(unit) for unit in self._units)
        self._active = bool(self._units and may)
        if self._active:
            bound, fleet = trial.cache.bound, self._fleet
            self._candidates = Candidates(snapshot, bound, respect_budgets=respect_budgets)
            self._candidates.budgets.count()
            if defrag is not None:
                self._movable = movable(snapshot, bound, defrag, frozenset(fleet.pending))
            self._leaving = [row for row in self._candidates.leaving_rows if fleet.pod(row).node >= 0]
            self._read_nominations(rows)

    def _read_nominations(self, waiting: Sequence[int]) -> None:
        """Where room is being made for those who wait, here or for another scheduler, and where those are to stand who
        are being moved."""
        gangs, leaving = self._snapshot.gangs, set(self._leaving)
        known = {row for row in waiting if not (gang := self._fleet.pod(row).spec.gang) or gang in gangs}
        named = nominations(self._snapshot)
        mine = frozenset(waiting)
        others = {row: node for row, node in named.items() if row not in mine and self._fleet.pod(row).node < 0}
        self._others = sorted(others, key=lambda row: (-self._candidates.priority(row), self._fleet.pod(row).key))
        self._claims = {row: node for row, node in named.items() if row in known} | others
        self._moved = {row: node for row, node in named.items() if row in leaving}

    # ---- the order of turns ----

    def bands(self) -> list[list[Unit]]:
        """The units in the order of their turns, one band for each priority: a band is done before the next begins."""
        if not self._active:
            return [self._units]
        return [list(band) for _, band in groupby(self._units, key=lambda unit: unit.priority)]

    @property
    def quiet(self) -> bool:
        """Whether room is being made, and kept, for nobody."""
        return not self._claims and not self._others

    def is_nominated(self, unit: Unit) -> bool:
        """Whether room is being made for it."""
        return bool(self._claims) and any(row in self._claims for row in unit.rows)

    def stands_elsewhere(self, unit: Unit) -> bool:
        """Whether a pod of it is bound and has left room that was being made for it."""
        return any(self._claims.get(row, node) != node for row in unit.rows if (node := self._fleet.pod(row).node) >= 0)

    # ---- now ----

    def seat(self, unit: Unit) -> Places | None:
        """Bind the unit where room was made for it, if all of that is free now; else bind nothing."""
        if not self.is_nominated(unit):
            return None
        places = tuple((row, self._claims[row]) for row in unit.rows if row in self._claims)
        if not self._bound(places):
            return None
        rest = unit.pending(self._fleet)
        more = self._trial.place(rest) if rest is not None else ()
        if more is None:
            self._assumed.take([row for row, _ in places])
            return None
        return (*places, *more)

    @contextmanager
    def leaving_claims(self, unit: Unit) -> Iterator[bool]:
        """While a unit is looked at that has room coming, all room is held that is being made for others: it has no
        need of that, and their victims would have gone in vain. Gives whether any is held."""
        others = []
        if self.is_nominated(unit):
            others = [row for row in self._claims if row not in unit.rows and self._fleet.pod(row).node < 0]
        for row in others:
            self._assumed.put(row, self._claims[row])
        try:
            yield bool(others)
        finally:
            self._assumed.take(others)

    def keep_for_others(self, unit: Unit) -> None:
        """Keep from this unit, and from those that come after, the room that another scheduler makes for pods of no
        lower priority."""
        for row in self._others:
            if row not in self._held and self._candidates.priority(row) >= unit.priority:
                self._assumed.put(row, self._claims[row])
                self._held.append(row)

    def hold(self, unit: Unit) -> None:
        """Keep the room that is being made for it from units that come after, though it is not free yet."""
        for row in unit.rows:
            node = self._claims.get(row)
            if node is not None:
                self._assumed.put(row, node)
                self._held.append(row)

    def lift(self) -> None:
        """Take all holds back, but those for pods that are being moved."""
        self._assumed.take(self._held)
        self._held.clear()
        self._hold_moved()

    def _hold_moved(self) -> None:
        """Another pod stands for each that is being moved where that will stand, as it cannot be at two places."""
        for row, node in self._moved.items():
            if row not in self._stand_ins:
                spec = self._fleet.pod(row).spec
                other = replace(spec, name=f"{spec.name}/moved", uid="", gang="", subgroup="")
                self._stand_ins[row] = self._fleet.add_pod(other)
                self._assumed.put(self._stand_ins[row], node)

    def nominated(self) -> dict[int, str]:
        """Pod row → the name of the node where room is being made for it."""
        return {row: self._fleet.node(node).spec.name for row, node in self._claims.items()}

    def guarded_by(self, unit: Unit) -> tuple[str, ...]:
        """The PodDisruptionBudgets (namespace/name) without which others would be evicted for the unit."""
        return self._guarded.get(unit.about, ())

    # ---- later ----

    def preempt(self, waiting: Sequence[Unit]) -> bool:
        """For each of these that has not been looked at: find out where it can go when all who leave are gone, and
        whom to evict for it if need be. It holds that room from now on. Says whether any gave up room that it held."""
        given_up = False
        for unit in waiting if self._active else ():
            if unit.about not in self._settled:
                self._settled.add(unit.about)
                given_up |= self._preempt(unit)
        return given_up

    def _preempt(self, unit: Unit) -> bool:
        mine = [row for row in self._held if row in unit.rows]
        self._assumed.take(mine)
        self._held = [row for row in self._held if row not in mine]
        with self._assumed.what_if():
            self._let_all_leave(unit)
            places = self.seat(unit)
            if places is None:
                places = self._find(unit)
        before = {row: self._claims.pop(row) for row in unit.rows if row in self._claims}
        self._claims.update(places)
        self._hold_moved()
        self.hold(unit)
        return any(self._claims.get(row) != node for row, node in before.items())

    def _let_all_leave(self, unit: Unit) -> None:
        """As it will be: those who leave are gone, and who has a claim of no lower priority is there."""
        evicted = {self._fleet.pod_by_key[one.pod.namespace, one.pod.name] for one in self.evictions}
        gone = {*self._held, *self._stand_ins.values(), *self._leaving, *evicted, *self._moved}
        self._assumed.take(sorted(gone))
        # From the highest priority down: a claim that a more important one has overridden must not stand in its way.
        others = {row: self._candidates.priority(row) for row in self._claims if row not in unit.rows}
        comes = [row for row in others if others[row] >= unit.priority and self._fleet.pod(row).node < 0]
        comes.sort(key=lambda row: -others[row])
        for row, node in (*self._moved.items(), *((row, self._claims[row]) for row in comes)):
            if self._bound(((row, node),)):
                self._assumed.count_in(row)

    def _bound(self, places: Places) -> bool:
        """Bind all of these if each fits where it should, else none."""
        done: list[int] = []
        for row, node in places:
            if self._trial.keys(row)[node] == NEVER:
                self._assumed.take(done)
                return False
            self._trial.seat(row, node)
            done.append(row)
        return True

    def _may_preempt(self, unit: Unit) -> bool:
        if not self._preemption or self._lowest is None or unit.priority <= self._lowest:
            return False
        return all(self._fleet.pod(row).spec.spec.preemption_policy != "Never" for row in unit.rows)

    def _find(self, unit: Unit) -> Places:
        """Where it can go, with nobody else evicted if possible; nowhere is empty."""
        may_preempt = self._may_preempt(unit)
        if not (may_preempt or self._movable):
            return ()
        if unit.gang and pods_needed(self._snapshot, unit.gang, unit.rows) is None:
            return ()
        with self._fleet.what_if():
            found = self._trial.place(unit)
        if found is None and self._movable is not None:
            found = self._move(unit, self._movable)
        if found is not None:
            return found
        room = make_room(self._fleet, unit, self._candidates, self._trial) if may_preempt else None
        if room is None:
            if may_preempt:
                self._note_budgets(unit)
            return ()
        self._evict(sorted(room.rows, key=lambda row: self._fleet.pod(row).key), self._why(unit, room), unit)
        return room.places

    def _note_budgets(self, unit: Unit) -> None:
        """Whether there would be room if no budget was respected, and which are in the way, on any node of it."""
        candidates = self._candidates
        if not candidates.respect_budgets or not self._snapshot.disruption_budgets:
            return
        if self._unguarded is None:
            self._unguarded = Candidates(self._snapshot, self._trial.cache.bound, respect_budgets=False)
            self._unguarded.budgets.count()
        alike = tuple(self._fleet.pod(row).class_id for row in unit.rows), unit.priority, len(self.evictions)
        if alike not in self._blocked:
            found = rooms(self._fleet, unit, self._unguarded, self._trial)
            named = {name for _, room in found for name in candidates.budgets.in_the_way(room.rows)}
            self._blocked[alike] = tuple(sorted(named))
        self._guarded[unit.about] = self._blocked[alike]

    def _move(self, unit: Unit, candidates: Candidates) -> Places | None:
        """Where it can go when others have moved; those leave now whose new place is free, and all of their gangs."""
        found = plan(self._snapshot, unit, self._trial, self._limits or DefragLimits(), candidates)
        if isinstance(found, NoDefrag):
            return None
        self._moved |= {move.pod: move.target for move in found.moves}
        name = {move.pod: self._fleet.node(move.target).spec.name for move in found.moves}
        gangs = {gang.key for move in found.first if (gang := candidates.gang_of(move.pod))}
        for move in found.moves:
            gang = candidates.gang_of(move.pod)
            if move not in found.first and not (gang and gang.key in gangs):
                continue
            evidence = (
                ("to", name[move.pod]),
                ("moves", len(found.moves)),
                ("work_lost_device_s", found.lost_s),
                ("micro_usd", found.micro_usd),
            )
            self._evict([move.pod], Reason(f"moved to make room for {unit.about}", evidence), unit, name[move.pod])
        return found.places

    def _evict(self, rows: Sequence[int], reason: Reason, unit: Unit, to: str = "") -> None:
        self.evictions += [Evict(self._fleet.pod(row).spec.ref, reason, unit.about, to) for row in rows]
        for candidates in filter(None, (self._candidates, self._movable, self._unguarded)):
            candidates.take(rows)
        for key in (self._fleet.pod(row).key for row in rows):
            self._lives[key] = replace(self._snapshot.life(key), leaving=True)

    def _why(self, unit: Unit, room: PreemptionPlan) -> Reason:
        fleet = self._fleet
        cost = room.cost
        node = "" if unit.gang else fleet.node(room.places[0][1]).spec.name
        evidence = (
            *((("node", node),) if node else ()),
            ("priority", unit.priority),
            ("highest_priority_of_victims", cost.highest_priority),
            ("victims", cost.pods),
            ("work_lost_device_s", cost.lost_s),
            ("budgets_broken", cost.violations),
            *((("budgets", ", ".join(self._candidates.budgets.in_the_way(room.rows))),) if cost.violations else ()),
        )
        others: tuple[Alternative, ...] = ()
        if room.next_best is not None:
            name, dearer = room.next_best
            others = (Alternative(name, f"{dearer.pods} victims, {dearer.lost_s:.0f} device-seconds of work lost"),)
        return Reason(f"preempted by {unit.about}", evidence, others)
