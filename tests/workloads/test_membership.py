"""Which gang each pod is of, from pod groups and from what workloads imply."""

from __future__ import annotations

import pytest

from tonnage.fleet.gangs import ANYWHERE, Gang, SubGroup, TopologyRule
from tonnage.objects import core
from tonnage.workloads.membership import Member, gangs_of, member_of, stamped, topologies_of
from workload_manifests import (
    COSCHEDULING,
    KAI,
    VOLCANO,
    group,
    job,
    job_set,
    leader_worker_set,
    objects,
    part,
    pod,
    ray_cluster,
    ray_job,
    training_job,
    volcano_job,
)

RACK = "example.com/rack"
ZONE = "topology.kubernetes.io/zone"
TOPOLOGY = group(
    "kai.scheduler/v1alpha1", f"  levels: [{{nodeLabel: {ZONE}}}, {{nodeLabel: {RACK}}}]\n", "dc", "Topology", ""
)
CLASSES = "".join(
    f"apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {{name: {name}}}\nvalue: {value}\n---\n"
    for name, value in (("train", 50), ("inference", 125))
)
KUEUE = "kueue.x-k8s.io/podset-"
NO_GANG = Member()


def members(*texts: str) -> dict[str, Member]:
    """The gang and subgroup of every pod of the objects, by the pod's name."""
    given = objects(*texts)
    gangs = gangs_of(given)
    return {
        replica.name: member_of(gangs, replica.namespace, replica.labels, replica.annotations, replica.spec)
        for obj in given
        for replica in stamped(obj, given)
    }


def gang(*texts: str) -> Gang:
    [found] = gangs_of(objects(*texts)).values()
    return found


def test_a_kai_pod_group_has_subgroups_inside_each_other_and_places() -> None:
    text = f"""\
  priorityClassName: inference
  minSubGroup: 2
  topologyConstraint: {{topology: dc, requiredTopologyLevel: {ZONE}}}
  subGroups:
    - {{name: decode, minSubGroup: 2, topologyConstraint: {{topology: dc, preferredTopologyLevel: {RACK}}}}}
    - {{name: leaders, minMember: 1, parent: decode}}
    - {{name: workers, minMember: 4, parent: decode}}
    - {{name: prefill, minMember: 3}}
"""
    found = gangs_of(objects(group(KAI, text), CLASSES, TOPOLOGY))["ml/g"]
    assert found == Gang(
        "ml/g",
        8,
        (
            SubGroup("decode", 5, TopologyRule(preferred=RACK, topology="dc")),
            SubGroup("leaders", 1, parent="decode"),
            SubGroup("workers", 4, parent="decode"),
            SubGroup("prefill", 3),
        ),
        TopologyRule(required=ZONE, topology="dc"),
        "KAI PodGroup",
        125,
        preemptible=False,
    )


@pytest.mark.parametrize(
    ("spec", "preemptible"),
    [
        ("priorityClassName: train", True),
        ("priorityClassName: inference", False),
        ("{priorityClassName: inference, preemptibility: preemptible}", True),
        ("{priorityClassName: train, preemptibility: non-preemptible}", False),
    ],
)
def test_a_kai_pod_group_is_preemptible_below_priority_100_unless_it_says(spec: str, preemptible: bool) -> None:
    found = gangs_of(objects(group(KAI, f"  {spec}\n").replace("spec:\n  {", "spec: {"), CLASSES))["ml/g"]
    assert found.preemptible is preemptible


