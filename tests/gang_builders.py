"""Builders for gangs, and what the scheduler does with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from builders import apply, pod
from tonnage.decisions import Bind, Decision, Wait
from tonnage.fleet.gangs import Gang, SubGroup, TopologyRule
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import Fleet, FleetPod
from tonnage.scheduling import place
from tonnage.scheduling.gangs import plan as gangs

RACK = "example.com/rack"
BLOCK = "example.com/block"
CLIQUE = "nvidia.com/gpu.clique"


def member(name: str, gang: str = "default/g", subgroup: str = "", gpus: int = 1, **fields: Any) -> FleetPod:
    """A pod of a gang."""
    return replace(pod(name, gpus=gpus, **fields), gang=gang, subgroup=subgroup)


def members(count: int, gang: str = "default/g", subgroup: str = "", prefix: str = "", **fields: Any) -> list[FleetPod]:
    """``count`` pods of a gang, alike."""
    start = prefix or f"{gang.rpartition('/')[2]}-{subgroup}"
    return [member(f"{start}-{i}", gang, subgroup, **fields) for i in range(count)]


def gang(min_member: int, *subgroups: SubGroup, key: str = "default/g", **fields: Any) -> Gang:
    """A gang; ``fields`` are its own, and those of its rule (``required=RACK``)."""
    own = {name: fields.pop(name) for name in ("priority", "created_ns", "source") if name in fields}
    return Gang(key, min_member, subgroups, TopologyRule(**fields), **own)


def part(name: str, min_member: int, parent: str = "", **rule: Any) -> SubGroup:
    """A subgroup with its rule."""
    return SubGroup(name, min_member, TopologyRule(**rule), parent)


def snapshot(made: Fleet, *known: Gang, topologies: Mapping[str, tuple[str, ...]] | None = None) -> Snapshot:
    """The cluster with these gangs."""
    return Snapshot(0, made, gangs={one.key: one for one in known}, topologies=topologies or {})


def decide(made: Fleet, *known: Gang, **fields: Any) -> list[Decision]:
    """The scheduler's decisions."""
    return place.decide(snapshot(made, *known, **fields))


def placed(made: Fleet, *known: Gang, **fields: Any) -> dict[str, str]:
    """Pod name → node name."""
    return {d.pod.name: d.node.name for d in decide(made, *known, **fields) if isinstance(d, Bind)}


def nodes_used(made: Fleet, *known: Gang, **fields: Any) -> set[str]:
    """The nodes of the pods that would be bound."""
    return set(placed(made, *known, **fields).values())


def why(made: Fleet, *known: Gang, **fields: Any) -> str:
    """The verdict on the first pod that waits."""
    return next(d.reason.verdict for d in decide(made, *known, **fields) if isinstance(d, Wait))


def bind_all(made: Fleet, *known: Gang, **fields: Any) -> dict[str, str]:
    """Decide and apply; pod name → node name."""
    decisions = decide(made, *known, **fields)
    apply(made, decisions)
    return {d.pod.name: d.node.name for d in decisions if isinstance(d, Bind)}


def plan(made: Fleet, known: Gang, **fields: Any) -> gangs.GangPlan | gangs.NoPlan:
    """The plan for all pending pods of the gang."""
    budget = fields.pop("budget", gangs.BUDGET)
    rows = [row for row in made.gang_pods.get(known.key, ()) if made.pod(row).node < 0]
    return gangs.plan(snapshot(made, known, **fields), known.key, rows, place.Cache(made), budget)
