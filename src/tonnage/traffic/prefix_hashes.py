"""What prompts have in common, and nothing of what they say: a number for each full block of tokens.

As in vLLM (vllm/v1/core/kv_cache_utils.py, ``hash_block_tokens``): two blocks have one number exactly where their
tokens are equal and all tokens before them are, within one model, adapter and ``cache_salt``; a block that is not full
has none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

_SALT_BYTES = 64
"""The longest key that BLAKE2b takes."""


def of_tokens(
    tokens: Sequence[int] | NDArray[np.uint32], block_size: int, salt: bytes = b"", apart: Iterable[str] = ()
) -> NDArray[np.int64]:
    """A number in 0 … 2⁶³−1 for each full block of ``block_size`` tokens: BLAKE2b under the key ``salt`` over all
    tokens up to the block's end. Without the salt nobody can try which prompt a number stands for."""
    key = salt if len(salt) <= _SALT_BYTES else hashlib.blake2b(salt).digest()
    running = hashlib.blake2b("\0".join(apart).encode(), digest_size=8, key=key)
    data = np.asarray(tokens, dtype="<u4").tobytes()
    step = 4 * block_size
    found = []
    for end in range(step, len(data) + 1, step):
        running.update(data[end - step : end])
        found.append(running.digest())
    return (np.frombuffer(b"".join(found), dtype="<u8") >> np.uint64(1)).astype(np.int64)


def in_order(hashes: Sequence[NDArray[np.int64]]) -> list[list[int]]:
    """The same with small numbers, from 0, by first appearance: nothing is left of what was hashed."""
    if not hashes:
        return []
    _, first, number = np.unique(np.concatenate(hashes), return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    ends = np.cumsum([len(one) for one in hashes])
    return [part.tolist() for part in np.split(rank[number.reshape(-1)], ends[:-1])]
