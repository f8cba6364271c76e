"""A Service whose prompts are computed by one pool of pods and answered by another.

A request is given a decode pod, and unless the conditional rule keeps it there, a prefill pod. When its prompt is
computed, its blocks wait under a lease until the decode pod has room; then they are moved over the link, which each
pod's transfers share one after the other, and the decode pod goes on from the prompt's last token (as vLLM does, which
computes that one again). Both sides follow tonnage.inference.disaggregation; the decode side reads, messages take no
time. A request whose prefill pod fails on the way is computed by its decode pod.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Sequence

from tonnage.inference.disaggregation.actions import Action, Cancel, Free, Lost, Send, StartDecode, StartTransfer
from tonnage.inference.disaggregation.conditional import DecodeLoad, PrefillLoad, skips_remote_prefill
from tonnage.inference.disaggregation.destination import Destination
from tonnage.inference.disaggregation.source import Source
from tonnage.inference.engine.requests import Finished
from tonnage.inference.routing.types import RouteRequest
from tonnage.machines.serving.balancing import balancer, cached_blocks
from tonnage.machines.serving.journeys import Journeys
from tonnage.machines.serving.pools import DECODE, PREFILL, Pair, Split, fits, pages
from tonnage.machines.serving.replica import ServingReplica
from tonnage.machines.serving.service import PENDING
from tonnage.machines.serving.wires import Wires
from tonnage.traffic.arrivals import Arrivals

__all__ = ["DECODE", "PREFILL", "Split", "SplitService"]


class SplitService(Journeys):
    """One Service with a pool of prefill pods and one of decode pods; ``role`` of a replica says which."""

    def __init__(
        self,
        name: str,
        arrivals: Arrivals,
        balancing: str,
        rng: random.Random,
        prefill_rng: random.Random,
        split: Split,
    ) -> None:
        super().__init__(name, arrivals, balancing, rng)
        self.split = split
        self.transfers_ns: list[int] = []
        """From the end of each prefill until its blocks were at the decode pod."""
        self.local = 0
        """Requests whose prefill stayed with their decode pod."""
        self._prefill_balancer = balancer(balancing, prefill_rng)
        self._queues: dict[ServingReplica, deque[int]] = {}  # computed prompts that wait for room, by decode pod
        self._backlog: dict[ServingReplica, int] = {}  # prompt tokens to compute, by prefill pod
        self._wires = Wires(split)
        self._beats: list[tuple[int, int, ServingReplica]] = []
        self._beating: set[ServingReplica] = set()
        self._now = 0

    # ---- time ----

    def settle(self, until_ns: int) -> None:
        self.catch_up(until_ns)
        super().settle(until_ns)

    def happen(self, at: int) -> None:
        """Everything that happens up to ``at``, in order: what a prefill ends with begins at a decode pod."""
        while True:
            change = self._changes[0][0] if self._changes else at + 1
            landing = self._wires.next_ns()
            landing = at + 1 if landing is None else landing
            beat = self._beats[0][0] if self._beats else at + 1
            first = min(change, landing, beat)
            if first > at:
                break
            self._now = max(self._now, first)
            if first == change:
                _, _, replica, version = heapq.heappop(self._changes)
                if version == replica.version:
                    self.look(replica, self._now)
            elif first == landing:
                self._land(self._wires.land())
            else:
                _, _, replica = heapq.heappop(self._beats)
                self._beat(replica)
        self._now = max(self._now, at)

    def look(self, replica: ServingReplica, at_ns: int) -> None:
        self._now = max(self._now, at_ns)
        super().look(replica, at_ns)

    @property
    def next_change_ns(self) -> int | None:
        changes = [super().next_change_ns, self._wires.next_ns(), self._beats[0][0] if self._beats else None]
        return min((at for at in changes if at is not None), default=None)

    # ---- a request's way ----

    def _dispatch(self, number: int, at: int) -> None:
        self._now = at
        request = self._request(number, at)
        decode = self._balancer.choose(request, self._pool(DECODE))
        if decode is None or decode.engine is None:
            self._fail(number, at)
            return
        prefill = self._prefill_for(request, decode)
        if prefill is None:
            self.local += 1
            self._submit(decode, number, at)
            return
        if not fits(prefill, decode, request.prompt_tokens, self._outputs[number]):
            self._prefill_balancer.ended(number, at)
            self._fail(number, at)
            return
        self._balancer.first_token(number, at)  # the decode pod has no prompt to compute
        decode.in_flight += 1
        prefill.in_flight += 1
        self._pairs[number] = Pair(prefill, decode, request)
        self._backlog[prefill] = self._backlog.get(prefill, 0) + request.prompt_tokens
        source = self._sources.setdefault(prefill, Source(self.split.leases))
        self._do(PREFILL, source.open(number, number))
        assert prefill.engine is not None
        prefill.engine.advance(at)
        prefill.engine.submit(number, at, request.prompt_tokens, 1, path=request.path, hold=True)
        self.expect(prefill)

    def _prefill_for(self, request: RouteRequest, decode: ServingReplica) -> ServingReplica | None:
        """The pod that computes the prompt; None if the decode pod does."""
        rule, engine = self.split.rule, decode.engine
        assert engine is not None
        load = None
        prefill = None
        if rule is None or rule.by_load:
            prefill = self._prefill_balancer.choose(request, self._pool(PREFILL))
            if prefill is None or prefill.engine is None:
                return None
            load = PrefillLoad(self._backlog.get(prefill, 0), prefill.engine.config.max_num_batched_tokens)
        if rule is not None:
            engine.advance(request.arrival_ns)
            skips = skips_remote_prefill(
                rule,
                request.prompt_tokens,
                cached_blocks(decode, request.path, request.arrival_ns),
                engine.config.block_size,
                load,
                DecodeLoad(engine.blocks_used, engine.blocks_total),
            )
            if skips:
                self._prefill_balancer.ended(request.request_id, request.arrival_ns)
                return None
        prefill = prefill or self._prefill_balancer.choose(request, self._pool(PREFILL))
        return prefill if prefill is not None and prefill.engine is not None else None

    def _collect(self, replica: ServingReplica) -> None:
        if replica.role != PREFILL:
            before = replica.in_flight
            super()._collect(replica)
            if replica.in_flight < before:
                self._offer_room(replica)
            return
        assert replica.engine is not None
        finished = replica.engine.take_finished()
        first_tokens = replica.engine.take_first_tokens()
        if self.histograms:
            replica.stats.observe(first_tokens, finished)
        for done in finished:
            number = done.request_id
            self._backlog[replica] -= done.prompt_tokens
            self._prefill_balancer.ended(number, done.finish_ns)
            if done.state == "finished":
                self._prefilled(replica, done)

    def _prefilled(self, replica: ServingReplica, done: Finished) -> None:
        number, pair = done.request_id, self._pairs[done.request_id]
        assert replica.engine is not None and done.admitted_ns is not None
        pair.reused = done.cached_tokens
        pair.ended_ns, pair.prefill_ns = done.finish_ns, done.finish_ns - done.admitted_ns
        blocks = -(-done.prompt_tokens // replica.engine.config.block_size)
        source = self._sources[replica]
        if self._alive(pair.decode):
            self._queues.setdefault(pair.decode, deque()).append(number)
        self._do(PREFILL, [a for a in source.computed(number, blocks, self._now) if not isinstance(a, Send)])
        if replica not in self._beating:
            self._beating.add(replica)
            self._next_beat(replica)
        if self._alive(pair.decode):
            self._offer_room(pair.decode)

    def _offer_room(self, decode: ServingReplica) -> None:
        """Reserve pages at a decode pod for prompts that are computed, first come first served."""
        queue = self._queues.get(decode)
        if not queue or decode.engine is None:
            return
        decode.engine.advance(self._now)
        destination = self._destinations.setdefault(decode, Destination(self.split.leases))
        size = decode.engine.config.block_size
        while queue:
            number = queue[0]
            prompt = self._prompts[number]
            if not decode.engine.reserve(pages(number), prompt):
                break
            queue.popleft()
            self._do(DECODE, destination.reserve(number, number, -(-prompt // size), self._now))
        self.expect(decode)

    def _move(self, number: int) -> None:
        """The decode pod reads the blocks that it does not have."""
        pair = self._pairs[number]
        assert pair.decode.engine is not None
        size = pair.decode.engine.config.block_size
        pair.have = cached_blocks(pair.decode, pair.request.path, self._now)
        blocks = -(-pair.request.prompt_tokens // size) - pair.have
        self._wires.send(number, pair, blocks, size, self._now, behind=True)

    def _land(self, number: int) -> None:
        """What was sent has arrived. Nobody kept what the decode pod held then: what it lost meanwhile is sent too."""
        pair = self._pairs.get(number)
        destination = self._destinations.get(pair.decode) if pair is not None else None
        if pair is None or destination is None or number not in destination:
            self._forget(number)
            return
        if not (pair.gone or pair.again):
            assert pair.decode.engine is not None
            lost = pair.have - cached_blocks(pair.decode, pair.request.path, self._now)
            if lost > 0:
                pair.have -= lost
                self._wires.send(number, pair, lost, pair.decode.engine.config.block_size, self._now, behind=False)
                return
        self._do(DECODE, destination.moved(number, True))

    def _run(self, number: int) -> None:
        """All blocks are there: what was reserved for them becomes the request's."""
        pair = self._pairs[number]
        engine = pair.decode.engine
        assert engine is not None
        self.transfers_ns.append(self._now - pair.ended_ns)
        engine.advance(self._now)
        engine.unreserve(pages(number))
        prompt = pair.request.prompt_tokens
        reserved = engine.reserve(number, prompt)
        assert reserved, "what was released is free"
        path = () if self._content is None else self._content.paths[number]
        engine.submit(number, self._now, prompt, self._outputs[number], path=path, computed=prompt - 1)
        self.expect(pair.decode)

    def _recompute(self, number: int) -> None:
        """The blocks will not come: the decode pod computes the prompt itself."""
        pair = self._pairs[number]
        decode, pair.again = pair.decode, True
        decode.in_flight -= 1
        self._submit(decode, number, self._now)

    # ---- what the two sides ask for ----

    def _do(self, side: str, actions: Sequence[Action]) -> None:
        for action in actions:
            match action:
                case Send(number, kind):
                    pair = self._pairs.get(number)
                    if pair is None:
                        continue
                    if side == DECODE:
                        source = self._sources.get(pair.prefill)
                        self._do(PREFILL, source.receive(number, kind, self._now) if source is not None else [])
                    elif (destination := self._destinations.get(pair.decode)) is not None:
                        self._do(DECODE, destination.receive(number, kind, self._now))
                case StartTransfer(number):
                    self._move(number)
                case StartDecode(number):
                    self._run(number)
                case Lost(number, _):
                    self._recompute(number)
                case Free(number, _):
                    self._free(side, number)
                case Cancel(number):
                    self._cancel(number)
                case _:  # a fence: nothing here is written behind a side's back
                    pass

    def _free(self, side: str, number: int) -> None:
        pair = self._pairs[number]
        replica = pair.prefill if side == PREFILL else pair.decode
        if replica.engine is None:
            return
        replica.engine.advance(self._now)
        if side == DECODE:
            replica.engine.unreserve(pages(number))
            self._offer_room(replica)
        else:
            replica.engine.release(number)
            replica.in_flight -= 1
        self.expect(replica)
        self._forget(number)

    def _cancel(self, number: int) -> None:
        prefill = self._pairs[number].prefill
        assert prefill.engine is not None
        prefill.engine.advance(self._now)
        prefill.engine.abort(number)
        prefill.in_flight -= 1
        self.look(prefill, self._now)
        self._forget(number)

    # ---- clients that go away ----

    def _withdraw(self, number: int, at: int) -> None:
        pair = self._pairs.get(number)
        source = self._sources.get(pair.prefill) if pair is not None else None
        destination = self._destinations.get(pair.decode) if pair is not None else None
        reserved = pair is not None and not pair.again and destination is not None and number in destination
        if pair is None or not (reserved or (source is not None and number in source)):
            super()._withdraw(number, at)  # a decode pod's engine has it
            return
        pair.gone = True
        pair.decode.in_flight -= 1
        self._fail(number, at)
        if reserved:
            assert destination is not None
            self._do(DECODE, destination.abort(number))
            return
        assert source is not None
        if number in self._queues.get(pair.decode, ()):
            self._queues[pair.decode].remove(number)
        self._do(PREFILL, source.abort(number))

    # ---- leases ----

    def _next_beat(self, prefill: ServingReplica) -> None:
        self._sequence += 1
        heapq.heappush(self._beats, (self._now + self.split.leases.heartbeat_ns, self._sequence, prefill))

    def _beat(self, prefill: ServingReplica) -> None:
        """Living decode pods renew their leases on a prefill pod's blocks; what the dead held is released in time."""
        source = self._sources.get(prefill)
        if source is None or not source:
            self._beating.discard(prefill)
            return
        for number in source.transfers:
            decode = self._pairs[number].decode
            if not self._alive(decode):
                continue
            answer = source.receive(number, "heartbeat", self._now)
            destination = self._destinations.get(decode)
            if destination is not None and number in destination:
                self._do(PREFILL, answer)
        self._do(PREFILL, source.expire(self._now))
        self._next_beat(prefill)

    # ---- pods that fail ----

    def kill(self, replica: ServingReplica, now_ns: int) -> int:
        self.catch_up(now_ns)
        before = self.failed
        on_the_way = self._journeys(replica)
        super().kill(replica, now_ns)
        self._wires.gone(replica)
        if replica.role == PREFILL:
            self._prefill_died(replica, on_the_way)
        else:
            self._destinations.pop(replica, None)
            self._queues.pop(replica, None)
            for number in on_the_way:
                self._fail(number, now_ns)
        return self.failed - before

    def _prefill_died(self, replica: ServingReplica, numbers: Sequence[int]) -> None:
        """Prompts that were being computed are lost with their requests; what was computed is computed again."""
        self._prefill_balancer.gone(replica, self._now)
        self._sources.pop(replica, None)
        for number in numbers:
            pair = self._pairs[number]
            queue = self._queues.get(pair.decode)
            if self.requests.status[number] != PENDING:  # its engine said that it was not done, or nobody wants it
                if self._alive(pair.decode) and not pair.gone:
                    pair.decode.in_flight -= 1
                self._forget(number)
            elif queue is not None and number in queue:
                queue.remove(number)
                self._recompute(number)
            elif (destination := self._destinations.get(pair.decode)) is not None:
                self._do(DECODE, destination.peer_lost(number))
