"""All that is wrong with a scenario is said at once, before anything runs: each problem in its own line of the file."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from deep_seeds import examples
from tonnage.errors import InputError
from tonnage.simulation import run, scenario

REPOSITORY = Path(__file__).resolve().parents[2]
GOOD = f"""\
kind: Scenario
name: all
duration: 1h
region: us-east-1
slo: {{ttft: 2s, tpot: 50ms}}
fleet:
  nodes:
    - {{instanceType: g6e.12xlarge, count: 1}}
    - {{instanceType: g6e.xlarge, count: 2}}
    - {{instanceType: g6e.2xlarge, count: 3}}
traffic:
  - {{service: llm/chat, profile: {REPOSITORY}/examples/traffic-surge/traffic/azure-2023-conv.yaml, rate: 0.2}}
policies:
  mine: {{manifests: manifests}}
  other: {{manifests: manifests}}
faults:
  - {{at: 5m, kind: node-failure}}
default: mine
"""
MANIFESTS = REPOSITORY / "tests" / "cli" / "folders" / "kustomize" / "base"


def written(folder: Path, **changes: str) -> Path:
    """The scenario with texts replaced by others; of the keyword a ``_`` stands for what no keyword may have."""
    text = GOOD
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    (folder / "manifests").mkdir()
    for one in ("deployment.yaml", "service.yaml"):
        (folder / "manifests" / one).write_text((MANIFESTS / one).read_text())
    (folder / "scenario.yaml").write_text(text)
    return folder


def told(folder: Path) -> list[tuple[int, str]]:
    """(line, field) of each problem, of the scenario, or of what it takes to set it up."""
    with pytest.raises(InputError) as caught:
        run.set_up(scenario.load(folder), "mine")
    return [(one.where.line, one.where.field) for one in caught.value.problems]


def test_what_is_right_is_set_up(tmp_path: Path) -> None:
    run.set_up(scenario.load(written(tmp_path)), "mine")


@pytest.mark.parametrize(
    ("changes", "problems"),
    [
        (  # what does not fit its type hides neither its like nor fields that nobody knows
            {"count: 1}": "count: one}", "count: 3}": "count: 3, typo: 1}", "rate: 0.2": "rate: fast", "at: 5m": "at: 5"},
            [(8, "fleet.nodes[0].count"), (10, "fleet.nodes[2].typo"), (12, "traffic[0].rate"), (17, "faults[0].at")],
        ),
        (  # an item that lacks something does not move those after it
            {"instanceType: g6e.12xlarge, ": "", "count: 2": "count: two", "count: 3": "number: 3"},
            [(8, "fleet.nodes[0].instanceType"), (9, "fleet.nodes[1].count"), (10, "fleet.nodes[2].number")],
        ),
        (  # fields that nobody knows hide no wrong value
            {"name: all": "nam: all\nname: all", "duration: 1h": "duration: long", "ttft: 2s": "ttft: soon", "default: mine": "default: nobody"},
            [(2, "nam"), (4, "duration"), (6, "slo.ttft"), (19, "default")],
        ),
        (
            {"g6e.12xlarge": "g6e.13xlarge", "other: {manifests: manifests}": "other: {manifests: nowhere, scaling: slow}"},
            [(8, "fleet.nodes[0].instanceType"), (15, "policies.other.scaling"), (15, "policies.other.manifests")],
        ),
    ],
    ids=["types", "items", "values", "names"],
)  # fmt: skip
def test_every_problem_of_the_file_is_there(
    tmp_path: Path, changes: dict[str, str], problems: list[tuple[int, str]]
) -> None:
    assert sorted(told(written(tmp_path, **changes))) == sorted(problems)


def test_problems_of_the_manifests_and_of_the_region_come_together(tmp_path: Path) -> None:
    folder = written(tmp_path, **{"region: us-east-1": "region: mars-1"})
    (folder / "manifests" / "broken.yaml").write_text("kind: Pod\n")
    assert told(folder) == [(4, "region"), (1, "apiVersion")]


def test_problems_of_all_traffic_come_together(tmp_path: Path) -> None:
    more = "rate: 0.2}\n  - {service: llm/nobody, profile: nowhere.yaml}\n  - {service: llm/nothing, profile: nowhere.yaml}"
    with pytest.raises(InputError) as caught:
        run.set_up(scenario.load(written(tmp_path, **{"rate: 0.2}": more})), "mine")
    places = [one.where.field or Path(one.where.file).name for one in caught.value.problems]
    assert places == ["traffic[1].service", "nowhere.yaml", "traffic[2].service", "nowhere.yaml"]


def test_a_model_is_among_the_problems(tmp_path: Path) -> None:
    folder = written(
        tmp_path,
        **{"slo: {ttft: 2s": "models: {our-org/x: {params: 9B}}\nslo: {ttft: soon", "default: mine": "defaults: mine"},
    )
    assert [field for _, field in told(folder)] == ["models.our-org/x", "slo.ttft", "defaults"]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value inside a value."""
    if path:
        yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inside:
        yield from places(one, (*path, key))


@pytest.mark.parametrize("seed", range(examples(60)))
def test_whatever_is_wrong_is_told_once_and_nothing_else_fails(tmp_path: Path, seed: int) -> None:
    rng = Random(seed)
    content = yaml.safe_load(GOOD)
    for _ in range(rng.randrange(1, 5)):
        *path, last = rng.choice([one for one in places(content) if one != ("kind",)])
        within = content
        for step in path:
            within = within[step]
        within[last] = deepcopy(rng.choice([None, 5, "x", [], [1, "a"], {}, {"a": {"b": 1}}, True, 1.5, [{}], [None]]))
        if isinstance(within, dict) and rng.random() < 0.3:
            within["unknown"] = 1
    try:
        scenario.of_text(yaml.safe_dump(content), tmp_path / "scenario.yaml")
    except InputError as error:
        said = [(one.where.line, one.where.field, one.message) for one in error.problems]
        assert len(set(said)) == len(said)
