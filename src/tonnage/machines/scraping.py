"""What Prometheus sees: at every scrape, the samples of each target that a ServiceMonitor really selects.

The gateway in front of a Service exports Envoy's counters; engines export vLLM's metrics; dcgm-exporter exports
those of every GPU of its node. A configuration that selects nothing, or loses a label, leaves a query without data,
here as there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from tonnage.fleet.cards import SHARED_DEVICE
from tonnage.fleet.state import FleetPod
from tonnage.inference.servers.exposition import of_kind, vllm_samples
from tonnage.machines import loading, nodes
from tonnage.machines.events import Later
from tonnage.machines.gpu_series import ALWAYS, GpuSeries, asked_fields
from tonnage.machines.objects import SimulatedNode, SimulatedPod
from tonnage.machines.scrape_troubles import GPU_EXPORTER
from tonnage.machines.serving.service import SimulatedService
from tonnage.machines.site import Site
from tonnage.metrics.scrape import ScrapeTarget, Selected, sample_labels, targets
from tonnage.metrics.store import Key, key_of
from tonnage.objects import core, duration
from tonnage.objects.base import ObjectMeta
from tonnage.objects.monitoring import ServiceMonitor
from tonnage.traffic.readings import GATEWAY
from tonnage.units import NS_PER_S

SCRAPE_NS = 15 * NS_PER_S
"""The interval of the gateway, and of endpoints of ServiceMonitors that do not say."""


@dataclass(slots=True)
class _Arrival:
    """Samples of ``taken_ns`` that could not be queried until now, and series that were found to have ended then.
    One that is older than what its series has is out of order, and Prometheus does not take it."""

    taken_ns: int
    samples: list[tuple[Key, float]] = field(default_factory=list)
    ended: list[Key] = field(default_factory=list)

    def handle(self, cluster: Site) -> Later:
        store = cluster.records.store
        for key, value in self.samples:
            if store.last_ns(key) < self.taken_ns:
                store.append_to(key, self.taken_ns, value)
        for key in self.ended:
            if store.last_ns(key) < self.taken_ns:
                store.mark_stale_of(key, self.taken_ns)
        return ()


Monitors = tuple[tuple[ServiceMonitor, tuple[Selected, ...]], ...]

GATEWAY_RECEIVED = GATEWAY
GATEWAY_ACTIVE = "envoy_cluster_upstream_rq_active"


@dataclass(slots=True)
class Scraper:
    """Scrapes each endpoint on its interval. ``monitors``: each ServiceMonitor with the Service ports that it selects.

    ``histograms``: whether any query asks for one (an engine exports hundreds of buckets). ``asked``: the names of
    metrics for which series of GPUs are made beside utilisation and memory; None: all of dcgm-exporter's defaults.
    """

    monitors: Monitors
    histograms: bool
    asked: frozenset[str] | None = frozenset()
    _rounds: tuple[_Round, ...] = field(init=False)

    def __post_init__(self) -> None:
        by_interval: dict[int, Monitors] = {SCRAPE_NS: ()}
        for monitor, selected in self.monitors:
            for interval in dict.fromkeys(_interval_ns(one) for one in selected):
                own = tuple(one for one in selected if _interval_ns(one) == interval)
                by_interval[interval] = (*by_interval.get(interval, ()), (monitor, own))
        fields = asked_fields(self.asked)
        self._rounds = tuple(
            _Round(own, self.histograms, interval, GpuSeries(fields)) for interval, own in sorted(by_interval.items())
        )

    def handle(self, cluster: Site) -> Later:
        """Scrape what is due."""
        for service in cluster.services:
            service.settle(cluster.now_ns)
        written: set[Key] = set()
        for one in self._rounds:
            if one.due_ns <= cluster.now_ns:
                yield from one.scrape(cluster, written)
        yield min(one.due_ns for one in self._rounds), self


def _interval_ns(selected: Selected) -> int:
    written = selected.endpoint.interval
    return (duration.parse_prometheus(written) if written else 0) or SCRAPE_NS


@dataclass(slots=True)
class _Round:
    """What is scraped on one interval; on that of the gateway, the gateway too."""

    monitors: Monitors
    histograms: bool
    interval_ns: int
    _gpus: GpuSeries
    due_ns: int = 0
    _targets: dict[str, tuple[ScrapeTarget, ...]] = field(default_factory=dict)
    _seen: dict[Hashable, Key] = field(default_factory=dict)  # by what it is a reading of; those of the last scrape
    _before: dict[Hashable, Key] = field(default_factory=dict)
    _late: dict[Key, int] = field(default_factory=dict)  # how late those of the last scrape come, ns
    _busy: dict[str, tuple[int, int, float]] = field(default_factory=dict)  # pod: (last scrape, busy ns, percent)

    def scrape(self, cluster: Site, written: set[Key]) -> Later:
        """Scrape everything once; engines must be settled. ``written``: series that have a sample of now: of several
        targets with the same labels the first counts, as in Prometheus."""
        self._before, self._seen = self._seen, {}
        late_before, self._late = self._late, {}
        store, now_ns = cluster.records.store, cluster.now_ns
        arrivals: dict[int, _Arrival] = {}  # by how late they are
        for target, samples in self._samples(cluster):
            late_ns = cluster.records.troubles.delay_ns(target, now_ns)
            nan = cluster.records.troubles.gives_nan(target, now_ns)
            for key, value in samples:
                if key in written:
                    continue
                written.add(key)
                read = math.nan if nan else value
                if late_ns:
                    self._late[key] = late_ns
                    arrivals.setdefault(late_ns, _Arrival(now_ns)).samples.append((key, read))
                else:
                    store.append_to(key, now_ns, read)
        there = set(self._seen.values())
        for key in self._before.values():
            if key not in there:
                late_ns = late_before.get(key, 0)
                if late_ns:
                    arrivals.setdefault(late_ns, _Arrival(now_ns)).ended.append(key)
                else:
                    store.mark_stale_of(key, now_ns)
        self.due_ns = cluster.now_ns + self.interval_ns
        return [(now_ns + late_ns, arrival) for late_ns, arrival in sorted(arrivals.items())]

    def _key(
        self, reading: Hashable, metric: str, exposed: Mapping[str, str], target: ScrapeTarget | None = None
    ) -> Key:
        """The series of a reading: found again where the last scrape had it."""
        key = self._before.get(reading)
        if key is None:
            labels = exposed
            if target is not None:
                labels = sample_labels(exposed, target.labels, honor_labels=target.honor_labels)
            key = key_of(metric, labels)
        self._seen[reading] = key
        return key

    def _samples(self, cluster: Site) -> Iterator[tuple[str, Iterator[tuple[Key, float]]]]:
        """What each target that answers exports, with the name that its troubles go by."""
        answers = partial(_answers, cluster)
        for service in cluster.services if self.interval_ns == SCRAPE_NS else ():
            if service.balancing != "random" and answers(service.name):
                yield service.name, self._gateway_samples(service)
        for workload in cluster.workloads.values():
            target = workload.service.name if workload.service is not None else ""
            if answers(target):
                for pod in workload.pods.values():
                    yield target, self._engine_samples(pod)
        for node in cluster.nodes.values() if answers(GPU_EXPORTER) else ():
            if node.gpus and node.ended_ns is None and node.ready_ns is not None:
                yield GPU_EXPORTER, self._gpu_samples(cluster, node)

    def _gateway_samples(self, service: SimulatedService) -> Iterator[tuple[Key, float]]:
        labels = {"envoy_cluster_name": service.name}
        for metric, value in ((GATEWAY_RECEIVED, service.received), (GATEWAY_ACTIVE, service.in_flight)):
            yield self._key((metric, service.name), metric, labels), float(value)

    def _engine_samples(self, pod: SimulatedPod) -> Iterator[tuple[Key, float]]:
        if pod.replica is None or pod.replica.engine is None or pod.workload.server is None:
            return
        own = {"model_name": pod.workload.server.model, "engine": "0"}
        stats = pod.replica.stats if self.histograms else None
        samples = list(of_kind(vllm_samples(pod.replica.engine, stats), pod.workload.server.args.engine))
        for number, target in enumerate(self._targets_of(pod.key, partial(_as_object, pod))):
            for sample in samples:
                reading = (pod.key, own["model_name"], number, sample.name, sample.labels)
                exposed = {**own, **dict(sample.labels)} if sample.labels else own
                yield self._key(reading, sample.name, exposed, target), sample.value

    def _gpu_samples(self, cluster: Site, node: SimulatedNode) -> Iterator[tuple[Key, float]]:
        row = cluster.fleet.node_by_name[node.name]
        if not self.monitors or (cluster.runs_workloads and not cluster.declared.daemon_sets):
            return
        for daemon in nodes.daemons_on(cluster, node.name):
            key = namespace, exporter = daemon.namespace, daemon.name
            if (starting := cluster.pods.get(key)) is not None and starting.ready_ns is None:
                continue
            found = self._targets_of(f"{namespace}/{exporter}", partial(_exporter, daemon))
            if not found:
                continue
            for device in range(node.gpus):
                if cluster.fleet.cards.cut_of(row, device).gpu:
                    continue  # DCGM has no utilisation of a GPU in MIG mode, and its memory is in series of instances
                exposed, values = self._device(cluster, node, row, device)
                of = tuple(exposed.values())
                for number, target in enumerate(found):
                    for metric, value in values:
                        yield self._key((exporter, namespace, number, metric, of), metric, exposed, target), value

    def _device(
        self, cluster: Site, node: SimulatedNode, row: int, device: int
    ) -> tuple[dict[str, str], tuple[tuple[str, float], ...]]:
        """The labels of one GPU as dcgm-exporter writes them, and its readings: of a shared one those of the whole, and
        no pod, as it cannot tell whose processes run."""
        labels = {
            "gpu": str(device),
            "UUID": node.gpu_uuid(device),
            "device": f"nvidia{device}",
            "modelName": node.gpu_product,
            "Hostname": node.name,
        }
        holder = int(cluster.fleet.devices[row, device])
        if holder >= 0:
            held = cluster.fleet.pod(holder).spec
            labels |= {"namespace": held.namespace, "pod": held.name, "container": held.spec.containers[0].name}
        on_it = [holder] if holder >= 0 else cluster.fleet.holders(row, device) if holder == SHARED_DEVICE else []
        utilisation, used = 0.0, 0
        for one in on_it:
            spec = cluster.fleet.pod(one).spec
            pod = cluster.pods.get((spec.namespace, spec.name))
            if pod is not None and pod.replica is not None and pod.replica.engine is not None:
                utilisation += self._utilisation(pod.key, pod.replica.taken_ns, cluster.now_ns)
                used += round(loading.memory_mib(cluster, pod))
        utilisation = min(100.0, utilisation)
        values = zip(ALWAYS, (utilisation, used, node.gpu_memory_mib - used), strict=True)
        return labels, (*values, *self._gpus.of(node, device, utilisation / 100, used, cluster.now_ns))

    def _utilisation(self, pod: str, busy_ns: int, now_ns: int) -> float:
        """Percent of its GPU's time since the last scrape that the pod's engine took."""
        at_ns, before_ns, percent = self._busy.get(pod, (-1, 0, 0.0))
        if at_ns != now_ns:
            percent = min(100.0, round(100 * (busy_ns - before_ns) / self.interval_ns))
            self._busy[pod] = (now_ns, busy_ns, percent)
        return percent

    def _targets_of(self, name: str, pod: Callable[[], core.Pod]) -> tuple[ScrapeTarget, ...]:
        known = self._targets.get(name)
        if known is None:
            made = [pod()]
            known = self._targets[name] = tuple(
                target for monitor, selected in self.monitors for target in targets(monitor, selected, made)
            )
        return known


def _answers(cluster: Site, target: str) -> bool:
    return not cluster.records.troubles.unanswered(target, cluster.now_ns)


def _as_object(pod: SimulatedPod) -> core.Pod:
    metadata = ObjectMeta(name=pod.name, namespace=pod.namespace, labels=dict(pod.template.metadata.labels))
    return core.Pod(api_version="v1", kind="Pod", metadata=metadata, spec=pod.template.spec)


def _exporter(daemon: FleetPod) -> core.Pod:
    metadata = ObjectMeta(name=daemon.name, namespace=daemon.namespace, labels=dict(daemon.labels))
    return core.Pod(api_version="v1", kind="Pod", metadata=metadata, spec=daemon.spec)


def wants_histograms(names: Iterable[str]) -> bool:
    """Whether one of the metrics that queries name is a histogram's or counts finished requests."""
    return any(
        name.startswith("vllm:") and name.endswith(("_bucket", "_sum", "_count", "success_total")) for name in names
    )
