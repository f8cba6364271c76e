"""The API's objects are put back to an earlier state, as when etcd is restored from a backup, while a scheduler runs."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tonnage.apiserver.api import Api
from tonnage.apiserver.inprocess import InProcess, InProcessStream
from tonnage.apiserver.store import Stored
from tonnage.decisions import Applied, Bind, Decision, Launch, Outcome, Reason, Ref
from tonnage.fleet.invariants import violations
from tonnage.kube.clock import WallClock
from tonnage.kube.informer import Informers
from tonnage.kube.reflector import Delays
from tonnage.kube.resources import NODE_CLAIMS, NODES, PODS
from tonnage.kube.transport import JSON, Reply
from tonnage.kube.verbs import Client
from tonnage.live import assembly
from tonnage.live.api_effects import ApiEffects
from tonnage.live.manager import Manager
from tonnage.live.recording import Silent
from tonnage.live.watching import watch_world
from tonnage.live.world import ClusterWorld
from tonnage.provisioning.catalogue import Catalogue

GPU = "nvidia.com/gpu"
QUICK = Delays(first=0.002, most=0.02, absent=(30.0, 60.0), watch=(60.0, 90.0), short=0.0)
LIMIT_S = 5.0
WHY = Reason("because of a test")


class Restorable:
    """A Transport to an embedded API that can be exchanged for one with the objects of a backup."""

    def __init__(self) -> None:
        self.api = Api(bookmark_s=0.05)
        self.inner = InProcess(self.api)
        self.forgets = False
        """Bindings are answered, and not in the backup that is restored next."""

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        content_type: str = JSON,
        accept: str = JSON,
        timeout_s: float = 30.0,
    ) -> Reply:
        if self.forgets and path.endswith("/binding"):
            return Reply(201, b'{"kind":"Status","status":"Success"}')
        return self.inner.request(
            method, path, query=query, body=body, content_type=content_type, accept=accept, timeout_s=timeout_s
        )

    def stream(self, path: str, *, query: Mapping[str, str], timeout_s: float) -> InProcessStream:
        return self.inner.stream(path, query=query, timeout_s=timeout_s)

    def close(self) -> None:
        self.inner.close()

    def backup(self) -> tuple[int, list[tuple[Any, Stored]]]:
        """Revision and objects."""
        store = self.api.store
        kept = [(resource, one) for resource in store._tables for one in store.items(resource)[0]]
        return store.version, sorted(kept, key=lambda pair: pair[1].version)

    def restore(self, backup: tuple[int, list[tuple[Any, Stored]]]) -> None:
        """Another server, whose store has the objects of the backup at their versions; the old one's watches end."""
        old, self.api = self.api, Api(bookmark_s=0.05)
        store = self.api.store
        for resource, one in backup[1]:
            store.version = one.version - 1
            store.put(resource, one.fresh())
        store.version = backup[0]
        store.compact()
        before, self.inner = self.inner, InProcess(self.api)
        before.close()
        old.close()


class Watcher:
    """Hears of everything that is decided."""

    def __init__(self) -> None:
        self.bound: list[tuple[str, str]] = []

    def decided(self, controller: str, loop: str, decision: Decision, outcome: Outcome) -> None:
        if isinstance(decision, Bind) and isinstance(outcome, Applied):
            self.bound.append((decision.pod.name, decision.node.name))

    def failed(self, loop: str, error: Exception) -> None:
        raise error

    def ticked(self, loop: str, seconds: float, taken: int) -> None:
        """Nothing to note."""


class Cluster:
    """An embedded API, and a scheduler of its own clock on it."""

    def __init__(self) -> None:
        self.transport = Restorable()
        self.client = Client(self.transport)
        clock = WallClock()
        self.world = ClusterWorld(
            ApiEffects(self.client, clock), clock, price=lambda *_: 0, recorder=Silent(), parallel=4
        )
        self.informers = Informers(self.client, time.time, random.Random(1), delays=QUICK)
        required = watch_world(self.informers, self.world)
        self.heard = Watcher()
        made = assembly.controllers(["scheduler"], self.world, Catalogue.load(), lambda name: None)
        self.manager = Manager(self.world, self.informers, required, made, self.heard)
        self.manager.start()

    def node(self, name: str, gpus: int) -> None:
        room = {"cpu": "64", "memory": "256Gi", "pods": "50", GPU: str(gpus)}
        status = {
            "capacity": room,
            "allocatable": room,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Test", "message": ""}],
        }
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}
        self.client.create(NODES, body)

    def pod(self, name: str, gpus: int = 1) -> str:
        container = {"name": "c", "image": "registry.test/c:1", "resources": {"limits": {GPU: str(gpus)}}}
        spec = {"schedulerName": "tonnage", "containers": [container]}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        made: str = self.client.create(PODS, body, "default")["metadata"]["uid"]
        return made

    def bind(self, pod: str, uid: str, node: str) -> Bind:
        there = self.client.get(NODES, node)["metadata"]["uid"]
        return Bind(Ref("Pod", pod, "default", uid), Ref("Node", node, uid=there), WHY, (0,))

    def placed(self) -> dict[str, str]:
        """Node by pod, as the API has it."""
        return {p["metadata"]["name"]: p["spec"].get("nodeName", "") for p in self.client.list(PODS)}

    def believed(self) -> dict[str, str]:
        """The same as the world has it."""
        fleet = self.world.fleet
        pods = [pod for pod in fleet.pods if pod is not None]
        return {p.spec.name: fleet.node(p.node).spec.name if p.node >= 0 else "" for p in pods}

    def until(self, done: Any) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not done():
            assert time.monotonic() < deadline, (self.placed(), self.believed(), self.informers.problems())
            self.manager.step()
            self.informers.pump(0.01)

    def stop(self) -> None:
        self.informers.stop()
        self.world.close()
        self.transport.close()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    yield made
    made.stop()


