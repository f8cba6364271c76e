"""Binding a gang: checked whole, called only then, and not gone on with when a call has failed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from live.contract.faulty import Rates, refusal
from live.gangs.gang_cluster import GangCluster, verdicts
from tonnage.control.loops import tick
from tonnage.decisions import Applied, Bind, Decision, Evict, Outcome, Refused, Stale
from tonnage.fleet.invariants import violations
from tonnage.kube.resources import PDBS, PODS
from tonnage.kube.transport import Reply
from tonnage.units import NS_PER_S


@pytest.fixture
def cluster() -> Iterator[GangCluster]:
    made = GangCluster()
    made.node("a", 4)
    yield made
    made.stop()


def decided(cluster: GangCluster) -> list[Decision]:
    """What the scheduler decides, not applied."""
    cluster.see()
    return [*cluster.scheduler.decide(cluster.world)]


def writes(cluster: GangCluster) -> int:
    """How many bindings were asked for so far, done or not."""
    return sum("/binding" in fault for fault in cluster.faulty.made) + sum(cluster.bound().values())


def outcomes(taken: list[tuple[Decision, Outcome]]) -> list[Outcome]:
    return [outcome for decision, outcome in taken if isinstance(decision, Bind)]


def test_when_one_pod_of_a_gang_is_gone_no_call_is_made(cluster: GangCluster) -> None:
    cluster.gang("JobSet", 3, "g")
    cluster.gang("PyTorchJob", 1, "alone")
    binds = decided(cluster)
    gone = cluster.gangs["g"][1].name
    cluster.client.delete(PODS, gone, "ml", grace_s=0)
    cluster.see()
    found = cluster.world.apply_all(binds)
    said = {bind.target.name: outcome for bind, outcome in zip(binds, found, strict=True)}
    assert said.pop(gone) == Stale(f"Pod ml/{gone} is gone")
    assert said.pop("alone-master-0") == Applied()
    why = f"gang ml/jobset/g is bound all or nothing: Pod ml/{gone} is gone"
    assert {str(getattr(outcome, "changed", outcome)) for outcome in said.values()} == {why}
    assert cluster.bound() == {"g": 0, "alone": 1}
    assert not cluster.world.feed.assumed - {("ml", "alone-master-0")}
    assert violations(cluster.world.fleet) == []


def test_when_a_node_is_cordoned_meanwhile_no_pod_of_the_gang_is_bound(cluster: GangCluster) -> None:
    cluster.node("b", 4)
    cluster.gang("LeaderWorkerSet", 6, "g")
    binds = decided(cluster)
    assert {bind.node.name for bind in binds if isinstance(bind, Bind)} == {"a", "b"}
    fleet = cluster.world.fleet
    fleet.set_schedulable(fleet.node_by_name["b"], False)
    assert all(isinstance(outcome, Stale) for outcome in cluster.world.apply_all(binds))
    assert cluster.bound() == {"g": 0}


@pytest.mark.parametrize("fault", ["conflict", "invalid", "error", "unreachable", "lost-undone"])
def test_after_a_call_that_failed_the_gangs_others_are_not_made(cluster: GangCluster, fault: str) -> None:
    cluster.gang("KAI", 4, "g")
    cluster.faulty.next_write("", fault)
    first, second, *rest = outcomes(cluster.tick())
    assert first == Applied()
    assert isinstance(second, Stale | Refused)
    assert all(isinstance(one, Stale) and "all or nothing" in one.changed for one in rest)
    assert cluster.bound() == {"g": 1}
    cluster.clock.at_ns += 2 * 10**9
    cluster.tick()
    assert cluster.bound() == {"g": 4}


def test_a_pod_that_could_not_be_bound_is_the_first_to_be_tried_again(cluster: GangCluster) -> None:
    cluster.gang("Volcano", 4, "g")
    cluster.faulty.next_write("", "", "invalid")
    cluster.tick()
    asked = writes(cluster)
    assert cluster.bound() == {"g": 2}
    cluster.tick()
    assert writes(cluster) == asked, "it is not tried again before its time"
    cluster.clock.at_ns += 2 * 10**9
    cluster.faulty.next_write("invalid")
    cluster.tick()
    assert cluster.bound() == {"g": 2}
    assert writes(cluster) == asked + 1


def test_a_binding_that_nobody_knows_of_stands_and_the_rest_follows(cluster: GangCluster) -> None:
    cluster.gang("JAXJob", 3, "g")
    cluster.faulty.rates = type(cluster.faulty.rates)(read={"unreachable": 1.0})
    cluster.faulty.next_write("lost-done")
    found = outcomes(cluster.tick())
    assert all(isinstance(one, Stale) for one in found)
    assert cluster.bound() == {"g": 1}
    cluster.faulty.calm()
    cluster.clock.at_ns += 2 * 10**9
    cluster.tick()
    assert cluster.bound() == {"g": 3}


@pytest.mark.parametrize("fault", ["crash-before", "crash-after"])
def test_a_new_process_completes_what_a_dead_one_has_begun(cluster: GangCluster, fault: str) -> None:
    cluster.gang("RayCluster", 4, "g")
    cluster.faulty.next_write("", fault)
    cluster.tick()
    assert cluster.restarts == 1
    assert 0 < cluster.bound()["g"] < 4
    cluster.tick()
    assert cluster.bound() == {"g": 4}


def test_a_gang_that_was_begun_and_cannot_be_completed_is_let_go_of(cluster: GangCluster) -> None:
    cluster.gang("TFJob", 4, "g")
    cluster.faulty.next_write("", "", "crash-before")
    cluster.tick()
    cluster.intrude("other")
    cluster.go(50)
    assert cluster.bound() == {"g": 2}
    cluster.go(30)
    assert cluster.bound() == {"g": 0}
    assert cluster.evicted == 2
    cluster.leave("other")
    cluster.tick()
    assert cluster.bound() == {"g": 4}


def test_a_budget_that_forbids_it_puts_the_release_off(cluster: GangCluster) -> None:
    cluster.gang("JobSet", 4, "g")
    cluster.faulty.next_write("", "", "crash-before")
    cluster.tick()
    cluster.intrude("other")
    for pod in cluster.gangs["g"]:
        cluster.client.patch(PODS, pod.name, {"status": {"phase": "Running"}}, "ml", subresource="status")
    selector = {"matchLabels": {"jobset.sigs.k8s.io/jobset-name": "g"}}
    body = {"metadata": {"name": "all"}, "spec": {"maxUnavailable": 0, "selector": selector}}
    cluster.client.create(PDBS, {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", **body}, "ml")
    cluster.go(100)
    assert cluster.bound() == {"g": 2}
    cluster.client.delete(PDBS, "all", "ml")
    cluster.go(20)
    assert cluster.bound() == {"g": 0}


def test_a_gang_that_lost_a_pod_is_left_to_its_framework_for_long(cluster: GangCluster) -> None:
    cluster.gang("PyTorchJob", 4, "g")
    cluster.tick()
    assert cluster.bound() == {"g": 4}
    cluster.clock.at_ns += 3600 * 10**9
    cluster.client.delete(PODS, cluster.gangs["g"][2].name, "ml", grace_s=0)
    cluster.intrude("other")
    cluster.go(1500)
    assert cluster.bound() == {"g": 3}
    cluster.go(600)
    assert cluster.bound() == {"g": 0}


def test_pods_that_have_done_their_work_count_for_their_gang(cluster: GangCluster) -> None:
    cluster.gang("JobSet", 4, "g")
    cluster.tick()
    done, lost, *_ = cluster.gangs["g"]
    cluster.client.patch(PODS, done.name, {"status": {"phase": "Succeeded"}}, "ml", subresource="status")
    cluster.client.delete(PODS, lost.name, "ml", grace_s=0)
    cluster.create(lost)
    cluster.tick()
    assert cluster.bound()["g"] == 4, "the one that succeeded keeps its nodeName"
    assert cluster.evicted == 0


def test_the_calls_of_several_gangs_overlap() -> None:
    cluster = GangCluster(parallel=4)
    try:
        cluster.node("a", 12)
        for number in range(3):
            cluster.gang("JobSet", 4, f"g{number}")
        cluster.faulty.next_write("invalid")
        found = outcomes(cluster.tick())
        assert sum(isinstance(one, Refused) for one in found) == 1
        whole = sorted(n for n in cluster.bound().values() if n == 4)
        assert whole == [4, 4], "the others are not held up"
        assert violations(cluster.world.fleet) == []
        cluster.clock.at_ns += 2 * 10**9
        cluster.tick()
        assert set(cluster.bound().values()) == {4}
    finally:
        cluster.stop()


def test_a_pod_whose_workload_was_not_seen_says_so(cluster: GangCluster) -> None:
    cluster.gang("JobSet", 2, "g")
    cluster.more.remove(*_key(cluster, "g"))
    first = list(verdicts(cluster.tick()))
    assert first == ["gang ml/jobset/g does not exist, or has not been seen yet"] * 2
    cluster.go(110)
    assert cluster.bound() == {"g": 0}
    cluster.go(40)
    assert cluster.bound() == {"g": 2}, "the workload is gone for good"


def _key(cluster: GangCluster, name: str) -> tuple[object, str, str]:
    from live.gangs.gang_objects import place_of
    from tonnage.live.groups import KINDS

    obj = cluster.objects.pop(name)
    return KINDS[place_of(obj)][0], obj.namespace, obj.name


def test_nobody_is_evicted_while_a_gang_can_be_completed(cluster: GangCluster) -> None:
    cluster.gang("MPIJob", 4, "g")
    cluster.faulty.next_write("", "invalid")
    found = cluster.tick()
    cluster.go(200)
    assert not any(isinstance(decision, Evict) for decision, _ in found)
    assert cluster.evicted == 0
    assert cluster.bound() == {"g": 4}


def test_a_gang_of_which_one_pod_is_refused_for_ever_holds_nothing() -> None:
    """By an admission rule on pods/binding, say."""
    cluster = GangCluster()
    cluster.node("n", 4)
    cluster.gang("KAI", 4, "g")
    victim, passed_on = cluster.gangs["g"][2].name, cluster.faulty.request

    def request(method: str, path: str, **more: Any) -> Reply:
        if method == "POST" and path.endswith(f"{victim}/binding"):
            return refusal(403, "Forbidden")
        return passed_on(method, path, **more)

    cluster.faulty.request = request  # type: ignore[method-assign]
    try:
        cluster.go(30, step_s=10)
        assert cluster.bound() == {"g": 2}
        cluster.go(60, step_s=10)
        assert (cluster.bound(), cluster.evicted) == ({"g": 0}, 2)
        cluster.go(600, step_s=10)
        assert (cluster.bound(), cluster.evicted) == ({"g": 0}, 2), "whoever is refused is tried first"
    finally:
        cluster.stop()


def test_a_fault_in_one_call_leaves_nobody_assumed() -> None:
    cluster = GangCluster()
    cluster.node("n", 8)
    for index in range(4):
        cluster.gang("KAI", 1, f"g{index}")
    cluster.see()
    effects, calls = cluster.world._effects, []
    bind = effects.bind

    def fails_once(decision: Bind) -> Outcome:
        calls.append(decision)
        if len(calls) == 2:
            raise ValueError("a fault of ours")
        return bind(decision)

    effects.bind = fails_once  # type: ignore[method-assign]
    try:
        with pytest.raises(ValueError, match="of ours"):
            tick(cluster.scheduler, cluster.world)
        cluster.go(120, step_s=10)
        assert cluster.bound() == {f"g{index}": 1 for index in range(4)}
        assert not cluster.world.feed.assumed
    finally:
        cluster.stop()


def test_pods_that_were_left_behind_a_lost_answer_are_tried_again_without_a_regular_tick() -> None:
    cluster = GangCluster()
    cluster.node("n", 4)
    cluster.gang("KAI", 3, "g")
    cluster.see()
    cluster.world.woken()
    cluster.faulty.next_write("lost-done")
    cluster.faulty.rates = Rates(read={"unreachable": 1.0})
    try:
        cluster.tick()
        cluster.faulty.calm()
        assert cluster.bound() == {"g": 1}
        cluster.clock.at_ns += 2 * NS_PER_S
        cluster.see()
        assert "pod" in cluster.world.woken()
    finally:
        cluster.stop()
