"""What kube-apiserver refuses of security contexts, and of what a pod shares with its node.

Source: kubernetes/kubernetes v1.36 pkg/apis/core/validation/validation.go.
"""

from __future__ import annotations

import re
from typing import Any, TypeAlias

from tonnage.objects.api.errors import (
    INT32_MAX,
    FieldError,
    descending_faults,
    duplicate,
    forbidden,
    invalid_value,
    one_of,
    placed,
    required,
    said,
    show,
    within,
)

JsonObject: TypeAlias = dict[str, Any]

_IDS = ("runAsUser", "runAsGroup", "fsGroup")
_PROFILES = ("Localhost", "RuntimeDefault", "Unconfined")
_SYSCTL = re.compile(r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?")
_SYSCTL_WORDS = (
    "must have at most 253 characters and match regex "
    r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"
)
_OF_LINUX = ("appArmorProfile", "seLinuxOptions", "seccompProfile")
_OF_LINUX_PODS: tuple[str, ...] = (
    *_OF_LINUX,
    "fsGroup",
    "fsGroupChangePolicy",
    "sysctls",
    "runAsUser",
    "runAsGroup",
    "supplementalGroups",
    "supplementalGroupsPolicy",
)
_OF_LINUX_CONTAINERS: tuple[str, ...] = (
    *_OF_LINUX,
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
)
_OF_NODES = ("hostUsers", "hostPID", "hostIPC", "shareProcessNamespace")
_CONTAINER = (
    "Capabilities",
    "Privileged",
    "SELinuxOptions",
    "WindowsOptions",
    "RunAsUser",
    "RunAsGroup",
    "RunAsNonRoot",
    "ReadOnlyRootFilesystem",
    "AllowPrivilegeEscalation",
    "ProcMount",
    "SeccompProfile",
    "AppArmorProfile",
)
"""The fields of a container's security context in the order of kube-apiserver's own struct."""


def pod_security(path: str, spec: JsonObject) -> list[FieldError]:
    """The security context of a pod whose ``spec`` stands at ``path``, and the namespaces of its node that it uses."""
    given, here = spec.get("securityContext") or {}, f"{path}.securityContext"
    causes: list[FieldError] = []
    for name in _IDS:
        causes += within(f"{here}.{name}", given.get(name), 0, INT32_MAX)
    for index, group in enumerate(given.get("supplementalGroups") or ()):
        causes += within(f"{here}.supplementalGroups[{index}]", group, 0, INT32_MAX)
    groups = given.get("supplementalGroupsPolicy")
    causes += one_of(f"{here}.supplementalGroupsPolicy", groups, ("Merge", "Strict"))
    causes += one_of(f"{here}.fsGroupChangePolicy", given.get("fsGroupChangePolicy"), ("Always", "OnRootMismatch"))
    if spec.get("hostPID") and spec.get("shareProcessNamespace"):
        why = "ShareProcessNamespace and HostPID cannot both be enabled"
        wrong = invalid_value(f"{here}.shareProcessNamespace", True, why)
        causes += placed([wrong], f"{path}.shareProcessNamespace")
    if spec.get("hostUsers") is False:
        for name, said_as in (("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")):
            if spec.get(name):
                causes += placed([forbidden(f"{path}.{said_as}", "when `hostUsers` is false")], f"{path}.{name}")
    return causes + _sysctls(f"{here}.sysctls", given.get("sysctls") or []) + _profiles(here, given)


def _sysctls(path: str, given: list[JsonObject]) -> list[FieldError]:
    causes: list[FieldError] = []
    seen: set[str] = set()
    for index, one in enumerate(given):
        name = one.get("name") or ""
        at = f"{path}[{index}].name"
        if not name:
            causes.append(required(at))
        elif len(name) > 253 or not _SYSCTL.fullmatch(name):
            causes.append(invalid_value(at, name, _SYSCTL_WORDS))
        elif name in seen:
            causes.append(duplicate(at, name))
        seen.add(name)
    return causes


def container_security(path: str, given: JsonObject, spec: JsonObject) -> list[FieldError]:
    """The security context of a container of the pod with this ``spec``."""
    causes: list[FieldError] = []
    for name in ("runAsUser", "runAsGroup"):
        causes += within(f"{path}.{name}", given.get(name), 0, INT32_MAX)
    causes += one_of(f"{path}.procMount", given.get("procMount"), ("Default", "Unmasked"))
    if given.get("procMount") == "Unmasked" and spec.get("hostUsers") is not False:
        why = "`hostUsers` must be false to use `Unmasked`"
        causes.append(invalid_value(f"{path}.procMount", "Unmasked", why))
    if given.get("privileged") and given.get("allowPrivilegeEscalation") is False:
        why = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
        own = {f"{name[0].upper()}{name[1:]}": value for name, value in given.items()}
        own["SELinuxOptions"] = own.pop("SeLinuxOptions", None)
        shown = ",".join(f'"{name}":{show(own.get(name))}' for name in _CONTAINER)
        causes.append(FieldError("FieldValueInvalid", f"Invalid value: {{{shown}}}: {why}", path, given, why))
    return causes + _profiles(path, given)


def _profiles(path: str, given: JsonObject) -> list[FieldError]:
    """The profiles of seccomp and AppArmor in a security context."""
    causes: list[FieldError] = []
    for name, words in (("seccompProfile", "seccomp"), ("appArmorProfile", "AppArmor")):
        profile, here = given.get(name), f"{path}.{name}"
        if profile is None:
            continue
        kind, file, at = profile.get("type") or "", profile.get("localhostProfile"), f"{here}.localhostProfile"
        if not kind:
            causes.append(required(f"{here}.type", f"type is required when {name} is set"))
        causes += one_of(f"{here}.type", kind or None, _PROFILES)
        if kind == "Localhost" and (file is None or (not file and words == "AppArmor")):
            causes.append(required(at, f"must be set when {words} type is Localhost"))
        elif kind == "Localhost" and words == "seccomp":
            causes += said(at, file, descending_faults(file))
        elif kind == "Localhost" and file != file.strip():
            causes.append(invalid_value(at, file, "must not be padded with whitespace"))
        elif kind != "Localhost" and file is not None:
            why = f"can only be set when {words} type is Localhost"
            shown = f'{{"Type":{show(kind)},"LocalhostProfile":{show(file)}}}' if words == "seccomp" else show(file)
            causes.append(FieldError("FieldValueInvalid", f"Invalid value: {shown}: {why}", at, file, why))
    return causes


def of_system(path: str, spec: JsonObject, system: str) -> list[FieldError]:
    """What a pod whose ``spec.os`` says ``system`` cannot have, as it belongs to the other one."""
    contexts = [(f"{path}.securityContext", spec.get("securityContext") or {}, _OF_LINUX_PODS)]
    for part in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(part) or ()):
            here = f"{path}.{part}[{index}].securityContext"
            contexts.append((here, container.get("securityContext") or {}, _OF_LINUX_CONTAINERS))
    if system == "linux":
        why = "windows options cannot be set for a linux pod"
        return [forbidden(f"{at}.windowsOptions", why) for at, given, _ in contexts if given.get("windowsOptions")]
    why = "cannot be set for a windows pod"
    causes = [
        forbidden(f"{path}.{name}", why)
        for name in _OF_NODES
        if (spec.get(name) is not None if name == "hostUsers" else spec.get(name))
    ]
    for at, given, names in contexts:
        causes += [forbidden(f"{at}.{name}", why) for name in names if given.get(name) is not None]
    return causes
