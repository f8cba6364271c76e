"""Places pending pods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tonnage.decisions import Decision
from tonnage.loops import Loop
from tonnage.scheduling import place
from tonnage.scheduling.cache import kept
from tonnage.world import World

NAME = "scheduler"


@dataclass(slots=True)
class Scheduler:
    """Places pending pods whenever a pod or a node changed."""

    settings: place.Settings = place.DEFAULTS
    _cache: place.Cache | None = None

    def decide(self, world: World) -> Sequence[Decision]:
        """A Bind or a Wait for every pending pod of ours."""
        snapshot = world.snapshot()
        if not snapshot.fleet.pending:
            return ()
        self._cache = kept(self._cache, snapshot.fleet)
        return place.decide(snapshot, self.settings, self._cache)

    def loop(self) -> Loop:
        """Woken by every change to a pod or a node; and from time to time where pods may be moved, as they may be once
        they have stood for a while."""
        moves = self.settings.defrag
        return Loop(NAME, self.decide, moves.cooldown_ns if moves else 0, frozenset({"pod", "node"}))
