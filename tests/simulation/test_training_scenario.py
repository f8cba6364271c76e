"""What a scenario may say about training work, what it may not, and what becomes of it."""

from __future__ import annotations

import io
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from training_builders import (
    GPUS,
    entry,
    exact,
    job,
    job_set,
    load,
    placed,
    play,
    pods_of_group,
    pytorch,
    watched,
    work,
)

from tonnage.cli import output
from tonnage.errors import InputError
from tonnage.fleet.gangs import Gang, SubGroup
from tonnage.machines.cluster import SimulatedCluster
from tonnage.simulation import run
from tonnage.simulation.report.comparison import compare

pytestmark = pytest.mark.usefixtures("exact")
__all__ = ["exact"]

ZONE_SPREAD = {"nodes": [{"instanceType": "p5.48xlarge", "count": 2, "zone": "us-east-1a", "labels": {"rack": "r1"}},
                         {"instanceType": "p5.48xlarge", "count": 2, "zone": "us-east-1b", "labels": {"rack": "r2"}}]}  # fmt: skip


def _mistakes(folder: Path, objects: list[dict[str, Any]], *entries: dict[str, Any], **more: Any) -> dict[str, str]:
    """Field → message of every problem."""
    with pytest.raises(InputError) as caught:
        run.set_up(load(folder, objects, entries, **more), "only")
    assert all(p.where.line > 0 and p.where.file.endswith("scenario.yaml") for p in caught.value.problems)
    return {p.where.field: p.message + (f" ({p.hint})" if p.hint else "") for p in caught.value.problems}


# ---- mistakes ----

WRONG = [
    ({"workload": "bert"}, "workload", "expected namespace/kind/name"),
    ({"arrival": "soon"}, "arrival", '"soon" is not a duration'),
    ({"arrival": ["2h", "1h"]}, "arrival", "expected the earlier time first"),
    ({"copies": 0}, "copies", "0, expected 1 to"),
    ({"work": {}}, "work", "none of gpuHours, duration and steps, expected one"),
    ({"work": {"gpuHours": 1, "duration": "1h"}}, "work", "gpuHours and duration of gpuHours, duration and steps"),
    ({"work": {"gpuHours": -1}}, "work.gpuHours", "expected a finite number above 0"),
    ({"work": {"steps": 10}}, "work", "expected steps together with the duration of a step"),
    ({"work": {"steps": 0, "step": "1s"}}, "work.steps", "expected at least 1"),
    ({"work": {"duration": "0s"}}, "work.duration", "is not above 0"),
    ({"work": {"duration": "1h", "allreduce": "1Gi"}}, "work.allreduce", "expected steps and step beside it"),
    ({"work": {"steps": 1, "step": "1s", "allreduce": "much"}}, "work.allreduce", "is not a number of bytes above 0"),
    ({"checkpoint": {"every": "0s"}}, "checkpoint.every", "is not above 0"),
    ({"checkpoint": {"every": "1m", "load": "x"}}, "checkpoint.load", "is not a duration"),
]


@pytest.mark.parametrize(("changes", "field", "message"), WRONG)
def test_a_mistake_in_an_entry_is_told_where_it_stands(
    tmp_path: Path, changes: dict[str, Any], field: str, message: str
) -> None:
    found = _mistakes(tmp_path, [pytorch()], entry("pytorchjob/bert") | changes)
    assert message in found[f"training[0].{field}"]


def test_a_workload_that_the_manifests_do_not_have_is_told_with_the_nearest(tmp_path: Path) -> None:
    found = _mistakes(tmp_path, [pytorch()], entry("pytorchjob/brt"))
    assert "no such workload" in found["training[0].workload"]
    assert "did you mean ml/pytorchjob/bert?" in found["training[0].workload"]


def test_a_workload_stands_once(tmp_path: Path) -> None:
    found = _mistakes(tmp_path, [pytorch()], entry("pytorchjob/bert"), entry("pytorchjob/bert"))
    assert "appears twice" in found["training[1].workload"]


def test_copies_of_what_shares_a_pod_group_are_refused(tmp_path: Path) -> None:
    found = _mistakes(tmp_path, pods_of_group(), entry("podgroup/group", copies=2))
    assert "copies of them would be one group" in found["training[0].copies"]


def test_workloads_that_nobody_gives_work_run_without_end(tmp_path: Path) -> None:
    (work,) = run.run(load(tmp_path, [pytorch()], ()), "only").training or ()
    assert (work.state, work.progress) == ("running", None)


