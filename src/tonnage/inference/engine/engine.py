"""One LLM engine: a replica that serves one model, with the scheduler of vLLM v1 (scheduler.py).

Steps that only decode are not played one by one: between two events (an arrival that can be admitted, a
finish, an exhausted KV cache, the end of the time asked for) their durations are summed in closed form. The
result is the same to the attosecond; ``macro=False`` plays every step and serves as the oracle in tests.
"""

from __future__ import annotations

from fractions import Fraction

from tonnage.inference.engine import parts
from tonnage.inference.engine.config import EngineConfig, OffloadTiers
from tonnage.inference.engine.prefix_cache import PrefixCache
from tonnage.inference.engine.requests import Finished, Request, Unfinished
from tonnage.inference.engine.scheduler import EngineScheduler
from tonnage.inference.engine.step_times import NO_WINDOWS, StepTimes
from tonnage.inference.engine.stretched import stretched
from tonnage.inference.prompts import Path
from tonnage.inference.timing import TICKS_PER_NS, TICKS_PER_PS, BatchTiming, StepTiming


class Engine:
    """A replica. Time moves by ``advance``; what is seen from outside is the state at that time. Who takes part in a
    step its :class:`~tonnage.inference.engine.scheduler.EngineScheduler` says; when steps start and end is said here.

    ``prefix_caching`` keeps what prompts leave in the KV cache and shares it; ``record_events`` keeps what becomes
    findable and what is evicted, for ``cache.take_events``; ``tiers`` gives and takes what the GPU has no room for, and
    takes these events itself. ``macro=False`` plays every step.
    """

    def __init__(
        self,
        config: EngineConfig,
        timing: StepTiming | BatchTiming,
        now_ns: int = 0,
        *,
        macro: bool = True,
        prefix_caching: bool = False,
        record_events: bool = False,
        tiers: OffloadTiers | None = None,
    ) -> None:
        self.config = config
        self.timing = timing
        self.tiers = tiers
        self._times = StepTimes(timing)
        self._scheduler = EngineScheduler(
            config, self._times.window, prefix_caching=prefix_caching, record_events=record_events, tiers=tiers
        )
        self._macro = macro
        self._orders = 0
        self._now = now_ns * TICKS_PER_NS  # start of the step in flight, else end of the last one
        self._step_end: int | None = None  # of the step in flight
        self._busy = 0
        self._advanced_ns = now_ns
        self._last_arrival_ns = now_ns
        self._stretch = Fraction(1), Fraction(1)  # of decode steps, of steps with prompt tokens
        self._stretched = {self._stretch: self._times}  # step times by factors

    # --- what is seen from outside -----

    @property
    def running(self) -> int:
        """Requests that are admitted (vLLM's num_requests_running)."""
        return len(self._scheduler.running)

    @property
    def waiting(self) -> int:
        """Requests that are submitted and not admitted, preempted ones included (num_requests_waiting)."""
        return len(self._scheduler.waiting)

    @property
    def blocks_used(self) -> int:
        """KV blocks held by running requests, for other engines to fetch, or for what other engines will send."""
        return self._scheduler.blocks.used

    @property
    def blocks_total(self) -> int:
        """KV blocks that requests can use."""
        return self._scheduler.blocks.total

    @property
    def kv_usage(self) -> float:
        """Share of the KV blocks that is used, 0 to 1."""
        return self._scheduler.blocks.used / self._scheduler.blocks.total

    @property
    def prompt_tokens_total(self) -> int:
        """Tokens of the prompts that have been computed, each once (vLLM's prompt_tokens_total)."""
        return self._scheduler.prompt_tokens_total

    @property
    def cached_tokens_total(self) -> int:
        """Tokens of prompts that were found in the KV cache at the first admission (prefix_cache_hits_total)."""
        return self._scheduler.cached_tokens_total

    @property
    def generation_tokens_total(self) -> int:
        """Tokens generated (generation_tokens_total)."""
        return self._scheduler.generation_tokens_total

    @property
    def preemptions_total(self) -> int:
        """How often a running request lost its blocks to another (num_preemptions_total)."""
        return self._scheduler.preemptions_total

    @property
    def busy_ns(self) -> int:
        """Time with a step in flight, up to the time advanced to."""
        flying = 0
        if self._step_end is not None:
            flying = max(0, self._advanced_ns * TICKS_PER_NS - self._now)
        return (self._busy + flying) // TICKS_PER_NS

    @property
    def now_ns(self) -> int:
        """The time advanced to."""
        return self._advanced_ns

    @property
    def has_requests(self) -> bool:
        """Whether it has something to compute, now or when there is room."""
        return bool(self._scheduler.requests)

    @property
    def cache(self) -> PrefixCache | None:
        """What the KV cache holds, if content is kept."""
        return self._scheduler.blocks.cache

    def take_finished(self) -> list[Finished]:
        """The requests that ended since the last call, in the order in which they ended."""
        taken, self._scheduler.finished = self._scheduler.finished, []
        return taken

    def take_first_tokens(self) -> list[tuple[int, int, int]]:
        """(request id, arrival ns, first token ns) of requests that began to answer since the last call."""
        taken, self._scheduler.first_tokens = self._scheduler.first_tokens, []
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
        blocks hold, for a cache that shares them, and may go on with what will be generated. Raises ValueError for an
        arrival before the time advanced to or before an earlier arrival, for an id in use, and for token counts below
        one.

        For a prefill on one engine and decoding on another: with ``hold`` the blocks of the finished request are kept
        until ``release``; ``computed`` tokens of the prompt, not all of it, were sent here by the other engine.
        """
        scheduler = self._scheduler
        ready = request_id in scheduler.reserved
        if ready and arrival_ns > self._advanced_ns:
            raise ValueError(f"request {request_id} has blocks here, hence cannot arrive later than now")
        if computed and not 0 <= computed < prompt_tokens:
            raise ValueError(f"request {request_id} has {computed} of {prompt_tokens} prompt tokens computed already")
        if arrival_ns < self._advanced_ns or arrival_ns < self._last_arrival_ns:
            raise ValueError(f"request {request_id} arrives at {arrival_ns} ns, in the engine's past")
        if prompt_tokens < 1 or output_tokens < 1:
            raise ValueError(f"request {request_id} has no prompt or no output")
        if request_id in scheduler.requests or request_id in scheduler.held:
            raise ValueError(f"request {request_id} is already here")
        self._last_arrival_ns = arrival_ns
        request = Request(request_id, self._orders, arrival_ns, prompt_tokens, output_tokens, priority, path)
        request.remote, request.hold = computed, hold
        self._orders += 1
        blocks = scheduler.blocks
        if request.last >= self.config.max_model_len or blocks.blocks(request.last) > blocks.total:
            scheduler.end(request, arrival_ns, "rejected", 0)
            self.unreserve(request_id)
            return
        scheduler.requests[request_id] = request
        if ready:
            scheduler.waiting.add_ready(request)
        else:
            scheduler.waiting.add(request)

    def reserve(self, request_id: int, tokens: int, to_come: int = 0) -> bool:
        """Take blocks for ``tokens`` tokens that will be sent here; False if too few are free.

        An engine that admits only what it can serve to its end (``reserve_output``) takes blocks for the ``to_come``
        tokens after them too; without them such requests could fill the cache and wait for each other for ever.

        ``submit`` with ``computed`` under the same id uses them, ``unreserve`` gives them back. Raises ValueError for
        an id that has some or is in use, and for less than one token.
        """
        if tokens < 1:
            raise ValueError(f"{tokens} tokens need no blocks")
        scheduler = self._scheduler
        if request_id in scheduler.reserved or request_id in scheduler.held or request_id in scheduler.requests:
            raise ValueError(f"request {request_id} has blocks here already")
        blocks = scheduler.blocks.reserve(tokens + to_come * self.config.reserve_output)
        if blocks is None:
            return False
        scheduler.reserved[request_id] = blocks
        return True

    def unreserve(self, request_id: int) -> None:
        """Give back what was reserved for a request; nothing if nothing was."""
        if request_id in self._scheduler.reserved:
            self._scheduler.unreserve(request_id)
            self._rest_until_now()

    def release(self, request_id: int) -> None:
        """Free the blocks of a finished request that was to hold them. Raises KeyError for one that holds none."""
        request, tokens = self._scheduler.held.pop(request_id)
        self._scheduler.blocks.give_back(request, tokens)
        self._rest_until_now()

    def abort(self, request_id: int) -> None:
        """End a request now; its token in flight is lost. Raises KeyError for an unknown id."""
        request = self._scheduler.requests[request_id]
        at_ns = max(self._advanced_ns, request.arrival_ns)
        self._scheduler.abort(request, at_ns, in_flight=self._step_end is not None)
        self.unreserve(request_id)

    def drain_all(self) -> list[Unfinished]:
        """The replica fails at the time advanced to: every request it held, in order of submission."""
        self._busy = self.busy_ns * TICKS_PER_NS
        self._step_end = None
        self._now = self._advanced_ns * TICKS_PER_NS
        return self._scheduler.drain()

    # --- time -----

    def _rest_until_now(self) -> None:
        """Blocks were released: what has waited for them while no step ran starts now, not when it began to wait."""
        if self._step_end is None:
            self._now = max(self._now, self._advanced_ns * TICKS_PER_NS)

    def advance(self, until_ns: int) -> None:
        """Start every step that starts before ``until_ns`` and take the results of all that end by then."""
        self._advanced_ns = max(self._advanced_ns, until_ns)
        until = until_ns * TICKS_PER_NS
        scheduler, macro = self._scheduler, self._macro
        blocks = scheduler.blocks
        while True:
            end = self._step_end
            if end is not None:
                if end > until:
                    return
                self._step_end = None
                self._busy += end - self._now
                self._now = end
                scheduler.complete(end)
            if macro and scheduler.prefilling is not None:
                began, self._now = self._now, parts.run(scheduler, self._times, self._now, until)
                self._busy += self._now - began
            elif macro and blocks.decoders and self._run_decodes(until):
                continue
            if not self._start_step(until):
                return

    def _start_step(self, until: int) -> bool:
        """Start the next step if it starts before ``until``. False too if there is nothing to compute in it."""
        scheduler, start = self._scheduler, self._now
        if not scheduler.running:
            head = scheduler.waiting.head(start // TICKS_PER_NS)
            if head is None:
                return False
            start = max(start, head.arrival_ns * TICKS_PER_NS)
        if start >= until:
            return False
        self._now = start
        if not scheduler.schedule(start):
            return False
        decoders = cached = seen = 0
        if scheduler.decodes and (decoders := scheduler.blocks.decoders):
            decoding = scheduler.decoding
            cached = decoding.cached
            seen = decoding.windows.tokens if decoding.windows is not None else 0
        copied = scheduler.copied_ps * TICKS_PER_PS
        self._step_end = start + copied + self._times.step(decoders, cached, scheduler.chunks, seen)
        if self.tiers is not None:
            scheduler.tell_tiers()
        return True

    def stretch(self, factor: Fraction, prompts: Fraction | None = None) -> None:
        """From the time advanced to on, steps take ``factor`` times as long as on a GPU alone, steps with prompt tokens
        ``prompts`` times (None: as the others), and so does what is left of the step in flight. Raises ValueError for a
        timing without a closed form, and for ``prompts`` below ``factor``."""
        stretch = factor, factor if prompts is None else prompts
        if stretch == self._stretch:
            return
        if stretch not in self._stretched:
            self._stretched[stretch] = StepTimes(stretched(self.timing, *stretch))
        if self._step_end is not None:
            now = self._advanced_ns * TICKS_PER_NS
            kind = 1 if self._scheduler.chunks else 0
            ratio = stretch[kind] / self._stretch[kind]
            self._step_end = now - (now - self._step_end) * ratio.numerator // ratio.denominator
        self._stretch = stretch
        self._times = self._stretched[stretch]

    def next_change_ns(self) -> int | None:
        """The earliest time at which a request can get its first token or finish if nothing else arrives.

        Exact while all running requests decode, none waits and no window is left; else a lower bound, yet always so
        late that advancing to it makes progress. None when there is no request.
        """
        scheduler, decoding = self._scheduler, self._scheduler.decoding
        step, cached, now, seen = decoding.steps, decoding.cached, self._now, None
        first_finish = decoding.next_finish()
        if self._step_end is not None:
            if scheduler.chunks or (scheduler.decodes and first_finish == step + 1):
                return -(-self._step_end // TICKS_PER_NS)
            now = self._step_end
            if scheduler.decodes:
                if decoding.windows is not None:
                    seen = decoding.windows.after_one(step)
                step, cached = step + 1, cached + scheduler.blocks.decoders
        shortest = self._times.shortest
        if scheduler.prefilling is not None:
            return -(-(now + shortest) // TICKS_PER_NS)
        changes = []
        head = scheduler.waiting.head(now // TICKS_PER_NS)
        blocked = head is not None and scheduler.blocked(head)
        if head is not None and (not blocked or (scheduler.slides and self._step_end is not None)):
            changes.append(max(now, head.arrival_ns * TICKS_PER_NS) + shortest)
        if first_finish is not None:
            steps = scheduler.steps_ahead(step, first_finish, head if blocked else None)
            sooner = steps < first_finish - step  # someone is preempted, or the head of the queue may be admitted
            decoders = scheduler.blocks.decoders
            if decoding.windows is None:
                total = self._times.decodes(decoders, cached, steps)
            else:
                full = decoding.windows.steps(step)
                total = self._times.at_least(decoders, cached, steps, full, seen or decoding.seen())
            changes.append(now + total + shortest * sooner)
        if (overtaker := scheduler.waiting.next_arrival_ns()) is not None:
            changes.append(max(now, overtaker * TICKS_PER_NS) + shortest)
        return -(-min(changes) // TICKS_PER_NS) if changes else None

    def _run_decodes(self, until: int) -> bool:
        """Play the decode-only steps that end by ``until``, up to the next event. False if there are none.

        Some request decodes and none is in prefill.
        """
        scheduler, decoding, now = self._scheduler, self._scheduler.decoding, self._now
        waiting, blocks = scheduler.waiting, scheduler.blocks
        gap: int | None = None
        blocked = None
        head = waiting.head(now // TICKS_PER_NS)
        if head is not None:
            gap = head.arrival_ns * TICKS_PER_NS - now
            if gap <= 0:
                if not scheduler.blocked(head):
                    return False
                gap, blocked = None, head
        if (overtaker := waiting.next_arrival_ns()) is not None:
            later = overtaker * TICKS_PER_NS - now
            gap = later if gap is None else min(gap, later)
        step = decoding.steps
        finish = decoding.next_finish()
        assert finish is not None
        steps = scheduler.steps_ahead(step, finish, blocked)
        seen = NO_WINDOWS
        if decoding.windows is not None:
            full, seen = decoding.windows.steps(step), decoding.seen()
            steps = steps if full is None else min(steps, full)
        steps, duration = self._times.run(blocks.decoders, decoding.cached, steps, until - now, gap, seen)
        if steps == 0:
            return False
        cache = blocks.cache
        if cache is None or cache.silent:
            blocks.take_due(step, steps)
            blocks.settle()
        else:
            self._take_due_in_order(cache, step, steps)
        self._now = now + duration
        self._busy += duration
        scheduler.complete_decodes(steps, self._now)
        return True

    def _take_due_in_order(self, cache: PrefixCache, step: int, steps: int) -> None:
        """Take the blocks of a run of decode steps step by step, so that what is evicted is evicted at its time."""
        blocks, decoding = self._scheduler.blocks, self._scheduler.decoding
        for taken in range(steps):
            at = step + taken
            due = blocks.due(at)
            if due and blocks.evicts(due):
                passed = self._times.after(blocks.decoders, decoding.cached, taken, decoding.seen())
                cache.now_ps = (self._now + passed) // TICKS_PER_PS
            if due or self._scheduler.slides:
                blocks.take_due(at, 1)
                blocks.settle()
