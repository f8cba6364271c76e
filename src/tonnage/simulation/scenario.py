"""The scenario: the one format that Tonnage invents. Fleet, manifests, traffic, faults and the policies to compare.

docs/reference/scenario.md describes every field.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tonnage.control.choices import KARPENTER, PARTITIONING, PROVISIONING, STATIC
from tonnage.control.policy import Policy
from tonnage.documents import LONGEST_S, Document, Strict, duration_ns, parse, read
from tonnage.errors import InputError, Problem
from tonnage.facts.models import ModelShape
from tonnage.facts.price_book import CAPACITY_TYPES
from tonnage.machines.serving.balancing import LOAD_BALANCING
from tonnage.machines.serving.lower_tiers import tier_problems
from tonnage.machines.training.entries import TrainingEntry, training_problems
from tonnage.objects.load import SUFFIXES
from tonnage.scaling.policies import BY_MANIFESTS
from tonnage.scaling.policies import POLICIES as SCALING
from tonnage.scaling.thresholds import presets
from tonnage.scheduling.policies import POLICIES as PLACEMENT
from tonnage.simulation.entries import (
    SurgeEntry,
    TrafficSpec,
    blind_problems,
    link_problem,
    surge_spec,
    tells_content,
    traffic_problems,
)
from tonnage.simulation.fault_entries import (
    FaultSpec,
    duration_problems,
    fault_problems,
    instance_type_problems,
    one_of_problems,
)
from tonnage.simulation.model_entries import ModelEntry, shapes
from tonnage.simulation.reallocation_entries import ReallocationEntry, reallocation_problems
from tonnage.traffic.surges import SurgeSpec

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


class SloSpec(Strict, frozen=True, kw_only=True):
    """Every request is to meet both. Those that arrive within ``grace`` after a surge's start are counted apart."""

    ttft: str
    tpot: str
    grace: str = "0s"


_NO_SLO = SloSpec(ttft="0s", tpot="0s")
"""Stands for the targets of a scenario that has none, and no traffic."""


class NodeGroupSpec(Strict, frozen=True, kw_only=True):
    """Nodes that are there from the start. Without ``node_pool`` they are the user's own and are never terminated.

    ``labels``: on top of those of the instance type and the pool, such as the rack."""

    instance_type: str
    count: int = 1
    zone: str = "us-east-1a"
    node_pool: str = ""
    capacity_type: str = "on-demand"
    labels: dict[str, str] = {}


class FleetSpec(Strict, frozen=True, kw_only=True):
    """What there is at the start. ``assumed``: where the manifests have neither Nodes nor NodePools, nodes of any
    on-demand type are launched as pods need them."""

    nodes: tuple[NodeGroupSpec, ...] = ()
    assumed: bool = False


class PolicySpec(Strict, frozen=True, kw_only=True):
    """A named way to run the scenario: which manifests, and who sets replicas (they, a policy or published thresholds
    by name).

    ``balancing``, ``link`` and ``tiers`` replace those of all traffic; empty ``tiers`` are none. ``placement``: the
    placement policy, the scheduler's default unless given; ``preemption``: whether pods make room for others of higher
    priority; ``defragmentation``: whether pods are moved to make room for others; ``partitioning``: whether MIG layouts
    are changed (``relayout``) when pods wait for what none gives; ``provisioning``: whether nodes are planned as
    Karpenter does, or the cheapest set of them (``optimal``). ``migration`` replaces that of all traffic;
    ``rebalance``: whether pods move off spot nodes that have a rebalance recommendation; ``spot_to_spot``: whether spot
    nodes give way to cheaper spot nodes; ``node_repair``: whether nodes go whose GPUs stay unhealthy.
    """

    manifests: str
    scaling: str = BY_MANIFESTS
    balancing: str = ""
    link: str = ""
    tiers: dict[str, str] | None = None
    placement: str = ""
    preemption: bool = True
    defragmentation: bool = False
    partitioning: str = STATIC
    provisioning: str = KARPENTER
    migration: bool | None = None
    rebalance: bool = False
    spot_to_spot: bool = False
    node_repair: bool = False

    @property
    def controls(self) -> Policy:
        """How pods are placed and GPUs partitioned."""
        return Policy.of(self)


