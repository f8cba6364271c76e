"""The few figures of a run that people ask for first, derived once for the report and the terminal."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tonnage.simulation.result import Attainment, NodeResult, Result

SEVERITIES = ("error", "warning", "info")
"""Of findings, the worst first."""


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


def headline(result: Result, label: str = "") -> Headline:
    """The figures of ``result``. A node counts as bought when it was launched after the start of the run."""
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
    )


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
