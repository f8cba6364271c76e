"""Writes the objects of training workloads to an API: they are created when they arrive, and told how far they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from tonnage.hollow.workload_statuses import WorkloadProgress, WorkloadStage, counted, status_of
from tonnage.kube.resources import Resource
from tonnage.kube.transport import ApiError
from tonnage.kube.verbs import Client
from tonnage.machines.cluster import SimulatedCluster
from tonnage.machines.training.part import AT_WORK, PartState
from tonnage.machines.training.workload import Training

JsonObject = dict[str, Any]


@dataclass(slots=True)
class _Written:
    """What of a workload is in the API. ``body``: as it is created; ``object``: as it was last answered.

    ``resting``: how far it is while it is to have no pods; ``resumed``: when it was last no longer suspended."""

    resource: Resource
    body: JsonObject
    object: JsonObject | None = None
    status: JsonObject = field(default_factory=dict)
    resting: WorkloadProgress | None = None
    resumed: str = ""


class WorkloadWriter:
    """Workloads by their key, namespace/kind/name. ``stamp`` gives the RFC 3339 time of the simulation's ns.

    :meth:`job` is for the owner's thread; the calls that it gives may be made by others, one workload's one at a time.
    """

    def __init__(self, cluster: SimulatedCluster, client: Client, stamp: Callable[[int], str]) -> None:
        self.cluster = cluster
        self._client = client
        self._stamp = stamp
        self._known: dict[str, _Written] = {}
        self._groups: dict[str, list[str]] = {}  # workload → the keys of its pod groups
        self.created: dict[str, Resource] = {}
        """Those that were created here, by whoever's manifest."""

    # ---- what is there ----

    def give(self, key: str, resource: Resource, body: JsonObject) -> None:
        """The workload is to be created from this."""
        self._known[key] = _Written(resource, body)

    def give_group(self, key: str, resource: Resource, body: JsonObject) -> None:
        """The pod group is to be created from this, with the workload whose pods are in it."""
        meta = body["metadata"]
        name = f"{resource.plural}.{resource.group} {meta['namespace']}/{meta['name']}"
        self._known[name] = _Written(resource, body)
        self._groups.setdefault(key, []).append(name)

    def groups(self, key: str) -> list[str]:
        """The keys of a workload's pod groups that have not been created."""
        return [name for name in self._groups.get(key, ()) if self.owner(name) is None]

    def adopt(self, key: str, resource: Resource, obj: JsonObject) -> None:
        """The workload is there, and has pods: somebody else has created it, changed or resumed it."""
        before, made = self._known.get(key), _Written(resource, obj, obj)
        if before is not None and before.object is not None and self.uid(key) == obj["metadata"]["uid"]:
            made.status, made.resumed = before.status, before.resumed
            if before.resting is not None and before.resting.stage is WorkloadStage.SUSPENDED:
                made.resumed = self._stamp(self.cluster.now_ns)
        self._known[key] = made

    def rest(self, key: str, *, suspended: bool) -> None:
        """The workload, which is there, has no pods from now on: it is suspended, or is to have none."""
        known, training = self._known[key], self.cluster.training.get(key)
        stage, now = WorkloadStage.SUSPENDED if suspended else WorkloadStage.PENDING, self._stamp(self.cluster.now_ns)
        if training is None:
            known.resting = WorkloadProgress(stage, now, since={stage: now}, resumed=known.resumed)
            return
        done = [replica.role for replica in training.replicas if replica.name in training.succeeded]
        roles = counted((replica.role for replica in training.replicas), (), (), done)
        if not suspended:
            roles = {role: replace(counts, wanted=0) for role, counts in roles.items()}
        was = self._progress(training)
        since = {one: at for one, at in was.since.items() if one in (WorkloadStage.PENDING, WorkloadStage.RUNNING)} | {
            stage: now
        }
        known.resting = WorkloadProgress(stage, was.started, "", roles, was.restarts, since, known.resumed)

    def forget(self, key: str) -> None:
        """Its object is gone."""
        self._known.pop(key, None)
        self.created.pop(key, None)

    def has(self, key: str) -> bool:
        """Whether the workload has an object; bare pods of a group have none."""
        return key in self._known

    def kind(self, key: str) -> tuple[str, str]:
        """Group and plural of its object."""
        resource = self._known[key].resource
        return resource.group, resource.plural

    def owner(self, key: str) -> JsonObject | None:
        """The object in the API; None while it is not there."""
        known = self._known.get(key)
        return known.object if known is not None else None

    def uid(self, key: str) -> str:
        """The uid of its object, empty while it is not there."""
        owner = self.owner(key)
        return str(owner["metadata"]["uid"]) if owner is not None else ""

    def body(self, key: str) -> JsonObject:
        """The object as it was written."""
        return self._known[key].body

    # ---- writing ----

    def job(self, key: str) -> Callable[[], None]:
        """What to call so that the API has the workload as it is now; what it says is fixed here."""
        known, training = self._known.get(key), self.cluster.training.get(key)
        if known is None:
            return lambda: None
        resource = known.resource
        progress = known.resting
        if progress is None and training is not None:
            progress = self._progress(training)
        status = status_of(resource.group, resource.kind, progress) if progress is not None else {}
        return lambda: self._put(key, known, status)

    def take_away(self, key: str) -> None:
        """Delete its object, and with it its pods."""
        owner = self.owner(key)
        if owner is not None:
            meta = owner["metadata"]
            self._client.delete(
                self.created[key], meta["name"], meta["namespace"], uid=meta["uid"], propagation="Background"
            )
        self.forget(key)

    def _put(self, key: str, known: _Written, status: JsonObject) -> None:
        if known.object is None:
            known.object = self._create(key, known)
        if not status or status == known.status:
            return
        meta = known.object["metadata"]
        patch = {"metadata": {"uid": meta["uid"]}, "status": status}
        self._client.patch(known.resource, meta["name"], patch, meta.get("namespace", ""), subresource="status")
        known.status = status

    def _create(self, key: str, known: _Written) -> JsonObject:
        meta = known.body["metadata"]
        try:
            made = self._client.create(known.resource, known.body, meta["namespace"])
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            return self._client.get(known.resource, meta["name"], meta["namespace"])
        self.created[key] = known.resource
        return made

    def _progress(self, training: Training) -> WorkloadProgress:
        role = {replica.name: replica.role for replica in training.replicas}
        pods = {
            p.name: p for part in training.parts for p in part.pods.values() if p.name in role and not p.terminating
        }
        roles = counted(
            role.values(),
            [role[name] for name in pods],
            [role[name] for name, pod in pods.items() if pod.ready_ns is not None],
            [role[name] for name in training.succeeded],
        )
        since: dict[WorkloadStage, str] = {}
        for phase in training.phases:
            since[_STAGES.get(phase.state, WorkloadStage.PENDING)] = self._stamp(phase.start_ns)
        stage = _STAGES.get(training.state, WorkloadStage.PENDING)
        ended = self._stamp(training.ended_ns) if training.ended_ns is not None else ""
        resumed = self._known[training.key].resumed if training.key in self._known else ""
        return WorkloadProgress(
            stage, self._stamp(training.arrival_ns), ended, roles, training.restarts, since, resumed
        )


_STAGES = {PartState.DONE: WorkloadStage.COMPLETE, PartState.FAILED: WorkloadStage.FAILED} | dict.fromkeys(
    AT_WORK, WorkloadStage.RUNNING
)
