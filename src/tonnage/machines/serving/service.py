"""Requests on their way: Services, load balancing over ready endpoints, and what became of each request.

An engine is advanced only when something about it can have changed: before it is given a request, when a request on it
may have finished, and when somebody samples it. Services whose engines share GPUs advance together (together.py).
"""

from __future__ import annotations

import heapq
import random
from array import array
from dataclasses import dataclass, field
from typing import Protocol

from tonnage.inference.engine.requests import Finished
from tonnage.inference.prompts import head, length
from tonnage.inference.routing.types import RouteRequest
from tonnage.machines.serving.balancing import LOAD_BALANCING, balancer, of_zone
from tonnage.machines.serving.lower_tiers import LowerTiers
from tonnage.machines.serving.replica import ServingReplica
from tonnage.traffic.arrivals import Arrivals

__all__ = ["LOAD_BALANCING", "ServingReplica", "Requests", "SimulatedService"]

PENDING, DONE, FAILED = 0, 1, 2


@dataclass(slots=True)
class Requests:
    """What became of each request, by its number in the order of arrival. Times in ns; 0 means "not yet"."""

    arrivals: Arrivals
    first_ns: array[int] = field(init=False)
    finish_ns: array[int] = field(init=False)
    status: bytearray = field(init=False)
    preemptions: int = 0
    reused: int = 0  # prompt tokens of finished requests that were in a cache
    crossed: int = 0  # requests that went to another zone than the client's

    def __post_init__(self) -> None:
        count = len(self.arrivals.arrival_ns)
        self.first_ns = array("q", [0]) * count
        self.finish_ns = array("q", [0]) * count
        self.status = bytearray(count)


class InStep(Protocol):
    """Services that advance together."""

    services: list[SimulatedService]

    def advance(self, until_ns: int) -> None:
        """Dispatch every request that arrives before ``until_ns``, after what happens up to its arrival."""
        ...

    def play(self, until_ns: int) -> None:
        """Let everything happen at their engines up to ``until_ns``."""
        ...


