"""Gangs on a real API server, placed by our scheduler as a process that is killed in the middle of binding them.

Nodes claim to be ready, and no kubelets stand behind them. Whoever makes pods again is the test itself.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import msgspec
import pytest
from e2e_builders import GPU, node
from e2e_controllers import USERS, Process, controller, grant

from e2e.api import Api, Json
from e2e.control_plane import UNTOUCHED, ControlPlane
from e2e.processes import until
from live.gangs.gang_objects import GROUPS, PODS, WORKLOADS, bare_pods, place_of, pods_of
from tonnage.hollow.definitions import crd
from tonnage.kube.resources import CRDS, Resource
from tonnage.live.groups import KINDS
from tonnage.objects import core

GANGS = 200
ROOM = 280
"""GPUs: enough for about half of them."""
KINDS_HERE = ("JobSet", "PyTorchJob", "LeaderWorkerSet", "RayCluster", "VolcanoJob", "Job", "KAI", "Kueue", "YuniKorn")
ML = "/api/v1/namespaces/ml/pods"
SEED = 1


@pytest.fixture(scope="module")
def plane(start_plane: Any) -> Iterator[ControlPlane]:
    """Nothing but an API server, with the kinds of gangs and nodes that claim to be ready."""
    found: ControlPlane = start_plane(controllers=(), scheduler=False, users=USERS, admission_off=UNTOUCHED)
    api = found.api()
    found.namespace("ml")
    for resource in {_resource(_object(kind, 2, "x")) for kind in KINDS_HERE if kind in WORKLOADS or kind in GROUPS}:
        if resource.custom:
            api.create(CRDS.path(), crd(resource))
            until(f"{resource.plural}", lambda r=resource: api.raw("GET", r.path())[0] == 200)
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", GPU: "8"}
    for number in range(ROOM // 8):
        api.create("/api/v1/nodes", node(f"n{number:03d}", amounts))
    yield found


def _object(kind: str, count: int, name: str) -> Any:
    return (WORKLOADS[kind] if kind in WORKLOADS else GROUPS[kind])(count, name)


def _resource(obj: Any) -> Resource:
    return KINDS[place_of(obj)][0]


class Frameworks:
    """Makes gangs, and their pods again when they go."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.bodies: dict[str, Json] = {}
        self.sizes: dict[str, list[str]] = {}
        self.intruders = 0

    def gang(self, kind: str, count: int, name: str) -> None:
        """A gang, and its pods."""
        if kind in WORKLOADS or kind in GROUPS:
            obj = _object(kind, count, name)
            written = obj.written | {"metadata": obj.written["metadata"] | {"name": name}}
            stored = self.api.create(_resource(obj).path("ml"), written)
        pods = bare_pods(kind, count, name) if kind in PODS else pods_of(obj)
        self.sizes[name] = [pod.name for pod in pods]
        for pod in pods:
            self.bodies[pod.name] = self._body(pod, "" if kind in PODS else stored["metadata"]["uid"])
        self.api.each(lambda pod: self.api.create(ML, self.bodies[pod.name]), pods)

    def _body(self, pod: core.Pod, uid: str) -> Json:
        owners = [
            {"apiVersion": o.api_version, "kind": o.kind, "name": o.name, "uid": uid, "controller": True}
            for o in pod.metadata.owner_references
        ]
        metadata = {
            "name": pod.name,
            "labels": pod.metadata.labels,
            "annotations": msgspec.to_builtins(pod.metadata.annotations),
            "ownerReferences": owners,
        }
        container = {"name": "main", "image": "i", "resources": {"limits": {GPU: "1"}}}
        spec = {"schedulerName": "tonnage", "containers": [container]}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def make_anew(self) -> None:
        """Pods that are being deleted go, and others come in their stead."""
        there = {pod["metadata"]["name"]: pod for pod in self.api.items(ML)}
        for name, pod in there.items():
            if "deletionTimestamp" in pod["metadata"]:
                self.api.delete(f"{ML}/{name}", {"gracePeriodSeconds": 0})
        gone = [n for n in self.bodies if n not in there or "deletionTimestamp" in there[n]["metadata"]]
        self.api.each(lambda name: self.api.create(ML, self.bodies[name]), gone)

    def intrude(self) -> None:
        """Another scheduler takes every GPU that is free."""
        taken = Counter(pod["spec"].get("nodeName", "") for pod in self.api.items(ML))
        for number in range(ROOM // 8):
            for _ in range(8 - taken[f"n{number:03d}"]):
                self.intruders += 1
                container = {"name": "main", "image": "i", "resources": {"limits": {GPU: "1"}}}
                spec = {"schedulerName": "other", "nodeName": f"n{number:03d}", "containers": [container]}
                body = {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": f"other-{self.intruders}"},
                    "spec": spec,
                }
                self.api.create(ML, body)

    def leave(self) -> None:
        """The other scheduler's pods have done their work."""
        for number in range(self.intruders):
            self.api.delete(f"{ML}/other-{number + 1}", {"gracePeriodSeconds": 0})
        self.intruders = 0

    def bound(self) -> dict[str, int]:
        """How many pods of each gang are on a node."""
        nodes = {
            pod["metadata"]["name"]
            for pod in self.api.items(ML)
            if pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]
        }
        return {name: sum(pod in nodes for pod in pods) for name, pods in self.sizes.items()}

    def in_part(self) -> dict[str, int]:
        """The gangs that are bound in part."""
        return {name: n for name, n in self.bound().items() if 0 < n < len(self.sizes[name])}


def begun(plane: ControlPlane) -> Process:
    """Our scheduler, which has its lease."""
    process = controller(plane, "scheduler")
    process.start()
    return process


def killed_in_the_middle(plane: ControlPlane, frameworks: Frameworks, more: int) -> None:
    """The scheduler is killed when it has bound some pods, and not yet ``more`` of them."""
    before = sum(frameworks.bound().values())
    process = controller(plane, "scheduler")
    process.start(wait=False)
    until("the first bindings", lambda: sum(frameworks.bound().values()) > before, 60, every_s=0.01)
    process.stop(signal.SIGKILL)
    assert before < sum(frameworks.bound().values()) < before + more, "it was killed too late"


def test_two_hundred_gangs_of_a_scheduler_that_is_killed_stand_whole_or_not_at_all(plane: ControlPlane) -> None:
    rng, frameworks = Random(SEED), Frameworks(plane.api())
    grant(plane, "scheduler")
    for number in range(GANGS):
        frameworks.gang(rng.choice(KINDS_HERE), rng.randint(2, 4), f"g{number}")
    killed_in_the_middle(plane, frameworks, ROOM)
    frameworks.intrude()
    in_part = frameworks.in_part()
    print(f"partially bound when it was killed: {in_part}")
    process = begun(plane)

    def whole() -> bool:
        frameworks.make_anew()
        return not frameworks.in_part()

    until("gangs that are partially bound are let go of", whole, 150, every_s=1)
    assert process.decided("Evict") or not in_part
    process.stop(signal.SIGKILL)
    frameworks.leave()
    killed_in_the_middle(plane, frameworks, ROOM)
    process = begun(plane)
    until("all that fits is bound", lambda: ROOM - sum(frameworks.bound().values()) < 2, 60, every_s=0.5)
    time.sleep(1)
    assert frameworks.in_part() == {}
    assert process.end() == 0, process.tail()
    assert process.complaints() == []
