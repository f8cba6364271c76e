"""Flow control in front of the router: who waits, who goes next, who is turned away and with which status.

- 503 when no live worker can take a request, or when it waited longer than allowed: the client may come again.
- 429 when every worker is full and the request may not wait: it is sheddable (priority below 0), or the queue is full.

A request that waits keeps its place whatever happens to the worker it would have gone to: it leaves the queue only when
it is booked on a worker, cancelled, displaced by a higher priority or expired.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import msgspec

from tonnage.errors import InputError
from tonnage.inference.routing.fairness import FairQueue
from tonnage.inference.routing.router import Router
from tonnage.inference.routing.saturation import Saturation, SaturationSettings
from tonnage.inference.routing.types import NOTHING_CACHED, Overlap, Reason, Receipt, RouteRequest

Lookup = Callable[[RouteRequest], Overlap]
"""What workers hold of a prompt now; asked when a request is dispatched, as it may have waited."""


class FlowSettings(msgspec.Struct, frozen=True):
    """``queue_requests``: how many may wait in all; ``queue_s``: how long; ``quantum_tokens``: a tenant's turn."""

    queue_requests: int = 1_000
    queue_s: float = 60.0
    quantum_tokens: int = 8_192
    saturation: SaturationSettings = SaturationSettings()

    def __post_init__(self) -> None:
        for field, least in (("queue_requests", 0), ("queue_s", 0.0), ("quantum_tokens", 1)):
            if not getattr(self, field) >= least:
                raise InputError.at(
                    f"{field} cannot be {getattr(self, field)}", field=field, hint=f"give a number of {least} or more"
                )


class FlowControl:
    """A router with a queue before it. Calls come in order of time.

    ``lookup`` says what workers hold of a prompt. Raises InputError when the policy needs it and it is not given: a
    score that is silently zero would look like a router that works.
    """

    def __init__(self, router: Router, settings: FlowSettings | None = None, lookup: Lookup | None = None) -> None:
        if lookup is None and router.policy.needs_overlap:
            raise InputError.at(
                f"policy {router.policy.name} is asked to route without knowing what workers hold",
                field="lookup",
                hint="connect a KV index, or choose a policy that does without: least-loaded, power-of-two, tonnage",
            )
        self.router = router
        self.settings = settings or FlowSettings()
        self.saturation = Saturation(self.settings.saturation)
        self._lookup = lookup
        self._queue = FairQueue(self.settings.quantum_tokens)
        self._deadlines: deque[tuple[int, int]] = deque()  # (ns, request id) in order; those served are passed over
        self._due: dict[int, int] = {}  # deadline of each request that waits
        self._refused: list[Receipt] = []

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._queue)

    def offer(self, request: RouteRequest, now_ns: int) -> Receipt | None:
        """Route a request, queue it (None) or refuse it. Raises ValueError for an id that waits or is in flight."""
        if request.request_id in self._queue or request.request_id in self.router.book:
            raise ValueError(f"request {request.request_id} is already here")
        self._expire(now_ns)
        if not self.router.candidates(request):
            return self._refuse(request, "no-worker")
        highest = self._queue.highest()
        ahead = highest is not None and highest >= request.priority
        full = self._full(request, now_ns)
        if not ahead and not full:
            return self._dispatch(request, now_ns)
        if request.priority < 0 and full:
            return self._refuse(request, "saturated")
        if len(self._queue) >= self.settings.queue_requests:
            displaced = self._queue.newest_below(request.priority)
            if displaced is None:
                return self._refuse(request, "queue-full")
            self._leave(displaced.request_id)
            self._refused.append(self._refuse(displaced, "queue-full"))
        self._wait(request, now_ns)
        return None

    def again(self, request: RouteRequest, now_ns: int) -> None:
        """A request that was dispatched lost its worker before it answered: it waits at the head of its tenant's line.

        It is not refused for a full queue: it was admitted once. Raises ValueError for an id that waits.
        """
        self._wait(request, now_ns, first=True)

    def worker_removed(self, index: int, now_ns: int) -> list[int]:
        """A worker's lease is lost: the requests it held, which are freed (see ``again``)."""
        self.saturation.removed(index)
        return self.router.worker_removed(index, now_ns)

    def cancel(self, request_id: int) -> bool:
        """The client went away. False if the request does not wait."""
        return self._leave(request_id) is not None

    def pump(self, now_ns: int) -> list[Receipt]:
        """Dispatch what can go now; call it when load falls or workers come. The receipts, in order."""
        self._expire(now_ns)
        sent: list[Receipt] = []
        while (request := self._queue.head()) is not None:
            if not self.router.candidates(request) or self._full(request, now_ns):
                break  # it keeps its turn
            self._queue.serve(request)
            self._due.pop(request.request_id)
            sent.append(self._dispatch(request, now_ns))
        return sent

    def take_refused(self, now_ns: int) -> list[Receipt]:
        """Requests that waited and were refused since the last call: expired or displaced."""
        self._expire(now_ns)
        taken, self._refused = self._refused, []
        return taken

    def _full(self, request: RouteRequest, now_ns: int) -> bool:
        book = self.router.book
        return all(
            self.saturation.level(worker, book.load(worker.index), now_ns) >= 1
            for worker in self.router.candidates(request)
        )

    def _dispatch(self, request: RouteRequest, now_ns: int) -> Receipt:
        overlap = NOTHING_CACHED if self._lookup is None else self._lookup(request)
        receipt = self.router.route(request, overlap, now_ns)
        if not receipt.refused:
            self.saturation.sent(receipt.worker, request)
        return receipt

    def _refuse(self, request: RouteRequest, reason: Reason) -> Receipt:
        return self.router.refused(request, reason)

    def _wait(self, request: RouteRequest, now_ns: int, *, first: bool = False) -> None:
        self._queue.add(request, first=first)
        deadline = now_ns + round(self.settings.queue_s * 1e9)
        self._due[request.request_id] = deadline
        self._deadlines.append((deadline, request.request_id))

    def _leave(self, request_id: int) -> RouteRequest | None:
        self._due.pop(request_id, None)
        return self._queue.remove(request_id)

    def _expire(self, now_ns: int) -> None:
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= now_ns:
            deadline, request_id = deadlines.popleft()
            if self._due.get(request_id) == deadline:
                request = self._leave(request_id)
                assert request is not None
                self._refused.append(self._refuse(request, "expired"))
