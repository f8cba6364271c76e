"""A scenario on an API whose loops the Manager runs, as it does on a cluster, by the simulator's clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tonnage.control.loops import Appointment, Loop, Taken
from tonnage.decisions import Decision, Outcome
from tonnage.hollow.lockstep import Lockstep, loops_of
from tonnage.kube.transport import Transport
from tonnage.live.manager import Controller, Manager
from tonnage.machines.cluster import SimulatedCluster
from tonnage.machines.events import Later
from tonnage.simulation.driver import LoopDriver
from tonnage.simulation.run import SetUp


class Unobserved:
    """What is decided is written down elsewhere; a loop that fails fails the test."""

    def decided(self, controller: str, loop: str, decision: Decision, outcome: Outcome) -> None:
        return

    def failed(self, loop: str, error: Exception) -> None:
        raise error

    def ticked(self, loop: str, seconds: float, taken: int) -> None:
        return


@dataclass(slots=True)
class Rings:
    """The Manager's next loop is due."""

    driven: Driven

    def handle(self, cluster: SimulatedCluster) -> Later:
        self.driven.turn()
        return ()


class Alarmed(Manager):
    """A Manager that says when it has to be asked again."""

    driven: Driven

    def _make(self, appointments: Sequence[Appointment]) -> None:
        super()._make(appointments)
        for one in appointments:
            self.driven.cluster.queue.push(one.at_ns, Rings(self.driven))


@dataclass(slots=True)
class Driven(LoopDriver):
    """The event queue as ever, but the Manager decides which loop has its turn."""

    manager: Manager | None = None

    def _begin(self, loops: Sequence[Loop]) -> None:
        assert self.manager is not None
        self.manager.start()

    def turn(self) -> None:
        """One loop that is due."""
        assert self.manager is not None
        assert self.manager.step(most=1) == 1
        self.settle()

    def wake(self) -> None:
        """Let the Manager see what has changed; it runs nothing before its alarm rings."""
        assert self.manager is not None
        self.manager.step(most=0)

    def observed(self, loop: Loop) -> Loop:
        """The loop, what it decides being recorded."""

        def learn(taken: Taken) -> None:
            if loop.learn is not None:
                loop.learn(taken)
            for decision, outcome in taken:
                self.recorder.decided(self.cluster.now_ns, loop.name, decision, outcome)

        return replace(loop, learn=learn)


def play(made: SetUp, transport: Transport, until_ns: int) -> tuple[LoopDriver, Lockstep]:
    """Run a scenario on an API until then. Close what is returned."""
    steps = Lockstep(made, transport)
    machine = Driven(made.cluster, made.recorder(), made.options.check, world=steps.world, settle=steps.settle)
    loops = tuple(machine.observed(loop) for loop in loops_of(made, steps.world))
    required = [*steps.informers]
    machine.manager = Alarmed(steps.world, steps.informers, required, [Controller("all", loops)], Unobserved())
    machine.manager.driven = machine
    machine.manager.ready.set()
    made.start_training()
    machine.start([], made.scraper())
    made.break_things()
    machine.play(until_ns, made.options.observer)
    return machine, steps
