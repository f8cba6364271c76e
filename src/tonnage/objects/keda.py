"""keda.sh/v1alpha1."""

from __future__ import annotations

from tonnage.objects.autoscaling import HPABehavior
from tonnage.objects.base import Field, KubeObject


class ScaleTarget(Field, frozen=True, kw_only=True):
    """What is scaled; a Deployment unless said otherwise."""

    name: str
    api_version: str = "apps/v1"
    kind: str = "Deployment"
    env_source_container_name: str = ""


class AuthenticationRef(Field, frozen=True, kw_only=True):
    """Credentials of a trigger."""

    name: str
    kind: str = "TriggerAuthentication"


class ScaleTrigger(Field, frozen=True, kw_only=True):
    """One source of load. ``metric_type`` defaults to AverageValue; ``metadata`` holds strings, whatever they mean."""

    type: str
    metadata: dict[str, str]
    metric_type: str = "AverageValue"
    name: str = ""
    use_cached_metrics: bool = False
    authentication_ref: AuthenticationRef | None = None


class FallbackSpec(Field, frozen=True, kw_only=True):
    """Replicas while a trigger fails. ``behavior``: static, currentReplicas, currentReplicasIfHigher or …IfLower."""

    failure_threshold: int
    replicas: int
    behavior: str = "static"


class HorizontalPodAutoscalerConfig(Field, frozen=True, kw_only=True):
    """What KEDA passes on to the HPA that it makes."""

    name: str = ""
    behavior: HPABehavior | None = None


class ScalingModifiers(Field, frozen=True, kw_only=True):
    """One metric made of several triggers by a formula."""

    formula: str = ""
    target: str = ""
    activation_target: str = ""
    metric_type: str = "AverageValue"


class Advanced(Field, frozen=True, kw_only=True):
    """The rarer settings."""

    horizontal_pod_autoscaler_config: HorizontalPodAutoscalerConfig | None = None
    restore_to_original_replica_count: bool = False
    scaling_modifiers: ScalingModifiers | None = None


class ScaledObjectSpec(Field, frozen=True, kw_only=True):
    """Defaults: polling 30 s, cool-down 300 s, 0 to 100 replicas."""

    scale_target_ref: ScaleTarget
    triggers: list[ScaleTrigger]
    polling_interval: int = 30
    cooldown_period: int = 300
    initial_cooldown_period: int = 0
    idle_replica_count: int | None = None
    min_replica_count: int = 0
    max_replica_count: int = 100
    fallback: FallbackSpec | None = None
    advanced: Advanced | None = None


class ScaledObject(KubeObject, kw_only=True):
    """keda.sh/v1alpha1 ScaledObject."""

    spec: ScaledObjectSpec
