"""The controllers of training frameworks beside an API: they take up the workloads that others create.

A workload with pods becomes a :class:`Training`, as those of a scenario are. It works for as long as an annotation
says, else for ever. Deleted or suspended, it ends; resumed, it begins anew.

Not safe for several threads: its owner's alone.
"""

from __future__ import annotations

from tonnage.cluster.client.transport import ApiError, ClientError
from tonnage.cluster.client.verbs import Client
from tonnage.cluster.group_kinds import GROUPS, REFERRED
from tonnage.cluster.group_kinds import WORKLOADS as KINDS
from tonnage.cluster.resources import Resource
from tonnage.hollow.definitions import define_missing_kinds, is_served, run_here
from tonnage.hollow.machines import Machines
from tonnage.objects.base import KubeObject
from tonnage.simulation.training.connect import adopted, key_of
from tonnage.simulation.training.workload import Training
from tonnage.workloads.replicas import WORKLOADS, replicas_of

WORK = "tonnage.dev/simulated-work"
"""On a training workload: how long it works with all of its pods."""


class Operators:
    """``machines``: on which the pods run. ``client``: of the API."""

    def __init__(self, machines: Machines, client: Client) -> None:
        self._machines = machines
        self._cluster = machines.cluster
        self._client = client
        self._objects: dict[str, KubeObject] = {}  # all that is there, by key
        self._waiting: dict[str, Resource] = {}  # not taken up yet

    def see(self, resource: Resource, old: KubeObject | None, new: KubeObject | None) -> None:
        """A workload, or what one refers to, was added, changed or deleted."""
        one = new or old
        assert one is not None
        key = key_of(one)
        if new is None or new.metadata.deletion_timestamp:
            self._objects.pop(key, None)
            self._waiting.pop(key, None)
            if isinstance(one, WORKLOADS) and self._machines.workloads.uid(key) == one.metadata.uid:
                self._end(key)
                self._machines.workloads.forget(key)
            return
        self._objects[key] = new
        if isinstance(new, WORKLOADS) and not any(owner.controller for owner in new.metadata.owner_references):
            self._look_at(key, resource, new)

    def _look_at(self, key: str, resource: Resource, one: KubeObject) -> None:
        known, training = self._machines.workloads.uid(key), self._cluster.training.get(key)
        if training is not None and not training.arrived and not training.over:
            return  # the scenario's, which creates it later
        has_pods = bool(replicas_of(one, self._objects.values()))
        if known == one.metadata.uid and training is not None and not has_pods:
            self._end(key)  # suspended
            self._machines.workloads.forget(key)
            return
        if known != one.metadata.uid and has_pods:
            self._waiting[key] = resource
            self.catch_up()

    def _end(self, key: str) -> None:
        training = self._cluster.training.get(key)
        if training is not None:
            training.withdraw(self._cluster)

    def catch_up(self) -> None:
        """Take up what could not be before: pods of an earlier workload of that name were still there."""
        for key, resource in list(self._waiting.items()):
            if self._take_up(key, resource, self._objects[key]):
                del self._waiting[key]

    def _take_up(self, key: str, resource: Resource, one: KubeObject) -> bool:
        training = self._training(one)
        if training is None:
            return True
        if any((pod.namespace, pod.name) in self._cluster.pods for pod in training.replicas):
            return False
        try:
            raw = self._client.get(resource, one.name, one.namespace)
        except ClientError as error:
            return isinstance(error, ApiError) and error.code == 404  # it is gone again; else try later
        self._machines.workloads.adopt(key, resource, raw)
        self._cluster.training[key] = training
        training.arrive(self._cluster)
        return True

    def _training(self, one: KubeObject) -> Training | None:
        text = one.metadata.annotations.get(WORK, "")
        try:
            return adopted(self._cluster, one, self._objects.values(), text)
        except ValueError as error:
            why = f"{WORK}: {error}; it never ends"
            self._machines.event(f"{one.kind} {one.namespace}/{one.name}", "Warning", "InvalidAnnotation", why)
            return adopted(self._cluster, one, self._objects.values())


def operated(client: Client, *, embedded: bool) -> list[tuple[Resource, type[KubeObject]]]:
    """The kinds whose workloads are taken up here, and those to which they refer.

    On the embedded API all of them, which it serves from then on. On another server those that were defined from here:
    whoever else has defined a kind runs it."""
    referred = (*GROUPS, *REFERRED)
    if embedded:
        define_missing_kinds(client, [resource for resource, _ in (*KINDS, *reversed(referred))])
        mine = list(KINDS)
    else:
        here = run_here(client)
        mine = [(one, type_) for one, type_ in KINDS if (one.group, one.plural) in here]
    return [(resource, type_) for resource, type_ in (*mine, *referred) if is_served(client, resource)]
