"""The router: live workers, the book of what is in flight, a policy, and receipts of what was decided."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from random import Random

from tonnage.inference.routing.book import Book
from tonnage.inference.routing.policies import RoutingPolicy
from tonnage.inference.routing.types import NOTHING_CACHED, Overlap, Reason, Receipt, RouteRequest, Worker

RECEIPTS = 1_024
"""Decisions that are kept unless told otherwise."""


class Router:
    """Chooses a worker for each request and keeps account of it until it ends.

    ``receipts``: how many decisions are kept to be asked about, oldest dropped first; ``rng`` decides ties. Raises
    ValueError for a negative number of receipts.
    """

    def __init__(
        self, policy: RoutingPolicy, workers: Iterable[Worker], rng: Random | None = None, *, receipts: int = RECEIPTS
    ) -> None:
        self.policy = policy
        self.book = Book()
        self._rng = rng or Random(0)
        self._workers: dict[int, Worker] = {}
        self._eligible: list[Worker] = []
        self._receipts: deque[Receipt] = deque(maxlen=receipts)
        for worker in workers:
            self._workers[worker.index] = worker
        self._refresh()

    # --- workers -----

    @property
    def workers(self) -> list[Worker]:
        """All workers, in order of index, those included that get no new requests."""
        return [self._workers[index] for index in sorted(self._workers)]

    @property
    def eligible(self) -> list[Worker]:
        """The workers that new requests can go to."""
        return list(self._eligible)

    def worker_added(self, worker: Worker) -> None:
        """A worker joined. Raises ValueError for an index in use."""
        if worker.index in self._workers:
            raise ValueError(f"worker {worker.index} is already here")
        self._workers[worker.index] = worker
        self._refresh()

    def worker_removed(self, index: int, now_ns: int) -> list[int]:
        """A worker's lease is lost: the ids of the requests it held, which are freed; empty if it is unknown."""
        if self._workers.pop(index, None) is None:
            return []
        self._refresh()
        lost = self.book.requests_of(index)
        for request_id in lost:
            self._freed(request_id, now_ns)
        self.book.worker_removed(index)
        self.policy.worker_removed(index)
        return lost

    def cache_cleared(self, index: int) -> None:
        """A worker's cache was reset: what it was sent before is not expected there any more."""
        self.policy.cache_cleared(index)

    def worker_state(self, index: int, *, healthy: bool | None = None, draining: bool | None = None) -> None:
        """A health check or a drain: whether new requests may go there. What is in flight stays booked.

        Raises KeyError for an unknown worker.
        """
        worker = self._workers[index]
        if healthy is not None:
            worker.healthy = healthy
        if draining is not None:
            worker.draining = draining
        self._refresh()

    def _refresh(self) -> None:
        self._eligible = [worker for worker in self.workers if worker.eligible]

    # --- requests -----

    def candidates(self, request: RouteRequest) -> list[Worker]:
        """The live workers that can serve the request: all that get new requests and have, or can load, its adapter."""
        if request.lora is None:
            return self._eligible
        return [worker for worker in self._eligible if worker.max_loras or request.lora in worker.loras]

    def refused(self, request: RouteRequest, reason: Reason) -> Receipt:
        """Record that a request is turned away; nothing is booked."""
        return self._keep(Receipt(request.request_id, -1, self.policy.name, reason, blocks=request.blocks))

    def route(self, request: RouteRequest, overlap: Overlap = NOTHING_CACHED, now_ns: int | None = None) -> Receipt:
        """Choose a worker and book the request there; ``now_ns`` is its arrival unless given.

        The receipt is a refusal (503, booked nowhere) when no live worker can take it. Raises ValueError for an id that
        is in flight.
        """
        now_ns = request.arrival_ns if now_ns is None else now_ns
        workers = self.candidates(request)
        if not workers:
            return self.refused(request, "no-worker")
        choice = self.policy.choose(request, overlap, workers, self.book, now_ns, self._rng)
        self.book.dispatched(
            request, choice.worker, now_ns, prefill_tokens=choice.prefill_tokens, prefill_s=choice.prefill_s
        )
        self.policy.dispatched(request, choice, now_ns)
        return self._keep(
            Receipt(
                request.request_id,
                choice.worker,
                self.policy.name,
                choice.reason,
                choice.costs,
                overlap.device.get(choice.worker, 0),
                overlap.host.get(choice.worker, 0),
                overlap.disk.get(choice.worker, 0),
                request.blocks,
                choice.predicted_s,
                self.policy.unit,
                choice.parts,
            )
        )

    def first_token(self, request_id: int, now_ns: int) -> bool:
        """The request began to answer. False if that is not news."""
        return self.book.first_token(request_id, now_ns)

    def progress(self, request_id: int, tokens: int, now_ns: int) -> bool:
        """The request generated ``tokens`` more tokens. False if it is not in flight."""
        return self.book.progress(request_id, tokens, now_ns)

    def ended(self, request_id: int, now_ns: int) -> bool:
        """The request's stream ended. False if it is not in flight."""
        return self._freed(request_id, now_ns)

    def aborted(self, request_id: int, now_ns: int) -> bool:
        """The request was cancelled or failed. False if it is not in flight."""
        return self._freed(request_id, now_ns)

    def _freed(self, request_id: int, now_ns: int) -> bool:
        booking = self.book.freed(request_id, now_ns)
        if booking is None:
            return False
        self.policy.freed(request_id, booking, now_ns)
        return True

    # --- receipts -----

    def receipts(self) -> list[Receipt]:
        """The last decisions, oldest first."""
        return list(self._receipts)

    def _keep(self, receipt: Receipt) -> Receipt:
        self._receipts.append(receipt)
        return receipt
