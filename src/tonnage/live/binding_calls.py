"""The calls that bind the pods of one batch: which are made, how many at once, and which are in vain.

A call for whose answer nobody need wait is handed to the transport; others are made by threads that wait. Both keep
the same rules: no call for a gang after one of its calls has failed, none in a namespace where the right to bind is
missing, and none while too many pods have been bound whose events are not written.
"""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TypeAlias

from tonnage.decisions import Applied, Bind, ClaimAllocation, Outcome, Ref, Refused, Stale
from tonnage.kube.clock import Clock
from tonnage.kube.transport import ClientError
from tonnage.live.effects import Effects, Observing, Unsure
from tonnage.live.waits import Waits
from tonnage.units import NS_PER_S

FIRST_RETRY_NS, LONGEST_RETRY_NS = NS_PER_S, 10 * NS_PER_S
"""A pod that could not be bound is tried again after the first, then after twice as long, at most after the second.

Source: kubernetes/kubernetes pkg/scheduler/apis/config/v1/defaults.go (podInitialBackoffSeconds, podMaxBackoffSeconds).
"""
UNTOLD, LONGEST_AWAIT_S = 96, 1.0
"""No binding is made while this many have been whose events are not written, so that a crash loses few of them; unless
that has lasted for this long."""
MANY, GATHER_S = 32, 0.01
"""While this many calls are under way, what became of them is gathered for so long before it is seen to."""
FORBIDDEN = "Forbidden"
_CANNOT, _TO_BIND = re.compile(r"cannot \w+ resource"), '"pods/binding"'
"""What Kubernetes' RBAC says of a right that is missing, and the one without which no pod can be bound."""


Device: TypeAlias = tuple[Ref, ClaimAllocation | None]
"""A ResourceClaim, and what it is given."""


class Left(Stale, frozen=True, tag="Stale"):
    """It was not tried, as the gang could not be bound."""


@dataclass(slots=True)
class GangCalls:
    """The calls for one gang. ``failed``: the first pod that could not be bound; the calls of threads meet here."""

    gang: str
    failed: str = ""


@dataclass(slots=True)
class BindingCall:
    """A binding that is to be made. ``claims``: those that are bound with it, each with its volume; ``devices``: the
    ResourceClaims of its pod, each with what it is given, if it is. ``early``: what is to be said of it though it was
    not sent. ``untold``: it has one of the places of bindings whose events are to be written. ``reserved``: those of
    its ResourceClaims that are reserved by now."""

    number: int
    decision: Bind
    claims: Sequence[tuple[Ref, Ref | None]]
    together: GangCalls | None
    devices: Sequence[Device] = ()
    reserved: list[Device] = field(default_factory=list)
    early: Outcome | None = None
    untold: bool = False


Found: TypeAlias = tuple[int, Outcome | Exception]
"""What became of a call, by its number; or what it raised."""


@dataclass(frozen=True, slots=True)
class _Lack:
    """The right to bind is missing: what the API server says, and until when nobody tries."""

    why: str
    until_ns: int


