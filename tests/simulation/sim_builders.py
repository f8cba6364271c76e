"""A small simulated world, built by hand and driven event by event, and short variants of the bundled scenario."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np

import yaml_text
from tonnage.control.scheduler import Scheduler
from tonnage.decisions import Bind, Launch, Outcome, Reason, Ref
from tonnage.facts import durations, prices
from tonnage.fleet.state import FREE_DEVICE
from tonnage.inference.config import parse_vllm_args
from tonnage.inference.engine import EngineConfig
from tonnage.inference.timing import TICKS_PER_NS, StepWork
from tonnage.machines import nodes, pods
from tonnage.machines.cluster import SimulatedCluster
from tonnage.machines.objects import EngineSetup, ModelServer, SimulatedNode, SimulatedNodeClaim, SimulatedPod, Workload
from tonnage.machines.physics import Physics, Pool
from tonnage.machines.scraping import Scraper
from tonnage.machines.serving.service import SimulatedService
from tonnage.objects import core
from tonnage.provisioning.nodeclass import NodeStorage
from tonnage.rng import Streams
from tonnage.simulation.driver import LoopDriver
from tonnage.simulation.recorder import Recorder
from tonnage.simulation.result import Result
from tonnage.simulation.scenario import Scenario, load
from tonnage.traffic.arrivals import Arrivals
from tonnage.units import MIB, NS_PER_MS, NS_PER_S

EXAMPLE = Path(__file__).parents[2] / "examples" / "traffic-surge"
MODEL = "meta-llama/Llama-3.1-8B-Instruct"
TYPICAL = msgspec.structs.replace(durations.get(), jitter=0.0)
"""The durations of facts, every one exactly as it stands there."""
DISK = NodeStorage(throughput_bytes_per_s=125 * MIB)
SOLD = [
    (name, offer.zone, offer.capacity_type)
    for name in ("g6e.12xlarge", "g6e.2xlarge")
    for offer in prices.load().offerings(name)
]
"""What the cloud of tests about faults sells."""
POOL = "bought"
GPU = "nvidia.com/gpu"
READINESS = {"readinessProbe": {"periodSeconds": 5}}


@dataclass(frozen=True)
class Steady:
    """An engine whose every step takes 10 ms: a request of n tokens that never waits takes n × 10 ms."""

    decode_token: int = 0
    window: int = 0
    window_token: int = 0

    def step(self, work: StepWork) -> int:
        return 10 * NS_PER_MS * TICKS_PER_NS

    def host(self, work: StepWork) -> int:
        return 0


SETUP = EngineSetup(EngineConfig(2048, 8, 4096, 2048), Steady())


def _engine(workload: Workload, gpu: str, utilization: float | None = None) -> EngineSetup | str:
    return SETUP if gpu else "no GPU"


def world(*, images_on_disk: bool = False, seed: int = 0, start_s: int = 1) -> SimulatedCluster:
    """An empty cluster, one second after its start, with one NodePool.

    At time 0 everything that is told to happen has happened already.
    """
    pool = Pool({}, (), DISK, images_on_disk)
    physics = Physics(TYPICAL, {POOL: pool}, "us-east-1", _engine)
    cluster = SimulatedCluster(physics, Streams(seed))
    cluster.advance_to(start_s * NS_PER_S)
    return cluster


def workload(
    cluster: SimulatedCluster,
    name: str = "model-a",
    replicas: int = 1,
    *,
    gpus: int = 1,
    shutdown_s: int = 0,
    container: dict[str, Any] | None = None,
    **spec: Any,
) -> Workload:
    """A Deployment with one vLLM container; ``container`` and ``spec`` as in a manifest. No pod exists yet."""
    written = {"name": "vllm", "image": "vllm/vllm-openai:v1", "resources": {"requests": {GPU: str(gpus)}}}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [written | (container or {})], **spec}}
    made = Workload(
        "inference",
        name,
        msgspec.convert(template, core.PodTemplateSpec),
        replicas,
        ModelServer(parse_vllm_args(["--model", MODEL]), 16 * 10**9, MODEL, shutdown_s),
    )
    cluster.workloads[made.key] = made
    return made


def node(
    cluster: SimulatedCluster,
    name: str = "node-1",
    instance_type: str = "g6e.12xlarge",
    *,
    node_pool: str = "",
    capacity_type: str = "on-demand",
) -> SimulatedNode:
    """A node that is ready now."""
    made = nodes.start_node(
        cluster, SimulatedNodeClaim(launch(name, instance_type, node_pool, capacity_type), cluster.now_ns)
    )
    nodes.register_node(cluster, made)
    nodes.initialize_node(cluster, made)
    return made


def launch(
    name: str, instance_type: str = "g6e.12xlarge", node_pool: str = POOL, capacity_type: str = "on-demand"
) -> Launch:
    """The decision to launch a node for a dollar an hour."""
    claim = Ref("NodeClaim", name)
    return Launch(claim, node_pool, instance_type, "us-east-1a", capacity_type, 1_000_000, Reason("test"))


def bind(cluster: SimulatedCluster, pod: SimulatedPod, target: SimulatedNode) -> Outcome:
    """Put the pod on the node, on the first devices that are free."""
    wanted = cluster.fleet.pod_class(pod.row).requests.get(GPU, 0)
    devices = tuple(free(cluster, target)[:wanted])
    node_ref = Ref("Node", target.name, uid=target.uid)
    return cluster.apply(Bind(Ref("Pod", pod.name, pod.namespace, pod.uid), node_ref, Reason("test"), devices))


def free(cluster: SimulatedCluster, target: SimulatedNode) -> list[int]:
    """The node's free devices."""
    row = cluster.fleet.node_by_name.get(target.name)
    return [] if row is None else [int(i) for i in np.flatnonzero(cluster.fleet.devices[row] == FREE_DEVICE)]


