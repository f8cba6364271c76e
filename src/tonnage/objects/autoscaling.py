"""autoscaling/v2."""

from __future__ import annotations

from tonnage.objects.base import Field, KubeObject
from tonnage.objects.core import LabelSelector

Written = str | int | float


class CrossVersionObjectReference(Field, frozen=True, kw_only=True):
    """What is scaled, or measured."""

    kind: str
    name: str
    api_version: str = ""


class MetricTarget(Field, frozen=True, kw_only=True):
    """``type``: Utilization, Value or AverageValue."""

    type: str
    value: Written | None = None
    average_value: Written | None = None
    average_utilization: int | None = None


class MetricIdentifier(Field, frozen=True, kw_only=True):
    """A metric by name and labels."""

    name: str
    selector: LabelSelector | None = None


class ExternalMetricSource(Field, frozen=True, kw_only=True):
    """A metric of something outside the cluster's objects."""

    metric: MetricIdentifier
    target: MetricTarget


class ObjectMetricSource(Field, frozen=True, kw_only=True):
    """A metric of one object."""

    described_object: CrossVersionObjectReference
    metric: MetricIdentifier
    target: MetricTarget


class PodsMetricSource(Field, frozen=True, kw_only=True):
    """A metric of each pod, averaged."""

    metric: MetricIdentifier
    target: MetricTarget


class ResourceMetricSource(Field, frozen=True, kw_only=True):
    """CPU or memory of each pod."""

    name: str
    target: MetricTarget


class ContainerResourceMetricSource(Field, frozen=True, kw_only=True):
    """CPU or memory of one container of each pod."""

    name: str
    container: str
    target: MetricTarget


class MetricSpec(Field, frozen=True, kw_only=True):
    """One metric; the field named by ``type`` is set."""

    type: str
    external: ExternalMetricSource | None = None
    object: ObjectMetricSource | None = None
    pods: PodsMetricSource | None = None
    resource: ResourceMetricSource | None = None
    container_resource: ContainerResourceMetricSource | None = None


class HPAScalingPolicy(Field, frozen=True, kw_only=True):
    """``type``: Pods or Percent."""

    type: str
    value: int
    period_seconds: int


class HPAScalingRules(Field, frozen=True, kw_only=True):
    """One direction. ``select_policy``: Max, Min or Disabled."""

    stabilization_window_seconds: int | None = None
    select_policy: str | None = None
    policies: list[HPAScalingPolicy] = []
    tolerance: Written | None = None


class HPABehavior(Field, frozen=True, kw_only=True):
    """Both directions."""

    scale_up: HPAScalingRules | None = None
    scale_down: HPAScalingRules | None = None


class HorizontalPodAutoscalerSpec(Field, frozen=True, kw_only=True):
    """``min_replicas`` defaults to 1."""

    scale_target_ref: CrossVersionObjectReference
    max_replicas: int
    min_replicas: int | None = None
    metrics: list[MetricSpec] = []
    behavior: HPABehavior | None = None


class HorizontalPodAutoscaler(KubeObject, kw_only=True):
    """autoscaling/v2 HorizontalPodAutoscaler."""

    spec: HorizontalPodAutoscalerSpec
