"""Jobs of a JobSet and groups of a LeaderWorkerSet that have a topology domain each: no other stands in it."""

from __future__ import annotations

import re

import pytest

from tonnage.decisions import Bind
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import Fleet, FleetNode, FleetPod
from tonnage.objects.base import KubeObject
from tonnage.scheduling import place
from tonnage.units import GIB, NS_PER_S
from tonnage.workloads.membership import gangs_of, member_of, stamped
from workload_manifests import job_set, leader_worker_set, objects, part

RACK = "example.com/rack"
KEY_OF_ML_LWS_0 = "af107581effda15b11d47b6ba2687cc0a3feedf1"
HOST = "kubernetes.io/hostname"
JOB_SET = f", annotations: {{alpha.jobset.sigs.k8s.io/exclusive-topology: {RACK}}}"
LWS = f", annotations: {{leaderworkerset.sigs.k8s.io/exclusive-topology: {RACK}}}"


def cluster(racks: int, nodes: int = 2, cpu: int = 64) -> Fleet:
    """Racks of nodes, each with room for many pods."""
    fleet = Fleet()
    for rack in range(racks):
        for node in range(nodes):
            allocatable = {"cpu": 1000 * cpu, "memory": 256 * GIB, "pods": 110, "nvidia.com/gpu": 8}
            labels = {RACK: f"r{rack}"}
            fleet.add_node(FleetNode(f"r{rack}-n{node}", allocatable, labels, device_resource="nvidia.com/gpu"))
    return fleet


def stand(fleet: Fleet, *texts: str, only: str = "", now_ns: int = 0) -> dict[str, str]:
    """Where the pods of these objects go: pod → rack. ``only``: those with names that match this are there."""
    given: list[KubeObject] = list(objects(*texts))
    gangs = gangs_of(given)
    for obj in given:
        for pod in stamped(obj, given):
            if not re.search(only, pod.name) or (pod.namespace, pod.name) in fleet.pod_by_key:
                continue
            member = member_of(gangs, pod.namespace, pod.labels, pod.annotations, pod.spec)
            fleet.add_pod(
                FleetPod(
                    pod.namespace,
                    pod.name,
                    pod.name,
                    pod.labels,
                    pod.spec,
                    annotations=pod.annotations,
                    gang=member.gang,
                    subgroup=member.subgroup,
                )
            )
    decided = place.decide(Snapshot(now_ns, fleet, gangs=gangs))
    for one in decided:
        if isinstance(one, Bind):
            fleet.bind(fleet.pod_by_key[one.pod.namespace, one.pod.name], fleet.node_by_name[one.node.name])
    return {one.pod.name: one.node.name.partition("-")[0] for one in decided if isinstance(one, Bind)}


def racks_of(places: dict[str, str], prefix: str) -> set[str]:
    return {rack for name, rack in places.items() if name.startswith(prefix)}


def test_two_jobs_of_a_job_set_with_exclusive_topology_do_not_share_a_rack_that_has_room_for_both() -> None:
    places = stand(cluster(3), job_set(meta=JOB_SET, parts=(part("worker", 2, 3),)))
    assert [len(racks_of(places, f"js-worker-{n}-")) for n in (0, 1)] == [1, 1]
    assert not racks_of(places, "js-worker-0-") & racks_of(places, "js-worker-1-")
    assert len(places) == 6


def test_a_job_set_waits_whole_where_there_are_fewer_racks_than_jobs() -> None:
    assert stand(cluster(2), job_set(meta=JOB_SET, parts=(part("worker", 3, 2),))) == {}
    assert len(stand(cluster(3), job_set(meta=JOB_SET, parts=(part("worker", 3, 2),)))) == 6


def test_another_job_set_of_a_later_decision_and_another_namespace_keeps_out_of_the_rack() -> None:
    fleet = cluster(2)
    first = stand(fleet, job_set(meta=JOB_SET, parts=(part("worker", 1, 2),)))
    other = job_set(meta=JOB_SET, parts=(part("worker", 1, 2),)).replace("namespace: ml", "namespace: other")
    second = stand(fleet, other)
    assert len(first) == len(second) == 2
    assert set(first.values()).isdisjoint(second.values())
    third = job_set(meta=JOB_SET, parts=(part("worker", 1, 2),)).replace("namespace: ml", "namespace: third")
    assert stand(fleet, third) == {}


def test_pods_that_are_of_no_job_set_may_stand_in_the_rack() -> None:
    fleet = cluster(1)
    assert len(stand(fleet, job_set(meta=JOB_SET, parts=(part("worker", 1, 2),)))) == 2
    assert len(stand(fleet, leader_worker_set())) == 10


@pytest.mark.parametrize("annotation", ["", ", alpha.jobset.sigs.k8s.io/node-selector: 'true'"])
def test_where_nodes_are_labelled_by_hand_no_pod_asks_for_others(annotation: str) -> None:
    meta = f", annotations: {{alpha.jobset.sigs.k8s.io/exclusive-topology: {RACK}{annotation}}}"
    [obj] = objects(job_set(meta=meta, parts=(part("worker", 1, 3),)))
    asking = [pod.name for pod in stamped(obj, [obj]) if pod.spec.affinity]
    assert asking == ([] if annotation else ["js-worker-0-0"])


