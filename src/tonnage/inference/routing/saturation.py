"""Whether a worker is full, from scrapes of its metrics and from what was sent to it since.

A scrape is old by the time it is read: requests sent since then are in no metric. They are counted on top until the
next scrape, and the book of requests in flight is looked at besides, so that a burst between two scrapes cannot
overshoot and a metric that never comes cannot hide load.
"""

from __future__ import annotations

import msgspec

from tonnage.errors import InputError
from tonnage.inference.routing.book import WorkerLoad
from tonnage.inference.routing.types import RouteRequest, Worker


class SaturationSettings(msgspec.Struct, frozen=True):
    """A worker is full at ``waiting`` requests without a first token or ``kv_share`` of its KV blocks in use.

    Scrapes older than ``stale_s`` are not used. Source of the first two defaults: llm-d's utilization detector.
    """

    waiting: int = 5
    kv_share: float = 0.8
    stale_s: float = 5.0

    def __post_init__(self) -> None:
        if self.waiting < 1 or not 0 < self.kv_share <= 1 or not self.stale_s >= 0:
            raise InputError.at(
                f"a worker cannot be full at {self.waiting} waiting or a KV share of {self.kv_share}, scraped within "
                f"{self.stale_s} s",
                field="saturation",
                hint="give at least 1 waiting request, a share above 0 and up to 1, and no negative time",
            )


class _Scrape:
    __slots__ = ("at_ns", "kv_share", "sent", "sent_blocks", "waiting")

    def __init__(self, waiting: int, kv_share: float, at_ns: int) -> None:
        self.waiting = waiting
        self.kv_share = kv_share
        self.at_ns = at_ns
        self.sent = 0
        self.sent_blocks = 0


class Saturation:
    """How full workers are."""

    def __init__(self, settings: SaturationSettings | None = None) -> None:
        self.settings = settings or SaturationSettings()
        self._scrapes: dict[int, _Scrape] = {}

    def scraped(self, worker: int, waiting: int, kv_share: float, now_ns: int) -> None:
        """Metrics of a worker as of ``now_ns``: requests waiting and the share of KV blocks in use."""
        self._scrapes[worker] = _Scrape(waiting, kv_share, now_ns)

    def sent(self, worker: int, request: RouteRequest) -> None:
        """A request went to a worker."""
        scrape = self._scrapes.get(worker)
        if scrape is not None:
            scrape.sent += 1
            scrape.sent_blocks += request.blocks

    def removed(self, worker: int) -> None:
        """The worker is gone."""
        self._scrapes.pop(worker, None)

    def level(self, worker: Worker, load: WorkerLoad, now_ns: int) -> float:
        """How full a worker is; full at 1 and above."""
        settings = self.settings
        total = max(1, worker.total_blocks)
        waiting = float(load.prefilling)
        kv = load.blocks / total
        scrape = self._scrapes.get(worker.index)
        if scrape is not None and (now_ns - scrape.at_ns) * 1e-9 <= settings.stale_s:
            waiting = max(waiting, scrape.waiting + scrape.sent)
            kv = max(kv, scrape.kv_share + scrape.sent_blocks / total)
        return max(waiting / settings.waiting, kv / settings.kv_share)
