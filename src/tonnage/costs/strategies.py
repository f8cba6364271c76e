"""Strategies that save money, applied to usage one on top of the other: each takes what the one before has left.

They change hours, node types, prices or time lost, never a total; what one saves is the difference of two bills.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from itertools import groupby
from math import ceil

from msgspec import Struct
from msgspec.structs import replace

from tonnage.costs.commitments import Commitment, commit
from tonnage.costs.fewer_nodes import packed
from tonnage.costs.usage import NodeUsage, total
from tonnage.facts import instances, spot
from tonnage.facts.prices import ON_DEMAND, SPOT, PriceBook
from tonnage.units import NS_PER_S

STRATEGIES = ("right-sizing", "consolidation", "schedules", "spot", "checkpointing", "commitments")
"""In the order in which they are applied unless another is asked for: fewer hours first, then cheaper ones."""


class BusinessHours(Struct, frozen=True):
    """From ``start`` to ``end`` (hours, UTC, 0 to 24) on ``days`` (0 is Monday)."""

    days: tuple[int, ...] = (0, 1, 2, 3, 4)
    start: int = 8
    end: int = 18

    def within(self, start_ns: int, end_ns: int) -> Iterator[tuple[int, int]]:
        """The parts of a time span (Unix, ns) that are in business hours, in order."""
        day = datetime.fromtimestamp(start_ns // NS_PER_S, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        while (midnight := int(day.timestamp()) * NS_PER_S) < end_ns:
            opens, closes = (midnight + hour * 3600 * NS_PER_S for hour in (self.start, self.end))
            if day.weekday() in self.days and max(opens, start_ns) < min(closes, end_ns):
                yield max(opens, start_ns), min(closes, end_ns)
            day += timedelta(days=1)


class SavingsSettings(Struct, frozen=True, kw_only=True):
    """``commitment_discount``: of the on-demand price, for a year's commitment; ``commitment_micro_usd_per_hour``: what
    it covers, None for the cheapest level. ``checkpoint_s``: work between checkpoints, None for the interval at which
    they cost least; ``write_s``: that one takes, where the usage does not say."""

    hours: BusinessHours = BusinessHours()
    commitment_discount: float = 0.35
    commitment_micro_usd_per_hour: int | None = None
    checkpoint_s: float | None = None
    write_s: float = 60.0


class SavingsStep(Struct, frozen=True):
    """One strategy on top of those before: the bill with it, what it saves (negative where it costs), and what it
    changes."""

    strategy: str
    total_micro_usd: int
    saved_micro_usd: int
    change: str


class Savings(Struct, frozen=True):
    """A bill, and strategies one after the other. What the steps save adds up to the first bill less the last."""

    start_micro_usd: int
    steps: tuple[SavingsStep, ...]

    @property
    def end_micro_usd(self) -> int:
        """The bill with all strategies."""
        return self.steps[-1].total_micro_usd if self.steps else self.start_micro_usd

    @property
    def saved_micro_usd(self) -> int:
        """What all strategies save together."""
        return sum(step.saved_micro_usd for step in self.steps)

    @property
    def share(self) -> float:
        """The same as a share of the first bill."""
        return self.saved_micro_usd / self.start_micro_usd if self.start_micro_usd else 0.0


def on_usage(
    usage: Sequence[NodeUsage], order: Sequence[str], book: PriceBook, settings: SavingsSettings
) -> tuple[Savings, tuple[NodeUsage, ...], Commitment | None]:
    """The strategies of ``order`` (of :data:`STRATEGIES`; commitments only at the end) on this usage: what each saves,
    the usage that is left, and the commitment where there is one. Raises ValueError for an order that cannot be."""
    if "commitments" in order[:-1] or len(set(order)) < len(order) or set(order) - set(STRATEGIES):
        raise ValueError(f"strategies {', '.join(order)}, expected some of {', '.join(STRATEGIES)}, commitments last")
    start = before = total(usage)
    rows = tuple(usage)
    span = (min(one.start_ns for one in rows), max(one.paid_until_ns for one in rows)) if rows else (0, 1)
    steps, commitment = [], None
    for name in order:
        if name == "commitments":
            span = span[0], max((span[1], *(one.paid_until_ns for one in rows)))
            commitment = commit(rows, settings.commitment_discount, span, settings.commitment_micro_usd_per_hour)
            after, change = commitment.total_micro_usd, committed(commitment)
        else:
            changed = tuple(_CHANGES[name](rows, book, settings))
            after, change = total(changed), _said(rows, changed)
            rows = changed
        steps.append(SavingsStep(name, after, before - after, change))
        before = after
    return Savings(start, tuple(steps)), rows, commitment


def committed(made: Commitment) -> str:
    """A commitment in words."""
    if not made.level_micro_usd_per_hour:
        return "no on-demand usage lasts long enough for a commitment"
    level = made.level_micro_usd_per_hour / 1e6
    return f"${level:,.2f} an hour of on-demand prices, {made.covered:.0%} of their cost; {made.used:.0%} of it used"


def right_sized(usage: Sequence[NodeUsage], book: PriceBook, settings: SavingsSettings) -> Iterator[NodeUsage]:
    """Each node's pods on the cheapest nodes that have the same GPU: one of another size, or several smaller ones."""
    for one in usage:
        yield _cheapest(one, book) if one.capacity_type == ON_DEMAND and one.gpus else one


