"""The control loops of kube-controller-manager that the embedded API needs, and NVIDIA's of ComputeDomains, on one
thread.

Given the same API, clock and seed they do the same: changes are taken in by their order in the API, keys are looked at
first in, first out, and names are drawn from one seeded source. Nothing has to survive a restart but the API's objects.

What is not here: Endpoints and EndpointSlices, Jobs, CronJobs, HorizontalPodAutoscalers,
ControllerRevisions, tokens and certificates; pods are bound by whoever schedules them and run by their nodes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tonnage.apiserver.controllers.cache import ObjectCache
from tonnage.apiserver.controllers.compute_domains import ComputeDomains
from tonnage.apiserver.controllers.context import Context, Item, Reconciler, WorkQueue
from tonnage.apiserver.controllers.daemon_sets import DaemonSets
from tonnage.apiserver.controllers.deployments import Deployments
from tonnage.apiserver.controllers.disruption import DisruptionController
from tonnage.apiserver.controllers.evictions import PodGarbage, TaintEviction
from tonnage.apiserver.controllers.feeds import Feed, Subscribe, WatchEvent
from tonnage.apiserver.controllers.garbage import Garbage
from tonnage.apiserver.controllers.meta import Key, key_of, stamp, uid_of, version_of
from tonnage.apiserver.controllers.namespaces import Namespaces, ServiceAccounts
from tonnage.apiserver.controllers.nodes import Nodes
from tonnage.apiserver.controllers.quotas import ResourceQuotas
from tonnage.apiserver.controllers.recording import ControllerRecorder
from tonnage.apiserver.controllers.replica_sets import ReplicaSets
from tonnage.apiserver.controllers.resource_claims import ResourceClaims
from tonnage.apiserver.controllers.stateful_sets import StatefulSets
from tonnage.apiserver.controllers.volumes import VolumeBinder
from tonnage.apiserver.controllers.writer import StaleObject, Writer
from tonnage.apiserver.status import StatusError
from tonnage.kube.resources import (
    CONFIG_MAPS,
    DAEMON_SETS,
    DEPLOYMENTS,
    EC2_NODE_CLASSES,
    HPAS,
    JOBS,
    LEASES,
    NAMESPACES,
    NODE_CLAIMS,
    NODE_POOLS,
    NODES,
    PDBS,
    PODS,
    REPLICA_SETS,
    SCALED_OBJECTS,
    SERVICE_ACCOUNTS,
    SERVICE_MONITORS,
    SERVICES,
    STATEFUL_SETS,
    Resource,
)
from tonnage.kube.transport import ClientError
from tonnage.kube.verbs import Client, JsonObject

WATCHED = (
    NAMESPACES,
    NODES,
    LEASES,
    DEPLOYMENTS,
    REPLICA_SETS,
    DAEMON_SETS,
    STATEFUL_SETS,
    JOBS,
    PODS,
    PDBS,
    SERVICE_ACCOUNTS,
    SERVICES,
    CONFIG_MAPS,
    HPAS,
    NODE_POOLS,
    NODE_CLAIMS,
    EC2_NODE_CLASSES,
    SCALED_OBJECTS,
    SERVICE_MONITORS,
)
"""What the controllers have to hear of. Events are not among them."""

_WATCHED = frozenset(WATCHED)
_START: Item = ("", ("", ""))
_AT_ONCE = 5
_BACKOFF_S, _BACKOFF_MOST_S = 0.1, 30.0
_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class ManagerOptions:
    """``node_grace_s``: seconds without a heartbeat until a node is unknown, 0 for never. ``quarantine_s``: seconds
    that the pods of a node that is gone are left. Defaults are kube-controller-manager's."""

    node_grace_s: float = 50.0
    quarantine_s: float = 40.0


