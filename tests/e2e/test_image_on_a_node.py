"""The image that `make image` makes, in containers of real nodes, as the chart runs it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import chart_builders
from chart_builders import CHART, CONTROLLERS, NAMESPACE, ROOT, Helm
from e2e import prerequisites
from e2e.processes import until
from e2e.real_nodes import RealNodes

ARCHIVE = ROOT / "out" / "tonnage-image.tar"
NAME = "registry.test/tonnage:e2e"


def imported(nodes: RealNodes, node: str, archive: Path) -> None:
    """The image, under a name of its own, in a node's containerd."""
    program = str(nodes.plane.built.program("ctr"))
    tool = [program, "--address", f"{nodes.folder(node)}/containerd.sock", "--namespace", "k8s.io", "images"]
    said = subprocess.run([*tool, "import", str(archive)], capture_output=True, text=True, check=True).stdout
    (name,) = (word for word in said.split() if ":" in word and "/" in word and "sha256" not in word)
    subprocess.run([*tool, "tag", name, NAME], capture_output=True, check=True)


def test_the_charts_pods_become_ready_with_it_on_a_real_node(start_plane: Any) -> None:
    """On the node's network, as there is no Service routing here. /readyz answers 200 once the API server has."""
    if why := prerequisites.for_real_nodes():
        pytest.skip(why)
    if not ARCHIVE.exists():
        pytest.skip("no out/tonnage-image.tar: `make image` makes it")
    plane = start_plane(nodes=["real-0"])
    with RealNodes(plane, ["real-0"]) as nodes:
        imported(nodes, "real-0", ARCHIVE)
        plane.namespace(NAMESPACE)
        server = urlsplit(plane.server)
        environment = [
            {"name": "KUBERNETES_SERVICE_HOST", "value": server.hostname},
            {"name": "KUBERNETES_SERVICE_PORT", "value": str(server.port)},
        ]
        repository, _, tag = NAME.rpartition(":")
        values = {
            "image": {"repository": repository, "tag": tag, "pullPolicy": "Never"},
            "hostNetwork": True,
            "controllers": {
                "scheduler": {"env": environment, "mode": "apply"},
                "replicas": {"enabled": False},
                "nodes": {"enabled": False},
            },
        }
        helm = Helm(chart_builders.tools() / "helm", {"KUBECONFIG": str(plane.kubeconfig()), "HOME": str(plane.folder)})
        done = helm.run("install", "tonnage", str(CHART), "--namespace", NAMESPACE, values=values)
        assert done.returncode == 0, done.stderr
        path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/tonnage-{CONTROLLERS[0]}"

        def ready() -> bool:
            return bool(plane.api().get(path)["status"].get("readyReplicas") == 1)

        until("the scheduler's pod is ready", ready, 120, 0.5)
        logs = plane.kubectl("logs", "-n", NAMESPACE, "deployment/tonnage-scheduler").stdout
        assert "Traceback" not in logs
        lease = plane.api().get(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/tonnage-scheduler")
        assert lease["spec"]["holderIdentity"]
