"""Training work, event by event: gangs run whole, save what they have done, and lose what they have not saved."""

from __future__ import annotations

from pathlib import Path

import pytest
from training_builders import (
    FIRST_START_S,
    GPUS,
    START_S,
    entry,
    exact,
    job,
    job_set,
    killed,
    leader_worker_set,
    load,
    mpi,
    placed,
    play,
    pods_of_group,
    pytorch,
    ray_cluster,
    watched,
    work,
)

from tonnage.machines.cluster import SimulatedCluster
from tonnage.machines.training.part import AT_WORK
from tonnage.simulation.result import TrainingHours

pytestmark = pytest.mark.usefixtures("exact")
__all__ = ["exact"]

SAVED = {"every": "10m", "write": "30s", "load": "60s"}


def _adds_up(hours: TrainingHours) -> bool:
    parts = (hours.useful, hours.lost, hours.checkpoints, hours.starting, hours.broken, hours.half)
    return hours.allocated == pytest.approx(sum(parts), abs=1e-3)


# ---- gangs ----


def test_a_gang_that_arrives_at_the_start_works_from_then_on(tmp_path: Path) -> None:
    result = work(play(load(tmp_path, [pytorch()], [entry("pytorchjob/bert")])), "pytorchjob/bert")
    assert (result.state, result.started_s, result.makespan_s) == ("done", 0.0, 3600.0)
    assert result.gpu_hours == TrainingHours(16.0, 16.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def test_a_gang_without_room_for_all_holds_nothing(tmp_path: Path) -> None:
    held: set[int] = set()

    def look(cluster: SimulatedCluster) -> None:
        held.add(len(cluster.training["ml/pytorchjob/bert"].parts[0].bound))

    made = load(tmp_path, [pytorch(workers=3)], [entry("pytorchjob/bert")], nodes=2)
    watched(made, look)
    assert held == {0}


def test_a_gang_waits_until_the_last_of_its_nodes_is_free(tmp_path: Path) -> None:
    entries = [entry("job/batch"), entry("pytorchjob/bert", arrival="10m")]
    result = play(load(tmp_path, [job(), pytorch()], entries))
    gang = work(result, "pytorchjob/bert")
    assert gang.queue_wait_s == 3000.0
    assert gang.started_s == pytest.approx(3600 + FIRST_START_S)
    assert gang.gpu_hours.half == 0
    assert [state for _, state in gang.phases] == ["waiting", "starting", "running", "done"]


def test_a_gang_works_only_while_enough_of_its_pods_run(tmp_path: Path) -> None:
    def look(cluster: SimulatedCluster) -> None:
        (part,) = cluster.training["ml/pytorchjob/bert"].parts
        assert part.state not in AT_WORK or len(part.ready) == 2

    made = load(tmp_path, [pytorch()], [entry("pytorchjob/bert", arrival="1m")], faults=[
        {"kind": "pod-failure", "at": "30m", "workload": "ml/pytorchjob/bert", "exit": 139},
        {"kind": "node-failure", "at": "40m"},
    ], nodes=3)  # fmt: skip
    watched(made, look)


def test_an_elastic_gang_works_with_its_minimum_and_faster_with_more(tmp_path: Path) -> None:
    elastic = pytorch(workers=4, gpus=4, elasticPolicy={"minReplicas": 2, "maxReplicas": 4})
    whole = play(load(tmp_path, [elastic], [entry("pytorchjob/bert")]))
    assert work(whole, "pytorchjob/bert").makespan_s == 3600
    half = play(load(tmp_path, [elastic], [entry("pytorchjob/bert")], nodes=1))
    assert work(half, "pytorchjob/bert").makespan_s == 7200


def test_an_elastic_gang_grows_when_room_becomes_free(tmp_path: Path) -> None:
    elastic = pytorch(workers=4, gpus=4, elasticPolicy={"minReplicas": 2, "maxReplicas": 4})
    entries = [entry("job/batch", work={"duration": "30m"}), entry("pytorchjob/bert", arrival="1s")]
    made = load(tmp_path, [job(gpus=8), elastic], entries)
    gang = work(play(made), "pytorchjob/bert")
    alone = 1800 + START_S - gang.started_s if gang.started_s is not None else 0
    assert gang.makespan_s == pytest.approx(1800 - 1 + START_S + (3600 - alone / 2), abs=15)


# ---- checkpoints ----


def test_writing_checkpoints_takes_its_time(tmp_path: Path) -> None:
    saved = entry("pytorchjob/bert", checkpoint=SAVED)
    result = work(play(load(tmp_path, [pytorch()], [saved])), "pytorchjob/bert")
    assert result.makespan_s == 3600 + 5 * 30
    assert result.gpu_hours.checkpoints == pytest.approx(16 * 5 * 30 / 3600, abs=1e-4)


def test_a_gang_goes_on_from_its_last_checkpoint_and_loses_what_came_after(tmp_path: Path) -> None:
    made = load(
        tmp_path,
        [pytorch()],
        [entry("pytorchjob/bert", checkpoint=SAVED)],
        faults=[{"kind": "node-failure", "at": "25m"}],
        nodes=3,
    )
    result = work(play(made), "pytorchjob/bert")
    since = 25 * 60 - 2 * 630  # two checkpoints of 10 min work and 30 s writing
    assert result.gpu_hours.lost == pytest.approx(16 * since / 3600, abs=1e-4)
    assert result.gpu_hours.useful == 16
    assert result.makespan_s == pytest.approx(3600 + 5 * 30 + since + FIRST_START_S + 60, abs=1)
    assert _adds_up(result.gpu_hours)


def test_without_checkpoints_everything_is_done_again(tmp_path: Path) -> None:
    faults = [{"kind": "node-failure", "at": "50m"}]
    result = work(
        play(load(tmp_path, [pytorch()], [entry("pytorchjob/bert")], faults=faults, nodes=3)), "pytorchjob/bert"
    )
    assert result.gpu_hours.lost == pytest.approx(16 * 50 / 60, abs=1e-3)
    assert result.makespan_s == pytest.approx(3000 + FIRST_START_S + 3600)


def test_pods_that_wait_for_a_replacement_are_counted_as_broken_not_as_half_a_gang(tmp_path: Path) -> None:
    faults = [{"kind": "node-failure", "at": "30m"}]
    result = work(play(load(tmp_path, [pytorch()], [entry("pytorchjob/bert")], faults=faults)), "pytorchjob/bert")
    assert result.state == "waiting"
    assert result.gpu_hours.broken == pytest.approx(8 * 2.5)
    assert result.gpu_hours.half == 0


def test_communication_between_nodes_makes_steps_longer(tmp_path: Path) -> None:
    steps = {"steps": 600, "step": "6s", "allreduce": "20Gi"}
    result = work(play(load(tmp_path, [pytorch()], [entry("pytorchjob/bert", work=steps)])), "pytorchjob/bert")
    assert result.communication_factor is not None and 1.0 < result.communication_factor < 1.1
    assert result.makespan_s == pytest.approx(3600 * result.communication_factor, rel=1e-4)


# ---- who restarts ----

NODE_LOST = {"kind": "node-failure", "at": "30m"}
KINDS = [
    # manifests, workload, how pods fail, pods that end at once, the state that the workload goes to
    (pytorch(), "pytorchjob/bert", NODE_LOST, {"bert-worker-0"}),
    (job_set(), "jobset/pair", NODE_LOST, {"pair-part-0-0", "pair-part-1-0"}),
    (leader_worker_set(groups=2, size=1), "leaderworkerset/lws", NODE_LOST, {"lws-0"}),
    (leader_worker_set(groups=1, size=2), "leaderworkerset/lws", NODE_LOST, {"lws-0", "lws-0-1"}),
    (mpi(), "mpijob/mpi", NODE_LOST, {"mpi-worker-0", "mpi-launcher"}),
    (ray_cluster(), "raycluster/ray", NODE_LOST, {"ray-gpu-worker-0", "ray-head"}),
    (job(gpus=8, parallelism=2, completions=2), "job/batch", NODE_LOST, {"batch-0"}),
]


@pytest.mark.parametrize(("made", "name", "fault", "ends"), KINDS, ids=[k[1] + f"-{i}" for i, k in enumerate(KINDS)])
def test_a_lost_node_ends_the_pods_that_its_framework_makes_again(
    tmp_path: Path, made: dict, name: str, fault: dict, ends: set[str]
) -> None:
    result = play(
        load(tmp_path, [made], [entry(name, work={"duration": "2h"})], faults=[fault], nodes=4, duration="31m")
    )
    assert set(killed(result)) == ends
    again = {pod for pod, nodes in placed(result).items() if len(nodes) > 1}
    assert again == ends, "they are made again, and no others"
    assert work(result, name).restarts == 1


@pytest.mark.parametrize(
    ("made", "name", "moved"),
    [
        (pytorch(), "pytorchjob/bert", set()),
        (mpi(), "mpijob/mpi", set()),
        (ray_cluster(), "raycluster/ray", set()),
        (job_set(), "jobset/pair", {"pair-part-0-0", "pair-part-1-0"}),
        (leader_worker_set(groups=2, size=1), "leaderworkerset/lws", {"lws-0"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_container_that_exits_restarts_in_its_pod_where_its_framework_lets_it(
    tmp_path: Path, made: dict, name: str, moved: set[str]
) -> None:
    fault = {"kind": "pod-failure", "at": "30m", "workload": f"ml/{name}", "exit": 139}
    saved = entry(name, work={"duration": "2h"}, checkpoint=SAVED)
    result = play(load(tmp_path, [made], [saved], faults=[fault], nodes=4, duration="40m"))
    assert set(killed(result)) == moved
    assert work(result, name).gpu_hours.lost > 0
    assert work(result, name).state == "running"


def test_one_group_that_restarts_leaves_the_others_work_alone(tmp_path: Path) -> None:
    faults = [{"kind": "pod-failure", "at": "30m", "workload": "ml/leaderworkerset/lws", "pod": "lws-1", "exit": 1}]
    made = load(tmp_path, [leader_worker_set(groups=2, size=1)], [entry("leaderworkerset/lws")], faults=faults)
    result = work(play(made), "leaderworkerset/lws")
    assert result.gpu_hours.lost == pytest.approx(8 * 0.5)


def test_pods_lost_at_one_time_are_one_failure(tmp_path: Path) -> None:
    made = load(tmp_path, [job_set(jobs=4, gpus=2, restarts=1)], [entry("jobset/pair")], faults=[NODE_LOST])
    result = play(made)
    assert len({node for nodes in placed(result).values() for node in nodes[:1]}) == 1, "all on one node"
    assert (work(result, "jobset/pair").state, work(result, "jobset/pair").restarts) == ("done", 1)


def test_a_job_that_fails_too_often_is_over_and_its_work_is_lost(tmp_path: Path) -> None:
    faults = [{"kind": "pod-failure", "at": f"{10 + i}m", "workload": "ml/jobset/pair", "exit": 1} for i in (0, 5)]
    result = play(load(tmp_path, [job_set(restarts=1)], [entry("jobset/pair")], faults=faults))
    failed = work(result, "jobset/pair")
    assert (failed.state, failed.finished_s, failed.makespan_s) == ("failed", 900.0, None)
    assert failed.gpu_hours.useful == 0
    assert result.gpu_hours.allocated == pytest.approx(failed.gpu_hours.allocated)


def test_bare_pods_that_are_lost_are_not_made_again(tmp_path: Path) -> None:
    made = load(tmp_path, pods_of_group(), [entry("podgroup/group")], faults=[NODE_LOST], nodes=3)
    result = play(made)
    assert work(result, "podgroup/group").state == "failed"
    assert set(killed(result)) == {"group-0", "group-1"}


def test_a_failed_gpu_takes_its_pod_with_it(tmp_path: Path) -> None:
    faults = [{"kind": "gpu-failure", "at": "30m", "duration": "5m"}]
    result = play(load(tmp_path, [pytorch()], [entry("pytorchjob/bert", checkpoint=SAVED)], faults=faults))
    gang = work(result, "pytorchjob/bert")
    assert gang.state == "done" and gang.restarts == 1
    assert gang.gpu_hours.broken == pytest.approx(GPUS * (5 * 60 - 1) / 3600, abs=1e-4), (
        "it waits until the GPU is back"
    )


# ---- Jobs ----


def test_a_job_makes_the_next_pod_when_one_has_succeeded(tmp_path: Path) -> None:
    made = load(tmp_path, [job(gpus=8, parallelism=2, completions=5)], [entry("job/batch", work={"duration": "20m"})])
    result = work(play(made), "job/batch")
    assert result.state == "done" and result.pods == 5
    assert result.makespan_s == pytest.approx(3 * 1200 + 2 * START_S)


def test_a_workload_without_an_entry_runs_to_the_end(tmp_path: Path) -> None:
    result = play(load(tmp_path, [pytorch(), job()], [entry("pytorchjob/bert")], nodes=3))
    endless = work(result, "job/batch")
    assert (endless.state, endless.progress, endless.gpu_hours.useful) == ("running", None, 3.0)
    (finding,) = [f for f in result.findings if f.rule == "training-without-work"]
    assert finding.object.name == "batch" and finding.where.line > 0
