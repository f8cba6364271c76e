"""What `tonnage render agent` prints, on a real API server: admitted, and its accounts may do what the parts do, and no
more."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e_builders import condition, node

from e2e.api import Api, Json
from e2e.control_plane import ControlPlane
from e2e.processes import Program, until

NAMESPACE, NODE, NAME = "gpu-operator", "gpu-1", "tonnage-agent"
POLICY = {
    "apiVersion": "nvidia.com/v1",
    "kind": "ClusterPolicy",
    "metadata": {"name": "cluster-policy"},
    "spec": {
        "devicePlugin": {"config": {"name": "plugin-configs", "default": "whole"}},
        "dcgmExporter": {"enablePodLabels": True, "podLabelAllowlistRegex": ["^app$"]},
    },
}
PATHS = {
    "ServiceAccount": f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "DaemonSet": f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets",
    "DeviceClass": "/apis/resource.k8s.io/v1/deviceclasses",
}
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
ASKED = (
    *(("", one) for one in ("nodes", "nodes/status", "pods", "pods/eviction", "pods/exec", "secrets", "configmaps")),
    *(("", one) for one in ("events", "namespaces", "serviceaccounts", "serviceaccounts/token")),
    *(("apps", one) for one in ("daemonsets", "deployments")),
    *(("resource.k8s.io", one) for one in ("resourceclaims", "resourceslices", "deviceclasses")),
    ("rbac.authorization.k8s.io", "clusterroles"),
    ("nvidia.com", "clusterpolicies"),
)


def rendered(folder: Path, *words: str) -> list[Json]:
    gpus = node(NODE, {"cpu": "8", "pods": "20", "nvidia.com/gpu": "2"}, {"nvidia.com/gpu.present": "true"})
    file = folder / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [gpus, POLICY]}))
    command = [sys.executable, "-m", "tonnage", "render", "agent", str(file), "--image", "registry.test/workload:1"]
    done = subprocess.run([*command, *words, "-o", "json"], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    return list(found["items"]) if found.get("kind") == "List" else [found]


@pytest.fixture(scope="module")
def plane(start_plane: Any) -> Iterator[ControlPlane]:
    made: ControlPlane = start_plane(audit=True)
    made.namespace(NAMESPACE)
    labels = {"nvidia.com/gpu.present": "true"}
    made.api().create("/api/v1/nodes", node(NODE, {"cpu": "8", "memory": "16Gi", "pods": "20"}, labels))
    yield made


@pytest.fixture(scope="module")
def applied(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> list[Json]:
    """Its objects, which are there."""
    made = rendered(tmp_path_factory.mktemp("rendered"))
    for one in made:
        plane.api().create(PATHS[one["kind"]], one)
    return made


def account(plane: ControlPlane, name: str = NAME) -> Path:
    """A kubeconfig of the ServiceAccount, with a token of its own."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    found = plane.api().create(f"{PATHS['ServiceAccount']}/{name}/token", body)
    return plane.write_kubeconfig(f"account-{name}", found["status"]["token"])


def allowed(api: Api, user: str) -> set[tuple[str, str, str]]:
    """(group, resource, verb) of all that are asked about that the user may do, to any object."""
    found = set()
    for group, named in ASKED:
        resource, _, subresource = named.partition("/")
        for verb in VERBS:
            what = {"group": group, "resource": resource, "subresource": subresource, "verb": verb}
            body = {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": {"user": user, "resourceAttributes": what | {"namespace": "default"}},
            }
            if api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", body)["status"]["allowed"]:
                found.add((group, named, verb))
    return found


def test_its_objects_are_admitted_and_a_node_with_gpus_gets_its_pod(plane: ControlPlane, applied: list[Json]) -> None:
    assert {one["kind"] for one in applied} == {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "DaemonSet"}
    path = f"{PATHS['DaemonSet']}/{NAME}"
    until("a pod for the node", lambda: plane.api().get(path)["status"].get("currentNumberScheduled") == 1, 60)
    (pod,) = plane.api().items(f"/api/v1/namespaces/{NAMESPACE}/pods")
    assert [one["name"] for one in pod["spec"]["containers"]] == ["labels", "device-plugin", "metrics", "health"]


