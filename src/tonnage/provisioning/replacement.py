"""With which instance types fewer nodes would cost less than those that are there.

Source: kubernetes-sigs/karpenter pkg/controllers/disruption/consolidation.go, multinodeconsolidation.go
(filterOutSameInstanceType) and pkg/controllers/provisioning/scheduling/nodeclaim.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tonnage.provisioning import labels
from tonnage.provisioning.candidates import Candidate
from tonnage.provisioning.catalogue import NO_OFFER, Catalogue, Offers, TypeMask
from tonnage.provisioning.launch import short_of_values
from tonnage.provisioning.load import ClaimLoad
from tonnage.provisioning.requirements import Requirement, Requirements

SPOT_FLEXIBILITY = 15
"""Cheaper instance types that there must be for a spot node to be replaced by a spot node, and among which it is then
launched (MinInstanceTypesForSpotToSpotConsolidation)."""

NOT_CHEAPER = "Can't replace with a cheaper node"
NO_SPOT_TO_SPOT = "SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node"
"""Why a node stays, as the message of Karpenter's event Unconsolidatable has it (consolidation.go)."""


class Replacing(Struct, frozen=True):
    """``spot_to_spot``: feature gate SpotToSpotConsolidation."""

    catalogue: Catalogue
    spot_to_spot: bool = False

    def replacement(self, load: ClaimLoad, going: Sequence[Candidate]) -> ClaimLoad | str:
        """The load with the types that may replace these nodes; why not, as Karpenter's events have it, where none
        does."""
        found = self._cheaper(load, going, sum(one.price for one in going))
        if isinstance(found, ClaimLoad) and len(going) > 1:
            found = self._other_types(found, going)
        return found or NOT_CHEAPER

    def _cheaper(self, load: ClaimLoad, going: Sequence[Candidate], price: int) -> ClaimLoad | str | None:
        """The load with the types that cost less even where they are dearest, bought as spot where spot is offered."""
        spot = Requirement.of(labels.CAPACITY_TYPE, "In", (labels.SPOT,))
        may = load.requirements.get(labels.CAPACITY_TYPE)
        allows_spot = may is None or may.has(labels.SPOT)
        all_spot = all(one.capacity_type == labels.SPOT for one in going)
        if all_spot and allows_spot:
            if not self.spot_to_spot:
                return NO_SPOT_TO_SPOT
            requirements = load.requirements.merged(Requirements([spot]))
            found = self._below(load, requirements, price)
            if found is None or len(going) > 1:
                return found
            if (count := int(found.types.sum())) < SPOT_FLEXIBILITY:
                return (
                    f"SpotToSpotConsolidation requires {SPOT_FLEXIBILITY} cheaper instance type options than the "
                    f"current candidate to consolidate, got {count}"
                )
            return self._cheapest(found)
        found = self._below(load, load.requirements, price)
        if found is None or not allows_spot or (may is not None and not may.has(labels.ON_DEMAND)):
            return found
        return replace(found, requirements=found.requirements.merged(Requirements([spot])))

    def _below(self, load: ClaimLoad, requirements: Requirements, price: int) -> ClaimLoad | None:
        worst = worst_prices(load.market.offers, requirements)
        types: TypeMask = load.types & (worst < price)
        if not types.any() or short_of_values(self.catalogue, requirements, np.flatnonzero(types)):
            return None
        return replace(load, requirements=requirements, types=types)

    def _cheapest(self, load: ClaimLoad) -> ClaimLoad:
        """The fifteen cheapest types, or as many as minValues takes."""
        rows = list(load.market.offers.rows(load.requirements))
        best = np.where(load.types, load.market.offers.prices[rows].min(axis=0), NO_OFFER)
        order = np.argsort(best, kind="stable")[: int(load.types.sum())]
        count = SPOT_FLEXIBILITY
        while count < len(order) and short_of_values(self.catalogue, load.requirements, order[:count]):
            count += 1
        types = np.zeros_like(load.types)
        types[order[:count]] = True
        return replace(load, types=types)

    def _other_types(self, load: ClaimLoad, going: Sequence[Candidate]) -> ClaimLoad | None:
        """Of a type that is taken back anyway one node could simply stay: what is launched has to be cheaper."""
        limit = NO_OFFER
        for one in going:
            index = self.catalogue.index(one.instance_type)
            if load.types[index]:
                limit = min(limit, one.price)
        return self._below(load, load.requirements, int(limit))


def worst_prices(offers: Offers, requirements: Requirements) -> NDArray[np.int64]:
    """By instance type, micro-USD per hour of its dearest offering of the capacity type that it would be launched as:
    spot where there is any, else on-demand; ``NO_OFFER`` where there is none."""
    rows = offers.rows(requirements)
    worst = np.full(len(offers.catalogue.types), NO_OFFER, dtype=np.int64)
    for kind in (labels.ON_DEMAND, labels.SPOT):  # spot is written over on-demand
        of_kind = [row for row in rows if offers.catalogue.pairs[row][1] == kind]
        if of_kind:
            prices = offers.prices[of_kind]
            dearest = np.where(prices == NO_OFFER, -1, prices).max(axis=0)
            worst = np.where(dearest >= 0, dearest, worst)
    return worst


def cheapest_micro_usd(load: ClaimLoad, requirements: Requirements) -> int:
    """What Karpenter takes a replacement to cost when it weighs savings: the cheapest offering of any kind of the type
    that comes first by what ``requirements`` allow; 0 where there is none."""
    offers = load.market.offers
    best = np.full(len(load.types), NO_OFFER, dtype=np.int64)
    if rows := list(offers.rows(requirements)):
        best = np.where(load.types, offers.prices[rows].min(axis=0), NO_OFFER)
    price = int(offers.prices[:, int(np.argmin(best))].min())
    return 0 if price == NO_OFFER else price
