"""core/v1 Node."""

from __future__ import annotations

import msgspec

from tonnage.objects.base import Field, KubeObject


class Taint(Field, frozen=True, kw_only=True):
    """Keeps pods off a node unless they tolerate it."""

    key: str
    effect: str
    value: str = ""
    time_added: str | None = None


class NodeSpec(Field, frozen=True, kw_only=True):
    """Taints and cordon of a node."""

    taints: list[Taint] = []
    unschedulable: bool = False
    provider_id: str = msgspec.field(default="", name="providerID")


class NodeCondition(Field, frozen=True, kw_only=True):
    """One condition of a node."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


class NodeStatus(Field, frozen=True, kw_only=True):
    """What a node can hold and how it is."""

    capacity: dict[str, str | int | float] = {}
    allocatable: dict[str, str | int | float] = {}
    conditions: list[NodeCondition] = []
    declared_features: list[str] = []


class Node(KubeObject, kw_only=True):
    """core/v1 Node."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()
