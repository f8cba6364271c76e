"""Whether a node is still what its NodePool asks for.

Source: kubernetes-sigs/karpenter pkg/controllers/nodeclaim/disruption/drift.go. What only a cloud can tell (another
AMI, other subnets) is not judged here.
"""

from __future__ import annotations

from collections.abc import Mapping

from tonnage.facts.labels import INSTANCE_TYPE
from tonnage.objects import karpenter
from tonnage.provisioning import labels
from tonnage.provisioning.catalogue import NO_OFFER, Catalogue
from tonnage.provisioning.requirements import Requirement, Requirements

NODE_POOL_DRIFTED, REQUIREMENTS_DRIFTED, TYPE_NOT_FOUND = (
    "NodePoolDrifted",
    "RequirementsDrifted",
    "InstanceTypeNotFound",
)
"""Kinds of drift, as the NodeClaim's condition Drifted has them."""
HASH, HASH_VERSION = "karpenter.sh/nodepool-hash", "karpenter.sh/nodepool-hash-version"
"""Annotations of NodePools and NodeClaims: Karpenter's hash of the template."""
SETTLED_NS = 3600 * 10**9
"""A node has to be so old before anybody asks whether its type is still sold."""


def drift(
    pool: karpenter.NodePool,
    own: Mapping[str, str],
    annotations: Mapping[str, str],
    catalogue: Catalogue,
    age_ns: int,
) -> str:
    """The kind of drift; empty where there is none. ``own``: labels of the NodeClaim; ``annotations``: its own."""
    if _other_template(pool.metadata.annotations, annotations):
        return NODE_POOL_DRIFTED
    if not Requirements.of_labels(own).compatible(_asked(pool)):
        return REQUIREMENTS_DRIFTED
    if age_ns > SETTLED_NS and not _sold(own, catalogue):
        return TYPE_NOT_FOUND
    return ""


def _other_template(pool: Mapping[str, str], own: Mapping[str, str]) -> bool:
    said = all(one.get(key) for one in (pool, own) for key in (HASH, HASH_VERSION))
    return said and pool[HASH_VERSION] == own[HASH_VERSION] and pool[HASH] != own[HASH]


def _asked(pool: karpenter.NodePool) -> Requirements:
    """The requirements of the NodePool; its labels are of the template, and not among them."""
    return Requirements(
        Requirement.of(one.key, one.operator, tuple(one.values)) for one in pool.spec.template.spec.requirements
    )


def _sold(own: Mapping[str, str], catalogue: Catalogue) -> bool:
    """Whether there is an offering of the node's type in its zone and of its capacity type, in stock or not."""
    name = own.get(INSTANCE_TYPE, "")
    if name not in catalogue.names:
        return False
    if own.get(labels.CAPACITY_TYPE) == labels.RESERVED:
        return True  # what is free of reservations changes; of the type itself something is sold
    row = {labels.ZONE: own.get(labels.ZONE), labels.CAPACITY_TYPE: own.get(labels.CAPACITY_TYPE)}
    column = catalogue.index(name)
    return any(
        row[labels.ZONE] in (zone, None)
        and row[labels.CAPACITY_TYPE] in (kind, None)
        and catalogue.prices[at, column] != NO_OFFER
        for at, (zone, kind) in enumerate(catalogue.pairs)
    )
