"""Capacity reservations and capacity blocks in a plan: which NodeClaims are launched in which.

A NodeClaim holds an instance of every reservation that it could still be launched in until that is settled, so that no
plan counts on more than there are. While it could be launched in one, and all of these are held, it is not planned at
all: its pods wait for the next round, in which what was launched is not free any more, and do not give up preferences
or go to a NodePool of less weight meanwhile. Reserved capacity is paid for in any case, so it costs next to nothing: a
ten-thousandth of the on-demand price, which keeps its order.

Source: kubernetes-sigs/karpenter pkg/controllers/provisioning/scheduling/reservationmanager.go, nodeclaim.go;
aws/karpenter-provider-aws pkg/providers/instancetype/offering, pkg/controllers/capacityreservation.
"""

from __future__ import annotations

import copy
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from tonnage.decisions import Finding, Ref
from tonnage.facts.price_book import PriceBook, Reservation
from tonnage.objects import karpenter, load
from tonnage.provisioning import labels, nodeclass
from tonnage.provisioning.catalogue import NO_OFFER, Amounts, Catalogue, Offers
from tonnage.provisioning.load import ClaimLoad, Market
from tonnage.units import NS_PER_S

DISCOUNT = 10_000
"""A reserved offering is priced at the on-demand price by this; by a thousand times more with Karpenter
(offering/provider.go), which is less than a micro-dollar."""
RECLAIMED_NS = 30 * 60 * NS_PER_S
"""So long before the end of a capacity block EC2 terminates its instances (EC2 user guide, Capacity Blocks)."""
EXPIRING_NS = RECLAIMED_NS + 10 * 60 * NS_PER_S
"""Ten minutes before that its nodes are drained (capacityreservation/expiration), and from then on nothing is launched
in it."""


def left(
    reservations: Iterable[Reservation], nodes: Iterable[Mapping[str, str]], now_ns: int
) -> tuple[Reservation, ...]:
    """The reservations with what is free of them. ``nodes``: the labels of those that are there and on their way;
    ``now_ns``: since the Unix epoch."""
    taken = Counter(one.get(labels.RESERVATION_ID, "") for one in nodes)
    found = []
    for one in reservations:
        count = one.count - taken[one.id]
        if count > 0 and (one.ends_ns is None or now_ns < one.ends_ns - EXPIRING_NS):
            found.append(msgspec.structs.replace(one, count=count))
    return tuple(found)


def ending(reservations: Iterable[Reservation], now_ns: int) -> dict[str, int]:
    """The capacity blocks whose nodes are drained now, by id, with when EC2 terminates what is left of them."""
    blocks = ((one.id, one.ends_ns) for one in reservations)
    return {id_: ends - RECLAIMED_NS for id_, ends in blocks if ends is not None and now_ns >= ends - EXPIRING_NS}


def selected(node_class: karpenter.EC2NodeClass, reservations: Iterable[Reservation]) -> frozenset[str]:
    """The ids of the capacity reservations that nodes of the class may be launched in: those that a term names, and of
    those that are known the ones that meet all that a term says."""
    terms = node_class.spec.capacity_reservation_selector_terms
    known = list(reservations)
    return nodeclass.read(node_class).reservations | frozenset(
        {one.id for term in terms for one in known if _meets(one, term)}
    )


def _meets(one: Reservation, term: Mapping[str, Any]) -> bool:
    """Whether the reservation is one of the term; a value of a tag that is * is any."""
    tags = dict(one.tags)
    wanted = term.get("tags") or {}
    return (
        any(term.get(key) for key in ("id", "tags"))
        and term.get("id", one.id) == one.id
        and term.get("ownerID", one.owner) == one.owner
        and term.get("instanceMatchCriteria", one.match) == one.match
        and all(key in tags and value in ("*", tags[key]) for key, value in wanted.items())
    )


def findings(node_class: karpenter.EC2NodeClass, book: PriceBook) -> list[Finding]:
    """Which of the capacity reservations that it selects no plan counts on: those that the price book does not have."""
    found = []
    for number, term in enumerate(node_class.spec.capacity_reservation_selector_terms):
        if any(_meets(one, term) for one in book.reservations):
            continue
        field = f"spec.capacityReservationSelectorTerms[{number}]"
        what = f"{term['id']} is not among the prices" if "id" in term else "none among the prices is one of these"
        message = f"no node is planned in the capacity reservations of this term: {what}"
        help_ = "give each with its id, type, zone, count and tags in a file of prices"
        ref = Ref("EC2NodeClass", node_class.name)
        rule = "nodeclass-reservation-unknown"
        found.append(Finding(rule, "warning", ref, load.where(node_class, field), message, help=help_))
    return found


