"""On a real API server, in one run: pods per second beside kube-scheduler, and simulated nodes beside kwok.

Both schedulers find the same pending pods and begin when they are let go; both players of nodes find the same bound
pods and begin when they are started. The clock stops when the API server has said so of the last pod. The limits of
requests are raised on all sides: clients' QPS, and the server has neither priority and fairness nor a limit of what is
under way.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import kube_embedded, kube_load, kube_ours
from benchmarks.common import ROOT, Options, Report
from e2e import prerequisites, simulators
from e2e.api import Api, Json
from e2e.build import build, built
from e2e.control_plane import API_SERVER, SCHEDULER, UNTOUCHED, ControlPlane
from e2e.control_plane import Options as PlaneOptions
from e2e.processes import until
from tonnage.hollow.statuses import ANNOTATION

QPS = 10_000
GPU = "nvidia.com/gpu"
PODS_PATH = "/api/v1/namespaces/default/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
STALLED_S = 30.0
ELECTION = ("=true", "-retry-period=50ms", "-renew-deadline=60s", "-lease-duration=90s")
"""Quick to take a lease that is free, slow to lose it."""
PARALLELISM = 64
"""Stages of nodes and of pods that kwok plays at once, and leases. Its default of 4 is no slower on two cores."""
ATTEMPTS = 3
"""kwok now and then leaves a few of the pods that it finds at its start pending for ever; then it restarts."""


def run(options: Options) -> Report:
    """Ours beside theirs where a real cluster can be had, otherwise a note with the reason; and the embedded API."""
    report = Report("kube", ("what", "who", "pods", "seconds", "pods/s"))
    scale = 10 if options.quick else 1
    _embedded(report, scale)
    why = prerequisites.to_run() or prerequisites.to_build()
    if not why and options.quick and built() is None:
        why = "they are not built, which a quick look does not (make e2e-build)"
    if why:
        report.notes.append(f"nothing beside real programs: {why}")
        return report
    build()
    rows = _in_private("measure", str(scale))
    found = {who: seconds for _, who, _, seconds in rows}
    for what, who, pods, seconds in rows:
        report.row(what=what, who=who, pods=pods, seconds=seconds, **{"pods/s": pods / seconds})
    faster = found["kube-scheduler"] / found["tonnage scheduler"]
    report.bar("pods per second, tonnage : kube-scheduler", faster, ">=", 1.0, "times", "cost")
    report.bar("time to Running, tonnage : kwok", found["tonnage machines"] / found["kwok"], "<=", 1.0, "times", "cost")
    _load(report, "quick" if options.quick else "full")
    return report


def _load(report: Report, scale: str) -> None:
    """The scheduler under weight."""
    size = kube_load.QUICK if scale == "quick" else kube_load.FULL
    found = _in_private("measure", scale, module="benchmarks.kube_load")
    waiting, quiet, large = found["waiting"], found["quiet"], found["large"]
    theirs, ours = found["told/kube-scheduler"], found["told/tonnage"]
    what = f"pending to bound and told, {size.burst_nodes} nodes"
    for who, one in (("kube-scheduler", theirs), ("tonnage scheduler", ours)):
        seconds = one["seconds"]
        report.row(what=what, who=who, pods=size.burst, seconds=seconds, **{"pods/s": size.burst / seconds})
    report.bar(
        "bound and told, tonnage : kube-scheduler", theirs["seconds"] / ours["seconds"], ">=", 1.3, "times", "cost"
    )
    report.bar("CPU of a burst, tonnage : kube-scheduler", ours["cpu_s"] / theirs["cpu_s"], "<=", 0.5, "times", "cost")
    report.bar("first binding of a burst", ours["first_s"], "<=", 0.4, "s", "cost")
    report.bar("event after its binding, at most", ours["lag_s"], "<=", 1.0, "s", "cost")
    many = f"{size.waiting} pods wait, {size.joining} nodes join"
    report.bar(f"{many}: Ready to bound, at most", waiting["bound_s"], "<=", 0.2, "s", "cost")
    report.bar(f"{many}: status and event written, a pod", waiting["writes"], "<=", 2.0, "writes", "result")
    report.bar(f"creation to bound, {size.quiet_nodes} nodes, p99", quiet["p99_ms"], "<=", 40.0, "ms", "cost")
    big = f"{size.large_nodes} nodes, {size.large_pods} pods"
    report.bar(f"{big}: creation to bound, p99", large["p99_ms"], "<=", 300.0, "ms", "cost")
    report.bar(f"{big}: start to first binding", large["start_s"], "<=", 20.0, "s", "cost")
    report.bar(f"{big}: memory", large["mib"], "<=", 500.0, "MiB", "cost")
    report.notes.append(f"events of kube-scheduler came {theirs['lag_s']:.1f} s after their bindings, at most")


def _embedded(report: Report, scale: int) -> None:
    nodes, pods = 1_000 // scale, 5_000 // scale
    found = kube_embedded.measure(nodes, pods)
    report.row(what=f"embedded API, {nodes} nodes: first list", who="tonnage", pods=pods, seconds=found["first_list_s"])
    report.bar("embedded API: first list", found["first_list_s"], "<=", 2.0, "s", "cost")
    report.bar("embedded API: a binding, p50", found["bind_p50_ms"], "<=", 5.0, "ms", "cost")
    report.bar("controllers, peak memory", found["controllers_mib"], "<=", 300.0, "MiB", "cost")
    report.notes.append(f"embedded API: a binding, p99 {found['bind_p99_ms']:.2f} ms")


def measure(scale: str) -> list[tuple[str, str, int, float]]:
    """(what, who, pods, seconds) of every measurement; in namespaces of their own, ``scale`` times less."""
    nodes, pods = 200 // int(scale), 2_000 // int(scale)
    machines, many = 1_000 // int(scale), 5_000 // int(scale)
    placing, playing = f"pending to bound, {nodes} nodes", f"bound to Running, {machines} nodes"
    contenders: tuple[tuple[str, str, int, Callable[[ControlPlane], float]], ...] = (
        (placing, "kube-scheduler", pods, lambda plane: kube_scheduler_seconds(plane, nodes, pods)),
        (placing, "tonnage scheduler", pods, lambda plane: tonnage_scheduler_seconds(plane, nodes, pods)),
        (playing, "kwok", many, lambda plane: kwok_seconds(plane, machines, many)),
        (playing, "tonnage machines", many, lambda plane: tonnage_machines_seconds(plane, machines, many)),
    )
    found = []
    for what, who, count, seconds_of in contenders:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, start_plane(Path(folder)) as plane:
            found.append((what, who, count, seconds_of(plane)))
    return found


# ---- ours ----


def tonnage_scheduler_seconds(plane: ControlPlane, nodes: int, pods: int) -> float:
    """Seconds that our scheduler needs to bind ``pods`` pending pods; it waits with its caches full until let go."""
    api = plane.api()
    make_nodes(api, nodes)
    make_pods(api, pods, scheduler_name="tonnage")
    config = str(plane.kubeconfig())
    return kube_ours.seconds(kube_ours.schedule, [config], lambda begin: seconds_until_bound(api, pods, begin))


def tonnage_machines_seconds(plane: ControlPlane, nodes: int, pods: int) -> float:
    """Seconds from the start of our machines until ``nodes`` nodes are Ready and ``pods`` pods on them are Running."""
    api = plane.api()
    make_nodes(api, nodes, annotations={ANNOTATION: "true"}, ready=False)
    make_pods(api, pods, on_nodes=nodes)
    given = [str(plane.kubeconfig()), [node_name(number) for number in range(nodes)]]
    return kube_ours.seconds(kube_ours.play, given, lambda begin: seconds_until_running(api, nodes, pods, begin))


# ---- the peers ----


def kube_scheduler_seconds(plane: ControlPlane, nodes: int, pods: int) -> float:
    """Seconds that kube-scheduler needs to bind ``pods`` pending pods to ``nodes`` nodes.

    It waits with its caches full for a lease that somebody else holds; the clock starts when that lease is deleted."""
    api = plane.api()
    make_nodes(api, nodes)
    make_pods(api, pods)
    now = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
    held = {"holderIdentity": "benchmark", "leaseDurationSeconds": 3_600, "acquireTime": now, "renewTime": now}
    api.create(LEASES, {"metadata": {"name": SCHEDULER}, "spec": held})
    plane.programs[SCHEDULER].start()
    until(
        "all pods in the scheduler's queue",
        lambda: plane.metric(SCHEDULER, "scheduler_pending_pods", 'queue="active"') == pods,
    )
    return seconds_until_bound(api, pods, lambda: api.delete(f"{LEASES}/{SCHEDULER}"))


def kwok_seconds(plane: ControlPlane, nodes: int, pods: int) -> float:
    """Seconds from the start of kwok until ``nodes`` nodes are Ready and ``pods`` pods bound to them are Running."""
    for _ in range(ATTEMPTS - 1):
        try:
            return _kwok_once(plane, nodes, pods)
        except TimeoutError:
            clear(plane.api())
    return _kwok_once(plane, nodes, pods)


def _kwok_once(plane: ControlPlane, nodes: int, pods: int) -> float:
    api = plane.api()
    make_nodes(api, nodes, annotations={simulators.KWOK_ANNOTATION: "fake"}, ready=False)
    make_pods(api, pods, on_nodes=nodes)
    program = simulators.kwok(plane, PARALLELISM)
    try:
        return seconds_until_running(api, nodes, pods, lambda: program.start(wait=False))
    finally:
        program.stop()


# ---- what every contender gets ----


def start_plane(folder: Path) -> ControlPlane:
    """A control plane for one measurement, not started yet. No controllers; the scheduler waits to be started."""
    there = built()
    assert there is not None
    flags = {
        API_SERVER: kube_load.UNLIMITED,
        SCHEDULER: tuple(f"--leader-elect{rest}" for rest in ELECTION),
    }
    return ControlPlane(
        there,
        folder,
        PlaneOptions(controllers=(), admission_off=UNTOUCHED, client_qps=QPS, flags=flags, held=(SCHEDULER,)),
    )


def node_name(number: int) -> str:
    return f"node-{number:04}"


def make_nodes(api: Api, count: int, *, annotations: dict[str, str] | None = None, ready: bool = True) -> None:
    """Nodes with 64 CPUs and 8 GPUs each. Not ``ready``: without a status, for someone to fill in."""
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: "8"}
    condition = {"type": "Ready", "status": "True", "reason": "Benchmark", "message": ""}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [condition] if ready else []}

    def make(number: int) -> Json:
        name = node_name(number)
        meta = {"name": name, "labels": {"kubernetes.io/hostname": name}, "annotations": annotations or {}}
        return api.create("/api/v1/nodes", {"metadata": meta, "status": status})

    api.each(make, range(count))


def make_pods(api: Api, count: int, *, scheduler_name: str = "default-scheduler", on_nodes: int = 0) -> None:
    """Pods of one CPU, every second with a GPU, pending; or bound in turn to the first ``on_nodes`` nodes."""

    def make(number: int) -> Json:
        limits = {GPU: "1"} if number % 2 else {}
        resources = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": limits}
        spec: Json = {
            "schedulerName": scheduler_name,
            "containers": [{"name": "main", "image": "none", "resources": resources}],
        }
        if on_nodes:
            spec["nodeName"] = node_name(number % on_nodes)
        meta = {"name": f"pod-{number:05}", "labels": {"app": "benchmark"}}
        return api.create(PODS_PATH, {"metadata": meta, "spec": spec})

    api.each(make, range(count))


def clear(api: Api) -> None:
    """Delete all pods and nodes, for the next contender."""
    api.delete(PODS_PATH)
    api.delete("/api/v1/nodes")
    until("no pods and nodes", lambda: not (api.items(PODS_PATH, limit=1) or api.items("/api/v1/nodes", limit=1)))


def seconds_until_bound(api: Api, pods: int, begin: Callable[[], object]) -> float:
    """Seconds from ``begin()`` until ``pods`` of the pending pods are bound."""
    return _seconds_until_gone(api, "spec.nodeName=", pods, begin)


def seconds_until_running(api: Api, nodes: int, pods: int, begin: Callable[[], object]) -> float:
    """Seconds from ``begin()`` until ``pods`` pods are Running and ``nodes`` nodes are Ready."""
    begun = time.perf_counter()
    _seconds_until_gone(api, "status.phase!=Running", pods, begin)
    until(f"{nodes} nodes Ready", lambda: sum(map(_is_ready, api.items("/api/v1/nodes"))) == nodes)
    return time.perf_counter() - begun


def _is_ready(node: Json) -> bool:
    conditions = node.get("status", {}).get("conditions") or []
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _seconds_until_gone(api: Api, field_selector: str, count: int, begin: Callable[[], object]) -> float:
    """Seconds from ``begin()`` until the API server's watch said that ``count`` pods no longer match the selector.

    Raises TimeoutError when none went for STALLED_S seconds."""
    countdown = _Countdown(api, field_selector, count)
    thread = threading.Thread(target=countdown.follow, daemon=True)
    thread.start()
    begun = time.perf_counter()
    begin()
    while thread.is_alive() and time.perf_counter() - max(begun, countdown.last) < STALLED_S:
        thread.join(0.5)
    if countdown.left > 0:
        raise TimeoutError(f"{countdown.left} of {count} pods are {field_selector} and none left for {STALLED_S:g} s")
    return countdown.last - begun


class _Countdown:
    """Follows pods leaving a field selector: ``left`` to go, ``last``: when one went (perf_counter).

    Lines are counted undecoded, so that the counting takes little of the machine that is measured."""

    def __init__(self, api: Api, field_selector: str, count: int) -> None:
        self._api, self._selector = api, field_selector
        self._listed = self._list()
        self._others = len(self._listed["items"]) - count
        self.left = count
        self.last = 0.0

    def _list(self) -> Json:
        return self._api.get(PODS_PATH, fieldSelector=self._selector)

    def follow(self) -> None:
        while self.left > 0:
            version = self._listed["metadata"]["resourceVersion"]
            for line in self._api.watch(PODS_PATH, fieldSelector=self._selector, resourceVersion=version):
                if line.startswith(b'{"type":"DELETED"'):
                    self.left -= 1
                    self.last = time.perf_counter()
                if self.left <= 0:
                    return
            self._listed = self._list()  # the server ends a watch whose reader was slow
            self.left = len(self._listed["items"]) - self._others
            self.last = time.perf_counter()


def _in_private(function: str, *arguments: str, module: str = "benchmarks.kube") -> Any:
    """The JSON result of a function of a module, run in namespaces of its own."""
    code = f"import json, sys; from {module} import {function}; print(json.dumps({function}(*sys.argv[1:])))"
    words = [str(ROOT / "e2e" / "private.sh"), sys.executable, "-c", code, *arguments]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(words, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])
