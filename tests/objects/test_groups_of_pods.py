"""Groups of pods, topologies, and batch and training workloads, as they are read and refused."""

from __future__ import annotations

import pytest
from objects_builders import read, refusals, warnings

from tonnage.objects import batch, core, groups, leaderworker, load, ray, training, volcano
from workload_manifests import (
    COSCHEDULING,
    KAI,
    VOLCANO,
    group,
    job,
    job_set,
    leader_worker_set,
    part,
    pod,
    ray_cluster,
    ray_job,
    template,
    training_job,
    volcano_job,
)

SUBGROUPS = "  subGroups:\n    - {name: a, minSubGroup: 1}\n    - {name: b, minMember: 2, parent: a}\n"
TOPOLOGY = "  levels:\n    - {nodeLabel: topology.kubernetes.io/zone}\n    - {nodeLabel: kubernetes.io/hostname}\n"
RUNTIME = f"""\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {{name: torch, labels: {{trainer.kubeflow.org/framework: torch}}}}
spec:
  mlPolicy: {{numNodes: 1, torch: {{numProcPerNode: auto}}}}
  podGroupPolicy: {{coscheduling: {{}}}}
  template: {{spec: {{replicatedJobs: [{part("node", 1, 1)}]}}}}
"""
TRAIN_JOB = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: tj, namespace: ml}
spec:
  runtimeRef: {name: torch}
  trainer: {numNodes: 4, command: [torchrun], resourcesPerNode: {limits: {nvidia.com/gpu: 8}}}
