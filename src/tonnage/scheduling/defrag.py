"""Defragmentation: moves of pods that make room for one that waits, so that all of them stand afterwards.

For a pod a plan with the fewest moves is searched by iterative deepening: empty enough of one node, and find a place
for each pod that has to leave it, if need be by moving others. For a gang its place is planned with movable pods gone
(:mod:`tonnage.scheduling.make_room`), then those pods are given new places. Either way the moves are put into an order
in which every target is free before it is filled; where there is none, there is no plan.

No loop: each plan lets a pod or gang stand that did not, and who is moved has a new place.
It is held for the pod, and for the one that its controller creates to replace it, as for any nominated pod. Of higher
priority than who gets the room, a pod is moved only where it would go by itself, as its controller may recreate it when
it is gone, and then nothing is held. So what stands only grows; and a pod that started a short while ago is not moved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from msgspec import Struct

from tonnage.fleet.filters import OPEN
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import Fleet
from tonnage.objects.karpenter import DO_NOT_DISRUPT
from tonnage.scheduling.bound import BoundPods
from tonnage.scheduling.gangs.tree import pods_needed
from tonnage.scheduling.make_room import OnNode, make_room, needs
from tonnage.scheduling.order import Places, Unit
from tonnage.scheduling.seat import seat
from tonnage.scheduling.trial import Trial
from tonnage.scheduling.victims import Candidates, Victim
from tonnage.scheduling.view import NEVER
from tonnage.units import NS_PER_S

ANY_PRIORITY = 1 << 40
"""Above every priority: who is moved loses nothing but time, so priorities do not count."""
TOGETHER = 4
"""Up to this many pods of a node are moved in every combination; more, only the cheapest set."""


@dataclass(frozen=True, slots=True)
class DefragLimits:
    """``moves``: at most this many pods (KAI-Scheduler's consolidation has 16). ``cooldown_ns``: a pod that started
    less than that ago stays. ``steps``: of the search for fewer moves, after which the best plan so far is taken.
    ``nodes``: this many are thought of as a place for one pod, those first that need the fewest moves by resources
    alone. ``schedulers``: the schedulerName of the pods that may be moved, as no other would put them where they are
    meant to go; None: anybody's."""

    moves: int = 16
    cooldown_ns: int = 600 * NS_PER_S
    steps: int = 2_000
    nodes: int = 32
    schedulers: tuple[str, ...] | None = None


class PodMove(Struct, frozen=True):
    """One pod from one node to another, by rows."""

    pod: int
    origin: int
    target: int


@dataclass(frozen=True, slots=True)
class DefragPlan:
    """``moves`` in an order in which they can be made; ``places``: where the unit goes then.

    Each move is a restart. ``lost_s``: device-seconds of work lost; ``micro_usd``: what they cost, as far as the
    prices of the nodes are known."""

    unit: Unit
    moves: tuple[PodMove, ...]
    places: Places
    lost_s: float
    micro_usd: int

    @property
    def first(self) -> tuple[PodMove, ...]:
        """The moves that need no other to be made before."""
        left: set[int] = set()
        done = []
        for move in self.moves:
            if move.target in left:
                break
            left.add(move.origin)
            done.append(move)
        return tuple(done)


@dataclass(frozen=True, slots=True)
class NoDefrag:
    """Why there is no plan."""

    why: str


def movable(
    snapshot: Snapshot, bound: BoundPods, limits: DefragLimits, absent: Set[int], *, anyway: bool = False
) -> Candidates:
    """The pods that may be moved: they are there, old enough and evictable within budgets, their node is not marked
    do-not-disrupt, and a controller recreates them, for a scheduler of ``limits``. A gang moves whole. ``absent``,
    ``anyway``: see Candidates."""
    fleet = snapshot.fleet

    def must_stay(row: int) -> str:
        pod = fleet.pod(row)
        if not pod.spec.owner:
            return "it has no controller that would recreate it"
        if limits.schedulers is not None and pod.spec.spec.scheduler_name not in limits.schedulers:
            return f"scheduler {pod.spec.spec.scheduler_name} would place it again"
        if pod.node >= 0 and fleet.node(pod.node).do_not_disrupt:
            return f"its node is marked {DO_NOT_DISRUPT}"
        if snapshot.now_ns - snapshot.started_ns(row) < limits.cooldown_ns:
            return f"it started less than {limits.cooldown_ns // NS_PER_S} s ago"
        return ""

    found = Candidates(
        snapshot, bound, respect_budgets=not anyway, also=must_stay, whole_gangs=True, absent=absent, anyway=anyway
    )
    found.budgets.count()
    return found


def plan(
    snapshot: Snapshot, unit: Unit, trial: Trial, limits: DefragLimits, candidates: Candidates
) -> DefragPlan | NoDefrag:
    """The moves of ``candidates`` (see :func:`movable`) that let the unit stand. Changes nothing. To be called where
    the unit does not fit as it is."""
    count = pods_needed(snapshot, unit.gang, unit.rows) if unit.gang else 1
    if count is None:
        return NoDefrag(f"{unit.about} waits for its pods")
    if not _enough_in_all(snapshot.fleet, unit, count):
        return NoDefrag(f"{unit.about} asks for more than is free in all")
    search = _Search(snapshot, unit, trial, limits, candidates)
    found = search.for_gang() if unit.gang else search.for_pod()
    if found is None:
        return NoDefrag(f"no {limits.moves} moves or fewer were found that make room for {unit.about}")
    moves, places = found
    return DefragPlan(unit, tuple(moves), places, *_cost(snapshot, moves))


def _enough_in_all(fleet: Fleet, unit: Unit, count: int) -> bool:
    """Whether so much is free in the fleet as ``count`` of the unit's pods ask for at least: moves make no room, they
    only gather it."""
    asked = np.zeros((len(unit.rows), fleet.free.shape[1]), np.int64)
    for number, row in enumerate(unit.rows):
        columns, amounts = needs(fleet, row)
        asked[number, columns] = amounts
    least = np.sort(asked, axis=0)[:count].sum(axis=0)
    return bool((fleet.free.clip(0).sum(axis=0) >= least).all())


def _cost(snapshot: Snapshot, moves: Sequence[PodMove]) -> tuple[float, int]:
    """(device-seconds of work lost, what they cost in micro-dollars)."""
    fleet, micro_usd = snapshot.fleet, 0.0
    for move in moves:
        node = fleet.node(move.origin).spec
        of_node = max(1, fleet.allocatable_of(move.origin).get(node.device_resource, 0))
        share = min(1.0, max(1, len(fleet.pod(move.pod).devices)) / of_node)
        micro_usd += snapshot.unsaved_ns(move.pod) / NS_PER_S / 3600 * node.price_micro_usd_per_hour * share
    return sum(snapshot.lost_ns(move.pod) for move in moves) / NS_PER_S, round(micro_usd)


class _OutOfSteps(Exception):
    """The search has taken as long as it may."""


Found = tuple[list[PodMove], Places]


class _Search:
    """One search. Pods that were put somewhere in it stay there."""

    def __init__(
        self, snapshot: Snapshot, unit: Unit, trial: Trial, limits: DefragLimits, candidates: Candidates
    ) -> None:
        self._fleet = snapshot.fleet
        self._unit = unit
        self._trial = trial
        self._limits = limits
        self._candidates = candidates
        self._steps = limits.steps
        self._origin: dict[int, int] = {}
        self._devices: dict[int, tuple[int, ...]] = {}
        self._put: list[tuple[int, int]] = []
        self._helps: dict[tuple[int, int, tuple[int, ...], tuple[tuple[int, int], ...]], bool] = {}
        self._failed: set[tuple[frozenset[tuple[int, int]], tuple[int, ...], int]] = set()

    # ---- a pod ----

    def for_pod(self) -> Found | None:
        """The fewest moves found: by emptying one node at one go, then by fewer moves that may depend on each other."""
        best = self._at_one_go()
        most = min(self._limits.moves, self._candidates.count) if best is None else len(best[0]) - 1
        try:
            for moves in range(1, most + 1):
                found = self._solve(self._unit.rows, moves)
                if found is not None:
                    return found
        except _OutOfSteps:
            pass
        return best

    def _at_one_go(self) -> Found | None:
        (row,) = self._unit.rows
        found: list[tuple[int, int, Found]] = []
        for node in self._nodes(row, self._limits.moves):
            victims = self._on(node, self._limits.moves)
            on_node = OnNode(self._fleet, row, node, self._candidates, self._trial)
            chosen = on_node.cheapest(victims) if victims else None
            try:
                moved = self._emptied(row, node, chosen, (), 0) if chosen else None
            except _OutOfSteps:
                break
            if moved is not None:
                found.append((len(moved[0]), sum(victim.lost_ns for victim in chosen or ()), moved))
        return min(found, key=lambda one: one[:2])[2] if found else None

    def _solve(self, todo: Sequence[int], moves: int) -> Found | None:
        """Put each of these somewhere with at most this many moves more."""
        if not todo:
            return self._ordered()
        state = frozenset(self._put), tuple(todo), moves
        if state in self._failed:
            return None
        self._steps -= 1
        if self._steps < 0:
            raise _OutOfSteps
        found = self._first(todo[0], todo[1:], moves)
        if found is None:
            self._failed.add(state)
        return found

    def _first(self, row: int, rest: Sequence[int], moves: int) -> Found | None:
        """Put this one somewhere, and then the rest."""
        key = self._trial.keys(row)
        for node in sorted(np.flatnonzero(key != NEVER).tolist(), key=lambda node: -key[node]):
            if node != self._origin.get(row):
                found = self._emptied(row, node, (), rest, moves)
                if found is not None:
                    return found
        for node in self._nodes(row, moves) if moves else ():
            if node != self._origin.get(row) and self._may_help(row, node, moves):
                for chosen in self._choices(row, node, moves):
                    found = self._emptied(row, node, chosen, rest, moves)
                    if found is not None:
                        return found
        return None

    def _may_help(self, row: int, node: int, moves: int) -> bool:
        """Whether the pod may fit on the node when some go that may move away from it. The more go from one node, the
        sooner it fits, unless its pod affinity selects one of them."""
        victims, topology = self._on(node, moves), self._trial.cache.topology
        going = tuple(one for victim in victims for one in victim.rows)
        classes, pod_class = {self._fleet.pod(one).class_id for one in going}, self._fleet.pod_class(row)
        if topology.asks_for_any(pod_class, classes):
            return True
        if topology.rules(pod_class).spread and len(going) > len(victims):  # who stands elsewhere evens the spread
            return True
        tried = row, node, going, tuple(self._put)
        known = self._helps.get(tried)
        if known is None:
            with self._fleet.what_if():
                for one in going:
                    self._fleet.unbind(one)
                known = self._helps[tried] = bool(self._trial.keys(row)[node] != NEVER)
        return known

    def _emptied(self, row: int, node: int, chosen: Sequence[Victim], rest: Sequence[int], moves: int) -> Found | None:
        """Put the pod on the node without the chosen, then put those and the rest."""
        going = [one for victim in chosen for one in victim.rows]
        with self._fleet.what_if():
            self._lift(going)
            try:
                if self._trial.keys(row)[node] == NEVER:
                    return None
                self._trial.seat(row, node)
                self._put.append((row, node))
                try:
                    return self._solve((*going, *rest), max(0, moves - len(going)))
                finally:
                    self._put.pop()
            finally:
                for one in going:
                    del self._origin[one]

    def _lift(self, rows: Sequence[int]) -> None:
        """Take these from where they are, and remember that."""
        for row in rows:
            pod = self._fleet.pod(row)
            self._origin[row], self._devices[row] = pod.node, pod.devices
            self._fleet.unbind(row)

    def _nodes(self, row: int, moves: int) -> list[int]:
        """Nodes that could take the pod after at most this many moves, fewest first."""
        view = self._trial.view(row)
        nodes, _, pods = self._candidates.bounds_of(ANY_PRIORITY, *needs(self._fleet, row))
        possible = (view.why[nodes] == OPEN) & (pods <= moves)
        nodes, pods = nodes[possible], pods[possible]
        found: list[int] = nodes[np.lexsort((nodes, -view.nodes.tie[nodes], pods))][: self._limits.nodes].tolist()
        return found

    def _on(self, node: int, moves: int) -> list[Victim]:
        """Who may move away from the node, those first who lose least."""
        put = {row for row, _ in self._put}
        found = [one for one in self._candidates.on((node,), ANY_PRIORITY) if put.isdisjoint(one.rows)]
        return sorted((one for one in found if len(one.rows) <= moves), key=lambda one: (one.lost_ns, one.name))

    def _choices(self, row: int, node: int, moves: int) -> Iterator[Sequence[Victim]]:
        """Sets of pods to move away from the node: few first, then cheap first."""
        victims = self._on(node, moves)
        for size in range(1, min(moves, TOGETHER) + 1):
            for chosen in combinations(victims, size):
                if sum(len(one.rows) for one in chosen) <= moves and self._candidates.allowed(chosen):
                    yield chosen

    # ---- a gang ----

    def for_gang(self) -> Found | None:
        """Room for the whole gang, then a place for everybody who makes it."""
        unit = Unit(self._unit.rows, self._unit.about, ANY_PRIORITY, self._unit.gang, self._unit.region_key)
        room = make_room(self._fleet, unit, self._candidates, self._trial)
        if room is None or len(room.rows) > self._limits.moves:
            return None
        with self._fleet.what_if():
            self._lift(room.rows)
            for row, node in room.places:
                self._trial.seat(row, node)
                self._put.append((row, node))
            by_name = sorted(room.rows, key=lambda row: self._fleet.pod(row).key)
            largest = sorted(by_name, key=lambda row: needs(self._fleet, row)[1].tolist()[::-1], reverse=True)
            try:
                return self._solve(largest, 0)
            except _OutOfSteps:
                return None

    # ---- the order ----

    def _ordered(self) -> Found | None:
        """The moves so that each target is free when its turn comes; None where they wait for each other."""
        fleet = self._fleet
        moves = [PodMove(row, self._origin[row], node) for row, node in self._put if row in self._origin]
        places = tuple((row, node) for row, node in self._put if row not in self._origin)
        done: list[PodMove] = []
        with fleet.what_if():
            for row, _ in self._put:
                fleet.unbind(row)
            for move in moves:
                seat(fleet, move.pod, move.origin, self._devices[move.pod])
            while moves:
                possible = next((move for move in moves if self._moves(move)), None)
                if possible is None:
                    return None
                moves.remove(possible)
                done.append(possible)
            for row, node in places:
                if self._trial.keys(row)[node] == NEVER:
                    return None
                self._trial.seat(row, node)
        return done, places

    def _moves(self, move: PodMove) -> bool:
        """Make the move if it is possible now."""
        fleet = self._fleet
        fleet.unbind(move.pod)
        key = self._trial.keys(move.pod)
        possible = bool(key[move.target] != NEVER)
        if self._candidates.priority(move.pod) > self._unit.priority:  # it has its turn first when it comes again
            possible = possible and int(key.argmax()) == move.target
        if possible:
            self._trial.seat(move.pod, move.target)
        else:
            seat(fleet, move.pod, move.origin, self._devices[move.pod])
        return possible
