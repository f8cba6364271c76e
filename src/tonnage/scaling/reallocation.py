"""GPUs of one workload given to another: what is to be set, in which order, and how it is undone.

The donor gives whole replicas, as few as free the GPUs asked for, and keeps its minimum; the other gets as many
replicas as these GPUs hold. Where an autoscaler sets the replicas of either, its bounds move first, or it would undo
the change: the donor's maximum down to what is left, the other's minimum and maximum up to what it gets. The reverse
brings the bounds back; replicas that an autoscaler sets are then its own affair again.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from tonnage.decisions import Ref
from tonnage.scaling import manifests
from tonnage.scaling.words import replicas_text

Value: TypeAlias = int | str | None
Bounds: TypeAlias = tuple[int, int]
"""(least, most) replicas."""

SPEC_REPLICAS = ("spec", "replicas")
BOUNDS = {
    "HorizontalPodAutoscaler": (("spec", "minReplicas"), ("spec", "maxReplicas")),
    "ScaledObject": (("spec", "minReplicaCount"), ("spec", "maxReplicaCount")),
}
"""Where the bounds stand, by kind."""


class Assignment(msgspec.Struct, frozen=True):
    """Set a field of an object, named by its ``path``, from ``before`` to ``after``. ``None``: it is not written."""

    object: Ref
    path: tuple[str, ...]
    before: Value
    after: Value

    @property
    def undone(self) -> Assignment:
        """Its reverse."""
        return Assignment(self.object, self.path, self.after, self.before)

    @property
    def pointer(self) -> str:
        """The path as a JSON pointer (RFC 6901)."""
        return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in self.path)


class Bounded(msgspec.Struct, frozen=True):
    """What bounds the replicas: an HPA, a ScaledObject, or the annotations of a policy on the workload itself.

    ``written``: the bounds as they are written, None where a default counts; ``paused``: the replicas at which an
    annotation holds a ScaledObject, None: it is not held at any number."""

    object: Ref
    paths: tuple[tuple[str, ...], tuple[str, ...]]
    minimum: int
    maximum: int
    written: tuple[Value, Value]
    texts: bool = False
    paused: int | None = None

    def set(self, at: int, value: int) -> Assignment:
        """Set the minimum (0) or the maximum (1)."""
        return Assignment(self.object, self.paths[at], self.written[at], str(value) if self.texts else value)


class GpuHolder(msgspec.Struct, frozen=True):
    """A workload: replicas as it asks for them (``written``: None where it asks for none), whole GPUs of each and the
    resource that counts them, and who bounds the replicas."""

    ref: Ref
    replicas: int
    gpus: int
    resource: str = ""
    bounded: tuple[Bounded, ...] = ()
    written: Value = None


class Reallocation(msgspec.Struct, frozen=True):
    """``given``, ``gained``: replicas; ``freed``, ``used``: GPUs. ``steps`` in order: what frees comes first. ``undo``:
    what brings everything back, in order."""

    source: Ref
    target: Ref
    given: int
    gained: int
    freed: int
    used: int
    steps: tuple[Assignment, ...]
    undo: tuple[Assignment, ...]


class CannotGive(ValueError):
    """The workload has not so many GPUs to give, or the other cannot use them. ``hint``: what to do."""

    def __init__(self, what: str, hint: str) -> None:
        self.hint = hint
        super().__init__(what)


def reallocate(source: GpuHolder, target: GpuHolder, gpus: int) -> Reallocation:
    """Free ``gpus`` GPUs of the source for the target. Raises CannotGive."""
    if source.ref == target.ref:
        raise CannotGive(f"{source.ref} is both", "name two workloads")
    for one in (source, target):
        if one.gpus <= 0:
            raise CannotGive(f"{one.ref} asks for no whole GPUs", "name a workload whose pods do")
    if source.resource != target.resource:
        what = f"{source.ref} holds {source.resource}, and {target.ref} asks for {target.resource}"
        raise CannotGive(what, "name workloads whose pods ask for the same resource")
    given = -(-gpus // source.gpus)
    freed = given * source.gpus
    gained = freed // target.gpus
    if gained == 0:
        hint = f"ask for at least {target.gpus} GPUs"
        raise CannotGive(f"a replica of {target.ref} takes {target.gpus} GPUs, and {freed} would be freed", hint)
    least = max((one.minimum for one in source.bounded), default=0)
    most = max(0, source.replicas - least) * source.gpus
    if given > max(0, source.replicas - least):
        keeps = f" and keeps {least}" if least else ""
        hint = f"ask for at most {most} GPUs" if most else "lower its minimum first, or name another workload"
        raise CannotGive(f"{source.ref} has {replicas_text(source.replicas)}{keeps}: {gpus} GPUs cannot be freed", hint)
    _stays_without(source, source.replicas - given)
    left, then = source.replicas - given, target.replicas + gained
    steps = [step for one in source.bounded for step in _lowered(one, left)]
    steps.append(Assignment(source.ref, SPEC_REPLICAS, source.written, left))
    steps += [step for one in target.bounded for step in _raised(one, then)]
    steps.append(Assignment(target.ref, SPEC_REPLICAS, target.written, then))
    scaled = {one.ref for one in (source, target) if one.bounded}
    undo = [one.undone for one in reversed(steps) if not (one.path == SPEC_REPLICAS and one.object in scaled)]
    return Reallocation(source.ref, target.ref, given, gained, freed, gained * target.gpus, tuple(steps), tuple(undo))


def _stays_without(source: GpuHolder, left: int) -> None:
    """A maximum is at least 1, so no bound keeps an autoscaler that may start from zero from ordering a pod again."""
    free = next((one.object for one in source.bounded if one.paused is None), None)
    if left or free is None:
        return
    hint = f"ask for at most {(source.replicas - 1) * source.gpus} GPUs, or " if source.replicas > 1 else ""
    if free.kind == "ScaledObject":
        hint += f"hold it at zero: kubectl annotate scaledobject {free.name} -n {free.namespace} "
        hint += f"{manifests.PAUSED_REPLICAS}=0"
    else:
        hint += "take its autoscaler away first"
    raise CannotGive(f"{source.ref} would have no replica left, and {free} would order one again", hint)


def lowered(bounds: Bounds, left: int) -> Bounds:
    """The bounds of a donor that is left with ``left`` replicas."""
    return bounds[0], min(bounds[1], max(left, 1))


def raised(bounds: Bounds, then: int) -> Bounds:
    """The bounds of who then has ``then`` replicas."""
    return max(bounds[0], then), max(bounds[1], then)


def _lowered(one: Bounded, left: int) -> list[Assignment]:
    """So that what is given is not ordered again."""
    if one.paused is not None:
        return [_held(one, left)]
    _, most = lowered((one.minimum, one.maximum), left)
    return [one.set(1, most)] if most < one.maximum else []


def _raised(one: Bounded, then: int) -> list[Assignment]:
    """So that what is gained stays: the maximum first, or the minimum would be above it for a while."""
    if one.paused is not None:
        return [_held(one, then)]
    least, most = raised((one.minimum, one.maximum), then)
    steps = [one.set(1, most)] if most > one.maximum else []
    return [*steps, one.set(0, least)] if least > one.minimum else steps


def _held(one: Bounded, replicas: int) -> Assignment:
    path = ("metadata", "annotations", manifests.PAUSED_REPLICAS)
    return Assignment(one.object, path, str(one.paused), str(replicas))
