"""Pod lists as `kubectl get pods -A -o json` prints them, made from a seed: input for tests and benchmarks."""

from __future__ import annotations

import json
import random
from typing import Any

_WORKLOADS = (
    "llama-8b",
    "llama-70b",
    "embedder",
    "reranker",
    "whisper",
    "trainer",
    "notebook",
    "dcgm-exporter",
)
_HEX = "0123456789abcdef"
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
_TYPING_ERRORS = (
    ("spec", "nodeselector"),
    ("spec", "tolerationz"),
    ("metadata", "label"),
    ("status", "qosclass"),
)


def make_pods_json(n: int, seed: int) -> bytes:
    """A PodList of ``n`` pods as one line of JSON, each of at least 2.2 kB, the same for the same seed.

    The pods are complete: managed fields, owner, volumes, probes, conditions and container statuses as a kubelet
    writes them. One in a hundred (at random, at least one) has a field that Kubernetes does not know.
    """
    random_ = random.Random(f"pods/{seed}")
    mistyped = set(random_.sample(range(n), max(1, n // 100))) if n else set()
    items = []
    for index in range(n):
        pod = _pod(random_, index)
        if index in mistyped:
            part, field = random_.choice(_TYPING_ERRORS)
            pod[part][field] = {"a": "b"}
        items.append(pod)
    whole = {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items}
    return json.dumps(whole, separators=(",", ":")).encode()


def _pod(random_: random.Random, index: int) -> dict[str, Any]:
    workload = random_.choice(_WORKLOADS)
    template_hash = _letters(random_, 10)
    name = f"{workload}-{template_hash}-{_letters(random_, 5)}"
    gpus = random_.choice((0, 1, 1, 1, 2, 4, 8))
    started = f"2026-07-{random_.randint(1, 28):02d}T{random_.randint(0, 23):02d}:15:{random_.randint(0, 59):02d}Z"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(random_, workload, template_hash, name, started),
        "spec": _spec(random_, workload, gpus, index),
        "status": _status(random_, workload, started),
    }


def _metadata(random_: random.Random, workload: str, template_hash: str, name: str, started: str) -> dict[str, Any]:
    managed = {
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:status": {"f:phase": {}, "f:podIP": {}}},
        "manager": "kubelet",
        "operation": "Update",
        "subresource": "status",
        "time": started,
    }
    return {
        "annotations": {"prometheus.io/scrape": "true"},
        "creationTimestamp": started,
        "labels": {"app": workload, "pod-template-hash": template_hash, "team": random_.choice("abcdef")},
        "managedFields": [managed],
        "name": name,
        "namespace": random_.choice(("inference", "training", "default", "research")),
        "ownerReferences": [
            {
                "apiVersion": "apps/v1",
                "blockOwnerDeletion": True,
                "controller": True,
                "kind": "ReplicaSet",
                "name": f"{workload}-{template_hash}",
                "uid": _uid(random_),
            }
        ],
        "resourceVersion": str(random_.randint(10**6, 10**8)),
        "uid": _uid(random_),
    }


def _spec(random_: random.Random, workload: str, gpus: int, index: int) -> dict[str, Any]:
    amounts = {"cpu": str(random_.choice((1, 2, 4, 6, 8))), "memory": f"{random_.choice((4, 8, 16, 32))}Gi"}
    resources: dict[str, Any] = {"requests": dict(amounts), "limits": {"memory": amounts["memory"]}}
    if gpus:
        resources["requests"]["nvidia.com/gpu"] = resources["limits"]["nvidia.com/gpu"] = str(gpus)
    probe = {"httpGet": {"path": "/health", "port": "http", "scheme": "HTTP"}, "periodSeconds": 5}
    container = {
        "args": ["--model=meta-llama/Llama-3.1-8B-Instruct"],
        "env": [{"name": "HF_HOME", "value": "/models"}],
        "image": f"registry.example.com/serving/{workload}:v{random_.randint(1, 40)}",
        "imagePullPolicy": "IfNotPresent",
        "name": "main",
        "ports": [{"containerPort": 8000, "name": "http", "protocol": "TCP"}],
        "readinessProbe": probe,
        "resources": resources,
        "volumeMounts": [
            {"mountPath": "/models", "name": "models"},
            {"mountPath": "/dev/shm", "name": "shm"},
        ],
    }
    evictions = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    return {
        "containers": [container],
        "dnsPolicy": "ClusterFirst",
        "nodeName": f"ip-10-0-{index // 250 % 250}-{index % 250}.ec2.internal",
        "priority": 0,
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "serviceAccountName": "default",
        "terminationGracePeriodSeconds": 120,
        "tolerations": [
            {"effect": "NoSchedule", "key": "nvidia.com/gpu", "operator": "Exists"},
            *({"effect": "NoExecute", "key": key, "operator": "Exists", "tolerationSeconds": 300} for key in evictions),
        ],
        "volumes": [{"emptyDir": {}, "name": "models"}, {"emptyDir": {"medium": "Memory"}, "name": "shm"}],
    }


def _status(random_: random.Random, workload: str, started: str) -> dict[str, Any]:
    address = f"10.0.{random_.randint(0, 255)}.{random_.randint(1, 254)}"
    conditions = ("Initialized", "Ready", "PodScheduled")
    return {
        "conditions": [
            {"lastProbeTime": None, "lastTransitionTime": started, "status": "True", "type": type_}
            for type_ in conditions
        ],
        "containerStatuses": [
            {
                "containerID": f"containerd://{''.join(random_.choices(_HEX, k=64))}",
                "image": f"registry.example.com/serving/{workload}",
                "lastState": {},
                "name": "main",
                "ready": True,
                "restartCount": 0,
                "started": True,
                "state": {"running": {"startedAt": started}},
            }
        ],
        "hostIP": address,
        "phase": "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "qosClass": "Burstable",
        "startTime": started,
    }


def _letters(random_: random.Random, count: int) -> str:
    return "".join(random_.choices(_SUFFIX, k=count))


def _uid(random_: random.Random) -> str:
    text = "".join(random_.choices(_HEX, k=32))
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
