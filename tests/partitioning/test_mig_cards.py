"""What named configurations make on which cards; layouts that cannot exist are refused with who is in the way."""

from __future__ import annotations

import pytest

from tonnage.errors import InputError
from tonnage.facts import mig, mig_devices
from tonnage.partitioning import documents, mig_cards, mig_parted
from tonnage.partitioning.layouts import card, feasible, kind_of, mask_of, place, profile_names
from tonnage.partitioning.mig_cards import ConfigResult, canonical, known_configs, outcomes, spec_of, why_not
from tonnage.partitioning.mig_parted import Entry, Spec

KNOWN = known_configs()


def one(counts: dict[str, int], device_filter: str | list[str] = "", gpu: str = "") -> ConfigResult:
    spec = Spec({"wanted": (Entry("all", True, device_filter, counts),)})
    [found] = outcomes(spec, gpu)
    return found


def test_every_board_is_of_a_gpu_with_profiles_and_every_such_gpu_has_a_board() -> None:
    assert {board.gpu for board in mig_devices.all()} == set(mig.with_profiles())
    assert len({board.device for board in mig_devices.all()}) == len(mig_devices.all()) == 27
    for gpu in mig.with_profiles():
        assert any(board.own for board in mig_devices.of(gpu))
        names = {profile.name for profile in mig.profiles(gpu, plain=False)}
        assert set(mig_devices.other_names(gpu).values()) <= names
        assert not set(mig_devices.other_names(gpu)) & names


def test_there_are_about_80_known_configurations_one_for_each_profile_name() -> None:
    names = {one.name.replace("+", ".") for gpu in mig.with_profiles() for one in mig.profiles(gpu, plain=False)}
    assert set(KNOWN.configs) == {"all-disabled", "all-enabled", "all-balanced", *(f"all-{name}" for name in names)}
    assert len(KNOWN.configs) == 78


@pytest.mark.parametrize("name", KNOWN.configs)
def test_every_known_configuration_parses_and_has_places_on_all_its_device_ids(name: str) -> None:
    text = mig_parted.render(Spec({name: KNOWN.configs[name]}))
    [document] = documents.read(text, "known.yaml")
    spec = mig_parted.parse(document)
    [found] = outcomes(spec)
    assert not (found.problems or found.refused or found.notes)
    for made in found.made:
        entry = spec.configs[name][made.entry]
        if made.layout:
            on = card(made.gpu)
            assert kind_of(on, (p.profile for p in made.layout)) == kind_of(on, canonical(on, entry.profiles)[0])
            mask_of(on, made.layout)
    boards = [cards for made in found.made for cards in made.cards]
    filters = [text for entry in spec.configs[name] for text in entry.filters]
    assert len(boards) == len(filters)


def test_a_known_configuration_of_one_profile_has_as_many_as_fit() -> None:
    for name, entries in KNOWN.configs.items():
        if name in ("all-disabled", "all-enabled", "all-balanced"):
            continue
        for entry in entries:
            [(profile, count)] = (entry.mig_devices or {}).items()
            gpus = {mig_devices.by_id()[one.device].gpu for one in entry.ids} or {
                gpu for gpu in mig.with_profiles() if profile in {p.name for p in mig.profiles(gpu, plain=False)}
            }
            for gpu in gpus:
                assert place(card(gpu), [profile] * count) is not None
                assert place(card(gpu), [profile] * (count + 1)) is None


def test_the_balanced_configuration_is_for_every_board() -> None:
    [found] = outcomes(Spec({"all-balanced": KNOWN.configs["all-balanced"]}))
    assert {made.gpu for made in found.made} == set(mig.with_profiles())


def test_an_a100_split_into_eight_compute_slices_is_refused_with_its_slot_map() -> None:
    found = one({"1g.10gb": 2, "2g.20gb": 1, "4g.40gb": 1}, "0x20B210DE")
    [refused], [problem] = found.refused, found.problems
    assert "they need 8 compute slices, it has 7" in refused.why
    assert "there is no place for 1g.10gb" in refused.why
    assert "4g.40gb at 0" in refused.why
    assert refused.map[1].startswith("[---------------4g.40gb---------------] [-----2g.20gb-----] [1g.10gb]")
    assert "a100-80 cannot hold 2 x 1g.10gb, 2g.20gb, 4g.40gb" in problem.message


