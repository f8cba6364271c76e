"""Gangs with a ComputeDomain: their pods reach each other's GPU memory over NVLink, so they stand in one clique."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from tonnage.facts import interconnects
from tonnage.facts.labels import GPU_CLIQUE
from tonnage.fleet.gangs import Gang
from tonnage.fleet.state import Fleet


def in_cliques(gangs: Mapping[str, Gang], fleet: Fleet) -> Mapping[str, Gang]:
    """The gangs as they are, but for those of which a pod has a channel of a ComputeDomain, or asks for one: they need
    nodes of one clique, as well as what they say themselves."""
    channels = fleet.device_claims.asks.channels
    if not channels:
        return gangs
    found = dict(gangs)
    for key, rows in fleet.gang_pods.items():
        gang = gangs.get(key)
        if gang is None or not any(claim in channels for row in rows for claim in fleet.pod(row).spec.claims.keys):
            continue
        if _outside(gang.rule.required):
            found[key] = replace(gang, rule=replace(gang.rule, required=GPU_CLIQUE, topology="", unconstrained=False))
    return found


def _outside(level: str) -> bool:
    """Whether a level is none, or one that a clique is a part of."""
    return _levels().get(level, -1) < _levels()[GPU_CLIQUE]


@lru_cache(maxsize=1)
def _levels() -> dict[str, int]:
    return {row.label: row.level for row in interconnects.topology_labels()}