class ControllerManager:
    """All control loops. ``clock`` gives seconds since the epoch; ``seed`` decides the names of pods.

    Over the embedded server, ``subscribe`` is ``lambda notify: store.subscribe(notify=notify)``; over any API server,
    ``lambda notify: WatchFeed(client, WATCHED, notify)``.
    """

    def __init__(
        self,
        client: Client,
        subscribe: Subscribe,
        clock: Callable[[], float],
        seed: int = 0,
        options: ManagerOptions = ManagerOptions(),
    ) -> None:
        self._client, self._subscribe, self._clock = client, subscribe, clock
        self._random = Random(seed)
        self._seed = seed
        self._cache, self._queue = ObjectCache(), WorkQueue()
        self._wake = threading.Event()
        self._failures: dict[Item, int] = {}
        self._feed: Feed | None = None
        self._recorder = ControllerRecorder(client, clock, self._random)
        self._writer = Writer(client, self._learn, self._forget, self._asked)
        context = Context(self._cache, self._writer, self._recorder, clock, self._random, self._queue)
        replica_sets = ReplicaSets(context)
        controllers: tuple[Reconciler, ...] = (
            Namespaces(context),
            ServiceAccounts(context),
            Nodes(context, options.node_grace_s),
            TaintEviction(context),
            PodGarbage(context, options.quarantine_s),
            Garbage(context),
            Deployments(context, replica_sets.pods_alive),
            replica_sets,
            DaemonSets(context),
            StatefulSets(context),
            DisruptionController(context),
            ResourceQuotas(context),
            VolumeBinder(context),
            ResourceClaims(context),
            ComputeDomains(context),
        )
        self._controllers = {one.name: one for one in controllers}
        self.last_error = ""

    def step(self) -> int:
        """Do everything that can be done now; the number of writes (events included).

        What the API refuses or does not answer is tried again later: see :meth:`next_due`. Never raises for that.
        """
        before = self._writes()
        self._turns(lambda: False)
        return self._writes() - before

    def next_due(self) -> float | None:
        """When :meth:`step` has something to do even if nothing changes; None for never."""
        return self._clock() if self._queue else self._queue.next_due()

    def run(self, stop: threading.Event) -> None:
        """Step whenever something changes or is due, until ``stop`` is set."""
        while not stop.is_set():
            self._wake.clear()
            self._turns(stop.is_set)
            due = self._queue.next_due()
            left = _POLL_S if due is None else min(_POLL_S, due - self._clock())
            if left > 0:
                self._wake.wait(left)
        self.close()

    def close(self) -> None:
        """End the subscription."""
        if self._feed is not None:
            self._feed.close()
            self._feed = None

    def _turns(self, stopped: Callable[[], bool]) -> None:
        while not stopped():
            try:
                self._take_in()
            except ClientError as error:
                self.last_error = str(error)
                self._queue.add_at(_START, self._clock() + _BACKOFF_S)
                return
            item = self._queue.pop(self._clock())
            if item is None:
                return
            self._look_at(item)

    def _take_in(self) -> None:
        """Learn of what changed; after falling too far behind, of everything again."""
        if self._feed is None:
            self._start()
        try:
            while self._feed is not None and (change := self._feed.get(0)) is not None:
                self._take(change)
        except StatusError as error:
            self.last_error = str(error)
            self.close()
            self._start()

    def _start(self) -> None:
        """Subscribe, and learn of the present state: what is known and not in it any more is gone."""
        feed = self._subscribe(self._wake.set)
        present: set[str] = set()
        latest = 0
        for _ in range(feed.initial):
            change = feed.get(0)
            if change is not None:
                present.add(uid_of(change.object))
                latest = max(latest, version_of(change.object))
                self._take(change)
        for resource, obj in self._cache.everything():
            if uid_of(obj) not in present:
                self._forget(resource, key_of(obj), uid_of(obj))
        self._feed = feed
        # Names differ from those that an earlier run drew, and are the same for the same seed and state.
        self._random.seed(f"{self._seed}/{latest}")

    def _take(self, change: WatchEvent) -> None:
        if change.resource not in _WATCHED and not change.resource.open:
            return
        if change.type == "DELETED":
            self._forget(change.resource, key_of(change.object), uid_of(change.object))
        else:
            self._learn(change.resource, change.object)

    def _look_at(self, item: Item) -> None:
        controller = self._controllers.get(item[0])
        if controller is None:
            return
        try:
            self._writer.settle()
            controller.sync(item[1])
        except StaleObject as error:
            self._again(item, error, at_once=True)
        except ClientError as error:
            self._again(item, error, at_once=False)
        else:
            self._failures.pop(item, None)

    def _again(self, item: Item, error: Exception, *, at_once: bool) -> None:
        self.last_error = f"{item[0]} {'/'.join(item[1])}: {error}"
        count = self._failures[item] = self._failures.get(item, 0) + 1
        if at_once and count <= _AT_ONCE:
            self._queue.add(item)
        else:
            self._queue.add_at(item, self._clock() + min(_BACKOFF_MOST_S, _BACKOFF_S * 2 ** min(count, 10)))

    def _learn(self, resource: Resource, obj: JsonObject) -> None:
        news = self._cache.put(resource, obj)
        if news is not None:
            self._tell(resource, *news)

    def _forget(self, resource: Resource, key: Key, uid: str) -> None:
        old = self._cache.remove(resource, key, uid)
        if old is not None:
            self._tell(resource, old, None)

    def _asked(self, resource: Resource, obj: JsonObject) -> None:
        news = self._cache.ask(resource, obj, stamp(self._clock()))
        if news is not None:
            self._tell(resource, *news)

    def _tell(self, resource: Resource, old: JsonObject | None, new: JsonObject | None) -> None:
        for controller in self._controllers.values():
            controller.changed(resource, old, new)

    def _writes(self) -> int:
        return self._writer.count + self._recorder.count
