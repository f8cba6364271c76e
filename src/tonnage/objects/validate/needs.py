"""What containers mount, read, are asked and do when they stop.

Source: kubernetes/kubernetes pkg/apis/core/validation/validation.go (ValidateVolumes, ValidateVolumeMounts,
validateEnv, validateProbe, validateSleepAction).
"""

from __future__ import annotations

from typing import Any

from tonnage.objects.needs import ContainerNeeds, HttpGet, PodNeeds, ProbeNeeds, TcpSocket
from tonnage.objects.validate.common import Report, Rule

GRACE_SECONDS = 30
"""The default of terminationGracePeriodSeconds."""


def pod_needs(field: str, needs: PodNeeds, report: Report, *, claimed: frozenset[str] = frozenset()) -> None:
    """What a pod's ``spec``, which stands at ``field``, names. ``claimed``: volumes that its controller adds."""
    for index, volume in enumerate(needs.volumes):
        report.matches(f"{field}.volumes[{index}].name", volume.name, Rule.LABEL)
    names = [volume.name for volume in needs.volumes]
    report.unique(f"{field}.volumes[{{}}].name", names, "a volume of this name")
    grace = needs.termination_grace_period_seconds
    for part, containers in (("containers", needs.containers), ("initContainers", needs.init_containers)):
        for index, container in enumerate(containers):
            path = f"{field}.{part}[{index}]"
            _mounts(f"{path}.volumeMounts", container, {*names, *claimed}, report)
            _environment(f"{path}.env", container, report)
            for name, probe in (
                ("livenessProbe", container.liveness_probe),
                ("readinessProbe", container.readiness_probe),
                ("startupProbe", container.startup_probe),
            ):
                if probe is not None:
                    _probe(f"{path}.{name}", probe, report)
            _lifecycle(
                f"{path}.lifecycle", container.lifecycle or {}, GRACE_SECONDS if grace is None else grace, report
            )


def _mounts(path: str, container: ContainerNeeds, volumes: set[str], report: Report) -> None:
    seen = set[str]()
    for index, mount in enumerate(container.volume_mounts):
        if mount.name not in volumes:
            expected = f"one of {', '.join(sorted(volumes))}" if volumes else "the name of a volume, and there is none"
            report.refuse(f"{path}[{index}].name", mount.name, expected, "add it under volumes")
        if not mount.mount_path:
            report.add(f"{path}[{index}].mountPath", "the field is missing", "the API server requires it")
        elif mount.mount_path in seen:
            report.add(f"{path}[{index}].mountPath", f"{mount.mount_path} stands twice", "mount one of them elsewhere")
        seen.add(mount.mount_path)


def _environment(path: str, container: ContainerNeeds, report: Report) -> None:
    for index, variable in enumerate(container.env):
        if variable.value and variable.value_from is not None:
            report.add(f"{path}[{index}].valueFrom", "stands beside a value", "remove one of them")


def _probe(path: str, probe: ProbeNeeds, report: Report) -> None:
    handlers: dict[str, HttpGet | TcpSocket | dict[str, Any] | None] = {
        "exec": probe.exec,
        "httpGet": probe.http_get,
        "tcpSocket": probe.tcp_socket,
        "grpc": probe.grpc,
    }
    given = [name for name, handler in handlers.items() if handler is not None]
    for name in given[1:]:
        report.add(f"{path}.{name}", f"stands beside {given[0]}", "a probe asks in one way: remove one of them")
    for name in given:
        asked = handlers[name]
        if isinstance(asked, HttpGet | TcpSocket):
            port = f"{path}.{name}.port"
            if isinstance(asked.port, int):
                report.within(port, asked.port, 1, 65535)
            else:
                report.matches(port, asked.port, Rule.PORT_NAME)
        if isinstance(asked, HttpGet):
            report.one_of(f"{path}.{name}.scheme", asked.scheme, ("HTTP", "HTTPS"))


def _lifecycle(path: str, lifecycle: dict[str, Any], grace: int, report: Report) -> None:
    for name in ("postStart", "preStop"):
        hook = lifecycle.get(name)
        sleep = hook.get("sleep") if isinstance(hook, dict) else None
        seconds = sleep.get("seconds") if isinstance(sleep, dict) else None
        if isinstance(seconds, int) and not 0 <= seconds <= grace:
            expected = f"0 to terminationGracePeriodSeconds, {grace}"
            report.refuse(f"{path}.{name}.sleep.seconds", seconds, expected, "raise terminationGracePeriodSeconds")
