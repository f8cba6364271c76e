"""The contract of the World port on a real kube-apiserver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sampling

from e2e.control_plane import UNTOUCHED
from live.contract import rest, training
from live.contract.cases import APPLIED, MOVED_ON, STALE, Case, Decide, check_applied, check_moved_on, check_stale
from live.contract.cut import bought, example, short_day
from live.contract.faulty import Rates
from live.contract.processes import DRIZZLE, play, set_up
from live.contract.same import broken, check_same, surge
from live.contract.small import Small, build
from tonnage.fleet.invariants import violations
from tonnage.kube.http import open_cluster
from tonnage.kube.resources import ALL
from tonnage.kube.transport import ApiError, Transport
from tonnage.kube.verbs import Client
from tonnage.live.group_kinds import ONCE_INSTALLED

StartPlane = Callable[..., object]
KEPT = ("default", "kube-system", "kube-public", "kube-node-lease")


@pytest.fixture(scope="module")
def transport(start_plane: StartPlane) -> Iterator[Transport]:
    """An API server without any controller."""
    plane = start_plane(controllers=(), scheduler=False, admission_off=UNTOUCHED)
    client = open_cluster(str(plane.kubeconfig()))  # type: ignore[attr-defined]
    yield client.transport
    client.transport.close()


@pytest.fixture
def empty(transport: Transport) -> Transport:
    """The same with nothing in it: what earlier tests have left is deleted."""
    client = Client(transport)
    for resource in (*ALL, *ONCE_INSTALLED):
        if resource.plural in ("namespaces", "events", "leases", "priorityclasses", "services", "serviceaccounts"):
            continue
        for one in _there(client, resource):
            meta = one["metadata"]
            namespace = meta.get("namespace", "")
            if namespace in KEPT[1:]:
                continue
            if meta.get("finalizers"):
                client.patch(resource, meta["name"], {"metadata": {"finalizers": None}}, namespace)
            _delete(client, resource, meta["name"], namespace)
    return transport


def _there(client: Client, resource: object) -> list[dict[str, dict[str, str]]]:
    try:
        return client.list(resource)  # type: ignore[arg-type]
    except ApiError as error:
        if error.code != 404:  # a CRD that is not there yet
            raise
        return []


def _delete(client: Client, resource: object, name: str, namespace: str) -> None:
    try:
        client.delete(resource, name, namespace, grace_s=0, propagation="Background")  # type: ignore[arg-type]
    except ApiError as error:
        if error.code != 404:
            raise


@pytest.fixture
def small(empty: Transport, tmp_path: Path) -> Iterator[Small]:
    made = build(tmp_path, empty)
    yield made
    assert violations(made.world.snapshot().fleet) == []
    made.close()


def test_stale_decisions_say_what_changed_and_change_nothing(small: Small) -> None:
    failed = {}
    for name, case in STALE.items():
        try:
            check_stale(small, case)
        except AssertionError as error:
            failed[name] = str(error)
    assert not failed


@pytest.mark.parametrize("case", MOVED_ON.values(), ids=MOVED_ON)
def test_a_decision_that_the_world_has_overtaken_changes_nothing(small: Small, case: Case) -> None:
    check_moved_on(small, case)


@pytest.mark.parametrize(("decide", "check"), APPLIED.values(), ids=APPLIED)
def test_a_decision_that_holds_takes_effect(small: Small, decide: Decide, check: Callable[[Small], None]) -> None:
    check_applied(small, decide, check)


def test_spot_interruptions_lost_nodes_and_daemon_sets(empty: Transport, tmp_path: Path) -> None:
    check_same(broken(tmp_path, None), broken(tmp_path, empty))


def test_jobs_of_single_pods_that_fail_and_start_again(empty: Transport, tmp_path: Path) -> None:
    check_same(training.jobs(tmp_path, None), training.jobs(tmp_path, empty))


def test_pods_are_moved_as_in_the_simulated_world(empty: Transport, tmp_path: Path) -> None:
    training.check_alike(training.moved(tmp_path, None), training.moved(tmp_path, empty))


@pytest.mark.parametrize(
    ("name", "policy", "minutes"),
    sampling.some(
        "examples with training",
        [
            *(("training-cluster", policy, 840) for policy in ("tonnage", "binpack", "spread", "bestfit", "fgd")),
            *(("mixed", policy, 100) for policy in ("preemption", "first-come")),
        ],
        1,
    ),
)
def test_an_example_with_training_is_decided_as_in_the_simulated_world(
    empty: Transport, name: str, policy: str, minutes: int
) -> None:
    until = minutes if sampling.LONG else minutes // 4
    training.check_alike(training.example(name, policy, until, None), training.example(name, policy, until, empty))


def test_layouts_that_follow_the_load(empty: Transport) -> None:
    minutes = sampling.often("minutes of mig-day-night", 285, 40)
    if sampling.LONG:
        simulated = example("mig-day-night", "relayout", minutes, None)
        check_same(simulated, example("mig-day-night", "relayout", minutes, empty))
    else:
        check_same(short_day(minutes, None), short_day(minutes, empty))


@pytest.mark.parametrize("operator", [False, True], ids=["config maps alone", "a ClusterPolicy names them"])
def test_a_node_pool_that_offers_cut_nodes(empty: Transport, operator: bool, tmp_path: Path) -> None:
    check_same(bought(tmp_path, None, operator=operator), bought(tmp_path, empty, operator=operator))


@pytest.mark.parametrize("policy", ["slo", "corrected"])
def test_the_traffic_surge(empty: Transport, policy: str) -> None:
    minutes = sampling.often(f"minutes of the surge under {policy}", 90, 33)
    check_same(surge(policy, minutes, None), surge(policy, minutes, empty))


@pytest.mark.parametrize("seed", sampling.some("storms over controllers", range(1, 7), 1))
def test_controllers_that_fail_come_to_rest(empty: Transport, seed: int, tmp_path: Path) -> None:
    _play(empty, tmp_path, seed, None)


@pytest.mark.parametrize("seed", sampling.some("storms over controllers and machines", range(101, 107), 1))
def test_controllers_and_machines_that_fail_come_to_rest(empty: Transport, seed: int, tmp_path: Path) -> None:
    _play(empty, tmp_path, seed, DRIZZLE)


def _play(transport: Transport, folder: Path, seed: int, machines: Rates | None) -> None:
    done = play(set_up(folder, seed), transport, seed, machines=machines)
    done.steps.close()
    rest.check(done)
