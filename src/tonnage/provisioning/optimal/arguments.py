"""What a plan is asked for, and what all its steps make of that."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tonnage.decisions import Ref
from tonnage.objects import karpenter
from tonnage.provisioning import karpenter as planner
from tonnage.provisioning.catalogue import Catalogue
from tonnage.provisioning.compiled import have_soft_taints, left_of_limits, market_of, template_of
from tonnage.provisioning.load import Market
from tonnage.provisioning.optimal.classes import Classes
from tonnage.provisioning.optimal.program import Effort
from tonnage.provisioning.plans import Plan, PlannedClaim, PlanSettings
from tonnage.provisioning.pods import ExistingNode, PendingPod
from tonnage.provisioning.template import PoolTemplate


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
        return market_of(catalogue, self.settings)

    def classes(self, catalogue: Catalogue, templates: Sequence[PoolTemplate]) -> Classes:
        """Without pods."""
        return Classes(catalogue, self.settings, relax_taints=have_soft_taints(templates))

    def templates(self, catalogue: Catalogue) -> list[PoolTemplate]:
        """The NodePools that launch nodes for pods, by name."""
        pools = sorted(self.node_pools, key=lambda one: one.metadata.name)
        return [template_of(pool, catalogue, self.settings) for pool in pools if not pool.is_static]

    def remaining(self, templates: Sequence[PoolTemplate], claims: Sequence[PlannedClaim]) -> dict[str, dict[str, int]]:
        """What the nodes that are there, and those planned already, leave of the limits."""
        there = [(node.node_pool, node.capacity) for node in self.nodes if not node.deleted]
        return left_of_limits(templates, (*there, *((claim.node_pool, claim.capacity) for claim in claims)))

    def torn(self, plan: Plan) -> set[Ref]:
        """The pods of gangs of which one waits."""
        waiting = {wait.pod for wait in plan.waits}
        return {ref for refs in self.gangs.values() if waiting & set(refs) for ref in refs}
