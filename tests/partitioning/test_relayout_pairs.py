"""`fits` and `relayout` beside brute force, on every pair of layouts of one card with all their places."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import pytest
from mig_brute_force import Ends, all_layouts, least_destroyed, subsets

from deep_seeds import deep
from tonnage.facts import mig
from tonnage.fleet.geometry import Geometry
from tonnage.partitioning.fit import fits
from tonnage.partitioning.layouts import Layout, Placement, card, profile_names
from tonnage.partitioning.relayout import Change, relayout

A30, H100 = card("a30"), card("h100")
OF_A30 = all_layouts("a30", profile_names(A30))
OF_H100 = all_layouts("h100", profile_names(H100))
PARTS = 4
"""Each goal meets one of this many layouts in `make test`, and all of them in `make fuzz`."""
ENDS_A30, ENDS_H100 = Ends(OF_A30), Ends(OF_H100)


def agree(
    on: Geometry, running: Layout, busy: Layout, wanted: Sequence[str | Placement], ends: list[frozenset[Placement]]
) -> None:
    """The change is possible if and only if brute force finds one, destroys as few instances, and ends where asked."""
    found, least = relayout(on, running, wanted, busy), least_destroyed(running, busy, ends)
    case = (running, busy, wanted)
    assert isinstance(found, Change) == (least is not None), case
    if isinstance(found, Change):
        assert len(found.destroyed) == least, case
        assert frozenset(found.after) in ends, case
        assert set(busy) <= set(found.kept) <= set(running) & set(found.after), case
        assert len(found.steps) == len(found.destroyed) + len(found.created), case


def names(layout: Iterable[Placement]) -> list[str]:
    return [one.profile for one in layout]


def some(layout: Layout, rng: random.Random) -> Layout:
    return tuple(one for one in layout if rng.random() < 0.5)


def test_an_a30_has_26_layouts_and_an_h100_723() -> None:
    assert (len(OF_A30), len(set(OF_A30))) == (26, 26)
    assert (len(OF_H100), len(set(OF_H100))) == (723, 723)
    assert len(ENDS_A30.by_profiles) == 10
    assert len(ENDS_H100.by_profiles) == 78


def test_relayout_agrees_on_every_pair_of_an_a30_whatever_is_in_use_and_whichever_places_are_asked_for() -> None:
    for goal in OF_A30:
        for fixed in subsets(goal):
            loose = names(one for one in goal if one not in fixed)
            ends = ENDS_A30.of(names(goal), fixed)
            for running in OF_A30:
                for busy in subsets(running):
                    agree(A30, running, busy, [*fixed, *loose], ends)


@pytest.mark.parametrize("part", [0, *deep(range(1, PARTS))])
def test_relayout_agrees_on_every_pair_of_layouts_of_an_h100(part: int) -> None:
    rng = random.Random(8 + part)
    for number, goal in enumerate(OF_H100):
        ends = [frozenset(goal)]
        for running in OF_H100[(part + number) % PARTS :: PARTS]:
            agree(H100, running, some(running, rng), goal or [], ends)


@pytest.mark.parametrize("part", [0, *deep(range(1, PARTS))])
def test_relayout_agrees_on_every_layout_of_an_h100_and_every_set_of_profiles(part: int) -> None:
    rng = random.Random(9 + part)
    for number, (profiles, ends) in enumerate(ENDS_H100.by_profiles.items()):
        for running in OF_H100[(part + number) % PARTS :: PARTS]:
            agree(H100, running, some(running, rng), profiles, ends)


@pytest.mark.fuzz
def test_relayout_agrees_on_an_h100_whatever_is_in_use() -> None:
    for running in OF_H100:
        for busy in subsets(running):
            for profiles, ends in ENDS_H100.by_profiles.items():
                agree(H100, running, busy, profiles, ends)


def test_relayout_agrees_where_some_places_are_asked_for_and_others_are_left_open() -> None:
    rng = random.Random(10)
    for _ in range(20_000):
        goal, running = rng.choice(OF_H100), rng.choice(OF_H100)
        fixed = some(goal, rng)
        loose = names(one for one in goal if one not in fixed)
        agree(H100, running, some(running, rng), [*fixed, *loose], ENDS_H100.of(names(goal), fixed))


@pytest.mark.parametrize("gpu", ["a30", "h100"])
def test_a_profile_fits_exactly_where_no_instance_and_no_media_engine_is_in_the_way(gpu: str) -> None:
    on = card(gpu)
    all_names = [one.name for one in mig.profiles(gpu, plain=False)]
    layouts = all_layouts(gpu, all_names)
    there = {frozenset(layout) for layout in layouts}
    for layout in layouts:
        for name in all_names:
            free = [start for start in range(8) if frozenset((*layout, Placement(start, name))) in there]
            free = [start for start in free if Placement(start, name) not in layout]
            found = fits(on, layout, name)
            assert (found is None) == (not free), (layout, name)
            assert found is None or found.start in free, (layout, name)