@pytest.mark.parametrize(
    ("made", "named", "member"),
    [
        (
            group(KAI, "  minMember: 2\n  subGroups: [{name: a, minMember: 2}]\n"),
            pod(annotations="{pod-group-name: g}", labels="{kai.scheduler/subgroup-name: a}"),
            Member("ml/g", "a"),
        ),
        (group(KAI, "  minMember: 2\n"), pod(annotations="{pod-group-name: g}"), Member("ml/g")),
        (
            group(VOLCANO, "  minMember: 2\n  minTaskMember: {ps: 1, w: 1}\n"),
            pod(annotations="{scheduling.k8s.io/group-name: g, volcano.sh/task-spec: w}"),
            Member("ml/g", "w"),
        ),
        (group(COSCHEDULING, "  minMember: 2\n"), pod(labels="{scheduling.x-k8s.io/pod-group: g}"), Member("ml/g")),
        (
            group(COSCHEDULING, "  minMember: 2\n"),
            pod(labels="{pod-group.scheduling.sigs.k8s.io: g}"),
            Member("ml/g"),
        ),
        (
            group("scheduling.k8s.io/v1alpha2", "  schedulingPolicy: {gang: {minCount: 2}}\n"),
            pod(extra="schedulingGroup: {podGroupName: g}, "),
            Member("ml/g"),
        ),
        (
            group("scheduling.k8s.io/v1beta1", "  schedulingPolicy: {basic: {}}\n"),
            pod(extra="schedulingGroup: {podGroupName: g}, "),
            NO_GANG,
        ),
    ],
    ids=[
        "KAI with a subgroup",
        "KAI",
        "Volcano",
        "coscheduling",
        "coscheduling, old label",
        "Kubernetes",
        "Kubernetes, basic",
    ],
)
def test_a_pod_is_of_the_group_that_it_names(made: str, named: str, member: Member) -> None:
    assert members(made, named) == {"p": member}


def test_a_pod_of_another_namespace_is_not_of_a_group_of_that_name() -> None:
    made = group(COSCHEDULING, "  minMember: 2\n", namespace="other")
    assert members(made, pod(labels="{scheduling.x-k8s.io/pod-group: g}")) == {"p": NO_GANG}


def test_each_replica_of_a_workloads_group_is_a_gang_of_its_own() -> None:
    workload = group(
        "scheduling.k8s.io/v1alpha1", "  podGroups: [{name: w, policy: {gang: {minCount: 3}}}]\n", kind="Workload"
    )
    pods = [
        pod(f"p{key}", extra=f"workloadRef: {{name: g, podGroup: w, podGroupReplicaKey: '{key}'}}, ") for key in (0, 1)
    ]
    assert members(workload, *pods) == {"p0": Member("ml/workload/g/w/0"), "p1": Member("ml/workload/g/w/1")}
    assert gangs_of(objects(workload, *pods))["ml/workload/g/w/1"].min_member == 3


def test_groups_that_exist_by_labels_alone_are_found_on_pods_and_templates() -> None:
    old = pod(labels="{pod-group.scheduling.sigs.k8s.io/name: a, pod-group.scheduling.sigs.k8s.io/min-available: '3'}")
    assert gang(old) == Gang("ml/a", 3, source="coscheduling labels")
    kueue = pod(
        labels="{kueue.x-k8s.io/pod-group-name: b}",
        annotations=f"{{kueue.x-k8s.io/pod-group-total-count: '4', {KUEUE}required-topology: {RACK}}}",
    )
    assert gang(kueue) == Gang("ml/b", 4, rule=TopologyRule(required=RACK), source="Kueue pod group")
    deployment = (
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d, namespace: ml}\nspec:\n  replicas: 3\n"
        "  selector: {matchLabels: {app: d}}\n  template:\n    metadata: {labels: {app: d, "
        "pod-group.scheduling.sigs.k8s.io/name: a, pod-group.scheduling.sigs.k8s.io/min-available: '3'}}\n"
        "    spec: {containers: [{name: main, image: img}]}\n"
    )
    assert members(deployment) == {f"d-{n}": Member("ml/a") for n in range(3)}


