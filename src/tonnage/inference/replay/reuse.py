"""How much of a log's prompts could be found in a cache at best: the bound that no eviction and no tier passes."""

from __future__ import annotations

import msgspec

from tonnage.inference.prompts import Path, length
from tonnage.inference.replay.run import Log


class Reuse(msgspec.Struct, frozen=True):
    """Counts over a log. ``seen_blocks``: blocks of which the whole prefix was in an earlier prompt.

    ``reusable_blocks`` leaves out the last block of a prompt that is seen to its end, as an engine always computes
    the last token.
    """

    prompts: int
    prompt_blocks: int
    prompt_tokens: int
    seen_blocks: int
    reusable_blocks: int
    reusable_tokens: int

    @property
    def block_share(self) -> float:
        """Share of the prompts' full blocks that were seen before, 0 to 1."""
        return self.seen_blocks / max(1, self.prompt_blocks)

    @property
    def token_share(self) -> float:
        """Share of the prompts' tokens that need not be computed, 0 to 1."""
        return self.reusable_tokens / max(1, self.prompt_tokens)


def reuse_bound(log: Log, block_size: int, workers: int = 1, longest: int | None = None) -> Reuse:
    """What unlimited caches would find, one for each of ``workers`` workers that take turns (1: one for all).

    ``longest``: counted are prompts of this many tokens at most; the caches learn from all. Exact when each request
    comes after those before it have been admitted; ``block_size`` is that of the log's paths.
    """
    if workers < 1:
        raise ValueError("at least one worker is needed")
    caches: list[dict[int, int]] = [{} for _ in range(workers)]
    prompts = blocks = tokens = seen = reusable = 0
    for number, (path, prompt) in enumerate(zip(log.paths, log.prompt, strict=True)):
        found = _look_and_learn(caches[number % workers], path)
        if longest is not None and prompt > longest:
            continue
        prompts += 1
        blocks += length(path)
        tokens += prompt
        seen += found
        reusable += min(found, (prompt - 1) // block_size)
    return Reuse(prompts, blocks, tokens, seen, reusable, reusable * block_size)


def _look_and_learn(ends: dict[int, int], path: Path) -> int:
    """Leading blocks of ``path`` in a cache that knows, by where a range begins, how far it was seen; then add it."""
    found = 0
    complete = True
    for low, high in path:
        end = ends.get(low, low)
        if complete:
            found += min(end, high) - low
            complete = end >= high
        if high > end:
            ends[low] = high
    return found
