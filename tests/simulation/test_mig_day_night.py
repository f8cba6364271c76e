"""The bundled day and night: layouts change with the load, no instance in use goes, and both sides gain.

Of two whole days: `make fuzz` plays them. That their results stay as they are recorded is seen by `make digests`, and that
layouts follow a shorter day, on an API too, by the contract's tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

import shared_runs
from tonnage.fleet.invariants import violations
from tonnage.machines.cluster import SimulatedCluster
from tonnage.partitioning.fleet_layouts import as_layout, busy_in, instances_of
from tonnage.simulation import run, scenario
from tonnage.simulation.report.headline import training_headline
from tonnage.simulation.result import DecisionRecord, Result, ServiceResult, TrainingResult

pytestmark = pytest.mark.fuzz

EXAMPLE = Path(__file__).parents[2] / "examples" / "mig-day-night"
NODE = "base-01"


@dataclass
class Watch:
    """Looks at the instances after every fifth event, and keeps what it has seen."""

    standing: dict[str, object] = field(default_factory=dict)
    shown: set[tuple[int, object]] = field(default_factory=set)
    events: int = 0

    def __call__(self, cluster: SimulatedCluster, until_ns: int) -> None:
        fleet, self.events = cluster.fleet, self.events + 1
        if self.events % 5:
            return
        bound = {pod.key: (pod.node, fleet.pod(pod.row).pieces) for pod in cluster.pods.values() if pod.node}
        for key, where in bound.items():
            assert self.standing.get(key, where) == where, "a pod keeps its instance"
        self.standing = dict(bound)
        row = fleet.node_by_name[NODE]
        for (_, device), change in cluster.gpus.relayouts.items():
            now = as_layout(instances_of(fleet, (row, device)))
            assert set(busy_in(fleet, (row, device))) <= set(now) <= set(change.there)
        if self.events % 500 == 0:
            assert violations(fleet) == []
            self.shown |= {(device, instances_of(fleet, (row, device))) for device in range(8)}


@dataclass(frozen=True)
class Both:
    """The results of the two policies, and what was seen under ``relayout``."""

    static: Result
    relayout: Result
    seen: Watch


@pytest.fixture(scope="module")
def both() -> Both:
    seen = Watch()
    watched = run.run(scenario.load(EXAMPLE), "relayout", run.RunOptions(observer=seen))
    return Both(shared_runs.result(EXAMPLE.name, "static"), watched, seen)


def _chat(result: Result) -> ServiceResult:
    return result.services[0]


def _work(result: Result) -> list[TrainingResult]:
    assert isinstance(result.training, list)
    return result.training


def _last(result: Result) -> float:
    return max(one.finished_s or float("inf") for one in _work(result))


def _changes(result: Result) -> list[DecisionRecord]:
    return [one for one in result.decisions if one.kind == "Relayout"]


def test_layouts_change_with_the_load_and_no_instance_in_use_ever_goes(both: Both) -> None:
    assert both.seen.events > 1_000
    changed = _changes(both.relayout)
    assert {one.outcome for one in changed} == {"Applied"}
    by_day = [one for one in changed if one.t_s < 70 * 60]
    by_night = [one for one in changed if 70 * 60 <= one.t_s < 230 * 60]
    morning = [one for one in changed if one.t_s >= 230 * 60]
    assert min(len(by_day), len(by_night), len(morning)) >= 2
    for part, wanted in ((by_day, "mig-1g.10gb"), (by_night, "nvidia.com/gpu"), (by_night, "mig-3g.40gb")):
        assert any(wanted in one.verdict for one in part), wanted
    assert {one.verdict.partition(" for ")[0] for one in (*by_day, *morning)} <= {
        f"no GPU offers {n} nvidia.com/mig-1g.10gb".replace("  ", " ") for n in ("", *(f"{i} x" for i in range(2, 8)))
    }
    assert len(both.seen.shown) > 16, "some GPUs have had several layouts"


def test_a_fixed_layout_changes_nothing(both: Both) -> None:
    assert _changes(both.static) == []


def test_the_chat_meets_its_slo_by_day_only_where_layouts_follow(both: Both) -> None:
    fixed, follows = _chat(both.static), _chat(both.relayout)
    assert fixed.max_ready_replicas == 21
    assert follows.max_ready_replicas > 35
    assert follows.overall.share is not None and fixed.overall.share is not None
    assert follows.overall.share > 0.999
    assert fixed.overall.share < 0.8


def test_the_work_of_the_night_is_done_an_hour_earlier_and_costs_no_more(both: Both) -> None:
    assert {one.state for one in (*_work(both.static), *_work(both.relayout))} == {"done"}
    assert _last(both.relayout) < _last(both.static) - 50 * 60
    assert training_headline(_work(both.relayout)).evictions == 0
    assert both.relayout.cost.total_micro_usd == both.static.cost.total_micro_usd
