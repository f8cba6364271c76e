"""The NodeClaim that a decision to launch a node becomes."""

from __future__ import annotations

import msgspec

from tonnage.decisions import Launch
from tonnage.facts.labels import CAPACITY_TYPE, INSTANCE_TYPE, NODE_POOL, ZONE
from tonnage.kube.verbs import JsonObject
from tonnage.live.annotations import LAUNCH
from tonnage.objects import karpenter
from tonnage.objects.quantity import quantities
from tonnage.partitioning.node_cuts import STATED


def claim_body(decision: Launch, pool: karpenter.NodePool) -> JsonObject:
    """The NodeClaim of a decision to launch a node (karpenter.sh/v1)."""
    template = pool.spec.template
    cut = {key: decision.labels[key] for key in STATED if key in decision.labels}
    requirements = {
        INSTANCE_TYPE: decision.instance_type,
        ZONE: decision.zone,
        CAPACITY_TYPE: decision.capacity_type,
        NODE_POOL: decision.node_pool,
        **cut,
    }
    spec: JsonObject = {
        "nodeClassRef": msgspec.to_builtins(template.spec.node_class_ref),
        "requirements": [
            {"key": key, "operator": "In", "values": [value]} for key, value in requirements.items() if value
        ],
        "resources": {"requests": quantities(decision.requests)},
        "expireAfter": template.spec.expire_after,
    }
    if template.spec.termination_grace_period:
        spec["terminationGracePeriod"] = template.spec.termination_grace_period
    for name, taints in (("taints", decision.taints), ("startupTaints", decision.startup_taints)):
        if taints:
            spec[name] = [msgspec.to_builtins(taint) for taint in taints]
    metadata: JsonObject = {
        "name": decision.claim.name,
        "labels": {**template.metadata.labels, **cut, NODE_POOL: decision.node_pool},
        "annotations": {**template.metadata.annotations, LAUNCH: told(decision)},
    }
    if pool.metadata.uid:
        owner = {"apiVersion": pool.api_version, "kind": "NodePool", "name": pool.name, "uid": pool.metadata.uid}
        metadata["ownerReferences"] = [{**owner, "blockOwnerDeletion": True}]
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": metadata, "spec": spec}


def told(decision: Launch) -> str:
    """The decision as the NodeClaim's annotation has it."""
    return msgspec.json.encode(decision).decode()
