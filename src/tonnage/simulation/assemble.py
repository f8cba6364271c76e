"""From a finished run to its :class:`Result`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from tonnage import __version__
from tonnage.machines.cluster import SimulatedCluster
from tonnage.machines.objects import Workload
from tonnage.machines.serving.service import DONE, PENDING, SimulatedService
from tonnage.machines.serving.split import PREFILL, SplitService
from tonnage.simulation.findings.unserved import Known, not_running
from tonnage.simulation.recorder import ABSENT, Recorder
from tonnage.simulation.result import (
    SCHEMA,
    Attainment,
    CostResult,
    EventRecord,
    GpuHours,
    Heatmap,
    HeatRow,
    InvariantChecks,
    NodeResult,
    Quantiles,
    Result,
    ResultSeries,
    Routing,
    ServiceLevel,
    ServiceResult,
    ServiceSeries,
    WorkloadResult,
)
from tonnage.simulation.scenario import Scenario
from tonnage.simulation.training.results import training_results
from tonnage.units import NS_PER_HOUR, NS_PER_MS, NS_PER_S

Bools = NDArray[np.bool_]


class RequestArrays:
    """The requests of a service as arrays.

    ``first_ns`` and ``ttft_ns`` mean nothing where ``began`` is False, ``finish_ns`` and ``tpot_ns`` nothing where
    ``done`` is.
    """

    def __init__(self, service: SimulatedService, ttft_ns: int, tpot_ns: int, end_ns: int) -> None:
        requests = service.requests
        self.arrival_ns = requests.arrivals.arrival_ns
        self.output = requests.arrivals.output.astype(np.int64)
        self.prompt = requests.arrivals.prompt.astype(np.int64)
        self.first_ns = np.array(requests.first_ns, np.int64)
        self.finish_ns = np.array(requests.finish_ns, np.int64)
        status = np.frombuffer(bytes(requests.status), np.uint8)
        self.began: Bools = self.first_ns > 0
        self.done: Bools = status == DONE
        self.ttft_ns = self.first_ns - self.arrival_ns
        decoded = self.finish_ns - self.first_ns
        self.tpot_ns = decoded / np.maximum(self.output - 1, 1)
        self.slow_first: Bools = self.done & (self.ttft_ns > ttft_ns)
        self.slow_rest: Bools = self.done & (self.tpot_ns > tpot_ns)
        self.met: Bools = self.done & ~self.slow_first & ~self.slow_rest
        in_time = np.where(self.began, self.ttft_ns <= ttft_ns, self.arrival_ns + ttft_ns >= end_ns)
        first_by = np.where(self.began, self.first_ns, self.arrival_ns + ttft_ns)
        self.undecided: Bools = (status == PENDING) & in_time & (first_by + (self.output - 1) * tpot_ns >= end_ns)

    def attainment(self, among: Bools) -> Attainment:
        """Of the requests ``among``."""
        counted = among & ~self.undecided
        requests, met = int(counted.sum()), int((self.met & counted).sum())
        return Attainment(
            requests,
            met,
            int((self.slow_first & counted).sum()),
            int((self.slow_rest & counted).sum()),
            int((~self.done & counted).sum()),
            int((among & self.undecided).sum()),
            round(met / requests, 6) if requests else None,
        )

    def in_grace(self, grace_ns: int, surges: Sequence[tuple[int, int, float]]) -> Bools:
        """Requests that arrive within the grace after a surge's start."""
        inside = np.zeros(len(self.arrival_ns), np.bool_)
        for start_ns, _, _ in surges:
            inside |= (self.arrival_ns >= start_ns) & (self.arrival_ns < start_ns + grace_ns)
        return inside


