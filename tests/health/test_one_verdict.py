"""Whether pods of random manifests ever get a node on random nodes: everybody who is asked says the same."""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path
from typing import Any

import pytest

import yaml_text
from cli.cli_builders import tonnage
from deep_seeds import part
from tonnage.kube.resources import NODES, PODS
from tonnage.live import still
from tonnage.objects import load
from tonnage.scheduling import place
from tonnage.simulation import run, scenario

Json = dict[str, Any]
GPU, ZONE, DISK = "nvidia.com/gpu", "topology.kubernetes.io/zone", "disk"
SEEDS = range(40)


class Drawn:
    """Some nodes, and a bare pod or a Deployment of one pod that may or may not get one of them."""

    def __init__(self, seed: object) -> None:
        self.draw = random.Random(f"verdict/{seed}")
        self.nodes = [self._node(i) for i in range(self.draw.randint(2, 4))]
        self.spec = self._spec()
        self.owner = self.draw.choice(("Pod", "Deployment"))

    def _node(self, number: int) -> Json:
        draw = self.draw
        amounts = {"cpu": str(draw.choice((8, 32))), "memory": f"{draw.choice((16, 32))}Gi", "pods": "20"}
        if gpus := draw.choice((0, 2, 4)):
            amounts[GPU] = str(gpus)
        labels = {
            "kubernetes.io/hostname": f"n{number}",
            ZONE: draw.choice(("a", "b")),
            DISK: draw.choice(("ssd", "hdd")),
        }
        taints = [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}] if draw.random() < 0.15 else []
        ready = {"type": "Ready", "status": "True"}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"n{number}", "labels": labels},
            "spec": {"taints": taints, **({"unschedulable": True} if draw.random() < 0.1 else {})},
            "status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]},
        }

    def _spec(self) -> Json:
        draw = self.draw
        requests = {"cpu": str(draw.choice((1, 4, 12))), "memory": f"{draw.choice((1, 8))}Gi"}
        limits = {GPU: str(draw.choice((1, 2, 2, 4)))} if draw.random() < 0.6 else {}
        container: Json = {"name": "c", "image": "nginx:1.29", "resources": {"requests": requests, "limits": limits}}
        spec: Json = {"containers": [container]}
        if draw.random() < 0.2:
            spec["nodeSelector"] = {draw.choice((ZONE, DISK)): draw.choice(("a", "b", "ssd"))}
        if draw.random() < 0.5:
            spec["tolerations"] = [draw.choice(({"operator": "Exists"}, {"key": "dedicated", "value": "gpu"}))]
        if draw.random() < 0.2:
            wanted = {
                "key": draw.choice((ZONE, DISK, "none")),
                "operator": draw.choice(("In", "NotIn")),
                "values": ["a"],
            }
            terms = {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}
            spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        if draw.random() < 0.15:
            spec["topologySpreadConstraints"] = [
                {
                    "maxSkew": 1,
                    "topologyKey": draw.choice((ZONE, "rack")),
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"app": "x"}},
                }
            ]
        if draw.random() < 0.15:
            container["ports"] = [{"containerPort": 80, "hostPort": 8080}]
        if draw.random() < 0.04:
            spec["schedulingGates"] = [{"name": "example.com/wait"}]
        if draw.random() < 0.04:
            spec["schedulerName"] = "nobody"
        if draw.random() < 0.04:
            spec["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "missing"}}]
        return spec

    def objects(self) -> list[Json]:
        """The nodes and the workload."""
        labels = {"app": "x"}
        if self.owner == "Pod":
            one: Json = {"metadata": {"name": "x", "namespace": "default", "labels": labels}, "spec": self.spec}
            return [*self.nodes, {"apiVersion": "v1", "kind": "Pod", **one}]
        template = {"metadata": {"labels": labels}, "spec": self.spec}
        spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
        metadata = {"name": "x", "namespace": "default"}
        return [*self.nodes, {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}]


def _verdicts(drawn: Drawn, folder: Path, capfd: pytest.CaptureFixture[str]) -> dict[str, bool]:
    """By whom: whether the pod gets a node."""
    (folder / "manifests").mkdir(parents=True)
    file = folder / "manifests/all.yaml"
    file.write_text(yaml_text.dump_all(drawn.objects()))
    checked = json.loads(tonnage(capfd, "check", folder, "-o", "json").out)["findings"]
    asked = f"{drawn.owner.lower()}/x"
    return {
        "check": not any(one["severity"] == "error" for one in checked),
        "simulate": _simulated(folder),
        "why": tonnage(capfd, "why", asked, file).code == 0,
        "why, in a simulation": tonnage(capfd, "why", asked, folder).code == 0,
        "files": _of_files(file),
        "live": _live(drawn),
    }


def _simulated(folder: Path) -> bool:
    loaded = scenario.load(folder)
    made = run.set_up(loaded, loaded.default_policy)
    run.play(made)
    return all(pod.bound_ns is not None for pod in made.cluster.pods.values())


def _of_files(file: Path) -> bool:
    snapshot = still.snapshot_of(load.read([file]).objects)
    made = place.decide(snapshot, place.Settings(strict=True))
    return [type(one).__name__ for one in made] == ["Bind"]


def _live(drawn: Drawn) -> bool:
    """The controllers' scheduler, fed by an API."""
    from live.gangs.gang_cluster import GangCluster

    cluster = GangCluster()
    try:
        for node in drawn.nodes:
            cluster.client.create(NODES, node)
            cluster.client.patch(NODES, node["metadata"]["name"], {"status": node["status"]}, subresource="status")
        body = {"metadata": {"name": "x", "labels": {"app": "x"}}, "spec": {"schedulerName": "tonnage"} | drawn.spec}
        cluster.client.create(PODS, {"apiVersion": "v1", "kind": "Pod", **body}, "ml")
        cluster.tick()
        return bool(cluster.client.get(PODS, "x", "ml")["spec"].get("nodeName"))
    finally:
        cluster.stop()


@pytest.mark.parametrize("seed", part(SEEDS))
def test_all_say_the_same(seed: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    said = _verdicts(Drawn(seed), tmp_path / "set", capfd)
    assert len(set(said.values())) == 1, said


def test_some_get_a_node_and_some_do_not() -> None:
    placed = sum(_live(Drawn(seed)) for seed in SEEDS)
    assert len(SEEDS) // 4 <= placed <= 3 * len(SEEDS) // 4


@pytest.mark.fuzz
def test_all_say_the_same_of_many(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    end = time.monotonic() + float(os.environ.get("TONNAGE_FUZZ_SECONDS", "5"))
    number = 0
    while time.monotonic() < end:
        seed = random.SystemRandom().randrange(10**9)
        said = _verdicts(Drawn(seed), tmp_path / f"set-{number}", capfd)
        assert len(set(said.values())) == 1, (seed, said)
        number += 1
    assert number
