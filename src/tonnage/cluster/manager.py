"""Runs controllers against a cluster: watches in, loops on their periods or when woken, decisions out.

One thread owns the world: it applies what the watches bring, runs the loops that are due and applies their decisions. A
controller acts only while it leads, and is asked again before each tick.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import Protocol

from tonnage.cluster.client.informer import Informer, Informers
from tonnage.cluster.client.leases import Elector
from tonnage.cluster.world import ClusterWorld
from tonnage.decisions import Applied, Decision, Outcome, Refused, Wait
from tonnage.loops import Loop, lets_wait, tick
from tonnage.units import NS_PER_S

LONGEST_WAIT_S = 0.5
"""So that a change of leader and the order to stop are heard."""
DEAD_S = 120.0
"""After so long without a step something hangs that no time-out ends."""
LONGEST_PAUSE_NS = 60 * NS_PER_S
REMEMBERED = 20_000
"""Decisions whose repetition is no news."""
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


@dataclass(slots=True)
class _Due:
    loop: Loop
    controller: Controller
    periodic_ns: int | None
    woken_ns: int | None = None

    def clamp(self, now_ns: int) -> None:
        """A clock that was set back must not stop the loop for as long."""
        longest = now_ns + max(self.loop.period_ns, self.loop.settle_ns, LONGEST_PAUSE_NS)
        if self.periodic_ns is not None and self.loop.period_ns:
            self.periodic_ns = min(self.periodic_ns, now_ns + self.loop.period_ns)
        if self.woken_ns is not None:
            self.woken_ns = min(self.woken_ns, longest)

    def at(self) -> int | None:
        times = [t for t in (self.periodic_ns, self.woken_ns) if t is not None]
        return min(times) if times else None


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
    ready: threading.Event = field(default_factory=threading.Event)
    failures: dict[str, str] = field(default_factory=dict)
    _due: list[_Due] = field(default_factory=list)
    _woken: set[str] = field(default_factory=set)
    _said: OrderedDict[tuple[str, str], str] = field(default_factory=OrderedDict)
    _led: dict[str, bool] = field(default_factory=dict)
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
        return found | self.failures

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
        now = self.world.now()
        for controller in self.controllers:
            for loop in controller.loops:
                self._due.append(_Due(loop, controller, now + loop.period_ns if loop.period_ns else None))

    def informed(self, controller: Controller) -> bool:
        """Whether all that it looks at has arrived."""
        if controller.needs is None:
            return all(informer.synced for informer in self.required)
        named, absent = self.informers.named(), self.informers.absent()
        return all(named[name].synced for name in named if _needs(controller, name, absent))

    def step(self) -> int:
        """Run the loops that are due; how many ran."""
        if not self.ready.is_set() and all(map(self.informed, self.controllers)):
            self.ready.set()
        self._stepped_at = time.monotonic()
        self._lead()
        self._wake()
        now, ran = self.world.now(), 0
        for due in self._due:
            due.clamp(now)
            at = due.at()
            if at is None or at > now:
                continue
            due.woken_ns = None
            if due.periodic_ns is not None and due.periodic_ns <= now:
                missed = (now - due.periodic_ns) // due.loop.period_ns
                due.periodic_ns += (missed + 1) * due.loop.period_ns
            if self._acts(due.controller):
                self._tick(due)
                ran += 1
        return ran

    def run_all(self) -> None:
        """Run every loop once, whether it is due or not."""
        for due in self._due:
            if self._acts(due.controller):
                self._tick(due)

    def wait_s(self) -> float:
        """Real seconds until a loop is due."""
        times = [at for due in self._due if (at := due.at()) is not None]
        if self._woken:
            return 0.0
        left = (min(times) - self.world.now()) / NS_PER_S / self.speed if times else LONGEST_WAIT_S
        return min(LONGEST_WAIT_S, max(0.0, left))

    def _acts(self, controller: Controller) -> bool:
        return controller.leads() and (self.ready.is_set() or self.informed(controller))

    def _lead(self) -> None:
        """A controller that has just come to act looks at everything."""
        for controller in self.controllers:
            leads = self._acts(controller)
            if leads and not self._led.get(controller.name, False):
                now = self.world.now()
                for due in self._due:
                    if due.controller is controller and due.loop.wakes_on:
                        due.woken_ns = now
            self._led[controller.name] = leads

    def _wake(self) -> None:
        try:
            woken: Set[str] = self._woken | self.world.woken()
        except Exception as error:  # looking after what is in doubt; the next step looks again
            self.observer.failed("world", error)
            woken = self._woken
        self._woken = set()
        if not woken:
            return
        now = self.world.now()
        for due in self._due:
            if due.woken_ns is None and not due.loop.wakes_on.isdisjoint(woken):
                due.woken_ns = now + due.loop.settle_ns

    def _tick(self, due: _Due) -> None:
        loop, begun = due.loop, time.perf_counter()
        try:
            taken = tick(loop, self.world)
        except Exception as error:  # a fault in one loop must not end the others
            self.failures[loop.name] = f"{type(error).__name__}: {error}"
            self.observer.failed(loop.name, error)
            due.woken_ns = self.world.now() + round(RETRY_S * self.speed) * NS_PER_S
            return
        self.failures.pop(loop.name, None)
        if lets_wait(taken):
            self._woken.add(loop.waits)
        self.observer.ticked(loop.name, time.perf_counter() - begun, len(taken))
        for decision, outcome in taken:
            self._say(due.controller.name, loop.name, decision, outcome)

    def _say(self, controller: str, loop: str, decision: Decision, outcome: Outcome) -> None:
        """Tell what is new: a pod that still waits for the same kinds of reason is no news, nor is a decision that is
        still not carried out for the same reason."""
        key = (loop, str(decision.target))
        if isinstance(outcome, Applied) and not isinstance(decision, Wait):
            self._said.pop(key, None)
        else:
            why = outcome.why if isinstance(outcome, Refused) else ""
            kinds = sorted(name for name, _ in decision.reason.evidence) if isinstance(decision, Wait) else ()
            text = f"{decision.summary()} {' '.join(kinds)} {why}"
            if self._said.get(key) == text:
                return
            self._said[key] = text
            self._said.move_to_end(key)
            if len(self._said) > REMEMBERED:
                self._said.popitem(last=False)
        self.observer.decided(controller, loop, decision, outcome)


def _needs(controller: Controller, name: str, absent: frozenset[str]) -> bool:
    """Whether the controller cannot do without this informer."""
    return name in (controller.needs or ()) or (name in controller.asks and name not in absent)
