"""One LLM engine: a replica that serves one model, with the scheduler of vLLM v1.

A step first serves the running requests (one token for each that decodes, a chunk for the one that is still
in prefill), then admits waiting ones first come first served while tokens, sequence slots and KV blocks last
and no request was preempted in this step. A running request that finds no block preempts the last running
one, which loses its blocks, goes back to the head of the queue and later computes its prompt and its
generated tokens again. Source: vllm-project/vllm vllm/v1/core/sched/scheduler.py. Two facts follow and are
used below: requests run and wait in the order of submission, and at most one running request, the last, is
still in prefill.

Steps that only decode are not played one by one: between two events (an arrival that can be admitted, a
finish, an exhausted KV cache, the end of the time asked for) their durations are summed in closed form. The
result is the same to the picosecond; ``macro=False`` plays every step and serves as the oracle in tests.
"""

from __future__ import annotations

from collections.abc import Container
from heapq import heappop, heappush
from typing import Literal, Protocol

import msgspec

from tonnage.inference.kv_cache import KvCache
from tonnage.inference.prefix_cache import PrefixCache
from tonnage.inference.prompts import Path
from tonnage.inference.queue import Queue
from tonnage.inference.requests import End, Finished, Request, Unfinished
from tonnage.inference.timing import PS_PER_NS, BatchTiming, StepTiming, run_ps, shortest_ps, steps_within

__all__ = ["Engine", "EngineConfig", "Finished", "Unfinished"]


_FEW_STEPS = 24  # a run that is not longer is added up without an array
_MANY_STEPS = 4096  # an array is not longer


class EngineConfig(msgspec.Struct, frozen=True):
    """What vLLM's scheduler is configured with. ``kv_blocks`` counts the blocks that requests can use.

    ``policy``: who is admitted first and preempted last: who came first, or who has the lowest priority value and
    then came first (--scheduling-policy). ``reserve_full_prompt``: a request is admitted only when its whole prompt
    finds room, not just its first chunk (scheduler_reserve_full_isl).
    """

    max_num_batched_tokens: int
    max_num_seqs: int
    max_model_len: int
    kv_blocks: int
    block_size: int = 16
    policy: Literal["fcfs", "priority"] = "fcfs"
    reserve_full_prompt: bool = False

    def __post_init__(self) -> None:
        if min(self.max_num_batched_tokens, self.max_num_seqs, self.max_model_len) < 1:
            raise ValueError("an engine needs room for at least one token, one sequence and a context of one")


class Tiers(Protocol):
    """Where KV blocks go that the GPU has no room for (tonnage.inference.tiers)."""

    def load(self, path: Path, have_blocks: int, now_ns: int, most: int | None = None) -> tuple[int, int]:
        """(blocks behind the first ``have_blocks`` of ``path`` worth copying to the GPU, ps that the copy takes).

        At most ``most`` blocks of the path are wanted on the GPU."""

    def stored(self, low: int, high: int, now_ns: int | None = None) -> None:
        """The GPU's cache holds these block numbers."""

    def evicted(self, low: int, high: int, now_ns: int | None = None) -> None:
        """The GPU's cache holds them no more."""


class Batch:
    """What one step computes, as the timings want to know it (tokens)."""

    __slots__ = (
        "cached", "context", "copied_ps", "decoders", "pairs", "prefill_cached", "prefill_tokens", "prefills", "tokens",
    )  # fmt: skip

    def __init__(self, decoders: int, cached: int) -> None:
        self.decoders = self.tokens = decoders
        self.cached = cached
        self.context = self.pairs = cached + decoders
        self.prefills = self.prefill_tokens = self.prefill_cached = 0
        self.copied_ps = 0

    def add(self, computed: int, chunk: int) -> None:
        """A chunk of a prompt of which ``computed`` tokens are in the KV cache."""
        self.tokens += chunk
        self.cached += computed
        self.pairs += chunk * computed + chunk * (chunk + 1) // 2
        self.prefills += 1
        self.prefill_tokens += computed + chunk
        self.prefill_cached += computed


