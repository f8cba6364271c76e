"""What the Pod Security Standards forbid: admission plugin PodSecurity, at the level of a namespace's label.

Source: https://kubernetes.io/docs/concepts/security/pod-security-standards/ and kubernetes/pod-security-admission
v0.36 policy/check_*.go. AppArmor, SELinux, sysctls, procMount, Windows' host processes and the kinds of volumes that
restricted allows are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tonnage.objects import core
from tonnage.objects.needs import ContainerNeeds, PodNeeds
from tonnage.workloads.admission.refused import POD_SECURITY, AdmissionRefusal

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


class _Container(NamedTuple):
    field: str
    needs: ContainerNeeds
    spec: core.Container


class PodSecurityViolation(NamedTuple):
    """A check that a pod does not pass. ``short``: what it forbids; ``said``: as the plugin says it; ``field``: of the
    pod's spec, the first that breaks it."""

    short: str
    said: str
    field: str


def level_of(labels: Mapping[str, str]) -> str:
    """What a namespace with these labels enforces; empty where all is allowed."""
    level = labels.get(ENFORCE, "")
    return level if level in (BASELINE, RESTRICTED) else ""


def broken(level: str, spec: core.PodSpec, needs: PodNeeds) -> list[PodSecurityViolation]:
    """Every check of the level that the pod does not pass, in the plugin's order."""
    if not level:
        return []
    given = [_Container(f"initContainers[{n}]", *one) for n, one in _pairs(needs.init_containers, spec.init_containers)]
    given += [_Container(f"containers[{n}]", *one) for n, one in _pairs(needs.containers, spec.containers)]
    found = _baseline(needs, given, capabilities=level == BASELINE)
    return [*found, *(_restricted(needs, given) if level == RESTRICTED else ())]


def refusal(level: str, spec: core.PodSpec, needs: PodNeeds) -> AdmissionRefusal | None:
    """Why the plugin refuses the pod; None where it lets it in."""
    found = broken(level, spec, needs)
    if not found:
        return None
    said = f'violates PodSecurity "{level}:latest": {", ".join(one.said for one in found)}'
    return AdmissionRefusal(POD_SECURITY, said, found[0].field, level)


def _pairs(
    needs: Sequence[ContainerNeeds], spec: Sequence[core.Container]
) -> Iterator[tuple[int, tuple[ContainerNeeds, core.Container]]]:
    yield from enumerate(zip(needs, spec, strict=True))


def _baseline(needs: PodNeeds, given: Sequence[_Container], *, capabilities: bool) -> Iterator[PodSecurityViolation]:
    added = [(one, [name for name in _capabilities(one, "add") if name not in _CAPABILITIES]) for one in given]
    added = [(one, names) for one, names in added if names]
    if capabilities and added:
        listed = ", ".join(f'"{name}"' for name in sorted({name for _, names in added for name in names}))
        who, _ = _named([one for one, _ in added])
        said = f"non-default capabilities ({who} must not include {listed} in securityContext.capabilities.add)"
        yield PodSecurityViolation(
            "non-default capabilities", said, f"{added[0][0].field}.securityContext.capabilities.add"
        )
    shared = [
        field
        for field, is_set in (
            ("hostNetwork", needs.host_network),
            ("hostPID", needs.host_pid),
            ("hostIPC", needs.host_ipc),
        )
        if is_set
    ]
    if shared:
        said = f"host namespaces ({', '.join(f'{field}=true' for field in shared)})"
        yield PodSecurityViolation(f"host namespaces ({shared[0]}=true)", said, shared[0])
    paths = [(n, volume.name) for n, volume in enumerate(needs.volumes) if volume.host_path is not None]
    if paths:
        listed = ", ".join(f'"{name}"' for _, name in paths)
        said = f"hostPath volumes (volume{'s' if len(paths) > 1 else ''} {listed})"
        yield PodSecurityViolation("hostPath volumes", said, f"volumes[{paths[0][0]}].hostPath")
    yield from _host_ports(needs, given)
    yield from _broken(
        [one for one in given if _context(one).get("privileged") is True],
        "privileged",
        "must not set securityContext.privileged=true",
        "securityContext.privileged",
    )


def _host_ports(needs: PodNeeds, given: Sequence[_Container]) -> Iterator[PodSecurityViolation]:
    """On the node's network every port of a container is one of the node's."""
    found: list[tuple[_Container, int, int]] = []
    for one in given:
        for number, port in enumerate(one.spec.ports):
            taken = port.host_port or (port.container_port if needs.host_network else 0)
            if taken:
                found.append((one, number, taken))
    if found:
        ports = sorted({port for _, _, port in found})
        who, several = _named(list({one.field: one for one, _, _ in found}.values()))
        uses = f"{'use' if several else 'uses'} hostPort{'s' if len(ports) > 1 else ''}"
        said = f"hostPort ({who} {uses} {', '.join(map(str, ports))})"
        field = "hostPort" if found[0][0].spec.ports[found[0][1]].host_port else "containerPort"
        yield PodSecurityViolation("hostPort", said, f"{found[0][0].field}.ports[{found[0][1]}].{field}")


def _restricted(needs: PodNeeds, given: Sequence[_Container]) -> Iterator[PodSecurityViolation]:
    whole = needs.security_context or {}
    yield from _broken(
        [one for one in given if _context(one).get("allowPrivilegeEscalation") is not False],
        "allowPrivilegeEscalation != false",
        "must set securityContext.allowPrivilegeEscalation=false",
        "securityContext.allowPrivilegeEscalation",
    )
    yield from _broken(
        [one for one in given if "ALL" not in _capabilities(one, "drop")],
        "unrestricted capabilities",
        'must set securityContext.capabilities.drop=["ALL"]',
        "securityContext.capabilities",
    )
    yield from _broken(
        [one for one in given if _context(one).get("runAsNonRoot", whole.get("runAsNonRoot")) is not True],
        "runAsNonRoot != true",
        "must set securityContext.runAsNonRoot=true",
        "securityContext.runAsNonRoot",
        pod="pod or ",
    )
    yield from _broken(
        [one for one in given if not _has_profile(_context(one).get("seccompProfile", whole.get("seccompProfile")))],
        "seccompProfile",
        'must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"',
        "securityContext.seccompProfile",
        pod="pod or ",
    )


def _has_profile(profile: object) -> bool:
    return isinstance(profile, dict) and profile.get("type") in ("RuntimeDefault", "Localhost")


def _broken(found: list[_Container], what: str, must: str, field: str, pod: str = "") -> Iterator[PodSecurityViolation]:
    if found:
        yield PodSecurityViolation(what, f"{what} ({pod}{_named(found)[0]} {must})", f"{found[0].field}.{field}")


def _named(found: Sequence[_Container]) -> tuple[str, bool]:
    """The containers, and whether there are several."""
    names = ", ".join(f'"{one.needs.name}"' for one in found)
    return f"container{'s' if len(found) > 1 else ''} {names}", len(found) > 1


def _context(one: _Container) -> Mapping[str, Any]:
    return one.needs.security_context or {}


def _capabilities(one: _Container, part: str) -> list[Any]:
    named = _context(one).get("capabilities")
    listed = named.get(part) if isinstance(named, dict) else None
    return listed if isinstance(listed, list) else []
