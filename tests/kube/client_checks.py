"""What a client must find at any API server, embedded or real."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tonnage.kube.correlation import About
from tonnage.kube.events import EventRecorder
from tonnage.kube.http import HttpTransport, Stream
from tonnage.kube.informer import Informers
from tonnage.kube.leases import Elector
from tonnage.kube.reflector import Delays
from tonnage.kube.resources import EVENTS, LEASES, PODS
from tonnage.kube.transport import Reply, Unreachable
from tonnage.kube.verbs import Client

QUICK = Delays(first=0.05, most=0.5, absent=(0.1, 0.2), watch=(300.0, 600.0))


def pod(name: str, **labels: str) -> dict[str, Any]:
    container = {"name": "c", "image": "registry.test/pause:1"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {"schedulerName": "tonnage", "containers": [container]},
    }


def until(informers: Informers, done: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, f"it never came; problems: {informers.problems()}"
        informers.pump(0.05)


def names(client: Client, namespace: str) -> list[str]:
    return sorted(item["metadata"]["name"] for item in client.list(PODS, namespace))


class Gate:
    """A transport whose watches can be cut off and kept out. ``taken`` notes the queries of watches asked for."""

    def __init__(self, inner: HttpTransport) -> None:
        self.inner = inner
        self.shut = False
        self.taken: list[dict[str, str]] = []
        self._streams: list[Stream] = []

    def request(self, method: str, path: str, **rest: Any) -> Reply:
        return self.inner.request(method, path, **rest)

    def stream(self, path: str, *, query: dict[str, str], timeout_s: float) -> Stream:
        stream = self.inner.stream(path, query=query, timeout_s=timeout_s)
        self._streams.append(stream)
        if self.shut:
            raise Unreachable("the gate is shut")
        self.taken.append(dict(query))
        return stream

    def close(self) -> None:
        self.inner.close()

    def cut(self) -> None:
        self.shut = True
        for stream in list(self._streams):
            stream.close()


def check_election(client: Client, namespace: str) -> None:
    """One leads; its release lets the next in; the lease is what kubectl would show."""

    def elector(identity: str) -> Elector:
        return Elector(client, "tonnage-test", namespace, identity, time.time)

    a, b = elector("a"), elector("b")
    assert a.step(), a.problem
    assert not b.step()
    assert a.step(), a.problem
    assert (a.leading(), b.leading(), b.holder, b.problem) == (True, False, "a", "")
    a.release()
    assert a.problem == ""
    assert b.step(), b.problem
    assert not a.leading()
    lease = client.get(LEASES, "tonnage-test", namespace)
    assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseTransitions"]) == ("b", 1)
    b.release()
    assert client.get(LEASES, "tonnage-test", namespace)["spec"].get("holderIdentity", "") == ""


def check_events(client: Client, namespace: str) -> None:
    """Repeats are counted in one object."""
    recorder = EventRecorder(client, "tonnage-test", time.time)
    about = About("v1", "Pod", "web-1", namespace, "11111111-2222-3333-4444-555555555555")
    for _ in range(3):
        recorder.record(about, "Warning", "FailedScheduling", "0/3 nodes are available")
    recorder.record(about, "Normal", "Scheduled", "x" * 5000)
    assert recorder.flush(), recorder.problem
    assert (recorder.dropped, recorder.problem) == (0, "")
    recorder.close()
    found = [e for e in client.list(EVENTS, namespace) if e["involvedObject"]["name"] == "web-1"]
    assert sorted((e["reason"], e["count"], e["type"]) for e in found) == [
        ("FailedScheduling", 3, "Warning"),
        ("Scheduled", 1, "Normal"),
    ]
