"""A request log made into a trace: times, lengths, and what prompts have in common; never what they say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from tonnage.errors import InputError
from tonnage.traffic import prefix_hashes
from tonnage.traffic.request_logs import Logged, Said
from tonnage.units import NS_PER_MS, NS_PER_S

Tokenize: TypeAlias = Callable[[Sequence[str]], list[Sequence[int]]]
"""The token ids of each of these texts."""
Tokens: TypeAlias = Sequence[int] | NDArray[np.uint32]
_AT_ONCE, _REMEMBERED = 512, 50_000
"""Requests that are tokenized together; parts of prompts whose token ids are kept."""


class Hashing(msgspec.Struct, frozen=True):
    """How to hash. ``salt`` None: blocks are numbered by first appearance. ``rate``: requests (sessions) a second, for
    logs without times and instead of times; ``turn_s``: from one turn of a session to the next. ``output_tokens``: of
    requests whose answer the log does not have."""

    block_size: int = 16
    salt: bytes | None = None
    rate: float | None = None
    turn_s: float = 10.0
    output_tokens: int | None = None


class Hashed(msgspec.Struct, frozen=True):
    """``lines``: a trace in Mooncake's format, its requests in order of time. ``counts``: how many requests have their
    output length and their time from where, and how many were left out for having no tokens."""

    lines: list[bytes]
    counts: Counter[str]


class _Request(msgspec.Struct, frozen=True):
    at_ns: int
    prompt: int
    output: int
    hashes: NDArray[np.int64]


def tokens_of_bytes(texts: Sequence[str]) -> list[Sequence[int]]:
    """Four bytes of UTF-8 as one token, about what English has: lengths are estimates, and prompts that begin alike
    share what they share."""
    return [np.frombuffer(one + b"\0" * (-len(one) % 4), dtype="<u4").tolist() for one in map(str.encode, texts)]


def hash_log(
    log: Iterable[Logged],
    name: str,
    tokenize: Tokenize | None,
    choice: Hashing,
    each: Callable[[int], None] = lambda _: None,
) -> Hashed:
    """The trace of a log. ``each`` is told how many requests have been read.

    Raises InputError where a text is met without a tokenizer, a request has no time and ``choice.rate`` is not given,
    or its output length is known from nowhere."""
    counts: Counter[str] = Counter()
    made: list[_Request] = []
    requests = iter(log)
    ids = _Ids(tokenize, name)
    number = -1
    while some := list(islice(requests, _AT_ONCE)):
        prompts = ids.of([(one.line, one.prompt) for one in some])
        answers = ids.of([(one.line, one.answer if isinstance(one.answer, Said) else ()) for one in some])
        for one, prompt, answer in zip(some, prompts, answers, strict=True):
            number += one.turn == 0
            output = _output(one, len(answer), name, choice, counts)
            if not len(prompt) or not output:
                counts["left out: no tokens in or out"] += 1
                continue
            if choice.rate is not None and one.at_ns is not None:
                counts["with a time by --rate, not by the log"] += 1
            hashes = prefix_hashes.of_tokens(prompt, choice.block_size, choice.salt or b"", one.apart)
            made.append(_Request(_at(one, number, name, choice), len(prompt), output, hashes))
        each(len(made))
    made.sort(key=lambda one: one.at_ns)
    return Hashed(list(_lines(made, choice)), counts)


class _Ids:
    """The token ids of what is said: each part is given to the tokenizer once, while it is remembered."""

    def __init__(self, tokenize: Tokenize | None, name: str) -> None:
        self._tokenize, self._name = tokenize, name
        self._known: dict[str, NDArray[np.uint32]] = {}

    def of(self, some: Sequence[tuple[int, Said | tuple[int, ...]]]) -> list[Tokens]:
        """Of each (line, what it says, or its token ids)."""
        if len(self._known) > _REMEMBERED:
            self._known.clear()
        said = [(line, one) for line, one in some if isinstance(one, Said)]
        new = list(dict.fromkeys(part for _, one in said for part in one.parts if part not in self._known))
        if new and self._tokenize is None:
            raise InputError.at(
                "the prompt is a text, and there is no tokenizer",
                file=self._name,
                line=said[0][0],
                hint="give the model's with --tokenizer tokenizer.json, or an estimate with --tokenizer bytes",
            )
        if new and self._tokenize is not None:
            found = self._tokenize(new)
            self._known |= {part: np.asarray(ids, dtype=np.uint32) for part, ids in zip(new, found, strict=True)}
        return [
            np.concatenate([self._known[part] for part in one.parts]) if isinstance(one, Said) else one
            for _, one in some
        ]


def _output(one: Logged, answered: int, name: str, choice: Hashing, counts: Counter[str]) -> int:
    if isinstance(one.answer, int):
        counts["with the output tokens that are logged"] += 1
        return one.answer
    if isinstance(one.answer, Said):
        counts["with output tokens counted in the answer"] += 1
        return answered
    if choice.output_tokens is not None:
        counts["with the output tokens that --output-tokens says"] += 1
        return choice.output_tokens
    if one.limit is not None:
        counts["with output tokens at their limit, max_tokens"] += 1
        return one.limit
    raise InputError.at(
        "neither an answer nor max_tokens is in the log",
        file=name,
        line=one.line,
        field="usage.completion_tokens",
        hint="say how many output tokens such requests have: --output-tokens",
    )


def _at(one: Logged, number: int, name: str, choice: Hashing) -> int:
    """``number`` counts requests without turns, and sessions."""
    if choice.rate is not None:
        begin = round(number / choice.rate * NS_PER_S)
    elif one.at_ns is not None:
        begin = one.at_ns
    else:
        raise InputError.at(
            "the request has no time",
            file=name,
            line=one.line,
            field="timestamp",
            hint="say how many arrive a second: --rate",
        )
    return begin + round(one.turn * choice.turn_s * NS_PER_S)


def _lines(made: Sequence[_Request], choice: Hashing) -> Iterator[bytes]:
    hashes = (
        prefix_hashes.in_order([one.hashes for one in made])
        if choice.salt is None
        else [one.hashes.tolist() for one in made]
    )
    for number, (one, ids) in enumerate(zip(made, hashes, strict=True)):
        line: dict[str, object] = {
            "timestamp": (one.at_ns - made[0].at_ns) / NS_PER_MS,
            "input_length": one.prompt,
            "output_length": one.output,
            "hash_ids": ids,
        }
        if number == 0:
            line["block_size"] = choice.block_size
        yield msgspec.json.encode(line)
