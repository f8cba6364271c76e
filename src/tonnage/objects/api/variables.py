"""What kube-apiserver refuses of a container's variables, and of the fields and amounts of a pod that they may name.

Source: kubernetes/kubernetes v1.36 pkg/apis/core/validation/validation.go.
"""

from __future__ import annotations

import re
from typing import Any, TypeAlias

from tonnage.objects.api.canonical import canonical_quantity
from tonnage.objects.api.errors import (
    FieldError,
    amount,
    config_key_faults,
    invalid_value,
    placed,
    qualified_faults,
    required,
    said,
    subdomain_faults,
    unsupported,
)

JsonObject: TypeAlias = dict[str, Any]

_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_NO_SOURCE = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
_FIELDS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
FILE_FIELDS = ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")
"""Fields that a file of a downwardAPI volume may have."""
_KNOWN = {*_FIELDS, *FILE_FIELDS, "spec.restartPolicy", "spec.schedulerName", "status.phase"}
_SUBSCRIPT = re.compile(r"(.+?)\['(.*)'\]")
_MAPS = ("metadata.annotations", "metadata.labels")
_AMOUNTS = tuple(f"{part}.{name}" for part in ("limits", "requests") for name in ("cpu", "ephemeral-storage", "memory"))
_BYTES = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")
_DIVISORS = {
    "cpu": ("cpu", ("1m", "1")),
    "memory": ("memory", _BYTES),
    "ephemeral-storage": ("local ephemeral storage", _BYTES),
    "hugepages": ("hugepages", _BYTES),
}
"""By resource: how it is called, and in which units it may be told."""


def _name_faults(text: str) -> list[str]:
    """What keeps a text from being the beginning of a variable's name."""
    if "=" not in text and text.isascii() and (text.isprintable() or not text):
        return []
    return ["a valid environment variable name must consist only of printable ASCII characters other than '='"]


def field_ref(path: str, given: JsonObject, fields: tuple[str, ...], at: str = "") -> list[FieldError]:
    """A field of the pod, one of ``fields`` or one entry of its labels or annotations. ``at``: where it stands, if that
    is not ``path``."""
    name, here = given.get("fieldPath") or "", f"{path}.fieldPath"
    subscript = _SUBSCRIPT.fullmatch(name)
    if not name:
        causes = [required(here)]
    elif subscript is not None and subscript[1] not in _MAPS:
        why = f"error converting fieldPath: field label does not support subscript: {name}"
        causes = [invalid_value(here, name, why)]
    elif subscript is not None:
        key = subscript[2].lower() if subscript[1] == "metadata.annotations" else subscript[2]
        causes = said(path, key, qualified_faults(key))
    elif name not in _KNOWN:
        why = f"error converting fieldPath: field label not supported: {name}"
        causes = [invalid_value(here, name, why)]
    else:
        causes = [] if name in fields else [unsupported(here, name, fields)]
    return placed(causes, f"{at or path}.fieldPath")


def resource_field_ref(path: str, given: JsonObject, at: str = "", *, named: bool = False) -> list[FieldError]:
    """A container's request or limit; ``named``: the container must be. ``at``: as of :func:`field_ref`."""
    name = given.get("resource") or ""
    place = at or path
    if named and not given.get("containerName"):
        return placed([required(f"{path}.containerName")], f"{place}.containerName")
    if not name:
        return placed([required(f"{path}.resource")], f"{place}.resource")
    if name not in _AMOUNTS and ".hugepages-" not in name:
        return placed([unsupported(f"{path}.resource", name, _AMOUNTS)], f"{place}.resource")
    resource = name.partition(".")[2]
    words, divisors = _DIVISORS["hugepages" if resource.startswith("hugepages-") else resource]
    divisor = given.get("divisor")
    if not amount(divisor) or canonical_quantity(divisor) in divisors:
        return []
    why = f"only divisor's values {', '.join(divisors) if words != 'cpu' else '1m and 1'} are supported with the"
    wrong = invalid_value(f"{path}.divisor", name, f"{why} {words} resource")
    return placed([wrong], f"{place}.divisor")


def env(path: str, variables: list[JsonObject]) -> list[FieldError]:
    """A container's variables."""
    causes = []
    for index, variable in enumerate(variables):
        name = variable.get("name") or ""
        if not name:
            causes.append(required(f"{path}[{index}].name"))
        else:
            causes += said(f"{path}[{index}].name", name, _name_faults(name))
        if variable.get("valueFrom") is not None:
            causes += _value_from(f"{path}[{index}].valueFrom", variable)
    return causes


def _value_from(path: str, variable: JsonObject) -> list[FieldError]:
    source = variable["valueFrom"]
    causes: list[FieldError] = []
    given = [name for name in _SOURCES if source.get(name) is not None]
    if source.get("fieldRef") is not None:
        causes += field_ref(f"{path}.fieldRef", source["fieldRef"], _FIELDS)
    if source.get("resourceFieldRef") is not None:
        causes += resource_field_ref(f"{path}.resourceFieldRef", source["resourceFieldRef"])
    for kind in ("configMapKeyRef", "secretKeyRef"):
        selected = source.get(kind)
        if selected is None:
            continue
        name, key = selected.get("name") or "", selected.get("key") or ""
        causes += said(f"{path}.{kind}.name", name, subdomain_faults(name))
        causes += said(f"{path}.{kind}.key", key, config_key_faults(key)) if key else [required(f"{path}.{kind}.key")]
    if not given:
        return [invalid_value(path, "", _NO_SOURCE)]
    if variable.get("value"):
        causes.append(invalid_value(path, "", "may not be specified when `value` is not empty"))
    elif len(given) > 1:
        causes.append(invalid_value(path, "", "may not have more than one field specified at a time"))
    return causes


def env_from(path: str, sources: list[JsonObject]) -> list[FieldError]:
    """The objects whose entries become a container's variables."""
    causes: list[FieldError] = []
    for index, source in enumerate(sources):
        prefix = source.get("prefix") or ""
        causes += said(f"{path}[{index}].prefix", prefix, _name_faults(prefix))
        given = [name for name in ("configMapRef", "secretRef") if source.get(name) is not None]
        for kind in given:
            here, name = f"{path}[{index}].{kind}.name", source[kind].get("name") or ""
            causes += said(here, name, subdomain_faults(name)) if name else [required(here)]
        if not given:
            wrong = invalid_value(path, "", "must specify one of: `configMapRef` or `secretRef`")
            causes += placed([wrong], f"{path}[{index}]")
        elif len(given) > 1:
            wrong = invalid_value(path, "", "may not have more than one field specified at a time")
            causes += placed([wrong], f"{path}[{index}]")
    return causes
