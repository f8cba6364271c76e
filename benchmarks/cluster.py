"""A large cluster and its pods, made from a seed: input for benchmarks of placement."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from tonnage.fleet.state import FleetNode, FleetPod
from tonnage.objects import core
from tonnage.units import GIB

GPU = "nvidia.com/gpu"
ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"
PRODUCT = "nvidia.com/gpu.product"
PRODUCTS = ("NVIDIA-H100-80GB-HBM3", "NVIDIA-L40S")

GPU_SHARES = {1: 85, 2: 10, 4: 4, 8: 1}
"""Per cent of the GPU pods that request this many: together 97 % of the GPUs of the cluster."""
GPU_APPS, CPU_APPS, RULED_APPS = 40, 100, 20


def nodes_and_pods(nodes: int, seed: int) -> tuple[list[FleetNode], list[FleetPod]]:
    """Nodes of 8 GPUs in 4 zones with two models of GPU; for each node 6 pods with GPUs and 4 without, of mixed ages.

    A third of the GPU workloads selects one model. Of the workloads without GPUs a fifth has a rule about other pods:
    spread over zones, one a host, or all in one zone."""
    random_ = random.Random(f"cluster/{seed}")
    ages = list(range(10 * nodes))
    random_.shuffle(ages)
    gpu_templates = [_gpu_template(i, random_) for i in range(GPU_APPS)]
    sizes = random_.choices(list(GPU_SHARES), list(GPU_SHARES.values()), k=6 * nodes)
    pods = [_pod("gpu", i, i % GPU_APPS, gpu_templates[i % GPU_APPS][gpus], ages[i]) for i, gpus in enumerate(sizes)]
    cpu_templates = [_cpu_template(i, random_) for i in range(CPU_APPS)]
    for i in range(4 * nodes):
        pods.append(_pod("cpu", i, i % CPU_APPS, cpu_templates[i % CPU_APPS], ages[6 * nodes + i]))
    return [_node(i) for i in range(nodes)], pods


def _node(i: int) -> FleetNode:
    labels = {ZONE: f"zone-{i % 4}", PRODUCT: PRODUCTS[i // 4 % 2]}
    allocatable = {"cpu": 191_450, "memory": 1_900 * GIB, "pods": 110, GPU: 8}
    return FleetNode(f"node-{i:05d}", allocatable, labels, uid=f"node-{i}", device_resource=GPU)


def _pod(kind: str, number: int, app: int, spec: core.PodSpec, created_ns: int) -> FleetPod:
    name = f"{kind}-{number:05d}"
    return FleetPod("default", name, name, {"app": f"{kind}-{app}"}, spec, f"default/{kind}-{app}", 0, created_ns)


def _gpu_template(app: int, random_: random.Random) -> dict[int, core.PodSpec]:
    """The workload's pod by number of GPUs."""
    cores, memory = random_.choice((4, 6, 8)), random_.choice((32, 64))
    selector = {"nodeSelector": {PRODUCT: PRODUCTS[app // 3 % 2]}} if app % 3 == 0 else {}
    return {n: _spec({"cpu": str(n * cores), "memory": f"{n * memory}Gi", GPU: str(n)}, selector) for n in GPU_SHARES}


def _cpu_template(app: int, random_: random.Random) -> core.PodSpec:
    requests = {"cpu": random_.choice(("500m", "1", "2")), "memory": random_.choice(("1Gi", "4Gi"))}
    selector = {"matchLabels": {"app": f"cpu-{app}"}}
    rules: dict[str, Any] = {}
    if app < RULED_APPS:
        required = "requiredDuringSchedulingIgnoredDuringExecution"
        rules = (
            {
                "topologySpreadConstraints": [
                    {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
                ]
            },
            {"affinity": {"podAntiAffinity": {required: [{"topologyKey": HOSTNAME, "labelSelector": selector}]}}},
            {"affinity": {"podAffinity": {required: [{"topologyKey": ZONE, "labelSelector": selector}]}}},
        )[app % 3]
    return _spec(requests, rules)


def _spec(requests: dict[str, str], fields: dict[str, Any]) -> core.PodSpec:
    container = {"name": "main", "resources": {"requests": requests}}
    return msgspec.convert({"containers": [container]} | fields, core.PodSpec)
