"""Moves that make room, in simulated runs: who waits starts sooner, who is moved goes on elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from run_checks import busy_fleet, check_busy_fleet
from training_builders import entry, exact, job, load, play, work

from tonnage.simulation.result import Result

pytestmark = pytest.mark.usefixtures("exact")
__all__ = ["exact"]


def policies(**more: Any) -> dict[str, dict[str, Any]]:
    """One policy that scatters pods."""
    return {"only": {"manifests": "manifests", "placement": "spread", **more}}


def scattered(tmp_path: Path, *more: dict[str, Any], arrival: str = "65m", **policy: Any) -> Result:
    """Two jobs of two GPUs, one on each node of eight, and one that wants a whole node when they have run for an hour."""
    objects = [job("one", gpus=2), job("two", gpus=2), job("large", gpus=8), *more]
    small = {"work": {"duration": "4h"}, "checkpoint": {"every": "10m"}}
    entries = [entry("job/one", **small), entry("job/two", **small), entry("job/large", arrival=arrival)]
    return play(load(tmp_path, objects, entries, policies=policies(**policy), duration="8h"))


def budget(name: str) -> dict[str, Any]:
    """A PodDisruptionBudget that lets none of a job's pods go."""
    spec = {"maxUnavailable": 0, "selector": {"matchLabels": {"batch.kubernetes.io/job-name": name}}}
    metadata = {"name": f"{name}-stays", "namespace": "ml"}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec}


@pytest.mark.parametrize("preemption", [True, False])
def test_a_job_is_moved_to_make_a_whole_node_free(tmp_path: Path, preemption: bool) -> None:
    result = scattered(tmp_path, defragmentation=True, preemption=preemption)
    large = work(result, "job/large")
    assert large.queue_wait_s is not None and large.queue_wait_s < 60
    moved = [one for one in result.training if one.evictions]
    assert [one.evictions for one in moved] == [1]
    assert moved[0].gpu_hours.lost == pytest.approx(2 * 5 / 60, abs=0.01), "since its last checkpoint, five minutes ago"
    assert {one.state for one in result.training} == {"done"}


def test_pods_that_have_just_started_are_moved_when_they_have_stood_for_a_while(tmp_path: Path) -> None:
    wait_s = work(scattered(tmp_path, arrival="2m", defragmentation=True), "job/large").queue_wait_s
    assert wait_s is not None and 8 * 60 <= wait_s < 20 * 60


def test_nobody_is_moved_unless_the_policy_says_so(tmp_path: Path) -> None:
    result = scattered(tmp_path)
    assert work(result, "job/large").queue_wait_s == pytest.approx(4 * 3600 - 65 * 60, abs=60)
    assert not any(one.evictions for one in result.training)


def test_nobody_is_moved_against_a_disruption_budget(tmp_path: Path) -> None:
    result = scattered(tmp_path, budget("one"), defragmentation=True)
    assert work(result, "job/large").queue_wait_s is not None and work(result, "job/large").queue_wait_s < 60  # type: ignore[operator]
    assert (work(result, "job/one").evictions, work(result, "job/two").evictions) == (0, 1)
    result = scattered(tmp_path, budget("one"), budget("two"), defragmentation=True)
    assert not any(one.evictions for one in result.training)


@pytest.mark.fuzz
def test_in_a_busy_fleet_all_work_is_done_and_no_job_is_moved_again_and_again(tmp_path: Path) -> None:
    result = play(busy_fleet(tmp_path, seed=2))
    check_busy_fleet(result)
    assert sum(one.evictions for one in result.training) > 0
