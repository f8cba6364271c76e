"""What decisions do, whoever makes them happen; and the one that makes nothing happen and only says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from tonnage.decisions import (
    OBSERVING,
    Bind,
    ClaimAllocation,
    Disrupt,
    Evict,
    Launch,
    Outcome,
    Ref,
    Refused,
    Return,
    Scale,
    Stale,
    Wait,
)
from tonnage.live.cutting import NodeWrite
from tonnage.objects import karpenter
from tonnage.partitioning.node_layouts import Order


class Unsure(Stale, frozen=True, tag="Stale"):
    """It may have been done: the answer was lost, and nobody can be asked now."""


Ends: TypeAlias = Callable[[Outcome | Callable[[], Outcome]], None]
"""Told what became of a decision; or a call, which may wait, that finds out."""


class Effects(Protocol):
    """What decisions do. Every method says what became of the decision and raises nothing for a server's no.

    ``makes_claims``: nodes are launched as NodeClaims."""

    makes_claims: bool

    def bind(self, decision: Bind) -> Outcome: ...
    def submit_bind(self, decision: Bind, may: Callable[[], bool], done: Ends) -> bool: ...
    def take_claim(self, claim: Ref, volume: Ref | None, node: str) -> Outcome: ...
    def reserve(self, pod: Ref, claim: Ref, given: ClaimAllocation | None) -> Outcome: ...
    def release(self, pod: Ref, claim: Ref, given: ClaimAllocation | None) -> Outcome: ...
    def scale(self, decision: Scale) -> Outcome: ...
    def launch(self, decision: Launch, pool: karpenter.NodePool | None) -> Outcome: ...
    def disrupt(self, decision: Disrupt) -> Outcome: ...
    def give_back(self, decision: Return) -> Outcome: ...
    def keep(self, node: Ref) -> Outcome: ...
    def marked(self, decision: Scale) -> bool | None: ...
    def bound(self, decision: Bind) -> bool | None: ...
    def claimed(self, decision: Launch) -> bool | None: ...
    def evicted(self, decision: Evict) -> bool | None: ...
    def evict(self, decision: Evict) -> Outcome: ...
    def unschedulable(self, decision: Wait) -> Outcome: ...
    def cut(self, node: Ref, wanted: NodeWrite) -> Outcome: ...
    def ordered(self, node: Ref, order: Order) -> bool | None: ...


class NoNodes:
    """Nodes are neither launched nor terminated. ``WHY``: what is said instead."""

    WHY = Refused("nodes are only reported", OBSERVING)

    def launch(self, decision: Launch, pool: karpenter.NodePool | None) -> Outcome:
        return self.WHY

    def disrupt(self, decision: Disrupt) -> Outcome:
        return self.WHY

    def give_back(self, decision: Return) -> Outcome:
        return self.WHY

    def keep(self, node: Ref) -> Outcome:
        return self.WHY


class Observing(NoNodes):
    """Does nothing at all: what would have been done is known from the decisions."""

    WHY = Refused("observe mode writes nothing", OBSERVING)
    makes_claims = False

    def bind(self, decision: Bind) -> Outcome:
        return self.WHY

    def submit_bind(self, decision: Bind, may: Callable[[], bool], done: Ends) -> bool:
        return False

    def take_claim(self, claim: Ref, volume: Ref | None, node: str) -> Outcome:
        return self.WHY

    def reserve(self, pod: Ref, claim: Ref, given: ClaimAllocation | None) -> Outcome:
        return self.WHY

    def release(self, pod: Ref, claim: Ref, given: ClaimAllocation | None) -> Outcome:
        return self.WHY

    def scale(self, decision: Scale) -> Outcome:
        return self.WHY

    def bound(self, decision: Bind) -> bool | None:
        return None

    def claimed(self, decision: Launch) -> bool | None:
        return None

    def marked(self, decision: Scale) -> bool | None:
        return None

    def evicted(self, decision: Evict) -> bool | None:
        return None

    def evict(self, decision: Evict) -> Outcome:
        return self.WHY

    def unschedulable(self, decision: Wait) -> Outcome:
        return self.WHY

    def cut(self, node: Ref, wanted: NodeWrite) -> Outcome:
        return self.WHY

    def ordered(self, node: Ref, order: Order) -> bool | None:
        return None
