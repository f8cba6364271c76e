"""EKS Auto Mode: NodePools whose node class is EKS' own, their labels, and the two NodePools that come with it.

Its nodes have ``eks.amazonaws.com/instance-*`` where Karpenter's have ``karpenter.k8s.aws/instance-*``, and none of the
latter.

Source: the Amazon EKS user guide, "Create a Node Pool for EKS Auto Mode", "Create a Node Class for Amazon EKS" and
"Enable or Disable Built-in NodePools".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

from tonnage.facts.labels import ARCH, EC2_NODE_CLASS, OS
from tonnage.objects import karpenter, quantity
from tonnage.objects.base import ObjectMeta
from tonnage.objects.core import Taint
from tonnage.objects.eks import NodeClass
from tonnage.objects.eksctl import ClusterConfig
from tonnage.provisioning import labels
from tonnage.provisioning.nodeclass import NodeStorage
from tonnage.provisioning.requirements import Requirement, Requirements
from tonnage.units import GIB, MIB

EKS, NODE_CLASS = "eks.amazonaws.com", "NodeClass"
DEFAULT = "default"
"""The NodeClass that every cluster with Auto Mode has."""
COMPUTE_TYPE = "eks.amazonaws.com/compute-type"
_GENERAL, _SYSTEM = "general-purpose", "system"


def is_auto(pool: karpenter.NodePool) -> bool:
    """Whether its nodes are launched by EKS Auto Mode."""
    reference = pool.spec.template.spec.node_class_ref
    return (reference.group, reference.kind) == (EKS, NODE_CLASS)


def as_auto(own: Mapping[str, str]) -> dict[str, str]:
    """The labels of a node of Karpenter's as one of Auto Mode has them."""
    renamed = {labels.auto_mode(key): value for key, value in own.items() if key != EC2_NODE_CLASS}
    return {**renamed, COMPUTE_TYPE: "auto"}


@cache
def granted() -> Requirements:
    """What pods may ask for of nodes of Auto Mode without the NodePool naming it, and what these nodes never have."""
    keys = sorted(key for key in labels.of_instance_type() if key.startswith(labels.OF_TYPE))
    return Requirements(
        [
            *(Requirement.of(labels.auto_mode(key), "Exists") for key in keys),
            *(Requirement.of(key, "DoesNotExist") for key in keys),
            Requirement.of(COMPUTE_TYPE, "In", ("auto",)),
        ]
    )


def storage_of(one: NodeClass) -> NodeStorage:
    """The storage that a NodeClass asks for; local NVMe disks are used by every node that has some."""
    spec = one.spec.ephemeral_storage
    return NodeStorage(
        quantity.bytes_(spec.size), "gp3", spec.throughput * MIB, spec.iops, local_nvme=spec.local_storage != "None"
    )


DEFAULT_STORAGE = NodeStorage(80 * GIB, "gp3", 125 * MIB, 3000, local_nvme=True)
"""That of a NodeClass that does not say."""


def built_in(configs: Iterable[ClusterConfig]) -> list[karpenter.NodePool]:
    """The NodePools that Auto Mode brings along, where a ClusterConfig turns it on: for C, M and R instances on demand.
    None of them has GPUs."""
    found: dict[str, karpenter.NodePool] = {}
    for config in configs:
        auto = config.auto_mode_config
        if auto is None or not auto.enabled:
            continue
        wanted = [_GENERAL, _SYSTEM] if auto.node_pools is None else auto.node_pools
        found |= {name: _pool(name).remember(config.origin, {}, {}) for name in wanted if name in (_GENERAL, _SYSTEM)}
    return list(found.values())


def _pool(name: str) -> karpenter.NodePool:
    system = name == _SYSTEM
    wanted = (
        ("eks.amazonaws.com/instance-category", "In", ["c", "m", "r"]),
        ("eks.amazonaws.com/instance-generation", "Gt", ["4"]),
        (labels.CAPACITY_TYPE, "In", [labels.ON_DEMAND]),
        (ARCH, "In", ["amd64", "arm64"] if system else ["amd64"]),
        (OS, "In", ["linux"]),
    )
    return karpenter.NodePool(
        api_version="karpenter.sh/v1",
        kind="NodePool",
        metadata=ObjectMeta(name=name),
        spec=karpenter.NodePoolSpec(
            template=karpenter.NodeClaimTemplate(
                spec=karpenter.NodeClaimTemplateSpec(
                    requirements=[
                        karpenter.NodeRequirement(key=key, operator=operator, values=values)
                        for key, operator, values in wanted
                    ],
                    node_class_ref=karpenter.NodeClassRef(group=EKS, kind=NODE_CLASS, name=DEFAULT),
                    taints=[Taint(key="CriticalAddonsOnly", effect="NoSchedule")] if system else [],
                    expire_after="336h",
                    termination_grace_period="24h0m0s",
                )
            ),
            disruption=karpenter.Disruption(consolidate_after="30s"),
        ),
    )
