"""The bundled training scenarios, by numbers: what each policy must achieve."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import shared_runs
from deep_seeds import deep
from tonnage.simulation.report.headline import TrainingHeadline, training_headline
from tonnage.simulation.result import Result, TrainingResult

GANGS = ("jobset", "mpijob", "podgroup", "pytorchjob", "raycluster", "leaderworkerset")
Runs = Callable[[str, str], Result]


@pytest.fixture(scope="module")
def ran() -> Runs:
    """The result of (example, policy)."""
    return shared_runs.result


def _work(result: Result) -> list[TrainingResult]:
    assert isinstance(result.training, list)
    return result.training


def _head(result: Result) -> TrainingHeadline:
    return training_headline(_work(result))


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["tonnage", *deep(["spread"])])
def test_no_gang_of_the_training_cluster_ever_holds_a_half(ran: Runs, policy: str) -> None:
    work = _work(ran("training-cluster", policy))
    assert {one.name.split("/")[1] for one in work} >= set(GANGS)
    assert {one.gpu_hours.half for one in work} == {0.0}


@pytest.mark.parametrize("policy", ["tonnage", *deep(["spread"])])
def test_every_gpu_hour_of_the_training_cluster_is_accounted_for(ran: Runs, policy: str) -> None:
    result = ran("training-cluster", policy)
    for one in _work(result):
        hours = one.gpu_hours
        parts = hours.useful + hours.lost + hours.checkpoints + hours.starting + hours.broken + hours.half
        assert hours.allocated == pytest.approx(parts, abs=1e-3)
    assert _head(result).gpu_hours.allocated == pytest.approx(result.gpu_hours.allocated, rel=1e-4)


def test_with_the_default_policy_all_work_of_the_training_cluster_is_done(ran: Runs) -> None:
    result = ran("training-cluster", "tonnage")
    assert {one.state for one in _work(result)} == {"done"}
    assert _head(result).workloads == 238
    for one in _work(result):
        if one.communication_factor is not None:
            assert 1.0 < one.communication_factor < 1.1
    assert result.findings == []


@pytest.mark.fuzz
def test_spreading_small_jobs_makes_gangs_wait_and_work_be_lost(ran: Runs) -> None:
    packed, spread = _head(ran("training-cluster", "tonnage")), _head(ran("training-cluster", "spread"))
    assert packed.mean_wait_s is not None and spread.mean_wait_s is not None
    assert packed.mean_wait_s < 0.9 * spread.mean_wait_s
    assert packed.gpu_hours.lost < 0.75 * spread.gpu_hours.lost
    assert packed.gpu_hours.useful > spread.gpu_hours.useful


def test_gangs_that_have_to_stand_under_one_switch_do(ran: Runs) -> None:
    result = ran("training-cluster", "tonnage")
    leaf = {f"base-{i + 1:02d}": i // 4 for i in range(16)}
    binds = [d for d in result.decisions if d.kind == "Bind" and "/llama-70b-" in d.target]
    at: dict[tuple[str, float], set[int]] = {}
    for one in binds:
        gang = one.target.rpartition("/")[2].rsplit("-", 2)[0]
        at.setdefault((gang, one.t_s), set()).add(leaf[one.summary.rpartition(" ")[2]])
    assert len(at) >= 3
    assert {len(leaves) for leaves in at.values()} == {1}


@pytest.mark.fuzz
def test_at_a_surge_inference_takes_the_room_of_training_and_gives_it_back(ran: Runs) -> None:
    result = ran("mixed", "preemption")
    ((start_s, end_s, _),) = result.services[0].surges
    evictions = [d for d in result.decisions if d.kind == "Evict"]
    assert evictions and all(start_s < d.t_s < end_s and d.outcome == "Applied" for d in evictions)
    pretrain = next(one for one in _work(result) if one.name.endswith("/pretrain"))
    assert [state for _, state in pretrain.phases] == ["running", "waiting", "starting", "loading", "running", "done"]
    assert 0 < pretrain.gpu_hours.lost < 16 * 10 / 60, "less than what is done between checkpoints"
    assert {one.state for one in _work(result)} == {"done"}
    assert {one.gpu_hours.half for one in _work(result)} == {0.0}


@pytest.mark.fuzz
def test_without_preemption_inference_misses_its_slo_and_training_loses_nothing(ran: Runs) -> None:
    taken, waited = ran("mixed", "preemption"), ran("mixed", "first-come")
    shares = [result.services[0].grace.share or 0.0 for result in (taken, waited)]
    assert shares[0] > shares[1] + 0.2
    assert _head(waited).gpu_hours.lost == 0 and _head(waited).evictions == 0
    assert "Evict" not in waited.decision_counts
