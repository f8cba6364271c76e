"""A synthetic result for tests of what people see: 90 minutes, a surge, two services, at most 5 nodes of 4 GPUs."""

from __future__ import annotations

from collections import Counter

import msgspec
from result_model import GPUS_PER_NODE, PRICE, PROFILES, STEP_S, Run, Service

from tonnage.costs.ledger import CostLine
from tonnage.decisions import Finding, Ref
from tonnage.errors import Where
from tonnage.simulation import result as r

POLICIES = tuple(PROFILES)


def _quantiles(values: list[float | None]) -> r.Quantiles:
    data = sorted(value for value in values if value is not None)
    if not data:
        return r.Quantiles(None, None, None, None)
    at = [data[min(len(data) - 1, int(share * len(data)))] for share in (0.5, 0.95, 0.99)]
    return r.Quantiles(*at, round(sum(data) / len(data), 3))


def _attainment(service: Service, times: list[float], inside: bool, grace_s: float) -> r.Attainment:
    requests = met = 0
    for t, rate, share in zip(times, service.columns["arrivals_per_s"], service.columns["slo_share"], strict=True):
        in_grace = service.surge is not None and service.surge[0] <= t < service.surge[0] + grace_s
        if in_grace == inside:
            requests += round(rate * STEP_S)
            met += round(rate * STEP_S * (share or 0.0))
    missed = requests - met
    tpot = missed // 9
    return r.Attainment(requests, met, missed - tpot, tpot, 0, 0, met / requests if requests else None)


def _findings() -> list[Finding]:
    scaled = Ref("ScaledObject", "chat-8b", "serving")
    return [
        Finding(
            "scale-beyond-capacity", "error", scaled, Where("manifests/autoscaling.yaml", 24, "spec.maxReplicaCount"),
            "maxReplicaCount 24 asks for 24 GPUs, but the NodePool's limit allows 20; the last 4 replicas can never start.",
            (("maxReplicaCount", 24), ("gpus_allowed", 20)),
        ),
        Finding(
            "queue-metric-without-pods", "warning", scaled, Where("manifests/autoscaling.yaml", 31, "spec.triggers[0].metadata.query"),
            "The query has no data while no replica is ready, so the service cannot leave zero.",
            (("metric", "vllm:num_requests_waiting"), ("value", None)),
        ),
        Finding(
            "stabilization-longer-than-boot", "info", Ref("Deployment", "code-14b", "serving"), Where("manifests/code.yaml", 8, ""),
            "A replica takes 420 s from created to ready; a stabilization window of 300 s gives capacity away that is launched again.",
        ),
    ]  # fmt: skip


def build(
    policy: str = "keda+karpenter", *, seed: int = 7, duration_s: float = 5400.0, decisions: int | None = None
) -> r.Result:
    """A result of ``policy``. ``decisions`` repeats the log up to that many rows."""
    run = Run(policy, seed)
    for number in range(1, int(duration_s / STEP_S) + 1):
        run.step(number * STEP_S)
    records = run.decisions
    if decisions is not None:
        records = [records[index % len(records)] for index in range(decisions)]
    slo = r.ServiceLevel(ttft_s=2.0, tpot_s=0.05, grace_s=300.0)
    nodes = _nodes(run, duration_s)
    lines = [CostLine(owner, *run.cost[owner]) for owner in sorted(run.cost)]
    rows = [
        r.HeatRow(node.name, gpu, [-1] * (len(run.t_s) - len(node.owner[gpu])) + node.owner[gpu],
                  [0] * (len(run.t_s) - len(node.busy[gpu])) + node.busy[gpu])
        for node in run.nodes for gpu in range(GPUS_PER_NODE)
    ]  # fmt: skip
    paid = sum((node.ended_s or duration_s) - node.launched_s for node in run.nodes) * GPUS_PER_NODE / 3600
    return r.Result(
        schema=r.SCHEMA,
        tonnage_version="0.1.0",
        scenario="traffic-surge",
        policy=policy,
        manifests="manifests/",
        seed=seed,
        duration_s=duration_s,
        traffic_source="Azure LLM inference trace 2023, conversation",
        slo=slo,
        services=[_service(service, run, slo) for service in run.services],
        nodes=nodes,
        gpu_hours=r.GpuHours(round(paid, 4), round(run.allocated_s / 3600, 4), round(run.busy_s / 3600, 4)),
        cost=r.CostResult(sum(node.cost_micro_usd for node in nodes), lines, "2026-07-20", "us-east-1"),
        series=r.ResultSeries(run.t_s, [r.ServiceSeries(s.name, **s.columns) for s in run.services], **run.fleet),
        heatmap=r.Heatmap(run.t_s, ["free", *(service.name for service in run.services)], rows),
        findings=_findings(),
        decisions=records,
        decision_counts=dict(sorted(Counter(record.kind for record in records).items())),
        events=run.events,
        check=r.InvariantChecks(True, 41_236, []),
    )


def _service(service: Service, run: Run, slo: r.ServiceLevel) -> r.ServiceResult:
    columns = service.columns
    total = sum(columns["arrivals_per_s"]) * STEP_S
    return r.ServiceResult(
        name=service.name,
        workload=service.name,
        model=service.model,
        overall=_attainment(service, run.t_s, False, slo.grace_s),
        grace=_attainment(service, run.t_s, True, slo.grace_s),
        ttft_ms=_quantiles(columns["ttft_p50_ms"]),
        tpot_ms=_quantiles(columns["tpot_p99_ms"]),
        prompt_tokens=round(total * 1155),
        generated_tokens=round(total * 211),
        preemptions=17 if service.surge else 0,
        min_ready_replicas=min(x for x in columns["replicas_ready"] if x),
        max_ready_replicas=max(columns["replicas_ready"]),
        min_replicas_allowed=service.min_replicas,
        surges=[list(service.surge)] if service.surge else [],
        cold_start_s=_quantiles(service.cold_starts),
    )


def _nodes(run: Run, duration_s: float) -> list[r.NodeResult]:
    steps = {node.name: sum(owner >= 0 for owner in node.owner[0]) for node in run.nodes}
    money = round(PRICE / GPUS_PER_NODE * STEP_S / 3600) * GPUS_PER_NODE
    return [
        r.NodeResult(
            name=node.name,
            instance_type="g6e.12xlarge",
            gpu="l40s",
            gpus=GPUS_PER_NODE,
            node_pool="gpu-l40s",
            capacity_type="on-demand",
            zone="us-east-1" + "abc"[index % 3],
            price_micro_usd_per_hour=PRICE,
            launched_s=node.launched_s,
            ready_s=node.ready_s if node.ready_s <= duration_s else None,
            ended_s=node.ended_s,
            end_reason="empty" if node.ended_s is not None else "",
            cost_micro_usd=money * steps[node.name],
        )
        for index, node in enumerate(run.nodes)
    ]


def holding(result: r.Result, *shares: float) -> r.Result:
    """The result with Services that met their SLO with these shares of their requests; all of them without any."""
    services = []
    for number, service in enumerate(result.services):
        share = shares[number] if shares else 1.0
        overall = msgspec.structs.replace(service.overall, share=share)
        services.append(msgspec.structs.replace(service, overall=overall))
    return msgspec.structs.replace(result, services=services)