def test_its_account_may_do_what_the_parts_are_listed_with_and_no_more(
    plane: ControlPlane, applied: list[Json]
) -> None:
    assert allowed(plane.api(), f"system:serviceaccount:{NAMESPACE}:{NAME}") == {
        ("", "nodes", "get"),
        ("", "nodes", "list"),
        ("", "nodes", "watch"),
        ("", "nodes", "patch"),
        ("", "nodes/status", "patch"),
        ("", "pods", "get"),
        ("", "pods/eviction", "create"),
    }


def test_with_claims_its_account_may_publish_slices_and_read_claims(plane: ControlPlane, tmp_path: Path) -> None:
    made = rendered(tmp_path, "--dra")
    kinds = [one["kind"] for one in made]
    assert kinds.count("DeviceClass") == 2
    (role,) = (one for one in made if one["kind"] == "ClusterRole")
    role["metadata"]["name"] = "with-claims"
    for one in (role, *(each for each in made if each["kind"] == "DeviceClass")):
        plane.api().create(PATHS[one["kind"]], one)
    subject = {"kind": "User", "name": "with-claims", "apiGroup": "rbac.authorization.k8s.io"}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "with-claims"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "with-claims"},
        "subjects": [subject],
    }
    plane.api().create(PATHS["ClusterRoleBinding"], binding)
    found = {one for one in allowed(plane.api(), "with-claims") if one[0] == "resource.k8s.io"}
    verbs = ("create", "delete", "list", "update", "watch")
    slices = {("resource.k8s.io", "resourceslices", verb) for verb in verbs}
    assert found == slices | {("resource.k8s.io", "resourceclaims", "get")}


def test_the_parts_do_their_work_with_that_account_and_are_refused_nothing(
    plane: ControlPlane, applied: list[Json], tmp_path: Path
) -> None:
    kubeconfig, path = account(plane), f"/api/v1/nodes/{NODE}"
    cards = ["--simulated", "2xh100", "--state", str(tmp_path / "cards.json")]
    configs = tmp_path / "configs"
    configs.mkdir()
    (configs / "whole").write_text("version: v1\n")
    agent = [sys.executable, "-m", "tonnage", "agent"]
    own = ["--kubeconfig", str(kubeconfig)]
    health = Program(
        "health",
        [*agent, "health", *cards, "--node", NODE, "--apply", "--taint", "any", "--settle", "0", *own],
        tmp_path / "health.log",
    )
    folders = ["--kubelet-folder", str(tmp_path / "kubelet"), "--cdi-folder", str(tmp_path / "cdi")]
    (tmp_path / "kubelet").mkdir()
    plugin = Program(
        "device-plugin",
        [
            *agent,
            "device-plugin",
            *cards,
            "--node",
            NODE,
            "--config",
            str(configs),
            "--default-config",
            "whole",
            *folders,
            *own,
        ],
        tmp_path / "plugin.log",
    )
    health.start()
    plugin.start()
    try:
        inject = [*agent, "inject", *cards, "--card", "1"]
        until("it says that all are well", lambda: _healthy(plane) == "True", 60, 0.2)
        subprocess.run([*inject, "--xid", "95", "--recovery", "gpu-reset"], check=True, capture_output=True)
        until("it says which GPU is not", lambda: _healthy(plane) == "False", 30, 0.2)
        keys = [one["key"] for one in plane.api().get(path)["spec"].get("taints", ())]
        assert "tonnage.dev/gpu-unhealthy" in keys
        subprocess.run([*inject, "--reset"], check=True, capture_output=True)
        until("it is well again", lambda: _healthy(plane) == "True", 60, 0.2)
        until("the device plugin has its configuration", (tmp_path / "cdi").exists, 60, 0.2)
    finally:
        health.stop()
        plugin.stop()
    user = f"system:serviceaccount:{NAMESPACE}:{NAME}"
    mine = [one for one in plane.audit() if one["user"]["username"] == user]
    assert {one["verb"] for one in mine} >= {"get", "patch"}
    assert [one["requestURI"] for one in mine if one.get("responseStatus", {}).get("code", 200) in (401, 403)] == []


def _healthy(plane: ControlPlane) -> str:
    return str(condition(plane.api().get(f"/api/v1/nodes/{NODE}"), "GPUHealthy").get("status", ""))
