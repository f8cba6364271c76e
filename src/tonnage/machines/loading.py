"""What a pod waits for on its node: its image, weights, compiled graphs, and a GPU that holds its engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from tonnage.costs.held import part_of
from tonnage.facts import gpus, instances, mig
from tonnage.fleet import claimed_gpus
from tonnage.fleet.devices import Piece
from tonnage.fleet.geometry import geometry
from tonnage.inference.memory import visible_bytes
from tonnage.inference.servers import too_few
from tonnage.inference.servers.starting import engine_s, keeps_graphs
from tonnage.inference.tables import vllm_memory
from tonnage.machines import sharing
from tonnage.machines.objects import EngineSetup, ModelServer, SimulatedNode, SimulatedPod
from tonnage.machines.site import Site
from tonnage.units import GIB, ns

_BYTES_PER_MBIT = 125_000


def image_ready_ns(cluster: Site, pod: SimulatedPod) -> int:
    """When the pod's image is on its node: it is pulled once, and later pods wait for the same pull."""
    node = cluster.nodes[pod.node]
    if node.images_on_disk:
        return cluster.now_ns
    image = pod.template.spec.containers[0].image
    at = node.image_ready_ns.get(image)
    if at is None:
        pull = cluster.physics.image_bytes(image) / cluster.physics.durations.image_pull_bytes_per_s
        at = node.image_ready_ns[image] = cluster.now_ns + cluster.vary("image", pull)
    return max(at, cluster.now_ns)


def weights_loaded_ns(cluster: Site, pod: SimulatedPod) -> int:
    """When the pod's engine has its weights: the node's first load comes over its disk, or from the claim on which they
    lie; later ones come from page cache."""
    server = pod.workload.server
    assert server is not None
    node = cluster.nodes[pod.node]
    cached = node.weights_ready_ns.get(server.model)
    if cached is None or cluster.now_ns == 0:
        first = cluster.vary("weights", server.weight_bytes / read_bytes_per_s(node, server))
        node.weights_ready_ns[server.model] = cluster.now_ns + first
        return cluster.now_ns + first
    return max(cached, cluster.now_ns) + ns(server.weight_bytes / cluster.physics.durations.page_cache_bytes_per_s)


def read_bytes_per_s(node: SimulatedNode, server: ModelServer) -> float:
    """How fast a node reads weights that it has not read before: from the claim on which they lie, as fast as its
    storage and the instance allow, or else from its own disk."""
    place = server.weights
    if place is None:
        return node.disk_bytes_per_s
    kind = instances.get(node.instance_type)
    megabits = {"ebs": kind.ebs_mbps, "network": kind.network_mbps}.get(place.path)
    return min(place.bytes_per_s, megabits * _BYTES_PER_MBIT) if megabits else place.bytes_per_s


def engine_start_s(cluster: Site, pod: SimulatedPod) -> float:
    """Seconds from loaded weights to serving: shorter where the compiled graphs of an earlier start are kept.

    A node has them when its disk came with them, or once an engine of the same model has started there."""
    assert pod.workload.server is not None
    node = cluster.nodes[pod.node]
    server = pod.workload.server
    kept = keeps_graphs(pod.template.spec.containers[server.container])
    compiled = node.images_on_disk or server.model in node.compiled
    return engine_s(cluster.physics.durations, kept=kept and compiled, eager=server.eager)


def claim_memory(cluster: Site, pod: SimulatedPod) -> str:
    """Let the pod's engine take its part of the memory of GPUs that it shares; empty, or why it does not start.

    Text and rule: vllm-project/vllm vllm/v1/worker/utils.py, request_memory."""
    wanted = Fraction(memory_utilization(pod)).limit_denominator(10_000)
    free = sharing.join(cluster, pod, wanted)
    if free is None:
        return ""
    total = visible_bytes(_card(cluster, pod)) / GIB
    return (
        f"Free memory on device cuda:0 ({float(free) * total:.2f}/{total:.2f} GiB) on startup is less than desired GPU "
        f"memory utilization ({float(wanted):g}, {float(wanted) * total:.2f} GiB). Decrease GPU memory utilization or "
        "reduce GPU memory used by other processes."
    )


def engine_setup(cluster: Site, pod: SimulatedPod) -> EngineSetup | str:
    """The engine of this pod on the GPU or the part of one that it got, or why it cannot start there."""
    server = pod.workload.server
    assert server is not None
    row = cluster.fleet.pod(pod.row)
    gpu = cluster.nodes[pod.node].gpu
    instances = [piece for piece in row.pieces if piece.what]
    claimed = claimed_gpus.mig_parts(cluster.fleet, pod.row)
    held = len(row.devices) + len(claimed_gpus.whole(cluster.fleet, pod.row)) + len(claimed)
    short = too_few(server.args, held, instances=bool(instances or claimed))
    if short:
        return short
    if instances:
        largest = _largest(instances)
        found = cluster.physics.engine(pod.workload, _instance(gpu, largest))
        part = part_of(cluster.fleet, row.node, largest)
        return found if isinstance(found, str) else replace(found, part=part)
    if claimed:
        limit = None if pod.sharer is None or pod.sharer.limit is None else float(pod.sharer.claimed)
        found = cluster.physics.engine(pod.workload, f"{gpu}:{claimed[0].profile}", limit)
        return found if isinstance(found, str) else replace(found, part=claimed[0].size)
    if pod.sharer is None or pod.sharer.limit is None:
        return cluster.physics.engine(pod.workload, gpu)
    return cluster.physics.engine(pod.workload, gpu, float(pod.sharer.claimed))


def _largest(instances: Sequence[Piece]) -> Piece:
    """Of the MIG instances of a pod the one that its engine uses."""
    return max(instances, key=lambda piece: (piece.mib, piece.milli))


def _instance(gpu: str, piece: Piece) -> str:
    """The name among the facts of the MIG instance that the piece is, or is a part of (``h100:1g.10gb``)."""
    found = geometry(gpu)
    assert found is not None  # it has been cut
    return f"{gpu}:{found.named(piece.what).name}"


def _card(cluster: Site, pod: SimulatedPod) -> gpus.Gpu:
    """The GPU that the pod's engine is on, or the MIG instance, which is to it what a GPU is."""
    gpu = cluster.nodes[pod.node].gpu
    instances = [piece for piece in cluster.fleet.pod(pod.row).pieces if piece.what]
    claimed = claimed_gpus.mig_parts(cluster.fleet, pod.row)
    if claimed:
        return mig.resolve(f"{gpu}:{claimed[0].profile}")[0]
    return mig.resolve(_instance(gpu, _largest(instances)) if instances else gpu)[0]


def memory_utilization(pod: SimulatedPod) -> float:
    """Share of its GPU's memory that the pod's engine claims; vLLM claims it all at start."""
    server = pod.workload.server
    given = server.args.gpu_memory_utilization if server else None
    return given if given is not None else vllm_memory()["gpu_memory_utilization"]


def memory_mib(cluster: Site, pod: SimulatedPod) -> float:
    """MiB of each of its GPUs, or of its MIG instance, that the pod's engine has taken."""
    taken = float(pod.sharer.claimed) if pod.sharer is not None else memory_utilization(pod)
    return _card(cluster, pod).memory_mib * taken
