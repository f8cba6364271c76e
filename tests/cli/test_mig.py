"""`tonnage mig` as people and scripts see it."""

from __future__ import annotations

import json

import pytest
from cli_builders import tonnage


@pytest.mark.parametrize(("options", "count"), [([], 28), (["--all-profiles"], 44)])
def test_layouts_of_an_h100_in_json_are_those_to_which_nothing_can_be_added(
    capfd: pytest.CaptureFixture[str], options: list[str], count: int
) -> None:
    answer = json.loads(tonnage(capfd, "mig", "layouts", "H100-80", *options, "-o", "json").out)
    assert answer["gpu"] == "h100"
    assert len(answer["layouts"]) == count
    for layout in answer["layouts"]:
        slices = [s for one in layout["placements"] for s in range(one["start"], one["start"] + one["size"])]
        assert len(slices) == len(set(slices))
        assert sum(layout["profiles"].values()) == len(layout["placements"])


def test_layouts_beside_what_runs_all_include_it(capfd: pytest.CaptureFixture[str]) -> None:
    answer = json.loads(tonnage(capfd, "mig", "layouts", "h100", "--from", "3g.40gb@4", "-o", "json").out)
    assert answer["layouts"]
    for layout in answer["layouts"]:
        assert {"profile": "3g.40gb", "start": 4, "size": 4} in layout["placements"]


def test_a_profile_that_does_not_fit_is_answered_with_who_is_in_the_way_and_code_1(
    capfd: pytest.CaptureFixture[str],
) -> None:
    done = tonnage(capfd, "mig", "fits", "h100:3g.40gb@4,1g.10gb@0*", "4g.40gb")
    assert done.code == 1
    assert "at 0: 1g.10gb at 0 (in use)" in done.out
    answer = json.loads(tonnage(capfd, "mig", "fits", "h100:3g.40gb@4,1g.10gb@0*", "4g.40gb", "-o", "json").out)
    assert answer["blockers"] == [{"start": 0, "instances": [{"profile": "1g.10gb", "start": 0, "size": 1}]}]


def test_relayout_prints_steps_with_their_places(capfd: pytest.CaptureFixture[str]) -> None:
    done = tonnage(capfd, "mig", "relayout", "3g.40gb@4*,1g.10gb@0", "2x2g.20gb,3g.40gb", "--gpu", "h100", "-o", "json")
    answer = json.loads(done.out)
    assert [(s["action"], s["profile"], s["start"]) for s in answer["steps"]] == [
        ("destroy", "1g.10gb", 0),
        ("create", "2g.20gb", 0),
        ("create", "2g.20gb", 2),
    ]
    stuck = tonnage(capfd, "mig", "relayout", "h100:3g.40gb@4*", "7g.80gb")
    assert stuck.code == 1
    assert "in use" in stuck.out


def test_defrag_says_who_restarts(capfd: pytest.CaptureFixture[str]) -> None:
    done = tonnage(capfd, "mig", "defrag", "h100:1g.10gb@1*,1g.10gb@5", "4g.40gb")
    assert "move 1g.10gb from memory slice 1 to 4 (its user must restart)" in done.out
    assert all(len(line) <= 80 for line in done.out.splitlines())
    assert tonnage(capfd, "mig", "defrag", "h100:3g.40gb,3g.40gb", "1g.10gb").code == 1


def test_defrag_says_which_instances_have_to_go_before_any_is_made_anew(capfd: pytest.CaptureFixture[str]) -> None:
    layout = "h100:1g.10gb@3*,1g.20gb@4*,1g.10gb@6*"
    done = tonnage(capfd, "mig", "defrag", layout, "4g.40gb")
    assert "destroy the next 3, then recreate them: each goes where another is" in done.out
    answer = json.loads(tonnage(capfd, "mig", "defrag", layout, "4g.40gb", "-o", "json").out)
    assert (len(answer["moves"]), answer["at_once"]) == (3, 3)


def test_what_runs_can_name_its_gpu_too(capfd: pytest.CaptureFixture[str]) -> None:
    named = tonnage(capfd, "mig", "layouts", "h100", "--from", "h100:3g.40gb@4*")
    assert named == tonnage(capfd, "mig", "layouts", "h100", "--from", "3g.40gb@4")
    assert named.code == 0


