"""The lifecycles of nodes and pods, step by step, with every duration at its typical value."""

from __future__ import annotations

from typing import Any

import pytest
from sim_builders import (
    GPU,
    READINESS,
    TYPICAL,
    arrivals,
    bind,
    events,
    free,
    launch,
    node,
    run_until,
    service,
    start,
    workload,
    world,
)

from tonnage.decisions import Applied, Reason, Ref, Scale, Stale
from tonnage.machines import pods
from tonnage.machines.cluster import SimulatedCluster
from tonnage.machines.objects import SimulatedPod, Workload
from tonnage.machines.serving.replica import ServingReplica
from tonnage.machines.serving.service import DONE, FAILED
from tonnage.units import MIB, NS_PER_S, seconds

START_S = 1.0
LAUNCH_S, REGISTER_S, READY_S, PLUGIN_S = (
    TYPICAL.launch_s,
    TYPICAL.register_s,
    TYPICAL.ready_s,
    TYPICAL.device_plugin_s,
)
PULL_S = TYPICAL.image_bytes / TYPICAL.image_pull_bytes_per_s
CONTAINER_S = TYPICAL.container_start_s
WEIGHTS = 16 * 10**9
CACHED_WEIGHTS_S = WEIGHTS / TYPICAL.page_cache_bytes_per_s
WEIGHTS_S = WEIGHTS / (125 * MIB)
ENGINE_S, CACHED_ENGINE_S = TYPICAL.engine_start_s, TYPICAL.engine_start_cached_s
CACHE_ROOT = {"env": [{"name": "VLLM_CACHE_ROOT", "value": "/var/cache/vllm"}]}
READY_PROBE_S = READINESS["readinessProbe"]["periodSeconds"]


# ---- nodes ----


def test_a_bought_node_takes_the_time_of_each_of_its_steps() -> None:
    cluster = world()
    assert cluster.apply(launch("n")) == Applied()
    running = START_S + LAUNCH_S
    registered, ready = running + REGISTER_S, running + REGISTER_S + READY_S

    run_until(cluster, running - 0.001)
    assert "n" in cluster.cloud.claims and "n" not in cluster.nodes
    run_until(cluster, running)
    assert seconds(cluster.nodes["n"].launched_ns) == running
    run_until(cluster, registered - 0.001)
    assert "n" not in cluster.fleet.node_by_name
    run_until(cluster, registered)
    assert not cluster.fleet.schedulable[cluster.fleet.node_by_name["n"]]
    run_until(cluster, ready)
    assert events(cluster, "NodeReady") == ["Node n status is now: NodeReady"]
    run_until(cluster, ready + PLUGIN_S)
    node_ready_ns = cluster.nodes["n"].ready_ns
    assert node_ready_ns is not None
    assert seconds(node_ready_ns) == ready + PLUGIN_S
    assert not cluster.cloud.claims


def test_gpus_are_allocatable_only_after_the_device_plugin_is_up() -> None:
    cluster = world()
    cluster.apply(launch("n"))
    ready = START_S + LAUNCH_S + REGISTER_S + READY_S
    run_until(cluster, ready)
    row = cluster.fleet.node_by_name["n"]
    assert GPU not in cluster.fleet.allocatable_of(row)
    made = workload(cluster)
    pods.reconcile(cluster, made)
    outcome = bind(cluster, made.active[0], cluster.nodes["n"])
    assert isinstance(outcome, Stale) and "is cordoned" in outcome.changed

    run_until(cluster, ready + PLUGIN_S)
    assert cluster.fleet.allocatable_of(row)[GPU] == 4
    assert bind(cluster, made.active[0], cluster.nodes["n"]) == Applied()


def test_a_node_without_gpus_does_not_wait_for_a_device_plugin() -> None:
    cluster = world()
    cluster.apply(launch("n", "m5.xlarge"))
    run_until(cluster, START_S + LAUNCH_S + REGISTER_S + READY_S)
    assert cluster.nodes["n"].ready_ns is not None


def test_a_node_is_billed_from_the_running_instance_to_its_end() -> None:
    cluster = world()
    cluster.apply(launch("n"))
    run_until(cluster, 1000)
    lived_s = 1000 - START_S - LAUNCH_S
    assert cluster.records.ledger.node_cost("n", cluster.now_ns) == int(1_000_000 * lived_s / 3600)


def test_a_gpu_node_carries_the_labels_that_selectors_ask_for() -> None:
    cluster = world()
    node(cluster, "n")
    labels = cluster.fleet.node(cluster.fleet.node_by_name["n"]).labels
    wanted = {
        "nvidia.com/gpu.product": "NVIDIA-L40S",
        "nvidia.com/gpu.count": "4",
        "karpenter.k8s.aws/instance-gpu-name": "l40s",
        "topology.kubernetes.io/zone": "us-east-1a",
    }
    assert wanted.items() <= labels.items()


