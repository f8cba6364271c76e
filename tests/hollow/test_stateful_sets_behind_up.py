"""StatefulSets behind `tonnage up`: the pods, claims, events and status that kubectl shows; and what admission says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from health.broken_sets import broken
from health.real_cluster import recorded
from hollow.test_up_of_sets import behind_up, warnings
from hollow.up_in_step import UpInStep
from simulation.test_sim_dumps import Json, node
from simulation.test_stateful_sets import claim_template, stateful_set
from tonnage.kube.resources import REPLICA_SETS, STATEFUL_SETS, VOLUME_CLAIMS
from tonnage.kube.transport import ApiError
from tonnage.simulation import run, scenario


@contextmanager
def up_of(folder: Path, *objects: Json) -> Iterator[UpInStep]:
    (folder / "all.yaml").write_text(yaml.safe_dump_all(objects))
    loaded = scenario.load(folder)
    with UpInStep(run.set_up(loaded, loaded.default_policy)) as up:
        yield up


def names(up: UpInStep) -> list[str]:
    return sorted(pod["metadata"]["name"] for pod in up.list_pods())


def status(up: UpInStep) -> Json:
    found: Json = up.client.get(STATEFUL_SETS, "model", "shop")["status"]
    return found


def test_pods_come_in_order_with_claims_of_their_own(tmp_path: Path) -> None:
    with up_of(tmp_path, stateful_set(replicas=2, volumeClaimTemplates=[claim_template()])) as up:
        assert names(up) == ["model-0"]
        assert status(up)["replicas"] == 1 and not status(up).get("readyReplicas")
        up.run_for(1200)
        assert names(up) == ["model-0", "model-1"]
        assert (status(up)["readyReplicas"], status(up)["updatedReplicas"]) == (2, 2)
        claims = {one["metadata"]["name"]: one["status"]["phase"] for one in up.client.list(VOLUME_CLAIMS)}
        assert claims == {"data-model-0": "Bound", "data-model-1": "Bound"}
        first = next(pod for pod in up.list_pods() if pod["metadata"]["name"] == "model-0")
        assert first["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] == "model-0"
        assert (first["spec"]["hostname"], first["spec"]["subdomain"]) == ("model-0", "model")
        told = [event["message"] for event in up.events("StatefulSet", "model")]
        assert "create Pod model-1 in StatefulSet model successful" in told
        assert "create Claim data-model-0 Pod model-0 in StatefulSet model success" in told


def test_it_scales_from_its_end_and_keeps_its_claims(tmp_path: Path) -> None:
    parallel = stateful_set(replicas=3, podManagementPolicy="Parallel", volumeClaimTemplates=[claim_template()])
    with up_of(tmp_path, node("a"), parallel) as up:
        assert names(up) == ["model-0", "model-1", "model-2"]
        up.client.patch(STATEFUL_SETS, "model", {"spec": {"replicas": 1}}, "shop")
        up.run_for(120)
        assert names(up) == ["model-0"]
        assert len(up.client.list(VOLUME_CLAIMS)) == 3


def test_a_new_template_replaces_the_last_pods_first_down_to_its_partition(tmp_path: Path) -> None:
    with up_of(tmp_path, node("a"), stateful_set(replicas=3)) as up:
        up.run_for(60)
        update = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
        container = {"name": "main", "image": "nginx:1.30"}
        change = {"updateStrategy": update, "template": {"spec": {"containers": [container]}}}
        up.client.patch(STATEFUL_SETS, "model", {"spec": change}, "shop")
        up.run_for(600)
        images = {pod["metadata"]["name"]: pod["spec"]["containers"][0]["image"] for pod in up.list_pods()}
        assert images == {"model-0": "nginx:1.29", "model-1": "nginx:1.30", "model-2": "nginx:1.30"}
        assert status(up)["currentRevision"] != status(up)["updateRevision"]


def test_what_it_may_not_change_is_refused(tmp_path: Path) -> None:
    with up_of(tmp_path, node("a"), stateful_set()) as up, pytest.raises(ApiError) as refused:
        up.client.patch(STATEFUL_SETS, "model", {"spec": {"serviceName": "other"}}, "shop")
    assert "updates to statefulset spec for fields other than 'replicas', 'ordinals'" in str(refused.value)


def test_a_pod_that_is_refused_is_an_event_of_its_set(tmp_path: Path) -> None:
    with up_of(tmp_path, node("a"), stateful_set(template={"serviceAccountName": "nobody"})) as up:
        up.run_for(60)
        (told,) = {message for reason, message in warnings(up, "StatefulSet", "model") if reason == "FailedCreate"}
    assert told == (
        'create Pod model-0 in StatefulSet model failed error: pods "model-0" is forbidden: '
        'error looking up service account shop/nobody: serviceaccount "nobody" not found'
    )


@pytest.mark.parametrize(
    "name", ["the namespace allows no host network", "a restricted namespace and a container as usual"]
)
def test_pod_security_says_what_a_real_cluster_says(name: str, tmp_path: Path) -> None:
    one = next(one for one in broken() if one.name == name)
    with behind_up(one, tmp_path / "set") as up:
        up.run_for(60)
        (owner,) = up.client.list(REPLICA_SETS)
        said = {text for why, text in warnings(up, "ReplicaSet", owner["metadata"]["name"]) if why == "FailedCreate"}
    real = " ".join(recorded()[name]["said"].split())
    assert {re.sub('"model-[^"]*"', '"model"', text) for text in said} == {re.sub('"model-[^"]*"', '"model"', real)}


def test_a_claim_on_a_volume_of_another_says_so(tmp_path: Path) -> None:
    one = next(one for one in broken() if one.name == "the only volume is reserved for another claim")
    with behind_up(one, tmp_path / "set") as up:
        up.run_for(60)
        (claim,) = up.client.list(VOLUME_CLAIMS)
        assert claim["status"]["phase"] == "Pending"
        assert warnings(up, "PersistentVolumeClaim", "models") == [
            ("FailedBinding", 'volume "nfs" already bound to a different claim.')
        ]


def test_a_pod_of_a_node_that_is_not_there_waits_and_is_removed(tmp_path: Path) -> None:
    one = next(one for one in broken() if one.name == "name of a node that is not there")
    with behind_up(one, tmp_path / "set") as up:
        (pod,) = up.list_pods()
        assert (pod["spec"]["nodeName"], pod["status"]["phase"]) == ("gpu-2", "Pending")
        up.run_for(60)
        assert up.list_pods() == []
