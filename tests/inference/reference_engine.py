"""The scheduler of vLLM v1 written down request by request and step by step: slow, and the oracle of the engine."""

from __future__ import annotations

from dataclasses import dataclass, field

from tonnage.inference.engine import EngineConfig
from tonnage.inference.timing import TICKS_PER_NS, StepTiming, StepWork


@dataclass
class ReferenceRequest:
    request_id: int
    arrival_ns: int
    prompt: int
    output: int
    generated: int = 0
    computed: int = 0
    blocks: int = 0
    scheduled: int = 0
    admitted_ns: int | None = None
    first_token_ns: int | None = None
    finish_ns: int | None = None
    preemptions: int = 0

    @property
    def tokens(self) -> int:
        return self.prompt + self.generated


@dataclass
class ReferenceEngine:
    config: EngineConfig
    timing: StepTiming
    waiting: list[ReferenceRequest] = field(default_factory=list)
    running: list[ReferenceRequest] = field(default_factory=list)
    done: list[ReferenceRequest] = field(default_factory=list)
    now_ticks: int = 0
    busy_ticks: int = 0
    preemptions: int = 0

    def run(self, requests: list[tuple[int, int, int, int]]) -> None:
        coming = [ReferenceRequest(*request) for request in requests]
        while coming or self.waiting or self.running:
            if not self.waiting and not self.running:
                self.now_ticks = max(self.now_ticks, coming[0].arrival_ns * TICKS_PER_NS)
            while coming and coming[0].arrival_ns * TICKS_PER_NS <= self.now_ticks:
                self.waiting.append(coming.pop(0))
            self.step()

    def allocate(self, request: ReferenceRequest, tokens: int) -> bool:
        wanted = -(-(request.computed + tokens) // self.config.block_size) - request.blocks
        held = sum(other.blocks for other in self.running)
        if held + wanted > self.config.kv_blocks:
            return False
        request.blocks += wanted
        request.scheduled = tokens
        return True

    def step(self) -> None:
        budget = self.config.max_num_batched_tokens
        preempted = False
        index = 0
        while index < len(self.running) and budget > 0:
            request = self.running[index]
            tokens = min(request.tokens - request.computed, budget)
            while not self.allocate(request, tokens):
                victim = self.running.pop()
                victim.blocks = victim.computed = 0
                victim.preemptions += 1
                self.preemptions += 1
                self.waiting.insert(0, victim)
                preempted = True
                if victim is request:
                    break
            else:
                budget -= tokens
                index += 1
        while self.waiting and not preempted and budget > 0 and len(self.running) < self.config.max_num_seqs:
            request = self.waiting[0]
            tokens = min(request.tokens, budget)
            if not self.allocate(request, tokens):
                break
            budget -= tokens
            self.running.append(self.waiting.pop(0))
            if request.admitted_ns is None:
                request.admitted_ns = -(-self.now_ticks // TICKS_PER_NS)
        self.execute()

    def execute(self) -> None:
        batch = [request for request in self.running if request.scheduled]
        tokens = sum(request.scheduled for request in batch)
        assert 0 < tokens <= self.config.max_num_batched_tokens
        assert len(self.running) <= self.config.max_num_seqs
        assert sum(request.blocks for request in self.running) <= self.config.kv_blocks
        decoding = [request for request in batch if request.generated and request.computed >= request.tokens - 1]
        chunks = [request for request in batch if request not in decoding]
        window = self.timing.window
        behind = [(request.computed, request.scheduled) for request in chunks]
        work = StepWork(
            decoders=len(decoding),
            cached=sum(request.computed for request in decoding),
            window_cached=sum(min(request.computed, window) for request in decoding),
            prompts=len(chunks),
            tokens=sum(new for _, new in behind),
            prompt_cached=sum(before for before, _ in behind),
            pairs=sum(at + 1 for before, new in behind for at in range(before, before + new)),
            window_pairs=sum(min(at + 1, window) for before, new in behind for at in range(before, before + new)),
        )
        duration = self.timing.step(work)
        self.now_ticks += duration
        self.busy_ticks += duration
        for request in batch:
            request.computed += request.scheduled
            request.scheduled = 0
            if request.computed == request.tokens:
                request.generated += 1
                if request.generated == 1:
                    request.first_token_ns = -(-self.now_ticks // TICKS_PER_NS)
                if request.generated == request.output:
                    request.finish_ns = -(-self.now_ticks // TICKS_PER_NS)
                    self.running.remove(request)
                    self.done.append(request)