@pytest.mark.parametrize("gpu", ["a30", "h100", "rtx-pro-6000"])
def test_every_layout_that_exists_is_placed_and_one_instance_more_than_fits_says_why(gpu: str) -> None:
    on = card(gpu)
    kinds = feasible(on)
    for kind in kinds:
        profiles = [name for name, count in kind for _ in range(count)]
        assert place(on, profiles) is not None
        for extra in profile_names(on):
            if place(on, [*profiles, extra]) is None:
                why, drawn = why_not(on, [*profiles, extra])
                assert any(f"place for {name}" in why or f"x {name} fit" in why for name in (*profiles, extra))
                assert len(drawn) == 2
    with pytest.raises(ValueError, match="the profiles fit"):
        why_not(on, profile_names(on)[:1])


def test_more_of_a_profile_than_a_card_has_is_said_so() -> None:
    found = one({"1g.10gb+me": 2}, gpu="h100")
    assert found.refused[0].why == "at most 1 x 1g.10gb+me fit"


def test_an_entry_without_a_filter_is_for_all_gpus_with_its_profiles_less_those_where_it_does_not_fit() -> None:
    found = one({"1g.10gb": 7})
    assert {made.gpu for made in found.made} == {"a100-80", "a100-80-pcie", "a800", "h100", "h100-pcie", "h800"}
    assert [refused.gpu for refused in found.refused] == ["a100-40", "a100-40-pcie"]
    assert not found.problems
    assert "not on a100-40: at most 4 x 1g.10gb fit" in found.notes[0].message


def test_on_one_gpu_a_configuration_for_others_makes_nothing() -> None:
    found = one({"1g.10gb": 7}, gpu="a30")
    assert (found.made, found.problems) == ([], [])
    assert one({"1g.10gb": 7}, gpu="A100-40GB").problems


@pytest.mark.parametrize(
    ("counts", "device_filter", "words"),
    [
        ({"1g.11gb": 1}, "", "unknown MIG profile '1g.11gb' (did you mean"),
        ({"1g.10gb": 1, "2g.35gb": 1}, "", "no GPU has all of 1g.10gb, 2g.35gb"),
        ({"1g.18gb": 1}, "0x233010DE", "it has no profile 1g.18gb, did you mean 1g.10gb"),
    ],
)
def test_a_profile_that_no_card_has_is_refused_with_near_names(
    counts: dict[str, int], device_filter: str, words: str
) -> None:
    [problem] = one(counts, device_filter).problems
    assert words in str(problem)


def test_an_id_that_is_not_known_is_noted_with_near_ones() -> None:
    found = one({"1g.10gb": 1}, ["0x233010DE", "0x239910DE"])
    assert not found.problems
    assert "no GPU with id 0x239910DE is known here" in found.notes[0].message
    assert "0x232910DE" in found.notes[0].hint


def test_names_of_early_boards_and_other_drivers_are_those_of_the_table() -> None:
    assert canonical(card("gb200"), ["3g.95gb", "1G.24GB"]) == (["3g.93gb", "1g.23gb"], [])
    assert canonical(card("a100-80"), ["7g.79gb"]) == (["7g.80gb"], [])
    assert canonical(card("h100"), ["7g.79gb"]) == ([], ["7g.79gb"])
    found = one({"1g.24gb": 2, "2g.47gb": 1, "3g.95gb": 1}, "0x294110DE")
    assert not found.problems
    assert found.made[0].gpu == "gb200"


def test_cards_of_several_models_in_one_configuration_each_get_their_layout() -> None:
    spec = spec_of(
        [
            ("mixed", "h100", ["1g.10gb"] * 7, "all"),
            ("mixed", "a30", ["2g.12gb"] * 2, [0, 1]),
            ("mixed", "h200", None, "all"),
        ]
    )
    [found] = outcomes(spec)
    assert [(made.gpu, None if made.layout is None else len(made.layout)) for made in found.made] == [
        ("h100", 7), ("a30", 2), ("h200", None),
    ]  # fmt: skip


def test_entries_that_meet_are_noted_and_those_on_other_indices_are_not() -> None:
    both = Spec({"x": (Entry("all", True, "", {"1g.10gb": 7}), Entry([0], False))})
    assert "a GPU can match entry 0 too" in outcomes(both)[0].notes[-1].message
    apart = Spec({"x": (Entry([1], True, "0x233010DE", {"1g.10gb": 7}), Entry([0], False))})
    assert outcomes(apart)[0].notes == []


def test_a_gpu_without_mig_has_no_configuration() -> None:
    with pytest.raises(InputError, match="no MIG profiles of l40s are known"):
        spec_of([("x", "l40s", [], "all")])
    with pytest.raises(InputError, match="unknown GPU 'h10'"):
        mig_cards.outcomes(KNOWN, "h10")
