"""What kube-apiserver refuses of containers: names, ports, mounts, probes, hooks, and what they ask for.

Source: kubernetes/kubernetes v1.36 pkg/apis/core/validation/validation.go.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

from tonnage.objects.api.amounts import is_native, of_pods, resource_amount
from tonnage.objects.api.canonical import canonical_quantity
from tonnage.objects.api.errors import (
    PORT_WORDS,
    PROTOCOLS,
    FieldError,
    amount,
    at_least_zero,
    descending_faults,
    duplicate,
    forbidden,
    invalid_value,
    label_faults,
    not_found,
    one_of,
    placed,
    port_name_faults,
    qualified_faults,
    required,
    said,
    unsupported,
    within,
)
from tonnage.objects.api.restart_rules import restart_rules
from tonnage.objects.api.security import container_security
from tonnage.objects.api.variables import env, env_from
from tonnage.objects.api.volumes import PULLS

JsonObject: TypeAlias = dict[str, Any]

_LAST_WORDS = ("File", "FallbackToLogsOnError")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")
_HOOKS = ("exec", "httpGet", "tcpSocket", "sleep")
STANDARD = ("cpu", "memory", "ephemeral-storage")
_OF_PODS = ("cpu", "hugepages-", "memory")
RESTARTS = ("Always", "Never", "OnFailure")
GRACE_S = 30
"""The default of terminationGracePeriodSeconds."""
_CLAIMED = ("persistentVolumeClaim", "ephemeral")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_RUNNING = ("lifecycle", *_PROBES)
"""What only a container has that runs beside others."""
_HEADER_WORDS = (
    "a valid HTTP header must consist of alphanumeric characters or '-' "
    "(e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')"
)


def containers(path: str, spec: JsonObject, claimed: frozenset[str] = frozenset()) -> list[FieldError]:
    """All containers of a pod's ``spec``, which stands at ``path``."""
    if not spec.get("containers"):
        return [required(f"{path}.containers")]
    causes: list[FieldError] = []
    names: set[str] = set()
    volumes = {volume.get("name"): volume for volume in spec.get("volumes") or ()}
    volumes |= {name: {"name": name, "persistentVolumeClaim": {}} for name in claimed}
    claims = [str(claim.get("name")) for claim in spec.get("resourceClaims") or ()]
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
            causes += _container(here, container, volumes, spec)
            if part == "initContainers" and container.get("restartPolicy") != "Always":
                why = "may not be set for init containers without restartPolicy=Always"
                causes += [forbidden(f"{here}.{one}", why) for one in _RUNNING if container.get(one) is not None]
            else:
                causes += _lifecycle(f"{here}.lifecycle", container, spec.get("terminationGracePeriodSeconds"))
                for one in _PROBES:
                    if container.get(one) is not None:
                        causes += _probe(f"{here}.{one}", container[one], success_once=one != "readinessProbe")
            causes += _claimed(f"{here}.resources.claims", container, claims)
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


def _container(
    path: str, container: JsonObject, volumes: Mapping[Any, JsonObject], spec: JsonObject
) -> list[FieldError]:
    image = container.get("image") or ""
    causes = []
    if not image:
        causes.append(required(f"{path}.image"))
    elif image != image.strip():
        causes.append(invalid_value(f"{path}.image", image, "must not have leading or trailing whitespace"))
    causes += _ports(f"{path}.ports", container.get("ports") or [], host_network=bool(spec.get("hostNetwork")))
    causes += env(f"{path}.env", container.get("env") or [])
    causes += env_from(f"{path}.envFrom", container.get("envFrom") or [])
    privileged = (container.get("securityContext") or {}).get("privileged") is True
    causes += _mounts(f"{path}.volumeMounts", container.get("volumeMounts") or [], volumes, privileged=privileged)
    causes += _devices(f"{path}.volumeDevices", container.get("volumeDevices") or [], volumes)
    causes += one_of(f"{path}.restartPolicy", container.get("restartPolicy"), RESTARTS)
    causes += restart_rules(path, container)
    causes += one_of(f"{path}.imagePullPolicy", container.get("imagePullPolicy"), PULLS)
    causes += one_of(f"{path}.terminationMessagePolicy", container.get("terminationMessagePolicy"), _LAST_WORDS)
    causes += resources(f"{path}.resources", container.get("resources") or {})
    causes += _resizing(f"{path}.resizePolicy", container.get("resizePolicy") or [], spec.get("restartPolicy"))
    return causes + container_security(f"{path}.securityContext", container.get("securityContext") or {}, spec)


