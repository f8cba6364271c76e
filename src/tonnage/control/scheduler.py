"""Places pending pods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tonnage.control.loops import Loop, waits_of
from tonnage.control.world import World
from tonnage.decisions import Decision
from tonnage.scheduling import place
from tonnage.scheduling.cache import kept
from tonnage.scheduling.gangs.release import PartialGang, Patience, release
from tonnage.scheduling.queue import Queue

NAME = "scheduler"
WAITS = waits_of(NAME)
"""The kind of change that wakes whoever launches nodes."""


@dataclass(slots=True)
class Scheduler:
    """Places pending pods whenever a pod or a node changed.

    ``patience``: how long a gang may be partially bound; None: for ever, where bindings never fail. ``queue``: who of
    the pending pods is looked at; None: all, each time."""

    settings: place.Settings = place.DEFAULTS
    patience: Patience | None = None
    _cache: place.Cache | None = None
    _held: dict[str, PartialGang] = field(default_factory=dict)
    queue: Queue | None = None

    def decide(self, world: World) -> Sequence[Decision]:
        """A Bind or a Wait for every pending pod of ours; then whom to evict."""
        snapshot = world.snapshot()
        fleet = snapshot.fleet
        if not fleet.pending:
            self._held = {}
            return ()
        self._cache = kept(self._cache, fleet)
        decisions = (
            self.queue.decide(snapshot, self._cache)
            if self.queue is not None
            else place.decide(snapshot, self.settings, self._cache)
        )
        if self.patience is None:
            return decisions
        names = self.settings.scheduler_names
        decisions, held = release(snapshot, decisions, self._held, self.patience, names)
        off = {fleet.pod(row).spec.gang for row in fleet.pending if fleet.pod(row).spec.uid in snapshot.backing_off}
        self._held = {key: one for key, one in self._held.items() if key in off} | held
        return decisions

    def loop(self) -> Loop:
        """Woken by every change to a pod or a node; and from time to time where pods may be moved, as they may be once
        they have stood for a while, or where gangs are evicted that have been partially bound for too long."""
        moves, patience = self.settings.defrag, self.patience
        learn = self.queue.learn if self.queue is not None else None
        periods = (*((moves.cooldown_ns,) if moves else ()), *((patience.check_ns,) if patience else ()))
        return Loop(NAME, self.decide, min(periods, default=0), frozenset({"pod", "node"}), learn=learn)
