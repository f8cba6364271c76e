"""What the GPU operator runs on a node, where it does not, and what Tonnage's agent has instead, part by part.

Tables: ``data/gpu_operands.csv``, ``data/gpu_environments.csv``, ``data/agent_parts.csv``.
"""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct

from tonnage.facts import tables


class Operand(Struct, frozen=True):
    """A program that the operator runs on GPU nodes. ``label``: a node with it set to ``false`` is left out. ``field``
    of the ClusterPolicy's spec and of the chart's values; ``enabled``: whether it is on by default. ``part``: of the
    agent that replaces it; empty: it stays, because of ``stays``."""

    name: str
    label: str
    field: str
    enabled: bool
    part: str
    stays: str
    source: str


class GpuEnvironment(Struct, frozen=True):
    """A kind of node. ``label``, ``value``: by which it is known; an empty value: any. ``without``: the operands that
    must not run there, because of ``reason``."""

    name: str
    title: str
    label: str
    value: str
    without: frozenset[str]
    reason: str
    source: str


class AgentPart(Struct, frozen=True):
    """A part of the agent, which runs as a container: `tonnage agent` with ``arguments``. ``capabilities`` of the
    container beyond none; ``read``, ``write``: the host's folders that it sees; ``rbac``: (resource, verbs), the
    resource with its API group before it where it is not of the core group (resource.k8s.io/resourceclaims).
    ``port``: where it listens; None: it does not."""

    name: str
    title: str
    arguments: tuple[str, ...]
    capabilities: tuple[str, ...]
    read: tuple[str, ...]
    write: tuple[str, ...]
    rbac: tuple[tuple[str, tuple[str, ...]], ...]
    port: int | None
    source: str


@lru_cache(maxsize=1)
def operands() -> dict[str, Operand]:
    """Every operand by name, in the order in which the operator brings them up."""
    return {
        row["operand"]: Operand(
            row["operand"],
            row["label"],
            row["field"],
            row["enabled"] == "true",
            row["part"],
            row["stays"],
            row["source"],
        )
        for row in tables.rows("gpu_operands.csv")
    }


@lru_cache(maxsize=1)
def environments() -> dict[str, GpuEnvironment]:
    """Every environment by name; of several that a node matches the first is meant."""
    found = {}
    for row in tables.rows("gpu_environments.csv"):
        label, _, value = row["selector"].partition("=")
        without = frozenset(row["without"].split())
        found[row["environment"]] = GpuEnvironment(
            row["environment"], row["title"], label, value, without, row["reason"], row["source"]
        )
    return found


@lru_cache(maxsize=1)
def parts() -> dict[str, AgentPart]:
    """Every part of the agent by name."""
    return {row["part"]: _part(row) for row in tables.rows("agent_parts.csv")}


def _part(row: dict[str, str]) -> AgentPart:
    rbac = (one.partition(":") for one in row["rbac"].split())
    return AgentPart(
        row["part"],
        row["title"],
        tuple(row["arguments"].split()),
        tuple(row["capabilities"].split()),
        tuple(one.removesuffix(":ro") for one in row["mounts"].split()),
        tuple(row["write"].split()),
        tuple((name, tuple(verbs.split("+"))) for name, _, verbs in rbac),
        tables.whole(row["port"]),
        row["source"],
    )
