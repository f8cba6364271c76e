"""The API's description: what kubectl's validation, explain and merging look for in it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tonnage.apiserver import openapi, openapi_words
from tonnage.kube.resources import ALL, Resource
from tonnage.objects import apps, autoscaling, core, karpenter, keda, monitoring, policy
from tonnage.objects.api.fields import SCALARS, structs
from tonnage.objects.unknown import read_members

STRUCTS = (
    core.Pod,
    core.Node,
    core.Service,
    core.ConfigMap,
    core.PriorityClass,
    apps.Deployment,
    apps.DaemonSet,
    autoscaling.HorizontalPodAutoscaler,
    policy.PodDisruptionBudget,
    karpenter.NodePool,
    karpenter.NodeClaim,
    karpenter.EC2NodeClass,
    keda.ScaledObject,
    monitoring.ServiceMonitor,
)


def document(resource: Resource) -> dict[str, Any]:
    found = openapi.document(resource.root.lstrip("/"))
    assert found is not None
    decoded: dict[str, Any] = json.loads(found)
    return decoded


def test_the_index_names_a_document_for_every_group_and_version() -> None:
    paths = openapi.index()["paths"]
    assert set(paths) == {resource.root.lstrip("/") for resource in ALL}
    assert all(re.fullmatch(r"/openapi/v3/\S+\?hash=[0-9A-F]{64}", one["serverRelativeURL"]) for one in paths.values())
    assert openapi.document("apis/networking.k8s.io/v1") is None


@pytest.mark.parametrize("resource", ALL, ids=lambda resource: resource.plural)
def test_a_kind_is_found_by_its_path_and_by_its_group_version_kind(resource: Resource) -> None:
    described = document(resource)
    gvk = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    assert described["paths"][resource.path()]["get"]["x-kubernetes-group-version-kind"] == gvk
    marked = [
        name
        for name, schema in described["components"]["schemas"].items()
        if gvk in schema.get("x-kubernetes-group-version-kind", ())
    ]
    assert marked == [openapi.name_of(resource)]


@pytest.mark.parametrize("resource", ALL, ids=lambda resource: resource.plural)
@pytest.mark.parametrize("method", ["post", "put", "patch"])
def test_writes_take_the_parameters_that_kubectl_looks_for(resource: Resource, method: str) -> None:
    namespace = "{namespace}" if resource.namespaced else ""
    path = resource.path(namespace, "" if method == "post" else "{name}")
    operation = document(resource)["paths"][path][method]
    names = {parameter["name"] for parameter in operation["parameters"]}
    assert {"dryRun", "fieldManager", "fieldValidation"} <= names


@pytest.mark.parametrize("resource", ALL, ids=lambda resource: resource.plural)
def test_every_reference_leads_somewhere(resource: Resource) -> None:
    text = openapi.document(resource.root.lstrip("/"))
    assert text is not None
    schemas = json.loads(text)["components"]["schemas"]
    referred = set(re.findall(rb'"#/components/schemas/([^"]+)"', text))
    assert referred
    assert {name.decode() for name in referred} <= set(schemas)


def test_lists_that_merge_say_by_which_key() -> None:
    schemas = document(ALL[0])["components"]["schemas"]
    containers = schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    assert containers["x-kubernetes-patch-strategy"] == "merge"
    assert (containers["x-kubernetes-list-type"], containers["x-kubernetes-list-map-keys"]) == ("map", ["name"])
    tolerations = schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["tolerations"]
    assert tolerations["x-kubernetes-list-type"] == "atomic"
    assert "x-kubernetes-patch-merge-key" not in tolerations


def test_custom_kinds_carry_the_rules_of_their_crds() -> None:
    (pools,) = (resource for resource in ALL if resource.kind == "NodePool")
    spec = document(pools)["components"]["schemas"]["sh.karpenter.v1.NodePool"]["properties"]["spec"]["properties"]
    assert (spec["weight"]["minimum"], spec["weight"]["maximum"]) == (1, 100)
    disruption = spec["disruption"]["properties"]
    assert disruption["consolidationPolicy"]["enum"] == ["WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"]


def test_the_old_description_has_the_same_schemas() -> None:
    definitions = json.loads(openapi.v2())["definitions"]
    assert all(openapi.name_of(resource) in definitions for resource in ALL)


OF_ONE_RELEASE = {("PodSpec", "workloadRef")}
"""Fields that only an earlier release had: this one is of Kubernetes 1.35 and gone in 1.36."""


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_every_field_that_is_read_is_a_field_of_the_api(struct: type) -> None:
    todo: list[tuple[str, type]] = [(struct.__name__, struct)]
    seen = set()
    while todo:
        name, kind = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        fields = structs()[name]
        for field, inner in (read_members(kind) or {}).items():
            if (name, field) in OF_ONE_RELEASE:
                continue
            assert field in fields, f"{name}.{field}"
            if inner is not None and fields[field].of not in SCALARS:
                todo.append((fields[field].of, inner))
    assert len(seen) > 1 or struct in (core.ConfigMap, core.PriorityClass)


def test_every_type_that_a_field_names_is_in_the_table() -> None:
    known = structs()
    missing = {
        field.of for fields in known.values() for field in fields.values() if field.of not in SCALARS
    } - known.keys()
    assert missing == set()


def test_every_word_is_about_a_type_and_field_that_there_is() -> None:
    known = structs()
    for struct, field in openapi_words.words():
        assert struct == "*" or struct in known, struct
        assert not field or struct == "*" or field in known[struct], f"{struct}.{field}"
