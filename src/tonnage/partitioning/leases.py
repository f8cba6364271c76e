"""Time-slicing by leases: a GPU is lent to one process at a time, by a plan that repeats.

The model of the published configuration: a lease is 250 ms of the GPU alone, shares are held to 5 %, so a plan has 20
leases and takes 5 s. *Strict*: a process gets its share and no more (limit = share). *Fair*: it also gets time that
nobody uses, in proportion to the shares, up to its limit. A share that is not a multiple of the granularity is rounded
to whole leases, so that each process is within one lease of its share in every plan.

Source: platform-architecture, "Time-Slicing", which describes NVIDIA Run:ai; the scheduler itself is not published.
:mod:`tonnage.partitioning.turns` is what the GPU does of its own accord.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from msgspec import Struct

from tonnage.partitioning.turns import SWITCH_S, ProcessShare

LEASE_S = 0.25
GRANULARITY = 0.05
STRICT, FAIR = "strict", "fair"
IDLE = -1
"""The holder of a lease that nobody has."""

_EXACT = 1e-9
"""Less than this of a lease is a rounding error."""


class SharingProcess(Struct, frozen=True):
    """A process that shares the GPU. ``share`` of its time is promised; ``limit``: the most that it may have, the share
    itself for a strict one. ``wants``: the most that it can use, 0 while it is idle."""

    share: float
    limit: float = 1.0
    wants: float = 1.0


def strict(share: float, wants: float = 1.0) -> SharingProcess:
    """A process that gets its share and no more."""
    return SharingProcess(share, share, wants)


def fair(share: float, wants: float = 1.0) -> SharingProcess:
    """A process that gets its share, and what others leave."""
    return SharingProcess(share, 1.0, wants)


@dataclass(frozen=True, slots=True)
class LeasePlan:
    """Who holds which lease: ``holders`` are numbers of claims by lease, :data:`IDLE` for none. It repeats.

    ``ideal``: what each claim would have without rounding to leases, 0 to 1."""

    holders: tuple[int, ...]
    ideal: tuple[float, ...]
    lease_s: float = LEASE_S
    counts: tuple[int, ...] = field(init=False)
    """Leases of each claim."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "counts", tuple(self.holders.count(i) for i in range(len(self.ideal))))

    @property
    def plan_s(self) -> float:
        """Seconds until it repeats."""
        return self.lease_s * len(self.holders)

    def share(self, claim: int) -> float:
        """The part of the GPU's time that a claim holds, 0 to 1."""
        return self.counts[claim] / len(self.holders)

    def error(self, claim: int) -> float:
        """How far that is from the ideal; less than one lease of the plan."""
        return self.share(claim) - self.ideal[claim]

    def worst_latency_s(self, claim: int, gpu_s: float, switch_s: float = SWITCH_S) -> float:
        """How long ``gpu_s`` seconds of work take that come at the worst moment; infinite for a claim without leases.

        Each lease after another holder's is ``switch_s`` shorter."""
        starts = [at for at, holder in enumerate(self.holders) if holder != claim] or [0]
        if not self.counts[claim]:
            return math.inf
        return max(self._latency_s(claim, gpu_s, switch_s, start) for start in starts)

    def _latency_s(self, claim: int, gpu_s: float, switch_s: float, start: int) -> float:
        """The same for work that comes when lease ``start`` begins."""
        useful = [self._useful_s(at, switch_s) if holder == claim else 0.0 for at, holder in enumerate(self.holders)]
        whole = sum(useful)
        if whole <= 0:
            return math.inf
        plans = max(0, math.ceil(gpu_s / whole - _EXACT) - 1)
        left, at = gpu_s - plans * whole, start
        while left > useful[at % len(useful)] + _EXACT * self.lease_s:
            left -= useful[at % len(useful)]
            at += 1
        lost = self.lease_s - useful[at % len(useful)]
        return plans * self.plan_s + (at - start) * self.lease_s + lost + left

    def _useful_s(self, at: int, switch_s: float) -> float:
        return max(0.0, self.lease_s - (switch_s if self.holders[at - 1] != self.holders[at] else 0.0))


