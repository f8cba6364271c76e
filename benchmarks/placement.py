"""How many pods are placed a second; gangs on a large cluster: how long a plan takes, and how often gangs that are
placed pod by pod block each other."""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import msgspec

from benchmarks import placement_why
from benchmarks.cluster import nodes_and_pods
from benchmarks.common import Options, Report, in_process
from tonnage.decisions import Bind
from tonnage.fleet.gangs import Gang, SubGroup, TopologyRule
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import Fleet, FleetNode, FleetPod
from tonnage.objects import core
from tonnage.scheduling import place
from tonnage.scheduling.gangs import plan as gangs
from tonnage.units import GIB

GPU = "nvidia.com/gpu"
ZONE, RACK = "topology.kubernetes.io/zone", "example.com/rack"
ROUNDS = 15


def run(options: Options) -> Report:
    """A queue of single pods, plans of a gang of 1,000 pods on 5,000 nodes, then two gangs at a time on a small
    cluster."""
    report = Report("placement", ("measurement", "value", "unit", "remark"))
    for count in (200,) if options.quick else (200, 2_000):
        _decisions(report, count)
    nodes = 1_000 if options.quick else 5_000
    pods = 200 if options.quick else 1_000
    for parts in (8, 40):
        _plans(report, nodes, pods, parts, bar=parts == 8 and not options.quick)
    _deadlocks(report, 50 if options.quick else 300)
    placement_why.rows(report, quick=options.quick)
    report.notes.append("warm: the tables of levels and pod shapes, kept from one decision to the next, are there")
    report.notes.append(
        "pod by pod: an imitation of coscheduling's permit phase (assumed pods hold their room until the gang is whole "
        "or a timeout), checked by no run of the real one: a count, not a bar"
    )
    return report


# ---- time ----


def _decisions(report: Report, nodes: int) -> None:
    """Ten pods a node, all pending: the first decision about them in its process, then the median of more."""
    found = in_process("benchmarks.placement", "decisions", str(nodes))
    name = f"{found['pods']:,} pods on {nodes:,} nodes"
    remark = f"{found['placed']:,} placed; by the clock of the thread, receipts on, tables made from nothing"
    report.row(measurement=f"{name}: first in its process", value=found["first"], unit="decisions/s", remark=remark)
    report.row(measurement=f"{name}: median of {found['rounds']}", value=found["median"], unit="decisions/s", remark="")
    report.bar(f"decisions-{found['pods']}-pods", found["first"], ">=", 10_000, "decisions a second", "cost")


