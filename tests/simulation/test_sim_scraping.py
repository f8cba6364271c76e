"""What Prometheus gets to see of the simulated cluster, and under which labels."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from sharing_builders import MIG, SLICE, TIME_SLICED, cut_node, serving
from sim_builders import (
    EXAMPLE,
    MODEL,
    READINESS,
    arrivals,
    node,
    run_until,
    scheduled,
    service,
    start,
    workload,
    world,
)

from tonnage.facts import metric_names
from tonnage.machines import nodes, pods
from tonnage.machines.cluster import SimulatedCluster
from tonnage.machines.objects import Workload
from tonnage.machines.scraping import SCRAPE_NS, Scraper, wants_histograms
from tonnage.metrics import scrape
from tonnage.objects import core, load
from tonnage.objects.base import ObjectMeta
from tonnage.objects.monitoring import NamespaceSelector, ServiceMonitor
from tonnage.provisioning.catalogue import Catalogue
from tonnage.simulation.configure import configure
from tonnage.units import NS_PER_S

PORT = {"ports": [{"name": "http", "containerPort": 8000}]}
SERVING_S = 1000


def _service(namespace: str, app: str, port: str = "http") -> core.Service:
    return msgspec.convert(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": app, "namespace": namespace, "labels": {"app": app}},
            "spec": {"selector": {"app": app}, "ports": [{"name": port, "port": 8000}]},
        },
        core.Service,
    )


def _monitor(namespace: str, app: str, port: str = "http", **endpoint: Any) -> ServiceMonitor:
    return msgspec.convert(
        {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "ServiceMonitor",
            "metadata": {"name": app, "namespace": namespace},
            "spec": {"selector": {"matchLabels": {"app": app}}, "endpoints": [{"port": port, **endpoint}]},
        },
        ServiceMonitor,
    )


def _scraper(*monitors: ServiceMonitor, services: tuple[core.Service, ...] = (), histograms: bool = False) -> Scraper:
    known = services or (_service("inference", "model-a"), _service("monitoring", "exporter"))
    return Scraper(tuple((m, scrape.select(m, known).selected) for m in monitors), histograms)


VLLM = _monitor("inference", "model-a")


def _exporter(cluster: SimulatedCluster) -> None:
    """A dcgm-exporter on every node that comes."""
    exporter = workload(cluster, "exporter", gpus=0, container=PORT)
    cluster.workloads.clear()
    cluster.declared.daemon_sets.append(("monitoring", "exporter", exporter.template))


def _serving(
    cluster: SimulatedCluster, *at: float, output: int = 10, balancing: str = "least-requests", **more: Any
) -> Workload:
    """One replica that serves at 1000 s."""
    made = workload(cluster, container=READINESS | PORT, **more)
    service(cluster, made, arrivals(*at, output=output), balancing)
    start(cluster, made, node(cluster))
    run_until(cluster, SERVING_S)
    return made


def _scraped(cluster: SimulatedCluster, scraper: Scraper, second: float) -> None:
    """Scrape from now to ``second``."""
    cluster.queue.push(cluster.now_ns, scraper)
    run_until(cluster, second)


def _value(cluster: SimulatedCluster, query: str) -> float | None:
    return cluster.measure(query, cluster.now_ns).value()


# ---- engines ----


def test_an_engine_shows_its_requests_under_the_labels_of_its_pod() -> None:
    cluster = world()
    (pod,) = _serving(cluster, 1000.5, output=3000).active
    _scraped(cluster, _scraper(VLLM), 1020)
    labels = f'namespace="inference",pod="{pod.name}",service="model-a",container="vllm",model_name="{MODEL}"'
    assert _value(cluster, f"vllm:num_requests_running{{{labels}}}") == 1
    assert _value(cluster, f"vllm:num_requests_waiting{{{labels}}}") == 0
    tokens = _value(cluster, "vllm:generation_tokens_total")
    assert tokens is not None and tokens == pytest.approx((1015 - 1000.5) * 100, abs=2)


def test_without_a_service_monitor_there_is_no_data_and_not_zero() -> None:
    cluster = world()
    _serving(cluster)
    _scraped(cluster, _scraper(), 1020)
    assert _value(cluster, "sum(vllm:num_requests_running)") is None


def test_a_monitor_that_selects_no_service_scrapes_nothing() -> None:
    cluster = world()
    _serving(cluster)
    _scraped(cluster, _scraper(VLLM, services=(_service("inference", "model-b"),)), 1020)
    assert _value(cluster, "sum(vllm:num_requests_running)") is None


def test_a_pod_that_is_gone_leaves_no_data_at_the_next_scrape() -> None:
    cluster = world()
    made = _serving(cluster)
    _scraped(cluster, _scraper(VLLM), 1020)
    assert _value(cluster, "vllm:num_requests_running") == 0
    made.replicas = 0
    pods.reconcile(cluster, made)
    run_until(cluster, 1029)
    assert _value(cluster, "vllm:num_requests_running") == 0, "the last scrape still counts"
    run_until(cluster, 1031)
    assert _value(cluster, "vllm:num_requests_running") is None, "and is stale, not five minutes old"


def test_two_workloads_of_one_name_in_two_namespaces_are_two_targets() -> None:
    cluster = world()
    made = _serving(cluster)
    other = Workload("staging", made.name, made.template, 1, made.server)
    cluster.workloads[other.key] = other
    start(cluster, other, cluster.nodes["node-1"])
    run_until(cluster, 2000)
    _scraped(cluster, _scraper(VLLM), 2000)
    found = cluster.measure("vllm:num_requests_running", cluster.now_ns)
    assert [dict(s.labels)["namespace"] for s in found.samples] == ["inference"]


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        (["vllm:num_requests_running", "DCGM_FI_DEV_GPU_UTIL"], False),
        (["vllm:time_to_first_token_seconds_bucket"], True),
        (["vllm:request_success_total"], True),
        (["envoy_cluster_upstream_rq_total"], False),
        (["http_request_duration_seconds_bucket"], False),
    ],
)
def test_histograms_are_kept_only_where_a_query_reads_them(names: list[str], wanted: bool) -> None:
    assert wants_histograms(names) is wanted


def test_histograms_count_the_requests() -> None:
    cluster = world()
    made = _serving(cluster, 1000.5, 1000.6)
    assert made.service is not None
    made.service.histograms = True
    _scraped(cluster, _scraper(VLLM, histograms=True), 1020)
    assert _value(cluster, "vllm:time_to_first_token_seconds_count") == 2
    assert _value(cluster, 'vllm:request_success_total{finished_reason="stop"}') == 2


# ---- the gateway ----


@pytest.mark.parametrize("balancing", ["least-requests", "round-robin"])
def test_a_gateway_counts_the_requests_that_it_receives_and_has_in_flight(balancing: str) -> None:
    cluster = world()
    _serving(cluster, 1000.5, 1014, output=3000, balancing=balancing)
    _scraped(cluster, _scraper(), 1020)
    assert _value(cluster, 'envoy_cluster_upstream_rq_total{envoy_cluster_name="inference/model-a"}') == 2
    assert _value(cluster, 'envoy_cluster_upstream_rq_active{envoy_cluster_name="inference/model-a"}') == 2


def test_kube_proxy_counts_nothing() -> None:
    cluster = world()
    _serving(cluster, 1000.5, balancing="random")
    _scraped(cluster, _scraper(), 1020)
    assert _value(cluster, "envoy_cluster_upstream_rq_total") is None


# ---- GPUs ----


def _gpus(honor: bool, *at: float, output: int = 1000, gpus: int = 1) -> tuple[SimulatedCluster, str]:
    """A cluster whose exporter is scraped from 1000 s to 1020 s, and the name of the pod that serves there."""
    cluster = world()
    _exporter(cluster)
    (pod,) = _serving(cluster, *at, output=output, gpus=gpus).active
    _scraped(cluster, _scraper(_monitor("monitoring", "exporter", honorLabels=honor)), 1020)
    return cluster, pod.name


def test_with_honor_labels_the_gpu_metric_carries_the_workloads_pod() -> None:
    cluster, name = _gpus(True)
    assert _value(cluster, f'DCGM_FI_DEV_GPU_UTIL{{pod="{name}",namespace="inference"}}') == 0
    assert _value(cluster, "DCGM_FI_DEV_GPU_UTIL{exported_pod!=''}") is None


def test_without_honor_labels_the_gpu_metric_carries_the_exporters_pod() -> None:
    cluster, name = _gpus(False)
    assert _value(cluster, f'DCGM_FI_DEV_GPU_UTIL{{pod="{name}"}}') is None
    assert _value(cluster, f'DCGM_FI_DEV_GPU_UTIL{{exported_pod="{name}",pod="exporter-node-1"}}') == 0
    assert _value(cluster, "count(DCGM_FI_DEV_GPU_UTIL)") == 4


@pytest.mark.parametrize(("output", "percent"), [(10, 1), (600, 40), (1000, 67), (2500, 100)])
def test_gpu_utilisation_is_the_share_of_the_last_interval_with_a_step_in_flight(output: int, percent: float) -> None:
    cluster, name = _gpus(True, 1000.001, output=output)
    assert _value(cluster, f'DCGM_FI_DEV_GPU_UTIL{{pod="{name}"}}') == percent
    idle = cluster.measure('DCGM_FI_DEV_GPU_UTIL{pod="exporter-node-1"}', cluster.now_ns)
    assert [s.value for s in idle.samples] == [0.0] * 3


def test_every_gpu_of_a_replica_is_as_busy_as_its_engine() -> None:
    cluster, name = _gpus(True, 1000.001, output=600, gpus=2)
    found = cluster.measure(f'DCGM_FI_DEV_GPU_UTIL{{pod="{name}"}}', cluster.now_ns)
    assert [s.value for s in found.samples] == [40.0, 40.0]


def test_memory_of_a_gpu_is_what_the_engine_claims_and_the_rest() -> None:
    cluster, name = _gpus(True)
    used = _value(cluster, f'DCGM_FI_DEV_FB_USED{{pod="{name}"}}')
    left = _value(cluster, f'DCGM_FI_DEV_FB_FREE{{pod="{name}"}}')
    memory = cluster.nodes["node-1"].gpu_memory_mib
    assert used is not None and left is not None
    assert used == pytest.approx(0.92 * memory, abs=1) and used + left == memory


def _sensors(asked: frozenset[str] | None) -> SimulatedCluster:
    """A replica that is busy for 40 % of a scrape, and an exporter of which these metrics are asked."""
    cluster = world()
    _exporter(cluster)
    _serving(cluster, 1000.001, output=600)
    scraper = _scraper(_monitor("monitoring", "exporter", honorLabels=True))
    _scraped(cluster, Scraper(scraper.monitors, histograms=False, asked=asked), 1020)
    return cluster


def test_every_default_counter_of_dcgm_exporter_is_there_where_anybody_may_ask() -> None:
    cluster = _sensors(None)
    served = [one for one in metric_names.all() if one.exporter == "dcgm-exporter" and one.status == "default"]
    there = {one.name for one in served if _value(cluster, f"count({one.name})") == 4}
    absent = {one.name for one in served} - there
    assert absent == {"DCGM_FI_DEV_VGPU_LICENSE_STATUS", "DCGM_FI_DRIVER_VERSION", "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"}
    busy = {name: _value(cluster, f'{name}{{pod=~"model-a-.*"}}') for name in there}
    assert busy["DCGM_FI_DEV_MEM_COPY_UTIL"] == 40
    assert busy["DCGM_FI_PROF_GR_ENGINE_ACTIVE"] == pytest.approx(0.4)
    power, idle = busy["DCGM_FI_DEV_POWER_USAGE"], _value(cluster, "min(DCGM_FI_DEV_POWER_USAGE)")
    assert power is not None and idle is not None and 300 > power > 3 * idle > 50
    assert busy["DCGM_FI_DEV_XID_ERRORS"] == busy["DCGM_FI_DEV_PCIE_REPLAY_COUNTER"] == 0


def test_energy_is_the_power_over_time() -> None:
    cluster = _sensors(frozenset({"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_POWER_USAGE"}))
    used = _value(cluster, "max(increase(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION[30s]))")
    power = _value(cluster, "max(DCGM_FI_DEV_POWER_USAGE)")
    assert used is not None and power is not None
    assert used == pytest.approx(30 * 1000 * power, rel=0.02)
    assert _value(cluster, "DCGM_FI_DEV_GPU_TEMP") is None, "nobody asks for it"


def test_a_gpu_that_pods_share_shows_what_all_of_them_use_and_no_pod() -> None:
    cluster = world(start_s=0)
    _exporter(cluster)
    shared = cut_node(cluster, TIME_SLICED)
    for name in ("a", "b"):
        serving(cluster, shared, name, 1001.0, output=300)  # three seconds of work each, side by side
    run_until(cluster, SERVING_S)
    _scraped(cluster, _scraper(_monitor("monitoring", "exporter", honorLabels=True)), 1020)
    [busy] = cluster.measure("DCGM_FI_DEV_GPU_UTIL", cluster.now_ns).samples
    assert busy.value == 42 and dict(busy.labels)["pod"] == "exporter-node-1"
    used = _value(cluster, "DCGM_FI_DEV_FB_USED")
    assert used == pytest.approx(0.4 * shared.gpu_memory_mib, abs=2)


def test_the_gpus_of_a_node_that_is_gone_leave_no_data() -> None:
    cluster, _ = _gpus(True)
    nodes.lose_node(cluster, cluster.nodes["node-1"], "test")
    run_until(cluster, 1031)
    assert _value(cluster, "count(DCGM_FI_DEV_GPU_UTIL)") is None


def test_a_scrape_comes_every_fifteen_seconds() -> None:
    cluster = world()
    _serving(cluster)
    _scraped(cluster, _scraper(VLLM), 1000 + 4 * SCRAPE_NS / NS_PER_S)
    query = f"count_over_time(vllm:num_requests_running[{4 * SCRAPE_NS // NS_PER_S}s])"
    assert _value(cluster, query) == 4


@pytest.mark.parametrize(("interval", "samples"), [("", 4), ("5s", 12), ("30s", 2), ("1m", 1)])
def test_an_endpoint_is_scraped_on_its_own_interval(interval: str, samples: int) -> None:
    cluster = world()
    _serving(cluster)
    _scraped(cluster, _scraper(_monitor("inference", "model-a", interval=interval)), 1060)
    assert _value(cluster, "count_over_time(vllm:num_requests_running[60s])") == samples
    assert _value(cluster, "count_over_time(envoy_cluster_upstream_rq_total[60s])") == 4, "the gateway has its own"


def test_two_monitors_scrape_one_engine_each_on_its_interval() -> None:
    cluster = world()
    _serving(cluster)
    often, seldom = (_monitor("inference", "model-a", interval=one) for one in ("10s", "30s"))
    seldom = msgspec.structs.replace(seldom, metadata=ObjectMeta(name="seldom", namespace="monitoring"))
    seldom = msgspec.structs.replace(
        seldom, spec=msgspec.structs.replace(seldom.spec, namespace_selector=NamespaceSelector(any=True))
    )
    _scraped(cluster, _scraper(often, seldom), 1060)
    assert _value(cluster, "count_over_time(vllm:num_requests_running[60s])") == 6, "equal labels are one series"


# ---- the bundled manifests ----


def test_the_published_monitor_scrapes_nothing_and_the_corrected_ones_scrape_both() -> None:
    catalogue = Catalogue.load()
    found = {}
    for name in ("as-written", "corrected"):
        configuration = configure(load.read([EXAMPLE / "manifests" / name]), catalogue)
        found[name] = {m.name: len(selected) for m, selected in configuration.monitors}
    assert found == {"as-written": {"dcgm-exporter": 0}, "corrected": {"dcgm-exporter": 1, "vllm": 2}}


def test_a_machine_runs_and_checks_the_small_world_too() -> None:
    cluster = world(start_s=0)
    made = workload(cluster, replicas=2, container=READINESS)
    service(cluster, made, arrivals(*(0.5 + s for s in range(101))))
    node(cluster)
    machine = scheduled(cluster)
    machine.play(101 * NS_PER_S, None)
    assert made.service is not None and set(made.service.requests.status) == {1}
    assert machine.steps > 0 and machine.violations == []


def test_a_gpu_in_mig_mode_has_no_utilisation_and_the_whole_one_beside_it_has() -> None:
    for labels, asks, found in ((MIG, {SLICE: "1"}, None), ({}, None, 100.0)):
        cluster = world(start_s=0)
        _exporter(cluster)
        serving(cluster, cut_node(cluster, labels, "p5.4xlarge"), "a", 1.0, output=3900, asks=asks)
        _scraped(cluster, _scraper(_monitor("monitoring", "exporter")), 40)
        assert _value(cluster, "DCGM_FI_DEV_GPU_UTIL") == found
        assert (_value(cluster, "DCGM_FI_DEV_FB_USED") is None) == (found is None)
