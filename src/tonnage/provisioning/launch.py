"""Which offering a planned NodeClaim becomes, as Karpenter and its AWS provider choose it.

Sources: kubernetes-sigs/karpenter pkg/cloudprovider/types.go (order by price, truncation, minValues);
aws/karpenter-provider-aws pkg/providers/instance/instance.go and filter/filter.go (filters, capacity type).
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tonnage.decisions import Alternative
from tonnage.provisioning import labels
from tonnage.provisioning.catalogue import NO_OFFER, Catalogue, OfferingKey, Offers, TypeMask
from tonnage.provisioning.requirements import Requirements
from tonnage.units import usd

MAX_CLAIM_TYPES = 600
"""Instance types that a NodeClaim keeps (kubernetes-sigs/karpenter, MaxInstanceTypes)."""

MAX_FLEET_TYPES = 60
"""Instance types in one CreateFleet request (aws/karpenter-provider-aws, maxInstanceTypes)."""

SHOWN_ALTERNATIVES = 5


Prices: TypeAlias = NDArray[np.int64]
"""Offered prices, (zone, capacity type) pairs × instance types, micro-USD an hour; ``NO_OFFER`` where there
is none.
"""


class LaunchChoice(Struct, frozen=True):
    """The offering to launch; ``instance_types`` are those in the request, cheapest first."""

    offering: OfferingKey
    micro_usd_per_hour: int
    instance_types: tuple[str, ...]
    alternatives: tuple[Alternative, ...]


def choose(
    offers: Offers,
    requirements: Requirements,
    types: TypeMask,
    *,
    strict: bool = True,
    blocks: frozenset[tuple[str, str]] = frozenset(),
) -> LaunchChoice | str:
    """The offering that a NodeClaim with these requirements and remaining types launches as, or why none
    can.

    The types are ordered by their cheapest allowed offering and cut to 600. Unless minValues are given,
    types with GPUs or accelerators and metal go if anything plainer remains, and spot offerings dearer than
    the cheapest on-demand offering go. Then the list is cut to 60. Spot is taken if any is left, else
    on-demand; of that the cheapest offering, ties by instance type, then zone. EC2 weighs spot prices with
    spare capacity, for which there is no data here: price alone decides. ``strict``: minValues must still
    hold after each cut.

    Where anything is reserved only that is launched: on-demand capacity reservations or capacity blocks, whichever has
    the cheapest, and of capacity blocks the cheapest type alone. ``blocks``: type and zone of those.
    """
    catalogue = offers.catalogue
    rows = np.array(offers.rows(requirements), dtype=np.intp)
    spot = np.array([catalogue.pairs[row][1] == labels.SPOT for row in rows], dtype=np.bool_)
    prices = np.where(types, offers.prices[rows], NO_OFFER)
    order = _by_price(prices)[:MAX_CLAIM_TYPES]
    prices = _only_reserved(offers, rows, _only(prices, order), blocks)
    short = short_of_values(catalogue, requirements, order) if strict else {}
    if not requirements.has_min_values():
        prices = _without_exotic(prices, catalogue.exotic)
        prices = np.where(_dear_spot(prices, spot), NO_OFFER, prices)
    order = _by_price(prices)[:MAX_FLEET_TYPES]
    if strict and not short:
        short = short_of_values(catalogue, requirements, order)
    if short:
        return short_text(requirements, short)
    if not order.size:
        return "every compatible offering is unavailable"
    return _pick(offers, rows, spot, _only(prices, order), order)


def short_of_values(catalogue: Catalogue, requirements: Requirements, types: NDArray[np.intp]) -> dict[str, int]:
    """Which minValues these instance types (by index) do not reach: label → how many values they have. A zone or
    capacity type counts where the types are offered at all."""
    if not requirements.has_min_values():
        return {}
    mask = np.zeros(len(catalogue.types), dtype=np.bool_)
    mask[types] = True
    counted = {
        key: (one.min_values, len(catalogue.values(key, mask)))
        for key, one in sorted(requirements.items())
        if one.min_values is not None
    }
    return {key: found for key, (wanted, found) in counted.items() if found < wanted}


def short_text(requirements: Requirements, short: dict[str, int]) -> str:
    """The first of the minValues that are not reached."""
    key, found = next(iter(short.items()))
    return f"minValues {requirements[key].min_values} of {key}: only {found} left"


def _by_price(prices: Prices) -> NDArray[np.intp]:
    """Types that have an offering, by the price of the cheapest, then by name."""
    if not prices.size:
        return np.zeros(0, dtype=np.intp)
    best = prices.min(axis=0)
    order = np.argsort(best, kind="stable")
    offered: NDArray[np.intp] = order[best[order] != NO_OFFER]
    return offered


def _only(prices: Prices, types: NDArray[np.intp]) -> Prices:
    kept = np.full_like(prices, NO_OFFER)
    kept[:, types] = prices[:, types]
    return kept


def _only_reserved(
    offers: Offers, rows: NDArray[np.intp], prices: Prices, blocks: frozenset[tuple[str, str]]
) -> Prices:
    """What one CreateFleet request can ask of reserved offerings; all offerings where none is reserved."""
    pairs = [offers.catalogue.pairs[row] for row in rows]
    reserved = np.array([kind == labels.RESERVED for _, kind in pairs], dtype=np.bool_)
    if not (prices[reserved] != NO_OFFER).any():
        return prices
    prices = np.where(reserved[:, np.newaxis], prices, NO_OFFER)
    block = np.array([[(name, zone) in blocks for name in offers.catalogue.names] for zone, _ in pairs], dtype=np.bool_)
    plain, blocked = np.where(block, NO_OFFER, prices), np.where(block, prices, NO_OFFER)
    if plain.min() <= blocked.min():
        return plain
    return _only(blocked, _by_price(blocked)[:1])


def _without_exotic(prices: Prices, exotic: TypeMask) -> Prices:
    plain = np.where(exotic, NO_OFFER, prices)
    return plain if (plain != NO_OFFER).any() else prices


def _dear_spot(prices: Prices, spot: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Spot offerings that cost more than the cheapest on-demand offering."""
    cheapest = prices[~spot].min(initial=NO_OFFER)
    dear: NDArray[np.bool_] = spot[:, np.newaxis] & (prices != NO_OFFER) & (prices > cheapest)
    return dear


