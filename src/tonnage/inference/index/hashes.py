"""Keys of KV blocks: a 64-bit hash of a block's tokens, seeded with the key of the block before it.

``xxhash`` (XXH3, 64 bit) where it is installed, otherwise BLAKE2b from the standard library. Keys are made and compared
within one process, so the choice needs no agreement with anyone; the engine's own hashes are kept beside them for
removals. The hash is no defence against tokens chosen to collide: a collision costs a wrong cache estimate, no more.

LoRA adapters and cache salts keep prompts apart as vLLM does (vllm/v1/core/kv_cache_utils.py,
generate_block_hash_extra_keys): the adapter's name counts in every block, a cache salt in the first, multimodal
identifiers in the blocks that they touch. Here an adapter seeds the first block, and the chain carries it on.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from hashlib import blake2b
from struct import Struct
from typing import Any, TypeAlias

import msgspec

try:
    from xxhash import xxh3_64_intdigest as _xxh3
except ImportError:  # the extra is not installed
    _xxh3 = None  # type: ignore[assignment,unused-ignore]

_TOKEN = 4  # bytes of a token in what is hashed
_ROOT = 0x746F6E6E616765  # any constant; seeds the first block

Hash: TypeAlias = Callable[[bytes, int], int]


def blake2b_64(data: bytes, seed: int) -> int:
    """A 64-bit hash from the standard library; several times slower than XXH3."""
    return int.from_bytes(blake2b(data, digest_size=8, key=seed.to_bytes(8, "little")).digest(), "little")


default_hash: Hash = _xxh3 if _xxh3 is not None else blake2b_64


def engine_hash(value: int | bytes) -> int:
    """An engine's block hash as an integer: bytes count by their last 8, big-endian.

    vLLM cuts its external hashes to 64 bits the same way (maybe_convert_block_hash), so both forms are equal.
    """
    return value if isinstance(value, int) else int.from_bytes(value[-8:], "big")


def engine_hashes(values: list[int | bytes]) -> list[int]:
    """:func:`engine_hash` of each; the same list when they are integers. An engine writes one kind or the other, so the
    first tells."""
    if values and isinstance(values[0], bytes):
        return [engine_hash(value) for value in values]
    return values  # type: ignore[return-value]


def root(lora: str | None = None, hash: Hash = default_hash) -> int:
    """What the first block of a prompt for this adapter is seeded with."""
    return hash(lora.encode(), _ROOT) if lora else _ROOT


def chain(
    tokens: Iterable[int],
    block_size: int,
    before: int = _ROOT,
    extras: Sequence[Any] | None = None,
    hash: Hash = default_hash,
) -> list[int]:
    """Keys of the full blocks of ``tokens``, the first seeded with ``before`` (:func:`root` or the key of the block
    before). ``extras``: for each block what else it depends on, or None (:func:`extra`).

    Raises OverflowError for a token outside 0 … 2^32 - 1, TypeError for one that is not an integer.
    """
    data = array("I", tokens).tobytes()
    step = block_size * _TOKEN
    key = before
    if extras is None:
        if len(data) == step:
            return [hash(data, key)]
        whole = data if not len(data) % step else data[: len(data) // step * step]
        return [key := hash(block, key) for (block,) in _blocks(step)(whole)]
    keys: list[int] = []
    for number, (block,) in enumerate(_blocks(step)(data[: len(data) // step * step])):
        mixed = extras[number] if number < len(extras) else None
        if mixed is not None:
            key = hash(msgspec.msgpack.encode(mixed), key)
        key = hash(block, key)
        keys.append(key)
    return keys


@cache
def _blocks(size: int) -> Callable[[bytes], Iterator[tuple[bytes]]]:
    """Cuts bytes into pieces of this size, quicker than slices."""
    return Struct(f"{size}s").iter_unpack


def extra(items: Sequence[Any] | None, lora: str | None) -> list[Any] | None:
    """What a block depends on besides its tokens, from one entry of an event's ``extra_keys``, without the adapter,
    which the root stands for; None when nothing is left. A salt, tagged or not, is its plain value."""
    if not items:
        return None
    left = []
    for item in items:
        tag = item[0] if isinstance(item, list | tuple) and len(item) == 2 else None
        if tag in {"lora", "lora_name"} or (lora is not None and item == lora):
            continue
        left.append(item[1] if tag == "cache_salt" else item)
    return left or None


class PromptKeys:
    """Keys of a prompt that grows, such as a conversation: a turn hashes only what it adds.

    ``lora``: the adapter's name; ``salt``: the request's cache salt.
    """

    def __init__(self, block_size: int, lora: str | None = None, salt: str | None = None) -> None:
        self.block_size = block_size
        self.keys: list[int] = []
        self._before = root(lora)
        self._salt = salt
        self._rest: list[int] = []

    def extend(self, tokens: Iterable[int]) -> list[int]:
        """Add tokens; returns the keys of all full blocks so far (the same list each time)."""
        rest = self._rest
        rest.extend(tokens)
        extras = [[self._salt]] if self._salt is not None and not self.keys else None
        new = chain(rest, self.block_size, self._before, extras)
        if new:
            self.keys += new
            self._before = new[-1]
            del rest[: len(new) * self.block_size]
        return self.keys


def prompt_keys(tokens: Iterable[int], block_size: int, lora: str | None = None, salt: str | None = None) -> list[int]:
    """Keys of a prompt's full blocks, as the index has them for the same tokens, adapter and salt."""
    return PromptKeys(block_size, lora, salt).extend(tokens)
