"""An oracle that knows the arrivals, searched for.

It follows a schedule. The first ones are the arrivals themselves, smoothed, over what a replica sustains times a load
factor, ordered one cold start ahead: the highest factor that attains the share, by bisection, for each of some widths.
Then, with the cheapest of these, replicas are taken away in one stretch of time after another for as long as the share
is attained.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.scaling_runs import Outcome, play
from tonnage.control.loops import Loop
from tonnage.control.world import World
from tonnage.decisions import Decision, Reason, Ref, Scale
from tonnage.scaling.slo import first_to_go
from tonnage.simulation.run import Scaler
from tonnage.units import NS_PER_S

STEP_S = 30
LEAD_S = 780
"""A cold start with a new node, when the pod is late rather than early."""

Schedule = NDArray[np.int64]
"""Replicas asked for in each step of ``STEP_S``."""


@dataclass
class Search:
    """``budget``: how many runs it may take. ``best``: the cheapest schedule so far that attains the share."""

    folder: Path
    replicas: int
    arrivals_s: NDArray[np.float64]
    minutes: int
    capacity: float
    budget: int
    runs: int = 0
    best: tuple[Outcome, Schedule] | None = None

    def find(self) -> Outcome | None:
        """The cheapest that was found; None where no schedule tried attains the share."""
        for width in (4, 16):
            self._bisect(width)
        stretch = self.minutes * 60 // STEP_S // 8
        while self.best is not None and stretch >= 4 and self.runs < self.budget:
            self._take_away(stretch)
            stretch //= 2
        return self.best[0] if self.best is not None else None

    def _bisect(self, width: int) -> None:
        low, high = 0.4, 2.0
        for _ in range(4):
            factor = (low + high) / 2
            if self._try(self._following(width, factor)):
                low = factor
            else:
                high = factor

    def _following(self, width: int, factor: float) -> Schedule:
        steps = self.minutes * 60 // STEP_S
        counts, _ = np.histogram(self.arrivals_s, np.arange(steps + 1) * STEP_S)
        weights = np.ones(width)
        rate = np.convolve(counts, weights, "same") / np.convolve(np.ones(steps), weights, "same") / STEP_S
        need = np.maximum(1, np.ceil(rate / (self.capacity * factor) - 1e-9)).astype(np.int64)
        ahead = ceil(LEAD_S / STEP_S)
        return np.array([need[step : step + ahead + 1].max() for step in range(steps)])

    def _take_away(self, stretch: int) -> None:
        """One replica fewer in each stretch, the dearest first, for as long as that holds."""
        assert self.best is not None
        steps = len(self.best[1])
        for begin in sorted(range(0, steps, stretch), key=lambda at: -int(self._schedule[at : at + stretch].max())):
            while self.runs < self.budget:
                fewer = self._schedule.copy()
                fewer[begin : begin + stretch] = np.maximum(1, fewer[begin : begin + stretch] - 1)
                if np.array_equal(fewer, self._schedule) or not self._try(fewer):
                    break

    @property
    def _schedule(self) -> Schedule:
        assert self.best is not None
        return self.best[1]

    def _try(self, schedule: Schedule) -> bool:
        """Whether the schedule attains the share; it is the best when it is also the cheapest."""
        self.runs += 1
        got = play(self.folder, "slo", self.replicas, scaler=following(schedule))
        if got.holds and (self.best is None or got.hours < self.best[0].hours):
            self.best = (got, schedule)
        return got.holds


def following(schedule: Schedule) -> Scaler:
    """The loop that asks for the replicas of a schedule."""

    def loops(_scenario: Any, _configuration: Any, cluster: Any, _sources: Any) -> list[Loop]:
        (key,) = cluster.workloads

        def decide(world: World) -> list[Decision]:
            snapshot = world.snapshot()
            workload = snapshot.workloads[key]
            step = min(snapshot.now_ns // (STEP_S * NS_PER_S), len(schedule) - 1)
            wanted = int(schedule[step])
            if wanted == workload.replicas:
                return []
            remove = first_to_go(snapshot, workload, max(0, workload.replicas - wanted))
            ref = Ref(workload.kind, workload.name, workload.namespace, workload.uid)
            return [Scale(ref, workload.replicas, wanted, Reason("the arrivals are known"), remove)]

        return [Loop("oracle", decide, STEP_S * NS_PER_S)]

    return loops
