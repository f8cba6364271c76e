"""What kube-apiserver refuses of volumes.

Source: kubernetes/kubernetes v1.36 pkg/apis/core/validation/validation.go (ValidateVolumes).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from tonnage.objects.api.canonical import canonical_quantity
from tonnage.objects.api.errors import (
    FieldError,
    amount,
    descending_faults,
    duplicate,
    forbidden,
    invalid_value,
    label_faults,
    labels,
    one_of,
    placed,
    required,
    said,
    subdomain_faults,
)
from tonnage.objects.api.variables import FILE_FIELDS, field_ref, resource_field_ref

JsonObject: TypeAlias = dict[str, Any]

PULLS = ("Always", "IfNotPresent", "Never")
"""When an image is pulled."""
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


def _mode(path: str, mode: Any) -> list[FieldError]:
    """The permissions of a file."""
    if mode is None or 0 <= mode <= 0o777:
        return []
    return [invalid_value(path, mode, "must be a number between 0 and 0777 (octal), both inclusive")]


def _file_faults(text: str) -> list[str]:
    """What keeps a path from being that of a file in a volume."""
    faults = descending_faults(text)
    return [*faults, "must not start with '..'"] if text.startswith("..") and not text.startswith("../") else faults


def _items(path: str, given: JsonObject) -> list[FieldError]:
    """Which keys of a ConfigMap or Secret become which files."""
    causes: list[FieldError] = []
    for index, item in enumerate(given.get("items") or ()):
        here, where = f"{path}[{index}]", item.get("path") or ""
        causes += [] if item.get("key") else [required(f"{here}.key")]
        causes += said(f"{here}.path", where, _file_faults(where)) if where else [required(f"{here}.path")]
        causes += _mode(f"{here}.mode", item.get("mode"))
    return causes


def _files(path: str, given: JsonObject, name: str) -> list[FieldError]:
    causes = [] if given.get(name) else [required(f"{path}.{name}")]
    return causes + _mode(f"{path}.defaultMode", given.get("defaultMode")) + _items(f"{path}.items", given)


def _config_map(path: str, given: JsonObject) -> list[FieldError]:
    return _files(path, given, "name")


def _secret(path: str, given: JsonObject) -> list[FieldError]:
    return _files(path, given, "secretName")


def _downward(path: str, given: JsonObject) -> list[FieldError]:
    """Fields of the pod as files; kube-apiserver names an entry's field without ``items`` and its number."""
    causes = _mode(f"{path}.defaultMode", given.get("defaultMode"))
    for index, item in enumerate(given.get("items") or ()):
        at, where = f"{path}.items[{index}]", item.get("path") or ""
        own = said(f"{path}.path", where, _file_faults(where)) if where else [required(f"{path}.path")]
        causes += placed(own, f"{at}.path")
        field, resource = item.get("fieldRef"), item.get("resourceFieldRef")
        if field is not None:
            causes += field_ref(f"{path}.fieldRef", field, FILE_FIELDS, f"{at}.fieldRef")
            if resource is not None:
                why = "fieldRef and resourceFieldRef can not be specified simultaneously"
                causes += placed([invalid_value(path, "resource", why)], at)
        elif resource is not None:
            there = f"{at}.resourceFieldRef"
            causes += resource_field_ref(f"{path}.resourceFieldRef", resource, there, named=True)
        else:
            causes += placed([required(path, "one of fieldRef and resourceFieldRef is required")], at)
        causes += placed(_mode(f"{path}.mode", item.get("mode")), f"{at}.mode")
    return causes


def _projected(path: str, given: JsonObject) -> list[FieldError]:
    """Several sources of files in one volume, no two of which may have one path."""
    causes = _mode(f"{path}.defaultMode", given.get("defaultMode"))
    taken: set[str] = set()
    for index, source in enumerate(given.get("sources") or ()):
        here = f"{path}.sources[{index}]"
        kinds = [kind for kind in _PROJECTED if source.get(kind) is not None]
        for kind in kinds:
            one, at = source[kind], f"{here}.{kind}"
            if kind == "serviceAccountToken":
                causes += _token(path, one, at)
                continue
            causes += _downward(at, one) if kind == "downwardAPI" else _files(at, one, "name")
            for item in one.get("items") or ():
                where = item.get("path") or ""
                if where in taken:
                    shown = where if kind == "downwardAPI" else one.get("name") or ""
                    causes += placed([invalid_value(path, shown, "conflicting duplicate paths")], f"{at}.items")
                taken |= {where} if where else set()
        if len(kinds) > 1:
            causes.append(forbidden(here, "may not specify more than 1 volume type per source"))
    return causes


