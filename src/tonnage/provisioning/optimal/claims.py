"""From pods on a kind of node to the NodeClaim that launches it, by Karpenter's own rules of launching."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from tonnage.decisions import Launch, Reason, Ref
from tonnage.provisioning import bought
from tonnage.provisioning.launch import LaunchChoice, choose
from tonnage.provisioning.load import ClaimLoad, Stage
from tonnage.provisioning.optimal.supply import NewNodeKind
from tonnage.provisioning.plans import PlannedClaim

VERDICT = "part of the cheapest set of nodes for all pods"


@dataclass(frozen=True, slots=True)
class UnnamedClaim:
    """A NodeClaim to be named: its load, what it launches as, its pods."""

    load: ClaimLoad
    choice: LaunchChoice
    pods: tuple[Ref, ...]

    def named(self, name: str) -> tuple[PlannedClaim, Launch]:
        """The claim and its launch under this name."""
        planned = bought.planned(Ref("NodeClaim", name), self.load, self.pods, self.choice)
        launch = bought.launch(planned, self.load, self.choice)
        reason = Reason(VERDICT, launch.reason.evidence, launch.reason.alternatives)
        return planned, msgspec.structs.replace(launch, reason=reason)

    def used(self) -> dict[str, int]:
        """What it takes of the limits of its NodePool."""
        template, catalogue = self.load.template, self.load.market.catalogue
        amounts = template.capacity[catalogue.index(self.choice.offering.instance_type)]
        return {name: int(amounts[catalogue.column[name]]) for name in template.limits if name in catalogue.column}


def make(offer: NewNodeKind, pods: Sequence[tuple[Stage, Sequence[Ref]]]) -> UnnamedClaim | None:
    """The NodeClaim for these pods, no dearer than the offer and no larger where its NodePool is limited; of that
    offering alone if Karpenter would launch another. None where the pods do not fit together after all."""
    made = _made(offer.site.empty(), pods)
    if made is not None and _holds(made, offer):
        return made
    made = _made(offer.site.empty(offer.offering), pods)
    return made if made is not None and _holds(made, offer) else None


def _made(load: ClaimLoad | None, pods: Sequence[tuple[Stage, Sequence[Ref]]]) -> UnnamedClaim | None:
    for stage, refs in pods:
        for _ in refs:
            load = load and load.join(stage)
    if load is None:
        return None
    choice = choose(load.market.offers, load.requirements, load.types, strict=load.market.strict_min_values)
    return (
        None if isinstance(choice, str) else UnnamedClaim(load, choice, tuple(ref for _, refs in pods for ref in refs))
    )


def _holds(made: UnnamedClaim, offer: NewNodeKind) -> bool:
    if made.choice.micro_usd_per_hour > offer.micro_usd_per_hour:
        return False
    catalogue, template = offer.site.market.catalogue, offer.site.template
    at = catalogue.index(offer.offering.instance_type)
    return all(amount <= int(template.capacity[at, catalogue.column[name]]) for name, amount in made.used().items())
