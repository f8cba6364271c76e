"""Binding pods: each is taken to stand on its node while the call is under way, and not any more when that has failed.

The pods of a gang are bound together: all of them are checked and assumed before the first call is made, and none is
bound when one cannot be. When a call has failed, the gang's other calls are not made any more; the scheduler's next
tick completes the gang, or evicts it (:mod:`tonnage.scheduling.gangs.release`).
"""

from __future__ import annotations

import heapq
import re
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from queue import SimpleQueue

from tonnage import gate
from tonnage.decisions import BINDING, Applied, Bind, Outcome, Reason, Ref, Refused, Stale, Wait
from tonnage.fleet.state import Conflict
from tonnage.kube.clock import Clock
from tonnage.live.aside import Aside
from tonnage.live.doubts import LATE_NS, SOON_NS, Doubts
from tonnage.live.effects import Effects, Observing, Unsure
from tonnage.live.feed import FleetFeed
from tonnage.live.observed import Observed
from tonnage.live.recording import Recorder
from tonnage.live.waits import Waits
from tonnage.units import NS_PER_S

FIRST_RETRY_NS, LONGEST_RETRY_NS = NS_PER_S, 10 * NS_PER_S
"""A pod that could not be bound is tried again after the first, then after twice as long, at most after the second.

Source: kubernetes/kubernetes pkg/scheduler/apis/config/v1/defaults.go (podInitialBackoffSeconds, podMaxBackoffSeconds).
"""
UNTOLD, LONGEST_AWAIT_S = 96, 1.0
"""No binding is made while this many have been whose events are not written, so that a crash loses few of them; unless
that has lasted for this long."""
FORBIDDEN = "Forbidden"
OF_ONE_POD = frozenset({FORBIDDEN, "Invalid", "BadRequest"})
"""An API server's reasons that concern the object of the call: an admission plugin's or webhook's, say."""
_CANNOT, _TO_BIND = re.compile(r"cannot \w+ resource"), '"pods/binding"'
"""What Kubernetes' RBAC says of a right that is missing, and the one without which no pod can be bound."""


class Left(Stale, frozen=True, tag="Stale"):
    """It was not tried, as the gang could not be bound."""


@dataclass(slots=True)
class _Together:
    """The calls for one gang. ``failed``: the first pod that could not be bound; the calls of threads meet here."""

    gang: str
    failed: str = ""


@dataclass(frozen=True, slots=True)
class _Lack:
    """The right to bind is missing: what the API server says, and until when nobody tries."""

    why: str
    until_ns: int


