"""All that `tonnage up` runs on its embedded API, in one thread: time goes by only where a test says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from hollow.informers_in_step import InformersInStep
from hollow.running_api import Json, Running
from tonnage.control.disruption import node_loops
from tonnage.decisions import Decision, Outcome
from tonnage.hollow.autoscaler_objects import AutoscalerObjects
from tonnage.hollow.autoscaling import ReplicaLoops
from tonnage.hollow.diagnosis import Diagnosis
from tonnage.hollow.setting import config_maps
from tonnage.hollow.up import forget_daemons, placing, pools_of_scenario
from tonnage.kube.events import EventRecorder
from tonnage.kube.resources import EVENTS, NAMESPACES, PODS
from tonnage.kube.transport import ApiError
from tonnage.live.api_effects import ApiEffects
from tonnage.live.cutting import SIMULATED
from tonnage.live.group_kinds import by_kind
from tonnage.live.manager import Controller, Manager, Observer
from tonnage.live.recording import Events
from tonnage.live.watching import watch_world
from tonnage.live.world import ClusterWorld
from tonnage.scheduling.gangs.release import Patience
from tonnage.simulation import run
from tonnage.simulation.configure import Configuration

STEP_S = 10.0


class Strict:
    """Implements Observer: a loop that fails fails the test."""

    def decided(self, controller: str, loop: str, decision: Decision, outcome: Outcome) -> None: ...
    def ticked(self, loop: str, seconds: float, taken: int) -> None: ...

    def failed(self, loop: str, error: Exception) -> None:
        raise error


class UpInStep(Running):
    """Machines, operators and managers, with the controllers that place pods, launch nodes and set replicas.

    ``observer``: who is told of decisions; without one a loop that fails fails the test. ``late``, ``managed`` and ``theirs`` of :class:`Running` are not for it."""

    manager: Manager | None = None

    def __init__(self, made: run.SetUp, observer: Observer | None = None) -> None:
        self.made = made
        forget_daemons(made.cluster)
        super().__init__(made, recorded=True, scheduler_name="tonnage")
        self.scaling = ReplicaLoops(made, AutoscalerObjects(self.client))
        self.room.diagnosis = Diagnosis(made, self.api.store, self._diagnosed)
        self._recorder = EventRecorder(self.client, "tonnage", self.clock.seconds)
        self.world = ClusterWorld(
            ApiEffects(self.client, self.clock),
            self.clock,
            price=made.configuration.catalogue.book.price,
            recorder=Events(self._recorder),
            measure=lambda query, at_ns: made.cluster.measure(query, at_ns - self.clock.start_ns),
            cutter=SIMULATED,
        )
        self._watches = InformersInStep(self.client, self.api)
        required = watch_world(self._watches, self.world, config_maps(made))
        loops = [
            *made.controls.scheduling_loops(placing(made), Patience()),
            *node_loops(made.for_sale, partial(pools_of_scenario, self.world, made.configuration)),
            *self.scaling.loops(),
        ]
        self.manager = Manager(
            self.world, self._watches, required, [Controller("all", tuple(loops))], observer or Strict()
        )
        self._watches.pump(0)
        self.manager.start()
        self.settle()

    def _diagnosed(self, configuration: Configuration) -> None:
        self.made = replace(self.made, configuration=configuration)
        self.scaling.follow(configuration)

    def _turn(self) -> bool:
        happened = super()._turn()
        if self.manager is None:
            return happened
        return bool(self._watches.pump(0) + self.manager.step()) or happened

    def run_for(self, seconds: float) -> None:
        """Let so much time go by, in small steps."""
        end = self.now_s + seconds
        while self.now_s < end:
            self.now_s = min(end, self.now_s + STEP_S)
            self.settle()

    def list_pods(self) -> list[Json]:
        """Every pod that is there."""
        return list(self.client.list(PODS))

    def events(self, kind: str, name: str) -> Iterator[Json]:
        """The events about an object."""
        for recorder in (self._recorder, self.recorder):
            assert recorder is None or recorder.flush()
        for one in self.client.list(EVENTS):
            if (one["involvedObject"]["kind"], one["involvedObject"]["name"]) == (kind, name):
                yield one

    def apply(self, body: Json) -> Json:
        """What `kubectl apply --server-side --force-conflicts` does with an object."""
        resource = by_kind(body["apiVersion"], body["kind"])
        assert resource is not None
        meta: dict[str, Any] = body["metadata"]
        namespace = meta.get("namespace", "default") if resource.namespaced else ""
        with suppress(ApiError):  # it is there
            self.client.create(NAMESPACES, {"metadata": {"name": namespace or "default"}})
        try:
            found = self.client.get(resource, meta["name"], namespace)
        except ApiError:
            return dict(self.client.create(resource, body, namespace))
        return dict(self.client.replace(resource, {**body, "metadata": {**found["metadata"], **meta}}, namespace))

    def __enter__(self) -> UpInStep:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._watches.stop()
        self.world.close()
        self._recorder.close()
        super().close()