def test_the_webhooks_terms_name_the_key_that_all_pods_of_the_job_have() -> None:
    [obj] = objects(job_set(meta=JOB_SET, parts=(part("worker", 1, 2),)))
    leader, follower = stamped(obj, [obj])
    key = leader.labels["jobset.sigs.k8s.io/job-key"]
    assert follower.labels["jobset.sigs.k8s.io/job-key"] == key
    assert leader.spec.affinity is not None
    near, apart = leader.spec.affinity.pod_affinity, leader.spec.affinity.pod_anti_affinity
    assert near is not None
    assert apart is not None
    [wanted] = near.required_during_scheduling_ignored_during_execution
    [forbidden] = apart.required_during_scheduling_ignored_during_execution
    assert (wanted.topology_key, forbidden.topology_key) == (RACK, RACK)
    assert wanted.label_selector is not None
    assert forbidden.label_selector is not None
    assert [(one.operator, one.values) for one in wanted.label_selector.match_expressions] == [("In", [key])]
    found = [(one.operator, one.values) for one in forbidden.label_selector.match_expressions]
    assert found == [("Exists", []), ("NotIn", [key])]


def test_the_key_of_a_group_is_the_hash_of_namespace_and_leader() -> None:
    """sha1 of ``ml/lws-0``, worked out by sha1sum."""
    [obj] = objects(leader_worker_set())
    assert stamped(obj, [obj])[1].labels["leaderworkerset.sigs.k8s.io/group-key"] == KEY_OF_ML_LWS_0


def test_groups_of_a_leader_worker_set_with_exclusive_topology_have_a_rack_each() -> None:
    places = stand(cluster(3), leader_worker_set(meta=LWS))
    assert len(places) == 10
    groups = [{rack for name, rack in places.items() if name.startswith(f"lws-{n}")} for n in (0, 1)]
    assert [len(racks) for racks in groups] == [1, 1]
    assert groups[0] != groups[1]


def test_a_second_group_without_a_rack_of_its_own_waits() -> None:
    places = stand(cluster(1), leader_worker_set(meta=LWS))
    assert sorted(places) == ["lws-0", "lws-0-1", "lws-0-2", "lws-0-3", "lws-0-4"]


def test_subgroups_with_exclusive_topology_have_a_host_each() -> None:
    meta = f", annotations: {{leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology: {HOST}}}"
    text = leader_worker_set("    subGroupPolicy: {subGroupSize: 2}\n", meta).replace("replicas: 2", "replicas: 1")
    fleet = cluster(1)
    assert len(stand(fleet, text)) == 5
    hosts = {key[1]: fleet.node(fleet.pod(row).node).spec.name for key, row in fleet.pod_by_key.items()}
    first = {hosts[name] for name in ("lws-0", "lws-0-1", "lws-0-2")}
    second = {hosts[name] for name in ("lws-0-3", "lws-0-4")}
    assert len(first) == len(second) == 1
    assert first != second


LEADERS_FIRST = [
    (job_set(meta=JOB_SET, parts=(part("worker", 2, 3),)), "-0$", ["js-worker-0-0", "js-worker-1-0"], 6),
    (leader_worker_set(meta=LWS), r"lws-\d$", ["lws-0", "lws-1"], 10),
]


@pytest.mark.parametrize(("text", "leaders", "first", "pods"), LEADERS_FIRST, ids=["JobSet", "LeaderWorkerSet"])
def test_leaders_whose_followers_are_created_once_they_are_bound_are_not_kept_waiting_for_them(
    text: str, leaders: str, first: list[str], pods: int
) -> None:
    fleet = cluster(3)
    assert stand(fleet, text, only=leaders, now_ns=NS_PER_S) == {}
    found = stand(fleet, text, only=leaders, now_ns=10 * NS_PER_S)
    assert sorted(found) == first
    assert len(set(found.values())) == 2
    rest = stand(fleet, text, now_ns=20 * NS_PER_S)
    assert len(rest) == pods - 2
    for leader in first:
        group = leader if leader.startswith("lws") else leader.removesuffix("-0")
        assert racks_of(rest, f"{group}-") == {found[leader]}


def test_one_leader_after_the_other_is_bound_while_followers_of_the_first_wait() -> None:
    fleet = cluster(3)
    text = job_set(meta=JOB_SET, parts=(part("worker", 2, 3),))
    assert sorted(stand(fleet, text, only="-0-0$", now_ns=10 * NS_PER_S)) == ["js-worker-0-0"]
    found = stand(fleet, text, only="-(0-.|1-0)$", now_ns=20 * NS_PER_S)
    assert sorted(found) == ["js-worker-0-1", "js-worker-0-2", "js-worker-1-0"]
    assert sorted(stand(fleet, text, now_ns=30 * NS_PER_S)) == ["js-worker-1-1", "js-worker-1-2"]


def test_followers_are_waited_for_once_their_leader_is_bound() -> None:
    fleet = cluster(3)
    text = job_set(meta=JOB_SET, parts=(part("worker", 1, 3),))
    assert sorted(stand(fleet, text, only="-0$", now_ns=10 * NS_PER_S)) == ["js-worker-0-0"]
    assert stand(fleet, text, only="-1$", now_ns=20 * NS_PER_S) == {}


def test_a_gang_that_nobody_leads_waits_for_all_its_pods() -> None:
    fleet = cluster(3)
    assert stand(fleet, job_set(parts=(part("worker", 1, 3),)), only="-0$", now_ns=10 * NS_PER_S) == {}


@pytest.mark.parametrize(("racks", "jobs", "room"), [(2, 3, "2 have"), (1, 2, "1 has"), (3, 12, "3 have")])
def test_fewer_racks_than_jobs_are_told_by_number(racks: int, jobs: int, room: str) -> None:
    fleet = cluster(racks)
    assert stand(fleet, job_set(meta=JOB_SET, parts=(part("worker", jobs, 2),))) == {}
    given = objects(job_set(meta=JOB_SET, parts=(part("worker", jobs, 2),)))
    decided = place.decide(Snapshot(0, fleet, gangs=gangs_of(given)))
    assert {one.reason.verdict for one in decided} == {
        f"gang ml/jobset/js needs {jobs} domains of {RACK}, one for each of its jobs alone; {room} room for one"
    }
