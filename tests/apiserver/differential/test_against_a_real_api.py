"""Against a real kube-apiserver with its controller manager: the list of kubectl commands, beside the embedded API; the
recorded tables of tests/live/look; and the tables of the API (scripts/api_tables.py).

All in one file: the control plane is started once, and ends with it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import sampling
from differential_checks import Side, play, scenarios

from scripts import api_tables
from scripts.api import schemas
from tonnage.kube.transport import JSON
from tonnage.objects.api import protobuf

sys.path.insert(0, str(Path(__file__).parent.parent / "look"))
from generated_objects import (
    COUNT,
    MOST_EXCEPTIONS,
    OF_OTHERS,
    OWN_CRDS,
    SEED,
    depends,
    differs,
    generated,
    served,
    tried,
)
from look_checks import base, named, recorded, resource_of

pytestmark = [pytest.mark.peer, pytest.mark.e2e]


@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario["name"])
def test_kubectl_sees_no_difference(scenario: dict[str, Any], embedded: Side, real: Side) -> None:
    differences = list(play(scenario, embedded, real))
    assert not differences, f"{len(differences)} of {len(scenario['commands'])} commands differ:\n\n" + "\n\n".join(
        differences
    )


# ---- what was recorded ----


def dry_run(side: Side, obj: dict[str, Any]) -> dict[str, Any]:
    """What the server answers to the creation of an object, which it only tries."""
    found: dict[str, Any] = json.loads(tried(side.client.transport, obj).body)
    return found


def test_bad_objects_are_refused_as_they_were_when_the_table_was_recorded(real: Side) -> None:
    wrong = []
    for case in (*recorded("refusals.jsonl"), *recorded("alone.jsonl")):
        if case["of"] in OWN_CRDS or any(OF_OTHERS in path for path in case["set"]):
            continue
        answer = dry_run(real, base(case["of"], case["set"]))
        if case["status"] == 400:
            same = answer.get("message") == case["message"]
        else:
            found = [[c["reason"], c["field"], c["message"]] for c in answer.get("details", {}).get("causes", ())]
            same = sorted(found) == sorted(case["causes"])
        if not same:
            wrong.append(f"{named(case)}: {answer.get('message')}")
    assert not wrong, "\n".join(wrong)


def test_generated_objects_are_judged_as_by_check_and_the_embedded_api(real: Side) -> None:
    """Those of ``look/test_same_verdict.py``, which holds the other two to the same answers."""
    cases = [case for case in generated(SEED, COUNT) if case.of not in OWN_CRDS and not depends(case)]
    assert len(cases) >= 300
    wrong = [
        f"{case}: {said}" for case in cases if (said := differs(served(real.client.transport, case.obj), case.answer))
    ]
    assert len(wrong) <= MOST_EXCEPTIONS, "\n".join(wrong)


# ---- the tables of the API ----


def get(side: Side, path: str, accept: str = JSON) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(side.client.transport.request("GET", path, accept=accept).body)
    return found


def rows(table: str, kinds: set[str]) -> list[tuple[str, ...]]:
    """The rows of one of the committed tables that are about these kinds, of which each must have some."""
    place = api_tables.HEADS[table]["columns"].index("kind" if table == "table_columns" else "type")
    found = [row for row in api_tables.rows_of(api_tables.FILES[table]) if row[place] in kinds]
    assert kinds <= {row[place] for row in found} or table not in ("api_types", "table_columns")
    return found


def test_the_tables_are_what_their_sources_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOPROXY", "off")
    try:
        made = api_tables.make()
    except schemas.Unread as why:
        pytest.skip(f"Go's module cache lacks a source: {why}")
    for table, text in made.items():
        assert text == api_tables.FILES[table].read_text(encoding="utf-8"), table


def test_built_in_kinds_have_the_fields_and_merge_keys_that_the_api_server_describes(real: Side) -> None:
    definitions = get(real, "/openapi/v2")["definitions"]
    own = api_tables.own_types(definitions)
    names = {struct.name for struct in own.values()}
    assert rows("api_types", names) == sorted(struct.row() for struct in own.values())
    assert rows("merge_keys", names) == schemas.merging(definitions, own)


@pytest.mark.parametrize("group", ["karpenter.sh"])
def test_kinds_whose_definitions_are_served_as_published_have_their_fields_and_rules(real: Side, group: str) -> None:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    served = [r for r in api_tables.KINDS if r.group == group]
    found = schemas.custom((get(real, f"{path}/{r.plural}.{group}"), r.version) for r in served)
    assert {r.kind for r in served} <= {struct.name for struct in found}
    names = {struct.name for struct in found}
    assert rows("api_types", names) == [struct.row() for struct in found]
    assert rows("api_rules", names) == sorted((struct.name, *rule) for struct in found for rule in struct.rules)


def test_tables_have_the_columns_that_the_api_server_prints(real: Side) -> None:
    theirs, ours = {}, {}
    for resource in api_tables.KINDS:
        answer = get(real, resource.path(), "application/json;as=Table;v=v1;g=meta.k8s.io")
        keys = ("name", "type", "format", "priority")
        theirs[resource.kind] = [tuple(str(one[key]) for key in keys) for one in answer["columnDefinitions"]]
        ours[resource.kind] = [row[1:5] for row in rows("table_columns", {resource.kind})]
    assert ours == theirs


NAMELESS_SET = {
    "apiVersion": "apps/v1",
    "kind": "StatefulSet",
    "metadata": {"name": "without-service", "namespace": "default"},
    "spec": {
        "selector": {"matchLabels": {"app": "s"}},
        "template": {
            "metadata": {"labels": {"app": "s"}},
            "spec": {"containers": [{"name": "c", "image": "i", "readinessProbe": {"grpc": {"port": 1}}}]},
        },
    },
}
"""Fields that are written although they are empty: its service's name, and that of the probe."""