class ScenarioSpec(Strict, frozen=True, kw_only=True):
    """The file as written."""

    kind: str
    name: str
    duration: str
    policies: dict[str, PolicySpec]
    slo: SloSpec | None = None
    traffic: tuple[TrafficSpec, ...] = ()
    training: tuple[TrainingEntry, ...] = ()
    fleet: FleetSpec = FleetSpec()
    region: str = "us-east-1"
    default: str = ""
    prices: str = ""
    faults: tuple[FaultSpec, ...] = ()
    reallocations: tuple[ReallocationEntry, ...] = ()
    models: dict[str, ModelEntry] = {}


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
    files: tuple[Path, ...] = ()
    """The manifests, where no policy says where they are."""
    assumes: bool = False
    """Whether there is no scenario beside the manifests: what they leave open is assumed."""
    models: Mapping[str, ModelShape] = field(default_factory=dict)
    """Shapes of models that the facts do not have, by their names."""

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


def is_scenario(paths: Sequence[Path]) -> bool:
    """Whether this is one scenario: a folder with a scenario.yaml, or a file that says that it is a Scenario."""
    if len(paths) != 1:
        return False
    path = paths[0]
    if path.is_dir():
        return (path / "scenario.yaml").exists()
    if not path.is_file() or path.suffix not in (".yaml", ".yml"):
        return False
    with path.open(encoding="utf-8", errors="replace") as file:
        return any(line.split("#")[0].split() == ["kind:", "Scenario"] for line in file)


AS_WRITTEN, MANIFESTS, DURATION = "as-written", "manifests", "30m"
"""Of a folder without a scenario: the policy, where its manifests are, and how long it runs."""


def load(path: Path) -> Scenario:
    """Read a scenario file, or ``scenario.yaml`` in a folder; a folder of manifests without one, or with one named
    ``manifests``, runs as it is for half an hour. Raises InputError with all that is wrong in it."""
    file = path / "scenario.yaml" if path.is_dir() else path
    if not file.exists():
        if path.is_dir() and any(one.suffix in SUFFIXES for one in path.rglob("*")):
            return _without(path)
        hint = "give a scenario file, or a folder with a scenario.yaml or with manifests"
        raise InputError.at("no such scenario", file=str(file), hint=hint)
    return _of_document(read(file, "Scenario", "a scenario", _HINT), file.parent)


def of_text(text: str, file: Path) -> Scenario:
    """The scenario that a file with this text would be. Raises InputError with all that is wrong in it."""
    return _of_document(parse(text, file, "Scenario", "a scenario", _HINT), file.parent)


def _of_document(document: Document, folder: Path) -> Scenario:
    spec, problems = document.convert_some(ScenarioSpec)
    if spec is None:
        raise InputError(*problems)
    problems += _problems(spec, document, folder)
    models: dict[str, ModelShape] = {}
    try:
        models = shapes(spec.models, document, folder)
    except InputError as error:
        problems += error.problems
    if problems:
        raise InputError(*sorted(problems, key=lambda one: one.where.line))
    return replace(_scenario(spec, document, folder), assumes=spec.fleet.assumed, models=models)


def of_files(paths: Sequence[Path]) -> Scenario:
    """The scenario of these files and folders of manifests together, which say nothing of traffic; of one folder with
    manifests in one of that name it is these."""
    if len(paths) == 1 and (paths[0] / MANIFESTS).is_dir():
        return load(paths[0])
    first = paths[0] if paths[0].is_dir() else paths[0].parent
    return replace(_without(first), files=tuple(paths))


def _without(folder: Path) -> Scenario:
    """The scenario of a folder that has manifests alone."""
    manifests = MANIFESTS if (folder / MANIFESTS).is_dir() else "."
    policies = {AS_WRITTEN: PolicySpec(manifests=manifests)}
    spec = ScenarioSpec(kind="Scenario", name=folder.resolve().name, duration=DURATION, policies=policies)
    return replace(_scenario(spec, Document.empty(folder, _HINT), folder), assumes=True)


