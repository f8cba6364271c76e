"""What a plan is asked for, and what all its steps make of that."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tonnage.decisions import Ref
from tonnage.objects import karpenter
from tonnage.provisioning import karpenter as planner
from tonnage.provisioning.catalogue import Catalogue
from tonnage.provisioning.load import Market
from tonnage.provisioning.nodeclass import storage_key
from tonnage.provisioning.optimal.classes import Classes
from tonnage.provisioning.optimal.program import Effort
from tonnage.provisioning.plans import Plan, PlannedClaim, PlanSettings
from tonnage.provisioning.pods import ExistingNode, PendingPod
from tonnage.provisioning.template import PoolTemplate, compile_pool


@dataclass(slots=True)
class PlanArguments:
    """The arguments of a plan; ``pods`` in Karpenter's order."""

    pods: list[PendingPod]
    nodes: list[ExistingNode]
    node_pools: list[karpenter.NodePool]
    catalogue: Catalogue
    settings: PlanSettings
    gangs: dict[str, Collection[Ref]]
    effort: Effort

    def karpenter(self, pods: Sequence[PendingPod]) -> Plan:
        """Karpenter's plan for these of the pods."""
        return planner.plan(pods, self.nodes, self.node_pools, self.catalogue, self.settings)

    def market(self, catalogue: Catalogue) -> Market:
        """What of the catalogue can be launched now."""
        return Market(catalogue, catalogue.available(self.settings.unavailable), self.settings.strict_min_values)

    def classes(self, catalogue: Catalogue, templates: Sequence[PoolTemplate]) -> Classes:
        """Without pods."""
        soft = any(taint.effect == "PreferNoSchedule" for one in templates for taint in one.taints)
        return Classes(catalogue, self.settings, relax_taints=soft)

    def templates(self, catalogue: Catalogue) -> list[PoolTemplate]:
        """The NodePools that launch nodes for pods, by name."""
        settings = self.settings
        return [
            compile_pool(
                pool,
                catalogue,
                settings.daemon_sets,
                settings.node_classes.get(storage_key(pool)),
                settings.configurations,
            )
            for pool in sorted(self.node_pools, key=lambda one: one.metadata.name)
            if not pool.is_static
        ]

    def remaining(self, templates: Sequence[PoolTemplate], claims: Sequence[PlannedClaim]) -> dict[str, dict[str, int]]:
        """What the nodes that are there, and those planned already, leave of the limits."""
        remaining = {one.name: dict(one.limits) for one in templates}
        used = [(node.node_pool, node.capacity) for node in self.nodes if not node.deleted]
        for pool, capacity in (*used, *((claim.node_pool, claim.capacity) for claim in claims)):
            for resource in remaining.get(pool, ()):
                remaining[pool][resource] -= capacity.get(resource, 0)
        return remaining

    def torn(self, plan: Plan) -> set[Ref]:
        """The pods of gangs of which one waits."""
        waiting = {wait.pod for wait in plan.waits}
        return {ref for refs in self.gangs.values() if waiting & set(refs) for ref in refs}
