"""The simulator and its speed: an hour of real traffic, a large cluster's pods, its JSON, and a quick command line.

*azure hour*: 19,366 requests of the Azure 2023 conversation trace on ten replicas of Llama-3.1-8B on H100s, with
metrics scraped, an autoscaler that reads them, and the recorder. *place*: 2,000 nodes of 8 GPUs; 12,000 GPU pods and
8,000 without, a fifth of those with topology spread, pod affinity or anti-affinity; all fit at once, which the plainest
policy, binpack, shows beside the default one; every invariant must hold after. *parse*: 5,000 pods as `kubectl get pods
-o json` prints them, with warnings about unknown fields; json.loads of the same text is the yardstick. *help*: `tonnage
--help` as a user types it, beside a click program with one command.

Each is measured in a process of its own, imports included for the hour; memory is that process's peak.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.common import Options, Report, in_process, peak_memory_gib, timed

REPLICAS = 10
TRACE = Path("traces") / "azure2023_conv.csv.gz"
SEED = 0
PLACED = (("tonnage", 100.0), ("binpack", 100.0))
"""Policies that place the large cluster's pods, and the least share of the pods in per cent. The default one places
pods that may go anywhere elsewhere for those that select one model."""

MANIFESTS = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: llama, namespace: inference}
spec:
  replicas: REPLICAS
  selector: {matchLabels: {app: llama}}
  template:
    metadata: {labels: {app: llama}}
    spec:
      containers:
        - name: vllm
          image: vllm/vllm-openai:v0.33.0
          args: [--model=meta-llama/Llama-3.1-8B-Instruct, --max-model-len=16384, --max-num-batched-tokens=2048]
          ports: [{name: http, containerPort: 8000}]
          readinessProbe: {httpGet: {path: /health, port: http}, periodSeconds: 5}
          resources:
            requests: {nvidia.com/gpu: 1, cpu: "8", memory: 64Gi}
            limits: {nvidia.com/gpu: 1}
---
apiVersion: v1
kind: Service
metadata: {name: llama, namespace: inference, labels: {app: llama}}
spec:
  selector: {app: llama}
  ports: [{name: http, port: 8000}]
---
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata: {name: llama, namespace: inference}
spec:
  selector: {matchLabels: {app: llama}}
  endpoints: [{port: http, interval: 15s}]
---
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: llama, namespace: inference}
spec:
  scaleTargetRef: {name: llama}
  minReplicaCount: REPLICAS
  maxReplicaCount: REPLICAS
  triggers:
    - type: prometheus
      metadata:
        serverAddress: http://prometheus.monitoring:9090
        query: sum(vllm:num_requests_running{namespace="inference"})
        threshold: "20"
"""

SCENARIO = """\
kind: Scenario
name: azure-hour
duration: {duration}s
slo: {{ttft: 2s, tpot: 50ms}}
fleet:
  nodes: [{{instanceType: p5.48xlarge, count: 2}}]
traffic:
  - {{service: inference/llama, trace: {trace}, balancing: least-requests}}
policies:
  fixed: {{manifests: manifests}}
"""