def assemble(
    scenario: Scenario,
    cluster: SimulatedCluster,
    recorder: Recorder,
    *,
    policy: str,
    seed: int,
    traffic_source: str,
    prices_as_of: str,
    known: Known,
    check: InvariantChecks,
) -> Result:
    """Everything that a run has to say."""
    tables = {
        service.name: RequestArrays(service, scenario.ttft_ns, scenario.tpot_ns, cluster.now_ns)
        for service in cluster.services
    }
    settlement = cluster.records.ledger.settle(cluster.now_ns)
    gpu = settlement.gpu_time
    return Result(
        schema=SCHEMA,
        tonnage_version=__version__,
        scenario=scenario.spec.name,
        policy=policy,
        manifests=scenario.policy(policy).manifests,
        seed=seed,
        duration_s=_s(scenario.duration_ns),
        traffic_source=traffic_source,
        slo=ServiceLevel(_s(scenario.ttft_ns), _s(scenario.tpot_ns), _s(scenario.grace_ns))
        if scenario.spec.slo
        else None,
        services=[_service(scenario, cluster, s, tables[s.name]) for s in cluster.services],
        nodes=_nodes(cluster),
        gpu_hours=GpuHours(*(round(ns / NS_PER_HOUR, 4) for ns in (gpu.paid_ns, gpu.allocated_ns, gpu.busy_ns))),
        cost=CostResult(
            settlement.total_micro_usd,
            list(settlement.lines),
            prices_as_of,
            scenario.spec.region,
        ),
        series=_series(cluster, recorder, tables),
        heatmap=_heatmap(recorder),
        findings=list(known.findings),
        decisions=recorder.decisions,
        decision_counts=dict(sorted(recorder.counts.items())),
        events=[
            EventRecord(_s(e.t_ns), e.object, e.type, e.reason, e.message, e.count)
            for e in cluster.events.rows.values()
        ],
        check=check,
        training=training_results(cluster) or msgspec.UNSET,
        not_running=not_running(cluster, recorder, known) or msgspec.UNSET,
        workloads=(not scenario.spec.traffic and not scenario.spec.training and _workloads(cluster)) or msgspec.UNSET,
    )


def workloads_of(cluster: SimulatedCluster, service: SimulatedService) -> list[Workload]:
    """The workloads behind a Service; that of its decode pods, if it has pools."""
    return [w for w in cluster.workloads.values() if w.service is service and w.role != PREFILL]


def _service(
    scenario: Scenario, cluster: SimulatedCluster, service: SimulatedService, table: RequestArrays
) -> ServiceResult:
    behind = workloads_of(cluster, service)
    minima = [one.minimum for one in behind if one.minimum is not None]
    surges = service.requests.arrivals.surges
    grace = table.in_grace(scenario.grace_ns, surges)
    cold = np.array([at for one in behind for at in one.cold_starts_ns], np.float64) / NS_PER_S
    return ServiceResult(
        name=service.name,
        workload=", ".join(one.key for one in behind),
        model=", ".join(dict.fromkeys(one.server.model for one in behind if one.server is not None)),
        overall=table.attainment(~grace),
        grace=table.attainment(grace),
        ttft_ms=_quantiles(table.ttft_ns[table.began] / NS_PER_MS),
        tpot_ms=_quantiles(table.tpot_ns[table.done & (table.output > 1)] / NS_PER_MS),
        prompt_tokens=int(table.prompt[table.done].sum()),
        generated_tokens=int(table.output[table.done].sum()),
        preemptions=service.requests.preemptions,
        min_ready_replicas=sum(one.min_ready for one in behind),
        max_ready_replicas=sum(one.max_ready for one in behind),
        min_replicas_allowed=sum(minima) if minima else None,
        surges=[[_s(start), _s(end), factor] for start, end, factor in surges],
        cold_start_s=_quantiles(cold),
        routing=_routing(service, table),
    )


def _workloads(cluster: SimulatedCluster) -> list[WorkloadResult]:
    return [
        WorkloadResult(
            workload.key,
            workload.server.model if workload.server else "",
            workload.replicas,
            workload.min_ready,
            workload.max_ready,
            None if workload.ready_ns is None else _s(workload.ready_ns),
        )
        for workload in cluster.workloads.values()
    ]


def _routing(service: SimulatedService, table: RequestArrays) -> Routing | msgspec.UnsetType:
    """What balancing and pools made of the requests; unset for a Service of which nothing of the kind is known."""
    split = isinstance(service, SplitService)
    zones = service.requests.arrivals.zones is not None
    if not (split or zones or service.has_content):
        return msgspec.UNSET
    done, sent = int(table.prompt[table.done].sum()), max(1, service.received)
    moved = np.array(service.transfers_ns if isinstance(service, SplitService) else [], np.float64)
    return Routing(
        reuse=round(service.requests.reused / done, 6) if service.has_content and done else None,
        cross_zone=round(service.requests.crossed / sent, 6) if zones else None,
        remote_prefills=len(moved) if split else None,
        local_prefills=service.local if isinstance(service, SplitService) else None,
        transfer_ms=_quantiles(moved / NS_PER_MS),
        tier_tokens=service.tiers.loaded_tokens if service.tiers is not None else None,
    )


