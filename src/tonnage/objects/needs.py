"""What a pod names besides its place and its resources: volumes, environment, probes, accounts.

Read where a person asks about a manifest. :class:`tonnage.objects.core.PodSpec` is what every decision reads, of a
million pods, and leaves these out.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tonnage.objects.base import Field


class Named(Field, frozen=True, kw_only=True):
    """A reference to an object of the pod's namespace, or to a key of it."""

    name: str = ""
    key: str = ""
    optional: bool = False


class ValueFrom(Field, frozen=True, kw_only=True):
    """Where a variable's value comes from."""

    config_map_key_ref: Named | None = None
    secret_key_ref: Named | None = None
    field_ref: dict[str, Any] | None = None
    resource_field_ref: dict[str, Any] | None = None


class Variable(Field, frozen=True, kw_only=True):
    """An environment variable."""

    name: str = ""
    value: str | None = None
    value_from: ValueFrom | None = None


class EnvFrom(Field, frozen=True, kw_only=True):
    """All keys of an object as variables."""

    prefix: str = ""
    config_map_ref: Named | None = None
    secret_ref: Named | None = None


class VolumeMount(Field, frozen=True, kw_only=True):
    """Where a volume appears in a container."""

    name: str = ""
    mount_path: str = ""
    sub_path: str = ""
    read_only: bool = False


class HttpGet(Field, frozen=True, kw_only=True):
    """A probe by HTTP."""

    path: str = "/"
    port: int | str = 0
    scheme: str = "HTTP"
    host: str = ""
    http_headers: list[dict[str, Any]] = []


class TcpSocket(Field, frozen=True, kw_only=True):
    """A probe by TCP."""

    port: int | str = 0
    host: str = ""


class ProbeNeeds(Field, frozen=True, kw_only=True):
    """A probe, and what it asks."""

    http_get: HttpGet | None = None
    tcp_socket: TcpSocket | None = None
    exec: dict[str, Any] | None = None
    grpc: dict[str, Any] | None = None
    initial_delay_seconds: int = 0
    period_seconds: int = 10
    timeout_seconds: int = 1
    success_threshold: int = 1
    failure_threshold: int = 3


class ContainerNeeds(Field, frozen=True, kw_only=True):
    """Of one container."""

    name: str = ""
    image: str = ""
    image_pull_policy: str = ""
    env: list[Variable] = []
    env_from: list[EnvFrom] = []
    volume_mounts: list[VolumeMount] = []
    liveness_probe: ProbeNeeds | None = None
    readiness_probe: ProbeNeeds | None = None
    startup_probe: ProbeNeeds | None = None
    lifecycle: dict[str, Any] | None = None
    security_context: dict[str, Any] | None = None


class ClaimVolume(Field, frozen=True, kw_only=True):
    """A volume that is a PersistentVolumeClaim."""

    claim_name: str = ""
    read_only: bool = False


class KeyedVolume(Field, frozen=True, kw_only=True):
    """The keys of a ConfigMap, or of a projected Secret, as files: all of them, or the ``key`` of each of ``items``."""

    name: str = ""
    optional: bool = False
    items: list[dict[str, Any]] = []


class SecretVolume(Field, frozen=True, kw_only=True):
    """A volume with the keys of a Secret."""

    secret_name: str = ""
    optional: bool = False
    items: list[dict[str, Any]] = []


class ProjectedSource(Field, frozen=True, kw_only=True):
    """One of several sources of a volume."""

    config_map: KeyedVolume | None = None
    secret: KeyedVolume | None = None


class Projected(Field, frozen=True, kw_only=True):
    """A volume of several sources."""

    sources: list[ProjectedSource] = []


class EmptyDir(Field, frozen=True, kw_only=True):
    """A volume that lives with the pod; in memory with medium ``Memory``."""

    medium: str = ""
    size_limit: str | int | float | None = None


class Volume(Field, frozen=True, kw_only=True):
    """A volume of a pod. ``ephemeral``: a claim that is made from a template with the pod."""

    name: str = ""
    persistent_volume_claim: ClaimVolume | None = None
    config_map: KeyedVolume | None = None
    secret: SecretVolume | None = None
    projected: Projected | None = None
    empty_dir: EmptyDir | None = None
    ephemeral: dict[str, Any] | None = None
    host_path: dict[str, Any] | None = None
    csi: dict[str, Any] | None = None


class PodNeeds(Field, frozen=True, kw_only=True):
    """Of a whole pod."""

    containers: list[ContainerNeeds] = []
    init_containers: list[ContainerNeeds] = []
    volumes: list[Volume] = []
    image_pull_secrets: list[Named] = []
    readiness_gates: list[dict[str, Any]] = []
    runtime_class_name: str = ""
    service_account_name: str = ""
    host_network: bool = False
    host_ipc: bool = msgspec.field(default=False, name="hostIPC")
    host_pid: bool = msgspec.field(default=False, name="hostPID")
    active_deadline_seconds: int | None = None
    termination_grace_period_seconds: int | None = None
    enable_service_links: bool | None = None
    security_context: dict[str, Any] | None = None