def test_a_daemon_pod_that_does_not_fit_is_left_out_and_said() -> None:
    cluster = world()
    big = workload(cluster, "exporter", container={"resources": {"requests": {"cpu": "1000"}}})
    cluster.workloads.clear()
    cluster.declared.daemon_sets.append(("monitoring", "exporter", big.template))
    node(cluster, "n")
    assert len(events(cluster, "FailedScheduling")) == 1
    assert not cluster.fleet.pods or all(pod is None for pod in cluster.fleet.pods)


# ---- images, weights, compiled graphs ----


def _serving_after(cluster: SimulatedCluster, pod: SimulatedPod, limit_s: float = 2000) -> float:
    """Seconds from now until the pod's engine serves."""
    begin = cluster.now_ns
    while pod.replica is None or pod.replica.engine is None:
        cluster.queue.step(cluster)
        assert cluster.now_ns < begin + limit_s * NS_PER_S
    return seconds(cluster.now_ns - begin)


def test_the_first_pod_on_a_node_pulls_the_image_and_reads_the_weights_from_disk() -> None:
    cluster = world()
    (pod,) = start(cluster, workload(cluster), node(cluster, node_pool="bought"))
    waited = PULL_S + CONTAINER_S + WEIGHTS_S + ENGINE_S
    assert _serving_after(cluster, pod) == pytest.approx(waited, abs=1e-6)


def test_the_second_pod_on_a_node_finds_the_image_and_the_weights_in_page_cache() -> None:
    cluster = world()
    made, target = workload(cluster), node(cluster, node_pool="bought")
    (first,) = start(cluster, made, target)
    _serving_after(cluster, first)
    made.replicas = 2
    second = start(cluster, made, target)[1]
    assert _serving_after(cluster, second) == pytest.approx(CONTAINER_S + CACHED_WEIGHTS_S + ENGINE_S, abs=1e-6)


def test_two_pods_that_start_together_share_one_pull() -> None:
    cluster = world()
    made = workload(cluster, replicas=2)
    first, second = start(cluster, made, node(cluster, node_pool="bought"))
    run_until(cluster, START_S + PULL_S + CONTAINER_S + 0.001)
    assert first.started_ns is not None and first.started_ns == second.started_ns


def test_another_node_pulls_the_image_again() -> None:
    cluster = world()
    made = workload(cluster)
    (first,) = start(cluster, made, node(cluster, "node-1", node_pool="bought"))
    _serving_after(cluster, first)
    made.replicas = 2
    pods.reconcile(cluster, made)
    second = made.active[1]
    bind(cluster, second, node(cluster, "node-2", node_pool="bought"))
    assert _serving_after(cluster, second) > PULL_S


@pytest.mark.parametrize(
    ("cache_root", "started_before", "on_disk", "engine_s"),
    [
        (False, False, False, ENGINE_S),
        (True, False, False, ENGINE_S),
        (False, True, False, ENGINE_S),
        (True, True, False, CACHED_ENGINE_S),
        (False, False, True, ENGINE_S),
        (True, False, True, CACHED_ENGINE_S),
    ],
)
def test_compiled_graphs_are_found_where_a_cache_is_kept_and_filled(
    cache_root: bool, started_before: bool, on_disk: bool, engine_s: float
) -> None:
    cluster = world(images_on_disk=on_disk)
    made = workload(cluster, container=CACHE_ROOT if cache_root else None)
    target = node(cluster, node_pool="bought")
    begin = 0.0 if on_disk else PULL_S
    weights_s = WEIGHTS_S
    (pod,) = start(cluster, made, target)
    if started_before:
        _serving_after(cluster, pod)
        made.replicas, begin, weights_s = 2, 0.0, CACHED_WEIGHTS_S
        pod = start(cluster, made, target)[1]
    assert _serving_after(cluster, pod) == pytest.approx(begin + CONTAINER_S + weights_s + engine_s, abs=1e-6)


def test_an_engine_that_cannot_start_says_why_and_never_serves() -> None:
    cluster = world()
    (pod,) = start(cluster, workload(cluster, gpus=0), node(cluster))
    run_until(cluster, 3000)
    assert events(cluster, "BackOff") == ["the engine needs 1 GPUs, the pod holds 0"]
    assert pod.ready_ns is None and pod.replica is None
    assert pod.starts >= 3 and pod.crashes == pod.starts  # it is started again and again
    assert pod.failing is not None and pod.failing.stage == "crashing"


