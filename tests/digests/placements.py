"""Where a thousand random pods go among random nodes, and what is said of those that wait, for several settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import device_clusters
import random_clusters
from random_gangs import tiny
from tonnage.decisions import Bind, Decision, Evict, Wait
from tonnage.fleet.gangs import Gang
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import Conflict, Fleet, FleetNode, FleetPod
from tonnage.scheduling import place
from tonnage.scheduling.defrag import DefragLimits

HUNDREDS = 10
NODES = 20
THERE = 40
"""Pods that are there before, each bound at random if its place is free."""

SETTINGS: dict[str, place.Settings] = {
    policy + suffix: place.Settings(policy, preemption=not suffix)
    for policy in ("binpack", "fgd", "tonnage")
    for suffix in ("", "-no-preemption")
} | {"tonnage-defrag": place.Settings("tonnage", defrag=DefragLimits())}

Cluster = tuple[Fleet, Mapping[str, Gang]]


def cases() -> dict[str, Callable[[], Any]]:
    """By name ``placement/CLUSTERS/SETTINGS``: for each hundred of pods what was decided on them."""
    return {
        f"placement/{kind}/{name}": partial(verdicts, kind, settings)
        for kind in CLUSTERS
        for name, settings in SETTINGS.items()
    }


def verdicts(kind: str, settings: place.Settings) -> Any:
    """By hundred, a line a decision. A hundred has clusters of its own, so that one change is not all changes."""
    return {f"pods {at:03d}-{at + 99:03d}": _hundred(kind, at, settings) for at in range(0, 100 * HUNDREDS, 100)}


def _hundred(kind: str, at: int, settings: place.Settings) -> list[str]:
    return [
        _line(decision)
        for fleet, gangs in CLUSTERS[kind](Random(f"digests/{kind}/{at}"))
        for decision in place.decide(Snapshot(0, fleet, gangs=gangs), settings)
    ]


def _line(decision: Decision) -> str:
    if isinstance(decision, Bind):
        return f"{decision.pod} on {decision.node.name} {list(decision.devices)}"
    if isinstance(decision, Wait):
        return f"{decision.pod} waits: {decision.reason.verdict}; nominated: {decision.nominated or 'none'}"
    if isinstance(decision, Evict):
        return f"{decision.pod} goes for {decision.by}; to: {decision.to or 'nowhere'}"
    raise TypeError(f"place.decide gave a {type(decision).__name__}")


def _mixed(
    rng: Random, make_node: Callable[[Random, str], FleetNode], make_pod: Callable[[Random, str], FleetPod]
) -> Iterator[Cluster]:
    """One cluster with a hundred pending pods."""
    fleet = Fleet()
    for number in range(NODES):
        fleet.add_node(make_node(rng, f"n{number}"), schedulable=rng.random() < 0.95)
    for number in range(THERE):
        row = fleet.add_pod(make_pod(rng, f"there-{number}"))
        try:
            fleet.bind(row, rng.randrange(NODES))
        except Conflict:
            fleet.remove_pod(row)
    for number in range(100):
        pod = make_pod(rng, f"p{number:02d}")
        fleet.add_pod(replace(pod, priority=pod.priority or rng.choice((0, 0, 100))))
    yield fleet, {}


def _ganged(rng: Random) -> Iterator[Cluster]:
    """Small clusters with a gang each, until a hundred pods are pending in all; half of the gangs are urgent."""
    pending = 0
    while pending < 100:
        fleet, gang = tiny(rng, ruled=rng.random() < 0.5, nodes=8, pods=10)
        pending += len(fleet.pending)
        if rng.random() < 0.5:
            for row in sorted(fleet.pending):
                urgent = replace(fleet.pod(row).spec, priority=100)
                fleet.remove_pod(row)
                fleet.add_pod(urgent)
        yield fleet, {gang.key: gang}


CLUSTERS: dict[str, Callable[[Random], Iterator[Cluster]]] = {
    "plain": lambda rng: _mixed(rng, random_clusters.random_node, random_clusters.random_pod),
    "devices": lambda rng: _mixed(rng, device_clusters.random_node, device_clusters.random_pod),
    "gangs": _ganged,
}
"""*plain*: everything that placement looks at; *devices*: GPUs cut and shared in every way; *gangs*: a gang each."""
