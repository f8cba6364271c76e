"""Compute instances: what a GPU instance is divided into, with the memory in common (``4c.7g.80gb`` beside
``3c.7g.80gb``), and how many GPU instances a set of them needs.

mig-parted writes them among the instances of a card; one that has room in a GPU instance of its profile goes there,
else a new one is made (NVIDIA/mig-parted pkg/mig/config). Where they stand: :mod:`tonnage.facts.mig`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tonnage.fleet.geometry import Geometry


class Shared(NamedTuple):
    """A GPU instance by its resource, and its compute instances: (resource, compute slice that it begins at)."""

    resource: str
    parts: tuple[tuple[str, int], ...]


def divided(on: Geometry, resources: Iterable[str]) -> tuple[list[str], list[Shared]]:
    """(the GPU instances among these resources, those that the compute instances among them need)."""
    whole: list[str] = []
    apart: dict[str, list[str]] = {}
    for name in resources:
        if name in on.parts:
            apart.setdefault(on.parts[name].parent, []).append(name)
        else:
            whole.append(name)
    return whole, [one for parent, names in apart.items() for one in _packed(on, parent, names)]


def _packed(on: Geometry, parent: str, names: Sequence[str]) -> list[Shared]:
    """The largest first, each where most places are left, in the first GPU instance that has room."""
    made: list[tuple[int, list[tuple[str, int]]]] = []
    for name in sorted(names, key=lambda name: (-on.parts[name].slices, name)):
        for number, (mask, parts) in enumerate(made):
            start = _start(on, parent, name, mask)
            if start is not None:
                made[number] = (mask | _bits(on, name) << start, [*parts, (name, start)])
                break
        else:
            first = _start(on, parent, name, 0) or 0
            made.append((_bits(on, name) << first, [(name, first)]))
    return [Shared(parent, tuple(sorted(parts, key=lambda part: part[1]))) for _, parts in made]


def _start(on: Geometry, parent: str, name: str, mask: int) -> int | None:
    free = [start for start in on.parts[name].within if not _bits(on, name) << start & mask]
    return max(free, key=lambda at: (_left(on, parent, mask | _bits(on, name) << at), -at), default=None)


def _left(on: Geometry, parent: str, mask: int) -> int:
    of = (name for name, part in on.parts.items() if part.parent == parent)
    return sum(not _bits(on, name) << start & mask for name in of for start in on.parts[name].within)


def _bits(on: Geometry, name: str) -> int:
    return (1 << on.parts[name].slices) - 1


def beside(on: Geometry, resource: str, taken: Iterable[tuple[str, int]]) -> int | None:
    """Where a compute instance of this resource has room in a GPU instance that compute instances ``taken`` (resource,
    start) are in; None: nowhere."""
    masks: dict[int, int] = {}
    for name, place in taken:
        owner, at = on.owner(name, place)
        if owner == on.parts[resource].parent:
            masks[at] = masks.get(at, 0) | _bits(on, name) << place - at
    for at, mask in sorted(masks.items()):
        start = _start(on, on.parts[resource].parent, resource, mask)
        if start is not None:
            return at + start
    return None
