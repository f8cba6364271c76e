"""Which pod gets a request: in turn or at random, by requests in flight, by the client's zone, or by a router's
policy."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tonnage.inference.prompts import Path, length
from tonnage.inference.routing.catalog import NAMES, make_policy
from tonnage.inference.routing.costs import EngineCosts
from tonnage.inference.routing.router import Router
from tonnage.inference.routing.types import NOTHING_CACHED, Overlap, RouteRequest, Worker
from tonnage.inference.timing import BatchTiming, StepTiming
from tonnage.machines.serving.replica import ServingReplica

PLAIN = ("random", "round-robin", "least-requests")
"""``random`` is what kube-proxy does; the others need a gateway."""

ROUTED = tuple(name for name in NAMES if name not in PLAIN)
"""Policies of tonnage.inference.routing."""

LOAD_BALANCING = (*PLAIN, *ROUTED)

_BLIND = ("least-loaded", "power-of-two")


def needs_content(balancing: str) -> bool:
    """Whether it looks at what caches hold of a prompt."""
    return balancing in ROUTED and balancing not in _BLIND


class Plain:
    """Balancing that knows of a pod no more than how many requests it has sent there."""

    def __init__(self, balancing: str, rng: random.Random) -> None:
        self._balancing = balancing
        self._rng = rng
        self._turn = 0

    def choose(self, request: RouteRequest, endpoints: Sequence[ServingReplica]) -> ServingReplica | None:
        """One of ``endpoints``; None if there are none."""
        if not endpoints:
            return None
        if self._balancing == "random":
            return endpoints[self._rng.randrange(len(endpoints))]
        self._turn += 1
        if self._balancing == "round-robin":
            return endpoints[self._turn % len(endpoints)]
        return min(endpoints, key=_in_flight)

    def first_token(self, number: int, at_ns: int) -> None:
        """The request began to answer."""

    def ended(self, number: int, at_ns: int) -> None:
        """The request ended, well or not."""

    def gone(self, replica: ServingReplica, now_ns: int) -> None:
        """The pod is dead."""


class Routed:
    """A router with one of its policies. It sees first tokens and ends in order of time, whenever they are reported,
    and what the GPUs' caches hold at the moment of the decision; nobody tells it of tokens after the first."""

    def __init__(self, balancing: str, rng: random.Random) -> None:
        self._name = balancing
        self._rng = rng
        self._looks = needs_content(balancing)
        self._router: _SomeOf | None = None
        self._replicas: list[ServingReplica] = []  # by worker index
        self._index: dict[ServingReplica, int] = {}
        self._costs: list[EngineCosts] = []  # likewise; one for all engines that are alike
        self._known: dict[tuple[StepTiming | BatchTiming, int], EngineCosts] = {}
        self._news: list[tuple[int, int, bool]] = []

    def choose(self, request: RouteRequest, endpoints: Sequence[ServingReplica]) -> ServingReplica | None:
        """One of ``endpoints`` that answers; None if there is none."""
        for replica in endpoints:
            if replica not in self._index and replica.engine is not None:
                self._join(replica)
        router = self._router
        if router is None:
            return None
        self._tell(router)
        router.some = {self._index[replica] for replica in endpoints if replica in self._index}
        receipt = router.route(request, self._overlap(request.path, request.arrival_ns), request.arrival_ns)
        return None if receipt.refused else self._replicas[receipt.worker]

    def first_token(self, number: int, at_ns: int) -> None:
        """The request began to answer."""
        self._news.append((at_ns, number, False))

    def ended(self, number: int, at_ns: int) -> None:
        """The request ended, well or not."""
        self._news.append((at_ns, number, True))

    def gone(self, replica: ServingReplica, now_ns: int) -> None:
        """The pod is dead."""
        index = self._index.pop(replica, None)
        if index is not None and self._router is not None:
            self._tell(self._router)
            self._router.worker_removed(index, now_ns)

    def _join(self, replica: ServingReplica) -> None:
        assert replica.engine is not None
        config, timing = replica.engine.config, replica.engine.timing
        kind = timing, config.max_num_batched_tokens
        if kind not in self._known:
            self._known[kind] = EngineCosts(*kind)
        self._costs.append(self._known[kind])
        if self._router is None:
            policy = make_policy(self._name, costs_of=self._costs.__getitem__)
            self._router = _SomeOf(policy, (), rng=self._rng)
        index = self._index[replica] = len(self._replicas)
        self._replicas.append(replica)
        self._router.worker_added(
            Worker(
                index,
                replica.pod,
                replica.zone,
                config.kv_blocks,
                config.block_size,
                config.max_num_batched_tokens,
                config.max_num_seqs,
            )
        )

    def _tell(self, router: Router) -> None:
        self._news.sort()
        for at, number, ended in self._news:
            if ended:
                router.ended(number, at)
            else:
                router.first_token(number, at)
        self._news.clear()

    def _overlap(self, path: Path, now_ns: int) -> Overlap:
        if not self._looks or not path:
            return NOTHING_CACHED
        held = {index: cached_blocks(replica, path, now_ns) for replica, index in self._index.items()}
        return Overlap({index: blocks for index, blocks in held.items() if blocks})


def cached_blocks(replica: ServingReplica, path: Path, now_ns: int) -> int:
    """Leading blocks of ``path`` that the replica's GPU holds at ``now_ns``; its engine is brought there."""
    engine = replica.engine
    if engine is None or not path:
        return 0
    engine.advance(now_ns)
    cache = engine.cache
    return 0 if cache is None else cache.match(path, length(path))[0]


def balancer(balancing: str, rng: random.Random) -> Plain | Routed:
    """The balancing of this name, one of ``LOAD_BALANCING``."""
    return Plain(balancing, rng) if balancing in PLAIN else Routed(balancing, rng)


def of_zone(endpoints: Sequence[ServingReplica], zone: str) -> Sequence[ServingReplica]:
    """The endpoints of the client's zone, or all of them if there is none.

    Source: Kubernetes Service, trafficDistribution PreferSameZone; endpoints' hints are honoured only where every zone
    has one, else kube-proxy falls back to all.
    """
    return [replica for replica in endpoints if replica.zone == zone] or endpoints


class _SomeOf(Router):
    """A router of which each request sees some workers only."""

    some: set[int] = set()

    def candidates(self, request: RouteRequest) -> list[Worker]:
        return [worker for worker in super().candidates(request) if worker.index in self.some]


def _in_flight(replica: ServingReplica) -> int:
    return replica.in_flight
