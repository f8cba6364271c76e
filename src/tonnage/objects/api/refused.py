"""What kube-apiserver v1.36 refuses of an object, with its causes and their words.

Sources: kubernetes/kubernetes v1.36 pkg/apis/{core,apps,policy,scheduling,coordination,resource}/validation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import msgspec

from tonnage.objects.api.amounts import resource_amount
from tonnage.objects.api.autoscalers import horizontal_pod_autoscaler
from tonnage.objects.api.device_claims import device_class, resource_claim, resource_claim_template
from tonnage.objects.api.devices import device_taint_rule, resource_slice
from tonnage.objects.api.errors import (
    FieldError,
    at_least_zero,
    config_key_faults,
    count_or_percent,
    finalizer_faults,
    forbidden,
    invalid_value,
    is_zero,
    metadata,
    network,
    one_of,
    placed,
    qualified_faults,
    required,
    said,
    selector,
    template_metadata,
    unsupported,
)
from tonnage.objects.api.jobs import job
from tonnage.objects.api.placing import taints
from tonnage.objects.api.pods import pod_spec
from tonnage.objects.api.selecting import selector_of_template
from tonnage.objects.api.services import service
from tonnage.objects.api.stateful_sets import stateful_set

JsonObject: TypeAlias = dict[str, Any]

_HIGHEST_PRIORITY = 1_000_000_000
SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_NAMED_BY_LABEL = ("Service", "Namespace", "StatefulSet")


def refused_metadata(kind: str, obj: JsonObject) -> list[FieldError]:
    """What is wrong with the metadata of an object, custom kinds included."""
    return metadata(obj, name_is_label=kind in _NAMED_BY_LABEL)


def refused(kind: str, obj: JsonObject) -> list[FieldError]:
    """Everything beside the metadata for which the API would answer 422, once defaults are filled in."""
    rules = _BY_KIND.get(kind)
    return rules(obj) if rules is not None else []


def _pod(obj: JsonObject) -> list[FieldError]:
    return pod_spec("spec", obj.get("spec") or {})


# ---- apps ----


def _deployment(obj: JsonObject) -> list[FieldError]:
    spec = obj.get("spec") or {}
    causes = at_least_zero("spec.replicas", spec.get("replicas"))
    causes += selector_of_template(spec, "empty selector is invalid for deployment", needed=True)
    causes += _template(spec)
    causes += _strategy(spec.get("strategy") or {})
    ready = spec.get("minReadySeconds") or 0
    causes += at_least_zero("spec.minReadySeconds", ready)
    causes += at_least_zero("spec.revisionHistoryLimit", spec.get("revisionHistoryLimit"))
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None:
        causes += at_least_zero("spec.progressDeadlineSeconds", deadline)
        if deadline <= ready:
            why = "must be greater than minReadySeconds"
            causes.append(invalid_value("spec.progressDeadlineSeconds", deadline, why))
    return causes


def _strategy(strategy: JsonObject) -> list[FieldError]:
    kind, rolling = strategy.get("type"), strategy.get("rollingUpdate")
    if kind == "Recreate":
        why = "may not be specified when strategy `type` is 'Recreate'"
        return [forbidden("spec.strategy.rollingUpdate", why)] if rolling is not None else []
    if kind != "RollingUpdate":
        return _unsupported_strategy("spec.strategy", kind, ("Recreate", "RollingUpdate"))
    if rolling is None:
        return [required("spec.strategy.rollingUpdate")]
    path, surge, missing = "spec.strategy.rollingUpdate", rolling.get("maxSurge"), rolling.get("maxUnavailable")
    causes = count_or_percent(f"{path}.maxUnavailable", missing)
    causes += count_or_percent(f"{path}.maxSurge", surge)
    if is_zero(surge) and is_zero(missing):
        causes.append(invalid_value(f"{path}.maxUnavailable", missing, "may not be 0 when `maxSurge` is 0"))
    if not any(cause.field == f"{path}.maxUnavailable" for cause in causes):
        causes += count_or_percent(f"{path}.maxUnavailable", missing, at_most_all=True)
    return causes


def _unsupported_strategy(path: str, kind: Any, supported: tuple[str, ...]) -> list[FieldError]:
    """kube-apiserver shows the whole strategy in the form of its own struct."""
    wrong = unsupported(f"{path}.type", kind, supported)
    shown = wrong.message.partition(": supported values: ")[2]
    message = f'Unsupported value: {{"Type":"{kind}","RollingUpdate":null}}: supported values: {shown}'
    return [replace(wrong, message=message, field=path, at=wrong.field)]


def _template(spec: JsonObject, kind: str = "ReplicaSet") -> list[FieldError]:
    template = spec.get("template") or {}
    inner, path = template.get("spec") or {}, "spec.template.spec"
    causes = template_metadata("spec.template.metadata", template.get("metadata") or {})
    causes += pod_spec(path, inner, restarts=("Always",))
    if inner.get("activeDeadlineSeconds") is not None:
        why = f"activeDeadlineSeconds in {kind} is not Supported"
        causes.append(forbidden(f"{path}.activeDeadlineSeconds", why))
    return causes


def _replica_set(obj: JsonObject) -> list[FieldError]:
    spec = obj.get("spec") or {}
    causes = at_least_zero("spec.replicas", spec.get("replicas"))
    causes += at_least_zero("spec.minReadySeconds", spec.get("minReadySeconds"))
    causes += selector_of_template(spec, "empty selector is invalid for deployment", needed=True)
    return causes + _template(spec)


def _daemon_set(obj: JsonObject) -> list[FieldError]:
    spec = obj.get("spec") or {}
    causes = selector_of_template(spec, "empty selector is invalid for daemonset", needed=False)
    causes += _template(spec, "DaemonSet")
    causes += at_least_zero("spec.minReadySeconds", spec.get("minReadySeconds"))
    strategy, path = spec.get("updateStrategy") or {}, "spec.updateStrategy"
    kind, rolling = strategy.get("type"), strategy.get("rollingUpdate") or {}
    if kind not in ("RollingUpdate", "OnDelete"):
        causes += _unsupported_strategy(path, kind, ("RollingUpdate", "OnDelete"))
    elif kind == "RollingUpdate":
        surge, missing = rolling.get("maxSurge"), rolling.get("maxUnavailable")
        causes += count_or_percent(f"{path}.rollingUpdate.maxUnavailable", missing, at_most_all=True)
        causes += count_or_percent(f"{path}.rollingUpdate.maxSurge", surge, at_most_all=True)
        if is_zero(surge) and is_zero(missing):
            causes.append(required(f"{path}.rollingUpdate.maxUnavailable", "cannot be 0 when maxSurge is 0"))
        elif not is_zero(surge) and not is_zero(missing):
            why = "may not be set when maxUnavailable is non-zero"
            causes.append(invalid_value(f"{path}.rollingUpdate.maxSurge", surge, why))
    return causes + at_least_zero("spec.revisionHistoryLimit", spec.get("revisionHistoryLimit"))


# ---- the rest ----


def _node(obj: JsonObject) -> list[FieldError]:
    spec = obj.get("spec") or {}
    causes = [
        replace(wrong, at=wrong.field.replace("metadata", "spec", 1))
        for wrong in taints("metadata.taints", spec.get("taints") or [])
    ]
    ranges = spec.get("podCIDRs") or []
    for index, text in enumerate(ranges):
        causes += network(f"spec.podCIDRs[{index}]", text)
    if len(ranges) > 2 or len({":" in text for text in ranges}) < len(ranges):
        why = "may specify no more than one CIDR for each IP family"
        causes.append(invalid_value("spec.podCIDRs", ranges, why))
    status = obj.get("status") or {}
    for part in ("capacity", "allocatable"):
        for name, written in sorted((status.get(part) or {}).items()):
            causes += resource_amount(f"status.{part}.{name}", name, written)
    return causes


def _namespace(obj: JsonObject) -> list[FieldError]:
    causes: list[FieldError] = []
    for index, name in enumerate((obj.get("spec") or {}).get("finalizers") or ()):
        own = said("spec.finalizers", name, [*qualified_faults(name), *finalizer_faults(name)])
        causes += placed(own, f"spec.finalizers[{index}]")
    return causes


def _config_map(obj: JsonObject) -> list[FieldError]:
    causes = []
    binary = obj.get("binaryData") or {}
    for part in ("data", "binaryData"):
        for key in sorted(obj.get(part) or {}):
            faults = config_key_faults(key)
            if faults:
                causes += said(f"{part}[{key}]", key, faults)
            elif part == "data" and key in binary:
                causes.append(invalid_value(f"data[{key}]", key, "duplicate of key present in binaryData"))
    return causes


def _priority_class(obj: JsonObject) -> list[FieldError]:
    name, value = obj.get("metadata", {}).get("name", ""), obj.get("value", 0)
    causes = []
    if name.startswith("system-"):
        if name not in SYSTEM_CLASSES:
            why = (
                "priority class names with 'system-' prefix are reserved for system use only. "
                f"error: {name} is not a known system priority class"
            )
            causes.append(forbidden("metadata.name", why))
    elif value > _HIGHEST_PRIORITY:
        why = f"maximum allowed value of a user defined priority is {_HIGHEST_PRIORITY}"
        causes.append(forbidden("value", why))
    return causes + one_of("preemptionPolicy", obj.get("preemptionPolicy"), ("PreemptLowerPriority", "Never"))


def _pod_disruption_budget(obj: JsonObject) -> list[FieldError]:
    spec = obj.get("spec") or {}
    low, high = spec.get("minAvailable"), spec.get("maxUnavailable")
    causes: list[FieldError] = []
    if low is not None and high is not None:
        shown = {
            "MinAvailable": low,
            "Selector": spec.get("selector"),
            "MaxUnavailable": high,
            "UnhealthyPodEvictionPolicy": spec.get("unhealthyPodEvictionPolicy"),
        }
        text = msgspec.json.encode(shown).decode()
        why = "minAvailable and maxUnavailable cannot be both set"
        wrong = FieldError("FieldValueInvalid", f"Invalid value: {text}: {why}", "spec", why=why)
        causes += placed([wrong], "spec.maxUnavailable")
    causes += count_or_percent("spec.minAvailable", low, at_most_all=True)
    causes += count_or_percent("spec.maxUnavailable", high, at_most_all=True)
    if spec.get("selector") is not None:
        causes += selector("spec.selector", spec["selector"])
    policy = spec.get("unhealthyPodEvictionPolicy")
    return causes + one_of("spec.unhealthyPodEvictionPolicy", policy, ("AlwaysAllow", "IfHealthyBudget"))


def _lease(obj: JsonObject) -> list[FieldError]:
    spec = obj.get("spec") or {}
    seconds = spec.get("leaseDurationSeconds")
    causes = []
    if seconds is not None and seconds <= 0:
        causes.append(invalid_value("spec.leaseDurationSeconds", seconds, "must be greater than 0"))
    return causes + at_least_zero("spec.leaseTransitions", spec.get("leaseTransitions"))


def _event(obj: JsonObject) -> list[FieldError]:
    about = (obj.get("involvedObject") or {}).get("namespace") or ""
    own = obj.get("metadata", {}).get("namespace") or ""
    if about == own or (not about and own == "default"):
        return []
    return [invalid_value("involvedObject.namespace", about, "does not match event.namespace")]


_BY_KIND: dict[str, Callable[[JsonObject], list[FieldError]]] = {
    "Pod": _pod,
    "Deployment": _deployment,
    "ReplicaSet": _replica_set,
    "DaemonSet": _daemon_set,
    "StatefulSet": stateful_set,
    "Job": job,
    "Service": service,
    "HorizontalPodAutoscaler": horizontal_pod_autoscaler,
    "PodDisruptionBudget": _pod_disruption_budget,
    "Node": _node,
    "Namespace": _namespace,
    "ConfigMap": _config_map,
    "PriorityClass": _priority_class,
    "Lease": _lease,
    "Event": _event,
    "DeviceClass": device_class,
    "DeviceTaintRule": device_taint_rule,
    "ResourceClaim": resource_claim,
    "ResourceClaimTemplate": resource_claim_template,
    "ResourceSlice": resource_slice,
}
