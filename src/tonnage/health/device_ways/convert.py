"""Manifests that ask a device plugin, or by APIs that are gone, as manifests with ResourceClaims of today."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from tonnage.dra import nvidia
from tonnage.errors import Where
from tonnage.health.device_ways.advice import asked_classes
from tonnage.health.device_ways.dead import Revival
from tonnage.health.device_ways.pods import Conversion
from tonnage.health.device_ways.written import Note, Written, without_owned
from tonnage.objects.dump import plain


class Converted(Struct, frozen=True):
    """``documents``: what is to be applied, in order. ``notes``: what was done, and what is lost."""

    documents: tuple[dict[str, Any], ...]
    notes: tuple[Note, ...]

    @property
    def lost(self) -> tuple[Note, ...]:
        """What the documents say no more, or was not converted."""
        return tuple(one for one in self.notes if one.lost)


def convert(documents: Sequence[Written]) -> Converted:
    """The documents of one input with ResourceClaims. Nothing is left out that no note names; documents without
    devices are as they were."""
    kept, left_out = without_owned(documents)
    revival = Revival(kept)
    pods = Conversion(revival.run())
    made = pods.run()
    notes = [*left_out, *revival.notes, *pods.notes]
    classes = _missing_classes(made)
    for one in classes:
        text = "is added as NVIDIA's driver brings it: leave it out where the driver is installed"
        notes.append(Note(f"DeviceClass {one['metadata']['name']}", Where(), text))
    return Converted((*classes, *(one.content for one in made)), tuple(notes))


def _missing_classes(documents: Sequence[Written]) -> list[dict[str, Any]]:
    """The classes of NVIDIA's driver that claims ask for and that are not among the documents."""
    there = {one.key[1] for one in documents if one.kind == "DeviceClass"}
    asked = {name for names in asked_classes(documents).values() for name in names} - there
    return [plain(one) for one in nvidia.device_classes() if one.name in asked]
