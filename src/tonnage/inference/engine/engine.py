"""One LLM engine: a replica that serves one model, with the scheduler of vLLM v1 (scheduler.py).

Steps that only decode are not played one by one: between two events (an arrival that can be admitted, a
finish, an exhausted KV cache, the end of the time asked for) their durations are summed in closed form. The
result is the same to the attosecond; ``macro=False`` plays every step and serves as the oracle in tests.
"""

from __future__ import annotations

from fractions import Fraction

from tonnage.inference.engine.config import EngineConfig, Tiers
from tonnage.inference.engine.prefix_cache import PrefixCache
from tonnage.inference.engine.requests import Finished, Request, Unfinished
from tonnage.inference.engine.scheduler import Scheduler
from tonnage.inference.engine.step_times import NO_WINDOWS, StepTimes
from tonnage.inference.engine.stretched import stretched
from tonnage.inference.prompts import Path
from tonnage.inference.timing import TICKS_PER_NS, TICKS_PER_PS, BatchTiming, StepTiming

__all__ = ["Engine", "EngineConfig", "Finished", "Tiers", "Unfinished"]


class Engine(Scheduler):
    """A replica. Time moves by ``advance``; what is seen from outside is the state at that time.

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
        tiers: Tiers | None = None,
    ) -> None:
        super().__init__(
            config, timing, now_ns, prefix_caching=prefix_caching, record_events=record_events, tiers=tiers
        )
        self._macro = macro
        self._orders = 0
        self._advanced_ns = now_ns
        self._last_arrival_ns = now_ns
        self._stretch = Fraction(1), Fraction(1)  # of decode steps, of steps with prompt tokens
        self._stretched = {self._stretch: self._times}  # step times by factors

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
            flying = max(0, self._advanced_ns * TICKS_PER_NS - self._now)
        return (self._busy + flying) // TICKS_PER_NS

    @property
    def now_ns(self) -> int:
        """The time advanced to."""
        return self._advanced_ns

    @property
    def has_requests(self) -> bool:
        """Whether it has something to compute, now or when there is room."""
        return bool(self._requests)

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
        blocks hold, for a cache that shares them, and may go on with what will be generated. Raises ValueError for an
        arrival before the time advanced to or before an earlier arrival, for an id in use, and for token counts below
        one.

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
        if request_id in self._requests or request_id in self._held:
            raise ValueError(f"request {request_id} is already here")
        self._last_arrival_ns = arrival_ns
        request = Request(request_id, self._orders, arrival_ns, prompt_tokens, output_tokens, priority, path)
        request.remote, request.hold = computed, hold
        self._orders += 1
        fits = self._blocks.blocks(request.last) <= self._blocks.total
        if prompt_tokens + output_tokens > self.config.max_model_len or not fits:
            self._end(request, arrival_ns, "rejected", 0)
            self.unreserve(request_id)
            return
        self._requests[request_id] = request
        if request_id in self._reserved:
            self._waiting.add_ready(request)
        else:
            self._waiting.add(request)

    def reserve(self, request_id: int, tokens: int, to_come: int = 0) -> bool:
        """Take blocks for ``tokens`` tokens that will be sent here; False if too few are free.

        An engine that admits only what it can serve to its end (``reserve_output``) takes blocks for the ``to_come``
        tokens after them too; without them such requests could fill the cache and wait for each other for ever.

        ``submit`` with ``computed`` under the same id uses them, ``unreserve`` gives them back. Raises ValueError for
        an id that has some or is in use, and for less than one token.
        """
        if tokens < 1:
            raise ValueError(f"{tokens} tokens need no blocks")
        if request_id in self._reserved or request_id in self._held or request_id in self._requests:
            raise ValueError(f"request {request_id} has blocks here already")
        blocks = self._blocks.reserve(tokens + to_come * self.config.reserve_output)
        if blocks is None:
            return False
        self._reserved[request_id] = blocks
        return True

    def unreserve(self, request_id: int) -> None:
        """Give back what was reserved for a request; nothing if nothing was."""
        if request_id in self._reserved:
            self._unreserve(request_id)
            self._rest_until_now()

    def release(self, request_id: int) -> None:
        """Free the blocks of a finished request that was to hold them. Raises KeyError for one that holds none."""
        request, tokens = self._held.pop(request_id)
        self._blocks.give_back(request, tokens)
        self._rest_until_now()

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
            for request in sorted((*self._running.values(), *self._waiting), key=_order)
        ]
        self._busy = self.busy_ns * TICKS_PER_NS
        self._blocks = self._empty_cache()
        self._requests.clear()
        self._held.clear()
        self._reserved.clear()
        self._waiting.clear()
        self._running.clear()
        self._finishing.clear()
        self._chunks.clear()
        self._prefilling = None
        self._decoding = True
        self._cached = 0
        if self._windows is not None:
            self._windows.clear()
        self._step_end = None
        self._now = self._advanced_ns * TICKS_PER_NS
        return left

    # --- time -----

    def _rest_until_now(self) -> None:
        """Blocks were released: what has waited for them while no step ran starts now, not when it began to wait."""
        if self._step_end is None:
            self._now = max(self._now, self._advanced_ns * TICKS_PER_NS)

    def advance(self, until_ns: int) -> None:
        """Start every step that starts before ``until_ns`` and take the results of all that end by then."""
        self._advanced_ns = max(self._advanced_ns, until_ns)
        until = until_ns * TICKS_PER_NS
        blocks, macro = self._blocks, self._macro
        while True:
            if self._step_end is not None:
                if self._step_end > until:
                    return
                self._complete_step(self._step_end)
            if macro and blocks.decoders and self._prefilling is None and self._run_decodes(until):
                continue
            if not self._start_step(until):
                return

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
            kind = 1 if self._chunks else 0
            ratio = stretch[kind] / self._stretch[kind]
            self._step_end = now - (now - self._step_end) * ratio.numerator // ratio.denominator
        self._stretch = stretch
        self._times = self._stretched[stretch]

    def next_change_ns(self) -> int | None:
        """The earliest time at which a request can get its first token or finish if nothing else arrives.

        Exact while all running requests decode, none waits and no window is left; else a lower bound, yet always so
        late that advancing to it makes progress. None when there is no request.
        """
        step, cached, now, seen = self._steps, self._cached, self._now, None
        first_finish = self._next_finish()
        if self._step_end is not None:
            if self._chunks or (self._decoding and first_finish == step + 1):
                return -(-self._step_end // TICKS_PER_NS)
            now = self._step_end
            if self._decoding:
                if self._windows is not None:
                    seen = self._windows.after_one(step)
                step, cached = step + 1, cached + self._blocks.decoders
        shortest = self._times.shortest
        if self._prefilling is not None:
            return -(-(now + shortest) // TICKS_PER_NS)
        changes = []
        head = self._waiting.head(now // TICKS_PER_NS)
        blocked = head is not None and self._blocked(head)
        if head is not None and (not blocked or (self._sliding is not None and self._step_end is not None)):
            changes.append(max(now, head.arrival_ns * TICKS_PER_NS) + shortest)
        if first_finish is not None:
            steps = self._steps_ahead(step, first_finish, head if blocked else None)
            sooner = steps < first_finish - step  # someone is preempted, or the head of the queue may be admitted
            if self._windows is None:
                total = self._times.decodes(self._blocks.decoders, cached, steps)
            else:
                full = self._windows.steps(step)
                total = self._times.at_least(self._blocks.decoders, cached, steps, full, seen or self._seen())
            changes.append(now + total + shortest * sooner)
        if (overtaker := self._waiting.next_arrival_ns()) is not None:
            changes.append(max(now, overtaker * TICKS_PER_NS) + shortest)
        return -(-min(changes) // TICKS_PER_NS) if changes else None

    def _blocked(self, request: Request) -> bool:
        """Whether the head of the queue must wait until a running request frees blocks."""
        room = self._budget - self._blocks.decoders if self._mixed else self._budget
        if room <= 0 or len(self._running) >= self._most_running:
            return True
        hit, idle = self._blocks.find(request)
        computed = max(hit * self.config.block_size, request.remote)
        reserved = self._reserved.get(request.request_id, 0)
        return not self._blocks.fits(request, computed, self._first_hold(request, computed, room), hit, idle, reserved)

    def _steps_ahead(self, step: int, finish: int, blocked: Request | None) -> int:
        """Decode steps from ``step`` on that find their blocks, to ``finish`` at most.

        ``blocked``: the head of the queue, if blocked. Only windows free blocks for it while nobody ends.
        """
        sliding = self._sliding
        if sliding is None or blocked is None:
            return self._blocks.steps_that_fit(step, finish - step)
        room = self._budget - sliding.decoders if self._mixed else self._budget
        wanted = None
        if room > 0 and len(self._running) < self._most_running:
            hit, idle = sliding.find(blocked)
            computed = max(hit * sliding.block_size, blocked.remote)
            wanted = sliding.least_free(computed, self._first_hold(blocked, computed, room), hit, idle)
            if wanted is not None:
                wanted -= self._reserved.get(blocked.request_id, 0)
        return sliding.steps_that_fit(step, finish - step, wanted)

    def _run_decodes(self, until: int) -> bool:
        """Play the decode-only steps that end by ``until``, up to the next event. False if there are none.

        Some request decodes and none is in prefill.
        """
        now, waiting, blocks = self._now, self._waiting, self._blocks
        gap: int | None = None
        blocked = None
        head = waiting.head(now // TICKS_PER_NS)
        if head is not None:
            gap = head.arrival_ns * TICKS_PER_NS - now
            if gap <= 0:
                if not self._blocked(head):
                    return False
                gap, blocked = None, head
        if (overtaker := waiting.next_arrival_ns()) is not None:
            later = overtaker * TICKS_PER_NS - now
            gap = later if gap is None else min(gap, later)
        step = self._steps
        finish = self._next_finish()
        assert finish is not None
        steps = self._steps_ahead(step, finish, blocked)
        seen = NO_WINDOWS
        if self._windows is not None:
            full, seen = self._windows.steps(step), self._seen()
            steps = steps if full is None else min(steps, full)
        steps, duration = self._times.run(blocks.decoders, self._cached, steps, until - now, gap, seen)
        if steps == 0:
            return False
        cache = blocks.cache
        if cache is None or cache.silent:
            blocks.take_due(step, steps)
            blocks.settle()
        else:
            self._take_due_in_order(cache, step, steps)
        self._pass_steps(duration, steps)
        self._finish_due()
        return True

    def _take_due_in_order(self, cache: PrefixCache, step: int, steps: int) -> None:
        """Take the blocks of a run of decode steps step by step, so that what is evicted is evicted at its time."""
        blocks, began = self._blocks, self._now
        for taken in range(steps):
            at = step + taken
            due = blocks.due(at)
            if due and blocks.evicts(due):
                passed = self._times.after(blocks.decoders, self._cached, taken, self._seen())
                cache.now_ps = (began + passed) // TICKS_PER_PS
            if due or self._sliding is not None:
                blocks.take_due(at, 1)
                blocks.settle()


def _order(request: Request) -> int:
    return request.order
