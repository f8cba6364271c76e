"""StatefulSets in the simulated cluster: numbered pods with claims of their own, which come in order or at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from simulation.sim_builders import run_until
from simulation.test_sim_dumps import Json, node, pod, stopped
from tonnage.machines import pods
from tonnage.machines.cluster import SimulatedCluster
from tonnage.simulation import run, scenario
from tonnage.simulation.run import SetUp
from tonnage.workloads import stateful


def stateful_set(name: str = "model", *, template: Json | None = None, **spec: Any) -> Json:
    labels = {"app": name}
    made = {"containers": [{"name": "main", "image": "nginx:1.29"}], **(template or {})}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {
            "serviceName": name,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": made},
            **spec,
        },
    }


def claim_template(name: str = "data", **spec: Any) -> Json:
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"metadata": {"name": name}, "spec": {**wanted, **spec}}


def set_up(folder: Path, *objects: Json) -> SetUp:
    (folder / "all.yaml").write_text(yaml.safe_dump_all(objects))
    return run.set_up(scenario.load(folder), "as-written")


def played(folder: Path, *objects: Json) -> SetUp:
    made = set_up(folder, *objects)
    run.play(made)
    return made


TAINT = {"key": "system", "effect": "NoSchedule"}


def created(cluster: SimulatedCluster) -> dict[str, int]:
    """When each pod was made, in ns."""
    return {pod.name: pod.created_ns for pod in cluster.pods.values()}


def test_pods_have_numbers_labels_and_claims_of_their_own(tmp_path: Path) -> None:
    made = played(tmp_path, node("a"), stateful_set(replicas=2, volumeClaimTemplates=[claim_template()]))
    found = {pod.name: pod for pod in made.cluster.pods.values()}
    assert sorted(found) == ["model-0", "model-1"]
    first = found["model-0"].template
    assert first.metadata.labels == {"app": "model", stateful.POD_NAME: "model-0", stateful.POD_INDEX: "0"}
    assert first.spec.volumes == [{"name": "data", "persistentVolumeClaim": {"claimName": "data-model-0"}}]
    assert {name for _, name in made.cluster.declared.volumes.claims} == {"data-model-0", "data-model-1"}
    assert all(claim.status.phase == "Bound" for claim in made.cluster.declared.volumes.claims.values())


def test_numbers_begin_where_ordinals_say(tmp_path: Path) -> None:
    made = played(tmp_path, node("a"), stateful_set(replicas=2, ordinals={"start": 5}))
    assert sorted(created(made.cluster)) == ["model-5", "model-6"]


def test_in_order_a_pod_comes_when_the_one_before_is_ready_and_at_once_with_parallel(tmp_path: Path) -> None:
    """No node is there at first: they are launched, and images are pulled."""
    (tmp_path / "a").mkdir()
    ordered = created(played(tmp_path / "a", stateful_set(replicas=3)).cluster)
    assert ordered["model-0"] == 0 < ordered["model-1"] < ordered["model-2"]
    (tmp_path / "b").mkdir()
    parallel = stateful_set(replicas=3, podManagementPolicy="Parallel")
    assert set(created(played(tmp_path / "b", parallel).cluster).values()) == {0}


def test_the_second_pod_waits_for_the_first_and_both_are_told_of(tmp_path: Path) -> None:
    made = set_up(tmp_path, node("a"), stateful_set(replicas=2, template={"nodeSelector": {"no": "such"}}))
    result = made.result(run.play(made))
    (told,) = stopped(result)
    assert (told.object.kind, told.rule, told.pods, told.wanted) == ("StatefulSet", "pods-fit-no-node", 2, 2)
    assert sorted(created(made.cluster)) == ["model-0"]
    assert not isinstance(result.workloads, msgspec.UnsetType)
    assert [(one.name, one.max_ready_replicas) for one in result.workloads] == [("shop/statefulset/model", 0)]


def test_the_last_pods_go_first_one_after_the_other(tmp_path: Path) -> None:
    made = set_up(tmp_path, node("a"), stateful_set(replicas=4))
    cluster = made.cluster
    run.play(made)
    workload = cluster.workloads["shop/statefulset/model"]
    workload.replicas = 2
    pods.reconcile(cluster, workload)
    assert {pod.name for pod in workload.pods.values() if pod.terminating} == {"model-3"}
    run_until(cluster, cluster.now_ns / 10**9 + 600)
    assert sorted(workload.pods) == ["model-0", "model-1"]


def test_a_pod_that_is_lost_comes_again_under_its_name(tmp_path: Path) -> None:
    made = set_up(tmp_path, node("a"), stateful_set(replicas=2))
    cluster = made.cluster
    run.play(made)
    before = cluster.pods["shop", "model-0"]
    pods.stop_pod(cluster, before)
    pods.replace(cluster, before, pods.Cause.EVICTION)
    run_until(cluster, cluster.now_ns / 10**9 + 600)
    after = cluster.pods["shop", "model-0"]
    assert (after is before, after.uid == before.uid, after.terminating) == (False, False, False)


def test_pods_of_a_dump_keep_their_places(tmp_path: Path) -> None:
    there = [pod(f"model-{n}", "b", 0, owner=("StatefulSet", "model")) for n in (0, 1)]
    made = played(tmp_path, node("a"), node("b"), stateful_set(replicas=2), *there)
    assert {pod.name: (pod.node, pod.created_ns) for pod in made.cluster.pods.values()} == {
        "model-0": ("b", 0),
        "model-1": ("b", 0),
    }


@pytest.mark.parametrize(
    ("volumes", "severity"), [((1, 2), None), ((1,), "warning"), ((), "error")], ids=["enough", "one", "none"]
)
def test_claims_of_a_template_get_volumes_that_are_there(
    volumes: tuple[int, ...], severity: str | None, tmp_path: Path
) -> None:
    there = [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"disk-{n}"},
            "spec": {
                "capacity": {"storage": "2Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "by-hand",
                "hostPath": {"path": "/d"},
            },
        }
        for n in volumes
    ]
    class_ = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "by-hand"},
        "provisioner": "kubernetes.io/no-provisioner",
    }
    claims = [claim_template(storageClassName="by-hand")]
    made = set_up(tmp_path, node("a"), class_, *there, stateful_set(replicas=2, volumeClaimTemplates=claims))
    found = [b for b in made.configuration.blockers if b.rule == "claim-never-bound"]
    assert [("warning" if b.some else "error") for b in found] == ([severity] if severity else [])


def test_a_bare_replica_set_is_run_and_one_of_a_deployment_is_not(tmp_path: Path) -> None:
    bare = stateful_set("bare", replicas=2) | {"kind": "ReplicaSet"}
    del bare["spec"]["serviceName"]
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x", "uid": "u", "controller": True}
    owned = {**bare, "metadata": {"name": "x-1", "namespace": "shop", "ownerReferences": [owner]}}
    made = played(tmp_path, node("a"), bare, owned)
    assert {pod.workload.key for pod in made.cluster.pods.values()} == {"shop/replicaset/bare"}


def ray_service(template: Json) -> Json:
    inside = {"spec": {"containers": [{"name": "c", "image": "rayproject/ray:2.46.0"}], **template}}
    config = {"headGroupSpec": {"template": inside}}
    meta = {"name": "model", "namespace": "shop"}
    return {"apiVersion": "ray.io/v1", "kind": "RayService", "metadata": meta, "spec": {"rayClusterConfig": config}}


@pytest.mark.parametrize("kind", ["StatefulSet", "ReplicaSet", "RayService"])
@pytest.mark.parametrize("selector", [{"pool": "gpu"}, {"pool": "gpus"}], ids=["well", "no such node"])
def test_pods_that_no_node_takes_are_told_of_whatever_makes_them(
    kind: str, selector: dict[str, str], tmp_path: Path
) -> None:
    template = {"nodeSelector": selector}
    made = ray_service(template) if kind == "RayService" else stateful_set(template=template) | {"kind": kind}
    there = node("a")
    there["metadata"]["labels"]["pool"] = "gpu"
    found = set_up(tmp_path, there, made)
    told = [(b.rule, b.object.kind, b.where.field.rpartition(".")[2]) for b in found.configuration.blockers]
    assert told == ([] if selector["pool"] == "gpu" else [("pods-fit-no-node", kind, "pool")])
    assert len(stopped(found.result(run.play(found)))) == len(told)


@pytest.mark.parametrize("replicas", [0, 1])
def test_a_set_without_pods_is_no_error_unless_an_autoscaler_makes_them(replicas: int, tmp_path: Path) -> None:
    one = stateful_set(replicas=0, template={"nodeSelector": {"no-such": "node"}})
    target = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "model"}
    metric = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "AverageValue", "averageValue": 1}}}
    scaler = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "model", "namespace": "shop"},
        "spec": {"scaleTargetRef": target, "maxReplicas": 2, "metrics": [metric]},
    }
    made = set_up(tmp_path, node("a"), one, *([scaler] if replicas else []))
    assert len([b for b in made.configuration.blockers if b.rule == "pods-fit-no-node"]) == replicas


@pytest.mark.parametrize(
    ("there", "parallel", "makes", "deletes"),
    [
        ({}, False, [0], []),
        ({0: False}, False, [], []),
        ({0: True}, False, [1], []),
        ({0: True, 2: True}, False, [1], []),
        ({1: True, 2: True}, False, [0], []),
        ({}, True, [0, 1, 2], []),
        ({0: True, 1: True, 2: True, 3: False, 4: True}, False, [], [4]),
        ({0: True, 1: False, 2: True, 3: True}, False, [], []),
        ({0: False, 1: True, 2: True, 3: True, 4: True}, True, [], [4, 3]),
    ],
)
def test_which_pods_are_made_and_deleted_next(
    there: dict[int, bool], parallel: bool, makes: list[int], deletes: list[int]
) -> None:
    assert stateful.to_make(range(3), there, parallel=parallel) == makes
    assert stateful.to_delete(range(3), there, parallel=parallel) == deletes


@pytest.mark.parametrize(
    ("gpus", "found"), [((4, 4), []), ((2, 4), [True]), ((2, 2), [False])], ids=["all", "some", "none"]
)
def test_nodes_without_room_for_a_daemon_set_are_told_of(
    gpus: tuple[int, int], found: list[bool], tmp_path: Path
) -> None:
    asks = {"containers": [{"name": "c", "image": "nginx:1.29", "resources": {"limits": {"nvidia.com/gpu": 3}}}]}
    one = stateful_set("agent", template=asks) | {"kind": "DaemonSet"}
    del one["spec"]["serviceName"]
    made = set_up(tmp_path, node("a", gpus[0]), node("b", gpus[1]), node("c", 0, taints=[TAINT]), one)
    told = [b for b in made.configuration.blockers if b.rule == "pods-fit-no-node"]
    assert [b.some for b in told] == found
    assert all(b.where.field.endswith("limits.nvidia.com/gpu") for b in told)
