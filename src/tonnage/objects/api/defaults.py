"""What kube-apiserver v1.36 fills in before it stores an object of a built-in kind, in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias
from zlib import crc32

from tonnage.facts.labels import BATCH, JOB_UID, NAMESPACE_NAME, OLD_JOB_NAME, OLD_JOB_UID
from tonnage.objects.api import defaults_pods
from tonnage.objects.api.canonical import canonical

JsonObject: TypeAlias = dict[str, Any]

_NETWORK = (10, 96)
_NODE_PORTS = (30_000, 2_768)
_CLIENT_IP_S = 10_800


def fill_in(
    kind: str, obj: JsonObject, *, cluster_ip: Callable[[JsonObject], str] | None = None, stored: bool = True
) -> JsonObject:
    """Fill in what is not written, in place; returns the object. Doing it twice changes nothing more.

    ``stored``: whether it has to have the form in which it is stored. ``cluster_ip`` gives a Service its address;
    without it the address follows from namespace and name. What admission sets (a pod's priority) is not here.
    """
    canonical(obj, kind)
    if kind == "Pod":
        defaults_pods.pod(obj)
    elif kind == "Service":
        _service(obj, cluster_ip or address)
    else:
        fill = _FILL.get(kind)
        if fill is not None:
            fill(obj)
    if stored:
        canonical(obj, kind)
    return obj


def address(service: JsonObject) -> str:
    """An address of 10.96.0.0/16 that follows from the Service's namespace and name."""
    meta = service.get("metadata", {})
    number = crc32(f"{meta.get('namespace')}/{meta.get('name')}".encode()) % 65_000 + 256
    return f"{_NETWORK[0]}.{_NETWORK[1]}.{number // 256}.{number % 256}"


def _deployment(obj: JsonObject) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    strategy = spec.setdefault("strategy", {})
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)
    _template(spec)
    obj.setdefault("status", {})


def _template(spec: JsonObject) -> None:
    defaults_pods.template(spec.setdefault("template", {}))


def _replica_set(obj: JsonObject) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    _template(spec)
    obj.setdefault("status", {}).setdefault("replicas", 0)


def _daemon_set(obj: JsonObject) -> None:
    spec = obj.setdefault("spec", {})
    strategy = spec.setdefault("updateStrategy", {})
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", 1)
        rolling.setdefault("maxSurge", 0)
    spec.setdefault("revisionHistoryLimit", 10)
    _template(spec)
    generation = str(obj["metadata"].get("generation", 1))
    obj["metadata"].setdefault("annotations", {}).setdefault("deprecated.daemonset.template.generation", generation)
    obj.setdefault("status", {})


def _stateful_set(obj: JsonObject) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    spec.setdefault("podManagementPolicy", "OrderedReady")
    strategy = spec.setdefault("updateStrategy", {})
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        strategy.setdefault("rollingUpdate", {}).setdefault("partition", 0)
    spec.setdefault("revisionHistoryLimit", 10)
    _template(spec)
    obj.setdefault("status", {})


def _job(obj: JsonObject) -> None:
    spec = obj.setdefault("spec", {})
    job_spec(spec)
    if not spec.setdefault("manualSelector", False):
        _select_own_pods(obj, spec)
    worn = (spec["template"].get("metadata") or {}).get("labels")
    if worn and not obj["metadata"].get("labels"):
        obj["metadata"]["labels"] = dict(worn)
    obj.setdefault("status", {})


def job_spec(spec: JsonObject) -> None:
    """Fill in a Job's spec, but for its selector."""
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 2**31 - 1 if "backoffLimitPerIndex" in spec else 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    policy = spec.get("podFailurePolicy")
    spec.setdefault("podReplacementPolicy", "TerminatingOrFailed" if policy is None else "Failed")
    for rule in (policy or {}).get("rules") or ():
        for condition in rule.get("onPodConditions") or ():
            condition.setdefault("status", "True")
    _template(spec)


def _select_own_pods(obj: JsonObject, spec: JsonObject) -> None:
    """The labels by which a Job knows its pods.

    Source: kubernetes/kubernetes pkg/registry/batch/job/strategy.go (generateSelector)."""
    meta = obj["metadata"]
    template = spec["template"].get("metadata") or {}
    spec["template"]["metadata"] = template
    labels = template.get("labels") or {}
    template["labels"] = labels
    for prefix in ("", BATCH):
        labels.setdefault(prefix + OLD_JOB_UID, meta.get("uid", ""))
        labels.setdefault(prefix + OLD_JOB_NAME, meta.get("name", ""))
    selector = spec.get("selector") or {}
    spec["selector"] = selector
    wanted = selector.get("matchLabels") or {}
    selector["matchLabels"] = wanted
    wanted.setdefault(JOB_UID, meta.get("uid", ""))


def without_generated_selector(spec: JsonObject) -> None:
    """Take back from a Job's spec what :func:`_select_own_pods` adds, so that it can be created again."""
    if spec.get("manualSelector"):
        return
    spec.pop("selector", None)
    labels = (spec["template"].get("metadata") or {}).get("labels") or {}
    for prefix in ("", BATCH):
        for label in (OLD_JOB_UID, OLD_JOB_NAME):
            labels.pop(prefix + label, None)