def test_pods_that_a_backup_shows_unbound_are_bound_again_and_new_ones_are_seen(cluster: Cluster) -> None:
    cluster.node("a", 4)
    for name in ("kept", "waits"):
        cluster.pod(name, 1 if name == "kept" else 3)
        if name == "kept":
            cluster.until(lambda: cluster.placed()["kept"] == "a")
    backup = cluster.transport.backup()
    cluster.until(lambda: cluster.placed()["waits"] == "a" and cluster.believed() == cluster.placed())
    cluster.client.delete(PODS, "kept", "default", grace_s=0)
    cluster.pod("younger")
    cluster.until(lambda: cluster.placed().get("younger") == "a" and cluster.believed() == cluster.placed())
    cluster.transport.restore(backup)
    assert cluster.placed() == {"kept": "a", "waits": ""}
    cluster.until(lambda: cluster.placed() == {"kept": "a", "waits": "a"})
    cluster.node("b", 1)
    cluster.pod("new")
    cluster.until(lambda: cluster.placed().get("new") == "b" and cluster.believed() == cluster.placed())
    assert cluster.heard.bound == [("kept", "a"), ("waits", "a"), ("younger", "a"), ("waits", "a"), ("new", "b")]
    assert violations(cluster.world.fleet) == []
    assert cluster.manager.degraded() == {}


def test_what_was_answered_and_is_not_in_the_backup_is_assumed_no_more(cluster: Cluster) -> None:
    """A binding and a NodeClaim of which no watch had brought word when the API went back."""
    cluster.node("a", 1)
    uid = cluster.pod("assumed", 1)
    cluster.manager.controllers = ()  # nobody decides
    cluster.manager.start()
    cluster.until(lambda: cluster.believed() == {"assumed": ""} and "a" in cluster.world.fleet.node_by_name)
    backup = cluster.transport.backup()
    cluster.node("b", 1)
    named = cluster.informers.named()
    cluster.until(lambda: min(named[name].resource_version for name in ("pods", "nodes")) > backup[0])
    cluster.transport.forgets = True
    assert cluster.world.apply(cluster.bind("assumed", uid, "a")) == Applied()
    fields = {"node_pool": "p", "instance_type": "g6.xlarge", "zone": "z", "capacity_type": "spot"}
    launch = Launch(Ref("NodeClaim", "p-1"), price_micro_usd_per_hour=1, reason=WHY, **fields)  # type: ignore[arg-type]
    cluster.world._assume_claim(launch, sure=True)
    assert (cluster.believed(), cluster.world.state.knows_claim("p-1")) == ({"assumed": "a"}, True)
    cluster.transport.restore(backup)
    cluster.until(lambda: not cluster.world.state.knows_claim("p-1") and cluster.believed() == {"assumed": ""})
    cluster.until(lambda: "b" not in cluster.world.fleet.node_by_name)
    assert cluster.client.list(NODE_CLAIMS) == []
    assert violations(cluster.world.fleet) == []


def test_what_was_answered_and_is_there_counts_on(cluster: Cluster) -> None:
    """A binding that was made on the restored API while its list was on the way: its GPU is not given twice."""
    cluster.node("a", 1)
    uid = cluster.pod("p")
    cluster.manager.controllers = ()
    cluster.manager.start()
    cluster.until(lambda: cluster.believed() == {"p": ""} and "a" in cluster.world.fleet.node_by_name)
    assert cluster.world.apply(cluster.bind("p", uid, "a")) == Applied()
    cluster.world.restored()
    cluster.manager.step()
    assert cluster.believed() == {"p": "a"}
