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
_NEAREST = ("PreferClose", "PreferSameZone", "PreferSameNode")
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
    return causes + _addresses(spec, kind) + _reach(spec, kind)


def _addresses(spec: JsonObject, kind: Any) -> list[FieldError]:
    """The addresses of a Service in the cluster, and their families."""
    own, all_own, families = spec.get("clusterIP") or "", spec.get("clusterIPs") or [], spec.get("ipFamilies") or []
    policy = spec.get("ipFamilyPolicy")
    causes: list[FieldError] = []
    if kind == "ExternalName":
        if own or all_own:
            wrong = forbidden("spec.clusterIPs", "may not be set for ExternalName services")
            causes += placed([wrong], "spec.clusterIPs" if all_own else "spec.clusterIP")
    elif all_own and not own:
        causes.append(invalid_value("spec.clusterIPs", all_own, "must be empty when `clusterIP` is not specified"))
    elif own == "None":
        if len(all_own) > 1:
            causes.append(invalid_value("spec.clusterIPs", all_own, "'None' must be the first and only value"))
        if kind in ("NodePort", "LoadBalancer"):
            wrong = invalid_value("spec.clusterIPs[0]", own, f"may not be set to 'None' for {kind} services")
            causes += placed([wrong], "spec.clusterIP")
    elif own:
        causes += placed(address("spec.clusterIPs[0]", own), "spec.clusterIP")
    for index, family in enumerate(families):
        here = f"spec.ipFamilies[{index}]"
        causes += one_of(here, family, ("IPv4", "IPv6"))
        causes += [duplicate(here, family)] if family in families[:index] else []
    causes += one_of("spec.ipFamilyPolicy", policy, ("PreferDualStack", "RequireDualStack", "SingleStack"))
    if policy == "SingleStack" and sorted(families) == ["IPv4", "IPv6"]:
        why = "must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified"
        causes.append(invalid_value("spec.ipFamilyPolicy", policy, why))
    return causes


def _balanced(spec: JsonObject, kind: Any) -> list[FieldError]:
    """What only a Service with a load balancer may have."""
    causes: list[FieldError] = []
    name = spec.get("loadBalancerClass")
    for field in ("loadBalancerClass", "allocateLoadBalancerNodePorts"):
        if kind != "LoadBalancer" and spec.get(field) is not None:
            causes.append(forbidden(f"spec.{field}", "may only be used when `type` is 'LoadBalancer'"))
    if kind == "LoadBalancer" and name is not None:
        causes += said("spec.loadBalancerClass", name, qualified_faults(name))
    port, here = spec.get("healthCheckNodePort") or 0, "spec.healthCheckNodePort"
    if port and (kind != "LoadBalancer" or spec.get("externalTrafficPolicy") != "Local"):
        why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        causes.append(invalid_value(here, port, why))
    elif port and not 1 <= port <= 65535:
        causes.append(invalid_value(here, port, PORT_WORDS))
    return causes


def _reach(spec: JsonObject, kind: Any) -> list[FieldError]:
    """From where a Service is reached, and for how long by the same client."""
    causes = _balanced(spec, kind)
    causes += one_of("spec.trafficDistribution", spec.get("trafficDistribution"), _NEAREST)
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
