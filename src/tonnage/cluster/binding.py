"""Binding pods: each is taken to stand on its node while the call is under way, and not any more when that has failed.

The pods of a gang are bound together: all of them are checked and assumed before the first call is made, and none is
bound when one cannot be. When a call has failed, the gang's other calls are not made any more; the scheduler's next
tick completes the gang, or lets go of it (:mod:`tonnage.scheduling.gangs.release`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from tonnage import gate
from tonnage.cluster.clock import Clock
from tonnage.cluster.doubts import LATE_NS, SOON_NS, Doubts
from tonnage.cluster.effects import Effects, Observing, Unsure
from tonnage.cluster.feed import FleetFeed
from tonnage.cluster.observed import Observed
from tonnage.cluster.recording import Recorder
from tonnage.decisions import Applied, Bind, Outcome, Ref, Stale
from tonnage.fleet.state import Conflict
from tonnage.units import NS_PER_S

FIRST_RETRY_NS, LONGEST_RETRY_NS = NS_PER_S, 10 * NS_PER_S
"""A pod that could not be bound is tried again after the first, then after twice as long, at most after the second.

Source: kubernetes/kubernetes pkg/scheduler/apis/config/v1/defaults.go (podInitialBackoffSeconds, podMaxBackoffSeconds).
"""


class Left(Stale, frozen=True, tag="Stale"):
    """It was not tried, as the gang could not be bound."""


@dataclass(slots=True)
class _Together:
    """The calls for one gang. ``failed``: the first pod that could not be bound; the calls of threads meet here."""

    gang: str
    failed: str = ""


class Binder:
    """The Binds of a world. Everything runs on its thread but for the calls of one batch, which overlap in ``pool``."""

    def __init__(
        self,
        state: Observed,
        feed: FleetFeed,
        effects: Effects,
        clock: Clock,
        recorder: Recorder,
        doubts: Doubts,
        pool: ThreadPoolExecutor | None,
    ) -> None:
        self._state = state
        self._feed, self._fleet = feed, feed.fleet
        self._effects, self._clock, self._recorder = effects, clock, recorder
        self._doubts, self._pool = doubts, pool
        self.tries: dict[str, int] = {}
        """Uid of a pod → how often it could not be bound."""
        self._retries: set[int] = set()  # when such pods are tried again

    def due(self) -> bool:
        """Whether pods are to be tried again now; says so once."""
        now = self._clock.now_ns()
        later = {at for at in self._retries if at > now}
        found, self._retries = len(later) < len(self._retries), later
        return found

    def bind(self, batch: Sequence[Bind]) -> list[Outcome]:
        """Bind these; what became of each, in their order."""
        refused = self._assume_all(batch)
        calls = self._calls(batch, refused)
        results = {number: self._pool.submit(call).result for number, call in calls} if self._pool else dict(calls)
        outcomes: list[Outcome] = list(refused)  # type: ignore[arg-type]
        raised: list[Exception] = []
        for number, result in results.items():
            outcomes[number] = self._finish(batch[number], self._result(batch[number], result, raised))
        if raised:  # nobody is left assumed; the fault is told
            raise raised[0]
        return outcomes

    def _result(self, decision: Bind, result: Callable[[], Outcome], raised: list[Exception]) -> Outcome:
        """What became of the call. One that raised may have worked; without a pool, none is made after it."""
        if raised and self._pool is None:
            return Left(f"{decision.pod}: not tried after a fault")
        try:
            return result()
        except Exception as error:  # raised again when all are seen to
            raised.append(error)
            return Unsure(f"{decision.pod}: {error}")

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
                found[number] = Left(f"gang {self._gang_of(decision)} is bound whole or not at all: {why}")
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
            fleet.bind(fleet.pod_by_key[key], node, decision.devices)
        except Conflict as conflict:
            return Stale(str(conflict))
        fleet.note(node, last_pod_event_ns=self._clock.now_ns())
        self._feed.assumed.add(key)
        return None

    # ---- the calls ----

    def _calls(
        self, batch: Sequence[Bind], refused: Sequence[Stale | None]
    ) -> Iterator[tuple[int, Callable[[], Outcome]]]:
        """The calls to be made, by number in the batch. Of a gang, pods that could not be bound before are first: when
        they still cannot, nobody else is bound."""
        together: dict[str, _Together] = {}
        first: dict[str, list[int]] = {}
        for number, decision in enumerate(batch):
            if refused[number] is None:
                gang = self._gang_of(decision)
                first.setdefault(gang or decision.pod.uid, []).append(number)
                if gang:
                    together.setdefault(gang, _Together(gang))
        for gang, numbers in first.items():
            for number in sorted(numbers, key=lambda number: batch[number].pod.uid not in self.tries):
                one = batch[number]
                claims = self._state.claims_of(one.pod, one.node.name)
                yield number, partial(self._call, one, claims, together.get(gang))

    def _call(self, decision: Bind, claims: Sequence[tuple[Ref, Ref | None]], together: _Together | None) -> Outcome:
        """Runs in any thread."""
        if together is not None and together.failed:
            return Left(f"gang {together.gang} is bound whole or not at all: {together.failed}")
        try:
            outcome = self._take(decision, claims)
        except Exception as error:
            if together is not None:
                together.failed = f"{decision.pod}: {error}"
            raise
        if together is not None and not isinstance(outcome, Applied) and outcome is not Observing.WHY:
            together.failed = outcome.changed if isinstance(outcome, Stale) else outcome.why
        return outcome

    def _take(self, decision: Bind, claims: Sequence[tuple[Ref, Ref | None]]) -> Outcome:
        """First the claims that wait for the pod, then the pod."""
        for claim, volume in claims:
            outcome = self._effects.take_claim(claim, volume, decision.node.name)
            if not isinstance(outcome, Applied):
                return outcome
        return self._effects.bind(decision)

    # ---- after the calls ----

    def _finish(self, decision: Bind, outcome: Outcome) -> Outcome:
        """Write the event of a binding, or take the assumption back; it stands for as long as nobody knows."""
        if isinstance(outcome, Applied):
            self._state.settled(f"{decision.pod.namespace}/{decision.pod.name}")
            message = f"Successfully assigned {decision.pod.namespace}/{decision.pod.name} to {decision.node.name}"
            receipt = decision.reason.text()
            self._recorder.event(decision.pod, "Normal", "Scheduled", f"{message}: {receipt}")
            self._doubt(decision, LATE_NS)
            return outcome
        if isinstance(outcome, Unsure):
            self._doubt(decision, SOON_NS)
            return Stale(outcome.changed)
        if isinstance(outcome, Left):
            if self._take_back(decision):  # who was in its way may be seen bound, which wakes nobody
                self._retries.add(self._clock.now_ns() + FIRST_RETRY_NS)
            return Stale(outcome.changed)
        self._not_bound(decision)
        return outcome

    def _doubt(self, decision: Bind, pause_ns: int) -> None:
        about = ("pod", decision.pod.uid)
        look, gone = lambda: self._effects.bound(decision), lambda: self._not_bound(decision)
        self._doubts.add(about, look, gone, pause_ns=pause_ns)

    def _not_bound(self, decision: Bind) -> None:
        """The pod is pending after all, and tried again a while later."""
        if self._take_back(decision):
            tries = self.tries[decision.pod.uid] = self.tries.get(decision.pod.uid, 0) + 1
            self._retries.add(self._clock.now_ns() + min(FIRST_RETRY_NS << min(tries - 1, 10), LONGEST_RETRY_NS))

    def _take_back(self, decision: Bind) -> bool:
        """The pod is pending after all; whether it was assumed not to be."""
        key = (decision.pod.namespace, decision.pod.name)
        row = self._fleet.pod_by_key.get(key)
        if row is None or self._fleet.pod(row).spec.uid != decision.pod.uid or key not in self._feed.assumed:
            return False
        self._feed.assumed.discard(key)
        self._fleet.unbind(row)
        return True