def test_either_layout_of_a_relayout_can_name_the_gpu(capfd: pytest.CaptureFixture[str]) -> None:
    there = tonnage(capfd, "mig", "relayout", "none", "h100:3g.40gb@4")
    assert there == tonnage(capfd, "mig", "relayout", "h100:none", "3g.40gb@4")
    assert there.code == 0


def test_a_place_that_is_typed_is_kept_beside_profiles_without_one(capfd: pytest.CaptureFixture[str]) -> None:
    done = tonnage(capfd, "mig", "relayout", "h100:3g.40gb@0", "1g.10gb@2,1g.10gb", "-o", "json")
    created = [s for s in json.loads(done.out)["steps"] if s["action"] == "create"]
    assert {"action": "create", "profile": "1g.10gb", "start": 2, "size": 1} in created
    assert len(created) == 2


def test_a_layout_that_cannot_exist_is_refused_with_the_slot_map_of_what_can(
    capfd: pytest.CaptureFixture[str],
) -> None:
    done = tonnage(capfd, "mig", "relayout", "a100-80:none", "2x1g.10gb,2g.20gb,4g.40gb")
    assert done.code == 2
    numbers, drawn, said = done.err.splitlines()
    assert numbers.split() == list("01234567")
    assert drawn.endswith("[1g.10gb] ·········")
    assert "they need 8 compute slices, it has 7" in said
    assert "in the way: 1g.10gb at 6, 2g.20gb at 4, 4g.40gb at 0" in said


@pytest.mark.parametrize("gpu", ["rtx-pro-6000", "gb300", "a30"])
def test_layouts_of_every_profile_are_80_columns_wide(capfd: pytest.CaptureFixture[str], gpu: str) -> None:
    done = tonnage(capfd, "mig", "layouts", gpu, "--all-profiles")
    assert done.code == 0
    assert all(len(line) <= 80 for line in done.out.splitlines())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("fits", "3g.40gb", "1g.10gb"), "which GPU?"),
        (("fits", "h10:3g.40gb", "1g.10gb"), "unknown GPU 'h10'"),
        (("fits", "h100:9x1g.10gb", "1g.10gb"), "a count is from 1 to 8"),
        (("fits", "h100:0x1g.10gb", "1g.10gb"), "a count is from 1 to 8"),
        (("fits", "h100:1g.11gb", "1g.10gb"), "did you mean 1g.10gb"),
        (("fits", "h100:1g.10gb*", "1g.10gb"), "in use needs its place"),
        (("fits", "h100:3g.40gb@2", "1g.10gb"), "cannot start at memory slice 2"),
        (("fits", "a100-80:2x1g.10gb,2g.20gb,4g.40gb", "1g.10gb"), "no place for 1g.10gb"),
        (("relayout", "h100:none", "h200:7g.141gb"), "TO: 'h200:7g.141gb' is not for h100"),
        (("fits", "h100:none", "1g.10gb", "--gpu", "a30"), "LAYOUT: 'h100:none' is not for a30"),
        (("fits", "h100:-1x1g.10gb", "1g.10gb"), "LAYOUT: '-1x1g.10gb': a count is from 1 to 8"),
        (("fits", f"h100:1g.10gb@{'9' * 5000}", "1g.10gb"), "is not an instance"),
        (("fits", "h100:none", "3g.41gb"), "PROFILE: unknown MIG profile '3g.41gb' (did you mean 3g.40gb"),
        (("defrag", "h100:none", "3g.41gb"), "PROFILE: unknown MIG profile '3g.41gb' (did you mean 3g.40gb"),
        (("fits", "none", "1g.10gb", "--gpu", "h10"), "--gpu: unknown GPU 'h10'"),
        (("layouts", "h10"), "GPU: unknown GPU 'h10' (did you mean h100"),
        (("layouts", "h100", "--from", "a30:1g.6gb"), "--from: 'a30:1g.6gb' is not for h100"),
        (("layouts", "h100", "--from", "8x1g.10gb"), "--from: h100 cannot hold 8x1g.10gb: at most 7 x 1g.10gb fit"),
        (("layouts", "l40s"), "no MIG profiles of l40s are known"),
    ],
)
def test_bad_input_is_refused_with_the_reason(
    capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    done = tonnage(capfd, "mig", *arguments)
    assert done.code == 2
    assert words in done.err
    assert not done.out
