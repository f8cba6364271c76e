"""World 2: a Kubernetes API. Snapshots come from informers, decisions become API calls guarded by uid and version.

An :class:`Effects` turns one decision into calls; :class:`ClusterWorld` is the port on top: it keeps the fleet and the
views current, and checks every decision again. Everything here runs on the thread of its owner, but for the binding
calls of one batch (:mod:`tonnage.live.binding`), which overlap, and what is reported of pending pods
(:mod:`tonnage.live.aside`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby

from tonnage import gate
from tonnage.control.nodes import Pools
from tonnage.control.scheduler import WAITS
from tonnage.decisions import (
    SOLD_OUT,
    Applied,
    Bind,
    Decision,
    Disrupt,
    Evict,
    Keep,
    Launch,
    Outcome,
    Ref,
    Refused,
    Relayout,
    Return,
    Scale,
    Stale,
    Wait,
)
from tonnage.errors import InputError
from tonnage.fleet.snapshot import ClaimView, Snapshot
from tonnage.kube.clock import Clock
from tonnage.live.aside import Aside
from tonnage.live.binding import Binder
from tonnage.live.binding_calls import FIRST_RETRY_NS
from tonnage.live.cutting import Cutter
from tonnage.live.doubts import LATE_NS, Doubts
from tonnage.live.effects import Effects, Observing, Unsure
from tonnage.live.evicting import Evictor
from tonnage.live.feed import Changes, Price, karpenter_pool
from tonnage.live.groups import Groups
from tonnage.live.observed import Observed
from tonnage.live.recording import EventSink
from tonnage.live.relayouts import Relayouts
from tonnage.live.waits import Waits
from tonnage.metrics.promql import Result
from tonnage.objects import core, karpenter

WRITERS = 2
"""Threads that write why pods wait."""
CLASSES_KEPT = 10_000
"""Every Job's pods are a class of their own, by their labels: those that are gone are forgotten now and then."""

Measure = Callable[[str, int], Result]
"""A PromQL instant query at a time in the world's nanoseconds."""


def no_metrics(query: str, at_ns: int) -> Result:
    """There is no Prometheus."""
    raise InputError.at(f"no Prometheus to ask {query!r}", hint="give its address with --prometheus URL")


