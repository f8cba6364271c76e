"""One decision under one policy, and another look where pods are unschedulable that could have been placed.

Under each policy everybody has a turn in the same order (:mod:`tonnage.scheduling.turns`). Where the first policy
leaves pods over for which there was room before, the others are tried from the start, and the decision is that which
places most: from the highest priority down more devices, then more pods; of equals the first. Pods count by what they
ask, wherever they are placed. Nothing is tried again where no other policy can help: where the policy had nothing to
choose, as each pod that it placed fitted on one node only when its turn came (then others place the same pods in the
same places), or where there was no room to begin with for any of the unschedulable ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from msgspec import structs

from tonnage.decisions import Bind, ClaimAllocation, Evict, ExtendedClaim, Reason, Ref
from tonnage.fleet.claim_asks import is_extended
from tonnage.fleet.fits import fits
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import Fleet
from tonnage.objects.dra import AllocationResult, ResourceClaim
from tonnage.scheduling.assumed import Assumed
from tonnage.scheduling.cache import Cache
from tonnage.scheduling.order import Unit
from tonnage.scheduling.trial import Trial
from tonnage.scheduling.turns import Seated, Turns, TurnSettings

OTHERS = ("fgd", "binpack", "bestfit")
"""The policies that are tried where the first one leaves pods over."""


@dataclass(frozen=True, slots=True)
class ScheduleResult:
    """One decision: ``binds``, why each other pod ``waits`` (by row), where room is being made for whom (``nominated``,
    pod row → node name), and ``evictions``. ``left``: the units that wait. ``chose``: whether the policy had a choice.
    """

    binds: tuple[Bind, ...]
    waits: tuple[tuple[int, Reason], ...]
    nominated: dict[int, str]
    evictions: tuple[Evict, ...]
    left: tuple[Unit, ...]
    seated: Seated
    chose: bool
    classes: frozenset[int]


def look(
    snapshot: Snapshot, cache: Cache, how: TurnSettings, rows: Sequence[int], others: Iterable[str] = ()
) -> ScheduleResult:
    """The decision about these pending pods, which are in the order of their turns; with ``others``, policies, the best
    of all where pods are unschedulable. Changes nothing."""
    best = _under(snapshot, cache, how, rows)
    if others and best.chose and _could_stand(snapshot, cache, how, best):
        for policy in others:
            found = _under(snapshot, cache, replace(how, policy=policy, least=best.seated), rows)
            if found.seated > best.seated:
                best = _told(found, policy)
    return best


def _under(snapshot: Snapshot, cache: Cache, how: TurnSettings, rows: Sequence[int]) -> ScheduleResult:
    fleet = snapshot.fleet
    turns = Turns(snapshot, cache, how, rows)
    with fleet.what_if():
        left = turns.take()
        waits = tuple((row, turns.reason(unit, row)) for unit in left for row in unit.rows)
        classes = frozenset([pod.class_id for pod in fleet.pods_in(turns.binds)])
        seated = turns.seated()
        binds = tuple([_with_claims(fleet, row, bind) for row, bind in turns.binds.items()])
    preemptor = turns.preemptor
    return ScheduleResult(
        binds,
        waits,
        preemptor.nominated(),
        tuple(preemptor.evictions),
        tuple(left),
        seated,
        turns.chose,
        classes,
    )


def _with_claims(fleet: Fleet, row: int, bind: Bind) -> Bind:
    """The bind with what it allocates."""
    if not fleet.device_claims.used_by(row):
        return bind
    found = allocations(fleet, row, fleet.device_claims.ledger.assumed_of(row))
    return structs.replace(bind, claims=found) if found else bind


def allocations(
    fleet: Fleet, row: int, found: Iterable[tuple[ResourceClaim, AllocationResult]]
) -> tuple[ClaimAllocation, ...]:
    """Claims of the pod in that row and what they have, as decisions name them."""
    return tuple(
        ClaimAllocation(
            Ref(claim.kind, claim.name, claim.namespace, claim.metadata.uid), allocation, _extended(fleet, row, claim)
        )
        for claim, allocation in found
    )


def _extended(fleet: Fleet, row: int, claim: ResourceClaim) -> ExtendedClaim | None:
    """What the claim is made of, where that is for the pod's extended resources."""
    if not is_extended(claim):
        return None
    pod = fleet.pod(row)
    served = fleet.served(pod.node) if pod.node >= 0 else frozenset[str]()
    mappings = fleet.device_claims.asks.mappings(pod.spec.spec, served)
    return ExtendedClaim(tuple(claim.spec.devices.requests), mappings)


def _told(found: ScheduleResult, policy: str) -> ScheduleResult:
    """The decision with the policy named in the receipts."""
    binds = (
        structs.replace(one, reason=structs.replace(one.reason, evidence=(*one.reason.evidence, ("policy", policy))))
        for one in found.binds
    )
    return replace(found, binds=tuple(binds))


def _could_stand(snapshot: Snapshot, cache: Cache, how: TurnSettings, found: ScheduleResult) -> bool:
    """Whether there was room at first for any that is unschedulable now, so that another policy may leave it some."""
    trial = Trial(snapshot, cache, how.policy, Assumed(snapshot.fleet))
    asked: set[int] = set()
    for unit in found.left:
        if unit.gang:
            with snapshot.fleet.what_if():
                if trial.place(unit) is not None:
                    return True
            continue
        class_id = snapshot.fleet.pod(unit.rows[0]).class_id
        if class_id not in asked:
            asked.add(class_id)
            if _has_room(snapshot.fleet, trial, class_id, found.classes):
                return True
    return False


def _has_room(fleet: Fleet, trial: Trial, class_id: int, bound: frozenset[int]) -> bool:
    """Whether a node has room for the class now. Who asks for others that are bound in the decision may find more nodes
    open then, so it is room alone that counts."""
    pod_class, topology = fleet.classes.rows[class_id], trial.cache.topology
    view = trial.cache.view(pod_class, trial.policy)
    rows = np.flatnonzero(view.able)
    rows = rows[fits(fleet, rows, view.shape)] if len(rows) else rows
    if not len(rows):
        return False
    if topology.asks_for_others(pod_class) and topology.counts_any(pod_class, bound):
        return True
    return all(bool(mask[rows].any()) for _, mask in topology.masks(pod_class, view))
