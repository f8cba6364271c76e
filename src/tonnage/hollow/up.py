"""`tonnage up`: a scenario's simulated machines behind a Kubernetes API, with the controllers at work.

The API is the embedded one on loopback, or a real server. Everything speaks through it: kubectl, the controllers, the
machines, and on the embedded API Kubernetes' own controllers.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from tonnage.apiserver.api import Api
from tonnage.apiserver.background import BackgroundServer
from tonnage.apiserver.controllers import WATCHED, ControllerManager, ManagerOptions, WatchFeed
from tonnage.apiserver.controllers.feeds import Subscribe
from tonnage.apiserver.http import Server
from tonnage.apiserver.inprocess import InProcess
from tonnage.control.choices import CONTROLLERS
from tonnage.control.loops import Loop
from tonnage.control.nodes import Pools
from tonnage.costs.ledger import Settlement
from tonnage.errors import InputError
from tonnage.facts.labels import NODE_POOL
from tonnage.health.blocker import REFUSED
from tonnage.hollow import prometheus
from tonnage.hollow.autoscaler_objects import AutoscalerObjects
from tonnage.hollow.autoscaling import ReplicaLoops
from tonnage.hollow.diagnosis import Diagnosis
from tonnage.hollow.machines import MachineOptions, Machines
from tonnage.hollow.operators import Operators, operated
from tonnage.hollow.running import Heartbeats, MachineRoom, RunningClock
from tonnage.hollow.setting import config_maps, lay_out
from tonnage.hollow.statuses import ANNOTATION
from tonnage.kube.events import EventRecorder
from tonnage.kube.informer import Informers
from tonnage.kube.resources import NODE_CLAIMS, NODES
from tonnage.kube.transport import ApiError
from tonnage.kube.verbs import Client
from tonnage.live.api_effects import ApiEffects
from tonnage.live.cutting import SIMULATED
from tonnage.live.group_kinds import WORKLOADS
from tonnage.live.manager import Controller, Manager, Observer
from tonnage.live.recording import Events
from tonnage.live.watching import watch_world
from tonnage.live.world import ClusterWorld
from tonnage.machines.blocked import of_workload
from tonnage.machines.cluster import SimulatedCluster
from tonnage.machines.events import Event
from tonnage.machines.objects import Workload
from tonnage.metrics.promql import Result
from tonnage.scheduling import place
from tonnage.scheduling.gangs.release import Patience
from tonnage.scheduling.place import SCHEDULER_NAME
from tonnage.simulation.configure import Configuration
from tonnage.simulation.findings.unserved import not_running
from tonnage.simulation.findings.waiting import PENDING
from tonnage.simulation.result import NotRunning
from tonnage.simulation.run import SetUp
from tonnage.units import NS_PER_S

WARM_UP_S = 20.0
"""Real seconds within which the fleet that is there from the start should serve."""
AT_REST_S = 0.5
"""All pods serve, and for this long nothing has changed."""
STUCK_S = 3.0
"""Some pods cannot be placed, and for this long nothing has changed."""
JOIN_S = 3.0


@dataclass(frozen=True, slots=True)
class UpSettings:
    """``port`` 0: any. ``speed``: simulated seconds in a real one. ``controllers``: which of them run.

    ``client``: of a real API server; None for the embedded one. ``prometheus_port``: where the metrics are served on
    loopback, 0 for any; None for nowhere. ``bare``: the real API server stands alone (envtest's, say): what
    kube-controller-manager would do is done here, and all training workloads are the simulated operators'."""

    port: int = 0
    speed: float = 1.0
    controllers: Sequence[str] = CONTROLLERS
    client: Client | None = None
    prometheus_port: int | None = None
    parallel: int = 8
    bare: bool = False

    @property
    def managed(self) -> bool:
        """Whether others make pods on the API server: its kube-controller-manager, and perhaps operators."""
        return self.client is not None and not self.bare


def placing(made: SetUp) -> place.Settings:
    """Those of the simulation where all machines are simulated, but that pods wait for a group which is not there."""
    return replace(made.placing(), strict=True)


@dataclass(frozen=True, slots=True)
class UpState:
    """What there is now, for a status line. Times in ns since the start."""

    now_ns: int
    nodes_ready: int
    nodes_starting: int
    pods_running: int
    pods_pending: int
    spend_micro_usd: int
    problems: dict[str, str]


@dataclass(slots=True)
class _Thread:
    """A thread that says how it ended."""

    name: str
    run: Callable[[threading.Event], None]
    thread: threading.Thread | None = None
    error: str = ""

    def start(self, stop: threading.Event) -> None:
        def work() -> None:
            try:
                self.run(stop)
            except Exception as error:  # shown by state(): the others go on
                self.error = f"{type(error).__name__}: {error}"

        self.thread = threading.Thread(target=work, name=self.name, daemon=True)
        self.thread.start()


@dataclass(slots=True)
class Up:
    """Everything that runs. Use it in a ``with`` block: it runs inside, and ends in order."""

    made: SetUp
    settings: UpSettings
    observer: Observer
    clock: RunningClock = field(init=False)
    server: Server | None = field(init=False, default=None)
    room: MachineRoom = field(init=False)
    world: ClusterWorld = field(init=False)
    manager: Manager = field(init=False)
    scaling: ReplicaLoops = field(init=False)
    prometheus_url: str = ""
    lock: Any = field(default_factory=threading.RLock)
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[_Thread] = field(default_factory=list)
    _closers: list[Callable[[], object]] = field(default_factory=list)

    def __enter__(self) -> Up:
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def epoch_ns(self) -> int:
        """The Unix time of the simulation's 0, in ns."""
        return self.clock.start_ns

    # ---- start and stop ----

    def _start(self) -> None:
        settings, cluster = self.settings, self.made.cluster
        self.clock = RunningClock(time.time_ns() // NS_PER_S * NS_PER_S, settings.speed)
        cluster.epoch_ns = self.epoch_ns
        cluster.runs_workloads = False
        client = settings.client or self._embed()
        if settings.client is not None:
            refuse_managed(client)
        recorder = self._recorder(client, "tonnage")
        machines = Machines(
            cluster,
            client,
            MachineOptions(
                epoch_ns=self.epoch_ns,
                parallel=settings.parallel if settings.client else 1,
                event=Events(self._recorder(client, "simulated-machines")).event,
                opens_gates=not settings.managed,
            ),
        )
        self._closers.append(machines.close)
        forget_daemons(cluster)
        informers = self._informers(client)
        self.room = MachineRoom(machines, informers, self.clock, self.lock)
        self.room.begin(self._events())
        self.room.turn()  # nodes first: pods find them there
        lay_out(self.made, client, machines, SCHEDULER_NAME, managed=settings.managed)
        kinds = operated(client, embedded=settings.client is None, bare=settings.bare)
        self.room.operate(Operators(machines, client), kinds)
        alone = settings.client is None or settings.bare
        self.scaling = ReplicaLoops(self.made, AutoscalerObjects(client) if alone else None)
        if self.server is not None:
            self.room.diagnosis = Diagnosis(self.made, self.server.api.store, self._diagnosed)
        if settings.bare:
            watched = (*WATCHED, *(replace(resource, open=True) for resource, _ in WORKLOADS))
            self._manage(client, partial(WatchFeed, client, watched), time.time)
        self.made.start_training()
        self._controllers(client, Events(recorder))
        if settings.prometheus_port is not None:
            self._serve_metrics(settings.prometheus_port)
        self._run("heartbeats", Heartbeats(client, self.clock.now_ns, self._node_names).run)
        self._run("machines", self.room.run)
        self._run("controllers", self.manager.run)
        self._warm_up()
        self.clock.go()

    def _diagnosed(self, configuration: Configuration) -> None:
        self.made = replace(self.made, configuration=configuration)
        self.scaling.follow(configuration)

    def _embed(self) -> Client:
        api = Api(clock=self.clock.seconds, random=random.Random(self.made.options.seed))
        self.server = Server(api, port=self.settings.port).start()
        self._closers.append(self.server.stop)
        client = Client(InProcess(api))
        self._manage(client, lambda notify: api.store.subscribe(notify=notify), self.clock.seconds)
        return client

    def _manage(self, client: Client, subscribe: Subscribe, clock: Callable[[], float]) -> None:
        """Do what kube-controller-manager would do. ``clock``: the time by which the API stamps what is created."""
        kubernetes = ControllerManager(client, subscribe, clock, self.made.options.seed, ManagerOptions(node_grace_s=0))
        self._run("workloads", kubernetes.run)

    def _controllers(self, client: Client, events: Events) -> None:
        made = self.made
        self.world = ClusterWorld(
            ApiEffects(client, self.clock),
            self.clock,
            price=made.configuration.catalogue.book.price,
            recorder=events,
            measure=self._measure,
            parallel=self.settings.parallel if self.settings.client else 1,
            cutter=SIMULATED,
        )
        self._closers.append(self.world.close)
        informers = self._informers(client)
        required = watch_world(informers, self.world, config_maps(made))
        loops: dict[str, list[Loop]] = {"scheduler": made.controls.scheduling_loops(self.placing(), Patience())}
        pools = partial(pools_of_scenario, self.world, made.configuration)
        loops["nodes"] = [*made.controls.node_loops(made.for_sale, pools, expires=True)]
        loops["replicas"] = self.scaling.loops()
        controllers = [Controller(name, tuple(loops[name])) for name in self.settings.controllers]
        self.manager = Manager(self.world, informers, required, controllers, self.observer, speed=self.settings.speed)

    def placing(self) -> place.Settings:
        """The scheduler's settings: :func:`placing` where there is no other, else those of the controller there."""
        if not self.settings.managed:
            return placing(self.made)
        return self.made.controls.settings((SCHEDULER_NAME,), strict=True)

    def _serve_metrics(self, port: int) -> None:
        cluster = self.made.cluster
        application = prometheus.app(
            cluster.records.store,
            epoch_ns=self.epoch_ns,
            now_ns=lambda: cluster.now_ns,
            lock=self.lock,
            evaluate=cluster.measure,
        )
        server = BackgroundServer(application, port).start()
        self._closers.append(server.stop)
        self.prometheus_url = server.url

    def _events(self) -> Iterator[Event]:
        yield self.made.scraper(everything=True)
        self.made.break_things()

    def _warm_up(self) -> None:
        """The clock waits until what is there from the start serves: all that can be placed is placed and Ready."""
        deadline, since, before = time.monotonic() + WARM_UP_S, time.monotonic(), None
        while time.monotonic() < deadline:
            time.sleep(0.05)
            with self.lock:
                pods = list(self.made.cluster.pods.values())
                wanted = sum(map(self._wanted, list(self.made.cluster.workloads.values())))
                made = sum(p.workload.controller is None for p in pods)
                now = (len(pods), sum(p.bound_ns is not None for p in pods), sum(p.ready_ns is not None for p in pods))
            if now != before:
                before, since = now, time.monotonic()
            quiet_s = time.monotonic() - since
            if (
                self.manager.ready.is_set()
                and made >= wanted
                and quiet_s > (AT_REST_S if now[0] == now[2] else STUCK_S)
            ):
                return

    def _wanted(self, workload: Workload) -> int:
        """How many pods of the workload there should be soon: none where the API server refuses them."""
        cluster = self.made.cluster
        never = workload.refused or any(b.stage == REFUSED for b in of_workload(cluster, workload))
        return 0 if never else workload.replicas

    def _informers(self, client: Client) -> Informers:
        informers = Informers(client, time.time, random.Random())
        self._closers.append(informers.stop)
        return informers

    def _recorder(self, client: Client, component: str) -> EventRecorder:
        recorder = EventRecorder(client, component, self.clock.seconds)
        self._closers.append(recorder.close)
        return recorder

    def _run(self, name: str, run: Callable[[threading.Event], None]) -> None:
        thread = _Thread(name, run)
        self._threads.append(thread)
        thread.start(self._stop)

    def close(self) -> None:
        """End everything, the API last. On a real API server the simulated nodes are taken away."""
        self._stop.set()
        for thread in reversed(self._threads):
            if thread.thread is not None:
                thread.thread.join(JOIN_S)
        if self.settings.client is not None and self._threads:
            self.room.machines.take_away()
        for close in reversed(self._closers):
            close()
        self._closers.clear()

    # ---- looking in ----

    def _measure(self, query: str, at_ns: int) -> Result:
        with self.lock:
            return self.made.cluster.measure(query, at_ns - self.epoch_ns)

    def _node_names(self) -> list[str]:
        with self.lock:
            nodes = self.made.cluster.nodes.values()
            return [node.name for node in nodes if node.ended_ns is None and node.kubelet_ready]

    def state(self) -> UpState:
        """What there is now."""
        with self.lock:
            cluster = self.made.cluster
            live = [node for node in cluster.nodes.values() if node.ended_ns is None]
            pods = list(cluster.pods.values())
            problems = self.manager.degraded() | {thread.name: thread.error for thread in self._threads if thread.error}
            return UpState(
                cluster.now_ns,
                sum(node.ready_ns is not None for node in live),
                len(cluster.cloud.claims),
                sum(pod.ready_ns is not None for pod in pods),
                sum(pod.bound_ns is None for pod in pods),
                cluster.records.ledger.total(cluster.now_ns),
                problems | self.room.machines.errors,
            )

    def not_running(self) -> list[NotRunning]:
        """What does not run now, and why. Of pods that merely have no node the controllers say why as they decide."""
        with self.lock:
            found = not_running(self.made.cluster, self.made.recorder(), self.made.known)
        return [one for one in found if one.rule != PENDING]

    def bill(self) -> Settlement:
        """What everything has cost so far, and who pays."""
        with self.lock:
            for service in self.made.cluster.services:
                service.settle(self.made.cluster.now_ns)
            return self.made.cluster.records.ledger.settle(self.made.cluster.now_ns)


def forget_daemons(cluster: SimulatedCluster) -> None:
    """The pods of DaemonSets are made by their controller, behind the API."""
    cluster.declared.daemon_sets.clear()
    for row, pod in enumerate(cluster.fleet.pods):
        if pod is not None and pod.spec.daemon:
            cluster.fleet.remove_pod(row)


def pools_of_scenario(world: ClusterWorld, configuration: Configuration) -> Pools:
    """The scenario's NodePools, and no other that the API server has."""
    found, names = world.pools(), {pool.name for pool in configuration.pools}
    mine = tuple(pool for pool in found.node_pools if pool.name in names)
    return replace(found, node_pools=mine)


def refuse_managed(client: Client) -> None:
    """Raise InputError where nodes are launched already, by Karpenter say, or simulated by another: every NodeClaim
    would be played here too."""
    found = [node["metadata"] for node in client.list(NODES)]
    real = [
        meta["name"]
        for meta in found
        if NODE_POOL in meta.get("labels", {}) or ANNOTATION in meta.get("annotations", {})
    ]
    try:
        claims = [c["metadata"]["name"] for c in client.list(NODE_CLAIMS)]
    except ApiError as error:
        if error.code != 404:
            raise
        claims = []
    if real or claims:
        what = f"node {real[0]}" if real else f"NodeClaim {claims[0]}"
        message = (
            f"{what} is there: something launches nodes on this cluster, and simulated machines would take over its "
            "claims"
        )
        raise InputError.at(message, hint="use a cluster without Karpenter, or delete what an earlier run has left")
