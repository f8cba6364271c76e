"""leaderworkerset.x-k8s.io/v1.

Source of the field names: kubernetes-sigs/lws api/leaderworkerset/v1/leaderworkerset_types.go (0.8 and later).
"""

from __future__ import annotations

from tonnage.objects.base import Field, KubeObject
from tonnage.objects.core import PodTemplateSpec


class LeaderWorkerSubGroupPolicy(Field, frozen=True, kw_only=True):
    """``sub_group_policy_type``: LeaderWorker or LeaderExcluded."""

    sub_group_size: int
    sub_group_policy_type: str = "LeaderWorker"


class LeaderWorkerTemplate(Field, frozen=True, kw_only=True):
    """A group: a leader, and ``size`` - 1 workers. Without a template of its own the leader has the workers'."""

    worker_template: PodTemplateSpec
    leader_template: PodTemplateSpec | None = None
    size: int = 1
    restart_policy: str = "RecreateGroupOnPodRestart"
    sub_group_policy: LeaderWorkerSubGroupPolicy | None = None


class LeaderWorkerSetSpec(Field, frozen=True, kw_only=True):
    """``replicas`` groups. ``startup_policy``: LeaderCreated or LeaderReady."""

    leader_worker_template: LeaderWorkerTemplate
    replicas: int = 1
    startup_policy: str = "LeaderCreated"


class LeaderWorkerSet(KubeObject, kw_only=True):
    """leaderworkerset.x-k8s.io/v1 LeaderWorkerSet."""

    spec: LeaderWorkerSetSpec
