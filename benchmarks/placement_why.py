"""How long the receipt of a waiting pod and of a waiting gang takes on a large cluster."""

from __future__ import annotations

import gc
import random
import statistics
import time
from dataclasses import replace

from benchmarks.common import Report
from tonnage.fleet.gangs import Gang, TopologyRule
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import Fleet, NodeSpec, PodSpec
from tonnage.objects import core
from tonnage.scheduling import place
from tonnage.scheduling.why import receipt as whys
from tonnage.units import GIB

GPU = "nvidia.com/gpu"
ZONE, RACK = "topology.kubernetes.io/zone", "example.com/rack"
ROUNDS = 7
BAR_MS = 100.0


def rows(report: Report, *, quick: bool) -> None:
    """Add the rows: a pod of eight GPUs, a pod of a share, a pod with rules, a gang; with tables there and without."""
    nodes = 1_000 if quick else 5_000
    fleet = _cluster(nodes)
    gang = Gang("default/gang", 64, rule=TopologyRule(required=RACK))
    pods = {
        "pod of 8 GPUs, 48 cores": _pod("large", {"cpu": "48", GPU: "8"}),
        "pod of 0.9 GPU": _pod("share", {"cpu": "4"}, annotations={"gpu-fraction": "0.9"}),
        "pod of 2 GPUs, one a rack": replace(_pod("apart", {GPU: "2"}, apart=True), labels={"app": "there"}),
    }
    for name, pod in pods.items():
        fleet.add_pod(pod)
        _measure(report, f"why, {name}, {nodes} nodes", Snapshot(0, fleet), f"default/{pod.name}", bar=not quick)
        fleet.remove_pod(fleet.pod_by_key["default", pod.name])
    for i in range(64):
        fleet.add_pod(replace(_pod(f"gang-{i:02d}", {GPU: "8"}), gang=gang.key))
    snapshot = Snapshot(0, fleet, gangs={gang.key: gang})
    _measure(report, f"why, gang of 64 in one rack, {nodes} nodes", snapshot, gang.key, bar=not quick)


def _measure(report: Report, name: str, snapshot: Snapshot, key: str, *, bar: bool) -> None:
    warm = place.Cache(snapshot.fleet)
    receipt = whys.why(snapshot, key, cache=warm)
    assert receipt.state == whys.WAITS
    assert receipt.changes
    there = [_ms(snapshot, key, warm) for _ in range(ROUNDS)]
    made = [_ms(snapshot, key, place.Cache(snapshot.fleet)) for _ in range(3)]
    value = statistics.median(there)
    report.row(measurement=name, value=value, unit="ms", remark="tables of the decision there")
    report.row(measurement=f"{name}, cold", value=statistics.median(made), unit="ms", remark="tables made from nothing")
    if bar:
        report.bar(name, value, "<=", BAR_MS, "ms", "cost")


def _ms(snapshot: Snapshot, key: str, cache: place.Cache) -> float:
    gc.collect()
    start = time.thread_time()
    whys.why(snapshot, key, cache=cache)
    return 1e3 * (time.thread_time() - start)


def _cluster(nodes: int) -> Fleet:
    """Nodes of 8 GPUs in racks of 32 and four zones; no GPU free, some shared, and a twentieth cordoned."""
    rng = random.Random("placement/why")
    fleet = Fleet()
    for i in range(nodes):
        labels = {ZONE: f"zone-{i * 4 // nodes}", RACK: f"rack-{i // 32}"}
        allocatable = {"cpu": 191_450, "memory": 1_900 * GIB, "pods": 110, GPU: 8}
        spec = NodeSpec(f"node-{i:05d}", allocatable, labels, device_resource=GPU)
        row = fleet.add_node(spec, schedulable=rng.random() < 0.95)
        left = 8
        while left > 0:
            gpus = min(left, rng.choice((1, 1, 2, 4, 8)))
            left -= gpus
            pod = _pod(f"there-{i:05d}-{left}", {"cpu": str(22 * gpus), GPU: str(gpus)})
            if gpus == 1 and rng.random() < 0.5:
                share = {"gpu-fraction": rng.choice(("0.6", "0.7"))}
                pod = _pod(pod.name, {"cpu": "22"}, annotations=share)
            fleet.bind(fleet.add_pod(replace(pod, labels={"app": "there"})), row)
    return fleet


def _pod(
    name: str, requests: dict[str, str], *, annotations: dict[str, str] | None = None, apart: bool = False
) -> PodSpec:
    requests = {"memory": "8Gi"} | requests
    container = core.Container(name="main", resources=core.ResourceRequirements(requests=dict(requests)))
    affinity = None
    if apart:
        selector = core.LabelSelector(match_labels={"app": "there"})
        term = core.PodAffinityTerm(topology_key=RACK, label_selector=selector)
        against = core.PodAntiAffinity(required_during_scheduling_ignored_during_execution=[term])
        affinity = core.Affinity(pod_anti_affinity=against)
    spec = core.PodSpec(containers=[container], affinity=affinity)
    return PodSpec("default", name, name, {}, spec, annotations=annotations or {})
