"""One step of an engine: who takes part, which KV blocks they get, what has happened when it ends.

A step first serves the running requests (one token for each that decodes, a chunk for the one that is still
in prefill), then admits waiting ones first come first served while tokens, sequence slots and KV blocks last
and no request was preempted in this step. A running request that finds no block preempts the last running
one, which loses its blocks, goes back to the head of the queue and later computes its prompt and its
generated tokens again. Source: vllm-project/vllm vllm/v1/core/sched/scheduler.py. Two facts follow and are
used: requests run and wait in the order of submission, and at most one running request, the last, is still in
prefill.
"""

from __future__ import annotations

from collections.abc import Container

from tonnage.inference.engine.config import EngineConfig, OffloadTiers
from tonnage.inference.engine.decoding import Decoding
from tonnage.inference.engine.hybrid_cache import HybridCache
from tonnage.inference.engine.kv_cache import KvCache
from tonnage.inference.engine.prefix_cache import PrefixCache
from tonnage.inference.engine.queue import WaitingQueue
from tonnage.inference.engine.requests import End, Finished, Request, Unfinished
from tonnage.inference.timing import PS_PER_NS, TICKS_PER_NS, TICKS_PER_PS


class EngineScheduler:
    """Who takes part in the steps of an engine, and which blocks they hold. How long a step takes it does not know: it
    is told when one starts and ends, in ticks. ``window``: tokens that window layers of the model see, 0 without such
    layers. What the other arguments mean says :class:`~tonnage.inference.engine.Engine`.

    ``running`` is by order of submission and in order of admission. ``held``: finished requests with the tokens in
    their blocks, for other engines to fetch; ``reserved``: blocks taken for requests that another engine prefills.
    ``chunks``: of the step in flight; ``decodes``: whether the decoding requests take part in it; ``copied_ps``: what
    it waits for blocks from a lower tier. ``takes_parts_alike``: whether a step that computes a part of one prompt
    needs no more than parts.py does.
    """

    def __init__(
        self,
        config: EngineConfig,
        window: int,
        *,
        prefix_caching: bool,
        record_events: bool,
        tiers: OffloadTiers | None,
    ) -> None:
        self.prompt_tokens_total = 0
        self.cached_tokens_total = 0
        self.generation_tokens_total = 0
        self.preemptions_total = 0
        self.requests: dict[int, Request] = {}
        self.held: dict[int, tuple[Request, int]] = {}
        self.reserved: dict[int, int] = {}
        self.waiting = WaitingQueue(by_priority=config.policy == "priority")
        self.running: dict[int, Request] = {}
        self.prefilling: Request | None = None
        self.chunks: list[Request] = []
        self.decodes = True
        self.copied_ps = 0
        self.finished: list[Finished] = []
        self.first_tokens: list[tuple[int, int, int]] = []
        self._config = config
        self._tiers = tiers
        self._caching = prefix_caching
        self._recording = record_events or tiers is not None
        self.budget = config.max_num_batched_tokens
        self.takes_parts_alike = config.mixed_steps and config.layout is None and not (window or self._recording)
        self._whole_prompts = config.reserve_full_prompt
        self._most_running = config.max_num_seqs
        self._mixed = config.mixed_steps
        self._turns = 0  # admissions
        self._sliding: HybridCache | None = None
        self.blocks = self._empty_cache()
        self.decoding = Decoding(self.blocks, window)

    def _empty_cache(self) -> KvCache:
        config = self._config
        cache = PrefixCache(record=self._recording, news=self._tiers is not None) if self._caching else None
        blocks, to_the_end = config.kv_blocks, config.reserve_output
        if config.layout is None:
            return KvCache(blocks, config.block_size, cache, to_the_end=to_the_end)
        self._sliding = HybridCache(blocks, config.layout, cache, self.budget, to_the_end=to_the_end)
        return self._sliding

    @property
    def slides(self) -> bool:
        """Whether decoding sequences free blocks as their windows pass them."""
        return self._sliding is not None

    # --- a step begins -----

    def schedule(self, start: int) -> bool:
        """Choose what the step that starts now computes. False if there is nothing to compute in it: blocks held for
        other engines leave no room for anybody, until they are released."""
        cache = self.blocks.cache
        if cache is not None and not cache.silent:
            cache.now_ps = start // TICKS_PER_PS
        self.copied_ps = 0
        schedule = self._schedule if self._mixed else self._schedule_one_kind
        schedule(start)
        if self.chunks or (self.decodes and self.blocks.decoders):
            return True
        schedule(start)  # who was preempted for others may be admitted again
        return bool(self.chunks) or (self.decodes and self.blocks.decoders > 0)

    def _schedule(self, start: int) -> None:
        """Who decodes, and prompts with what is left of the budget."""
        blocks = self.blocks
        preemptions = self.preemptions_total
        if blocks.decoders:
            self._reserve_decodes()
        budget = self.budget - blocks.decoders
        if self.prefilling is not None:
            budget -= self._extend(self.prefilling, budget, given=None)
        if budget > 0 and self.preemptions_total == preemptions:
            self._admit(budget, start)

    def _schedule_one_kind(self, start: int) -> None:
        """Prompts alone if there are any to compute, else who decodes."""
        preemptions = self.preemptions_total
        budget = self.budget
        if self.prefilling is not None:
            budget -= self._extend(self.prefilling, budget, given=())
        if self.preemptions_total == preemptions:
            self._admit(budget, start)
        self.decodes = not self.chunks
        if self.decodes:
            self._reserve_decodes()

    def _reserve_decodes(self) -> None:
        """Take the blocks that the decoding requests need for their next tokens, if need be from others."""
        blocks, step = self.blocks, self.decoding.steps
        due = blocks.due(step)
        if due <= blocks.total - blocks.used:
            blocks.used += due
            if due and self.prefilling is None:  # else who is in prefill takes more at once
                blocks.settle()
            return
        given: set[int] = set()
        for request in list(self.running.values()):
            if request.order not in self.running or request.finish_step < 0:
                continue
            need = blocks.due_of(request.cached(step))
            if not need:
                continue
            while blocks.free < need and self._preempt_last(given) is not request:
                pass
            if request.order in self.running:
                blocks.used += need
                given.add(request.order)
        blocks.settle()

    def _extend(self, request: Request, budget: int, given: Container[int] | None) -> int:
        """Compute the next chunk of the request in prefill; its size, or 0 if the request itself was preempted.

        The budget is not raised by who is preempted for it.
        """
        blocks, chunk = self.blocks, request.target - request.computed
        if chunk > budget:  # noqa: PLR1730 (twice as fast as min)
            chunk = budget
        while not blocks.extend(request.computed, chunk):
            if self._preempt_last(given) is request:
                return 0
        blocks.settle()
        self._take_chunk(request, chunk)
        return chunk

    def _admit(self, budget: int, start: int) -> None:
        """Admit from the queue what has arrived, while it finds tokens, a slot and blocks."""
        blocks, running, waiting, size = self.blocks, self.running, self.waiting, self.blocks.block_size
        now_ns = start // TICKS_PER_NS
        while budget > 0 and len(running) < self._most_running:
            request = waiting.head(now_ns)
            if request is None or request.arrival_ns > now_ns:
                return
            hit, idle = blocks.find(request)
            reused = hit * size
            computed = max(reused, request.remote)
            reserved = self.reserved.get(request.request_id, 0) if self.reserved else 0
            if not blocks.fits(request, computed, self._first_hold(request, computed, budget), hit, idle, reserved):
                return
            if self._tiers is not None and request.remote <= reused:
                extra, copy_ps = self._from_tiers(request, hit, start)
                if extra:
                    reused = computed = reused + extra * size
                    tokens = self._first_hold(request, computed, budget)
                    if not blocks.fits(request, computed, tokens, hit, idle, reserved):
                        return
                self.copied_ps += copy_ps
            if reserved:
                self.unreserve(request.request_id)
            request.remote = 0
            chunk = request.target - computed
            if chunk > budget:  # noqa: PLR1730 (as above)
                chunk = budget
            blocks.admit(request, computed, computed + chunk, hit, idle)
            request.computed = computed
            waiting.pop()
            running[request.order] = request
            self._turns += 1
            request.turn = self._turns
            if request.admitted_ns is None:
                request.admitted_ns = -(-start // TICKS_PER_NS)
                if reused:
                    request.reused = reused = min(reused, request.prompt_tokens)
                    self.cached_tokens_total += reused
            self._take_chunk(request, chunk)
            budget -= chunk

    def _first_hold(self, request: Request, computed: int, budget: int) -> int:
        """Tokens that must find room for a request to be admitted."""
        tokens = computed + budget
        return request.target if self._whole_prompts or tokens > request.target else tokens

    def _take_chunk(self, request: Request, chunk: int) -> None:
        request.passed = passed = request.computed
        request.computed = computed = passed + chunk
        self.blocks.commit(request)
        self.chunks.append(request)
        self.prefilling = request if computed < request.target else None

    def unreserve(self, request_id: int) -> None:
        self.blocks.unreserve(self.reserved.pop(request_id))

    def _from_tiers(self, request: Request, hit: int, start: int) -> tuple[int, int]:
        """(blocks behind those found here that a lower tier gives, ps of the copy, which this step waits for)."""
        if self._tiers is None or self.blocks.cache is None or not request.path:
            return 0, 0
        self.tell_tiers()
        most = (request.target - 1) // self.blocks.block_size
        return self._tiers.load(request.path, hit, start // TICKS_PER_NS, most)

    def tell_tiers(self) -> None:
        """Pass on what was cached and evicted, in order."""
        if self._tiers is None or self.blocks.cache is None:
            return
        for stored, low, high, at_ps in self.blocks.cache.take_news():
            if stored:
                self._tiers.stored(low, high, at_ps // PS_PER_NS)
            else:
                self._tiers.evicted(low, high, at_ps // PS_PER_NS)

    # --- what comes next -----

    def blocked(self, request: Request) -> bool:
        """Whether the head of the queue must wait until a running request frees blocks."""
        room = self.budget - self.blocks.decoders if self._mixed else self.budget
        if room <= 0 or len(self.running) >= self._most_running:
            return True
        hit, idle = self.blocks.find(request)
        computed = max(hit * self._config.block_size, request.remote)
        reserved = self.reserved.get(request.request_id, 0)
        return not self.blocks.fits(request, computed, self._first_hold(request, computed, room), hit, idle, reserved)

    def steps_ahead(self, step: int, finish: int, blocked: Request | None) -> int:
        """Decode steps from ``step`` on that find their blocks, to ``finish`` at most.

        ``blocked``: the head of the queue, if blocked. Only windows free blocks for it while nobody ends.
        """
        sliding = self._sliding
        if sliding is None or blocked is None:
            return self.blocks.steps_that_fit(step, finish - step)
        room = self.budget - sliding.decoders if self._mixed else self.budget
        wanted = None
        if room > 0 and len(self.running) < self._most_running:
            hit, idle = sliding.find(blocked)
            computed = max(hit * sliding.block_size, blocked.remote)
            wanted = sliding.least_free(computed, self._first_hold(blocked, computed, room), hit, idle)
            if wanted is not None:
                wanted -= self.reserved.get(blocked.request_id, 0)
        return sliding.steps_that_fit(step, finish - step, wanted)

    # --- who stops -----

    def _preempt_last(self, given: Container[int] | None) -> Request:
        """Move a running request to the queue: the last, or under the priority policy the least important.

        ``given``: the orders of those that already have room for their next token; None if all have that decode.
        """
        self.blocks.settle()  # what was taken before is not taken from what this one leaves
        if self._config.policy == "priority":
            request = max(self.running.values(), key=lambda one: (one.priority, one.order))
            del self.running[request.order]
        else:
            _, request = self.running.popitem()
        generated = request.output_tokens - request.remaining(self.decoding.steps)
        held = request.cached(self.decoding.steps)
        if request.finish_step >= 0 and (given is None or request.order in given):
            held += 1
        self._stop(request)
        self.blocks.give_back(request, held, comes_back=True)
        request.computed = 0
        request.generated = generated
        request.target = request.prompt_tokens + generated
        request.preemptions += 1
        self.preemptions_total += 1
        self.waiting.put_back(request)
        return request

    def abort(self, request: Request, at_ns: int, *, in_flight: bool) -> None:
        """End a request that has not finished; its token of the step in flight, if there is one, is lost."""
        del self.requests[request.request_id]
        generated = request.output_tokens - request.remaining(self.decoding.steps)
        if request.order in self.running:
            del self.running[request.order]
            held = request.cached(self.decoding.steps)
            if request.finish_step >= 0 and in_flight and self.decodes:
                held += 1  # the slot of its next token
            if request in self.chunks:
                self.chunks.remove(request)
            self._stop(request)
            self.blocks.give_back(request, held)
        else:
            self.waiting.remove(request)
        self.end(request, at_ns, "aborted", generated)

    def drain(self) -> list[Unfinished]:
        """Every request that has not finished, in order of submission; none is left, and no content."""
        steps = self.decoding.steps
        held = sorted((*self.running.values(), *self.waiting), key=lambda one: one.order)
        left = [request.unfinished(steps) for request in held]
        self.blocks = self._empty_cache()
        self.decoding.clear(self.blocks)
        for kept in (self.requests, self.held, self.reserved, self.waiting, self.running, self.chunks):
            kept.clear()
        self.prefilling = None
        self.decodes = True
        return left

    def _stop(self, request: Request) -> None:
        """A running request computes no more; it keeps its blocks."""
        if request.finish_step >= 0:
            self.decoding.remove(request)
        elif self.prefilling is request:
            self.prefilling = None

    # --- a step ends -----

    def complete(self, now: int) -> None:
        """The step in flight ends."""
        sliding, decoding = self._sliding, self.decoding
        if self.decodes:
            if sliding is not None:
                sliding.end_step(decoding.steps)
            self.generation_tokens_total += decoding.pass_steps(1)
        else:
            self.decodes = True
        chunks = self.chunks
        if sliding is not None:
            for request in chunks:
                sliding.slide(request)
        if chunks and (self.prefilling is None or len(chunks) > 1):
            self._first_decodes(now)
        chunks.clear()
        if decoding.finishing and decoding.finishing[0][0] <= decoding.steps:
            self._finish_due(now)

    def complete_decodes(self, steps: int, now: int) -> None:
        """The last of ``steps`` steps ends in which nobody's prefill came to its end; they have taken their blocks."""
        decoding = self.decoding
        self.generation_tokens_total += decoding.pass_steps(steps)
        if decoding.finishing and decoding.finishing[0][0] <= decoding.steps:
            self._finish_due(now)

    def _first_decodes(self, now: int) -> None:
        """Prefills are complete: each gave a token, and from the next step on its request decodes."""
        at_ns, decoding = -(-now // TICKS_PER_NS), self.decoding
        for request in self.chunks:
            if request.computed != request.target:
                continue
            self.generation_tokens_total += 1
            if request.first_token_ns is None:
                request.first_token_ns = at_ns
                self.prompt_tokens_total += request.prompt_tokens
                self.first_tokens.append((request.request_id, request.arrival_ns, at_ns))
            decoding.add(request)

    def _finish_due(self, now: int) -> None:
        """End the requests that have all their tokens."""
        decoding, at_ns = self.decoding, -(-now // TICKS_PER_NS)
        while (request := decoding.pop_finished()) is not None:
            del self.running[request.order]
            del self.requests[request.request_id]
            computed = decoding.remove(request)
            if request.hold:
                self.held[request.request_id] = request, computed
            else:
                self.blocks.give_back(request, computed)
            self.end(request, at_ns, "finished", request.output_tokens)

    def end(self, request: Request, at_ns: int, state: End, generated: int) -> None:
        """Tell how a request ended."""
        self.finished.append(
            Finished(
                request.request_id,
                request.arrival_ns,
                request.admitted_ns,
                request.first_token_ns,
                at_ns,
                request.prompt_tokens,
                generated,
                request.preemptions,
                state,
                request.reused,
            )
        )
