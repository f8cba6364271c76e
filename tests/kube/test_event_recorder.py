"""Events: counted up, joined, cut, sent by a thread that nobody waits for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from scripted_api import OverlappingApi, ScriptedApi, lost, refusal, unreachable

from tonnage.kube import events
from tonnage.kube.correlation import REMEMBERED, About, Correlator
from tonnage.kube.events import EventRecorder
from tonnage.kube.verbs import Client

POD = About("v1", "Pod", "web-1", "default", "uid-1")
NODE = About("v1", "Node", "n1", uid="uid-2")


class Clock:
    def __init__(self) -> None:
        self.now = 1.7e9

    def __call__(self) -> float:
        return self.now


@pytest.fixture(params=[ScriptedApi, OverlappingApi])
def api(request: pytest.FixtureRequest) -> ScriptedApi:
    made: ScriptedApi = request.param()
    return made


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def recorder(api: ScriptedApi, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[EventRecorder]:
    monkeypatch.setattr(events, "_SEND_PAUSE_S", 0.01)
    made = EventRecorder(Client(api), "tonnage-scheduler", clock)
    yield made
    made.close(0.1)


def written(api: ScriptedApi) -> list[dict[str, Any]]:
    return [o for path, o in api.objects.items() if "/events/" in path]


def test_an_event_has_the_fields_that_kubectl_describe_shows(
    api: ScriptedApi, recorder: EventRecorder, clock: Clock
) -> None:
    recorder.record(POD, "Normal", "Scheduled", "Bound to n1")
    assert recorder.flush()
    [event] = written(api)
    name = event["metadata"].pop("name")
    assert name.startswith("web-1.")
    assert event["metadata"]["namespace"] == "default"
    assert {k: v for k, v in event.items() if k != "metadata"} == {
        "apiVersion": "v1",
        "kind": "Event",
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": "web-1",
            "namespace": "default",
            "uid": "uid-1",
        },
        "type": "Normal",
        "reason": "Scheduled",
        "message": "Bound to n1",
        "source": {"component": "tonnage-scheduler"},
        "reportingComponent": "tonnage-scheduler",
        "reportingInstance": "tonnage-scheduler",
        "firstTimestamp": "2023-11-14T22:13:20Z",
        "lastTimestamp": "2023-11-14T22:13:20Z",
        "count": 1,
    }


def test_an_event_about_a_node_lies_in_the_default_namespace(api: ScriptedApi, recorder: EventRecorder) -> None:
    recorder.record(NODE, "Warning", "Draining", "why")
    assert recorder.flush()
    assert written(api)[0]["metadata"]["namespace"] == "default"
    assert "namespace" not in written(api)[0]["involvedObject"]


def test_a_repeat_raises_the_count(api: ScriptedApi, recorder: EventRecorder, clock: Clock) -> None:
    for _ in range(3):
        recorder.record(POD, "Warning", "FailedScheduling", "0/3 nodes")
        clock.now += 60
    assert recorder.flush()
    [event] = written(api)
    assert event["count"] == 3
    assert (event["firstTimestamp"], event["lastTimestamp"]) == ("2023-11-14T22:13:20Z", "2023-11-14T22:15:20Z")
    assert [method for method, _ in api.requests] == ["POST", "PATCH", "PATCH"]


def test_from_the_tenth_look_alike_on_they_become_one(api: ScriptedApi, recorder: EventRecorder, clock: Clock) -> None:
    for i in range(14):
        recorder.record(POD, "Warning", "FailedScheduling", f"try {i}")
        clock.now += 1
    assert recorder.flush()
    assert len(written(api)) == 10
    combined = [event for event in written(api) if event["message"].startswith("(combined from similar events): ")]
    assert [event["message"] for event in combined] == ["(combined from similar events): try 13"]
    assert combined[0]["count"] == 5


def test_an_event_that_expired_on_the_server_is_made_anew(api: ScriptedApi, recorder: EventRecorder) -> None:
    recorder.record(POD, "Normal", "Waiting", "still")
    assert recorder.flush()
    api.objects.clear()
    recorder.record(POD, "Normal", "Waiting", "still")
    assert recorder.flush()
    assert [event["count"] for event in written(api)] == [1]


def test_what_did_not_get_there_is_sent_again(api: ScriptedApi, recorder: EventRecorder) -> None:
    api.faults += [unreachable, unreachable]
    recorder.record(POD, "Normal", "Scheduled", "x")
    assert recorder.flush()
    assert len(written(api)) == 1
    assert (recorder.dropped, recorder.problem) == (0, "")


@pytest.mark.parametrize("fault", [lost, lambda: refusal(403, "Forbidden", "namespace is being terminated")])
def test_what_the_server_does_not_take_is_dropped_and_counted(
    api: ScriptedApi, recorder: EventRecorder, fault: Any
) -> None:
    api.faults.append(fault)
    recorder.record(POD, "Normal", "Scheduled", "x")
    assert recorder.flush()
    assert recorder.dropped == 1
    assert recorder.problem
    recorder.record(POD, "Normal", "Scheduled", "y")
    assert recorder.flush()
    assert len(written(api)) == 1


def test_recording_never_waits_and_a_full_queue_drops(api: ScriptedApi, clock: Clock) -> None:
    gate = threading.Event()
    api.faults.append(lambda: gate.wait(5))
    recorder = EventRecorder(Client(api), "c", clock, limit=5)
    begun = time.monotonic()
    for i in range(50):
        recorder.record(About("v1", "Pod", f"p{i}", "default"), "Normal", "Scheduled", "x")
    assert time.monotonic() - begun < 1
    assert recorder.dropped >= 44
    gate.set()
    assert recorder.flush()
    assert len(written(api)) + recorder.dropped == 50
    assert recorder.close()


def test_close_sends_what_waits_and_ends_the_thread(api: ScriptedApi, clock: Clock) -> None:
    recorder = EventRecorder(Client(api), "c", clock)
    for i in range(20):
        recorder.record(About("v1", "Pod", f"p{i}", "default"), "Normal", "Scheduled", "x")
    assert recorder.close()
    assert len(written(api)) == 20
    recorder.record(POD, "Normal", "Scheduled", "too late")
    assert recorder.dropped == 1
    assert not [t for t in threading.enumerate() if t.name == "events-c"]


def test_close_does_not_wait_for_a_server_that_is_away(api: ScriptedApi, clock: Clock) -> None:
    gate = threading.Event()
    api.faults.append(lambda: gate.wait(5))
    recorder = EventRecorder(Client(api), "c", clock)
    for i in range(3):
        recorder.record(About("v1", "Pod", f"p{i}", "default"), "Normal", "Scheduled", "x")
    begun = time.monotonic()
    assert not recorder.close(0.1)
    assert time.monotonic() - begun < 2
    gate.set()


def test_an_object_gets_25_events_at_once_and_then_one_every_five_minutes() -> None:
    correlator, at = Correlator(), 0.0
    took = [correlator.message(POD, "Normal", f"Reason{i}", "x", at) is not None for i in range(40)]
    assert took == [True] * 25 + [False] * 15
    assert correlator.message(NODE, "Normal", "Reason", "x", at) == "x", "another object has its own share"
    took = [correlator.message(POD, "Normal", f"Later{i}", "x", at + 299) is not None for i in range(2)]
    assert took == [False, False]
    took = [correlator.message(POD, "Normal", f"Later{i}", "x", at + 601) is not None for i in range(4)]
    assert took == [True, True, False, False]


def test_look_alikes_are_told_apart_again_after_ten_quiet_minutes() -> None:
    correlator = Correlator()
    messages = [correlator.message(POD, "Normal", "R", f"m{i}", 0.0) for i in range(11)]
    assert messages[:9] == [f"m{i}" for i in range(9)]
    assert messages[9:] == [f"(combined from similar events): m{i}" for i in (9, 10)], "the tenth is, as in client-go"
    assert correlator.message(POD, "Normal", "R", "m3", 1.0) == "m3", "one that is known stays itself"
    assert correlator.message(POD, "Normal", "R", "m11", 602.0) == "m11"


def test_memory_of_objects_is_bounded() -> None:
    correlator = Correlator()
    for i in range(3 * REMEMBERED):
        correlator.message(About("v1", "Pod", f"p{i}"), "Normal", "R", "m", 0.0)
    assert len(correlator._buckets._kept) == len(correlator._similar._kept) == REMEMBERED


# ---- nobody waits ----


def test_the_first_event_of_an_object_is_written_without_a_thread_that_waits_and_repeats_after_it(clock: Clock) -> None:
    api = OverlappingApi()
    gate = threading.Event()
    api.faults.append(lambda: gate.wait(5))
    recorder = EventRecorder(Client(api), "c", clock)
    for _ in range(3):
        recorder.record(POD, "Normal", "Waiting", "still")
    gate.set()
    assert recorder.flush()
    assert api.submitted == ["/api/v1/namespaces/default/events"]
    assert [method for method, _ in api.requests] == ["POST", "PATCH", "PATCH"]
    assert [event["count"] for event in written(api)] == [3]
    assert recorder.close()


@pytest.mark.parametrize(
    ("fault", "requests"),
    [
        (unreachable, ["POST", "POST"]),
        (lambda: refusal(429, "TooManyRequests", retry_after=1), ["POST", "POST"]),
        (lambda: refusal(409, "AlreadyExists"), ["POST", "POST"]),
    ],
)
def test_what_was_not_written_at_first_is_tried_again_by_a_thread(
    clock: Clock, fault: Callable[[], object], requests: list[str]
) -> None:
    api = OverlappingApi()
    api.faults.append(fault)
    ended: list[str] = []
    recorder = EventRecorder(Client(api), "c", clock)
    recorder.record(POD, "Normal", "Scheduled", "x", lambda: ended.append("ended"))
    assert recorder.flush()
    assert ([method for method, _ in api.requests], len(api.submitted)) == (requests, 1)
    assert (len(written(api)), recorder.dropped, ended) == (1, 0, ["ended"])
    assert recorder.close()


# ---- several writers ----


def test_several_writers_write_at_once_and_of_one_object_in_order(api: ScriptedApi, clock: Clock) -> None:
    recorder = EventRecorder(Client(api), "c", clock, writers=4)
    pods = [About("v1", "Pod", f"p-{number}", "default", f"uid-{number}") for number in range(40)]
    for message in ("first", "second", "third"):
        for pod in pods:
            recorder.record(pod, "Normal", message.capitalize(), message)
    assert recorder.flush()
    for pod in pods:
        mine = [o for o in written(api) if o["involvedObject"]["uid"] == pod.uid]
        numbers = {o["message"]: int(o["metadata"]["name"].rpartition(".")[2], 16) for o in mine}
        assert numbers["first"] < numbers["second"] < numbers["third"]
    assert recorder.close(1)


def test_the_end_of_an_event_is_told_whatever_becomes_of_it(
    api: ScriptedApi, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "_SEND_PAUSE_S", 0.01)
    recorder = EventRecorder(Client(api), "c", clock)
    ended: list[str] = []
    recorder.record(POD, "Normal", "Scheduled", "written", lambda: ended.append("written"))
    assert recorder.flush()
    api.faults.append(lambda: refusal(403, "Forbidden"))
    recorder.record(POD, "Normal", "Other", "refused", lambda: ended.append("refused"))
    assert recorder.flush()
    recorder.close(0.1)
    recorder.record(POD, "Normal", "Late", "dropped", lambda: ended.append("dropped"))
    assert ended == ["written", "refused", "dropped"]
    assert recorder.dropped == 2
