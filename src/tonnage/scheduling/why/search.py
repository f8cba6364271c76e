"""The smallest change that makes a waiting pod fit, in the measure of :mod:`tonnage.scheduling.why.changes`.

For each node, the edits looked at are those that concern it: what of the node itself keeps the pod off (each of these
has to go), giving up any of the pod's hard rules about other pods, asking for less of what is short there (never for
nothing of it; of what devices give together, such as their memory and cores, of one thing only), and pods that stand
on it going. A node like each that is there may come; on it nobody stands. A resource that no node has may be given up,
idle GPUs may be repartitioned. All of the node affinity is given up only where nothing of any term could stay.

A bound on the measure is worked out for all nodes at once. Nodes are then looked at exactly, the most hopeful first,
until no bound is below the best that was found, or the budget is spent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import combinations
from typing import TypeAlias

import numpy as np
from msgspec import Struct

from tonnage.fleet.asks import FULL, Ask, Kind
from tonnage.fleet.filters import Mask, reaches
from tonnage.fleet.fits import gives_on
from tonnage.fleet.rows import PodRow
from tonnage.fleet.state import PODS, Fleet
from tonnage.scheduling.cache import Cache
from tonnage.scheduling.why import requests as why_requests
from tonnage.scheduling.why.bounds import IMPOSSIBLE, Ints, Tables, code, sets_of
from tonnage.scheduling.why.changes import (
    ANTI_AFFINITY,
    SPREAD,
    AddNode,
    AskWhole,
    Cost,
    DropResource,
    DropRule,
    Edit,
    Leave,
    Lower,
    PodChange,
    Recut,
    Uncordon,
    add_like,
    cost_of,
    daemons_of,
    edited,
)
from tonnage.scheduling.why.recuts import Recuts
from tonnage.scheduling.why.static import Kin, ways_of_new

BUDGET = 4_000
"""Steps of one search, some 50 microseconds each: sets of pods that go are tried out."""
NODES_A_STEP = 15
"""Rules about other pods look at all nodes: this many are one step more."""
RECUT_STEPS = 20
"""What planning the GPUs of a node again costs."""
RULES = 6
"""More hard rules than this are given up all together or not at all."""

EVERY = frozenset({"uncordon", "pod", "lower", "leave", "recut", "add"})
"""What may be changed: nodes made schedulable; the pod's tolerations, preferences and rules; what it asks for; running
pods; how GPUs are partitioned; new nodes."""

STAY, LEAVE, LEAVE_FOR_RULES = range(3)
"""What is looked at: everybody stays; pods go where the rules allow the node; pods go where they do not."""

Rules: TypeAlias = tuple[DropRule, ...]
Less: TypeAlias = Lower | DropResource | AskWhole


class SmallestChange(Struct, frozen=True):
    """The smallest change, None where there is none; ``proved``: no smaller one exists."""

    change: PodChange | None
    proved: bool = True


def smallest(fleet: Fleet, row: int, cache: Cache, may: frozenset[str] = EVERY, budget: int = BUDGET) -> SmallestChange:
    """The smallest change for the pending pod in this row, of the kinds that ``may`` be made. Changes nothing.

    Pods that fit as they are need no edit: then the change is empty."""
    return find(Tables(fleet, row, cache), may, budget)


def find(tables: Tables, may: frozenset[str], budget: int = BUDGET) -> SmallestChange:
    """:func:`smallest` with tables that several searches share; the fleet is as it was when they were made."""
    search = _Search(tables, may, budget)
    with tables.fleet.what_if():
        search.there()
        if "recut" in may:
            search.otherwise_cut()
        if "add" in may:
            search.new()
    return SmallestChange(search.best, search.proved)


class _Search:
    """``best``: the smallest change so far; ``limit``: its measure, encoded."""

    def __init__(self, tables: Tables, may: frozenset[str], budget: int) -> None:
        self.tables, self.may = tables, may
        self.fleet, self.pod = tables.fleet, tables.pod
        self.ruled, self.rules = tables.ruled, tables.rules
        self.best: PodChange | None = None
        self.limit = IMPOSSIBLE
        self.proved = True
        self._left = budget
        self._step = 1 + (len(tables.rows) // NODES_A_STEP if tables.ruled else 0)
        self._masks: dict[tuple[Edit, ...], Mask] = {}

    def _spend(self, steps: int) -> bool:
        """Whether there was so much left of the budget."""
        if self._left < steps:
            self.proved = False
            return False
        self._left -= steps
        return True

    # ---- nodes that are there ----

    def there(self) -> None:
        """Look at the nodes of the fleet."""
        groups = [group for group in self.tables.kin if self._allowed(group)]
        for stage in (STAY, LEAVE, LEAVE_FOR_RULES) if "leave" in self.may else (STAY,):
            if stage is not LEAVE_FOR_RULES or self.ruled:
                for dropped in self._drops():
                    self._explore(groups, dropped, stage)

    def _allowed(self, group: Kin) -> bool:
        return ("uncordon" in self.may or not group.cordoned) and ("pod" in self.may or not group.ways[0])

    def _drops(self) -> Iterator[Rules]:
        """Sets of rules to give up, small ones first, as long as they can be better than the best."""
        rules = self.rules if self.ruled and "pod" in self.may else []
        for size in range(len(rules) + 1) if len(rules) <= RULES else (0, len(rules)):
            for dropped in combinations(rules, size):
                if code(cost_of(dropped)) < self.limit:
                    yield dropped

    def _explore(self, groups: Sequence[Kin], dropped: Rules, stage: int) -> None:
        """Look at nodes, the most hopeful first, until no bound is below the best."""
        of_room, wanted = self._bounds(leaving=stage != STAY)
        cases = [(group, way) for group in groups for way in group.ways]
        if not cases:
            return
        fixed = [code(cost_of((*way, *dropped))) + group.cordoned * code((1, 0, 0)) for group, way in cases]
        rows = np.concatenate([group.rows for group, _ in cases])
        number = np.repeat(np.arange(len(cases)), [len(group.rows) for group, _ in cases])
        bounds = np.minimum(np.array(fixed, np.int64)[number] + of_room[rows], IMPOSSIBLE)
        if stage != STAY:
            wanted = wanted & self._holding
        hopeful = np.flatnonzero((bounds < self.limit) & wanted[rows])
        spreads = self._spreads(dropped)
        if self.ruled and not spreads and len(hopeful):  # then the rules say the same whatever else is edited
            allowed = self._mask_of(dropped)[rows[hopeful]]
            hopeful = hopeful[allowed != (stage == LEAVE_FOR_RULES)]
        names = self.tables.view.nodes.tie[rows[hopeful]]
        hopeful = hopeful[np.lexsort((-names, bounds[hopeful]))]
        # Of nodes between which it makes no difference, the first by name is the answer.
        alike = number[hopeful] * len(self.fleet.alive) + self.tables.room[rows[hopeful]]
        if stage == STAY and not spreads:
            alike, first = np.unique(alike, return_index=True)
            hopeful, alike = hopeful[np.sort(first)], alike[np.argsort(first)]
        seen: set[object] = set()
        for i, same_room in zip(hopeful.tolist(), alike.tolist(), strict=True):
            if bounds[i] >= self.limit:
                return
            group, way = cases[number[i]]
            row = int(rows[i])
            own = (Uncordon(self.fleet.node(row).spec.name),) if group.cordoned else ()
            edits: tuple[Edit, ...] = (*own, *way, *dropped)
            if spreads and self._rules_allow(row, edits, dropped) == (stage == LEAVE_FOR_RULES):
                continue
            same: object = same_room if stage == STAY or self.ruled else (same_room, self.tables.alike(row))
            if same in seen:
                continue
            if stage == STAY or not self.ruled:
                seen.add(same)
            if stage == STAY:
                self._offer(row, edits, ())
                continue
            if self._left < self._step:
                self.proved = False
                return
            self._leave(row, self.tables.in_the_way(row), edits, dropped, stage)

    def _bounds(self, *, leaving: bool) -> tuple[Ints, Mask]:
        """By node row: a bound on what room costs, and whether the node is looked at."""
        tables, lower = self.tables, "lower" in self.may
        short = tables.lacks_resources | tables.lacks_devices
        if leaving:
            return tables.leaving(lower=lower), short | np.bool_(self.ruled)
        return tables.staying, ~short | np.bool_(lower)

    # ---- one node ----

    def _offer(self, row: int, edits: tuple[Edit, ...], leaving: tuple[Edit, ...]) -> None:
        """Take the change if room is there, asking for less where that may be, and it is smaller than the best."""
        lowers = self._lowers(row, self.fleet.free[row])
        self._take(self.fleet.node(row).spec.name, edits, lowers, leaving)

    def _take(
        self, name: str, edits: tuple[Edit, ...], lowers: list[Less] | None, leaving: tuple[Edit, ...] = ()
    ) -> None:
        if lowers is None:
            return
        change = PodChange(name, (*edits, *lowers, *leaving))
        if code(change.cost) < self.limit and self._can_be_written(lowers):
            self.best, self.limit = change, code(change.cost)

    def _can_be_written(self, lowers: Sequence[Less]) -> bool:
        """Not where the pod's overhead alone is more."""
        try:
            edited(self.pod, lowers)
        except ValueError:
            return False
        return True

    def _lowers(self, row: int, free: Ints) -> list[Less] | None:
        """What the pod has to ask less of for the node, which has so much free; None where that is not enough."""
        ask = self.tables.shape.ask
        edits: list[Less] = []
        for column, need in self.tables.requests:
            have = int(free[column])
            if have >= need:
                continue
            name = self.fleet.resources[column]
            if column in self.tables.nowhere and "lower" in self.may:
                edits.append(DropResource(name))
                ask = why_requests.asked_less(ask, name, 0)
                continue
            if column == PODS or have < 1 or "lower" not in self.may:
                return None
            edits.append(Lower(name, need - have, have))
            ask = why_requests.asked_less(ask, name, have)
        if not self.tables.by_devices or gives_on(self.fleet, row, ask):
            return edits
        return self._devices_less(row, ask, edits) if "lower" in self.may else None

    def _devices_less(self, row: int, ask: Ask, edits: list[Less]) -> list[Less] | None:
        """Less of one of the things that devices give, the least trouble first."""
        best = self._in_whole(row, ask, edits)
        for name in self.tables.device_axes:
            now, others = self.tables.axes[name], [edit for edit in edits if edit.resource != name]
            low, high = 0, min([now, *(edit.to for edit in edits if edit.resource == name)])
            while high - low > 1:  # the devices give `low`, if it is not 0, and not `high`
                middle = (low + high) // 2
                if gives_on(self.fleet, row, why_requests.asked_less(ask, name, middle)):
                    low = middle
                else:
                    high = middle
            if low:
                found: list[Less] = [*others, Lower(name, now - low, low)]
                if best is None or cost_of(found) < best[0]:
                    best = cost_of(found), found
        return best[1] if best else None

    def _in_whole(self, row: int, ask: Ask, edits: list[Less]) -> tuple[Cost, list[Less]] | None:
        """Whole devices in place of memory of them, where the node does not say how much there is."""
        cards = self.fleet.cards
        dumb = ask.kind is Kind.MEMORY and not (ask.refused or cards.memory[row] or cards.numbers[row])
        unit = self.fleet.resource(ask.resource) if dumb else -1
        if unit < 0 or cards.unit[row] != unit or self.fleet.free[row, unit] < ask.count:
            return None
        if not gives_on(self.fleet, row, Ask(Kind.WHOLE, ask.resource, ask.count, FULL)):
            return None
        found: list[Less] = [*edits, AskWhole(self.fleet.node(row).spec.name, ask.resource, ask.count)]
        return cost_of(found), found

    def _leave(self, row: int, pods: Sequence[PodRow], edits: tuple[Edit, ...], dropped: Rules, stage: int) -> None:
        """The fewest pods that can go from the node, with asking for less beside it."""
        if not pods or (stage == LEAVE_FOR_RULES and not self._helps(row, pods, edits, dropped)):
            return
        for size in range(1, len(pods) + 1):
            if code(cost_of(edits)) + size * code((1, Leave.rank, 0)) >= self.limit:
                return
            for chosen in sets_of(pods, size, by_devices=self.tables.by_devices):
                leaving = tuple(self.tables.leave_of(pod) for pod in chosen)
                if code(cost_of((*edits, *leaving))) >= self.limit:
                    continue
                if not self._spend(self._step):
                    return
                with self.fleet.what_if():
                    self._send_away(chosen)
                    if self._rules_allow(row, edits, dropped, fresh=True):
                        self._offer(row, edits, leaving)

    def _helps(self, row: int, pods: Sequence[PodRow], edits: tuple[Edit, ...], dropped: Rules) -> bool:
        """Whether the rules may allow the node when some of these pods go: where only anti-affinity is left, the more
        go the more they allow."""
        if not all(rule.kind == ANTI_AFFINITY or rule in dropped for rule in self.rules):
            return True
        if not self._spend(self._step):
            return False
        with self.fleet.what_if():
            self._send_away(pods)
            return self._rules_allow(row, edits, dropped, fresh=True)

    def _send_away(self, pods: Sequence[PodRow]) -> None:
        for pod in pods:
            self.fleet.unbind(self.fleet.pod_by_key[pod.spec.namespace, pod.spec.name])

    # ---- rules about other pods ----

    def _rules_allow(self, row: int, edits: tuple[Edit, ...], dropped: Rules, *, fresh: bool = False) -> bool:
        """Whether no rule refuses the node to the pod so edited; ``fresh``: pods or nodes have changed in the fleet."""
        if not self.ruled:
            return True
        spreads = self._spreads(dropped)
        about = edits if spreads else dropped  # only spread looks at what else the pod asks of nodes
        uncordoned = bool(edits) and isinstance(edits[0], Uncordon) and spreads
        if fresh or uncordoned:
            return bool(self._mask(about, row if uncordoned else None)[row])
        return bool(self._mask_of(about)[row])

    def _spreads(self, dropped: Rules) -> bool:
        """Whether the pod has to be spread still."""
        return any(rule.kind == SPREAD and rule not in dropped for rule in self.rules)

    def _mask_of(self, about: tuple[Edit, ...]) -> Mask:
        """:meth:`_mask` of the fleet as it is."""
        if about not in self._masks:
            self._masks[about] = self._mask(about, None)
        return self._masks[about]

    def _mask(self, edits: tuple[Edit, ...], uncordoned: int | None) -> Mask:
        """The nodes that the rules of the edited pod, and those of others, leave it."""
        fleet = self.fleet
        pod_class, view = self.tables.edited.of(edits)
        allowed = np.ones(len(fleet.alive), np.bool_)
        with fleet.what_if():
            if uncordoned is not None:
                fleet.set_schedulable(uncordoned, True)
                view.refresh()
            for _, mask in self.tables.edited.masks(pod_class, view):
                allowed &= mask
        return allowed

    # ---- GPUs repartitioned ----

    def otherwise_cut(self) -> None:
        """GPUs of one node repartitioned, on the nodes where everything else is there, the least trouble first."""
        recuts = Recuts(self.tables)
        for row, before in recuts.cases(filter(self._allowed, self.tables.kin)):
            if code(cost_of(before)) + code((1, Recut.rank, 0)) >= self.limit or not self._spend(RECUT_STEPS):
                return
            least = recuts.least(row)
            if least is None or code(cost_of(before)) + least * code((1, Recut.rank, 0)) >= self.limit:
                continue
            cut = recuts.on(row)
            if cut and self._rules_allow(row, before, (), fresh=True):
                self._take(self.fleet.node(row).spec.name, (*before, *cut), [])

    # ---- nodes that come ----

    def new(self) -> None:
        """A node like each that is there, one of each kind, the most hopeful first."""
        tables = self.tables
        cases: list[tuple[int, bool, int]] = []
        for row in tables.unlike:
            ways = self._ways_of_new(row)
            bound = code(cost_of((AddNode(""), *ways[0]))) if ways else IMPOSSIBLE
            cases.append((bound, not tables.allowed[row], row))
        for bound, _, row in sorted(cases, key=lambda case: case[:2]):
            if bound >= self.limit:
                return
            if not self._holding[row]:
                continue
            if not self._spend(1 + len(tables.rows) // 2):
                return
            self._new_like(row)
            if not self.ruled and self.limit == bound:
                return

    def _ways_of_new(self, row: int) -> list[tuple[Edit, ...]]:
        node = self.fleet.node(row)
        name = AddNode(node.spec.name).name
        if not reaches(self.pod.volumes.reach, node.labels, name):
            return []
        ways = ways_of_new(self.pod.spec, node, name)
        return [way for way in ways if "pod" in self.may or not way]

    @cached_property
    def _holding(self) -> Mask:
        """The nodes that, empty, have what is asked, or some of everything where the pod may ask for less."""
        lower, allocatable = "lower" in self.may, self.fleet.allocatable
        found = np.ones(len(allocatable), np.bool_)
        for column, need in self.tables.requests:
            if not (lower and column in self.tables.nowhere):
                found &= allocatable[:, column] >= (1 if lower else need)
        return found

    def _new_like(self, row: int) -> None:
        add = AddNode(self.fleet.node(row).spec.name)
        if add.name in self.fleet.node_by_name:
            return
        ways = self._ways_of_new(row)
        plain = not self.ruled and not self.tables.by_devices and not daemons_of(self.fleet, row)
        if plain:  # then all that counts is known without adding it
            self._take(add.name, (add, *ways[0]), self._lowers(row, self.fleet.allocatable[row]))
            return
        with self.fleet.what_if():
            there = add_like(self.fleet, add)
            for way in ways:
                for dropped in self._drops():
                    edits: tuple[Edit, ...] = (*way, *dropped)
                    if self._rules_allow(there, edits, dropped, fresh=True):
                        self._offer(there, (add, *edits), ())
