"""Counts of one controller's pods, kept up to date pod by pod, so that one pod's news costs the same however many."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field

from tonnage.apiserver.controllers.meta import (
    is_deleting,
    labels_of,
    pod_is_terminal,
    pod_ready_since,
    uid_of,
)
from tonnage.kube.verbs import JsonObject
from tonnage.objects.core import LabelSelector
from tonnage.objects.selectors import matches


@dataclass(frozen=True, slots=True)
class Terms:
    """What the pods are judged by: the selector, the labels of a full copy, and minReadySeconds."""

    selector: LabelSelector
    labels: tuple[tuple[str, str], ...]
    min_ready_s: int


@dataclass(frozen=True, slots=True)
class _Part:
    unclaimed: bool = False
    terminal: bool = False
    terminating: bool = False
    labeled: bool = False
    ready: bool = False
    available_at: float | None = None


@dataclass(slots=True)
class PodTally:
    """The pods of one controller, counted.

    ``active``: neither ended nor being deleted; of these ``labeled`` have all labels of the template, ``ready`` are
    ready, ``available`` are ready for minReadySeconds. ``terminating``: being deleted and not ended. ``unclaimed``:
    uids of active pods that the selector does not match any more.
    """

    terms: Terms
    active: int = 0
    labeled: int = 0
    ready: int = 0
    available: int = 0
    terminating: int = 0
    unclaimed: dict[str, None] = field(default_factory=dict)
    _parts: dict[str, _Part] = field(default_factory=dict)
    _available: set[str] = field(default_factory=set)
    _waiting: list[tuple[float, str]] = field(default_factory=list)

    @classmethod
    def of(cls, terms: Terms, pods: Iterable[JsonObject], now: float) -> PodTally:
        """The tally of these pods."""
        tally = cls(terms)
        for pod in pods:
            tally.put(pod, now)
        return tally

    @property
    def alive(self) -> int:
        """Pods that have not ended, those being deleted included."""
        return self.active + self.terminating

    def put(self, pod: JsonObject, now: float) -> None:
        """Count a pod, or its new version in the place of the old."""
        uid = uid_of(pod)
        part = self._judge(pod)
        old = self._parts.get(uid)
        if old == part:
            return
        self.drop(uid)
        self._parts[uid] = part
        self._add(part, 1)
        if part.unclaimed:
            self.unclaimed[uid] = None
        if part.available_at is not None:
            if part.available_at <= now:
                self._available.add(uid)
                self.available += 1
            else:
                heapq.heappush(self._waiting, (part.available_at, uid))

    def drop(self, uid: str) -> None:
        """Count a pod no more."""
        part = self._parts.pop(uid, None)
        if part is None:
            return
        self._add(part, -1)
        self.unclaimed.pop(uid, None)
        if uid in self._available:
            self._available.discard(uid)
            self.available -= 1

    def advance(self, now: float) -> None:
        """Let time make pods available."""
        while self._waiting and self._waiting[0][0] <= now:
            due, uid = heapq.heappop(self._waiting)
            part = self._parts.get(uid)
            if part is not None and part.available_at == due and uid not in self._available:
                self._available.add(uid)
                self.available += 1

    def next_due(self) -> float | None:
        """When the next ready pod becomes available; None when none waits for that."""
        while self._waiting:
            due, uid = self._waiting[0]
            part = self._parts.get(uid)
            if part is not None and part.available_at == due and uid not in self._available:
                return due
            heapq.heappop(self._waiting)
        return None

    def _judge(self, pod: JsonObject) -> _Part:
        labels = labels_of(pod)
        terminal = pod_is_terminal(pod)
        deleting = is_deleting(pod)
        if not matches(self.terms.selector, labels):
            return _Part(unclaimed=not terminal and not deleting, terminal=True)
        if terminal or deleting:
            return _Part(terminal=terminal, terminating=not terminal)
        since = pod_ready_since(pod)
        return _Part(
            labeled=all(labels.get(key) == value for key, value in self.terms.labels),
            ready=since is not None,
            available_at=None if since is None else since + self.terms.min_ready_s if self.terms.min_ready_s else 0.0,
        )

    def _add(self, part: _Part, sign: int) -> None:
        if part.terminating:
            self.terminating += sign
        if part.terminal or part.terminating:
            return
        self.active += sign
        self.labeled += sign * part.labeled
        self.ready += sign * part.ready
