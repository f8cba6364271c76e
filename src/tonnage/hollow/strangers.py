"""Pods that others have made, as simulated machines run them."""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

import msgspec

from tonnage.cluster.feed import belongs_to_node, owner_key, workload_of
from tonnage.fleet.rows import PodSpec
from tonnage.objects import core
from tonnage.simulation.cluster import SimulatedCluster
from tonnage.simulation.configure import server_of
from tonnage.simulation.objects import Pod, Workload

Say = Callable[[str, str, str, str], None]
"""(object, type, reason, message)."""


def take_up(cluster: SimulatedCluster, new: core.Pod, say: Say) -> Pod:
    """The pod in the simulated cluster; ``say`` is told of a command line that cannot be read."""
    workload = _workload(cluster, new, say)
    spec = PodSpec(
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
    pod = Pod(workload, new.name, new.metadata.uid, cluster.fleet.add_pod(spec), cluster.now_ns)
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
        server = server_of(pod.spec)
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