def test_yunikorns_task_groups_make_a_gang_of_the_application() -> None:
    groups = '[{"name": "driver", "minMember": 1}, {"name": "worker", "minMember": 3}]'
    first = pod(
        "p0",
        labels="{applicationId: app}",
        annotations=f"{{yunikorn.apache.org/task-groups: '{groups}', yunikorn.apache.org/task-group-name: driver}}",
    )
    other = pod("p1", labels="{applicationId: app}", annotations="{yunikorn.apache.org/task-group-name: worker}")
    assert members(first, other) == {"p0": Member("ml/app", "driver"), "p1": Member("ml/app", "worker")}
    assert gang(first, other).min_member == 4


def test_a_job_is_no_gang_unless_it_says_how_many_pods_it_needs() -> None:
    assert gangs_of(objects(job())) == {}
    assert members(job()) == {f"j-{n}": NO_GANG for n in range(4)}
    needs = job(meta=", annotations: {kai.scheduler/batch-min-member: '3'}")
    assert (gang(needs).key, gang(needs).min_member) == ("ml/job/j", 3)


def test_a_jobs_topology_request_to_kueue_makes_a_gang_of_all_its_pods() -> None:
    request = f"{{{KUEUE}preferred-topology: {RACK}, {KUEUE}slice-size: '2', {KUEUE}slice-required-topology: host}}"
    text = job(annotations=request)
    rule = TopologyRule(preferred=RACK, slice_size=2, slice_required="host")
    assert gang(text) == Gang("ml/job/j", 4, rule=rule, source="Job")
    fewer = job(annotations=request, meta=", annotations: {kueue.x-k8s.io/job-min-parallelism: '2'}")
    assert gang(fewer).min_member == 2
    unconstrained = job(annotations=f"{{{KUEUE}unconstrained-topology: 'true'}}")
    assert gang(unconstrained).rule == TopologyRule(unconstrained=True)


def test_a_training_job_needs_all_its_pods() -> None:
    found = gang(training_job("PyTorchJob"))
    assert found == Gang("ml/pytorchjob/t", 4, (SubGroup("master", 1), SubGroup("worker", 3)), source="PyTorchJob")
    assert members(training_job("PyTorchJob"))["t-worker-2"] == Member("ml/pytorchjob/t", "worker")
    assert members(training_job("PyTorchJob"))["t-master-0"] == Member("ml/pytorchjob/t", "master")
    for kind, count in (("TFJob", 4), ("XGBoostJob", 4), ("JAXJob", 3), ("MPIJob", 4)):
        assert gang(training_job(kind)).min_member == count
    assert members(training_job("MPIJob"))["t-launcher"] == Member("ml/mpijob/t", "launcher")


def test_an_elastic_training_job_needs_its_minimum_and_min_available_says_it_otherwise() -> None:
    elastic = "  elasticPolicy: {minReplicas: 2}\n"
    found = gang(training_job("PyTorchJob", elastic, workers=7))
    assert (found.min_member, found.subgroups) == (2, (SubGroup("master", 1), SubGroup("worker", 1)))
    policy = "  runPolicy: {schedulingPolicy: {minAvailable: 5}}\n"
    assert gang(training_job("PyTorchJob", elastic + policy, workers=7)).min_member == 5
    flat = gang(training_job("TFJob", policy, workers=7))
    assert (flat.min_member, flat.subgroups) == (5, ())


def test_segments_of_workers_are_slices() -> None:
    request = f"{{kai.scheduler/segment-size: '2', kai.scheduler/segment-topology-required-placement: {RACK}}}"
    [_, worker] = gang(training_job("PyTorchJob", annotations=request)).subgroups
    assert worker.rule == TopologyRule(slice_size=2, slice_required=RACK)


def test_a_launcher_that_waits_for_the_workers_is_not_waited_for() -> None:
    found = gang(training_job("MPIJob", "  launcherCreationPolicy: WaitForWorkersReady\n"))
    assert (found.min_member, found.subgroups) == (3, (SubGroup("launcher", 0), SubGroup("worker", 3)))


