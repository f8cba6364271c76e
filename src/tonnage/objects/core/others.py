"""Namespaces, Services, ConfigMaps and priority classes."""

from __future__ import annotations

import msgspec

from tonnage.objects.base import Field, KubeObject


class Namespace(KubeObject, kw_only=True):
    """core/v1 Namespace: its labels are what selectors of namespaces see."""


class ServicePort(Field, frozen=True, kw_only=True):
    """A port of a Service."""

    port: int
    name: str = ""
    target_port: int | str | None = None
    protocol: str = "TCP"


class ServiceSpec(Field, frozen=True, kw_only=True):
    """Which pods, under which ports."""

    selector: dict[str, str] = {}
    ports: list[ServicePort] = []
    type: str = "ClusterIP"
    cluster_ip: str = msgspec.field(default="", name="clusterIP")
    traffic_distribution: str = ""


class Service(KubeObject, kw_only=True):
    """core/v1 Service."""

    spec: ServiceSpec = ServiceSpec()


class ConfigMap(KubeObject, kw_only=True):
    """core/v1 ConfigMap."""

    data: dict[str, str] = {}
    immutable: bool | None = None


class PriorityClass(KubeObject, kw_only=True):
    """scheduling.k8s.io/v1 PriorityClass."""

    value: int
    global_default: bool = False
    preemption_policy: str = "PreemptLowerPriority"
    description: str = ""
