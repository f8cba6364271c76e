"""A scenario on an API, driven by the simulator's clock: nothing moves on before everybody has seen what was done.

The machines and the controllers' world hang on the same API and speak through it alone. After each event and each tick
:meth:`Lockstep.settle` writes what happened, then waits until the watches have brought back every write. So a run on a
real API server decides what a run in the simulated world decides.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

import msgspec

from tonnage.control.loops import Loop
from tonnage.hollow.machines import MachineOptions, Machines
from tonnage.hollow.setting import config_maps, lay_out
from tonnage.kube.informer import Informers, version_of
from tonnage.kube.reflector import Delays
from tonnage.kube.resources import ALL, CLUSTER_POLICIES, DEPLOYMENTS, NODE_CLAIMS, NODES, PODS, Resource
from tonnage.kube.transport import JSON, Reply, Transport
from tonnage.kube.verbs import Client
from tonnage.live.api_effects import ApiEffects
from tonnage.live.cutting import SIMULATED
from tonnage.live.group_kinds import ONCE_INSTALLED
from tonnage.live.recording import EventSink, Silent
from tonnage.live.watching import watch, watch_world
from tonnage.live.world import ClusterWorld
from tonnage.machines.cluster import SimulatedCluster
from tonnage.objects import apps, core, karpenter
from tonnage.objects.gpu_operator import ClusterPolicy
from tonnage.simulation.driver import LoopDriver
from tonnage.simulation.run import EPOCH_NS, SetUp

_PATH = re.compile(r"/(?:api|apis/(?P<group>[^/]+))/(?P<version>[^/]+)(?:/namespaces/(?P<ns>[^/]+))?/(?P<rest>.+)")


class SimulatedClock:
    """Implements :class:`tonnage.kube.clock.Clock`: what is observed happens now."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster

    def now_ns(self) -> int:
        return self._cluster.now_ns

    def of(self, timestamp: str | None) -> int:
        return self._cluster.now_ns


@dataclass(frozen=True, slots=True)
class ObjectKey:
    """One object in the API."""

    resource: Resource
    namespace: str
    name: str


class Tracked:
    """A transport that remembers which version of which object a watch is still to bring."""

    def __init__(self, inner: Transport, watched: tuple[Resource, ...]) -> None:
        self.inner = inner
        self.expected: dict[ObjectKey, int | None] = {}
        """By object: its version after the last write, or None when it is gone."""
        self._by_path = {(r.group, r.version, r.plural): r for r in watched}

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
        """Pass it on; after a write, look what the object is now."""
        reply = self.inner.request(
            method, path, query=query, body=body, content_type=content_type, accept=accept, timeout_s=timeout_s
        )
        if method != "GET" and reply.status < 300:
            self._expect(path, reply)
        return reply

    def stream(
        self, path: str, *, query: Mapping[str, str], timeout_s: float
    ) -> AbstractContextManager[Iterator[bytes]]:
        """Pass it on."""
        return self.inner.stream(path, query=query, timeout_s=timeout_s)

    def close(self) -> None:
        """Close the inner transport."""
        self.inner.close()

    def _expect(self, path: str, reply: Reply) -> None:
        target = self._target(path, reply)
        if target is None:
            return
        found = self.inner.request("GET", target.resource.path(target.namespace, target.name))
        if found.status == 404:
            self.expected[target] = None
        else:
            self.expected[target] = int(_metadata(found)["resourceVersion"])

    def _target(self, path: str, reply: Reply) -> ObjectKey | None:
        match = _PATH.fullmatch(path)
        if match is None:
            return None
        plural, *rest = match["rest"].split("/")
        resource = self._by_path.get((match["group"] or "", match["version"], plural))
        if resource is None:
            return None
        name = rest[0] if rest else str(_metadata(reply)["name"])
        return ObjectKey(resource, match["ns"] or "", name)


def _metadata(reply: Reply) -> dict[str, str]:
    found: dict[str, str] = msgspec.json.decode(reply.body)["metadata"]
    return found


Wrap = Callable[[Transport], Transport]


