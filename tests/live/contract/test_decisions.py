"""What becomes of a decision is the same in every world."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from live.contract.cases import APPLIED, MOVED_ON, STALE, Case, Decide, check_applied, check_moved_on, check_stale
from live.contract.small import WHY, Small, build
from live.contract.worlds import WORLDS, opened
from tonnage.decisions import Applied, Wait
from tonnage.fleet.invariants import violations


@pytest.fixture(scope="module", params=WORLDS)
def unchanged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Small]:
    """A cluster that no test changes."""
    with opened(request.param) as transport:
        small = build(tmp_path_factory.mktemp("world"), transport, faulty=request.param == "faulty")
        yield small
        small.close()


@pytest.fixture(params=[world for world in WORLDS if world in ("simulated", "embedded", "faulty")])
def small(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Small]:
    """A cluster of the test's own."""
    with opened(request.param) as transport:
        made = build(tmp_path, transport, faulty=request.param == "faulty")
        yield made
        assert violations(made.world.snapshot().fleet) == []
        made.close()


def _skip(small: Small, case: Case) -> None:
    if case.needs_api and small.steps is None:
        pytest.skip("the simulated world has nothing of the kind")


@pytest.mark.parametrize("case", STALE.values(), ids=STALE)
def test_a_stale_decision_says_what_changed_and_changes_nothing(unchanged: Small, case: Case) -> None:
    _skip(unchanged, case)
    check_stale(unchanged, case)
    assert violations(unchanged.world.snapshot().fleet) == []


@pytest.mark.parametrize("case", MOVED_ON.values(), ids=MOVED_ON)
def test_a_decision_that_the_world_has_overtaken_changes_nothing(small: Small, case: Case) -> None:
    _skip(small, case)
    check_moved_on(small, case)


@pytest.mark.parametrize(("decide", "check"), APPLIED.values(), ids=APPLIED)
def test_a_decision_that_holds_takes_effect(small: Small, decide: Decide, check: Callable[[Small], None]) -> None:
    check_applied(small, decide, check)


def test_why_a_pod_waits_is_written_once(unchanged: Small) -> None:
    if unchanged.steps is None:
        pytest.skip("the simulated world counts repeated events")
    decision = Wait(unchanged.pod(1), WHY)
    for _ in range(3):
        assert unchanged.apply(decision) == Applied()
    assert unchanged.said.events.count((str(decision.pod), "FailedScheduling")) == 1
