"""Objects of resource.k8s.io in whatever version they are written.

v1beta2 is written as v1. v1beta1 differs in two places: a device has its fields below `basic`, and a request has those
of `exactly` itself. v1alpha2 and v1alpha3 are served no more, but for DeviceTaintRule; what they said is said otherwise
now.

Sources: kubernetes/kubernetes v1.36 staging/src/k8s.io/dynamic-resource-allocation/api/v1beta1/conversion.go;
CHANGELOG-1.31 and CHANGELOG-1.32 (what is gone).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from tonnage.errors import InputError, Problem, Where
from tonnage.objects import dra
from tonnage.objects.decode import convert, without_nulls

Described: TypeAlias = (
    dra.DeviceClass | dra.ResourceSlice | dra.ResourceClaim | dra.ResourceClaimTemplate | dra.DeviceTaintRule
)
KINDS: Mapping[str, type[Described]] = {
    "DeviceClass": dra.DeviceClass,
    "DeviceTaintRule": dra.DeviceTaintRule,
    "ResourceClaim": dra.ResourceClaim,
    "ResourceClaimTemplate": dra.ResourceClaimTemplate,
    "ResourceSlice": dra.ResourceSlice,
}
READ = {
    dra.V1: ("DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice"),
    dra.V1BETA2: tuple(KINDS),
    dra.V1BETA1: ("DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice"),
    f"{dra.GROUP}/v1alpha3": ("DeviceTaintRule",),
}
"""The kinds of each version that is read."""
_EXACT = (
    "deviceClassName",
    "selectors",
    "allocationMode",
    "count",
    "adminAccess",
    "tolerations",
    "capacity",
)
_INSTEAD = {
    "ResourceClass": "write a DeviceClass of resource.k8s.io/v1, with CEL selectors instead of driverName",
    "ResourceClaimParameters": "write spec.devices.requests of a ResourceClaim of resource.k8s.io/v1",
    "ResourceClassParameters": "write spec.config of a DeviceClass of resource.k8s.io/v1",
    "PodSchedulingContext": "remove it: kube-scheduler allocates claims itself",
    "ResourceClaim": "write spec.devices.requests with a deviceClassName in resource.k8s.io/v1",
    "ResourceClaimTemplate": "write spec.spec.devices.requests with a deviceClassName in resource.k8s.io/v1",
    "ResourceSlice": "drivers publish it as resource.k8s.io/v1",
    "DeviceClass": "it is written alike in resource.k8s.io/v1",
    "DeviceTaintRule": "it is written alike in resource.k8s.io/v1beta2",
}


def refused(content: Mapping[str, Any]) -> str:
    """What to write instead of an object whose version is served no more; empty for others."""
    version, kind = content.get("apiVersion"), content.get("kind")
    if not isinstance(version, str) or version.partition("/")[0] != dra.GROUP or not isinstance(kind, str):
        return ""
    return _INSTEAD.get(kind, "") if kind not in READ.get(version, ()) else ""


def as_v1(content: dict[str, Any]) -> dict[str, Any]:
    """The object as v1 has it; itself where it is written so already. What has another type than expected stays."""
    if content.get("apiVersion") != dra.V1BETA1:
        return content
    spec = content.get("spec")
    if not isinstance(spec, dict):
        return content
    match content.get("kind"):
        case "ResourceSlice":
            return {**content, "spec": _each(spec, "devices", _device)}
        case "ResourceClaim":
            return {**content, "spec": _claim(spec)}
        case "ResourceClaimTemplate" if isinstance(spec.get("spec"), dict):
            return {**content, "spec": {**spec, "spec": _claim(spec["spec"])}}
    return content


_EXACTLY, _BASIC = re.compile(r"(requests\[\d+\])\.exactly\b"), re.compile(r"(spec\.devices\[\d+\])\.(?!name\b)")


def place(content: Mapping[str, Any], at: Callable[[str], Where], field: str) -> Where:
    """Where a field of v1 stands in an object as it is written; ``at`` says where what is written stands."""
    if content.get("apiVersion") == dra.V1BETA1 and content.get("kind") in READ[dra.V1BETA1]:
        field = _BASIC.sub(r"\1.basic.", _EXACTLY.sub(r"\1", field))
    return at(field)


def _claim(spec: dict[str, Any]) -> dict[str, Any]:
    devices = spec.get("devices")
    return {**spec, "devices": _each(devices, "requests", _request)} if isinstance(devices, dict) else spec


def _each(holder: dict[str, Any], name: str, change: Any) -> dict[str, Any]:
    listed = holder.get(name)
    if not isinstance(listed, list):
        return holder
    return {**holder, name: [change(one) if isinstance(one, dict) else one for one in listed]}


def _device(device: dict[str, Any]) -> dict[str, Any]:
    basic = device.get("basic")
    if not isinstance(basic, dict):
        return device
    return {**{key: value for key, value in device.items() if key != "basic"}, **basic}


def _request(request: dict[str, Any]) -> dict[str, Any]:
    own = {key: value for key, value in request.items() if key in _EXACT}
    return {**{key: value for key, value in request.items() if key not in _EXACT}, "exactly": own} if own else request


def from_dict(content: Mapping[str, Any]) -> Described:
    """One object of resource.k8s.io, as `yaml.safe_load` or `json.loads` gives it.

    Raises InputError with every field of a wrong type, for a version that is served no more (with what to write
    instead), and for an object of another kind.
    """
    instead = refused(content)
    if instead:
        what = f"{content['kind']} of {content['apiVersion']} is served no more"
        raise InputError(Problem(Where(field="apiVersion"), what, instead))
    kind = content.get("kind")
    if kind not in READ.get(content.get("apiVersion", ""), ()):
        raise InputError.at(
            f"{kind} of {content.get('apiVersion')}: expected a kind of {dra.GROUP}",
            field="kind",
            hint=f"one of {', '.join(KINDS)}",
        )
    made = convert(as_v1(without_nulls(dict(content))), KINDS[str(kind)], {})
    if isinstance(made, list):
        raise InputError(*(Problem(Where(field=one.field), one.message, one.hint) for one in made))
    return made
