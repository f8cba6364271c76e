"""MIG layouts of one card beside an enumeration that knows only that placements must not overlap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import permutations

import pytest
from mig_brute_force import all_layouts, kinds

from tonnage.errors import InputError
from tonnage.facts import mig
from tonnage.partitioning.defrag import InstanceMove, defrag
from tonnage.partitioning.fit import blockers, fits
from tonnage.partitioning.layouts import (
    Kind,
    Layout,
    Placement,
    card,
    feasible,
    kind_of,
    mask_of,
    maximal,
    place,
    profile_names,
)
from tonnage.partitioning.relayout import Stuck, relayout
from tonnage.partitioning.slotmap import draw

PLAIN = ["1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"]


def maximal_of(found: set[Kind]) -> set[Kind]:
    counted = {kind: Counter(dict(kind)) for kind in found}
    return {a for a in found if not any(a != b and counted[a] <= counted[b] for b in found)}


@pytest.mark.parametrize(
    ("gpu", "left_out", "with_media", "feasible_kinds", "maximal_kinds"),
    [
        ("h100", [], False, 78, 28),
        ("h100", [], True, 128, 44),
        ("h100", ["1g.20gb"], False, 38, 12),
        ("a100-40", [], False, 78, 28),
        ("b200", [], False, 78, 28),
        ("a30", [], False, 10, 4),
    ],
)
def test_layouts_are_those_of_the_enumeration(
    gpu: str, left_out: list[str], with_media: bool, feasible_kinds: int, maximal_kinds: int
) -> None:
    on = card(gpu)
    names = [name for name in profile_names(on, plain=not with_media) if name not in left_out]
    found = feasible(on, names)
    assert set(found) == kinds(gpu, all_layouts(gpu, names))
    assert set(maximal(found)) == maximal_of(set(found))
    assert (len(found), len(maximal(found))) == (feasible_kinds, maximal_kinds)


def test_a_profile_fits_exactly_where_no_instance_is_in_the_way() -> None:
    on = card("h100")
    by_name = {one.name: one for one in mig.profiles("h100")}
    for layout in all_layouts("h100", PLAIN):
        taken = {s for one in layout for s in range(one.start, one.start + by_name[one.profile].memory_slices)}
        for name in PLAIN:
            size = by_name[name].memory_slices
            free = [start for start in by_name[name].starts if not taken & set(range(start, start + size))]
            answer = fits(on, layout, name)
            assert (answer is None) == (not free)
            if answer is not None:
                assert answer.profile == name
                assert answer.start in free
            assert {start for start, who in blockers(on, layout, name).items() if not who} == set(free)


def test_defrag_restarts_as_few_as_brute_force() -> None:
    on = card("h100")
    layouts = all_layouts("h100", PLAIN)
    by_kind: dict[Kind, list[Layout]] = {}
    for layout in layouts:
        by_kind.setdefault(kind_of(on, (one.profile for one in layout)), []).append(layout)
    for running in layouts[::7]:
        for name in PLAIN:
            busy = running[::2]
            ends = by_kind.get(kind_of(on, [*(one.profile for one in running), name]), [])
            prices = [
                (sum(one not in end for one in busy), len(running) - len(set(running) & set(end))) for end in ends
            ]
            found = defrag(on, running, name, busy)
            assert (found is None) == (not ends)
            if found is not None:
                assert (sum(move.restarts for move in found.moves), len(found.moves)) == min(prices)
                assert found.after in ends
                assert found.placement in found.after


def test_moves_of_a_defrag_can_be_made_in_their_order() -> None:
    on = card("h100")
    seen = Counter[bool]()
    for running in all_layouts("h100", PLAIN):
        for name in ("2g.20gb", "4g.40gb"):
            found = defrag(on, running, name, running)
            if found is None:
                continue
            first = len(found.moves) - found.at_once
            there = list(running)
            for move in found.moves[:first]:
                there.remove(move.before)
                there.append(move.after)
                mask_of(on, there)  # raises where instances overlap
            rest = found.moves[first:]
            there = [one for one in there if one not in [move.before for move in rest]]
            there += [move.after for move in rest]
            assert tuple(sorted([*there, found.placement])) == found.after
            if rest:
                assert not any(can_be_made(running, order) for order in permutations(found.moves))
            seen[bool(rest)] += 1
    assert min(seen.values()) > 3


def can_be_made(running: Layout, moves: Iterable[InstanceMove]) -> bool:
    there = set(running)
    for move in moves:
        there = there - {move.before} | {move.after}
        try:
            mask_of(card("h100"), there)
        except InputError:
            return False
    return True


def test_two_1g_a_2g_and_a_3g_are_placed_with_the_3g_in_the_upper_half() -> None:
    placed = place(card("h100"), ["1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"])
    assert placed is not None
    assert Placement(4, "3g.40gb") in placed


@pytest.mark.report(133)
def test_the_first_1g_leaves_room_for_a_4g() -> None:
    on = card("h100")
    first = fits(on, (), "1g.10gb")
    assert first is not None
    assert fits(on, (first,), "4g.40gb") == Placement(0, "4g.40gb")


def test_eight_slices_of_an_a100_cannot_be_cut_into_two_1g_a_2g_and_a_4g() -> None:
    assert place(card("a100-80"), ["1g.10gb", "1g.10gb", "2g.20gb", "4g.40gb"]) is None


@pytest.mark.report(134)
def test_instances_in_use_are_never_destroyed_and_the_refusal_names_them() -> None:
    running = (Placement(0, "3g.40gb"), Placement(4, "3g.40gb"))
    stuck = relayout(card("h100"), running, ["7g.80gb"], [running[1]])
    assert isinstance(stuck, Stuck)
    assert stuck.busy == (running[1],)


def test_a_slot_map_shows_who_stands_where() -> None:
    lines = draw(card("h100"), (Placement(0, "4g.40gb"), Placement(6, "1g.10gb")), [Placement(6, "1g.10gb")])
    assert lines[0].split() == list("01234567")
    assert lines[1].index("4g.40gb") < 40 < lines[1].index("<1g.10gb>")
    assert len(lines[1]) <= 80


def test_unknown_cards_profiles_and_places_are_refused_with_what_there_is() -> None:
    with pytest.raises(InputError, match=r"unknown GPU 'h10'"):
        card("h10")
    with pytest.raises(InputError, match="no MIG profiles of l40s are known"):
        card("l40s")
    with pytest.raises(InputError, match=r"unknown MIG profile '1g.11gb' \(did you mean 1g.10gb"):
        fits(card("h100"), (), "1g.11gb")
    with pytest.raises(InputError, match=r"3g\.40gb cannot start at memory slice 2"):
        fits(card("h100"), (Placement(2, "3g.40gb"),), "1g.10gb")
    with pytest.raises(InputError, match="overlaps another instance"):
        fits(card("h100"), (Placement(0, "3g.40gb"), Placement(2, "1g.10gb")), "1g.10gb")
