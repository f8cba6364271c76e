"""MIG instances on a card: where they stand, what is then free, and how instances that were made are found."""

from __future__ import annotations

from collections import Counter
from itertools import combinations_with_replacement
from typing import Any

import pytest

from builders import GPU, fleet, node, pod
from tonnage.facts import mig
from tonnage.fleet.devices import OPEN, Cut, How
from tonnage.fleet.fits import choices
from tonnage.fleet.geometry import MEDIA, geometry
from tonnage.fleet.invariants import violations
from tonnage.fleet.outfit import laid_out, offered
from tonnage.fleet.state import Conflict, Fleet, FleetNode, FleetPod

H100 = Cut(How.MIG, isolated=True, gpu="h100")


def resource(profile: str) -> str:
    return f"nvidia.com/mig-{profile}"


def instance(name: str, *profiles: str) -> FleetPod:
    counts = Counter(resource(profile) for profile in profiles)
    return pod(name, cpu=0, resources={profile: str(n) for profile, n in counts.items()})


def cards(*cuts: Cut, **more: Any) -> FleetNode:
    return node("a", resources=offered(cuts, GPU), cuts=cuts, device_resource=GPU, **more)


def bind(made: Fleet, *profiles: str) -> tuple[tuple[int, int], ...]:
    """(device, start) of each instance."""
    row = made.add_pod(instance(f"p{len(made.pods)}", *profiles))
    made.bind(row, 0)
    assert violations(made) == []
    return tuple((piece.device, (piece.mask & -piece.mask).bit_length() - 1) for piece in made.pod(row).pieces)


def free(made: Fleet, profile: str) -> int:
    return int(made.free[0, made.resource(resource(profile))])


@pytest.mark.parametrize("gpu", mig.with_profiles())
def test_an_untouched_card_holds_as_many_instances_as_its_table_says(gpu: str) -> None:
    card = geometry(gpu)
    assert card is not None
    assert card.capacity(0) == {one.resource: one.max_instances for one in mig.profiles(gpu, plain=False)}


def layouts(gpu: str, names: tuple[str, ...]) -> tuple[int, int]:
    """(feasible, maximal) sets of instances, the empty one among them, by trying all."""
    card = geometry(gpu)
    assert card is not None
    masks: dict[tuple[str, ...], set[int]] = {(): {0}}
    for size in range(1, 8):
        for many in combinations_with_replacement(names, size):
            found = {
                mask | card.span(resource(many[-1]), start)
                for mask in masks.get(many[:-1], ())
                for start in card.starts(mask, resource(many[-1]))
            }
            if found:
                masks[many] = found
    maximal = [
        many
        for many, found in masks.items()
        if not any(card.starts(mask, resource(n)) for mask in found for n in names)
    ]
    return len(masks), len(maximal)


def test_the_layouts_of_a_card_are_as_many_as_are_known() -> None:
    plain = tuple(one.name for one in mig.profiles("h100"))
    assert layouts("h100", plain) == (78, 28)
    assert layouts("h100", (*plain, "1g.10gb.me")) == (128, 44)
    assert layouts("h100", tuple(name for name in plain if name != "1g.20gb")) == (38, 12)
    assert layouts("a30", tuple(one.name for one in mig.profiles("a30"))) == (10, 4)


@pytest.mark.report(133)
def test_instances_are_made_where_most_room_is_left() -> None:
    made = fleet(cards(H100))
    assert [bind(made, one) for one in ("1g.10gb", "1g.10gb", "4g.40gb")] == [((0, 6),), ((0, 5),), ((0, 0),)]
    assert (free(made, "1g.10gb"), free(made, "2g.20gb")) == (1, 0)


def test_free_is_the_most_of_each_profile_that_would_still_fit() -> None:
    made = fleet(cards(H100, H100))
    assert (free(made, "1g.10gb"), free(made, "3g.40gb"), free(made, "7g.80gb")) == (14, 4, 2)
    bind(made, "1g.10gb")
    assert (free(made, "1g.10gb"), free(made, "3g.40gb"), free(made, "7g.80gb")) == (13, 3, 1)
    bind(made, "3g.40gb")
    assert (free(made, "4g.40gb"), free(made, "7g.80gb")) == (1, 1), "beside the small one: a whole card stays"
    made.unbind(0)
    made.unbind(1)
    assert (free(made, "1g.10gb"), free(made, "3g.40gb"), free(made, "7g.80gb")) == (14, 4, 2)


def test_a_card_has_one_set_of_media_engines() -> None:
    made = fleet(cards(H100))
    bind(made, "1g.10gb.me")
    assert made.cards.mask[0, 0] & MEDIA
    with pytest.raises(Conflict):
        bind(made, "1g.10gb.me")
    assert free(made, "1g.10gb") == 6


@pytest.mark.report(107)
def test_compute_and_memory_of_instances_are_counted_in_shares() -> None:
    made = fleet(cards(H100))
    bind(made, "3g.40gb")
    assert (made.cards.milli[0, 0], made.cards.mib[0, 0]) == (1000 - 428, 81920 - 40448)


