"""The scheduling decision: which pending pod goes to which node, and why the others wait.

Pods are taken by priority (highest first), then age, then name. Each goes to the best node that passes all filters;
nothing is held for a pod that fits nowhere, and a pod that fits somewhere is never refused.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tonnage.decisions import Alternative, Bind, Decision, Reason, Ref, Scalar, Wait
from tonnage.fleet.classes import PodClass
from tonnage.fleet.rows import PodRow
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import Fleet
from tonnage.scheduling.beyond import beyond
from tonnage.scheduling.explain import explain
from tonnage.scheduling.topology import Masks, Topology
from tonnage.scheduling.view import (
    NEVER,
    PREFERENCE_WEIGHT,
    TIE_BITS,
    Ints,
    NodeTable,
    ShapeView,
    points_of,
)

POLICIES = {"binpack": 1, "spread": -1}


@dataclass(frozen=True, slots=True)
class Settings:
    """``policy``: ``binpack`` (fill devices, then hosts) or ``spread``. ``receipts``: record scores and runners-up.

    ``scheduler_names``: the schedulerName of the pods that are placed here. ``strict``: pods that ask for what cannot
    be weighed here (volume claims, resource claims, host ports) wait; otherwise these wishes are passed over."""

    policy: str = "binpack"
    receipts: bool = True
    scheduler_names: tuple[str, ...] = ("", "default-scheduler", "tonnage")
    strict: bool = False


DEFAULTS = Settings()


class Cache:
    """Derived tables of one fleet that survive between decisions. Dropping it changes speed only."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.classes = fleet.classes
        self.topology = Topology(fleet)
        self._nodes = NodeTable(fleet)
        self._views: dict[tuple[int, int], ShapeView] = {}

    def fits(self, fleet: Fleet) -> bool:
        """Whether these are the tables of this fleet, with the classes that it has now."""
        return self.fleet is fleet and self.classes is fleet.classes

    def view(self, pod_class: PodClass, policy: str) -> ShapeView:
        """The up-to-date view of the class's shape."""
        pack = POLICIES[policy]
        view = self._views.get((pod_class.shape, pack))
        if view is None:
            shape = self.fleet.classes.shapes[pod_class.shape]
            view = self._views[pod_class.shape, pack] = ShapeView(self.fleet, shape, self._nodes, pack)
        view.refresh()
        return view


def decide(snapshot: Snapshot, settings: Settings = DEFAULTS, cache: Cache | None = None) -> list[Decision]:
    """A Bind for every pending pod that fits now, then a Wait with the reason for every other.

    Pods with scheduling gates and pods of other schedulers are left alone. Changes nothing. Raises ValueError for a
    cache of another fleet."""
    fleet = snapshot.fleet
    cache = cache or Cache(fleet)
    if not cache.fits(fleet):
        raise ValueError("the cache is that of another fleet")
    binds: list[Decision] = []
    refusals = _Refusals(cache)
    waiting = _queue(fleet, settings)
    left = _beyond(fleet, waiting) if settings.strict else {}
    waiting = [row for row in waiting if row not in left]
    with fleet.what_if():
        placed = -1
        while placed < len(binds):  # a pod placed later may be the company that one refused earlier asks for
            placed = len(binds)
            queue, waiting = waiting, []
            for row in queue:
                pod_class = fleet.pod_class(row)
                decision = None if refusals.stands(pod_class) else _place(fleet, cache, settings, row, refusals)
                if decision is None:
                    waiting.append(row)
                else:
                    binds.append(decision)
        reasons = [refusals.reason(fleet.pod_class(row)) for row in waiting]
    waits = (*zip(waiting, reasons, strict=True), *left.items())
    return [*binds, *(Wait(_pod_ref(fleet.pod(row)), why) for row, why in waits)]


def _beyond(fleet: Fleet, rows: list[int]) -> dict[int, Reason]:
    """The pods among them that ask for what is not weighed here, and why they are left."""
    asked = ((row, beyond(fleet.pod(row).spec.spec)) for row in rows)
    return {row: Reason(f"{what} are not placed by this scheduler", ((what, None),)) for row, what in asked if what}


def feasible(fleet: Fleet, row: int, cache: Cache | None = None) -> list[int]:
    """The rows of the nodes that pass all filters for this pod now, by name; its scheduling gates are not looked at.

    Raises ValueError for a cache of another fleet."""
    cache = cache or Cache(fleet)
    if not cache.fits(fleet):
        raise ValueError("the cache is that of another fleet")
    pod_class = fleet.pod_class(row)
    view = cache.view(pod_class, DEFAULTS.policy)
    key = _keys(cache.topology, pod_class, view, cache.topology.masks(pod_class, view))
    return [node for node in fleet.node_rows() if key[node] != NEVER]


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


def _queue(fleet: Fleet, settings: Settings) -> list[int]:
    rows = [
        row
        for row in fleet.pending
        if not (spec := fleet.pod(row).spec.spec).scheduling_gates and spec.scheduler_name in settings.scheduler_names
    ]

    def order(row: int) -> tuple[int, int, str, str]:
        spec = fleet.pod(row).spec
        return (-spec.priority, spec.created_ns, spec.namespace, spec.name)

    return sorted(rows, key=order)


def _place(fleet: Fleet, cache: Cache, settings: Settings, row: int, refusals: _Refusals) -> Bind | None:
    """Bind the pod to its best node (inside the what-if), or note why there is none."""
    pod, pod_class = fleet.pod(row), fleet.pod_class(row)
    view = cache.view(pod_class, settings.policy)
    masks = cache.topology.masks(pod_class, view)
    key = _keys(cache.topology, pod_class, view, masks)
    best = int(key.argmax())
    if key[best] == NEVER:
        refusals.add(pod_class, explain(fleet, view, masks))
        return None
    reason = _receipt(fleet, key, best) if settings.receipts else Reason("best node")
    devices = fleet.bind(row, best)
    node = fleet.node(best).spec
    return Bind(_pod_ref(pod), Ref("Node", node.name, uid=node.uid), reason, devices)


def _keys(topology: Topology, pod_class: PodClass, view: ShapeView, masks: Masks) -> Ints:
    """The view's keys with the rules about other pods applied: NEVER where one forbids the node, wishes added."""
    key = view.key
    for _, mask in masks:
        key = np.where(mask, key, NEVER)
    wishes = topology.preference(pod_class, key != NEVER)
    if wishes is not None:
        key = np.where(key != NEVER, key + (PREFERENCE_WEIGHT * wishes << TIE_BITS), NEVER)
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


def _pod_ref(pod: PodRow) -> Ref:
    return Ref("Pod", pod.spec.name, pod.spec.namespace, pod.spec.uid)