def _nodes(cluster: SimulatedCluster) -> list[NodeResult]:
    return [
        NodeResult(
            node.name,
            node.instance_type,
            node.gpu,
            node.gpus,
            node.node_pool,
            node.capacity_type,
            node.zone,
            node.price_micro_usd_per_hour,
            _s(node.launched_ns),
            None if node.ready_ns is None else _s(node.ready_ns),
            None if node.ended_ns is None else _s(node.ended_ns),
            node.end_reason,
            cluster.records.ledger.node_cost(node.name, cluster.now_ns),
        )
        for node in cluster.nodes.values()
    ]


def _series(cluster: SimulatedCluster, recorder: Recorder, tables: dict[str, RequestArrays]) -> ResultSeries:
    edges = np.array(recorder.times_ns, np.int64)
    return ResultSeries(
        t_s=[_s(t) for t in recorder.times_ns],
        services=[_service_series(s, recorder, tables[s.name], edges) for s in cluster.services],
        nodes_ready=recorder.nodes_ready,
        nodes_starting=recorder.nodes_starting,
        gpus_paid=recorder.gpus_paid,
        gpus_allocated=recorder.gpus_allocated,
        spend_micro_usd=recorder.spend_micro_usd,
    )


def _service_series(
    service: SimulatedService, recorder: Recorder, table: RequestArrays, edges: NDArray[np.int64]
) -> ServiceSeries:
    samples = recorder.services.get(service.name, [])
    arrived = np.bincount(np.searchsorted(edges, table.arrival_ns), minlength=len(edges) + 1)[: len(edges)]
    widths = np.diff(edges, prepend=0) / NS_PER_S
    rates = np.divide(arrived, widths, out=np.zeros(len(edges)), where=widths > 0)
    first = np.searchsorted(edges, table.first_ns[table.began])
    last = np.searchsorted(edges, table.finish_ns[table.done])
    ttft = _by_interval(first, table.ttft_ns[table.began] / NS_PER_MS, len(edges))
    tpot = _by_interval(last, table.tpot_ns[table.done] / NS_PER_MS, len(edges))
    met = _by_interval(last, table.met[table.done].astype(np.float64), len(edges))
    return ServiceSeries(
        name=service.name,
        arrivals_per_s=[round(float(rate), 4) for rate in rates],
        replicas_wanted=[s.wanted for s in samples],
        replicas_ready=[s.ready for s in samples],
        replicas_starting=[s.starting for s in samples],
        replicas_pending=[s.pending for s in samples],
        requests_running=[s.running for s in samples],
        requests_waiting=[s.waiting for s in samples],
        kv_usage=[s.kv_usage for s in samples],
        ttft_p50_ms=[_quantile(v, 0.5) for v in ttft],
        ttft_p99_ms=[_quantile(v, 0.99) for v in ttft],
        tpot_p50_ms=[_quantile(v, 0.5) for v in tpot],
        tpot_p99_ms=[_quantile(v, 0.99) for v in tpot],
        slo_share=[round(float(v.mean()), 4) if len(v) else None for v in met],
    )


def _by_interval(interval: NDArray[np.intp], values: NDArray[np.float64], count: int) -> list[NDArray[np.float64]]:
    order = np.argsort(interval, kind="stable")
    bounds = np.searchsorted(interval[order], np.arange(count + 1))
    ordered = values[order]
    return [ordered[bounds[i] : bounds[i + 1]] for i in range(count)]


def _heatmap(recorder: Recorder) -> Heatmap:
    count = len(recorder.times_ns)
    rows = []
    for (node, device), cells in recorder.heat.items():
        owner, busy, parts = [ABSENT] * count, [0] * count, [0] * count
        for index, holder, percent, way in cells:
            owner[index], busy[index], parts[index] = holder, percent, way
        rows.append(HeatRow(node, device, owner, busy, parts if any(parts) else []))
    ways = [list(way) for way in recorder.parts]
    return Heatmap([_s(t) for t in recorder.times_ns], recorder.owners, rows, ways if len(ways) > 1 else [])


def _quantiles(values: NDArray[np.float64]) -> Quantiles:
    if not len(values):
        return Quantiles(None, None, None, None)
    p50, p95, p99 = (_quantile(values, q) for q in (0.5, 0.95, 0.99))
    return Quantiles(p50, p95, p99, round(float(values.mean()), 3))


def _quantile(values: NDArray[np.float64], q: float) -> float | None:
    """The smallest value that a share ``q`` of the values does not exceed (nearest rank); None without values."""
    if not len(values):
        return None
    rank = max(0, int(np.ceil(q * len(values))) - 1)
    return round(float(np.partition(values, rank)[rank]), 3)


def _s(t_ns: int) -> float:
    return round(t_ns / NS_PER_S, 3)
