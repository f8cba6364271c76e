"""From the layout that runs to another one: what stays, what goes, what is made, and in which order.

Instances that are in use are never touched, and of the others as few as can be are destroyed: the subsets of what runs
are tried from the largest down, so the answer is exact (a card holds seven instances at most). mig-parted deletes every
instance of a card instead (NVIDIA/mig-parted issue 119 asks for what is done here).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from msgspec import Struct

from tonnage.fleet.geometry import Geometry
from tonnage.partitioning.layouts import Layout, Placement, kind_of, mask_of, place, resource


class Step(Struct, frozen=True):
    """``create`` or ``destroy`` one instance at an explicit place."""

    action: str
    placement: Placement


@dataclass(frozen=True, slots=True)
class Change:
    """From ``before`` to ``after``. ``kept`` is in both; steps destroy first, then create by start."""

    before: Layout
    after: Layout
    kept: Layout

    @property
    def destroyed(self) -> Layout:
        return tuple(one for one in self.before if one not in self.kept)

    @property
    def created(self) -> Layout:
        return tuple(one for one in self.after if one not in self.kept)

    @property
    def steps(self) -> tuple[Step, ...]:
        return (
            *(Step("destroy", one) for one in self.destroyed),
            *(Step("create", one) for one in self.created),
        )


@dataclass(frozen=True, slots=True)
class Stuck:
    """No way there; ``why`` in a sentence, ``busy``: the instances in use that forbid it."""

    why: str
    busy: Layout = ()


def relayout(
    on: Geometry, running: Layout, wanted: Sequence[str | Placement], busy: Collection[Placement] = ()
) -> Change | Stuck:
    """The change to ``wanted`` that destroys the fewest instances and none in use.

    ``wanted``: profile names, placed as suits, and placements. ``busy`` are among ``running``. Raises InputError for
    profiles or places that the card has not."""
    mask_of(on, running)
    fixed = tuple(sorted(one for one in wanted if isinstance(one, Placement)))
    names = [on.named(resource(on, one)).name for one in wanted if not isinstance(one, Placement)]
    if fixed and not names:
        return _to_places(on, running, fixed, busy)
    held = [*(one.profile for one in fixed), *names]
    if place(on, names, fixed) is None:
        there = f" with {text(on, (one.profile for one in fixed))} where it is wanted" if fixed else ""
        return Stuck(f"no layout of this card holds {text(on, held)}{there}")
    over = Counter(one.profile for one in busy) - Counter(held)
    if over:
        return Stuck(f"{text(on, over.elements())} in use, not among what is wanted", _of(busy, over))
    at_fixed = mask_of(on, fixed)
    for kept in subsets(running, busy):
        loose = tuple(one for one in kept if one not in fixed)
        missing = Counter(names)
        missing.subtract(one.profile for one in loose)
        if min(missing.values(), default=0) < 0 or mask_of(on, loose) & at_fixed:
            continue
        after = place(on, missing.elements(), (*fixed, *loose))
        if after is not None:
            return Change(running, after, kept)
    return Stuck("what is in use is where the rest would have to be", tuple(sorted(busy)))


def _to_places(on: Geometry, running: Layout, goal: Layout, busy: Collection[Placement]) -> Change | Stuck:
    mask_of(on, goal)
    against = tuple(one for one in sorted(busy) if one not in goal)
    if against:
        return Stuck("instances in use are not among what is wanted", against)
    return Change(running, goal, tuple(one for one in running if one in goal))


def subsets(running: Layout, always: Collection[Placement]) -> Iterator[Layout]:
    """Every part of ``running`` that includes ``always``, the largest first."""
    free = [one for one in running if one not in always]
    for count in range(len(free), -1, -1):
        for some in combinations(free, count):
            yield tuple(sorted([*always, *some]))


def text(on: Geometry, profiles: Iterable[str]) -> str:
    """Profiles as in ``2 x 1g.10gb, 3g.40gb``."""
    return ", ".join(f"{n} x {name}" if n > 1 else name for name, n in kind_of(on, profiles))


def _of(instances: Iterable[Placement], profiles: Iterable[str]) -> Layout:
    among = set(profiles)
    return tuple(sorted(one for one in instances if one.profile in among))
