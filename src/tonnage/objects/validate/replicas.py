"""HorizontalPodAutoscalers. Source: kubernetes/kubernetes pkg/apis/autoscaling/validation/validation.go."""

from __future__ import annotations

from tonnage.objects.autoscaling import (
    CrossVersionObjectReference,
    HorizontalPodAutoscaler,
    HPABehavior,
    HPAScalingRules,
    MetricIdentifier,
    MetricSpec,
    MetricTarget,
)
from tonnage.objects.validate.common import INT32_MAX, Report

TARGET_TYPES = ("Utilization", "Value", "AverageValue")

_SOURCES = {
    "Object": "object",
    "Pods": "pods",
    "Resource": "resource",
    "ContainerResource": "containerResource",
    "External": "external",
}
_MAX_PERIOD_S = 1800
_MAX_STABILIZATION_S = 3600


def horizontal_pod_autoscaler(obj: HorizontalPodAutoscaler, report: Report) -> None:
    spec = obj.spec
    types = [metric.type for metric in spec.metrics]
    report.within("spec.maxReplicas", spec.max_replicas, 1)
    if spec.min_replicas == 0 and not {"Object", "External"} & set(types):
        hint = "scaling to zero needs an Object or External metric"
        report.refuse("spec.minReplicas", 0, "at least 1", hint)
    report.within("spec.minReplicas", spec.min_replicas, 0)
    if spec.min_replicas is not None and spec.min_replicas > spec.max_replicas:
        report.refuse("spec.minReplicas", spec.min_replicas, f"at most maxReplicas, {spec.max_replicas}")
    _reference("spec.scaleTargetRef", spec.scale_target_ref, report)
    for index, metric in enumerate(spec.metrics):
        _metric(f"spec.metrics[{index}]", metric, report)
    behavior("spec.behavior", spec.behavior, report)


def behavior(field: str, wanted: HPABehavior | None, report: Report) -> None:
    """Both directions of a behavior, which stands at ``field``."""
    if wanted is not None:
        _rules(f"{field}.scaleUp", wanted.scale_up, report)
        _rules(f"{field}.scaleDown", wanted.scale_down, report)


def _rules(path: str, rules: HPAScalingRules | None, report: Report) -> None:
    if rules is None:
        return
    window = rules.stabilization_window_seconds
    report.within(f"{path}.stabilizationWindowSeconds", window, 0, _MAX_STABILIZATION_S)
    if rules.select_policy is not None:
        report.one_of(f"{path}.selectPolicy", rules.select_policy, ("Max", "Min", "Disabled"))
    if not rules.policies and report.is_written(f"{path}.policies"):
        report.add(f"{path}.policies", "expected at least one policy", "leave policies out for the default")
    for index, policy in enumerate(rules.policies):
        report.one_of(f"{path}.policies[{index}].type", policy.type, ("Pods", "Percent"))
        report.within(f"{path}.policies[{index}].value", policy.value, 1)
        report.within(f"{path}.policies[{index}].periodSeconds", policy.period_seconds, 1, _MAX_PERIOD_S)
    if rules.tolerance is not None:
        report.quantity(f"{path}.tolerance", rules.tolerance)


def _metric(path: str, metric: MetricSpec, report: Report) -> None:
    sources = {
        "object": metric.object,
        "pods": metric.pods,
        "resource": metric.resource,
        "containerResource": metric.container_resource,
        "external": metric.external,
    }
    if report.one_of(f"{path}.type", metric.type, _SOURCES):
        wanted = _SOURCES[metric.type]
        if sources[wanted] is None:
            report.add(f"{path}.{wanted}", "the field is missing", f"type {metric.type} needs it")
        for name, source in sources.items():
            if source is not None and name != wanted:
                report.add(f"{path}.{name}", f"stands beside type {metric.type}", f"only {wanted} may be set")
    if metric.object is not None:
        _reference(f"{path}.object.describedObject", metric.object.described_object, report)
        _measured(f"{path}.object", metric.object.metric, metric.object.target, ("value", "averageValue"), report)
    if metric.pods is not None:
        _measured(f"{path}.pods", metric.pods.metric, metric.pods.target, ("averageValue",), report)
    if metric.external is not None:
        external = metric.external
        _measured(f"{path}.external", external.metric, external.target, ("value", "averageValue"), report)
        if external.target.value is not None and external.target.average_value is not None:
            report.add(f"{path}.external.target.value", "stands beside averageValue", "only one may be set")
    for name, resource in (("resource", metric.resource), ("containerResource", metric.container_resource)):
        if resource is not None:
            report.not_empty(f"{path}.{name}.name", resource.name)
            _target(f"{path}.{name}.target", resource.target, ("averageUtilization", "averageValue"), report)
            if resource.target.average_value is not None and resource.target.average_utilization is not None:
                report.add(f"{path}.{name}.target", "has averageValue and averageUtilization", "only one may be set")
    if metric.container_resource is not None:
        report.not_empty(f"{path}.containerResource.container", metric.container_resource.container)


def _measured(
    path: str, metric: MetricIdentifier, target: MetricTarget, one_of: tuple[str, ...], report: Report
) -> None:
    report.not_empty(f"{path}.metric.name", metric.name)
    report.selector(f"{path}.metric.selector", metric.selector)
    _target(f"{path}.target", target, one_of, report)


def _target(path: str, target: MetricTarget, one_of: tuple[str, ...], report: Report) -> None:
    report.one_of(f"{path}.type", target.type, TARGET_TYPES)
    report.positive_quantity(f"{path}.value", target.value)
    report.positive_quantity(f"{path}.averageValue", target.average_value)
    report.within(f"{path}.averageUtilization", target.average_utilization, 1, INT32_MAX)
    given = {
        "value": target.value,
        "averageValue": target.average_value,
        "averageUtilization": target.average_utilization,
    }
    if all(given[name] is None for name in one_of):
        report.add(f"{path}.{one_of[-1]}", "the field is missing", f"a target needs {' or '.join(one_of)}")


def _reference(path: str, reference: CrossVersionObjectReference, report: Report) -> None:
    report.not_empty(f"{path}.kind", reference.kind)
    report.not_empty(f"{path}.name", reference.name)
