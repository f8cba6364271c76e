"""A cluster for tests: an API, the managers over it, a clock that the test moves, and nodes that the test plays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from watched_api import WatchedApi

from tonnage.apiserver.controllers import ControllerManager, ManagerOptions
from tonnage.apiserver.controllers.meta import stamp
from tonnage.kube.resources import (
    DAEMON_SETS,
    DEPLOYMENTS,
    EVENTS,
    NODES,
    PDBS,
    PODS,
    REPLICA_SETS,
    Resource,
)
from tonnage.kube.transport import ApiError
from tonnage.kube.verbs import Client

START = 1_750_000_000.0
Json = dict[str, Any]


class Clock:
    """Seconds since the epoch, moved by the test."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now


QUIET = ManagerOptions(node_grace_s=0.0, quarantine_s=1e9)
"""Nodes need no heartbeat, and pods may be on nodes that are not there."""


class Cluster:
    """:meth:`step` lets the managers work; :meth:`settle` also plays nodes that start and end pods without delay."""

    def __init__(self, seed: int = 1, options: ManagerOptions = QUIET) -> None:
        self.clock = Clock()
        self.api = WatchedApi(self.clock)
        self.client = Client(self.api)
        self.seed, self.options = seed, options
        self.managers = self._managers()

    def restart(self) -> None:
        """The managers lose all they remember."""
        self.managers.close()
        self.managers = self._managers()

    def _managers(self) -> ControllerManager:
        return ControllerManager(
            self.client, lambda notify: self.api.store.subscribe(notify=notify), self.clock, self.seed, self.options
        )

    def step(self) -> int:
        return self.managers.step()

    def wait(self, seconds: float) -> int:
        """Let time pass, timer by timer."""
        end, writes = self.clock.now + seconds, self.step()
        while (due := self.managers.next_due()) is not None and due <= end:
            self.clock.now = max(self.clock.now, due)
            writes += self.step()
        self.clock.now = end
        return writes + self.step()

    def settle(self, *, ready: Callable[[Json], bool] = lambda pod: True) -> int:
        """Step, start and end pods until nothing happens; the number of rounds."""
        for rounds in range(1000):
            self.step()
            if not self.play_nodes(ready):
                return rounds
        raise AssertionError("does not settle")

    def play_nodes(self, ready: Callable[[Json], bool] = lambda pod: True) -> int:
        """What schedulers and nodes do: run pods that are pending, remove those that are being deleted."""
        done = 0
        for pod in self.pods():
            meta = pod["metadata"]
            if meta.get("deletionTimestamp"):
                self.client.delete(PODS, meta["name"], meta["namespace"], grace_s=0)
                done += 1
            elif pod["status"]["phase"] == "Pending" and ready(pod):
                self.make_ready(pod)
                done += 1
        return done

    def make_ready(self, pod: Json, node: str = "node-a") -> None:
        meta = pod["metadata"]
        if not pod["spec"].get("nodeName"):
            self.client.bind(meta["name"], meta["namespace"], meta["uid"], pinned(pod) or node)
        since = stamp(self.clock())
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": since}]}
        self.client.patch(PODS, meta["name"], {"status": status}, meta["namespace"], subresource="status")

    # ---- reading ----

    def get(self, resource: Resource, name: str, namespace: str = "default") -> Json:
        return self.client.get(resource, name, namespace if resource.namespaced else "")

    def exists(self, resource: Resource, name: str, namespace: str = "default") -> bool:
        try:
            self.get(resource, name, namespace)
        except ApiError as error:
            assert error.code == 404
            return False
        return True

    def all(self, resource: Resource) -> list[Json]:
        return self.client.list(resource)

    def pods(self, **labels: str) -> list[Json]:
        return [
            pod
            for pod in self.all(PODS)
            if all(pod["metadata"].get("labels", {}).get(key) == value for key, value in labels.items())
        ]

    def names(self, resource: Resource = PODS) -> list[str]:
        return [obj["metadata"]["name"] for obj in self.all(resource)]

    def sizes(self) -> dict[str, int]:
        """spec.replicas of the ReplicaSets, by the image of their template."""
        return {
            one["spec"]["template"]["spec"]["containers"][0]["image"]: one["spec"]["replicas"]
            for one in self.all(REPLICA_SETS)
        }

    def events(self, name: str) -> list[tuple[str, str]]:
        """(reason, message) of an object's events, in order."""
        found = [one for one in self.all(EVENTS) if one["involvedObject"]["name"] == name]
        found.sort(key=lambda one: int(one["metadata"]["resourceVersion"]))
        return [(one["reason"], one["message"]) for one in found]

    def condition(self, resource: Resource, name: str, kind: str) -> Json:
        return next(one for one in self.get(resource, name)["status"]["conditions"] if one["type"] == kind)

    # ---- writing ----

    def deploy(self, name: str = "web", replicas: int = 3, image: str = "v1", **spec: Any) -> Json:
        return self.client.create(DEPLOYMENTS, deployment(name, replicas, image, **spec), "default")

    def change(self, name: str, patch: Json, resource: Resource = DEPLOYMENTS) -> Json:
        return self.client.patch(resource, name, patch, "default" if resource.namespaced else "")

    def set_image(self, name: str, image: str, resource: Resource = DEPLOYMENTS) -> None:
        self.change(name, {"spec": {"template": template(name, image)}}, resource)

    def scale(self, name: str, replicas: int) -> None:
        self.change(name, {"spec": {"replicas": replicas}})

    def delete(self, resource: Resource, name: str, propagation: str = "Background") -> None:
        self.client.delete(resource, name, "default" if resource.namespaced else "", propagation=propagation)

    def node(self, name: str, labels: dict[str, str] | None = None, taints: list[Json] | None = None) -> Json:
        body: Json = {
            "metadata": {"name": name, "labels": labels or {}},
            "spec": {"taints": taints} if taints else {},
        }
        node = self.client.create(NODES, body)
        self.client.patch(NODES, name, {"status": {"conditions": [condition("Ready", "True")]}}, subresource="status")
        return node

    def node_ready(self, name: str, status: str) -> None:
        patch = {"status": {"conditions": [condition("Ready", status)]}}
        self.client.patch(NODES, name, patch, subresource="status")

    def daemon(self, name: str = "agent", image: str = "v1", **spec: Any) -> Json:
        body = {
            "metadata": {"name": name},
            "spec": {"selector": {"matchLabels": {"app": name}}, "template": template(name, image), **spec},
        }
        return self.client.create(DAEMON_SETS, body, "default")

    def budget(self, name: str = "pdb", app: str = "web", **spec: Any) -> Json:
        body = {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": app}}, **spec}}
        return self.client.create(PDBS, body, "default")


def condition(kind: str, status: str) -> Json:
    return {"type": kind, "status": status, "lastTransitionTime": stamp(START)}


def template(name: str, image: str) -> Json:
    return {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "main", "image": image}]},
    }


def deployment(name: str, replicas: int, image: str = "v1", **spec: Any) -> Json:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": template(name, image),
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
            "progressDeadlineSeconds": 600,
            "revisionHistoryLimit": 10,
            **spec,
        },
    }


def rolling(surge: int | str, unavailable: int | str) -> Json:
    return {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}


def pinned(pod: Json) -> str:
    from tonnage.apiserver.controllers.daemon_sets import pinned_node

    return pinned_node(pod)


def replica_set(name: str, replicas: int, labels: dict[str, str]) -> Json:
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "v1"}]}},
        },
    }


def bare_pod(name: str, labels: dict[str, str] | None = None) -> Json:
    return {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"containers": [{"name": "main", "image": "v1"}]},
    }
