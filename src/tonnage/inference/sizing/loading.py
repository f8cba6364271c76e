"""How long it takes until a replica answers: the weights from where they lie, then the engine's start."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tonnage.facts import durations, storage

if TYPE_CHECKING:
    from tonnage.facts.instances import InstanceType
    from tonnage.facts.storage import Storage

_BITS = 8
_MEGA = 1_000_000


class Loading(msgspec.Struct, frozen=True):
    """Weights of ``bytes`` from ``storage``: ``bytes_per_s`` after ``limit`` ("disk", "instance", "loader"), and
    ``load_s`` it takes. ``start_s``: until the engine answers, imports and compilation included, without a compile
    cache; ``start_cached_s`` with one. None where the instance has no such storage."""

    storage: str
    label: str
    bytes: int
    bytes_per_s: float | None
    limit: str
    load_s: float | None
    start_s: float | None
    start_cached_s: float | None


def loadings(weights: int, kind: InstanceType | None, gpus: int, replicas_per_node: int = 1) -> list[Loading]:
    """One row a storage for a model of ``weights`` bytes on disk, read by a replica of ``gpus`` GPUs (of one node).
    ``replicas_per_node`` read at once and share what is not memory. Without an instance type only disk and loader
    count."""
    return [_loading(weights, place, kind, gpus, replicas_per_node) for place in storage.all()]


def threshold(start_s: float, period_s: int = 10) -> int:
    """failureThreshold of a startup probe with this period that waits ``start_s``, a third longer for luck."""
    return max(1, -int(-start_s * 4 / 3 // period_s))


def _loading(weights: int, place: Storage, kind: InstanceType | None, gpus: int, sharing: int) -> Loading:
    speeds = {"disk": place.bytes_per_s}
    missing = False
    if kind is not None:
        if place.network == "ebs" and kind.ebs_mbps:
            speeds["instance"] = kind.ebs_mbps * _MEGA / _BITS
        if place.network == "network" and kind.network_mbps:
            speeds["instance"] = kind.network_mbps * _MEGA / _BITS
        missing = place.network == "local" and not kind.local_nvme_gb
    if place.network != "memory":
        speeds = {name: speed / sharing for name, speed in speeds.items()}
    speeds["loader"] = storage.loader_bytes_per_s() * gpus
    if place.network == "memory":
        speeds = {"loader": speeds["loader"]}
    if missing:
        return Loading(place.name, place.label, weights, None, "none", None, None, None)
    limit = min(speeds, key=lambda name: speeds[name])
    seconds = weights / speeds[limit]
    known = durations.get()
    begin = known.container_start_s + seconds
    return Loading(
        place.name,
        place.label,
        weights,
        speeds[limit],
        limit,
        seconds,
        begin + known.engine_start_s,
        begin + known.engine_start_cached_s,
    )