class Engine:
    """A replica. Time moves by ``advance``; what is seen from outside is the state at that time."""

    def __init__(
        self,
        config: EngineConfig,
        timing: StepTiming | BatchTiming,
        now_ns: int = 0,
        *,
        macro: bool = True,
        prefix_caching: bool = False,
        record_events: bool = False,
        tiers: Tiers | None = None,
    ) -> None:
        self.config = config
        self.timing = timing
        self.tiers = tiers
        self.prompt_tokens_total = 0
        self.cached_tokens_total = 0
        self.generation_tokens_total = 0
        self.preemptions_total = 0
        self._macro = macro
        self._by_step = timing if isinstance(timing, StepTiming) else None
        self._by_batch = None if isinstance(timing, StepTiming) else timing
        self._shortest = shortest_ps(timing)
        self._caching = prefix_caching
        self._recording = record_events or tiers is not None
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
        self._steps = 0  # completed
        self._orders = 0
        self._turns = 0  # admissions
        self._now = now_ns * PS_PER_NS  # start of the step in flight, else end of the last one
        self._step_end: int | None = None  # of the step in flight
        self._advanced_ns = now_ns
        self._last_arrival_ns = now_ns
        self._busy_ps = 0
        self._finished: list[Finished] = []
        self._first_tokens: list[tuple[int, int, int]] = []

    def _empty_cache(self) -> KvCache:
        cache = PrefixCache(record=self._recording) if self._caching else None
        return KvCache(self.config.kv_blocks, self.config.block_size, cache)

    # --- what is seen from outside -----

    @property
    def running(self) -> int:
        """Requests that are admitted (vLLM's num_requests_running)."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Requests that are submitted and not admitted, preempted ones included (num_requests_waiting)."""
        return len(self._waiting)

    @property
    def blocks_used(self) -> int:
        """KV blocks held by running requests, for other engines to fetch, or for what other engines will send."""
        return self._blocks.used

    @property
    def blocks_total(self) -> int:
        """KV blocks that requests can use."""
        return self._blocks.total

    @property
    def kv_usage(self) -> float:
        """Share of the KV blocks that is used, 0 to 1."""
        return self._blocks.used / self._blocks.total

    @property
    def busy_ns(self) -> int:
        """Time with a step in flight, up to the time advanced to."""
        flying = 0
        if self._step_end is not None:
            flying = max(0, self._advanced_ns * PS_PER_NS - self._now)
        return (self._busy_ps + flying) // PS_PER_NS

    @property
    def cache(self) -> PrefixCache | None:
        """What the KV cache holds, if content is kept."""
        return self._blocks.cache

    def take_finished(self) -> list[Finished]:
        """The requests that ended since the last call, in the order in which they ended."""
        taken, self._finished = self._finished, []
        return taken

    def take_first_tokens(self) -> list[tuple[int, int, int]]:
        """(request id, arrival ns, first token ns) of requests that began to answer since the last call."""
        taken, self._first_tokens = self._first_tokens, []
        return taken

    # --- requests -----

    def submit(
        self,
        request_id: int,
        arrival_ns: int,
        prompt_tokens: int,
        output_tokens: int,
        priority: int = 0,
        path: Path = (),
        *,
        computed: int = 0,
        hold: bool = False,
    ) -> None:
        """Queue a request that arrives at ``arrival_ns`` and will generate exactly ``output_tokens`` tokens.

        It is refused (``Finished`` in state ``rejected``) if it can never fit the context or the KV cache.
        ``priority`` counts under the priority policy alone; lower goes first. ``path`` says what the prompt's full
        blocks hold, for a cache that shares them. Raises ValueError for an arrival before the time advanced to or
        before an earlier arrival, for an id in use, and for token counts below one.

        For a prefill on one engine and decoding on another: with ``hold`` the blocks of the finished request are kept
        until ``release``; ``computed`` tokens of the prompt, not all of it, were sent here by the other engine.
        """
        if request_id in self._reserved and arrival_ns > self._advanced_ns:
            raise ValueError(f"request {request_id} has blocks here, hence cannot arrive later than now")
        if not 0 <= computed < max(prompt_tokens, 1):
            raise ValueError(f"request {request_id} has {computed} of {prompt_tokens} prompt tokens computed already")
        if arrival_ns < self._advanced_ns or arrival_ns < self._last_arrival_ns:
            raise ValueError(f"request {request_id} arrives at {arrival_ns} ns, in the engine's past")
        if prompt_tokens < 1 or output_tokens < 1:
            raise ValueError(f"request {request_id} has no prompt or no output")
        if request_id in self._requests:
            raise ValueError(f"request {request_id} is already here")
        self._last_arrival_ns = arrival_ns
        request = Request(request_id, self._orders, arrival_ns, prompt_tokens, output_tokens, priority, path)
        request.remote, request.hold = computed, hold
        self._orders += 1
        # The last token is sampled and never cached.
        blocks = self._blocks.blocks(prompt_tokens + output_tokens - 1)
        if prompt_tokens + output_tokens > self.config.max_model_len or blocks > self._blocks.total:
            self._end(request, arrival_ns, "rejected", 0)
            self.unreserve(request_id)
            return
        self._requests[request_id] = request
        if request_id in self._reserved:
            self._waiting.add_ready(request)
        else:
            self._waiting.add(request)

    def reserve(self, request_id: int, tokens: int) -> bool:
        """Take blocks for ``tokens`` tokens that will be sent here; False if too few are free.

        ``submit`` with ``computed`` under the same id uses them, ``unreserve`` gives them back. Raises ValueError for
        an id that has some.
        """
        if request_id in self._reserved:
            raise ValueError(f"request {request_id} has blocks reserved already")
        blocks = self._blocks.blocks(tokens)
        if blocks > self._blocks.free:
            return False
        self._reserved[request_id] = blocks
        self._blocks.used += blocks
        self._blocks.settle()
        return True

    def unreserve(self, request_id: int) -> None:
        """Give back what was reserved for a request; nothing if nothing was."""
        self._blocks.used -= self._reserved.pop(request_id, 0)

    def release(self, request_id: int) -> None:
        """Free the blocks of a finished request that was to hold them. Raises KeyError for one that holds none."""
        request, tokens = self._held.pop(request_id)
        self._blocks.give_back(request, tokens, tokens)

    def abort(self, request_id: int) -> None:
        """End a request now; its token in flight is lost. Raises KeyError for an unknown id."""
        request = self._requests.pop(request_id)
        generated = request.output_tokens - request.remaining(self._steps)
        if request.order in self._running:
            del self._running[request.order]
            self._drop(request)
        else:
            self._waiting.remove(request)
        self.unreserve(request_id)
        self._end(request, max(self._advanced_ns, request.arrival_ns), "aborted", generated)

    def drain_all(self) -> list[Unfinished]:
        """The replica dies at the time advanced to: every request it held, in order of submission."""
        left = [
            Unfinished(
                request.request_id,
                request.arrival_ns,
                request.prompt_tokens,
                request.output_tokens,
                request.output_tokens - request.remaining(self._steps),
            )
            for request in (*self._running.values(), *self._waiting)
        ]
        self._busy_ps = self.busy_ns * PS_PER_NS
        self._blocks = self._empty_cache()
        self._requests.clear()
        self._held.clear()
        self._reserved.clear()
        self._waiting.clear()
        self._running.clear()
        self._finishing.clear()
        self._chunks.clear()
        self._prefilling = None
        self._cached = 0
        self._step_end = None
        self._now = self._advanced_ns * PS_PER_NS
        return left

    # --- time -----

    def advance(self, until_ns: int) -> None:
        """Start every step that starts before ``until_ns`` and take the results of all that end by then."""
        self._advanced_ns = max(self._advanced_ns, until_ns)
        until = until_ns * PS_PER_NS
        while True:
            if self._step_end is not None:
                if self._step_end > until:
                    return
                self._complete_step(self._step_end)
            if self._macro and self._run_decodes(until):
                continue
            if not self._start_step(until):
                return

    def next_change_ns(self) -> int | None:
        """The earliest time at which a request can get its first token or finish if nothing else arrives.

        Exact while all running requests decode and none waits; else a lower bound, yet always so late that
        advancing to it makes progress. None when there is no request.
        """
        step, cached, now = self._steps, self._cached, self._now
        first_finish = self._next_finish()
        if self._step_end is not None:
            if self._chunks or first_finish == step + 1:
                return -(-self._step_end // PS_PER_NS)
            step, cached, now = step + 1, cached + self._blocks.decoders, self._step_end
        shortest = self._shortest
        if self._prefilling is not None:
            return -(-(now + shortest) // PS_PER_NS)
        changes = []
        if first_finish is not None:
            first, growth = self._decode_pace(cached)
            steps = self._blocks.steps_that_fit(step, first_finish - step)
            preempts = steps < first_finish - step
            changes.append(now + run_ps(first, growth, steps) + shortest * preempts)
        head = self._waiting.head(now // PS_PER_NS)
        if head is not None and not self._blocked(head):
            changes.append(max(now, head.arrival_ns * PS_PER_NS) + shortest)
        if (overtaker := self._waiting.next_arrival_ns()) is not None:
            changes.append(max(now, overtaker * PS_PER_NS) + shortest)
        return -(-min(changes) // PS_PER_NS) if changes else None

    def _decode_pace(self, cached: int) -> tuple[int, int]:
        """Duration of the next step if it only decodes, and by how much each later one grows (ps)."""
        decoders = self._blocks.decoders
        if self._by_step is not None:
            first = self._by_step.step_ps(decoders, cached, cached + decoders)
            return first, self._by_step.decode_token_ps * decoders
        assert self._by_batch is not None
        return self._by_batch.decode_ps(decoders, cached + decoders), 0  # a later one is not shorter

    def _next_finish(self) -> int | None:
        """The step whose end finishes a decoding request first."""
        heap = self._finishing
        while heap and heap[0][2].finish_step != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def _blocked(self, request: Request) -> bool:
        """Whether the head of the queue must wait until a running request ends or is preempted."""
        room = self.config.max_num_batched_tokens - self._blocks.decoders
        if room <= 0 or len(self._running) >= self.config.max_num_seqs:
            return True
        hit, idle = self._blocks.find(request)
        reserved = self._reserved.get(request.request_id, 0)
        return not self._blocks.fits(self._first_hold(request, hit, room), hit, idle, reserved)

    def _first_hold(self, request: Request, hit: int, budget: int) -> int:
        """Tokens that must find room for a request to be admitted."""
        if self.config.reserve_full_prompt:
            return request.target
        return min(request.target, max(hit * self.config.block_size, request.remote) + budget)

    def _run_decodes(self, until: int) -> bool:
        """Play the decode-only steps that end by ``until``, up to the next event. False if there are none."""
        finish = self._next_finish()
        if finish is None or self._prefilling is not None:
            return False
        arrivals = []
        head = self._waiting.head(self._now // PS_PER_NS)
        if head is not None and not self._blocked(head):
            arrivals.append(head.arrival_ns)
        if (overtaker := self._waiting.next_arrival_ns()) is not None:
            arrivals.append(overtaker)
        gap = min(arrivals) * PS_PER_NS - self._now if arrivals else None
        if gap is not None and gap <= 0:
            return False
        steps = self._blocks.steps_that_fit(self._steps, finish - self._steps)
        steps, duration = self._decode_run(steps, until - self._now, gap)
        if steps == 0:
            return False
        self._blocks.take_due(self._steps, steps)
        self._blocks.settle()
        self._pass_steps(duration, steps)
        self._finish_due()
        return True

    def _decode_run(self, steps: int, limit: int, gap: int | None) -> tuple[int, int]:
        """How many of ``steps`` decode steps end within ``limit`` ps and start before ``gap``, and how long they take."""
        if self._by_step is not None:
            first, growth = self._decode_pace(self._cached)
            steps = min(steps, steps_within(first, growth, limit))
            if gap is not None:  # the step in flight when it arrives is the last
                steps = min(steps, steps_within(first, growth, gap - 1) + 1)
            return steps, run_ps(first, growth, steps)
        assert self._by_batch is not None
        decoders, context = self._blocks.decoders, self._cached
        total = taken = 0
        while taken < steps:
            context += decoders
            if steps - taken > _FEW_STEPS:
                ahead = min(steps - taken, _MANY_STEPS)
                ends = self._by_batch.decode_run_ps(decoders, context, ahead)
                fit = int(ends.searchsorted(limit - total, "right"))
                if gap is not None:
                    fit = min(fit, int(ends.searchsorted(gap - total)) + 1)
                if fit:
                    total += int(ends[fit - 1])
                taken += fit
                context += decoders * (fit - 1)
                if fit < ahead:
                    break
            else:
                longer = total + self._by_batch.decode_ps(decoders, context)
                if longer > limit:
                    break
                total = longer
                taken += 1
            if gap is not None and total >= gap:
                break
        return taken, total

    def _pass_steps(self, duration: int, steps: int) -> None:
        tokens = steps * self._blocks.decoders
        self._now += duration
        self._busy_ps += duration
        self._steps += steps
        self._cached += tokens
        self.generation_tokens_total += tokens

    # --- one step -----

    def _start_step(self, until: int) -> bool:
        """Schedule the next step if it starts before ``until``."""
        start = self._now
        if not self._running:
            head = self._waiting.head(start // PS_PER_NS)
            if head is None:
                return False
            start = max(start, head.arrival_ns * PS_PER_NS)
        if start >= until:
            return False
        self._now = start
        if self._blocks.cache is not None:
            self._blocks.cache.now_ps = start
        preempted = self._reserve_decodes()
        resumed = self._prefilling
        chunk = self.config.max_num_batched_tokens - self._blocks.decoders  # not raised by who is preempted for it
        while resumed is not None:
            chunk = min(chunk, resumed.target - resumed.computed)
            if self._blocks.extend(resumed.computed, chunk):
                self._blocks.settle()
                break
            preempted = True
            if self._preempt_last(given=None) is resumed:
                resumed = None
        decoders = self._blocks.decoders
        batch = Batch(decoders, self._cached)
        budget = self.config.max_num_batched_tokens - decoders
        if resumed is not None:
            self._take_chunk(resumed, chunk, batch)
            budget -= chunk
        while budget > 0 and not preempted and self._waiting:
            chunk = self._admit(budget, start, batch)
            if chunk == 0:
                break
            budget -= chunk
        self._tell_tiers()
        self._step_end = start + batch.copied_ps + self._duration(batch)
        return True

    def _duration(self, batch: Batch) -> int:
        if self._by_step is not None:
            return self._by_step.step_ps(batch.tokens, batch.cached, batch.pairs)
        assert self._by_batch is not None
        prefill = self._by_batch.prefill_ps(batch.prefills, batch.prefill_tokens, batch.prefill_cached)
        return prefill + self._by_batch.decode_ps(batch.decoders, batch.context)

    def _admit(self, budget: int, start: int, batch: Batch) -> int:
        """Admit the head of the queue; the size of its first chunk, 0 if it must wait."""
        request = self._waiting.head(start // PS_PER_NS)
        if request is None or len(self._running) >= self.config.max_num_seqs:
            return 0
        if request.arrival_ns * PS_PER_NS > start:
            return 0
        blocks = self._blocks
        hit, idle = blocks.find(request)
        if not blocks.fits(
            self._first_hold(request, hit, budget), hit, idle, self._reserved.get(request.request_id, 0)
        ):
            return 0
        found = hit * blocks.block_size
        extra, copy_ps = self._from_tiers(request, hit, start) if request.remote <= found else (0, 0)
        if extra and not blocks.fits(
            self._first_hold(request, hit + extra, budget), hit, idle, self._reserved.get(request.request_id, 0)
        ):
            return 0
        batch.copied_ps += copy_ps
        self.unreserve(request.request_id)
        reused = found + extra * blocks.block_size
        computed, request.remote = max(reused, request.remote), 0
        chunk = min(budget, request.target - computed)
        blocks.admit(request, hit, idle, computed + chunk)
        request.computed = computed
        self._waiting.pop()
        self._running[request.order] = request
        self._turns += 1
        request.turn = self._turns
        if request.admitted_ns is None:
            request.admitted_ns = -(-start // PS_PER_NS)
            request.reused = min(reused, request.prompt_tokens)
            self.cached_tokens_total += request.reused
        self._take_chunk(request, chunk, batch)
        return chunk

    def _from_tiers(self, request: Request, hit: int, start: int) -> tuple[int, int]:
        """(blocks behind those found here that a lower tier gives, ps of the copy, which this step waits for)."""
        if self.tiers is None or self._blocks.cache is None or not request.path:
            return 0, 0
        self._tell_tiers()
        most = (request.target - 1) // self._blocks.block_size
        return self.tiers.load(request.path, hit, start // PS_PER_NS, most)

    def _tell_tiers(self) -> None:
        """Pass on what was cached and evicted, in order."""
        if self.tiers is None or self._blocks.cache is None:
            return
        for stored, low, high, at_ps in self._blocks.cache.take_events():
            if stored:
                self.tiers.stored(low, high, at_ps // PS_PER_NS)
            else:
                self.tiers.evicted(low, high, at_ps // PS_PER_NS)

    def _take_chunk(self, request: Request, chunk: int, batch: Batch) -> None:
        batch.add(request.computed, chunk)
        request.computed += chunk
        self._blocks.commit(request)
        self._chunks.append(request)
        self._prefilling = request if request.computed < request.target else None

    def _reserve_decodes(self) -> bool:
        """Take the block each decoding request needs for its next token. True if that preempted a request."""
        blocks = self._blocks
        due = blocks.due(self._steps)
        if due <= blocks.free:
            blocks.used += due
            blocks.settle()
            return False
        size, step = blocks.block_size, self._steps
        given: set[int] = set()
        for request in list(self._running.values()):
            if request.order not in self._running or request.finish_step < 0 or request.cached(step) % size:
                continue
            while blocks.free == 0 and self._preempt_last(given) is not request:
                pass
            if request.order in self._running:
                blocks.used += 1
                given.add(request.order)
        blocks.settle()
        return True

    def _preempt_last(self, given: Container[int] | None) -> Request:
        """Move a running request to the queue: the last, or under the priority policy the least important.

        ``given``: the orders of those that already have room for their next token; None if all have that decode.
        """
        if self.config.policy == "priority":
            request = max(self._running.values(), key=lambda one: (one.priority, one.order))
            del self._running[request.order]
        else:
            _, request = self._running.popitem()
        generated = request.output_tokens - request.remaining(self._steps)
        computed = request.cached(self._steps)
        decoding = request.finish_step >= 0
        self._forget(request, computed + (decoding if given is None else request.order in given), computed)
        request.generated = generated
        request.target = request.prompt_tokens + generated
        request.preemptions += 1
        self.preemptions_total += 1
        self._waiting.put_back(request)
        return request

    def _drop(self, request: Request) -> None:
        """Free an aborted request. In flight, a decoding one also holds the slot of its next token."""
        held = computed = request.cached(self._steps)
        if request.finish_step >= 0 and self._step_end is not None:
            held += 1
        if request in self._chunks:
            self._chunks.remove(request)
        self._forget(request, held, computed)

    def _forget(self, request: Request, held: int, computed: int) -> None:
        """Free the blocks of ``held`` tokens, of which ``computed`` are computed, and every trace of progress."""
        self._stop(request)
        self._blocks.give_back(request, held, computed)
        request.computed = 0

    def _stop(self, request: Request) -> None:
        """A running request computes no more; it keeps its blocks."""
        if request.finish_step >= 0:
            cached = request.cached(self._steps)
            self._blocks.remove_decoder(cached, self._steps)
            self._cached -= cached
            request.finish_step = -1
        elif self._prefilling is request:
            self._prefilling = None

    def _complete_step(self, end: int) -> None:
        self._step_end = None
        self._pass_steps(end - self._now, 1)
        for request in self._chunks:
            if request.computed == request.target:
                self._first_decode(request)
        self._chunks.clear()
        self._finish_due()

    def _first_decode(self, request: Request) -> None:
        """A prefill is complete: it gave a token, and from the next step on the request decodes."""
        self.generation_tokens_total += 1
        if request.first_token_ns is None:
            request.first_token_ns = -(-self._now // PS_PER_NS)
            self.prompt_tokens_total += request.prompt_tokens
            self._first_tokens.append((request.request_id, request.arrival_ns, request.first_token_ns))
        request.finish_step = self._steps + request.output_tokens - request.generated - 1
        self._blocks.add_decoder(request.computed, self._steps)
        self._cached += request.computed
        heappush(self._finishing, (request.finish_step, request.turn, request))

    def _finish_due(self) -> None:
        while self._next_finish() == self._steps:
            _, _, request = heappop(self._finishing)
            del self._running[request.order]
            del self._requests[request.request_id]
            computed = request.cached(self._steps)
            if request.hold:
                self._stop(request)
                self._held[request.request_id] = (request, computed)
            else:
                self._forget(request, computed, computed)
            self._end(request, -(-self._now // PS_PER_NS), "finished", request.output_tokens)

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
