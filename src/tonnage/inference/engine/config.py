"""What an engine is configured with, and where its KV blocks go beyond the GPU."""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec

from tonnage.inference.hybrid import Layout
from tonnage.inference.prompts import Path


class EngineConfig(msgspec.Struct, frozen=True):
    """What vLLM's scheduler is configured with. ``kv_blocks`` counts the blocks that requests can use.

    - ``policy``: who is admitted first and preempted last: who came first, or who has the lowest priority value and
      then came first (--scheduling-policy).
    - ``reserve_full_prompt``: a request is admitted only when its whole prompt finds room, not just its first chunk
      (vLLM's scheduler_reserve_full_isl).
    - ``reserve_output``: a request is admitted only when it and all that run can run to their end, so that none is
      ever preempted (TensorRT-LLM's GUARANTEED_NO_EVICT, batch_manager/capacityScheduler.cpp).
    - ``mixed_steps``: a step holds prefill chunks and decodes. Else it holds prefill chunks alone while there is a
      prompt to compute, with the whole token budget, and who decodes waits (SGLang without --enable-mixed-chunk,
      srt/managers/scheduler.py).
    - ``layout``: the block groups of a model with sliding windows or states; None if every layer keeps the whole
      context. Its block size must be ``block_size``. Full, window and state layers are known.
    """

    max_num_batched_tokens: int
    max_num_seqs: int
    max_model_len: int
    kv_blocks: int
    block_size: int = 16
    policy: Literal["fcfs", "priority"] = "fcfs"
    reserve_full_prompt: bool = False
    reserve_output: bool = False
    mixed_steps: bool = True
    layout: Layout | None = None

    def __post_init__(self) -> None:
        if min(self.max_num_batched_tokens, self.max_num_seqs, self.max_model_len) < 1:
            raise ValueError("an engine needs room for at least one token, one sequence and a context of one")
        if self.layout is None:
            return
        if self.layout.block_size != self.block_size:
            raise ValueError(f"blocks of {self.block_size} tokens for a layout with blocks of {self.layout.block_size}")
        kinds = [group.layers.kind for group in self.layout.groups]
        if kinds.count("full") > 1 or not {"full", "window", "state"}.issuperset(kinds):
            raise ValueError(f"an engine counts the blocks of full, window and state layers, not of {kinds}")


class OffloadTiers(Protocol):
    """Where KV blocks go that the GPU has no room for (tonnage.inference.tiers)."""

    def load(self, path: Path, have_blocks: int, now_ns: int, most: int | None = None) -> tuple[int, int]:
        """(blocks behind the first ``have_blocks`` of ``path`` worth copying to the GPU, ps that the copy takes).

        At most ``most`` blocks of the path are wanted on the GPU."""

    def stored(self, low: int, high: int, now_ns: int | None = None) -> None:
        """The GPU's cache holds these block numbers."""

    def evicted(self, low: int, high: int, now_ns: int | None = None) -> None:
        """The GPU's cache holds them no more."""
