"""Generated HPAs beside the real HPA controller: the same counts in the same order, each in the pass that asks for it.

Pods are made by the test itself, with a status and nothing behind it; what metrics show is constant for at least five
passes of the controller at a time. The controller tells the metrics API when it counts, so Tonnage counts at the same
times."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import hpa_cases
import metrics_api
import pytest
import sampling
from e2e_builders import condition
from hpa_cases import DOWNSCALE_S, PERIOD_S, Case
from metrics_api import NAMESPACE, MetricsApi

from e2e.api import Api, Json
from e2e.control_plane import API_SERVER, MANAGER, UNTOUCHED, ControlPlane
from e2e.processes import until
from tonnage.objects import load

BATCH, BATCHES, SAMPLED = 25, 5, 1
STEPS, PASSES = 4, 5
"""How often what the metrics show changes, and how many passes each sees at least."""
SETTLE_S = 0.25
"""Pods that came or went less long before a pass may not have been seen by it."""
KNOWN_DIFFERENCES: dict[str, str] = {}
"""Name of a case → what differs and why; none does so far."""


@pytest.fixture(scope="module")
def plane(start_plane: object) -> ControlPlane:
    gate = "--feature-gates=HPAScaleToZero=true"
    manager = [
        gate,
        f"--horizontal-pod-autoscaler-sync-period={PERIOD_S}s",
        f"--horizontal-pod-autoscaler-downscale-stabilization={DOWNSCALE_S}s",
        "--concurrent-horizontal-pod-autoscaler-syncs=25",
    ]
    controllers = ("horizontal-pod-autoscaler-controller", "serviceaccount-controller")
    found: ControlPlane = start_plane(  # type: ignore[operator]
        controllers=controllers,
        scheduler=False,
        admission_off=UNTOUCHED,
        client_qps=1_000,
        flags={API_SERVER: [gate], MANAGER: manager},
    )
    found.namespace(NAMESPACE)
    return found


@dataclass
class Pods:
    """Makes and removes the pods of Deployments as these ask for them, and says so in their status."""

    client: Api
    cases: dict[str, Case] = field(default_factory=dict)
    there: dict[str, int] = field(default_factory=dict)
    asked: dict[str, list[tuple[float, int]]] = field(default_factory=lambda: defaultdict(list))
    """(when, replicas) as Deployments asked for them."""
    made: dict[str, list[tuple[float, float, int]]] = field(default_factory=lambda: defaultdict(list))
    """(begun, done, pods)."""

    workers: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(8))
    locks: dict[str, threading.Lock] = field(default_factory=lambda: defaultdict(threading.Lock))

    def follow(self, deployment: Json) -> None:
        """Take note of what a Deployment asks for; somebody else sees to it."""
        name, replicas = deployment["metadata"]["name"], deployment["spec"]["replicas"]
        if name in self.cases and not (self.asked[name] and self.asked[name][-1][1] == replicas):
            self.asked[name].append((time.monotonic(), replicas))
            self.workers.submit(self._settle, self.cases[name], self.locks[name])

    def _settle(self, one: Case, lock: threading.Lock) -> None:
        with lock:
            name, (begun, replicas) = one.name, self.asked[one.name][-1]
            for number in range(self.there.get(name, 0), replicas):
                self._make(one, number)
            for number in range(replicas, self.there.get(name, 0)):
                self.client.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/{one.pod(number)}")
            self.there[name] = replicas
            path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{name}/status"
            self.client.patch(path, {"status": {"replicas": replicas}})
            self.made[name].append((begun, time.monotonic(), replicas))

    def _make(self, one: Case, number: int) -> None:
        requests = {"cpu": "1", "memory": "128Mi"}
        container = {"name": "main", "image": "none", "resources": {"requests": requests}}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": one.pod(number), "labels": {"app": one.name}},
            "spec": {"containers": [container]},
        }
        self.client.create(f"/api/v1/namespaces/{NAMESPACE}/pods", body)
        long_ago = time.time() - 3_600
        started, changed = (time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(long_ago + after)) for after in (0, 10))
        ready = {
            "type": "Ready",
            "status": "False" if number in one.unready else "True",
            "lastTransitionTime": changed,
        }
        status = {"phase": "Running", "startTime": started, "conditions": [ready]}
        self.client.patch(f"/api/v1/namespaces/{NAMESPACE}/pods/{one.pod(number)}/status", {"status": status})

    def names(self, name: str) -> tuple[str, ...]:
        return tuple(self.cases[name].pod(number) for number in range(self.there.get(name, 0)))

    def at(self, name: str, at_s: float) -> int:
        """How many there were."""
        return next((pods for _, done, pods in reversed(self.made[name]) if done <= at_s), 0)

    def unsettled(self, name: str, at_s: float) -> bool:
        """Whether pods were coming or going just before."""
        return any(begun <= at_s <= done + SETTLE_S for begun, done, _ in self.made[name])


@pytest.fixture(scope="module")
def pods(plane: ControlPlane) -> Iterator[Pods]:
    found = Pods(plane.api())
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"

    def look() -> None:
        for line in plane.api().watch(path):
            event = json.loads(line)
            if event["type"] != "DELETED":
                found.follow(event["object"])

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    yield found
    found.workers.shutdown()


@pytest.fixture(scope="module")
def metrics(plane: ControlPlane, pods: Pods) -> Iterator[MetricsApi]:
    found = MetricsApi(pods.names)
    with metrics_api.serving(plane, found):
        yield found


def show(metrics: MetricsApi, cases: list[Case], step: int) -> None:
    """What the metrics show from now on."""
    for one in cases:
        for at, metric in enumerate(one.metrics):
            if metric["type"] == "Resource":
                metrics.resources[one.name, metric["resource"]["name"]] = at
            if not one.per_pod(at):
                metrics.series[one.name, at] = one.steps[step][at]
            elif (sample := one.of_pod(step, at)) is not None:
                metrics.by_pod[one.name, at] = sample
            else:
                metrics.by_pod.pop((one.name, at), None)


def play(plane: ControlPlane, pods: Pods, metrics: MetricsApi, cases: list[Case]) -> dict[str, Json]:
    """All of them at once, to the end; their HPAs then."""
    client = plane.api()
    pods.cases |= {one.name: one for one in cases}
    labels = {one.name: {"app": one.name} for one in cases}
    for one in cases:
        template = {
            "metadata": {"labels": labels[one.name]},
            "spec": {"containers": [{"name": "main", "image": "none"}]},
        }
        spec = {"replicas": one.replicas, "selector": {"matchLabels": labels[one.name]}, "template": template}
        body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": one.name}, "spec": spec}
        client.create(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments", body)
    until("all pods are made", lambda: all(pods.made[one.name] for one in cases), 120)
    show(metrics, cases, 0)
    time.sleep(SETTLE_S)
    hpas = f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers"
    for one in cases:
        client.create(hpas, one.manifest)
    for step in range(STEPS):
        show(metrics, cases, step)
        seen = {one.name: len(metrics.passes(one.name)) for one in cases}
        begun = time.monotonic()

        def five_passes(seen: dict[str, int] = seen, begun: float = begun) -> bool:
            long_enough = time.monotonic() - begun >= (PASSES + 0.5) * PERIOD_S
            asking = [one for one in cases if pods.asked[one.name][-1][1] or metrics.passes(one.name)]
            return long_enough and all(len(metrics.passes(one.name)) >= seen[one.name] + PASSES for one in asking)

        until(f"{PASSES} passes of each HPA", five_passes, 120, 0.2)
    found = {one["metadata"]["name"]: one for one in client.items(hpas)}
    for one in cases:
        client.delete(f"{hpas}/{one.name}")
    return found


def differences(
    one: Case, read: load.Manifest, pods: Pods, metrics: MetricsApi, status: Json
) -> tuple[list[str], bool]:
    """What the controller did otherwise than Tonnage counts; and whether a pass met pods that came or went."""
    passes = metrics.passes(one.name)
    if passes and len(passes[-1]) < len(one.metrics):
        del passes[-1]  # it was going on when the HPA was deleted
    counted, state = hpa_cases.counts(one, hpa_cases.spec_of(one, read), passes, lambda at: pods.at(one.name, at))
    asked = pods.asked[one.name]
    unsettled = any(pods.unsettled(one.name, requests[-1].at_s) for requests in passes)
    found = []
    if [replicas for _, replicas in asked] != [replicas for _, replicas in counted]:
        found.append(f"replicas {[n for _, n in asked]}, counted {[n for _, n in counted]}")
    else:
        gaps = [after[-1].at_s - before[-1].at_s for before, after in pairwise(passes)]
        limit_s = PERIOD_S + max(gaps, default=PERIOD_S)  # a busy machine makes its passes later, and what they do
        late = [
            (seen, at) for (seen, _), (at, _) in zip(asked[1:], counted[1:], strict=True) if abs(seen - at) > limit_s
        ]
        if late:
            found.append(f"changed at {late}")
    theirs, ours = (hpa_cases.reasons(all_) for all_ in (status["status"].get("conditions", []), state.conditions))
    if theirs != ours:
        found.append(f"conditions {theirs}, expected {ours}")
    return found, unsettled


def test_the_controllers_counts_and_reasons_are_those_that_are_computed(
    plane: ControlPlane, pods: Pods, metrics: MetricsApi, tmp_path: Path
) -> None:
    draw = random.Random(0) if sampling.LONG else sampling.draw("hpas")
    number = sampling.often("batches of 25 HPAs", BATCHES, SAMPLED)
    compared, changes, otherwise = 0, Counter[str](), list[str]()
    for batch in range(number):
        cases = [hpa_cases.case(draw, f"hpa-{batch}-{at}", STEPS) for at in range(BATCH)]
        for one in cases:
            (tmp_path / f"{one.name}.json").write_text(json.dumps(one.manifest))
        read = load.read([tmp_path / f"{one.name}.json" for one in cases])
        status = play(plane, pods, metrics, cases)
        for one in cases:
            wrong, unsettled = differences(one, read, pods, metrics, status[one.name])
            if unsettled:
                continue
            compared += 1
            changes[one.metrics[0]["type"]] += len(pods.asked[one.name]) - 1
            if bool(wrong) != (one.name in KNOWN_DIFFERENCES):
                spec = json.dumps(one.manifest["spec"])
                otherwise.append(f"{one.name}: {wrong}\n{spec}\n{one.steps}\n{metrics.passes(one.name)}")
    assert not otherwise, f"{len(otherwise)} of {compared} differ, the first: {otherwise[0]}"
    assert compared >= number * BATCH // 2, f"pods came too late for {number * BATCH - compared} cases"
    assert changes.total() > compared and len(changes) == 4, changes


def test_two_hpas_for_the_same_pods_both_stop(plane: ControlPlane, pods: Pods, metrics: MetricsApi) -> None:
    client = plane.api()
    external = {"metric": {"name": metrics_api.metric_name("shared", 0)}, "target": {"type": "Value", "value": "1"}}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "shared"},
        "minReplicas": 1,
        "maxReplicas": 5,
        "metrics": [{"type": "External", "external": external}],
    }
    one = Case("shared", {"spec": spec}, 2, (((9_000,),),))
    pods.cases["shared"] = one
    labels = {"app": "shared"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    wanted = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "shared"}, "spec": wanted}
    client.create(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments", body)
    until("its pods are made", lambda: pods.made["shared"], 60)
    hpas = f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers"
    for name in ("first", "second"):
        meta = {"name": name, "namespace": NAMESPACE}
        kind = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"}
        client.create(hpas, {**kind, "metadata": meta, "spec": spec})

    def told(name: str) -> str:
        return str(condition(client.get(f"{hpas}/{name}"), "ScalingActive").get("reason"))

    until("both are told", lambda: {told("first"), told("second")} == {"AmbiguousSelector"}, 60, 0.5)
    metrics.series["shared", 0] = (9_000,)
    time.sleep(2 * PERIOD_S)
    assert [replicas for _, replicas in pods.asked["shared"]] == [2]
