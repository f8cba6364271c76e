"""What kube-apiserver fills in for pods and pod templates.

Source: kubernetes/kubernetes v1.36 pkg/apis/core/v1/defaults.go and the admission plugins ServiceAccount and
DefaultTolerationSeconds. A projected service account token is not added: nothing here would take it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from tonnage.facts.labels import NOT_READY, UNREACHABLE
from tonnage.objects import quantity
from tonnage.objects.api.amounts import of_pods

JsonObject: TypeAlias = dict[str, Any]
_TAINTS = (NOT_READY, UNREACHABLE)
_TOLERATED_S = 300
_FILE_MODE = 0o644
_MODES = ("secret", "configMap", "downwardAPI", "projected")
_COUNTED = ("cpu", "memory")


def pod(obj: JsonObject) -> None:
    """Fill in a pod."""
    spec = obj.setdefault("spec", {})
    pod_spec(spec)
    spec.setdefault("enableServiceLinks", True)
    if spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1
    requests_from_limits(spec)
    for container in _containers(spec):
        if spec.get("hostNetwork"):
            _host_ports(container)
    account = spec.setdefault("serviceAccountName", "default")
    spec["serviceAccount"] = account
    _tolerate(spec)
    status = obj.setdefault("status", {})
    status.setdefault("phase", "Pending")
    if spec.get("schedulingGates"):
        _gated(status)
    if "qosClass" not in status:
        status["qosClass"] = qos_class(spec)


def _gated(status: JsonObject) -> None:
    conditions = status.setdefault("conditions", [])
    if not any(condition.get("type") == "PodScheduled" for condition in conditions):
        why = "Scheduling is blocked due to non-empty scheduling gates"
        conditions.append({"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": why})


def template(obj: JsonObject) -> None:
    """Fill in a pod template."""
    pod_spec(obj.setdefault("spec", {}))


def pod_spec(spec: JsonObject) -> None:
    """What a pod's spec and a template's have in common."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    if spec.get("serviceAccountName"):
        spec["serviceAccount"] = spec["serviceAccountName"]
    elif spec.get("serviceAccount"):
        spec["serviceAccountName"] = spec["serviceAccount"]
    for container in _containers(spec):
        _container(container)
    for volume in spec.get("volumes") or ():
        if isinstance(volume, dict):
            _volume(volume)


def _containers(spec: JsonObject) -> Iterator[JsonObject]:
    for part in ("initContainers", "containers", "ephemeralContainers"):
        for container in spec.get(part) or ():
            if isinstance(container, dict):
                yield container


def _host_ports(container: JsonObject) -> None:
    """On the node's network a port is the node's."""
    for port in container.get("ports") or ():
        if not port.get("hostPort") and port.get("containerPort"):
            port["hostPort"] = port["containerPort"]


def _container(container: JsonObject) -> None:
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    container.setdefault("imagePullPolicy", pull_policy(str(container.get("image") or "")))
    container.setdefault("resources", {})
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe = container.get(name)
        if isinstance(probe, dict):
            _probe(probe)
    for hook in (container.get("lifecycle") or {}).values():
        if isinstance(hook, dict):
            _http(hook)
    for variable in container.get("env") or ():
        _field_ref(variable.get("valueFrom") or {})


def pull_policy(image: str) -> str:
    """Always for ``latest`` or no tag at all, IfNotPresent for a tag or a digest."""
    name, _, digest = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    if not name or (not digest and tag in ("", "latest")) or (digest and tag == "latest"):
        return "Always"
    return "IfNotPresent"


def _probe(probe: JsonObject) -> None:
    for name, value in (("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)):
        if not probe.get(name):
            probe[name] = value
    if isinstance(probe.get("grpc"), dict):
        probe["grpc"].setdefault("service", "")
    _http(probe)


def _http(handler: JsonObject) -> None:
    get = handler.get("httpGet")
    if isinstance(get, dict):
        get.setdefault("path", "/")
        get.setdefault("scheme", "HTTP")


def _field_ref(source: JsonObject) -> None:
    if isinstance(source.get("fieldRef"), dict):
        source["fieldRef"].setdefault("apiVersion", "v1")
    if isinstance(source.get("resourceFieldRef"), dict):
        source["resourceFieldRef"].setdefault("divisor", "0")


def _volume(volume: JsonObject) -> None:
    if set(volume) <= {"name"}:
        volume["emptyDir"] = {}
    for name in _MODES:
        source = volume.get(name)
        if isinstance(source, dict):
            source.setdefault("defaultMode", _FILE_MODE)
    if isinstance(volume.get("hostPath"), dict):
        volume["hostPath"].setdefault("type", "")
    projected = (volume.get("projected") or {}).get("sources") or ()
    for source in (volume, *projected):
        token = source.get("serviceAccountToken")
        if isinstance(token, dict):
            token.setdefault("expirationSeconds", 3600)
        for item in (source.get("downwardAPI") or {}).get("items") or ():
            _field_ref(item)
    claim = ((volume.get("ephemeral") or {}).get("volumeClaimTemplate") or {}).get("spec")
    if isinstance(claim, dict):
        claim.setdefault("volumeMode", "Filesystem")


def requests_from_limits(spec: JsonObject) -> None:
    """What has a limit and no request asks for its limit: of a pod, not of a template."""
    for container in _containers(spec):
        _requests_from_limits(container.get("resources", {}))
    if "resources" in spec:
        _requests_from_limits(spec["resources"], of_pods)


def _requests_from_limits(resources: JsonObject, copied: Callable[[str], bool] = lambda name: True) -> None:
    limits = resources.get("limits")
    if not isinstance(limits, dict) or not limits:
        return
    named = [name for name in limits if copied(name)]
    requests = resources.setdefault("requests", {}) if named else {}
    if isinstance(requests, dict):
        for name in named:
            requests.setdefault(name, limits[name])


def _tolerate(spec: JsonObject) -> None:
    tolerations = spec.setdefault("tolerations", [])
    for key in _TAINTS:
        if not any(_covers(toleration, key) for toleration in tolerations):
            tolerations.append(
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _TOLERATED_S}
            )


def _covers(toleration: JsonObject, key: str) -> bool:
    return toleration.get("key", "") in ("", key) and toleration.get("effect", "") in ("", "NoExecute")


def qos_class(spec: JsonObject) -> str:
    """Guaranteed, Burstable or BestEffort.

    Source: kubernetes/kubernetes pkg/apis/core/v1/helper/qos/qos.go. Only cpu and memory count; of a pod with resources
    of its own only those do.
    """
    holders = [spec] if spec.get("resources") else [*spec.get("containers", ()), *spec.get("initContainers", ())]
    requests: dict[str, Any] = {}
    limits: dict[str, Any] = {}
    guaranteed = True
    for holder in holders:
        resources = holder.get("resources") or {}
        asked, capped = (_positive(resources.get(part) or {}) for part in ("requests", "limits"))
        for total, one in ((requests, asked), (limits, capped)):
            for name, amount in one.items():
                total[name] = total.get(name, 0) + amount
        guaranteed = guaranteed and len(capped) == len(_COUNTED)
    if not requests and not limits:
        return "BestEffort"
    return "Guaranteed" if guaranteed and requests == limits else "Burstable"


def _positive(quantities: JsonObject) -> dict[str, Any]:
    found = {}
    for name in _COUNTED:
        try:
            amount = quantity.parse(quantities[name]) if name in quantities else 0
        except ValueError:
            continue
        if amount > 0:
            found[name] = amount
    return found