class ClusterWorld:
    """Implements :class:`tonnage.control.world.World` over a Kubernetes API.

    ``in_flight``: nodes on their way that no NodeClaim stands for; ``pool_of``: where a node comes from; ``cutter``:
    who partitions GPUs.
    """

    def __init__(
        self,
        effects: Effects,
        clock: Clock,
        *,
        price: Price,
        recorder: EventSink,
        measure: Measure = no_metrics,
        parallel: int = 1,
        in_flight: Callable[[], tuple[ClaimView, ...]] = tuple,
        pool_of: Callable[[core.Node], str] = karpenter_pool,
        cutter: Cutter | None = None,
    ) -> None:
        self.changes = Changes(set())
        self.groups = Groups(clock, self.changes)
        self.state = Observed(
            clock,
            self.groups,
            price=price,
            changes=self.changes,
            in_flight=in_flight,
            pool_of=pool_of,
            cutter=cutter,
        )
        self.fleet, self.feed, self.claims = self.state.fleet, self.state.feed, self.state.node_claims
        self.workloads = self.state.deployments
        self.groups.renew = self.feed.renew
        self._clock = clock
        self._effects = effects
        self._recorder = recorder
        self._measure = measure
        self.aside = Aside(WRITERS if parallel > 1 and not isinstance(effects, Observing) else 0)
        self._doubts = Doubts(clock)
        self.waits = Waits(effects, clock, recorder, self.aside, self._is_pending)
        self.binder = Binder(
            self.state, self.feed, effects, clock, recorder, self._doubts, parallel, self.aside, self.waits
        )
        self.evictor = Evictor(effects, clock)
        self._relayouts = Relayouts(self.state, effects, clock, recorder, self._doubts, self.changes)

    # ---- what informers report ----

    def see_pod(self, old: core.Pod | None, new: core.Pod | None) -> None:
        """A pod was added, changed or deleted."""
        self.state.see_pod(old, new)
        if new is None or new.spec.node_name:
            self._forget_pod((new or old).metadata.uid)  # type: ignore[union-attr]
        if old is not None and (new is None or old.metadata.uid != new.metadata.uid):
            self._forget_pod(old.metadata.uid)
            self.evictor.forget(old.metadata.uid)
            self._doubts.settle(("eviction", old.metadata.uid))
        elif new is not None and new.metadata.deletion_timestamp:
            self._doubts.settle(("eviction", new.metadata.uid))
        if new is not None and _waits(new) and (old is None or not _waits(old)):
            self.changes.kinds.add(WAITS)  # whichever process has the scheduler

    def see_claim(self, old: karpenter.NodeClaim | None, new: karpenter.NodeClaim | None) -> None:
        """A NodeClaim was added, changed or deleted."""
        self.state.see_claim(old, new)
        self._doubts.settle(("claim", (new or old).name))  # type: ignore[union-attr]

    def _forget_pod(self, uid: str) -> None:
        self.waits.forget(uid)
        self.binder.forget(uid)
        self._doubts.settle(("pod", uid))

    def restored(self) -> None:
        """The API has another history than before: what was asked of it and not seen yet may never have been."""
        self._doubts.hasten()

    def pools(self) -> Pools:
        """NodePools, and what else planning needs of the cluster."""
        return self.state.pools()

    def node_pools(self) -> list[karpenter.NodePool]:
        """Every NodePool that there is, by name, those without their class too."""
        return self.state.node_pools()

    # ---- World ----

    def now(self) -> int:
        """Nanoseconds on the world's clock."""
        return self._clock.now_ns()

    def snapshot(self) -> Snapshot:
        """The cluster as informers have reported it."""
        if len(self.fleet.classes.rows) > CLASSES_KEPT + 4 * len(self.fleet.pod_by_key):
            self.fleet.forget_classes()
        self.groups.settle()
        return replace(self.state.snapshot(self._clock.now_ns()), backing_off=self.binder.backing_off)

    def degraded(self) -> dict[str, str]:
        """What of its writing does not work, by name, for ``/readyz``. Callable from any thread."""
        found = {"scheduler (bindings)": self.binder.problem, "scheduler (status of pods)": self.aside.problem}
        return {name: why for name, why in found.items() if why}

    def measure(self, query: str, at_ns: int) -> Result:
        """A PromQL instant query. Raises InputError without an answer."""
        return self._measure(query, at_ns)

    def note(self, about: Ref, reason: str, message: str, *, warning: bool = True) -> None:
        """An event of the cluster."""
        self._recorder.event(about, "Warning" if warning else "Normal", reason, message)

    def woken(self) -> frozenset[str]:
        """What has changed since the last call, and what is to be tried again."""
        self._doubts.look()
        self._relayouts.look()
        for about, why in self.state.configurations.complaints():
            self.note(about, "InvalidConfiguration", why)
        self.groups.settle()
        if self.binder.due() | self.evictor.due():
            self.changes.kinds.add("pod")
        return self.changes.take()

    def apply(self, decision: Decision) -> Outcome:
        """Check again what can be checked here, then call the API, which checks the rest."""
        if isinstance(decision, Bind):
            return self.binder.bind([decision])[0]
        overtaken = gate.check(self.state, decision)
        if overtaken is not None:
            return self._overtaken(decision, overtaken)
        match decision:
            case Scale():
                return self._scale(decision)
            case Launch():
                return self._launch(decision)
            case Disrupt():
                return self._disrupt(decision)
            case Keep():
                return self._keep(decision)
            case Return():
                return self._return(decision)
            case Evict():
                return self._evict(decision)
            case Relayout():
                return self._relayouts.apply(decision)
            case Wait():
                return self._wait(decision)

    def apply_all(self, decisions: Sequence[Decision]) -> list[Outcome]:
        """In order; Binds that follow each other are applied together, so that of each gang all are or none."""
        outcomes: list[Outcome] = []
        for binds, group in groupby(decisions, lambda decision: isinstance(decision, Bind)):
            if binds:
                outcomes += self.binder.bind([one for one in group if isinstance(one, Bind)])
            else:
                outcomes += [self.apply(one) for one in group]
        return outcomes

    def close(self) -> None:
        """Wait for the calls that are under way."""
        self.binder.close()
        self.aside.close()

    def _scale(self, decision: Scale) -> Outcome:
        outcome = self._effects.scale(decision)
        if isinstance(outcome, Applied):
            message = f"Scaled from {decision.current} to {decision.replicas}: {decision.reason.text()}"
            self._recorder.event(decision.target, "Normal", "ScalingReplicaSet", message)
        if isinstance(outcome, Applied | Unsure) and decision.remove:
            about = ("marks", str(decision.target))
            self._doubts.add(about, lambda: self._effects.marked(decision), lambda: None, pause_ns=LATE_NS)
        return Stale(outcome.changed) if isinstance(outcome, Unsure) else outcome

    def _launch(self, decision: Launch) -> Outcome:
        outcome = self._effects.launch(decision, self.state.node_pool(decision.node_pool))
        if isinstance(outcome, Applied | Unsure) and self._effects.makes_claims:
            self._assume_claim(decision, sure=isinstance(outcome, Applied))
        if isinstance(outcome, Unsure):
            return Stale(outcome.changed)
        if isinstance(outcome, Refused) and outcome.code == SOLD_OUT:
            self.claims.refused(decision)
        return outcome

    def _assume_claim(self, decision: Launch, *, sure: bool) -> None:
        """The node counts as on its way before a watch shows its NodeClaim: nobody launches it twice."""
        name = decision.claim.name
        self.claims.assume(decision)
        self._doubts.add(
            ("claim", name),
            lambda: self._effects.claimed(decision),
            lambda: self.claims.forget(name),
            pause_ns=LATE_NS if sure else FIRST_RETRY_NS,
        )

    def _disrupt(self, decision: Disrupt) -> Outcome:
        outcome = self._effects.disrupt(decision)
        if isinstance(outcome, Applied):
            self._recorder.event(decision.node, "Normal", "DisruptionLaunching", decision.reason.text())
        return outcome

    def _keep(self, decision: Keep) -> Outcome:
        """Nothing but what was begun here is taken back."""
        row = self.fleet.node_by_name[decision.node.name]
        if not self.fleet.node(row).unfinished:
            return Stale(f"node {decision.node.name} is not being disrupted by Tonnage")
        self._effects.keep(decision.node)
        self._recorder.event(decision.node, "Warning", "DisruptionFailed", decision.reason.verdict)
        return Applied()

    def _return(self, decision: Return) -> Outcome:
        outcome = self._effects.give_back(decision)
        if isinstance(outcome, Applied):
            self._recorder.event(decision.node, "Normal", "DisruptionTerminating", decision.reason.verdict)
        return outcome

    def _overtaken(self, decision: Decision, why: Stale | Refused) -> Outcome:
        """A return that was begun and no longer holds is taken back."""
        row = self.fleet.node_by_name.get(decision.target.name) if isinstance(decision, Return) else None
        if row is not None and self.fleet.node(row).unfinished:
            return self._effects.keep(decision.target)
        return why

    def _evict(self, decision: Evict) -> Outcome:
        outcome = self.evictor.evict(decision)
        if isinstance(outcome, Applied | Unsure):
            self._assume_leaving(decision, sure=isinstance(outcome, Applied))
        return Stale(outcome.changed) if isinstance(outcome, Unsure) else outcome

    def _assume_leaving(self, decision: Evict, *, sure: bool) -> None:
        """The pod leaves before a watch shows it: nobody else is evicted for the same room."""
        self.state.leaves(decision)
        pod = decision.pod
        self._doubts.add(
            ("eviction", pod.uid),
            lambda: self._effects.evicted(decision),
            lambda: self._stays(pod),
            pause_ns=LATE_NS if sure else FIRST_RETRY_NS,
        )

    def _stays(self, pod: Ref) -> None:
        self.state.pod_lives.assume_staying(f"{pod.namespace}/{pod.name}", pod.uid)
        self.changes.kinds.add("pod")

    def _wait(self, decision: Wait) -> Outcome:
        """Say it once for each kind of reason, not at every tick: why it waits, and where room is made for it."""
        self.state.let_wait(decision)
        for one in decision.releases:
            self._effects.release(decision.pod, one.claim, one)
        return self.waits.tell(decision)

    def _is_pending(self, decision: Wait) -> bool:
        row = self.fleet.pod_by_key.get((decision.pod.namespace, decision.pod.name))
        return row is not None and self.fleet.pod(row).spec.uid == decision.pod.uid


def _waits(pod: core.Pod) -> bool:
    """Whether a scheduler has said that the pod is unschedulable."""
    return not pod.spec.node_name and any(
        c.type == "PodScheduled" and c.status == "False" and c.reason == "Unschedulable" for c in pod.status.conditions
    )
