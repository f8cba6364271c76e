"""Runs controllers against a cluster: watches in, loops on their periods or when woken, decisions out.

One thread owns the world: it applies what the watches bring, runs the loops that are due and applies their decisions. A
controller acts only while it leads, and is asked again before each tick.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Protocol

from tonnage.control.loops import Appointment, Loop, Timetable, tick
from tonnage.decisions import OBSERVING, PROTECTED, Applied, Decision, Outcome, Refused, Wait
from tonnage.kube.informer import Informer, Informers
from tonnage.kube.leases import Elector
from tonnage.kube.restored import Restored
from tonnage.live.world import ClusterWorld
from tonnage.units import NS_PER_S

LONGEST_WAIT_S = 0.5
"""So that a change of leader and the order to stop are heard."""
DEAD_S = 120.0
"""After this long without a step something hangs that no time-out ends."""
LONGEST_PAUSE_NS = 60 * NS_PER_S
REMEMBERED = 20_000
"""Decisions whose repetition is no news."""
NO_NEWS = frozenset({OBSERVING, PROTECTED})
"""Refusals for which nobody was asked again, or that are as they should be: they count once."""
RETRY_S = 5.0
"""A loop that failed is run again after this long."""


@dataclass(frozen=True, slots=True)
class Controller:
    """Loops that are led together. Without an elector nobody else is expected to run them.

    ``needs``: the informers without whose first list it does nothing; ``asks``: those too, where the server knows the
    resource. Both by their names; None: all that the manager requires."""

    name: str
    loops: tuple[Loop, ...]
    elector: Elector | None = None
    needs: frozenset[str] | None = None
    asks: frozenset[str] = frozenset()

    def leads(self) -> bool:
        """Whether it may act now."""
        return self.elector is None or self.elector.leading()


def uncounted(loop: str, decision: Decision, outcome: Outcome) -> None:
    """Nobody counts."""


class Observer(Protocol):
    """Told of what is decided, once for as long as it stays the same."""

    def decided(self, controller: str, loop: str, decision: Decision, outcome: Outcome) -> None:
        """A decision, and what became of it."""
        ...

    def failed(self, loop: str, error: Exception) -> None:
        """A loop could not decide."""
        ...

    def ticked(self, loop: str, seconds: float, taken: int) -> None:
        """A loop has run."""
        ...


def _in_bounds(one: Appointment, now_ns: int) -> Appointment:
    """A clock that was set back must not stop a loop for as long."""
    longest = one.loop.period_ns if one.regular else max(one.loop.period_ns, one.loop.settle_ns, LONGEST_PAUSE_NS)
    return replace(one, at_ns=now_ns + longest) if one.at_ns > now_ns + longest else one


@dataclass(slots=True)
class Manager:
    """Runs until told to stop. ``speed``: seconds of the world's clock in a second. ``required``: informers without
    whose first list a controller that does not name its own decides nothing."""

    world: ClusterWorld
    informers: Informers
    required: Sequence[Informer[object]]  # type: ignore[type-var]
    controllers: Sequence[Controller]
    observer: Observer
    speed: float = 1.0
    count: Callable[[str, Decision, Outcome], None] = uncounted
    """Told of every decision that was tried, by loop: also of those that the observer is not told of again."""
    ready: threading.Event = field(default_factory=threading.Event)
    failures: dict[str, str] = field(default_factory=dict)
    _timetable: Timetable = field(default_factory=lambda: Timetable(()))
    _agenda: list[tuple[int, int, Appointment]] = field(default_factory=list)
    """A heap by time, and of one time by the order of making."""
    _made: int = 0
    _owners: dict[str, Controller] = field(default_factory=dict)
    """Loop → who runs it."""
    _said: OrderedDict[tuple[str, str], str] = field(default_factory=OrderedDict)
    _led: dict[str, bool] = field(default_factory=dict)
    _restored: Restored = field(default_factory=Restored)
    _stepped_at: float = field(default_factory=time.monotonic)

    def degraded(self) -> dict[str, str]:
        """What is not as it should be, by name, for ``/readyz``. Callable from any thread."""
        found: dict[str, str] = {}
        absent = self.informers.absent()
        for name, why in self.informers.problems().items():
            blind = [c.name for c in self.controllers if c.needs is not None and _needs(c, name, absent)]
            if blind:
                found[f"{', '.join(blind)} ({name})"] = why
            elif not self.controllers or any(c.needs is None for c in self.controllers):
                found[name] = why
        if not self.ready.is_set() and not found:
            found["start"] = "the first lists have not all arrived"
        for controller in self.controllers:
            if controller.elector is not None and controller.elector.problem:
                found[f"{controller.name} lease"] = controller.elector.problem
        return found | self._restored.problem() | self.failures

    def dead(self) -> dict[str, str]:
        """What has stopped, by name, for ``/healthz``. Callable from any thread."""
        silent_s = time.monotonic() - self._stepped_at
        return {"loops": f"nothing has run for {silent_s:.0f} s"} if silent_s > DEAD_S else {}

    def run(self, stop: threading.Event) -> None:
        """Watch and decide until ``stop`` is set."""
        while not stop.is_set() and self.controllers and not any(map(self.informed, self.controllers)):
            self.informers.pump(LONGEST_WAIT_S)
            self._stepped_at = time.monotonic()
        self.start()
        while not stop.is_set():
            self.step()
            self.informers.pump(self.wait_s())

    def start(self) -> None:
        """Schedule every loop."""
        self._owners = {loop.name: controller for controller in self.controllers for loop in controller.loops}
        self._timetable = Timetable([loop for controller in self.controllers for loop in controller.loops])
        self._make(self._timetable.begin(self.world.now()))

    def _make(self, appointments: Sequence[Appointment]) -> None:
        for one in appointments:
            heapq.heappush(self._agenda, (one.at_ns, self._made, one))
            self._made += 1

    def informed(self, controller: Controller) -> bool:
        """Whether all that it looks at has arrived."""
        if controller.needs is None:
            return all(informer.synced for informer in self.required)
        named, absent = self.informers.named(), self.informers.absent()
        return all(named[name].synced for name in named if _needs(controller, name, absent))

    def step(self, most: int | None = None) -> int:
        """Run the loops that are due, ``most`` of them if given; how many were."""
        if not self.ready.is_set() and all(map(self.informed, self.controllers)):
            self.ready.set()
        self._stepped_at = time.monotonic()
        self._restored.look(self.controllers, self.informers)
        now = self.world.now()
        self._lead(now)
        self._wake(now)
        due = 0
        for one in self._due(now, most):
            due += 1
            after = self._timetable.keep(one, now)
            self._make([after] if after is not None else [])
            if self._acts(self._owners[one.loop.name]):
                self._tick(one.loop)
        return due

    def _due(self, now_ns: int, most: int | None) -> list[Appointment]:
        """Those whose time has come, in order, taken from the agenda."""
        if self._agenda and _in_bounds(self._agenda[0][2], now_ns) is not self._agenda[0][2]:
            kept = [(number, _in_bounds(one, now_ns)) for _, number, one in self._agenda]
            self._agenda = sorted((one.at_ns, number, one) for number, one in kept)
        found: list[Appointment] = []
        while self._agenda and self._agenda[0][0] <= now_ns and (most is None or len(found) < most):
            found.append(heapq.heappop(self._agenda)[2])
        return found

    def run_all(self) -> None:
        """Run every loop once, whether it is due or not."""
        for loop in self._timetable.loops:
            if self._acts(self._owners[loop.name]):
                self._tick(loop)

    @property
    def next_ns(self) -> int | None:
        """When a loop is due, on the world's clock; None: when something changes."""
        return self._agenda[0][0] if self._agenda else None

    def wait_s(self) -> float:
        """Real seconds until a loop is due."""
        if self._timetable.calls:
            return 0.0
        next_ns = self.next_ns
        left = (next_ns - self.world.now()) / NS_PER_S / self.speed if next_ns is not None else LONGEST_WAIT_S
        return min(LONGEST_WAIT_S, max(0.0, left))

    def _acts(self, controller: Controller) -> bool:
        return controller.leads() and (self.ready.is_set() or self.informed(controller))

    def _lead(self, now_ns: int) -> None:
        """A controller that has just come to act looks at everything."""
        for controller in self.controllers:
            leads = self._acts(controller)
            if leads and not self._led.get(controller.name, False):
                for loop in controller.loops:
                    if loop.wakes_on:
                        self._make(self._timetable.call_at(loop, now_ns + loop.settle_ns))
            self._led[controller.name] = leads

    def _wake(self, now_ns: int) -> None:
        woken: Set[str] = frozenset()
        try:
            woken = self.world.woken()
        except Exception as error:  # looking after what is not certain; the next step looks again
            self.observer.failed("world", error)
        self._make(self._timetable.call(woken, now_ns))

    def _tick(self, loop: Loop) -> None:
        begun = time.perf_counter()
        try:
            taken = tick(loop, self.world)
        except Exception as error:  # a fault in one loop must not end the others
            self.failures[loop.name] = f"{type(error).__name__}: {error}"
            self.observer.failed(loop.name, error)
            self._make(self._timetable.call_at(loop, self.world.now() + round(RETRY_S * self.speed) * NS_PER_S))
            return
        self.failures.pop(loop.name, None)
        self._timetable.ticked(loop, taken)
        self.observer.ticked(loop.name, time.perf_counter() - begun, len(taken))
        for decision, outcome in taken:
            self._say(self._owners[loop.name].name, loop.name, decision, outcome)

    def _say(self, controller: str, loop: str, decision: Decision, outcome: Outcome) -> None:
        """Tell what is new: a pod that still waits for the same kind of reason is no news, nor is a decision that is
        still not carried out for the same reason. That is counted all the same, each time that it is tried."""
        key = (loop, str(decision.target))
        if isinstance(outcome, Applied) and not isinstance(decision, Wait):
            self._said.pop(key, None)
        else:
            why = outcome.why if isinstance(outcome, Refused) else ""
            kind = decision.reason.kind if isinstance(decision, Wait) else ""
            text = f"{decision.summary()} {kind} {why}"
            if self._said.get(key) == text:
                if not isinstance(decision, Wait) and not (isinstance(outcome, Refused) and outcome.code in NO_NEWS):
                    self.count(loop, decision, outcome)
                return
            self._said[key] = text
            self._said.move_to_end(key)
            if len(self._said) > REMEMBERED:
                self._said.popitem(last=False)
        self.count(loop, decision, outcome)
        self.observer.decided(controller, loop, decision, outcome)


def _needs(controller: Controller, name: str, absent: frozenset[str]) -> bool:
    """Whether the controller cannot do without this informer."""
    return name in (controller.needs or ()) or (name in controller.asks and name not in absent)