@pytest.mark.parametrize(
    ("fault", "field", "message"),
    [
        ({"kind": "pod-failure"}, "workload", "needs the workload whose pods fail"),
        ({"kind": "pod-failure", "workload": "ml/pytorchjob/x"}, "workload", "did you mean ml/pytorchjob/bert?"),
        (
            {"kind": "pod-failure", "workload": "ml/pytorchjob/bert", "exit": 0},
            "exit",
            "exit code from 1 to 255, or oom",
        ),
        ({"kind": "node-failure", "workload": "ml/pytorchjob/bert"}, "workload", "only faults of pods have it"),
        ({"kind": "gpu-failure", "exit": "oom"}, "exit", "only a pod-failure has it"),
    ],
)
def test_a_mistake_in_a_fault_is_told(tmp_path: Path, fault: dict[str, Any], field: str, message: str) -> None:
    found = _mistakes(tmp_path, [pytorch()], entry("pytorchjob/bert"), faults=[{"at": "1m", **fault}])
    assert message in found[f"faults[0].{field}"]


def test_an_unknown_placement_policy_is_told_with_those_that_there_are(tmp_path: Path) -> None:
    policies = {"only": {"manifests": "manifests", "placement": "best"}}
    found = _mistakes(tmp_path, [pytorch()], entry("pytorchjob/bert"), policies=policies)
    assert "expected one of" in found["policies.only.placement"]
    assert all(name in found["policies.only.placement"] for name in ("tonnage", "fgd", "binpack", "spread", "bestfit"))


# ---- arrivals and copies ----


def test_each_copy_arrives_at_a_time_of_its_own_that_the_seed_draws(tmp_path: Path) -> None:
    made = load(tmp_path, [job()], [entry("job/batch", copies=3, arrival=["1m", "1h"], work={"duration": "5m"})])
    first, again, other = (play(made, seed=seed).training for seed in (1, 1, 2))
    assert isinstance(first, list) and isinstance(again, list) and isinstance(other, list)
    assert [one.name for one in first] == [f"ml/job/batch-{i}" for i in (1, 2, 3)]
    assert {one.copy_of for one in first} == {"ml/job/batch"}
    arrivals = [[one.arrival_s for one in run] for run in (first, again, other)]
    assert arrivals[0] == arrivals[1] != arrivals[2]
    assert len(set(arrivals[0])) == 3 and all(60 <= t <= 3600 for t in arrivals[0])


@pytest.mark.fuzz
def test_runs_of_one_seed_are_equal_to_the_byte(tmp_path: Path) -> None:
    faults = [{"kind": "node-failure", "at": "20m"}]
    entries = [
        entry("job/batch", copies=5, arrival=["0s", "1h"]),
        entry("pytorchjob/bert", checkpoint={"every": "10m"}),
    ]
    made = load(tmp_path, [job(gpus=4), pytorch()], entries, nodes=4, faults=faults)
    assert output.json_bytes(play(made, seed=3)) == output.json_bytes(play(made, seed=3))


# ---- placement ----


def test_a_policy_chooses_how_pods_are_placed(tmp_path: Path) -> None:
    policies = {name: {"manifests": "manifests", "placement": name} for name in ("binpack", "spread")}
    made = load(tmp_path, [job(parallelism=2, completions=2)], [entry("job/batch")], policies=policies)
    nodes = {name: {node for there in placed(play(made, name)).values() for node in there} for name in policies}
    assert (len(nodes["binpack"]), len(nodes["spread"])) == (1, 2)


def test_a_required_level_keeps_a_gang_together_by_the_labels_of_the_fleet(tmp_path: Path) -> None:
    near = {"annotations": {"kueue.x-k8s.io/podset-required-topology": "rack"}}
    blocker = entry("job/batch", work={"duration": "2h"})
    objects = [job(gpus=8), pytorch(pod={"meta": near})]
    made = load(tmp_path, objects, [blocker, entry("pytorchjob/bert", arrival="1m")], fleet=ZONE_SPREAD)
    nodes = {node for pod, there in placed(play(made)).items() if pod.startswith("bert") for node in there}
    assert nodes == {"base-03", "base-04"}, "base-01 is taken, so r1 has no room for both"


def test_pods_of_other_schedulers_are_placed_here(tmp_path: Path) -> None:
    made = load(tmp_path, [job(pod={"schedulerName": "volcano"})], [entry("job/batch")])
    assert work(play(made), "job/batch").state == "done"


# ---- parts of GPUs ----


def test_pods_with_parts_of_a_gpu_share_it_and_are_charged_for_their_part(tmp_path: Path) -> None:
    half = {"meta": {"annotations": {"gpu-fraction": "0.5"}}}
    made = load(tmp_path, [job(gpus=None, pod=half, parallelism=2, completions=2)], [entry("job/batch")], duration="1h")
    held: set[Fraction] = set()

    def look(cluster: SimulatedCluster) -> None:
        held.update(Fraction(pod.held.gpus) for pod in cluster.pods.values() if pod.bound_ns is not None)
        assert sum(cluster.fleet.devices[cluster.fleet.node_by_name["base-01"]] != -1) <= 1

    watched(made, look)
    assert held == {Fraction(1, 2)}
    result = play(made)
    assert work(result, "job/batch").gpus == 1.0
    assert result.gpu_hours.allocated == work(result, "job/batch").gpu_hours.useful == 1.0
    (line,) = [line for line in result.cost.lines if line.owner]
    assert line.used_micro_usd == pytest.approx(55_040_000 / GPUS, rel=1e-6)


