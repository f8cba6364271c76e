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
from heapq import heappop, heappush

from tonnage.inference.engine.config import EngineConfig, Tiers
from tonnage.inference.engine.hybrid_cache import HybridCache
from tonnage.inference.engine.kv_cache import KvCache
from tonnage.inference.engine.prefix_cache import PrefixCache
from tonnage.inference.engine.queue import Queue
from tonnage.inference.engine.requests import End, Finished, Request
from tonnage.inference.engine.step_times import NO_WINDOWS, StepTimes, Windows
from tonnage.inference.engine.window_tokens import WindowTokens
from tonnage.inference.timing import PS_PER_NS, TICKS_PER_NS, TICKS_PER_PS, BatchTiming, StepTiming


class Scheduler:
    """The state of an engine and its next step; times in ticks. ``Engine`` (engine.py) says what arguments mean."""

    def __init__(
        self,
        config: EngineConfig,
        timing: StepTiming | BatchTiming,
        now_ns: int,
        *,
        prefix_caching: bool,
        record_events: bool,
        tiers: Tiers | None,
    ) -> None:
        self.config = config
        self.timing = timing
        self.tiers = tiers
        self.prompt_tokens_total = 0
        self.cached_tokens_total = 0
        self.generation_tokens_total = 0
        self.preemptions_total = 0
        self._times = StepTimes(timing)
        self._windows = WindowTokens(self._times.window) if self._times.window else None
        self._caching = prefix_caching
        self._recording = record_events or tiers is not None
        self._budget = config.max_num_batched_tokens
        self._most_running = config.max_num_seqs
        self._mixed = config.mixed_steps
        self._sliding: HybridCache | None = None
        self._blocks = self._empty_cache()
        self._requests: dict[int, Request] = {}
        self._held: dict[int, tuple[Request, int]] = {}  # finished, with the tokens in its blocks
        self._reserved: dict[int, int] = {}  # blocks taken for requests that another engine prefills
        self._waiting = Queue(by_priority=config.policy == "priority")
        self._running: dict[int, Request] = {}  # by order of submission, in order of admission
        self._prefilling: Request | None = None
        self._finishing: list[tuple[int, int, Request]] = []  # heap of (step, turn); entries may be outdated
        self._cached = 0  # tokens in the KV cache of the decoding requests
        self._chunks: list[Request] = []  # of the step in flight
        self._decoding = True  # whether the decoding requests take part in the step in flight
        self._steps = 0  # completed, in which the decoding requests took part
        self._turns = 0  # admissions
        self._now = now_ns * TICKS_PER_NS  # start of the step in flight, else end of the last one
        self._step_end: int | None = None  # of the step in flight
        self._copied_ps = 0  # that it waits for blocks from a lower tier
        self._busy = 0
        self._finished: list[Finished] = []
        self._first_tokens: list[tuple[int, int, int]] = []

    def _empty_cache(self) -> KvCache:
        config = self.config
        cache = PrefixCache(record=self._recording, news=self.tiers is not None) if self._caching else None
        if config.layout is None:
            return KvCache(config.kv_blocks, config.block_size, cache, to_the_end=config.reserve_output)
        self._sliding = HybridCache(
            config.kv_blocks, config.layout, cache, self._budget, to_the_end=config.reserve_output
        )
        return self._sliding

    # --- a step begins -----

    def _start_step(self, until: int) -> bool:
        """Schedule the next step if it starts before ``until``. False too if there is nothing to compute in it.

        That is so when blocks held for other engines leave no room for anybody, until they are released.
        """
        start = self._now
        if not self._running:
            head = self._waiting.head(start // TICKS_PER_NS)
            if head is None:
                return False
            start = max(start, head.arrival_ns * TICKS_PER_NS)
        if start >= until:
            return False
        self._now = start
        cache = self._blocks.cache
        if cache is not None:
            cache.now_ps = start // TICKS_PER_PS
        self._copied_ps = 0
        schedule = self._schedule if self._mixed else self._schedule_one_kind
        schedule(start)
        if not self._chunks and not self._decodes():
            schedule(start)  # who was preempted for others may be admitted again
            if not self._chunks and not self._decodes():
                return False
        decoders, cached = (self._blocks.decoders, self._cached) if self._decoding else (0, 0)
        seen = self._windows.tokens if self._windows is not None and decoders else 0
        copied = self._copied_ps * TICKS_PER_PS
        self._step_end = start + copied + self._times.step(decoders, cached, self._chunks, seen)
        if self.tiers is not None:
            self._tell_tiers()
        return True

    def _seen(self) -> Windows:
        """What window layers read of the decoding sequences now."""
        return NO_WINDOWS if self._windows is None else (self._windows.tokens, self._windows.growing)

    def _decodes(self) -> bool:
        return self._decoding and self._blocks.decoders > 0

    def _schedule(self, start: int) -> None:
        """Who decodes, and prompts with what is left of the budget."""
        blocks = self._blocks
        preemptions = self.preemptions_total
        if blocks.decoders:
            self._reserve_decodes()
        budget = self._budget - blocks.decoders
        if self._prefilling is not None:
            budget -= self._extend(self._prefilling, budget, given=None)
        if budget > 0 and self.preemptions_total == preemptions:
            self._admit(budget, start)

    def _schedule_one_kind(self, start: int) -> None:
        """Prompts alone if there are any to compute, else who decodes."""
        preemptions = self.preemptions_total
        budget = self._budget
        if self._prefilling is not None:
            budget -= self._extend(self._prefilling, budget, given=())
        if self.preemptions_total == preemptions:
            self._admit(budget, start)
        self._decoding = not self._chunks
        if self._decoding:
            self._reserve_decodes()

    def _reserve_decodes(self) -> None:
        """Take the blocks that the decoding requests need for their next tokens, if need be from others."""
        blocks, step = self._blocks, self._steps
        due = blocks.due(step)
        if due <= blocks.total - blocks.used:
            blocks.used += due
            if due and self._prefilling is None:  # else who is in prefill takes more at once
                blocks.settle()
            return
        given: set[int] = set()
        for request in list(self._running.values()):
            if request.order not in self._running or request.finish_step < 0:
                continue
            need = blocks.due_of(request.cached(step))
            if not need:
                continue
            while blocks.free < need and self._preempt_last(given) is not request:
                pass
            if request.order in self._running:
                blocks.used += need
                given.add(request.order)
        blocks.settle()

    def _extend(self, request: Request, budget: int, given: Container[int] | None) -> int:
        """Compute the next chunk of the request in prefill; its size, or 0 if the request itself was preempted.

        The budget is not raised by who is preempted for it.
        """
        blocks, chunk = self._blocks, request.target - request.computed
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
        blocks, running, size = self._blocks, self._running, self._blocks.block_size
        now_ns = start // TICKS_PER_NS
        while budget > 0 and len(running) < self._most_running:
            request = self._waiting.head(now_ns)
            if request is None or request.arrival_ns > now_ns:
                return
            hit, idle = blocks.find(request)
            computed = max(hit * size, request.remote)
            reserved = self._reserved.get(request.request_id, 0) if self._reserved else 0
            if not blocks.fits(request, computed, self._first_hold(request, computed, budget), hit, idle, reserved):
                return
            reused = hit * size
            if self.tiers is not None and request.remote <= reused:
                extra, copy_ps = self._from_tiers(request, hit, start)
                if extra:
                    reused = computed = reused + extra * size
                    tokens = self._first_hold(request, computed, budget)
                    if not blocks.fits(request, computed, tokens, hit, idle, reserved):
                        return
                self._copied_ps += copy_ps
            if reserved:
                self._unreserve(request.request_id)
            request.remote = 0
            chunk = min(budget, request.target - computed)
            blocks.admit(request, computed, computed + chunk, hit, idle)
            request.computed = computed
            self._waiting.pop()
            running[request.order] = request
            self._turns += 1
            request.turn = self._turns
            if request.admitted_ns is None:
                request.admitted_ns = -(-start // TICKS_PER_NS)
                request.reused = min(reused, request.prompt_tokens)
                self.cached_tokens_total += request.reused
            self._take_chunk(request, chunk)
            budget -= chunk

    def _first_hold(self, request: Request, computed: int, budget: int) -> int:
        """Tokens that must find room for a request to be admitted."""
        tokens = computed + budget
        return request.target if tokens > request.target or self.config.reserve_full_prompt else tokens

    def _take_chunk(self, request: Request, chunk: int) -> None:
        request.passed = request.computed
        request.computed = computed = request.passed + chunk
        self._blocks.commit(request)
        self._chunks.append(request)
        self._prefilling = request if computed < request.target else None

    def _unreserve(self, request_id: int) -> None:
        self._blocks.unreserve(self._reserved.pop(request_id))

    def _from_tiers(self, request: Request, hit: int, start: int) -> tuple[int, int]:
        """(blocks behind those found here that a lower tier gives, ps of the copy, which this step waits for)."""
        if self.tiers is None or self._blocks.cache is None or not request.path:
            return 0, 0
        self._tell_tiers()
        most = (request.target - 1) // self._blocks.block_size
        return self.tiers.load(request.path, hit, start // TICKS_PER_NS, most)

    def _tell_tiers(self) -> None:
        """Pass on what was cached and evicted, in order."""
        if self.tiers is None or self._blocks.cache is None:
            return
        for stored, low, high, at_ps in self._blocks.cache.take_news():
            if stored:
                self.tiers.stored(low, high, at_ps // PS_PER_NS)
            else:
                self.tiers.evicted(low, high, at_ps // PS_PER_NS)

    # --- who stops -----

    def _preempt_last(self, given: Container[int] | None) -> Request:
        """Move a running request to the queue: the last, or under the priority policy the least important.

        ``given``: the orders of those that already have room for their next token; None if all have that decode.
        """
        self._blocks.settle()  # what was taken before is not taken from what this one leaves
        if self.config.policy == "priority":
            request = max(self._running.values(), key=lambda one: (one.priority, one.order))
            del self._running[request.order]
        else:
            _, request = self._running.popitem()
        generated = request.output_tokens - request.remaining(self._steps)
        held = request.cached(self._steps)
        if request.finish_step >= 0 and (given is None or request.order in given):
            held += 1
        self._stop(request)
        self._blocks.give_back(request, held, comes_back=True)
        request.computed = 0
        request.generated = generated
        request.target = request.prompt_tokens + generated
        request.preemptions += 1
        self.preemptions_total += 1
        self._waiting.put_back(request)
        return request

    def _drop(self, request: Request) -> None:
        """Free an aborted request. In a step with decodes, a decoding one also holds the slot of its next token."""
        held = request.cached(self._steps)
        if request.finish_step >= 0 and self._step_end is not None and self._decoding:
            held += 1
        if request in self._chunks:
            self._chunks.remove(request)
        self._stop(request)
        self._blocks.give_back(request, held)

    def _stop(self, request: Request) -> None:
        """A running request computes no more; it keeps its blocks."""
        if request.finish_step >= 0:
            request.passed = cached = request.cached(self._steps)
            self._blocks.remove_decoder(cached, self._steps)
            if self._windows is not None:
                self._windows.remove(cached, self._steps)
            self._cached -= cached
            request.finish_step = -1
        elif self._prefilling is request:
            self._prefilling = None

    # --- a step ends -----

    def _complete_step(self, end: int) -> None:
        self._step_end = None
        sliding = self._sliding
        if self._decoding:
            if sliding is not None:
                sliding.end_step(self._steps)
            decoders = self._blocks.decoders
            if self._windows is not None:
                self._windows.pass_steps(self._steps, 1)
            self._steps += 1
            self._cached += decoders
            self.generation_tokens_total += decoders
        else:
            self._decoding = True
        self._busy += end - self._now
        self._now = end
        for request in self._chunks:
            if sliding is not None:
                sliding.slide(request)
            if request.computed == request.target:
                self._first_decode(request)
        self._chunks.clear()
        if self._finishing and self._finishing[0][0] <= self._steps:
            self._finish_due()

    def _pass_steps(self, duration: int, steps: int) -> None:
        """The decoding requests have got a token in each of ``steps`` steps."""
        self._now += duration
        self._busy += duration
        if self._windows is not None:
            self._windows.pass_steps(self._steps, steps)
        tokens = steps * self._blocks.decoders
        self._steps += steps
        self._cached += tokens
        self.generation_tokens_total += tokens

    def _first_decode(self, request: Request) -> None:
        """A prefill is complete: it gave a token, and from the next step on the request decodes."""
        self.generation_tokens_total += 1
        if request.first_token_ns is None:
            request.first_token_ns = first = -(-self._now // TICKS_PER_NS)
            self.prompt_tokens_total += request.prompt_tokens
            self._first_tokens.append((request.request_id, request.arrival_ns, first))
        request.finish_step = finish = self._steps + request.output_tokens - request.generated - 1
        self._blocks.add_decoder(request.computed, self._steps)
        if self._windows is not None:
            self._windows.add(request.computed, self._steps)
        self._cached += request.computed
        heappush(self._finishing, (finish, request.turn, request))

    def _next_finish(self) -> int | None:
        """The step whose end finishes a decoding request first."""
        heap = self._finishing
        while heap and heap[0][2].finish_step != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def _finish_due(self) -> None:
        """End the requests that have all their tokens."""
        heap, step = self._finishing, self._steps
        while heap and heap[0][0] <= step:
            finish, turn, request = heappop(heap)
            if request.finish_step != finish or request.turn != turn:
                continue
            del self._running[request.order]
            del self._requests[request.request_id]
            computed = request.cached(step)
            self._stop(request)
            if request.hold:
                self._held[request.request_id] = (request, computed)
            else:
                self._blocks.give_back(request, computed)
            self._end(request, -(-self._now // TICKS_PER_NS), "finished", request.output_tokens)

    def _end(self, request: Request, at_ns: int, state: End, generated: int) -> None:
        self._finished.append(
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
