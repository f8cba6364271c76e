"""What prompts have in common, and nothing of what they say: a number for each full block of tokens.

As in vLLM (vllm/v1/core/kv_cache_utils.py, ``hash_block_tokens``): two blocks have one number exactly where their
tokens are equal and all tokens before them are, within one model, adapter and ``cache_salt``; a block that is not full
has none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

_SALT_BYTES = 64
"""The longest key that BLAKE2b takes."""
_REMEMBERED = 1 << 27
"""Bytes that are held of beginnings of prompts."""
_OF_ONE = 1 << 10
"""Bytes of a beginning beside its numbers."""

TOKEN_BYTES = 4
Part: TypeAlias = tuple[str, bytes]
"""What a part of a prompt is known by, empty where it is met once only, and its token ids (:func:`packed`)."""


def packed(tokens: Sequence[int] | NDArray[np.uint32]) -> bytes:
    """Token ids, four bytes each."""
    return np.asarray(tokens, dtype="<u4").tobytes()


class PrefixHashes:
    """A number in 0 … 2⁶³−1 for each full block of ``block_size`` tokens: BLAKE2b under the key ``salt`` over all
    tokens up to the block's end. Without the salt nobody can try which prompt a number stands for.

    Beginnings that prompts share are hashed once, while they are remembered."""

    def __init__(self, block_size: int, salt: bytes = b"") -> None:
        self._step = TOKEN_BYTES * block_size
        self._key = salt if len(salt) <= _SALT_BYTES else hashlib.blake2b(salt).digest()
        self._roots: dict[tuple[str, ...], _Beginning] = {}
        self._held = 0

    def of(self, parts: Iterable[Part], apart: tuple[str, ...] = ()) -> NDArray[np.int64]:
        """The numbers of a prompt. ``apart``: whose prompts share nothing with those of others."""
        if self._held > _REMEMBERED:
            self._roots, self._held = {}, 0
        beginning = self._roots.get(apart)
        if beginning is None:
            whole = hashlib.blake2b("\0".join(apart).encode(), digest_size=8, key=self._key)
            beginning = self._roots[apart] = _Beginning(whole, b"", b"", {})
        for name, data in parts:
            further = beginning.further.get(name)
            if further is None:
                further = self._extended(beginning, data)
                if name:
                    beginning.further[name] = further
                    self._held += len(further.numbers) + _OF_ONE
            beginning = further
        return (np.frombuffer(beginning.numbers, dtype="<u8") >> np.uint64(1)).astype(np.int64)

    def _extended(self, beginning: _Beginning, data: bytes) -> _Beginning:
        running, data, step, found = beginning.running.copy(), beginning.rest + data, self._step, []
        for end in range(step, len(data) + 1, step):
            running.update(data[end - step : end])
            found.append(running.digest())
        numbers, rest = beginning.numbers + b"".join(found), data[len(found) * step :]
        return _Beginning(running, rest, numbers, {})


class _Beginning(Struct):
    """``running``: the hash of its full blocks; ``rest``: the tokens after them; ``further``: what follows it."""

    running: Any
    rest: bytes
    numbers: bytes
    further: dict[str, _Beginning]


def in_order(hashes: Sequence[NDArray[np.int64]]) -> list[list[int]]:
    """The same with small numbers, from 0, by first appearance: nothing is left of what was hashed."""
    if not hashes:
        return []
    _, first, number = np.unique(np.concatenate(hashes), return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    ends = np.cumsum([len(one) for one in hashes])
    return [part.tolist() for part in np.split(rank[number.reshape(-1)], ends[:-1])]
