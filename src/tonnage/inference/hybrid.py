"""KV blocks of hybrid models: layers that keep the whole context beside layers that keep a window, a chunk or a state.

vLLM puts the layers of one kind into groups of equally many layers and gives every group its own block table over one
pool of blocks. A block is one page for each layer of a group, so all groups need pages of one size:

- Pages are made equal by more tokens per block for layers with fewer bytes a token, where the ratio is whole; else the
  smaller page is padded. With state layers, attention blocks grow until a page holds a state.
- A group has as many layers as the rarest kind, or as the most frequent kind if that has less than 1.5 times as many.
  What is missing in a last group is padding.

A window group frees the blocks that every later token is too far away to see. Source: vllm-project/vllm
vllm/v1/core/kv_cache_utils.py (grouping and page sizes), single_type_kv_cache_manager.py (what is freed),
vllm/v1/kv_cache_interface.py (most memory of a sequence).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

_PADDED_BELOW = (3, 2)
"""The ratio of layers, 1.5, under which all kinds are padded to the size of the most frequent one."""

_ATTENTION_STEP = 16
"""Attention blocks grow by this many tokens until a page holds a state."""


class Layers(msgspec.Struct, frozen=True):
    """``layers`` layers of one kind. ``token_bytes``: KV bytes of a token in one layer on one GPU.

    ``window`` and ``chunk`` layers see the last ``span`` tokens, or those since the last multiple of ``span``;
    ``state`` layers keep ``state_bytes`` a layer and sequence, whatever its length, and no tokens.
    """

    kind: Literal["full", "window", "chunk", "state"]
    layers: int
    token_bytes: int = 0
    span: int = 0
    state_bytes: int = 0

    def __post_init__(self) -> None:
        size = self.state_bytes if self.kind == "state" else self.token_bytes
        if self.layers < 1 or size < 1 or (self.kind in ("window", "chunk") and self.span < 1):
            raise ValueError(f"{self.kind} layers need at least one layer, bytes above 0 and a span for windows")


class BlockGroup(msgspec.Struct, frozen=True):
    """``count`` groups of one kind; each has its own blocks of ``block_size`` tokens."""

    layers: Layers
    count: int
    block_size: int

    def first_block(self, computed: int) -> int:
        """The first block that the token after ``computed`` ones still needs."""
        kind, span = self.layers.kind, self.layers.span
        if kind == "window":
            return max(0, computed - span + 1) // self.block_size
        if kind == "chunk":
            return computed // span * span // self.block_size
        return 0

    def blocks(self, computed: int, new: int) -> int:
        """Blocks of each of these groups while ``new`` tokens are computed after ``computed`` ones."""
        if self.layers.kind == "state":
            return 1
        return -(-(computed + new) // self.block_size) - self.first_block(computed)


class Layout(msgspec.Struct, frozen=True):
    """How a model's KV cache is cut into blocks. ``page_bytes``: one layer's part of a block on one GPU;
    ``group_layers``: layers of every group, so that a block takes ``block_bytes``."""

    page_bytes: int
    group_layers: int
    groups: tuple[BlockGroup, ...]

    @property
    def block_bytes(self) -> int:
        """Bytes of one block of the common pool on one GPU."""
        return self.page_bytes * self.group_layers

    @property
    def block_size(self) -> int:
        """Tokens of a block of the groups that keep the whole context; of the first group if none does."""
        full = [group for group in self.groups if group.layers.kind == "full"]
        return (full or list(self.groups))[0].block_size

    def blocks(self, tokens: int, new: int = 1) -> int:
        """Blocks that a sequence holds in a step after which it has ``tokens`` tokens, ``new`` of them computed in it.

        Raises ValueError unless 1 <= new <= tokens.
        """
        if not 1 <= new <= tokens:
            raise ValueError(f"a step cannot compute {new} of {tokens} tokens")
        return sum(group.count * group.blocks(tokens - new, new) for group in self.groups)

    def most_blocks(self, tokens: int, max_num_batched_tokens: int) -> int:
        """The most blocks that a sequence of ``tokens`` tokens ever holds, as vLLM reserves them to start up.

        A step computes up to ``max_num_batched_tokens`` tokens, which a window group holds besides its window; one
        block more, as a window need not begin with a block.
        """
        total = 0
        for group in self.groups:
            kind, span, size = group.layers.kind, group.layers.span, group.block_size
            if kind == "state":
                total += group.count
            elif kind == "window":
                total += group.count * (-(-min(span - 1 + max_num_batched_tokens, tokens) // size) + 1)
            elif kind == "chunk":
                total += group.count * -(-min(span + max_num_batched_tokens, tokens) // size)
            else:
                total += group.count * -(-tokens // size)
        return total


def layout(kinds: Sequence[Layers], block_size: int = 16) -> Layout:
    """The groups and blocks of layers of these kinds. Raises ValueError without kinds or for blocks of no token."""
    if not kinds or block_size < 1:
        raise ValueError("a layout needs layers and blocks of at least one token")
    sizes = [kind.layers for kind in kinds]
    few, many = min(sizes), max(sizes)
    group_layers = many if many * _PADDED_BELOW[1] < few * _PADDED_BELOW[0] else few
    block_size = _grown(kinds, block_size)
    page = max(_page(kind, block_size) for kind in kinds)
    groups = []
    for kind in kinds:
        size = block_size
        if kind.kind != "state" and page % _page(kind, block_size) == 0:
            size *= page // _page(kind, block_size)
        groups.append(BlockGroup(kind, -(-kind.layers // group_layers), size))
    return Layout(page, group_layers, tuple(groups))


def _page(kind: Layers, block_size: int) -> int:
    return kind.state_bytes if kind.kind == "state" else kind.token_bytes * block_size


def _grown(kinds: Sequence[Layers], block_size: int) -> int:
    """The attention block size, grown until the smallest attention page holds the largest state."""
    states = [kind.state_bytes for kind in kinds if kind.kind == "state"]
    tokens = [kind.token_bytes for kind in kinds if kind.kind != "state"]
    if not states or not tokens or min(tokens) * block_size >= max(states):
        return block_size
    step = min(tokens) * _ATTENTION_STEP
    return -(-max(states) // step) * _ATTENTION_STEP
