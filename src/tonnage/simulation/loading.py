"""What a pod waits for on its node: its image, weights, compiled graphs, and a GPU that holds its engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.inference.tables import vllm_memory
from tonnage.simulation.objects import EngineSetup, Pod
from tonnage.units import ns

if TYPE_CHECKING:
    from tonnage.simulation.cluster import SimulatedCluster

COMPILE_CACHE = "VLLM_CACHE_ROOT"
"""Names a folder that outlives the container, in which vLLM keeps what it has compiled."""


def image_ready_ns(cluster: SimulatedCluster, pod: Pod) -> int:
    """When the pod's image is on its node: it is pulled once, and later pods wait for the same pull."""
    node = cluster.nodes[pod.node]
    if node.images_on_disk:
        return cluster.now_ns
    image = pod.template.spec.containers[0].image
    at = node.image_ready_ns.get(image)
    if at is None:
        pull = cluster.physics.image_bytes(image) / cluster.durations.image_pull_bytes_per_s
        at = node.image_ready_ns[image] = cluster.now_ns + cluster.vary("image", pull)
    return max(at, cluster.now_ns)


def weights_loaded_ns(cluster: SimulatedCluster, pod: Pod) -> int:
    """When the pod's engine has its weights: the node's first load comes over its disk, later ones from page cache."""
    server = pod.workload.server
    assert server is not None
    node = cluster.nodes[pod.node]
    cached = node.weights_ready_ns.get(server.model)
    if cached is None or cluster.now_ns == 0:
        first = cluster.vary("weights", server.weight_bytes / node.disk_bytes_per_s)
        node.weights_ready_ns[server.model] = cluster.now_ns + first
        return cluster.now_ns + first
    return max(cached, cluster.now_ns) + ns(server.weight_bytes / cluster.durations.page_cache_bytes_per_s)


def engine_start_s(cluster: SimulatedCluster, pod: Pod) -> float:
    """Seconds from loaded weights to serving: shorter where the compiled graphs of an earlier start are kept.

    A node has them when its disk came with them, or once an engine of the same model has started there."""
    assert pod.workload.server is not None
    node = cluster.nodes[pod.node]
    container = pod.template.spec.containers[0]
    kept = any(variable.name == COMPILE_CACHE for variable in container.env)
    compiled = node.images_on_disk or pod.workload.server.model in node.compiled
    durations = cluster.durations
    return durations.engine_start_cached_s if kept and compiled else durations.engine_start_s


def engine_setup(cluster: SimulatedCluster, pod: Pod) -> EngineSetup | str:
    """The engine of this pod on the GPU that it got, or why it cannot start there."""
    server = pod.workload.server
    assert server is not None
    devices = len(cluster.fleet.pod(pod.row).devices)
    if devices < server.args.tensor_parallel_size:
        return f"the engine needs {server.args.tensor_parallel_size} GPUs, the pod holds {devices}"
    return cluster.physics.engine(pod.workload, cluster.nodes[pod.node].gpu)


def memory_utilization(pod: Pod) -> float:
    """Share of its GPU's memory that the pod's engine claims; vLLM claims it all at start."""
    server = pod.workload.server
    given = server.args.gpu_memory_utilization if server else None
    return given if given is not None else vllm_memory()["gpu_memory_utilization"]
