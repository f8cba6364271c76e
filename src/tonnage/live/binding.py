"""Binding pods: each is taken to stand on its node while the call is under way, and not any more when that has failed.

The pods of a gang are bound together: all of them are checked and assumed before the first call is made, and none is
bound when one cannot be. When a call has failed, the gang's other calls are not made any more; the scheduler's next
tick completes the gang, or evicts it (:mod:`tonnage.scheduling.gangs.release`).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

from tonnage import gate
from tonnage.decisions import BINDING, Applied, Bind, Outcome, Reason, Refused, Stale, Wait
from tonnage.fleet.state import Conflict
from tonnage.kube.clock import Clock
from tonnage.live.aside import Aside
from tonnage.live.binding_calls import (
    FIRST_RETRY_NS,
    FORBIDDEN,
    BindingCall,
    BindingCalls,
    GangCalls,
    Left,
    missing_right,
    pause_ns,
)
from tonnage.live.doubts import LATE_NS, SOON_NS, Doubts
from tonnage.live.effects import Effects, Observing, Unsure
from tonnage.live.feed import FleetFeed
from tonnage.live.observed import Observed
from tonnage.live.recording import EventSink
from tonnage.live.waits import Waits

OF_ONE_POD = frozenset({FORBIDDEN, "Invalid", "BadRequest"})
"""An API server's reasons that concern the object of the call: an admission plugin's or webhook's, say."""


