"""Pods that controllers have still to make, of files that lack some of a cluster's objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tonnage.live import still
from tonnage.objects import load

SPEC = {"containers": [{"name": "main", "image": "server", "resources": {"requests": {"cpu": "1"}}}]}
TEMPLATE = {"metadata": {"labels": {"app": "x"}}, "spec": SPEC}
ENDING = {**TEMPLATE, "spec": {**SPEC, "restartPolicy": "Never"}}
SELECTOR = {"matchLabels": {"app": "x"}}


def owned(kind: str, name: str) -> dict[str, Any]:
    return {"ownerReferences": [{"apiVersion": "v1", "kind": kind, "name": name, "uid": "u", "controller": True}]}


def deployment(**meta: Any) -> dict[str, Any]:
    spec = {"replicas": 3, "selector": SELECTOR, "template": TEMPLATE}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x", **meta}, "spec": spec}


def replica_set(replicas: int = 3) -> dict[str, Any]:
    meta = {"name": "x-abc", "uid": "r", **owned("Deployment", "x")}
    spec = {"replicas": replicas, "selector": SELECTOR, "template": TEMPLATE}
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": meta, "spec": spec}


def job(status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    whole = {"parallelism": 2, "completions": 4, "template": ENDING, **spec}
    meta = {"name": "j", "uid": "j"}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": whole, "status": status or {}}


def pod(name: str, kind: str, owner: str, phase: str = "Running", **labels: str) -> dict[str, Any]:
    meta = {"name": name, "uid": name, "labels": {"app": "x", **labels}, **owned(kind, owner)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": SPEC, "status": {"phase": phase}}


@pytest.mark.parametrize(
    ("objects", "made"),
    [
        ([deployment()], 3),
        ([deployment(uid="d")], 3),
        ([deployment(uid="d"), replica_set()], 3),
        ([deployment(uid="d"), replica_set(), pod("x-abc-1", "ReplicaSet", "x-abc")], 2),
        ([deployment(uid="d"), pod("x-abc-1", "ReplicaSet", "x-abc")], 2),
        ([deployment(), pod("x-abc-1", "ReplicaSet", "x-abc")], 2),
        ([deployment(uid="d"), pod("x-7f-1", "ReplicaSet", "x-7f", **{"pod-template-hash": "7f"})], 2),
        ([deployment(uid="d"), pod("x-abc-1", "ReplicaSet", "x-abc", "Failed")], 3),
        ([deployment(uid="d"), pod("y-abc-1", "ReplicaSet", "y-abc")], 3),
        ([replica_set(2)], 2),
        ([job()], 2),
        ([job(), pod("j-a", "Job", "j")], 1),
        ([job(), *(pod(f"j-{n}", "Job", "j", "Succeeded") for n in "abc")], 1),
        ([job({"succeeded": 3})], 1),
        ([job({"conditions": [{"type": "Complete", "status": "True"}]})], 0),
        ([job(suspend=True)], 0),
    ],
)
def test_what_controllers_have_still_to_make(tmp_path: Path, objects: list[dict[str, Any]], made: int) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    read = load.read([file]).objects
    there = sum(one["kind"] == "Pod" and one["status"]["phase"] != "Failed" for one in objects)
    ended = sum(one["kind"] == "Pod" and one["status"]["phase"] == "Succeeded" for one in objects)
    fleet = still.snapshot_of(read, completed=True).fleet
    assert len(fleet.pod_by_key) == there - ended + made
