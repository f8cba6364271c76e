"""A pod as its Service sees it: an engine, and the requests that it has."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Protocol

from tonnage.inference.engine import Engine
from tonnage.inference.servers.exposition import ServingStats


class OnCards(Protocol):
    """Who is on GPUs that others share, and is told of what its engine does."""

    def noticed(self) -> None:
        """Its engine was given something, or got further."""
        ...


@dataclass(slots=True, eq=False)
class ServingReplica:
    """A pod (namespace/name) that serves: its engine, None until it has loaded, and how many requests it has.

    ``zone``: where its node is; ``role``: "prefill" or "decode" where a Service has pools, else empty. ``sharer``: its
    part of GPUs on which others can slow it down.
    """

    pod: str
    engine: Engine | None = None
    in_flight: int = 0
    version: int = 0
    stats: ServingStats = field(default_factory=ServingStats)
    zone: str = ""
    role: str = ""
    sharer: OnCards | None = None
    _part: int | Fraction = 1  # of a GPU's time that its steps take now
    _taken_ns: int | Fraction = 0
    _seen_ns: int = 0

    @property
    def taken_ns(self) -> int:
        """Time of one of its GPUs that its steps took so far: they have it all, or a part."""
        self._book()
        return int(self._taken_ns)

    def takes(self, part: int | Fraction) -> None:
        """From the time that its engine was advanced to on, its steps take this part of a GPU's time."""
        self._book()
        self._part = part

    def _book(self) -> None:
        if self.engine is not None:
            busy_ns = self.engine.busy_ns
            self._taken_ns += (busy_ns - self._seen_ns) * self._part
            self._seen_ns = busy_ns
