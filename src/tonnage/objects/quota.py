"""What a namespace admits: core/v1 ResourceQuota, LimitRange and ServiceAccount, node.k8s.io/v1 RuntimeClass."""

from __future__ import annotations

from tonnage.objects.base import Field, KubeObject
from tonnage.objects.core import Toleration

Quantities = dict[str, str | int | float]


class ScopeRequirement(Field, frozen=True, kw_only=True):
    """``operator``: In, NotIn, Exists, DoesNotExist."""

    scope_name: str
    operator: str = "Exists"
    values: list[str] = []


class ScopeSelector(Field, frozen=True, kw_only=True):
    """All of these hold of a pod that counts."""

    match_expressions: list[ScopeRequirement] = []


class ResourceQuotaSpec(Field, frozen=True, kw_only=True):
    """The most that the pods of a namespace, or those in the scopes, may ask for in all."""

    hard: Quantities = {}
    scopes: list[str] = []
    scope_selector: ScopeSelector | None = None


class ResourceQuotaStatus(Field, frozen=True, kw_only=True):
    """What is asked for now."""

    hard: Quantities = {}
    used: Quantities = {}


class ResourceQuota(KubeObject, kw_only=True):
    """core/v1 ResourceQuota."""

    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()


class LimitRangeItem(Field, frozen=True, kw_only=True):
    """Bounds and defaults by resource, of each Container, Pod or PersistentVolumeClaim (``type``)."""

    type: str = ""
    max: Quantities = {}
    min: Quantities = {}
    default: Quantities = {}
    default_request: Quantities = {}
    max_limit_request_ratio: Quantities = {}


class LimitRangeSpec(Field, frozen=True, kw_only=True):
    """Bounds and defaults by type."""

    limits: list[LimitRangeItem] = []


class LimitRange(KubeObject, kw_only=True):
    """core/v1 LimitRange."""

    spec: LimitRangeSpec = LimitRangeSpec()


class ServiceAccount(KubeObject, kw_only=True):
    """core/v1 ServiceAccount."""


class RuntimeOverhead(Field, frozen=True, kw_only=True):
    """What a runtime needs beside the containers of each pod."""

    pod_fixed: Quantities = {}


class RuntimeScheduling(Field, frozen=True, kw_only=True):
    """Which nodes have a runtime."""

    node_selector: dict[str, str] = {}
    tolerations: list[Toleration] = []


class RuntimeClass(KubeObject, kw_only=True):
    """node.k8s.io/v1 RuntimeClass."""

    handler: str = ""
    overhead: RuntimeOverhead | None = None
    scheduling: RuntimeScheduling | None = None
