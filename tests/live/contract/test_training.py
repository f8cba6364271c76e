"""Training work is the same in every world: decisions, and what becomes of the workloads."""

from __future__ import annotations

from pathlib import Path

import pytest

from deep_seeds import deep
from live.contract import training
from live.contract.faulty import Faulty
from live.contract.processes import DRIZZLE
from live.contract.same import check_same, played
from live.contract.small import QUICK
from live.contract.worlds import APIS, opened
from tonnage.hollow.lockstep import Lockstep, loops_of
from tonnage.kube.resources import CRDS, JOBS, PODS
from tonnage.kube.transport import Transport
from tonnage.kube.verbs import Client
from tonnage.live.group_kinds import JOB_SETS, MPI_JOBS, PYTORCH_JOBS, VOLCANO_JOBS
from tonnage.simulation.driver import LoopDriver
from tonnage.units import NS_PER_S

END_NS = training.END_S * NS_PER_S
EXAMPLES = (
    ("training-cluster", "tonnage", 60, False),
    ("training-cluster", "fgd", 60, False),
)
MORE_EXAMPLES = (
    ("mixed", "preemption", 31, True),
    ("training-cluster", "tonnage", 150, True),
    ("training-cluster", "spread", 130, True),
    *(("training-cluster", policy, 60, False) for policy in ("binpack", "bestfit")),
    ("mixed", "first-come", 20, False),
)
"""Scenario, policy, minutes, and whether pods are evicted for others by then."""


@pytest.mark.parametrize("kind", [APIS[0], *deep(APIS[1:])])
def test_jobs_of_single_pods_that_fail_and_start_again(kind: str, tmp_path: Path) -> None:
    simulated = training.jobs(tmp_path, None)
    assert sum(one.restarts for one in simulated.cluster.training.values()) > 3
    with opened(kind) as transport:
        on_api = training.jobs(tmp_path, transport)
        training.check_alike(simulated, on_api)
        assert transport is not None
        _check_objects(on_api, Client(transport))


def _check_objects(machine: LoopDriver, client: Client) -> None:
    """The API says of every Job and pod what the machines know."""
    over = {key for key, one in machine.cluster.training.items() if one.over}
    complete = {
        f"{one['metadata']['namespace']}/job/{one['metadata']['name']}"
        for one in client.list(JOBS)
        if any(c["type"] == "Complete" for c in one["status"].get("conditions", ()))
    }
    assert complete == {key for key in over if "/job/" in key}
    pods = {one["metadata"]["name"]: one["status"]["phase"] for one in client.list(PODS)}
    done = {name for one in machine.cluster.training.values() for name in one.succeeded}
    succeeded = {name for name, phase in pods.items() if phase == "Succeeded"}
    assert succeeded == done & pods.keys()  # members of elastic gangs that never began are deleted at the end
    assert len(succeeded) >= 0.9 * len(done)
    assert set(pods) - done == {name for _, name in machine.cluster.pods}


def test_gangs_of_many_kinds_end_when_they_do_in_the_simulated_world(tmp_path: Path) -> None:
    simulated = played(training.whole_gangs(tmp_path), END_NS, None)
    assert all(one.over and not one.failed for one in simulated.cluster.training.values())
    with opened("embedded") as transport:
        on_api = played(training.whole_gangs(tmp_path), END_NS, transport)
        check_same(simulated, on_api, more_than=7)
        assert training.ends(on_api) == training.ends(simulated)
        assert transport is not None
        client = Client(transport)
        assert client.get(JOB_SETS, "set", "research")["status"]["terminalState"] == "Completed"
        assert client.get(JOB_SETS, "set", "research")["status"]["restarts"] == 1
        assert client.get(VOLCANO_JOBS, "volcano", "research")["status"]["state"]["phase"] == "Completed"
        for resource, name in ((PYTORCH_JOBS, "torch"), (MPI_JOBS, "mpi")):
            conditions = client.get(resource, name, "research")["status"]["conditions"]
            assert (conditions[-1]["type"], conditions[-1]["status"]) == ("Succeeded", "True")


def test_pods_of_job_sets_that_are_no_gangs_are_bound_as_soon_as_in_the_simulated_world(tmp_path: Path) -> None:
    simulated = played(training.sets_of_one_pod(tmp_path), END_NS, None)
    with opened("embedded") as transport:
        on_api = played(training.sets_of_one_pod(tmp_path), END_NS, transport)
        check_same(simulated, on_api, more_than=2)
        assert training.ends(on_api) == training.ends(simulated)
    assert all(one.over and not one.failed for one in on_api.cluster.training.values())


