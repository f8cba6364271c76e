"""Which pods would have to move for one that waits to have room, what that costs, and what forbids it."""

from __future__ import annotations

from collections.abc import Sequence, Set

import msgspec

from tonnage.fleet.snapshot import Snapshot
from tonnage.scheduling.assumed import Assumed
from tonnage.scheduling.cache import Cache
from tonnage.scheduling.defrag import DefragLimits, DefragPlan, NoDefrag, movable, plan
from tonnage.scheduling.order import units_of
from tonnage.scheduling.trial import Trial
from tonnage.scheduling.victims import Candidates

LIMITS = DefragLimits(cooldown_ns=0, steps=12, nodes=6)
"""Where the scheduler itself moves nobody: what a person may do who waits for no cooldown, searched for so long that a
receipt on 5,000 nodes takes no more than 100 ms."""


class MovedPod(msgspec.Struct, frozen=True):
    """One pod from one node to another. ``forbidden``: what says that it must stay; empty: nothing."""

    pod: str
    origin: str
    target: str
    forbidden: str = ""


class Moves(msgspec.Struct, frozen=True):
    """``moves`` in an order in which they can be made; each is a restart. None: ``none`` says why.

    ``allowed``: all of them are; else there are none without some that are forbidden. ``work_lost_device_s``: work
    lost, in device-seconds; ``micro_usd``: what that costs, as far as the prices of nodes are known. ``into``: the
    nodes where there is room then."""

    moves: tuple[MovedPod, ...] = ()
    allowed: bool = False
    work_lost_device_s: float = 0.0
    micro_usd: int = 0
    into: tuple[str, ...] = ()
    none: str = ""


def find(
    snapshot: Snapshot, rows: Sequence[int], cache: Cache, policy: str, limits: DefragLimits | None, absent: Set[int]
) -> Moves | None:
    """The moves for these pending pods (one, or a gang's); None where they have room without. ``limits``: those of the
    scheduler, if it moves pods. ``absent``: pods that are bound in a what-if alone."""
    fleet, limits = snapshot.fleet, limits or LIMITS
    (unit,) = units_of(snapshot, rows)
    trial = Trial(snapshot, cache, policy, Assumed(fleet))
    with fleet.what_if():
        if trial.place(unit) is not None:
            return None
    bound = cache.bound
    found = plan(snapshot, unit, trial, limits, movable(snapshot, bound, limits, absent, anyway=True))
    if isinstance(found, NoDefrag):
        return Moves(none=found.why)
    said = _said(snapshot, found, movable(snapshot, bound, limits, absent))
    if not said.allowed:
        found = plan(snapshot, unit, trial, limits, movable(snapshot, bound, limits, absent))
    if said.allowed or isinstance(found, NoDefrag):
        return said
    return _said(snapshot, found, movable(snapshot, bound, limits, absent))


def _said(snapshot: Snapshot, found: DefragPlan, rules: Candidates) -> Moves:
    """The plan in names, and which of its moves the rules forbid, one after the other."""
    fleet = snapshot.fleet
    name = {row: fleet.node(row).spec.name for move in found.moves for row in (move.origin, move.target)}
    moves = []
    for move in found.moves:
        key, forbidden = fleet.pod(move.pod).key, rules.forbidden(move.pod)
        moves.append(MovedPod(key, name[move.origin], name[move.target], forbidden))
        rules.budgets.spend((move.pod,))
    allowed = not any(move.forbidden for move in moves)
    into = tuple(sorted({fleet.node(node).spec.name for _, node in found.places}))
    return Moves(tuple(moves), allowed, found.lost_s, found.micro_usd, into)