class Lockstep:
    """A scenario's machines and a world over the API that they hang on.

    ``controllers`` and ``machines`` make what each side speaks through of the transport that keeps count of writes:
    by default that itself. ``delays``: of the watches.
    """

    def __init__(
        self,
        made: SetUp,
        transport: Transport,
        *,
        recorder: EventSink | None = None,
        controllers: Wrap = lambda tracked: tracked,
        machines: Wrap = lambda tracked: tracked,
        delays: Delays | None = None,
    ) -> None:
        self.made = made
        self.tracked = Tracked(
            transport, tuple(r for r in (*ALL, *ONCE_INSTALLED) if r.plural not in ("events", "leases"))
        )
        self.clock = SimulatedClock(made.cluster)
        self._recorder = recorder or Silent()
        self._delays = delays
        self._client = Client(controllers(self.tracked))
        client = Client(machines(self.tracked))
        self.machines = Machines(made.cluster, client, MachineOptions(epoch_ns=EPOCH_NS))
        lay_out(made, Client(self.tracked), self.machines)
        self._room = Informers(client, time.time, random.Random(1), delays=delays)
        watch(self._room, NODE_CLAIMS, karpenter.NodeClaim, self.machines.see_claim)
        watch(self._room, NODES, core.Node, self.machines.see_node)
        watch(self._room, PODS, core.Pod, self.machines.see_pod)
        watch(self._room, DEPLOYMENTS, apps.Deployment, self.machines.see_deployment)
        watch(self._room, CLUSTER_POLICIES, ClusterPolicy, self.machines.see_policy, optional=True)
        self.machines.show_all()
        self.world, self.informers = self._connect()
        _sync(self._room)

    def _connect(self) -> tuple[ClusterWorld, Informers]:
        """A world that knows what the API says, and nothing else."""
        world = ClusterWorld(
            ApiEffects(self._client, self.clock),
            self.clock,
            price=self.made.configuration.catalogue.book.price,
            recorder=self._recorder,
            measure=self.made.cluster.measure,
            cutter=SIMULATED,
        )
        informers = Informers(self._client, time.time, random.Random(0), delays=self._delays)
        watch_world(informers, world, config_maps(self.made))
        _sync(informers)
        return world, informers

    def restart(self) -> ClusterWorld:
        """The controllers' process ends, and another one begins: what it knows comes from the API alone."""
        self.informers.stop()
        self.world.close()
        self.world, self.informers = self._connect()
        return self.world

    def settle(self, limit_s: float = 30.0) -> None:
        """Write what happened, and wait until everybody has seen it. Raises TimeoutError."""
        deadline = time.monotonic() + limit_s
        while True:
            wrote = self.machines.flush()
            changes = self._pump()
            while not self._caught_up():
                if time.monotonic() > deadline:
                    raise TimeoutError(f"not seen within {limit_s:.0f} s: {self.tracked.expected}")
                changes += self._pump(0.002)
            if not wrote and not changes:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"still changing after {limit_s:.0f} s: {self.machines.errors}")

    def _pump(self, wait_s: float = 0.0) -> int:
        """The machines first: what a controller sees of them they have done."""
        return sum(one.pump(wait_s) for one in self._watchers())

    def _watchers(self) -> list[Informers]:
        """Who is waited for."""
        return [self._room, self.informers]

    def _caught_up(self) -> bool:
        """Whether every informer has seen every write; forgets those that all have."""
        informers = [informer for one in self._watchers() for informer in one]
        for target, version in list(self.tracked.expected.items()):
            for informer in informers:
                if not _same_kind(informer.resource, target.resource) or (informer.optional and not informer.synced):
                    continue  # of another kind, or of a version that is not served
                if not informer.selects(target.namespace, target.name):
                    continue
                item = informer.get(target.namespace, target.name)
                seen = version_of(item) if item is not None else informer.resource_version
                if (version is None and item is not None) or (version is not None and seen < version):
                    return False
            del self.tracked.expected[target]
        return True

    def close(self) -> None:
        """End the watches."""
        self._room.stop()
        self.informers.stop()
        self.machines.close()


def _same_kind(one: Resource, other: Resource) -> bool:
    """Whether both show the same objects, in whatever version."""
    return (one.group, one.plural) == (other.group, other.plural)


def _sync(informers: Informers, limit_s: float = 30.0) -> None:
    if not informers.wait_synced(limit_s):
        raise TimeoutError(f"the watches did not come up: {informers.problems()}")


def loops_of(made: SetUp, world: ClusterWorld) -> list[Loop]:
    """All control loops, with the NodePools and configurations that the API has."""
    return made.loops(world.pools)


def play(made: SetUp, transport: Transport, until_ns: int | None = None) -> tuple[LoopDriver, Lockstep]:
    """Run a scenario on an API, to its end or to ``until_ns``. Close what is returned."""
    steps = Lockstep(made, transport)
    machine = LoopDriver(made.cluster, made.recorder(), made.options.check, world=steps.world, settle=steps.settle)
    made.start_training()
    machine.start(loops_of(made, steps.world), made.scraper())
    made.break_things()
    machine.play(until_ns if until_ns is not None else made.scenario.duration_ns, made.options.observer)
    return machine, steps
