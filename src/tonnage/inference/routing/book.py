"""What each worker has been given and has not finished: the router's own account of load.

A request is booked when it is dispatched and freed once, when it ends, is aborted or its worker's lease is lost. There
is no expiry by age: a request that runs for an hour is load for an hour. Health checks and scrapes never touch the
counts. Every event costs a bounded number of dictionary operations.
"""

from __future__ import annotations

from tonnage.inference.prompts import Path
from tonnage.inference.routing.active import ActiveBlocks
from tonnage.inference.routing.types import RouteRequest

_NS = 1e-9
_PRIOR_S = 1.0  # predicted seconds of work that say "as fast as predicted" before anything was observed
_MEMORY_S = 10.0  # predicted seconds of work after which an observation counts by 1/e


class WorkerLoad:
    """The load of one worker. Read it; only the book writes it."""

    __slots__ = (
        "_busy_since_ns",
        "_owed",
        "_predicted_s",
        "_took_s",
        "blocks",
        "context_tokens",
        "decoding",
        "last_progress_ns",
        "loras",
        "output_tokens",
        "owed_s",
        "prefill_tokens",
        "prefilling",
        "requests",
        "tokens_per_s",
    )

    def __init__(self) -> None:
        self.requests = 0
        self.prefilling = 0  # without a first token
        self.prefill_tokens = 0  # booked for those
        self.owed_s = 0.0  # predicted seconds of computing them
        self.decoding = 0  # with a first token
        self.context_tokens = 0  # prompt tokens of those
        self.output_tokens = 0  # expected of all requests
        self.blocks = 0  # distinct prompt blocks in flight
        self.loras: dict[str, int] = {}  # requests in flight per adapter
        self.tokens_per_s: float | None = None  # observed decode rate, all sequences together
        self.last_progress_ns: int | None = None
        self._owed: dict[int, float] = {}  # seconds by request, in order of dispatch
        self._busy_since_ns = 0  # since when the first of them is being computed
        self._took_s = 0.0
        self._predicted_s = 0.0

    @property
    def slowness(self) -> float:
        """Observed prefill time over predicted, lately; 1 before anything was observed."""
        return (self._took_s + _PRIOR_S) / (self._predicted_s + _PRIOR_S)

    def wait_s(self, now_ns: int) -> float:
        """Seconds until the prefills booked here are expected to be done, judged by what was observed.

        What is owed is stretched by the observed slowness. A worker whose first prefill is overdue is expected to take
        as long again as it is overdue: nothing else is known of a stall than how long it has lasted.
        """
        if not self._owed:
            return 0.0
        slowness = self.slowness
        owed = self.owed_s * slowness
        head = next(iter(self._owed.values())) * slowness
        elapsed = (now_ns - self._busy_since_ns) * _NS
        if elapsed <= head:
            return owed - elapsed
        return owed - head + (elapsed - head)

    def silent_s(self, now_ns: int) -> float:
        """Seconds since a decoding request last made progress; 0 if none decodes or progress is not reported."""
        if not self.decoding or self.last_progress_ns is None:
            return 0.0
        return max(0, now_ns - self.last_progress_ns) * _NS

    def _owe(self, request_id: int, seconds: float, now_ns: int) -> None:
        if not self._owed:
            self._busy_since_ns = now_ns
        self._owed[request_id] = seconds
        self.owed_s += seconds

    def _settle(self, request_id: int, now_ns: int, *, done: bool) -> None:
        seconds = self._owed.pop(request_id)
        if done:
            elapsed = max(0, now_ns - self._busy_since_ns) * _NS
            keep = max(0.0, 1 - seconds / _MEMORY_S)
            self._took_s = self._took_s * keep + elapsed
            self._predicted_s = self._predicted_s * keep + seconds
            self._busy_since_ns = now_ns
        # Cancelled work does not pile up rounding: an empty queue owes exactly nothing.
        self.owed_s = max(0.0, self.owed_s - seconds) if self._owed else 0.0

    def _progress(self, tokens: int, now_ns: int) -> None:
        last = self.last_progress_ns
        self.last_progress_ns = now_ns
        if last is None or now_ns <= last:
            return
        rate = tokens / ((now_ns - last) * _NS)
        before = self.tokens_per_s
        self.tokens_per_s = rate if before is None else before + 0.2 * (rate - before)


class Booking:
    """A request in flight."""

    __slots__ = (
        "blocks",
        "dispatched_ns",
        "first_token_ns",
        "lora",
        "output_tokens",
        "path",
        "prefill_s",
        "prefill_tokens",
        "prompt_tokens",
        "worker",
    )

    def __init__(self, request: RouteRequest, worker: int, tokens: int, seconds: float, now_ns: int) -> None:
        self.worker = worker
        self.path: Path = request.path
        self.blocks = request.blocks
        self.prompt_tokens = request.prompt_tokens
        self.output_tokens = request.expected_output or 0
        self.lora = request.lora
        self.prefill_tokens = tokens
        self.prefill_s = seconds
        self.dispatched_ns = now_ns
        self.first_token_ns: int | None = None


