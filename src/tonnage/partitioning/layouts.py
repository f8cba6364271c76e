"""MIG layouts of one card: which sets of instances exist, which of them leave nothing, and what can be added to one.

A layout is a set of placements (profile, first memory slice) that do not overlap. Two layouts with the same counts are
one kind; most questions are about kinds. Rules and placements: :mod:`tonnage.fleet.geometry`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from tonnage.errors import InputError, Problem, Where
from tonnage.facts import gpus, mig
from tonnage.fleet.compute import divided
from tonnage.fleet.geometry import Geometry, geometry

Kind = tuple[tuple[str, int], ...]
"""(profile, count) by the profile's size: a layout without its places."""


class Placement(NamedTuple):
    """An instance of a profile (``1g.10gb``) from a memory slice on."""

    start: int
    profile: str


Layout = tuple[Placement, ...]
"""Placements by start."""


def card(gpu: str) -> Geometry:
    """The geometry of a GPU by name, alias or product label.

    Raises :class:`~tonnage.errors.InputError` with near names for an unknown GPU or one that has no MIG profiles."""
    found = geometry(gpus.get(gpu).name)
    if found is None:
        known = ", ".join(mig.with_profiles())
        raise InputError(Problem(Where(), f"no MIG profiles of {gpu} are known", f"those of {known} are"))
    return found


def profile_names(on: Geometry, *, plain: bool = True) -> list[str]:
    """The profiles of a card, smallest first; ``plain``: without media extensions and graphics."""
    return [one.name for one in mig.profiles(on.gpu, plain=plain)]


def resource(on: Geometry, profile: str) -> str:
    """The resource of a profile by name, as in ``1g.10gb`` or ``nvidia.com/mig-1g.10gb``, of a compute instance too
    (``4c.7g.80gb``). Raises InputError."""
    return _resources(on.gpu).get(profile) or mig.get(on.gpu, profile).resource


@lru_cache
def _resources(gpu: str) -> dict[str, str]:
    known = (*mig.profiles(gpu, plain=False), *mig.compute_profiles(gpu))
    return {one.name: one.resource for one in known} | {one.resource: one.resource for one in known}


def span(on: Geometry, one: Placement) -> int:
    """The bits that a placement uses. Raises InputError for a profile that the card has not, or a start it cannot."""
    slot = on.named(resource(on, one.profile))
    if one.start not in slot.spans:
        starts = ", ".join(map(str, slot.spans))
        wrong = f"{one.profile} cannot start at memory slice {one.start}"
        raise InputError(Problem(Where(), wrong, f"it starts at one of {starts}"))
    return slot.spans[one.start]


def mask_of(on: Geometry, layout: Iterable[Placement]) -> int:
    """The bits in use. Raises InputError where two placements overlap."""
    return _mask(on.gpu, tuple(layout))


@lru_cache(maxsize=1 << 14)
def _mask(gpu: str, layout: Layout) -> int:
    on = card(gpu)
    mask, inside = 0, dict[tuple[str, int], int]()
    for one in layout:
        bits, name = span(on, one), resource(on, one.profile)
        owner = on.owner(name, one.start)
        whole = on.span(*owner)
        taken = inside.get(owner, mask & bits or mask & whole) if name in on.parts else mask
        if bits & taken:
            raise InputError(Problem(Where(), f"{one.profile} at memory slice {one.start} overlaps another instance"))
        if name in on.parts:
            inside[owner] = inside.get(owner, 0) | bits
        mask |= whole
    return mask


def kind_of(on: Geometry, profiles: Iterable[str]) -> Kind:
    """Profiles counted, in the card's order."""
    counts = Counter(profiles)
    parts = (one.name for one in mig.compute_profiles(on.gpu))
    return tuple((name, counts[name]) for name in (*profile_names(on, plain=False), *parts) if counts[name])


def feasible(on: Geometry, profiles: Sequence[str] | None = None, around: Layout = ()) -> dict[Kind, Layout]:
    """Every kind of layout that exists, each with one layout of it, fewest instances first.

    ``profiles``: made of these alone; the plain ones unless given. ``around``: beside these placements, which every
    layout includes."""
    names = profile_names(on) if profiles is None else list(profiles)
    found: dict[Kind, Layout] = {}
    layer: dict[tuple[Kind, int], Layout] = {(kind_of(on, (p.profile for p in around)), mask_of(on, around)): around}
    while layer:
        for (kind, _), layout in layer.items():
            found.setdefault(kind, layout)
        larger: dict[tuple[Kind, int], Layout] = {}
        for (_, mask), layout in layer.items():
            for name in names:
                wanted = resource(on, name)
                for start in on.starts(mask, wanted):
                    grown = tuple(sorted([*layout, Placement(start, name)]))
                    kind = kind_of(on, (p.profile for p in grown))
                    larger.setdefault((kind, mask | on.span(wanted, start)), grown)
        layer = larger
    return found


def maximal(kinds: Mapping[Kind, Layout]) -> dict[Kind, Layout]:
    """Of these kinds, those that no other contains."""
    counts = {kind: Counter(dict(kind)) for kind in kinds}
    return {
        kind: layout
        for kind, layout in kinds.items()
        if not any(other != kind and counts[kind] <= counts[other] for other in kinds)
    }


def place(on: Geometry, profiles: Iterable[str], around: Layout = ()) -> Layout | None:
    """Places for all these profiles beside ``around``, which the layout includes; None when there are none.

    Of all ways the one that leaves the most placements free; of equals the one found first, large profiles at the
    lowest starts."""
    order = list(on.slots)
    whole, shared = divided(on, (resource(on, name) for name in profiles))
    wanted = sorted([*whole, *(one.resource for one in shared)], key=order.index, reverse=True)
    ways = _ways(on.gpu, mask_of(on, around), tuple(wanted))
    if not ways:
        return None
    best = max(ways, key=on.left)
    made: list[Placement] = []
    for start, name in ways[best]:
        one = next((each for each in shared if each.resource == name), None)
        if one is None:
            made.append(Placement(start, on.slots[name].name))
        else:
            shared.remove(one)
            made += [Placement(start + at, on.named(part).name) for part, at in one.parts]
    return tuple(sorted([*around, *made]))


@lru_cache(maxsize=1 << 16)
def _ways(gpu: str, mask: int, wanted: tuple[str, ...]) -> dict[int, tuple[tuple[int, str], ...]]:
    """Every way to place ``wanted`` (resources, largest first) beside ``mask``: bits in use after it → placements."""
    on = geometry(gpu)
    assert on is not None
    if not wanted:
        return {mask: ()}
    name, rest = wanted[0], wanted[1:]
    found: dict[int, tuple[tuple[int, str], ...]] = {}
    for start in on.starts(mask, name):
        for after, placed in _ways(gpu, mask | on.span(name, start), rest).items():
            found.setdefault(after, ((start, name), *placed))
    return found
