"""Requests as an engine sees them: while it holds them, and how they ended."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from tonnage.inference.engine.prefix_cache import Lease
from tonnage.inference.prompts import Path

End: TypeAlias = Literal["finished", "aborted", "rejected"]
"""Generated all its tokens; was cancelled; could never fit the context or the KV cache."""


class Finished(msgspec.Struct, frozen=True, gc=False):
    """How a request ended. Times in ns, None where it never got there; output tokens are those generated."""

    request_id: int
    arrival_ns: int
    admitted_ns: int | None
    first_token_ns: int | None
    finish_ns: int
    prompt_tokens: int
    output_tokens: int
    preemptions: int = 0
    state: End = "finished"
    cached_tokens: int = 0  # of the prompt, found in the KV cache at the first admission

    @property
    def ttft_ns(self) -> int | None:
        """Time to first token."""
        return None if self.first_token_ns is None else self.first_token_ns - self.arrival_ns

    @property
    def tpot_ns(self) -> float:
        """Mean time per output token after the first; 0 for a single token."""
        if self.first_token_ns is None or self.output_tokens < 2:
            return 0.0
        return (self.finish_ns - self.first_token_ns) / (self.output_tokens - 1)


class Unfinished(msgspec.Struct, frozen=True, gc=False):
    """A request that an engine held when it went away."""

    request_id: int
    arrival_ns: int
    prompt_tokens: int
    output_tokens: int
    generated_tokens: int


class Request:
    """A request that is waiting or running.

    ``generated`` and ``computed`` are kept while it waits or prefills. While it decodes (``finish_step`` ≥ 0)
    both follow from the step number, so that a decode step touches no request.
    """

    __slots__ = (
        "admitted_ns",
        "arrival_ns",
        "committed",
        "computed",
        "finish_step",
        "first_token_ns",
        "generated",
        "hold",
        "last",
        "lease",
        "named",
        "order",
        "output_tokens",
        "passed",
        "path",
        "preemptions",
        "priority",
        "prompt_tokens",
        "remote",
        "request_id",
        "reused",
        "target",
        "turn",
    )

    def __init__(
        self,
        request_id: int,
        order: int,
        arrival_ns: int,
        prompt: int,
        output: int,
        priority: int = 0,
        path: Path = (),
    ) -> None:
        self.request_id = request_id
        self.order = order
        self.arrival_ns = arrival_ns
        self.prompt_tokens = prompt
        self.output_tokens = output
        self.last = prompt + output - 1  # tokens in the KV cache at its end: the last one is sampled and never cached
        self.turn = 0  # of its last admission
        self.generated = 0
        self.computed = 0  # tokens in the KV cache
        self.target = prompt  # tokens to compute before the next token comes out
        self.finish_step = -1
        self.admitted_ns: int | None = None
        self.first_token_ns: int | None = None
        self.preemptions = 0
        self.priority = priority
        self.path = path
        named = 0
        for low, high in path:
            named += high - low
        self.named = named  # full blocks whose content is known
        self.lease: Lease = []
        self.committed = 0  # full blocks that can be found by their content
        self.reused = 0  # prompt tokens that the first admission found in the KV cache
        self.remote = 0  # prompt tokens that another engine has computed and sent
        self.passed = 0  # tokens computed before the step in flight, which windows look back from
        self.hold = False  # whether its blocks are kept when it has finished, for another engine to fetch

    def remaining(self, step: int) -> int:
        """Tokens still to generate when ``step`` starts."""
        return self.finish_step - step if self.finish_step >= 0 else self.output_tokens - self.generated

    def unfinished(self, step: int) -> Unfinished:
        """What an engine tells of it that goes away when ``step`` would start."""
        tokens = self.prompt_tokens, self.output_tokens, self.output_tokens - self.remaining(step)
        return Unfinished(self.request_id, self.arrival_ns, *tokens)

    def cached(self, step: int) -> int:
        """Tokens in the KV cache when ``step`` starts; the last generated token is not in it yet."""
        if self.finish_step >= 0:
            return self.last - self.finish_step + step
        return self.computed
