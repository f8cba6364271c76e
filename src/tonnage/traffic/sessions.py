"""What the prompts of a profile's requests have in common: shared system prompts, and sessions of several turns.

A profile says when requests come and how many tokens each brings. Here every request becomes a turn of a session: the
oldest session whose user has paused long enough goes on, else a new one begins. A turn's prompt is its system prompt,
all that was said in the session before, and what the request itself brings; so prompts get longer than the profile's.
"""

from __future__ import annotations

import heapq
import random
from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from tonnage.inference.prompts import Path

MOST_TURNS = 1_000
_MOST_TOKENS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Prefixes:
    """``skew``: exponent of the system prompts' Zipf distribution, 0 for equal shares. ``turns``: least and most of a
    session, uniform at random. ``pause_ns``: least time between a session's turns; as much again, exponential, comes on
    top. ``longest``: tokens of prompt and output beyond which a session does not go on. Raises ValueError for numbers
    out of range."""

    system_prompts: int
    system_tokens: int
    skew: float
    turns: tuple[int, int]
    pause_ns: int
    longest: int

    def __post_init__(self) -> None:
        least, most = self.turns
        if not 0 <= self.system_prompts <= 1_000_000:
            raise ValueError(f"systemPrompts is {self.system_prompts}, expected 0 to 1000000")
        if not 0 <= self.system_tokens < self.longest <= _MOST_TOKENS:
            raise ValueError(f"systemTokens is {self.system_tokens}, expected 0 to below longest, {self.longest}")
        if bool(self.system_prompts) != bool(self.system_tokens):
            raise ValueError("systemPrompts and systemTokens go together, expected both or neither above 0")
        if not 0 <= self.skew <= 10:
            raise ValueError(f"skew is {self.skew}, expected 0 to 10")
        if not 1 <= least <= most <= MOST_TURNS:
            raise ValueError(f"turns is {least} to {most}, expected 1 to {MOST_TURNS}, the smaller first")


@dataclass(frozen=True, slots=True)
class SessionTurns:
    """One element a request, in order of arrival: prompt tokens, the session's number, and the content of prompt and
    output as a path of KV blocks."""

    prompt: list[int]
    sessions: list[int]
    paths: list[Path]


class _Session:
    __slots__ = ("left", "number", "said", "system")

    def __init__(self, number: int, system: int, turns: int) -> None:
        self.number = number
        self.system = system
        self.left = turns
        self.said = 0  # tokens, the system prompt left out


def converse(
    prefixes: Prefixes,
    arrival_ns: Sequence[int],
    prompt: Sequence[int],
    output: Sequence[int],
    block_size: int,
    rng: random.Random,
) -> SessionTurns:
    """Make sessions of requests that bring ``prompt`` tokens and are answered with ``output`` tokens.

    A request that brings more than ``longest`` allows is a session of its own and as long as it must be. Decisions are
    made in order of arrival, so a longer run begins with the same sessions.
    """
    weights = [(k + 1) ** -prefixes.skew for k in range(prefixes.system_prompts)]
    shares = list(accumulate(weights))
    waiting: list[tuple[int, int, _Session]] = []
    sessions: list[_Session] = []
    turns = SessionTurns([], [], [])
    ends: list[int] = []  # tokens of prompt and output, less the one that is never cached
    for at, brings, answer in zip(arrival_ns, prompt, output, strict=True):
        session = _next(waiting, at, prefixes, brings + answer)
        if session is None:
            system = bisect(shares, rng.random() * shares[-1]) if shares else 0
            session = _Session(len(sessions), min(system, max(0, len(shares) - 1)), rng.randint(*prefixes.turns))
            sessions.append(session)
        pause = round(prefixes.pause_ns * (1 + rng.expovariate(1.0)))
        asked = prefixes.system_tokens + session.said + brings
        turns.prompt.append(asked)
        turns.sessions.append(session.number)
        ends.append(asked + answer - 1)
        session.said += brings + answer
        session.left -= 1
        if session.left:
            heapq.heappush(waiting, (at + pause, session.number, session))
    _name(prefixes, sessions, turns, ends, block_size)
    return turns


def _next(waiting: list[tuple[int, int, _Session]], at: int, prefixes: Prefixes, more: int) -> _Session | None:
    """The session that goes on: the first whose pause is over and that has room for ``more`` tokens."""
    while waiting and waiting[0][0] <= at:
        _, _, session = heapq.heappop(waiting)
        if prefixes.system_tokens + session.said + more <= prefixes.longest:
            return session
    return None


def _name(prefixes: Prefixes, sessions: list[_Session], turns: SessionTurns, ends: list[int], block_size: int) -> None:
    """Number the blocks. A block that the system prompt fills only in part is the session's own."""
    shared = prefixes.system_tokens // block_size
    first = prefixes.system_prompts * (shared + 1)  # a number stays free, so that ranges never touch
    starts = []
    for session in sessions:
        starts.append(first)
        first += (prefixes.system_tokens + session.said) // block_size - shared + 1
    for number, end in zip(turns.sessions, ends, strict=True):
        system = sessions[number].system * (shared + 1)
        own = end // block_size - shared
        path = ((system, system + shared),) if shared else ()
        turns.paths.append((*path, (starts[number], starts[number] + own)) if own > 0 else path)
