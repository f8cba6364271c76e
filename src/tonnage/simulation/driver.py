"""Runs the loops of a cluster over its event queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tonnage.control.loops import Appointment, Loop, Timetable, tick
from tonnage.control.world import World
from tonnage.fleet.invariants import violations
from tonnage.machines import pods
from tonnage.machines.cluster import SimulatedCluster
from tonnage.machines.events import Later
from tonnage.machines.scraping import Scraper
from tonnage.simulation.recorder import Recorder, SampleTick

Observer = Callable[[SimulatedCluster, int], None]
"""Called after every event with the cluster and the end of the run."""


@dataclass(slots=True)
class LoopDriver:
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
    entries_checked: int = -1
    timetable: Timetable = field(default_factory=lambda: Timetable(()))

    def start(self, loops: Sequence[Loop], scraper: Scraper) -> None:
        """Create the pods, then let everything happen that happens at time 0."""
        cluster = self.cluster
        for workload in cluster.workloads.values():
            pods.reconcile(cluster, workload)
        self.settle()
        self._begin(loops)
        self.wake()
        cluster.queue.push(0, scraper)
        cluster.queue.push(0, SampleTick(self.recorder))

    def _begin(self, loops: Sequence[Loop]) -> None:
        self.timetable = Timetable(loops)
        self._make(self.timetable.begin(self.cluster.now_ns))

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
        cluster.account_busy()
        if self.check:
            self._found(cluster.records.ledger.check(until_ns))

    def wake(self) -> None:
        """Give loops that wait for what has changed a tick, once they have let it settle."""
        self._make(self.timetable.call((self.world or self.cluster).woken(), self.cluster.now_ns))

    def _make(self, appointments: Sequence[Appointment]) -> None:
        for one in appointments:
            self.cluster.queue.push(one.at_ns, Tick(self, one))

    def run_loop(self, loop: Loop) -> None:
        """One tick, recorded."""
        taken = tick(loop, self.world or self.cluster)
        self.settle()
        self.timetable.ticked(loop, taken)
        for decision, outcome in taken:
            self.recorder.decided(self.cluster.now_ns, loop.name, decision, outcome)

    def _check(self) -> None:
        self.steps += 1
        cluster = self.cluster
        found = violations(cluster.fleet)
        if cluster.records.ledger.changes != self.entries_checked:
            self.entries_checked = cluster.records.ledger.changes
            found += cluster.records.ledger.check(cluster.now_ns)
        for training in cluster.training.values():
            found += training.violations()
        for replica in (r for s in cluster.services for r in (*s.endpoints, *s.draining)):
            if replica.engine is not None and replica.engine.blocks_used > replica.engine.blocks_total:
                found.append(f"{replica.pod}: more KV blocks used than there are")
        self._found(found)

    def _found(self, broken: list[str]) -> None:
        self.violations += [f"{self.cluster.now_ns / 1e9:.3f} s: {text}" for text in broken]


@dataclass(slots=True)
class Tick:
    """A loop's turn."""

    machine: LoopDriver
    appointment: Appointment

    def handle(self, cluster: SimulatedCluster) -> Later:
        after = self.machine.timetable.keep(self.appointment, cluster.now_ns)
        self.machine.run_loop(self.appointment.loop)
        if after is not None:
            yield after.at_ns, Tick(self.machine, after)
