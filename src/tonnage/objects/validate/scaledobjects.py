"""KEDA's ScaledObjects.

Sources: kedacore/keda apis/keda/v1alpha1/scaledobject_types.go, scaledobject_webhook.go, scaletriggers_types.go and
pkg/scalers/prometheus_scaler.go, cpu_memory_scaler.go.
"""

from __future__ import annotations

import math

from tonnage.objects.api.autoscalers import TARGET_TYPES, behavior
from tonnage.objects.api.defaults import with_defaults
from tonnage.objects.keda import ScaledObject, ScaleTrigger
from tonnage.objects.validate.common import Report

_MAX_NAME = 63
_HPA_PREFIX = "keda-hpa-"
_RESOURCES = ("cpu", "memory")
_NOT_CACHED = (*_RESOURCES, "cron")
_FALLBACKS = (
    "static",
    "currentReplicas",
    "currentReplicasIfHigher",
    "currentReplicasIfLower",
    "scalingModifiers",
)
_BOOLEANS = ("1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False")
"""What Go's strconv.ParseBool takes."""


def scaled_object(obj: ScaledObject, report: Report) -> None:
    report.not_empty("spec.scaleTargetRef.name", obj.spec.scale_target_ref.name)
    _names(obj, report)
    _replicas(obj, report)
    _fallback(obj, report)
    _modifiers(obj, report)
    triggers = obj.spec.triggers
    if not triggers:
        report.add("spec.triggers", "there are no triggers", "a ScaledObject needs at least one")
    report.unique("spec.triggers[{}].name", [trigger.name for trigger in triggers], "a trigger of this name")
    for index, trigger in enumerate(triggers):
        _trigger(f"spec.triggers[{index}]", trigger, report, in_formula=_formula(obj) != "")
    config = obj.spec.advanced.horizontal_pod_autoscaler_config if obj.spec.advanced else None
    if config is not None:
        path = "spec.advanced.horizontalPodAutoscalerConfig.behavior"
        report.refused(behavior(path, with_defaults(report.at(path) or {})))


def _names(obj: ScaledObject, report: Report) -> None:
    """The ScaledObject's name becomes a label value, and the HPA's name is made of it."""
    config = obj.spec.advanced.horizontal_pod_autoscaler_config if obj.spec.advanced else None
    if config is not None and config.name:
        if len(config.name) > _MAX_NAME:
            field = "spec.advanced.horizontalPodAutoscalerConfig.name"
            report.refuse(field, config.name, f"at most {_MAX_NAME} characters, not {len(config.name)}")
        longest = _MAX_NAME
    else:
        longest = _MAX_NAME - len(_HPA_PREFIX)
    if len(obj.name) > longest:
        expected = f"at most {longest} characters, not {len(obj.name)}"
        hint = f"the HPA is named {_HPA_PREFIX}{obj.name}" if longest < _MAX_NAME else "it becomes a label value"
        report.refuse("metadata.name", obj.name, expected, hint)


def _replicas(obj: ScaledObject, report: Report) -> None:
    low, high, idle = obj.spec.min_replica_count, obj.spec.max_replica_count, obj.spec.idle_replica_count
    report.within("spec.minReplicaCount", low, 0)
    report.within("spec.maxReplicaCount", high, 1)
    if low > high:
        report.refuse("spec.minReplicaCount", low, f"at most maxReplicaCount, {high}")
    if idle is not None and idle != 0:
        report.refuse("spec.idleReplicaCount", idle, "0, the only value that works", "remove it or set it to 0")
    elif idle is not None and idle >= low:
        report.refuse("spec.idleReplicaCount", idle, f"less than minReplicaCount, {low}", "raise minReplicaCount")
    for name, seconds in (
        ("pollingInterval", obj.spec.polling_interval),
        ("cooldownPeriod", obj.spec.cooldown_period),
        ("initialCooldownPeriod", obj.spec.initial_cooldown_period),
    ):
        report.within(f"spec.{name}", seconds, 1 if name == "pollingInterval" else 0)


