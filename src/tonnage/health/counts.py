"""How many pods a template stands for, and between which bounds an autoscaler moves that."""

from __future__ import annotations

from typing import NamedTuple

from tonnage.health.inventory import DEFAULT, content
from tonnage.health.setting import Pods, Setting
from tonnage.objects import apps, autoscaling, batch, core, keda, leaderworker
from tonnage.workloads.replicas import at_once


class Count(NamedTuple):
    """The least and the most pods."""

    least: int
    most: int


def count(setting: Setting, pods: Pods) -> Count | None:
    """Pods of this template at one time; None where that is not known."""
    own = _own(pods)
    if own is None:
        return None
    for one in setting.objects:
        if not isinstance(one, autoscaling.HorizontalPodAutoscaler | keda.ScaledObject):
            continue
        target = one.spec.scale_target_ref
        if (target.kind or "Deployment", target.name, one.namespace or DEFAULT) != (
            pods.object.kind,
            pods.object.name,
            pods.namespace,
        ):
            continue
        if isinstance(one, keda.ScaledObject):
            return Count(max(one.spec.min_replica_count, 1), one.spec.max_replica_count)
        least = 1 if one.spec.min_replicas is None else one.spec.min_replicas
        return Count(max(least, 1), one.spec.max_replicas) if own else Count(0, 0)
    return Count(own, own)


def _own(pods: Pods) -> int | None:
    match pods.object:
        case core.Pod():
            return 1
        case apps.Deployment(spec=spec):
            return spec.replicas
        case batch.Job(spec=spec):
            return 0 if spec.suspend else at_once(spec)
        case leaderworker.LeaderWorkerSet(spec=spec):
            group = spec.leader_worker_template
            leads = ".leaderTemplate" in f".{pods.template.field}"
            each = 1 if leads else group.size - (1 if group.leader_template is not None else 0)
            return spec.replicas * each
    if pods.object.kind in ("StatefulSet", "ReplicaSet", "ReplicationController"):
        written = content(pods.object).get("spec")
        replicas = written.get("replicas", 1) if isinstance(written, dict) else 1
        return replicas if isinstance(replicas, int) else 1
    return None
