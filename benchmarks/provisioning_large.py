"""Many pods and many nodes at once: a mix of pods like that of Karpenter's own benchmark; a cluster to consolidate.

The mix follows kubernetes-sigs/karpenter pkg/controllers/provisioning/scheduling/scheduling_benchmark_test.go (v1.14):
a fifth each of plain pods, of pods spread over zones, over nodes, of pods near their like in a zone, and of pods that
keep apart on nodes, with requests drawn at random; 400 instance types of 1 to 400 CPUs. Prices are 0.1 a CPU and 0.1 a
GB, so that all types cost the same per CPU.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from tonnage.decisions import Ref
from tonnage.facts import instances, prices
from tonnage.objects import core, karpenter
from tonnage.objects.base import ObjectMeta
from tonnage.provisioning.candidates import MovablePod, RunningNode
from tonnage.provisioning.catalogue import Catalogue
from tonnage.provisioning.disruption import NodeState
from tonnage.provisioning.pods import ExistingNode, PendingPod, PodShape
from tonnage.units import GIB, MIB, NS_PER_S

PODS, TYPES = 20_000, 400
NODES, PODS_PER_NODE = 1_000, 5
NOW_NS = 1_772_452_800 * NS_PER_S
_CPU_MILLI = (100, 250, 500, 1000, 1500)
_MEMORY_MIB = (100, 256, 512, 1024, 2048, 4096)
_MICRO_USD_PER_CPU = 314_700
_VALUES = "abcdefg"
_ZONES = ("test-zone-1", "test-zone-2", "test-zone-3")
_ZONE, _HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


def diverse(count: int = PODS, seed: int = 42) -> list[PendingPod]:
    """The mix of pods; of equal seeds equal ones."""
    rng = random.Random(seed)
    kinds = [_plain, _spread(_ZONE), _spread(_HOST), _near, _apart]
    found = []
    for number in range(count):
        own, rules = kinds[number * len(kinds) // count](rng)
        requests = {"pods": 1, "cpu": rng.choice(_CPU_MILLI), "memory": rng.choice(_MEMORY_MIB) * MIB}
        ref = Ref("Pod", f"p{number:05d}", "default", f"p{number:05d}")
        found.append(PendingPod(ref, msgspec.structs.replace(rules, requests=requests), 0, own))
    return found


def market(types: int = TYPES) -> Catalogue:
    """Instance types of 1 CPU, 2 GiB and 10 pods, of twice that, and so on, on demand and on spot in three zones."""
    template = instances.get("m5.large")
    made = [
        msgspec.structs.replace(
            template,
            name=f"fake-it-{at}",
            vcpu=at + 1,
            memory_mib=2048 * (at + 1),
            allocatable_cpu_milli=1000 * (at + 1) - 100,
            allocatable_memory_mib=2048 * (at + 1) - 10,
            max_pods=10 * (at + 1),
        )
        for at in range(types)
    ]
    offers = [
        (
            one.name,
            prices.Offering(zone, kind, round((0.1 + 0.2147) * 1e6) * one.vcpu, "2026-07-20", "us-east-1", "mix"),
        )
        for one in made
        for zone in _ZONES
        for kind in ("on-demand", "spot")
    ]
    return Catalogue(made, prices.book("2026-07-20", "us-east-1", offers))


def node_pool(**spec: Any) -> karpenter.NodePool:
    """One NodePool that allows everything but what ``spec`` says."""
    return karpenter.NodePool(
        api_version="karpenter.sh/v1",
        kind="NodePool",
        metadata=ObjectMeta(name="default"),
        spec=msgspec.convert(
            {
                "template": {
                    "spec": {
                        "requirements": spec.pop("requirements", []),
                        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                    }
                },
                **spec,
            },
            karpenter.NodePoolSpec,
        ),
    )


def cluster(catalogue: Catalogue, nodes: int = NODES, seed: int = 7) -> list[RunningNode]:
    """Nodes of five types, each with five pods or as many as it holds, that have been there for hours."""
    rng = random.Random(seed)
    types = [instances.get(name) for name in ("m5.xlarge", "m5.2xlarge", "m5.4xlarge", "c5.2xlarge", "r5.2xlarge")]
    pair = next(pair for pair in catalogue.pairs if pair[1] == "on-demand")
    shapes = [
        PodShape(requests={"pods": 1, "cpu": cpu, "memory": gib * GIB})
        for cpu, gib in ((500, 1), (1000, 2), (1000, 4), (2000, 4))
    ]
    return [
        _node(f"n{number:04d}", rng.choice(types), pair, list(_held(number, shapes, rng))) for number in range(nodes)
    ]


def _held(number: int, shapes: Sequence[PodShape], rng: random.Random) -> Iterator[MovablePod]:
    for at in range(PODS_PER_NODE):
        name = f"p{number}-{at}"
        yield MovablePod(pod=PendingPod(Ref("Pod", name, "default", name), rng.choice(shapes), 0, {"app": "a"}))


def _node(name: str, of: instances.InstanceType, pair: tuple[str, str], wanted: Sequence[MovablePod]) -> RunningNode:
    free = {"cpu": of.allocatable_cpu_milli, "memory": of.allocatable_memory_mib * MIB, "pods": of.max_pods}
    held = []
    for pod in wanted:
        if all(free[resource] >= amount for resource, amount in pod.pod.shape.requests.items()):
            held.append(pod)
            for resource, amount in pod.pod.shape.requests.items():
                free[resource] -= amount
    ref = Ref("Node", name)
    labels = {**of.labels(*pair), "karpenter.sh/nodepool": "default"}
    return RunningNode(
        state=NodeState(
            node=ref,
            node_pool="default",
            price_micro_usd_per_hour=0,
            initialized_ns=NOW_NS - 10_000 * NS_PER_S,
            pods=len(held),
        ),
        node=ExistingNode(ref=ref, labels=labels, free=free, node_pool="default"),
        pods=tuple(held),
    )


_Kind = tuple[dict[str, str], PodShape]
_BARE = PodShape(requests={})


def _label(rng: random.Random, key: str = "my-label") -> dict[str, str]:
    return {key: rng.choice(_VALUES)}


def _plain(rng: random.Random) -> _Kind:
    return _label(rng), _BARE


def _spread(key: str) -> Callable[[random.Random], _Kind]:
    def made(rng: random.Random) -> _Kind:
        own, selected = _label(rng), core.LabelSelector(match_labels=_label(rng))
        rule = core.TopologySpreadConstraint(
            max_skew=1, topology_key=key, when_unsatisfiable="DoNotSchedule", label_selector=selected
        )
        return own, msgspec.structs.replace(_BARE, spread=(rule,))

    return made


def _near(rng: random.Random) -> _Kind:
    own = _label(rng, "my-affinity")
    term = core.PodAffinityTerm(topology_key=_ZONE, label_selector=core.LabelSelector(match_labels=own))
    affinity = core.PodAffinity(required_during_scheduling_ignored_during_execution=[term])
    return own, msgspec.structs.replace(_BARE, pod_affinity=affinity)


def _apart(rng: random.Random) -> _Kind:
    own = {"app": "nginx"}
    term = core.PodAffinityTerm(topology_key=_HOST, label_selector=core.LabelSelector(match_labels=own))
    affinity = core.PodAntiAffinity(required_during_scheduling_ignored_during_execution=[term])
    return own, msgspec.structs.replace(_BARE, pod_anti_affinity=affinity)
