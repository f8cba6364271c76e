"""Which pods others have made, and how simulated machines run them."""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

import msgspec

from tonnage.fleet.rows import FleetPod
from tonnage.hollow.pod_writer import Key
from tonnage.machines.cluster import SimulatedCluster
from tonnage.machines.objects import SimulatedPod, Workload
from tonnage.machines.serving_containers import server_of
from tonnage.machines.training.workload import Training
from tonnage.objects import core
from tonnage.workloads.owners import belongs_to_node, owner_key, workload_of
from tonnage.workloads.variables import unseen

Say = Callable[[str, str, str, str], None]
"""(object, type, reason, message)."""


class Ours:
    """Whether pods are made here. ``uid`` gives the uid of a training workload's object by its key, empty for none."""

    def __init__(self, cluster: SimulatedCluster, uid: Callable[[str], str]) -> None:
        self._cluster, self._uid = cluster, uid
        self._replicas: dict[str, tuple[object, frozenset[Key]]] = {}  # of each: its replicas, and their names

    def made_here(self, key: Key, pod: core.Pod) -> bool:
        """Whether pods of this name are made here, so that one that is not known is to be deleted, not adopted."""
        cluster = self._cluster
        if cluster.runs_workloads and workload_of(pod) in cluster.workloads:
            return True
        owner = next((one for one in pod.metadata.owner_references if one.controller), None)
        made_by = f"{pod.namespace}/{owner.kind.lower()}/{owner.name}" if owner is not None else ""
        if owner is not None and made_by in cluster.training and self._uid(made_by) == owner.uid:
            return True
        return any(key in self._replicas_of(training) for training in cluster.training.values() if not training.over)

    def _replicas_of(self, training: Training) -> frozenset[Key]:
        known = self._replicas.get(training.key)
        if known is None or known[0] is not training.replicas:
            names = frozenset((one.namespace, one.name) for one in training.replicas)
            known = self._replicas[training.key] = training.replicas, names
        return known[1]


def take_up(cluster: SimulatedCluster, new: core.Pod, say: Say) -> SimulatedPod:
    """The pod in the simulated cluster; ``say`` is told of a command line that cannot be read."""
    workload = _workload(cluster, new, say)
    spec = FleetPod(
        new.namespace,
        new.name,
        new.metadata.uid,
        new.metadata.labels,
        msgspec.structs.replace(new.spec, node_name=""),
        owner=workload.key,
        priority=new.spec.priority or 0,
        created_ns=cluster.now_ns,
        daemon=belongs_to_node(new),
    )
    row, own = cluster.fleet.add_pod(spec), core.PodTemplateSpec(spec=new.spec, metadata=new.metadata)
    pod = SimulatedPod(workload, new.name, new.metadata.uid, row, cluster.now_ns, own=own)
    workload.pods[new.name] = pod
    cluster.pods[new.namespace, new.name] = pod
    return pod


def _workload(cluster: SimulatedCluster, pod: core.Pod, say: Say) -> Workload:
    """The workload of the pod; another one for each command line, as a rolling update makes them."""
    key = workload_of(pod) or owner_key(pod.namespace, "Pod", pod.name)
    first = pod.spec.containers[0]
    variant = (first.image, *first.command, *first.args)
    known = cluster.workloads.get(key)
    if known is not None and _command(known) == variant:
        return known
    name = key if known is None else f"{key}#{crc32(chr(0).join(variant).encode()):x}"
    if name not in cluster.workloads:
        server = server_of(unseen(pod.spec))
        if server is not None and server.refused:
            say(f"Pod {pod.namespace}/{pod.name}", "Warning", "Failed", server.refused)
        template = core.PodTemplateSpec(spec=pod.spec, metadata=pod.metadata)
        made = Workload(pod.namespace, key.partition("/")[2], template, 0, server)
        made.service = known.service if known is not None else None
        cluster.workloads[name] = made
    return cluster.workloads[name]


def _command(workload: Workload) -> tuple[str, ...]:
    first = workload.template.spec.containers[0]
    return (first.image, *first.command, *first.args)
