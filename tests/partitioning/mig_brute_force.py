"""Layouts and re-layouts of one card by trying everything, knowing only that placements must not overlap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from itertools import combinations

from tonnage.facts import mig
from tonnage.partitioning.layouts import Kind, Layout, Placement, card, kind_of


def all_layouts(gpu: str, profiles: list[str]) -> list[Layout]:
    """Every set of placements without overlap, by trying each memory slice in turn."""
    by_name = {one.name: one for one in mig.profiles(gpu, plain=False)}
    slices = next(iter(by_name.values())).of_memory_slices
    found: list[Layout] = []

    def walk(at: int, so_far: Layout, media: bool) -> None:
        if at >= slices:
            found.append(so_far)
            return
        walk(at + 1, so_far, media)
        for name in profiles:
            extends = "+me" in name
            if at in by_name[name].starts and not (media and extends):
                walk(at + by_name[name].memory_slices, (*so_far, Placement(at, name)), media or extends)

    walk(0, (), False)
    return found


def kinds(gpu: str, layouts: list[Layout]) -> set[Kind]:
    return {kind_of(card(gpu), (one.profile for one in layout)) for layout in layouts}


def subsets(layout: Layout) -> Iterator[Layout]:
    """Every part of a layout."""
    for count in range(len(layout) + 1):
        yield from combinations(layout, count)


class Ends:
    """The layouts of a card by what is in them, to look up where a re-layout may end."""

    def __init__(self, layouts: Iterable[Layout]) -> None:
        self.by_profiles: dict[tuple[str, ...], list[frozenset[Placement]]] = {}
        for layout in layouts:
            self.by_profiles.setdefault(_profiles(layout), []).append(frozenset(layout))

    def of(self, profiles: Iterable[str], fixed: Collection[Placement] = ()) -> list[frozenset[Placement]]:
        """Layouts of just these profiles, ``fixed`` among them at their places."""
        return [end for end in self.by_profiles.get(tuple(sorted(profiles)), ()) if end.issuperset(fixed)]


def least_destroyed(running: Layout, busy: Collection[Placement], ends: Iterable[frozenset[Placement]]) -> int | None:
    """The fewest instances that have to go on the way to one of ``ends``, none of them busy; None: there is no way."""
    return min((sum(one not in end for one in running) for end in ends if end.issuperset(busy)), default=None)


def _profiles(layout: Layout) -> tuple[str, ...]:
    return tuple(sorted(Counter(one.profile for one in layout).elements()))