def _fallback(obj: ScaledObject, report: Report) -> None:
    fallback = obj.spec.fallback
    if fallback is None:
        return
    report.within("spec.fallback.failureThreshold", fallback.failure_threshold, 0)
    report.within("spec.fallback.replicas", fallback.replicas, 0)
    report.one_of("spec.fallback.behavior", fallback.behavior, _FALLBACKS)
    if fallback.behavior == "scalingModifiers" and not _formula(obj):
        hint = "add spec.advanced.scalingModifiers.formula"
        report.refuse("spec.fallback.behavior", fallback.behavior, "another behavior where there is no formula", hint)
    if not _formula(obj) and obj.spec.triggers and all(trigger.type in _RESOURCES for trigger in obj.spec.triggers):
        message = "a fallback needs a trigger that is not cpu or memory"
        report.add("spec.fallback", message, "remove the fallback or add a trigger")


def _formula(obj: ScaledObject) -> str:
    modifiers = obj.spec.advanced.scaling_modifiers if obj.spec.advanced else None
    return modifiers.formula if modifiers else ""


def _modifiers(obj: ScaledObject, report: Report) -> None:
    modifiers = obj.spec.advanced.scaling_modifiers if obj.spec.advanced else None
    if modifiers is None:
        return
    path = "spec.advanced.scalingModifiers"
    report.one_of(f"{path}.metricType", modifiers.metric_type, ("AverageValue", "Value"))
    if not modifiers.formula:
        report.add(f"{path}.formula", "the field is missing", "scalingModifiers needs a formula and a target")
    _number(f"{path}.target", modifiers.target, report, required=True, above_zero=True)
    _number(f"{path}.activationTarget", modifiers.activation_target, report)
    for index, trigger in enumerate(obj.spec.triggers):
        if not trigger.name and trigger.type not in _RESOURCES:
            report.add(f"spec.triggers[{index}].name", "the field is missing", "the formula calls triggers by name")


def _trigger(path: str, trigger: ScaleTrigger, report: Report, *, in_formula: bool) -> None:
    report.not_empty(f"{path}.type", trigger.type)
    report.one_of(f"{path}.metricType", trigger.metric_type, TARGET_TYPES)
    if trigger.metric_type == "Utilization" and trigger.type not in _RESOURCES:
        hint = "Utilization is for cpu and memory"
        report.refuse(f"{path}.metricType", trigger.metric_type, "AverageValue or Value", hint)
    if trigger.metric_type == "Value" and trigger.type in _RESOURCES:
        report.refuse(f"{path}.metricType", trigger.metric_type, "Utilization or AverageValue")
    if trigger.use_cached_metrics and trigger.type in _NOT_CACHED:
        report.add(f"{path}.useCachedMetrics", f"a {trigger.type} trigger cannot use cached metrics", "remove it")
    reference = trigger.authentication_ref
    if reference is not None:
        kinds = ("TriggerAuthentication", "ClusterTriggerAuthentication")
        report.one_of(f"{path}.authenticationRef.kind", reference.kind, kinds)
    if trigger.type == "prometheus":
        _prometheus(f"{path}.metadata", trigger.metadata, report, in_formula=in_formula)
    elif trigger.type in _RESOURCES:
        field, value = f"{path}.metadata.value", trigger.metadata.get("value", "")
        if not value:
            report.add(field, "the field is missing", f"a {trigger.type} trigger needs it")
        elif trigger.metric_type == "Utilization":
            _number(field, value, report, above_zero=True)
        else:
            report.positive_quantity(field, value)


def _prometheus(path: str, metadata: dict[str, str], report: Report, *, in_formula: bool) -> None:
    for name in ("serverAddress", "query"):
        if not metadata.get(name, "").strip():
            report.add(f"{path}.{name}", "the field is missing", "a prometheus trigger needs it")
    threshold = metadata.get("threshold", "")
    _number(f"{path}.threshold", threshold, report, required=not in_formula, above_zero=True)
    _number(f"{path}.activationThreshold", metadata.get("activationThreshold", ""), report)
    for name in ("ignoreNullValues", "unsafeSsl"):
        if name in metadata and metadata[name] not in _BOOLEANS:
            report.refuse(f"{path}.{name}", metadata[name], '"true" or "false"')


def _number(field: str, text: str, report: Report, *, required: bool = False, above_zero: bool = False) -> None:
    """A number that KEDA reads from a string."""
    if not text:
        if required:
            report.add(field, "the field is missing", 'expected a number as a string, e.g. "10"')
        return
    try:
        number = float(text.replace("_", "x"))
    except ValueError:
        number = math.nan
    if math.isnan(number) or math.isinf(number):
        report.refuse(field, text, 'a number as a string, e.g. "10"')
    elif above_zero and number <= 0:
        report.refuse(field, text, "a number above 0", "an HPA refuses any other target")
