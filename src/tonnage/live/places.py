"""Which of its node's GPUs a pod is on: as an annotation of the pod says, and as the fleet has it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tonnage.fleet.holding import Place
from tonnage.fleet.state import Fleet
from tonnage.live.annotations import GPUS


def places(annotations: Mapping[str, str]) -> tuple[Place, ...]:
    """Where on its node's GPUs a pod stands, as its annotations say, in order; empty: they do not."""
    found: list[Place] = []
    for part in annotations.get(GPUS, "").split(","):
        device, _, start = part.partition(":")
        if not device.isdecimal() or (start and not start.isdecimal()):
            return ()
        found.append((int(device), int(start) if start else None))
    return in_order(found)


def written(found: Iterable[Place]) -> str:
    """As the annotation has it."""
    return ",".join(str(device) if start is None else f"{device}:{start}" for device, start in found)


def places_of(fleet: Fleet, row: int) -> tuple[Place, ...]:
    """The devices that a bound pod is on in the fleet, of a MIG instance with its first memory slice."""
    pod, cards = fleet.pod(row), fleet.cards
    parts = {piece.device for piece in pod.pieces}
    found: list[Place] = [(device, None) for device in pod.devices if device not in parts]
    for piece in pod.pieces:
        spans = cards.cut_of(pod.node, piece.device).geometry.named(piece.what).spans if piece.mask else {}
        found.append((piece.device, next((start for start, span in spans.items() if span == piece.mask), None)))
    return in_order(found)


def in_order(found: Iterable[Place]) -> tuple[Place, ...]:
    """By device and slice."""
    return tuple(sorted(found, key=lambda place: (place[0], place[1] or 0)))
