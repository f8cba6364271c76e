"""Containers of a pod, as far as placement and what becomes of them look at them."""

from __future__ import annotations

import msgspec

from tonnage.objects.base import Field


class ResourceRequirements(Field, frozen=True, kw_only=True):
    """Quantities by resource name, as written."""

    requests: dict[str, str | int | float] = {}
    limits: dict[str, str | int | float] = {}


class EnvVar(Field, frozen=True, kw_only=True):
    """One environment variable."""

    name: str
    value: str = ""


class ContainerPort(Field, frozen=True, kw_only=True):
    """A port that a container names."""

    container_port: int
    name: str = ""
    host_port: int = 0
    protocol: str = "TCP"
    host_ip: str = msgspec.field(default="", name="hostIP")


class Probe(Field, frozen=True, kw_only=True):
    """How often a container is asked; what it is asked is not read here."""

    initial_delay_seconds: int = 0
    period_seconds: int = 10
    timeout_seconds: int = 1
    success_threshold: int = 1
    failure_threshold: int = 3


class ExecAction(Field, frozen=True, kw_only=True):
    """A command inside the container."""

    command: list[str] = []


class SleepAction(Field, frozen=True, kw_only=True):
    """Wait, at most as long as the pod's grace period."""

    seconds: int = 0


class LifecycleHandler(Field, frozen=True, kw_only=True):
    """What a hook does; requests are not read."""

    exec: ExecAction | None = None
    sleep: SleepAction | None = None


class Lifecycle(Field, frozen=True, kw_only=True):
    """Hooks of a container's life."""

    pre_stop: LifecycleHandler | None = None


class ContainerRestartRule(Field, frozen=True, kw_only=True):
    """What is done when a container ends in some way; of what way is not read here."""

    action: str = ""


class Container(Field, frozen=True, kw_only=True):
    """One container. ``restart_policy`` Always makes an init container a sidecar."""

    name: str
    image: str = ""
    command: list[str] = []
    args: list[str] = []
    env: list[EnvVar] = []
    ports: list[ContainerPort] = []
    resources: ResourceRequirements = ResourceRequirements()
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    startup_probe: Probe | None = None
    lifecycle: Lifecycle | None = None
    restart_policy: str = ""
    restart_policy_rules: list[ContainerRestartRule] = []

    @property
    def is_sidecar(self) -> bool:
        """Whether it stays beside those that start later, where it is an init container."""
        return self.restart_policy == "Always"
