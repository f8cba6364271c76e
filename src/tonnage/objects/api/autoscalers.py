"""What kube-apiserver refuses of HorizontalPodAutoscalers.

Source: kubernetes/kubernetes v1.36 pkg/apis/autoscaling/validation/validation.go.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from tonnage.objects.api.canonical import canonical_quantity
from tonnage.objects.api.errors import (
    FieldError,
    amount,
    forbidden,
    invalid_value,
    one_of,
    required,
    said,
    selector,
    unsupported,
)

JsonObject: TypeAlias = dict[str, Any]

_SOURCES = {
    "ContainerResource": "containerResource",
    "External": "external",
    "Object": "object",
    "Pods": "pods",
    "Resource": "resource",
}
TARGET_TYPES = ("Utilization", "Value", "AverageValue")
_LONGEST_WINDOW_S = 3600
_LONGEST_PERIOD_S = 1800
_POPULATE = "must populate information for the given metric source"


def horizontal_pod_autoscaler(obj: JsonObject) -> list[FieldError]:
    spec = obj.get("spec") or {}
    low, high, metrics = spec.get("minReplicas"), spec.get("maxReplicas") or 0, spec.get("metrics") or []
    causes: list[FieldError] = []
    if low is not None and low < 1:
        causes.append(invalid_value("spec.minReplicas", low, "must be greater than or equal to 1"))
    if high < 1:
        causes.append(required("spec.maxReplicas", "must be set and greater than 0"))
    if low is not None and high < low:
        causes.append(invalid_value("spec.maxReplicas", high, "must be greater than or equal to `minReplicas`"))
    target = spec.get("scaleTargetRef") or {}
    causes += _reference("spec.scaleTargetRef", target)
    for index, metric in enumerate(metrics):
        causes += _metric(f"spec.metrics[{index}]", metric)
    if low == 0 and not {"Object", "External"} & {metric.get("type") for metric in metrics}:
        why = "must specify at least one Object or External metric to support scaling to zero replicas"
        causes.append(forbidden("spec.metrics", why))
    return causes + behavior("spec.behavior", spec.get("behavior") or {})


def _reference(path: str, given: JsonObject) -> list[FieldError]:
    """The object that is scaled, or measured."""
    causes: list[FieldError] = []
    for name in ("kind", "name"):
        text = given.get(name) or ""
        causes += said(f"{path}.{name}", text, _segment_faults(text)) if text else [required(f"{path}.{name}")]
    version = given.get("apiVersion") or ""
    group, _, name = version.rpartition("/")
    if version and (not name or "/" in group or (not group and version != "v1")):
        causes.append(invalid_value(f"{path}.apiVersion", version, "apiVersion must specify API group"))
    return causes


def _segment_faults(text: str) -> list[str]:
    """What keeps a text from being a part of a URL path."""
    if text in (".", ".."):
        return [f"may not be '{text}'"]
    return [f"may not contain '{sign}'" for sign in ("/", "%") if sign in text]


def behavior(path: str, given: JsonObject) -> list[FieldError]:
    """Both directions of a behavior, which stands at ``path``."""
    causes: list[FieldError] = []
    for name in ("scaleUp", "scaleDown"):
        if given.get(name) is not None:
            causes += _rules(f"{path}.{name}", given[name])
    return causes


def _rules(path: str, rules: JsonObject) -> list[FieldError]:
    causes: list[FieldError] = []
    window, policies = rules.get("stabilizationWindowSeconds"), rules.get("policies") or []
    if window is not None and window < 0:
        why = "must be greater than or equal to zero"
        causes.append(invalid_value(f"{path}.stabilizationWindowSeconds", window, why))
    if window is not None and window > _LONGEST_WINDOW_S:
        why = f"must be less than or equal to {_LONGEST_WINDOW_S}"
        causes.append(invalid_value(f"{path}.stabilizationWindowSeconds", window, why))
    causes += one_of(f"{path}.selectPolicy", rules.get("selectPolicy"), ("Disabled", "Max", "Min"))
    tolerance = amount(rules["tolerance"]) if rules.get("tolerance") is not None else None
    if tolerance is not None and tolerance < 0:
        why = "must be greater than or equal to 0"
        causes.append(invalid_value(f"{path}.tolerance", canonical_quantity(rules["tolerance"]), why))
    if not policies:
        causes.append(required(f"{path}.policies", "must specify at least one Policy"))
    for index, policy in enumerate(policies):
        here = f"{path}.policies[{index}]"
        causes += one_of(f"{here}.type", policy.get("type", ""), ("Percent", "Pods"))
        value, period = policy.get("value") or 0, policy.get("periodSeconds") or 0
        if value <= 0:
            causes.append(invalid_value(f"{here}.value", value, "must be greater than zero"))
        if period <= 0:
            causes.append(invalid_value(f"{here}.periodSeconds", period, "must be greater than zero"))
        if period > _LONGEST_PERIOD_S:
            why = f"must be less than or equal to {_LONGEST_PERIOD_S}"
            causes.append(invalid_value(f"{here}.periodSeconds", period, why))
    return causes


def _metric(path: str, metric: JsonObject) -> list[FieldError]:
    kind = metric.get("type") or ""
    causes: list[FieldError] = []
    if not kind:
        causes.append(required(f"{path}.type", "must specify a metric source type"))
    if kind not in _SOURCES:
        return [*causes, *[unsupported(f"{path}.type", kind, _SOURCES)] * 2]
    own = _SOURCES[kind]
    if metric.get(own) is None:
        causes.append(required(f"{path}.{own}", _POPULATE))
    else:
        causes += _source(f"{path}.{own}", kind, metric[own])
    others = [name for name in _SOURCES.values() if name != own and metric.get(name) is not None]
    if metric.get(own) is not None:
        why = "must populate the given metric source only"
        causes += [forbidden(f"{path}.{name}", why) for name in others]
    return causes


def _source(path: str, kind: str, source: JsonObject) -> list[FieldError]:
    target, at = source.get("target") or {}, f"{path}.target"
    causes: list[FieldError] = []
    if kind in ("Resource", "ContainerResource"):
        if not source.get("name"):
            causes.append(required(f"{path}.name", "must specify a resource name"))
        if kind == "ContainerResource" and not source.get("container"):
            causes.append(required(f"{path}.container", "must specify a container"))
        causes += _target(at, target)
        use, value = target.get("averageUtilization"), target.get("averageValue")
        if use is None and value is None:
            why = "must set either a target raw value or a target utilization"
            causes.append(required(f"{at}.averageUtilization", why))
        if use is not None and value is not None:
            why = "may not set both a target raw value and a target utilization"
            causes.append(forbidden(f"{at}.averageValue", why))
        return causes
    if kind == "Object":
        about = source.get("describedObject") or {}
        causes += _reference(f"{path}.describedObject", about)
    metric = source.get("metric") or {}
    if not metric.get("name"):
        causes.append(required(f"{path}.metric.name", "must specify a metric name"))
    causes += said(f"{path}.metric.name", metric.get("name"), _segment_faults(metric.get("name") or ""))
    if metric.get("selector") is not None:
        causes += selector(f"{path}.metric.selector", metric["selector"])
    causes += _target(at, target)
    value, average = target.get("value"), target.get("averageValue")
    if kind == "Pods" and (average is None or (amount(average) or 0) <= 0):
        causes.append(required(f"{at}.averageValue", "must specify a positive target averageValue"))
    if kind in ("Object", "External") and value is None and average is None:
        why = "must set either a target value for metric or a per-pod target"
        causes.append(required(f"{at}.averageValue", why))
    if kind == "External" and value is not None and average is not None:
        why = "may not set both a target value for metric and a per-pod target"
        causes.append(forbidden(f"{at}.value", why))
    return causes


def _target(path: str, target: JsonObject) -> list[FieldError]:
    kind = target.get("type") or ""
    causes: list[FieldError] = []
    if not kind:
        causes.append(required(f"{path}.type", "must specify a metric target type"))
    elif kind not in TARGET_TYPES:
        why = "must be either Utilization, Value, or AverageValue"
        causes.append(invalid_value(f"{path}.type", kind, why))
    use = target.get("averageUtilization")
    if use is not None and use < 1:
        causes.append(invalid_value(f"{path}.averageUtilization", use, "must be greater than 0"))
    for name in ("value", "averageValue"):
        written = target.get(name)
        if written is not None and (amount(written) or 0) <= 0:
            causes.append(invalid_value(f"{path}.{name}", written, "must be positive"))
    return causes