class BindingCalls:
    """``parallel``: how many threads wait for answers at once; 1: the caller alone. Used by one thread."""

    def __init__(self, effects: Effects, clock: Clock, waits: Waits, parallel: int) -> None:
        self._effects, self._clock, self._waits = effects, clock, waits
        self._parallel = parallel
        self._pool = ThreadPoolExecutor(parallel, "bind") if parallel > 1 else None
        self._untold = threading.Semaphore(UNTOLD)
        self._full_since: float | None = None  # when there was no place left; and how many have gone without one since
        self._passed = 0
        self._to_tell: set[str] = set()  # the uids of pods that are bound and have one of these places
        self._lacks: dict[str, _Lack] = {}  # the right to bind that is missing, by namespace
        self._lacking: dict[str, int] = {}  # how often it was found missing since it last was there

    def lacks_until_ns(self, namespace: str) -> int | None:
        """Until when nobody tries in a namespace, as the right to bind is missing there."""
        lack = self._lacks.get(namespace)
        return lack.until_ns if lack is not None else None

    def told(self, uid: str) -> Callable[[], None] | None:
        """What is to be called when the event of this pod's binding has been written; None: nothing."""
        if uid not in self._to_tell:
            return None
        self._to_tell.discard(uid)
        return self._untold.release

    def close(self) -> None:
        """Wait for the calls that are under way."""
        if self._pool is not None:
            self._pool.shutdown()

    def make(self, calls: Iterable[BindingCall]) -> Iterator[Found]:
        """What became of each call, or what it raised, as they end; those that come first are begun before the last is
        known. Without threads, none is made after a fault."""
        if self._lacks:
            calls = deque(calls)
            yield from [self._make(call) for call in self._probes(calls)]
        if self._pool is None:
            raised = False
            for call in calls:
                number, outcome = (call.number, Left("not tried after a fault")) if raised else self._make(call)
                raised |= isinstance(outcome, Exception)
                yield number, outcome
            return
        done: SimpleQueue[Found] = SimpleQueue()
        waiting: deque[BindingCall] = deque()
        count = 0
        for call in calls:
            count += 1
            if not self._submit(call, done):
                waiting.append(call)
        for _ in range(min(len(waiting), self._parallel)):  # not a future for each call: a burst has thousands
            self._pool.submit(self._make_all, waiting, done)
        yield from _gathered(done, count)

    def _probes(self, calls: deque[BindingCall]) -> list[BindingCall]:
        """Of each namespace in which the right to bind was missing, the first call, once it is time to try again; the
        others follow where it works. Taken from the calls."""
        now, found = self._clock.now_ns(), []
        for namespace in [one for one, lack in self._lacks.items() if lack.until_ns <= now]:
            probe = next((one for one in calls if one.decision.pod.namespace == namespace), None)
            if probe is not None:
                calls.remove(probe)
                del self._lacks[namespace]
                found.append(probe)
        return found

    # ---- a thread that waits ----

    def _make(self, call: BindingCall) -> Found:
        """Runs in any thread."""
        try:
            return call.number, self._call(call)
        except Exception as error:  # seen to by who has asked for the call
            return call.number, error

    def _make_all(self, calls: deque[BindingCall], done: SimpleQueue[Found]) -> None:
        """Make calls until none is left. Runs in any thread."""
        while True:
            try:
                call = calls.popleft()
            except IndexError:
                return
            done.put(self._make(call))

    def _call(self, call: BindingCall) -> Outcome:
        """Runs in any thread."""
        if (early := call.early or self._in_vain(call)) is not None:
            self._release(call)
            return early
        self._waits.settle(call.decision.pod.uid)
        call.untold = self._untold.acquire(timeout=LONGEST_AWAIT_S)
        return self._ended(call, lambda: self._take(call))

    def reserve_all(self, calls: Sequence[BindingCall]) -> Stale | Refused | None:
        """Reserve the ResourceClaims of all of these, or of none; why not. Some at a time where there are threads."""
        made = [call for call in calls if call.devices]
        if self._pool is None:
            found = [self._reserve(call) for call in made]
        else:
            found = list(self._pool.map(self._reserve, made))
        wrong = next((one for one in found if one is not None), None)
        if wrong is not None:
            for call in made:
                self._release(call)
        return wrong

    def _reserve(self, call: BindingCall) -> Stale | Refused | None:
        """Reserve the ResourceClaims of the pod; why not. Runs in any thread."""
        for claim, given in call.devices:
            if any(claim == one for one, _ in call.reserved):
                continue
            outcome = self._effects.reserve(call.decision.pod, claim, given)
            if not isinstance(outcome, Applied):
                begun = given is not None and given.extended is not None
                if begun or isinstance(outcome, Unsure):
                    call.reserved.append((claim, given))
                return outcome
            call.reserved.append((claim, given))
        return None

    def _release(self, call: BindingCall) -> None:
        """Take back what was reserved: the last first. Runs in any thread. What cannot be taken back now is seen to by
        the next decision about the pod."""
        while call.reserved:
            claim, given = call.reserved.pop()
            self._effects.release(call.decision.pod, claim, given)

    def _take(self, call: BindingCall) -> Outcome:
        """First the claims that wait for the pod, then the pod. What fails takes back what was reserved for it."""
        outcome = self._reserve(call) or self._bind(call)
        if not isinstance(outcome, Applied | Unsure):
            self._release(call)
        return outcome

    def _bind(self, call: BindingCall) -> Outcome:
        for claim, volume in call.claims:
            outcome = self._effects.take_claim(claim, volume, call.decision.node.name)
            if not isinstance(outcome, Applied):
                return outcome
        return self._effects.bind(call.decision)

    # ---- nobody waits ----

    def _submit(self, call: BindingCall, done: SimpleQueue[Found]) -> bool:
        """Have it made, without a thread that waits for its answer; False where that is not possible."""
        if call.claims or call.devices or not self._waits.settled(call.decision.pod.uid):
            return False

        def may() -> bool:
            call.early = self._in_vain(call)
            if call.early is not None:
                raise ClientError("in vain")
            return self._may_go(call)

        def end(found: Outcome | Callable[[], Outcome]) -> None:
            if call.early is not None:
                done.put((call.number, call.early))
            elif not callable(found):
                done.put((call.number, self._ended(call, lambda: found)))
            elif self._pool is not None:
                self._pool.submit(find, found)

        def find(found: Callable[[], Outcome]) -> None:
            try:
                done.put((call.number, self._ended(call, found)))
            except Exception as error:  # seen to by who has asked for the call
                done.put((call.number, error))

        return self._effects.submit_bind(call.decision, may, end)

    def _may_go(self, call: BindingCall) -> bool:
        """Whether few enough events are to be written, or that has lasted for too long: then as many go as threads
        would that wait. In one thread."""
        call.untold = self._untold.acquire(blocking=False)
        now = time.monotonic()
        if call.untold or self._full_since is None:
            self._full_since, self._passed = None if call.untold else now, 0
        elif now - self._full_since >= LONGEST_AWAIT_S:
            self._passed += 1
            if self._passed >= self._parallel:
                self._full_since, self._passed = now, 0
            return True
        return call.untold

    # ---- both ----

    def _in_vain(self, call: BindingCall) -> Outcome | None:
        """What is to be said of the call where others have shown that it is in vain. In any thread."""
        if call.together is not None and call.together.failed:
            return Left(f"gang {call.together.gang} is bound all or nothing: {call.together.failed}")
        lack = self._lacks.get(call.decision.pod.namespace)
        return Refused(f"{call.decision.pod}: {lack.why}", FORBIDDEN) if lack is not None else None

    def _ended(self, call: BindingCall, find: Callable[[], Outcome]) -> Outcome:
        """Find out what became of the call, and note what concerns others. Runs in any thread."""
        outcome: Outcome | None = None
        try:
            outcome = find()
        except Exception as error:
            if call.together is not None:
                call.together.failed = f"{call.decision.pod}: {error}"
            raise
        finally:
            if call.untold and isinstance(outcome, Applied):
                self._to_tell.add(call.decision.pod.uid)
            elif call.untold:
                self._untold.release()
        self._note_right(call.decision.pod.namespace, outcome)
        if call.together is not None and not isinstance(outcome, Applied) and outcome is not Observing.WHY:
            call.together.failed = outcome.changed if isinstance(outcome, Stale) else outcome.why
        return outcome

    def _note_right(self, namespace: str, outcome: Outcome) -> None:
        """The right to bind is missing for all pods of a namespace: one of them tries for all. In any thread."""
        why = missing_right(outcome) if isinstance(outcome, Refused) else ""
        if isinstance(outcome, Applied):
            self._lacking.pop(namespace, None)
        elif _TO_BIND in why and namespace not in self._lacks:
            tries = self._lacking[namespace] = self._lacking.get(namespace, 0) + 1
            self._lacks[namespace] = _Lack(why, self._clock.now_ns() + pause_ns(tries))


def _gathered(done: SimpleQueue[Found], count: int) -> Iterator[Found]:
    """This many, as they come; of many, some at a time."""
    while count:
        found = [done.get()]
        if count >= MANY:
            time.sleep(GATHER_S)
        with suppress(Empty):
            while len(found) < count:
                found.append(done.get_nowait())
        count -= len(found)
        yield from found


def pause_ns(tries: int) -> int:
    """How long nobody tries what has failed this often."""
    return min(FIRST_RETRY_NS << min(tries - 1, 10), LONGEST_RETRY_NS)


def missing_right(outcome: Refused) -> str:
    """What Kubernetes' RBAC says of a right that is missing; empty where that is not why."""
    before, _, said = outcome.why.partition(" is forbidden: ")
    said = said or before.partition(": ")[2]
    return said if outcome.code == FORBIDDEN and _CANNOT.search(said) else ""
