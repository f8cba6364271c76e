"""When loops run: the same in every world."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from tonnage.cluster.manager import Controller, Manager
from tonnage.decisions import Applied, Decision, Outcome, Reason, Ref, Wait
from tonnage.loops import Appointment, Loop, Timetable
from tonnage.units import NS_PER_S

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


DRIVERS = pytest.mark.parametrize("drive", [by_timetable, by_manager])


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