class Binder:
    """The Binds of a world. Everything runs on its thread but for the calls of one batch, of which this many overlap as
    ``parallel`` says."""

    def __init__(
        self,
        state: Observed,
        feed: FleetFeed,
        effects: Effects,
        clock: Clock,
        recorder: Recorder,
        doubts: Doubts,
        parallel: int,
        aside: Aside,
        waits: Waits,
    ) -> None:
        self._state = state
        self._feed, self._fleet = feed, feed.fleet
        self._effects, self._clock, self._recorder = effects, clock, recorder
        self._doubts, self._aside, self._waits = doubts, aside, waits
        self._parallel = parallel
        self._pool = ThreadPoolExecutor(parallel, "bind") if parallel > 1 else None
        self.tries: dict[str, int] = {}
        """Uid of a pod → how often it could not be bound."""
        self.backing_off: dict[str, int] = {}
        """Uid of such a pod → until when nobody tries again, in ns."""
        self.problem = ""
        """Why pods cannot be bound, where that does not concern one of them; empty where they can. Readable
        anywhere."""
        self._untold = threading.Semaphore(UNTOLD)
        self._to_tell: set[str] = set()  # the uids of pods that are bound and have one of these places
        self._lacks: dict[str, _Lack] = {}  # the right to bind that is missing, by namespace
        self._lacking: dict[str, int] = {}  # how often it was found missing since it last was there
        self._refused: dict[str, str] = {}  # the same, by the uids of the pods
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
        refused = self._assume_all(batch)
        outcomes: list[Outcome] = list(refused)  # type: ignore[arg-type]
        raised: list[Exception] = []
        calls = deque(self._calls(batch, refused))
        first = [(number, _made(call)) for number, call in self._probes(batch, calls)]
        for number, found in chain(first, self._made(calls)):
            outcomes[number] = self._finish(batch[number], self._outcome(batch[number], found, raised))
        if raised:  # nobody is left assumed; the fault is told
            raise raised[0]
        return outcomes

    def _probes(
        self, batch: Sequence[Bind], calls: deque[tuple[int, Callable[[], Outcome]]]
    ) -> list[tuple[int, Callable[[], Outcome]]]:
        """Of each namespace in which the right to bind was missing, the first call, once it is time to try again; the
        others follow where it works. Taken from the calls."""
        now, found = self._clock.now_ns(), []
        for namespace in [one for one, lack in self._lacks.items() if lack.until_ns <= now]:
            probe = next((one for one in calls if batch[one[0]].pod.namespace == namespace), None)
            if probe is not None:
                calls.remove(probe)
                del self._lacks[namespace]
                found.append(probe)
        return found

    def _made(self, calls: deque[tuple[int, Callable[[], Outcome]]]) -> Iterator[tuple[int, Outcome | Exception]]:
        """What became of each call, or what it raised, as they end. Without a pool, none is made after a fault."""
        if self._pool is None:
            raised = False
            for number, call in calls:
                found = Left("not tried after a fault") if raised else _made(call)
                raised |= isinstance(found, Exception)
                yield number, found
            return
        done: SimpleQueue[tuple[int, Outcome | Exception]] = SimpleQueue()
        count = len(calls)
        for _ in range(min(count, self._parallel)):  # not a future for each call: a burst has thousands
            self._pool.submit(_make, calls, done)
        for _ in range(count):
            yield done.get()

    def _outcome(self, decision: Bind, found: Outcome | Exception, raised: list[Exception]) -> Outcome:
        """What became of the call. One that raised may have worked."""
        if not isinstance(found, Exception):
            return found
        raised.append(found)  # raised again when all are seen to
        return Unsure(f"{decision.pod}: {found}")

    def close(self) -> None:
        """Wait for the calls that are under way."""
        if self._pool is not None:
            self._pool.shutdown()

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
            return Left(f"gang {together.gang} is bound all or nothing: {together.failed}")
        lack = self._lacks.get(decision.pod.namespace)
        if lack is not None:
            return Refused(f"{decision.pod}: {lack.why}", FORBIDDEN)
        self._waits.settle(decision.pod.uid)
        untold = self._untold.acquire(timeout=LONGEST_AWAIT_S)
        outcome: Outcome | None = None
        try:
            outcome = self._take(decision, claims)
        except Exception as error:
            if together is not None:
                together.failed = f"{decision.pod}: {error}"
            raise
        finally:
            if untold and isinstance(outcome, Applied):
                self._to_tell.add(decision.pod.uid)
            elif untold:
                self._untold.release()
        self._note_right(decision.pod.namespace, outcome)
        if together is not None and not isinstance(outcome, Applied) and outcome is not Observing.WHY:
            together.failed = outcome.changed if isinstance(outcome, Stale) else outcome.why
        return outcome

    def _note_right(self, namespace: str, outcome: Outcome) -> None:
        """The right to bind is missing for all pods of a namespace: one of them tries for all. In any thread."""
        why = _right(outcome) if isinstance(outcome, Refused) else ""
        if isinstance(outcome, Applied):
            self._lacking.pop(namespace, None)
        elif _TO_BIND in why and namespace not in self._lacks:
            tries = self._lacking[namespace] = self._lacking.get(namespace, 0) + 1
            self._lacks[namespace] = _Lack(why, self._clock.now_ns() + _pause_ns(tries))

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
            self.forget(decision.pod.uid)
            self._state.settled(f"{decision.pod.namespace}/{decision.pod.name}")
            message = f"Successfully assigned {decision.pod.namespace}/{decision.pod.name} to {decision.node.name}"
            receipt = decision.reason.text()
            done = None
            if decision.pod.uid in self._to_tell:
                self._to_tell.discard(decision.pod.uid)
                done = self._untold.release
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
        right = _right(outcome)
        self._waits.tell(Wait(pod, Reason(f"it could not be bound: {right or why}"), BINDING))
        if outcome.code not in OF_ONE_POD or right:
            self._refused.pop(pod.uid, None)
            self._refused[pod.uid] = right or why
            self._sum_up()

    def _not_bound(self, decision: Bind) -> None:
        """The pod is pending after all, and tried again a while later."""
        if self._take_back(decision):
            tries = self.tries[decision.pod.uid] = self.tries.get(decision.pod.uid, 0) + 1
            lack = self._lacks.get(decision.pod.namespace)
            until = lack.until_ns if lack is not None else self._clock.now_ns() + _pause_ns(tries)
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


def _pause_ns(tries: int) -> int:
    return min(FIRST_RETRY_NS << min(tries - 1, 10), LONGEST_RETRY_NS)


def _right(outcome: Refused) -> str:
    """What Kubernetes' RBAC says of a right that is missing; empty where that is not why."""
    before, _, said = outcome.why.partition(" is forbidden: ")
    said = said or before.partition(": ")[2]
    return said if outcome.code == FORBIDDEN and _CANNOT.search(said) else ""


def _made(call: Callable[[], Outcome]) -> Outcome | Exception:
    try:
        return call()
    except Exception as error:  # seen to by who has asked for the call
        return error


def _make(calls: deque[tuple[int, Callable[[], Outcome]]], done: SimpleQueue[tuple[int, Outcome | Exception]]) -> None:
    """Make calls until none is left. Runs in any thread."""
    while True:
        try:
            number, call = calls.popleft()
        except IndexError:
            return
        done.put((number, _made(call)))
