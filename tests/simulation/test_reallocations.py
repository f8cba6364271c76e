"""GPUs given to another workload at a set time of a run, whoever sets the replicas, and given back."""

from __future__ import annotations

from bisect import bisect
from pathlib import Path
from typing import Any

import pytest
from sim_builders import variant

from tonnage.errors import InputError
from tonnage.simulation.result import Result
from tonnage.simulation.run import run

MOVE = {"at": "90s", "from": "model-b-serving", "to": "inference/model-a-serving", "gpus": 2, "until": "5m"}


def _run(folder: Path, *moves: dict[str, Any]) -> Result:
    surge = {"start": "7m", "duration": "10s", "factor": 1}
    return run(variant(folder, surge=surge, duration="8m", reallocations=list(moves)), "corrected")


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return _run(tmp_path_factory.mktemp("moved"), MOVE)


def _wanted(result: Result, second: float) -> dict[str, int]:
    at = bisect(result.series.t_s, second)
    return {one.name: one.replicas_wanted[at] for one in result.series.services}


def test_the_donor_gives_its_replicas_and_the_other_gets_as_many_gpus(result: Result) -> None:
    before, after = _wanted(result, 85), _wanted(result, 100)
    assert (before["inference/model-b"], after["inference/model-b"]) == (4, 2)
    assert after["inference/model-a"] == before["inference/model-a"] + 2
    moved = [one for one in result.decisions if one.loop == "reallocation"]
    assert [(one.t_s, one.verdict) for one in moved] == [(91.0, "GPUs are reallocated")] * 2


def test_autoscalers_keep_to_the_moved_bounds_until_gpus_are_given_back(result: Result) -> None:
    a, b = "inference/model-a", "inference/model-b"
    gained = _wanted(result, 100)[a]
    during = [_wanted(result, second) for second in range(100, 300, 10)]
    assert min(one[a] for one in during) >= gained and max(one[b] for one in during) <= 2
    assert _wanted(result, 400)[a] < gained  # its minimum is its own again


def test_more_than_the_donor_has_is_refused_with_the_reason_and_nothing_changes(tmp_path: Path) -> None:
    result = _run(tmp_path, {**MOVE, "gpus": 9})
    assert [one for one in result.decisions if one.loop == "reallocation"] == []
    (said,) = [one for one in result.events if one.reason == "ReallocationRefused"]
    assert "9 GPUs cannot be freed" in said.message


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"at": "soon"}, r'reallocations\[0\].at: "soon" is not a duration'),
        ({"at": "9m", "until": "10m"}, r"reallocations\[0\].at: .* it would never come"),
        ({"until": "60s"}, r'reallocations\[0\].until: "60s" is not after 90s'),
        ({"gpus": 0}, r"reallocations\[0\].gpus: 0 GPUs, expected at least 1"),
        ({"to": "deployment/model-b-serving"}, r"reallocations\[0\].to: .* is the workload that gives up the GPUs"),
        ({"from": "model-c"}, r'reallocations\[0\].from: "model-c": there is no workload of this name'),
    ],
)
def test_what_can_never_be_is_refused_with_its_field(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"scenario.yaml:\d+:" + said):
        _run(tmp_path, {**MOVE, **change})
