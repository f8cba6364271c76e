"""Our halves of the measurements on a real API server, each in a process of its own as its peer is."""

from __future__ import annotations

import multiprocessing
import random
import threading
import time
from collections.abc import Callable
from multiprocessing.synchronize import Event
from typing import Any

from tonnage.cli.controller import EVENT_WRITERS
from tonnage.control.scheduler import Scheduler
from tonnage.decisions import Launch, Reason, Ref
from tonnage.facts import durations
from tonnage.hollow.machines import MachineOptions, Machines
from tonnage.hollow.running import MachineRoom, RunningClock
from tonnage.kube.clock import WallClock
from tonnage.kube.events import EventRecorder
from tonnage.kube.http import open_cluster
from tonnage.kube.informer import Informers
from tonnage.kube.resources import NODES, PODS
from tonnage.live.api_effects import ApiEffects
from tonnage.live.manager import Controller, Manager
from tonnage.live.recording import Events
from tonnage.live.watching import watch
from tonnage.live.world import ClusterWorld
from tonnage.machines import nodes as lives
from tonnage.machines.cluster import SimulatedCluster
from tonnage.machines.objects import SimulatedNodeClaim
from tonnage.machines.physics import Physics
from tonnage.objects import core
from tonnage.rng import Streams
from tonnage.scheduling import place

CALLS = 16
"""Bindings, or statuses, under way at once."""
INSTANCE_TYPE = "p5.48xlarge"
READY_S = 120.0


class _Quiet:
    def decided(self, *_: Any) -> None:
        """Not printed: what is counted is what the API server says."""

    def failed(self, loop: str, error: Exception) -> None:
        raise error

    def ticked(self, *_: Any) -> None:
        """Not counted."""


def schedule(kubeconfig: str, ready: Event, go: Event, stop: Event) -> None:
    """A scheduler that waits with its caches full until it is let go."""
    client = open_cluster(kubeconfig)
    clock = WallClock()
    recorder = EventRecorder(client, "tonnage", time.time, writers=EVENT_WRITERS)
    world = ClusterWorld(
        ApiEffects(client, clock), clock, price=lambda *_: 0, recorder=Events(recorder), parallel=CALLS
    )
    informers = Informers(client, time.time, random.Random(0))
    required = [
        watch(informers, NODES, core.Node, world.state.see_node),
        watch(informers, PODS, core.Pod, world.see_pod),
    ]
    loop = Scheduler(place.Settings(scheduler_names=("tonnage",))).loop()
    manager = Manager(world, informers, required, [Controller("scheduler", (loop,))], _Quiet())
    while not all(informer.synced for informer in required):
        informers.pump(0.2)
    ready.set()
    go.wait()
    ending = threading.Event()
    threading.Thread(target=lambda: (stop.wait(), ending.set()), daemon=True).start()
    manager.run(ending)
    informers.stop()


def play(kubeconfig: str, names: list[str], ready: Event, go: Event, stop: Event) -> None:
    """Simulated machines of these names; everything they do takes no time."""
    cluster = SimulatedCluster(Physics(durations.get(), {}, "us-east-1", lambda workload, gpu: "none"), Streams(0))
    cluster.runs_workloads = False
    for name in names:
        launch = Launch(Ref("NodeClaim", name), "", INSTANCE_TYPE, "us-east-1a", "on-demand", 0, Reason("benchmark"))
        node = lives.start_node(cluster, SimulatedNodeClaim(launch, 0))
        lives.register_node(cluster, node)
        lives.initialize_node(cluster, node)
    ready.set()
    go.wait()
    client = open_cluster(kubeconfig)
    machines = Machines(cluster, client, MachineOptions(parallel=CALLS))
    informers = Informers(client, time.time, random.Random(0))
    room = MachineRoom(machines, informers, RunningClock(time.time_ns()), threading.RLock())
    room.begin([])
    ending = threading.Event()
    threading.Thread(target=lambda: (stop.wait(), ending.set()), daemon=True).start()
    room.run(ending)
    informers.stop()


def seconds(target: Callable[..., None], given: list[Any], measured: Callable[[Callable[[], object]], float]) -> float:
    """What ``measured(begin)`` gives for a process that runs ``target(*given, ready, go, stop)``."""
    context = multiprocessing.get_context("spawn")
    ready, go, stop = context.Event(), context.Event(), context.Event()
    process = context.Process(target=target, args=(*given, ready, go, stop), daemon=True)
    process.start()
    try:
        if not ready.wait(READY_S):
            raise TimeoutError("the process did not get ready")
        return measured(go.set)
    finally:
        stop.set()
        process.join(10)
        process.kill()