"""
READ = [
    (group(KAI, "  minSubGroup: 1\n  queue: q\n  preemptibility: preemptible\n" + SUBGROUPS), groups.KaiPodGroup),
    (group(KAI, "  minMember: 2\n  topologyConstraint: {topology: t, requiredTopologyLevel: x}\n"), groups.KaiPodGroup),
    (group("kai.scheduler/v1alpha1", TOPOLOGY, kind="Topology", namespace=""), groups.Topology),
    (group("kueue.x-k8s.io/v1beta1", TOPOLOGY, kind="Topology", namespace=""), groups.Topology),
    (group("kueue.x-k8s.io/v1beta2", TOPOLOGY, kind="Topology", namespace=""), groups.Topology),
    (
        group(VOLCANO, "  minMember: 2\n  queue: q\n  minTaskMember: {a: 1}\n  networkTopology: {mode: soft}\n"),
        groups.VolcanoPodGroup,
    ),
    (group(COSCHEDULING, "  minMember: 2\n  scheduleTimeoutSeconds: 10\n"), groups.CoschedulingPodGroup),
    (
        group("scheduling.k8s.io/v1alpha2", "  schedulingPolicy: {gang: {minCount: 2}}\n  podGroupTemplateRef: {}\n"),
        groups.KubePodGroup,
    ),
    (
        group("scheduling.k8s.io/v1alpha1", "  podGroups: [{name: w, policy: {basic: {}}}]\n", kind="Workload"),
        groups.KubeWorkload,
    ),
    (
        group("scheduling.k8s.io/v1beta1", "  controllerRef: {}\n  podGroupTemplates: []\n", kind="Workload"),
        groups.KubeWorkload,
    ),
    (job("  ttlSecondsAfterFinished: 5\n"), batch.Job),
    (volcano_job("  schedulerName: volcano\n  minAvailable: 4\n"), volcano.VolcanoJob),
    (job_set("  network: {enableDNSHostnames: true}\n  failurePolicy: {maxRestarts: 2}\n"), batch.JobSet),
    (leader_worker_set("    restartPolicy: None\n"), leaderworker.LeaderWorkerSet),
    (training_job("PyTorchJob", "  elasticPolicy: {minReplicas: 1, rdzvBackend: c10d}\n"), training.PyTorchJob),
    (training_job("TFJob"), training.TFJob),
    (training_job("XGBoostJob"), training.XGBoostJob),
    (training_job("JAXJob"), training.JAXJob),
    (training_job("MPIJob", "  slotsPerWorker: 8\n"), training.MPIJob),
    (training_job("MPIJob").replace("v2beta1", "v1"), training.MPIJob),
    (RUNTIME, training.TrainingRuntime),
    (TRAIN_JOB, training.TrainJob),
    (ray_cluster("rayVersion: '2.50'\n"), ray.RayCluster),
    (ray_job("  shutdownAfterJobFinishes: true\n"), ray.RayJob),
    (pod(extra="schedulingGroup: {podGroupName: g}, "), core.Pod),
    (pod(extra="workloadRef: {name: w, podGroup: a, podGroupReplicaKey: '0'}, "), core.Pod),
]


@pytest.mark.parametrize(("text", "kind"), READ, ids=[kind.__name__ for _, kind in READ])
def test_a_manifest_becomes_its_kind_without_a_warning_and_is_written_as_it_was_read(text: str, kind: type) -> None:
    manifest = read(text)
    assert (manifest.problems, [type(obj) for obj in manifest.objects]) == ((), [kind])
    assert load.dump(read(load.dump(manifest.objects)).objects) == load.dump(manifest.objects)


def test_a_field_that_nobody_knows_is_told_with_its_place_and_the_near_one() -> None:
    text = training_job("PyTorchJob", "  runPolicy:\n    schedulingPolicy: {minAvailble: 3}\n")
    hint = "did you mean minAvailable?"
    assert warnings(text) == [f"6:spec.runPolicy.schedulingPolicy.minAvailble: unknown field 'minAvailble' ({hint})"]
    roles = training_job("PyTorchJob").replace("Worker:", "Workers:")
    assert warnings(roles) == [
        "7:spec.pytorchReplicaSpecs.Workers: unknown field 'Workers' (did you mean Worker?)",
    ]


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        (
            group(KAI, "  subGroups:\n    - {name: a, minMember: 1}\n    - {name: a, minMember: 1}\n"),
            '7:spec.subGroups[1].name: "a": a subgroup of this name appears twice (rename or remove one)',
        ),
        (
            group(KAI, "  subGroups:\n    - {name: a, minMember: 1, parent: c}\n    - {name: b, minMember: 1}\n"),
            '6:spec.subGroups[0].parent: "c": expected one of a, b (the parent is a subgroup of this group)',
        ),
        (
            group(KAI, "  subGroups:\n    - {name: a, parent: b}\n    - {name: b, parent: a}\n"),
            '6:spec.subGroups[0].parent: "b": expected a parent outside this subgroup (break the cycle)',
        ),
        (
            group(KAI, "  subGroups:\n    - {name: a, minMember: 3}\n    - {name: b, minMember: 2, parent: a}\n"),
            "6:spec.subGroups[0].minMember: 3: expected none, as it has subgroups (use minSubGroup)",
        ),
        (
            group(KAI, "  subGroups:\n    - {name: a}\n"),
            "6:spec.subGroups[0].minMember: the field is missing (a subgroup without subgroups needs it)",
        ),
        (
            group(KAI, "  minMember: 2\n  minSubGroup: 1\n" + SUBGROUPS),
            "6:spec.minSubGroup: is set together with minMember (set one of them)",
        ),
        (
            group(KAI, "  minSubGroup: 3\n" + SUBGROUPS),
            "5:spec.minSubGroup: 3: expected at most the 1 subgroups inside",
        ),
        (
            group(KAI, "  preemptibility: never\n"),
            '5:spec.preemptibility: "never": expected one of preemptible, non-preemptible',
        ),
        (
            group(
                "kueue.x-k8s.io/v1beta2",
                "  levels: [{nodeLabel: kubernetes.io/hostname}, {nodeLabel: x}]\n",
                kind="Topology",
            ),
            '5:spec.levels[0].nodeLabel: "kubernetes.io/hostname": expected to be the last level (hosts are the innermost)',
        ),
        (group(COSCHEDULING, "  minMember: 0\n"), "5:spec.minMember: 0: expected at least 1"),
        (
            group(VOLCANO, "  networkTopology: {mode: firm}\n"),
            '5:spec.networkTopology.mode: "firm": expected one of hard, soft',
        ),
        (
            group("scheduling.k8s.io/v1alpha2", "  schedulingPolicy: {}\n"),
            "5:spec.schedulingPolicy: expected either basic or gang (set exactly one of them)",
        ),
        (
            group("scheduling.k8s.io/v1alpha2", "  schedulingPolicy: {gang: {minCount: 0}}\n"),
            "5:spec.schedulingPolicy.gang.minCount: 0: expected at least 1",
        ),
        (
            job(restart="Always"),
            '8:spec.template.spec.restartPolicy: valid values: "OnFailure", "Never" (a Job ends some day)',
        ),
        (
            job("  podFailurePolicy: {rules: []}\n", "OnFailure"),
            '9:spec.template.spec.restartPolicy: "OnFailure": only "Never" is supported when podFailurePolicy is specified',
        ),
        (
            job("  podFailurePolicy: {rules: [{action: FailIndex, onPodConditions: [{type: DisruptionTarget}]}]}\n"),
            '8:spec.podFailurePolicy.rules[0].action: "FailIndex": requires the backoffLimitPerIndex to be set',
        ),
        (
            job_set("  failurePolicy: {rules: [{name: r, action: RestartJobset}]}\n"),
            '5:spec.failurePolicy.rules[0].action: "RestartJobset": expected one of FailJobSet, RestartJobSet, '
            "RestartJobSetAndIgnoreMaxRestarts, RestartJob, RestartJobAndIgnoreMaxRestarts (did you mean RestartJobSet?)",
        ),
        (
            job_set(parts=(part("a", 1, 1, extra=", dependsOn: [{name: b, status: Ready}]"), part("b", 1, 1))),
            '6:spec.replicatedJobs[0].dependsOn[0].name: "b": expected a replicated job listed before this one',
        ),
        (
            leader_worker_set("    subGroupPolicy: {subGroupSize: 3}\n"),
            "8:spec.leaderWorkerTemplate.subGroupPolicy.subGroupSize: 3: expected a divisor of 5 or 4",
        ),
        (
            leader_worker_set("    restartPolicy: RecreateGroup\n"),
            '8:spec.leaderWorkerTemplate.restartPolicy: "RecreateGroup": expected one of RecreateGroupOnPodRestart, '
            "RecreateGroupAfterStart, None, Default (did you mean RecreateGroupAfterStart?)",
        ),
        (
            training_job("PyTorchJob").replace("Master: {replicas: 1", "Master: {replicas: 2"),
            "6:spec.pytorchReplicaSpecs.Master.replicas: 2: expected 1, as there is one Master",
        ),
        (
            training_job("PyTorchJob", "  elasticPolicy: {minReplicas: 4, maxReplicas: 3}\n"),
            "5:spec.elasticPolicy.minReplicas: 4: expected at most maxReplicas, 3",
        ),
        (
            training_job("JAXJob", "", "Sometimes"),
            '6:spec.jaxReplicaSpecs.Worker.restartPolicy: "Sometimes": expected one of Always, OnFailure, Never, ExitCode',
        ),
        (
            training_job("MPIJob").replace(f"    Launcher: {{replicas: 1, template: {template()}}}\n", ""),
            "5:spec.mpiReplicaSpecs.Launcher: the field is missing (an MPIJob needs a launcher)",
        ),
        (
            ray_cluster(workers="minReplicas: 5, maxReplicas: 2"),
            "7:spec.workerGroupSpecs[0].minReplicas: 5: expected at most maxReplicas, 2",
        ),
        (
            volcano_job("  minAvailable: 5\n"),
            "5:spec.minAvailable: 5: expected at most the 4 replicas of the tasks",
        ),
        (
            training_job("TFJob", workers=2).replace("replicas: 2", "replicas: two"),
            '7:spec.tfReplicaSpecs.Worker.replicas: "two": expected an integer',
        ),
    ],
)
def test_what_the_api_server_or_a_webhook_refuses_is_refused(text: str, refused: str) -> None:
    assert f"x.yaml:{refused}" in refusals(text)
