"""GPUs that are given from one workload to another at set times, and given back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from tonnage.control.holders import holder
from tonnage.control.loops import Loop
from tonnage.control.replicas import MovedBounds
from tonnage.control.world import World
from tonnage.decisions import Reason, Ref, Scale
from tonnage.fleet.snapshot import Snapshot
from tonnage.objects.base import KubeObject
from tonnage.scaling.reallocation import Bounds, CannotGive, GpuHolder, Reallocation, lowered, raised, reallocate
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
    """A move that is on. ``before``: the bounds, as they were, of those of its workloads that have any; ``then``: the
    replicas that it has made of its workloads' own."""

    done: Reallocation
    until_ns: int | None
    before: dict[str, Bounds]
    then: dict[str, int]

    def after(self, workload: str) -> Bounds:
        """The workload's bounds once it has begun."""
        moved = lowered if workload == self.done.source.workload else raised
        return moved(self.before[workload], self.then[workload])

    def gives_back(self, workload: str) -> int:
        """By how many replicas the workload has more when it ends."""
        return self.done.given if workload == self.done.source.workload else -self.done.gained


@dataclass(slots=True)
class Reallocator:
    """``objects``: workloads and what scales them. ``moved``: where autoscalers see the bounds that are theirs now."""

    objects: Sequence[KubeObject]
    moves: Sequence[Move]
    moved: MovedBounds
    _first_ns: int | None = None
    _next: int = 0
    """How many of the moves have had their time, in its order."""
    _on: list[_Begun] = field(default_factory=list)

    def decide(self, world: World) -> Sequence[Scale]:
        """The Scales of the moves that begin or end now: one for each workload, whatever moves it has part in."""
        now_ns = world.now()
        if self._first_ns is None:
            self._first_ns = now_ns
        now_ns -= self._first_ns
        over = [one for one in self._on if one.until_ns is not None and now_ns >= one.until_ns]
        due = sorted(self.moves, key=lambda move: move.at_ns)[self._next :]
        due = [move for move in due if now_ns >= move.at_ns]
        if not over and not due:
            return ()
        orders = _Orders(world.snapshot())
        for begun in over:  # what is given back can be given to others
            self._end(begun, orders)
        for move in due:
            self._begin(move, world, orders)
        self._next += len(due)
        return orders.scales()

    def loop(self) -> Loop:
        """Once a second."""
        return Loop(NAME, self.decide, PERIOD_NS)

    def _begin(self, move: Move, world: World, orders: _Orders) -> None:
        both = source, target = self._holder(move.source, orders), self._holder(move.target, orders)
        held = next((bound.object for one in both for bound in one.bounded if bound.paused is not None), None)
        if held is not None:
            world.note(source.ref, "ReallocationRefused", f"{held} is paused: its replicas are held as they are")
            return
        try:
            done = reallocate(source, target, move.gpus)
        except CannotGive as refused:
            world.note(source.ref, "ReallocationRefused", f"{refused}: {refused.hint}")
            return
        before = {one.ref.workload: (one.bounded[0].minimum, one.bounded[0].maximum) for one in both if one.bounded}
        then = {
            source.ref.workload: source.replicas - done.given,
            target.ref.workload: target.replicas + done.gained,
        }
        begun = _Begun(done, move.until_ns, before, then)
        self._on.append(begun)
        self.moved |= {workload: begun.after(workload) for workload in before}
        reason = Reason(
            "GPUs are reallocated", (("gpus", done.freed), ("from", str(source.ref)), ("to", str(target.ref)))
        )
        for one in both:
            orders.put(one.ref, then[one.ref.workload], reason)

    def _end(self, begun: _Begun, orders: _Orders) -> None:
        """Bounds become those that the other moves alone have made; replicas that no autoscaler sets come back."""
        later = self._on[self._on.index(begun) + 1 :]
        self._on.remove(begun)
        for workload, bounds in begun.before.items():
            for one in later:
                if workload in one.before:
                    one.before[workload] = bounds
                    one.then[workload] += begun.gives_back(workload)
                    bounds = one.after(workload)
            if any(workload in one.before for one in self._on):
                self.moved[workload] = bounds
            else:
                self.moved.pop(workload)
        reason = Reason("GPUs are given back", (("gpus", begun.done.freed),))
        for ref in (begun.done.target, begun.done.source):
            now = orders.replicas(ref.workload)
            if ref.workload not in begun.before and now is not None:
                orders.put(ref, max(0, now + begun.gives_back(ref.workload)), reason)

    def _holder(self, name: str, orders: _Orders) -> GpuHolder:
        """The workload as it is now."""
        found = holder(self.objects, name)
        replicas = orders.replicas(found.ref.workload)
        bounds = self.moved.get(found.ref.workload)
        if bounds is not None:
            found = replace(
                found, bounded=tuple(replace(one, minimum=bounds[0], maximum=bounds[1]) for one in found.bounded)
            )
        return found if replicas is None else replace(found, replicas=replicas)


class _Orders:
    """What workloads are to have after a tick."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._put: dict[Ref, tuple[int, Reason]] = {}
        self._replicas = {key: view.replicas for key, view in snapshot.workloads.items()}

    def replicas(self, workload: str) -> int | None:
        """Of a workload; None where there is none any more."""
        return self._replicas.get(workload)

    def put(self, ref: Ref, replicas: int, reason: Reason) -> None:
        """Order replicas."""
        self._replicas[ref.workload] = replicas
        self._put[ref] = replicas, reason

    def scales(self) -> list[Scale]:
        """What is to change; what frees GPUs comes first."""
        views = self._snapshot.workloads
        found = [
            Scale(ref, views[ref.workload].replicas, replicas, reason)
            for ref, (replicas, reason) in self._put.items()
            if ref.workload in views and replicas != views[ref.workload].replicas
        ]
        return sorted(found, key=lambda one: one.replicas > one.current)
