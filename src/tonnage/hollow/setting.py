"""Lays a scenario's manifests out on an API: namespaces, the kinds that CRDs define, and the objects themselves."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from functools import partial

from tonnage.control.choices import STATIC
from tonnage.decisions import Ref
from tonnage.errors import InputError
from tonnage.facts.labels import GPU_CLIQUE
from tonnage.hollow.definitions import Kind, define_missing_kinds, run_here, served_as
from tonnage.hollow.given import given
from tonnage.hollow.machines import Machines
from tonnage.kube.resources import (
    ALL,
    COMPUTE_DOMAINS,
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
    Resource,
)
from tonnage.kube.transport import ApiError
from tonnage.kube.verbs import Client, JsonObject
from tonnage.live.configurations import OPERATOR_NAMESPACE
from tonnage.live.group_kinds import GROUPS, by_kind
from tonnage.machines.cluster import SimulatedCluster
from tonnage.machines.training.happened import Then
from tonnage.objects import core
from tonnage.objects.base import KubeObject
from tonnage.partitioning.fleet_layouts import may_change
from tonnage.scheduling.place import SCHEDULER_NAME
from tonnage.simulation.run import SetUp
from tonnage.workloads.membership import gangs_of

_TEMPLATED = (DEPLOYMENTS, DAEMON_SETS, REPLICA_SETS, STATEFUL_SETS)
_POD_GROUPS = tuple(type_ for _, type_ in GROUPS)
_FIRST = ("PriorityClass", "EC2NodeClass", "NodePool")
_MADE_OTHERWISE = ("Namespace", "Pod", "Node", "NodeClaim")


def lay_out(
    made: SetUp, client: Client, machines: Machines, scheduler_name: str = SCHEDULER_NAME, *, managed: bool = False
) -> None:
    """Create everything that the scenario's manifests have; pods and nodes are left to the machines.

    Training workloads are created when they arrive. ``managed``: the server has a kube-controller-manager, which makes
    Jobs' pods, and perhaps operators, which make those of the kinds that they have defined. Objects of kinds that are
    not served are left out: the configuration's findings name them. What the API server refuses is left out too, and
    among the machines' ``errors``."""
    cluster, manifest = made.cluster, made.configuration.manifest.objects
    objects = [(resource, one) for one in manifest if (resource := _resource(one)) is not None]
    racks = [COMPUTE_DOMAINS] if any(GPU_CLIQUE in node.labels for node in cluster.nodes.values()) else []
    define_missing_kinds(client, (*ALL, *(resource for resource, _ in objects if resource.custom), *racks))
    machines.mig.config_maps |= config_maps(made)
    namespaces = {_namespace_of(one) for resource, one in objects if resource.namespaced}
    if made.controls.partitioning != STATIC or any(may_change(node.labels) for node in cluster.nodes.values()):
        namespaces.add(OPERATOR_NAMESPACE)
    labels = {one.name: one.metadata.labels for one in made.configuration.manifest.of(core.Namespace)}
    for namespace in sorted(namespaces | labels.keys()):
        meta: JsonObject = {"name": namespace, "labels": labels.get(namespace, {})}
        stored = _create(client, NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
        if not meta["labels"].items() <= stored["metadata"].get("labels", {}).items():  # it was there before
            client.patch(NAMESPACES, namespace, {"metadata": {"labels": meta["labels"]}})
    machines.pods.scheduler_name = scheduler_name
    later = _give_training(client, cluster, manifest, machines)
    for body in () if managed else given(manifest, made.configuration.setting.made_claims()):
        known = by_kind(body["apiVersion"], body["kind"])
        assert known is not None
        _create(client, known, body)
    for resource, one in sorted(objects, key=lambda pair: pair[0].kind not in _FIRST):
        if one.kind in _MADE_OTHERWISE or id(one) in later:
            continue
        resource = _served(client, resource)
        body = _body(one, resource)
        if resource in _TEMPLATED:
            body["spec"]["template"]["spec"].setdefault("schedulerName", scheduler_name)
        try:
            stored = _create(client, resource, body)
        except ApiError as error:
            if error.code not in (403, 422):
                raise
            machines.errors[f"{one.kind} {_namespace_of(one)}/{one.name}"] = str(error)
            continue
        if resource in _TEMPLATED:
            meta = stored["metadata"]
            machines.pods.own(_owner(resource, meta), stored)
    if managed:
        _leave_to_others(cluster, machines, run_here(client))


def _owner(resource: Resource, meta: JsonObject) -> str:
    """How the workload is named whose pods are stamped from the object; a DaemonSet is by its name alone."""
    kind = "Deployment" if resource == DAEMON_SETS else resource.kind
    return Ref(kind, meta["name"], meta["namespace"]).workload


def config_maps(made: SetUp) -> set[tuple[str, str]]:
    """(namespace, name) of the ConfigMaps of the scenario's manifests, each of which may say how GPUs are
    partitioned."""
    return {(_namespace_of(one), one.name) for one in made.configuration.manifest.of(core.ConfigMap)}


def _resource(one: KubeObject) -> Resource | None:
    return by_kind(one.api_version, one.kind) if one.written else None


def _served(client: Client, resource: Resource) -> Resource:
    """The resource in a version that is served: without a conversion versions differ in nothing but their name."""
    return resource if not resource.custom else served_as(client, resource) or resource


def _namespace_of(one: KubeObject) -> str:
    return one.namespace or "default"


def _body(one: KubeObject, resource: Resource) -> JsonObject:
    """An object as it is created."""
    body = deepcopy(one.written)
    body.pop("status", None)
    body["apiVersion"] = resource.api_version
    if resource.namespaced:
        body["metadata"].setdefault("namespace", "default")
    return body


def _give_training(
    client: Client, cluster: SimulatedCluster, manifest: Iterable[KubeObject], machines: Machines
) -> set[int]:
    """Say from what the training workloads and their pods are created; the ids of the objects that come later."""
    manifest = tuple(manifest)
    written = {f"{_namespace_of(one)}/{one.kind.lower()}/{one.name}": one for one in manifest if one.written}
    later = _give_groups(client, cluster, manifest, machines)
    for training in cluster.training.values():
        if training.kind == "Pod":
            for replica in training.replicas:
                machines.pods.give(_body(written[f"{replica.namespace}/pod/{replica.name}"], PODS))
            continue
        one = written.get(training.origin)
        known = _resource(one) if one is not None else None
        if one is None or known is None:
            what = f"{training.key}: {training.object.api_version} {training.kind} cannot be written to an API"
            raise InputError.at(what, file=training.object.origin.file, hint="use a version that Tonnage reads")
        resource = _served(client, known)
        body = _body(one, resource)
        body["metadata"]["name"] = training.key.rpartition("/")[2]
        if resource == JOBS:
            body["spec"]["template"]["spec"].setdefault("schedulerName", machines.pods.scheduler_name)
        machines.workloads.give(training.key, resource, body)
        later.add(id(one))
    return later


def _give_groups(
    client: Client, cluster: SimulatedCluster, manifest: Iterable[KubeObject], machines: Machines
) -> set[int]:
    """Say with which training workloads pod groups are created; the ids of those groups."""
    workload = {gang: training.key for training in cluster.training.values() for gang in training.gangs}
    later: set[int] = set()
    for one in manifest:
        resource = _resource(one) if isinstance(one, _POD_GROUPS) else None
        users = sorted({workload[gang] for gang in gangs_of((one,)) if gang in workload}) if resource else []
        for key in users[:1]:  # no other has its pods in this group
            assert resource is not None
            resource = _served(client, resource)
            machines.workloads.give_group(key, resource, _body(one, resource))
            later.add(id(one))
    return later


def _leave_to_others(cluster: SimulatedCluster, machines: Machines, ours: set[Kind]) -> None:
    """Workloads whose pods somebody else makes are only created."""
    for key, training in list(cluster.training.items()):
        if machines.workloads.has(key) and machines.workloads.kind(key) not in ours:
            del cluster.training[key]
            cluster.queue.push(training.arrival_ns, Then(partial(_created, machines, key)))


def _created(machines: Machines, key: str, cluster: SimulatedCluster) -> None:
    machines.show_workload(key)


def _create(client: Client, resource: Resource, body: JsonObject) -> JsonObject:
    """The object as it is in the API, made unless it is there."""
    namespace = body["metadata"].get("namespace", "") if resource.namespaced else ""
    try:
        return client.create(resource, body, namespace)
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise
        return client.get(resource, body["metadata"]["name"], namespace)
