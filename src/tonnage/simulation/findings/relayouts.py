"""What a policy that lets layouts follow the load cannot mean."""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.decisions import Finding, Ref
from tonnage.facts.labels import MIG_RELAYOUT
from tonnage.fleet.state import Fleet
from tonnage.objects import karpenter
from tonnage.objects.load import Manifest
from tonnage.partitioning.fleet_layouts import may_change
from tonnage.partitioning.node_cuts import MIG_STRATEGY
from tonnage.simulation.scenario import Scenario


def layouts_that_stay(scenario: Scenario, policy: str, fleet: Fleet, manifest: Manifest) -> Iterator[Finding]:
    """A finding where the policy has ``partitioning: relayout`` and neither a node of the fleet nor a NodePool's
    template has the labels of :func:`~tonnage.partitioning.fleet_layouts.may_change`."""
    if scenario.policy(policy).partitioning != "relayout":
        return
    templates = (pool.spec.template.metadata.labels for pool in manifest.of(karpenter.NodePool))
    if any(map(may_change, (*(fleet.node(row).labels for row in fleet.node_rows()), *templates))):
        return
    yield Finding(
        "relayout-without-nodes",
        "warning",
        Ref("Policy", policy),
        scenario.document.problem(f"policies.{policy}.partitioning", "").where,
        f'no node and no NodePool has the labels {MIG_RELAYOUT}: "true" and {MIG_STRATEGY}: mixed: '
        "all layouts stay as they are",
    )