@pytest.mark.report(135)
def test_instances_of_one_pod_are_found_together() -> None:
    made = fleet(cards(H100))
    assert sorted(at for _, at in bind(made, "1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"))[-1] <= 6
    made = fleet(cards(H100))
    bind(made, "4g.40gb")
    with pytest.raises(Conflict, match="has no room for the pod's nvidia"):
        bind(made, "2g.20gb", "1g.20gb", "1g.10gb")


def test_instances_of_one_pod_are_found_though_the_tightest_card_for_each_is_wrong() -> None:
    made = fleet(cards(H100, H100))
    placed = bind(made, "3g.40gb", "3g.40gb", "1g.10gb.me", "1g.10gb.me")
    assert sorted(device for device, _ in placed) == [0, 0, 1, 1], "each card has one set of media engines"


def test_made_instances_are_taken_as_they_stand() -> None:
    made_instances = ((resource("1g.10gb"), 0), (resource("1g.10gb"), 1), (resource("3g.40gb"), 4))
    made = fleet(cards(Cut(How.MIG, gpu="h100", instances=made_instances)))
    assert (free(made, "1g.10gb"), free(made, "3g.40gb")) == (2, 1)
    assert {bind(made, "1g.10gb"), bind(made, "1g.10gb")} == {((0, 0),), ((0, 1),)}
    with pytest.raises(Conflict):
        bind(made, "2g.20gb")
    assert free(made, "1g.10gb") == 0


def test_instances_that_a_node_advertises_are_spread_evenly_over_cards_that_can_hold_them() -> None:
    counts = {resource("1g.10gb"): 16, resource("2g.20gb"): 8, resource("3g.40gb"): 8}
    made = fleet(node("a", resources=counts | {GPU: 1}, device_resource=GPU, gpu="h100"))
    assert (int((made.devices[0] != -2).sum()), free(made, "3g.40gb")) == (9, 8)
    assert len({made.cards.cut_of(0, device) for device in range(1, 9)}) == 1
    bind(made, "3g.40gb")
    assert made.bind(made.add_pod(pod("whole", gpus=1)), 0) == (0,)


def test_uneven_instances_are_laid_on_the_first_card_with_room() -> None:
    one, seven = resource("1g.10gb"), resource("7g.80gb")
    assert [len(card) for card in laid_out("h100", ((one, 8), (seven, 1)))] == [1, 7, 1]
    assert laid_out("h100", (("nvidia.com/mig-9g.90gb", 1),)) == ()
    assert laid_out("v100", ((one, 1),)) == ()


def test_instances_on_a_node_whose_gpu_is_not_known_are_mere_numbers() -> None:
    made = fleet(node("a", resources={resource("1g.10gb"): 2}))
    row = made.add_pod(instance("p", "1g.10gb", "1g.10gb"))
    assert made.bind(row, 0) == ()
    assert (free(made, "1g.10gb"), violations(made)) == (0, [])


@pytest.mark.report(134)
def test_a_card_is_cut_anew_around_what_is_in_use() -> None:
    seven = tuple((resource("1g.10gb"), start) for start in range(7))
    made = fleet(cards(Cut(How.MIG, gpu="h100", instances=seven)))
    bind(made, "1g.10gb")
    kept = (resource("1g.10gb"), 6)
    with pytest.raises(Conflict, match="device 0 is in use and would be repartitioned"):
        made.set_cuts(0, (Cut(How.MIG, gpu="h100", instances=((resource("3g.40gb"), 4),)),))
    made.set_cuts(0, (Cut(How.MIG, gpu="h100", instances=((resource("4g.40gb"), 0), kept)),))
    assert violations(made) == []
    assert (free(made, "1g.10gb"), free(made, "4g.40gb")) == (0, 1)
    assert bind(made, "4g.40gb") == ((0, 0),)


def test_choices_of_an_instance_are_its_starts_on_different_cards() -> None:
    made = fleet(cards(H100, H100, H100))
    bind(made, "4g.40gb")
    row = made.add_pod(instance("q", "2g.20gb"))
    found = choices(made, 0, made.classes.shapes[made.pod_class(row).shape].ask)
    assert [(one.devices, one.pieces[0].mask) for one in found] == [
        ((0,), 0b110000),
        ((1,), 0b110000),
        ((1,), 0b1100),
        ((1,), 0b11),
    ]


def test_a_node_whose_last_mig_card_leaves_mig_mode_has_the_memory_that_its_pods_hold_of_it() -> None:
    label = {"nvidia.com/gpu.memory": "81559"}  # the driver's, less than the card's 81920 in the facts
    halves = Cut(How.MIG, isolated=True, gpu="h100", instances=((resource("3g.40gb"), 0), (resource("3g.40gb"), 4)))
    made = fleet(cards(OPEN, halves, labels=label, gpu="h100"))
    row = made.add_pod(pod("whole", cpu=0, resources={GPU: "1"}))
    made.bind(row, 0)
    memory = made.cards.memory[0]
    made.set_cuts(0, (OPEN, OPEN))
    assert made.cards.memory[0] == memory == 81_920
    assert violations(made) == []
