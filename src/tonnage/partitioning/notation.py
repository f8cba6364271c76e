"""Layouts as people type them: ``h100:3g.40gb@4,1g.10gb@0*``, ``2x1g.10gb,1g.20gb``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tonnage.errors import InputError
from tonnage.fleet.geometry import Geometry
from tonnage.partitioning.layouts import Layout, Placement, card, mask_of, place, resource

HINT = "a layout is like 3g.40gb@4,1g.10gb@0* (start at a memory slice, * for in use) or 2x1g.10gb,3g.40gb"
_ITEM = re.compile(r"(?:(?P<count>\d+)x)?(?P<profile>[^@*]+)(?:@(?P<start>\d+))?(?P<busy>\*)?")


@dataclass(frozen=True, slots=True)
class Typed:
    """``layout``: everything placed. ``names``: the profiles in order. ``placed``: every place was typed."""

    on: Geometry
    layout: Layout
    busy: Layout
    names: tuple[str, ...]
    placed: bool


def split_gpu(text: str, gpu: str) -> tuple[str, str]:
    """(GPU, rest) of ``GPU:rest``, else of ``gpu`` and ``text``. Raises InputError when neither names a GPU."""
    named, colon, rest = text.partition(":")
    if colon:
        return named, rest
    if not gpu:
        raise InputError.at("which GPU?", field="--gpu", hint="give --gpu h100, or write h100: before the layout")
    return gpu, text


def layout(text: str, gpu: str = "", field: str = "LAYOUT") -> Typed:
    """Read a layout; profiles without a place get one that leaves the most room. ``none`` and an empty text are empty.

    Raises InputError for what is not a layout, or one that cannot exist."""
    name, body = split_gpu(text, gpu)
    on = card(name)
    fixed: list[Placement] = []
    busy: list[Placement] = []
    loose: list[str] = []
    items = [] if body.strip() in ("", "none") else [part.strip() for part in body.split(",")]
    for item in items:
        match = _ITEM.fullmatch(item)
        if match is None:
            raise InputError.at(f"{item!r} is no instance", field=field, hint=HINT)
        profile = on.slots[resource(on, match["profile"])].name
        count = int(match["count"] or 1)
        if not 0 < count <= 8:
            raise InputError.at(f"{item!r}: a count is from 1 to 8", field=field, hint=HINT)
        if match["start"] is None:
            if match["busy"]:
                raise InputError.at(f"{item!r}: an instance in use needs its place", field=field, hint=HINT)
            loose += [profile] * count
        elif count > 1:
            raise InputError.at(f"{item!r}: a place holds one instance", field=field, hint=HINT)
        else:
            fixed.append(Placement(int(match["start"]), profile))
            if match["busy"]:
                busy.append(fixed[-1])
    mask_of(on, tuple(sorted(fixed)))
    whole = place(on, loose, tuple(sorted(fixed)))
    if whole is None:
        hint = f"what it can hold: tonnage mig layouts {on.gpu}"
        raise InputError.at(f"a {on.gpu} cannot hold {body}: {_why(on, fixed, loose)}", field=field, hint=hint)
    names = (*(one.profile for one in fixed), *loose)
    return Typed(on, whole, tuple(sorted(busy)), names, not loose)


def _why(on: Geometry, fixed: list[Placement], loose: list[str]) -> str:
    """Which profile was the last that could not be placed, and who is in its way."""
    there: Layout = tuple(sorted(fixed))
    for count, profile in enumerate(loose, 1):
        whole = place(on, loose[:count], there)
        if whole is None:
            rest = place(on, loose[: count - 1], there) or there
            return f"beside {text(rest)} there is no place for {profile}"
    raise AssertionError("the layout can be placed")


def text(layout: Layout, busy: Layout = ()) -> str:
    """A layout as it can be typed again."""
    return ",".join(f"{one.profile}@{one.start}{'*' if one in busy else ''}" for one in layout) or "none"
