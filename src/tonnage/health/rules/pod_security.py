"""Pods that the Pod Security Standard of their namespace forbids: admission plugin PodSecurity.

Source: https://kubernetes.io/docs/concepts/security/pod-security-standards/ and kubernetes/pod-security-admission
policy/check_*.go; the level stands in the label pod-security.kubernetes.io/enforce of the Namespace.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tonnage.health.blocker import REFUSED, Blocker
from tonnage.health.inventory import content
from tonnage.health.rules.admission import FAILED_CREATE
from tonnage.health.setting import Pods, Setting
from tonnage.objects import core
from tonnage.objects.needs import ContainerNeeds

ENFORCE = "pod-security.kubernetes.io/enforce"
BASELINE, RESTRICTED = "baseline", "restricted"
_CAPABILITIES = frozenset(
    (
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    )
)
"""What baseline lets containers add."""
Broken = tuple[str, str]
"""(what the plugin says, the field)."""


def pod_security(setting: Setting) -> Iterator[Blocker]:
    """One blocker for each template that its namespace does not let in, at the first field that breaks the level."""
    for pods in setting.pods:
        level = _level(setting, pods.namespace)
        found = [*_baseline(pods), *(_restricted(pods) if level == RESTRICTED else ())] if level else []
        if not found:
            continue
        said = f'violates PodSecurity "{level}:latest": {", ".join(text for text, _ in found)}'
        name, made = pods.object.name, not isinstance(pods.object, core.Pod)
        reason = FAILED_CREATE if made else "Forbidden"
        shown = f'{"Error creating: " if made else ""}pods "{name}{"-" if made else ""}" is forbidden: {said}'
        message = f"namespace {pods.namespace} enforces Pod Security {level}: no pod with {found[0][0]} is let in"
        help_ = f"leave that out, or set the namespace's label {ENFORCE} to a level that allows it"
        yield Blocker("pod-security-refuses", REFUSED, pods.ref, pods.where(found[0][1]), message, help_, reason, shown)


def _level(setting: Setting, namespace: str) -> str:
    one = setting.inventory.find("Namespace", namespace)
    metadata = content(one).get("metadata") if one is not None else None
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    level = labels.get(ENFORCE) if isinstance(labels, dict) else None
    return level if level in (BASELINE, RESTRICTED) else ""


def _baseline(pods: Pods) -> Iterator[Broken]:
    needs = pods.template.needs
    for field, is_set in (
        ("hostNetwork", needs.host_network),
        ("hostPID", needs.host_pid),
        ("hostIPC", needs.host_ipc),
    ):
        if is_set:
            yield f"host namespaces ({field}=true)", field
    for index, volume in enumerate(needs.volumes):
        if volume.host_path is not None:
            yield f'hostPath volumes (volume "{volume.name}")', f"volumes[{index}].hostPath"
    typed = (*pods.spec.init_containers, *pods.spec.containers)
    for (field, one), container in zip(pods.containers(), typed, strict=True):
        context = one.security_context or {}
        if context.get("privileged") is True:
            yield f'privileged (container "{one.name}")', f"{field}.securityContext.privileged"
        added = [name for name in _capabilities(one, "add") if name not in _CAPABILITIES]
        if added:
            text = f'non-default capabilities (container "{one.name}" must not include "{added[0]}")'
            yield text, f"{field}.securityContext.capabilities.add"
        for number, port in enumerate(container.ports):
            if port.host_port:
                text = f'hostPort (container "{one.name}" uses hostPort {port.host_port})'
                yield text, f"{field}.ports[{number}].hostPort"


def _restricted(pods: Pods) -> Iterator[Broken]:
    whole = pods.template.needs.security_context or {}
    for field, one in pods.containers():
        own, at = one.security_context or {}, f"{field}.securityContext"
        if own.get("allowPrivilegeEscalation") is not False:
            yield f'allowPrivilegeEscalation != false (container "{one.name}")', f"{at}.allowPrivilegeEscalation"
        if "ALL" not in _capabilities(one, "drop"):
            yield f'unrestricted capabilities (container "{one.name}" must drop ALL)', f"{at}.capabilities"
        if own.get("runAsNonRoot", whole.get("runAsNonRoot")) is not True:
            yield f'runAsNonRoot != true (container "{one.name}")', f"{at}.runAsNonRoot"
        profile = own.get("seccompProfile", whole.get("seccompProfile"))
        if not isinstance(profile, dict) or profile.get("type") not in ("RuntimeDefault", "Localhost"):
            yield (
                f'seccompProfile (container "{one.name}" must set RuntimeDefault or Localhost)',
                f"{at}.seccompProfile",
            )


def _capabilities(one: ContainerNeeds, part: str) -> list[Any]:
    named = (one.security_context or {}).get("capabilities")
    listed = named.get(part) if isinstance(named, dict) else None
    return listed if isinstance(listed, list) else []
