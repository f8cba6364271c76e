"""Programs that play machines on a control plane: kwok, and Karpenter with its kwok provider."""

from __future__ import annotations

import json
from pathlib import Path

from e2e.api import Json
from e2e.control_plane import ControlPlane
from e2e.processes import LOCAL, Program, free_ports

KWOK_ANNOTATION = "kwok.x-k8s.io/node"


def kwok(plane: ControlPlane, parallelism: int = 0) -> Program:
    """kwok for the nodes annotated ``kwok.x-k8s.io/node: fake``, not started yet. ``parallelism``: stages of pods and
    of nodes, and leases, that it plays at once, with warnings alone in its log (0: its default of 4, and all it does).
    It has no limit of requests a second."""
    folder = plane.built.folders["kwok"]
    (port,) = free_ports(1)
    words: list[str | Path] = [
        folder / "bin" / "kwok",
        f"--kubeconfig={plane.kubeconfig()}",
        "--manage-all-nodes=false",
        f"--manage-nodes-with-annotation-selector={KWOK_ANNOTATION}=fake",
        "--node-lease-duration-seconds=40",
        f"--server-address={LOCAL}:{port}",
        *(f"--config={path}" for path in sorted((folder / "stages").iterdir())),
    ]
    if parallelism:
        names = ("podPlayStage", "nodePlayStage", "nodeLease", "podsOnNodeSync")
        config = {
            "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
            "kind": "KwokConfiguration",
            "options": {f"{name}Parallelism": parallelism for name in names},
        }
        path = plane.folder / "kwok.json"
        path.write_text(json.dumps(config))
        words += [f"--config={path}", "--v=WARN"]
    return Program("kwok", words, plane.folder / "kwok.log", lambda: _listens(port))


def karpenter(plane: ControlPlane, instance_types: list[Json] | None = None) -> Program:
    """Karpenter with its kwok provider, not started yet; its CRDs are put into the API server here. It makes Nodes for
    NodeClaims; run :func:`kwok` beside it to make them Ready. ``instance_types``: in place of its own list."""
    folder = plane.built.folders["karpenter"]
    plane.kubectl("apply", "--server-side", "-f", folder / "crds")
    plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
    metrics, health = free_ports(2)
    environment = {
        "KUBECONFIG": str(plane.kubeconfig()),
        "SYSTEM_NAMESPACE": "kube-system",
        "KUBERNETES_MIN_VERSION": "1.26.0",
        "DISABLE_LEADER_ELECTION": "true",
        "CLUSTER_NAME": "e2e",
        "METRICS_PORT": str(metrics),
        "HEALTH_PROBE_PORT": str(health),
        "BATCH_MAX_DURATION": "2s",
        "BATCH_IDLE_DURATION": "1s",
    }
    if instance_types is not None:
        path = plane.folder / "instance-types.json"
        path.write_text(json.dumps(instance_types))
        environment["INSTANCE_TYPES_FILE_PATH"] = str(path)
    words = [folder / "bin" / "karpenter-kwok"]
    return Program("karpenter", words, plane.folder / "karpenter.log", lambda: _listens(health), environment)


def _listens(port: int) -> bool:
    """Whether somebody does, on loopback."""
    local = {line.split()[1] for line in _tcp() if line.split()[3] == "0A"}
    return any(int(address.rpartition(":")[2], 16) == port for address in local)


def _tcp() -> list[str]:
    tables = [Path("/proc/net/tcp"), Path("/proc/net/tcp6")]
    return [line for table in tables if table.exists() for line in table.read_text().splitlines()[1:]]
