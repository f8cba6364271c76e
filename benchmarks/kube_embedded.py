"""The embedded API with 1,000 nodes and 5,000 pods: the first list, a binding, and the memory of the controllers."""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from tonnage.apiserver import kubeconfig
from tonnage.apiserver.api import Api
from tonnage.apiserver.http import Server
from tonnage.apiserver.inprocess import InProcess
from tonnage.control.scheduler import Scheduler
from tonnage.decisions import Applied
from tonnage.kube.clock import WallClock
from tonnage.kube.informer import Informers
from tonnage.kube.resources import NODES, PODS
from tonnage.kube.verbs import Client
from tonnage.live.api_effects import ApiEffects
from tonnage.live.recording import Silent
from tonnage.live.watching import watch_world
from tonnage.live.world import ClusterWorld
from tonnage.scheduling import place

AMOUNTS = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}
REQUESTS = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"nvidia.com/gpu": "1"}}
READY_S = 60.0


def measure(nodes: int, pods: int) -> dict[str, float]:
    """``first_list_s`` over HTTP, ``bind_p50_ms``, ``bind_p99_ms`` in process, ``controllers_mib`` of a process of all
    three controllers that watches over HTTP."""
    api = Api()
    client = Client(InProcess(api))
    _fill(client, nodes, pods)
    with Server(api) as server, tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        with urllib.request.urlopen(f"{server.url}/api/v1/pods") as reply:
            reply.read()
        first_list_s = time.perf_counter() - begun
        config = kubeconfig.write(Path(folder) / "config", server.url)
        controllers_mib = _controllers(config)
        binds = _bind(client, pods)
    return {
        "first_list_s": first_list_s,
        "bind_p50_ms": binds[len(binds) // 2] * 1e3,
        "bind_p99_ms": binds[int(len(binds) * 0.99)] * 1e3,
        "controllers_mib": controllers_mib,
    }


def _fill(client: Client, nodes: int, pods: int) -> None:
    status = {"capacity": AMOUNTS, "allocatable": AMOUNTS, "conditions": [{"type": "Ready", "status": "True"}]}
    for number in range(nodes):
        meta = {"name": f"node-{number:04}"}
        client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": status})
    for number in range(pods):
        meta = {"name": f"pod-{number:05}", "namespace": "default", "labels": {"app": "benchmark"}}
        container = {"name": "main", "image": "none", "resources": REQUESTS}
        spec = {"schedulerName": "tonnage", "containers": [container]}
        client.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}, "default")


def _bind(client: Client, pods: int) -> list[float]:
    """Seconds of each binding, sorted. Raises AssertionError when one is not made."""
    clock = WallClock()
    world = ClusterWorld(ApiEffects(client, clock), clock, price=lambda *_: 0, recorder=Silent())
    informers = Informers(client, time.time, random.Random(0))
    required = watch_world(informers, world)
    while not all(informer.synced for informer in required):
        informers.pump(0.1)
    decisions = Scheduler(place.Settings(scheduler_names=("tonnage",))).decide(world)
    assert len(decisions) == pods
    times = []
    for decision in decisions:
        begun = time.perf_counter()
        outcome = world.apply(decision)
        times.append(time.perf_counter() - begun)
        assert outcome == Applied(), outcome
    informers.stop()
    return sorted(times)


def _controllers(config: Path) -> float:
    """MiB resident of `tonnage controller` once it has seen everything and decided on it, in observe mode."""
    command = [sys.executable, "-m", "tonnage", "controller", "--kubeconfig", str(config), "-o", "json", "-q"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        deadline = time.monotonic() + READY_S
        line = process.stdout.readline()
        while b'"Bind"' not in line and time.monotonic() < deadline and line:
            line = process.stdout.readline()
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
        process.kill()
        process.stdout.read()
    if b'"Bind"' not in line:
        raise TimeoutError("the controllers decided nothing")
    peak = next(row for row in status.splitlines() if row.startswith("VmHWM"))
    return int(peak.split()[1]) / 1024
