"""Pods that the API server will not bind: each is tried again alone and ever more rarely, and people are told."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from tonnage.control.loops import tick
from tonnage.control.policy import Policy
from tonnage.decisions import BINDING, Applied, Bind, Outcome, Ref, Refused, Wait
from tonnage.live.effects import Observing
from tonnage.live.world import ClusterWorld
from tonnage.objects import core
from tonnage.scheduling.gangs.release import Patience
from tonnage.units import NS_PER_S

NO_RIGHT = (
    'pods "{name}" is forbidden: User "tonnage" cannot create resource "pods/binding" in API group "" in the namespace '
    '"{namespace}"'
)
BY_WEBHOOK = 'admission webhook "policy.example.com" denied the request: no label team'


class Clock:
    def __init__(self) -> None:
        self.at_ns = 10**18

    def now_ns(self) -> int:
        return self.at_ns

    def of(self, timestamp: str | None) -> int:
        return 0


class Answers(Observing):
    """An API server with these answers: ``no`` says why a pod is not bound, empty where it is."""

    def __init__(self) -> None:
        self.no: Any = lambda pod: ("", "")
        self.calls: list[str] = []
        self.told: list[Wait] = []

    def bind(self, decision: Bind) -> Outcome:
        self.calls.append(decision.pod.name)
        why, code = self.no(decision.pod)
        return Refused(f"{decision.pod}: {why}", code) if why else Applied()

    def unschedulable(self, decision: Wait) -> Outcome:
        self.told.append(decision)
        return Applied()


class Said:
    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []

    def event(self, about: Ref, type_: str, reason: str, message: str, done: Any = None) -> None:
        self.events.append((about.name, reason, message))
        if done is not None:
            done()


class Cluster:
    """Nodes with room for all, pods that are pending, and the scheduler's loop."""

    def __init__(self, pods: int, namespaces: int = 1) -> None:
        self.clock, self.api, self.said = Clock(), Answers(), Said()
        self.world = ClusterWorld(self.api, self.clock, price=lambda *_: 0, recorder=self.said)
        self.world.state.see_node(None, _node())
        for number in range(pods):
            self.world.see_pod(None, _pod(f"p{number:03}", f"team-{number % namespaces}"))
        policy = Policy()
        (self.loop,) = policy.scheduling_loops(policy.settings(("tonnage",), strict=True), Patience())
        self.outcomes: Counter[str] = Counter()

    def go(self, seconds: float, step_s: float = 0.25) -> int:
        """Let time pass, the loop running when it is woken; the calls for bindings meanwhile."""
        before, end = len(self.api.calls), self.clock.at_ns + round(seconds * NS_PER_S)
        while self.clock.at_ns < end:
            if self.world.woken() & self.loop.wakes_on:
                self.outcomes.update(type(outcome).__name__ for _, outcome in tick(self.loop, self.world))
            self.clock.at_ns += round(step_s * NS_PER_S)
        return len(self.api.calls) - before


def _node() -> core.Node:
    amounts = {"cpu": "500", "memory": "900Gi", "pods": "500"}
    ready = [{"type": "Ready", "status": "True"}]
    written = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "uid": "n"}}
    return msgspec.convert(written | {"status": {"allocatable": amounts, "conditions": ready}}, core.Node)


def _pod(name: str, namespace: str) -> core.Pod:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}
    meta = {"name": name, "namespace": namespace, "uid": f"uid-{name}"}
    spec = {"schedulerName": "tonnage", "containers": [container]}
    return msgspec.convert({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}, core.Pod)


def no_right(pod: Ref) -> tuple[str, str]:
    return NO_RIGHT.format(name=pod.name, namespace=pod.namespace), "Forbidden"


@pytest.mark.parametrize("pods", [10, 50, 150])
def test_without_the_right_to_bind_one_pod_tries_for_all_of_its_namespace(pods: int) -> None:
    cluster = Cluster(pods)
    cluster.api.no = no_right
    assert cluster.go(60) <= 4 + 6
    assert cluster.go(60) <= 6 + 1


def test_when_the_right_is_given_all_are_bound_at_the_next_try() -> None:
    cluster = Cluster(30, namespaces=3)
    cluster.api.no = no_right
    cluster.go(20)
    assert "30 pods could not be bound" in cluster.world.degraded()["scheduler (bindings)"]
    assert 'cannot create resource "pods/binding"' in cluster.world.degraded()["scheduler (bindings)"]
    cluster.api.no = lambda pod: ("", "")
    cluster.go(11)
    assert len(cluster.world.fleet.pending) == 0
    assert cluster.world.degraded() == {}


def test_each_pod_is_told_once_of_the_missing_right_and_the_refusals_are_counted_on() -> None:
    cluster = Cluster(5)
    cluster.api.no = no_right
    cluster.go(30)
    told = Counter(wait.pod.name for wait in cluster.api.told if wait.by == BINDING)
    assert told == {f"p{number:03}": 1 for number in range(5)}
    assert Counter(reason for _, reason, _ in cluster.said.events) == {"FailedScheduling": 5}
    assert all('cannot create resource "pods/binding"' in message for _, _, message in cluster.said.events)
    before = cluster.outcomes["Refused"]
    cluster.go(30)
    assert cluster.outcomes["Refused"] > before


@pytest.mark.parametrize(("pods", "a_second"), [(10, 1), (50, 5), (150, 15)])
def test_a_server_that_fails_is_asked_once_in_ten_seconds_for_each_pod(pods: int, a_second: float) -> None:
    cluster = Cluster(pods)
    cluster.api.no = lambda pod: ("etcdserver: request timed out", "InternalError")
    cluster.go(20)
    assert cluster.go(60) <= 60 * a_second
    assert "etcdserver" in cluster.world.degraded()["scheduler (bindings)"]


def test_a_retry_that_is_due_asks_for_its_pod_alone() -> None:
    cluster = Cluster(20)
    cluster.api.no = lambda pod: ("boom", "InternalError") if pod.name == "p007" else ("", "")
    cluster.go(1)
    assert cluster.go(30) == len([1, 3, 7, 15, 25])
    assert set(cluster.api.calls[20:]) == {"p007"}


def test_a_webhook_that_denies_one_pod_stops_no_other_and_the_scheduler_is_well() -> None:
    cluster = Cluster(20)
    cluster.api.no = lambda pod: (BY_WEBHOOK, "Forbidden") if pod.name == "p003" else ("", "")
    cluster.go(1)
    assert set(cluster.world.fleet.pending) == {cluster.world.fleet.pod_by_key["team-0", "p003"]}
    assert cluster.world.degraded() == {}
    assert any("denied the request" in message for name, _, message in cluster.said.events if name == "p003")


def test_a_pod_that_is_deleted_is_no_trouble_any_more() -> None:
    cluster = Cluster(1)
    cluster.api.no = lambda pod: ("boom", "InternalError")
    cluster.go(1)
    assert cluster.world.degraded()
    cluster.world.see_pod(_pod("p000", "team-0"), None)
    assert cluster.world.degraded() == {}
    assert cluster.go(30) == 0
