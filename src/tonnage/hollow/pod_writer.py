"""Writes the pods of simulated machines to an API: those that are made here, and what becomes of all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

from tonnage.fleet.rows import FleetPod
from tonnage.hollow import device_statuses, statuses
from tonnage.hollow.pod_bodies import job_labels, owner_reference, written_spec
from tonnage.hollow.workload_writer import WorkloadWriter
from tonnage.kube.resources import PODS
from tonnage.kube.transport import STRATEGIC_PATCH, ApiError, ClientError
from tonnage.kube.verbs import Client, JsonObject
from tonnage.live.annotations import GPUS, SAVED_AT
from tonnage.live.places import places_of, written
from tonnage.machines.blocked import held_back
from tonnage.machines.cluster import SimulatedCluster
from tonnage.machines.objects import SimulatedPod, Workload, WorkloadController
from tonnage.objects import core
from tonnage.partitioning.fleet_layouts import may_change
from tonnage.scheduling.place import DEFAULT_SCHEDULER

Key = tuple[str, str]
REJECTED = "OutOfResources"
"""Why a kubelet takes a pod not up that does not fit."""


class NotAdmitted(ClientError):
    """The API server refuses to make the pod."""

    def __init__(self, pod: SimulatedPod, said: str) -> None:
        super().__init__(said)
        self.pod = pod


class PodWriter:
    """What of the pods is in the API. ``stamp`` gives the RFC 3339 time of the simulation's ns.

    :meth:`job` is for the owner's thread; the calls that it gives may be made by others, one pod's one at a time.
    """

    def __init__(
        self, cluster: SimulatedCluster, client: Client, workloads: WorkloadWriter, stamp: Callable[[int], str]
    ) -> None:
        self.cluster = cluster
        self.workloads = workloads
        self.scheduler_name = DEFAULT_SCHEDULER
        """Who places the pods of workloads that do not say it."""
        self._client = client
        self._stamp = stamp
        self._owners: dict[str, JsonObject] = {}  # Deployment, DaemonSet, … → its object, for the pods made here
        self._bare: dict[Key, JsonObject] = {}  # pods that nobody owns, as they are written
        self._uids: dict[Key, str] = {}  # pods that are in the API
        self._stands: dict[Key, SimulatedPod] = {}  # for which pod the one in the API stands
        self._saved: dict[str, int] = {}  # uid → the checkpoint that was last written on the pod
        self._over: set[str] = set()  # uids of pods whose names others have now
        self._done: dict[Key, JsonObject] = {}  # status of those that have succeeded
        self.daemons: dict[Key, tuple[FleetPod, str]] = {}
        """DaemonSets' pods made here, with their node."""
        self.deleting: set[Key] = set()
        """Pods whose deletion the API knows."""
        self.failing: dict[Key, tuple[str, str]] = {}
        """Reason and message."""
        self._gated: set[Key] = set()
        self._placed: dict[str, str] = {}  # by uid: the GPUs as they were written

    # ---- what is there ----

    def own(self, workload: str, owner: JsonObject) -> None:
        """Pods made here for ``workload`` (namespace/name) are stamped from this object, and owned by it."""
        self._owners[workload] = owner

    def give(self, body: JsonObject) -> None:
        """A pod that nobody owns is created from this."""
        self._bare[body["metadata"]["namespace"], body["metadata"]["name"]] = body

    def uid(self, key: Key) -> str:
        """The uid of the pod in the API; empty where there is none."""
        return self._uids.get(key, "")

    def is_over(self, uid: str) -> bool:
        """Whether this pod was replaced under its name: what is still heard of it is old."""
        return uid in self._over

    def seen(self, key: Key, uid: str) -> str:
        """The pod is in the API with this uid. Returns the uid under which it was known."""
        before, self._uids[key] = self._uids.get(key, ""), uid
        return before

    def opens(self, pod: SimulatedPod, seen: core.Pod) -> bool:
        """Whether its scheduling gates are to be removed, as somebody would; then :meth:`job` does."""
        opened = bool(seen.spec.scheduling_gates) and not held_back(self.cluster, pod.workload, pod.name)
        if opened:
            self._gated.add((pod.namespace, pod.name))
        return opened

    def stands_for(self, key: Key, pod: SimulatedPod) -> None:
        """The pod in the API is this one."""
        self._stands.setdefault(key, pod)

    def stands_no_more(self, key: Key) -> None:
        """The pod in the API is another one than that which stood for a pod of this name."""
        self._stands.pop(key, None)

    def standing(self, key: Key) -> SimulatedPod | None:
        """The pod for which the one in the API stands, also after that has ended here."""
        return self._stands.get(key)

    def is_gone(self, key: Key, uid: str) -> bool:
        """The API has this pod no more; False when another one has its name since."""
        self._over.discard(uid)
        if self._uids.get(key) != uid:
            return False
        del self._uids[key]
        self._saved.pop(uid, None)
        self._placed.pop(uid, None)
        self._stands.pop(key, None)
        self._done.pop(key, None)
        self.deleting.discard(key)
        self.failing.pop(key, None)
        return True

    def ended(self, pod: SimulatedPod) -> None:
        """It is gone here. Where its containers have ended by themselves it stays in the API, as what it has become."""
        controller = pod.workload.controller
        if self._has_failed(pod):
            self._done[pod.namespace, pod.name] = self._status(pod)
        if controller is None or not controller.has_succeeded(pod):
            return
        times = {"bound": pod.bound_ns, "started": pod.started_ns}
        at = {name: self._stamp(t) for name, t in times.items() if t is not None}
        if "started" in at:
            status = statuses.pod_succeeded(pod, pod.template.spec, at, self._stamp(self.cluster.now_ns))
            self._done[pod.namespace, pod.name] = status

    def bare(self) -> Iterator[Key]:
        """Those in the API that nobody owns, and so nobody would delete."""
        return (key for key in self._bare if key in self._uids)

    # ---- writing ----

    def take_away(self, key: Key) -> None:
        """Delete it at once."""
        self._client.delete(PODS, key[1], key[0], uid=self._uids[key], grace_s=0)

    def job(self, key: Key) -> Callable[[], None]:
        """What to call so that the API has the pod as it is now; what it says is fixed here."""
        client, (namespace, name) = self._client, key
        uid, pod = self.uid(key), self.cluster.pods.get(key)
        if key in self.daemons:
            return self._daemon_job(key, uid)
        if pod is None:
            return self._end_job(key, uid)
        if not uid:
            return self._create_job(pod) if self._made_here(pod) else _nothing
        if self._stands.get(key, pod) is not pod:
            return self._replace_job(pod, uid)
        if pod.terminating and key not in self.deleting and not self._has_failed(pod):
            self.deleting.add(key)
            return lambda: client.delete(PODS, name, namespace, uid=uid)
        saved = self._saved_job(key, uid, pod)
        if pod.bound_ns is None and key not in self.failing:
            return _both(saved, self._open_job(key)) if key in self._gated else saved
        status, places = self._status_job(key, uid, self._status(pod)), self._places(pod)
        if not places or self._placed.get(uid) == places:
            return _both(saved, status)
        patch = {"metadata": {"uid": uid, "annotations": {GPUS: places}}}

        def write() -> None:
            client.patch(PODS, name, patch, namespace)
            self._placed[uid] = places
            status()

        return _both(saved, write)

    def _places(self, pod: SimulatedPod) -> str:
        """The GPUs that the pod was given, where it matters to whoever repartitions them; empty: it does not."""
        fleet = self.cluster.fleet
        node = fleet.pod(pod.row).node
        if node < 0 or not may_change(fleet.node(node).labels):
            return ""
        return written(places_of(fleet, pod.row))

    def _made_here(self, pod: SimulatedPod) -> bool:
        return self.cluster.runs_workloads or pod.workload.controller is not None

    def _end_job(self, key: Key, uid: str) -> Callable[[], None]:
        """It has ended here: it goes from the API, unless it has succeeded."""
        client, (namespace, name) = self._client, key
        self.failing.pop(key, None)
        if not uid:
            return _nothing
        if key in self._done:
            return self._status_job(key, uid, self._done[key])
        return lambda: client.delete(PODS, name, namespace, uid=uid, grace_s=0)

    def _status_job(self, key: Key, uid: str, status: JsonObject) -> Callable[[], None]:
        client, (namespace, name) = self._client, key
        patch = {"metadata": {"uid": uid}, "status": status}
        return lambda: _ignore(
            client.patch(PODS, name, patch, namespace, subresource="status", content_type=STRATEGIC_PATCH)
        )

    def _open_job(self, key: Key) -> Callable[[], None]:
        """Remove the gates, as whoever put them there would."""
        self._gated.discard(key)
        patch = {"metadata": {"uid": self.uid(key)}, "spec": {"schedulingGates": None}}
        return lambda: _ignore(self._client.patch(PODS, key[1], patch, key[0]))

    def _saved_job(self, key: Key, uid: str, pod: SimulatedPod) -> Callable[[], None]:
        """Write on the pod when the last checkpoint of its work was written, as a launcher does."""
        controller = pod.workload.controller
        at_ns = controller.saved_ns(pod) if controller is not None else 0
        if not at_ns or self._saved.get(uid) == at_ns:
            return _nothing
        client, (namespace, name) = self._client, key
        patch = {"metadata": {"uid": uid, "annotations": {SAVED_AT: self._stamp(at_ns)}}}

        def save() -> None:
            client.patch(PODS, name, patch, namespace)
            self._saved[uid] = at_ns

        return save

    def _status(self, pod: SimulatedPod) -> JsonObject:
        failing = self.failing.get((pod.namespace, pod.name))
        if failing is not None and failing[0] == REJECTED:
            return {"phase": "Failed", "reason": failing[0], "message": failing[1]}
        failed = self._has_failed(pod)
        times = {"bound": pod.bound_ns, "started": pod.started_ns, "ready": pod.ready_ns}
        if pod.last_end is not None:
            times |= {"began": pod.last_end.started_ns, "ended": pod.last_end.ended_ns}
        at = {name: self._stamp(t) for name, t in times.items() if t is not None}
        status = (statuses.pod_failed if failed else statuses.pod_status)(pod, pod.template.spec, at, failing)
        devices = {} if failed else device_statuses.allocated(self.cluster, pod)
        for container in status["containerStatuses"]:
            if container["name"] in devices:
                container["allocatedResourcesStatus"] = devices[container["name"]]
        return status

    def _has_failed(self, pod: SimulatedPod) -> bool:
        """Whether its container has ended and is not started again: pods of Jobs stay then, for their logs."""
        kind = getattr(pod.workload.controller, "kind", "")
        return kind == "Job" and pod.last_end is not None and pod.template.spec.restart_policy == "Never"

    # ---- making pods ----

    def _create_job(self, pod: SimulatedPod) -> Callable[[], None]:
        body = self._body(pod)
        if body is None:
            return _waits_for_its_owner
        return lambda: self._create(pod, body)

    def _create(self, pod: SimulatedPod, body: JsonObject) -> None:
        try:
            made = self._client.create(PODS, body, pod.namespace)
        except ApiError as error:
            if error.code in (403, 422):
                raise NotAdmitted(pod, str(error)) from error
            raise
        key = (pod.namespace, pod.name)
        self._uids[key], self._stands[key] = made["metadata"]["uid"], pod

    def _replace_job(self, pod: SimulatedPod, uid: str) -> Callable[[], None]:
        """The pod in the API is an earlier one of this name: it goes at once, and this one comes."""
        key, body = (pod.namespace, pod.name), self._body(pod)
        self._over.add(uid)
        self._done.pop(key, None)
        self.deleting.discard(key)
        self.failing.pop(key, None)

        def replace() -> None:
            try:
                self._client.delete(PODS, pod.name, pod.namespace, uid=uid, grace_s=0)
            except ApiError as error:
                if error.code not in (404, 409):  # else it is gone already
                    raise
            if body is None:
                _waits_for_its_owner()
                return
            try:
                self._create(pod, body)
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise
                raise ClientError("the pod that had its name before is not gone yet") from error

        return replace

    def _body(self, pod: SimulatedPod) -> JsonObject | None:
        """The pod as it is created; None while its owner is not there. One that stood on its node before stands there
        at once."""
        body = self._unbound(pod)
        if body is not None and pod.bound_ns is not None:
            body["spec"]["nodeName"] = pod.node
        return body

    def _unbound(self, pod: SimulatedPod) -> JsonObject | None:
        controller = pod.workload.controller
        if controller is not None:
            return self._controlled(pod, controller)
        body = self._stamped(pod.workload.key, pod.namespace, pod.name)
        if pod.workload.stateful is not None:
            body["metadata"]["labels"] = dict(pod.template.metadata.labels)
            body["spec"]["volumes"] = [dict(one) for one in pod.template.spec.volumes]
        if pod.workload.template.spec.priority:
            body["spec"].setdefault("priority", pod.workload.template.spec.priority)
        return body

    def _stamped(self, workload: str, namespace: str, name: str) -> JsonObject:
        """A pod from the template of its workload."""
        owner = self._owners[workload]
        template = deepcopy(owner["spec"]["template"])
        meta = template.get("metadata", {})
        meta |= {"name": name, "namespace": namespace, "ownerReferences": [owner_reference(owner)]}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]}

    def _controlled(self, pod: SimulatedPod, controller: WorkloadController[Any]) -> JsonObject | None:
        """A pod as its framework's controller makes it."""
        bare = self._bare.get((pod.namespace, pod.name))
        if bare is not None:
            body = deepcopy(bare)
            body["spec"].setdefault("schedulerName", self.scheduler_name)
            return body
        owner = self.workloads.owner(controller.key)
        if owner is None:
            return None
        template = pod.template
        labels = job_labels(owner) | template.metadata.labels
        meta: JsonObject = {"name": pod.name, "namespace": pod.namespace, "ownerReferences": [owner_reference(owner)]}
        meta |= {"labels": labels}
        meta |= {"annotations": dict(template.metadata.annotations)}
        spec = written_spec(template.spec, self.workloads.body(controller.key))
        spec.setdefault("schedulerName", self.scheduler_name)
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}

    def _daemon_job(self, key: Key, uid: str) -> Callable[[], None]:
        spec, node = self.daemons[key]
        if key not in self.cluster.fleet.pod_by_key:
            del self.daemons[key]
            namespace, name = key
            return (lambda: self._client.delete(PODS, name, namespace, uid=uid, grace_s=0)) if uid else _nothing
        body = self._stamped(spec.owner, spec.namespace, spec.name)
        body["spec"]["nodeName"] = node
        at = self._stamp(self.cluster.now_ns)

        def create() -> None:
            if not uid:
                made = self._client.create(PODS, body, spec.namespace)
                self._uids[key] = made["metadata"]["uid"]
            stand_in = SimulatedPod(Workload("", "", core.PodTemplateSpec(spec=spec.spec), 0), spec.name, uid, -1, 0)
            status = statuses.pod_status(stand_in, spec.spec, {"bound": at, "started": at, "ready": at}, None)
            self._client.patch(
                PODS, spec.name, {"status": status}, spec.namespace, subresource="status", content_type=STRATEGIC_PATCH
            )

        return create


def _waits_for_its_owner() -> None:
    raise ClientError("its workload is not in the API yet")


def _both(first: Callable[[], None], second: Callable[[], None]) -> Callable[[], None]:
    def write() -> None:
        first()
        second()

    return write


def _nothing() -> None:
    """There is nothing to write."""


def _ignore(answer: object) -> None:
    """The answer is not needed: the watch brings it."""
