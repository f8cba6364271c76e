"""The scheduler at work on real nodes, as a process with the rights that the chart gives it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from e2e_builders import GPU, await_running, condition, deployment, pod_spec
from e2e_controllers import LEASES, USERS, Process, controller, grant

from e2e import prerequisites
from e2e.api import Api, Json
from e2e.control_plane import ControlPlane
from e2e.processes import until
from e2e.real_nodes import RealNodes

NAMES = ["real-0", "real-1"]
GPUS = 4
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/api/v1/namespaces/default/events"
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
READS = {"get", "list", "watch"}


@pytest.fixture(scope="module")
def nodes(start_plane) -> Iterator[RealNodes]:
    """Two real nodes with four GPUs each."""
    if why := prerequisites.for_real_nodes():
        pytest.skip(why)
    with RealNodes(start_plane(nodes=NAMES, users=USERS, audit=True), NAMES, GPUS) as found:
        yield found


@pytest.fixture(scope="module")
def plane(nodes: RealNodes) -> ControlPlane:
    return nodes.plane


@pytest.fixture(scope="module")
def scheduler(plane: ControlPlane) -> Iterator[Process]:
    """Our scheduler in apply; what it did and said at the end must be in order."""
    grant(plane, "scheduler")
    process = controller(plane, "scheduler")
    process.start()
    yield process
    assert process.end() == 0, process.tail()
    assert process.complaints() == []


@pytest.fixture(autouse=True)
def empty(plane: ControlPlane) -> Iterator[None]:
    """Each test begins with free nodes."""
    yield
    api = plane.api()
    api.delete(DEPLOYMENTS, {"propagationPolicy": "Background"})
    api.delete(PODS, {"gracePeriodSeconds": 1})
    until("no pods", lambda: not api.items(PODS), 60)


def ours(gpus: int = 0, **fields: object) -> Json:
    return pod_spec(gpus=gpus, schedulerName="tonnage", **fields)


def pod(name: str, spec: Json, app: str = "") -> Json:
    return {"metadata": {"name": name, "labels": {"app": app or name}}, "spec": spec}


def events(api: Api, name: str, reason: str) -> list[Json]:
    return api.items(EVENTS, fieldSelector=f"involvedObject.name={name},reason={reason}")


def place(api: Api, name: str) -> str:
    return str(api.get(f"{PODS}/{name}")["spec"].get("nodeName", ""))


def test_a_deployments_pods_are_placed_on_real_nodes_and_their_containers_run_on_gpus_of_their_own(
    plane: ControlPlane, scheduler: Process
) -> None:
    api = plane.api()
    api.create(DEPLOYMENTS, deployment("served", 4, ours(gpus=2)))
    running = await_running(api, "served", 4)
    held = []
    for one in running:
        log = plane.kubectl("logs", one["metadata"]["name"]).stdout
        (given,) = (word for word in log.split() if word.startswith("FAKE_VISIBLE_DEVICES="))
        held += [(one["spec"]["nodeName"], device) for device in given.partition("=")[2].split(",")]
    assert sorted(held) == [(name, f"fake-{i}") for name in NAMES for i in range(GPUS)]
    bound = {line["decision"]["pod"]["name"] for line in scheduler.decided("Bind")}
    assert {one["metadata"]["name"] for one in running} <= bound


def test_the_event_of_a_placement_holds_its_receipt(plane: ControlPlane, scheduler: Process) -> None:
    api = plane.api()
    api.create(PODS, pod("receipt", ours(gpus=1)))
    await_running(api, "receipt", 1)
    until("the event", lambda: events(api, "receipt", "Scheduled"))
    (event,) = events(api, "receipt", "Scheduled")
    (line,) = (d for d in scheduler.decided("Bind") if d["decision"]["pod"]["name"] == "receipt")
    assert event["source"]["component"] == "tonnage"
    head = f"Successfully assigned default/receipt to {place(api, 'receipt')}: "
    assert event["message"].startswith(head + line["decision"]["reason"]["verdict"])
    for name, _ in line["decision"]["reason"]["evidence"]:
        assert f"{name}=" in event["message"]


def test_pods_of_other_schedulers_are_counted_and_never_touched(plane: ControlPlane, scheduler: Process) -> None:
    api = plane.api()
    api.create(PODS, pod("default", pod_spec(gpus=3)))
    await_running(api, "default", 1)
    api.create(PODS, pod("nobody", pod_spec(gpus=1, schedulerName="nobody")))
    api.create(PODS, pod("whole", ours(gpus=4)))
    await_running(api, "whole", 1)
    assert {place(api, "default"), place(api, "whole")} == set(NAMES)
    api.create(PODS, pod("left", ours(gpus=1)))
    await_running(api, "left", 1)
    assert place(api, "left") == place(api, "default")
    nobody = api.get(f"{PODS}/nobody")
    assert not nobody["spec"].get("nodeName")
    assert not condition(nobody, "PodScheduled")
    assert {e["source"].get("component", e["reportingComponent"]) for e in events(api, "default", "Scheduled")} == {
        "default-scheduler"
    }
    mine = {"whole", "left", "receipt"}
    written = [e for e in plane.audit() if e["user"]["username"] == "tonnage-scheduler" and e["verb"] not in READS]
    pods = {e["objectRef"]["name"] for e in written if e["objectRef"]["resource"] == "pods"}
    assert mine & pods
    assert not pods & {"default", "nobody"}
    assert {e["objectRef"]["resource"] for e in written} == {"pods", "events", "leases"}
    assert {e["objectRef"].get("subresource") for e in written if e["objectRef"]["resource"] == "pods"} <= {
        "binding",
        "status",
    }


def test_a_gated_pod_waits_without_a_word_until_its_gate_is_lifted(plane: ControlPlane, scheduler: Process) -> None:
    api = plane.api()
    api.create(PODS, pod("gated", ours(gpus=1, schedulingGates=[{"name": "example.com/quota"}])))
    api.create(PODS, pod("open", ours(gpus=1)))
    await_running(api, "open", 1)
    assert place(api, "gated") == ""
    assert condition(api.get(f"{PODS}/gated"), "PodScheduled")["reason"] == "SchedulingGated"
    api.patch(f"{PODS}/gated", {"spec": {"schedulingGates": None}})
    await_running(api, "gated", 1)


def test_of_two_waiting_pods_the_one_of_higher_priority_gets_what_becomes_free(
    plane: ControlPlane, scheduler: Process
) -> None:
    api = plane.api()
    for name, value in (("low", 10), ("high", 1000)):
        api.create(PRIORITIES, {"metadata": {"name": name}, "value": value, "preemptionPolicy": "Never"})
    api.create(DEPLOYMENTS, deployment("filler", 2, ours(gpus=4)))
    first, _ = await_running(api, "filler", 2)
    for name in ("low", "high"):
        api.create(PODS, pod(name, ours(gpus=4, priorityClassName=name)))
        until(f"{name} waits", lambda name=name: condition(api.get(f"{PODS}/{name}"), "PodScheduled"))
    api.patch(f"{DEPLOYMENTS}/filler", {"spec": {"replicas": 1}})
    await_running(api, "high", 1)
    assert place(api, "low") == ""
    api.patch(f"{DEPLOYMENTS}/filler", {"spec": {"replicas": 0}})
    await_running(api, "low", 1)
    assert first["spec"]["nodeName"] in NAMES


def test_a_pod_that_fits_nowhere_says_why_in_its_condition_and_an_event(
    plane: ControlPlane, scheduler: Process
) -> None:
    api = plane.api()
    api.create(DEPLOYMENTS, deployment("small", 1, ours(gpus=2)))
    await_running(api, "small", 1)
    api.create(PODS, pod("big", ours(gpus=8)))
    until("a reason", lambda: condition(api.get(f"{PODS}/big"), "PodScheduled"), 30)
    said = condition(api.get(f"{PODS}/big"), "PodScheduled")
    assert (said["status"], said["reason"]) == ("False", "Unschedulable")
    assert f"Insufficient {GPU}" in said["message"]
    assert said["message"].startswith("0/2 nodes")
    until("the event", lambda: events(api, "big", "FailedScheduling"))
    (event,) = events(api, "big", "FailedScheduling")
    assert (event["type"], event["message"]) == ("Warning", said["message"])
    assert "big" in plane.kubectl("get", "events", "--field-selector=reason=FailedScheduling").stdout


def test_it_holds_its_lease_and_gives_it_back_at_the_end(plane: ControlPlane, scheduler: Process) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{LEASES}/leases/tonnage-scheduler"
    assert plane.api().get(path)["spec"]["holderIdentity"]
    assert 'tonnage_leader{lease="tonnage-scheduler"} 1.0' in scheduler.metrics()
    assert scheduler.end() == 0
    assert plane.api().get(path)["spec"].get("holderIdentity", "") == ""
    scheduler.start()
    until("it leads again", lambda: plane.api().get(path)["spec"].get("holderIdentity"))
