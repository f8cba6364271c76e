"""The numbers of a rollout: how many pods more, how many fewer, and which ReplicaSet gets them.

Sources: kubernetes/kubernetes v1.36 pkg/controller/deployment (rolling.go, sync.go, util/deployment_util.go) and
apimachinery pkg/util/intstr. Everything here is plain numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, floor

from tonnage.objects.policy import scaled


@dataclass(frozen=True, slots=True)
class RolloutBounds:
    """How far a rolling update may leave the desired number of pods."""

    surge: int
    unavailable: int


def bounds(max_surge: int | str, max_unavailable: int | str, desired: int) -> RolloutBounds:
    """Surge is rounded up, unavailability down; where both come to nothing, one pod may be unavailable."""
    surge = scaled(max_surge, desired, up=True)
    unavailable = scaled(max_unavailable, desired, up=False)
    if surge == 0 and unavailable == 0:
        unavailable = 1
    return RolloutBounds(surge, 0 if desired == 0 else min(unavailable, desired))


@dataclass(frozen=True, slots=True)
class Size:
    """One ReplicaSet: what is asked of it, how many of its pods are available, and its age (``created``, ``name``).

    ``most`` is the Deployment's size with surge when this ReplicaSet was last scaled, None where that is unknown.
    """

    name: str
    asked: int
    available: int = 0
    created: str = ""
    most: int | None = None


def new_replicas(desired: int, surge: int, all_asked: int, new_asked: int) -> int:
    """The size of the new ReplicaSet of a rolling update: as many more as the surge leaves room for."""
    room = desired + surge - all_asked
    return new_asked if room <= 0 else new_asked + min(room, desired - new_asked)


def old_sizes(desired: int, unavailable: int, new: Size, olds: Iterable[Size]) -> dict[str, int]:
    """New sizes of the old ReplicaSets that can shrink now, by name.

    First those pods go that are not available anyhow, oldest ReplicaSet first; then as many available ones as leave
    enough.
    """
    olds = sorted((old for old in olds if old.asked > 0), key=lambda old: (old.created, old.name))
    least = desired - unavailable
    room = sum(old.asked for old in olds) + new.asked - least - (new.asked - new.available)
    sizes = {old.name: old.asked for old in olds}
    if room <= 0:
        return {}
    settled = True
    for old in olds:
        settled = old.available <= old.asked  # else an earlier shrinking is still under way: wait for it
        if room <= 0 or not settled:
            break
        gone = min(room, old.asked - old.available)
        sizes[old.name] -= gone
        room -= gone
    spare = new.available + sum(old.available for old in olds) - least
    for old in olds:
        if spare <= 0 or not settled:
            break
        gone = min(sizes[old.name], spare)
        sizes[old.name] -= gone
        spare -= gone
    return {old.name: sizes[old.name] for old in olds if sizes[old.name] != old.asked}


def proportional_sizes(desired: int, surge: int, running: int, active: Iterable[Size]) -> dict[str, int]:
    """Sizes of the active ReplicaSets when a Deployment is scaled in the middle of a rollout, by name.

    Each gets its share of the change, the largest first and whatever rounding leaves over. ``running`` is
    status.replicas, the base where a ReplicaSet does not know the Deployment's former size.
    """
    active = list(active)
    allowed = desired + surge if desired > 0 else 0
    change = allowed - sum(one.asked for one in active)
    # Equal sizes: grow the newer first, shrink the older first.
    by_age = sorted(active, key=lambda one: (one.created, one.name), reverse=change > 0)
    ordered = sorted(by_age, key=lambda one: -one.asked)
    sizes = {one.name: one.asked for one in ordered}
    given = 0
    for one in ordered:
        if change == 0 or one.asked == 0 or given == change:
            continue
        share = _share(one, desired, surge, running)
        part = min(share, change - given) if change > 0 else max(share, change - given)
        sizes[one.name] += part
        given += part
    if ordered and change != 0:
        first = ordered[0].name
        sizes[first] = max(0, sizes[first] + change - given)
    return sizes


def _share(one: Size, desired: int, surge: int, running: int) -> int:
    if desired == 0:
        return -one.asked
    before = one.most or running
    if before == 0:
        return 0
    return _round_half_away(one.asked * (desired + surge) / before) - one.asked


def _round_half_away(value: float) -> int:
    return floor(value + 0.5) if value >= 0 else ceil(value - 0.5)