def test_kueues_pod_set_groups_stand_in_one_domain_together() -> None:
    request = f"{{{KUEUE}required-topology: {RACK}, {KUEUE}group-name: both}}"
    found = gang(training_job("MPIJob", annotations=request))
    assert found.subgroups == (
        SubGroup("both", 4, TopologyRule(required=RACK)),
        SubGroup("launcher", 1, ANYWHERE, "both"),
        SubGroup("worker", 3, ANYWHERE, "both"),
    )


def test_each_group_of_a_leader_worker_set_is_a_gang() -> None:
    found = gangs_of(objects(leader_worker_set()))
    assert list(found) == ["ml/leaderworkerset/lws-0", "ml/leaderworkerset/lws-1"]
    assert found["ml/leaderworkerset/lws-1"].subgroups == (SubGroup("leader", 1), SubGroup("workers", 4))
    seen = members(leader_worker_set())
    assert seen["lws-1"] == Member("ml/leaderworkerset/lws-1", "leader")
    assert seen["lws-0-4"] == Member("ml/leaderworkerset/lws-0", "workers")


def test_workers_that_are_made_when_their_leader_is_ready_are_a_gang_without_it() -> None:
    text = leader_worker_set(spec="  startupPolicy: LeaderReady\n")
    assert {(found.min_member, found.subgroups) for found in gangs_of(objects(text)).values()} == {(4, ())}


def test_the_subgroups_of_a_leader_worker_set_have_places_of_their_own() -> None:
    meta = f", annotations: {{leaderworkerset.sigs.k8s.io/exclusive-topology: {ZONE}, leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology: {RACK}}}"
    found = gangs_of(objects(leader_worker_set("    subGroupPolicy: {subGroupSize: 2}\n", meta)))[
        "ml/leaderworkerset/lws-0"
    ]
    rack = TopologyRule(required=RACK)
    assert (found.rule, found.subgroups) == (
        TopologyRule(required=ZONE, led=True),
        (SubGroup("subgroup-0", 3, rack), SubGroup("subgroup-1", 2, rack)),
    )
    seen = members(leader_worker_set("    subGroupPolicy: {subGroupSize: 2}\n", meta))
    assert [seen[name].subgroup for name in ("lws-0", "lws-0-1", "lws-0-2", "lws-0-3", "lws-0-4")] == [
        "subgroup-0",
        "subgroup-0",
        "subgroup-0",
        "subgroup-1",
        "subgroup-1",
    ]
    apart = "    subGroupPolicy: {subGroupSize: 2, subGroupPolicyType: LeaderExcluded}\n"
    assert members(leader_worker_set(apart, meta))["lws-0"].subgroup == "leader"


def test_a_job_set_is_one_gang_of_all_its_jobs() -> None:
    assert gang(job_set()) == Gang("ml/jobset/js", 7, (SubGroup("leader", 1), SubGroup("worker", 6)), source="JobSet")
    assert members(job_set())["js-worker-1-2"] == Member("ml/jobset/js", "worker")


def test_replicated_jobs_that_start_one_after_another_are_gangs_of_their_own() -> None:
    in_order = gangs_of(objects(job_set("  startupPolicy: {startupPolicyOrder: InOrder}\n")))
    assert {key: found.min_member for key, found in in_order.items()} == {"ml/jobset/js/worker": 6}
    later = job_set(
        parts=(part("init", 1, 2), part("train", 2, 2, extra=", dependsOn: [{name: init, status: Complete}]"))
    )
    found = gangs_of(objects(later))
    assert {key: one_gang.min_member for key, one_gang in found.items()} == {"ml/jobset/js": 2, "ml/jobset/js/train": 4}
    assert members(later)["js-train-1-0"].gang == "ml/jobset/js/train"
    per_part = gangs_of(objects(job_set("  gangPolicy: {policy: JobSetGangPerReplicatedJob}\n")))
    assert list(per_part) == ["ml/jobset/js/worker"]


