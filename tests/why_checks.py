"""Random small clusters with a pod or a gang that waits, and what has to hold of the change that is found for it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from random import Random

from builders import HOSTNAME, ZONE
from device_clusters import random_node as random_device_node
from device_clusters import random_pod as random_device_pod
from gang_builders import snapshot
from random_clusters import columns, random_node, random_pod
from random_gangs import LEVELS, tiny
from tonnage.fleet.gangs import Gang
from tonnage.fleet.state import Conflict, Fleet
from tonnage.scheduling import place
from tonnage.scheduling.gangs import plan as gangs
from tonnage.scheduling.why import gang as why_gang
from tonnage.scheduling.why.search import SmallestChange, smallest
from why_oracle import fits, smaller


def waiting(rng: Random, nodes: int = 6, pods: int = 12, *, shared: bool = False) -> tuple[Fleet, int]:
    """At most this many nodes, with pods bound at random, and the row of one more pod, which may fit or not; ``shared``:
    their devices are cut and shared, and pods ask for parts of them."""
    a_node, a_pod = (random_device_node, random_device_pod) if shared else (random_node, random_pod)
    made = Fleet()
    for i in range(rng.randint(1, nodes)):
        made.add_node(a_node(rng, f"n{i}"), schedulable=rng.random() < 0.85)
    for i in range(rng.randrange(pods)):
        row = made.add_pod(a_pod(rng, f"p{i}"))
        try:
            made.bind(row, rng.randrange(len(made.nodes)))
        except Conflict:
            made.remove_pod(row)
    return made, made.add_pod(a_pod(rng, "waiting"))


def everything(fleet: Fleet) -> tuple[object, ...]:
    """What a fleet holds, with all that it has ever seen."""
    seen = (fleet.classes.rows, fleet.classes.shapes, fleet.label_sets.rows, fleet.taint_sets.rows)
    return columns(fleet), [list(rows) for rows in seen]


def check_change(fleet: Fleet, row: int) -> SmallestChange | None:
    """The change makes the pod fit, and finding it changes nothing; None for a pod that fits already."""
    cache = place.Cache(fleet)
    if place.feasible(fleet, row, cache):
        return None
    before = everything(fleet)
    found = smallest(fleet, row, cache)
    assert everything(fleet) == before
    assert found.proved
    if found.change is not None:
        assert found.change.edits
        assert fits(fleet, row, found.change), found.change
    return found


def check_none_smaller(fleet: Fleet, row: int, found: SmallestChange, most: int = 2) -> None:
    """No smaller change of at most ``most`` edits makes the pod fit."""
    than = found.change.cost if found.change is not None else (most + 1, 0, 0)
    for change in smaller(fleet, row, than, most=min(most, than[0])):
        assert not fits(fleet, row, change), (found.change, change)


def check_gang(rng: Random, *, nodes: int = 6, pods: int = 6) -> why_gang.FoundForGang | None:
    """The change for a random gang makes it fit, and no smaller one of one or two edits does; None for one that fits
    already."""
    made, gang = tiny(rng, nodes=nodes, pods=pods)
    world, cache = snapshot(made, gang), place.Cache(made)
    waits = [row for row in made.gang_pods.get(gang.key, ()) if made.pod(row).node < 0]
    if not isinstance(gangs.plan(world, gang.key, waits, cache), gangs.NoPlan):
        return None
    before = everything(made)
    found = why_gang.smallest(world, gang.key, waits, cache)
    assert everything(made) == before
    if found.change is not None:
        assert _gang_fits(made, gang, waits, found.change), found.change
    if found.proved:
        for change in _smaller_gang_changes(made, gang, waits, found.change):
            assert not _gang_fits(made, gang, waits, change), (found.change, change)
    return found


def _gang_fits(made: Fleet, gang: Gang, pods: list[int], change: why_gang.GangChange) -> bool:
    with made.what_if():
        after = why_gang.apply(snapshot(made, gang), gang.key, change, pods)
        return isinstance(gangs.plan(after, gang.key, pods, place.Cache(made)), gangs.GangPlan)


def _smaller_gang_changes(
    made: Fleet, gang: Gang, pods: list[int], than: why_gang.GangChange | None
) -> Iterator[why_gang.GangChange]:
    """Every change of one or two edits that has a smaller measure."""
    edits = list(_gang_edits(made, gang, len(pods)))
    pairs = (pair for pair in combinations(edits, 2) if _about(pair[0]) != _about(pair[1]))
    for chosen in (*((edit,) for edit in edits), *pairs):
        change = why_gang.GangChange(chosen)
        if than is None or change.cost < than.cost:
            yield change


def _about(edit: why_gang.GangEdit) -> tuple[str, ...]:
    """Two edits of the same thing are none together."""
    match edit:
        case why_gang.RelaxLevel():
            return "level", edit.group, edit.rule
        case why_gang.LowerMinimum():
            return "minimum", edit.group
        case why_gang.MorePlaces():
            return "places", edit.level, edit.like


def _gang_edits(made: Fleet, gang: Gang, most: int) -> Iterator[why_gang.GangEdit]:
    """Every single edit of a gang without rules about other pods: minimums, levels, places like each node."""
    groups = ((gang.key, gang.min_member, gang.rule), *((s.name, s.min_member, s.rule) for s in gang.subgroups))
    rules = [rule for _, _, rule in groups]
    named = {level for rule in rules for level in (rule.required, rule.preferred, rule.slice_required)}
    labels = {key for row in made.node_by_name.values() for key in made.node(row).labels}
    levels = [key for key in LEVELS if key in named or (key == ZONE and key in labels) or key == HOSTNAME]
    for name, minimum, rule in groups:
        yield from (why_gang.LowerMinimum(name, by, minimum - by) for by in range(1, minimum))
        for kind, level in (("required", rule.required), ("slice", rule.slice_required)):
            wider = ["", *levels[: levels.index(level)]] if level else []
            yield from (why_gang.RelaxLevel(name, kind, level, to, n) for n, to in enumerate(reversed(wider), 1))
    for name, row in made.node_by_name.items():
        for count in range(1, most + 1) if made.schedulable[row] else ():
            yield why_gang.MorePlaces("", "", count, name)
            if any(rule.required == HOSTNAME for rule in rules):
                yield why_gang.MorePlaces(HOSTNAME, name, count, name)
