"""Create, read, change and delete through the embedded API, and what it refuses.

The refusals are those of kube-apiserver v1.36.3, word for word where a message stands here.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from embedded import Embedded, Json, config, deployment, pod, refused

from tonnage.apiserver.writes import EVENT_LIFE_S
from tonnage.kube.resources import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    EVENTS,
    LEASES,
    NAMESPACES,
    NODE_POOLS,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    SERVICES,
)
from tonnage.kube.transport import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


@pytest.fixture
def embedded() -> Embedded:
    return Embedded()


def test_a_new_server_has_what_every_cluster_has(embedded: Embedded) -> None:
    names = {one["metadata"]["name"] for one in embedded.client.list(NAMESPACES)}
    assert names == {"default", "kube-node-lease", "kube-public", "kube-system"}
    assert embedded.client.get(SERVICES, "kubernetes", "default")["spec"]["ports"][0]["port"] == 443
    assert embedded.client.get(PRIORITY_CLASSES, "system-node-critical")["value"] == 2_000_001_000


def test_a_created_object_gets_its_identity_from_the_server(embedded: Embedded) -> None:
    body = pod()
    body["metadata"] |= {"uid": "mine", "creationTimestamp": "2001-01-01T00:00:00Z", "generation": 9}
    meta = embedded.client.create(PODS, body, "default")["metadata"]
    assert meta["uid"] != "mine"
    assert (meta["creationTimestamp"], meta["generation"]) == ("2027-01-15T08:00:00Z", 1)
    assert meta["resourceVersion"].isdigit()


def test_a_status_cannot_be_set_by_creating_or_replacing(embedded: Embedded) -> None:
    made = embedded.client.create(PODS, {**pod(), "status": {"phase": "Running"}}, "default")
    assert made["status"]["phase"] == "Pending"
    made["status"]["phase"] = "Failed"
    made["metadata"]["labels"] = {"seen": "yes"}
    changed = embedded.client.replace(PODS, made, "default")
    assert (changed["status"]["phase"], changed["metadata"]["labels"]) == ("Pending", {"seen": "yes"})


def test_a_status_update_changes_nothing_else_that_is_asked_for(embedded: Embedded) -> None:
    made = embedded.client.create(DEPLOYMENTS, deployment(), "default")
    made["spec"]["replicas"] = 7
    made["status"] = {"replicas": 2, "observedGeneration": 1}
    changed = embedded.client.replace(DEPLOYMENTS, made, "default", subresource="status")
    assert changed["spec"]["replicas"] == 2
    assert changed["status"] == {"replicas": 2, "observedGeneration": 1}
    assert changed["metadata"]["generation"] == 1


def test_the_generation_counts_what_is_asked_for(embedded: Embedded) -> None:
    embedded.client.create(DEPLOYMENTS, deployment(), "default")

    def after(patch: Json) -> int:
        found: int = embedded.client.patch(DEPLOYMENTS, "web", patch, "default")["metadata"]["generation"]
        return found

    assert after({"metadata": {"labels": {"a": "b"}}}) == 1
    assert after({"spec": {"replicas": 3}}) == 2
    assert after({"spec": {"replicas": 3}}) == 2
    assert after({"metadata": {"annotations": {"a": "b"}}}) == 3, "annotations count for Deployments only"


def test_a_name_is_made_from_generate_name(embedded: Embedded) -> None:
    body = pod()
    body["metadata"] = {"generateName": "web-"}
    names = {
        embedded.client.create(PODS, json.loads(json.dumps(body)), "default")["metadata"]["name"] for _ in range(20)
    }
    assert len(names) == 20
    assert all(name.startswith("web-") and len(name) == 9 for name in names)


@pytest.mark.parametrize(
    ("namespace", "body", "code", "reason", "message"),
    [
        ("nowhere", pod(), 404, "NotFound", 'namespaces "nowhere" not found'),
        ("default", pod("there"), 409, "AlreadyExists", 'pods "there" already exists'),
        (
            "default",
            {"metadata": {}, "spec": pod()["spec"]},
            422,
            "Invalid",
            'Pod "" is invalid: metadata.name: Required value: name or generateName is required',
        ),
        (
            "default",
            {**pod(), "metadata": {"name": "x", "namespace": "other"}},
            400,
            "BadRequest",
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            "default",
            {**pod(), "metadata": {"name": "x", "resourceVersion": "7"}},
            500,
            "",
            "resourceVersion should not be set on objects to be created",
        ),
        (
            "default",
            pod("x", priorityClassName="high"),
            403,
            "Forbidden",
            'pods "x" is forbidden: no PriorityClass with name high was found',
        ),
    ],
)
def test_creating_is_refused(
    embedded: Embedded, namespace: str, body: Json, code: int, reason: str, message: str
) -> None:
    embedded.pod("there")
    error = refused(lambda: embedded.client.create(PODS, body, namespace))
    assert (error.code, error.reason, error.message) == (code, reason, message)


def test_an_update_of_an_older_version_is_refused(embedded: Embedded) -> None:
    made = embedded.client.create(CONFIG_MAPS, config(a="1"), "default")
    embedded.client.patch(CONFIG_MAPS, "config", {"data": {"a": "2"}}, "default")
    stale = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"a": "3"}}
    for call in (
        lambda: embedded.client.replace(CONFIG_MAPS, made, "default"),
        lambda: embedded.client.patch(CONFIG_MAPS, "config", stale, "default"),
    ):
        error = refused(call)
        assert (error.code, error.reason) == (409, "Conflict")
        assert error.message == (
            'Operation cannot be fulfilled on configmaps "config": the object has been modified; '
            "please apply your changes to the latest version and try again"
        )
    assert embedded.client.get(CONFIG_MAPS, "config", "default")["data"] == {"a": "2"}


def test_another_object_of_the_same_name_is_not_taken_for_the_one_meant(embedded: Embedded) -> None:
    old = embedded.client.create(CONFIG_MAPS, config(), "default")
    embedded.client.delete(CONFIG_MAPS, "config", "default")
    embedded.client.create(CONFIG_MAPS, config(), "default")
    del old["metadata"]["resourceVersion"]
    assert refused(lambda: embedded.client.replace(CONFIG_MAPS, old, "default")).code == 409
    uid = old["metadata"]["uid"]
    assert refused(lambda: embedded.client.delete(CONFIG_MAPS, "config", "default", uid=uid)).code == 409
    guarded = {"metadata": {"uid": uid}, "data": {"a": "1"}}
    error = refused(lambda: embedded.client.patch(CONFIG_MAPS, "config", guarded, "default"))
    assert (error.code, error.message) == (
        422,
        f'ConfigMap "config" is invalid: metadata.uid: Invalid value: "{uid}": field is immutable',
    )


def test_a_write_that_changes_nothing_makes_no_version(embedded: Embedded) -> None:
    made = embedded.client.create(CONFIG_MAPS, config(a="1"), "default")
    before = embedded.api.store.version
    assert embedded.client.replace(CONFIG_MAPS, made, "default") == made
    assert embedded.client.patch(CONFIG_MAPS, "config", {"data": {"a": "1"}}, "default") == made
    assert embedded.api.store.version == before


def test_a_custom_resource_needs_its_version_in_an_update_and_a_lease_is_made_by_one(embedded: Embedded) -> None:
    lease = {"metadata": {"name": "leader"}, "spec": {"holderIdentity": "me"}}
    assert embedded.call("PUT", LEASES.path("default", "leader"), lease).status == 201
    error = json.loads(embedded.call("PUT", LEASES.path("default", "leader"), lease).body)
    assert error["message"].endswith("metadata.resourceVersion: Invalid value: 0: must be specified for an update")
    assert embedded.call("PUT", CONFIG_MAPS.path("default", "none"), config("none")).status == 404


def test_a_dry_run_answers_and_leaves_everything_as_it_was(embedded: Embedded) -> None:
    made = embedded.pod("there", node="n1", finalizers=["a/b"])
    before = embedded.api.store.version
    answers = [
        embedded.json("POST", PODS.path("default"), pod("dry"), dryRun="All"),
        embedded.json(
            "PATCH", PODS.path("default", "there"), {"metadata": {"labels": None}}, kind=MERGE_PATCH, dryRun="All"
        ),
        embedded.json(
            "PUT", PODS.path("default", "there"), made | {"metadata": made["metadata"] | {"labels": {}}}, dryRun="All"
        ),
        embedded.json("DELETE", PODS.path("default", "there"), {"dryRun": ["All"]}),
    ]
    assert [answer["metadata"]["name"] for answer in answers] == ["dry", "there", "there", "there"]
    assert "deletionTimestamp" in answers[3]["metadata"]
    assert embedded.client.get(PODS, "there", "default") == made
    assert embedded.api.store.version == before


def test_unknown_fields_are_refused_told_or_dropped_as_asked(embedded: Embedded) -> None:
    body = pod("typo", nodSelector={"a": "b"})
    strict = json.loads(embedded.call("POST", PODS.path("default"), body, fieldValidation="Strict").body)
    assert strict["message"] == (
        'Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field "spec.nodSelector"'
    )
    warned = embedded.call("POST", PODS.path("default"), body)
    assert warned.headers["warning"] == '299 - "unknown field \\"spec.nodSelector\\""'
    assert "nodSelector" not in json.loads(warned.body)["spec"]
    ignored = embedded.call("POST", PODS.path("default"), pod("other", nodSelector={}), fieldValidation="Ignore")
    assert (ignored.status, "warning" in ignored.headers) == (201, False)


def test_a_value_of_the_wrong_type_is_refused(embedded: Embedded) -> None:
    error = refused(lambda: embedded.client.create(PODS, pod(nodeName=7), "default"))
    assert error.code == 400
    assert 'Pod in version "v1" cannot be handled as a Pod' in error.message


# ---- deleting ----


def test_an_unbound_pod_goes_at_once_and_a_bound_one_when_its_kubelet_says_so(embedded: Embedded) -> None:
    embedded.pod("unbound")
    embedded.client.delete(PODS, "unbound", "default")
    assert refused(lambda: embedded.client.get(PODS, "unbound", "default")).code == 404
    embedded.pod("bound", node="n1", terminationGracePeriodSeconds=45)
    embedded.client.delete(PODS, "bound", "default")
    meta = embedded.client.get(PODS, "bound", "default")["metadata"]
    assert (meta["deletionTimestamp"], meta["deletionGracePeriodSeconds"]) == ("2027-01-15T08:00:45Z", 45)
    assert meta["generation"] == 2
    embedded.client.delete(PODS, "bound", "default", grace_s=0)
    assert refused(lambda: embedded.client.get(PODS, "bound", "default")).code == 404


def test_the_time_to_stop_can_be_made_shorter_only(embedded: Embedded) -> None:
    embedded.pod("bound", node="n1")
    embedded.client.delete(PODS, "bound", "default")
    embedded.now += 3

    def deadline(grace_s: int | None) -> tuple[str, int]:
        embedded.client.delete(PODS, "bound", "default", grace_s=grace_s)
        meta = embedded.client.get(PODS, "bound", "default")["metadata"]
        return meta["deletionTimestamp"][-6:], meta["deletionGracePeriodSeconds"]

    assert deadline(60) == ("00:30Z", 30)
    assert deadline(5) == ("00:05Z", 5)
    assert deadline(None) == ("00:05Z", 5)


def test_a_pod_that_has_run_to_its_end_goes_at_once(embedded: Embedded) -> None:
    embedded.pod("done", node="n1")
    embedded.client.patch(PODS, "done", {"status": {"phase": "Succeeded"}}, "default", subresource="status")
    embedded.client.delete(PODS, "done", "default")
    assert refused(lambda: embedded.client.get(PODS, "done", "default")).code == 404


def test_finalizers_keep_an_object_until_the_last_is_taken_out(embedded: Embedded) -> None:
    body = config()
    body["metadata"]["finalizers"] = ["a/one", "b/two"]
    embedded.client.create(CONFIG_MAPS, body, "default")
    embedded.client.delete(CONFIG_MAPS, "config", "default")
    meta = embedded.client.get(CONFIG_MAPS, "config", "default")["metadata"]
    assert (meta["deletionGracePeriodSeconds"], "deletionTimestamp" in meta) == (0, True)
    more = {"metadata": {"finalizers": ["a/one", "c/three"]}}
    error = refused(lambda: embedded.client.patch(CONFIG_MAPS, "config", more, "default"))
    assert 'found new finalizers []string{"c/three"}' in error.message
    embedded.client.patch(CONFIG_MAPS, "config", {"metadata": {"finalizers": ["b/two"]}}, "default")
    assert embedded.client.get(CONFIG_MAPS, "config", "default")["metadata"]["finalizers"] == ["b/two"]
    embedded.client.patch(CONFIG_MAPS, "config", {"metadata": {"finalizers": None}}, "default")
    assert refused(lambda: embedded.client.get(CONFIG_MAPS, "config", "default")).code == 404


@pytest.mark.parametrize(("policy", "finalizers"), [("Foreground", ["foregroundDeletion"]), ("Orphan", ["orphan"])])
def test_what_is_to_become_of_dependents_is_recorded_for_the_garbage_collector(
    embedded: Embedded, policy: str, finalizers: list[str]
) -> None:
    embedded.client.create(DEPLOYMENTS, deployment(), "default")
    embedded.client.delete(DEPLOYMENTS, "web", "default", propagation=policy)
    meta = embedded.client.get(DEPLOYMENTS, "web", "default")["metadata"]
    assert (meta["finalizers"], "deletionTimestamp" in meta) == (finalizers, True)


def test_deleting_in_the_background_needs_no_finalizer(embedded: Embedded) -> None:
    embedded.client.create(DEPLOYMENTS, deployment(), "default")
    answer = embedded.json("DELETE", DEPLOYMENTS.path("default", "web"), {"propagationPolicy": "Background"})
    assert (answer["kind"], answer["status"], answer["details"]["name"]) == ("Status", "Success", "web")


def test_a_namespace_ends_when_its_controller_lets_go_of_it(embedded: Embedded) -> None:
    embedded.client.create(NAMESPACES, {"metadata": {"name": "team"}})
    embedded.client.delete(NAMESPACES, "team")
    namespace = embedded.client.get(NAMESPACES, "team")
    assert namespace["status"]["phase"] == "Terminating"
    error = refused(lambda: embedded.client.create(CONFIG_MAPS, config(), "team"))
    assert (error.code, "because it is being terminated" in error.message) == (403, True)
    embedded.client.replace(NAMESPACES, namespace | {"spec": {"finalizers": []}}, subresource="finalize")
    assert refused(lambda: embedded.client.get(NAMESPACES, "team")).code == 404
    assert refused(lambda: embedded.client.delete(NAMESPACES, "default")).code == 403


def test_a_collection_is_deleted_by_selector(embedded: Embedded) -> None:
    for i in range(4):
        embedded.client.create(CONFIG_MAPS, config(f"c{i}", {"odd": str(i % 2)}), "default")
    gone = embedded.json("DELETE", CONFIG_MAPS.path("default"), labelSelector="odd=1")
    assert [one["metadata"]["name"] for one in gone["items"]] == ["c1", "c3"]
    assert [one["metadata"]["name"] for one in embedded.client.list(CONFIG_MAPS, "default")] == ["c0", "c2"]


def test_events_are_forgotten_after_an_hour(embedded: Embedded) -> None:
    def event(name: str) -> None:
        about = {"kind": "Pod", "name": "x", "namespace": "default"}
        body = {"metadata": {"name": name}, "involvedObject": about, "reason": "Seen", "type": "Normal"}
        embedded.client.create(EVENTS, body, "default")

    event("old")
    embedded.now += EVENT_LIFE_S / 2
    event("middle")
    embedded.now += EVENT_LIFE_S / 2
    event("new")
    assert [one["metadata"]["name"] for one in embedded.client.list(EVENTS, "default")] == ["middle", "new"]


# ---- lists ----


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("tier=gold", ["a"]),
        ("tier==gold", ["a"]),
        ("tier!=gold", ["b", "c"]),
        ("tier", ["a", "b"]),
        ("!tier", ["c"]),
        ("tier in (gold, silver)", ["a", "b"]),
        ("tier notin (gold)", ["b", "c"]),
        ("tier in (gold,silver),size>2", ["b"]),
        ("size<3", ["a"]),
        ("example.com/x=", ["c"]),
    ],
)
def test_label_selectors(embedded: Embedded, selector: str, names: list[str]) -> None:
    labels = {
        "a": {"tier": "gold", "size": "2"},
        "b": {"tier": "silver", "size": "10"},
        "c": {"size": "many", "example.com/x": ""},
    }
    for name, given in labels.items():
        embedded.client.create(CONFIG_MAPS, config(name, given), "default")
    assert [one["metadata"]["name"] for one in embedded.client.list(CONFIG_MAPS, label_selector=selector)] == names


@pytest.mark.parametrize("selector", ["a in (b", "a b", "=x", "a=b,,c", "a=b;c"])
def test_a_label_selector_that_cannot_be_read_is_refused(embedded: Embedded, selector: str) -> None:
    error = refused(lambda: embedded.client.list(CONFIG_MAPS, label_selector=selector))
    assert (error.code, "unable to parse requirement" in error.message) == (400, True)


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("spec.nodeName=n1", ["a"]),
        ("spec.nodeName=", ["b", "c"]),
        ("spec.nodeName!=n1", ["b", "c"]),
        ("status.phase=Pending,metadata.name!=b", ["a", "c"]),
        ("spec.schedulerName=tonnage", ["c"]),
        ("metadata.namespace=default,metadata.name=b", ["b"]),
        ("metadata.name=none", []),
    ],
)
def test_field_selectors_of_pods(embedded: Embedded, selector: str, names: list[str]) -> None:
    embedded.pod("a", node="n1")
    embedded.pod("b")
    embedded.pod("c", schedulerName="tonnage")
    for namespace in ("", "default"):
        found = embedded.client.list(PODS, namespace, field_selector=selector)
        assert [one["metadata"]["name"] for one in found] == names


def test_field_selectors_of_nodes_and_events(embedded: Embedded) -> None:
    embedded.client.create(NODES, {"metadata": {"name": "open"}})
    embedded.client.create(NODES, {"metadata": {"name": "closed"}, "spec": {"unschedulable": True}})
    for value, name in (("true", "closed"), ("false", "open")):
        found = embedded.client.list(NODES, field_selector=f"spec.unschedulable={value}")
        assert [one["metadata"]["name"] for one in found] == [name]
    about = {"kind": "Pod", "name": "x", "namespace": "default", "uid": "u"}
    body = {"metadata": {"name": "e"}, "involvedObject": about, "reason": "Seen", "type": "Warning"}
    embedded.client.create(EVENTS, body, "default")
    selector = "involvedObject.name=x,involvedObject.uid=u,involvedObject.kind=Pod,reason=Seen,type=Warning"
    assert len(embedded.client.list(EVENTS, field_selector=selector)) == 1
    error = refused(lambda: embedded.client.list(NODES, field_selector="spec.nodeName=x"))
    assert error.message == "field label not supported: spec.nodeName"


def test_pages_show_one_state_though_it_changes_between_them(embedded: Embedded) -> None:
    for i in range(5):
        embedded.client.create(CONFIG_MAPS, config(f"c{i}"), "default")
    first = embedded.client.page(CONFIG_MAPS, "default", limit=2)
    assert first.metadata.remaining_item_count == 3
    embedded.client.delete(CONFIG_MAPS, "c3", "default")
    embedded.client.create(CONFIG_MAPS, config("c2a"), "default")
    names, token = [json.loads(bytes(item))["metadata"]["name"] for item in first.items or ()], first.metadata.continue_
    while token:
        page = embedded.client.page(CONFIG_MAPS, "default", limit=2, continue_=token)
        assert page.metadata.resource_version == first.metadata.resource_version
        names += [json.loads(bytes(item))["metadata"]["name"] for item in page.items or ()]
        token = page.metadata.continue_
    assert names == ["c0", "c1", "c2", "c3", "c4"]


def test_a_page_of_a_compacted_state_is_refused_as_expired(embedded: Embedded) -> None:
    for i in range(3):
        embedded.client.create(CONFIG_MAPS, config(f"c{i}"), "default")
    token = embedded.client.page(CONFIG_MAPS, "default", limit=1).metadata.continue_
    embedded.client.delete(CONFIG_MAPS, "c2", "default")
    embedded.api.compact()
    error = refused(lambda: embedded.client.page(CONFIG_MAPS, "default", limit=1, continue_=token))
    assert (error.code, error.reason) == (410, "Expired")


def test_a_list_at_a_version_is_exact_or_at_least_as_new_as_asked(embedded: Embedded) -> None:
    made = embedded.client.create(CONFIG_MAPS, config("a"), "default")
    then = made["metadata"]["resourceVersion"]
    embedded.client.create(CONFIG_MAPS, config("b"), "default")
    path = CONFIG_MAPS.path("default")

    def names(**query: str) -> list[str]:
        return [one["metadata"]["name"] for one in embedded.json("GET", path, **query)["items"]]

    assert names(resourceVersion=then, resourceVersionMatch="Exact") == ["a"]
    assert names(resourceVersion=then, resourceVersionMatch="NotOlderThan") == ["a", "b"]
    assert names(resourceVersion="0") == ["a", "b"]
    future = json.loads(embedded.call("GET", path, resourceVersion="99999").body)
    assert (future["code"], future["details"]["causes"][0]["reason"]) == (504, "ResourceVersionTooLarge")


# ---- forms and paths ----


def test_kubectl_gets_tables_and_others_objects(embedded: Embedded) -> None:
    embedded.pod("web")
    path = PODS.path("default")
    table = embedded.json("GET", path, accept=TABLE)
    assert (table["kind"], table["rows"][0]["cells"][0]) == ("Table", "web")
    assert table["metadata"]["resourceVersion"] == str(embedded.api.store.version)
    assert embedded.json("GET", PODS.path("default", "web"), accept=TABLE)["rows"][0]["cells"][0] == "web"
    metadata = embedded.json("GET", path, accept="application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
    assert (metadata["kind"], set(metadata["items"][0])) == (
        "PartialObjectMetadataList",
        {"kind", "apiVersion", "metadata"},
    )
    assert embedded.json("GET", path, accept="*/*")["kind"] == "PodList"
    protobuf_first = "application/vnd.kubernetes.protobuf,application/json"
    assert embedded.json("GET", path, accept=protobuf_first)["kind"] == "PodList"
    assert embedded.call("GET", path, accept="application/vnd.kubernetes.protobuf").status == 406


@pytest.mark.parametrize(
    ("method", "path", "code", "part"),
    [
        ("GET", "/api/v1/namespaces/default/pods/x/log", 405, "logs of containers are not supported here"),
        ("POST", "/api/v1/namespaces/default/pods/x/exec", 405, "kubectl exec is not supported here"),
        ("GET", "/api/v1/namespaces/default/secrets", 404, "secrets are not supported here"),
        ("GET", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", 405, "admission webhooks are"),
        ("GET", "/apis/metrics.k8s.io/v1beta1/nodes", 405, "kubectl top"),
        (
            "POST",
            "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers",
            405,
            "autoscaling/v1 (as older kubectl autoscale writes; use autoscaling/v2) is not supported here",
        ),
        ("GET", "/api/v1/watch/pods", 405, "old watch paths"),
        ("GET", "/api/v1/frogs", 404, "the server could not find the requested resource"),
        ("GET", "/nothing", 404, "the server could not find the requested resource"),
        ("GET", "/api/v1/pods/x", 404, "the server could not find the requested resource"),
        ("GET", "/api/v1/namespaces/default/nodes", 404, "the server could not find the requested resource"),
        ("POST", "/api/v1/pods", 405, "the server does not allow this method on the requested resource"),
        ("DELETE", "/api/v1/pods", 405, "the server does not allow this method on the requested resource"),
        ("PUT", "/api/v1/namespaces/default/pods", 405, "the server does not allow this method"),
        ("GET", "/api/v1/namespaces/default/pods/x/binding", 405, "the server does not allow this method"),
    ],
)
def test_what_is_not_served_is_refused_by_name(
    embedded: Embedded, method: str, path: str, code: int, part: str
) -> None:
    answer = json.loads(embedded.call(method, path, {}).body)
    assert (answer["kind"], answer["code"], part in answer["message"]) == ("Status", code, True), answer


@pytest.mark.parametrize("body", [b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b"k8s\x00nonsense"])
@pytest.mark.parametrize("kind", ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"])
def test_a_body_that_cannot_be_read_is_a_bad_request(embedded: Embedded, body: bytes, kind: str) -> None:
    assert embedded.call("POST", PODS.path("default"), body, kind=kind).status == 400


def test_yaml_is_understood_too(embedded: Embedded) -> None:
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: written}\ndata: {a: '1'}\n"
    assert embedded.call("POST", CONFIG_MAPS.path("default"), text, kind="application/yaml").status == 201
    assert embedded.client.get(CONFIG_MAPS, "written", "default")["data"] == {"a": "1"}


# ---- subresources ----


def test_scale_sets_the_replicas_and_nothing_else(embedded: Embedded) -> None:
    embedded.client.create(DEPLOYMENTS, deployment(), "default")
    path = DEPLOYMENTS.path("default", "web", "scale")
    scale = embedded.json("GET", path)
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert (scale["spec"], scale["status"]) == ({"replicas": 2}, {"replicas": 0, "selector": "app=web"})
    scale["spec"]["replicas"] = 5
    embedded.json("PUT", path, scale)
    assert json.loads(embedded.call("PUT", path, scale).body)["reason"] == "Conflict", "an older version"
    found = embedded.client.get(DEPLOYMENTS, "web", "default")
    assert (found["spec"]["replicas"], found["metadata"]["generation"]) == (5, 2)
    for kind in (MERGE_PATCH, STRATEGIC_PATCH):
        embedded.json("PATCH", path, {"spec": {"replicas": 0}}, kind=kind)
        assert embedded.client.get(DEPLOYMENTS, "web", "default")["spec"]["replicas"] == 0
    embedded.json("PATCH", path, [{"op": "add", "path": "/spec/replicas", "value": 3}], kind=JSON_PATCH)
    assert embedded.client.get(DEPLOYMENTS, "web", "default")["spec"]["replicas"] == 3
    negative = json.loads(embedded.call("PATCH", path, {"spec": {"replicas": -1}}, kind=MERGE_PATCH).body)
    assert negative["message"] == (
        'Scale.autoscaling "web" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0'
    )


def test_only_pods_can_be_bound_and_only_once(embedded: Embedded) -> None:
    made = embedded.pod("web")
    uid = made["metadata"]["uid"]
    error = refused(lambda: embedded.client.bind("web", "default", "another", "n1"))
    assert (error.code, error.reason) == (409, "Conflict")
    embedded.client.bind("web", "default", uid, "n1")
    bound = embedded.client.get(PODS, "web", "default")
    assert bound["spec"]["nodeName"] == "n1"
    (condition,) = bound["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["lastTransitionTime"]) == (
        "PodScheduled",
        "True",
        "2027-01-15T08:00:00Z",
    )
    error = refused(lambda: embedded.client.bind("web", "default", uid, "n2"))
    assert (error.code, error.message) == (
        409,
        'Operation cannot be fulfilled on pods/binding "web": pod web is already assigned to node "n1"',
    )


@pytest.mark.parametrize(
    ("prepare", "why"),
    [
        ({"schedulingGates": [{"name": "wait"}]}, "pod web has non-empty .spec.schedulingGates"),
        ({"finalizers": ["a/b"]}, "pod web is being deleted, cannot be assigned to a host"),
    ],
)
def test_a_pod_that_may_not_run_is_not_bound(embedded: Embedded, prepare: dict[str, Any], why: str) -> None:
    made = embedded.pod("web", **prepare)
    if "finalizers" in prepare:
        embedded.client.delete(PODS, "web", "default")
    error = refused(lambda: embedded.client.bind("web", "default", made["metadata"]["uid"], "n1"))
    assert (error.code, why in error.message) == (409, True)
    assert refused(lambda: embedded.client.bind("none", "default", "", "n1")).code == 404


def test_a_node_pools_status_leaves_its_metadata_alone(embedded: Embedded) -> None:
    spec = {
        "template": {
            "spec": {
                "requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}],
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            }
        }
    }
    made = embedded.client.create(NODE_POOLS, {"metadata": {"name": "gpus"}, "spec": spec})
    made["metadata"]["labels"] = {"a": "b"}
    made["status"] = {"nodes": 3}
    changed = embedded.client.replace(NODE_POOLS, made, subresource="status")
    assert (changed["status"]["nodes"], "labels" in changed["metadata"], changed["metadata"]["generation"]) == (
        3,
        False,
        1,
    )
    error = refused(lambda: embedded.client.patch(NODE_POOLS, "gpus", {}, content_type=STRATEGIC_PATCH))
    assert error.code == 415


ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"


def labelled_node(embedded: Embedded, name: str, **labels: str) -> None:
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"rack": "7", **labels}}}
    embedded.client.create(NODES, body)


@pytest.mark.parametrize(
    ("node", "found"),
    [
        ({ZONE: "a", REGION: "r"}, {"app": "web", ZONE: "a", REGION: "r"}),
        ({ZONE: "a"}, {"app": "web", ZONE: "a"}),
        ({}, {"app": "web"}),
        (None, {"app": "web"}),
    ],
    ids=["zone and region", "zone", "none", "no such node"],
)
@pytest.mark.parametrize("bound", [True, False], ids=["bound", "made with a node"])
def test_a_pod_gets_the_zone_and_region_of_its_node(
    embedded: Embedded, node: dict[str, str] | None, found: dict[str, str], bound: bool
) -> None:
    if node is not None:
        labelled_node(embedded, "n1", **node)
    made = embedded.pod("web", node="n1") if bound else embedded.pod("web", nodeName="n1")
    assert made["metadata"]["labels"] == found
    assert made["spec"]["nodeName"] == "n1"


def test_the_zone_of_its_node_replaces_what_a_pod_says_of_itself(embedded: Embedded) -> None:
    labelled_node(embedded, "n1", **{ZONE: "a"})
    body = pod("web", labels={ZONE: "b", "app": "web"})
    made = embedded.client.create(PODS, body, "default")
    assert made["metadata"]["labels"][ZONE] == "b", "it has no node yet"
    embedded.client.bind("web", "default", made["metadata"]["uid"], "n1")
    assert embedded.client.get(PODS, "web", "default")["metadata"]["labels"] == {ZONE: "a", "app": "web"}


def test_metrics_say_what_serves_the_api_and_what_it_holds(embedded: Embedded) -> None:
    embedded.pod("one")
    embedded.pod("two")
    answer = embedded.call("GET", "/metrics", accept="*/*")
    text = answer.body.decode()
    assert answer.headers["content-type"].startswith("text/plain")
    assert "# this is Tonnage's embedded API" in text
    assert 'kubernetes_build_info{compiler="python",git_version="v1.36.3+tonnage"' in text
    assert 'apiserver_resource_objects{group="",resource="pods"} 2.0' in text
    assert 'apiserver_resource_objects{group="apps",resource="deployments"} 0.0' in text
    assert "/metrics" in embedded.json("GET", "/")["paths"]


@pytest.mark.parametrize("path", ["/api/v1/replicationcontrollers", "/api/v1/namespaces/x/replicationcontrollers"])
def test_of_replication_controllers_there_are_never_any(embedded: Embedded, path: str) -> None:
    found = embedded.json("GET", path)
    assert (found["kind"], found["items"]) == ("ReplicationControllerList", [])
    assert found["metadata"]["resourceVersion"] == str(embedded.api.store.version)
    refusal = embedded.call("POST", path, {"kind": "ReplicationController", "metadata": {"name": "a"}})
    assert (refusal.status, b"not supported here" in refusal.body) == (404, True)
