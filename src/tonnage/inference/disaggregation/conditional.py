"""Whether a request's prefill runs on a prefill engine, or at once on the decode engine that will answer it.

A prefill that is short after the decode engine's own prefix hits is not worth a transfer, and one that would queue at
the prefill engine may be quicker where it is. A decode engine whose KV cache is nearly full is spared either way.

Source: ai-dynamo/dynamo lib/kv-router/src/conditional_disagg.rs and its call site in the prefill router; defaults as
there. All comparisons are strict.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

Policy: TypeAlias = Literal["isl_bounding", "prefill_load", "isl_or_load"]
POLICIES: tuple[Policy, ...] = ("isl_bounding", "prefill_load", "isl_or_load")


class ConditionalRule(msgspec.Struct, frozen=True):
    """When to skip the remote prefill. Not ``enabled``: never.

    ``isl_threshold`` is in tokens, ``ratio_threshold`` a share of the prompt. ``prefill_busy_threshold`` is in units of
    the prefill engine's max_num_batched_tokens, ``decode_busy_threshold`` a share of the decode engine's KV blocks;
    None: that load is not looked at. Raises ValueError for a policy unknown or a threshold below 0.
    """

    policy: Policy = "isl_bounding"
    enabled: bool = True
    isl_threshold: int = 2048
    ratio_threshold: float = 0.7
    prefill_busy_threshold: float | None = None
    decode_busy_threshold: float | None = None

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise ValueError(f"policy {self.policy!r}, expected one of {', '.join(POLICIES)}")
        given = (self.isl_threshold, self.ratio_threshold, self.prefill_busy_threshold, self.decode_busy_threshold)
        if any(threshold is not None and not threshold >= 0 for threshold in given):
            raise ValueError("a threshold is a number of at least 0")

    @property
    def by_length(self) -> bool:
        """Whether the rule looks at what is left of the prompt."""
        return self.policy != "prefill_load"

    @property
    def by_load(self) -> bool:
        """Whether the rule looks at the prefill engine's load."""
        return self.policy != "isl_bounding"


class PrefillLoad(msgspec.Struct, frozen=True):
    """The prefill engine that would get the request: tokens that it has still to compute, and its step's budget."""

    active_tokens: int
    max_num_batched_tokens: int


class DecodeLoad(msgspec.Struct, frozen=True):
    """The decode engine that will answer: KV blocks in use, and all that it has."""

    active_blocks: int
    total_blocks: int


def effective_isl(prompt_tokens: int, overlap_blocks: int, block_size: int) -> int:
    """Tokens of the prompt that the decode engine would have to compute itself, at least 0."""
    return max(0, prompt_tokens - overlap_blocks * block_size)


def prefill_busy(rule: ConditionalRule, load: PrefillLoad | None) -> bool:
    """Whether the prefill engine would let the request queue. Unknown counts as calm."""
    threshold = rule.prefill_busy_threshold
    if threshold is None or load is None:
        return False
    return load.active_tokens > threshold * load.max_num_batched_tokens


def decode_busy(rule: ConditionalRule, load: DecodeLoad | None) -> bool:
    """Whether the decode engine is too full for a prefill of its own. Unknown counts as calm."""
    threshold = rule.decode_busy_threshold
    if threshold is None or load is None or load.total_blocks <= 0:
        return False
    return load.active_blocks > threshold * load.total_blocks


def skips_remote_prefill(
    rule: ConditionalRule,
    prompt_tokens: int,
    overlap_blocks: int,
    block_size: int,
    prefill: PrefillLoad | None = None,
    decode: DecodeLoad | None = None,
) -> bool:
    """True: prefill where the request decodes. ``overlap_blocks`` are those of the prompt in the decode engine's GPU.

    A prompt of no tokens leaves nothing to compute elsewhere, hence is skipped by length.
    """
    if not rule.enabled or decode_busy(rule, decode):
        return False
    if rule.by_load and prefill_busy(rule, prefill):
        return True
    if not rule.by_length:
        return False
    left = effective_isl(prompt_tokens, overlap_blocks, block_size)
    return left < rule.isl_threshold and left / max(prompt_tokens, 1) < rule.ratio_threshold
