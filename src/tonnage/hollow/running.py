"""Simulated machines in real time: the simulator's events happen when they are due, beside real ones from an API."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import partial

from tonnage.errors import InputError
from tonnage.hollow.diagnosis import Diagnosis
from tonnage.hollow.machines import Machines
from tonnage.hollow.operators import Operators
from tonnage.kube.clock import rfc3339
from tonnage.kube.informer import Informers
from tonnage.kube.resources import CLUSTER_POLICIES, LEASES, NODE_CLAIMS, NODE_LEASES, NODES, PODS, Resource
from tonnage.kube.transport import ApiError, ClientError
from tonnage.kube.verbs import Client
from tonnage.live.watching import See, T, watch
from tonnage.machines.events import Event
from tonnage.objects import core, karpenter
from tonnage.objects.base import KubeObject
from tonnage.objects.gpu_operator import ClusterPolicy
from tonnage.units import NS_PER_MS, NS_PER_S, from_rfc3339

LONGEST_WAIT_S = 0.2
RETRY_S = 2.0
"""What could not be written is tried again after this many real seconds."""


class RunningClock:
    """Implements :class:`tonnage.kube.clock.Clock`: wall time, or time that runs ``speed`` times as fast.

    It waits at ``start_ns`` until :meth:`go`."""

    def __init__(self, start_ns: int, speed: float = 1.0, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.start_ns = start_ns
        self.speed = speed
        self._monotonic = monotonic
        self._begun: float | None = None

    def go(self) -> None:
        """Let time run."""
        if self._begun is None:
            self._begun = self._monotonic()

    def now_ns(self) -> int:
        """Nanoseconds since the Unix epoch, as this clock has it."""
        begun = self._begun
        passed = 0.0 if begun is None else (self._monotonic() - begun) * self.speed
        return self.start_ns + round(passed * NS_PER_S)

    def seconds(self) -> float:
        """The same in seconds."""
        return self.now_ns() / NS_PER_S

    def of(self, timestamp: str | None) -> int:
        """What a timestamp says. At another speed an API server's own stamps are of another time: what was just
        observed has then just happened."""
        return from_rfc3339(timestamp) if timestamp and self.speed == 1.0 else self.now_ns()


class ToldClock:
    """Implements :class:`tonnage.kube.clock.Clock`: the time of a :class:`RunningClock` in another process, as the
    Prometheus API of its `tonnage up` tells it. It is asked again every ``every_s`` and does not move in between.

    Raises InputError when nobody answers within ``patience_s``."""

    def __init__(self, url: str, every_s: float = 0.05, patience_s: float = 60.0) -> None:
        self._url = f"{url.rstrip('/')}/api/v1/query?query=1"
        self._every_s = every_s
        self._lock = threading.Lock()
        self._asked_at = 0.0
        self._now_ns = 0
        deadline = time.monotonic() + patience_s
        while not self._ask():
            if time.monotonic() > deadline:
                raise InputError.at(f"{url}: nobody tells the time", hint="give the address that `tonnage up` prints")
            time.sleep(every_s)

    def now_ns(self) -> int:
        """The last time that was told; asks when that was ``every_s`` ago."""
        with self._lock:
            if time.monotonic() - self._asked_at >= self._every_s:
                self._ask()
            return self._now_ns

    def of(self, timestamp: str | None) -> int:
        """What was just observed has just happened."""
        return self.now_ns()

    def _ask(self) -> bool:
        self._asked_at = time.monotonic()
        try:
            with urllib.request.urlopen(self._url, timeout=5) as reply:
                told = json.load(reply)["data"]["result"][0]
        except (OSError, http.client.HTTPException, ValueError, KeyError):
            return False
        self._now_ns = max(self._now_ns, round(float(told) * 1000) * NS_PER_MS)
        return True


class MachineRoom:
    """Runs :class:`Machines` on one thread.

    ``lock`` (re-entrant) is held while their state changes:
    others that look take it."""

    def __init__(
        self, machines: Machines, informers: Informers, clock: RunningClock, lock: AbstractContextManager[object]
    ) -> None:
        self.machines = machines
        self.informers = informers
        self.clock = clock
        self.lock = lock
        self._operators: Operators | None = None
        self.diagnosis: Diagnosis | None = None
        """Where it is known what others change."""
        watch(informers, NODE_CLAIMS, karpenter.NodeClaim, self._locked(machines.see_claim))
        watch(informers, NODES, core.Node, self._locked(machines.see_node))
        watch(informers, PODS, core.Pod, self._locked(machines.see_pod))
        watch(informers, CLUSTER_POLICIES, ClusterPolicy, self._locked(machines.see_policy), optional=True)

    def _locked(self, see: See[T]) -> See[T]:
        def seen(old: T | None, new: T | None) -> None:
            with self.lock:
                see(old, new)

        return seen

    def operate(self, operators: Operators, kinds: Iterable[tuple[Resource, type[KubeObject]]]) -> None:
        """Let ``operators`` take up workloads of these kinds, with what they refer to."""
        self._operators = operators
        for resource, type_ in kinds:
            watch(self.informers, resource, type_, self._locked(partial(operators.see, resource)))

    def begin(self, events: Iterable[Event]) -> None:
        """Show what is there and let ``events`` happen now; time does not run yet."""
        for event in events:
            self.machines.cluster.queue.push(0, event)
        with self.lock:
            self.machines.show_all()

    def run(self, stop: threading.Event) -> None:
        """Until ``stop`` is set."""
        while not stop.is_set():
            self.turn()
            self.informers.pump(self._wait_s())

    def turn(self) -> None:
        """Let everything happen that is due, and write it."""
        cluster = self.machines.cluster
        with self.lock:
            if self.diagnosis is not None:
                self.diagnosis.catch_up()
            now = self.clock.now_ns() - self.clock.start_ns
            while (at := cluster.queue.next_ns()) is not None and at <= now:
                cluster.queue.step(cluster)
            cluster.advance_to(max(now, cluster.now_ns))
            cluster.woken()
            if self._operators is not None:
                self._operators.catch_up()
            self.machines.flush(RETRY_S)
            self.informers.pump(0)

    def _wait_s(self) -> float:
        due = self.machines.cluster.queue.next_ns()
        if due is None:
            return LONGEST_WAIT_S
        left = (due + self.clock.start_ns - self.clock.now_ns()) / NS_PER_S / self.clock.speed
        return min(LONGEST_WAIT_S, max(0.001, left))


class Heartbeats:
    """Renews the leases of simulated nodes, so that a node lifecycle controller leaves them in peace."""

    def __init__(self, client: Client, clock: Callable[[], int], names: Callable[[], list[str]]) -> None:
        self._client = client
        self._clock = clock
        self._names = names
        self._known: set[str] = set()
        self.problem = ""

    def run(self, stop: threading.Event, period_s: float = 15.0) -> None:
        """Every ``period_s`` until ``stop`` is set."""
        while not stop.is_set():
            begun = time.monotonic()
            self.beat()
            stop.wait(max(0.0, period_s - (time.monotonic() - begun)))
        for name in self._known:
            with contextlib.suppress(ClientError):  # the end: what is left is an old lease
                self._client.delete(LEASES, name, NODE_LEASES)

    def beat(self) -> None:
        """Renew every lease once."""
        self.problem = ""
        for name in self._names():
            try:
                self._renew(name)
            except ClientError as error:
                self.problem = f"lease of node {name}: {error}"

    def _renew(self, name: str) -> None:
        now = rfc3339(self._clock()).replace("Z", ".000000Z")
        spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now}
        if name in self._known:
            try:
                self._client.patch(LEASES, name, {"spec": spec}, NODE_LEASES)
                return
            except ApiError as error:
                if error.code != 404:
                    raise
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec}
        try:
            self._client.create(LEASES, body, NODE_LEASES)
        except ApiError as error:
            if error.code != 409:
                raise
        self._known.add(name)
