"""What one plan launches instead of another, line by line; the lines add up to the whole difference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from tonnage.decisions import Launch, Ref
from tonnage.provisioning.plans import Plan
from tonnage.provisioning.pods import PendingPod
from tonnage.units import usd


class AlikeNodes(msgspec.Struct, frozen=True, order=True):
    """``count`` new nodes of one instance type and capacity type, together at ``micro_usd_per_hour``."""

    instance_type: str
    capacity_type: str
    count: int
    micro_usd_per_hour: int

    def text(self) -> str:
        """``8 × g6.xlarge``; spot is said."""
        kind = f" {self.capacity_type}" if self.capacity_type != "on-demand" else ""
        return f"{self.count} × {self.instance_type}{kind}"


class NodeChange(msgspec.Struct, frozen=True):
    """``before`` gives way to ``after``; either may be empty. ``micro_usd_per_hour``: after less before."""

    before: tuple[AlikeNodes, ...]
    after: tuple[AlikeNodes, ...]
    micro_usd_per_hour: int

    def text(self) -> str:
        """``1 × g6.48xlarge → 8 × g6.xlarge: −6.91 $/h``."""
        sides = (" + ".join(one.text() for one in side) or "nothing" for side in (self.before, self.after))
        dollars = usd(self.micro_usd_per_hour)
        sign = "−" if dollars < 0 else "+"
        return f"{' → '.join(sides)}: {sign}{abs(dollars):.2f} $/h"


def difference(before: Plan, after: Plan, pods: Iterable[PendingPod]) -> tuple[NodeChange, ...]:
    """From one plan for these pods to another, the largest saving first.

    Nodes that both launch alike cancel out. The others are told together where they hold pods of the same kind."""
    shapes = {pod.ref: id(pod.shape) for pod in pods}
    old, new = _uncommon(before.launches, after.launches)
    groups = _together([(0, one) for one in old] + [(1, one) for one in new], shapes)
    changes = []
    for group in groups:
        sides = tuple(_nodes([one for at, one in group if at == side]) for side in (0, 1))
        prices = [sum(one.micro_usd_per_hour for one in side) for side in sides]
        changes.append(NodeChange(sides[0], sides[1], prices[1] - prices[0]))
    return tuple(sorted(changes, key=lambda one: (one.micro_usd_per_hour, one.before, one.after)))


def _key(launch: Launch) -> tuple[str, str, int]:
    return launch.instance_type, launch.capacity_type, launch.price_micro_usd_per_hour


def _uncommon(old: Sequence[Launch], new: Sequence[Launch]) -> tuple[list[Launch], list[Launch]]:
    """What is left of both lists once equal nodes are taken off in pairs."""
    common = Counter(map(_key, old)) & Counter(map(_key, new))
    return _without(old, Counter(common)), _without(new, Counter(common))


def _without(launches: Sequence[Launch], common: Counter[tuple[str, str, int]]) -> list[Launch]:
    left = []
    for one in launches:
        if common[_key(one)]:
            common[_key(one)] -= 1
        else:
            left.append(one)
    return left


def _together(launches: Sequence[tuple[int, Launch]], shapes: dict[Ref, int]) -> list[list[tuple[int, Launch]]]:
    """Launches that hold pods of one shape, directly or by way of others, in a group."""
    group_of: dict[int, int] = {}
    groups: dict[int, list[tuple[int, Launch]]] = {}
    for number, (side, launch) in enumerate(launches):
        mine = sorted({shapes.get(pod, 0) for pod in launch.pods})
        joined = sorted({group_of[shape] for shape in mine if shape in group_of})
        groups[number] = [one for group in joined for one in groups.pop(group)] + [(side, launch)]
        for shape, group in list(group_of.items()):
            if group in joined:
                group_of[shape] = number
        for shape in mine:
            group_of[shape] = number
    return list(groups.values())


def _nodes(launches: Sequence[Launch]) -> tuple[AlikeNodes, ...]:
    counts = Counter((one.instance_type, one.capacity_type) for one in launches)
    prices: Counter[tuple[str, str]] = Counter()
    for one in launches:
        prices[one.instance_type, one.capacity_type] += one.price_micro_usd_per_hour
    return tuple(sorted(AlikeNodes(*key, count, prices[key]) for key, count in counts.items()))
