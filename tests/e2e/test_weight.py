"""The scheduler under weight: many pods that wait, bindings that are refused, a crash in the middle of a burst."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import sampling
from e2e_builders import GPU, HOSTNAME, condition, node, pod_spec
from e2e_controllers import Process, controller, grant, rules

from e2e.api import MERGE, Api, Json
from e2e.control_plane import UNTOUCHED, ControlPlane
from e2e.processes import until

PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
EVENTS = "/api/v1/namespaces/default/events"
AMOUNTS = {"cpu": "64", "memory": "256Gi", "pods": "110", GPU: "8"}
BOUND_S, BUSY_S = 0.2, 2.0
"""From a node's Ready to the binding of the pod that waits for it: half of them within the first, and each within the
second, where other tests have the machine too."""
TOLD_S = 1.0
"""A crash that comes so long after a binding loses its event no more."""
RETRY_S = 10.0


@pytest.fixture(scope="module")
def plane(start_plane: Any) -> ControlPlane:
    """Without anybody else who places pods, and a user who may do all that the scheduler does but bind."""
    users = {"tonnage-scheduler": ["controllers"], "unbound": ["controllers"]}
    found: ControlPlane = start_plane(
        controllers=(), scheduler=False, admission_off=UNTOUCHED, audit=True, users=users, client_qps=10_000
    )
    grant(found, "scheduler")
    found.grant("unbound", [rule for rule in rules("scheduler", "apply") if "pods/binding" not in rule["resources"]])
    return found


@pytest.fixture
def api(plane: ControlPlane) -> Iterator[Api]:
    api = plane.api()
    yield api
    for path in (PODS, NODES, EVENTS):
        api.delete(path)
    until("nothing left", lambda: not any(api.items(path, limit=1) for path in (PODS, NODES)), 30)


@pytest.fixture
def begin(plane: ControlPlane) -> Iterator[Any]:
    running: list[Process] = []

    def start(user: str = "tonnage-scheduler") -> Process:
        process = controller(plane, "scheduler", user=user, more=("--no-leader-elect",))
        running.append(process)
        process.start()
        return process

    yield start
    for process in running:
        process.stop(signal.SIGKILL)


def make(api: Api, prefix: str, count: int, **fields: Any) -> list[str]:
    """Pods for our scheduler; their names."""
    names = [f"{prefix}-{number:04}" for number in range(count)]
    spec = pod_spec(**({"schedulerName": "tonnage"} | fields))
    api.each(
        lambda name: api.create(PODS, {"metadata": {"name": name, "labels": {"app": prefix}}, "spec": spec}), names
    )
    return names


def join(api: Api, name: str) -> float:
    """Seconds from the Ready of a node to the binding of the pod that has waited for it."""
    api.create(
        PODS,
        {"metadata": {"name": name}, "spec": pod_spec(gpus=1, schedulerName="tonnage", nodeSelector={HOSTNAME: name})},
    )
    body = node(name, AMOUNTS)
    ready = body["status"]
    api.create(NODES, body | {"status": ready | {"conditions": [ready["conditions"][0] | {"status": "False"}]}})
    time.sleep(0.3)
    begun = time.monotonic()
    api.patch(f"{NODES}/{name}/status", {"status": ready}, MERGE)
    until(f"{name} is bound", lambda: api.get(f"{PODS}/{name}")["spec"].get("nodeName"), 30, 0.005)
    return time.monotonic() - begun


def writes(plane: ControlPlane, since: int, resource: str, subresource: str = "") -> list[Json]:
    """The writes in the audit log."""
    return [
        one
        for one in plane.audit()[since:]
        if one["verb"] in ("create", "patch", "update")
        and one.get("objectRef", {}).get("resource") == resource
        and one["objectRef"].get("subresource", "") == subresource
        and one["user"]["username"] != "admin"
    ]


def test_pods_that_wait_cost_those_that_fit_nothing(plane: ControlPlane, api: Api, begin: Any) -> None:
    pods, nodes = sampling.often("pods that wait", 3_000, 200), sampling.often("nodes that join them", 40, 6)
    since = len(plane.audit())
    api.create(NODES, node("first", AMOUNTS))
    process = begin()
    names = make(api, "waits", pods, gpus=9)

    def told() -> int:
        items = api.items(PODS, labelSelector="app=waits")
        return sum(condition(one, "PodScheduled").get("reason") == "Unschedulable" for one in items)

    until("all are told why they wait", lambda: told() == pods, 180, 0.5)
    took = sorted(join(api, f"joins-{number:02}") for number in range(nodes))
    time.sleep(6.0)  # what is told late is told by then
    patches = Counter(one["objectRef"]["name"] for one in writes(plane, since, "pods", "status"))
    assert {patches[name] for name in names} == {1}, "the kind of reason has stayed the same"
    assert took[len(took) // 2] <= BOUND_S, took
    assert took[-1] <= BUSY_S, took
    assert process.end() == 0


def test_without_the_right_to_bind_it_asks_rarely_and_says_so(plane: ControlPlane, api: Api, begin: Any) -> None:
    pods = sampling.often("pods that may not be bound", 150, 30)
    api.create(NODES, node("first", AMOUNTS | {"cpu": "500", "pods": "500"}))
    since = len(plane.audit())
    process = begin("unbound")
    make(api, "refused", pods)
    until("it is not ready", lambda: process.readyz()[0] == 503, 20)
    time.sleep(2 * RETRY_S)
    text = process.readyz()[1]
    assert f"{pods} pods could not be bound" in text and 'cannot create resource "pods/binding"' in text
    assert process.healthz()[0] == 200
    calls = writes(plane, since, "pods", "binding")
    assert len(calls) <= 16 + 2 * RETRY_S * pods / 10, "as documented: once in ten seconds for each"
    events = api.items(EVENTS, fieldSelector="reason=FailedScheduling")
    assert Counter(one["involvedObject"]["name"] for one in events).most_common(1)[0][1] == 1
    assert all('cannot create resource "pods/binding"' in one["message"] for one in events)
    pod = api.items(PODS, limit=1)[0]
    assert condition(pod, "PodScheduled")["reason"] == "SchedulerError"

    def refusals() -> float:
        head = 'tonnage_decisions_total{kind="Bind",loop="scheduler",outcome="refused"} '
        return next(float(one.removeprefix(head)) for one in process.metrics().splitlines() if one.startswith(head))

    before = refusals()
    until("the counter of the alert rises", lambda: refusals() > before, 2 * RETRY_S)
    plane.grant("unbound", rules("scheduler", "apply"))
    until("all are bound", lambda: not api.items(PODS, fieldSelector="spec.nodeName=", limit=1), 3 * RETRY_S, 0.5)
    until("it is well again", lambda: process.readyz()[0] == 200, 10)
    assert process.end() == 0


def test_a_crash_loses_no_event_of_a_binding_that_is_a_second_old(api: Api, begin: Any) -> None:
    pods = sampling.often("pods bound when the scheduler dies", 2_000, 400)
    api.each(lambda number: api.create(NODES, node(f"n-{number:02}", AMOUNTS | {"cpu": "500"})), range(pods // 100 + 1))
    process = begin()
    bound: dict[str, float] = {}
    make(api, "burst", pods)

    def look() -> int:
        now = time.monotonic()
        for one in api.items(PODS, labelSelector="app=burst"):
            if one["spec"].get("nodeName"):
                bound.setdefault(one["metadata"]["name"], now)
        return len(bound)

    until("most are bound", lambda: look() > pods // 2, 120, 0.2)
    died = time.monotonic()
    process.stop(signal.SIGKILL)
    old = {name for name, at in bound.items() if at < died - TOLD_S}
    told = {one["involvedObject"]["name"] for one in api.items(EVENTS, fieldSelector="reason=Scheduled")}
    assert old <= told, f"{len(old - told)} of {len(old)} events are lost"
    assert len(bound) - len(told & bound.keys()) <= 32 + 16
