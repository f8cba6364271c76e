"""Devices that share counters, and what taking one of them costs the others.

A *component* is a set of devices of a pool that are tied by counter sets: as a rule the partitions of one GPU. Equal
components have one *shape*, which knows for every state of the counters what each device takes away ([ADR 0014] values
a placement by what it leaves): itself, and every other device of the component that fits no more.

[ADR 0014]: ../../../docs/adr/0014-placement-by-what-is-left.md
"""

from __future__ import annotations

from collections.abc import Sequence

from tonnage.dra.pools import PoolDevice

WHOLE = 10**6
"""Loss of a device that takes all of its counters, or shares none."""

Needs = tuple[tuple[int, int], ...]
"""Counters that a device takes, by their number in the component, and how much."""


class CounterShape:
    """Counters' totals, and what each device of a component takes of them."""

    def __init__(self, totals: tuple[int, ...], needs: tuple[Needs, ...]) -> None:
        self.totals = totals
        self.needs = needs
        self.weights = tuple(_share(one, totals) for one in needs)
        self._losses: dict[tuple[int, ...], tuple[int, ...]] = {}

    def losses(self, free: tuple[int, ...]) -> tuple[int, ...]:
        """For each device what it takes away with so much left of each counter; -1 where it does not fit."""
        known = self._losses.get(free)
        if known is None:
            fits = [at for at, one in enumerate(self.needs) if _fits(one, free)]
            found = [-1] * len(self.needs)
            for at in fits:
                left = list(free)
                for counter, amount in self.needs[at]:
                    left[counter] -= amount
                lost = (other for other in fits if other != at and not _fits(self.needs[other], left))
                found[at] = self.weights[at] + sum(self.weights[other] for other in lost)
            known = self._losses[free] = tuple(found)
        return known


def _share(needs: Needs, totals: tuple[int, ...]) -> int:
    """The part of all counters that a device takes, each counter being worth the same; in millionths."""
    return sum(amount * WHOLE // totals[at] for at, amount in needs if totals[at] > 0) // max(1, len(totals))


def _fits(needs: Needs, free: Sequence[int]) -> bool:
    return all(free[counter] >= amount for counter, amount in needs)


def tied(devices: Sequence[PoolDevice]) -> list[list[int]]:
    """Numbers of the devices that share counters, directly or by way of others; devices that take none stand alone."""
    group_of_set: dict[tuple[str, str, str], int] = {}
    groups: list[list[int]] = []
    for number, device in enumerate(devices):
        sets = sorted({(device.id.driver, device.id.pool, key[0]) for key, _ in device.counters})
        found = sorted({group_of_set[one] for one in sets if one in group_of_set})
        if found:
            home = found[0]
            for other in found[1:]:
                groups[home] += groups[other]
                groups[other] = []
                for key, at in group_of_set.items():
                    if at == other:
                        group_of_set[key] = home
        else:
            home = len(groups)
            groups.append([])
        groups[home].append(number)
        for one in sets:
            group_of_set[one] = home
    return [sorted(group) for group in groups if group]
