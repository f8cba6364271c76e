"""Where a request goes: the interface of a policy, and those that look at load alone.

A policy is given the candidates (never empty, live workers only), what they hold of the prompt and the book of what
is in flight. It books nothing; the router does.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Literal, TypeAlias

import msgspec

from tonnage.inference.routing.book import Book, Booking
from tonnage.inference.routing.types import CostParts, Overlap, Reason, RouteRequest, Worker

Looks: TypeAlias = Literal["nothing", "load", "caches"]
"""What a choice depends on besides the requests so far: nothing else; what is in flight where, and what the chosen
worker holds of the prompt, which is booked; what any worker holds."""


class RouteChoice(msgspec.Struct, frozen=True, gc=False):
    """What a policy decided. ``prefill_tokens`` and ``prefill_s`` are what is to be booked for the request.

    ``held``: blocks of the prompt that the worker is taken to hold; ``parts``: see ``Receipt``.
    """

    worker: int
    reason: Reason
    prefill_tokens: int
    prefill_s: float = 0.0
    costs: tuple[tuple[int, float], ...] = ()
    predicted_s: float | None = None
    held: int = 0
    parts: tuple[tuple[int, CostParts], ...] = ()


class RoutingPolicy:
    """A rule that chooses a worker. ``unit`` is that of its costs.

    ``looks``: what a policy does not look at need not be found out for it, and one that looks at nothing need not be
    told what becomes of requests. A policy that ``needs_overlap`` is blind without knowledge of what workers hold: it
    must not be run on zeros.
    """

    name = ""
    unit = ""
    looks: Looks = "caches"
    needs_overlap = False

    def choose(
        self, request: RouteRequest, overlap: Overlap, workers: Sequence[Worker], book: Book, now_ns: int, rng: Random
    ) -> RouteChoice:
        """Choose among ``workers``; ``overlap`` counts blocks, ``rng`` decides ties."""
        raise NotImplementedError

    def dispatched(self, request: RouteRequest, choice: RouteChoice, now_ns: int) -> None:
        """The choice was booked."""

    def freed(self, request_id: int, booking: Booking, now_ns: int) -> None:
        """The request ended, was aborted or lost its worker."""

    def worker_removed(self, worker: int) -> None:
        """The worker is gone and so is its cache. Called after its requests were freed."""

    def cache_cleared(self, worker: int) -> None:
        """The worker's cache is empty; what it computes now it still holds."""


def most_hits(request: RouteRequest, worker: Worker) -> int:
    """Blocks of a prompt that a cache can spare ``worker`` at most.

    The last token is always computed, as its logits are needed, and with it the whole block that it is in.
    """
    return (request.prompt_tokens - 1) // worker.block_size


def tokens_left(request: RouteRequest, overlap: Overlap, worker: Worker) -> int:
    """Prompt tokens that ``worker`` has to compute."""
    held = min(overlap.held(worker.index), most_hits(request, worker))
    return request.prompt_tokens - held * worker.block_size


def draw_least(costs: Sequence[tuple[int, float]], rng: Random) -> int:
    """The worker of least cost; one of several at random."""
    least = min(cost for _, cost in costs)
    best = [worker for worker, cost in costs if cost == least]
    return best[0] if len(best) == 1 else rng.choice(best)


class RoundRobin(RoutingPolicy):
    """Each worker in turn, by index; one that comes or goes does not upset the order of the others."""

    name = "round-robin"
    looks = "nothing"

    def __init__(self) -> None:
        self._last = -1

    def choose(
        self, request: RouteRequest, overlap: Overlap, workers: Sequence[Worker], book: Book, now_ns: int, rng: Random
    ) -> RouteChoice:
        later = [worker for worker in workers if worker.index > self._last]
        worker = min(later or workers, key=_index)
        self._last = worker.index
        return RouteChoice(worker.index, "turn", tokens_left(request, overlap, worker))


class RandomWorker(RoutingPolicy):
    """Any worker."""

    name = "random"
    looks = "nothing"

    def choose(
        self, request: RouteRequest, overlap: Overlap, workers: Sequence[Worker], book: Book, now_ns: int, rng: Random
    ) -> RouteChoice:
        worker = rng.choice(workers)
        return RouteChoice(worker.index, "turn", tokens_left(request, overlap, worker))


class LeastLoaded(RoutingPolicy):
    """The fewest requests in flight, then the fewest prompt tokens to compute."""

    name = "least-loaded"
    unit = "requests"
    looks = "load"

    def choose(
        self, request: RouteRequest, overlap: Overlap, workers: Sequence[Worker], book: Book, now_ns: int, rng: Random
    ) -> RouteChoice:
        loads = [book.load(worker.index) for worker in workers]
        least = min((load.requests, load.prefill_tokens) for load in loads)
        best = [
            worker for worker, load in zip(workers, loads, strict=True) if (load.requests, load.prefill_tokens) == least
        ]
        chosen = best[0] if len(best) == 1 else rng.choice(best)
        costs = tuple((worker.index, float(load.requests)) for worker, load in zip(workers, loads, strict=True))
        return RouteChoice(chosen.index, "load", tokens_left(request, overlap, chosen), costs=costs)


class PowerOfTwo(RoutingPolicy):
    """Of two workers drawn at random, the one with fewer requests in flight."""

    name = "power-of-two"
    unit = "requests"
    looks = "load"

    def choose(
        self, request: RouteRequest, overlap: Overlap, workers: Sequence[Worker], book: Book, now_ns: int, rng: Random
    ) -> RouteChoice:
        drawn = rng.sample(workers, 2) if len(workers) > 1 else list(workers)
        chosen = min(drawn, key=lambda worker: book.load(worker.index).requests)
        costs = tuple((worker.index, float(book.load(worker.index).requests)) for worker in drawn)
        return RouteChoice(chosen.index, "load", tokens_left(request, overlap, chosen), costs=costs)


def _index(worker: Worker) -> int:
    return worker.index
