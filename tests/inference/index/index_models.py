"""Plain models of what workers hold, and events as an engine would write them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tonnage.inference.index.events import Batch, decode_batch

BLOCK = 4


def tokens_of(label: int) -> list[int]:
    """The tokens of a block that is told by one number."""
    return [label * 10 + place for place in range(BLOCK)]


def flat(labels: Sequence[int]) -> list[int]:
    return [token for label in labels for token in tokens_of(label)]


def engine_hash(labels: Sequence[int], salt: int = 0) -> int:
    """A sequence hash: equal for equal prefixes on engines with equal salt."""
    return hash((salt, *labels)) & (2**64 - 1)


def stored(labels: Sequence[int], first: int = 0, salt: int = 0, **more: Any) -> dict[str, Any]:
    """BlockStored for the blocks of the path ``labels`` from ``first`` on."""
    return {
        "type": "BlockStored",
        "block_hashes": [engine_hash(labels[: end + 1], salt) for end in range(first, len(labels))],
        "parent_block_hash": engine_hash(labels[:first], salt) if first else None,
        "token_ids": flat(labels[first:]),
        "block_size": BLOCK,
        "lora_id": None,
        "medium": "GPU",
        **more,
    }


def removed(*paths: Sequence[int], salt: int = 0, **more: Any) -> dict[str, Any]:
    """BlockRemoved for the last block of each path."""
    return {
        "type": "BlockRemoved",
        "block_hashes": [engine_hash(path, salt) for path in paths],
        "medium": "GPU",
        **more,
    }


CLEARED = {"type": "AllBlocksCleared"}


def payload(*events: dict[str, Any], ts: float = 1.0, rank: int | None = 0) -> bytes:
    return msgspec.msgpack.encode([ts, list(events), rank])


def batch(*events: dict[str, Any]) -> Batch:
    read = decode_batch(payload(*events))
    assert isinstance(read, Batch) and not read.problems, read
    return read


def frames(number: int, *events: dict[str, Any], ts: float | None = None, topic: bytes = b"") -> list[bytes]:
    stamp = 100.0 + number if ts is None else ts
    return [topic, number.to_bytes(8, "big", signed=True), payload(*events, ts=stamp)]


class SetModel:
    """A set of prefixes for each worker; nothing clever."""

    def __init__(self) -> None:
        self.copies: dict[Any, dict[tuple[int, ...], int]] = {}

    def store(self, worker: Any, labels: Sequence[int], first: int = 0, count: bool = True) -> None:
        mine = self.copies.setdefault(worker, {})
        for end in range(first, len(labels)):
            path = tuple(labels[: end + 1])
            mine[path] = mine.get(path, 0) + 1 if count else 1

    def remove(self, worker: Any, path: Sequence[int]) -> None:
        mine = self.copies.setdefault(worker, {})
        left = mine.get(tuple(path), 0) - 1
        if left > 0:
            mine[tuple(path)] = left
        else:
            mine.pop(tuple(path), None)

    def clear(self, worker: Any) -> None:
        self.copies[worker] = {}

    def leave(self, worker: Any) -> None:
        self.copies.pop(worker, None)

    def scores(self, labels: Sequence[int]) -> dict[Any, int]:
        out = {}
        for worker, mine in self.copies.items():
            depth = 0
            while depth < len(labels) and tuple(labels[: depth + 1]) in mine:
                depth += 1
            if depth:
                out[worker] = depth
        return out
