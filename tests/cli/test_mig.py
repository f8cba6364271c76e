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
        (("fits", "a100-80:2x1g.10gb,2g.20gb,4g.40gb", "1g.10gb"), "no place for 4g.40gb"),
        (("relayout", "h100:none", "h200:7g.141gb"), "FROM is a layout of h100, TO of h200"),
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
