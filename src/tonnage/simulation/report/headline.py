"""The few figures of a run that people ask for first, derived once for the report and the terminal."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tonnage.simulation.result import Attainment, NodeResult, Result, TrainingHours, TrainingResult

SEVERITIES = ("error", "warning", "info")
"""Of findings, the worst first."""


class TrainingHeadline(msgspec.Struct, frozen=True):
    """All training work of one run. Waits are means over the workloads that had a place; ``finished_s``: when the last
    that got done was; None where none did."""

    workloads: int
    done: int
    failed: int
    mean_wait_s: float | None
    worst_wait_s: float | None
    mean_makespan_s: float | None
    finished_s: float | None
    restarts: int
    evictions: int
    gpu_hours: TrainingHours
    communication_factor: float | None  # mean of the workloads of which it is known


class Headline(msgspec.Struct, frozen=True):
    """Derived figures of one run. Tokens are prompt plus generated; money is in micro-dollars."""

    label: str
    requests: int
    share: float | None  # outside the grace window, all services
    grace_share: float | None
    tokens: int
    micro_usd_per_million_tokens: float | None
    max_nodes: int
    nodes_bought: int
    nodes_returned: int
    findings: dict[str, int]
    training: TrainingHeadline | None = None


def headline(result: Result, label: str = "") -> Headline:
    """The figures of ``result``. Nodes launched are those launched after the start of the run."""
    tokens = sum(service.prompt_tokens + service.generated_tokens for service in result.services)
    overall = [service.overall for service in result.services]
    grace = [service.grace for service in result.services]
    return Headline(
        label=label or result.policy,
        requests=sum(part.requests for part in overall + grace),
        share=_share(overall),
        grace_share=_share(grace),
        tokens=tokens,
        micro_usd_per_million_tokens=result.cost.total_micro_usd / tokens * 1e6 if tokens else None,
        max_nodes=max_nodes(result.nodes),
        nodes_bought=sum(node.launched_s > 0 for node in result.nodes),
        nodes_returned=sum(node.ended_s is not None for node in result.nodes),
        findings={
            severity: sum(finding.severity == severity for finding in result.findings) for severity in SEVERITIES
        },
        training=None if isinstance(result.training, msgspec.UnsetType) else training_headline(result.training),
    )


def training_headline(work: Sequence[TrainingResult]) -> TrainingHeadline:
    """The figures of some training work together."""
    waits = [one.queue_wait_s for one in work if one.queue_wait_s is not None]
    makespans = [one.makespan_s for one in work if one.makespan_s is not None]
    ends = [one.finished_s for one in work if one.finished_s is not None and one.state == "done"]
    factors = [one.communication_factor for one in work if one.communication_factor is not None]
    names = msgspec.structs.fields(TrainingHours)
    hours = {field.name: round(sum(getattr(one.gpu_hours, field.name) for one in work), 4) for field in names}
    return TrainingHeadline(
        workloads=len(work),
        done=sum(one.state == "done" for one in work),
        failed=sum(one.state == "failed" for one in work),
        mean_wait_s=_mean(waits),
        worst_wait_s=max(waits, default=None),
        mean_makespan_s=_mean(makespans),
        finished_s=max(ends, default=None),
        restarts=sum(one.restarts for one in work),
        evictions=sum(one.evictions for one in work),
        gpu_hours=TrainingHours(**hours),
        communication_factor=_mean(factors),
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def max_nodes(nodes: Sequence[NodeResult]) -> int:
    """The highest number of nodes that existed at one instant, from launch to end."""
    changes = [(node.launched_s, 1) for node in nodes]
    changes += [(node.ended_s, -1) for node in nodes if node.ended_s is not None]
    peak = alive = 0
    for _, change in sorted(changes):  # an end sorts before a launch at the same instant
        alive += change
        peak = max(peak, alive)
    return peak


def labels(results: Sequence[Result]) -> list[str]:
    """A distinct name for each run: its policy; where that is not enough with scenario, seed or a number."""
    names = [result.policy for result in results]
    for part in (lambda result: result.scenario, lambda result: f"seed {result.seed}"):
        if len(set(names)) == len(names):
            return names
        values = [part(result) for result in results]
        if len(set(values)) > 1:
            names = [f"{name}, {value}" for name, value in zip(names, values, strict=True)]
    if len(set(names)) == len(names):
        return names
    return [f"{name} ({number})" for number, name in enumerate(names, 1)]


def _share(parts: Sequence[Attainment]) -> float | None:
    requests = sum(part.requests for part in parts)
    return sum(part.met for part in parts) / requests if requests else None