def test_at_time_zero_everything_has_happened_already() -> None:
    cluster = world(start_s=0)
    (pod,) = start(cluster, workload(cluster, container=READINESS), node(cluster))
    while pod.ready_ns is None:
        cluster.queue.step(cluster)
    assert pod.ready_ns == 0
    assert pod.workload.cold_starts_ns == []


# ---- readiness ----


def _status(cluster: SimulatedCluster, made: Workload) -> list[int]:
    assert made.service is not None
    return list(made.service.requests.status)


def test_without_a_probe_requests_are_lost_while_the_engine_loads() -> None:
    cluster = world(images_on_disk=True)
    made = workload(cluster)
    service(cluster, made, arrivals(10, 50, 1000))
    start(cluster, made, node(cluster, node_pool="bought"))
    run_until(cluster, 2000)
    assert _status(cluster, made) == [FAILED, FAILED, DONE]


def test_with_a_probe_requests_go_to_the_pods_that_serve() -> None:
    cluster = world(images_on_disk=True)
    made = workload(cluster, container=READINESS)
    service(cluster, made, arrivals(500, 550, 1000))
    target = node(cluster, node_pool="bought")
    start(cluster, made, target)
    run_until(cluster, 450)
    made.replicas = 2
    start(cluster, made, target)
    run_until(cluster, 2000)
    assert _status(cluster, made) == [DONE, DONE, DONE]
    assert len(made.cold_starts_ns) == 2


@pytest.mark.parametrize("kind", ["readinessProbe", "startupProbe"])
def test_a_pod_turns_ready_at_the_first_probe_after_its_engine_is_up(kind: str) -> None:
    cluster = world()
    made = workload(cluster, container={kind: {"periodSeconds": READY_PROBE_S}})
    (pod,) = start(cluster, made, node(cluster, node_pool="bought"))
    up = _serving_after(cluster, pod) + START_S
    assert pod.ready_ns is None and pod.started_ns is not None
    run_until(cluster, up + READY_PROBE_S)
    assert pod.ready_ns is not None
    assert up <= seconds(pod.ready_ns) < up + READY_PROBE_S
    assert (pod.ready_ns - pod.started_ns) % (READY_PROBE_S * NS_PER_S) == 0
    assert made.cold_starts_ns == [pod.ready_ns - pod.created_ns]


# ---- stopping ----


def _serving(
    cluster: SimulatedCluster, replicas: int = 1, output: int = 1, at: tuple[float, ...] = (), **spec: Any
) -> Workload:
    """A workload whose pods all serve at 1000 s."""
    made = workload(cluster, replicas=replicas, **{"container": READINESS} | spec)
    service(cluster, made, arrivals(*at, output=output))
    start(cluster, made, node(cluster))
    run_until(cluster, 1000)
    assert all(pod.ready_ns is not None for pod in made.active)
    return made


SLEEP_20 = READINESS | {"lifecycle": {"preStop": {"exec": {"command": ["/bin/sh", "-c", "sleep 20"]}}}}


@pytest.mark.parametrize(
    ("container", "grace_s", "shutdown_s", "output", "ends_after_s", "status"),
    [
        pytest.param(READINESS, None, 0, 3000, 0, FAILED, id="vLLM aborts at once by default"),
        pytest.param(SLEEP_20, None, 0, 1000, 20, DONE, id="a request ends during the preStop sleep"),
        pytest.param(SLEEP_20, None, 0, 3000, 20, FAILED, id="the sleep is over, and vLLM aborts"),
        pytest.param(SLEEP_20, 10, 0, 1500, 10, FAILED, id="the grace period bounds the sleep"),
        pytest.param(READINESS, 120, 60, 3000, 30, DONE, id="the shutdown timeout lets the request end"),
        pytest.param(READINESS, None, 60, 3500, 30, FAILED, id="the default grace of 30 s bounds the timeout"),
        pytest.param(READINESS, 120, 20, 3000, 20, FAILED, id="the shutdown timeout is over"),
        pytest.param(SLEEP_20, 120, 60, 4000, 40, DONE, id="sleep and timeout follow each other"),
    ],
)
def test_a_pod_that_is_told_to_stop_drains(
    container: dict[str, Any], grace_s: int | None, shutdown_s: int, output: int, ends_after_s: float, status: int
) -> None:
    cluster = world()
    made = _serving(
        cluster,
        at=(999.999,),
        output=output,
        container=container,
        shutdown_s=shutdown_s,
        terminationGracePeriodSeconds=grace_s,
    )
    (pod,) = made.active
    made.replicas = 0
    pods.reconcile(cluster, made)
    run_until(cluster, 1000 + ends_after_s - 0.5)
    if ends_after_s:
        assert pod.name in made.pods, "gone too early"
    run_until(cluster, 1000 + ends_after_s + 1)
    assert pod.name not in made.pods, "still there"
    assert _status(cluster, made) == [status]