def start(cluster: SimulatedCluster, made: Workload, target: SimulatedNode) -> list[SimulatedPod]:
    """Create the workload's pods and bind them all to the node."""
    pods.reconcile(cluster, made)
    for pod in made.active:
        bind(cluster, pod, target)
    return made.active


def pods_on(cluster: SimulatedCluster, node_name: str) -> list[str]:
    """Names of the workloads' pods on a node."""
    return sorted(pod.name for pod in cluster.pods.values() if pod.node == node_name)


def run_until(cluster: SimulatedCluster, second: float) -> None:
    """Let everything happen that happens up to this time."""
    until = round(second * NS_PER_S)
    while (at := cluster.queue.next_ns()) is not None and at <= until:
        cluster.queue.step(cluster)
    cluster.advance_to(until)
    for found in cluster.services:
        found.settle(until)


def scheduled(cluster: SimulatedCluster) -> LoopDriver:
    """A machine in which the scheduler alone is at work; the world must be at time 0."""
    machine = LoopDriver(cluster, Recorder(5 * NS_PER_S), check=True)
    machine.start([Scheduler().loop()], Scraper((), histograms=False))
    return machine


def arrivals(*seconds: float, prompt: int = 10, output: int = 10) -> Arrivals:
    """Requests at these times."""
    times = np.array([round(s * NS_PER_S) for s in seconds], np.int64)
    lengths = np.full(len(times), 1, np.int32)
    return Arrivals(times, lengths * prompt, lengths * output, ())


def service(
    cluster: SimulatedCluster, made: Workload, requests: Arrivals, balancing: str = "least-requests"
) -> SimulatedService:
    """The Service in front of a workload. Requests before now are not received any more."""
    found = SimulatedService(made.key, requests, balancing, cluster.streams.python("balancing"))
    made.service = found
    cluster.services.append(found)
    return found


def events(cluster: SimulatedCluster, reason: str) -> list[str]:
    """Messages of the cluster events with this reason."""
    return [event.message for event in cluster.events.rows.values() if event.reason == reason]


# ---- the bundled scenario, and shorter variants of it ----

SHORT_RUN = "short"
Golden: TypeAlias = Callable[[str, int | str], Result]
"""Gives the result of a policy on the bundled scenario with a seed, or of its variant in 25 minutes (SHORT_RUN)."""

SHORT: dict[str, Any] = {"duration": "25m", "slo": {"ttft": "2s", "tpot": "50ms", "grace": "6m"}}
SHORT_SURGE = {"start": "4m", "duration": "6m", "ramp": "1m", "factor": 5}


def variant(folder: Path, *, surge: Mapping[str, Any] = SHORT_SURGE, **changes: Any) -> Scenario:
    """The bundled scenario in 25 minutes, with its manifests where they are; ``changes`` replace top-level fields."""
    document = copy.deepcopy(yaml_text.load((EXAMPLE / "scenario.yaml").read_text(encoding="utf-8")))
    document |= SHORT
    document["traffic"][0]["surges"] = [dict(surge)]
    for traffic in document["traffic"]:
        traffic["profile"] = str(EXAMPLE / traffic["profile"])
    for policy in document["policies"].values():
        policy["manifests"] = str(EXAMPLE / policy["manifests"])
    document |= changes
    path = folder / "scenario.yaml"
    path.write_text(yaml_text.dump(document, sort_keys=False), encoding="utf-8")
    return load(path)


def line_of(path: Path, text: str, after: str = "") -> int:
    """The number of the only line of a file that holds ``text``, counted from the line that holds ``after`` on."""
    lines = path.read_text(encoding="utf-8").splitlines()
    first = next(number for number, line in enumerate(lines) if after in line)
    found = [number for number, line in enumerate(lines, 1) if number > first and text in line]
    assert len(found) == 1, f"{text!r} stands in lines {found} of {path}"
    return found[0]
