"""When loops run: the same in every world."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from sim_builders import world as empty_cluster

from tonnage.control.loops import Appointment, Loop, Timetable
from tonnage.decisions import Applied, Decision, Outcome, Reason, Ref, Wait
from tonnage.live.manager import RETRY_S, Controller, Manager
from tonnage.machines.cluster import SimulatedCluster
from tonnage.machines.events import Later
from tonnage.machines.scraping import Scraper
from tonnage.simulation.driver import LoopDriver
from tonnage.simulation.recorder import Recorder
from tonnage.units import NS_PER_HOUR, NS_PER_S

TENTH = NS_PER_S // 10
WAIT = Wait(Ref("Pod", "p", "default"), Reason("no room"))


def loop(name: str, *wakes_on: str, period_s: float = 0, settle_s: float = 0, decides: Any = lambda _: ()) -> Loop:
    return Loop(name, decides, round(period_s * NS_PER_S), frozenset(wakes_on), round(settle_s * NS_PER_S))


@dataclass
class Clocked:
    """A world in which only time passes; at some times something changes. Keeps when which loop ran."""

    changes: dict[int, str] = field(default_factory=dict)
    now_ns: int = 0
    ran: list[tuple[float, str]] = field(default_factory=list)

    def now(self) -> int:
        return self.now_ns

    def woken(self) -> frozenset[str]:
        found = {kind for at, kind in self.changes.items() if at <= self.now_ns}
        self.changes = {at: kind for at, kind in self.changes.items() if at > self.now_ns}
        return frozenset(found)

    def apply_all(self, decisions: list[Decision]) -> list[Outcome]:
        return [Applied()] * len(decisions)

    def runs(self, name: str, *decided: Decision) -> Any:
        def decide(world: Clocked) -> tuple[Decision, ...]:
            world.ran.append((world.now_ns / NS_PER_S, name))
            return decided

        return decide


class Unobserved:
    def decided(self, *_: object) -> None:
        return

    def failed(self, loop: str, error: Exception) -> None:
        raise error

    def ticked(self, *_: object) -> None:
        return


def by_timetable(world: Clocked, loops: list[Loop], until_s: float) -> None:
    """A small driver of the kind that the simulator is."""
    table = Timetable(loops)
    agenda: list[Appointment] = table.begin(0)
    while world.now_ns <= until_s * NS_PER_S:
        agenda += table.call(world.woken(), world.now_ns)
        due = [one for one in agenda if one.at_ns <= world.now_ns]
        agenda = [one for one in agenda if one.at_ns > world.now_ns]
        for one in due:
            after = table.keep(one, world.now_ns)
            table.ticked(one.loop, [(decision, Applied()) for decision in one.loop.decide(world)])  # type: ignore[arg-type]
            agenda += [after] if after else []
        if not due:
            world.now_ns += TENTH


def by_manager(world: Clocked, loops: list[Loop], until_s: float) -> None:
    """The Manager of a cluster, on this clock."""
    manager = Manager(world, None, (), (), Unobserved())  # type: ignore[arg-type]
    manager.controllers = (Controller("all", tuple(loops)),)
    manager.ready.set()
    manager._led["all"] = True
    manager.start()
    while world.now_ns <= until_s * NS_PER_S:
        if not manager.step():
            world.now_ns += TENTH


class Nothing:
    """An event of the simulator with which it looks what has changed."""

    def handle(self, cluster: SimulatedCluster) -> Later:
        return ()


def by_simulator(world: Clocked, loops: list[Loop], until_s: float) -> None:
    """The simulator's own driver, on a cluster in which nothing else happens."""
    cluster = empty_cluster(start_s=0)
    advance_to = cluster.advance_to

    def tell(at_ns: int) -> None:
        advance_to(at_ns)
        world.now_ns = at_ns

    cluster.advance_to = tell  # type: ignore[method-assign]
    for at_ns in world.changes:
        cluster.queue.push(at_ns, Nothing())
    machine = LoopDriver(cluster, Recorder(NS_PER_HOUR), False, world=world)  # type: ignore[arg-type]
    machine.start(loops, Scraper((), False))
    machine.play(round(until_s * NS_PER_S), None)


