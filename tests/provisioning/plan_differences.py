"""The planner's answer to a case beside the real Karpenter's.

Karpenter takes any of several equally good domains. So that the two can be compared, the planner takes of such domains
the one in which the real plan has the pod.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from planning_cases import Case, Json, karpenters, ours

from tonnage.decisions import Ref
from tonnage.facts.labels import EC2_NODE_CLASS
from tonnage.provisioning import labels
from tonnage.provisioning.karpenter import pack
from tonnage.provisioning.packing import Packing
from tonnage.provisioning.requirements import Requirement, Requirements

UNSAID = frozenset({labels.REGISTERED, labels.INITIALIZED, EC2_NODE_CLASS})
"""Labels that are on every node of a NodePool."""


def ask(program: Path, cases: Iterable[Case]) -> list[Json]:
    """The answers of karpenter-plan, one a case."""
    return answers(program, map(karpenters, cases))


def answers(program: Path, asked: Iterable[Json]) -> list[Json]:
    """What karpenter-plan says to questions that are written as it reads them, in their order."""
    lines = "".join(json.dumps(one) + "\n" for one in asked)
    done = subprocess.run([program], input=lines, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@dataclass
class Guided:
    """Of equally good domains the one in which ``where`` has the pod: pod → label → values."""

    where: dict[str, dict[str, list[str]]]
    _now: dict[str, list[str]] = field(default_factory=dict)

    def turn(self, pod: Ref) -> None:
        """It is this pod's turn."""
        self._now = self.where.get(f"{pod.namespace}/{pod.name}", {})

    def one(self, key: str, domains: Collection[str]) -> str:
        """One of these domains."""
        return min(set(domains) & set(self._now.get(key, ())) or domains)

    def start(self, key: str, here: Collection[str], anywhere: Collection[str]) -> Collection[str]:
        """The domains where the real plan has the first pod."""
        wanted = set(self._now.get(key, ()))
        first = min(set(here) & wanted or here, default=None)
        if first is None:
            return [min(set(anywhere) & wanted or anywhere)] if anywhere else []
        return {first, min((set(anywhere) & wanted) - {first}, default=first)}


def _where(case: Case, answer: Json) -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = {}
    for claim in answer["claims"]:
        named = {one["key"]: one.get("values", []) for one in claim["requirements"] if one["operator"] == "In"}
        found |= dict.fromkeys(claim["pods"], named)
    by_name = {}
    for machine in case.nodes:
        objects = [machine["claim"], *([machine["node"]] if "node" in machine else [])]
        by_name |= {one["metadata"]["name"]: one["metadata"]["labels"] for one in objects}
    for node, pods in answer["nominations"].items():
        own = {key: [value] for key, value in by_name[node].items()}
        found |= dict.fromkeys(pods, own)
    return found


@dataclass
class Outcome:
    """What is compared: claims (NodePool, pods, types, requirements), node → pods, pods that are left."""

    claims: list[tuple[Any, ...]]
    nominations: dict[str, list[str]]
    refused: list[str]

    def differences(self, other: Outcome) -> list[str]:
        """Where this and the real one part, in words."""
        found = []
        mine, theirs = list(self.claims), list(other.claims)
        found += [f"only here: claim {one}" for one in mine if one not in theirs]
        found += [f"only there: claim {one}" for one in theirs if one not in mine]
        if self.nominations != other.nominations:
            found.append(f"nodes take {self.nominations} here, {other.nominations} there")
        if self.refused != other.refused:
            found.append(f"left are {self.refused} here, {other.refused} there")
        return found


def theirs(answer: Json) -> Outcome:
    """The real plan."""
    assert "failed" not in answer, answer["failed"]
    return Outcome(
        sorted(
            (
                one["nodePool"],
                tuple(sorted(one["pods"])),
                tuple(one["types"]),
                tuple(sorted(written_requirements(one["requirements"]))),
            )
            for one in answer["claims"]
        ),
        {node: sorted(pods) for node, pods in sorted(answer["nominations"].items())},
        sorted(answer["refused"]),
    )


def written_requirements(requirements: list[Json]) -> Iterator[tuple[str, str, tuple[str, ...], int]]:
    for one in requirements:
        if one["key"] not in UNSAID:
            yield one["key"], one["operator"], tuple(sorted(one.get("values") or ())), one.get("minValues") or 0


def mine(packing: Packing) -> Outcome:
    """The planner's."""
    nominations: dict[str, list[str]] = {}
    for one in packing.nominations:
        nominations.setdefault(one.node.name, []).append(f"{one.pod.namespace}/{one.pod.name}")
    return Outcome(
        sorted(
            (
                one.load.template.name,
                tuple(sorted(f"{pod.namespace}/{pod.name}" for pod in one.pods)),
                tuple(name for name, left in zip(packing.market.catalogue.names, one.load.types, strict=True) if left),
                tuple(sorted(read_requirements(one.load.requirements))),
            )
            for one in packing.claims
        ),
        {node: sorted(pods) for node, pods in sorted(nominations.items())},
        sorted(f"{one.pod.namespace}/{one.pod.name}" for one in packing.waits),
    )


def read_requirements(requirements: Requirements) -> Iterator[tuple[str, str, tuple[str, ...], int]]:
    for one in requirements.values():
        if one.key not in UNSAID:
            for operator, values in operators(one):
                yield one.key, operator, values, one.min_values or 0


def operators(one: Requirement) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """How Karpenter writes a requirement down: with a bound, excluded values go unsaid."""
    written = one.operators
    bounds = tuple(pair for pair in written if pair[0] in ("Gte", "Lte"))
    return bounds or written


def compare(case: Case, answer: Json) -> list[str]:
    """How the planner's answer differs from the real one."""
    given = ours(case)
    guide = Guided(_where(case, answer))
    packing = pack(given.pods, given.nodes, given.pools, given.catalogue, given.settings, guide)
    return mine(packing).differences(theirs(answer))
