"""The scenario: the one format that Tonnage invents. Fleet, manifests, traffic, faults and the policies to compare.

docs/reference/scenario.md describes every field.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tonnage.errors import InputError, Problem
from tonnage.facts import instances
from tonnage.simulation.balancing import LOAD_BALANCING
from tonnage.simulation.documents import Document, read
from tonnage.simulation.entries import (
    LONGEST_S,
    Strict,
    SurgeEntry,
    TrafficSpec,
    blind_problems,
    duration_ns,
    link_problem,
    surge_spec,
    tells_content,
    traffic_problems,
)
from tonnage.simulation.lower_tiers import tier_problems
from tonnage.simulation.traffic.surges import SurgeSpec

__all__ = [
    "LONGEST_S",
    "FaultSpec",
    "FleetSpec",
    "NodeGroupSpec",
    "PolicySpec",
    "Scenario",
    "ScenarioSpec",
    "SloSpec",
    "SurgeEntry",
    "Traffic",
    "TrafficSpec",
    "duration_ns",
    "load",
]

_HINT = "see docs/reference/scenario.md"
CAPACITY_TYPES = ("on-demand", "spot")
FAULTS = ("spot-interruption", "node-failure", "gpu-failure", "out-of-stock")
SCALING = ("manifests", "slo")


class SloSpec(Strict, frozen=True, kw_only=True):
    """Every request is to meet both. Those that arrive within ``grace`` after a surge's start are counted apart."""

    ttft: str
    tpot: str
    grace: str = "0s"


class NodeGroupSpec(Strict, frozen=True, kw_only=True):
    """Nodes that are there from the start. Without ``node_pool`` they are the user's own and are never returned."""

    instance_type: str
    count: int = 1
    zone: str = "us-east-1a"
    node_pool: str = ""
    capacity_type: str = "on-demand"


class FleetSpec(Strict, frozen=True, kw_only=True):
    """What there is at the start."""

    nodes: tuple[NodeGroupSpec, ...] = ()


class FaultSpec(Strict, frozen=True, kw_only=True):
    """Something that breaks at ``at``.

    ``spot-interruption``, ``node-failure`` and ``gpu-failure`` hit ``count`` nodes, of a pool or an instance type, in
    order of name; a failed GPU is back after ``duration``; ``out-of-stock`` withholds an instance type for
    ``duration``.
    """

    kind: str
    at: str
    count: int = 1
    node_pool: str = ""
    instance_type: str = ""
    duration: str = "10m"


class PolicySpec(Strict, frozen=True, kw_only=True):
    """A named way to run the scenario: which manifests, and who sets replicas (they, or the ``slo`` policy).

    ``balancing``, ``link`` and ``tiers`` replace those of all traffic; empty ``tiers`` are none.
    """

    manifests: str
    scaling: str = "manifests"
    balancing: str = ""
    link: str = ""
    tiers: dict[str, str] | None = None


