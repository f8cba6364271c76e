"""What kube-apiserver refuses of Services.

Source: kubernetes/kubernetes v1.36 pkg/apis/core/validation/validation.go (ValidateService).
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any, TypeAlias

from tonnage.objects.api.errors import (
    PORT_WORDS,
    FieldError,
    duplicate,
    forbidden,
    invalid_value,
    label_faults,
    labels,
    one_of,
    port_name_faults,
    required,
    said,
    show,
    subdomain_faults,
)

JsonObject: TypeAlias = dict[str, Any]

_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_IP_WORDS = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"


def service(obj: JsonObject) -> list[FieldError]:
    spec = obj.get("spec") or {}
    kind, address, ports = spec.get("type"), spec.get("clusterIP"), spec.get("ports") or []
    causes: list[FieldError] = []
    if not ports and address != "None" and kind != "ExternalName":
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
    if kind != "ExternalName" and address and address != "None" and not _is_address(address):
        causes.append(invalid_value("spec.clusterIPs[0]", address, _IP_WORDS))
    return causes


def _twice(path: str, port: JsonObject) -> FieldError:
    """kube-apiserver shows number and protocol in the form of its own struct."""
    parts = {"Name": "", "Protocol": port.get("protocol"), "AppProtocol": None, "Port": port.get("port")}
    shown = ",".join(f'"{key}":{show(value)}' for key, value in (parts | {"TargetPort": 0, "NodePort": 0}).items())
    return FieldError("FieldValueDuplicate", f"Duplicate value: {{{shown}}}", path)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


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
    causes += one_of(f"{path}.protocol", port.get("protocol"), _PROTOCOLS)
    if isinstance(target, str):
        causes += said(f"{path}.targetPort", target, port_name_faults(target))
    elif target is not None and not 1 <= target <= 65535:
        causes.append(invalid_value(f"{path}.targetPort", target, PORT_WORDS))
    return causes
