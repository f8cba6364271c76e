"""What the Pod Security Standards say of pods, in the words of the admission plugin."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tonnage.objects import core
from tonnage.objects.needs import PodNeeds
from tonnage.workloads.admission import pod_security

SAFE: dict[str, Any] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def said(level: str, *containers: dict[str, Any], **spec: Any) -> tuple[str, str]:
    """What is said of the pod, without the level, and the field; empty where it is admitted."""
    made = {"containers": [{"name": f"c{n}", "image": "i", **one} for n, one in enumerate(containers)], **spec}
    typed, needs = msgspec.convert(made, core.PodSpec), msgspec.convert(made, PodNeeds)
    refused = pod_security.refusal(level, typed, needs)
    prefix = f'violates PodSecurity "{level}:latest": '
    return ("", "") if refused is None else (refused.said.removeprefix(prefix), refused.field)


def safe(**change: Any) -> dict[str, Any]:
    return {"securityContext": {**SAFE, **change}}


@pytest.mark.parametrize(
    ("level", "containers", "spec", "text", "field"),
    [
        ("", [{"securityContext": {"privileged": True}}], {"hostPID": True}, "", ""),
        ("baseline", [{}], {}, "", ""),
        ("restricted", [safe()], {}, "", ""),
        (
            "baseline",
            [{}],
            {"hostPID": True, "hostIPC": True},
            "host namespaces (hostPID=true, hostIPC=true)",
            "hostPID",
        ),
        (
            "baseline",
            [{"securityContext": {"privileged": True}}, {"securityContext": {"privileged": True}}],
            {},
            'privileged (containers "c0", "c1" must not set securityContext.privileged=true)',
            "containers[0].securityContext.privileged",
        ),
        (
            "baseline",
            [{"securityContext": {"capabilities": {"add": ["SYS_ADMIN", "CHOWN"]}}}],
            {},
            'non-default capabilities (container "c0" must not include "SYS_ADMIN" in securityContext.capabilities.add)',
            "containers[0].securityContext.capabilities.add",
        ),
        (
            "baseline",
            [{"ports": [{"containerPort": 80, "hostPort": 8080}]}],
            {},
            'hostPort (container "c0" uses hostPort 8080)',
            "containers[0].ports[0].hostPort",
        ),
        (
            "baseline",
            [{"ports": [{"containerPort": 80}, {"containerPort": 90}]}],
            {"hostNetwork": True},
            'host namespaces (hostNetwork=true), hostPort (container "c0" uses hostPorts 80, 90)',
            "hostNetwork",
        ),
        (
            "baseline",
            [{}],
            {"volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "hostPath": {"path": "/"}}]},
            'hostPath volumes (volume "b")',
            "volumes[1].hostPath",
        ),
        (
            "restricted",
            [safe(runAsNonRoot=None)],
            {},
            'runAsNonRoot != true (pod or container "c0" must set securityContext.runAsNonRoot=true)',
            "containers[0].securityContext.runAsNonRoot",
        ),
        (
            "restricted",
            [{"securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}}],
            {"securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "Localhost"}}},
            "",
            "",
        ),
    ],
)
def test_what_a_level_forbids(
    level: str, containers: list[dict[str, Any]], spec: dict[str, Any], text: str, field: str
) -> None:
    assert said(level, *containers, **spec) == (text, field)


def test_init_containers_count() -> None:
    init = {"name": "i", "image": "i", "securityContext": {"privileged": True}}
    assert said("baseline", {}, initContainers=[init])[1] == "initContainers[0].securityContext.privileged"