def plan(claims: Sequence[SharingProcess], *, lease_s: float = LEASE_S, granularity: float = GRANULARITY) -> LeasePlan:
    """The leases of these processes; of processes that are alike the first comes first.

    Raises ValueError for a share outside [granularity, 1], a limit below the share or above 1, shares that are more
    than the GPU, and a granularity that does not divide 1."""
    slots = _slots(lease_s, granularity)
    _check(claims, granularity)
    ideal = _ideal(claims, granularity)
    counts = _whole_leases(ideal, slots)
    return LeasePlan(_spread(counts, slots), tuple(ideal), lease_s)


def in_leases(shares: Sequence[Fraction], modes: Sequence[str]) -> list[ProcessShare]:
    """What each process has while all of them always want the GPU and it is lent by leases. ``modes``: ``strict`` or
    ``fair`` each. Shares are rounded up to the granularity; where they are more than the GPU then, all have less by the
    same factor. A lease after another holder's is shorter by a switch."""
    least = Fraction(GRANULARITY).limit_denominator(1000)
    wanted = [max(share, least) for share in shares]
    total = max(Fraction(1), sum(wanted, Fraction(0)))
    claims = [
        (strict if mode == STRICT else fair)(float(share / total)) for share, mode in zip(wanted, modes, strict=True)
    ]
    made = plan(claims, granularity=min(GRANULARITY, 1 / math.ceil(1 / min(one.share for one in claims))))
    slower = 1 - Fraction(SWITCH_S / made.lease_s).limit_denominator(10_000) if len(shares) > 1 else Fraction(1)
    held = [Fraction(count, len(made.holders)) for count in made.counts]
    return [ProcessShare(share, share * slower) for share in held]


def _slots(lease_s: float, granularity: float) -> int:
    if not 0 < granularity <= 1 or lease_s <= 0 or not math.isfinite(lease_s):
        raise ValueError("the lease must be positive, and the granularity above 0 and at most 1")
    slots = round(1 / granularity)
    if abs(slots * granularity - 1) > _EXACT:
        raise ValueError(f"a granularity of {granularity:g} does not divide a plan into whole leases")
    return slots


def _check(claims: Sequence[SharingProcess], granularity: float) -> None:
    for one in claims:
        if not granularity - _EXACT <= one.share <= one.limit <= 1 or not 0 <= one.wants <= 1:
            raise ValueError(f"expected {granularity:g} <= share <= limit <= 1 and 0 <= wants <= 1, not {one}")
    if sum(one.share for one in claims) > 1 + _EXACT:
        raise ValueError("the shares are more than the GPU")


def _ideal(claims: Sequence[SharingProcess], granularity: float) -> list[float]:
    """What each can use of its share, and of what is left in proportion to the shares, until all have enough.

    Who wants anything wants a lease."""
    most = [min(one.limit, max(one.wants, granularity)) if one.wants else 0.0 for one in claims]
    given = [min(one.share, top) for one, top in zip(claims, most, strict=True)]
    hungry = [i for i in range(len(claims)) if most[i] - given[i] > _EXACT]
    while hungry and (spare := 1 - sum(given)) > _EXACT:
        weights = sum(claims[i].share for i in hungry)
        scale = min(spare / weights, *((most[i] - given[i]) / claims[i].share for i in hungry))
        for i in hungry:
            given[i] += scale * claims[i].share
        hungry = [i for i in hungry if most[i] - given[i] > _EXACT]
    return given


def _whole_leases(ideal: Sequence[float], slots: int) -> list[int]:
    """Leases by largest remainder: each share rounded up or down."""
    exact = [share * slots for share in ideal]
    counts = [int(leases + _EXACT) for leases in exact]
    free = min(slots, math.ceil(sum(exact) - _EXACT)) - sum(counts)
    for i in sorted(range(len(exact)), key=lambda i: (counts[i] - exact[i], i))[:free]:
        counts[i] += 1
    return counts


def _spread(counts: Sequence[int], slots: int) -> tuple[int, ...]:
    """Lease k of n lies between k/n and (k+1)/n of the plan, so that nobody waits for two whole n-ths of it.

    Earliest deadline first finds such an order wherever there is one, and there is: dealing out the GPU in
    infinitely small parts keeps to the same windows."""
    given = [0] * len(counts)
    holders = []
    for slot in range(slots):
        ready = [i for i, n in enumerate(counts) if given[i] < n and given[i] * slots < (slot + 1) * n]
        if not ready:
            holders.append(IDLE)
            continue
        first = min(ready, key=lambda i: (-(-(given[i] + 1) * slots // counts[i]), i))
        given[first] += 1
        holders.append(first)
    return tuple(holders)
