"""vLLM's scheduler with prefix caching, block by block and step by step: slow, and the oracle of the engine."""

from __future__ import annotations

from dataclasses import dataclass, field

from tonnage.inference.engine import EngineConfig
from tonnage.inference.prompts import Path, numbers
from tonnage.inference.timing import TICKS_PER_PS, LinearTiming, PolynomialTiming, StepWork


@dataclass(eq=False)
class Block:
    """One physical block; ``key`` is its content once it can be found."""

    key: object = None
    users: int = 0


@dataclass
class Pool:
    """Every physical block on its own. What can be found takes ``weight`` blocks, one in each full group."""

    total: int
    weight: int = 1
    windows: int = 0  # blocks of window groups
    blocks: list[Block] = field(default_factory=list)
    queue: list[Block] = field(default_factory=list)  # findable, unused; oldest first
    copies: dict[object, list[Block]] = field(default_factory=dict)
    events: list[tuple[bool, object]] = field(default_factory=list)

    @property
    def used(self) -> int:
        return self.windows + self.weight * sum(block.users > 0 for block in self.blocks)

    def squeeze(self) -> None:
        """Evict, oldest first, until all fits."""
        while self.windows + self.weight * len(self.blocks) > self.total:
            old = self.queue.pop(0)
            self.blocks.remove(old)
            copies = self.copies[old.key]
            copies.remove(old)
            if not copies:
                del self.copies[old.key]
                self.events.append((False, old.key))

    def find(self, keys: list[object]) -> list[Block]:
        found = []
        for key in keys:
            if key not in self.copies:
                break
            found.append(self.copies[key][0])
        return found

    def take(self, block: Block) -> None:
        if block.users == 0:
            self.queue.remove(block)
        block.users += 1

    def allocate(self) -> Block:
        block = Block(users=1)
        self.blocks.append(block)
        self.squeeze()
        return block

    def cache(self, block: Block, key: object) -> None:
        block.key = key
        if key not in self.copies:
            self.events.append((True, key))
        self.copies.setdefault(key, []).append(block)

    def free(self, blocks: list[Block]) -> None:
        for block in reversed(blocks):
            block.users -= 1
            if block.users == 0:
                if block.key is None:
                    self.blocks.remove(block)
                else:
                    self.queue.append(block)


