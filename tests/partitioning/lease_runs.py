"""What processes receive of a plan of leases, dealt out lease by lease: to compare the closed forms with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tonnage.partitioning.leases import IDLE, SWITCH_S, LeasePlan
from tonnage.units import ns, seconds


def longest_wait_s(made: LeasePlan, claim: int) -> float:
    """The longest time without a lease; infinite for a claim that has none."""
    return made.lease_s * _longest_gap(made.holders, claim)


def _longest_gap(holders: Sequence[int], claim: int) -> float:
    """Leases in a row, round the end of the plan, that others hold."""
    mine = [at for at, holder in enumerate(holders) if holder == claim]
    if not mine:
        return math.inf
    return max(after - before - 1 for before, after in zip(mine, [*mine[1:], mine[0] + len(holders)], strict=True))


@dataclass(frozen=True, slots=True)
class Received:
    """GPU seconds of each claim in each plan, and how many of all were lost to switching."""

    by_plan: tuple[tuple[float, ...], ...]
    switching_s: float


def run(
    made: LeasePlan, *, kernels_s: Sequence[float] | None = None, switch_s: float = SWITCH_S, plans: int = 20
) -> Received:
    """What the processes receive when leases end on time but kernels cannot be cut short.

    ``kernels_s``: how long a kernel of each claim runs; 0 for kernels too short to matter. What is running when a lease
    ends runs on in the next, whose holder has that much less. Raises ValueError for negative times."""
    kernels = [0] * len(made.ideal) if kernels_s is None else [ns(one) for one in kernels_s]
    if len(kernels) != len(made.ideal) or min(kernels, default=0) < 0 or switch_s < 0 or plans < 1:
        raise ValueError("expected one kernel time for each claim, and no time below 0")
    lease, switch = ns(made.lease_s), ns(switch_s)
    received = [[0] * len(kernels) for _ in range(plans)]
    now = lost = 0
    last = IDLE
    for slot in range(plans * len(made.holders)):
        holder, start, end = made.holders[slot % len(made.holders)], slot * lease, (slot + 1) * lease
        now = max(now, start)
        if holder == IDLE or now >= end:
            continue
        if last not in (IDLE, holder):
            lost += min(switch, end - now)
            now += switch
        last = holder
        if now >= end:
            continue
        kernel = kernels[holder]
        worked = -(-(end - now) // kernel) * kernel if kernel else end - now
        received[slot // len(made.holders)][holder] += worked
        now += worked
    return Received(tuple(tuple(seconds(one) for one in row) for row in received), seconds(lost))
