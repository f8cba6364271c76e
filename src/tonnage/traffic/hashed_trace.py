"""A request log made into a trace: times, lengths, and what prompts have in common; never what they say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from tonnage.errors import InputError
from tonnage.traffic.prefix_hashes import TOKEN_BYTES, Part, PrefixHashes, in_order, packed
from tonnage.traffic.request_logs import Logged, Said
from tonnage.units import NS_PER_MS, NS_PER_S

Tokenize: TypeAlias = Callable[[Sequence[str]], Callable[[], list[Sequence[int]]]]
"""Begins to make token ids of each of these texts; what it gives back waits for them."""
_AT_ONCE, _REMEMBERED = 512, 1 << 27
"""Requests that are tokenized together; bytes of token ids that are kept."""


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


def tokens_of_bytes(texts: Sequence[str]) -> Callable[[], list[Sequence[int]]]:
    """Four bytes of UTF-8 as one token, about what English has: lengths are estimates, and prompts that begin alike
    share what they share."""
    found: list[Sequence[int]] = [
        np.frombuffer(one + b"\0" * (-len(one) % 4), dtype="<u4").tolist() for one in map(str.encode, texts)
    ]
    return lambda: found


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
    hashes = PrefixHashes(choice.block_size, choice.salt or b"")
    number = -1
    for some, parts_of in _batches(iter(log), _Ids(tokenize, name)):
        for one in some:
            prompt = parts_of(one.prompt)
            length = _length(prompt)
            number += one.turn == 0
            output = _output(one, parts_of, name, choice, counts)
            if not length or not output:
                counts["left out: no tokens in or out"] += 1
                continue
            if choice.rate is not None and one.at_ns is not None:
                counts["with a time by --rate, not by the log"] += 1
            made.append(_Request(_at(one, number, name, choice), length, output, hashes.of(prompt, one.apart)))
        each(len(made))
    made.sort(key=lambda one: one.at_ns)
    return Hashed(list(_lines(made, choice)), counts)


_Parts: TypeAlias = Callable[[Said | tuple[int, ...]], Sequence[Part]]
"""The parts of what is said, or of token ids."""


def _batches(log: Iterator[Logged], ids: _Ids) -> Iterator[tuple[list[Logged], _Parts]]:
    """Some requests at a time. While those of one batch are hashed, the texts of the next are with the tokenizer; what
    is wrong with the next is raised in its turn."""
    before: tuple[list[Logged], _Waiting] | None = None
    wrong: InputError | None = None
    while True:
        after = None
        if wrong is None:
            some, wrong = _taken(log)
            try:
                after = (some, ids.begin(some)) if some else None
            except InputError as error:
                wrong = error
        if before is not None:
            yield before[0], ids.finish(before[1])
        if after is None:
            break
        before = after
    if wrong is not None:
        raise wrong


def _taken(log: Iterator[Logged]) -> tuple[list[Logged], InputError | None]:
    """The next requests, and what is wrong after them."""
    some: list[Logged] = []
    try:
        some.extend(islice(log, _AT_ONCE))
    except InputError as error:
        return some, error
    return some, None


class _Waiting(NamedTuple):
    """Texts that are with the tokenizer, and the token ids that are known beside them."""

    texts: list[str]
    found: Callable[[], list[Sequence[int]]]
    known: dict[str, bytes]


class _Ids:
    """The token ids of what is said: each part is given to the tokenizer once, while it is remembered."""

    def __init__(self, tokenize: Tokenize | None, name: str) -> None:
        self._tokenize, self._name = tokenize, name
        self._known: dict[str, bytes] = {}
        self._held = 0
        self._asked: list[str] = []
        self._fresh: dict[str, bytes] = {}

    def begin(self, some: Sequence[Logged]) -> _Waiting:
        """Have the tokenizer begin with what is new in these requests."""
        known: dict[str, bytes] = {}
        new: dict[str, int] = {}
        for one in some:
            for said in (one.prompt, one.answer):
                for part in said.parts if isinstance(said, Said) else ():
                    if part in self._known:
                        known[part] = self._known[part]
                    else:
                        new.setdefault(part, one.line)
        asked = set(self._asked)
        self._asked = [part for part in new if part not in asked]
        if not self._asked:
            return _Waiting([], list, known)
        if self._tokenize is None:
            raise InputError.at(
                "the prompt is a text, and there is no tokenizer",
                file=self._name,
                line=new[self._asked[0]],
                hint="give the model's with --tokenizer tokenizer.json, or an estimate with --tokenizer bytes",
            )
        return _Waiting(self._asked, self._tokenize(self._asked), known)

    def finish(self, waiting: _Waiting) -> _Parts:
        """The parts of what these requests say, once the tokenizer has done."""
        fresh = {part: packed(ids) for part, ids in zip(waiting.texts, waiting.found(), strict=True)}
        known = waiting.known | self._fresh | fresh
        self._fresh = fresh
        self._held += sum(map(len, fresh.values()))
        if self._held > _REMEMBERED:
            self._known, self._held = {}, 0
        self._known |= fresh
        return lambda said: (
            [(part, known[part]) for part in said.parts] if isinstance(said, Said) else [("", packed(said))]
        )


def _length(parts: Sequence[Part]) -> int:
    """In tokens."""
    return sum(len(data) for _, data in parts) // TOKEN_BYTES


def _output(one: Logged, parts_of: _Parts, name: str, choice: Hashing, counts: Counter[str]) -> int:
    if isinstance(one.answer, int):
        counts["with the output tokens that are logged"] += 1
        return one.answer
    if isinstance(one.answer, Said):
        counts["with output tokens counted in the answer"] += 1
        return _length(parts_of(one.answer))
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
    hashes = in_order([one.hashes for one in made]) if choice.salt is None else [one.hashes.tolist() for one in made]
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