def test_each_job_of_a_job_set_with_exclusive_topology_stands_in_one_domain() -> None:
    text = job_set(meta=f", annotations: {{alpha.jobset.sigs.k8s.io/exclusive-topology: {RACK}}}")
    rack = TopologyRule(required=RACK, led=True)
    assert gang(text).subgroups == (
        SubGroup("leader", 1),
        SubGroup("leader-replica-0", 1, rack, "leader"),
        SubGroup("worker", 6),
        SubGroup("worker-replica-0", 3, rack, "worker"),
        SubGroup("worker-replica-1", 3, rack, "worker"),
    )
    assert members(text)["js-worker-1-2"] == Member("ml/jobset/js", "worker-replica-1")


@pytest.mark.report(104)
@pytest.mark.parametrize(
    ("more", "workers", "needed"),
    [
        ("", "replicas: 3", 4),
        ("", "replicas: 3, minReplicas: 1, maxReplicas: 5", 2),
        ("enableInTreeAutoscaling: true\n", "replicas: 3, maxReplicas: 5", 1),
        ("", "replicas: 2, numOfHosts: 4", 9),
    ],
    ids=["replicas", "minimum", "autoscaling from none", "several hosts"],
)
def test_a_ray_cluster_needs_its_head_and_the_minimum_of_its_workers(more: str, workers: str, needed: int) -> None:
    found = gangs_of(objects(ray_cluster(more, workers=workers)))
    assert sum(one_gang.min_member for one_gang in found.values()) == needed


def test_the_pods_of_a_ray_job_are_of_its_clusters_gang_and_its_submitter_of_none() -> None:
    seen = members(ray_job())
    assert seen["rj-head"] == Member("ml/raycluster/rj", "headgroup")
    assert seen["rj-gpu-worker-1"] == Member("ml/raycluster/rj", "gpu")
    assert seen["rj"] == NO_GANG


def test_a_volcano_job_needs_all_its_tasks_or_as_many_as_it_says() -> None:
    found = gang(volcano_job())
    assert (found.key, found.min_member, found.subgroups) == (
        "ml/vcjob/v",
        4,
        (SubGroup("ps", 1), SubGroup("worker", 3)),
    )
    assert members(volcano_job())["v-worker-0"] == Member("ml/vcjob/v", "worker")
    fewer = gang(volcano_job("  minAvailable: 2\n"))
    assert (fewer.min_member, fewer.subgroups) == (2, ())


VOLCANO_TASKS = """\
  tasks:
    - {name: a, replicas: 5, minAvailable: 3, template: {spec: {containers: [{name: main, image: img}]}}}
    - {name: b, replicas: 2, %stemplate: {spec: {containers: [{name: main, image: img}]}}}
"""


@pytest.mark.report(207)
@pytest.mark.parametrize(
    ("needed", "of_b", "minima"),
    [
        (1, "minAvailable: 2, ", None),  # one pod by itself: no gang
        (4, "minAvailable: 2, ", {"": 4}),
        (5, "minAvailable: 2, ", {"": 5, "a": 3, "b": 2}),
        (6, "minAvailable: 2, ", {"": 6, "a": 3, "b": 2}),
        (6, "", {"": 6, "a": 3, "b": 2}),  # a task that does not say needs all its replicas
        (4, "", {"": 4}),
        (0, "minAvailable: 1, ", {"": 4, "a": 3, "b": 1}),
    ],
)
def test_minima_of_volcanos_tasks_count_unless_the_jobs_own_is_below_their_sum(
    needed: int, of_b: str, minima: dict[str, int] | None
) -> None:
    meta = "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {name: v, namespace: ml}\n"
    found = gangs_of(objects(f"{meta}spec:\n  minAvailable: {needed}\n{VOLCANO_TASKS % of_b}"))
    assert {name: least for one in found.values() for name, least in one.minima.items() if least} == (minima or {})