def run(options: Options) -> Report:
    """All four. ``--quick``: 10 minutes of the hour, a tenth of the cluster and of the pods."""
    report = Report("main", ("what", "amount", "seconds", "GiB", "ratio", "detail"))
    _azure_row(report, options)
    share = 10 if options.quick else 1
    for policy, least in PLACED:
        _place_row(report, 2000 // share, policy, least)
    if share == 1:
        _place_row(report, 200, *PLACED[0])
    parsed = in_process("benchmarks.main", "parse", str(5000 // share))
    report.row(
        what="parse",
        amount=f"{parsed['pods']} pods, {parsed['megabytes']:.1f} MB",
        seconds=parsed["seconds"],
        GiB=parsed["gib"],
        ratio=parsed["seconds"] / parsed["json_loads"],
        detail=f"{parsed['warnings']} warnings; ratio to json.loads",
    )
    report.bar("parse-5000-pods-seconds", parsed["seconds"], "<=", 0.15, "s", "cost")
    shown, bare = _help_seconds(3 if options.quick else 10)
    report.row(
        what="help", amount="best run", seconds=shown, ratio=shown / bare, detail="ratio to a bare click program"
    )
    report.bar("help-ms", shown * 1000, "<=", 150, "ms", "cost")
    return report


def _place_row(report: Report, nodes: int, policy: str, least: float) -> None:
    placed = in_process("benchmarks.main", "place", str(nodes), policy)
    report.row(
        what=f"place, {policy}",
        amount=f"{placed['pods']} pods, {placed['nodes']} nodes",
        seconds=placed["seconds"],
        GiB=placed["gib"],
        detail=f"{placed['placed']} placed, with {placed['gpus']} of the {placed['gpus_asked']} GPUs asked for; "
        f"{placed['pods'] / placed['seconds']:,.0f} pods/s; decide {placed['decide']:.2f} s",
    )
    share = 100 * placed["placed"] / placed["pods"]
    report.bar(f"place-{placed['pods']}-placed-{policy}", share, ">=", least, "% of pods", "result")
    report.bar(f"place-{placed['pods']}-seconds-{policy}", placed["seconds"], "<=", 10, "s", "cost")
    report.bar(f"place-{placed['pods']}-gib-{policy}", placed["gib"], "<=", 1.5, "GiB", "cost")


def _azure_row(report: Report, options: Options) -> None:
    if options.data is None or not (options.data / TRACE).exists():
        report.notes.append(f"azure hour left out: no {TRACE} (give --data DIR or TONNAGE_DATA)")
        return
    hour = in_process(
        "benchmarks.main", "azure_hour", str((options.data / TRACE).resolve()), "600" if options.quick else ""
    )
    report.row(
        what="azure hour",
        amount=f"{hour['requests']} requests, {REPLICAS} replicas",
        seconds=hour["seconds"],
        GiB=hour["gib"],
        ratio=hour["simulated"] / hour["seconds"],
        detail=f"{hour['tokens'] / hour['seconds']:,.0f} tokens/s; SLO met by {hour['share']:.4f}; ratio to real time",
    )
    report.bar("azure-hour-seconds", hour["seconds"], "<=", 8, "s", "cost")
    report.bar("azure-hour-gib", hour["gib"], "<=", 1.5, "GiB", "cost")


def azure_hour(trace: str, seconds: str) -> dict[str, Any]:
    """The trace, or its first ``seconds``, on ten replicas."""
    begin = time.perf_counter()
    from tonnage.simulation import run as simulator
    from tonnage.simulation import scenario
    from tonnage.traffic.traces import load_trace
    from tonnage.units import NS_PER_MS

    requests = load_trace(Path(trace))
    duration = float(seconds) if seconds else (requests.span_ns // NS_PER_MS + 1) / 1000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / "manifests").mkdir()
        (path / "manifests" / "all.yaml").write_text(MANIFESTS.replace("REPLICAS", str(REPLICAS)))
        (path / "scenario.yaml").write_text(SCENARIO.format(duration=duration, trace=json.dumps(trace)))
        result = simulator.run(scenario.load(path), "fixed", simulator.RunOptions(seed=SEED))
    took = time.perf_counter() - begin
    (service,) = result.services
    counted = service.overall.requests + service.overall.undecided
    if not seconds and counted != len(requests):
        raise AssertionError(f"{counted} requests were simulated, the trace has {len(requests)}")
    if service.min_ready_replicas != REPLICAS or not any(result.series.services[0].requests_running):
        raise AssertionError("ten replicas were to serve all the time")
    return {
        "seconds": took,
        "gib": peak_memory_gib(),
        "requests": counted,
        "tokens": service.prompt_tokens + service.generated_tokens,
        "share": service.overall.share,
        "simulated": duration,
    }


def place(nodes_text: str, policy: str) -> dict[str, Any]:
    """Pods of a cluster of that many nodes, all pending at first. Raises AssertionError when an invariant is broken."""
    from benchmarks.cluster import GPU, nodes_and_pods
    from tonnage.decisions import Bind
    from tonnage.fleet.invariants import violations
    from tonnage.fleet.snapshot import Snapshot
    from tonnage.fleet.state import Fleet
    from tonnage.scheduling.place import Settings, decide

    nodes, pods = nodes_and_pods(int(nodes_text), SEED)
    gpus = {pod.name: int(pod.spec.containers[0].resources.requests.get(GPU, 0)) for pod in pods}
    fleet = Fleet()
    begin = time.perf_counter()
    for node in nodes:
        fleet.add_node(node)
    for pod in pods:
        fleet.add_pod(pod)
    deciding, decisions = timed(lambda: decide(Snapshot(0, fleet), Settings(policy)))
    bound = [decision for decision in decisions if isinstance(decision, Bind)]
    for decision in bound:
        row = fleet.pod_by_key[decision.pod.namespace, decision.pod.name]
        fleet.bind(row, fleet.node_by_name[decision.node.name], decision.devices)
    took = time.perf_counter() - begin
    memory = peak_memory_gib()
    broken = violations(fleet)
    if broken:
        raise AssertionError("; ".join(broken[:3]))
    return {
        "seconds": took,
        "decide": deciding,
        "gib": memory,
        "pods": len(pods),
        "placed": len(bound),
        "gpus": sum(gpus[decision.pod.name] for decision in bound),
        "gpus_asked": sum(gpus.values()),
        "nodes": len(nodes),
    }


def parse(count_text: str) -> dict[str, Any]:
    """Pods from JSON: ours and json.loads, best of five."""
    from benchmarks.pods import make_pods_json
    from tonnage.objects.podlist import pods_from_json

    count = int(count_text)
    data = make_pods_json(count, SEED)
    if len(data) < 2200 * count:
        raise AssertionError(f"{len(data) / count:.0f} bytes a pod, at least 2200 are wanted")
    ours, (pods, problems) = timed(lambda: pods_from_json(data), 5)
    theirs, _ = timed(lambda: json.loads(data), 5)
    if len(pods) != count or not problems:
        raise AssertionError("pods or warnings are missing")
    return {
        "seconds": ours,
        "json_loads": theirs,
        "gib": peak_memory_gib(),
        "pods": count,
        "megabytes": len(data) / 1e6,
        "warnings": len(problems),
    }


BARE = "import click\n@click.group()\ndef main(): pass\n@main.command()\ndef hello(): pass\nmain()"


def _help_seconds(repeat: int) -> tuple[float, float]:
    """(`tonnage --help`, the help of a bare click program), best of ``repeat`` runs each, in turn."""
    installed = Path(sys.executable).with_name("tonnage")
    ours = [str(installed)] if installed.exists() else [sys.executable, "-m", "tonnage"]
    bare = [sys.executable, "-c", BARE]

    def once(command: list[str]) -> float:
        return timed(lambda: subprocess.run([*command, "--help"], check=True, capture_output=True))[0]

    pairs = [(once(ours), once(bare)) for _ in range(repeat)]
    return min(a for a, _ in pairs), min(b for _, b in pairs)
