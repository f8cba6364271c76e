"""What prompts have in common: equal content gets equal block numbers.

A KV cache shares blocks between prompts that begin with the same tokens. All that matters of the tokens is which
blocks are equal, so each distinct block of content, together with everything before it, gets a number, and a prompt
becomes a ``Path``: the numbers of its full blocks, as half-open ranges. New content is numbered in one go, hence most
prompts are one to three ranges however long they are, and a cache can handle a range at a time.

Two prompts share their first k blocks if and only if the first k numbers of their paths are equal. Ranges are as long
as can be, so of two paths that share content, all ranges within it are equal but for the end of the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

Path: TypeAlias = tuple[tuple[int, int], ...]
"""Half-open ranges of block numbers, one number a full KV block of a prompt, in order."""


def length(path: Path) -> int:
    """Blocks of a path."""
    return sum(high - low for low, high in path)


def numbers(path: Path) -> list[int]:
    """The block numbers one by one."""
    return [number for low, high in path for number in range(low, high)]


def between(path: Path, start: int, stop: int) -> Path:
    """The blocks ``start`` to ``stop`` of a path, counted from its beginning."""
    if len(path) == 1:
        ((low, high),) = path
        stop = min(high, low + stop)
        return ((low + start, stop),) if low + start < stop else ()
    kept: list[tuple[int, int]] = []
    for low, high in path:
        size = high - low
        if start < size and stop > 0:
            kept.append((low + max(start, 0), min(high, low + stop)))
        start -= size
        stop -= size
    return tuple(kept)


def head(path: Path, blocks: int) -> Path:
    """The first ``blocks`` blocks of a path."""
    return between(path, 0, blocks)


class BlockNames:
    """Numbers the blocks of prompts whose content is given as hashes of longer blocks, as in public traces.

    ``block_size`` is the engine's, in tokens; ``hash_block`` is the length in tokens that one hash stands for, a
    multiple of it. Prompts of different ``root`` (a LoRA adapter, a cache salt) never share.
    """

    def __init__(self, block_size: int, hash_block: int) -> None:
        if block_size < 1 or hash_block < block_size or hash_block % block_size:
            raise ValueError(f"a hash must stand for whole blocks, not {hash_block} tokens of blocks of {block_size}")
        self.block_size = block_size
        self.hash_block = hash_block
        self.count = 0
        self._step = hash_block // block_size
        self._roots: dict[object, int] = {}
        self._runs: dict[tuple[int, int], int] = {}  # (number of the content before, hash) -> where its run begins
        self._hashes: dict[int, tuple[int, ...]] = {}  # of a run, which was numbered in one go, by where it begins

    def fresh(self, blocks: int) -> tuple[int, int]:
        """A range of numbers for content that nobody has seen, such as generated tokens."""
        low = self.count
        self.count = high = low + blocks
        return low, high

    def path(self, hashes: Sequence[int], tokens: int, root: object = None) -> Path:
        """The path of a prompt of ``tokens`` tokens. Content beyond the hashes given is its own.

        Raises ValueError when there are more hashes than tokens for them.
        """
        blocks = tokens // self.block_size
        if (len(hashes) - 1) * self.hash_block >= tokens:
            raise ValueError(f"{len(hashes)} hashes of {self.hash_block} tokens for a prompt of {tokens}")
        hashes = hashes if isinstance(hashes, tuple) else tuple(hashes)
        step = self._step
        before = self._roots.setdefault(root, -1 - len(self._roots))
        ranges: list[tuple[int, int]] = []
        low = high = at = 0
        count = len(hashes)
        while at < count:
            number = self._runs.get((before, hashes[at]))
            if number is None:
                break
            same = _common(self._hashes[number], hashes, at)
            at += same
            if number != high:
                if high > low:
                    ranges.append((low, high))
                low = number
            high = number + same * step
            before = high - step
        missing = max(0, blocks - count * step)
        if at < count or missing:
            number = self.count
            if number != high:
                if high > low:
                    ranges.append((low, high))
                low = number
            if at < count:
                self._runs[before, hashes[at]] = number
                self._hashes[number] = hashes[at:]
            self.count = high = number + (count - at) * step + missing
        if blocks < count * step:
            high -= count * step - blocks  # of the last hash, whose run is the end of the last range
        if high > low:
            ranges.append((low, high))
        return tuple(ranges)


def _common(run: tuple[int, ...], hashes: tuple[int, ...], at: int) -> int:
    """How many elements ``run`` and ``hashes`` from ``at`` on have in common at their beginning."""
    most = min(len(run), len(hashes) - at)
    for size in (most, most - 1):  # nearly all: prompts tend to part at the end
        if run[:size] == hashes[at : at + size]:
            return size
    same = 0
    while run[same] == hashes[at + same]:
        same += 1
    return same
