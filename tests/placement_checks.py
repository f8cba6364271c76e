"""Checks of the scheduler against the oracle, shared by tests and fuzzing."""

from __future__ import annotations

from random import Random

import numpy as np

from placement_oracle import World, counted, refusals
from random_clusters import random_node, random_pod, random_spread_pod
from tonnage.decisions import Bind, Wait
from tonnage.fleet.invariants import violations
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import Conflict, Fleet
from tonnage.scheduling import place
from tonnage.scheduling.explain import explain
from tonnage.scheduling.place import Cache
from tonnage.scheduling.view import NEVER


def random_fleet(rng: Random, nodes: int = 6, bound: int = 14, pending: int = 6) -> Fleet:
    """A cluster with some nodes cordoned and some pods bound wherever there was room, rules or not."""
    fleet = Fleet()
    a_pod = random_spread_pod if rng.random() < 0.3 else random_pod
    for i in range(rng.randint(0, nodes)):
        fleet.add_node(random_node(rng, f"n{i}"), schedulable=rng.random() < 0.93)
    for i in range(rng.randint(0, bound) if fleet.nodes else 0):
        row = fleet.add_pod(a_pod(rng, f"bound-{i}"))
        try:
            fleet.bind(row, rng.randrange(len(fleet.nodes)))
        except Conflict:
            fleet.remove_pod(row)
    for i in range(rng.randint(1, pending)):
        fleet.add_pod(a_pod(rng, f"p{i}"))
    return fleet


def check_feasible_sets(fleet: Fleet, cache: Cache | None = None) -> None:
    """For every pending pod: the same nodes, and the same reasons for the others."""
    cache = cache or Cache(fleet)
    world = World.of(fleet)
    for row in fleet.pending:
        pod, pod_class = fleet.pod(row), fleet.pod_class(row)
        view = cache.view(pod_class, "binpack")
        masks = cache.topology.masks(pod_class, view)
        key = place.keys_of(cache.topology, pod_class, view, masks)
        found = {fleet.node(int(n)).spec.name for n in np.flatnonzero(key != NEVER)}
        expected = {name for name, reasons in refusals(world, pod.spec).items() if not reasons}
        assert found == expected, pod.spec
        if world.nodes:
            assert dict(explain(fleet, view, masks).evidence) == counted(world, pod.spec)


def check_whole_decision(fleet: Fleet, cache: Cache | None = None) -> None:
    """Apply a decision bind by bind: each node must take its pod then, and in the end none may take one that waits."""
    with fleet.what_if():
        _check_decision(fleet, cache, again=False)
    _check_decision(fleet, cache, again=True)


def _check_decision(fleet: Fleet, cache: Cache | None, *, again: bool) -> None:
    """``again``: with another look at those left over, which moves others from where they were placed at first."""
    decisions = place.decide(Snapshot(0, fleet), place.Settings(preemption=False, look_again=again), cache)
    assert {(d.target.namespace, d.target.name) for d in decisions} == {
        (s.namespace, s.name) for s in (fleet.pod(row).spec for row in fleet.pending)
    }
    for decision in decisions:
        if isinstance(decision, Bind):
            row = fleet.pod_by_key[decision.pod.namespace, decision.pod.name]
            options = refusals(World.of(fleet), fleet.pod(row).spec)
            assert options[decision.node.name] == []
            if not again:
                assert dict(decision.reason.evidence)["nodes_that_fit"] == sum(not r for r in options.values())
            assert fleet.bind(row, fleet.node_by_name[decision.node.name]) == decision.devices
    world = World.of(fleet)
    for decision in decisions:
        if isinstance(decision, Wait):
            row = fleet.pod_by_key[decision.pod.namespace, decision.pod.name]
            assert all(refusals(world, fleet.pod(row).spec).values())
    assert violations(fleet) == []


def check_table_equals_rebuild(cache: Cache) -> None:
    """Every class's keys and masks, as kept up to date and as built from scratch."""
    fleet = cache.fleet
    fresh = Cache(fleet)
    for pod_class in fleet.classes.rows:
        kept, built = cache.view(pod_class, "binpack"), fresh.view(pod_class, "binpack")
        alive = fleet.alive
        for name in ("why", "able", "key"):
            assert np.array_equal(getattr(kept, name)[alive], getattr(built, name)[alive]), name
        for name in ("selected", "untainted", "featured", "points"):
            assert np.array_equal(getattr(kept.opened, name)[alive], getattr(built.opened, name)[alive]), name
        assert (kept.key[~fleet.alive] == NEVER).all()
        for ours, theirs in zip(
            cache.topology.masks(pod_class, kept), fresh.topology.masks(pod_class, built), strict=True
        ):
            assert ours[0] == theirs[0]
            assert np.array_equal(ours[1], theirs[1]), ours[0]
        wishes = [c.topology.preference(pod_class, v.key != NEVER) for c, v in ((cache, kept), (fresh, built))]
        assert (wishes[0] is None) == (wishes[1] is None)
        assert wishes[0] is None or np.array_equal(*wishes)
