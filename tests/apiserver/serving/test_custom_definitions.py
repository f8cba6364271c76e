"""Kinds that CustomResourceDefinitions add to the embedded API."""

from __future__ import annotations

import subprocess
from pathlib import Path
from shutil import which
from typing import Any

import pytest

import yaml_text
from apiserver.serving.embedded import Embedded
from tonnage.apiserver import kubeconfig
from tonnage.apiserver.api import Api
from tonnage.apiserver.controllers.loop import ControllerManager
from tonnage.apiserver.http import Server
from tonnage.hollow.definitions import crd
from tonnage.kube.resources import CRDS, JOBS, PODS, PrinterColumn, Resource
from tonnage.kube.transport import ApiError

TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
QUEUES = Resource(
    "example.dev",
    "v1",
    "Job",  # as batch/v1 has one
    "jobs",
    "job",
    True,
    ("xj",),
    (),
    ("status",),
    custom=True,
    open=True,
    columns=(
        PrinterColumn("Phase", "string", "status.conditions[last].type"),
        PrinterColumn("Ready", "string", "status.conditions[Ready].status"),
        PrinterColumn("Depth", "integer", "spec.depth"),
    ),
)


@pytest.fixture
def embedded() -> Embedded:
    return Embedded()


def one(name: str = "a", **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "example.dev/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def test_a_kind_is_served_from_its_definition_until_that_is_deleted(embedded: Embedded) -> None:
    client = embedded.client
    with pytest.raises(ApiError, match="could not find the requested resource"):
        client.create(QUEUES, one(), "default")
    made = client.create(CRDS, crd(QUEUES))
    conditions = {c["type"]: c["status"] for c in made["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}
    client.create(QUEUES, one(depth=3, anything={"goes": True}), "default")
    assert client.get(QUEUES, "a", "default")["spec"] == {"depth": 3, "anything": {"goes": True}}
    assert client.list(JOBS) == []
    watch = embedded.watch(QUEUES)
    client.delete(CRDS, "jobs.example.dev")
    assert embedded.call("GET", QUEUES.path("default")).status == 404
    assert embedded.json("GET", "/apis/batch/v1")["resources"]
    watch.close()
    client.create(CRDS, crd(QUEUES))
    assert client.list(QUEUES) == []


def test_discovery_and_openapi_tell_of_it(embedded: Embedded) -> None:
    before = {group["name"] for group in embedded.json("GET", "/apis")["groups"]}
    embedded.client.create(CRDS, crd(QUEUES))
    after = {group["name"] for group in embedded.json("GET", "/apis")["groups"]}
    assert after - before == {"example.dev"}
    (listed, status) = embedded.json("GET", "/apis/example.dev/v1")["resources"]
    assert (listed["name"], listed["kind"], listed["shortNames"], status["name"]) == (
        "jobs",
        "Job",
        ["xj"],
        "jobs/status",
    )
    schemas = embedded.json("GET", "/openapi/v3/apis/example.dev/v1")["components"]["schemas"]
    assert schemas["dev.example.v1.Job"]["x-kubernetes-preserve-unknown-fields"] is True
    assert "apis/example.dev/v1" in embedded.json("GET", "/openapi/v3")["paths"]


def test_its_columns_are_those_of_the_definition(embedded: Embedded) -> None:
    client = embedded.client
    client.create(CRDS, crd(QUEUES))
    client.create(QUEUES, one(depth=3), "default")
    conditions = [{"type": "Ready", "status": "False"}, {"type": "Running", "status": "True"}]
    client.patch(QUEUES, "a", {"status": {"conditions": conditions}}, "default", subresource="status")
    table = embedded.json("GET", QUEUES.path("default"), accept=TABLE)
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Phase", "Ready", "Depth"]
    assert table["rows"][0]["cells"] == ["a", "Running", "False", 3]


def test_the_status_is_written_apart_and_the_generation_counts_the_rest(embedded: Embedded) -> None:
    client = embedded.client
    client.create(CRDS, crd(QUEUES))
    made = client.create(QUEUES, {**one(), "status": {"phase": "Done"}}, "default")
    assert ("status" in made, made["metadata"]["generation"]) == (False, 1)
    client.patch(QUEUES, "a", {"status": {"phase": "Done"}}, "default", subresource="status")
    changed = client.patch(QUEUES, "a", {"spec": {"depth": 1}, "status": {"phase": "New"}}, "default")
    assert (changed["status"]["phase"], changed["metadata"]["generation"]) == ("Done", 2)


def test_pods_go_with_their_owner_of_a_defined_kind(embedded: Embedded) -> None:
    client = embedded.client
    store = embedded.api.store
    managers = ControllerManager(client, lambda notify: store.subscribe(notify=notify), lambda: embedded.now)
    client.create(CRDS, crd(QUEUES))
    owner = client.create(QUEUES, one(), "default")
    reference = {"apiVersion": "example.dev/v1", "kind": "Job", "name": "a", "uid": owner["metadata"]["uid"]}
    pod = {"metadata": {"name": "p", "ownerReferences": [reference]}, "spec": {"containers": [{"name": "c"}]}}
    pod["spec"]["containers"][0]["image"] = "image"  # type: ignore[index]
    client.create(PODS, pod, "default")
    managers.step()
    assert [p["metadata"]["name"] for p in client.list(PODS)] == ["p"]
    client.delete(QUEUES, "a", "default")
    managers.step()
    assert client.list(PODS) == []
    managers.close()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"group": ""}, "spec.group"),
        ({"scope": "Somewhere"}, "spec.scope"),
        ({"group": "other.dev"}, "metadata.name"),
        ({"versions": [{"name": "v1", "served": True, "storage": False}]}, "spec.versions"),
        ({"versions": [{"name": "v1", "served": False, "storage": True}]}, "spec.versions"),
    ],
)
def test_a_definition_that_cannot_be_is_refused(embedded: Embedded, change: dict[str, Any], field: str) -> None:
    body = crd(QUEUES)
    body["spec"] |= change
    with pytest.raises(ApiError) as caught:
        embedded.client.create(CRDS, body)
    assert (caught.value.code, f"invalid: {field}: " in caught.value.message) == (422, True), caught.value.message


