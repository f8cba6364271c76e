"""Pods that share a GPU, in the small world of sim_builders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from sim_builders import READINESS, arrivals, launch, service, workload

from tonnage.machines import nodes, pods
from tonnage.machines.cluster import SimulatedCluster
from tonnage.machines.objects import SimulatedNode, SimulatedNodeClaim, SimulatedPod

TIME_SLICED = {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "time-slicing"}
MPS = {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "mps"}
MIG = {"nvidia.com/mig.config": "all-1g.10gb", "nvidia.com/mig.strategy": "mixed"}
SLICE = "nvidia.com/mig-1g.10gb"


def cut_node(cluster: SimulatedCluster, labels: Mapping[str, str], kind: str = "g6e.xlarge") -> SimulatedNode:
    """A node whose GPUs are cut as its labels say, ready now."""
    bought = msgspec.structs.replace(launch("node-1", kind, ""), labels=dict(labels))
    made = nodes.start_node(cluster, SimulatedNodeClaim(bought, cluster.now_ns))
    nodes.register_node(cluster, made)
    nodes.initialize_node(cluster, made)
    return made


def serving(
    cluster: SimulatedCluster,
    target: SimulatedNode,
    name: str,
    *seconds: float,
    output: int = 1000,
    utilization: float = 0.2,
    asks: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    claims: Sequence[str] = (),
) -> SimulatedPod:
    """A Service of one pod on the node, whose engine has requests at these times. ``claims``: ResourceClaims that its
    pod names."""
    asks = {} if claims else asks
    resources = {} if asks is None else {"resources": {"requests": dict(asks)}}
    made = workload(cluster, name, container=READINESS | resources)
    made.template = msgspec.structs.replace(
        made.template,
        metadata=msgspec.structs.replace(made.template.metadata, annotations=dict(annotations or {})),
        spec=msgspec.structs.replace(
            made.template.spec, resource_claims=[{"name": one, "resourceClaimName": one} for one in claims]
        ),
    )
    assert made.server is not None
    made.server.args = msgspec.structs.replace(made.server.args, gpu_memory_utilization=utilization)
    service(cluster, made, arrivals(*seconds, output=output))
    return place(cluster, pods_of(cluster, name), target)


def pods_of(cluster: SimulatedCluster, name: str) -> SimulatedPod:
    """The pod of a workload, made now."""
    made = cluster.workloads[f"inference/{name}"]
    pods.reconcile(cluster, made)
    return made.active[0]


def place(cluster: SimulatedCluster, pod: SimulatedPod, target: SimulatedNode) -> SimulatedPod:
    """Bind the pod to the node."""
    cluster.assign(pod, target)
    return pod


def latencies(cluster: SimulatedCluster, name: str) -> list[float]:
    """Seconds from arrival to end of the finished requests of a workload's Service."""
    found = cluster.workloads[f"inference/{name}"].service
    assert found is not None
    times = found.requests.arrivals.arrival_ns.tolist()
    ends = found.requests.finish_ns
    return [(end - at) / 1e9 for at, end in zip(times, ends, strict=True) if end]