def _resizing(path: str, policies: list[JsonObject], restart: str | None) -> list[FieldError]:
    """What happens to a container whose resources change; kube-apiserver names the list, and a repetition its entry."""
    causes: list[FieldError] = []
    seen: set[str] = set()
    for index, one in enumerate(policies):
        name, policy = one.get("resourceName") or "", one.get("restartPolicy") or ""
        if name in seen:
            causes.append(duplicate(f"{path}[{index}]", name))
        seen.add(name)
        own = one_of(path, name, ("cpu", "memory")) if name else [required(path)]
        causes += placed(own, f"{path}[{index}].resourceName")
        own = one_of(path, policy, ("NotRequired", "RestartContainer")) if policy else [required(path)]
        if restart == "Never" and policy != "NotRequired":
            own.append(invalid_value(path, policy, "must be 'NotRequired' when pod `restartPolicy` is 'Never'"))
        causes += placed(own, f"{path}[{index}].restartPolicy")
    return causes


def _claimed(path: str, container: JsonObject, claims: list[str]) -> list[FieldError]:
    """Claims that a container names are the pod's."""
    causes: list[FieldError] = []
    seen: set[str] = set()
    for index, claim in enumerate((container.get("resources") or {}).get("claims") or ()):
        name, request, here = claim.get("name") or "", claim.get("request") or "", f"{path}[{index}]"
        if not name:
            causes.append(required(f"{here}.name"))
            continue
        if name in seen or (not request and any(one.startswith(f"{name}/") for one in seen)):
            causes.append(duplicate(here, name))
        else:
            causes += said(f"{here}.request", request, label_faults(request)) if request else []
            whole = f"{name}/{request}" if request else name
            causes += [duplicate(here, whole)] if whole in seen else []
            seen.add(whole)
        if name not in claims:
            there = "which is empty" if not claims else f"one of: {', '.join(claims)}"
            why = f"must be one of the names in pod.spec.resourceClaims {there}"
            causes.append(FieldError("FieldValueNotFound", f'Not found: "{name}": {why}', here, name, why))
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
        causes += one_of(f"{here}.protocol", port.get("protocol"), PROTOCOLS)
    return causes


def _mounts(
    path: str, mounts: list[JsonObject], volumes: Mapping[Any, JsonObject], *, privileged: bool
) -> list[FieldError]:
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
        below, expression = mount.get("subPath") or "", mount.get("subPathExpr") or ""
        for name, text in (("subPath", below), ("subPathExpr", expression)):
            faults = descending_faults(text)
            causes += placed(said(f"{path}.{name}", text, faults), f"{path}[{index}].{name}")
        if below and expression:
            why = "subPathExpr and subPath are mutually exclusive"
            causes.append(invalid_value(f"{path}[{index}].subPathExpr", expression, why))
        causes += _spread_mount(path, mount, f"{path}[{index}]", privileged=privileged)
    return causes


