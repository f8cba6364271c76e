"""Layouts as people type them: ``h100:3g.40gb@4,1g.10gb@0*``, ``2x1g.10gb,1g.20gb``."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from msgspec import Struct

from tonnage.errors import InputError, Problem, Where
from tonnage.fleet.geometry import Geometry
from tonnage.partitioning.layouts import Layout, Placement, card, mask_of, place, resource
from tonnage.partitioning.refusals import why_not

T = TypeVar("T")

HINT = "a layout is like 3g.40gb@4,1g.10gb@0* (start at a memory slice, * for in use) or 2x1g.10gb,3g.40gb"
_ITEM = re.compile(r"(?:(?P<count>-?\d{1,9})x)?(?P<profile>[^@*]+)(?:@(?P<start>\d{1,9}))?(?P<busy>\*)?")


class Impossible(InputError):
    """A layout that cannot exist. ``map``: the largest part of it that can, drawn."""

    def __init__(self, problem: Problem, drawn: tuple[str, ...]) -> None:
        super().__init__(problem)
        self.map = drawn


class Typed(Struct, frozen=True):
    """``layout``: everything placed. ``wanted``: as typed: a placement where a place is, else the profile alone."""

    on: Geometry
    layout: Layout
    busy: Layout
    wanted: tuple[Placement | str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The profiles, each as often as it is wanted."""
        return tuple(one if isinstance(one, str) else one.profile for one in self.wanted)


def _split_gpu(text: str, gpu: str, field: str = "LAYOUT") -> tuple[str, str]:
    """(GPU, rest) of ``GPU:rest``, else of ``gpu`` and ``text``.

    Raises InputError when neither names a GPU, an unknown one is named, or two."""
    named, colon, rest = text.partition(":")
    if not (named if colon else gpu):
        raise InputError.at("which GPU?", field="--gpu", hint="give --gpu h100, or write h100: before the layout")
    on = _at(field if colon else "--gpu", card, named if colon else gpu).gpu
    if colon and gpu and _at("--gpu", card, gpu).gpu != on:
        raise InputError.at(f"{text!r} is not for {gpu}", field=field, hint="name one GPU")
    return on, rest if colon else text


def layout(text: str, gpu: str = "", field: str = "LAYOUT") -> Typed:
    """Read a layout; profiles without a place get one that leaves the most room. ``none`` and an empty text are empty.

    Raises InputError, at ``field``, for what is not a layout; :class:`Impossible` for one that cannot exist."""
    name, body = _split_gpu(text, gpu, field)
    return _at(field, _typed, card(name), body)


def _at(field: str, read: Callable[..., T], *given: Any) -> T:
    """What ``read`` makes of it; its errors that name no place name ``field``."""
    try:
        return read(*given)
    except Impossible as error:
        raise Impossible(replace(error.problems[0], where=Where(field=field)), error.map) from None
    except InputError as error:
        raise InputError(*(replace(one, where=Where(field=field)) for one in error.problems)) from None


def _typed(on: Geometry, body: str) -> Typed:
    fixed: list[Placement] = []
    busy: list[Placement] = []
    loose: list[str] = []
    items = [] if body.strip() in ("", "none") else [part.strip() for part in body.split(",")]
    for item in items:
        match = _ITEM.fullmatch(item)
        if match is None:
            raise InputError.at(f"{item!r} is not an instance", hint=HINT)
        count = int(match["count"] or 1)
        if not 0 < count <= 8:
            raise InputError.at(f"{item!r}: a count is from 1 to 8", hint=HINT)
        profile = on.named(resource(on, match["profile"])).name
        if match["start"] is None:
            if match["busy"]:
                raise InputError.at(f"{item!r}: an instance in use needs its place", hint=HINT)
            loose += [profile] * count
        elif count > 1:
            raise InputError.at(f"{item!r}: a place holds one instance", hint=HINT)
        else:
            fixed.append(Placement(int(match["start"]), profile))
            if match["busy"]:
                busy.append(fixed[-1])
    there = tuple(sorted(fixed))
    mask_of(on, there)
    whole = place(on, loose, there)
    if whole is None:
        why, drawn = why_not(on, loose, there)
        hint = f"what it can hold: tonnage mig layouts {on.gpu}"
        raise Impossible(Problem(Where(), f"{on.gpu} cannot hold {body}: {why}", hint), drawn)
    return Typed(on, whole, tuple(sorted(busy)), (*fixed, *loose))


def text(layout: Layout, busy: Layout = ()) -> str:
    """A layout as it can be typed again."""
    return ",".join(f"{one.profile}@{one.start}{'*' if one in busy else ''}" for one in layout) or "none"
