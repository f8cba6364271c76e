"""What a real kube-apiserver v1.36.3 answers where the API of others has surprised people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from embedded import Embedded

from tonnage.errors import InputError
from tonnage.kube.resources import DEPLOYMENTS, PODS
from tonnage.objects import load
from tonnage.objects.api.canonical import canonical_quantity


def pod(**container: Any) -> dict[str, Any]:
    made = {"name": "main", "image": "x", **container}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"containers": [made]},
    }


@pytest.mark.report(202)
@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("100u", "1m"),
        ("100n", "1m"),
        ("1500u", "2m"),
        ("0.0001", "1m"),
        ("999999u", "1"),
        ("1.0001", "1001m"),
        ("1e-4", "1e-3"),
        ("1500m", "1500m"),
        ("0.1Gi", "107374182400m"),
        ("+5", "+5"),
        ("100000000000Ei", "9223372036854775807"),
    ],
)
def test_resources_are_stored_in_thousandths_rounded_up(written: str, stored: str) -> None:
    made = Embedded().client.create(PODS, pod(resources={"requests": {"memory": written}}), "default")
    assert made["spec"]["containers"][0]["resources"]["requests"]["memory"] == stored
    assert canonical_quantity(written, thousandths=True) == stored


@pytest.mark.report(203)
@pytest.mark.parametrize(
    ("container", "said"),
    [
        (
            {"ports": [{"containerPort": 8000}, {"containerPort": 8000, "protocol": "TCP"}]},
            '.spec.containers[name="main"].ports: duplicate entries for key [containerPort=8000,protocol="TCP"]',
        ),
        (
            {"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]},
            '.spec.containers[name="main"].env: duplicate entries for key [name="A"]',
        ),
    ],
)
def test_server_side_apply_refuses_an_entry_that_stands_twice(container: dict[str, Any], said: str) -> None:
    reply = Embedded().apply(pod(**container), "me", resource=PODS)
    assert reply.status == 500
    wanted = f"failed to create typed patch object (default/web; /v1, Kind=Pod): {said}"
    assert json.loads(reply.body)["message"] == wanted


@pytest.mark.report(203)
@pytest.mark.parametrize(
    ("containers", "said"),
    [
        (
            [{"env": ["A", "A"], "ports": [1, 1]}],
            [
                '.metadata.finalizers: duplicate entries for key [="a.io/b"]',
                '.spec.containers[name="a"].env: duplicate entries for key [name="A"]',
                '.spec.containers[name="a"].ports: duplicate entries for key [containerPort=1,protocol="TCP"]',
            ],
        ),
        (
            [{"env": ["A", "B", "A", "A", "B"]}],
            [
                '.metadata.finalizers: duplicate entries for key [="a.io/b"]',
                '.spec.containers[name="a"].env: duplicate entries for key [name="A"]',
                '.spec.containers[name="a"].env: duplicate entries for key [name="A"]',
                '.spec.containers[name="a"].env: duplicate entries for key [name="B"]',
            ],
        ),
        (
            [{"env": ["A", "A"]}, {"env": ["B", "B"]}],
            [
                '.metadata.finalizers: duplicate entries for key [="a.io/b"]',
                '.spec.containers[name="a"].env: duplicate entries for key [name="A"]',
                '.spec.containers: duplicate entries for key [name="a"]',
                '.spec.containers[name="a"].env: duplicate entries for key [name="B"]',
            ],
        ),
    ],
    ids=["two lists and a set", "some of them more than once", "in an entry that stands twice itself"],
)
def test_server_side_apply_names_all_entries_that_stand_twice(
    containers: list[dict[str, Any]], said: list[str]
) -> None:
    """As kube-apiserver v1.36.3 answers."""
    made = [
        {"name": "a", "image": "x", "env": [{"name": name} for name in one.get("env", ())]}
        | {"ports": [{"containerPort": port} for port in one.get("ports", ())]}
        for one in containers
    ]
    twice = pod()
    twice["spec"]["containers"] = made
    twice["metadata"]["finalizers"] = ["a.io/b", "a.io/b"]
    reply = Embedded().apply(twice, "me", resource=PODS)
    assert json.loads(reply.body)["message"].split("Kind=Pod): ")[1] == "\n  ".join(["errors:", *said])


@pytest.mark.report(203)
def test_server_side_apply_refuses_a_member_of_a_set_that_stands_twice() -> None:
    twice = pod()
    twice["metadata"]["finalizers"] = ["a.io/b", "a.io/b"]
    reply = Embedded().apply(twice, "me", resource=PODS)
    assert json.loads(reply.body)["message"].endswith('.metadata.finalizers: duplicate entries for key [="a.io/b"]')


@pytest.mark.parametrize(
    ("field", "items", "key"),
    [
        ("imagePullSecrets", [{}, {}], 'name=""'),
        ("imagePullSecrets", [{}, {"name": ""}], 'name=""'),
        ("imagePullSecrets", [{"name": "a"}, {"name": "a"}], 'name="a"'),
        ("hostAliases", [{}, {}], 'ip=""'),
        ("volumes", [{}, {}], 'name=""'),
        ("topologySpreadConstraints", [{}, {}], 'topologyKey="",whenUnsatisfiable=""'),
        ("schedulingGates", [{}, {}], 'name=""'),
        ("imagePullSecrets", [{}, {"name": "a"}], ""),
    ],
)
def test_server_side_apply_tells_items_without_their_key_by_its_default(
    field: str, items: list[dict[str, str]], key: str
) -> None:
    wanted = pod()
    wanted["spec"][field] = items
    reply = Embedded().apply(wanted, "me", resource=PODS)
    assert reply.status == (500 if key else 201)
    if key:
        assert json.loads(reply.body)["message"].endswith(f".spec.{field}: duplicate entries for key [{key}]")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_a_write_that_is_refused_warns_of_unknown_fields_all_the_same(method: str) -> None:
    embedded, path = Embedded(), PODS.path("default")
    if method != "POST":
        embedded.json("POST", path, pod())
        path = PODS.path("default", pod()["metadata"]["name"])
    wrong = pod()
    wrong["spec"] |= {"foo": 1, "restartPolicy": "Sometimes"}
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    reply = embedded.call(method, path, wrong, kind=kind)
    assert (reply.status, reply.headers["warning"]) == (422, '299 - "unknown field \\"spec.foo\\""')
    assert "warning" not in embedded.call(method, path, wrong, kind=kind, fieldValidation="Ignore").headers
    strict = embedded.call(method, path, wrong, kind=kind, fieldValidation="Strict")
    assert "warning" not in strict.headers
    assert strict.status >= 400


@pytest.mark.report(209)
@pytest.mark.parametrize(
    ("container", "said"),
    [
        (
            {"resources": {"requests": {"memory": "3500m"}}},
            'spec.containers[0].resources.requests[memory]: fractional byte value "3500m" is invalid, must be an integer',
        ),
        (
            {"resources": {"limits": {"memory": "0.1Gi"}}},
            "spec.containers[0].resources.limits[memory]: fractional byte value "
            '"107374182400m" is invalid, must be an integer',
        ),
        (
            {"ports": [{"containerPort": 80}, {"containerPort": 80}]},
            "spec.containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]",
        ),
        (
            {"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]},
            'spec.containers[0].env[1]: hides previous definition of "A", which may be dropped when using apply',
        ),
        ({"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}]}, ""),
    ],
)
def test_what_is_taken_with_a_warning(container: dict[str, Any], said: str) -> None:
    reply = Embedded().call("POST", PODS.path("default"), pod(**container))
    assert reply.status == 201
    warning = reply.headers.get("warning", "").removeprefix('299 - "').removesuffix('"').replace('\\"', '"')
    assert said in warning
    assert bool(warning) == bool(said)


SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "matchLabelKeys": ["app"]}


@pytest.mark.report(204)
@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"topologySpreadConstraints": [SPREAD]}, "spec.topologySpreadConstraints[0].matchLabelKeys"),
        (
            {
                "affinity": {
                    "podAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": [
                            {
                                "topologyKey": "zone",
                                "labelSelector": {},
                                "matchLabelKeys": ["a"],
                                "mismatchLabelKeys": ["a"],
                            }
                        ]
                    }
                }
            },
            "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].matchLabelKeys[0]",
        ),
    ],
)
def test_keys_of_labels_need_a_selector_and_are_for_one_side(spec: dict[str, Any], field: str) -> None:
    made = pod()
    made["spec"] |= spec
    reply = Embedded().call("POST", PODS.path("default"), made)
    assert reply.status == 422
    assert [cause["field"] for cause in json.loads(reply.body)["details"]["causes"]] == [field]


@pytest.mark.report(204)
@pytest.mark.parametrize(
    ("selector", "keys", "at"),
    [
        ({"matchLabels": {"app": "x"}}, ["app"], 0),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, ["tier", "app"], 1),
        ({"matchLabels": {"tier": "x"}}, ["app"], None),
        ({"matchLabels": {"other": "x"}}, ["other"], None),
    ],
)
def test_a_key_of_labels_is_not_in_the_selector_too(
    selector: dict[str, Any], keys: list[str], at: int | None, tmp_path: Path
) -> None:
    made = pod()
    made["metadata"]["labels"] = {"app": "x", "tier": "y"}
    term = {"topologyKey": "zone", "labelSelector": selector, "matchLabelKeys": keys}
    made["spec"]["topologySpreadConstraints"] = [term | {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]
    made["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    file = tmp_path / "pod.yaml"
    file.write_text(json.dumps(made))
    reply = Embedded().call("POST", PODS.path("default"), made)
    if at is None:
        assert reply.status == 201
        load.read([file])
        return
    causes = json.loads(reply.body)["details"]["causes"]
    fields = [
        f"spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0][{at}]",
        f"spec.topologySpreadConstraints[0][{at}]",
    ]
    assert sorted(cause["field"] for cause in causes) == fields
    with pytest.raises(InputError, match=rf"Constraints\[0\].matchLabelKeys\[{at}\]: .*exists in both"):
        load.read([file])


@pytest.mark.report(204)
def test_of_a_template_the_same_is_taken_and_its_pods_are_refused(tmp_path: Path) -> None:
    spread = SPREAD | {"labelSelector": {"matchLabels": {"app": "x"}}}
    template = {"metadata": {"labels": {"app": "x"}}, "spec": pod()["spec"] | {"topologySpreadConstraints": [spread]}}
    spec = {"selector": {"matchLabels": {"app": "x"}}, "template": template}
    made = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}
    assert Embedded().call("POST", DEPLOYMENTS.path("default"), made).status == 201
    file = tmp_path / "deployment.yaml"
    file.write_text(json.dumps(made))
    (problem,) = load.read([file]).problems
    assert "each pod that is made" in problem.message and problem.where.field.endswith("matchLabelKeys[0]")