# ---- priorities ----


def _classes(policy: str = "PreemptLowerPriority") -> list[dict[str, Any]]:
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "preemptionPolicy": policy}
    return [{**kind, "metadata": {"name": name}, "value": value} for name, value in (("high", 1000), ("low", 1))]


@pytest.mark.parametrize("preemption", [True, False])
def test_a_gang_of_higher_priority_takes_the_room_of_a_whole_gang(tmp_path: Path, preemption: bool) -> None:
    objects = [
        *_classes(),
        pytorch("low", pod={"priorityClassName": "low"}),
        pytorch("high", pod={"priorityClassName": "high"}),
    ]
    saved = {"every": "10m"}
    entries = [entry("pytorchjob/low", checkpoint=saved), entry("pytorchjob/high", arrival="25m")]
    policies = {"only": {"manifests": "manifests", "placement": "binpack", "preemption": preemption}}
    result = play(load(tmp_path, objects, entries, policies=policies))
    low, high = work(result, "pytorchjob/low"), work(result, "pytorchjob/high")
    assert (low.state, high.state) == ("done", "done")
    assert low.gpu_hours.half == high.gpu_hours.half == 0
    if preemption:
        assert high.queue_wait_s is not None and high.queue_wait_s < 60
        assert low.evictions == 2 and low.gpu_hours.lost == pytest.approx(16 * 5 / 60, abs=1e-3)
        assert low.gpu_hours.useful == 16
    else:
        assert high.queue_wait_s == 3600 - 25 * 60
        assert low.evictions == 0


def test_a_gang_whose_class_never_preempts_waits_for_its_turn(tmp_path: Path) -> None:
    jobs = [pytorch(name, pod={"priorityClassName": name}) for name in ("low", "high")]
    entries = [entry("pytorchjob/low"), entry("pytorchjob/high", arrival="25m")]
    policies = {"only": {"manifests": "manifests", "placement": "binpack"}}
    result = play(load(tmp_path, [*_classes("Never"), *jobs], entries, policies=policies))
    assert work(result, "pytorchjob/low").evictions == 0
    assert work(result, "pytorchjob/high").queue_wait_s == 3600 - 25 * 60


# ---- what people see ----


def test_runs_are_compared_by_their_training_work(tmp_path: Path) -> None:
    made = load(tmp_path, [job_set()], [entry("jobset/pair")])
    rows = {row.label: row.texts for row in compare([play(made), play(made)]).rows if row.group == "Training"}
    assert rows["Workloads done"] == ("1", "1")
    assert rows["Last one done after"] == ("1:00:00", "1:00:00")
    assert rows["GPU-hours of partial gangs"] == ("0.00", "0.00")
    assert "Communication factor" not in rows, "nothing is known of it"


def test_the_table_has_a_row_for_all_copies_of_a_workload(tmp_path: Path) -> None:
    made = load(tmp_path, [job(), pytorch()], [entry("job/batch", copies=3), entry("pytorchjob/bert")], nodes=3)

    console = Console(width=80, no_color=True, record=True, file=io.StringIO())
    output.summary(play(made), console)
    lines = console.export_text().splitlines()
    assert any(line.split()[:5] == ["job/batch", "3", "of", "3", "done"] for line in lines)
    assert any(line.split()[:2] == ["pytorchjob/bert", "done"] for line in lines)
    assert max(map(len, lines)) <= 80
    assert not any("SLO" in line or "Tokens" in line for line in lines)


# ---- when a gang is whole ----

TREE = Gang("g", 4, (SubGroup("a", 3), SubGroup("a1", 1, parent="a"), SubGroup("b", 1)))


@pytest.mark.parametrize(
    ("members", "whole"),
    [
        (["a1", "a1", "a1", "b"], True),
        (["a1", "a", "a", "b"], True),
        (["a", "a", "a", "b"], False),  # a1 has none
        (["a1", "a", "b", "b"], False),  # a has two
        (["a1", "a", "a", ""], False),  # b has none
        (["a1", "a", "a"], False),  # three of four
    ],
)
def test_a_gang_is_whole_when_all_of_its_minimums_are_reached(members: list[str], whole: bool) -> None:
    assert TREE.is_whole(members) is whole


def test_half_a_gang_is_found_by_the_check(tmp_path: Path) -> None:
    found: list[str] = []

    def look(cluster: SimulatedCluster, until_ns: int) -> None:
        (training,) = cluster.training.values()
        (part,) = training.parts
        if cluster.now_ns > 0 and not found and part.ready:
            next(iter(part.pods.values())).ready_ns = None
            found.extend(training.violations())

    made = load(tmp_path, [pytorch()], [entry("pytorchjob/bert")], duration="1m")
    run.run(made, "only", run.RunOptions(observer=look))
    assert found == ["ml/pytorchjob/bert: running with 1 pods, fewer than its minimum"]