class ScenarioSpec(Strict, frozen=True, kw_only=True):
    """The file as written."""

    kind: str
    name: str
    duration: str
    slo: SloSpec
    traffic: tuple[TrafficSpec, ...]
    policies: dict[str, PolicySpec]
    fleet: FleetSpec = FleetSpec()
    region: str = "us-east-1"
    default: str = ""
    prices: str = ""
    faults: tuple[FaultSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class Traffic:
    """One service's traffic, read."""

    spec: TrafficSpec
    surges: tuple[SurgeSpec, ...]
    path: Path
    is_trace: bool


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario that has been read and checked. Times in ns."""

    spec: ScenarioSpec
    document: Document
    folder: Path
    duration_ns: int
    ttft_ns: int
    tpot_ns: int
    grace_ns: int
    traffic: tuple[Traffic, ...]

    @property
    def default_policy(self) -> str:
        """The policy that runs when none is named."""
        return self.spec.default or next(iter(self.spec.policies))

    def policy(self, name: str) -> PolicySpec:
        """A policy by name. Raises InputError with near names."""
        found = self.spec.policies.get(name)
        if found is None:
            near = difflib.get_close_matches(name, self.spec.policies, 1)
            names = ", ".join(self.spec.policies)
            hint = f"did you mean {near[0]}?" if near else f"the scenario has {names}"
            raise InputError(self.document.problem("policies", f"no policy {name!r}", hint))
        return found


def load(path: Path) -> Scenario:
    """Read a scenario file, or ``scenario.yaml`` in a folder. Raises InputError with all that is wrong in it."""
    file = path / "scenario.yaml" if path.is_dir() else path
    if not file.exists():
        raise InputError.at(
            "no such scenario", file=str(file), hint="give a scenario file, or a folder with a scenario.yaml"
        )
    document = read(file, "Scenario", "a scenario", _HINT)
    spec = document.convert(ScenarioSpec)
    problems = list(_problems(spec, document, file.parent))
    if problems:
        raise InputError(*problems)
    folder = file.parent
    traffic = tuple(
        Traffic(t, tuple(surge_spec(s) for s in t.surges), folder / (t.trace or t.profile), bool(t.trace))
        for t in spec.traffic
    )
    return Scenario(
        spec,
        document,
        folder,
        duration_ns(spec.duration),
        duration_ns(spec.slo.ttft),
        duration_ns(spec.slo.tpot),
        duration_ns(spec.slo.grace),
        traffic,
    )


def _problems(spec: ScenarioSpec, document: Document, folder: Path) -> list[Problem]:
    found: list[Problem] = []

    def duration(field: str, text: str, *, positive: bool = True) -> None:
        try:
            value = duration_ns(text)
        except ValueError:
            found.append(document.problem(field, f'"{text}" is not a duration, expected e.g. 90m, 1h30m, 2s or 50ms'))
            return
        if positive and value <= 0:
            found.append(document.problem(field, f'"{text}" is not above 0'))

    def one_of(field: str, value: str, known: Sequence[str]) -> None:
        if value not in known:
            found.append(document.problem(field, f'"{value}", expected one of {", ".join(known)}'))

    duration("duration", spec.duration)
    duration("slo.ttft", spec.slo.ttft)
    duration("slo.tpot", spec.slo.tpot)
    duration("slo.grace", spec.slo.grace, positive=False)
    for i, group in enumerate(spec.fleet.nodes):
        found += _instance_type_problems(f"fleet.nodes[{i}].instanceType", group.instance_type, document)
        one_of(f"fleet.nodes[{i}].capacityType", group.capacity_type, CAPACITY_TYPES)
        if group.count < 1:
            found.append(document.problem(f"fleet.nodes[{i}].count", f"{group.count} nodes, expected at least 1"))
    if not spec.policies:
        found.append(document.problem("policies", "no policy, expected at least one"))
    if spec.default and spec.default not in spec.policies:
        names = ", ".join(spec.policies)
        found.append(document.problem("default", f'"{spec.default}" is not among the policies: {names}'))
    for name, policy in spec.policies.items():
        found += _policy_problems(f"policies.{name}", policy, spec, document, folder)
    if not spec.traffic:
        found.append(document.problem("traffic", "no traffic, expected at least one service"))
    served: set[str] = set()
    for i, traffic in enumerate(spec.traffic):
        found += traffic_problems(f"traffic[{i}]", traffic, document)
        for service in dict.fromkeys(traffic.services):
            if service in served:
                found.append(document.problem(f"traffic[{i}].service", f'"{service}" stands twice'))
            served.add(service)
    for i, fault in enumerate(spec.faults):
        one_of(f"faults[{i}].kind", fault.kind, FAULTS)
        duration(f"faults[{i}].at", fault.at, positive=False)
        duration(f"faults[{i}].duration", fault.duration)
        if fault.count < 1:
            found.append(document.problem(f"faults[{i}].count", f"{fault.count} nodes, expected at least 1"))
        if fault.instance_type:
            found += _instance_type_problems(f"faults[{i}].instanceType", fault.instance_type, document)
        elif fault.kind == "out-of-stock":
            found.append(document.problem(f"faults[{i}].instanceType", "out-of-stock needs an instanceType"))
    return found


def _policy_problems(
    field: str, policy: PolicySpec, spec: ScenarioSpec, document: Document, folder: Path
) -> list[Problem]:
    found: list[Problem] = []
    for name, value, known in (
        ("scaling", policy.scaling, SCALING),
        ("balancing", policy.balancing or LOAD_BALANCING[0], LOAD_BALANCING),
    ):
        if value not in known:
            found.append(document.problem(f"{field}.{name}", f'"{value}", expected one of {", ".join(known)}'))
    if not (folder / policy.manifests).exists():
        found.append(document.problem(f"{field}.manifests", f"no such folder: {folder / policy.manifests}"))
    if policy.balancing:
        for traffic in spec.traffic:
            found += blind_problems(f"{field}.balancing", traffic, policy.balancing, document)
    if policy.link and (problem := link_problem(policy.link)):
        found.append(document.problem(f"{field}.link", problem))
    found += [document.problem(f"{field}.tiers.{tier}", text) for tier, text in tier_problems(policy.tiers or {})]
    if policy.tiers and not any(map(tells_content, spec.traffic)):
        message = "tiers hold what prompts have in common, and no traffic says what that is"
        found.append(document.problem(f"{field}.tiers", message, "give the traffic prefixes, or a trace with hash_ids"))
    return found


def _instance_type_problems(field: str, name: str, document: Document) -> list[Problem]:
    try:
        instances.get(name)
    except InputError as error:
        return [document.problem(field, problem.message, problem.hint) for problem in error.problems]
    return []
