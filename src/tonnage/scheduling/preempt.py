"""Preemption: what waits takes the room of what matters less, and gets that room when it is free.

A pod or gang that fits nowhere, and that has a priority above that of a pod that stands, is nominated for the node
where evicting least makes room for it (:mod:`tonnage.scheduling.make_room`). Until it is bound there, pods of no higher
priority leave that room alone. Room of pods that are leaving counts as free later, so nobody else is evicted for it.
A gang is given room for all of its minimum, or nobody is evicted.

There is no loop of evictions: victims have strictly lower priority than who gets their room, so with each round the
work that stands, compared from the highest priority down, only grows.
Source: kubernetes/kubernetes v1.36 pkg/scheduler/framework/preemption and .../plugins/defaultpreemption.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby

from tonnage.decisions import Alternative, Evict, Reason, Ref
from tonnage.fleet.rows import split_key
from tonnage.fleet.snapshot import PodLife, Snapshot
from tonnage.scheduling.defrag import Limits, NoDefrag, movable, plan
from tonnage.scheduling.gangs.tree import Tree
from tonnage.scheduling.make_room import Places, Room, Trial, Unit, make_room
from tonnage.scheduling.victims import Candidates
from tonnage.scheduling.view import NEVER


class Preemptor:
    """Preemption within one decision over the pending pods ``rows``, which are in the order of their turns. ``lives``:
    the snapshot's, in which whoever is chosen to be evicted is marked as leaving.

    Made before the decision's what-if begins; all else happens inside it. Idle, with one band and nothing held, where
    it is not ``on``, or nobody waits who could preempt and nobody is nominated. ``respect_budgets``: see Candidates.
    ``defrag``: before somebody is evicted for good, pods are moved within these limits."""

    def __init__(
        self,
        snapshot: Snapshot,
        trial: Trial,
        rows: Sequence[int],
        lives: dict[str, PodLife],
        *,
        on: bool,
        respect_budgets: bool,
        defrag: Limits | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._fleet = snapshot.fleet
        self._trial = trial
        self._lives = lives
        self._candidates = Candidates(snapshot, respect_budgets=respect_budgets)
        self._units = self._units_of(rows)
        self._lowest = min(self._fleet.priorities, default=None)
        self._held: list[int] = []
        self._settled: set[int] = set()
        self._leaving: list[int] = []
        self._claims: dict[int, int] = {}
        self.evictions: list[Evict] = []
        self._moved: dict[int, int] = {}
        self._movable: Candidates | None = None
        self._limits = defrag
        may = defrag is not None or snapshot.nominations or any(self._may_preempt(unit) for unit in self._units)
        self._active = on and bool(self._units and may)
        if self._active:
            self._candidates.budgets.count()
            self._movable = movable(snapshot, defrag) if defrag else None
            self._leaving = [row for row in self._rows(snapshot.lives) if self._candidates.leaving(row)]
            self._read_nominations(set(rows))

    def _rows(self, keys: Iterable[str]) -> list[int]:
        """The rows of the bound pods among these."""
        found = (self._fleet.pod_by_key.get(split_key(key)) for key in keys)
        return [row for row in found if row is not None and self._fleet.pod(row).node >= 0]

    def _read_nominations(self, waiting: set[int]) -> None:
        for key, name in sorted(self._snapshot.nominations.items()):
            row, node = self._fleet.pod_by_key.get(split_key(key)), self._fleet.node_by_name.get(name)
            if row in waiting and node is not None:
                self._claims[row] = node

    # ---- the order of turns ----

    def _units_of(self, rows: Sequence[int]) -> list[Unit]:
        """Single pods, and each gang's pods together."""
        gangs: dict[str, list[int]] = {}
        for row in rows:
            gang = self._fleet.pod(row).spec.gang
            if gang:
                gangs.setdefault(gang, []).append(row)
        units = []
        for row in rows:
            spec = self._fleet.pod(row).spec
            if not spec.gang:
                units.append(Unit((row,), spec.ref, spec.priority))
            elif spec.gang in gangs:
                known = self._snapshot.gangs.get(spec.gang)
                namespace, name = split_key(spec.gang)
                region = known.rule.required if known else ""
                members = tuple(gangs.pop(spec.gang))
                priority = self._candidates.priority(row)
                units.append(Unit(members, Ref("Gang", name, namespace), priority, spec.gang, region))
        return units

    def bands(self) -> list[list[Unit]]:
        """The units in the order of their turns; those of one band are done before the next one's turns begin.

        One band for each priority, the nominated first: equals must not take what was made for another."""
        if not self._active:
            return [self._units]
        ordered = sorted(self._units, key=lambda unit: (-unit.priority, not self._is_nominated(unit)))
        return [list(band) for _, band in groupby(ordered, key=lambda unit: unit.priority)]

    def _is_nominated(self, unit: Unit) -> bool:
        return bool(self._claims) and any(row in self._claims for row in unit.rows)

    # ---- now ----

    def seat(self, unit: Unit) -> Places | None:
        """Bind the unit where room was made for it, if all of that is free now; else bind nothing."""
        if not self._is_nominated(unit):
            return None
        places = tuple((row, self._claims[row]) for row in unit.rows if row in self._claims)
        if not self._bound(places):
            return None
        rest = unit.pending(self._fleet)
        more = self._trial.place(rest) if rest is not None else ()
        if more is None:
            self._unbind([row for row, _ in places])
            return None
        return (*places, *more)

    @contextmanager
    def leaving_claims(self, unit: Unit) -> Iterator[None]:
        """While a unit is looked at that has room coming, all room is held that is being made for others: it has no
        need of that, and their victims would have gone in vain."""
        others = []
        if self._is_nominated(unit):
            others = [row for row in self._claims if row not in unit.rows and self._fleet.pod(row).node < 0]
        for row in others:
            self._fleet.bind(row, self._claims[row], observed=True)
        try:
            yield
        finally:
            self._unbind(others)

    @property
    def holds(self) -> bool:
        """Whether somebody is held who is not there yet."""
        return bool(self._held)

    @contextmanager
    def without_holds(self) -> Iterator[None]:
        """The fleet without those who are not there yet."""
        held = [(row, self._fleet.pod(row).node) for row in self._held]
        self._unbind(self._held)
        try:
            yield
        finally:
            for row, node in held:
                self._fleet.bind(row, node, observed=True)

    def hold(self, unit: Unit) -> None:
        """Keep the room that is being made for it from units that come after, though it is not free yet."""
        for row in unit.rows:
            node = self._claims.get(row)
            if node is not None:
                self._fleet.bind(row, node, observed=True)
                self._held.append(row)

    def lift(self) -> None:
        """Take all holds back."""
        self._unbind(self._held)
        self._held.clear()

    def nominated(self) -> dict[int, str]:
        """Pod row → the name of the node where room is being made for it."""
        return {row: self._fleet.node(node).spec.name for row, node in self._claims.items()}

    # ---- later ----

    def preempt(self, waiting: Sequence[Unit]) -> None:
        """For each of these that has not been looked at: find out where it can go when all who leave are gone, and
        whom to evict for it if need be. It holds that room from now on."""
        if not self._active:
            return
        for unit in waiting:
            if self._settled.isdisjoint(unit.rows):
                self._settled.update(unit.rows)
                self._preempt(unit)

    def _preempt(self, unit: Unit) -> None:
        mine = [row for row in self._held if row in unit.rows]
        self._unbind(mine)
        self._held = [row for row in self._held if row not in mine]
        with self._fleet.what_if():
            self._let_all_leave(unit)
            places = self.seat(unit)
            if places is None:
                places = self._find(unit)
        for row in unit.rows:
            self._claims.pop(row, None)
        self._claims.update(places)
        self.hold(unit)

    def _let_all_leave(self, unit: Unit) -> None:
        """As it will be: those who leave are gone, and who has a claim of no lower priority is there."""
        self._unbind(self._held)
        self._unbind(self._leaving)
        evicted = {self._fleet.pod_by_key[one.pod.namespace, one.pod.name] for one in self.evictions}
        self._unbind(sorted(evicted | self._moved.keys()))
        for row, node in self._moved.items():
            self._bound(((row, node),))
        # From the highest priority down: a claim that a more important one has overridden must not stand in its way.
        for row, node in sorted(self._claims.items(), key=lambda claim: -self._candidates.priority(claim[0])):
            comes_first = row not in unit.rows and self._candidates.priority(row) >= unit.priority
            if comes_first and self._fleet.pod(row).node < 0:
                self._bound(((row, node),))

    def _unbind(self, rows: Iterable[int]) -> None:
        for row in rows:
            self._fleet.unbind(row)

    def _bound(self, places: Places) -> bool:
        """Bind all of these if each fits where it should, else none."""
        done: list[int] = []
        for row, node in places:
            if self._trial.keys(row)[node] == NEVER:
                self._unbind(done)
                return False
            self._trial.bind(row, node)
            done.append(row)
        return True

    def _may_preempt(self, unit: Unit) -> bool:
        if self._lowest is None or unit.priority <= self._lowest:
            return False
        return all(self._fleet.pod(row).spec.spec.preemption_policy != "Never" for row in unit.rows)

    def _find(self, unit: Unit) -> Places:
        """Where it can go, with nobody else evicted if possible; nowhere is empty."""
        may_preempt = self._may_preempt(unit)
        if not (may_preempt or self._movable):
            return ()
        if unit.gang:
            gang = self._snapshot.gangs.get(unit.gang)
            if gang is None or Tree(self._snapshot, gang, unit.rows).short() is not None:
                return ()
        with self._fleet.what_if():
            found = self._trial.place(unit)
        if found is None and self._movable is not None:
            found = self._move(unit, self._movable)
        if found is not None:
            return found
        room = make_room(self._fleet, unit, self._candidates, self._trial) if may_preempt else None
        if room is None:
            return ()
        self._evict(room.rows, self._why(unit, room), unit)
        return room.places

    def _move(self, unit: Unit, candidates: Candidates) -> Places | None:
        """Where it can go when others have moved; those leave now whose new place is free."""
        found = plan(self._snapshot, unit, self._trial, self._limits or Limits(), candidates)
        if isinstance(found, NoDefrag):
            return None
        self._moved |= {move.pod: move.target for move in found.moves}
        name = {move.pod: self._fleet.node(move.target).spec.name for move in found.moves}
        for move in found.first:
            evidence = (
                ("to", name[move.pod]),
                ("moves", len(found.moves)),
                ("work_lost_device_s", found.lost_s),
                ("micro_usd", found.micro_usd),
            )
            self._evict([move.pod], Reason(f"moved to make room for {unit.about}", evidence), unit)
        return found.places

    def _evict(self, rows: Sequence[int], reason: Reason, unit: Unit) -> None:
        self.evictions += [Evict(self._fleet.pod(row).spec.ref, reason, unit.about) for row in rows]
        for candidates in filter(None, (self._candidates, self._movable)):
            candidates.take(rows)
        for key in (self._fleet.pod(row).key for row in rows):
            self._lives[key] = replace(self._snapshot.life(key), leaving=True)

    def _why(self, unit: Unit, room: Room) -> Reason:
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
        )
        others: tuple[Alternative, ...] = ()
        if room.next_best is not None:
            name, dearer = room.next_best
            others = (Alternative(name, f"{dearer.pods} victims, {dearer.lost_s:.0f} device-seconds of work lost"),)
        return Reason(f"preempted by {unit.about}", evidence, others)
