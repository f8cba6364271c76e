"""Kubernetes objects for end-to-end tests, as JSON, with short defaults; and waiting for what becomes of them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from e2e.api import Api, Json
from e2e.processes import until

GPU = "nvidia.com/gpu"
HOSTNAME = "kubernetes.io/hostname"
IMAGE = "registry.test/workload:1"


def node(
    name: str,
    allocatable: Mapping[str, str],
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Json] = (),
    unschedulable: bool = False,
) -> Json:
    """A Node that claims to be Ready: no kubelet stands behind it."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    ready = {"type": "Ready", "status": "True", "reason": "Test", "message": ""}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {HOSTNAME: name, **(labels or {})}},
        "spec": {"taints": list(taints), "unschedulable": unschedulable},
        "status": {
            "capacity": dict(allocatable),
            "allocatable": dict(allocatable),
            "conditions": [ready | {"lastHeartbeatTime": now, "lastTransitionTime": now}],
        },
    }


def pod_spec(gpus: int = 0, args: Sequence[str] = ("serve", ":8080"), **fields: Any) -> Json:
    """A spec of one container that runs on a real node. A grace period of 0 would delete behind the kubelet's back."""
    resources = {"limits": {GPU: str(gpus)}} if gpus else {}
    container = {"name": "main", "image": IMAGE, "imagePullPolicy": "IfNotPresent", "args": list(args)}
    return {"terminationGracePeriodSeconds": 1, "containers": [container | {"resources": resources}]} | fields


def deployment(name: str, replicas: int, spec: Json, namespace: str = "default") -> Json:
    """A Deployment whose pods have the label ``app=<name>``."""
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def pods_of(api: Api, app: str, namespace: str = "default") -> list[Json]:
    """The pods with the label ``app``, by name."""
    found = api.items(f"/api/v1/namespaces/{namespace}/pods", labelSelector=f"app={app}")
    return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))


def condition(thing: Json, kind: str) -> Json:
    """A condition of an object; empty when it has none."""
    conditions: list[Json] = thing.get("status", {}).get("conditions") or []
    return next((c for c in conditions if c["type"] == kind), {})


def await_running(api: Api, app: str, count: int, namespace: str = "default", limit_s: float = 60.0) -> list[Json]:
    """The pods of an app once ``count`` of them are Running."""

    def running() -> list[Json]:
        return [pod for pod in pods_of(api, app, namespace) if pod["status"].get("phase") == "Running"]

    until(f"{count} pods of {app} Running", lambda: len(running()) >= count, limit_s, 0.2)
    return running()
