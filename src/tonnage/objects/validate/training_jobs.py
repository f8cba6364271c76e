"""kubeflow.org jobs, TrainJobs' runtimes, Ray and Volcano jobs.

Sources: kubeflow/training-operator pkg/webhooks, kubeflow/mpi-operator pkg/apis/kubeflow/validation/validation.go,
ray-project/kuberay ray-operator/controllers/ray/utils/validation.go, volcano-sh/volcano
pkg/webhooks/admission/jobs/validate/admit_job.go.
"""

from __future__ import annotations

from tonnage.objects.api.errors import label_faults
from tonnage.objects.ray import RayCluster, RayClusterSpec, RayJob, RayService
from tonnage.objects.training import KubeflowJob, MPIJob, PyTorchJob, TrainingRuntime, TrainJob, roles
from tonnage.objects.validate.common import Report
from tonnage.objects.validate.jobs import RESTARTS, template
from tonnage.objects.validate.pod_groups import volcano_topology
from tonnage.objects.validate.served import job_spec
from tonnage.objects.volcano import VolcanoJob

_RESTARTS = ("Always", "OnFailure", "Never", "ExitCode")
_SUBMISSION = ("K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode")
_SINGLE = ("Master", "Chief", "Launcher")


def kubeflow_job(obj: KubeflowJob, report: Report) -> None:
    policy = obj.spec.run_policy
    report.within("spec.runPolicy.backoffLimit", policy.backoff_limit, 0)
    report.one_of("spec.runPolicy.cleanPodPolicy", policy.clean_pod_policy, ("Running", "All", "None"))
    if policy.scheduling_policy is not None:
        report.within("spec.runPolicy.schedulingPolicy.minAvailable", policy.scheduling_policy.min_available, 0)
    found = list(roles(obj))
    if not found:
        report.add("spec", f"a {obj.kind} needs at least one role", "e.g. Worker")
    for role, path, spec in found:
        report.within(f"{path}.replicas", spec.replicas, 0)
        if role in _SINGLE and spec.replicas not in (None, 1):
            report.refuse(f"{path}.replicas", spec.replicas, f"1, as there is one {role}")
        if spec.restart_policy:
            report.one_of(f"{path}.restartPolicy", spec.restart_policy, _RESTARTS)
        template(f"{path}.template", report)
    if isinstance(obj, MPIJob):
        report.one_of(
            "spec.launcherCreationPolicy", obj.spec.launcher_creation_policy, ("AtStartup", "WaitForWorkersReady")
        )
        if obj.spec.mpi_replica_specs.launcher is None:
            report.add("spec.mpiReplicaSpecs.Launcher", "the field is missing", "an MPIJob needs a launcher")
    if isinstance(obj, PyTorchJob) and obj.spec.elastic_policy is not None:
        elastic = obj.spec.elastic_policy
        report.within("spec.elasticPolicy.minReplicas", elastic.min_replicas, 1)
        if elastic.max_replicas is not None and (elastic.min_replicas or 1) > elastic.max_replicas:
            expected = f"at most maxReplicas, {elastic.max_replicas}"
            report.refuse("spec.elasticPolicy.minReplicas", elastic.min_replicas, expected)


def train_job(obj: TrainJob, report: Report) -> None:
    kinds = ("ClusterTrainingRuntime", "TrainingRuntime")
    report.one_of("spec.runtimeRef.kind", obj.spec.runtime_ref.kind, kinds)
    report.not_empty("spec.runtimeRef.name", obj.spec.runtime_ref.name)
    if obj.spec.trainer is not None:
        report.within("spec.trainer.numNodes", obj.spec.trainer.num_nodes, 1)


def training_runtime(obj: TrainingRuntime, report: Report) -> None:
    parts = obj.spec.template.spec.replicated_jobs
    report.unique(
        "spec.template.spec.replicatedJobs[{}].name", [part.name for part in parts], "a replicated job of this name"
    )
    for index in range(len(parts)):
        job_spec(f"spec.template.spec.replicatedJobs[{index}].template.spec", report, restart=RESTARTS)
    if obj.spec.ml_policy is not None:
        report.within("spec.mlPolicy.numNodes", obj.spec.ml_policy.num_nodes, 1)


def ray_cluster(obj: RayCluster, report: Report) -> None:
    _ray("spec", obj.spec, report)


def ray_job(obj: RayJob, report: Report) -> None:
    report.within("spec.backoffLimit", obj.spec.backoff_limit, 0)
    report.one_of("spec.submissionMode", obj.spec.submission_mode, _SUBMISSION)
    if obj.spec.ray_cluster_spec is not None:
        _ray("spec.rayClusterSpec", obj.spec.ray_cluster_spec, report)


def ray_service(obj: RayService, report: Report) -> None:
    _ray("spec.rayClusterConfig", obj.spec.ray_cluster_config, report)


def _ray(path: str, spec: RayClusterSpec, report: Report) -> None:
    template(f"{path}.headGroupSpec.template", report)
    groups = spec.worker_group_specs
    report.unique(
        f"{path}.workerGroupSpecs[{{}}].groupName", [group.group_name for group in groups], "a group of this name"
    )
    for index, group in enumerate(groups):
        at = f"{path}.workerGroupSpecs[{index}]"
        report.matches(f"{at}.groupName", group.group_name, label_faults)
        report.within(f"{at}.numOfHosts", group.num_of_hosts, 1)
        for name, count in (
            ("replicas", group.replicas),
            ("minReplicas", group.min_replicas),
            ("maxReplicas", group.max_replicas),
        ):
            report.within(f"{at}.{name}", count, 0)
        if group.max_replicas is not None and (group.min_replicas or 0) > group.max_replicas:
            report.refuse(f"{at}.minReplicas", group.min_replicas, f"at most maxReplicas, {group.max_replicas}")
        template(f"{at}.template", report)


def volcano_job(obj: VolcanoJob, report: Report) -> None:
    spec = obj.spec
    if not spec.tasks:
        report.add("spec.tasks", "a job needs at least one task", "list it under tasks")
    report.within("spec.maxRetry", spec.max_retry, 0)
    total = sum(task.replicas for task in spec.tasks)
    report.within("spec.minAvailable", spec.min_available, 0)
    if spec.min_available is not None and spec.min_available > total:
        report.refuse("spec.minAvailable", spec.min_available, f"at most the {total} replicas of the tasks")
    report.unique("spec.tasks[{}].name", [task.name for task in spec.tasks], "a task of this name")
    volcano_topology("spec.networkTopology", spec.network_topology, report)
    for index, task in enumerate(spec.tasks):
        path = f"spec.tasks[{index}]"
        report.within(f"{path}.replicas", task.replicas, 0)
        if task.min_available is not None and task.min_available > task.replicas:
            report.refuse(f"{path}.minAvailable", task.min_available, f"at most the task's {task.replicas} replicas")
        template(f"{path}.template", report)
