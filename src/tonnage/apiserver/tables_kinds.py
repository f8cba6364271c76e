"""The rows of built-in kinds other than pods.

Source: kubernetes/kubernetes v1.36 pkg/printers/internalversion/printers.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, TypeAlias

from tonnage.apiserver.ages import since
from tonnage.objects.api.canonical import canonical_quantity

JsonObject: TypeAlias = dict[str, Any]

_NONE, _UNKNOWN = "<none>", "<unknown>"
_ROLE, _OLD_ROLE = "node-role.kubernetes.io/", "kubernetes.io/role"
_SHOWN_METRICS = 2


def _parts(obj: JsonObject) -> tuple[JsonObject, JsonObject, JsonObject]:
    meta, spec, status = (obj.get(part) or {} for part in ("metadata", "spec", "status"))
    return meta, spec, status


def _name_and_age(obj: JsonObject, now_s: float) -> tuple[str, str]:
    meta = obj.get("metadata") or {}
    return meta.get("name", ""), since(meta.get("creationTimestamp"), now_s)


def resource_claim(obj: JsonObject, now_s: float) -> list[Any]:
    """Name, state and age of a ResourceClaim, as pkg/printers/internalversion/printers.go words the state."""
    meta, _, status = _parts(obj)
    name, age = _name_and_age(obj, now_s)
    gone = bool(meta.get("deletionTimestamp"))
    words = ["deleted"] if gone else []
    if status.get("allocation"):
        words.append("allocated")
        words += ["reserved"] if status.get("reservedFor") else []
    elif not gone:
        words.append("pending")
    return [name, ",".join(words), age]


def _pairs(labels: JsonObject | None) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or _NONE


def selector_text(selector: JsonObject | None) -> str:
    """A label selector in one line, by key."""
    if not selector:
        return _NONE
    found = [(key, f"{key}={value}") for key, value in (selector.get("matchLabels") or {}).items()]
    for wanted in selector.get("matchExpressions") or ():
        key, operator = wanted.get("key", ""), wanted.get("operator")
        values = ",".join(sorted(wanted.get("values") or ()))
        found.append(
            (
                key,
                {
                    "In": f"{key} in ({values})",
                    "NotIn": f"{key} notin ({values})",
                    "Exists": key,
                    "DoesNotExist": f"!{key}",
                }.get(operator, ""),
            )
        )
    return ",".join(text for _, text in sorted(found, key=lambda pair: pair[0])) or _NONE


def _template(spec: JsonObject) -> list[str]:
    """Containers, images and selector of a workload."""
    containers = ((spec.get("template") or {}).get("spec") or {}).get("containers") or ()
    names, images = (",".join(str(one.get(part, "")) for one in containers) for part in ("name", "image"))
    return [names, images, selector_text(spec.get("selector"))]


def _node(obj: JsonObject, now_s: float) -> list[Any]:
    meta, spec, status = _parts(obj)
    ready = [one for one in status.get("conditions") or () if one.get("type") == "Ready"]
    words = [("Ready" if one.get("status") == "True" else "NotReady") for one in ready] or ["Unknown"]
    if spec.get("unschedulable"):
        words.append("SchedulingDisabled")
    info = status.get("nodeInfo") or {}
    kernel = info.get("kernelVersion") or _UNKNOWN
    return [
        meta.get("name", ""),
        ",".join(words),
        _roles(meta.get("labels") or {}),
        since(meta.get("creationTimestamp"), now_s),
        info.get("kubeletVersion", ""),
        _address(status, "InternalIP"),
        _address(status, "ExternalIP"),
        info.get("osImage") or _UNKNOWN,
        kernel + (f" ({info['architecture']})" if info.get("architecture") else ""),
        info.get("containerRuntimeVersion") or _UNKNOWN,
    ]


def _roles(labels: JsonObject) -> str:
    roles = {key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE) and key != _ROLE}
    if labels.get(_OLD_ROLE):
        roles.add(labels[_OLD_ROLE])
    return ",".join(sorted(roles)) or _NONE


def _address(status: JsonObject, type_: str) -> str:
    found = (one.get("address") for one in status.get("addresses") or () if one.get("type") == type_)
    return str(next(found, None) or _NONE)


def _namespace(obj: JsonObject, now_s: float) -> list[Any]:
    name, age = _name_and_age(obj, now_s)
    return [name, (obj.get("status") or {}).get("phase", ""), age]


def _service(obj: JsonObject, now_s: float) -> list[Any]:
    meta, spec, status = _parts(obj)
    addresses = spec.get("clusterIPs") or ()
    return [
        meta.get("name", ""),
        spec.get("type", ""),
        addresses[0] if addresses else _NONE,
        _outside(spec, status),
        ",".join(_ports(spec.get("ports") or ())) or _NONE,
        since(meta.get("creationTimestamp"), now_s),
        _pairs(spec.get("selector")),
    ]


def _outside(spec: JsonObject, status: JsonObject) -> str:
    listed = spec.get("externalIPs") or []
    if spec.get("type") == "ExternalName":
        return str(spec.get("externalName", ""))
    if spec.get("type") != "LoadBalancer":
        return ",".join(listed) or _NONE
    ingress = (status.get("loadBalancer") or {}).get("ingress") or ()
    given = sorted({one.get("ip") or one.get("hostname") or "" for one in ingress} - {""})
    return ",".join([*given, *listed]) or "<pending>"


def _ports(ports: Iterable[JsonObject]) -> Iterable[str]:
    for port in ports:
        node = f":{port['nodePort']}" if port.get("nodePort") else ""
        yield f"{port.get('port')}{node}/{port.get('protocol', 'TCP')}"


def _config_map(obj: JsonObject, now_s: float) -> list[Any]:
    name, age = _name_and_age(obj, now_s)
    return [name, len(obj.get("data") or ()) + len(obj.get("binaryData") or ()), age]


def _event(obj: JsonObject, now_s: float) -> list[Any]:
    first = since(obj.get("firstTimestamp") or obj.get("eventTime"), now_s)
    last = since(obj["lastTimestamp"], now_s) if obj.get("lastTimestamp") else first
    count = obj.get("count") or 1
    series = obj.get("series")
    if series:
        last, count = since(series.get("lastObservedTime"), now_s), series.get("count", 0)
    about, source = obj.get("involvedObject") or {}, obj.get("source") or {}
    component = source.get("component") or obj.get("reportingComponent") or ""
    host = source.get("host") or obj.get("reportingInstance") or ""
    kind = str(about.get("kind", "")).lower()
    return [
        last,
        obj.get("type", ""),
        obj.get("reason", ""),
        f"{kind}/{about['name']}" if about.get("name") else kind,
        about.get("fieldPath", ""),
        f"{component}, {host}" if host else component,
        str(obj.get("message", "")).strip(),
        first,
        count,
        (obj.get("metadata") or {}).get("name", ""),
    ]


def _service_account(obj: JsonObject, now_s: float) -> list[Any]:
    return list(_name_and_age(obj, now_s))


def _deployment(obj: JsonObject, now_s: float) -> list[Any]:
    meta, spec, status = _parts(obj)
    return [
        meta.get("name", ""),
        f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 1)}",
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        since(meta.get("creationTimestamp"), now_s),
        *_template(spec),
    ]


def _replica_set(obj: JsonObject, now_s: float) -> list[Any]:
    meta, spec, status = _parts(obj)
    return [
        meta.get("name", ""),
        spec.get("replicas", 1),
        status.get("replicas", 0),
        status.get("readyReplicas", 0),
        since(meta.get("creationTimestamp"), now_s),
        *_template(spec),
    ]


def _daemon_set(obj: JsonObject, now_s: float) -> list[Any]:
    meta, spec, status = _parts(obj)
    counts = (
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    )
    nodes = ((spec.get("template") or {}).get("spec") or {}).get("nodeSelector")
    return [
        meta.get("name", ""),
        *(status.get(count, 0) for count in counts),
        _pairs(nodes),
        since(meta.get("creationTimestamp"), now_s),
        *_template(spec),
    ]


def _stateful_set(obj: JsonObject, now_s: float) -> list[Any]:
    meta, spec, status = _parts(obj)
    ready = f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 1)}"
    containers, images, *_ = _template(spec)
    return [meta.get("name", ""), ready, since(meta.get("creationTimestamp"), now_s), containers, images]


_JOB_STATES = ("Complete", "Failed", "Suspended", "FailureTarget", "SuccessCriteriaMet")


def _job(obj: JsonObject, now_s: float) -> list[Any]:
    meta, spec, status = _parts(obj)
    holds = {one.get("type") for one in status.get("conditions") or () if one.get("status") == "True"}
    states = [state for state in _JOB_STATES if state in holds]
    if meta.get("deletionTimestamp") and not holds.intersection(_JOB_STATES[:2]):
        states = ["Terminating"]
    wanted = spec.get("completions")
    if wanted is None:
        together = spec.get("parallelism") or 0
        wanted = f"1 of {together}" if together > 1 else "1"
    took = ""
    if status.get("startTime"):
        end = status.get("completionTime")
        took = since(status["startTime"], datetime.fromisoformat(end).timestamp() if end else now_s)
    return [
        meta.get("name", ""),
        states[0] if states else "Running",
        f"{status.get('succeeded', 0)}/{wanted}",
        took,
        since(meta.get("creationTimestamp"), now_s),
        *_template(spec),
    ]


def _hpa(obj: JsonObject, now_s: float) -> list[Any]:
    meta, spec, status = _parts(obj)
    target = spec.get("scaleTargetRef") or {}
    low = spec.get("minReplicas")
    return [
        meta.get("name", ""),
        f"{target.get('kind', '')}/{target.get('name', '')}",
        _targets(spec.get("metrics") or (), status.get("currentMetrics") or ()),
        "<unset>" if low is None else str(low),
        spec.get("maxReplicas", 0),
        status.get("currentReplicas", 0),
        since(meta.get("creationTimestamp"), now_s),
    ]


def _targets(metrics: Iterable[JsonObject], readings: Iterable[JsonObject]) -> str:
    """Two metrics at most, each with its reading and its target."""
    read = list(readings)
    found = [_target(metric, read[i] if i < len(read) else {}) for i, metric in enumerate(metrics)]
    if not found:
        return _NONE
    shown = ", ".join(found[:_SHOWN_METRICS])
    return f"{shown} + {len(found) - _SHOWN_METRICS} more..." if len(found) > _SHOWN_METRICS else shown


def _target(metric: JsonObject, reading: JsonObject) -> str:
    kind = metric.get("type", "")
    part = kind[:1].lower() + kind[1:]
    if part not in ("external", "object", "pods", "resource", "containerResource"):
        return "<unknown type>"
    source = metric.get(part) or {}
    target, current = source.get("target") or {}, (reading.get(part) or {}).get("current") or {}
    average = target.get("averageValue")
    named = f"{source.get('name', '')}: " if part in ("resource", "containerResource") else ""
    if average is None and named:
        now = _percent(current.get("averageUtilization"), _UNKNOWN)
        return f"{named}{now}/{_percent(target.get('averageUtilization'), '<auto>')}"
    field = "value" if average is None and part != "pods" else "averageValue"
    now = _UNKNOWN if current.get(field) is None else str(canonical_quantity(current[field]))
    suffix = " (avg)" if part in ("external", "object") and average is not None else ""
    return f"{named}{now}/{canonical_quantity(target.get(field, 0))}{suffix}"


def _percent(value: int | None, otherwise: str) -> str:
    return otherwise if value is None else f"{value}%"


def _pod_disruption_budget(obj: JsonObject, now_s: float) -> list[Any]:
    meta, spec, status = _parts(obj)
    bounds = (spec.get(name) for name in ("minAvailable", "maxUnavailable"))
    return [
        meta.get("name", ""),
        *("N/A" if bound is None else str(bound) for bound in bounds),
        status.get("disruptionsAllowed", 0),
        since(meta.get("creationTimestamp"), now_s),
    ]


def _lease(obj: JsonObject, now_s: float) -> list[Any]:
    name, age = _name_and_age(obj, now_s)
    return [name, (obj.get("spec") or {}).get("holderIdentity") or "", age]


def _priority_class(obj: JsonObject, now_s: float) -> list[Any]:
    name, age = _name_and_age(obj, now_s)
    policy = obj.get("preemptionPolicy") or ""
    return [name, obj.get("value", 0), bool(obj.get("globalDefault")), age, policy]


CELLS: dict[str, Callable[[JsonObject, float], list[Any]]] = {
    "Node": _node,
    "Namespace": _namespace,
    "Service": _service,
    "ConfigMap": _config_map,
    "Event": _event,
    "ServiceAccount": _service_account,
    "Deployment": _deployment,
    "ReplicaSet": _replica_set,
    "DaemonSet": _daemon_set,
    "StatefulSet": _stateful_set,
    "Job": _job,
    "HorizontalPodAutoscaler": _hpa,
    "PodDisruptionBudget": _pod_disruption_budget,
    "Lease": _lease,
    "PriorityClass": _priority_class,
}
