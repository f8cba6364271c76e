"""resource.k8s.io in the embedded API: served, filled in, refused and printed as a real one does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tonnage.apiserver.api import Api
from tonnage.apiserver.inprocess import InProcess
from tonnage.apiserver.tables import columns_of, table
from tonnage.kube.resources import (
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    NAMESPACES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Resource,
)
from tonnage.kube.transport import ApiError
from tonnage.kube.verbs import Client

Json = dict[str, Any]
DRIVER = "gpu.example.com"
SPEC: Json = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": DRIVER}}]}}
SLICE: Json = {
    "driver": DRIVER,
    "nodeName": "node-1",
    "pool": {"name": "node-1", "generation": 1, "resourceSliceCount": 1},
    "devices": [{"name": "gpu-0"}],
}


@pytest.fixture
def client() -> Iterator[Client]:
    made = Client(InProcess(Api()))
    made.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    yield made


def namespace(resource: Resource) -> str:
    return "team" if resource.namespaced else ""


def described(resource: Resource, name: str, spec: Json) -> Json:
    metadata = {"name": name, **({"namespace": "team"} if resource.namespaced else {})}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec}


def test_all_kinds_are_created_and_listed(client: Client) -> None:
    specs: dict[Resource, Json] = {
        DEVICE_CLASSES: {"selectors": [{"cel": {"expression": "true"}}]},
        RESOURCE_SLICES: SLICE,
        RESOURCE_CLAIMS: SPEC,
        RESOURCE_CLAIM_TEMPLATES: {"spec": SPEC},
        DEVICE_TAINT_RULES: {"taint": {"key": "xid", "effect": "NoExecute"}},
    }
    for resource, spec in specs.items():
        client.create(resource, described(resource, "one", spec), namespace(resource))
        assert [one["metadata"]["name"] for one in client.list(resource, namespace(resource))] == ["one"]


def test_what_is_not_written_is_filled_in(client: Client) -> None:
    made = client.create(RESOURCE_CLAIMS, described(RESOURCE_CLAIMS, "c", SPEC), "team")
    assert made["spec"]["devices"]["requests"][0]["exactly"] == {
        "deviceClassName": DRIVER,
        "allocationMode": "ExactCount",
        "count": 1,
    }
    templated = client.create(
        RESOURCE_CLAIM_TEMPLATES, described(RESOURCE_CLAIM_TEMPLATES, "t", {"spec": SPEC}), "team"
    )
    assert templated["spec"]["spec"] == made["spec"]


def refused(client: Client, resource: Resource, obj: Json, *, update: bool = False) -> str:
    with pytest.raises(ApiError) as error:
        (client.replace if update else client.create)(resource, obj, namespace(resource))
    assert error.value.code == 422
    return str(error.value)


def test_what_a_real_api_refuses_is_refused_in_its_words(client: Client) -> None:
    wrong = {**SLICE, "allNodes": True}
    assert "is required, but multiple fields are set" in refused(
        client, RESOURCE_SLICES, described(RESOURCE_SLICES, "s", wrong)
    )
    empty = {"devices": {"requests": [{"name": "r"}]}}
    assert "exactly one of `exactly` or `firstAvailable` is required" in refused(
        client, RESOURCE_CLAIMS, described(RESOURCE_CLAIMS, "c", empty)
    )


def test_what_is_asked_for_and_where_a_slice_is_stay_as_they_are(client: Client) -> None:
    claim = client.create(RESOURCE_CLAIMS, described(RESOURCE_CLAIMS, "c", SPEC), "team")
    claim["spec"]["devices"]["requests"][0]["exactly"]["count"] = 2
    assert "field is immutable" in refused(client, RESOURCE_CLAIMS, claim, update=True)
    published = client.create(RESOURCE_SLICES, described(RESOURCE_SLICES, "s", SLICE))
    published["spec"]["devices"].append({"name": "gpu-1"})
    client.replace(RESOURCE_SLICES, published)
    moved = client.list(RESOURCE_SLICES)[0]
    moved["spec"]["nodeName"] = "node-2"
    assert "field is immutable" in refused(client, RESOURCE_SLICES, moved, update=True)


@pytest.mark.parametrize(
    ("status", "deleted", "state"),
    [
        ({}, False, "pending"),
        ({"allocation": {}}, False, "pending"),
        ({"allocation": {"devices": {}}}, False, "allocated"),
        ({"allocation": {"devices": {}}, "reservedFor": [{"name": "p"}]}, False, "allocated,reserved"),
        ({"allocation": {"devices": {}}}, True, "deleted,allocated"),
        ({}, True, "deleted"),
    ],
)
def test_a_claim_is_printed_with_its_state(status: Json, deleted: bool, state: str) -> None:
    obj = {**described(RESOURCE_CLAIMS, "c", SPEC), "status": status}
    obj["metadata"]["creationTimestamp"] = "1970-01-01T00:00:00Z"
    if deleted:
        obj["metadata"]["deletionTimestamp"] = "1970-01-01T00:00:30Z"
    assert [one.name for one in columns_of(RESOURCE_CLAIMS)] == ["Name", "State", "Age"]
    (row,) = table(RESOURCE_CLAIMS, [obj], 60.0, "None")["rows"]
    assert row["cells"] == ["c", state, "60s"]
