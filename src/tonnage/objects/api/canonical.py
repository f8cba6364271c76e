"""The form in which kube-apiserver keeps an object of a built-in kind: without what is empty, quantities canonical.

It decodes every object into Go structs and encodes it again; this does the same to a JSON object. What is dropped when
empty and what is written all the same are facts of the API's Go types (kubernetes/api v1.36.3, their json tags).
"""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Any, TypeAlias

from tonnage.objects import quantity
from tonnage.objects.api.fields import SCALARS, FieldType, structs

JsonObject: TypeAlias = dict[str, Any]

# fmt: off
_ZERO_DROPPED = frozenset({
    "hostNetwork", "hostPID", "hostIPC", "stdin", "stdinOnce", "tty", "readOnly", "unschedulable", "paused",
    "publishNotReadyAddresses", "globalDefault", "minReadySeconds", "initialDelaySeconds", "timeoutSeconds",
    "periodSeconds", "successThreshold", "failureThreshold", "hostPort", "nodePort", "healthCheckNodePort",
    "observedGeneration", "generation", "updatedReplicas", "readyReplicas", "availableReplicas",
    "unavailableReplicas", "fullyLabeledReplicas", "updatedNumberScheduled", "numberAvailable", "numberUnavailable",
    "count", "currentReplicas", "active", "succeeded", "failed",
})
# fmt: on
"""Numbers and booleans that Go holds as values: zero means absent. Others are pointers, whose zero counts."""
_EMPTY_KEPT = frozenset(
    {
        ("HostPathVolumeSource", "type"),
        ("GRPCAction", "service"),
        ("HPAScalingRules", "policies"),
        ("LeaseSpec", "holderIdentity"),
        ("ClientIPConfig", "timeoutSeconds"),
    }
)
"""What is a pointer in Go, or is told apart from nothing."""
_ALWAYS_WRITTEN = {"string": "", "int32": 0, "int64": 0, "bool": False}
_PLAIN_STRUCTS = {
    "Container": ("resources",),
    "EphemeralContainer": ("resources",),
    "ContainerStatus": ("state", "lastState"),
    "NodeStatus": ("daemonEndpoints", "nodeInfo"),
    "NodeDaemonEndpoints": ("kubeletEndpoint",),
    "Event": ("source", "involvedObject"),
    "ServiceStatus": ("loadBalancer",),
    "DeploymentSpec": ("strategy",),
    "DaemonSetSpec": ("updateStrategy",),
    "StatefulSetSpec": ("updateStrategy",),
}
"""Structs held as values: written as {} when nothing is in them."""
_NULLS = {
    "Event": ("firstTimestamp", "lastTimestamp", "eventTime"),
    "HorizontalPodAutoscalerStatus": ("currentMetrics",),
    "NodeCondition": ("lastHeartbeatTime", "lastTransitionTime"),
    "PodCondition": ("lastProbeTime", "lastTransitionTime"),
    "DeploymentCondition": ("lastUpdateTime", "lastTransitionTime"),
    "ReplicaSetCondition": ("lastTransitionTime",),
    "DaemonSetCondition": ("lastTransitionTime",),
    "StatefulSetCondition": ("lastTransitionTime",),
    "HorizontalPodAutoscalerCondition": ("lastTransitionTime",),
    "Condition": ("lastTransitionTime",),
    "ContainerStateRunning": ("startedAt",),
    "ContainerStateTerminated": ("startedAt", "finishedAt"),
}
"""Fields that are written as null."""
_ALSO: dict[str, dict[str, Any]] = {
    "Event": {"reportingComponent": "", "reportingInstance": ""},
    "PodDisruptionBudgetStatus": dict.fromkeys(
        ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"), 0
    ),
}
"""Optional fields that are written though empty."""
_LARGEST = 2**63 - 1


def canonical(obj: JsonObject, kind: str) -> None:
    """Bring an object of a built-in kind into its stored form, in place."""
    _struct(obj, kind)