def with_reserved(catalogue: Catalogue, reservations: Sequence[Reservation]) -> Catalogue:
    """The catalogue with an offering of capacity type reserved for each type and zone that has a reservation."""
    known = [one for one in reservations if one.instance_type in catalogue.names]
    if not known:
        return catalogue
    made = copy.copy(catalogue)
    made.pairs = tuple(sorted({*catalogue.pairs, *((one.zone, labels.RESERVED) for one in known)}))
    made.prices = np.full((len(made.pairs), len(catalogue.types)), NO_OFFER, dtype=np.int64)
    row = {pair: at for at, pair in enumerate(made.pairs)}
    for at, pair in enumerate(catalogue.pairs):
        made.prices[row[pair]] = catalogue.prices[at]
    for one in known:
        price = catalogue.book.on_demand(one.instance_type) or 0
        made.prices[row[one.zone, labels.RESERVED], made.index(one.instance_type)] = max(1, round(price / DISCOUNT))
    made.forget()
    return made


class Reserving:
    """Who holds what in one plan. ``short``: why the last NodeClaim that was refused was; empty: none was."""

    def __init__(self, reservations: Sequence[Reservation]) -> None:
        self.short = ""
        self._left = {one.id: one.count for one in reservations}
        self._of: dict[tuple[str, str], list[Reservation]] = defaultdict(list)
        for one in sorted(reservations):
            self._of[one.instance_type, one.zone].append(one)
        self._held: dict[int, frozenset[str]] = {}
        self._known: dict[int, tuple[ClaimLoad, frozenset[str]]] = {}
        self._markets: dict[frozenset[str], Market] = {}

    def market(self, of: Market, selected: frozenset[str]) -> Market:
        """What nodes whose class selects these reservations may be launched as."""
        if selected not in self._markets:
            table = self._only(of.offers, selected)
            self._markets[selected] = replace(of, offers=Offers(of.catalogue, table, selected))
        return self._markets[selected]

    def after(self, number: int, load: ClaimLoad) -> frozenset[str] | None:
        """What the NodeClaim of this number holds with this load; ``None`` where it is refused."""
        offered = self._offered(load)
        held = self._held.get(number, frozenset())
        able = frozenset(one for one in offered if one in held or self._left[one] > 0)
        if able or not (offered or held):
            return able
        named = ", ".join(sorted(offered or held))
        self.short = f"all of capacity reservation {named} is held by nodes that are launched now"
        return None

    def take(self, number: int, held: frozenset[str]) -> None:
        """The NodeClaim holds these from now on."""
        before = self._held.get(number, frozenset())
        for one in before - held:
            self._left[one] += 1
        for one in held - before:
            self._left[one] -= 1
        self._held[number] = held

    def settled(self, number: int, load: ClaimLoad) -> tuple[ClaimLoad, frozenset[str]]:
        """The load as it is launched: where it holds reservations, in one of these and not otherwise."""
        held = self._held.get(number, frozenset())
        if not held:
            return load, held
        offers = load.market.offers
        table = self._only(offers, held)
        others = [row for row, pair in enumerate(offers.catalogue.pairs) if pair[1] != labels.RESERVED]
        table[others] = NO_OFFER
        return replace(load, market=replace(load.market, offers=Offers(offers.catalogue, table, held))), held

    def chosen(self, held: frozenset[str], instance_type: str, zone: str) -> Reservation:
        """In which of the reservations that a NodeClaim holds it is launched: no capacity block where there is another,
        then the one with the most free."""
        among = [one for one in self._of[instance_type, zone] if one.id in held]
        return min(among, key=lambda one: (one.ends_ns is not None, -one.count, one.id))

    def blocks(self, held: frozenset[str]) -> frozenset[tuple[str, str]]:
        """The types and zones of which these have nothing but capacity blocks."""
        mine = {pair: [one for one in of if one.id in held] for pair, of in self._of.items()}
        return frozenset(pair for pair, of in mine.items() if of and all(one.ends_ns is not None for one in of))

    def _offered(self, load: ClaimLoad) -> frozenset[str]:
        known = self._known.get(id(load))
        if known is None:
            offers, catalogue = load.market.offers, load.market.catalogue
            found = set()
            for row in offers.rows(load.requirements):
                zone, kind = catalogue.pairs[row]
                if kind == labels.RESERVED:
                    for at in np.flatnonzero(load.types & (offers.prices[row] != NO_OFFER)):
                        found |= {one.id for one in self._of[catalogue.names[at], zone] if one.id in offers.selected}
            known = self._known[id(load)] = load, frozenset(found)
        return known[1]

    def _only(self, offers: Offers, selected: frozenset[str]) -> Amounts:
        """The prices without those of reserved offerings of which none is among ``selected``."""
        table = offers.prices.copy()
        catalogue = offers.catalogue
        for row, (zone, kind) in enumerate(catalogue.pairs):
            if kind == labels.RESERVED:
                for at in np.flatnonzero(table[row] != NO_OFFER):
                    if not any(one.id in selected for one in self._of[catalogue.names[at], zone]):
                        table[row, at] = NO_OFFER
        return table