def test_columns_may_change_and_names_may_not(embedded: Embedded) -> None:
    client = embedded.client
    client.create(CRDS, crd(QUEUES))
    client.create(QUEUES, one(depth=3), "default")
    versions = crd(QUEUES)["spec"]["versions"]
    versions[0]["additionalPrinterColumns"] = []
    client.patch(CRDS, "jobs.example.dev", {"spec": {"versions": versions}})
    table = embedded.json("GET", QUEUES.path("default"), accept=TABLE)
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Age"]
    with pytest.raises(ApiError, match="stay as they are"):
        client.patch(CRDS, "jobs.example.dev", {"spec": {"scope": "Cluster"}})


def test_a_definition_of_a_kind_that_is_built_in_changes_nothing(embedded: Embedded) -> None:
    body = crd(next(r for r in embedded.api.writes.kinds.served if r.kind == "NodePool"))
    embedded.client.create(CRDS, body)
    described = embedded.json("GET", "/openapi/v3/apis/karpenter.sh/v1")["components"]["schemas"]
    assert "properties" in described["sh.karpenter.v1.NodePool"]["properties"]["spec"]
    embedded.client.delete(CRDS, body["metadata"]["name"])
    assert embedded.json("GET", "/apis/karpenter.sh/v1/nodepools")["items"] == []


@pytest.mark.peer
@pytest.mark.skipif(which("kubectl") is None, reason="kubectl is not installed")
def test_kubectl_defines_applies_and_gets(tmp_path: Path) -> None:
    api = Api()
    with Server(api) as server:
        config = kubeconfig.write(tmp_path / "config", server.url)

        def kubectl(*words: str, stdin: str = "") -> str:
            command = ["kubectl", "--kubeconfig", str(config), "--cache-dir", str(tmp_path / "cache"), *words]
            done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)
            assert done.returncode == 0, done.stderr
            return done.stdout

        kubectl("apply", "-f", "-", stdin=yaml_text.dump(crd(QUEUES)))
        kubectl("wait", "--for=condition=Established", "crd/jobs.example.dev", "--timeout=5s")
        assert kubectl("apply", "-f", "-", stdin=yaml_text.dump(one(depth=2))) == "job.example.dev/a created\n"
        assert kubectl("apply", "-f", "-", stdin=yaml_text.dump(one(depth=4))) == "job.example.dev/a configured\n"
        assert kubectl("get", "xj", "--no-headers").split() == ["a", "4"]
        assert kubectl("create", "job", "real", "--image=x") == "job.batch/real created\n"
        assert kubectl("get", "jobs.batch", "--no-headers").split()[:3] == ["real", "Running", "0/1"]
        kubectl("delete", "crd", "jobs.example.dev")
