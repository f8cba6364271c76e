"""The API resources from which gangs are read: pod groups, the workloads that imply them, and what both refer to.

A cluster has those that somebody installed: an informer of a kind that is not served waits for it to appear. Of groups
that come in several versions a server may serve several: they then show the same objects.
Sources: the projects named in :mod:`tonnage.workloads.marks`.
"""

from __future__ import annotations

from tonnage.kube import resources
from tonnage.kube.resources import AGE, JOBS, PRIORITY_CLASSES, PrinterColumn, Resource
from tonnage.objects import batch, core, groups, leaderworker, ray, training, volcano
from tonnage.objects.base import KubeObject


def _custom(
    group: str,
    version: str,
    kind: str,
    plural: str,
    *,
    namespaced: bool = True,
    columns: tuple[PrinterColumn, ...] = (),
) -> Resource:
    names: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    printed = (*columns, AGE) if columns else ()
    return Resource(group, version, kind, plural, kind.lower(), namespaced, *names, ("status",), True, columns=printed)


_STATE = (PrinterColumn("State", "string", "status.conditions[last].type"),)


JOB_SETS = _custom(
    "jobset.x-k8s.io",
    "v1alpha2",
    "JobSet",
    "jobsets",
    columns=(
        PrinterColumn("TerminalState", "string", "status.terminalState"),
        PrinterColumn("Restarts", "string", "status.restarts"),
        PrinterColumn("Completed", "string", "status.conditions[Completed].status"),
        PrinterColumn("Suspended", "string", "spec.suspend"),
    ),
)
PYTORCH_JOBS = _custom("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs", columns=_STATE)
TF_JOBS = _custom("kubeflow.org", "v1", "TFJob", "tfjobs", columns=_STATE)
XGBOOST_JOBS = _custom("kubeflow.org", "v1", "XGBoostJob", "xgboostjobs", columns=_STATE)
JAX_JOBS = _custom("kubeflow.org", "v1", "JAXJob", "jaxjobs", columns=_STATE)
MPI_JOBS = _custom("kubeflow.org", "v2beta1", "MPIJob", "mpijobs", columns=_STATE)
MPI_JOBS_V1 = _custom("kubeflow.org", "v1", "MPIJob", "mpijobs", columns=_STATE)
TRAIN_JOBS = _custom("trainer.kubeflow.org", "v1alpha1", "TrainJob", "trainjobs", columns=_STATE)
TRAINING_RUNTIMES = _custom("trainer.kubeflow.org", "v1alpha1", "TrainingRuntime", "trainingruntimes")
CLUSTER_TRAINING_RUNTIMES = _custom(
    "trainer.kubeflow.org", "v1alpha1", "ClusterTrainingRuntime", "clustertrainingruntimes", namespaced=False
)
LEADER_WORKER_SETS = _custom(
    "leaderworkerset.x-k8s.io",
    "v1",
    "LeaderWorkerSet",
    "leaderworkersets",
    columns=(
        PrinterColumn("Ready", "integer", "status.readyReplicas"),
        PrinterColumn("Desired", "integer", "spec.replicas"),
        PrinterColumn("Up-to-date", "integer", "status.updatedReplicas"),
    ),
)
RAY_CLUSTERS = _custom(
    "ray.io",
    "v1",
    "RayCluster",
    "rayclusters",
    columns=(
        PrinterColumn("desired workers", "integer", "status.desiredWorkerReplicas"),
        PrinterColumn("available workers", "integer", "status.availableWorkerReplicas"),
        PrinterColumn("status", "string", "status.state"),
    ),
)
RAY_JOBS = _custom(
    "ray.io",
    "v1",
    "RayJob",
    "rayjobs",
    columns=(
        PrinterColumn("job status", "string", "status.jobStatus"),
        PrinterColumn("deployment status", "string", "status.jobDeploymentStatus"),
    ),
)
RAY_SERVICES = _custom(
    "ray.io",
    "v1",
    "RayService",
    "rayservices",
    columns=(PrinterColumn("service status", "string", "status.serviceStatus"),),
)
VOLCANO_JOBS = _custom(
    "batch.volcano.sh",
    "v1alpha1",
    "Job",
    "jobs",
    columns=(
        PrinterColumn("STATUS", "string", "status.state.phase"),
        PrinterColumn("minAvailable", "integer", "spec.minAvailable"),
        PrinterColumn("RUNNINGS", "integer", "status.running"),
    ),
)

WORKLOADS: tuple[tuple[Resource, type[KubeObject]], ...] = (
    (JOBS, batch.Job),
    (JOB_SETS, batch.JobSet),
    (PYTORCH_JOBS, training.PyTorchJob),
    (TF_JOBS, training.TFJob),
    (XGBOOST_JOBS, training.XGBoostJob),
    (JAX_JOBS, training.JAXJob),
    (MPI_JOBS, training.MPIJob),
    (MPI_JOBS_V1, training.MPIJob),
    (TRAIN_JOBS, training.TrainJob),
    (LEADER_WORKER_SETS, leaderworker.LeaderWorkerSet),
    (RAY_CLUSTERS, ray.RayCluster),
    (RAY_JOBS, ray.RayJob),
    (RAY_SERVICES, ray.RayService),
    (VOLCANO_JOBS, volcano.VolcanoJob),
)
"""Whose controllers make pods."""

GROUPS: tuple[tuple[Resource, type[KubeObject]], ...] = (
    (_custom("scheduling.run.ai", "v2alpha2", "PodGroup", "podgroups"), groups.KaiPodGroup),
    (_custom("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups"), groups.VolcanoPodGroup),
    (_custom("scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups"), groups.CoschedulingPodGroup),
    *(
        (_custom("scheduling.k8s.io", version, "PodGroup", "podgroups"), groups.KubePodGroup)
        for version in ("v1alpha2", "v1alpha3", "v1beta1")
    ),
    *(
        (_custom("scheduling.k8s.io", version, "Workload", "workloads"), groups.KubeWorkload)
        for version in ("v1alpha1", "v1alpha2", "v1alpha3", "v1beta1")
    ),
)
"""What pods name as their group."""

REFERRED: tuple[tuple[Resource, type[KubeObject]], ...] = (
    (PRIORITY_CLASSES, core.PriorityClass),
    (TRAINING_RUNTIMES, training.TrainingRuntime),
    (CLUSTER_TRAINING_RUNTIMES, training.TrainingRuntime),
    (_custom("kai.scheduler", "v1alpha1", "Topology", "topologies", namespaced=False), groups.Topology),
    (_custom("kueue.x-k8s.io", "v1beta1", "Topology", "topologies", namespaced=False), groups.Topology),
    (_custom("kueue.x-k8s.io", "v1beta2", "Topology", "topologies", namespaced=False), groups.Topology),
)
"""What groups and workloads refer to."""

EVERY_KIND = tuple(resource for resource, _ in (*WORKLOADS, *GROUPS, *REFERRED))
ONCE_INSTALLED = (*EVERY_KIND, resources.CLUSTER_POLICIES, resources.COMPUTE_DOMAINS)
"""All that somebody may have installed on a cluster."""


def by_kind(api_version: str, kind: str) -> Resource | None:
    """The resource of an object, by its apiVersion and kind: one of these, or of those that Tonnage knows anyway."""
    known = resources.by_kind(api_version, kind)
    if known is not None:
        return known
    return next((r for r in ONCE_INSTALLED if (r.api_version, r.kind) == (api_version, kind)), None)
