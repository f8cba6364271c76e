"""The controllers of training frameworks beside an API: they take up the workloads that others create.

A workload with pods becomes a :class:`Training`, as those of a scenario are. It works for as long as an annotation
says, else for ever. Deleted or suspended, it ends; resumed, it begins again. Other numbers of pods are followed where
the framework is elastic; elsewhere an event says that they are not.

Not safe for several threads: its owner's alone.
"""

from __future__ import annotations

from collections.abc import Iterable

from tonnage.hollow.definitions import define_missing_kinds, is_served, run_here
from tonnage.hollow.machines import Machines
from tonnage.hollow.references import References
from tonnage.kube.resources import Resource
from tonnage.kube.transport import ApiError, ClientError
from tonnage.kube.verbs import Client
from tonnage.live.group_kinds import GROUPS, REFERRED
from tonnage.live.group_kinds import WORKLOADS as KINDS
from tonnage.machines.training.rescaling import rescale
from tonnage.machines.training.workload import Training
from tonnage.objects import batch, leaderworker, ray
from tonnage.objects.base import KubeObject
from tonnage.objects.training import PyTorchJob, TrainingRuntime, TrainJob
from tonnage.simulation.training.connect import adopted, key_of
from tonnage.workloads.replicas import WORKLOADS, WorkloadPod, is_suspended, replicas_of, resolved

WORK = "tonnage.dev/simulated-work"
"""On a training workload: how long it works with all of its pods."""

KUBERNETES = (".k8s.io", ".kubernetes.io")
"""The ends of groups that an API server guards as its own. Source: kubernetes/kubernetes apiextensions-apiserver
pkg/apihelpers, IsProtectedCommunityGroup."""


Shape = tuple[tuple[str, int], ...]
"""Of each pod of a workload: its name, and how many must have succeeded before it."""


