"""Conversations to route where the conversation trace of Mooncake is not there: prompts that grow turn by turn among
prompts that come once.

The generator is fitted to what is known of that trace (kvcache-ai/Mooncake, FAST25-release/traces/conversation_trace):
from an excerpt the shares of short and of continued prompts, the lengths, what a turn adds and the pauses between
turns; in all 12,031 requests in 3,537 s of 12,400 tokens in and 343 out on average, of which one unlimited cache would
reuse 36.6 %, Dynamo's replay with 16 workers 7.3 % in turn and 28.3 % behind its router.
"""

from __future__ import annotations

import heapq
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

HASH_BLOCK = 512
SESSIONS_A_SECOND = 2.3
SHORT = 0.35
"""Share of first prompts that are a bare question."""
GOES_ON, GOES_ON_LATER = 0.22, 0.6
"""Chance that a first turn, and a later one, is followed by another."""
PAUSE_S, PAUSE_SPREAD = 100.0, 0.8
"""Median and spread (of its logarithm) of the time from one turn to the next."""
LONGEST = 120_000
"""Tokens beyond which a session does not go on."""


@dataclass(slots=True)
class _Session:
    """What was asked so far: its tokens, and the hashes of its blocks, of which all prompts share the first."""

    tokens: int = 0
    hashes: list[int] = field(default_factory=lambda: [0])
    turns: int = 0


def write(path: Path, requests: int, seed: int = 0) -> Path:
    """A trace of this many requests in Mooncake's format."""
    rng = Random(seed)
    coming: list[tuple[float, int, _Session]] = [(0.0, 0, _Session())]
    fresh = 1  # the next hash that nobody has
    with path.open("w", encoding="utf-8") as lines:
        for number in range(requests):
            at, _, session = heapq.heappop(coming)
            if not session.turns:
                heapq.heappush(coming, (at + rng.expovariate(SESSIONS_A_SECOND), 2 * number, _Session()))
            kept = session.tokens // HASH_BLOCK
            session.tokens = min(LONGEST, session.tokens + _brings(rng, session.turns))
            del session.hashes[max(1, kept) :]
            more = -(-session.tokens // HASH_BLOCK) - len(session.hashes)
            session.hashes += range(fresh, fresh + more)
            fresh += more
            output = _answers(rng)
            row = {"timestamp": round(at * 1000), "input_length": session.tokens, "output_length": output}
            lines.write(json.dumps(row | {"hash_ids": session.hashes}) + "\n")
            session.tokens += output
            session.turns += 1
            if session.tokens < LONGEST and rng.random() < (GOES_ON if session.turns == 1 else GOES_ON_LATER):
                pause = rng.lognormvariate(math.log(PAUSE_S), PAUSE_SPREAD)
                heapq.heappush(coming, (at + pause, 2 * number + 1, session))
    return path


def _brings(rng: Random, turns: int) -> int:
    """Tokens that a turn adds to what was said before: the first a question or a document, later ones mostly a line."""
    if turns:
        brief, tokens = rng.random() < 0.78, 100 + rng.expovariate(1 / 500)
        return round(tokens if brief else rng.lognormvariate(math.log(5_000), 1.0))
    short, tokens = rng.random() < SHORT, 890 + rng.expovariate(1 / 150)
    return round(tokens if short else max(1_800.0, rng.lognormvariate(math.log(7_600), 1.2)))


def _answers(rng: Random) -> int:
    return rng.randint(1, 20) if rng.random() < 0.12 else max(21, round(rng.gauss(390, 190)))
