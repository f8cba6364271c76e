"""GPUs that are given from one workload to another at set times, and given back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from tonnage.control.holders import holder
from tonnage.control.loops import Loop
from tonnage.control.replicas import MovedBounds
from tonnage.control.world import World
from tonnage.decisions import Reason, Scale
from tonnage.fleet.snapshot import Snapshot
from tonnage.objects.base import KubeObject
from tonnage.scaling.reallocation import (
    SPEC_REPLICAS,
    Assignment,
    CannotGive,
    GpuHolder,
    Reallocation,
    reallocate,
)
from tonnage.units import NS_PER_S

PERIOD_NS = NS_PER_S
NAME = "reallocation"


@dataclass(frozen=True, slots=True)
class Move:
    """``gpus`` GPUs of ``source`` for ``target`` from ``at_ns`` on, for good or until ``until_ns``: times after the
    first tick. Workloads are named as :func:`tonnage.control.holders.holder` takes them."""

    at_ns: int
    source: str
    target: str
    gpus: int
    until_ns: int | None = None


@dataclass(slots=True)
class _Begun:
    """What is to be undone: the bounds as they were before, None where they were those of the objects."""

    done: Reallocation
    before: dict[str, tuple[int, int] | None]


@dataclass(slots=True)
class Reallocator:
    """``objects``: workloads and what scales them. ``moved``: where autoscalers see the bounds that are theirs now."""

    objects: Sequence[KubeObject]
    moves: Sequence[Move]
    moved: MovedBounds
    _first_ns: int | None = None
    _begun: dict[Move, _Begun | None] = field(default_factory=dict)
    _over: set[Move] = field(default_factory=set)

    def decide(self, world: World) -> Sequence[Scale]:
        """The Scales of the moves that begin or end now."""
        now_ns = world.now()
        if self._first_ns is None:
            self._first_ns = now_ns
        now_ns -= self._first_ns
        decisions: list[Scale] = []
        for move in self.moves:
            if move not in self._begun and now_ns >= move.at_ns:
                decisions += self._begin(move, world)
            begun = self._begun.get(move)
            if begun and move not in self._over and move.until_ns is not None and now_ns >= move.until_ns:
                self._over.add(move)
                decisions += self._end(begun, world.snapshot())
        return decisions

    def loop(self) -> Loop:
        """Once a second."""
        return Loop(NAME, self.decide, PERIOD_NS)

    def _begin(self, move: Move, world: World) -> list[Scale]:
        self._begun[move] = None
        snapshot = world.snapshot()
        source, target = (self._holder(name, snapshot) for name in (move.source, move.target))
        held = next(
            (bound.object for one in (source, target) for bound in one.bounded if bound.paused is not None), None
        )
        if held is not None:
            world.note(source.ref, "ReallocationRefused", f"{held} is paused: its replicas are held as they are")
            return []
        try:
            done = reallocate(source, target, move.gpus)
        except CannotGive as refused:
            world.note(source.ref, "ReallocationRefused", f"{refused}: {refused.hint}")
            return []
        both = (source, target)
        self._begun[move] = _Begun(done, {one.ref.workload: self.moved.get(one.ref.workload) for one in both})
        for one in both:
            if one.bounded:
                self.moved[one.ref.workload] = _bounds(one, done.steps)
        reason = Reason(
            "GPUs are reallocated", (("gpus", done.freed), ("from", str(source.ref)), ("to", str(target.ref)))
        )
        return list(_scales(done.steps, reason, snapshot))

    def _end(self, begun: _Begun, snapshot: Snapshot) -> list[Scale]:
        for workload, bounds in begun.before.items():
            if bounds is None:
                self.moved.pop(workload, None)
            else:
                self.moved[workload] = bounds
        reason = Reason("GPUs are given back", (("gpus", begun.done.freed),))
        return list(_scales(begun.done.undo, reason, snapshot))

    def _holder(self, name: str, snapshot: Snapshot) -> GpuHolder:
        """The workload as it is now."""
        found = holder(self.objects, name)
        view = snapshot.workloads.get(found.ref.workload)
        replicas = found.replicas if view is None else view.replicas
        bounds = self.moved.get(found.ref.workload)
        if bounds is not None:
            found = replace(
                found, bounded=tuple(replace(one, minimum=bounds[0], maximum=bounds[1]) for one in found.bounded)
            )
        return replace(found, replicas=replicas)


def _bounds(one: GpuHolder, steps: Sequence[Assignment]) -> tuple[int, int]:
    """The workload's bounds after the steps."""
    (first, *_) = one.bounded
    found = [first.minimum, first.maximum]
    for step in steps:
        if step.object == first.object and step.path in first.paths and step.after is not None:
            found[first.paths.index(step.path)] = int(step.after)
    return found[0], found[1]


def _scales(steps: Sequence[Assignment], reason: Reason, snapshot: Snapshot) -> Iterator[Scale]:
    for step in steps:
        view = snapshot.workloads.get(step.object.workload)
        if step.path == SPEC_REPLICAS and step.after is not None and view is not None:
            yield Scale(step.object, view.replicas, int(step.after), reason)