def decisions(nodes_text: str) -> dict[str, Any]:
    """Decisions a second about the queue of :func:`benchmarks.cluster.nodes_and_pods`, in this process."""
    nodes, pods = nodes_and_pods(int(nodes_text), seed=0)
    rounds = max(3, 3_000 // len(nodes))
    rates, placed = [], 0
    for _ in range(rounds):
        fleet = Fleet()
        for node in nodes:
            fleet.add_node(node)
        for pod in pods:
            fleet.add_pod(pod)
        took, found = _median(lambda: place.decide(Snapshot(0, fleet)), 1)  # noqa: B023
        rates.append(1e3 * len(pods) / took)
        placed = sum(isinstance(one, Bind) for one in found)
    return {
        "pods": len(pods),
        "placed": placed,
        "first": rates[0],
        "median": statistics.median(rates),
        "rounds": rounds,
    }


def _plans(report: Report, nodes: int, pods: int, parts: int, *, bar: bool) -> None:
    fleet = _cluster(nodes)
    gang = _gang(fleet, pods, parts)
    snapshot = Snapshot(0, fleet, gangs={gang.key: gang})
    rows = list(fleet.gang_pods[gang.key])
    cache = place.Cache(fleet)

    def plan(cache: place.Cache) -> gangs.GangPlan:
        found = gangs.plan(snapshot, gang.key, rows, cache)
        assert isinstance(found, gangs.GangPlan)
        assert len(found.minimum) == pods
        return found

    cold, _ = _median(lambda: plan(place.Cache(fleet)), 5)
    warm, found = _median(lambda: plan(cache), ROUNDS)
    _check(fleet, gang, found)
    whole, decisions = _median(lambda: place.decide(snapshot, cache=cache), 5)
    assert sum(isinstance(d, Bind) for d in decisions) == pods
    name = f"gang of {pods} in {parts} subgroups, {nodes} nodes"
    remark = "all in one zone, each subgroup in one rack"
    report.row(measurement=f"{name}: plan, warm", value=warm, unit="ms", remark=remark)
    report.row(measurement=f"{name}: plan, cold", value=cold, unit="ms", remark="tables made from nothing")
    report.row(
        measurement=f"{name}: decide, warm", value=whole, unit="ms", remark="with binding, receipts and undoing it all"
    )
    if bar:
        report.bar(f"gang-{pods}-of-{parts}-subgroups", warm, "<=", 10.0, "ms", "cost")


def _median(work: Callable[[], Any], rounds: int) -> tuple[float, Any]:
    """(median milliseconds of this thread, last result); the garbage of earlier work is not collected inside."""
    times = []
    result = None
    for _ in range(rounds):
        gc.collect()
        start = time.thread_time()
        result = work()
        times.append(1e3 * (time.thread_time() - start))
    return statistics.median(times), result


def _cluster(nodes: int) -> Fleet:
    """Nodes of 8 GPUs in racks of 32 and four zones, half of the GPUs taken at random."""
    rng = random.Random("placement/cluster")
    fleet = Fleet()
    specs = {n: _spec(n) for n in range(1, 9)}
    for i in range(nodes):
        labels = {ZONE: f"zone-{i * 4 // nodes}", RACK: f"rack-{i // 32 % 40}"}
        allocatable = {"cpu": 191_450, "memory": 1_900 * GIB, "pods": 110, GPU: 8}
        row = fleet.add_node(FleetNode(f"node-{i:05d}", allocatable, labels, device_resource=GPU))
        taken = rng.choice((0, 0, 1, 2, 4, 6, 8, 8))
        if taken:
            name = f"there-{i:05d}"
            fleet.bind(fleet.add_pod(FleetPod("other", name, name, {}, specs[taken])), row)
    return fleet


def _gang(fleet: Fleet, pods: int, parts: int) -> Gang:
    """Pods of one GPU; a part has a leader of its own shape in every tenth part."""
    worker, leader = _spec(1), _spec(1, cpu=16)
    each = pods // parts
    subgroups = tuple(SubGroup(f"part-{p:03d}", each, TopologyRule(required=RACK)) for p in range(parts))
    gang = Gang("default/train", pods, subgroups, TopologyRule(required=ZONE))
    for p, subgroup in enumerate(subgroups):
        for i in range(each):
            spec = leader if i == 0 and p % 10 == 0 else worker
            name = f"train-{p:03d}-{i:04d}"
            fleet.add_pod(FleetPod("default", name, name, {}, spec, gang=gang.key, subgroup=subgroup.name))
    return gang


def _spec(gpus: int, cpu: int = 8) -> core.PodSpec:
    requests = {"cpu": str(cpu * gpus), "memory": f"{64 * gpus}Gi", GPU: str(gpus)}
    container = {"name": "main", "resources": {"requests": requests}}
    return msgspec.convert({"containers": [container]}, core.PodSpec)


def _check(fleet: Fleet, gang: Gang, plan: gangs.GangPlan) -> None:
    """That the plan keeps its rules: one zone, one rack a subgroup, and room for all of it."""
    with fleet.what_if():
        racks: dict[str, set[str]] = {}
        for one in plan.minimum:
            fleet.bind(one.pod, one.node)
            labels = fleet.node(one.node).labels
            racks.setdefault(fleet.pod(one.pod).spec.subgroup, set()).add(f"{labels[ZONE]}/{labels[RACK]}")
    assert all(len(found) == 1 for found in racks.values())
    assert len({rack.partition("/")[0] for found in racks.values() for rack in found}) == 1


# ---- two gangs at a time ----


def _deadlocks(report: Report, cases: int) -> None:
    """Gangs whose pods come interleaved, each of which fits alone, on a cluster that cannot take both."""
    rng = random.Random("placement/deadlocks")
    held, ours_half, ours_none = 0, 0, 0
    for _ in range(cases):
        free = rng.randint(6, 16)
        sizes = [rng.randint(free // 2 + 1, free) for _ in range(2)]
        arrivals = [gang for gang, size in enumerate(sizes) for _ in range(size)]
        rng.shuffle(arrivals)
        held += _pod_by_pod(free, sizes, arrivals)
        whole = _ours(free, sizes, arrivals)
        ours_half += any(0 < placed < size for placed, size in zip(whole, sizes, strict=True))
        ours_none += not any(whole)
    report.row(
        measurement="two gangs, pod by pod", value=held, unit=f"of {cases}", remark="neither is whole, both hold GPUs"
    )
    report.row(measurement="two gangs, planned whole", value=ours_none, unit=f"of {cases}", remark="neither is whole")
    report.row(measurement="two gangs, planned whole", value=ours_half, unit=f"of {cases}", remark="one is half placed")
    report.bar("gangs-half-placed-or-deadlocked", ours_half + ours_none, "==", 0, "cases", "result")


def _pod_by_pod(free: int, sizes: list[int], arrivals: list[int]) -> bool:
    """Pods take a GPU each as they come and hold it: whether no gang is whole when the GPUs are gone."""
    placed = [arrivals[:free].count(gang) for gang in range(len(sizes))]
    return not any(have == size for have, size in zip(placed, sizes, strict=True))


def _ours(free: int, sizes: list[int], arrivals: list[int]) -> list[int]:
    """How many pods of each gang are bound."""
    fleet = Fleet()
    for i in range(-(-free // 4)):
        gpus = min(4, free - 4 * i)
        allocatable = {"cpu": 64_000, "memory": 512 * GIB, "pods": 110, GPU: gpus}
        fleet.add_node(FleetNode(f"node-{i}", allocatable, {}, device_resource=GPU))
    spec = _spec(1, cpu=1)
    for i, gang in enumerate(arrivals):
        fleet.add_pod(FleetPod("default", f"g{gang}-{i}", f"g{gang}-{i}", {}, spec, gang=f"default/g{gang}"))
    known = {f"default/g{gang}": Gang(f"default/g{gang}", size) for gang, size in enumerate(sizes)}
    bound = [d.pod.name for d in place.decide(Snapshot(0, fleet, gangs=known)) if isinstance(d, Bind)]
    return [sum(name.startswith(f"g{gang}-") for name in bound) for gang in range(len(sizes))]
