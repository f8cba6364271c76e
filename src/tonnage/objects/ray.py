"""ray.io/v1. Source of the field names: ray-project/kuberay ray-operator/apis/ray/v1 (1.5 and later)."""

from __future__ import annotations

from typing import Any

from tonnage.objects.base import Field, KubeObject
from tonnage.objects.core import PodTemplateSpec


class HeadGroupSpec(Field, frozen=True, kw_only=True):
    """The head."""

    template: PodTemplateSpec


class WorkerGroupSpec(Field, frozen=True, kw_only=True):
    """``replicas`` times ``num_of_hosts`` pods."""

    group_name: str
    template: PodTemplateSpec
    replicas: int | None = None
    min_replicas: int | None = None
    max_replicas: int | None = None
    num_of_hosts: int = 1
    suspend: bool = False


class RayClusterSpec(Field, frozen=True, kw_only=True):
    """``gcs_fault_tolerance_options``: the workers outlive the head."""

    head_group_spec: HeadGroupSpec
    worker_group_specs: list[WorkerGroupSpec] = []
    enable_in_tree_autoscaling: bool = False
    gcs_fault_tolerance_options: dict[str, Any] | None = None
    suspend: bool = False


class RayCluster(KubeObject, kw_only=True):
    """ray.io/v1 RayCluster."""

    spec: RayClusterSpec


class SubmitterConfig(Field, frozen=True, kw_only=True):
    """``backoff_limit`` of the Job that submits."""

    backoff_limit: int | None = None


class RayJobSpec(Field, frozen=True, kw_only=True):
    """``backoff_limit``: how often a new cluster is made after a failure."""

    ray_cluster_spec: RayClusterSpec | None = None
    submission_mode: str = "K8sJobMode"
    submitter_pod_template: PodTemplateSpec | None = None
    submitter_config: SubmitterConfig | None = None
    backoff_limit: int = 0
    shutdown_after_job_finishes: bool = False
    suspend: bool = False


class RayJobStatus(Field, frozen=True, kw_only=True):
    """``ray_cluster_name``: the cluster of the present attempt."""

    ray_cluster_name: str = ""


class RayJob(KubeObject, kw_only=True):
    """ray.io/v1 RayJob."""

    spec: RayJobSpec
    status: RayJobStatus = RayJobStatus()


class RayServiceSpec(Field, frozen=True, kw_only=True):
    """``ray_cluster_config``: the cluster on which Ray Serve runs."""

    ray_cluster_config: RayClusterSpec


class RayService(KubeObject, kw_only=True):
    """ray.io/v1 RayService."""

    spec: RayServiceSpec

    def cluster(self) -> RayCluster:
        """The cluster that it makes; KubeRay adds a suffix to its name, which is left out."""
        spec = self.spec.ray_cluster_config
        made = RayCluster(api_version=self.api_version, kind="RayCluster", metadata=self.metadata, spec=spec)
        return made.remember(self.origin, self.lines)
