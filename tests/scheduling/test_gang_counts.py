"""What counting refuses for a gang, planning refuses: whatever edits are made, and whoever asks."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest

from builders import ZONE, fleet, node
from deep_seeds import deep
from gang_builders import RACK, gang, members, part, snapshot
from random_gangs import tiny
from tonnage.scheduling import place
from tonnage.scheduling.gangs import plan as gangs
from tonnage.scheduling.why.gang import EVERY, FoundForGang, GangChangeSearch
from tonnage.scheduling.why.gang_changes import GangChange, GangEdit, LowerMinimum, MorePlaces, RelaxLevel, apply
from tonnage.scheduling.why.gang_counts import GangCounts

CASES = 5


def _edits(search: GangChangeSearch, rng: Random) -> list[tuple[GangEdit, ...]]:
    """Single edits that the search would think of, and some pairs of them."""
    families = list(search._families())
    singles = [edit(amount) for edit, low, high in families for amount in {1, low, (low + high) // 2, high}]
    pairs = [pair for pair in combinations(singles, 2) if _about(pair[0]) != _about(pair[1])]
    return [*((one,) for one in singles), *rng.sample(pairs, min(len(pairs), 12))]


def _about(edit: GangEdit) -> tuple[str, ...]:
    match edit:
        case RelaxLevel():
            return "level", edit.group, edit.rule
        case LowerMinimum():
            return "minimum", edit.group
        case MorePlaces():
            return "places", edit.level, edit.domain, edit.like


@pytest.mark.parametrize("block", [0, *deep(range(1, 60))])
@pytest.mark.parametrize("ruled", [False, True])
def test_what_counting_refuses_has_no_plan_and_that_is_certain(block: int, ruled: bool) -> None:
    refused = left = 0
    for number in range(CASES * block, CASES * (block + 1)):
        rng = Random(f"counts/{ruled}/{number}")
        made, one = tiny(rng, ruled=ruled)
        world, cache = snapshot(made, one), place.Cache(made)
        pods = [row for row in made.gang_pods.get(one.key, ()) if made.pod(row).node < 0]
        with made.what_if():
            search = GangChangeSearch(world, one.key, pods, cache)
            if search.standing is None:
                continue
            counts = GangCounts(world, one.key, pods, cache, search.standing)
            for edits in _edits(search, rng):
                with made.what_if():
                    after = apply(world, one.key, GangChange(edits), pods)
                    found = gangs.plan(after, one.key, pods, cache, budget=100)
                known_to_fail = isinstance(found, gangs.NoPlan) and not found.unknown
                if counts.refuse(edits):
                    assert known_to_fail, (number, edits)
                refused += counts.refuse(edits)
                left += known_to_fail
    assert block or 2 * refused >= left > 0, "counting is of no use"


@pytest.mark.parametrize("block", [0, *deep(range(1, 40))])
def test_the_change_found_is_the_same_without_counting(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(number: int) -> list[FoundForGang]:
        made, one = tiny(Random(f"same/{number}"))
        pods = [row for row in made.gang_pods.get(one.key, ()) if made.pod(row).node < 0]
        with made.what_if():
            search = GangChangeSearch(snapshot(made, one), one.key, pods, place.Cache(made), budget=30)
            return [search.find(may) for may in (EVERY, *(frozenset({kind}) for kind in sorted(EVERY)))]

    numbers = range(CASES * block, CASES * (block + 1))
    counted = [found(number) for number in numbers]
    monkeypatch.setattr(GangCounts, "refuse", lambda self, edits: False)
    assert counted == [found(number) for number in numbers]
    assert any(one.change for some in counted for one in some)


@pytest.mark.parametrize(
    ("edits", "refused"),
    [
        ((), True),
        ((RelaxLevel("default/g", "required", RACK, ZONE, 1),), True),
        ((RelaxLevel("default/g", "required", RACK, "", 2),), False),
        ((LowerMinimum("default/g", 2, 4),), False),
        ((LowerMinimum("default/g", 1, 5),), True),
        ((MorePlaces(RACK, "z0/r0", 1, "a0"),), True),
        ((MorePlaces(RACK, "z0/r0", 2, "a0"),), False),
        ((MorePlaces(RACK, "z0/r0", 2, "a0"), LowerMinimum("default/g", 1, 5)), False),
        ((MorePlaces(RACK, "z0/r0", 1, "a0"), LowerMinimum("default/g", 1, 5)), False),
    ],
)
def test_room_is_counted_by_the_levels_and_minima_after_the_edits(edits: tuple[GangEdit, ...], refused: bool) -> None:
    racks = [("a", "z0", "r0"), ("b", "z1", "r1")]
    nodes = [node(f"{n}{i}", gpus=2, zone=zone, labels={RACK: rack}) for n, zone, rack in racks for i in range(2)]
    made = fleet(*nodes, pods=members(6))
    one = gang(6, required=RACK)
    world, cache = snapshot(made, one), place.Cache(made)
    pods = list(made.gang_pods[one.key])
    with made.what_if():
        standing = GangChangeSearch(world, one.key, pods, cache).standing
        assert standing is not None
        assert GangCounts(world, one.key, pods, cache, standing).refuse(edits) is refused


def test_a_part_without_a_domain_of_its_own_is_refused_though_there_is_room_in_all() -> None:
    made = fleet(
        *(node(f"n{i}", gpus=2, labels={RACK: f"r{i}"}) for i in range(3)),
        pods=[*members(3, subgroup="s"), *members(2, prefix="own")],
    )
    one = gang(5, part("s", 3, required=RACK))
    world, cache = snapshot(made, one), place.Cache(made)
    pods = list(made.gang_pods[one.key])
    with made.what_if():
        standing = GangChangeSearch(world, one.key, pods, cache).standing
        assert standing is not None
        counts = GangCounts(world, one.key, pods, cache, standing)
        assert counts.refuse(())
        assert counts.refuse([LowerMinimum("default/g", 1, 4)])
        assert not counts.refuse([LowerMinimum("s", 1, 2)])
