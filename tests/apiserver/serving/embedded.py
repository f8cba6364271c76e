"""The embedded API in process, with a clock that tests move, and objects in few words."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from tonnage.apiserver.api import Api
from tonnage.apiserver.inprocess import InProcess
from tonnage.apiserver.request import ApiRequest
from tonnage.apiserver.watch import Watch
from tonnage.kube.resources import CONFIG_MAPS, DEPLOYMENTS, PODS, Resource
from tonnage.kube.transport import APPLY_PATCH, JSON, ApiError, Reply
from tonnage.kube.verbs import Client

START = 1_800_000_000.0
Json = dict[str, Any]


class Embedded:
    """``api`` and a ``client`` of it; ``now`` is the time that it sees."""

    def __init__(self, **options: Any) -> None:
        self.now = START
        self.api = Api(clock=lambda: self.now, random=Random(1), **options)
        self.client = Client(InProcess(self.api), "tests")

    def call(
        self, method: str, path: str, body: Any = None, *, kind: str = JSON, accept: str = JSON, **query: str
    ) -> Reply:
        """One request with everything that HTTP can say; ``query`` with ``_`` for names that Python keeps."""
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        asked = {name.rstrip("_"): value for name, value in query.items()}
        answer = self.api.handle(ApiRequest(method, path, asked, data, kind, accept, "tests/1"))
        assert isinstance(answer, Reply)
        return answer

    def json(
        self, method: str, path: str, body: Any = None, *, kind: str = JSON, accept: str = JSON, **query: str
    ) -> Json:
        """The answer to a request that must succeed."""
        answer = self.call(method, path, body, kind=kind, accept=accept, **query)
        assert answer.status < 400, answer.body
        found: Json = json.loads(answer.body)
        return found

    def watch(self, resource: Resource = CONFIG_MAPS, namespace: str = "default", **query: str) -> Watch:
        """A watch; ``query`` as in :meth:`call`."""
        answer = self.api.handle(ApiRequest("GET", resource.path(namespace), {**query, "watch": "true"}))
        assert isinstance(answer, Watch), answer
        return answer

    def apply(
        self, obj: Json, manager: str, force: bool = False, resource: Resource = DEPLOYMENTS, sub: str = ""
    ) -> Reply:
        """Server-side apply."""
        path = resource.path("default", obj["metadata"]["name"], sub)
        return self.call("PATCH", path, obj, kind=APPLY_PATCH, fieldManager=manager, force=str(force).lower())

    def pod(self, name: str = "pod", node: str = "", ready: bool = False, **fields: Any) -> Json:
        """Make a pod; bound to a node, and ready there, if asked for."""
        made = self.client.create(PODS, pod(name, **fields), "default")
        if node:
            self.client.bind(name, "default", made["metadata"]["uid"], node)
        if ready:
            status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            self.client.patch(PODS, name, {"status": status}, "default", subresource="status")
        return self.client.get(PODS, name, "default")


def events(watch: Watch, wait_s: float = 0.0) -> list[Json]:
    """What a watch has to say now."""
    return [json.loads(line) for line in watch.take(wait_s) or ()]


def told(found: list[Json]) -> list[tuple[str, str]]:
    """(type, name) of watch events."""
    return [(event["type"], event["object"]["metadata"].get("name", "")) for event in found]


def refused(call: Callable[[], object]) -> ApiError:
    """The error of a call that must be refused."""
    try:
        call()
    except ApiError as error:
        return error
    raise AssertionError("it was not refused")


def pod(name: str = "pod", *, labels: Mapping[str, str] | None = None, **fields: Any) -> Json:
    """A pod with one container; ``finalizers`` and ``ownerReferences`` go into its metadata, the rest into its spec."""
    meta: Json = {"name": name, "labels": dict(labels or {"app": "web"})}
    meta |= {key: fields.pop(key) for key in ("finalizers", "ownerReferences") if key in fields}
    spec = {"containers": [{"name": "main", "image": "registry.example/app:1"}], **fields}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def deployment(name: str = "web", **fields: Any) -> Json:
    """A Deployment of two pods with one container."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": pod()["spec"]}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template, **fields}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def config(name: str = "config", labels: Mapping[str, str] | None = None, **data: str) -> Json:
    """A ConfigMap."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": dict(labels or {})},
        "data": data,
    }