def _struct(value: JsonObject, name: str) -> None:
    fields = structs().get(name)
    if fields is None:
        return
    for key in list(value):
        known = fields.get(key)
        if known is None:
            continue
        inner = _field(value[key], known, known.shape)
        if _is_dropped(inner, known, name):
            del value[key]
        else:
            value[key] = inner
    for key in _PLAIN_STRUCTS.get(name, ()):
        inner = value.setdefault(key, {})
        _struct(inner, fields[key].of)
    for key in _NULLS.get(name, ()):
        value.setdefault(key, None)
    for key, empty in _ALSO.get(name, {}).items():
        value.setdefault(key, empty)
    if name.endswith(("Status", "SystemInfo", "DaemonEndpoint")) and (value or name not in _BLANK):
        for known in fields.values():
            if known.required and not known.shape and known.of in _ALWAYS_WRITTEN:
                value.setdefault(known.name, _ALWAYS_WRITTEN[known.of])


_BLANK = frozenset({"PodStatus"})


def _field(value: Any, known: FieldType, shape: tuple[str, ...]) -> Any:
    if value is None:
        return None
    if shape:
        if isinstance(value, list):
            return [_field(item, known, shape[1:]) for item in value]
        if isinstance(value, dict):
            if known.of == "quantity":
                return {key: canonical_quantity(item, thousandths=True) for key, item in value.items()}
            return {key: _field(item, known, shape[1:]) for key, item in value.items()}
        return value
    if known.of == "quantity":
        return canonical_quantity(value)
    if known.of in ("time", "microtime") and isinstance(value, str):
        return _time(value, micro=known.of == "microtime")
    if known.of not in SCALARS and isinstance(value, dict):
        _struct(value, known.of)
    return value


def _is_dropped(value: Any, known: FieldType, struct: str) -> bool:
    if known.name in _NULLS.get(struct, ()) or known.name in _ALSO.get(struct, ()):
        return False
    if value is None:
        return True
    if known.required and not known.shape:
        return False
    if known.shape:
        return not value and not known.required and (struct, known.name) not in _EMPTY_KEPT
    if value == "" and known.of == "string":
        return (struct, known.name) not in _EMPTY_KEPT
    if (struct, known.name) in _EMPTY_KEPT:
        return False
    return known.name in _ZERO_DROPPED and isinstance(value, int) and not value


@lru_cache(maxsize=4096, typed=True)
def canonical_quantity(written: Any, *, thousandths: bool = False) -> Any:
    """A quantity as the API writes it: 1000m is 1, 0.5 is 500m, 1024Mi is 1Gi. What is none stays as it is.

    ``thousandths``: of a list of resources, whose quantities are rounded up to thousandths (SetDefaults_ResourceList in
    pkg/apis/core/v1/defaults.go): 100u is 1m.

    Source: kubernetes/kubernetes staging/src/k8s.io/apimachinery/pkg/api/resource (CanonicalizeBytes): binary where a
    binary suffix was written and the value is a whole number of at least 1024; else decimal, with the largest suffix
    that leaves no fraction; decimal exponents keep their form.
    """
    try:
        value = quantity.parse(written)
    except ValueError:
        return written
    text = str(written)
    if not value:
        return "0"
    if thousandths:
        value = Fraction(ceil(value * 1000), 1000)
    if text[-1:] == "i" and abs(value) > _LARGEST:
        return str(_LARGEST if value > 0 else -_LARGEST)
    if text[:1] == "+" and canonical_quantity(text[1:], thousandths=thousandths) == text[1:]:
        return text
    if text[-1:] == "i" and abs(value) >= 1024 and value.denominator == 1:
        return _scaled(value, 1024, ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))
    exponent = text.rstrip("0123456789+-")
    if exponent[-1:] in ("e", "E") and exponent[-1:] != text[-1:]:
        return _scientific(value)
    nano = ceil(abs(value) * 10**9)
    sign = "-" if value < 0 else ""
    return sign + str(_scaled(Fraction(nano), 1000, ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")))


def _scaled(value: Fraction, base: int, suffixes: tuple[str, ...]) -> str:
    number, step = int(value), 0
    while step + 1 < len(suffixes) and number and number % base == 0:
        number, step = number // base, step + 1
    return f"{number}{suffixes[step]}"


def _scientific(value: Fraction) -> str:
    number, power = int(value * 10**9), -9
    while number and number % 1000 == 0:
        number, power = number // 1000, power + 3
    return f"{number}e{power}" if power else str(number)


def _time(text: str, *, micro: bool) -> str:
    try:
        moment = datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        return text
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")