@pytest.mark.parametrize("seed", [1, *deep([2])])
def test_behind_an_api_that_fails_every_workload_comes_to_its_end(seed: int, tmp_path: Path) -> None:
    made = training.crowded_jobs(tmp_path)
    injected: list[Faulty] = []

    def between(tracked: Transport) -> Transport:
        injected.append(Faulty(tracked, seed))
        return injected[-1]

    with opened("embedded") as transport:
        assert transport is not None
        steps = Lockstep(made, transport, machines=between, delays=QUICK)
        injected[0].rates = DRIZZLE
        machine = LoopDriver(made.cluster, made.recorder(), False, world=steps.world, settle=steps.settle)
        made.start_training()
        machine.start(loops_of(made, steps.world), made.scraper())
        made.break_things()
        machine.play(END_NS // 2, None)
        injected[0].calm()
        machine.play(2 * END_NS, None)
        steps.close()
        assert steps.machines.errors == {}
        ended = {key: one for key, one in made.cluster.training.items() if one.over}
        assert len(ended) >= len(made.cluster.training) - 1
        _check_objects(machine, Client(transport))


@pytest.mark.parametrize("seed", [1, *deep([2, 3])])
def test_behind_an_api_that_fails_gangs_are_preempted_whole_in_the_end(seed: int, tmp_path: Path) -> None:
    made = training.rivals(tmp_path)
    injected: list[Faulty] = []

    def between(tracked: Transport) -> Transport:
        injected.append(Faulty(tracked, seed + 10 * len(injected)))
        return injected[-1]

    with opened("embedded") as transport:
        assert transport is not None
        steps = Lockstep(made, transport, controllers=between, machines=between, delays=QUICK)
        for one in injected:
            one.rates = DRIZZLE
        machine = LoopDriver(made.cluster, made.recorder(), False, world=steps.world, settle=steps.settle)
        made.start_training()
        machine.start(loops_of(made, steps.world), made.scraper())
        machine.play(END_NS // 2, None)
        for one in injected:
            one.calm()
        machine.play(2 * END_NS, None)
        steps.close()
        assert any(one.kind == "Evict" and one.outcome == "Applied" for one in machine.recorder.decisions)
        assert all(one.over and not one.failed for one in made.cluster.training.values())
        assert not any(one.violations() for one in made.cluster.training.values())
        _check_objects(machine, Client(transport))


def test_a_kind_that_is_defined_already_is_left_as_it_is(tmp_path: Path) -> None:
    with opened("embedded") as transport:
        assert transport is not None
        client = Client(transport)
        theirs = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "mpijobs.kubeflow.org", "labels": {"installed": "by-hand"}},
            "spec": {
                "group": "kubeflow.org",
                "scope": "Namespaced",
                "names": {"kind": "MPIJob", "plural": "mpijobs"},
                "versions": [{"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}}],
            },
        }
        client.create(CRDS, theirs)
        machine = played(training.whole_gangs(tmp_path), END_NS, transport)
        assert machine.cluster.training["research/mpijob/mpi"].over
        assert client.get(CRDS, "mpijobs.kubeflow.org")["metadata"]["labels"] == {"installed": "by-hand"}
        listed = client.call("GET", "/apis/kubeflow.org/v1/namespaces/research/mpijobs/mpi").body
        assert b'"apiVersion":"kubeflow.org/v1"' in listed


@pytest.mark.parametrize("case", [*EXAMPLES, *deep(MORE_EXAMPLES)], ids=lambda case: "-".join(map(str, case[:3])))
def test_an_example_with_training_is_decided_on_an_api_as_in_the_simulated_world(
    case: tuple[str, str, int, bool],
) -> None:
    name, policy, minutes, evicts = case
    simulated = training.example(name, policy, minutes, None)
    assert any(one.kind == "Evict" for one in simulated.recorder.decisions) == evicts
    with opened("embedded") as transport:
        on_api = training.example(name, policy, minutes, transport)
        training.check_alike(simulated, on_api)
        assert transport is not None
        _check_objects(on_api, Client(transport))


@pytest.mark.parametrize("kind", ["embedded", *deep(["http"])])
def test_pods_are_moved_on_an_api_as_in_the_simulated_world(kind: str, tmp_path: Path) -> None:
    simulated = training.moved(tmp_path, None)
    moves = [one for one in simulated.recorder.decisions if one.kind == "Evict" and one.summary.startswith("move ")]
    assert len(moves) > 1
    with opened(kind) as transport:
        training.check_alike(simulated, training.moved(tmp_path, transport))


def test_a_replica_is_moved_on_an_api_as_in_the_simulated_world(tmp_path: Path) -> None:
    simulated = training.moved_replicas(tmp_path, None)
    evictions = [one.summary for one in simulated.recorder.decisions if one.kind == "Evict"]
    assert evictions[0] == "move Pod research/web-00001 to base-02 for Pod research/large-0"
    with opened("embedded") as transport:
        training.check_alike(simulated, training.moved_replicas(tmp_path, transport))


def test_the_manager_of_a_cluster_preempts_and_moves_when_the_simulator_does(tmp_path: Path) -> None:
    with opened("embedded") as transport:
        training.check_alike(training.moved(tmp_path, None), training.moved(tmp_path, transport, by_manager=True))
    simulated = played(training.rivals(tmp_path), END_NS, None)
    assert any(one.kind == "Evict" for one in simulated.recorder.decisions)
    with opened("embedded") as transport:
        training.check_alike(simulated, played(training.rivals(tmp_path), END_NS, transport, by_manager=True))


@pytest.mark.fuzz
def test_the_manager_of_a_cluster_takes_room_for_a_surge_when_the_simulator_does() -> None:
    simulated = training.example("mixed", "preemption", 31, None)
    assert any(one.kind == "Evict" for one in simulated.recorder.decisions)
    with opened("embedded") as transport:
        training.check_alike(simulated, training.example("mixed", "preemption", 31, transport, by_manager=True))