def identity(obj: dict[str, Any]) -> str:
    return f"{obj['kind']}-{obj['metadata']['name']}"


WRITTEN = [case["written"] for case in recorded("defaulted.jsonl") if not resource_of(case["written"]).custom]


@pytest.mark.parametrize(
    "written", [*WRITTEN, NAMELESS_SET], ids=lambda one: f"{one['kind']}-{one['metadata']['name']}"
)
def test_what_comes_in_protobuf_is_what_comes_in_json(real: Side, written: dict[str, Any]) -> None:
    resource = resource_of(written)

    def tried(body: bytes, content_type: str, accept: str) -> bytes:
        path = resource.path(written["metadata"].get("namespace") or "")
        reply = real.client.transport.request(
            "POST", path, query={"dryRun": "All"}, body=body, content_type=content_type, accept=accept
        )
        assert reply.status == 201, reply.body
        return reply.body

    as_json, encoded = json.dumps(written).encode(), protobuf.encode(written)
    read = protobuf.decode(tried(as_json, JSON, protobuf.CONTENT_TYPE))
    plain = json.loads(tried(as_json, JSON, JSON))
    sent = json.loads(tried(encoded, protobuf.CONTENT_TYPE, JSON))
    for one in (read, plain, sent):
        for key in ("uid", "creationTimestamp", "managedFields"):
            one["metadata"].pop(key, None)
    assert read == without_empty(plain, read)
    assert without_empty(sent, read) == read


MERGED = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "merged", "namespace": "default"},
    "spec": {
        "containers": [{"name": "c", "image": "i"}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}},
        "volumes": [
            {"name": "csi", "csi": {"driver": "d", "nodePublishSecretRef": {"name": "s"}}},
            {"name": "cephfs", "cephfs": {"monitors": ["m"], "secretRef": {"name": "s"}}},
            {
                "name": "claim",
                "ephemeral": {
                    "volumeClaimTemplate": {
                        "metadata": {"labels": {"a": "b"}},
                        "spec": {
                            "accessModes": ["ReadWriteOnce"],
                            "resources": {"requests": {"storage": "1Gi"}},
                            "selector": {"matchLabels": {"a": "b"}},
                        },
                    }
                },
            },
        ],
    },
}
"""Structs within volumes that have one owner as a whole."""


@pytest.mark.parametrize("written", [*sampling.some("objects applied", WRITTEN, 12), MERGED], ids=identity)
def test_what_is_applied_is_owned_field_by_field_as_on_the_api_server(
    embedded: Side, real: Side, written: dict[str, Any]
) -> None:
    def owned(side: Side) -> Any:
        resource, meta = resource_of(written), written["metadata"]
        reply = side.client.transport.request(
            "PATCH",
            resource.path(meta.get("namespace") or "", meta["name"]),
            query={"dryRun": "All", "fieldManager": "test"},
            body=json.dumps(without_empty_lists(written)).encode(),
            content_type="application/apply-patch+yaml",
        )
        assert reply.status in (200, 201), reply.body
        sets = [entry["fieldsV1"] for entry in json.loads(reply.body)["metadata"].get("managedFields", ())]
        return [one for one in sets if one]

    assert owned(embedded) == owned(real)


def without_empty_lists(value: Any) -> Any:
    """An empty list that merges has nobody who owns it on kube-apiserver, and an owner on the embedded API."""
    if isinstance(value, list):
        return [without_empty_lists(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {key: without_empty_lists(one) for key, one in value.items() if one != []}


def without_empty(value: Any, beside: Any) -> Any:
    """Without structs that are empty and times that are null, where the other has none: they say nothing."""
    if isinstance(value, list) and isinstance(beside, list):
        return [without_empty(*pair) for pair in zip(value, beside, strict=True)]
    if not isinstance(value, dict) or not isinstance(beside, dict):
        return value
    inner = {key: without_empty(one, beside.get(key, {})) for key, one in value.items()}
    return {key: one for key, one in inner.items() if key in beside or one not in ({}, None)}