class Operators:
    """``machines``: on which the pods run. ``client``: of the API."""

    def __init__(self, machines: Machines, client: Client) -> None:
        self._machines = machines
        self._cluster = machines.cluster
        self._client = client
        self._objects: dict[str, tuple[Resource, KubeObject]] = {}  # the workloads that are there, by key
        self._references = References()
        self._waiting: dict[str, None] = {}  # workloads with which something is still to be done
        self._passed_over: dict[str, Shape] = {}  # what a workload asks for, and an event says that it is not followed

    def see(self, resource: Resource, old: KubeObject | None, new: KubeObject | None) -> None:
        """A workload, or what one refers to, was added, changed or deleted."""
        one = new or old
        assert one is not None
        there = new is not None and not new.metadata.deletion_timestamp
        self._references.see(one, there=there)
        if isinstance(one, TrainingRuntime):
            self._look_again()
        if not isinstance(one, WORKLOADS):
            return
        key, uid = key_of(one), self._machines.workloads.uid(key_of(one))
        if uid and (uid == one.metadata.uid) != there:  # it is gone, or its end was not seen and another has its name
            self._end(key)
            self._machines.workloads.forget(key)
        if there:
            self._objects[key] = resource, one
            self._look_at(key, one)
            return
        for kept in (self._objects, self._waiting, self._passed_over):
            kept.pop(key, None)

    def _look_again(self) -> None:
        """TrainJobs whose runtime was not there can be taken up once it is."""
        for key, (_, one) in self._objects.items():
            if isinstance(one, TrainJob) and not self._machines.workloads.uid(key):
                self._look_at(key, one)

    def _look_at(self, key: str, one: KubeObject) -> None:
        if any(owner.controller for owner in one.metadata.owner_references):
            return
        training = self._cluster.training.get(key)
        if training is not None and not training.arrived and not training.over:
            return  # the scenario's, which creates it later
        if self._is_behind(key, one, training):
            self._waiting[key] = None
            self._attempt(key)
        else:
            self._waiting.pop(key, None)

    def _is_behind(self, key: str, one: KubeObject, training: Training | None) -> bool:
        """Whether the workload has other pods here than its object asks for."""
        wanted = _shape(replicas_of(one, self._references.everybodys))
        if self._machines.workloads.uid(key) != one.metadata.uid:
            return bool(wanted) or self._is_suspended(one)
        if training is not None and training.over and not training.withdrawn:
            return False  # it has come to its end
        has = _shape(training.replicas) if training is not None and not training.over else ()
        return wanted != has and self._passed_over.get(key) != wanted

    def _is_suspended(self, one: KubeObject) -> bool:
        return is_suspended(resolved(one, self._references.everybodys))

    def _end(self, key: str) -> None:
        training = self._cluster.training.get(key)
        if training is not None:
            training.withdraw(self._cluster)

    def catch_up(self) -> None:
        """Do what could not be done before: pods of an earlier workload of that name were still there."""
        for key in list(self._waiting):
            self._attempt(key)

    def _attempt(self, key: str) -> None:
        if self._follow(key, *self._objects[key]):
            del self._waiting[key]

    def _follow(self, key: str, resource: Resource, one: KubeObject) -> bool:
        """Let the workload have the pods that its object asks for; False where that has to wait."""
        wanted, running = self._training(one), self._running(key, one)
        if running is not None and wanted is not None and not _is_elastic(one):
            self._pass_over(key, one, running, wanted)
            return True
        had = {replica.name for replica in running.replicas} if running is not None else set()
        if wanted is not None and any(
            (r.namespace, r.name) in self._cluster.pods for r in wanted.replicas if r.name not in had
        ):
            return False
        try:
            raw = self._client.get(resource, one.name, one.namespace)
        except ClientError as error:
            return isinstance(error, ApiError) and error.code == 404  # it is gone again; else try later
        self._machines.workloads.adopt(key, resource, raw)
        self._passed_over.pop(key, None)
        if wanted is None:
            self._end(key)
            self._machines.workloads.rest(key, suspended=self._is_suspended(one))
            self._machines.show_workload(key)
        elif running is not None:
            rescale(self._cluster, running, wanted)
        else:
            self._cluster.training[key] = wanted
            wanted.arrive(self._cluster)
        return True

    def _running(self, key: str, one: KubeObject) -> Training | None:
        """The workload as it is at work here."""
        training = self._cluster.training.get(key)
        known = self._machines.workloads.uid(key) == one.metadata.uid
        return training if known and training is not None and not training.over else None

    def _pass_over(self, key: str, one: KubeObject, running: Training, wanted: Training) -> None:
        self._passed_over[key] = _shape(wanted.replicas)
        elastic = " (one with spec.elasticPolicy can be scaled)" if isinstance(one, PyTorchJob) else ""
        message = (
            f"its object asks for {len(wanted.replicas)} pods, and it has {len(running.replicas)}: "
            f"a running {one.kind} is not scaled here{elastic}; delete it and recreate it"
        )
        self._machines.event(f"{one.kind} {one.namespace}/{one.name}", "Warning", "ScalingNotFollowed", message)

    def _training(self, one: KubeObject) -> Training | None:
        text = one.metadata.annotations.get(WORK, "")
        try:
            return adopted(self._cluster, one, self._references.of(one), text)
        except ValueError as error:
            why = f"{WORK}: {error}; it never ends"
            self._machines.event(f"{one.kind} {one.namespace}/{one.name}", "Warning", "InvalidAnnotation", why)
            return adopted(self._cluster, one, self._references.of(one))


def _shape(replicas: Iterable[WorkloadPod]) -> Shape:
    return tuple((replica.name, replica.turn) for replica in replicas)


def _is_elastic(workload: KubeObject) -> bool:
    """Whether its framework adds and takes away pods while it runs.

    Sources: kubernetes/api batch/v1 JobSpec.parallelism, kubernetes-sigs/lws and ray-project/kuberay, whose replicas
    may change; kubeflow/training-operator v1 ElasticPolicy."""
    if isinstance(workload, PyTorchJob):
        return workload.spec.elastic_policy is not None
    return isinstance(workload, batch.Job | leaderworker.LeaderWorkerSet | ray.RayCluster)


def operated(client: Client, *, embedded: bool, bare: bool = False) -> list[tuple[Resource, type[KubeObject]]]:
    """The kinds whose workloads are taken up here, and those to which they refer.

    On the embedded API all of them, which it serves from then on; on a ``bare`` server too, but for kinds of groups
    that are Kubernetes' own, which a server has or has not. On another one those that were defined from here: whoever
    else has defined a kind runs it."""
    referred = (*GROUPS, *REFERRED)
    if embedded or bare:
        wanted = [resource for resource, _ in (*KINDS, *reversed(referred))]
        define_missing_kinds(client, [one for one in wanted if embedded or not one.group.endswith(KUBERNETES)])
        mine = list(KINDS)
    else:
        here = run_here(client)
        mine = [(one, type_) for one, type_ in KINDS if (one.group, one.plural) in here]
    return [(resource, type_) for resource, type_ in (*mine, *referred) if is_served(client, resource)]