class SimulatedService:
    """One Service and its traffic. ``balancing``: ``random`` is what kube-proxy does; the others need a gateway.

    ``zone_aware``: pods of the client's zone are preferred, where the arrivals say what that is. ``migration``: a
    gateway keeps every request until it is answered. One whose pod terminates continues on another, which computes its
    prompt and the tokens that there are already; one that no pod can take waits for the next that is ready.
    """

    def __init__(
        self,
        name: str,
        arrivals: Arrivals,
        balancing: str,
        rng: random.Random,
        *,
        zone_aware: bool = False,
        migration: bool = False,
    ) -> None:
        self.name = name
        self.migration = migration
        self.balancing = balancing
        self.zone_aware = zone_aware
        self.requests = Requests(arrivals)
        self.endpoints: list[ServingReplica] = []
        self.draining: list[ServingReplica] = []
        self.received = 0
        self.failed = 0
        self.histograms = False  # whether anybody reads them
        self.tiers: LowerTiers | None = None  # below the GPUs of its engines
        self.together: InStep | None = None  # with Services that share GPUs with it
        # Views, whose elements are Python's integers: no copies of what is as long as the traffic.
        self._times: memoryview[int] = arrivals.arrival_ns.data
        self._prompts: memoryview[int] = arrivals.prompt.data
        self._outputs: memoryview[int] = arrivals.output.data
        self._kept: list[int] = []  # at the gateway, until a pod can take them
        self._generated: dict[int, int] = {}  # output tokens of requests that have migrated
        self._changes: list[tuple[int, int, ServingReplica, int]] = []
        self._sequence = 0
        self._balancer = balancer(balancing, rng)
        self._content = arrivals.content
        self._zones = arrivals.zones

    @property
    def has_content(self) -> bool:
        """Whether it is known what prompts have in common; else a prefix cache has nothing to find."""
        return self._content is not None

    # ---- endpoints ----

    def add(self, replica: ServingReplica) -> None:
        """The replica may be sent requests from now on, be it new or one that was not Ready for a while."""
        if replica in self.draining:
            self.draining.remove(replica)
        self.endpoints.append(replica)

    def drain(self, replica: ServingReplica) -> None:
        """No further requests to this replica; what it has goes on."""
        if replica in self.endpoints:
            self.endpoints.remove(replica)
        if replica not in self.draining:
            self.draining.append(replica)

    def kill(self, replica: ServingReplica, now_ns: int) -> int:
        """The replica is gone; its unfinished requests fail. Returns how many."""
        for group in (self.endpoints, self.draining):
            if replica in group:
                group.remove(replica)
        if replica.engine is None:
            return 0
        if self.together is not None:
            self.together.play(now_ns)
        replica.engine.advance(now_ns)
        self._collect(replica)
        replica.version += 1
        lost = replica.engine.drain_all()
        for request in lost:
            self._lose(request.request_id, request.generated_tokens, now_ns)
        self._balancer.gone(replica, now_ns)
        replica.in_flight = 0
        self.resume(now_ns)
        return len(lost)

    def _lose(self, number: int, generated: int, at: int) -> None:
        """The pod of a request is gone, which had this many tokens of its output."""
        if not self.migration:
            self._fail(number, at)
            return
        self._generated[number] = self._generated.get(number, 0) + generated
        self._balancer.ended(number, at)
        self._kept.append(number)

    def resume(self, now_ns: int) -> None:
        """Send the requests that the gateway keeps to pods, as far as some can take them."""
        if not self._kept or not any(one.engine is not None for one in self.endpoints):
            return
        kept, self._kept = self._kept, []
        for number in kept:
            self._dispatch(number, now_ns)

    def abort(self, number: int, now_ns: int) -> None:
        """The client of a request goes away: it fails, unless it has ended already.

        Raises ValueError for a request that was not received yet.
        """
        if number >= self.received:
            raise ValueError(f"request {number} has not arrived")
        self.catch_up(now_ns)
        if number in self._kept:
            self._kept.remove(number)
            self._fail(number, now_ns)
        elif self.requests.status[number] == PENDING:
            self._withdraw(number, now_ns)

    def _withdraw(self, number: int, at: int) -> None:
        """Take a request from the engine that has it."""
        for replica in (*self.endpoints, *self.draining):
            if replica.engine is None:
                continue
            replica.engine.advance(at)
            try:
                replica.engine.abort(number)
            except KeyError:
                continue  # another engine has it
            self._collect(replica)
            self.expect(replica)
            return

    # ---- time ----

    def advance(self, until_ns: int) -> None:
        """Dispatch every request that arrives before ``until_ns``."""
        if self.together is not None:
            self.together.advance(until_ns)
            return
        times = self._times
        i, count = self.received, len(times)
        while i < count and times[i] < until_ns:
            at = times[i]
            self.happen(at)
            self._dispatch(i, at)
            i += 1
        self.received = i

    def settle(self, until_ns: int) -> None:
        """Bring every engine to ``until_ns``, so that it can be sampled."""
        if self.together is not None:
            self.together.play(until_ns)
        for replica in (*self.endpoints, *self.draining):
            self.look(replica, until_ns)

    def look(self, replica: ServingReplica, at_ns: int) -> None:
        """Bring one engine to ``at_ns``."""
        if replica.engine is not None:
            replica.engine.advance(at_ns)
            self._collect(replica)
            self.expect(replica)

    def catch_up(self, now_ns: int) -> None:
        """Let everything happen up to ``now_ns``, here and at Services that share GPUs with this one."""
        if self.together is not None:
            self.together.play(now_ns)
        else:
            self.happen(now_ns)

    @property
    def next_arrival_ns(self) -> int | None:
        """When the next request arrives; None after the last."""
        return self._times[self.received] if self.received < len(self._times) else None

    def receive(self, at_ns: int) -> None:
        """Dispatch every request that arrives at ``at_ns``, up to which everything has happened."""
        while self.next_arrival_ns == at_ns:
            self.received += 1
            self._dispatch(self.received - 1, at_ns)

    @property
    def next_change_ns(self) -> int | None:
        """When something may happen next at one of its engines; None if nothing will."""
        changes = self._changes
        while changes and changes[0][3] != changes[0][2].version:
            heapq.heappop(changes)
        return changes[0][0] if changes else None

    def happen(self, at: int) -> None:
        """Let happen what happens at its engines up to ``at``."""
        changes = self._changes
        while changes and changes[0][0] <= at:
            _, _, replica, version = heapq.heappop(changes)
            if version == replica.version:
                self.look(replica, at)

    def _dispatch(self, number: int, at: int) -> None:
        request = self._request(number, at)
        endpoints = self.endpoints
        if self.migration:  # whoever refuses the connection is passed over
            endpoints = [one for one in endpoints if one.engine is not None]
        if self.zone_aware and self._zones is not None:
            endpoints = list(of_zone(endpoints, self._zones[number]))
        replica = self._balancer.choose(request, endpoints)
        if replica is None or replica.engine is None:
            # Connection refused: no endpoint, or a server that does not listen yet.
            if self.migration:
                self._kept.append(number)
            else:
                self._fail(number, at)
            return
        if self._zones is not None and replica.zone != self._zones[number]:
            self.requests.crossed += 1
        self._submit(replica, number, at)

    def _request(self, number: int, at: int) -> RouteRequest:
        """The request as a router sees it: its prompt, and nothing of what will be generated."""
        prompt = self._prompts[number] + self._generated.get(number, 0)
        if self._content is None:
            return RouteRequest(number, at, prompt)
        path = head(self._content.paths[number], prompt // self._content.block_size)
        return RouteRequest(number, at, prompt, length(path), path, session=self._content.session(number))

    def _submit(self, replica: ServingReplica, number: int, at: int) -> None:
        """The replica's engine gets a request to serve from its prompt to its last token."""
        assert replica.engine is not None
        replica.engine.advance(at)
        there = self._generated.get(number, 0)
        prompt, output = self._prompts[number] + there, self._outputs[number] - there
        if self._content is None:
            replica.engine.submit(number, at, prompt, output)
        else:
            replica.engine.submit(number, at, prompt, output, path=self._content.paths[number])
        replica.in_flight += 1
        self._collect(replica)  # a request that can never fit is refused at once
        self.expect(replica)

    def _fail(self, number: int, at: int) -> None:
        self.requests.status[number] = FAILED
        self.failed += 1
        self._over(number, at)

    def _over(self, number: int, at: int) -> None:
        """A request has ended, well or not."""
        self._balancer.ended(number, at)

    def expect(self, replica: ServingReplica) -> None:
        """Note when something may happen next at the replica's engine, of which something has changed."""
        replica.version += 1
        assert replica.engine is not None
        change = replica.engine.next_change_ns()
        if change is not None:
            self._sequence += 1
            heapq.heappush(self._changes, (change, self._sequence, replica, replica.version))
        if replica.sharer is not None:
            replica.sharer.noticed()

    def _collect(self, replica: ServingReplica) -> None:
        assert replica.engine is not None
        requests = self.requests
        finished = replica.engine.take_finished()
        first_tokens = replica.engine.take_first_tokens()
        for number, _, first_ns in first_tokens:
            if number not in self._generated or not requests.first_ns[number]:
                requests.first_ns[number] = first_ns
            self._balancer.first_token(number, first_ns)
        if self.histograms:
            replica.stats.observe(first_tokens, finished)
        for done in finished:
            replica.in_flight -= 1
            number = done.request_id
            if done.state != "finished":
                self._fail(number, done.finish_ns)
                continue
            requests.finish_ns[number] = done.finish_ns
            requests.status[number] = DONE
            requests.preemptions += done.preemptions
            requests.reused += self._reused(done)
            self._over(number, done.finish_ns)

    def _reused(self, done: Finished) -> int:
        """Prompt tokens of a finished request that its engine did not have to compute."""
        return done.cached_tokens

    # ---- what a gateway reports ----

    @property
    def in_flight(self) -> int:
        """Requests sent and not finished."""
        return len(self._kept) + sum(replica.in_flight for replica in (*self.endpoints, *self.draining))