@dataclass(eq=False)
class CachingRequest:
    request_id: int
    arrival_ns: int
    prompt: int
    output: int
    priority: int
    path: Path
    generated: int = 0
    computed: int = 0
    scheduled: int = 0
    held: list[Block] = field(default_factory=list)
    windows: list[set[int]] = field(default_factory=list)  # blocks in each window group, by position
    admitted_ns: int | None = None
    first_token_ns: int | None = None
    finish_ns: int | None = None
    reused: int = 0
    preemptions: int = 0
    decoding: bool = False

    @property
    def tokens(self) -> int:
        return self.prompt + self.generated

    def keys(self, size: int) -> list[object]:
        known: list[object] = list(numbers(self.path))
        return known + [("own", self.request_id, at) for at in range(len(known), self.tokens // size)]


@dataclass
class CachingReference:
    config: EngineConfig
    timing: LinearTiming | PolynomialTiming
    waiting: list[CachingRequest] = field(default_factory=list)
    running: list[CachingRequest] = field(default_factory=list)
    done: list[CachingRequest] = field(default_factory=list)
    now_ps: int = 0
    budget: int = 0
    preempted: bool = False

    def __post_init__(self) -> None:
        groups = self.config.layout.groups if self.config.layout else ()
        self.groups = [(one.count, one.block_size, one.layers.span) for one in groups if one.layers.kind == "window"]
        full = sum(one.count for one in groups if one.layers.kind == "full") if groups else 1
        self.pool = Pool(self.config.kv_blocks, full)
        self.by_priority = self.config.policy == "priority"

    def run(self, coming: list[CachingRequest]) -> None:
        coming = list(coming)
        while coming or self.waiting or self.running:
            if not self.waiting and not self.running:
                self.now_ps = max(self.now_ps, coming[0].arrival_ns * 1000)
            while coming and coming[0].arrival_ns * 1000 <= self.now_ps:
                self.waiting.append(coming.pop(0))
            if self.by_priority:
                self.waiting.sort(key=self.rank)
            self.step()

    def rank(self, request: CachingRequest) -> tuple[int, int]:
        return request.priority, request.request_id

    def blocks(self, tokens: int) -> int:
        return -(-tokens // self.config.block_size)

    def room(self) -> int:
        return self.config.kv_blocks - self.pool.used

    def most(self, tokens: int, *, windows_only: bool = False) -> int:
        """The most blocks that a sequence ever holds."""
        held = 0 if windows_only else self.pool.weight * self.blocks(tokens)
        for count, size, span in self.groups:
            capped = -(-(span - 1 + self.config.max_num_batched_tokens) // size) + 1
            held += count * min(-(-tokens // size), capped)
        return held

    def holds(self, request: CachingRequest) -> int:
        return self.pool.weight * len(request.held) + self.in_windows(request.windows)

    def in_windows(self, windows: list[set[int]]) -> int:
        return sum(count * len(held) for (count, _, _), held in zip(self.groups, windows, strict=True))

    def seen(self, computed: int, tokens: int) -> list[set[int]]:
        """The blocks of each window group that computing ``tokens`` tokens after ``computed`` ones reads or writes."""
        return [
            {token // size for token in range(max(0, computed - span + 1), computed + tokens)}
            for _, size, span in self.groups
        ]

    def extend(self, request: CachingRequest, tokens: int) -> bool:
        wanted = self.blocks(request.computed + tokens) - len(request.held)
        windows = [
            held | {token // size for token in range(request.computed, request.computed + tokens)}
            for (_, size, _), held in zip(self.groups, request.windows, strict=True)
        ]
        more = self.in_windows(windows) - self.in_windows(request.windows)
        if self.pool.weight * wanted + more > self.room():
            return False
        request.held += [self.pool.allocate() for _ in range(wanted)]
        request.windows = windows
        self.pool.windows += more
        self.pool.squeeze()
        request.scheduled = tokens
        return True

    def remember(self, request: CachingRequest) -> None:
        if not self.pool.weight:
            return
        size = self.config.block_size
        keys = request.keys(size)
        for at in range((request.computed + request.scheduled) // size):
            if request.held[at].key is None:
                self.pool.cache(request.held[at], keys[at])

    def free(self, request: CachingRequest) -> None:
        self.pool.free(request.held)
        self.pool.windows -= self.in_windows(request.windows)
        request.held, request.windows = [], []

    def preempt(self) -> CachingRequest:
        assert not self.config.reserve_output
        victim = max(self.running, key=self.rank) if self.by_priority else self.running[-1]
        self.running.remove(victim)
        self.free(victim)
        self.budget += victim.scheduled
        victim.computed, victim.scheduled, victim.decoding = 0, 0, False
        victim.preemptions += 1
        self.preempted = True
        self.waiting.insert(0, victim)
        if self.by_priority:
            self.waiting.sort(key=self.rank)
        return victim

    def step(self) -> None:
        self.budget = self.config.max_num_batched_tokens
        self.preempted = False
        if self.config.mixed_steps:
            self.serve(list(self.running))
            self.admit()
        else:
            self.serve([one for one in self.running if not one.decoding])
            self.admit()
            if not any(one.scheduled for one in self.running):
                self.budget = len(self.running)
                self.serve(list(self.running))
        self.execute()

    def serve(self, requests: list[CachingRequest]) -> None:
        for request in requests:
            if request not in self.running or self.budget <= 0:
                continue
            tokens = min(request.tokens - request.computed, self.budget)
            while request in self.running and not self.extend(request, tokens):
                self.preempt()
            if request in self.running:
                self.budget -= tokens
                self.remember(request)

    def admissible(self, request: CachingRequest, found: list[Block], computed: int, tokens: int) -> bool:
        shared = self.pool.weight * (sum(block.users == 0 for block in found) - len(found))
        if self.config.reserve_output:
            coming = sum(self.most(one.prompt + one.output - 1) - self.holds(one) for one in self.running)
            return self.most(request.prompt + request.output - 1) + shared + coming <= self.room()
        need = request.tokens if self.config.reserve_full_prompt else computed + tokens
        windows = self.in_windows(self.seen(computed, need - computed))
        windows = min(windows, self.most(need, windows_only=True))
        return self.pool.weight * self.blocks(need) + windows + shared <= self.room()

    def admit(self) -> None:
        size = self.config.block_size
        while self.waiting and not self.preempted and self.budget > 0 and len(self.running) < self.config.max_num_seqs:
            request = self.waiting[0]
            found = self.pool.find(request.keys(size)[: (request.tokens - 1) // size])
            hit = len(found) * size
            tokens = min(request.tokens - hit, self.budget)
            if not self.admissible(request, found, hit, tokens):
                break
            for block in found:
                self.pool.take(block)
            request.held, request.computed = found, hit
            request.windows = self.seen(hit, 0)
            self.pool.windows += self.in_windows(request.windows)
            self.pool.squeeze()
            assert self.extend(request, tokens)
            self.budget -= tokens
            self.remember(request)
            self.running.append(self.waiting.pop(0))
            if request.admitted_ns is None:
                request.admitted_ns = -(-self.now_ps // 1000)
                request.reused = min(hit, request.prompt)

    def execute(self) -> None:
        batch = [request for request in self.running if request.scheduled]
        prefills = [one for one in batch if not one.decoding]
        assert batch
        if self.config.mixed_steps:
            assert sum(request.scheduled for request in batch) <= self.config.max_num_batched_tokens
        else:
            assert prefills in ([], batch)
        assert self.pool.windows + self.pool.weight * len(self.pool.blocks) <= self.config.kv_blocks
        self.now_ps += self.duration(batch, prefills)
        for request in batch:
            request.computed += request.scheduled
            request.scheduled = 0
            self.slide(request)
            if request.computed == request.tokens:
                request.decoding = True
                request.generated += 1
                if request.generated == 1:
                    request.first_token_ns = -(-self.now_ps // 1000)
                if request.generated == request.output:
                    request.finish_ns = -(-self.now_ps // 1000)
                    self.running.remove(request)
                    self.free(request)
                    self.done.append(request)

    def slide(self, request: CachingRequest) -> None:
        """Free the blocks of which no token is seen by a later one."""
        self.pool.windows -= self.in_windows(request.windows)
        request.windows = [
            {block for block in held if (block + 1) * size - 1 > request.computed - span}
            for (_, size, span), held in zip(self.groups, request.windows, strict=True)
        ]
        self.pool.windows += self.in_windows(request.windows)

    def duration(self, batch: list[CachingRequest], prefills: list[CachingRequest]) -> int:
        if isinstance(self.timing, LinearTiming):
            decodes = [one for one in batch if one not in prefills]
            pairs = sum(one.scheduled * one.computed + one.scheduled * (one.scheduled + 1) // 2 for one in prefills)
            work = StepWork(
                decoders=len(decodes),
                cached=sum(one.computed for one in decodes),
                prompts=len(prefills),
                tokens=sum(one.scheduled for one in prefills),
                prompt_cached=sum(one.computed for one in prefills),
                pairs=pairs,
            )
            return self.timing.step(work) // TICKS_PER_PS
        decodes = [one for one in batch if one not in prefills]
        total = sum(one.computed + one.scheduled for one in prefills)
        prefill = self.timing.prefill_ps(len(prefills), total, sum(one.computed for one in prefills))
        return prefill + self.timing.decode_ps(len(decodes), sum(one.computed + 1 for one in decodes))