def _scenario(spec: ScenarioSpec, document: Document, folder: Path) -> Scenario:
    slo = spec.slo or _NO_SLO
    traffic = tuple(
        Traffic(t, tuple(surge_spec(s) for s in t.surges), folder / (t.trace or t.profile), bool(t.trace))
        for t in spec.traffic
    )
    return Scenario(
        spec,
        document,
        folder,
        duration_ns(spec.duration),
        duration_ns(slo.ttft),
        duration_ns(slo.tpot),
        duration_ns(slo.grace),
        traffic,
    )


def _problems(spec: ScenarioSpec, document: Document, folder: Path) -> list[Problem]:
    found: list[Problem] = []

    def duration(field: str, text: str, *, positive: bool = True) -> None:
        found.extend(duration_problems(field, text, document, positive=positive))

    def one_of(field: str, value: str, known: Sequence[str]) -> None:
        found.extend(one_of_problems(field, value, known, document))

    duration("duration", spec.duration)
    if spec.slo is not None:
        duration("slo.ttft", spec.slo.ttft)
        duration("slo.tpot", spec.slo.tpot)
        duration("slo.grace", spec.slo.grace, positive=False)
    elif spec.traffic:
        found.append(document.problem("slo", "the field is missing", "traffic needs latency targets"))
    for i, group in enumerate(spec.fleet.nodes):
        found += instance_type_problems(f"fleet.nodes[{i}].instanceType", group.instance_type, document)
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
    served: set[str] = set()
    for i, traffic in enumerate(spec.traffic):
        found += traffic_problems(f"traffic[{i}]", traffic, document)
        for service in dict.fromkeys(traffic.services):
            if service in served:
                found.append(document.problem(f"traffic[{i}].service", f'"{service}" appears twice'))
            served.add(service)
    for i, entry in enumerate(spec.training):
        found += training_problems(f"training[{i}]", entry, document)
        if any(other.workload == entry.workload for other in spec.training[:i]):
            found.append(document.problem(f"training[{i}].workload", f'"{entry.workload}" appears twice'))
    for i, fault in enumerate(spec.faults):
        wrong = fault_problems(f"faults[{i}]", fault, document)
        readable = not wrong and not duration_problems("duration", spec.duration, document)
        if readable and duration_ns(fault.at) >= duration_ns(spec.duration):
            text = f'"{fault.at}" is not before the end of the run, {spec.duration}: it would never come'
            wrong = [document.problem(f"faults[{i}].at", text)]
        found += wrong
    for i, moved in enumerate(spec.reallocations):
        found += reallocation_problems(f"reallocations[{i}]", moved, spec.duration, document)
    return found


def _policy_problems(
    field: str, policy: PolicySpec, spec: ScenarioSpec, document: Document, folder: Path
) -> list[Problem]:
    found: list[Problem] = []
    for name, value, known in (
        ("scaling", policy.scaling, (BY_MANIFESTS, *SCALING, *presets())),
        ("balancing", policy.balancing or LOAD_BALANCING[0], LOAD_BALANCING),
        ("placement", policy.placement or next(iter(PLACEMENT)), tuple(PLACEMENT)),
        ("partitioning", policy.partitioning, PARTITIONING),
        ("provisioning", policy.provisioning, PROVISIONING),
    ):
        if value not in known:
            found.append(document.problem(f"{field}.{name}", f'"{value}", expected one of {", ".join(known)}'))
    if not (folder / policy.manifests).exists():
        found.append(document.problem(f"{field}.manifests", f"no such folder: {folder / policy.manifests}"))
    for traffic in spec.traffic if policy.migration else ():
        if (policy.balancing or traffic.balancing) == LOAD_BALANCING[0] or traffic.split is not None:
            message = "requests migrate behind a gateway alone, and not where a Service is split"
            found.append(document.problem(f"{field}.migration", message, "give another balancing"))
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