def _hpa(obj: JsonObject) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("minReplicas", 1)
    if not spec.get("metrics"):
        target = {"type": "Utilization", "averageUtilization": 80}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    if isinstance(spec.get("behavior"), dict):
        spec["behavior"] = with_defaults(spec["behavior"])
    obj.setdefault("status", {})


def with_defaults(behavior: JsonObject) -> JsonObject:
    """The behavior of an autoscaler, with what it does where nothing else is said."""
    double = {"value": 100, "periodSeconds": 15, "type": "Percent"}
    four = {"value": 4, "periodSeconds": 15, "type": "Pods"}
    up = {"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [four, double]}
    down = {"selectPolicy": "Max", "policies": [dict(double)]}
    return behavior | {
        name: filled | (behavior.get(name) or {}) for name, filled in (("scaleUp", up), ("scaleDown", down))
    }


def _node(obj: JsonObject) -> None:
    status = obj.setdefault("status", {})
    capacity = status.get("capacity")
    if capacity and not status.get("allocatable"):
        status["allocatable"] = dict(capacity)
    spec = obj.setdefault("spec", {})
    if spec.get("podCIDR") and not spec.get("podCIDRs"):
        spec["podCIDRs"] = [spec["podCIDR"]]


def _namespace(obj: JsonObject) -> None:
    meta = obj.setdefault("metadata", {})
    meta.setdefault("labels", {})[NAMESPACE_NAME] = meta.get("name", "")
    obj.setdefault("status", {}).setdefault("phase", "Active")


def _priority_class(obj: JsonObject) -> None:
    obj.setdefault("preemptionPolicy", "PreemptLowerPriority")
    obj.setdefault("value", 0)


def _with_status(obj: JsonObject) -> None:
    obj.setdefault("status", {})


def _resource_claim(obj: JsonObject) -> None:
    """Of resource.k8s.io/v1 (pkg/apis/resource/v1/defaults.go): one device by request, and equality of tolerations."""
    _claim_spec(obj.get("spec"))


def _resource_claim_template(obj: JsonObject) -> None:
    _claim_spec((obj.get("spec") or {}).get("spec"))


def _claim_spec(spec: Any) -> None:
    devices = spec.get("devices") if isinstance(spec, dict) else None
    for request in (devices or {}).get("requests") or ():
        for way in (request.get("exactly"), *(request.get("firstAvailable") or ())):
            if isinstance(way, dict):
                if way.setdefault("allocationMode", "ExactCount") == "ExactCount":
                    way["count"] = way.get("count") or 1
                for toleration in way.get("tolerations") or ():
                    toleration.setdefault("operator", "Equal")


_FILL: dict[str, Callable[[JsonObject], None]] = {
    "Deployment": _deployment,
    "ReplicaSet": _replica_set,
    "DaemonSet": _daemon_set,
    "StatefulSet": _stateful_set,
    "Job": _job,
    "HorizontalPodAutoscaler": _hpa,
    "Node": _node,
    "Namespace": _namespace,
    "PriorityClass": _priority_class,
    "PodDisruptionBudget": _with_status,
    "ResourceClaim": _resource_claim,
    "ResourceClaimTemplate": _resource_claim_template,
}


def _service(obj: JsonObject, cluster_ip: Callable[[JsonObject], str]) -> None:
    spec = obj.setdefault("spec", {})
    kind = spec.setdefault("type", "ClusterIP")
    affinity = spec.setdefault("sessionAffinity", "None")
    if affinity == "ClientIP":
        seconds = spec.setdefault("sessionAffinityConfig", {}).setdefault("clientIP", {})
        seconds.setdefault("timeoutSeconds", _CLIENT_IP_S)
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        if port.get("targetPort") in (None, 0, ""):
            port["targetPort"] = port.get("port", 0)
    obj.setdefault("status", {})
    if kind == "ExternalName":
        return
    spec.setdefault("internalTrafficPolicy", "Cluster")
    if kind in ("NodePort", "LoadBalancer"):
        spec.setdefault("externalTrafficPolicy", "Cluster")
        for port in spec.get("ports") or ():
            if not port.get("nodePort"):
                port["nodePort"] = _node_port(obj, port)
    if kind == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
    if not spec.get("clusterIP"):
        listed = spec.get("clusterIPs") or ()
        spec["clusterIP"] = listed[0] if listed else cluster_ip(obj)
    if not spec.get("clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"]]
    headless_alone = spec["clusterIP"] == "None" and not spec.get("selector")
    spec.setdefault("ipFamilies", ["IPv4", "IPv6"] if headless_alone else ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "RequireDualStack" if headless_alone else "SingleStack")


def _node_port(obj: JsonObject, port: JsonObject) -> int:
    """A port of the node range that follows from the Service and the port."""
    first, count = _NODE_PORTS
    meta = obj.get("metadata", {})
    text = f"{meta.get('namespace')}/{meta.get('name')}/{port.get('port')}/{port.get('protocol')}"
    return first + crc32(text.encode()) % count
