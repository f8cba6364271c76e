"""Runs the loops of a cluster over its event queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tonnage.fleet.invariants import violations
from tonnage.loops import Loop, lets_wait, tick
from tonnage.simulation import pods
from tonnage.simulation.cluster import SimulatedCluster
from tonnage.simulation.events import Later
from tonnage.simulation.recorder import Recorder, SampleTick
from tonnage.simulation.scraping import Scraper
from tonnage.world import World

Observer = Callable[[SimulatedCluster, int], None]
"""Called after every event with the cluster and the end of the run."""


@dataclass(slots=True)
class Machine:
    """Runs the loops over the event queue, checking invariants when asked.

    ``world`` is what the loops see and act on: the cluster itself, or an API behind which its machines stand; then
    ``settle`` lets both sides take note of what the other has done, after every event and every tick.
    """

    cluster: SimulatedCluster
    recorder: Recorder
    check: bool
    world: World | None = None
    settle: Callable[[], None] = lambda: None
    steps: int = 0
    violations: list[str] = field(default_factory=list)
    _waiting: list[Loop] = field(default_factory=list)
    _pending: set[str] = field(default_factory=set)
    _woken: set[str] = field(default_factory=set)

    def start(self, loops: Sequence[Loop], scraper: Scraper) -> None:
        """Create the pods, then let everything happen that happens at time 0."""
        cluster = self.cluster
        for workload in cluster.workloads.values():
            pods.reconcile(cluster, workload)
        self.settle()
        for loop in loops:
            if loop.wakes_on:
                self._waiting.append(loop)
            if loop.period_ns:
                cluster.queue.push(loop.period_ns, Periodic(self, loop))
        self.wake()
        cluster.queue.push(0, scraper)
        cluster.queue.push(0, SampleTick(self.recorder))

    def play(self, until_ns: int, observer: Observer | None) -> None:
        """Run to the end, or to where ``observer`` raises."""
        cluster = self.cluster
        queue = cluster.queue
        while (at := queue.next_ns()) is not None and at <= until_ns:
            queue.step(cluster)
            self.settle()
            self.wake()
            if self.check:
                self._check()
            if observer is not None:
                observer(cluster, until_ns)
        cluster.advance_to(until_ns)
        for service in cluster.services:
            service.settle(until_ns)
        pods.account_busy(cluster)

    def wake(self) -> None:
        """Give loops that wait for what has changed a tick, once they have let it settle."""
        woken, self._woken = self._woken | (self.world or self.cluster).woken(), set()
        for loop in self._waiting:
            if not loop.wakes_on.isdisjoint(woken) and loop.name not in self._pending:
                self._pending.add(loop.name)
                self.cluster.queue.push(self.cluster.now_ns + loop.settle_ns, Woken(self, loop))

    def ticked(self, loop: Loop) -> None:
        """The tick that a change has asked for."""
        self._pending.discard(loop.name)
        self.run_loop(loop)

    def run_loop(self, loop: Loop) -> None:
        """One tick, recorded."""
        taken = tick(loop, self.world or self.cluster)
        self.settle()
        if lets_wait(taken):
            self._woken.add(loop.waits)
        for decision, outcome in taken:
            self.recorder.decided(self.cluster.now_ns, loop.name, decision, outcome)

    def _check(self) -> None:
        self.steps += 1
        cluster = self.cluster
        found = [*violations(cluster.fleet), *cluster.ledger.check(cluster.now_ns)]
        for training in cluster.training.values():
            found += training.violations()
        for replica in (r for s in cluster.services for r in (*s.endpoints, *s.draining)):
            if replica.engine is not None and replica.engine.blocks_used > replica.engine.blocks_total:
                found.append(f"{replica.pod}: more KV blocks used than there are")
        self.violations += [f"{cluster.now_ns / 1e9:.3f} s: {text}" for text in found]


@dataclass(slots=True)
class Periodic:
    """A loop's regular tick."""

    machine: Machine
    loop: Loop

    def handle(self, cluster: SimulatedCluster) -> Later:
        self.machine.run_loop(self.loop)
        yield cluster.now_ns + self.loop.period_ns, self


@dataclass(slots=True)
class Woken:
    """A tick because something changed."""

    machine: Machine
    loop: Loop

    def handle(self, cluster: SimulatedCluster) -> Later:
        self.machine.ticked(self.loop)
        return ()
