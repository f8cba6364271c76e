"""Pods that admission refuses, claims, ports, gates and schedulers in the simulated cluster."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

import yaml_text
from health.broken_sets import HERE, PROFILE
from tonnage.machines import loading
from tonnage.simulation import run, scenario
from tonnage.simulation.driver import LoopDriver
from tonnage.simulation.run import SetUp

MODEL, LATER = "inference/model", {"nvidia.com/gpu": "1", "memory": "48Gi"}


def made(tmp_path: Path, *more: dict[str, Any], minutes: int = 10, nodes: int = 1, **edits: Any) -> SetUp:
    """The serving base with further objects, and changes of the pod's spec by name (``replicas`` of the Deployment)."""
    objects = yaml_text.load_all((HERE / "bases/serving.yaml").read_text())
    entry = yaml_text.load((HERE / "bases/serving-scenario.yaml").read_text())
    deployment = next(one for one in objects if one["kind"] == "Deployment")
    deployment["spec"]["replicas"] = edits.pop("replicas", 1)
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    container.update(edits.pop("container", {}))
    deployment["spec"]["template"]["spec"].update(edits)
    entry["duration"] = f"{minutes}m"
    entry["fleet"]["nodes"][0]["count"] = nodes
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests/objects.yaml").write_text(yaml_text.dump_all([*objects, *copy.deepcopy(more)]))
    (tmp_path / "scenario.yaml").write_text(yaml_text.dump(entry))
    (tmp_path / "profile.yaml").write_text(PROFILE.read_text())
    return run.set_up(scenario.load(tmp_path), "as-written", run.RunOptions(check=True))


def play(one: SetUp) -> LoopDriver:
    machine = run.play(one)
    assert machine.violations == []
    return machine


def events(one: SetUp, reason: str) -> dict[str, int]:
    """How often each message of this reason was said."""
    return {e.message: e.count for e in one.cluster.events.rows.values() if e.reason == reason}


def of(kind: str, name: str, api_version: str = "v1", **more: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": "inference"}, **more}


CLAIM = of(
    "PersistentVolumeClaim",
    "cache",
    spec={
        "storageClassName": "disk",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    },
)
VOLUMES = [{"name": "c", "persistentVolumeClaim": {"claimName": "cache"}}]
MOUNTED = {"volumeMounts": [{"name": "c", "mountPath": "/root/.cache/huggingface"}]}


def disk(**parameters: str) -> dict[str, Any]:
    written = of("StorageClass", "disk", "storage.k8s.io/v1", provisioner="ebs.csi.aws.com", parameters=parameters)
    written["volumeBindingMode"] = "WaitForFirstConsumer"
    return written


def test_a_refused_pod_is_not_made_and_tried_again_ever_less_often(tmp_path: Path) -> None:
    one = made(tmp_path, serviceAccountName="sa")
    play(one)
    assert one.cluster.pods == {}
    assert one.cluster.workloads[MODEL].max_ready == 0
    ((said, count),) = events(one, "FailedCreate").items()
    assert said == (
        'Error creating: pods "model-" is forbidden: error looking up service account inference/sa: serviceaccount "sa" '
        "not found"
    )
    assert 10 < count < 25


def test_a_quota_lets_in_some_of_the_replicas(tmp_path: Path) -> None:
    quota = of("ResourceQuota", "gpus", spec={"hard": {"requests.nvidia.com/gpu": "2"}})
    one = made(tmp_path, quota, replicas=4)
    play(one)
    assert len(one.cluster.pods) == 2
    assert one.cluster.workloads[MODEL].max_ready == 2
    (said,) = events(one, "FailedCreate")
    assert "exceeded quota: gpus, requested: requests.nvidia.com/gpu=1, used: requests.nvidia.com/gpu=2" in said


def test_a_limit_range_gives_pods_what_they_do_not_ask_for(tmp_path: Path) -> None:
    defaults = of("LimitRange", "d", spec={"limits": [{"type": "Container", "default": {"cpu": "40"}}]})
    container = {"resources": {"limits": LATER}}
    one = made(tmp_path, defaults, replicas=2, container=container)
    play(one)
    (waits,) = [pod for pod in one.cluster.pods.values() if pod.bound_ns is None]
    assert waits.template.spec.containers[0].resources.requests["cpu"] == "40"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"schedulingGates": [{"name": "example.com/wait"}]}, set()),
        ({"schedulerName": "nobody"}, set()),
        ({"volumes": VOLUMES}, {'0/1 nodes are available: persistentvolumeclaim "cache" not found'}),
        (
            {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]},
            {'0/1 nodes are available: resourceclaim.resource.k8s.io "gpu" not found'},
        ),
    ],
    ids=["gate", "scheduler", "claim", "device-claim"],
)
def test_pods_that_no_scheduler_places_stay_pending(tmp_path: Path, spec: dict[str, Any], said: set[str]) -> None:
    one = made(tmp_path, **spec)
    play(one)
    (pod,) = one.cluster.pods.values()
    assert pod.bound_ns is None
    assert set(events(one, "FailedScheduling")) == said


def test_the_pods_of_a_claim_stand_in_the_zone_in_which_it_was_bound(tmp_path: Path) -> None:
    one = made(tmp_path, CLAIM, disk(), replicas=2, volumes=VOLUMES)
    play(one)
    volume = one.cluster.declared.volumes.volumes["pvc-inference-cache"]
    assert volume.spec.claim_ref is not None and volume.spec.claim_ref.name == "cache"
    assert volume.spec.node_affinity is not None and volume.spec.node_affinity.required is not None
    (term,) = volume.spec.node_affinity.required.node_selector_terms
    assert term.match_expressions[0].values == ["us-east-1a"]
    assert one.cluster.workloads[MODEL].max_ready == 2


def test_one_pod_a_node_has_a_host_port(tmp_path: Path) -> None:
    ports = {"ports": [{"name": "http", "containerPort": 8000, "hostPort": 8000}]}
    one = made(tmp_path, replicas=3, nodes=2, container=ports)
    play(one)
    assert sorted(pod.node for pod in one.cluster.pods.values()) == ["", "base-01", "base-02"]


@pytest.mark.parametrize(
    ("parameters", "bytes_per_s"),
    [({}, 125 << 20), ({"type": "gp3", "throughput": "500"}, 500 << 20), ({"type": "io2"}, 20_000 * 125_000)],
    ids=["gp3", "gp3 with throughput", "io2, of which the instance takes 20 Gbit/s"],
)
def test_weights_on_a_claim_are_read_as_fast_as_its_storage_and_the_instance_allow(
    tmp_path: Path, parameters: dict[str, str], bytes_per_s: int
) -> None:
    one = made(tmp_path, CLAIM, disk(**parameters), volumes=VOLUMES, container=MOUNTED)
    server = one.cluster.workloads[MODEL].server
    assert server is not None
    node = one.cluster.nodes["base-01"]
    assert loading.read_bytes_per_s(node, server) == bytes_per_s
    server.weights = None
    assert loading.read_bytes_per_s(node, server) == node.disk_bytes_per_s


def test_a_claim_that_is_mounted_elsewhere_says_nothing_about_weights(tmp_path: Path) -> None:
    elsewhere = {"volumeMounts": [{"name": "c", "mountPath": "/data"}]}
    one = made(tmp_path, CLAIM, disk(), volumes=VOLUMES, container=elsewhere)
    server = one.cluster.workloads[MODEL].server
    assert server is not None and server.weights is None
