"""Machines and the controllers of training frameworks on an embedded API, where time goes by as a test says."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import nullcontext
from typing import Any

from hollow.informers_in_step import InformersInStep
from tonnage.apiserver.api import Api
from tonnage.apiserver.controllers.loop import ControllerManager, ManagerOptions
from tonnage.apiserver.inprocess import InProcess
from tonnage.fleet.invariants import violations
from tonnage.hollow.definitions import crd
from tonnage.hollow.machines import MachineOptions, Machines
from tonnage.hollow.operators import Operators, operated
from tonnage.hollow.running import MachineRoom, RunningClock
from tonnage.hollow.setting import lay_out
from tonnage.kube.events import EventRecorder
from tonnage.kube.resources import CRDS, PODS, Resource
from tonnage.kube.transport import ApiError, Reply
from tonnage.kube.verbs import Client
from tonnage.live.recording import Events
from tonnage.scheduling.place import SCHEDULER_NAME
from tonnage.simulation import run
from tonnage.units import NS_PER_S

Json = dict[str, Any]
WORK = "tonnage.dev/simulated-work"
MOST_TURNS = 10_000
START_NS = 1_800_000_000 * NS_PER_S


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
    """Machines, operators and managers on an embedded API, in one thread. Time goes by only where a test says so.

    ``late``: how watches lag behind each other; without it none does. ``recorded``: whether events are written."""

    def __init__(
        self,
        made: run.SetUp,
        *,
        theirs: tuple[Resource, ...] = (),
        managed: bool = False,
        late: random.Random | None = None,
        recorded: bool = False,
        scheduler_name: str = SCHEDULER_NAME,
    ) -> None:
        made.cluster.runs_workloads = False
        self.cluster = made.cluster
        self.now_s = 0.0
        clock = self.clock = RunningClock(START_NS, monotonic=lambda: self.now_s)
        clock.go()
        api = self.api = Api(clock=clock.seconds, random=random.Random(1))
        self.client = Client(InProcess(api))
        for resource in theirs:
            body = crd(resource)
            del body["metadata"]["annotations"]
            self.client.create(CRDS, body)
        self.managers = ControllerManager(
            self.client,
            lambda notify: api.store.subscribe(notify=notify),
            clock.seconds,
            1,
            ManagerOptions(node_grace_s=0),
        )
        self.refusing = Refusing(api)
        self.recorder = EventRecorder(self.client, "simulated-machines", clock.seconds) if recorded else None
        event = Events(self.recorder).event if self.recorder is not None else None
        options = MachineOptions(epoch_ns=START_NS if recorded else 0, event=event)
        self.machines = Machines(made.cluster, Client(self.refusing), options)
        self.informers = InformersInStep(self.client, api, late)
        self.room = MachineRoom(self.machines, self.informers, clock, nullcontext())
        self.room.begin([])
        self.room.turn()
        lay_out(made, self.client, self.machines, scheduler_name, managed=managed)
        made.start_training()
        self.room.operate(Operators(self.machines, self.client), operated(self.client, embedded=not managed))
        self.settle()

    def settle(self) -> None:
        """Until nothing happens any more: all watches have brought what is in the API, and all is written."""
        for _ in range(MOST_TURNS):
            if not self._turn() and not self.informers.backlog and not self.machines.behind:
                return
        raise AssertionError(f"it does not settle: {self.machines.errors}")

    def turns(self, count: int = 10) -> None:
        """Let what happens happen for this long, also where something is left to be written."""
        for _ in range(count):
            self._turn()

    def _turn(self) -> bool:
        """Whether something has happened."""
        behind = self.machines.behind or bool(self.informers.backlog)
        self.room.turn()
        return bool(self.managers.step() or self.informers.pump(0)) or behind

    def later(self, seconds: float) -> None:
        """Let time go by."""
        end = self.now_s + seconds
        while self.now_s < end:
            self.now_s = min(end, self.now_s + max(1.0, seconds / 5))
            self.settle()
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
            self.turns()

    def status(self, resource: Resource, name: str, namespace: str = "research") -> Json:
        found: Json = self.client.get(resource, name, namespace).get("status", {})
        return found

    def create(self, resource: Resource, body: Json, work: str = "") -> None:
        """Create a workload that works for this long."""
        if work:
            body["metadata"]["annotations"] = {WORK: work}
        self.client.create(resource, body, "research")
        self.settle()

    def close(self) -> None:
        self.informers.stop()
        self.managers.close()
        self.machines.close()
        if self.recorder is not None:
            self.recorder.close()
