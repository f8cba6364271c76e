"""What a simulated run says first of sets with one cause each: that cause, with no pod Ready; nothing of a set that is
well."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from deep_seeds import deep
from health.broken_sets import BrokenSet, broken, good
from tonnage.errors import InputError, Where
from tonnage.health.blocker import NO_EFFECT
from tonnage.simulation import run, scenario
from tonnage.simulation.result import NotRunning, Result

EVERY = 6
"""Of the good sets, this many to one that is run each time; of the broken ones the first of each rule is."""


def played(folder: Path) -> Result:
    loaded = scenario.load(folder)
    return run.run(loaded, loaded.default_policy)


def stopped(result: Result) -> list[NotRunning]:
    return [] if isinstance(result.not_running, msgspec.UnsetType) else result.not_running


def served(result: Result, one: NotRunning) -> bool:
    """Whether a pod of the workload was ever Ready."""
    key = f"{one.object.namespace}/{one.object.name}"
    ready = [s.max_ready_replicas for s in result.services if s.workload == key]
    ready += [w.max_ready_replicas for w in result.workloads or () if w.name == key]
    started = [t.started_s for t in result.training or () if t.copy_of.split("/")[0::2] == [*key.split("/")]]
    return any(ready) or any(at is not None for at in started)


def line_of(where: Where) -> str:
    return Path(where.file).read_text().splitlines()[where.line - 1]


def in_part(sets: Iterable[BrokenSet]) -> list[BrokenSet]:
    """The first of each rule."""
    return list({one.expect["rule"]: one for one in reversed(list(sets)) if one.expect is not None}.values())


def says_the_cause_first(one: BrokenSet, folder: Path) -> None:
    assert one.expect is not None
    try:
        result = played(one.write(folder))
    except InputError as refused:  # the API server refuses the object itself: nothing of it can be run
        (problem,) = refused.problems
        assert one.expect["stage"] == "refused" and problem.hint
        assert str(one.expect["at"]) in line_of(problem.where)
        return
    first = stopped(result)[0]
    assert (first.rule, first.stage) == (one.expect["rule"], one.expect["stage"])
    assert first.cause and (first.help or first.rule.startswith("nodepool-"))
    assert str(one.expect["at"]) in line_of(first.where)
    if reason := one.expect.get("reason"):
        assert reason in first.event
    if first.stage != NO_EFFECT and first.object.kind != "PodGroup":  # whose pods are another object's
        assert not served(result, first)


def runs_once_mended(one: BrokenSet, folder: Path) -> None:
    runs(one, played(one.write(folder, fixed=True)))


def runs(one: BrokenSet, result: Result) -> None:
    """Every workload serves; that some of its pods get no place is not an error."""
    assert [left for left in stopped(result) if left.pods == left.wanted] == []
    assert all(service.max_ready_replicas for service in result.services)
    assert all(workload.max_ready_replicas for workload in result.workloads or () if workload.replicas)


def name(one: BrokenSet) -> str:
    return one.name.replace(" ", "-")


@pytest.mark.parametrize("one", in_part(broken()), ids=name)
def test_a_run_says_the_cause_first(one: BrokenSet, tmp_path: Path) -> None:
    says_the_cause_first(one, tmp_path / "set")


@pytest.mark.parametrize("one", in_part(broken())[::3], ids=name)
def test_the_change_that_mends_it_makes_it_run(one: BrokenSet, tmp_path: Path) -> None:
    runs_once_mended(one, tmp_path / "set")


@pytest.mark.parametrize("one", good()[::EVERY], ids=name)
def test_a_good_set_runs(one: BrokenSet, tmp_path: Path) -> None:
    runs(one, played(one.write(tmp_path / "set")))


@pytest.mark.parametrize("one", deep(broken()), ids=name)
def test_every_set_says_its_cause_first_and_runs_once_mended(one: BrokenSet, tmp_path: Path) -> None:
    says_the_cause_first(one, tmp_path / "broken")
    runs_once_mended(one, tmp_path / "mended")


@pytest.mark.parametrize("one", deep(good()), ids=name)
def test_every_good_set_runs(one: BrokenSet, tmp_path: Path) -> None:
    runs(one, played(one.write(tmp_path / "set")))
