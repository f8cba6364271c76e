"""Effects that ask before every call whether their controller still leads.

A tick can outlast the lead that it began under: a batch of bindings takes time, and a process may be stopped in the
middle of it. What is then still to be done is another's to decide. The transport asks again as the last thing before a
request goes out (:mod:`tonnage.kube.fence`): many threads bind at once, and each may be stopped on its way there.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from tonnage.decisions import Bind, ClaimAllocation, Disrupt, Evict, Launch, Outcome, Ref, Return, Scale, Stale, Wait
from tonnage.kube.fence import Fence, only_while
from tonnage.live.cutting import NodeWrite
from tonnage.live.effects import Effects, Ends
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
        return self._call("scheduler", lambda: self.inner.bind(decision))

    def submit_bind(self, decision: Bind, may: Callable[[], bool], done: Ends) -> bool:
        def end(found: Outcome | Callable[[], Outcome]) -> None:
            if fence.withheld:
                done(LOST)
            elif callable(found):
                done(lambda: self._found(found))
            else:
                done(found)

        with self._only_while_leading("scheduler") as fence:
            return self.inner.submit_bind(decision, may, end)

    def take_claim(self, claim: Ref, volume: Ref | None, node: str) -> Outcome:
        return self._call("scheduler", lambda: self.inner.take_claim(claim, volume, node))

    def reserve(self, pod: Ref, claim: Ref, given: ClaimAllocation | None) -> Outcome:
        return self._call("scheduler", lambda: self.inner.reserve(pod, claim, given))

    def release(self, pod: Ref, claim: Ref, given: ClaimAllocation | None) -> Outcome:
        return self._call("scheduler", lambda: self.inner.release(pod, claim, given))

    def unschedulable(self, decision: Wait) -> Outcome:
        return self._call("scheduler", lambda: self.inner.unschedulable(decision))

    def scale(self, decision: Scale) -> Outcome:
        return self._call("replicas", lambda: self.inner.scale(decision))

    def launch(self, decision: Launch, pool: karpenter.NodePool | None) -> Outcome:
        return self._call("nodes", lambda: self.inner.launch(decision, pool))

    def disrupt(self, decision: Disrupt) -> Outcome:
        return self._call("nodes", lambda: self.inner.disrupt(decision))

    def give_back(self, decision: Return) -> Outcome:
        return self._call("nodes", lambda: self.inner.give_back(decision))

    def keep(self, node: Ref) -> Outcome:
        return self._call("nodes", lambda: self.inner.keep(node))

    def evict(self, decision: Evict) -> Outcome:
        by = "nodes" if decision.drains else "scheduler"
        return self._call(by, lambda: self.inner.evict(decision))

    def cut(self, node: Ref, wanted: NodeWrite) -> Outcome:
        return self._call("scheduler", lambda: self.inner.cut(node, wanted))

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
        if not self._leads("replicas"):
            return False
        with self._only_while_leading("replicas") as fence:
            marked = self.inner.marked(decision)
        return False if fence.withheld else marked

    def _only_while_leading(self, controller: str) -> AbstractContextManager[Fence]:
        return only_while(lambda: self._leads(controller))

    def _found(self, find: Callable[[], Outcome]) -> Outcome:
        """What came of a call that has been begun: that is found out by whoever leads, as reading changes nothing."""
        with self._only_while_leading("scheduler") as fence:
            outcome = find()
        return LOST if fence.withheld else outcome

    def _call(self, controller: str, call: Callable[[], Outcome]) -> Outcome:
        """What came of it; LOST too where a request of it was not sent."""
        if not self._leads(controller):
            return LOST
        with self._only_while_leading(controller) as fence:
            outcome = call()
        return LOST if fence.withheld else outcome