class Binder:
    """The Binds of a world. Everything runs on its thread but for the calls of one batch, of which this many overlap as
    ``parallel`` says."""

    def __init__(
        self,
        state: Observed,
        feed: FleetFeed,
        effects: Effects,
        clock: Clock,
        recorder: EventSink,
        doubts: Doubts,
        parallel: int,
        aside: Aside,
        waits: Waits,
    ) -> None:
        self._state = state
        self._feed, self._fleet = feed, feed.fleet
        self._effects, self._clock, self._recorder = effects, clock, recorder
        self._doubts, self._aside, self._waits = doubts, aside, waits
        self._calls = BindingCalls(effects, clock, waits, parallel)
        self.tries: dict[str, int] = {}
        """Uid of a pod → how often it could not be bound."""
        self.backing_off: dict[str, int] = {}
        """Uid of such a pod → until when nobody tries again, in ns."""
        self.problem = ""
        """Why pods cannot be bound, where that does not concern one of them; empty where they can. Readable
        anywhere."""
        self._refused: dict[str, str] = {}  # why pods could not be bound, by their uids
        self._retries: list[int] = []  # a heap: when such pods are tried again

    def due(self) -> bool:
        """Whether pods are to be tried again now; says so once."""
        now, found = self._clock.now_ns(), False
        while self._retries and self._retries[0] <= now:
            heapq.heappop(self._retries)
            found = True
        if found:
            for uid in [uid for uid, until in self.backing_off.items() if until <= now]:
                del self.backing_off[uid]
        return found

    def forget(self, uid: str) -> None:
        """The pod is bound or gone."""
        self.tries.pop(uid, None)
        self.backing_off.pop(uid, None)
        if self._refused.pop(uid, None) is not None:
            self._sum_up()

    def _sum_up(self) -> None:
        count, last = len(self._refused), next(reversed(self._refused.values()), "")
        self.problem = f"{count} {'pod' if count == 1 else 'pods'} could not be bound: {last}" if count else ""

    def bind(self, batch: Sequence[Bind]) -> list[Outcome]:
        """Bind these; what became of each, in their order."""
        with self._aside.bindings_first():
            return self._bind(batch)

    def _bind(self, batch: Sequence[Bind]) -> list[Outcome]:
        outcomes: list[Outcome | None] = [None] * len(batch)
        raised: list[Exception] = []
        calls = self._to_call(batch, outcomes, raised)
        for number, found in self._calls.make(calls):
            outcomes[number] = self._finish(batch[number], self._outcome(batch[number], found, raised))
        if raised:  # nobody is left assumed; the fault is told
            raise raised[0]
        return outcomes  # type: ignore[return-value]

    def _to_call(
        self, batch: Sequence[Bind], outcomes: list[Outcome | None], raised: list[Exception]
    ) -> Iterator[BindingCall]:
        """The calls to be made, each once its pod is assumed to stand; of those where that does not work, the outcome.
        All are assumed before the first call where there are gangs."""
        if any(map(self._gang_of, batch)):
            refused = self._assume_all(batch)
            outcomes[:] = refused
            yield from self._of_gangs(batch, refused)
            return
        for number, decision in enumerate(batch):
            try:
                outcomes[number] = self._assume(decision)
            except Exception as error:  # the calls that are under way are seen to; then it is told
                raised.append(error)
                return
            if outcomes[number] is None:
                yield self._call(number, decision, None)

    def _outcome(self, decision: Bind, found: Outcome | Exception, raised: list[Exception]) -> Outcome:
        """What became of the call. One that raised may have worked."""
        if not isinstance(found, Exception):
            return found
        raised.append(found)  # raised again when all are seen to
        return Unsure(f"{decision.pod}: {found}")

    def close(self) -> None:
        """Wait for the calls that are under way."""
        self._calls.close()

    # ---- before the calls ----

    def _assume_all(self, batch: Sequence[Bind]) -> list[Stale | None]:
        """Let the pods stand on their nodes before the API knows; why not, of those where that does not work."""
        found: list[Stale | None] = []
        failed: dict[str, str] = {}
        for decision in batch:
            refused = self._assume(decision)
            if refused is not None and (gang := self._gang_of(decision)):
                failed.setdefault(gang, refused.changed)
            found.append(refused)
        failed = self._incomplete(batch, found) | failed
        for number, decision in enumerate(batch if failed else ()):
            why = failed.get(self._gang_of(decision))
            if why is not None and found[number] is None:
                self._take_back(decision)
                found[number] = Left(f"gang {self._gang_of(decision)} is bound all or nothing: {why}")
        return found

    def _incomplete(self, batch: Sequence[Bind], refused: Sequence[Stale | None]) -> dict[str, str]:
        """The gangs that would not be whole, and why: some of their pods are not there any more."""
        gone = [
            why.changed
            for decision, why in zip(batch, refused, strict=True)
            if why is not None and not self._gang_of(decision)
        ]
        found: dict[str, str] = {}
        if not gone:
            return found
        snapshot = self._state.snapshot(self._clock.now_ns())
        for key in {self._gang_of(decision) for decision in batch} & snapshot.gangs.keys():
            pods = ((row, self._fleet.pod(row)) for row in self._fleet.gang_pods[key])
            standing = [row for row, pod in pods if pod.node >= 0 and not snapshot.leaves(pod.key)]
            if not snapshot.is_whole(key, standing):
                found[key] = gone[0]
        return found

    def _gang_of(self, decision: Bind) -> str:
        row = self._fleet.pod_by_key.get((decision.pod.namespace, decision.pod.name))
        return self._fleet.pod(row).spec.gang if row is not None else ""

    def _assume(self, decision: Bind) -> Stale | None:
        overtaken = gate.check(self._state, decision)
        if overtaken is not None:
            assert isinstance(overtaken, Stale)
            return overtaken
        key, fleet = (decision.pod.namespace, decision.pod.name), self._fleet
        node = fleet.node_by_name[decision.node.name]
        try:
            given = {(one.claim.namespace, one.claim.name): one.allocation for one in decision.claims}
            fleet.bind(fleet.pod_by_key[key], node, decision.devices, allocations=given)
        except Conflict as conflict:
            return Stale(str(conflict))
        fleet.note(node, last_pod_event_ns=self._clock.now_ns())
        self._feed.assumed.add(key)
        return None

    def _of_gangs(self, batch: Sequence[Bind], refused: Sequence[Stale | None]) -> Iterator[BindingCall]:
        """The calls to be made. Of a gang, pods that could not be bound before are first: when they still cannot,
        nobody else is bound."""
        together: dict[str, GangCalls] = {}
        first: dict[str, list[int]] = {}
        for number, decision in enumerate(batch):
            if refused[number] is None:
                gang = self._gang_of(decision)
                first.setdefault(gang or decision.pod.uid, []).append(number)
                if gang:
                    together.setdefault(gang, GangCalls(gang))
        for gang, numbers in first.items():
            calls: list[BindingCall] = []
            for number in sorted(numbers, key=lambda number: batch[number].pod.uid not in self.tries):
                one = batch[number]
                calls.append(self._call(number, one, together.get(gang)))
            yield from self._reserved(calls)

    def _call(self, number: int, decision: Bind, together: GangCalls | None) -> BindingCall:
        volumes = self._state.claims_of(decision.pod, decision.node.name)
        return BindingCall(number, decision, volumes, together, self._state.devices_of(decision))

    def _reserved(self, calls: Sequence[BindingCall]) -> Sequence[BindingCall]:
        """The calls for one gang once the ResourceClaims of all of its pods are reserved; where one cannot be, none is,
        and nothing is called but what says so."""
        if calls[0].together is not None and any(call.devices for call in calls):
            wrong = self._calls.reserve_all(calls)
            if wrong is not None and wrong is not Observing.WHY:
                calls[0].early = wrong
                calls[0].together.failed = wrong.changed if isinstance(wrong, Stale) else wrong.why
        return calls

    # ---- after the calls ----

    def _finish(self, decision: Bind, outcome: Outcome) -> Outcome:
        """Write the event of a binding, or take the assumption back; it stands for as long as nobody knows."""
        if isinstance(outcome, Applied):
            self.forget(decision.pod.uid)
            self._state.settled(f"{decision.pod.namespace}/{decision.pod.name}")
            message = f"Successfully assigned {decision.pod.namespace}/{decision.pod.name} to {decision.node.name}"
            receipt = decision.reason.text()
            done = self._calls.told(decision.pod.uid)
            self._recorder.event(decision.pod, "Normal", "Scheduled", f"{message}: {receipt}", done)
            self._doubt(decision, LATE_NS)
            return outcome
        if isinstance(outcome, Unsure):
            self._doubt(decision, SOON_NS)
            return Stale(outcome.changed)
        if isinstance(outcome, Left):
            if self._take_back(decision):  # who was in its way may be seen bound, which wakes nobody
                heapq.heappush(self._retries, self._clock.now_ns() + FIRST_RETRY_NS)
            return Stale(outcome.changed)
        self._not_bound(decision)
        if isinstance(outcome, Refused) and outcome is not Observing.WHY:
            self._say(decision, outcome)
        return outcome

    def _doubt(self, decision: Bind, pause_ns: int) -> None:
        about = ("pod", decision.pod.uid)
        look, gone = lambda: self._effects.bound(decision), lambda: self._not_bound(decision)
        self._doubts.add(about, look, gone, pause_ns=pause_ns)

    def _say(self, decision: Bind, outcome: Refused) -> None:
        """The pod has its place, and is not bound: say why, of the pod and where that does not concern this pod."""
        pod = decision.pod
        why = outcome.why.removeprefix(f"{pod}: ")
        right = missing_right(outcome)
        self._waits.tell(Wait(pod, Reason(f"it could not be bound: {right or why}"), BINDING))
        if outcome.code not in OF_ONE_POD or right:
            self._refused.pop(pod.uid, None)
            self._refused[pod.uid] = right or why
            self._sum_up()

    def _not_bound(self, decision: Bind) -> None:
        """The pod is pending after all, and tried again a while later."""
        if self._take_back(decision):
            tries = self.tries[decision.pod.uid] = self.tries.get(decision.pod.uid, 0) + 1
            until = self._calls.lacks_until_ns(decision.pod.namespace) or self._clock.now_ns() + pause_ns(tries)
            self.backing_off[decision.pod.uid] = until
            heapq.heappush(self._retries, until)

    def _take_back(self, decision: Bind) -> bool:
        """The pod is pending after all; whether it was assumed not to be."""
        key = (decision.pod.namespace, decision.pod.name)
        row = self._fleet.pod_by_key.get(key)
        if row is None or self._fleet.pod(row).spec.uid != decision.pod.uid or key not in self._feed.assumed:
            return False
        self._feed.assumed.discard(key)
        self._fleet.unbind(row)
        return True