def _token(path: str, given: JsonObject, at: str) -> list[FieldError]:
    """A service account's token in a file; kube-apiserver says of its path that it stands at the volume."""
    causes: list[FieldError] = []
    seconds, where = given.get("expirationSeconds"), given.get("path") or ""
    if seconds is not None and seconds < _SHORTEST_TOKEN_S:
        why = "may not specify a duration less than 10 minutes"
        causes.append(invalid_value(f"{at}.expirationSeconds", seconds, why))
    elif seconds is not None and seconds > 2**32:
        why = "may not specify a duration larger than 2^32 seconds"
        causes.append(invalid_value(f"{at}.expirationSeconds", seconds, why))
    own = said(f"{path}.path", where, _file_faults(where)) if where else [required(f"{path}.path")]
    return causes + placed(own, f"{at}.path")


def _image(path: str, given: JsonObject) -> list[FieldError]:
    causes = [] if given.get("reference") else [required(f"{path}.reference")]
    return causes + one_of(f"{path}.pullPolicy", given.get("pullPolicy"), PULLS)


def _csi(path: str, given: JsonObject) -> list[FieldError]:
    driver, here = given.get("driver") or "", f"{path}.driver"
    causes = said(here, driver, subdomain_faults(driver.lower())) if driver else [required(here)]
    if len(driver) > _LONGEST_DRIVER:
        why = f"may not be more than {_LONGEST_DRIVER} bytes"
        causes.append(FieldError("FieldValueTooLong", f"Too long: {why}", here, driver, why))
    secret = given.get("nodePublishSecretRef")
    missing = secret is not None and not secret.get("name")
    return [*causes, required(f"{path}.nodePublishSecretRef.name")] if missing else causes


def _ephemeral(path: str, given: JsonObject) -> list[FieldError]:
    """A volume for which a PersistentVolumeClaim is made with the pod."""
    template, here = given.get("volumeClaimTemplate"), f"{path}.volumeClaimTemplate.spec"
    if not template:
        return [required(f"{path}.volumeClaimTemplate")]
    spec = template.get("spec") or {}
    modes, storage = spec.get("accessModes") or [], ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    causes = [] if modes else [required(f"{here}.accessModes", "at least 1 access mode is required")]
    for mode in modes:
        causes += one_of(f"{here}.accessModes", mode, _ACCESS)
    if "ReadWriteOncePod" in modes and len(modes) > 1:
        causes.append(forbidden(f"{here}.accessModes", "may not use ReadWriteOncePod with other access modes"))
    at = f"{here}.resources[storage]"
    if storage is None:
        own = [required(at)]
    else:
        size = amount(storage)
        wrong = size is not None and size <= 0
        own = [invalid_value(at, canonical_quantity(storage), "must be greater than zero")] if wrong else []
    causes += placed(own, f"{here}.resources.requests.storage")
    name = spec.get("storageClassName")
    causes += said(f"{here}.storageClassName", name, subdomain_faults(name)) if name else []
    causes += labels(f"{path}.volumeClaimTemplate.metadata.labels", (template.get("metadata") or {}).get("labels"))
    return causes + one_of(f"{here}.volumeMode", spec.get("volumeMode"), ("Block", "Filesystem"))


_NEEDED = {"persistentVolumeClaim": ("claimName",)}
"""What a source has to name."""
_PROJECTED = ("secret", "configMap", "downwardAPI", "serviceAccountToken")
_ACCESS = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_SHORTEST_TOKEN_S, _LONGEST_DRIVER = 600, 63
_BY_KIND: dict[str, Callable[[str, JsonObject], list[FieldError]]] = {
    "hostPath": _host_path,
    "emptyDir": _empty_dir,
    "nfs": _nfs,
    "configMap": _config_map,
    "secret": _secret,
    "downwardAPI": _downward,
    "projected": _projected,
    "image": _image,
    "csi": _csi,
    "ephemeral": _ephemeral,
}
