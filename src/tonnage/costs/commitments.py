"""Commitments to spend (Savings Plans): a lower price for a part of the on-demand usage, paid whether used or not.

A commitment covers on-demand hours alone: spot hours, and capacity that one owns, are never counted against it (AWS,
Savings Plans user guide). What it does not cover is paid at the on-demand price.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from itertools import pairwise

from msgspec import Struct

from tonnage.costs.usage import NodeUsage
from tonnage.facts.prices import ON_DEMAND
from tonnage.units import NS_PER_HOUR


class Commitment(Struct, frozen=True):
    """What a commitment makes of some usage. ``level_micro_usd_per_hour``: on-demand prices that it covers at any time;
    ``paid_micro_usd``: for the commitment, used or not; ``on_demand_micro_usd``: for what is above it;
    ``other_micro_usd``: for what it can never cover; ``covered``: share of the on-demand cost under it; ``used``: share
    of what was committed that covered something."""

    discount: float
    level_micro_usd_per_hour: int
    paid_micro_usd: int
    on_demand_micro_usd: int
    other_micro_usd: int
    covered: float
    used: float

    @property
    def total_micro_usd(self) -> int:
        """All that is paid."""
        return self.paid_micro_usd + self.on_demand_micro_usd + self.other_micro_usd


def commit(
    usage: Iterable[NodeUsage], discount: float, span_ns: tuple[int, int], level: int | None = None
) -> Commitment:
    """The usage under a commitment for all of ``span_ns`` (start, end); what is beyond it is paid on demand.

    ``discount``: the share of the on-demand price by which committed hours are cheaper. ``level``: what is covered, in
    micro-dollars an hour of on-demand prices; None: the level at which the whole costs least.

    Raises ValueError unless 0 < ``discount`` < 1, the span is positive and ``level`` is not negative."""
    if not 0 < discount < 1:
        raise ValueError(f"a discount of {discount}, expected a share between 0 and 1")
    start, end = span_ns
    if end <= start:
        raise ValueError("the span of a commitment ends before it begins")
    rows = list(usage)
    of_demand = [one for one in rows if one.capacity_type == ON_DEMAND]
    rates = _rates(of_demand, start, end)
    if level is None:
        level = _cheapest(rates, discount)
    if level < 0:
        raise ValueError(f"a commitment of {level} micro-dollars an hour")
    price = Fraction(str(1 - discount)).limit_denominator(10**9)
    paid = int(price * level * (end - start) / NS_PER_HOUR)
    covered = sum(min(rate, level) * length for rate, length in rates)
    whole = sum(one.cost_micro_usd for one in of_demand)
    above = whole - min(whole, covered // NS_PER_HOUR)
    committed = level * (end - start)
    return Commitment(
        discount=discount,
        level_micro_usd_per_hour=level,
        paid_micro_usd=paid,
        on_demand_micro_usd=above,
        other_micro_usd=sum(one.cost_micro_usd for one in rows if one.capacity_type != ON_DEMAND),
        covered=1 - above / whole if whole else 0.0,
        used=covered / committed if committed else 0.0,
    )


def _rates(usage: list[NodeUsage], start: int, end: int) -> list[tuple[int, int]]:
    """(micro-dollars an hour, for how many ns), in order of time from start to end."""
    changes: dict[int, int] = {start: 0, end: 0}
    for one in usage:
        rate = one.nodes * one.price_micro_usd_per_hour
        first, last = (min(max(at, start), end) for at in (one.start_ns, one.paid_until_ns))
        changes[first] = changes.get(first, 0) + rate
        changes[last] = changes.get(last, 0) - rate
    times = sorted(changes)
    found, rate = [], 0
    for at, until in pairwise(times):
        rate += changes[at]
        found.append((rate, until - at))
    return found


def _cheapest(rates: list[tuple[int, int]], discount: float) -> int:
    """The highest level that is in use for more than the share of time at which committed and on-demand cost the same:
    1 − discount."""
    whole = sum(length for _, length in rates)
    reached = 0
    for rate, length in sorted(rates, reverse=True):
        reached += length
        if reached > (1 - discount) * whole:
            return rate
    return 0
