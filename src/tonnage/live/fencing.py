"""Effects that ask before every call whether their controller still leads.

A tick can outlast the lead that it began under: a batch of bindings takes time, and a process may be stopped in the
middle of it. What is then still to be done is another's to decide.
"""

from __future__ import annotations

from collections.abc import Callable

from tonnage.decisions import Bind, Evict, Launch, Outcome, Ref, Return, Scale, Stale, Wait
from tonnage.live.cutting import Wanted
from tonnage.live.effects import Effects
from tonnage.objects import karpenter
from tonnage.partitioning.node_layouts import Order

LOST = Stale("the lease was lost meanwhile")


class Fenced:
    """Implements :class:`Effects`. ``leads`` is told the name of a controller, and may be called in any thread."""

    def __init__(self, inner: Effects, leads: Callable[[str], bool]) -> None:
        self.inner = inner
        self.makes_claims = inner.makes_claims
        self._leads = leads

    def bind(self, decision: Bind) -> Outcome:
        return self.inner.bind(decision) if self._leads("scheduler") else LOST

    def take_claim(self, claim: Ref, volume: Ref | None, node: str) -> Outcome:
        return self.inner.take_claim(claim, volume, node) if self._leads("scheduler") else LOST

    def unschedulable(self, decision: Wait) -> Outcome:
        return self.inner.unschedulable(decision) if self._leads("scheduler") else LOST

    def scale(self, decision: Scale) -> Outcome:
        return self.inner.scale(decision) if self._leads("replicas") else LOST

    def launch(self, decision: Launch, pool: karpenter.NodePool | None) -> Outcome:
        return self.inner.launch(decision, pool) if self._leads("nodes") else LOST

    def give_back(self, decision: Return) -> Outcome:
        return self.inner.give_back(decision) if self._leads("nodes") else LOST

    def keep(self, node: Ref) -> Outcome:
        return self.inner.keep(node) if self._leads("nodes") else LOST

    def evict(self, decision: Evict) -> Outcome:
        return self.inner.evict(decision) if self._leads("scheduler") else LOST

    def cut(self, node: Ref, wanted: Wanted) -> Outcome:
        return self.inner.cut(node, wanted) if self._leads("scheduler") else LOST

    def ordered(self, node: Ref, order: Order) -> bool | None:
        """None too where another is to say what comes of it."""
        return self.inner.ordered(node, order) if self._leads("scheduler") else None

    def evicted(self, decision: Evict) -> bool | None:
        return self.inner.evicted(decision)

    def bound(self, decision: Bind) -> bool | None:
        return self.inner.bound(decision)

    def claimed(self, decision: Launch) -> bool | None:
        return self.inner.claimed(decision)

    def marked(self, decision: Scale) -> bool | None:
        """Takes marks off, so whoever leads now does that with its next decision."""
        return self.inner.marked(decision) if self._leads("replicas") else False
