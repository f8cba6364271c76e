"""Which GPUs of a node: the best joined ones, and such that those that stay free are well joined too.

Pairs are scored as NVIDIA's device plugin scores them (facts: NVIDIA/go-gpuallocator, besteffort policy): this many
points for each NVLink between the two, or for the closest thing that they share. Where nothing is known about the
machine, or all pairs are alike, it is the lowest indices.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations, pairwise, permutations
from math import comb

import numpy as np

from tonnage.errors import InputError
from tonnage.facts import gpus, instances, interconnects
from tonnage.facts.interconnects import GpuTopology
from tonnage.facts.labels import GPU_PRODUCT, INSTANCE_TYPE
from tonnage.fleet.asks import Kind
from tonnage.fleet.rows import NodeRow
from tonnage.fleet.state import FREE_DEVICE, Fleet

NVLINK, ONE_SWITCH, ONE_SOCKET, ACROSS = 100, 50, 20, 10
"""Points of a pair: for each NVLink, behind one PCIe switch, at one socket, across sockets."""
MOST_SETS = 20_000
"""Sets of devices that are compared; beyond that the lowest indices are taken."""


def for_pod(fleet: Fleet, pod_row: int, node_row: int) -> tuple[int, ...] | None:
    """The whole GPUs that the pod should have on the node; None where it does not matter: whole GPUs are not what it
    asks for, it takes all that are free, or nothing is known of how they are joined."""
    ask = fleet.classes.shapes[fleet.pod_class(pod_row).shape].ask
    if ask.kind is not Kind.WHOLE:
        return None
    node = fleet.node(node_row)
    name = instance_type(node) if ask.resource == node.spec.device_resource else ""
    topology = interconnects.gpu_topology(name) if name else None
    if topology is None:
        return None
    free = tuple(np.flatnonzero(fleet.devices[node_row] == FREE_DEVICE).tolist())
    if not ask.count < len(free) or free[-1] >= topology.gpus:
        return None
    return choose(topology.instance_type, free, ask.count)


@lru_cache(maxsize=4096)
def choose(name: str, free: tuple[int, ...], count: int) -> tuple[int, ...]:
    """``count`` of the free GPUs of an instance type: the set with most points among its pairs, then that which leaves
    most points among the pairs of the rest, then the lowest indices."""
    topology = interconnects.gpu_topology(name)
    if topology is None or comb(len(free), count) > MOST_SETS:
        return free[:count]

    def worth(chosen: tuple[int, ...]) -> tuple[int, int]:
        rest = tuple(device for device in free if device not in chosen)
        return points(topology, chosen), points(topology, rest)

    return max(combinations(free, count), key=worth)  # the first of equals


def points(topology: GpuTopology, devices: Sequence[int]) -> int:
    """The points of all pairs of these GPUs together."""
    return sum(_pair(topology, a, b) for a, b in combinations(sorted(devices), 2))


def _pair(topology: GpuTopology, a: int, b: int) -> int:
    links = topology.nvlinks.get((a, b), 0)
    if links:
        return NVLINK * links
    if _together(topology.switches, a, b):
        return ONE_SWITCH
    return ONE_SOCKET if _together(topology.numa, a, b) else ACROSS


def _together(groups: tuple[tuple[int, ...], ...], a: int, b: int) -> bool:
    return any(a in group and b in group for group in groups)


# ---- how fast they are joined ----


def instance_type(node: NodeRow) -> str:
    """The node's instance type, as its spec or its label says; empty where neither does."""
    return node.spec.instance_type or node.labels.get(INSTANCE_TYPE, "")


def gpu_of(node: NodeRow) -> gpus.Gpu | None:
    """The GPU model of the node, by its spec, instance type or product label; None where it is not known."""
    name = instance_type(node)
    of_type = instances.get(name).gpu if instances.known(name) else ""
    for model in (node.spec.gpu, of_type, node.labels.get(GPU_PRODUCT, "")):
        try:
            if model:
                return gpus.get(model)
        except InputError:
            continue  # a model that the tables do not have
    return None


def links_of(node: NodeRow, devices: Sequence[int], *, switched: bool) -> tuple[str, float | None]:
    """(``nvlink`` or ``pcie``, bytes a second in one direction) of the slowest link of a ring over these GPUs; the rate
    is None where the model is not known. ``switched``: they are part of an NVLink domain of several nodes."""
    gpu = gpu_of(node)
    if gpu is None:
        return "pcie", None
    topology = interconnects.gpu_topology(instance_type(node))
    if topology is not None and topology.nvlinks and topology.bytes_per_s_a_link and len(devices) > 1:
        links = _ring(topology.instance_type, tuple(devices))
        if links:
            return "nvlink", links * topology.bytes_per_s_a_link
        return "pcie", float(gpu.pcie_bytes_per_s)
    if gpu.nvlink_bytes_per_s and (switched or len(devices) > 1):
        return "nvlink", float(gpu.nvlink_bytes_per_s)
    return "pcie", float(gpu.pcie_bytes_per_s)


@lru_cache(maxsize=1024)
def _ring(name: str, devices: tuple[int, ...]) -> int:
    """The NVLinks on the thinnest part of the best ring over the GPUs; 0 where there is no ring of NVLinks."""
    topology = interconnects.gpu_topology(name)
    if topology is None or len(devices) < 2:
        return 0
    first, *others = devices
    best = 0
    for order in permutations(others):
        ring = (first, *order, first)
        best = max(best, min(topology.nvlinks.get((min(p), max(p)), 0) for p in pairwise(ring)))
    return best