def _pick(
    offers: Offers, rows: NDArray[np.intp], spot: NDArray[np.bool_], prices: Prices, order: NDArray[np.intp]
) -> LaunchChoice:
    catalogue = offers.catalogue
    bought = np.flatnonzero(spot if (prices[spot] != NO_OFFER).any() else ~spot)
    best = []
    for t in _by_price(prices[bought])[: SHOWN_ALTERNATIVES + 1]:
        row = bought[prices[bought, t].argmin()]  # pairs are sorted: the first zone of equal prices
        best.append((OfferingKey(catalogue.names[t], *catalogue.pairs[rows[row]]), int(prices[row, t])))
    offering, price = best[0]
    beaten = [
        Alternative(
            f"{other.instance_type} {other.capacity_type} {other.zone}",
            "dearer" if amount > price else "same price, later by name",
            usd(amount),
        )
        for other, amount in best[1:]
    ]
    if offering.capacity_type == labels.SPOT and (on_demand := _cheapest(prices[~spot])) is not None:
        beaten.append(Alternative("on-demand", "spot goes first where it is allowed", usd(on_demand)))
    return LaunchChoice(offering, price, tuple(catalogue.names[t] for t in order), tuple(beaten))


def _cheapest(prices: Prices) -> int | None:
    least = int(prices.min(initial=NO_OFFER))
    return None if least == NO_OFFER else least
