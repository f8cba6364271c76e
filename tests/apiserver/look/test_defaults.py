"""What the embedded API fills in: objects as kube-apiserver v1.36.3 stored them, recorded from it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from look_checks import base, recorded, resource_of

from tonnage.apiserver import defaults
from tonnage.apiserver.status import StatusError
from tonnage.objects.api.canonical import canonical_quantity
from tonnage.objects.api.defaults_pods import pull_policy, qos_class

STORED = recorded("defaulted.jsonl")


def without_allocated(obj: dict[str, Any]) -> dict[str, Any]:
    """A Service without the addresses and node ports that it was given; a namespace without its finalizer, which it is
    given when it is made and only then."""
    if obj["kind"] == "Namespace":
        return {key: value for key, value in obj.items() if key != "spec"}
    if obj["kind"] == "Service":
        spec = obj["spec"]
        if spec.get("clusterIP") not in (None, "None"):
            del spec["clusterIP"], spec["clusterIPs"]
        for port in spec.get("ports", ()):
            port.pop("nodePort", None)
    return obj


@pytest.mark.parametrize("case", STORED, ids=lambda case: case["name"])
def test_an_object_is_filled_in_as_kube_apiserver_does(case: dict[str, Any]) -> None:
    obj = copy.deepcopy(case["written"])
    defaults.apply_defaults(resource_of(obj), obj)
    assert without_allocated(obj) == without_allocated(copy.deepcopy(case["stored"]))


@pytest.mark.parametrize("case", STORED, ids=lambda case: case["name"])
def test_filling_in_twice_changes_nothing_more(case: dict[str, Any]) -> None:
    obj = copy.deepcopy(case["written"])
    defaults.apply_defaults(resource_of(obj), obj)
    again = copy.deepcopy(obj)
    assert defaults.apply_defaults(resource_of(again), again) == obj


def test_a_pod_gets_the_priority_of_its_class() -> None:
    classes = {"high": {"metadata": {"name": "high"}, "value": 1000, "preemptionPolicy": "Never"}}
    obj = base("pod", {"spec.priorityClassName": "high"})
    defaults.apply_defaults(resource_of(obj), obj, priority_classes=classes.get)
    assert (obj["spec"]["priority"], obj["spec"]["preemptionPolicy"]) == (1000, "Never")


def test_a_pod_without_a_class_gets_the_global_default() -> None:
    default = {"metadata": {"name": "usual"}, "value": 7, "globalDefault": True}
    obj = base("pod")
    defaults.apply_defaults(resource_of(obj), obj, priority_classes=lambda name: None if name else default)
    assert (obj["spec"]["priority"], obj["spec"]["priorityClassName"]) == (7, "usual")


def test_a_pod_of_a_class_that_does_not_exist_is_forbidden() -> None:
    obj = base("pod", {"spec.priorityClassName": "missing"})
    with pytest.raises(StatusError) as refused:
        defaults.apply_defaults(resource_of(obj), obj, priority_classes=lambda _: None)
    assert refused.value.code == 403
    assert refused.value.message == 'pods "web" is forbidden: no PriorityClass with name missing was found'


def test_a_pods_own_priority_may_not_contradict_its_class() -> None:
    obj = base("pod", {"spec.priority": 5})
    with pytest.raises(StatusError, match=r"integer value of priority \(5\) must not be provided"):
        defaults.apply_defaults(resource_of(obj), obj, priority_classes=lambda _: None)


def test_services_get_addresses_that_stay_theirs() -> None:
    first, second = base("service"), base("service", {"metadata.name": "other"})
    for obj in (first, second):
        defaults.apply_defaults(resource_of(obj), obj)
    assert first["spec"]["clusterIP"] != second["spec"]["clusterIP"]
    assert first["spec"]["clusterIPs"] == [first["spec"]["clusterIP"]]
    given = base("service")
    defaults.apply_defaults(resource_of(given), given, cluster_ip=lambda _: "10.96.0.7")
    assert given["spec"]["clusterIP"] == "10.96.0.7"


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1.27", "IfNotPresent"),
        ("registry:5000/team/nginx", "Always"),
        ("registry:5000/team/nginx:2", "IfNotPresent"),
        ("nginx@sha256:" + "0" * 64, "IfNotPresent"),
    ],
)
def test_images_without_a_tag_are_always_pulled(image: str, policy: str) -> None:
    assert pull_policy(image) == policy


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        ([{}], "BestEffort"),
        ([{"resources": {"limits": {"nvidia.com/gpu": "1"}}}], "BestEffort"),
        ([{"resources": {"requests": {"cpu": "1"}}}], "Burstable"),
        ([{"resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}}], "Guaranteed"),
        ([{"resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}}, {}], "Burstable"),
        ([{"resources": {"requests": {"cpu": "0"}}}], "BestEffort"),
    ],
)  # fmt: skip
def test_the_qos_class_follows_from_cpu_and_memory(containers: list[dict[str, Any]], expected: str) -> None:
    assert qos_class({"containers": containers}) == expected


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("1000m", "1"),
        ("0.5", "500m"),
        (0.1, "100m"),
        (8, "8"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("0.5Gi", "512Mi"),
        ("1e9", "1e9"),
        ("1500k", "1500k"),
        ("2000k", "2M"),
        ("33554432Ki", "32Gi"),
        ("100", "100"),
        ("0", "0"),
        ("0Mi", "0"),
        ("-1", "-1"),
        ("nonsense", "nonsense"),
    ],
)
def test_quantities_are_kept_in_one_form(written: Any, kept: str) -> None:
    assert canonical_quantity(written) == kept