def test_a_pod_that_stops_gets_no_further_requests() -> None:
    cluster = world()
    made = _serving(cluster, at=(1001.0,), container=SLEEP_20)
    made.replicas = 0
    pods.reconcile(cluster, made)
    run_until(cluster, 1002)
    assert _status(cluster, made) == [FAILED]


def test_an_idle_pod_ends_as_soon_as_it_may() -> None:
    cluster = world()
    made = _serving(cluster, shutdown_s=90, terminationGracePeriodSeconds=120)
    made.replicas = 0
    pods.reconcile(cluster, made)
    run_until(cluster, 1000)
    assert made.pods == {}


def test_the_devices_of_a_pod_are_free_when_it_is_gone_and_not_before() -> None:
    cluster = world()
    made = _serving(cluster, replicas=4, container=SLEEP_20)
    target = cluster.nodes["node-1"]
    assert free(cluster, target) == []
    made.replicas = 3
    pods.reconcile(cluster, made)
    run_until(cluster, 1019)
    assert free(cluster, target) == []
    run_until(cluster, 1021)
    assert len(free(cluster, target)) == 1


# ---- who goes first ----


def _pod(
    name: str, *, node_name: str = "n", stage: str = "ready", ready_s: float = 0, cost: int = 0, uid: str = "u"
) -> SimulatedPod:
    """A pod at 1000 s: ``unbound``, ``bound`` (pulling), ``started`` (not ready) or ``ready`` since ``ready_s``."""
    pod = SimulatedPod(None, name, uid, 0, 0, deletion_cost=cost)  # type: ignore[arg-type]
    if stage != "unbound":
        pod.bound_ns, pod.node = 0, node_name
    if stage in ("started", "ready"):
        pod.started_ns = 0
    if stage == "ready":
        pod.ready_ns = round(ready_s * NS_PER_S)
    return pod


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param({"stage": "unbound", "cost": 9}, {"stage": "bound"}, id="no node before node"),
        pytest.param({"stage": "bound", "cost": 9}, {"stage": "started"}, id="pending before running"),
        pytest.param({"stage": "started", "cost": 9}, {"cost": -100}, id="not ready before ready"),
        pytest.param({"cost": -100, "node_name": "other"}, {}, id="low deletion cost first"),
        pytest.param({"ready_s": 990}, {"ready_s": 500}, id="recently ready first"),
        pytest.param({"ready_s": 500, "uid": "a"}, {"ready_s": 600, "uid": "b"}, id="ages of one power of two: by uid"),
        pytest.param({"uid": "a"}, {"uid": "b"}, id="equal pods: by uid"),
    ],
)
def test_scale_in_follows_the_order_of_kubernetes(first: dict[str, Any], second: dict[str, Any]) -> None:
    one, other = _pod("z", **first), _pod("a", **second)
    for given in ([one, other], [other, one]):
        assert pods.removal_order(given, 1000 * NS_PER_S) == [one, other]


def test_of_equal_pods_one_on_the_fullest_node_goes_first() -> None:
    crowded = [_pod("a", node_name="n1", uid="2"), _pod("b", node_name="n1", uid="3")]
    alone = _pod("c", node_name="n2", uid="1")
    assert pods.removal_order([alone, *crowded], 1000 * NS_PER_S) == [*crowded, alone]


def test_a_scale_decision_names_the_pods_that_go() -> None:
    cluster = world()
    made = _serving(cluster, replicas=3)
    chosen = made.active[1]
    target = Ref("Deployment", made.name, made.namespace)
    remove = (Ref("Pod", chosen.name, chosen.namespace),)
    assert cluster.apply(Scale(target, 3, 2, Reason("test"), remove)) == Applied()
    run_until(cluster, 1001)
    assert chosen.name not in made.pods and len(made.active) == 2


def test_ready_replicas_are_counted_from_the_start_of_the_run() -> None:
    cluster = world()
    made = _serving(cluster, replicas=3)
    assert (made.min_ready, made.max_ready) == (0, 3), "at first none was there"
    made.replicas = 0
    pods.reconcile(cluster, made)
    assert (made.min_ready, made.max_ready) == (0, 3)


def test_a_replica_is_named_by_namespace_and_pod() -> None:
    cluster = world()
    (pod,) = _serving(cluster).active
    assert isinstance(pod.replica, ServingReplica) and pod.replica.pod == f"inference/{pod.name}"