@pytest.mark.report(207)
@pytest.mark.parametrize(("needed", "minima"), [(1, [0, 0]), (4, [0, 0]), (5, [3, 2]), (7, [3, 2])])
def test_minima_of_tasks_of_a_volcano_pod_group_count_as_those_of_a_job(needed: int, minima: list[int]) -> None:
    spec = f"  minMember: {needed}\n  minTaskMember: {{a: 3, b: 2}}\n"
    found = gang(group("scheduling.volcano.sh/v1beta1", spec))
    assert found.min_member == needed
    assert [one.min_member for one in found.subgroups] == minima


def test_a_train_job_is_the_gang_of_the_job_set_that_its_runtime_makes() -> None:
    runtime = (
        "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: ClusterTrainingRuntime\nmetadata: {name: torch}\nspec:\n"
        f"  mlPolicy: {{numNodes: 2}}\n  template: {{spec: {{replicatedJobs: [{part('node', 1, 1)}]}}}}\n"
    )
    trained = (
        "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: tj, namespace: ml}\n"
        "spec: {runtimeRef: {name: torch}, trainer: {numNodes: 4, resourcesPerNode: {limits: {nvidia.com/gpu: 8}}}}\n"
    )
    assert gang(runtime, trained) == Gang("ml/jobset/tj", 4, source="TrainJob")
    given = objects(runtime, trained)
    [*pods] = stamped(given[1], given)
    assert [replica.name for replica in pods] == [f"tj-node-0-{n}" for n in range(4)]
    assert core.pod_requests(pods[0].spec) == {"nvidia.com/gpu": 8}
    assert members(runtime, trained)["tj-node-0-3"] == Member("ml/jobset/tj")
    assert members(trained) == {}


def test_a_pod_group_that_pods_name_wins_over_what_their_workload_implies() -> None:
    made = group(KAI, "  minMember: 2\n")
    text = training_job("PyTorchJob", annotations="{pod-group-name: g}")
    assert set(members(made, text).values()) == {Member("ml/g")}
    assert set(members(text).values()) == {Member("ml/pytorchjob/t", "master"), Member("ml/pytorchjob/t", "worker")}


def test_an_implied_gang_has_the_priority_of_its_pods_or_of_the_class_that_it_names() -> None:
    spec = training_job("PyTorchJob", extra="priorityClassName: train, ")
    assert gangs_of(objects(spec, CLASSES))["ml/pytorchjob/t"].priority == 50
    policy = training_job("PyTorchJob", "  runPolicy: {schedulingPolicy: {priorityClass: inference}}\n")
    assert gangs_of(objects(policy, CLASSES))["ml/pytorchjob/t"].priority == 125
    label = training_job(
        "PyTorchJob", meta=", labels: {priorityClassName: train, kai.scheduler/preemptibility: non-preemptible}"
    )
    found = gangs_of(objects(label, CLASSES))["ml/pytorchjob/t"]
    assert (found.priority, found.preemptible) == (50, False)


def test_a_rule_that_names_no_topology_has_the_only_one_with_its_levels() -> None:
    text = job(annotations=f"{{{KUEUE}required-topology: {RACK}}}")
    assert gang(text, TOPOLOGY).rule.topology == "dc"
    other = group("kueue.x-k8s.io/v1beta2", f"  levels: [{{nodeLabel: {RACK}}}]\n", "racks", "Topology", "")
    assert gang(text, TOPOLOGY, other).rule.topology == ""
    assert topologies_of(objects(TOPOLOGY, other)) == {"dc": (ZONE, RACK), "racks": (RACK,)}


def test_kais_annotations_on_a_workload_place_its_gang() -> None:
    meta = f", annotations: {{kai.scheduler/topology: dc, kai.scheduler/topology-required-placement: {ZONE}}}"
    assert gang(training_job("JAXJob", meta=meta)).rule == TopologyRule(required=ZONE, topology="dc")


def test_a_gang_is_as_old_as_its_object() -> None:
    text = training_job("JAXJob", meta=", creationTimestamp: '2026-03-02T09:00:00Z'")
    assert gang(text).created_ns == 1_772_442_000 * 10**9
