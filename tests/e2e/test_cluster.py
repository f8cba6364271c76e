"""The cluster itself: what the other end-to-end tests stand on."""

from __future__ import annotations

import json

import pytest
from e2e_builders import await_running, condition, deployment, node, pod_spec, pods_of

from e2e import simulators
from e2e.api import ApiError
from e2e.control_plane import API_SERVER, ControlPlane
from e2e.processes import until
from e2e.real_nodes import RealNodes
from e2e.recipe import RECIPE

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
PODS = "/api/v1/namespaces/default/pods"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def test_the_control_plane_is_the_kubernetes_that_was_built(plane: ControlPlane) -> None:
    said = json.loads(plane.kubectl("version", "-o", "json").stdout)
    wanted = RECIPE[0].version("k8s.io/kubernetes")
    assert said["serverVersion"]["gitVersion"] == said["clientVersion"]["gitVersion"] == wanted


def test_a_deployment_with_gpus_runs_on_real_nodes_and_each_container_has_its_own(real_nodes: RealNodes) -> None:
    plane, api = real_nodes.plane, real_nodes.plane.api()
    api.create(DEPLOYMENTS, deployment("gpus", 5, pod_spec(gpus=2)))
    running = await_running(api, "gpus", 4)
    held: list[tuple[str, str]] = []
    for pod in running:
        log = plane.kubectl("logs", pod["metadata"]["name"]).stdout
        (given,) = (word for word in log.split() if word.startswith("FAKE_VISIBLE_DEVICES="))
        held += [(pod["spec"]["nodeName"], device) for device in given.partition("=")[2].split(",")]
    assert sorted(held) == [(name, f"fake-{i}") for name in real_nodes.names for i in range(4)]
    (waiting,) = (pod for pod in pods_of(api, "gpus") if not pod["spec"].get("nodeName"))
    until("refusal", lambda: condition(api.get(f"{PODS}/{waiting['metadata']['name']}"), "PodScheduled"))
    refused = condition(api.get(f"{PODS}/{waiting['metadata']['name']}"), "PodScheduled")
    assert "2 Insufficient nvidia.com/gpu" in refused["message"]


def test_a_device_that_turns_sick_is_no_longer_allocatable(real_nodes: RealNodes) -> None:
    def gpus() -> str:
        found = real_nodes.plane.api().get("/api/v1/nodes/real-1")
        return str(found["status"]["allocatable"]["nvidia.com/gpu"])

    real_nodes.sick("real-1").write_text("fake-3\n")
    until("three GPUs left", lambda: gpus() == "3", 30)
    real_nodes.sick("real-1").write_text("")
    until("four GPUs again", lambda: gpus() == "4", 30)


def test_a_killed_api_server_comes_back_with_what_it_had(plane: ControlPlane) -> None:
    plane.api().create(CONFIG_MAPS, {"metadata": {"name": "kept"}, "data": {"a": "b"}})
    plane.kill(API_SERVER)
    with pytest.raises(OSError):
        plane.api().get(CONFIG_MAPS)
    plane.programs[API_SERVER].start()
    assert plane.api().get(f"{CONFIG_MAPS}/kept")["data"] == {"a": "b"}


def test_a_watch_from_before_a_compaction_is_told_410_after_a_restart(plane: ControlPlane) -> None:
    old = plane.api().get(PODS)["metadata"]["resourceVersion"]
    plane.api().create(CONFIG_MAPS, {"metadata": {"name": "later"}})
    plane.compact()
    plane.restart(API_SERVER)
    line = json.loads(next(plane.api().watch(PODS, resourceVersion=old)))
    assert (line["type"], line["object"]["code"], line["object"]["reason"]) == ("ERROR", 410, "Expired")


def test_a_user_may_do_what_was_granted_and_the_audit_log_has_every_request(start_plane) -> None:
    plane = start_plane(controllers=(), scheduler=False, users={"reader": ["readers"]}, audit=True)
    api = plane.api("reader")
    with pytest.raises(ApiError, match="403 Forbidden"):
        api.get("/api/v1/pods")
    plane.grant("reader", [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}])
    until("grant", lambda: api.raw("GET", "/api/v1/pods")[0] == 200)
    with pytest.raises(ApiError, match="403 Forbidden"):
        api.delete(f"{PODS}/any")
    seen = [(e["verb"], e["responseStatus"]["code"]) for e in plane.audit() if e["user"]["username"] == "reader"]
    assert seen[0] == ("list", 403)
    assert seen[-2:] == [("list", 200), ("delete", 403)]


def test_kwok_plays_nodes_and_karpenter_buys_them_for_pods_that_fit_nowhere(start_plane) -> None:
    plane = start_plane()
    api = plane.api()
    programs = [simulators.kwok(plane), simulators.karpenter(plane)]
    try:
        for program in programs:
            program.start()
        api.create("/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses", KWOK_CLASS)
        api.create("/apis/karpenter.sh/v1/nodepools", NODE_POOL)
        spec = pod_spec(nodeSelector={"karpenter.sh/nodepool": "default"})
        spec["containers"][0]["resources"] = {"requests": {"cpu": "3"}}
        api.create(DEPLOYMENTS, deployment("bought", 1, spec))
        (pod,) = await_running(api, "bought", 1)
        claims = "/apis/karpenter.sh/v1/nodeclaims"
        until("registered", lambda: all(c["status"].get("nodeName") for c in api.items(claims)), 30)
        (claim,) = api.items(claims)
        assert claim["status"]["nodeName"] == pod["spec"]["nodeName"]
        assert api.get(f"/api/v1/nodes/{pod['spec']['nodeName']}")["metadata"]["annotations"]["kwok.x-k8s.io/node"]
    finally:
        for program in programs:
            program.stop()


def test_a_node_without_a_kubelet_takes_pods_once_the_lifecycle_controller_saw_it_ready(plane: ControlPlane) -> None:
    api = plane.api()
    api.create("/api/v1/nodes", node("fake", {"cpu": "4", "memory": "8Gi", "pods": "10"}))
    api.create(PODS, {"metadata": {"name": "there"}, "spec": pod_spec()})
    until("bound", lambda: api.get(f"{PODS}/there")["spec"].get("nodeName") == "fake", 30)


KWOK_CLASS = {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "default"}}
NODE_POOL = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "default"},
    "spec": {
        "template": {
            "spec": {
                "requirements": [
                    {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
                    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                ],
                "nodeClassRef": {"name": "default", "kind": "KWOKNodeClass", "group": "karpenter.kwok.sh"},
                "expireAfter": "Never",
            }
        },
        "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "30s"},
    },
}
