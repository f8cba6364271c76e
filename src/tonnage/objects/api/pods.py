"""What kube-apiserver refuses of pods and pod templates.

Source: kubernetes/kubernetes v1.36 pkg/apis/core/validation/validation.go.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from tonnage.objects.api.canonical import canonical_quantity
from tonnage.objects.api.errors import (
    NOT_NEGATIVE,
    PORT_WORDS,
    FieldError,
    amount,
    at_least_zero,
    duplicate,
    forbidden,
    invalid_value,
    label_faults,
    labels,
    not_found,
    one_of,
    port_name_faults,
    qualified_faults,
    required,
    said,
    subdomain_faults,
    within,
)
from tonnage.objects.api.placing import affinity, spread, tolerations

JsonObject: TypeAlias = dict[str, Any]

_RESTARTS = ("Always", "OnFailure", "Never")
_DNS = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_PULLS = ("Always", "IfNotPresent", "Never")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")
_STANDARD = ("cpu", "memory", "ephemeral-storage")
_INT32_MAX = 2**31 - 1


def pod_spec(path: str, spec: JsonObject, *, restarts: tuple[str, ...] = _RESTARTS) -> list[FieldError]:
    """Everything below a pod's or a template's ``spec``, which stands at ``path``. ``restarts``: policies allowed."""
    causes = _volumes(path, spec)
    causes += _containers(path, spec)
    causes += one_of(f"{path}.restartPolicy", spec.get("restartPolicy"), restarts)
    causes += one_of(f"{path}.dnsPolicy", spec.get("dnsPolicy"), _DNS)
    causes += labels(f"{path}.nodeSelector", spec.get("nodeSelector"))
    if spec.get("nodeName"):
        causes += said(f"{path}.nodeName", spec["nodeName"], subdomain_faults(spec["nodeName"]))
    if spec.get("serviceAccountName"):
        account = spec["serviceAccountName"]
        causes += said(f"{path}.serviceAccountName", account, subdomain_faults(account))
    causes += affinity(f"{path}.affinity", spec.get("affinity") or {})
    causes += tolerations(f"{path}.tolerations", spec.get("tolerations") or [])
    causes += spread(f"{path}.topologySpreadConstraints", spec.get("topologySpreadConstraints") or [])
    causes += within(f"{path}.activeDeadlineSeconds", spec.get("activeDeadlineSeconds"), 1, _INT32_MAX)
    if spec.get("priorityClassName"):
        given = spec["priorityClassName"]
        causes += said(f"{path}.priorityClassName", given, subdomain_faults(given))
    causes += _gates(path, spec)
    return causes


def _gates(path: str, spec: JsonObject) -> list[FieldError]:
    causes, seen = [], set()
    for index, gate in enumerate(spec.get("schedulingGates") or ()):
        name = gate.get("name", "")
        here = f"{path}.schedulingGates[{index}]"
        if not name:
            causes.append(required(here))
        causes += said(here, name, qualified_faults(name)) if name else []
        if name in seen:
            causes.append(duplicate(here, name))
        seen.add(name)
    if seen and spec.get("nodeName"):
        causes.append(forbidden(f"{path}.nodeName", "cannot be set until all schedulingGates have been cleared"))
    return causes


def _volumes(path: str, spec: JsonObject) -> list[FieldError]:
    causes, seen = [], set()
    for index, volume in enumerate(spec.get("volumes") or ()):
        name = volume.get("name", "")
        here = f"{path}.volumes[{index}].name"
        if not name:
            causes.append(required(here))
        elif label_faults(name):
            causes += said(here, name, label_faults(name))
        elif name in seen:
            causes.append(duplicate(here, name))
        seen.add(name)
        sources = sorted(key for key in volume if key != "name")
        causes += [
            forbidden(f"{path}.volumes[{index}].{source}", "may not specify more than 1 volume type")
            for source in sources[1:]
        ]
    return causes


def _containers(path: str, spec: JsonObject) -> list[FieldError]:
    if not spec.get("containers"):
        return [required(f"{path}.containers")]
    causes: list[FieldError] = []
    names: set[str] = set()
    volumes = {volume.get("name") for volume in spec.get("volumes") or ()}
    for part in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(part) or ()):
            here = f"{path}.{part}[{index}]"
            name = container.get("name", "")
            if not name:
                causes.append(required(f"{here}.name"))
            elif label_faults(name):
                causes += said(f"{here}.name", name, label_faults(name))
            elif name in names:
                causes.append(duplicate(f"{here}.name", name))
            names.add(name)
            causes += _container(here, container, volumes, host_network=bool(spec.get("hostNetwork")))
            causes += _sleeps(f"{here}.lifecycle", container, spec.get("terminationGracePeriodSeconds"))
    return causes + _taken_ports(path, spec)


def _taken_ports(path: str, spec: JsonObject) -> list[FieldError]:
    """Ports of the node that the pod's containers, or one of its init containers, take more than once
    (checkHostPortConflicts)."""
    causes: list[FieldError] = []
    seen: set[str] = set()
    for part in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(part) or ()):
            seen = set() if part == "initContainers" else seen
            for number, port in enumerate(container.get("ports") or ()):
                if not port.get("hostPort"):
                    continue
                taken = f"{port.get('protocol') or 'TCP'}/{port.get('hostIP') or ''}/{port['hostPort']}"
                if taken in seen:
                    causes.append(duplicate(f"{path}.{part}[{index}].ports[{number}].hostPort", taken))
                seen.add(taken)
    return causes


def _container(path: str, container: JsonObject, volumes: set[Any], *, host_network: bool) -> list[FieldError]:
    image = container.get("image") or ""
    causes = []
    if not image:
        causes.append(required(f"{path}.image"))
    elif image != image.strip():
        causes.append(invalid_value(f"{path}.image", image, "must not have leading or trailing whitespace"))
    causes += _ports(f"{path}.ports", container.get("ports") or [], host_network=host_network)
    causes += _env(f"{path}.env", container.get("env") or [])
    causes += _mounts(f"{path}.volumeMounts", container.get("volumeMounts") or [], volumes)
    causes += one_of(f"{path}.imagePullPolicy", container.get("imagePullPolicy"), _PULLS)
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if container.get(name) is not None:
            causes += _probe(f"{path}.{name}", container[name], success_once=name != "readinessProbe")
    causes += resources(f"{path}.resources", container.get("resources") or {})
    return causes


def _ports(path: str, ports: list[JsonObject], *, host_network: bool) -> list[FieldError]:
    causes, seen = [], set()
    for index, port in enumerate(ports):
        here = f"{path}[{index}]"
        name, number = port.get("name"), port.get("containerPort") or 0
        if name and port_name_faults(name):
            causes += said(f"{here}.name", name, port_name_faults(name))
        elif name and name in seen:
            causes.append(duplicate(f"{here}.name", name))
        seen.add(name)
        if not number:
            causes.append(required(f"{here}.containerPort"))
        causes += within(f"{here}.containerPort", number, 1, 65535) if number else []
        host = port.get("hostPort")
        if host:
            causes += within(f"{here}.hostPort", host, 1, 65535)
            if host_network and host != number:
                why = "must match `containerPort` when `hostNetwork` is true"
                causes.append(invalid_value(f"{here}.hostPort", host, why))
        causes += one_of(f"{here}.protocol", port.get("protocol"), _PROTOCOLS)
    return causes


def _env(path: str, variables: list[JsonObject]) -> list[FieldError]:
    causes = []
    for index, variable in enumerate(variables):
        name = variable.get("name") or ""
        if not name:
            causes.append(required(f"{path}[{index}].name"))
        elif "=" in name or not name.isascii() or not name.isprintable():
            why = "a valid environment variable name must consist only of printable ASCII characters other than '='"
            causes.append(invalid_value(f"{path}[{index}].name", name, why))
        if variable.get("value") and variable.get("valueFrom"):
            why = "may not be specified when `value` is not empty"
            causes.append(invalid_value(f"{path}[{index}].valueFrom", "", why))
    return causes


def _mounts(path: str, mounts: list[JsonObject], volumes: set[Any]) -> list[FieldError]:
    causes, seen = [], set()
    for index, mount in enumerate(mounts):
        name, where = mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            causes.append(required(f"{path}[{index}].name"))
        elif name not in volumes:
            causes.append(not_found(f"{path}[{index}].name", name, sorted(str(one) for one in volumes)))
        if not where:
            causes.append(required(f"{path}[{index}].mountPath"))
        elif where in seen:
            causes.append(invalid_value(f"{path}[{index}].mountPath", where, "must be unique"))
        seen.add(where)
    return causes


def _sleeps(path: str, container: JsonObject, grace: int | None) -> list[FieldError]:
    """Hooks that would sleep beyond the grace period."""
    most = 30 if grace is None else grace
    causes = []
    for name, hook in (container.get("lifecycle") or {}).items():
        sleep = hook.get("sleep") if isinstance(hook, dict) else None
        seconds = (sleep or {}).get("seconds", 0)
        if not 0 <= seconds <= most:
            why = f"must be non-negative and less than terminationGracePeriodSeconds ({most})"
            causes.append(invalid_value(f"{path}.{name}.sleep", seconds, why))
    return causes


def _probe(path: str, probe: JsonObject, *, success_once: bool) -> list[FieldError]:
    given = [name for name in _HANDLERS if probe.get(name) is not None]
    causes = [] if given else [required(path, "must specify a handler type")]
    causes += [forbidden(f"{path}.{name}", "may not specify more than 1 handler type") for name in given[1:]]
    for name in ("httpGet", "tcpSocket"):
        if name in given:
            port = probe[name].get("port", 0)
            if isinstance(port, int):
                if not 1 <= port <= 65535:
                    causes.append(invalid_value(f"{path}.{name}.port", port, PORT_WORDS))
            else:
                causes += said(f"{path}.{name}.port", port, port_name_faults(port))
    for name in ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"):
        causes += at_least_zero(f"{path}.{name}", probe.get(name))
    if success_once and probe.get("successThreshold", 1) not in (0, 1):
        causes.append(invalid_value(f"{path}.successThreshold", probe["successThreshold"], "must be 1"))
    return causes


# ---- resources ----


def resources(path: str, given: JsonObject) -> list[FieldError]:
    """A container's requests and limits, after requests were filled in from limits."""
    limits, requests = given.get("limits") or {}, given.get("requests") or {}
    causes = []
    for name, written in sorted(limits.items()):
        causes += _amount(f"{path}.limits[{name}]", name, written)
    for name, written in sorted(requests.items()):
        causes += _amount(f"{path}.requests[{name}]", name, written)
        asked, limit = amount(written), amount(limits.get(name))
        shared = _overcommits(name)
        shown = canonical_quantity(written)
        if limit is None:
            if not shared and name not in limits:
                causes.append(required(f"{path}.limits", "Limit must be set for non overcommitable resources"))
        elif asked is not None and not shared and asked != limit:
            why = f"must be equal to {name} limit of {canonical_quantity(limits[name])}"
            causes.append(invalid_value(f"{path}.requests", shown, why))
        elif asked is not None and shared and asked > limit:
            why = f"must be less than or equal to {name} limit of {canonical_quantity(limits[name])}"
            causes.append(invalid_value(f"{path}.requests", shown, why))
    named = {**limits, **requests}
    if any(name.startswith("hugepages-") for name in named) and not {"cpu", "memory"} & set(named):
        causes.append(forbidden(path, "HugePages require cpu or memory"))
    return causes


def _overcommits(name: str) -> bool:
    return ("/" not in name or "kubernetes.io/" in name) and not name.startswith("hugepages-")


def _amount(path: str, name: str, written: Any) -> list[FieldError]:
    causes = _resource_name(path, name)
    value, shown = amount(written), canonical_quantity(written)
    if value is None:
        return causes
    if value < 0:
        causes.append(invalid_value(path, shown, NOT_NEGATIVE))
    if not ("/" not in name or "kubernetes.io/" in name) and value.denominator != 1:
        causes.append(invalid_value(path, shown, "must be an integer"))
    return causes


def _resource_name(path: str, name: str) -> list[FieldError]:
    faults = qualified_faults(name)
    if faults:
        causes = said(path, name, faults)
        return [*causes, invalid_value(path, name, "doesn't follow extended resource name standard")]
    if "/" not in name:
        if name in _STANDARD or name.startswith("hugepages-"):
            return []
        return [
            invalid_value(path, name, "must be a standard resource type or fully qualified"),
            invalid_value(path, name, "must be a standard resource for containers"),
        ]
    if name.startswith("requests."):
        return [invalid_value(path, name, "doesn't follow extended resource name standard")]
    return []
