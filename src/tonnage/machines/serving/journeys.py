"""Who has which request of a Service that is split, from its dispatch until neither side keeps anything for it."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tonnage.inference.disaggregation.destination import Destination
from tonnage.inference.disaggregation.source import Source
from tonnage.inference.engine.requests import Finished
from tonnage.machines.serving.pools import PREFILL, Pair
from tonnage.machines.serving.replica import ServingReplica
from tonnage.machines.serving.service import PENDING, SimulatedService
from tonnage.traffic.arrivals import Arrivals


class Journeys(SimulatedService):
    """A Service of which a request has two pods: what each of them knows of it."""

    def __init__(self, name: str, arrivals: Arrivals, balancing: str, rng: random.Random) -> None:
        super().__init__(name, arrivals, balancing, rng)
        self._pairs: dict[int, Pair] = {}
        self._sources: dict[ServingReplica, Source] = {}  # by prefill pod
        self._destinations: dict[ServingReplica, Destination] = {}  # by decode pod

    def _fail(self, number: int, at: int) -> None:
        if self.requests.status[number] == PENDING:  # its other pod may have died before
            super()._fail(number, at)

    def _over(self, number: int, at: int) -> None:
        super()._over(number, at)
        self._forget(number)

    def _forget(self, number: int) -> None:
        """Forget who had a request once it has ended and neither side keeps anything for it."""
        pair = self._pairs.get(number)
        if pair is None or self.requests.status[number] == PENDING:
            return
        sides = self._sources.get(pair.prefill), self._destinations.get(pair.decode)
        if not any(side is not None and number in side for side in sides):
            del self._pairs[number]

    def _reused(self, done: Finished) -> int:
        pair = self._pairs.get(done.request_id)
        return done.cached_tokens if pair is None or pair.again else pair.reused

    def _journeys(self, replica: ServingReplica) -> list[int]:
        """Requests between their dispatch and their decode pod's engine that have to do with this pod."""
        if replica.role == PREFILL:
            source = self._sources.get(replica)
            return list(source.transfers) if source is not None else []
        return [number for source in self._sources.values() for number in source.transfers if self._to(number, replica)]

    def _to(self, number: int, decode: ServingReplica) -> bool:
        return self._pairs[number].decode is decode

    def _pool(self, role: str) -> Sequence[ServingReplica]:
        return [replica for replica in self.endpoints if replica.role == role]

    def _alive(self, replica: ServingReplica) -> bool:
        return replica in self.endpoints or replica in self.draining

    @property
    def in_flight(self) -> int:
        return sum(r.in_flight for r in (*self.endpoints, *self.draining) if r.role != PREFILL)
