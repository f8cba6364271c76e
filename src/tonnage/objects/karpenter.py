"""karpenter.sh/v1 and karpenter.k8s.aws/v1."""

from __future__ import annotations

from typing import Any

import msgspec

from tonnage.objects.base import Field, KubeObject
from tonnage.objects.core import Taint

Written = str | int | float

DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
"""The annotation with which a pod or a node says that it may not be evicted or terminated voluntarily."""

DISRUPTED = Taint(key="karpenter.sh/disrupted", effect="NoSchedule")
"""The taint of a node that is going: pods that tolerate it are not evicted (pkg/apis/v1/taints.go)."""


class NodeRequirement(Field, frozen=True, kw_only=True):
    """``operator``: In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte, Lte."""

    key: str
    operator: str
    values: list[str] = []
    min_values: int | None = None


class NodeClassRef(Field, frozen=True, kw_only=True):
    """Which class of the cloud's nodes."""

    group: str
    kind: str
    name: str


class NodeClaimTemplateSpec(Field, frozen=True, kw_only=True):
    """What every node of the pool is like."""

    requirements: list[NodeRequirement]
    node_class_ref: NodeClassRef
    taints: list[Taint] = []
    startup_taints: list[Taint] = []
    expire_after: str = "720h"
    termination_grace_period: str | None = None


class TemplateMeta(Field, frozen=True, kw_only=True):
    """Labels and annotations of the pool's nodes."""

    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class NodeClaimTemplate(Field, frozen=True, kw_only=True):
    """Stamped into each NodeClaim."""

    spec: NodeClaimTemplateSpec
    metadata: TemplateMeta = TemplateMeta()


class Budget(Field, frozen=True, kw_only=True):
    """How many nodes may be disrupted at once; ``schedule`` (cron, UTC) and ``duration`` go together."""

    nodes: str = "10%"
    reasons: list[str] = []
    schedule: str | None = None
    duration: str | None = None


class Disruption(Field, frozen=True, kw_only=True):
    """When Karpenter takes nodes away by itself."""

    consolidation_policy: str = "WhenEmptyOrUnderutilized"
    consolidate_after: str = "0s"
    budgets: list[Budget] = msgspec.field(default_factory=lambda: [Budget()])


class NodePoolSpec(Field, frozen=True, kw_only=True):
    """A pool: its template, limits, weight and disruption."""

    template: NodeClaimTemplate
    limits: dict[str, Written] = {}
    weight: int | None = None
    disruption: Disruption = Disruption()
    replicas: int | None = None


class NodePool(KubeObject, kw_only=True):
    """karpenter.sh/v1 NodePool."""

    spec: NodePoolSpec

    @property
    def is_static(self) -> bool:
        """Whether it says how many nodes it has, whatever pods there are."""
        return self.spec.replicas is not None


class NodeOverlaySpec(Field, frozen=True, kw_only=True):
    """Prices and extended resources that planning takes the instance types of ``requirements`` to have."""

    requirements: list[NodeRequirement]
    price: str | None = None
    price_adjustment: str | None = None
    capacity: dict[str, Written] = {}
    weight: int | None = None


class NodeOverlay(KubeObject, kw_only=True):
    """karpenter.sh/v1alpha1 NodeOverlay."""

    spec: NodeOverlaySpec


class Ebs(Field, frozen=True, kw_only=True):
    """An EBS volume; ``throughput`` in MiB/s."""

    volume_size: Written | None = None
    volume_type: str = "gp3"
    iops: int | None = None
    throughput: int | None = None
    encrypted: bool | None = None
    delete_on_termination: bool | None = None
    kms_key_id: str = msgspec.field(default="", name="kmsKeyID")
    snapshot_id: str = msgspec.field(default="", name="snapshotID")


class BlockDeviceMapping(Field, frozen=True, kw_only=True):
    """A device of the node."""

    device_name: str = ""
    ebs: Ebs | None = None
    root_volume: bool = False


class AmiSelectorTerm(Field, frozen=True, kw_only=True):
    """Which machine images."""

    alias: str = ""
    id: str = ""
    name: str = ""
    owner: str = ""
    tags: dict[str, str] = {}


class EC2NodeClassSpec(Field, frozen=True, kw_only=True):
    """What AWS needs to know to launch a node."""

    ami_selector_terms: list[AmiSelectorTerm]
    subnet_selector_terms: list[dict[str, Any]]
    security_group_selector_terms: list[dict[str, Any]]
    ami_family: str = ""
    role: str = ""
    instance_profile: str = ""
    block_device_mappings: list[BlockDeviceMapping] = []
    instance_store_policy: str = ""
    user_data: str = ""
    tags: dict[str, str] = {}
    metadata_options: dict[str, Any] = {}
    detailed_monitoring: bool | None = None
    associate_public_ip_address: bool | None = msgspec.field(default=None, name="associatePublicIPAddress")
    kubelet: dict[str, Any] = {}
    capacity_reservation_selector_terms: list[dict[str, Any]] = []


class EC2NodeClass(KubeObject, kw_only=True):
    """karpenter.k8s.aws/v1 EC2NodeClass."""

    spec: EC2NodeClassSpec


class NodeClaimSpec(Field, frozen=True, kw_only=True):
    """One node that is wanted."""

    node_class_ref: NodeClassRef
    requirements: list[NodeRequirement] = []
    taints: list[Taint] = []
    startup_taints: list[Taint] = []
    resources: dict[str, dict[str, Written]] = {}
    expire_after: str = "720h"
    termination_grace_period: str | None = None


class NodeClaimCondition(Field, frozen=True, kw_only=True):
    """One condition of a NodeClaim: Launched, Registered, Initialized, …"""

    type: str
    status: str
    reason: str = ""
    message: str = ""


class NodeClaimStatus(Field, frozen=True, kw_only=True):
    """How far the node has come."""

    node_name: str = ""
    provider_id: str = msgspec.field(default="", name="providerID")
    capacity: dict[str, Written] = {}
    allocatable: dict[str, Written] = {}
    conditions: list[NodeClaimCondition] = []
    last_pod_event_time: str | None = None

    def condition(self, type_: str) -> NodeClaimCondition | None:
        """The condition of this type."""
        return next((c for c in self.conditions if c.type == type_), None)


class NodeClaim(KubeObject, kw_only=True):
    """karpenter.sh/v1 NodeClaim."""

    spec: NodeClaimSpec
    status: NodeClaimStatus = NodeClaimStatus()
