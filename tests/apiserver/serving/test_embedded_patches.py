"""Patches: RFC 6902, RFC 7386, strategic merge, server-side apply; as pure functions and through the API."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from embedded import Embedded, Json, deployment, refused
from hypothesis import given
from hypothesis import strategies as st

from tonnage.apiserver import ownership, patches, schema, strategic
from tonnage.kube.resources import DEPLOYMENTS, NODES, PODS
from tonnage.kube.transport import APPLY_PATCH, JSON_PATCH, STRATEGIC_PATCH

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "b/c", "~d"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "c/d", "~e"]), inner, max_size=3)
    ),
    max_leaves=8,
)


# ---- JSON patch ----


@pytest.mark.parametrize(
    ("document", "operations", "result"),
    [
        ({"a": 1}, [{"op": "add", "path": "/b", "value": 2}], {"a": 1, "b": 2}),
        ({"a": [1, 3]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2, 3]}),
        ({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}),
        ({"a": 1}, [{"op": "add", "path": "", "value": [1]}], [1]),
        ({"a": 1, "b": 2}, [{"op": "remove", "path": "/a"}], {"b": 2}),
        ({"a": [1, 2]}, [{"op": "remove", "path": "/a/0"}], {"a": [2]}),
        ({"a": 1}, [{"op": "replace", "path": "/a", "value": None}], {"a": None}),
        ({"a/b": 1, "c~d": 2}, [{"op": "remove", "path": "/a~1b"}, {"op": "remove", "path": "/c~0d"}], {}),
        ({"a": {"b": 1}}, [{"op": "move", "from": "/a/b", "path": "/c"}], {"a": {}, "c": 1}),
        (
            {"a": [1]},
            [{"op": "copy", "from": "/a", "path": "/b"}, {"op": "add", "path": "/b/-", "value": 2}],
            {"a": [1], "b": [1, 2]},
        ),
        ({"a": {"x": 1.0}}, [{"op": "test", "path": "/a", "value": {"x": 1}}], {"a": {"x": 1.0}}),
        ({}, [{"op": "test", "path": "/a", "value": None}], {}),
        ({"": 1}, [{"op": "remove", "path": "/"}], {}),
    ],
)
def test_json_patch_does_what_rfc_6902_says(document: Any, operations: list[Json], result: Any) -> None:
    assert patches.apply_json_patch(document, operations) == result


@pytest.mark.parametrize(
    ("document", "operation"),
    [
        ({"a": 1}, {"op": "test", "path": "/a", "value": True}),
        ({"a": 1}, {"op": "test", "path": "/a", "value": "1"}),
        ({"a": [1, 2]}, {"op": "test", "path": "/a", "value": [2, 1]}),
        ({}, {"op": "remove", "path": "/a"}),
        ({}, {"op": "replace", "path": "/a", "value": 1}),
        ({}, {"op": "add", "path": "/a/b", "value": 1}),
        ({"a": [1]}, {"op": "add", "path": "/a/2", "value": 1}),
        ({"a": [1]}, {"op": "remove", "path": "/a/01"}),
        ({"a": [1]}, {"op": "remove", "path": "/a/-"}),
        ({"a": 1}, {"op": "add", "path": "/a/b", "value": 1}),
        ({"a": {"b": 1}}, {"op": "move", "from": "/a", "path": "/a/b"}),
        ({}, {"op": "frobnicate", "path": "/a"}),
    ],
)
def test_a_json_patch_that_does_not_hold_is_refused(document: Any, operation: Json) -> None:
    with pytest.raises(patches.PatchRefused):
        patches.apply_json_patch(document, [operation])


@pytest.mark.parametrize(
    "patch",
    [
        {},
        ["x"],
        [{}],
        [{"op": "add", "path": 1}],
        [{"op": "add", "path": "/a"}],
        [{"op": "add", "path": "a", "value": 1}],
    ],
)
def test_what_is_no_json_patch_is_refused(patch: Any) -> None:
    with pytest.raises(patches.PatchError):
        patches.apply_json_patch({}, patch)


def _same(one: Any, other: Any) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


@given(JSON_VALUES, JSON_VALUES)
def test_a_test_holds_exactly_for_equal_json(one: Any, other: Any) -> None:
    try:
        patches.apply_json_patch({"at": one}, [{"op": "test", "path": "/at", "value": other}])
    except patches.PatchRefused:
        assert not _same(one, other)
    else:
        assert _same(one, other)


# ---- merge patch ----


@pytest.mark.parametrize(  # the cases of RFC 7386, appendix A
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch_does_what_rfc_7386_says(target: Any, patch: Any, result: Any) -> None:
    before = copy.deepcopy((target, patch))
    assert patches.merge(target, patch) == result
    assert (target, patch) == before, "neither is changed"


# ---- strategic merge patch ----

POD = {
    "metadata": {"finalizers": ["a", "b", "c"]},
    "spec": {
        "containers": [{"name": "x", "image": "1", "env": [{"name": "A", "value": "1"}]}, {"name": "y", "image": "1"}],
        "tolerations": [{"key": "old"}],
        "volumes": [{"name": "v", "emptyDir": {}}],
        "nodeSelector": {"a": "1"},
    },
}


@pytest.mark.parametrize(
    ("patch", "field", "result"),
    [
        ({"spec": {"containers": [{"name": "y", "image": "2"}]}}, "containers", [POD["spec"]["containers"][0], {"name": "y", "image": "2"}]),
        ({"spec": {"containers": [{"name": "x", "$patch": "delete"}]}}, "containers", [{"name": "y", "image": "1"}]),
        ({"spec": {"containers": [{"$patch": "replace"}, {"name": "z"}]}}, "containers", [{"name": "z"}]),
        ({"spec": {"containers": [{"name": "none", "$patch": "delete"}]}}, "containers", POD["spec"]["containers"]),
        ({"spec": {"tolerations": [{"key": "new"}]}}, "tolerations", [{"key": "new"}]),
        ({"spec": {"nodeSelector": {"b": "2"}}}, "nodeSelector", {"a": "1", "b": "2"}),
        ({"spec": {"nodeSelector": {"$patch": "replace", "b": "2"}}}, "nodeSelector", {"b": "2"}),
        ({"spec": {"nodeSelector": {"$patch": "delete"}}}, "nodeSelector", {}),
        ({"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "configMap"], "configMap": {"name": "c"}}]}}, "volumes", [{"name": "v", "configMap": {"name": "c"}}]),
        ({"spec": {"volumes": None}}, "volumes", None),
    ],
)  # fmt: skip
def test_a_strategic_merge_patch_knows_the_lists_of_pods(patch: Json, field: str, result: Any) -> None:
    before = copy.deepcopy(POD)
    assert strategic.merge(schema.root("Pod"), POD, patch)["spec"].get(field) == result
    assert before == POD, "the target is not changed"


def test_items_of_items_merge_too() -> None:
    patch = {"spec": {"containers": [{"name": "x", "env": [{"name": "B", "value": "2"}, {"name": "A", "value": "3"}]}]}}
    merged = strategic.merge(schema.root("Pod"), POD, patch)
    assert merged["spec"]["containers"][0]["env"] == [{"name": "B", "value": "2"}, {"name": "A", "value": "3"}]


@pytest.mark.parametrize(
    ("meta", "result"),
    [
        ({"finalizers": ["d", "a"]}, ["d", "a", "b", "c"]),
        ({"$deleteFromPrimitiveList/finalizers": ["b"]}, ["a", "c"]),
        ({"$deleteFromPrimitiveList/finalizers": ["b"], "finalizers": ["d"]}, ["d", "a", "c"]),
        ({"$setElementOrder/finalizers": ["c", "a"]}, ["b", "c", "a"]),
        ({"$setElementOrder/finalizers": ["c", "d", "b", "a"], "finalizers": ["d"]}, ["c", "d", "b", "a"]),
    ],
)
def test_lists_of_scalars_merge_by_value(meta: Json, result: list[str]) -> None:
    assert strategic.merge(schema.root("Pod"), POD, {"metadata": meta})["metadata"]["finalizers"] == result


def test_an_element_order_arranges_what_it_names() -> None:
    patch = {
        "spec": {
            "$setElementOrder/containers": [{"name": "y"}, {"name": "z"}, {"name": "x"}],
            "containers": [{"name": "z"}],
        }
    }
    merged = strategic.merge(schema.root("Pod"), POD, patch)
    assert [one["name"] for one in merged["spec"]["containers"]] == ["y", "z", "x"]


@pytest.mark.parametrize(
    "patch",
    [
        {"spec": {"$patch": "frobnicate"}},
        {"spec": {"containers": [{"image": "nameless"}]}},
        {"spec": {"containers": ["x"]}},
        {"spec": {"$what/containers": []}},
    ],
)
def test_a_strategic_merge_patch_that_makes_no_sense_is_refused(patch: Json) -> None:
    with pytest.raises(patches.PatchError):
        strategic.merge(schema.root("Pod"), POD, patch)


def test_service_ports_merge_by_port_and_conditions_by_type() -> None:
    service = {"spec": {"ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}]}}
    patch = {"spec": {"ports": [{"port": 81, "name": "c"}]}}
    assert strategic.merge(schema.root("Service"), service, patch)["spec"]["ports"][1] == {"port": 81, "name": "c"}
    node = {
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": "1"}],
        }
    }
    status = {"conditions": [{"type": "Ready", "status": "False"}]}
    merged = strategic.merge(schema.root(NODES.kind), node, {"status": status})
    assert merged["status"]["conditions"] == [{"type": "Ready", "status": "False"}]
    assert merged["status"]["addresses"] == node["status"]["addresses"]


# ---- through the API ----


@pytest.fixture
def embedded() -> Embedded:
    embedded = Embedded()
    embedded.client.create(DEPLOYMENTS, deployment(), "default")
    return embedded


def test_a_test_that_fails_changes_nothing_and_says_invalid(embedded: Embedded) -> None:
    error = refused(
        lambda: embedded.client.test_and_set(
            DEPLOYMENTS, "web", "default", expect={"/spec/replicas": 3}, assign={"/spec/replicas": 5}
        )
    )
    assert (error.code, error.reason) == (422, "Invalid")
    embedded.client.test_and_set(
        DEPLOYMENTS, "web", "default", expect={"/spec/replicas": 2}, assign={"/spec/replicas": 5}
    )
    assert embedded.client.get(DEPLOYMENTS, "web", "default")["spec"]["replicas"] == 5


@pytest.mark.parametrize(
    ("kind", "body", "code"),
    [
        (JSON_PATCH, b'{"a": 1}', 400),
        (JSON_PATCH, b"nonsense", 400),
        (STRATEGIC_PATCH, b"[1]", 400),
        (STRATEGIC_PATCH, b'{"metadata": {"name": "other"}}', 400),
        (STRATEGIC_PATCH, b'{"spec": {"replicas": "many"}}', 400),
        (STRATEGIC_PATCH, b'{"spec": {"replicas": -1}}', 422),
        (STRATEGIC_PATCH, b'{"kind": "Pod"}', 400),
        ("application/json", b"{}", 415),
        (APPLY_PATCH, b"{a", 400),
        (JSON_PATCH, b'[{"op": "replace", "path": "", "value": 1}]', 400),
    ],
)
def test_patches_that_are_refused_leave_the_object_alone(embedded: Embedded, kind: str, body: bytes, code: int) -> None:
    before = embedded.client.get(DEPLOYMENTS, "web", "default")
    path = DEPLOYMENTS.path("default", "web")
    assert embedded.call("PATCH", path, body, kind=kind, fieldManager="me").status == code
    assert embedded.client.get(DEPLOYMENTS, "web", "default") == before


# ---- server-side apply ----


def applied(name: str = "app", **fields: Any) -> Json:
    return deployment(name, **fields)


def owners(obj: Json) -> dict[str, Json]:
    return {one["manager"]: one["fieldsV1"] for one in obj["metadata"]["managedFields"]}


def test_applying_creates_then_changes_and_says_who_owns_what(embedded: Embedded) -> None:
    made = embedded.apply(applied(), "me")
    assert made.status == 201
    obj = json.loads(made.body)
    assert obj["metadata"]["managedFields"][0]["operation"] == "Apply"
    assert owners(obj)["me"]["f:spec"]["f:replicas"] == {}
    assert "f:revisionHistoryLimit" not in owners(obj)["me"]["f:spec"], "defaults belong to nobody"
    again = embedded.apply(applied(), "me")
    assert (again.status, json.loads(again.body)) == (200, obj), "the same again makes no version"
    changed = json.loads(embedded.apply(applied(replicas=4), "me").body)
    assert (changed["spec"]["replicas"], changed["metadata"]["generation"]) == (4, 2)


def test_a_field_of_another_manager_is_a_conflict_unless_forced(embedded: Embedded) -> None:
    embedded.apply(applied(), "me")
    scale = DEPLOYMENTS.path("default", "app", "scale")
    embedded.json("PATCH", scale, {"spec": {"replicas": 9}}, kind=STRATEGIC_PATCH, fieldManager="kubectl")
    answer = embedded.apply(applied(replicas=3), "me")
    status = json.loads(answer.body)
    assert (answer.status, status["reason"]) == (409, "Conflict")
    assert status["message"] == (
        'Apply failed with 1 conflict: conflict with "kubectl" with subresource "scale" using apps/v1: .spec.replicas'
    )
    (cause,) = status["details"]["causes"]
    assert (cause["reason"], cause["field"]) == ("FieldManagerConflict", ".spec.replicas")
    assert embedded.client.get(DEPLOYMENTS, "app", "default")["spec"]["replicas"] == 9
    forced = json.loads(embedded.apply(applied(replicas=3), "me", force=True).body)
    assert forced["spec"]["replicas"] == 3
    assert set(owners(forced)) == {"me"}


def test_several_conflicts_are_listed_by_manager(embedded: Embedded) -> None:
    embedded.apply(applied(), "one")
    body = applied(replicas=8)
    body["spec"]["template"]["spec"]["containers"][0]["image"] = "registry.example/app:2"
    message = json.loads(embedded.apply(body, "two").body)["message"]
    assert message == (
        'Apply failed with 2 conflicts: conflicts with "one":\n- .spec.replicas\n'
        '- .spec.template.spec.containers[name="main"].image'
    )


def test_equal_values_are_shared_and_the_last_owner_takes_them_along(embedded: Embedded) -> None:
    embedded.apply(applied(), "one")
    assert embedded.apply({**applied(), "spec": {"replicas": 2}}, "two").status == 200
    rest = applied()
    del rest["spec"]["replicas"]
    left = json.loads(embedded.apply(rest, "one").body)
    assert left["spec"]["replicas"] == 2, "two still wants it"
    gone = json.loads(embedded.apply({"metadata": {"name": "app"}}, "two").body)
    assert gone["spec"]["replicas"] == 1, "nobody wants it: the default"
    assert set(owners(gone)) == {"one"}


def test_items_of_keyed_lists_are_owned_and_given_up_one_by_one(embedded: Embedded) -> None:
    body = applied()
    (main,) = body["spec"]["template"]["spec"]["containers"]
    main["env"] = [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
    body["spec"]["template"]["spec"]["containers"].append({"name": "side", "image": "registry.example/side:1"})
    embedded.apply(body, "me")
    other = {
        **applied(),
        "spec": {"template": {"spec": {"containers": [{"name": "main", "env": [{"name": "C", "value": "3"}]}]}}},
    }
    assert embedded.apply(other, "other").status == 200
    main["env"].pop(0)
    body["spec"]["template"]["spec"]["containers"].pop()
    found = json.loads(embedded.apply(body, "me").body)
    (container,) = found["spec"]["template"]["spec"]["containers"]
    assert [one["name"] for one in container["env"]] == ["B", "C"]


@pytest.mark.parametrize(
    ("volume", "whole"),
    [
        ({"csi": {"driver": "d", "nodePublishSecretRef": {"name": "s"}}}, "f:nodePublishSecretRef"),
        ({"cephfs": {"monitors": ["m"], "secretRef": {"name": "s"}}}, "f:secretRef"),
        ({"scaleIO": {"gateway": "g", "system": "s", "secretRef": {"name": "s"}}}, "f:secretRef"),
    ],
)
def test_what_a_volume_refers_to_has_one_owner_as_a_whole(volume: Json, whole: str) -> None:
    spec = {"volumes": [{"name": "data", **volume}]}
    owned = ownership.fields(schema.root("Pod"), {"spec": spec})
    (of,) = volume
    assert owned["f:spec"]["f:volumes"]['k:{"name":"data"}'][f"f:{of}"][whole] == {}


def test_an_update_takes_what_it_changes_from_other_managers(embedded: Embedded) -> None:
    embedded.apply(applied(), "me")
    path = DEPLOYMENTS.path("default", "app")
    embedded.json("PATCH", path, {"spec": {"replicas": 6}}, kind=STRATEGIC_PATCH, fieldManager="someone")
    found = embedded.client.get(DEPLOYMENTS, "app", "default")
    assert "f:replicas" not in owners(found)["me"]["f:spec"]
    assert owners(found)["someone"] == {"f:spec": {"f:replicas": {}}}


def test_a_status_is_applied_through_its_subresource_only(embedded: Embedded) -> None:
    body = {**applied(), "status": {"replicas": 2}}
    made = json.loads(embedded.apply(body, "me").body)
    assert made["status"].get("replicas") is None
    status = {**applied(replicas=5), "status": {"replicas": 2}}
    found = json.loads(embedded.apply(status, "status-keeper", sub="status").body)
    assert (found["status"]["replicas"], found["spec"]["replicas"]) == (2, 2)
    assert owners(found)["status-keeper"] == {"f:status": {"f:replicas": {}}}


@pytest.mark.parametrize(
    ("body", "manager", "code"),
    [
        ({**applied(), "metadata": {"name": "app", "managedFields": [{"manager": "x"}]}}, "me", 400),
        (applied(), "", 422),
        ({**applied(), "metadata": {"name": "app", "uid": "unknown"}}, "me", 409),
        ({**applied(), "typo": 1}, "me", 500),
        ({**applied(), "kind": "Pod"}, "me", 400),
    ],
)
def test_applying_is_refused(embedded: Embedded, body: Json, manager: str, code: int) -> None:
    assert embedded.apply(body, manager).status == code


def test_managed_fields_can_be_taken_over_by_the_client_that_migrates_them(embedded: Embedded) -> None:
    found = embedded.client.get(DEPLOYMENTS, "web", "default")
    entry = found["metadata"]["managedFields"][0] | {"manager": "kubectl", "operation": "Apply"}
    patch = [{"op": "replace", "path": "/metadata/managedFields", "value": [entry]}]
    changed = embedded.client.patch(DEPLOYMENTS, "web", patch, "default", content_type=JSON_PATCH)
    assert [(one["manager"], one["operation"]) for one in changed["metadata"]["managedFields"]] == [
        ("kubectl", "Apply")
    ]


# ---- sets of fields ----

MAPPINGS = st.recursive(
    st.integers(0, 2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=3),
    max_leaves=6,
).filter(lambda value: isinstance(value, dict))


def leaves(tree: Json) -> set[str]:
    return set(ownership.paths(tree))


@given(MAPPINGS, MAPPINGS)
def test_sets_of_fields_obey_set_algebra_on_their_leaves(one: Json, other: Json) -> None:
    of = schema.root("ConfigMap")
    a, b = ownership.fields(of, one), ownership.fields(of, other)
    assert ownership.union(a, a) == a
    assert ownership.difference(a, a) == {}
    rest = ownership.difference(a, b)
    assert leaves(rest) <= leaves(a)
    assert leaves(ownership.difference(rest, b)) == leaves(rest)
    assert leaves(a) & leaves(b) <= leaves(ownership.intersection(a, b)) or not leaves(a) & leaves(b)


@given(MAPPINGS, MAPPINGS)
def test_a_comparison_finds_every_leaf_that_differs_and_no_other(one: Json, other: Json) -> None:
    of = schema.root("ConfigMap")
    changed, removed = ownership.compare(of, one, other)
    if one == other:
        assert (changed, removed) == ({}, {})
    else:
        assert changed or removed
    whole = leaves(ownership.fields(of, other))
    assert all(any(f"{leaf}.".startswith(f"{path}.") for leaf in whole) for path in leaves(changed))
    assert leaves(removed) <= leaves(ownership.fields(of, one))


def test_pods_keep_no_owner_for_what_admission_added() -> None:
    embedded = Embedded()
    made = embedded.pod("web")
    (owned,) = owners(made).values()
    assert {"f:priority", "f:tolerations", "f:serviceAccountName"}.isdisjoint(owned["f:spec"])
    assert 'k:{"name":"main"}' in owned["f:spec"]["f:containers"]
    assert embedded.client.get(PODS, "web", "default") == made
