"""What kube-apiserver refuses of volumes.

Source: kubernetes/kubernetes v1.36 pkg/apis/core/validation/validation.go (ValidateVolumes).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from tonnage.objects.api.errors import (
    FieldError,
    amount,
    duplicate,
    forbidden,
    invalid_value,
    label_faults,
    one_of,
    required,
    said,
)

JsonObject: TypeAlias = dict[str, Any]

_PATHS = ("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket")


def volumes(path: str, spec: JsonObject) -> list[FieldError]:
    """All volumes of a pod's ``spec``, which stands at ``path``."""
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
        for source in sources[:1]:
            causes += _source(f"{path}.volumes[{index}].{source}", source, volume[source] or {})
    return causes


def _source(path: str, kind: str, given: JsonObject) -> list[FieldError]:
    if kind in _NEEDED:
        return [required(f"{path}.{name}") for name in _NEEDED[kind] if not given.get(name)]
    if kind in _BY_KIND:
        return _BY_KIND[kind](path, given)
    return []


def _host_path(path: str, given: JsonObject) -> list[FieldError]:
    where = given.get("path") or ""
    if not where:
        return [required(f"{path}.path")]
    causes = [invalid_value(f"{path}.path", where, "must not contain '..'")] if ".." in where.split("/") else []
    return causes + one_of(f"{path}.type", given.get("type"), _PATHS)


def _empty_dir(path: str, given: JsonObject) -> list[FieldError]:
    size = amount(given["sizeLimit"]) if given.get("sizeLimit") is not None else None
    if size is None or size >= 0:
        return []
    return [forbidden(f"{path}.sizeLimit", "SizeLimit field must be a valid resource quantity")]


def _nfs(path: str, given: JsonObject) -> list[FieldError]:
    causes = [required(f"{path}.{name}") for name in ("server", "path") if not given.get(name)]
    if not (given.get("path") or "").startswith("/"):
        causes.append(invalid_value(f"{path}.path", given.get("path") or "", "must be an absolute path"))
    return causes


_NEEDED = {
    "configMap": ("name",),
    "secret": ("secretName",),
    "persistentVolumeClaim": ("claimName",),
    "csi": ("driver",),
    "ephemeral": ("volumeClaimTemplate",),
}
"""What a source has to name."""
_BY_KIND: dict[str, Callable[[str, JsonObject], list[FieldError]]] = {
    "hostPath": _host_path,
    "emptyDir": _empty_dir,
    "nfs": _nfs,
}
