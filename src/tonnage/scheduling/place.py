"""The scheduling decision: which pending pod goes to which node, and why the others wait.

Pods are taken by priority (highest first), then age, then name. Each goes to the best node that passes all filters;
nothing is held for a pod that fits nowhere, and a pod that fits somewhere is never refused. A gang has one place in
this order, and is bound all or nothing (:mod:`tonnage.scheduling.gangs`).
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from tonnage.decisions import ClaimAllocation, Decision, Reason, Wait
from tonnage.fleet.rows import split_key
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import Fleet
from tonnage.objects.selectors import unreadable
from tonnage.scheduling.assumed import Assumed
from tonnage.scheduling.beyond import beyond
from tonnage.scheduling.cache import Cache, keys_of
from tonnage.scheduling.defrag import DefragLimits, DefragPlan, NoDefrag, movable
from tonnage.scheduling.defrag import plan as defrag_plan
from tonnage.scheduling.looks import OTHERS, allocations, look
from tonnage.scheduling.order import in_turn, units_of
from tonnage.scheduling.policies import ANY_POLICY, DEFAULT_POLICY, POLICIES
from tonnage.scheduling.trial import Trial
from tonnage.scheduling.turns import TurnSettings
from tonnage.scheduling.view import NEVER

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
    room, None for no moves. Moves need no preemption.
    ``look_again``: where pods are unschedulable under the policy ``tonnage``, others of the decision are placed
    elsewhere for them, then the other policies are tried, and what places most is taken
    (:mod:`tonnage.scheduling.looks`)."""

    policy: str = DEFAULT_POLICY
    receipts: bool = True
    scheduler_names: tuple[str, ...] = EVERYBODY
    strict: bool = False
    preemption: bool = True
    respect_budgets: bool = True
    defrag: DefragLimits | None = None
    look_again: bool = True

    @property
    def looks_again(self) -> bool:
        """Whether there is another look where pods are unschedulable: a policy that the user names is that alone."""
        return self.look_again and self.policy == DEFAULT_POLICY

    @property
    def how(self) -> TurnSettings:
        """What of it counts for a pod's turn."""
        return TurnSettings(
            self.policy, self.receipts, self.preemption, self.respect_budgets, self.defrag, exchange=self.looks_again
        )


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
    left = _beyond(snapshot, rows, strict=settings.strict) | _without_score(fleet, rows, cache)
    rows = [row for row in rows if row not in left]
    found = look(snapshot, cache, settings.how, rows, OTHERS if settings.looks_again else ())
    waits = [
        Wait(
            fleet.pod(row).spec.ref, why, nominated=found.nominated.get(row, ""), releases=_releases(fleet, row, cache)
        )
        for row, why in (*found.waits, *left.items())
    ]
    return [*found.binds, *waits, *found.evictions]


def _releases(fleet: Fleet, row: int, cache: Cache) -> tuple[ClaimAllocation, ...]:
    """The claims of a pending pod which pin it to nodes that it cannot have, and that nobody else uses, and one that
    an earlier attempt to bind it has left: kube-scheduler gives them up (v1.36 dynamicresources, PostFilter)."""
    spec, ledger = fleet.pod(row).spec, fleet.device_claims.ledger
    if spec.claims.held is not None:
        return allocations(fleet, row, fleet.device_claims.left(spec.claims.held))
    stuck = allocations(fleet, row, ledger.stuck(spec.claims.keys, spec.uid)) if spec.claims.keys else ()
    return stuck if stuck and not feasible(fleet, row, cache) else ()


def _beyond(snapshot: Snapshot, rows: list[int], *, strict: bool) -> dict[int, Reason]:
    """The pods among them that wait whatever the nodes are, and why."""
    fleet, absent = snapshot.fleet, snapshot.absent_groups
    nodes = len(fleet.node_by_name)
    found: dict[int, Reason] = {}
    for row, pod in zip(rows, fleet.pods_in(rows), strict=True):
        if why := beyond(pod.spec, nodes, strict=strict, absent=absent):
            found[row] = Reason(why, ((why, None),))
    return found


def _without_score(fleet: Fleet, rows: list[int], cache: Cache) -> dict[int, Reason]:
    """The pods whose preferred terms cannot be read: kube-scheduler leaves them pending where several nodes fit."""
    found: dict[int, Reason] = {}
    said: dict[int, str] = {}  # by class: its pods have the same node affinity
    for row, pod in zip(rows, fleet.pods_in(rows), strict=True):
        text = said.get(pod.class_id)
        if text is None:
            affinity = pod.spec.spec.affinity
            on_nodes = affinity.node_affinity if affinity else None
            terms = on_nodes.preferred_during_scheduling_ignored_during_execution if on_nodes else ()
            text = said[pod.class_id] = unreadable(terms)
        if text and len(feasible(fleet, row, cache)) > 1:
            found[row] = Reason(text, ((text, 1),))
    return found


def feasible(fleet: Fleet, row: int, cache: Cache | None = None) -> list[int]:
    """The rows of the nodes that pass all filters for this pod now, by name; its scheduling gates are not looked at.

    Raises ValueError for a cache of another fleet."""
    cache = cache or Cache(fleet)
    if not cache.fits(fleet):
        raise ValueError("the cache is that of another fleet")
    pod_class = fleet.pod_class(row)
    view = cache.view(pod_class, ANY_POLICY)
    key = keys_of(cache.topology, pod_class, view, cache.topology.masks(pod_class, view))
    return [node for node in fleet.node_rows() if key[node] != NEVER]


def defragment(
    snapshot: Snapshot, key: str, limits: DefragLimits | None = None, policy: str = DEFAULTS.policy
) -> DefragPlan | NoDefrag:
    """The moves that make room for a pending pod (namespace/name) or for the pending pods of a gang (its key, or the
    name of one of them). Other pending pods are not thought of.

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
    limits = limits or DefragLimits()
    return defrag_plan(snapshot, unit, trial, limits, movable(snapshot, cache.bound, limits, frozenset(fleet.pending)))


def _queue(snapshot: Snapshot, settings: Settings, asked: Set[int] | None = None) -> list[int]:
    fleet = snapshot.fleet
    pending = list(fleet.pending) if asked is None else sorted(asked & fleet.pending.keys())
    names = settings.scheduler_names
    rows = [
        row
        for row, pod in zip(pending, fleet.pods_in(pending), strict=True)
        if not (spec := pod.spec.spec).scheduling_gates and spec.scheduler_name in names
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
