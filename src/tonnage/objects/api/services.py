"""What kube-apiserver refuses of Services.

Source: kubernetes/kubernetes v1.36 pkg/apis/core/validation/validation.go (ValidateService).
"""

from __future__ import annotations

from typing import Any, TypeAlias

from tonnage.objects.api.errors import (
    PORT_WORDS,
    PROTOCOLS,
    FieldError,
    address,
    duplicate,
    forbidden,
    invalid_value,
    label_faults,
    labels,
    network,
    one_of,
    placed,
    port_name_faults,
    qualified_faults,
    required,
    said,
    show,
    subdomain_faults,
)

JsonObject: TypeAlias = dict[str, Any]

_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_LONGEST_SESSION_S = 86_400


def service(obj: JsonObject) -> list[FieldError]:
    spec = obj.get("spec") or {}
    kind, own, ports = spec.get("type"), spec.get("clusterIP"), spec.get("ports") or []
    causes: list[FieldError] = []
    if not ports and own != "None" and kind != "ExternalName":
        causes.append(required("spec.ports"))
    if kind == "ExternalName":
        name = (spec.get("externalName") or "").removesuffix(".")
        causes += said("spec.externalName", name, subdomain_faults(name)) if name else [required("spec.externalName")]
    names: set[str] = set()
    for index, port in enumerate(ports):
        causes += _port(f"spec.ports[{index}]", port, names, named=len(ports) > 1)
    causes += labels("spec.selector", spec.get("selector"))
    causes += one_of("spec.sessionAffinity", spec.get("sessionAffinity"), ("ClientIP", "None"))
    causes += one_of("spec.type", kind, _TYPES)
    seen: set[tuple[Any, Any]] = set()
    for index, port in enumerate(ports):
        here = f"spec.ports[{index}]"
        if kind in ("ClusterIP", "ExternalName") and port.get("nodePort"):
            causes.append(forbidden(f"{here}.nodePort", f"may not be used when `type` is '{kind}'"))
        key = (port.get("port"), port.get("protocol"))
        if key in seen:
            causes.append(_twice(here, port))
        seen.add(key)
    if kind != "ExternalName" and own and own != "None":
        causes += placed(address("spec.clusterIPs[0]", own), "spec.clusterIP")
    return causes + _reach(spec, kind)


def _reach(spec: JsonObject, kind: Any) -> list[FieldError]:
    """From where a Service is reached, and for how long by the same client."""
    causes: list[FieldError] = []
    for index, text in enumerate(spec.get("externalIPs") or ()):
        causes += address(f"spec.externalIPs[{index}]", text)
    ranges = spec.get("loadBalancerSourceRanges") or []
    if ranges and kind != "LoadBalancer":
        why = "may only be used when `type` is 'LoadBalancer'"
        causes += placed([forbidden("spec.LoadBalancerSourceRanges", why)], "spec.loadBalancerSourceRanges")
    for index, text in enumerate(ranges):
        wrong = network(f"spec.LoadBalancerSourceRanges[{index}]", text)
        causes += placed(wrong, f"spec.loadBalancerSourceRanges[{index}]")
    seconds = ((spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}).get("timeoutSeconds")
    if seconds is not None and not 0 < seconds <= _LONGEST_SESSION_S:
        why = f"must be greater than 0 and less than {_LONGEST_SESSION_S}"
        causes.append(invalid_value("spec.sessionAffinityConfig.clientIP.timeoutSeconds", seconds, why))
    causes += one_of("spec.internalTrafficPolicy", spec.get("internalTrafficPolicy"), ("Cluster", "Local"))
    outside = spec.get("externalTrafficPolicy")
    if outside and kind not in ("NodePort", "LoadBalancer") and not spec.get("externalIPs"):
        why = "may only be set for externally-accessible services"
        causes.append(invalid_value("spec.externalTrafficPolicy", outside, why))
    else:
        causes += one_of("spec.externalTrafficPolicy", outside, ("Cluster", "Local"))
    return causes


def _twice(path: str, port: JsonObject) -> FieldError:
    """kube-apiserver shows number and protocol in the form of its own struct."""
    parts = {"Name": "", "Protocol": port.get("protocol"), "AppProtocol": None, "Port": port.get("port")}
    shown = ",".join(f'"{key}":{show(value)}' for key, value in (parts | {"TargetPort": 0, "NodePort": 0}).items())
    named = f"{port.get('port')}/{port.get('protocol')}"
    return FieldError("FieldValueDuplicate", f"Duplicate value: {{{shown}}}", path, named, at=f"{path}.port")


def _port(path: str, port: JsonObject, names: set[str], *, named: bool) -> list[FieldError]:
    causes: list[FieldError] = []
    name = port.get("name") or ""
    if named and not name:
        causes.append(required(f"{path}.name"))
    elif name:
        causes += said(f"{path}.name", name, label_faults(name))
        if name in names:
            causes.append(duplicate(f"{path}.name", name))
        names.add(name)
    number, target = port.get("port") or 0, port.get("targetPort")
    if not 1 <= number <= 65535:
        causes.append(invalid_value(f"{path}.port", number, PORT_WORDS))
    causes += one_of(f"{path}.protocol", port.get("protocol"), PROTOCOLS)
    if port.get("appProtocol"):
        causes += said(f"{path}.appProtocol", port["appProtocol"], qualified_faults(port["appProtocol"]))
    if isinstance(target, str):
        causes += said(f"{path}.targetPort", target, port_name_faults(target))
    elif target is not None and not 1 <= target <= 65535:
        causes.append(invalid_value(f"{path}.targetPort", target, PORT_WORDS))
    return causes
