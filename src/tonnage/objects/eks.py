"""eks.amazonaws.com/v1: node classes of EKS Auto Mode."""

from __future__ import annotations

from typing import Any

from tonnage.objects.base import Field, KubeObject


class EphemeralStorage(Field, frozen=True, kw_only=True):
    """The volume of a node: a quantity, ``throughput`` in MiB/s."""

    size: str = "80Gi"
    iops: int = 3000
    throughput: int = 125
    kms_key_id: str = ""
    local_storage: str = ""


class NodeClassSpec(Field, frozen=True, kw_only=True):
    """What EKS needs to know to launch a node."""

    ephemeral_storage: EphemeralStorage = EphemeralStorage()
    role: str = ""
    subnet_selector_terms: list[dict[str, Any]] = []
    security_group_selector_terms: list[dict[str, Any]] = []
    capacity_reservation_selector_terms: list[dict[str, Any]] = []
    tags: dict[str, str] = {}


class NodeClass(KubeObject, kw_only=True):
    """eks.amazonaws.com/v1 NodeClass."""

    spec: NodeClassSpec = NodeClassSpec()
