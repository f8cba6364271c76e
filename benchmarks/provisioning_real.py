"""Karpenter's own scheduler on the large mix, by the program that `make e2e-build` links it into."""

from __future__ import annotations

import json
import resource
import subprocess
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from e2e.build import built
from e2e.recipe import RECIPE
from tonnage.objects import karpenter
from tonnage.provisioning import labels
from tonnage.provisioning.catalogue import NODES, Catalogue
from tonnage.provisioning.nodeclass import NodeStorage
from tonnage.provisioning.pods import PendingPod

PROGRAM = "karpenter-plan"
_RESERVATION = "karpenter.k8s.aws/capacity-reservation-id"
_CREATED = "2026-11-01T00:00:00Z"


class RealPlan(NamedTuple):
    """What Karpenter's own scheduler plans: how many nodes, their price in micro-USD an hour, each as its cheapest
    type, how many pods are left, and the processor time that it took, starting the program included."""

    nodes: int
    micro_usd_per_hour: int
    waiting: int
    seconds: float


def real_plan(pods: Sequence[PendingPod], pool: karpenter.NodePool, market: Catalogue) -> RealPlan | None:
    """The plan for pods in the order of planning; None where the program is not built."""
    (module,) = (one for one in RECIPE if one.name == "karpenter_plan")
    found = built((module,))
    if found is None:
        return None
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    asked = json.dumps(_case(pods, pool, market))
    done = subprocess.run([found.program(PROGRAM)], input=asked, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    answer = json.loads(done.stdout)
    if "failed" in answer:
        raise RuntimeError(f"{PROGRAM}: {answer['failed']}")
    cheapest = {name: min(one.micro_usd_per_hour for one in market.book.offerings(name)) for name in market.names}
    return RealPlan(
        len(answer["claims"]),
        sum(min(cheapest[name] for name in claim["types"]) for claim in answer["claims"]),
        len(answer["refused"] or ()),
        after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
    )


def _case(pods: Sequence[PendingPod], pool: karpenter.NodePool, market: Catalogue) -> dict[str, Any]:
    capacity, allocatable = market.with_storage(NodeStorage())
    types = []
    for at, one in enumerate(market.types):
        offers = market.book.offerings(one.name)
        own: dict[str, list[str]] = {key: [value] for key, value in one.labels().items()}
        own[labels.ZONE] = sorted({each.zone for each in offers})
        own[labels.CAPACITY_TYPE] = sorted({each.capacity_type for each in offers})
        own[labels.REGION] = [market.book.region]
        types.append(
            {
                "name": one.name,
                "labels": own,
                "absent": sorted(labels.of_instance_type() - own.keys()),
                "capacity": _written(market.as_map(capacity[at])),
                "allocatable": _written(market.as_map(allocatable[at])),
                "offerings": [
                    {
                        "labels": {labels.ZONE: [each.zone], labels.CAPACITY_TYPE: [each.capacity_type]},
                        "absent": [_RESERVATION],
                        "price": each.micro_usd_per_hour / 1e6,
                        "available": True,
                    }
                    for each in offers
                ],
            }
        )
    written = msgspec.to_builtins(pool)
    meta = {"name": pool.name, "uid": pool.name, "creationTimestamp": _CREATED}
    ready = [
        {"type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": _CREATED},
    ]
    return {
        "id": "large",
        "wellKnown": sorted(labels.well_known()),
        "reservationId": _RESERVATION,
        "types": types,
        "nodePools": [
            {
                "apiVersion": "karpenter.sh/v1",
                "kind": "NodePool",
                "metadata": meta,
                "spec": written["spec"],
                "status": {"conditions": ready},
            }
        ],
        "pods": [_pod(one) for one in pods],
        "daemonPods": [],
        "nodes": [],
        "objects": [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": {}}},
        ],
        "ignorePreferences": False,
        "bestEffort": False,
    }


def _pod(of: PendingPod) -> dict[str, Any]:
    shape = of.shape
    requests = {name: amount for name, amount in shape.requests.items() if name != "pods"}
    affinity = {
        name: msgspec.to_builtins(one)
        for name, one in (("podAffinity", shape.pod_affinity), ("podAntiAffinity", shape.pod_anti_affinity))
        if one is not None
    }
    spec: dict[str, Any] = {"containers": [{"name": "main", "resources": {"requests": _written(requests)}}]}
    spec["topologySpreadConstraints"] = [msgspec.to_builtins(one) for one in shape.spread]
    if affinity:
        spec["affinity"] = affinity
    meta = {"name": of.ref.name, "namespace": of.ref.namespace, "uid": of.ref.uid, "labels": dict(of.labels)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta | {"creationTimestamp": _CREATED},
        "spec": spec,
        "status": {"phase": "Pending"},
    }


def _written(amounts: dict[str, int]) -> dict[str, str]:
    return {name: f"{amount}m" if name == "cpu" else str(amount) for name, amount in amounts.items() if name != NODES}