DRIVERS = pytest.mark.parametrize("drive", [by_timetable, by_manager, by_simulator])


@DRIVERS
def test_a_change_gives_its_own_tick_though_a_regular_one_comes_between(drive: Any) -> None:
    world = Clocked({95 * TENTH: "pod"})
    drive(world, [loop("a", "pod", period_s=10, settle_s=1, decides=world.runs("a"))], 21)
    assert world.ran == [(10.0, "a"), (10.5, "a"), (20.0, "a")]


@DRIVERS
def test_changes_that_come_while_one_settles_give_one_tick(drive: Any) -> None:
    world = Clocked({10 * TENTH: "pod", 14 * TENTH: "pod", 19 * TENTH: "node", 21 * TENTH: "pod"})
    drive(world, [loop("a", "pod", "node", settle_s=1, decides=world.runs("a"))], 5)
    assert world.ran == [(2.0, "a"), (3.1, "a")]


@DRIVERS
def test_who_waits_for_pods_that_wait_is_called_after_a_tick_that_lets_one_wait(drive: Any) -> None:
    world = Clocked({10 * TENTH: "pod"})
    first = loop("first", "pod", decides=world.runs("first", WAIT))
    drive(world, [first, loop("second", "first/waits", settle_s=0.5, decides=world.runs("second"))], 5)
    assert world.ran == [(1.0, "first"), (1.5, "second")]


def test_regular_ticks_that_were_missed_are_passed_over() -> None:
    (first,) = Timetable([loop("a", period_s=10)]).begin(0)
    after = Timetable([]).keep(first, 34 * NS_PER_S)
    assert after is not None
    assert after.at_ns == 40 * NS_PER_S


def test_a_clock_that_was_set_back_stops_no_loop_for_as_long() -> None:
    world = Clocked(now_ns=1000 * NS_PER_S)
    manager = Manager(world, None, (), (), Unobserved())  # type: ignore[arg-type]
    manager.controllers = (Controller("all", (loop("a", period_s=10, decides=world.runs("a")),)),)
    manager.ready.set()
    manager.start()
    world.now_ns = 100 * NS_PER_S
    manager.step()
    world.now_ns = 110 * NS_PER_S
    manager.step()
    assert world.ran == [(110.0, "a")]


class Noting(Unobserved):
    def __init__(self) -> None:
        self.errors: list[tuple[str, str]] = []

    def failed(self, loop: str, error: Exception) -> None:
        self.errors.append((loop, str(error)))


def failing(world: Clocked, times: int) -> Any:
    """What a loop decides that fails this many times, then no more."""

    def decide(_: Clocked) -> tuple[Decision, ...]:
        world.ran.append((world.now_ns / NS_PER_S, "a"))
        ticks = sum(name == "a" for _, name in world.ran)
        if ticks <= times:
            raise ValueError(f"no reading {ticks}")
        return ()

    return decide


@pytest.mark.parametrize("speed", [1.0, 10.0])
def test_a_loop_that_fails_is_run_again_after_a_while_and_the_others_go_on(speed: float) -> None:
    world, observer = Clocked({10 * TENTH: "pod"}), Noting()
    manager = Manager(world, None, (), (), observer, speed=speed)  # type: ignore[arg-type]
    loops = (loop("a", "pod", decides=failing(world, 2)), loop("b", period_s=1, decides=world.runs("b")))
    manager.controllers = (Controller("all", loops),)
    manager.ready.set()
    manager._led["all"] = True
    manager.start()
    failures: list[dict[str, str]] = []
    seconds = round(2.5 * RETRY_S * speed)
    for _ in range(seconds * 10):
        if manager.step():
            failures.append(dict(manager.failures))
        world.now_ns += TENTH
    assert [one for one in world.ran if one[1] == "a"] == [(1.0 + i * RETRY_S * speed, "a") for i in range(3)]
    assert observer.errors == [("a", "no reading 1"), ("a", "no reading 2")]
    assert {"a": "ValueError: no reading 2"} in failures
    assert manager.failures == {}
    assert [at for at, name in world.ran if name == "b"] == [float(at) for at in range(1, seconds)]
