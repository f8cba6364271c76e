"""batch.volcano.sh/v1alpha1. Source of the field names: volcano-sh/volcano apis pkg/apis/batch/v1alpha1/job.go."""

from __future__ import annotations

from tonnage.objects.base import Field, KubeObject
from tonnage.objects.core import PodTemplateSpec
from tonnage.objects.groups import VolcanoNetworkTopology


class LifecyclePolicy(Field, frozen=True, kw_only=True):
    """``action`` when one of the events happens, or a container exits with this code."""

    action: str
    event: str = ""
    events: list[str] = []
    exit_code: int | None = None


class VolcanoTask(Field, frozen=True, kw_only=True):
    """``replicas`` pods of one role, of which ``min_available`` are needed; all without it."""

    template: PodTemplateSpec
    name: str = ""
    replicas: int = 1
    min_available: int | None = None
    policies: list[LifecyclePolicy] = []


class VolcanoJobSpec(Field, frozen=True, kw_only=True):
    """``max_retry``: how often the job is restarted."""

    tasks: list[VolcanoTask] = []
    min_available: int | None = None
    min_success: int | None = None
    policies: list[LifecyclePolicy] = []
    max_retry: int = 3
    priority_class_name: str = ""
    network_topology: VolcanoNetworkTopology | None = None


class VolcanoJob(KubeObject, kw_only=True):
    """batch.volcano.sh/v1alpha1 Job."""

    spec: VolcanoJobSpec = VolcanoJobSpec()