def _spread_mount(path: str, mount: JsonObject, at: str, *, privileged: bool) -> list[FieldError]:
    """Whether mounts below a mount are seen outside, and whether they too are read-only."""
    propagation, recursive = mount.get("mountPropagation"), mount.get("recursiveReadOnly")
    here = f"{path}.mountPropagation"
    causes = one_of(here, propagation, ("Bidirectional", "HostToContainer", "None"))
    if propagation == "Bidirectional" and not privileged:
        causes.append(forbidden(here, "Bidirectional mount propagation is available only to privileged containers"))
    causes = placed(causes, f"{at}.mountPropagation")
    here = f"{path}.recursiveReadOnly"
    own = one_of(here, recursive, ("Disabled", "Enabled", "IfPossible"))
    if recursive in ("Enabled", "IfPossible"):
        if not mount.get("readOnly"):
            own.append(forbidden(here, "may only be specified when readOnly is true"))
        if propagation not in (None, "None"):
            own.append(forbidden(here, "may only be specified when mountPropagation is None or not specified"))
    return causes + placed(own, f"{at}.recursiveReadOnly")


def _devices(path: str, devices: list[JsonObject], volumes: Mapping[Any, JsonObject]) -> list[FieldError]:
    causes: list[FieldError] = []
    for index, device in enumerate(devices):
        name, here = device.get("name") or "", f"{path}[{index}].name"
        if not name:
            causes.append(required(here))
        elif name not in volumes:
            causes.append(not_found(here, name, sorted(str(one) for one in volumes)))
        elif not any(volumes[name].get(kind) is not None for kind in _CLAIMED):
            why = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            causes.append(invalid_value(here, name, why))
        if not device.get("devicePath"):
            causes.append(required(f"{path}[{index}].devicePath"))
    return causes


def _lifecycle(path: str, container: JsonObject, grace: int | None) -> list[FieldError]:
    """Hooks, of which none may sleep beyond the grace period."""
    most = GRACE_S if grace is None else grace
    causes: list[FieldError] = []
    for name in ("postStart", "preStop"):
        hook = (container.get("lifecycle") or {}).get(name)
        if hook is None:
            continue
        causes += _handler(f"{path}.{name}", hook, _HOOKS)
        if hook.get("sleep") is not None:
            seconds = hook["sleep"].get("seconds") or 0
            if not 0 <= seconds <= most:
                why = f"must be non-negative and less than terminationGracePeriodSeconds ({most})"
                wrong = invalid_value(f"{path}.{name}.sleep", seconds, why)
                causes += placed([wrong], f"{path}.{name}.sleep.seconds")
    return causes


def _handler(path: str, handler: JsonObject, kinds: tuple[str, ...]) -> list[FieldError]:
    """What a probe asks or a hook does: one of ``kinds``."""
    given = [name for name in kinds if handler.get(name) is not None]
    causes = [forbidden(f"{path}.{name}", "may not specify more than 1 handler type") for name in given[1:]]
    for name in given[:1]:
        causes += _asked(f"{path}.{name}", name, handler[name])
    return causes if given else [required(path, "must specify a handler type")]


def _asked(path: str, kind: str, asked: JsonObject) -> list[FieldError]:
    if kind == "exec":
        return [] if asked.get("command") else [required(f"{path}.command")]
    if kind == "sleep":
        return []
    causes: list[FieldError] = []
    if kind == "httpGet" and not asked.get("path"):
        causes.append(required(f"{path}.path"))
    port = asked.get("port", 0)
    if isinstance(port, int):
        causes += [] if 1 <= port <= 65535 else [invalid_value(f"{path}.port", port, PORT_WORDS)]
    else:
        causes += said(f"{path}.port", port, port_name_faults(port))
    if kind == "httpGet":
        causes += one_of(f"{path}.scheme", asked.get("scheme"), ("HTTP", "HTTPS"))
        for index, header in enumerate(asked.get("httpHeaders") or ()):
            name = header.get("name") or ""
            if not re.fullmatch("[-A-Za-z0-9]+", name):
                wrong = invalid_value(f"{path}.httpHeaders", name, _HEADER_WORDS)
                causes += placed([wrong], f"{path}.httpHeaders[{index}].name")
    return causes


