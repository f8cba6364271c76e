"""Machines and the controllers of training frameworks on an embedded API, where time goes by as a test says."""

from __future__ import annotations

import random
import time
from collections import Counter
from contextlib import nullcontext
from typing import Any

from tonnage.cluster.client.informer import Informers
from tonnage.cluster.client.transport import ApiError, Reply
from tonnage.cluster.client.verbs import Client
from tonnage.cluster.resources import CRDS, PODS, Resource
from tonnage.cluster.server.api import Api
from tonnage.cluster.server.inprocess import InProcess
from tonnage.cluster.server.managers.loop import Managers, Options
from tonnage.fleet.invariants import violations
from tonnage.hollow.definitions import crd
from tonnage.hollow.machines import Machines
from tonnage.hollow.operators import Operators, operated
from tonnage.hollow.running import MachineRoom, RunningClock
from tonnage.hollow.setting import lay_out
from tonnage.simulation import run
from tonnage.units import NS_PER_S

Json = dict[str, Any]
WORK = "tonnage.dev/simulated-work"


class Refusing(InProcess):
    """Refuses writes of the pods and workloads with these names, and counts them."""

    def __init__(self, api: Api) -> None:
        super().__init__(api)
        self.refused: Counter[str] = Counter()

    def request(self, method: str, path: str, **rest: Any) -> Reply:
        name = path.removesuffix("/status").rpartition("/")[2]
        if method != "GET" and name in self.refused:
            self.refused[name] += 1
            raise ApiError(403, "Forbidden", f"{name} may not be written")
        return super().request(method, path, **rest)


class Running:
    """Machines, operators and managers on an embedded API. Time goes by only where a test says so."""

    def __init__(self, made: run.SetUp, *, theirs: tuple[Resource, ...] = (), managed: bool = False) -> None:
        made.cluster.runs_workloads = False
        self.cluster = made.cluster
        self.now_s = 0.0
        clock = RunningClock(1_800_000_000 * NS_PER_S, monotonic=lambda: self.now_s)
        clock.go()
        api = Api(clock=clock.seconds, random=random.Random(1))
        self.client = Client(InProcess(api))
        for resource in theirs:
            body = crd(resource)
            del body["metadata"]["annotations"]
            self.client.create(CRDS, body)
        self.managers = Managers(
            self.client, lambda notify: api.store.subscribe(notify=notify), clock.seconds, 1, Options(node_grace_s=0)
        )
        self.refusing = Refusing(api)
        self.machines = Machines(made.cluster, Client(self.refusing))
        self.informers = Informers(self.client, time.time, random.Random(1))
        self.room = MachineRoom(self.machines, self.informers, clock, nullcontext())
        self.room.begin([])
        self.room.turn()
        lay_out(made, self.client, self.machines, managed=managed)
        made.start_training()
        self.room.operate(Operators(self.machines, self.client), operated(self.client, embedded=not managed))
        assert self.informers.wait_synced(10)
        self.settle()

    def settle(self, quiet_s: float = 0.15) -> None:
        """Until nothing happens any more."""
        quiet = time.monotonic()
        while time.monotonic() - quiet < quiet_s or self._unseen():
            self.room.turn()
            if self.managers.step() or self.informers.pump(0.01) or self.machines.behind:
                quiet = time.monotonic()

    def _unseen(self) -> bool:
        """Whether a watch has not brought all that is in the API: on a busy machine its thread may come late."""
        for informer in self.informers:
            if not informer.synced:
                continue
            there = {
                one["metadata"]["uid"]: one["metadata"]["resourceVersion"]
                for one in self.client.list(informer.resource)
            }
            if there != {one.metadata.uid: one.metadata.resource_version for one in informer.items()}:
                return True
        return False

    def turns(self, seconds: float) -> None:
        """Let what happens happen for so long, also where something is left to be written."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.room.turn()
            self.managers.step()
            self.informers.pump(0.01)

    def later(self, seconds: float) -> None:
        """Let time go by."""
        end = self.now_s + seconds
        while self.now_s < end:
            self.now_s = min(end, self.now_s + max(1.0, seconds / 5))
            self.settle(0.05)
        found = [said for training in self.cluster.training.values() for said in training.violations()]
        assert [*violations(self.cluster.fleet), *found] == []

    def pods(self) -> dict[str, str]:
        """The phase of every pod in the API, by name."""
        return {one["metadata"]["name"]: one["status"]["phase"] for one in self.client.list(PODS)}

    def place(self) -> None:
        """Bind every pod that waits, to the node with the fewest pods."""
        for one in self.client.list(PODS):
            meta = one["metadata"]
            if one["spec"].get("nodeName") or "deletionTimestamp" in meta or one["status"]["phase"] == "Succeeded":
                continue
            fleet = self.cluster.fleet
            node = min(fleet.node_rows(), key=lambda row: len(fleet.node(row).pods))
            self.client.bind(meta["name"], meta["namespace"], meta["uid"], fleet.node(node).spec.name)
            self.turns(0.05)

    def status(self, resource: Resource, name: str, namespace: str = "research") -> Json:
        found: Json = self.client.get(resource, name, namespace).get("status", {})
        return found

    def create(self, resource: Resource, body: Json, work: str = "") -> None:
        """Create a workload that works for so long."""
        if work:
            body["metadata"]["annotations"] = {WORK: work}
        self.client.create(resource, body, "research")
        self.settle()

    def close(self) -> None:
        self.informers.stop()
        self.managers.close()
        self.machines.close()
