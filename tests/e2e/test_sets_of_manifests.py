"""What a real API server, its controllers and kube-scheduler do with the sets of manifests on which `check` is tested.

A broken set comes as far as its cause lets it: it is refused, no node takes its pods, or these are bound and only their
kubelet would fail. Good sets are bound whole. What the real cluster said is kept in ``tests/health/real_cluster.yaml``;
``TONNAGE_RECORD=1`` with a long run rewrites it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import sampling
from e2e_builders import condition, node

import yaml_text
from e2e.api import Api, ApiError, Json
from e2e.control_plane import ControlPlane
from e2e.processes import until
from health.broken_sets import BrokenSet, all_sets
from health.real_cluster import (
    BOUND,
    GATED,
    LEFT,
    PART,
    RECORD,
    REFUSED,
    UNSCHEDULABLE,
    as_recorded,
    expected,
    left_out,
    recorded,
)
from tonnage.objects.quantity import quantities
from tonnage.simulation import run, scenario

PATHS = {
    ("v1", "PersistentVolumeClaim"): "persistentvolumeclaims",
    ("v1", "PersistentVolume"): "persistentvolumes",
    ("v1", "Pod"): "pods",
    ("v1", "Service"): "services",
    ("v1", "Secret"): "secrets",
    ("v1", "ConfigMap"): "configmaps",
    ("v1", "ServiceAccount"): "serviceaccounts",
    ("v1", "ResourceQuota"): "resourcequotas",
    ("v1", "LimitRange"): "limitranges",
    ("apps/v1", "Deployment"): "deployments",
    ("apps/v1", "DaemonSet"): "daemonsets",
    ("apps/v1", "StatefulSet"): "statefulsets",
    ("batch/v1", "Job"): "jobs",
    ("batch/v1", "CronJob"): "cronjobs",
    ("policy/v1", "PodDisruptionBudget"): "poddisruptionbudgets",
    ("autoscaling/v2", "HorizontalPodAutoscaler"): "horizontalpodautoscalers",
    ("scheduling.k8s.io/v1", "PriorityClass"): "priorityclasses",
    ("node.k8s.io/v1", "RuntimeClass"): "runtimeclasses",
    ("storage.k8s.io/v1", "StorageClass"): "storageclasses",
    ("storage.k8s.io/v1", "CSINode"): "csinodes",
    ("storage.k8s.io/v1", "CSIDriver"): "csidrivers",
    ("resource.k8s.io/v1", "ResourceClaimTemplate"): "resourceclaimtemplates",
    ("resource.k8s.io/v1", "ResourceClaim"): "resourceclaims",
    ("resource.k8s.io/v1", "DeviceClass"): "deviceclasses",
}
CLUSTER_WIDE = (
    "persistentvolumes",
    "priorityclasses",
    "runtimeclasses",
    "storageclasses",
    "csinodes",
    "csidrivers",
    "deviceclasses",
)
FIRST = ("Namespace", "ServiceAccount", "ResourceQuota", "LimitRange", "PriorityClass", "RuntimeClass", "StorageClass")
"""Kinds that have to be there before pods are made."""
MAKERS = (
    ("apps/v1", "deployments"),
    ("apps/v1", "daemonsets"),
    ("apps/v1", "statefulsets"),
    ("apps/v1", "replicasets"),
    ("batch/v1", "cronjobs"),
    ("batch/v1", "jobs"),
)
WAIT_S, QUIET_S, STILL_S = 20.0, 2.5, 1.2
"""How long a set has to be decided about, and after how long nothing more is taken to happen; where all is bound. What
is not as recorded has all of the time: on a busy machine the scheduler may not have heard yet that others are gone."""


@pytest.fixture(scope="module")
def cluster(start_plane: object) -> ControlPlane:
    """Nodes have no kubelet, so nobody may find out that they do not answer."""
    controllers = ("*", "-node-lifecycle-controller", "-taint-eviction-controller", "-garbage-collector-controller")
    return start_plane(controllers=controllers, admission_off=("TaintNodesByCondition",))  # type: ignore[operator,no-any-return]


@dataclass
class Seen:
    """What became of the pods of a set, and what was said."""

    outcome: str
    said: str


@pytest.mark.parametrize(
    "one",
    sampling.some("sets of manifests", [one for one in all_sets() if not left_out(one)], 12),
    ids=lambda one: one.name.replace(" ", "-"),
)
def test_a_real_cluster_comes_as_far_with_a_set(one: BrokenSet, cluster: ControlPlane, tmp_path: Path) -> None:
    folder, mended = one.write(tmp_path / "set"), one.write(tmp_path / "mended", fixed=bool(one.expect))
    number = next(i for i, other in enumerate(all_sets()) if other is one)
    with _Applied(cluster.api(), folder, _nodes(mended), number) as trial:
        recording = bool(os.environ.get("TONNAGE_RECORD"))
        seen = trial.outcome(lambda found: recording or as_recorded(one, found))
    if recording:
        _record(one, seen)
        return
    assert as_recorded(one, seen.outcome), seen
    assert seen.outcome in expected(one), seen


def _record(one: BrokenSet, seen: Seen) -> None:
    known = {**recorded(), one.name: {"outcome": seen.outcome, **({"said": seen.said} if seen.said else {})}}
    names = [other.name for other in all_sets()]
    kept = {name: known[name] for name in names if name in known}
    RECORD.write_text(yaml_text.dump(kept, sort_keys=False, width=118, allow_unicode=True))
    recorded.cache_clear()


class _Applied:
    """The objects of a set on the API, in namespaces of their own; all of them are gone afterwards."""

    def __init__(self, api: Api, folder: Path, nodes: Iterator[Json], number: int) -> None:
        self.api, self.number = api, number
        self.objects = [o for o in yaml_text.load_all((folder / "manifests/objects.yaml").read_text()) if o]
        self.objects.sort(key=lambda o: FIRST.index(o["kind"]) if o["kind"] in FIRST else len(FIRST))
        self.nodes = list(nodes) or [o for o in self.objects if o["kind"] == "Node"]
        self.refused = ""
        self.spaces = {o["metadata"].get("namespace", "default") for o in self.objects}

    def __enter__(self) -> _Applied:
        for one in self.nodes:
            self.api.create("/api/v1/nodes", one)
        for space in self.spaces:
            labels = next((o["metadata"].get("labels") for o in self.objects if self._is_space(o, space)), None)
            self.api.create("/api/v1/namespaces", {"metadata": {"name": self._space(space), "labels": labels or {}}})
        for space in self.spaces:
            self._await_account(space)
        for one in self.objects:
            plural = PATHS.get((one["apiVersion"], one["kind"]))
            if plural is None:
                continue
            try:
                self.api.create(self._path(one, plural), self._moved(one))
            except ApiError as error:
                if error.status not in (400, 403, 422):
                    raise
                self.refused = str(error)
        return self

    @staticmethod
    def _is_space(one: Json, name: str) -> bool:
        return bool(one["kind"] == "Namespace" and one["metadata"]["name"] == name)

    def __exit__(self, *_: object) -> None:
        for group, plural in MAKERS:
            for space in self.spaces:
                self._forgive(f"/apis/{group}/namespaces/{self._space(space)}/{plural}")
        until("the pods are gone", self._empty, 30)
        for space in self.spaces:
            self._forgive(f"/api/v1/namespaces/{self._space(space)}")
        for one in self.objects:
            plural = PATHS.get((one["apiVersion"], one["kind"]), "")
            if plural in CLUSTER_WIDE:
                path = self._path(one, plural)
                try:
                    self.api.patch(f"{path}/{one['metadata']['name']}", {"metadata": {"finalizers": None}})
                except ApiError:
                    continue
                self._forgive(f"{path}/{one['metadata']['name']}")
        for one in self.nodes:
            self._forgive(f"/api/v1/nodes/{one['metadata']['name']}")

    def _empty(self) -> bool:
        """Delete the pods until there are none: whoever makes them may not have heard yet that it is gone."""
        paths = [f"/api/v1/namespaces/{self._space(space)}/pods" for space in self.spaces]
        for path in paths:
            self._forgive(path)
        return not any(self.api.items(path) for path in paths)

    def _forgive(self, path: str) -> None:
        try:
            self.api.delete(path)
        except ApiError as error:
            if error.status not in (404, 405, 409):
                raise

    def _space(self, name: str) -> str:
        return f"{name}-{self.number}"

    def _await_account(self, space: str) -> None:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            try:
                self.api.get(f"/api/v1/namespaces/{self._space(space)}/serviceaccounts/default")
                return
            except ApiError:
                time.sleep(0.05)
        raise TimeoutError(f"no default ServiceAccount in {space}")

    def _moved(self, one: Json) -> Json:
        """The object in the namespace of this trial, without a claim's place in another one."""
        if PATHS[one["apiVersion"], one["kind"]] in CLUSTER_WIDE:
            reference = one.get("spec", {}).get("claimRef")
            if reference and "namespace" in reference:
                reference["namespace"] = self._space(reference["namespace"])
            return one
        space = one["metadata"].get("namespace", "default")
        return {**one, "metadata": {**one["metadata"], "namespace": self._space(space)}}

    def _path(self, one: Json, plural: str) -> str:
        version = one["apiVersion"]
        root = f"/api/{version}" if version == "v1" else f"/apis/{version}"
        if plural in CLUSTER_WIDE:
            return f"{root}/{plural}"
        return f"{root}/namespaces/{self._space(one['metadata'].get('namespace', 'default'))}/{plural}"

    # ---- what becomes of it ----

    def outcome(self, may_be_all: Callable[[str], bool]) -> Seen:
        """Once every pod is bound, refused or said to wait, or nothing has happened for a while. ``may_be_all``: whether
        an outcome can be the last one."""
        if self.refused:
            return Seen(REFUSED, self.refused)
        deadline = time.monotonic() + WAIT_S
        last, since = Seen(LEFT, ""), time.monotonic()
        while time.monotonic() < deadline:
            now = self._look()
            quiet_s = STILL_S if now.outcome == BOUND else QUIET_S
            rests = now == last and now.outcome != LEFT and time.monotonic() - since > quiet_s
            if rests and may_be_all(now.outcome):
                return now
            if now != last:
                last, since = now, time.monotonic()
            time.sleep(0.1)
        return last

    def _look(self) -> Seen:
        pods = [p for s in sorted(self.spaces) for p in self.api.items(f"/api/v1/namespaces/{self._space(s)}/pods")]
        waiting = [p for p in pods if not p["spec"].get("nodeName")]
        some = len(waiting) < len(pods)
        if not waiting and (failed := list(self._failed())):
            return Seen(PART if some else REFUSED, failed[0])
        if not pods:
            return Seen(LEFT, "")
        if not waiting:
            return Seen(BOUND, "")
        for pod in waiting:
            said = condition(pod, "PodScheduled")
            if said.get("reason") == "SchedulingGated":
                return Seen(GATED, said["message"])
            if said.get("status") == "False":
                return Seen(PART if some else UNSCHEDULABLE, said["message"].partition(". ")[0])
        return Seen(LEFT, "")

    def _failed(self) -> Iterator[str]:
        for space in sorted(self.spaces):
            for event in self.api.items(f"/api/v1/namespaces/{self._space(space)}/events"):
                if event["reason"] == "FailedCreate":
                    yield event["message"].replace(f"-{self.number}", "")


def _nodes(folder: Path) -> Iterator[Json]:
    """The nodes of a scenario, as the simulated cloud makes them."""
    if not (folder / "scenario.yaml").exists():
        return
    loaded = scenario.load(folder)
    fleet = run.set_up(loaded, loaded.default_policy).cluster.fleet
    for row in fleet.node_rows():
        made = fleet.node(row)
        taints = [{"key": t.key, "value": t.value, "effect": t.effect} for t in made.taints]
        yield node(made.spec.name, quantities(fleet.allocatable_of(row)), made.labels, taints)
