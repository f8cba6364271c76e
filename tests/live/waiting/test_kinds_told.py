"""Each kind of reason is reported once to a pod, whatever the counts are, and of another only when it lasts."""

from __future__ import annotations

from typing import Any

import pytest

from tonnage.decisions import Applied, Outcome, Reason, Ref, Refused, Wait
from tonnage.live import waits
from tonnage.live.aside import Aside
from tonnage.live.effects import Observing
from tonnage.live.waits import KNOWN_NS, Waits

POD = Ref("Pod", "p", "default", "uid")


class World:
    """Who writes, and what was written: (verdict, nominated) of the status, and the messages of events."""

    def __init__(self, threads: int = 0) -> None:
        self.at_ns = 10**18
        self.status: list[tuple[str, str]] = []
        self.events: list[str] = []
        self.answer: Outcome = Applied()
        self.aside = Aside(threads)
        outer = self

        class Effects(Observing):
            def unschedulable(self, decision: Wait) -> Outcome:
                outer.status.append((decision.reason.verdict, decision.nominated))
                return outer.answer

        self.waits = Waits(Effects(), self, self, self.aside, lambda wait: True)

    def now_ns(self) -> int:
        return self.at_ns

    def of(self, timestamp: str | None) -> int:
        return self.at_ns

    def event(self, about: Ref, type_: str, reason: str, message: str, done: Any = None) -> None:
        self.events.append(message)

    def tell(self, nodes: int, *kinds: str, nominated: str = "", by: str = "scheduler") -> Outcome:
        counts = tuple((kind, nodes) for kind in kinds)
        text = ", ".join(f"{count} {kind}" for kind, count in counts)
        return self.waits.tell(Wait(POD, Reason(f"0/{nodes} nodes are available: {text}", counts), by, nominated))


def test_more_nodes_without_room_are_no_news() -> None:
    world = World()
    for nodes in range(1, 50):
        world.tell(nodes, "Insufficient nvidia.com/gpu")
    assert len(world.status) == len(world.events) == 1


def test_reasons_that_come_and_go_are_told_once_each_and_again_after_a_while() -> None:
    world = World()
    for _ in range(5):
        world.tell(1, "Insufficient cpu")
        world.tell(2, "Insufficient cpu", "node(s) were unschedulable")
    assert len(world.status) == len(world.events) == 2
    world.at_ns += KNOWN_NS
    world.tell(1, "Insufficient cpu")
    assert len(world.status) == len(world.events) == 3


def test_where_room_is_made_is_always_written() -> None:
    world = World()
    for nominated in ("", "n1", "n2", ""):
        world.tell(1, "Insufficient cpu", nominated=nominated)
    assert [node for _, node in world.status] == ["", "n1", "n2", ""]
    assert len(world.events) == 1


def test_what_the_provisioner_says_is_an_event_alone() -> None:
    world = World()
    world.tell(1, "no NodePool", by="provisioner")
    assert (len(world.status), len(world.events)) == (0, 1)


def test_what_could_not_be_written_is_written_when_it_is_said_again() -> None:
    world = World()
    world.answer = Refused("no right")
    assert world.tell(1, "Insufficient cpu") == world.answer
    world.answer = Applied()
    assert world.tell(1, "Insufficient cpu") == Applied()
    assert (len(world.status), len(world.events)) == (2, 1)


def test_a_node_that_is_not_ready_for_a_moment_is_no_news(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "SETTLE_S", 0.2)
    world = World(threads=1)
    world.tell(1, "Insufficient cpu")
    assert world.aside.flush(5)
    world.tell(2, "Insufficient cpu", "node(s) were unschedulable")
    world.tell(2, "Insufficient cpu")
    assert world.aside.flush(5)
    assert len(world.status) == 1
    world.tell(3, "Insufficient cpu", "node(s) were unschedulable")
    assert world.aside.flush(5)
    assert len(world.status) == 2, "it has lasted"
    world.aside.close()


def test_nothing_is_kept_of_a_pod_that_is_gone() -> None:
    world = World()
    world.tell(1, "Insufficient cpu")
    world.waits.forget("uid")
    assert len(world.waits) == 0