def consolidated(usage: Sequence[NodeUsage], book: PriceBook, settings: SavingsSettings) -> Iterator[NodeUsage]:
    """Nodes that are alike at the same time are as few as their pods need; pods of several workloads share them."""
    for _, alike in groupby(sorted(usage, key=_alike), key=_alike):
        yield from packed(list(alike))


def scheduled(usage: Sequence[NodeUsage], book: PriceBook, settings: SavingsSettings) -> Iterator[NodeUsage]:
    """What is not needed outside business hours runs in them alone."""
    for one in usage:
        if one.off_hours:
            yield one
            continue
        for start, end in settings.hours.within(one.start_ns, one.end_ns):
            yield replace(one, start_ns=start, end_ns=end)


def on_spot(usage: Sequence[NodeUsage], book: PriceBook, settings: SavingsSettings) -> Iterator[NodeUsage]:
    """What may be interrupted runs on spot nodes, where that is cheaper with what interruptions lose."""
    for one in usage:
        price = book.spot(one.instance_type, one.zone)
        if not one.interruptible or one.capacity_type != ON_DEMAND or price is None:
            yield one
            continue
        changed = replace(one, capacity_type=SPOT, price_micro_usd_per_hour=price, lost=lost_on_spot(one))
        yield changed if changed.cost_micro_usd < one.cost_micro_usd else one


def checkpointed(usage: Sequence[NodeUsage], book: PriceBook, settings: SavingsSettings) -> Iterator[NodeUsage]:
    """Training on spot nodes saves checkpoints, at the given or the best interval, where that loses less time."""
    for one in usage:
        if not one.training or one.capacity_type != SPOT:
            yield one
            continue
        write_s = one.write_s or settings.write_s
        rate = spot.per_hour(spot.interrupted_a_month(one.instance_type))
        every_s = settings.checkpoint_s or spot.best_interval_s(rate, write_s)
        saved = replace(one, checkpoint_s=min(every_s, one.work_ns / NS_PER_S), write_s=write_s)
        saved = replace(saved, lost=lost_on_spot(saved))
        yield saved if saved.lost < one.lost else one


def lost_on_spot(one: NodeUsage) -> float:
    """The share of its work that interruptions and checkpoints cost on spot nodes: without checkpoints half of the work
    is lost with each interruption, and work that is not training loses its restart alone."""
    rate = spot.per_hour(spot.interrupted_a_month(one.instance_type))
    if not one.training:
        return spot.lost_share(rate, 0.0, one.restart_s)
    if not one.checkpoint_s:
        return spot.lost_share(rate, one.work_ns / NS_PER_S, one.restart_s)
    return spot.lost_share(rate, one.checkpoint_s, one.restart_s, one.write_s)


_CHANGES: dict[str, Callable[[Sequence[NodeUsage], PriceBook, SavingsSettings], Iterator[NodeUsage]]] = {
    "right-sizing": right_sized,
    "consolidation": consolidated,
    "schedules": scheduled,
    "spot": on_spot,
    "checkpointing": checkpointed,
}


def _cheapest(one: NodeUsage, book: PriceBook) -> NodeUsage:
    own = instances.get(one.instance_type)
    each = ceil(Fraction(one.pods, one.nodes))
    best = one
    for other in instances.all():
        same = (other.gpu, other.accelerator_name, other.arch) == (own.gpu, own.accelerator_name, own.arch)
        room = one.pods_on(other) if same and book.covers(one.zone) else 0
        price = book.on_demand(other.name) if room else None
        if price is None or not each:
            continue
        nodes = one.nodes * ceil(Fraction(each, room))
        changed = replace(one, instance_type=other.name, price_micro_usd_per_hour=price, nodes=nodes)
        if changed.cost_micro_usd < best.cost_micro_usd:
            best = changed
    return best


def _alike(one: NodeUsage) -> tuple[object, ...]:
    times, kind = (one.start_ns, one.end_ns), (one.instance_type, one.zone, one.capacity_type)
    what = one.interruptible, one.off_hours, one.training
    return *times, *kind, one.price_micro_usd_per_hour, *what, one.checkpoint_s, one.write_s, one.restart_s, one.lost


def _said(before: Sequence[NodeUsage], after: Sequence[NodeUsage]) -> str:
    """The change in words: node-hours, and node-hours on spot."""
    if Counter(before) == Counter(after):
        return "nothing to change"
    was, now = (_hours(usage) for usage in (before, after))
    said = [] if was == now else [f"{was:,.1f} → {now:,.1f} node-hours"]
    was_spot, now_spot = (_hours([one for one in usage if one.capacity_type == SPOT]) for usage in (before, after))
    if was_spot < now_spot:
        said.append(f"{now_spot:,.1f} of {now:,.1f} node-hours on spot")
    types = {one.instance_type for one in after if one.nodes} - {one.instance_type for one in before}
    if types:
        said.append(f"now {', '.join(sorted(types))}")
    return "; ".join(said) or "other prices"


def _hours(usage: Sequence[NodeUsage]) -> float:
    return sum(one.nodes * (one.paid_until_ns - one.start_ns) for one in usage) / (3600 * NS_PER_S)
