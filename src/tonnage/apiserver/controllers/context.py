"""What every controller is given: the cache, the writer, the recorder, the clock, and its part of the queue."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Protocol

from tonnage.apiserver.controllers.cache import ObjectCache
from tonnage.apiserver.controllers.meta import Key
from tonnage.apiserver.controllers.recording import ControllerRecorder
from tonnage.apiserver.controllers.writer import Writer
from tonnage.kube.resources import Resource
from tonnage.kube.verbs import JsonObject

Item = tuple[str, Key]
"""A controller's name and the key of what it has to look at."""


class WorkQueue:
    """What is to be looked at, first in, first out, each once; and what is to be looked at later."""

    def __init__(self) -> None:
        self._dirty: dict[Item, None] = {}
        self._due: dict[Item, float] = {}
        self._timers: list[tuple[float, int, Item]] = []
        self._sequence = 0

    def add(self, item: Item) -> None:
        """Look at it as soon as its turn comes."""
        self._dirty[item] = None

    def add_at(self, item: Item, due: float) -> None:
        """Look at it at ``due`` (seconds since the epoch), or earlier if that was asked before."""
        if self._due.get(item, float("inf")) <= due:
            return
        self._due[item] = due
        self._sequence += 1
        heapq.heappush(self._timers, (due, self._sequence, item))

    def pop(self, now: float) -> Item | None:
        """The next one whose turn it is; None when there is nothing to do now."""
        while self._timers and self._timers[0][0] <= now:
            due, _, item = heapq.heappop(self._timers)
            if self._due.get(item) == due:
                del self._due[item]
                self._dirty[item] = None
        if not self._dirty:
            return None
        item = next(iter(self._dirty))
        del self._dirty[item]
        return item

    def next_due(self) -> float | None:
        """When the next timer fires; None when none runs."""
        while self._timers and self._due.get(self._timers[0][2]) != self._timers[0][0]:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def __bool__(self) -> bool:
        return bool(self._dirty)


@dataclass(frozen=True, slots=True)
class Context:
    """Shared by the controllers; used on one thread only."""

    cache: ObjectCache
    writer: Writer
    recorder: ControllerRecorder
    clock: Callable[[], float]
    random: Random
    queue: WorkQueue


class Reconciler(Protocol):
    """One control loop of kube-controller-manager. ``name`` is the component that its events name."""

    name: str

    def changed(self, resource: Resource, old: JsonObject | None, new: JsonObject | None) -> None:
        """An object came (no ``old``), changed, or went (no ``new``): note what has to be looked at."""

    def sync(self, key: Key) -> None:
        """Bring what this key stands for one step nearer to what was asked for.

        Raises StaleObject to be called again at once, ClientError to be called again later.
        """
