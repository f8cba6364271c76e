"""How a world acts on its cluster: through which effects, and on which NodePools."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tonnage.cluster.assembly import bought_here
from tonnage.cluster.client.verbs import Client
from tonnage.cluster.clock import Clock
from tonnage.cluster.effects import ApiEffects, Effects, Observing
from tonnage.cluster.world import ClusterWorld, Measure, Recorder
from tonnage.controllers.nodes import Pools
from tonnage.decisions import Launch, Outcome, Refused, Return
from tonnage.objects import karpenter
from tonnage.provisioning.catalogue import Catalogue

PARALLEL = 16
"""Binding calls under way at once."""


class Reporting(ApiEffects):
    """Places and scales, but buys and returns nothing: that is only said."""

    WHY = Refused("nodes are only reported")

    def launch(self, decision: Launch, pool: karpenter.NodePool | None) -> Outcome:
        return self.WHY

    def give_back(self, decision: Return) -> Outcome:
        return self.WHY


@dataclass(frozen=True, slots=True)
class Backend:
    """``pools``: the NodePools that the nodes controller plans with, of all that there are."""

    effects: Effects
    clock: Clock
    recorder: Recorder
    pools: Callable[[Pools], Pools] = bought_here

    @classmethod
    def of(
        cls,
        name: str,
        client: Client,
        clock: Clock,
        recorder: Recorder,
        *,
        aws_cluster: str = "",
        aws_region: str = "",
    ) -> Backend:
        """``observe``, ``nodeclaims``, ``report`` or ``aws``. Raises InputError when a cloud cannot be reached."""
        if name == "observe":
            return cls(Observing(), clock, recorder)
        if name == "report":
            return cls(Reporting(client, clock), clock, recorder)
        return cls(ApiEffects(client, clock), clock, recorder)

    def world(self, catalogue: Catalogue, measure: Measure) -> ClusterWorld:
        """The world that acts so."""
        return ClusterWorld(
            self.effects,
            self.clock,
            price=catalogue.book.price,
            recorder=self.recorder,
            measure=measure,
            parallel=PARALLEL,
        )
