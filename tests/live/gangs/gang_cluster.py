"""A small cluster on the embedded API with a scheduler, workloads of every kind, and somebody who makes their pods."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from live.contract.faulty import Crash, Faulty
from live.gangs.gang_objects import GROUPS, PODS, WORKLOADS, bare_pods, place_of, pods_of
from tonnage.apiserver import render
from tonnage.apiserver.api import Api
from tonnage.apiserver.inprocess import InProcess, InProcessStream
from tonnage.apiserver.request import Form
from tonnage.apiserver.selectors import ObjectSelector
from tonnage.apiserver.store import DELETED, Store, Subscription
from tonnage.apiserver.watch import Watch, WatchOptions
from tonnage.control.loops import Loop, tick
from tonnage.decisions import Decision, Evict, Outcome, Wait
from tonnage.fleet.invariants import violations
from tonnage.kube.informer import Informer, Informers, name_of
from tonnage.kube.reflector import Delays, Delta, Relisted
from tonnage.kube.resources import CLUSTER_POLICIES, CONFIG_MAPS, NAMESPACES, NODES, SERVED, Resource
from tonnage.kube.resources import PODS as POD_RESOURCE
from tonnage.kube.transport import JSON, ApiError, Reply, Transport
from tonnage.kube.verbs import Client
from tonnage.live import assembly
from tonnage.live.api_effects import ApiEffects
from tonnage.live.groups import KINDS
from tonnage.live.recording import Silent
from tonnage.live.watching import watch_world
from tonnage.live.world import ClusterWorld
from tonnage.objects import core
from tonnage.objects.base import KubeObject
from tonnage.provisioning.catalogue import Catalogue
from tonnage.units import NS_PER_S, from_rfc3339

T = TypeVar("T", bound=KubeObject)
START_NS = int(datetime(2026, 3, 2, 9, tzinfo=UTC).timestamp()) * NS_PER_S
GPU = "nvidia.com/gpu"
KINDS_OF_GANGS = tuple(sorted({*WORKLOADS, *GROUPS, *PODS} - {"Workload"}))
"""Pods name a Workload in Kubernetes 1.35 only, and the embedded API is of 1.36."""
QUICK = Delays(first=0.002, most=0.02, absent=(30.0, 60.0), watch=(60.0, 90.0), short=0.0)
_MORE = (*dict.fromkeys(resource for resource, _ in KINDS if resource not in SERVED), CLUSTER_POLICIES)


class SteppedClock:
    """Moves when it is told to. Timestamps mean what they say."""

    def __init__(self) -> None:
        self.at_ns = START_NS

    def now_ns(self) -> int:
        return self.at_ns

    def seconds(self) -> float:
        return self.at_ns / NS_PER_S

    def of(self, timestamp: str | None) -> int:
        return from_rfc3339(timestamp) if timestamp else self.at_ns


class MoreKinds:
    """A Transport: also lists and watches the kinds of gangs that CRDs define, of which ``store`` has the objects."""

    def __init__(self, inner: Transport, store: Store) -> None:
        self.inner, self.store = inner, store
        self._by_path = {resource.path(): resource for resource in _MORE}
        self._watches: set[Watch] = set()

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
        resource = self._by_path.get(path)
        if resource is None:
            return self.inner.request(
                method, path, query=query, body=body, content_type=content_type, accept=accept, timeout_s=timeout_s
            )
        found, version = self.store.items(resource)
        return render.reply(200, render.many(resource, found, version, Form(), 0.0))

    def stream(self, path: str, *, query: Mapping[str, str], timeout_s: float) -> Any:
        resource = self._by_path.get(path)
        if resource is None:
            return self.inner.stream(path, query=query, timeout_s=timeout_s)
        options = WatchOptions(since=int(query["resourceVersion"]))
        make = lambda: Watch(self.store, resource, ObjectSelector(), Form(), options, time.time)  # noqa: E731
        return InProcessStream(make, self._watches, timeout_s)

    def close(self) -> None:
        for watch in tuple(self._watches):
            watch.close()
        self.inner.close()


class Direct:
    """In place of :class:`Informers`: takes changes from the stores themselves, without threads, when it is pumped."""

    def __init__(self, *stores: Store) -> None:
        self._stores = stores
        self._informers: list[tuple[Informer[Any], type[KubeObject], Subscription]] = []

    def add(
        self,
        resource: Resource,
        type_: type[T],
        *,
        field_selector: str = "",
        namespace: str = "",
        optional: bool = False,
    ) -> Informer[T]:
        assert not field_selector or resource == CONFIG_MAPS, "there are none"
        informer: Informer[T] = Informer(resource, namespace, field_selector, "", optional=optional)
        store = self._stores[resource not in SERVED]
        found, version = store.items(resource)
        changes = store.subscribe(resource, version)
        informer.apply(Relisted([_decoded(one.object, type_) for one in found], version))
        self._informers.append((informer, type_, changes))
        return informer

    def absent(self) -> frozenset[str]:
        return frozenset()

    def behind(self) -> frozenset[str]:
        """None: :meth:`pump` brings all that there is."""
        return frozenset()

    def pump(self) -> None:
        for informer, type_, changes in self._informers:
            while (one := changes.get(0)) is not None:
                meta = one.object["metadata"]
                key = (meta.get("namespace", ""), meta["name"])
                informer.apply(Delta(key, _decoded(one.object, type_), one.version, one.type == DELETED))

    def stop(self) -> None:
        for _, _, changes in self._informers:
            changes.close()


def _named(body: dict[str, Any]) -> tuple[str, str]:
    return body["metadata"].get("namespace", ""), body["metadata"]["name"]


def _decoded(body: dict[str, Any], type_: type[T]) -> T:
    return msgspec.convert(body, type_)


@cache
def _catalogue() -> Catalogue:
    return Catalogue.load()


class GangCluster:
    """``seed``: of the faults that the scheduler's writes meet. The process can be restarted."""

    def __init__(self, seed: int = 0, *, threads: bool = False, parallel: int = 1) -> None:
        self.clock = SteppedClock()
        self.rng = random.Random(seed)
        self.api = Api(clock=self.clock.seconds, random=random.Random(seed))
        self.more = Store(_MORE)
        self.transport = MoreKinds(InProcess(self.api), self.more)
        self.client = Client(self.transport)
        self.faulty = Faulty(self.transport, seed)
        self.threads, self._parallel = threads, parallel
        self.gangs: dict[str, list[core.Pod]] = {}
        """By name: the pods that each shall have."""
        self.objects: dict[str, KubeObject] = {}
        self.intruders: list[str] = []
        """Pods that another scheduler has bound."""
        self.restarts = -1
        self.evicted = 0
        self.reasons: Counter[str] = Counter()
        self.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}})
        self.restart()

    # ---- the process ----

    def restart(self) -> None:
        """The process ends, and another begins: what it knows comes from the API alone."""
        if self.restarts >= 0:
            self.stop()
        self.restarts += 1
        self.world = ClusterWorld(
            ApiEffects(Client(self.faulty), self.clock),
            self.clock,
            price=lambda *_: 0,
            recorder=Silent(),
            parallel=self._parallel,
        )
        self.informers: Any = (
            Informers(self.client, time.time, random.Random(0), delays=QUICK)
            if self.threads
            else Direct(self.api.store, self.more)
        )
        watch_world(self.informers, self.world)
        if self.threads:
            assert self.informers.wait_synced(60), self.informers.problems()
        self.scheduler: Loop = assembly.loops_of("scheduler", self.world, _catalogue())[0]

    def stop(self) -> None:
        self.informers.stop()
        self.world.close()

    def see(self) -> None:
        """Take what the watches bring."""
        if not self.threads:
            self.informers.pump()
            return
        for store in (self.api.store, self.more):
            for informer in self.informers:
                if (informer.resource not in SERVED) == (store is self.more):
                    self._catch_up(informer, store)

    def _catch_up(self, informer: Informer[Any], store: Store) -> None:
        found, _ = store.items(informer.resource)
        selected = [one for one in found if informer.selects(*_named(one.object))]
        versions = {one.key: one.version for one in selected}
        deadline = time.monotonic() + 60
        while True:
            seen = {
                (f"{o.metadata.namespace}/" if informer.resource.namespaced else "") + o.metadata.name: int(
                    o.metadata.resource_version
                )
                for o in informer.items()
            }
            if seen == versions:
                return
            assert time.monotonic() < deadline, (name_of(informer.resource), seen, versions)
            self.informers.pump(0.02)

    def tick(self) -> list[tuple[Decision, Outcome]]:
        """The scheduler decides once; when its process dies, another one begins."""
        self.see()
        self.world.woken()
        try:
            taken = tick(self.scheduler, self.world)
        except Crash:
            self.restart()
            return []
        assert violations(self.world.fleet) == []
        self.evicted += sum(isinstance(decision, Evict) for decision, _ in taken)
        return taken

    def go(self, seconds: float, step_s: float = 10.0) -> None:
        """Let time pass: the scheduler runs, pods that go are recreated."""
        end = self.clock.at_ns + round(seconds * NS_PER_S)
        while self.clock.at_ns < end:
            self.tick()
            self.make_anew()
            self.clock.at_ns += round(step_s * NS_PER_S)

    # ---- nodes, workloads and pods ----

    def node(self, name: str, gpus: int) -> None:
        """A node that is ready."""
        amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", GPU: str(gpus)}
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-03-02T09:00:00Z"}
        self.client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
        self.client.patch(NODES, name, {"status": status}, subresource="status")

    def gang(self, kind: str, count: int, name: str, *, bind_first: bool = False) -> None:
        """A gang of this many pods, of a kind of :data:`KINDS_OF_GANGS`."""
        made: list[KubeObject] = []
        if kind in WORKLOADS:
            workload = self.put(WORKLOADS[kind](count, name))
            pods = [pod for pod in pods_of(workload) if pod.name != name]  # a RayJob's submitter is not of its gang
        else:
            made = [self.put(GROUPS[kind](count, name))] if kind in GROUPS else []
            workload = made[0] if made else None  # type: ignore[assignment]
            pods = bare_pods(kind, count, name)
        self.gangs[name] = pods
        if workload is not None:
            self.objects[name] = workload
        for pod in pods:
            self.create(pod)

    def put(self, obj: KubeObject) -> KubeObject:
        """Keep the object as an API server would; as it is there."""
        resource = KINDS[place_of(obj)][0]
        assert obj.written
        body = {**obj.written, "metadata": {**obj.written["metadata"], "name": obj.name}}
        body["metadata"] |= {"uid": str(UUID(int=self.rng.getrandbits(128))), "creationTimestamp": self._stamp()}
        return msgspec.convert(self._store_of(resource).put(resource, body).object, type(obj))

    def _store_of(self, resource: Resource) -> Store:
        """Where such objects are: the embedded API serves few of the kinds."""
        return self.api.store if resource in SERVED else self.more

    def _stamp(self) -> str:
        return datetime.fromtimestamp(self.clock.seconds(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def create(self, pod: core.Pod) -> None:
        """Make the pod, for our scheduler."""
        meta = pod.metadata
        owners = [
            {"apiVersion": o.api_version, "kind": o.kind, "name": o.name, "uid": o.uid, "controller": True}
            for o in meta.owner_references
        ]
        spec = self.spec_of(pod.name)
        if pod.spec.scheduling_group is not None:
            spec["schedulingGroup"] = {"podGroupName": pod.spec.scheduling_group.pod_group_name}
        if pod.spec.workload_ref is not None:
            spec["workloadRef"] = {"name": pod.spec.workload_ref.name, "podGroup": pod.spec.workload_ref.pod_group}
        metadata = {
            "name": pod.name,
            "namespace": "ml",
            "labels": meta.labels,
            "annotations": dict(meta.annotations),
            "ownerReferences": owners,
        }
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        self.client.create(POD_RESOURCE, body, "ml")

    def spec_of(self, name: str) -> dict[str, Any]:
        """The spec of a pod of that name."""
        return {
            "schedulerName": "tonnage",
            "containers": [{"name": "main", "image": "i", "resources": {"limits": {GPU: "1"}}}],
        }

    def make_anew(self) -> None:
        """As kubelets and workload controllers do: pods that are being deleted go, and others come in their stead."""
        there = {pod["metadata"]["name"]: pod for pod in self.pods()}
        for name, pod in list(there.items()):
            if "deletionTimestamp" in pod["metadata"]:
                self.client.delete(POD_RESOURCE, name, "ml", grace_s=0)
                del there[name]
        for pods in self.gangs.values():
            for pod in pods:
                if pod.name not in there:
                    self.create(pod)

    def end(self, name: str) -> None:
        """The gang has done its work."""
        for pod in self.gangs.pop(name):
            try:
                self.client.delete(POD_RESOURCE, pod.name, "ml", grace_s=0)
            except ApiError as error:
                assert error.code == 404
        obj = self.objects.pop(name, None)
        if obj is not None:
            resource = KINDS[place_of(obj)][0]
            self._store_of(resource).remove(resource, obj.namespace, obj.name)

    def intrude(self, name: str) -> None:
        """Another scheduler binds a pod to the first node that has a free GPU, if one has, and it is not to be ours."""
        self.see()
        if self.world.feed.assumed:
            return
        taken = Counter(pod["spec"].get("nodeName", "") for pod in self.pods())
        for node in self.client.list(NODES):
            if taken[node["metadata"]["name"]] < int(node["status"]["allocatable"][GPU]):
                container = {"name": "main", "image": "i", "resources": {"limits": {GPU: "1"}}}
                body = {"metadata": {"name": name}, "spec": {"schedulerName": "other", "containers": [container]}}
                made = self.client.create(POD_RESOURCE, {"apiVersion": "v1", "kind": "Pod", **body}, "ml")
                self.client.bind(name, "ml", made["metadata"]["uid"], node["metadata"]["name"])
                self.intruders.append(name)
                return

    def leave(self, name: str) -> None:
        """The other scheduler's pod has done its work."""
        self.intruders.remove(name)
        self.client.delete(POD_RESOURCE, name, "ml", grace_s=0)

    # ---- what there is ----

    def pods(self) -> list[dict[str, Any]]:
        """All pods as the API has them; not to be changed."""
        return [one.object for one in self.api.store.items(POD_RESOURCE, "ml")[0]]

    def bound(self) -> dict[str, int]:
        """How many pods of each gang the API has on a node."""
        nodes = {
            pod["metadata"]["name"]
            for pod in self.pods()
            if pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]
        }
        return {name: sum(pod.name in nodes for pod in pods) for name, pods in self.gangs.items()}

    def in_part(self) -> dict[str, int]:
        """The gangs of which some pods are bound, and too few."""
        return {name: n for name, n in self.bound().items() if 0 < n < len(self.gangs[name])}


def verdicts(taken: Iterable[tuple[Decision, Outcome]]) -> Iterator[str]:
    """Why pods wait."""
    for decision, _ in taken:
        if isinstance(decision, Wait):
            yield decision.reason.verdict
