"""Checks of the gang planner against the oracle, shared by tests and fuzzing."""

from __future__ import annotations

from random import Random

from gang_builders import RACK, plan
from gang_oracle import Puzzle, in_some_order
from placement_oracle import World, refusals
from random_clusters import columns
from random_gangs import LEVELS, tiny
from tonnage.fleet.gangs import Gang
from tonnage.fleet.state import Fleet
from tonnage.scheduling.gangs import plan as gangs

ENOUGH = 1_000_000
"""A budget that no tiny case needs."""


def names(made: Fleet, places: tuple[gangs.PodPlace, ...]) -> dict[str, str]:
    """Pod name → node name."""
    return {made.pod(one.pod).spec.name: made.node(one.node).spec.name for one in places}


def levels_of(known: Gang) -> tuple[str, ...]:
    """The levels that there are for the gang: a rack's label is none that is known without a rule that names it."""
    rules = [known.rule, *(one.rule for one in known.subgroups)]
    named = any(RACK in (rule.required, rule.preferred, rule.slice_required) for rule in rules)
    return LEVELS if named else tuple(level for level in LEVELS if level != RACK)


def check_plan(rng: Random) -> bool:
    """One tiny case of pods without rules about others: there is a plan exactly if there is a placement, it keeps the
    rules, and the gang stands at the best level. Whether there was one."""
    made, known = tiny(rng)
    puzzle = Puzzle.of(made, known, levels_of(known))
    before = columns(made)
    found = plan(made, known, budget=ENOUGH)
    assert columns(made) == before
    possible = list(puzzle.placements())
    if isinstance(found, gangs.NoPlan):
        assert not found.unknown
        assert not possible, (found.reason, possible[0])
        return False
    minimum, whole = names(made, found.minimum), names(made, (*found.minimum, *found.extra))
    for placement in (minimum, whole):
        assert puzzle.enough(placement)
        assert puzzle.fits(placement)
        assert puzzle.keeps_rules(placement), placement
    if known.rule.preferred and minimum:
        assert puzzle.best_level(minimum) == max(puzzle.best_level(one) for one in possible if one)
    if not any(rule.slice_size for _, _, rule in puzzle.groups()):
        for name in set(puzzle.pods) - set(whole):
            for node in puzzle.room:
                more = {**whole, name: node}
                assert not (puzzle.fits(more) and puzzle.keeps_rules(more)), more
    return True


def check_plan_with_rules(rng: Random) -> bool:
    """As check_plan, for pods with affinity, anti-affinity and spread; levels are not compared."""
    made, known = tiny(rng, ruled=True, nodes=3, pods=3)
    puzzle = Puzzle.of(made, known, LEVELS)
    before = columns(made)
    found = plan(made, known, budget=ENOUGH)
    assert columns(made) == before
    possible = in_some_order(made, puzzle)
    assert isinstance(found, gangs.GangPlan) == possible, (found, possible)
    if isinstance(found, gangs.NoPlan):
        assert not found.unknown
        return False
    with made.what_if():
        for one in (*found.minimum, *found.extra):
            pod = made.pod(one.pod).spec
            assert not refusals(World.of(made), pod)[made.node(one.node).spec.name]
            made.bind(one.pod, one.node, one.devices)
    assert puzzle.enough(names(made, found.minimum))
    assert puzzle.keeps_rules(names(made, (*found.minimum, *found.extra)))
    return True
