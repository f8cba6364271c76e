"""kubeflow.org jobs, and trainer.kubeflow.org TrainJob with its runtimes.

Sources of the field names: kubeflow/training-operator pkg/apis/kubeflow.org/v1 (1.9), kubeflow/mpi-operator
pkg/apis/kubeflow/v2beta1 (0.6), kubeflow/trainer pkg/apis/trainer/v1alpha1 (2.0 and later).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from tonnage.objects.base import Field, KubeObject, ObjectMeta
from tonnage.objects.batch import JobSetSpec
from tonnage.objects.core import PodTemplateSpec, ResourceRequirements


class TrainingSchedulingPolicy(Field, frozen=True, kw_only=True):
    """``min_available``: pods that the gang needs; all without it."""

    min_available: int | None = None
    priority_class: str = ""


class RunPolicy(Field, frozen=True, kw_only=True):
    """``clean_pod_policy``: which pods end with the job: Running, All or None."""

    scheduling_policy: TrainingSchedulingPolicy | None = None
    backoff_limit: int | None = None
    clean_pod_policy: str = "None"
    suspend: bool = False


class ReplicaSpec(Field, frozen=True, kw_only=True):
    """The pods of one role. ``restart_policy``: Always, OnFailure, Never or ExitCode."""

    template: PodTemplateSpec
    replicas: int | None = None
    restart_policy: str = ""


class PyTorchReplicaSpecs(Field, frozen=True, kw_only=True, rename="pascal"):
    """Roles of a PyTorchJob or XGBoostJob."""

    master: ReplicaSpec | None = None
    worker: ReplicaSpec | None = None


class TFReplicaSpecs(Field, frozen=True, kw_only=True, rename="pascal"):
    """Roles of a TFJob."""

    chief: ReplicaSpec | None = None
    master: ReplicaSpec | None = None
    evaluator: ReplicaSpec | None = None
    ps: ReplicaSpec | None = msgspec.field(default=None, name="PS")
    worker: ReplicaSpec | None = None


class MPIReplicaSpecs(Field, frozen=True, kw_only=True, rename="pascal"):
    """Roles of an MPIJob."""

    launcher: ReplicaSpec | None = None
    worker: ReplicaSpec | None = None


class JAXReplicaSpecs(Field, frozen=True, kw_only=True, rename="pascal"):
    """Roles of a JAXJob."""

    worker: ReplicaSpec | None = None


class ElasticPolicy(Field, frozen=True, kw_only=True):
    """How many pods torchrun goes on with."""

    min_replicas: int | None = None
    max_replicas: int | None = None
    max_restarts: int | None = None


class PyTorchJobSpec(Field, frozen=True, kw_only=True):
    """Training with torch.distributed."""

    pytorch_replica_specs: PyTorchReplicaSpecs
    run_policy: RunPolicy = RunPolicy()
    elastic_policy: ElasticPolicy | None = None


class TFJobSpec(Field, frozen=True, kw_only=True):
    """Training with TensorFlow. ``success_policy``: empty, or AllWorkers."""

    tf_replica_specs: TFReplicaSpecs
    run_policy: RunPolicy = RunPolicy()
    success_policy: str = ""
    enable_dynamic_worker: bool = False


class XGBoostJobSpec(Field, frozen=True, kw_only=True):
    """Training with XGBoost."""

    xgb_replica_specs: PyTorchReplicaSpecs
    run_policy: RunPolicy = RunPolicy()


class JAXJobSpec(Field, frozen=True, kw_only=True):
    """Training with JAX."""

    jax_replica_specs: JAXReplicaSpecs
    run_policy: RunPolicy = RunPolicy()


class MPIJobSpec(Field, frozen=True, kw_only=True):
    """A launcher that starts ranks on the workers. ``launcher_creation_policy``: AtStartup or WaitForWorkersReady."""

    mpi_replica_specs: MPIReplicaSpecs
    run_policy: RunPolicy = RunPolicy()
    launcher_creation_policy: str = "AtStartup"


class PyTorchJob(KubeObject, kw_only=True):
    """kubeflow.org/v1 PyTorchJob."""

    spec: PyTorchJobSpec


class TFJob(KubeObject, kw_only=True):
    """kubeflow.org/v1 TFJob."""

    spec: TFJobSpec


class XGBoostJob(KubeObject, kw_only=True):
    """kubeflow.org/v1 XGBoostJob."""

    spec: XGBoostJobSpec


class JAXJob(KubeObject, kw_only=True):
    """kubeflow.org/v1 JAXJob."""

    spec: JAXJobSpec


class MPIJob(KubeObject, kw_only=True):
    """kubeflow.org/v2beta1 and v1 MPIJob."""

    spec: MPIJobSpec


KubeflowJob = PyTorchJob | TFJob | XGBoostJob | JAXJob | MPIJob

_SPECS = {
    PyTorchJob: "pytorch_replica_specs",
    TFJob: "tf_replica_specs",
    XGBoostJob: "xgb_replica_specs",
    JAXJob: "jax_replica_specs",
    MPIJob: "mpi_replica_specs",
}


def roles(job: KubeflowJob) -> Iterator[tuple[str, str, ReplicaSpec]]:
    """(role, path of its spec, spec) of each role that the job has, in the order of the fields."""
    attribute = _SPECS[type(job)]
    specs = getattr(job.spec, attribute)
    encoded = {field.name: field.encode_name for field in msgspec.structs.fields(job.spec)}[attribute]
    for field in msgspec.structs.fields(specs):
        spec = getattr(specs, field.name)
        if spec is not None:
            yield field.encode_name, f"spec.{encoded}.{field.encode_name}", spec


class RuntimeRef(Field, frozen=True, kw_only=True):
    """Names a ClusterTrainingRuntime, or a TrainingRuntime of the TrainJob's namespace."""

    name: str
    kind: str = "ClusterTrainingRuntime"


class Trainer(Field, frozen=True, kw_only=True):
    """What the TrainJob has otherwise than its runtime."""

    num_nodes: int | None = None
    resources_per_node: ResourceRequirements | None = None
    image: str = ""


class TrainJobSpec(Field, frozen=True, kw_only=True):
    """A runtime, and what is otherwise."""

    runtime_ref: RuntimeRef
    trainer: Trainer | None = None
    suspend: bool = False


class TrainJob(KubeObject, kw_only=True):
    """trainer.kubeflow.org/v1alpha1 TrainJob."""

    spec: TrainJobSpec


class MPIMLPolicy(Field, frozen=True, kw_only=True):
    """``run_launcher_as_node``: the launcher is one of the nodes."""

    run_launcher_as_node: bool = False


class MLPolicy(Field, frozen=True, kw_only=True):
    """``num_nodes``: pods of the training step."""

    num_nodes: int | None = None
    mpi: MPIMLPolicy | None = None


class JobSetTemplateSpec(Field, frozen=True, kw_only=True):
    """The JobSet that a TrainJob becomes."""

    spec: JobSetSpec = JobSetSpec()
    metadata: ObjectMeta = ObjectMeta()


class TrainingRuntimeSpec(Field, frozen=True, kw_only=True):
    """``pod_group_policy``: which scheduler's PodGroup is made."""

    template: JobSetTemplateSpec = JobSetTemplateSpec()
    ml_policy: MLPolicy | None = None
    pod_group_policy: dict[str, Any] | None = None


class TrainingRuntime(KubeObject, kw_only=True):
    """trainer.kubeflow.org/v1alpha1 TrainingRuntime and ClusterTrainingRuntime."""

    spec: TrainingRuntimeSpec = TrainingRuntimeSpec()
