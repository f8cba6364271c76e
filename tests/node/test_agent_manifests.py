"""The agent's DaemonSets: the parts that nodes need, what each may do, and what is left to the GPU operator."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from tonnage.cli.agent import agent
from tonnage.cli.render import render
from tonnage.errors import InputError
from tonnage.facts import operands as facts
from tonnage.node.agent_manifests import (
    CONFIG_FOLDER,
    expressions,
    manifests,
    node_sets,
    operator_values,
    rules_of,
    sidecar,
)
from tonnage.objects.gpu_operator import ClusterPolicySpec, ConfigMapChoice, DcgmExporterSpec

RESOURCES = "resource.k8s.io"
AUTO = {"eks.amazonaws.com/compute-type": "auto", "karpenter.sh/nodepool": "a"}
KARPENTER = {"karpenter.sh/nodepool": "gpu"}
NODE_GROUP = {"eks.amazonaws.com/nodegroup": "gpu"}
HYBRID = {"eks.amazonaws.com/compute-type": "hybrid"}
NO_PLUGIN = {"nvidia.com/gpu.deploy.device-plugin": "false"}
NODES = {
    "auto": AUTO,
    "karpenter-1": KARPENTER,
    "karpenter-2": KARPENTER,
    "karpenter-3": KARPENTER | NO_PLUGIN,
    "group": NODE_GROUP,
    "hybrid": HYBRID,
    "bare": {},
}


def _policy(**fields: bool) -> ClusterPolicySpec:
    return msgspec.convert({name: {"enabled": on} for name, on in fields.items()}, ClusterPolicySpec)


def _of(kind: str, objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one for one in objects if one["kind"] == kind}


def _containers(daemon_set: dict[str, Any]) -> list[str]:
    return [one["name"] for one in daemon_set["spec"]["template"]["spec"]["containers"]]


def _matches(expression: dict[str, Any], labels: dict[str, str]) -> bool:
    value = labels.get(expression["key"])
    match expression["operator"]:
        case "In":
            return value in expression["values"]
        case "NotIn":
            return value not in expression["values"]
        case "Exists":
            return value is not None
        case _:
            return value is None


def test_each_set_of_nodes_has_a_daemon_set_with_exactly_its_parts() -> None:
    made = manifests(node_sets(None, NODES), namespace="n", image="i")
    found = {name: _containers(one) for name, one in _of("DaemonSet", made).items()}
    whole = ["labels", "device-plugin", "metrics", "health"]
    assert found == {
        "tonnage-agent": whole,
        "tonnage-agent-eks-auto-mode": ["labels", "metrics", "health"],
        "tonnage-agent-hybrid": whole,
        "tonnage-agent-karpenter": whole,
        "tonnage-agent-karpenter-v2": ["labels", "metrics", "health"],
        "tonnage-agent-node-group": whole,
    }


def test_every_node_is_selected_by_its_own_set_alone() -> None:
    sets = node_sets(None, NODES)
    for name, labels in NODES.items():
        chosen = [one for one in sets if all(_matches(e, labels) for e in expressions(one))]
        assert [name in one.nodes for one in chosen] == [True], name


def test_the_device_plugin_follows_the_label_where_the_clusterpolicy_names_configurations() -> None:
    config = ConfigMapChoice(name="plugin-configs", default="shared")
    made = manifests(node_sets(None, NODES), namespace="n", image="i", config=config)
    for name, daemon_set in _of("DaemonSet", made).items():
        spec = daemon_set["spec"]["template"]["spec"]
        plugins = [one for one in spec["containers"] if one["name"] == "device-plugin"]
        mounted = [one for one in spec["volumes"] if "configMap" in one]
        role = _of("ClusterRole", made)[name]
        (nodes,) = (set(rule["verbs"]) for rule in role["rules"] if rule["resources"] == ["nodes"])
        if not plugins:
            assert not mounted
            assert not nodes & {"list", "watch"}
            continue
        assert [one["configMap"]["name"] for one in mounted] == ["plugin-configs"]
        assert nodes >= {"list", "watch"}, "it hears of its node"
        said = " ".join(plugins[0]["args"])
        assert f"--config {CONFIG_FOLDER} --default-config shared" in said
        assert CONFIG_FOLDER in [one["mountPath"] for one in plugins[0]["volumeMounts"]]


def test_the_exporter_has_labels_of_pods_and_jobs_where_the_clusterpolicy_has_them() -> None:
    spec = {"enablePodLabels": True, "podLabelAllowlistRegex": ["^app$", "^team/"], "hpcJobMapping": {"enabled": True}}
    policy = msgspec.convert({"dcgmExporter": spec}, ClusterPolicySpec)
    made = manifests(node_sets(policy, {"bare": {}}), namespace="n", image="i", exporter=policy.dcgm_exporter)
    pod = _of("DaemonSet", made)["tonnage-agent"]["spec"]["template"]["spec"]
    (one,) = (each for each in pod["containers"] if each["name"] == "metrics")
    said = " ".join(one["args"])
    assert "--pod-label ^app$ --pod-label ^team/" in said
    assert "--hpc-jobs /var/lib/dcgm-exporter/job-mapping" in said
    jobs = next(each for each in one["volumeMounts"] if each["mountPath"] == "/var/lib/dcgm-exporter/job-mapping")
    assert jobs["readOnly"] is True
    assert {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]} in _of("ClusterRole", made)["tonnage-agent"][
        "rules"
    ]
    plain = manifests(node_sets(None, {"bare": {}}), namespace="n", image="i")
    assert "pods" not in [
        name for rule in _of("ClusterRole", plain)["tonnage-agent"]["rules"] for name in rule["resources"]
    ]


def test_an_expression_that_the_exporter_would_refuse_is_refused_before_it_is_rendered() -> None:
    exporter = DcgmExporterSpec(enable_pod_labels=True, pod_label_allowlist_regex=["^app$", "("])
    with pytest.raises(InputError, match=r"podLabelAllowlistRegex: '\(' is no regular expression"):
        manifests(node_sets(None, NODES), namespace="n", image="i", exporter=exporter)


def test_with_mps_the_device_plugin_has_the_folder_of_daemons_their_memory_and_the_hosts_process_ids() -> None:
    for mps in (True, False):
        made = manifests(node_sets(None, {"bare": {}}), namespace="n", image="i", mps=mps)
        pod = _of("DaemonSet", made)["tonnage-agent"]["spec"]["template"]["spec"]
        mounted = {
            one["name"]: {each["mountPath"] for each in one["volumeMounts"]} & {"/run/nvidia/mps", "/dev/shm"}
            for one in pod["containers"]
        }
        own = {"/run/nvidia/mps", "/dev/shm"} if mps else set()
        assert mounted == {"labels": set(), "device-plugin": own, "metrics": set(), "health": set()}
        assert pod.get("hostPID", False) is mps


def test_as_a_sidecar_the_exporter_has_no_folder_of_the_host_and_no_part_in_the_api() -> None:
    spec = sidecar("i")["spec"]["template"]["spec"]
    assert list(spec) == ["initContainers"], "no volumes, no account"
    (one,) = spec["initContainers"]
    assert (one["restartPolicy"], one["args"]) == ("Always", ["agent", "metrics", "--node", "$(NODE_NAME)"])
    assert "volumeMounts" not in one
    assert one["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["SYS_ADMIN"]}


@pytest.mark.parametrize("part", sorted(facts.parts()))
def test_a_part_has_its_own_capabilities_folders_and_permissions_and_no_others(part: str) -> None:
    one = facts.parts()[part]
    label = {
        "labels": "gpu-feature-discovery",
        "device-plugin": "device-plugin",
        "dra": "device-plugin",
        "metrics": "dcgm-exporter",
    }
    keep = {facts.operands()[name].label for key, name in label.items() if key == part}
    off = {operand.label: "false" for operand in facts.operands().values() if operand.label not in keep}
    made = manifests(node_sets(None, {"n": off}), namespace="n", image="i", dra=part == "dra")
    if part == "health":
        assert made == [], "it runs beside another part"
        return
    (daemon_set,) = _of("DaemonSet", made).values()
    assert _containers(daemon_set) == [part, "health"]
    (container,) = (c for c in daemon_set["spec"]["template"]["spec"]["containers"] if c["name"] == part)
    assert container["securityContext"]["capabilities"].get("add", []) == list(one.capabilities)
    assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
    assert not container["securityContext"].get("privileged", False)
    mounts = {mount["mountPath"]: mount.get("readOnly", False) for mount in container["volumeMounts"]}
    assert mounts == dict.fromkeys(one.read, True) | dict.fromkeys(one.write, False)
    volumes = {volume["name"] for volume in daemon_set["spec"]["template"]["spec"]["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
    assert container["args"][:2] == ["agent", part]


def test_permissions_of_each_part_are_these() -> None:
    found = {name: {(r, v) for r, verbs in one.rbac for v in verbs} for name, one in facts.parts().items()}
    health = {("nodes", "get"), ("nodes", "patch"), ("nodes/status", "patch"), ("pods/eviction", "create")}
    slices = {("resource.k8s.io/resourceslices", verb) for verb in ("list", "watch", "create", "update", "delete")}
    dra = {("nodes", "get"), ("resource.k8s.io/resourceclaims", "get"), *slices}
    assert found == {"labels": set(), "device-plugin": set(), "dra": dra, "metrics": set(), "health": health}
    assert {name: one.capabilities for name, one in facts.parts().items() if one.capabilities} == {
        "metrics": ("SYS_ADMIN",)
    }
    assert rules_of([facts.parts()["metrics"]]) == []


@pytest.mark.parametrize("part", sorted(facts.parts()))
def test_the_arguments_of_a_part_are_those_of_a_command(part: str) -> None:
    one = facts.parts()[part]
    assert one.arguments[0] == part
    command = agent.commands[part]
    context = command.make_context(part, [*one.arguments[1:], "--node", "n"], resilient_parsing=True)
    assert context.args == []


def test_the_operator_keeps_what_the_agent_has_not() -> None:
    assert operator_values(None, node_sets(None, {"k": KARPENTER})) == {
        name: {"enabled": False} for name in ("driver", "toolkit", "devicePlugin", "gfd", "dcgm", "dcgmExporter")
    }
    policy = _policy(driver=True, migManager=True, nodeStatusExporter=True)
    values = operator_values(policy, node_sets(policy, {"h": HYBRID, "k": KARPENTER}))
    assert values["driver"] == {"enabled": True}, "hybrid nodes need it; the label turns it off on others"
    assert values["migManager"] == values["nodeStatusExporter"] == {"enabled": True}
    assert values["devicePlugin"] == {"enabled": False}


# ---- the command ----

FILES = """
apiVersion: nvidia.com/v1
kind: ClusterPolicy
metadata: {name: cluster-policy}
spec: {driver: {enabled: true}, toolkit: {enabled: false}, dcgmExporter: {enabled: false}}
---
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {nvidia.com/gpu.present: "true", karpenter.sh/nodepool: gpu}}
---
apiVersion: v1
kind: Node
metadata: {name: cpu, labels: {karpenter.sh/nodepool: cpu}}
"""


def _run(*arguments: str) -> tuple[str, str]:
    done = CliRunner().invoke(render, ["agent", *arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.stderr
    return done.stdout, done.stderr


def test_a_dump_of_a_cluster_gives_its_daemon_sets_values_and_reasons(tmp_path: Any) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(FILES)
    out, err = _run(str(file), "--namespace", "gpus")
    assert "kind: DaemonSet" in out
    assert "&id" not in out, "no anchors"
    assert "name: metrics" not in out, "the policy has the exporter off"
    assert "warning: driver.enabled is true, and on nodes of Karpenter driver must not run" in err
    values, _ = _run(str(file), "--values")
    assert "devicePlugin:\n  enabled: false" in values
    assert "dcgmExporter:\n  enabled: false" in values
    said, _ = _run(str(file), "--explain")
    assert "n1  device-plugin: on, tonnage agent device-plugin: " in said
    assert "n1  dcgm-exporter: off: the ClusterPolicy has dcgmExporter.enabled: false" in said
    assert "cpu " not in said


def test_what_cannot_be_answered_is_refused_with_what_to_give(tmp_path: Any) -> None:
    with pytest.raises(InputError, match="expected one of eks-auto-mode, karpenter"):
        _run("--environment", "mars")
    file = tmp_path / "none.yaml"
    file.write_text(FILES.replace('nvidia.com/gpu.present: "true", ', ""))
    with pytest.raises(InputError, match="no Node with the label"):
        _run(str(file))


def test_with_dra_claims_are_served_in_place_of_the_device_plugin() -> None:
    sets = node_sets(None, {"bare": {}})
    made = manifests(sets, namespace="gpu", image="tonnage:1", dra=True)
    assert sorted(_of("DeviceClass", made)) == ["gpu.nvidia.com", "mig.nvidia.com"]
    [daemon_set] = _of("DaemonSet", made).values()
    assert _containers(daemon_set) == ["labels", "dra", "metrics", "health"]
    [role] = _of("ClusterRole", made).values()
    allowed = {(rule["apiGroups"][0], rule["resources"][0]): rule["verbs"] for rule in role["rules"]}
    assert allowed[RESOURCES, "resourceslices"] == ["create", "delete", "list", "update", "watch"]
    assert allowed[RESOURCES, "resourceclaims"] == ["get"]
    assert allowed["", "nodes"] == ["get", "patch"]
    assert operator_values(None, sets)["devicePlugin"] == {"enabled": False}
