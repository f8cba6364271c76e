"""What groups of pods say that cannot be, each with its place."""

from __future__ import annotations

import pytest

from tonnage.workloads.contradictions import never_start, problems_of
from workload_manifests import (
    COSCHEDULING,
    KAI,
    VOLCANO,
    group,
    job,
    job_set,
    leader_worker_set,
    objects,
    pod,
    ray_cluster,
    ray_job,
    training_job,
    volcano_job,
)

TOPOLOGY = group("kai.scheduler/v1alpha1", "  levels: [{nodeLabel: zone}, {nodeLabel: rack}]\n", "dc", "Topology", "")
NAMED = "{pod-group-name: g}"


def told(*texts: str) -> list[str]:
    given = objects(*texts)
    found = (*problems_of(given), *(one.problem for one in never_start(given)))
    return [str(problem).rpartition("w.yaml:")[2] for problem in found]


def test_workloads_that_make_sense_are_told_nothing() -> None:
    kai = group(KAI, "  minMember: 4\n")
    texts = (job(), job_set(), leader_worker_set(), ray_cluster(), ray_job(), volcano_job(), TOPOLOGY, kai)
    assert told(*texts, *(training_job("PyTorchJob", annotations=NAMED),)) == []


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        (
            (group(KAI, "  minMember: 5\n"), training_job("JAXJob", annotations=NAMED)),
            "5:spec.minMember: 5 pods are needed and only 3 are of the group: it can never start (at most 3)",
        ),
        (
            (training_job("PyTorchJob", "  elasticPolicy: {minReplicas: 6}\n"),),
            "5:spec.elasticPolicy.minReplicas: 6 pods are needed and only 4 are of the group: it can never start (at most 4)",
        ),
        (
            (training_job("TFJob", "  runPolicy: {schedulingPolicy: {minAvailable: 9}}\n"),),
            "5:spec.runPolicy.schedulingPolicy.minAvailable: 9 pods are needed and only 4 are of the group: it can never "
            "start (at most 4)",
        ),
        (
            (
                group(KAI, "  minMember: 3\n  subGroups: [{name: a, minMember: 3}]\n"),
                training_job("JAXJob", annotations=NAMED, labels="{kai.scheduler/subgroup-name: b}"),
            ),
            "6:spec.subGroups[0].minMember: subgroup 'a' needs 3 pods and only 0 are of it (at most 0)",
        ),
        (
            (
                group(KAI, "  minMember: 3\n  subGroups: [{name: a, minMember: 3}]\n"),
                training_job("JAXJob", annotations=NAMED, labels="{kai.scheduler/subgroup-name: aa}"),
            ),
            "11:spec: 'aa' is not a subgroup of PodGroup ml/g (did you mean a?)",
        ),
        (
            (
                group(COSCHEDULING, "  minMember: 1\n", "trainers"),
                pod(labels="{scheduling.x-k8s.io/pod-group: trainer}"),
            ),
            "9:metadata.labels.scheduling.x-k8s.io/pod-group: 'trainer' names no group of pods: they wait for it for ever "
            "(did you mean trainers?)",
        ),
        (
            (group(KAI, "  minMember: 1\n"), group(VOLCANO, "  minMember: 2\n")),
            f"9:metadata.name: PodGroup g coexists with one of {KAI}, which is the one that counts (rename one of them)",
        ),
        (
            (
                TOPOLOGY,
                group(KAI, "  minMember: 1\n  topologyConstraint: {topology: dc, requiredTopologyLevel: racks}\n"),
            ),
            "12:spec.topologyConstraint: 'racks' is not a level of Topology dc (did you mean rack?)",
        ),
        (
            (group(KAI, "  minMember: 1\n  topologyConstraint: {topology: d, requiredTopologyLevel: rack}\n"),),
            "6:spec.topologyConstraint: Topology 'd' is not among the objects (add the object, or correct the name)",
        ),
        (
            (group(KAI, "  minMember: 1\n  priorityClassName: trains\n"),),
            "6:spec.priorityClassName: PriorityClass 'trains' is not among the objects: taken as priority 0 "
            "(add the object, or correct the name)",
        ),
        (
            (group(KAI, "  minSubGroup: 1\n  subGroups: [{name: a, minMember: 1}, {name: b, minMember: 1}]\n"),),
            "5:spec.minSubGroup: 1 of 2 subgroups would do; here all are waited for "
            "(give the groups that can do without each other PodGroups of their own)",
        ),
        (
            (group(VOLCANO, "  minMember: 1\n  networkTopology: {mode: hard, highestTierAllowed: 2}\n"),),
            "6:spec.networkTopology: tiers by number are those of HyperNodes, which are not read: no effect "
            "(name a node label as highestTierName)",
        ),
        (
            (pod(annotations="{yunikorn.apache.org/task-groups: 'driver=1'}"),),
            "3:metadata.annotations: yunikorn.apache.org/task-groups: expected a JSON list of objects with name and "
            'minMember ([{"name": "worker", "minMember": 4}])',
        ),
        (
            (
                "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: t}\n"
                "spec: {runtimeRef: {name: torch}}\n",
            ),
            "4:spec.runtimeRef.name: ClusterTrainingRuntime 'torch' is not among the objects: the TrainJob makes no pods "
            "(add the object, or correct the name)",
        ),
    ],
)
def test_a_contradiction_is_told_with_its_place_and_what_to_do(texts: tuple[str, ...], problem: str) -> None:
    assert problem in told(*texts)


def test_a_group_that_no_pod_names_is_made_for_pods_to_come() -> None:
    assert told(group(KAI, "  minMember: 9\n")) == []
