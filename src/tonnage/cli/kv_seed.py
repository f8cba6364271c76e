"""A routing policy whose draws come from a seed of its own, for replays that take no seed."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tonnage.inference.routing.book import Book, Booking
from tonnage.inference.routing.policies import Choice, Policy
from tonnage.inference.routing.types import Overlap, RouteRequest, Worker


class Seeded(Policy):
    """``policy``, with ``rng`` for all that it draws. ``Seeded(policy, Random(0))`` chooses as a router does itself."""

    def __init__(self, policy: Policy, rng: Random) -> None:
        self.name, self.unit, self.needs_overlap = policy.name, policy.unit, policy.needs_overlap
        self._policy = policy
        self._rng = rng

    def choose(
        self, request: RouteRequest, overlap: Overlap, workers: Sequence[Worker], book: Book, now_ns: int, rng: Random
    ) -> Choice:
        return self._policy.choose(request, overlap, workers, book, now_ns, self._rng)

    def dispatched(self, request: RouteRequest, choice: Choice, now_ns: int) -> None:
        self._policy.dispatched(request, choice, now_ns)

    def freed(self, request_id: int, booking: Booking, now_ns: int) -> None:
        self._policy.freed(request_id, booking, now_ns)

    def worker_removed(self, worker: int) -> None:
        self._policy.worker_removed(worker)

    def cache_cleared(self, worker: int) -> None:
        self._policy.cache_cleared(worker)