_NOTHING = WorkerLoad()


class Book:
    """Requests in flight and the load they are, by worker index."""

    __slots__ = ("_active", "_bookings", "_loads", "_private", "_requests")

    def __init__(self) -> None:
        self._active = ActiveBlocks()
        self._private: dict[int, int] = {}  # blocks of requests whose content is not known
        self._loads: dict[int, WorkerLoad] = {}
        self._bookings: dict[int, Booking] = {}
        self._requests: dict[int, dict[int, None]] = {}  # by worker, in order of dispatch

    def __len__(self) -> int:
        return len(self._bookings)

    def __contains__(self, request_id: int) -> bool:
        return request_id in self._bookings

    def load(self, worker: int) -> WorkerLoad:
        """The load of a worker; nothing for one that was never given a request."""
        return self._loads.get(worker, _NOTHING)

    def shared_blocks(self, path: Path) -> dict[int, int]:
        """Leading blocks of ``path`` that requests in flight hold, by worker; absent where none."""
        return self._active.depths(path)

    def dispatched(
        self, request: RouteRequest, worker: int, now_ns: int, *, prefill_tokens: int, prefill_s: float = 0.0
    ) -> None:
        """Book a request with the prompt tokens it still has to compute. Raises ValueError for an id in flight."""
        request_id = request.request_id
        if request_id in self._bookings:
            raise ValueError(f"request {request_id} is already in flight")
        booking = self._bookings[request_id] = Booking(request, worker, prefill_tokens, prefill_s, now_ns)
        self._requests.setdefault(worker, {})[request_id] = None
        load = self._loads.get(worker)
        if load is None:
            load = self._loads[worker] = WorkerLoad()
        load.requests += 1
        load.prefilling += 1
        load.prefill_tokens += prefill_tokens
        load.output_tokens += booking.output_tokens
        load._owe(request_id, prefill_s, now_ns)
        if booking.lora is not None:
            load.loras[booking.lora] = load.loras.get(booking.lora, 0) + 1
        self._hold(booking, load)

    def first_token(self, request_id: int, now_ns: int) -> bool:
        """Its prompt is computed. False if it is not in flight or had its first token already."""
        booking = self._bookings.get(request_id)
        if booking is None or booking.first_token_ns is not None:
            return False
        booking.first_token_ns = now_ns
        load = self._loads[booking.worker]
        load.prefilling -= 1
        load.prefill_tokens -= booking.prefill_tokens
        load._settle(request_id, now_ns, done=True)
        if not load.decoding and load.last_progress_ns is not None:
            load.last_progress_ns = now_ns  # silence is counted from when there is something to decode
        load.decoding += 1
        load.context_tokens += booking.prompt_tokens
        return True

    def progress(self, request_id: int, tokens: int, now_ns: int) -> bool:
        """It generated ``tokens`` more tokens. False if it is not in flight."""
        booking = self._bookings.get(request_id)
        if booking is None:
            return False
        self._loads[booking.worker]._progress(tokens, now_ns)
        return True

    def freed(self, request_id: int, now_ns: int) -> Booking | None:
        """It ended or was aborted: what was booked, None if it is not in flight (so nothing is freed twice)."""
        booking = self._bookings.pop(request_id, None)
        if booking is None:
            return None
        worker = booking.worker
        load = self._loads[worker]
        load.requests -= 1
        load.output_tokens -= booking.output_tokens
        if booking.first_token_ns is None:
            load.prefilling -= 1
            load.prefill_tokens -= booking.prefill_tokens
            load._settle(request_id, now_ns, done=False)
        else:
            load.decoding -= 1
            load.context_tokens -= booking.prompt_tokens
        if booking.lora is not None:
            left = load.loras[booking.lora] - 1
            if left:
                load.loras[booking.lora] = left
            else:
                del load.loras[booking.lora]
        requests = self._requests[worker]
        del requests[request_id]
        if not requests:
            del self._requests[worker]
        self._let_go(booking, load)
        return booking

    def requests_of(self, worker: int) -> list[int]:
        """The requests in flight on a worker, in order of dispatch."""
        return list(self._requests.get(worker, ()))

    def worker_removed(self, worker: int) -> None:
        """Forget what was observed of a worker. Raises ValueError while it has requests in flight."""
        if worker in self._requests:
            raise ValueError(f"worker {worker} has requests in flight")
        self._loads.pop(worker, None)
        self._private.pop(worker, None)

    def _hold(self, booking: Booking, load: WorkerLoad) -> None:
        worker = booking.worker
        if booking.path:
            self._active.add(worker, booking.path)
        else:
            self._private[worker] = self._private.get(worker, 0) + booking.blocks
        load.blocks = self._active.blocks(worker) + self._private.get(worker, 0)

    def _let_go(self, booking: Booking, load: WorkerLoad) -> None:
        worker = booking.worker
        if booking.path:
            self._active.remove(worker, booking.path)
        else:
            self._private[worker] -= booking.blocks
        load.blocks = self._active.blocks(worker) + self._private.get(worker, 0)