def _probe(path: str, probe: JsonObject, *, success_once: bool) -> list[FieldError]:
    causes = _handler(path, probe, _HANDLERS)
    for name in ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"):
        causes += at_least_zero(f"{path}.{name}", probe.get(name))
    if success_once and probe.get("successThreshold", 1) not in (0, 1):
        causes.append(invalid_value(f"{path}.successThreshold", probe["successThreshold"], "must be 1"))
    grace = probe.get("terminationGracePeriodSeconds")
    if grace is not None and not success_once:
        why = "must not be set for readinessProbes"
        causes.append(invalid_value(f"{path}.terminationGracePeriodSeconds", grace, why))
    elif grace is not None and grace <= 0:
        causes.append(invalid_value(f"{path}.terminationGracePeriodSeconds", grace, "must be greater than 0"))
    return causes


# ---- resources ----


def resources(path: str, given: JsonObject) -> list[FieldError]:
    """A container's requests and limits, after requests were filled in from limits; a pod's overhead is limits."""
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
                missing = required(f"{path}.limits", "Limit must be set for non overcommitable resources")
                causes += placed([missing], f"{path}.requests.{name}")
        elif asked is not None and not shared and asked != limit:
            why = f"must be equal to {name} limit of {canonical_quantity(limits[name])}"
            causes += placed([invalid_value(f"{path}.requests", shown, why)], f"{path}.requests.{name}")
        elif asked is not None and shared and asked > limit:
            why = f"must be less than or equal to {name} limit of {canonical_quantity(limits[name])}"
            causes += placed([invalid_value(f"{path}.requests", shown, why)], f"{path}.requests.{name}")
    named = {**limits, **requests}
    if any(name.startswith("hugepages-") for name in named) and not {"cpu", "memory"} & set(named):
        causes.append(forbidden(path, "HugePages require cpu or memory"))
    return causes


def pod_resources(path: str, given: JsonObject) -> list[FieldError]:
    """Requests and limits of the pod as a whole."""
    causes: list[FieldError] = []
    limits, requests = given.get("limits") or {}, given.get("requests") or {}
    for part, named in (("limits", limits), ("requests", requests)):
        for name in sorted(named):
            here = f"{path}.{part}[{name}]"
            if of_pods(name):
                continue
            if "/" not in name and name not in STANDARD:
                causes.append(invalid_value(here, name, "must be a standard resource type or fully qualified"))
                continue
            causes.append(unsupported(here, name, _OF_PODS))
            if part == "requests" and name not in limits and not _overcommits(name):
                missing = required(f"{path}.limits", "Limit must be set for non overcommitable resources")
                causes += placed([missing], f"{path}.requests.{name}")
    return causes or resources(path, given)


def _overcommits(name: str) -> bool:
    return is_native(name) and not name.startswith("hugepages-")


def _amount(path: str, name: str, written: Any) -> list[FieldError]:
    causes = _resource_name(path, name) + resource_amount(path, name, written)
    value = amount(written)
    if name.startswith("hugepages-") and value is not None and "/" not in name:
        size = amount(name.removeprefix("hugepages-"))
        if not size or size < 0 or size.denominator != 1 or value % size:
            shown = canonical_quantity(written)
            causes.append(invalid_value(path, shown, f"{shown} is not positive integer multiple of {name}"))
    return causes


def _resource_name(path: str, name: str) -> list[FieldError]:
    faults = qualified_faults(name)
    if faults:
        causes = said(path, name, faults)
        return [*causes, invalid_value(path, name, "doesn't follow extended resource name standard")]
    if "/" not in name:
        if name in STANDARD or name.startswith("hugepages-"):
            return []
        return [
            invalid_value(path, name, "must be a standard resource type or fully qualified"),
            invalid_value(path, name, "must be a standard resource for containers"),
        ]
    if name.startswith("requests."):
        return [invalid_value(path, name, "doesn't follow extended resource name standard")]
    return []
