"""Pods that cannot land on the nodes they were meant for, seen before anything runs."""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.decisions import Finding, Ref
from tonnage.objects import apps, core, karpenter
from tonnage.objects.load import Manifest, where
from tonnage.partitioning.node_cuts import OWN, Configurations
from tonnage.provisioning import pods
from tonnage.provisioning.catalogue import Catalogue
from tonnage.provisioning.plans import PlanSettings
from tonnage.provisioning.static import to_come

_SPEC = "spec.template.spec"


def landing_findings(
    manifest: Manifest, catalogue: Catalogue, configurations: Configurations = OWN
) -> Iterator[Finding]:
    """For every Deployment, StatefulSet and ReplicaSet: NodePools that would never launch a node for it."""
    node_pools = manifest.of(karpenter.NodePool)
    for deployment in apps.replicated(manifest.objects):
        ref = Ref(deployment.kind, deployment.name, deployment.namespace or "default")
        spec = deployment.spec.template.spec
        shape = pods.PodShape.of(spec, deployment.spec.template.metadata.annotations)
        accelerated = shape.ask.shares or any("/" in name and amount for name, amount in shape.requests.items())
        if not node_pools or not (accelerated or spec.tolerations):
            continue
        refused = {pool.name: _refusal(shape, pool, catalogue, configurations) for pool in node_pools}
        wanted = _meant_for(spec, node_pools) if spec.tolerations else list(refused)
        missed = [f"{name}: {refused[name]}" for name in wanted if refused[name]]
        if missed and len(missed) == len(wanted):
            yield Finding(
                "pods-fit-no-nodepool",
                "error",
                ref,
                where(deployment, f"{_SPEC}.tolerations"),
                "no NodePool can launch a node for these pods: " + "; ".join(missed),
                tuple((name, why) for name, why in refused.items() if why),
            )


def _meant_for(spec: core.PodSpec, node_pools: tuple[karpenter.NodePool, ...]) -> list[str]:
    """The pools of which the pod tolerates a taint by name: those it was written for."""
    keys = {toleration.key for toleration in spec.tolerations if toleration.key}
    named = [p.name for p in node_pools if any(t.key in keys for t in p.spec.template.spec.taints)]
    closest = [p.name for p in node_pools if keys <= {t.key for t in p.spec.template.spec.taints}]
    return closest or named or [p.name for p in node_pools]


def _refusal(
    shape: pods.PodShape, pool: karpenter.NodePool, catalogue: Catalogue, configurations: Configurations
) -> str:
    """Why this NodePool cannot take the pod; empty when it can."""
    from tonnage.provisioning import karpenter as planner

    pod = pods.PendingPod(Ref("Pod", "one", "default", "one"), shape)
    plan = planner.plan([pod], [], [to_come(pool)], catalogue, PlanSettings(configurations=configurations))
    if not plan.waits:
        return ""
    reason = plan.waits[0].reason
    details = [why.why for why in reason.alternatives] or [str(value) for _, value in reason.evidence]
    return details[0] if details else reason.verdict
