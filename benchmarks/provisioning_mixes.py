"""Random mixes of GPU pods to plan nodes for: plain ones, and ones with all that makes plans hard."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tonnage.decisions import Ref
from tonnage.objects import core, karpenter
from tonnage.provisioning.plans import PlanSettings
from tonnage.provisioning.pods import PendingPod, PodShape

GPU, ARCH = "nvidia.com/gpu", "kubernetes.io/arch"
GPU_NAME, GPU_COUNT = "karpenter.k8s.aws/instance-gpu-name", "karpenter.k8s.aws/instance-gpu-count"
CAPACITY, ZONE = "karpenter.sh/capacity-type", "topology.kubernetes.io/zone"
MIG, STRATEGY = "nvidia.com/mig.config", "nvidia.com/mig.strategy"
MIB = 1 << 20
COUNT = 60

_NAMES = (("a10g",), ("l4",), ("l40s",), ("a10g", "l4"), ("a10g", "l4", "l40s"), ("t4",), ("h100",))


@dataclass(frozen=True)
class Group:
    """Equal pods: GPUs, millicores, MiB, the GPU models they may have, how many there are."""

    gpus: int
    cpu: int
    memory: int
    names: tuple[str, ...]
    count: int


@dataclass(frozen=True)
class Mix:
    """What is asked and what may be launched."""

    name: str
    groups: tuple[Group, ...]
    pods: tuple[PendingPod, ...]
    pools: tuple[karpenter.NodePool, ...]
    settings: PlanSettings = field(default_factory=PlanSettings)
    gangs: dict[str, Collection[Ref]] = field(default_factory=dict)


def plain(seed: int, count: int = COUNT) -> Iterator[Mix]:
    """On-demand GPU nodes without anything beside: two to five groups of pods."""
    rng = random.Random(seed)
    for number in range(count):
        groups = [_group(rng) for _ in range(rng.randint(2, 5))]
        pods = [pod for at, group in enumerate(groups) for pod in _pods(f"g{at}", group)]
        yield Mix(f"plain {seed}/{number}", tuple(groups), tuple(pods), (_pool("gpu", capacity=["on-demand"]),))


def hard(seed: int, count: int = COUNT) -> Iterator[Mix]:
    """With DaemonSets, limits, two zones, spot, GPUs with MIG, and a gang."""
    rng = random.Random(seed)
    for number in range(count):
        groups = [_group(rng) for _ in range(rng.randint(2, 4))]
        pods = [
            pod for at, group in enumerate(groups) for pod in _pods(f"g{at}", group, zone=rng.choice(("", "", *ZONES)))
        ]
        gang = Group(8, 64_000, 400_000, ("h100",), rng.randint(2, 3))
        members = _pods("gang", gang)
        cut = _pods("cut", Group(0, 2_000, 8_192, (), rng.randint(3, 16)), more={"nvidia.com/mig-1g.10gb": 1})
        limit = rng.choice(({}, {GPU: str(rng.randint(24, 64))}, {"cpu": str(rng.randint(600, 2_000))}))
        pools = (
            _pool("gpu", capacity=["on-demand", "spot"], zones=ZONES, limits=limit),
            _pool("mig", capacity=["on-demand"], zones=ZONES, layout="all-1g.10gb"),
        )
        agents = (
            PodShape(requests={"cpu": rng.choice((200, 500, 1_000)), "memory": 512 * MIB}),
            PodShape(requests={"cpu": 300, "memory": 1_024 * MIB}, node_affinity=_wanting(GPU_COUNT, "Gt", ["0"])),
        )
        yield Mix(
            f"hard {seed}/{number}",
            tuple(groups),
            (*pods, *members, *cut),
            pools,
            PlanSettings(daemon_sets=agents),
            {"gang": tuple(pod.ref for pod in members)},
        )


ZONES = ("us-east-1a", "us-east-1b")


def _group(rng: random.Random) -> Group:
    gpus = rng.choice([1, 1, 1, 1, 2, 4, 8])
    names = rng.choice(_NAMES)
    if names == ("h100",) and gpus in (2, 4):
        gpus = 8
    half = 1 if gpus < 4 else 2
    cpu = rng.choice([2000, 3500, 6000, 7000, 8000]) * gpus // half
    memory = rng.choice([8192, 12288, 16384, 28000, 48000]) * gpus // half
    return Group(gpus, cpu, memory, names, rng.randint(1, 20) if gpus < 8 else rng.randint(1, 3))


def _pods(name: str, group: Group, *, zone: str = "", more: dict[str, int] | None = None) -> list[PendingPod]:
    spec = {
        "containers": [
            {
                "name": "main",
                "resources": {
                    "limits": {
                        "cpu": f"{group.cpu}m",
                        "memory": f"{group.memory}Mi",
                        **({GPU: str(group.gpus)} if group.gpus else {}),
                        **{resource: str(n) for resource, n in (more or {}).items()},
                    }
                },
            }
        ],
        **({"nodeSelector": {ZONE: zone}} if zone else {}),
        **({"affinity": {"nodeAffinity": _affinity(GPU_NAME, "In", list(group.names))}} if group.names else {}),
    }
    shape = PodShape.of(msgspec.convert(spec, core.PodSpec))
    return [PendingPod(Ref("Pod", f"{name}-{i:03d}", "default"), shape) for i in range(group.count)]


def _affinity(key: str, operator: str, values: list[str]) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": key, "operator": operator, "values": values}]}
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}


def _wanting(key: str, operator: str, values: list[str]) -> core.NodeAffinity:
    return msgspec.convert(_affinity(key, operator, values), core.NodeAffinity)


def _pool(
    name: str,
    *,
    capacity: list[str],
    zones: tuple[str, ...] = (),
    limits: dict[str, str] | None = None,
    layout: str = "",
) -> karpenter.NodePool:
    requirements = [
        {"key": ARCH, "operator": "In", "values": ["amd64"]},
        {"key": CAPACITY, "operator": "In", "values": capacity},
        {"key": GPU_COUNT, "operator": "Gt", "values": ["0"]},
        *([{"key": ZONE, "operator": "In", "values": list(zones)}] if zones else []),
    ]
    labels = {MIG: layout, STRATEGY: "mixed"} if layout else {}
    written = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {
            "limits": limits or {},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "requirements": requirements,
                    "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                },
            },
        },
    }
    return msgspec.convert(written, karpenter.NodePool)
