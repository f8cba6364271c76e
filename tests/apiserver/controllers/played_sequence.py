"""One long sequence of what users do, played the same way against any API with any managers, and what came of it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

from managed_cluster import deployment, pinned, rolling, template

from tonnage.apiserver.controllers.meta import stamp
from tonnage.kube.resources import (
    DAEMON_SETS,
    DEPLOYMENTS,
    EVENTS,
    NAMESPACES,
    NODES,
    PDBS,
    PODS,
    REPLICA_SETS,
    SERVICE_ACCOUNTS,
)
from tonnage.kube.transport import ApiError
from tonnage.kube.verbs import Client

Json = dict[str, Any]
_HASH = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{8,10}\b")
_NUMBER = re.compile(r"\b\d+\b")
_STABLE_S, _LIMIT_S = 0.5, 30.0
_LOOK_S = 0.12
"""Between two looks at managers that run by themselves: each look is six lists."""
REVISION = "deployment.kubernetes.io/revision"


class Sequence:
    """``drive`` lets the managers work (where they have no thread of their own)."""

    def __init__(self, client: Client, namespace: str, drive: Callable[[], object]) -> None:
        self.client, self.namespace, self.drive = client, namespace, drive
        self.node_names = [f"{namespace}-node-{number}" for number in range(2)]
        self.stages: dict[str, Json] = {}

    # ---- what users do ----

    def play(self) -> dict[str, Json]:
        self.client.create(NAMESPACES, {"metadata": {"name": self.namespace}})
        for name in self.node_names:
            self.client.create(NODES, {"metadata": {"name": name, "labels": {"of": self.namespace}}})
            ready = {"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Up", "message": "up"}]}}
            self.client.patch(NODES, name, ready, subresource="status")
            self.client.patch(NODES, name, {"spec": {"taints": None}})
        self._until(lambda: self._exists(SERVICE_ACCOUNTS, "default"), "service account")
        self._rollouts()
        self._pauses_and_recreate()
        self._budgets()
        self._daemons()
        self._deadline()
        self._deletions()
        return self.stages

    def _rollouts(self) -> None:
        body = deployment("web", 4, "v1", strategy=rolling(1, 1))
        self.client.create(DEPLOYMENTS, body, self.namespace)
        self.stage("created, no pod runs")
        self.run_pods()
        self.stage("all pods run")
        self.set_image("v2")
        self.stage("new image, no new pod runs")
        self.run_pods()
        self.stage("rolled over")
        self.change({"spec": {"replicas": 6}})
        self.run_pods()
        self.stage("scaled up")
        self.set_image("bad")
        self.stage("bad image")
        self.change({"spec": {"replicas": 10}})
        self.run_pods(lambda pod: image(pod) != "bad")
        self.stage("scaled in the middle of a rollout")
        self.set_image("v2")
        self.run_pods(lambda pod: image(pod) != "bad")
        self.stage("rolled back")
        self.change({"spec": {"replicas": 3}})
        self.run_pods()
        self.stage("scaled down")
        self.change({"metadata": {"annotations": {"kubernetes.io/change-cause": "because"}}})
        self.stage("annotated")

    def _pauses_and_recreate(self) -> None:
        self.change({"spec": {"paused": True}})
        self.set_image("v3")
        self.change({"spec": {"replicas": 4}})
        self.run_pods()
        self.stage("paused, scaled and changed")
        self.change({"spec": {"paused": None}})
        self.run_pods()
        self.stage("resumed")
        self.change({"spec": {"strategy": {"type": "Recreate", "rollingUpdate": None}}})
        self.set_image("v4")
        self.stage("recreating, old pods still end")
        self.run_pods()
        self.stage("recreated")
        self.change({"spec": {"revisionHistoryLimit": 1}})
        self.stage("history cut")
        first = self.pods(app="web")[0]["metadata"]["name"]
        self.client.patch(PODS, first, {"metadata": {"labels": {"app": "debug"}}}, self.namespace)
        self.run_pods()
        self.stage("a pod let go")
        self.client.patch(PODS, first, {"metadata": {"labels": {"app": "web"}}}, self.namespace)
        self.run_pods()
        self.stage("a pod adopted")

    def _budgets(self) -> None:
        for name, spec in {
            "at-least": {"minAvailable": 3},
            "half": {"minAvailable": "50%"},
            "one-out": {"maxUnavailable": 1},
            "third-out": {"maxUnavailable": "30%"},
            "nothing": {"minAvailable": 1, "selector": {"matchLabels": {"app": "nothing"}}},
        }.items():
            # One at a time: kube-controller-manager tells only one budget of a pod's changes.
            body = {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": "web"}}, **spec}}
            self.client.create(PDBS, body, self.namespace)
            self.stage(f"budget {name}")
            pod = self.pods(app="web")[0]["metadata"]["name"]
            self.client.patch(PODS, pod, ready_status("False"), self.namespace, subresource="status")
            self.stage(f"budget {name} with a pod that is not ready")
            self.client.patch(PODS, pod, ready_status("True"), self.namespace, subresource="status")
            self.client.delete(PDBS, name, self.namespace)
            self.stage(f"budget {name} gone")

    def _daemons(self) -> None:
        pod = template("agent", "v1")
        pod["spec"]["nodeSelector"] = {"of": self.namespace}
        pod["spec"]["schedulerName"] = "nobody"
        body = {
            "metadata": {"name": "agent"},
            "spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": pod},
        }
        self.client.create(DAEMON_SETS, body, self.namespace)
        self.stage("daemons made")
        self.run_pods()
        self.stage("daemons run")
        newer = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "v2"}]}}}}
        self.client.patch(DAEMON_SETS, "agent", newer, self.namespace)
        self.stage("first daemon of an update ends")
        self.run_pods()
        self.stage("daemons updated")
        taint = {"key": "keep-out", "value": "", "effect": "NoExecute"}
        self.client.patch(NODES, self.node_names[0], {"spec": {"taints": [taint]}})
        self.run_pods()
        self.stage("a node keeps daemons out")
        self.client.delete(DAEMON_SETS, "agent", self.namespace, propagation="Background")
        self.run_pods()
        self.stage("daemons deleted")

    def _deadline(self) -> None:
        body = deployment("slow", 1, "v1", progressDeadlineSeconds=2, minReadySeconds=1)
        self.client.create(DEPLOYMENTS, body, self.namespace)
        self._until(lambda: self._progress("slow") == "ProgressDeadlineExceeded", "the deadline")
        self.stage("deadline passed")
        self.run_pods()
        self._until(lambda: self._progress("slow") == "NewReplicaSetAvailable", "the end of the rollout")
        self.stage("late but done")
        self.client.delete(DEPLOYMENTS, "slow", self.namespace, propagation="Background")
        self.run_pods()

    def _deletions(self) -> None:
        self.client.delete(DEPLOYMENTS, "web", self.namespace, propagation="Orphan")
        self.stage("orphaned")
        body = deployment("web", 4, "v4", strategy=rolling(1, 1))
        self.client.create(DEPLOYMENTS, body, self.namespace)
        self.run_pods()
        self.stage("adopted by a new deployment")
        self.client.delete(DEPLOYMENTS, "web", self.namespace, propagation="Foreground")
        self.stage("deleted in the foreground, pods still end")
        self.run_pods()
        self.stage("deleted in the foreground")
        self.client.create(DEPLOYMENTS, deployment("last", 2, "v1"), self.namespace)
        self.run_pods()
        self.client.delete(NAMESPACES, self.namespace)
        deadline = time.monotonic() + _LIMIT_S
        while self._exists(NAMESPACES, self.namespace):
            assert time.monotonic() < deadline, "the namespace stays"
            self.drive()
            self._play_nodes(lambda pod: True)
            time.sleep(0.05)
        self.stages["namespace gone"] = {"pods": len(self.pods())}

    def set_image(self, name: str) -> None:
        self.change({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": name}]}}}})

    def change(self, patch: Json) -> None:
        self.client.patch(DEPLOYMENTS, "web", patch, self.namespace)

    # ---- what nodes do ----

    def run_pods(self, good: Callable[[Json], bool] = lambda pod: True) -> None:
        """Start and end pods until nothing changes any more."""
        while True:
            self._settle()
            if not self._play_nodes(good):
                return

    def _play_nodes(self, good: Callable[[Json], bool]) -> int:
        done = 0
        for pod in self.pods():
            meta = pod["metadata"]
            try:
                if meta.get("deletionTimestamp"):
                    self.client.delete(PODS, meta["name"], self.namespace, grace_s=0)
                    done += 1
                elif good(pod) and pod["status"].get("phase") == "Pending":
                    node = pinned(pod) or self.node_names[1]
                    if not pod["spec"].get("nodeName"):
                        self.client.bind(meta["name"], self.namespace, meta["uid"], node)
                    self.client.patch(PODS, meta["name"], ready_status("True"), self.namespace, subresource="status")
                    done += 1
            except ApiError as error:
                assert error.code in (404, 409), error
        return done

    # ---- what came of it ----

    def stage(self, name: str) -> None:
        self._settle()
        self.stages[name] = self.picture()

    def picture(self) -> Json:
        return {
            "deployments": {obj["metadata"]["name"]: self._deployment(obj) for obj in self._all(DEPLOYMENTS)},
            "replica sets": {image(obj["spec"]["template"]): self._replica_set(obj) for obj in self._all(REPLICA_SETS)},
            "daemon sets": {obj["metadata"]["name"]: cleaned(obj.get("status", {})) for obj in self._all(DAEMON_SETS)},
            "budgets": {obj["metadata"]["name"]: cleaned(obj.get("status", {})) for obj in self._all(PDBS)},
            "pods": sorted(map(pod_line, self.pods())),
            "events": self._events(),
        }

    def _deployment(self, obj: Json) -> Json:
        return {
            "status": {k: v for k, v in cleaned(obj.get("status", {})).items() if k != "observedGeneration"},
            "revision": obj["metadata"].get("annotations", {}).get(REVISION),
            "generation": obj["metadata"]["generation"],
            "observed": obj.get("status", {}).get("observedGeneration") == obj["metadata"]["generation"],
            "finalizers": obj["metadata"].get("finalizers", []),
        }

    def _replica_set(self, obj: Json) -> Json:
        annotations = dict(obj["metadata"].get("annotations", {}))
        return {
            "replicas": obj["spec"]["replicas"],
            "status": {k: v for k, v in cleaned(obj.get("status", {})).items() if k != "observedGeneration"},
            "observed": obj.get("status", {}).get("observedGeneration") == obj["metadata"]["generation"],
            "annotations": annotations,
            "owners": [(one["kind"], one["name"]) for one in obj["metadata"].get("ownerReferences", [])],
            "finalizers": obj["metadata"].get("finalizers", []),
        }

    def _events(self) -> list[str]:
        """What kinds of things were told: how many steps it took is a matter of timing."""
        found: set[str] = set()
        for one in self._all(EVENTS):
            kind, message = one["involvedObject"]["kind"], ""
            if kind == "Deployment":
                plain = one["message"].removeprefix("(combined from similar events): ")
                message = _NUMBER.sub("N", _HASH.sub("-HASH", plain))
            if kind in ("Deployment", "ReplicaSet", "DaemonSet", "PodDisruptionBudget"):
                found.add(f"{kind} {one['type']} {one['reason']} {one['source']['component']} {message}")
        return sorted(found)

    # ---- waiting ----

    def _settle(self) -> None:
        """Until the picture did not change for a while."""
        stable_s, look_s = (_STABLE_S, _LOOK_S) if self.drive is nothing else (0.05, 0.03)
        deadline, last, since = time.monotonic() + _LIMIT_S, None, time.monotonic()
        while True:
            self.drive()
            picture, now = self.picture(), time.monotonic()
            if picture != last:
                last, since = picture, now
            elif now - since >= stable_s:
                return
            assert now < deadline, "does not settle"
            time.sleep(look_s)

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _LIMIT_S
        while not holds():
            assert time.monotonic() < deadline, f"{what} did not come"
            self.drive()
            time.sleep(0.05)

    def _progress(self, name: str) -> str:
        conditions = self.client.get(DEPLOYMENTS, name, self.namespace).get("status", {}).get("conditions", [])
        return next((one["reason"] for one in conditions if one["type"] == "Progressing"), "")

    def _exists(self, resource: Any, name: str) -> bool:
        try:
            self.client.get(resource, name, self.namespace if resource.namespaced else "")
        except ApiError as error:
            assert error.code == 404
            return False
        return True

    def pods(self, **labels: str) -> list[Json]:
        found = self._all(PODS)
        return [one for one in found if labels.items() <= one["metadata"].get("labels", {}).items()]

    def _all(self, resource: Any) -> list[Json]:
        return self.client.list(resource, self.namespace)


def nothing() -> None:
    """The managers run by themselves."""


def image(pod: Json) -> str:
    found: str = pod["spec"]["containers"][0]["image"]
    return found


def pod_line(pod: Json) -> str:
    owner = pod["metadata"].get("ownerReferences", [{}])[0]
    ending = "ending" if pod["metadata"].get("deletionTimestamp") else ""
    tolerations = len(pod["spec"].get("tolerations", []))
    bound = "bound" if pod["spec"].get("nodeName") else ""
    parts = (
        image(pod),
        owner.get("kind", "-"),
        pod["status"].get("phase"),
        bound,
        ending,
        f"{tolerations} tolerations",
    )
    return " ".join(map(str, parts))


def ready_status(status: str) -> Json:
    condition = {"type": "Ready", "status": status, "lastTransitionTime": stamp(time.time())}
    return {"status": {"phase": "Running", "conditions": [condition]}}


def cleaned(status: Json) -> Json:
    """A status without times, nulls and zeros, its messages without generated names."""
    kept = {key: value for key, value in status.items() if key not in ("conditions", "collisionCount") and value}
    conditions = [
        (one["type"], one["status"], one["reason"], _HASH.sub("-HASH", one.get("message", "")))
        for one in status.get("conditions", [])
    ]
    return {**kept, "conditions": sorted(conditions)} if conditions else kept
