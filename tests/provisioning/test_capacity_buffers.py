"""CapacityBuffers: for how many pods they keep room, and what they say where they keep none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tonnage.errors import InputError
from tonnage.objects import load
from tonnage.provisioning import headroom
from tonnage.simulation.extent import refuse_too_many_pods

POD = {"containers": [{"name": "main", "image": "server", "resources": {"requests": {"cpu": "2", "memory": "4Gi"}}}]}
TEMPLATE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "PodTemplate",
    "metadata": {"name": "chunk"},
    "template": {"metadata": {"labels": {"app": "a"}}, "spec": POD},
}


def deployment(replicas: int) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": POD}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}


def buffer(**spec: Any) -> dict[str, Any]:
    version = "autoscaling.x-k8s.io/v1beta1"
    return {"apiVersion": version, "kind": "CapacityBuffer", "metadata": {"name": "spare"}, "spec": spec}


def objects(folder: Path, *written: dict[str, Any]) -> tuple[Any, ...]:
    file = folder / "a.yaml"
    file.write_text(yaml.safe_dump_all(written))
    return load.read([file]).objects


OF_TEMPLATE = {"podTemplateRef": {"name": "chunk"}}
OF_WEB = {"scalableRef": {"apiGroup": "apps", "kind": "Deployment", "name": "web"}}


@pytest.mark.parametrize(
    ("spec", "replicas", "expected"),
    [
        (OF_TEMPLATE | {"replicas": 3}, 0, 3),
        (OF_TEMPLATE | {"replicas": 3, "limits": {"cpu": "4"}}, 0, 2),
        (OF_TEMPLATE | {"limits": {"cpu": "9", "memory": "12Gi"}}, 0, 3),
        (OF_TEMPLATE | {"limits": {"nvidia.com/gpu": "2"}, "replicas": 2}, 0, 2),
        (OF_TEMPLATE | {"limits": {"nvidia.com/gpu": "2"}}, 0, 0),
        (OF_WEB | {"percentage": 20}, 10, 2),
        (OF_WEB | {"percentage": 20}, 11, 3),
        (OF_WEB | {"percentage": 1}, 4, 1),
        (OF_WEB | {"percentage": 50}, 0, 0),
        (OF_WEB | {"percentage": 20, "replicas": 4}, 10, 4),
        (OF_WEB | {"percentage": 60, "replicas": 4}, 10, 6),
        (OF_WEB | {"percentage": 60, "limits": {"cpu": "5"}}, 10, 2),
    ],
)
def test_the_larger_of_replicas_and_percentage_as_far_as_the_limits_have_room(
    tmp_path: Path, spec: dict[str, Any], replicas: int, expected: int
) -> None:
    (found,) = headroom.read(objects(tmp_path, TEMPLATE, deployment(replicas), buffer(**spec)))
    assert found.count(found.replicas) == expected


def test_its_pods_have_names_of_their_own_and_ask_for_what_the_template_does(tmp_path: Path) -> None:
    buffers = headroom.read(objects(tmp_path, TEMPLATE, buffer(**OF_TEMPLATE, replicas=2)))
    made = headroom.virtual_pods(buffers, {}, 7)
    assert [str(pod.ref.name) for pod in made] == ["capacity-buffer-spare-1", "capacity-buffer-spare-2"]
    assert {pod.creation_ns for pod in made} == {7}
    assert made[0].shape.requests == {"pods": 1, "cpu": 2000, "memory": 4 << 30}
    assert made[0].labels == {
        "karpenter.sh/capacity-buffer-name": "spare",
        "karpenter.sh/capacity-buffer-namespace": "default",
    }, "no rule about pods of the app selects them"


def test_a_percentage_is_of_the_replicas_that_there_are_now(tmp_path: Path) -> None:
    buffers = headroom.read(objects(tmp_path, deployment(10), buffer(**OF_WEB, percentage=20)))
    assert len(headroom.virtual_pods(buffers, {"default/web": 50}, 0)) == 10
    assert len(headroom.virtual_pods(buffers, {}, 0)) == 2


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"podTemplateRef": {"name": "gone"}, "replicas": 1}, "PodTemplate gone of namespace default is not there"),
        ({"scalableRef": {"kind": "Deployment", "name": "gone"}, "replicas": 1}, "Deployment gone of namespace"),
        ({"scalableRef": {"kind": "Job", "name": "web"}, "replicas": 1}, "Job web of namespace default is not there"),
        ({"replicas": 1}, "neither podTemplateRef nor scalableRef is set"),
        (OF_WEB, "neither replicas, percentage nor limits say for how many pods"),
        (OF_TEMPLATE | {"replicas": 1, "provisioningStrategy": "buffer.gke.io/standby-capacity"}, "launches no nodes"),
    ],
)
def test_what_keeps_no_room_is_said_with_its_line(tmp_path: Path, spec: dict[str, Any], said: str) -> None:
    read = objects(tmp_path, TEMPLATE, deployment(1), buffer(**spec))
    assert headroom.read(read) == ()
    (found,) = headroom.findings(read)
    assert said in found.message
    assert found.where is not None and found.where.line


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (OF_TEMPLATE | OF_WEB | {"replicas": 1}, "spec.scalableRef"),
        (OF_TEMPLATE, "spec.podTemplateRef"),
        (OF_TEMPLATE | {"replicas": -1}, "spec.replicas"),
        (OF_WEB | {"percentage": -5}, "spec.percentage"),
        (OF_TEMPLATE | {"limits": {"cpu": "many"}}, "spec.limits.cpu"),
    ],
)
def test_what_its_definition_refuses_is_refused_with_file_and_field(
    tmp_path: Path, spec: dict[str, Any], field: str
) -> None:
    with pytest.raises(InputError) as raised:
        objects(tmp_path, TEMPLATE, deployment(1), buffer(**spec))
    assert field in str(raised.value)


@pytest.mark.parametrize("wanted", ['limits: {nvidia.com/gpu: "9e9"}', "percentage: 2000000000"])
def test_room_for_more_pods_than_a_cluster_has_is_refused_before_any_is_made(wanted: str, tmp_path: Path) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(
        f"""\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: chat, namespace: team}}
spec:
  replicas: 2
  selector: {{matchLabels: {{a: b}}}}
  template:
    metadata: {{labels: {{a: b}}}}
    spec: {{containers: [{{name: main, image: app, resources: {{limits: {{nvidia.com/gpu: 1}}}}}}]}}
---
apiVersion: autoscaling.x-k8s.io/v1beta1
kind: CapacityBuffer
metadata: {{name: spare, namespace: team}}
spec:
  scalableRef: {{kind: Deployment, name: chat}}
  {wanted}
"""
    )
    with pytest.raises(InputError, match=r"m\.yaml:14:spec: room for \d+ pods, expected at most 150,000"):
        refuse_too_many_pods(load.read([file]).objects)


def test_what_has_no_pods_of_its_own_counts_as_none(tmp_path: Path) -> None:
    file = tmp_path / "m.yaml"
    pool = "{kind: NodePool, apiVersion: karpenter.sh/v1, metadata: {name: n%d}, spec: {replicas: 100000, template: {spec: {nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: a}, requirements: []}}}}"
    pod = "{kind: Pod, apiVersion: v1, metadata: {name: p%d}, spec: {containers: [{name: main, image: app}]}}"
    file.write_text("\n---\n".join([pool % 1, pool % 2, pod % 1]))
    written = load.read([file]).objects
    refuse_too_many_pods(written)
    with pytest.raises(InputError, match="150001 pods, expected at most 150,000"):
        refuse_too_many_pods(written[-1:] * 150_001)
