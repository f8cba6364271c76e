"""Between which numbers of pods an autoscaler moves a template."""

from __future__ import annotations

from typing import NamedTuple

from tonnage.health.inventory import DEFAULT
from tonnage.health.setting import Pods, Setting
from tonnage.objects import autoscaling, batch, keda

_COUNTED = ("Pod", "Deployment", "StatefulSet", "ReplicaSet", "ReplicationController", "Job", "LeaderWorkerSet")


class PodRange(NamedTuple):
    """The least and the most pods."""

    least: int
    most: int


def bounds(setting: Setting, pods: Pods) -> PodRange | None:
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
            return PodRange(max(one.spec.min_replica_count, 1), one.spec.max_replica_count)
        least = 1 if one.spec.min_replicas is None else one.spec.min_replicas
        return PodRange(max(least, 1), one.spec.max_replicas) if own else PodRange(0, 0)
    return PodRange(own, own)


def _own(pods: Pods) -> int | None:
    if isinstance(pods.object, batch.Job) and pods.object.spec.suspend:
        return 0
    return pods.counted.pods if pods.object.kind in _COUNTED else None
