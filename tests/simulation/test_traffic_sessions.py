"""What prompts of a profile have in common: system prompts, sessions of several turns, and copies of a trace."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deep_seeds import examples
from tonnage.errors import InputError
from tonnage.inference.prompts import numbers
from tonnage.traffic.arrivals import build
from tonnage.traffic.profile import LengthDistribution, ProfileSource, TrafficProfile
from tonnage.traffic.sessions import Prefixes, converse
from tonnage.traffic.traces import Trace
from tonnage.units import NS_PER_S

PROFILE = TrafficProfile(
    ProfileSource("test"), 10, 10, (40,), LengthDistribution((0.0, 1.0), (20, 300), (0.0, 1.0), ((10, 200),))
)


def _prefixes(**changes: object) -> Prefixes:
    known: dict[str, object] = {
        "system_prompts": 3,
        "system_tokens": 100,
        "skew": 1.0,
        "turns": (1, 5),
        "pause_ns": 2 * NS_PER_S,
        "longest": 2000,
    }
    return Prefixes(**(known | changes))  # type: ignore[arg-type]


@settings(max_examples=examples(60), deadline=None)
@given(
    seed=st.integers(0, 2**32),
    requests=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 200), st.integers(1, 200)), min_size=1, max_size=60),
    system=st.sampled_from([(0, 0), (1, 64), (3, 100)]),
    block_size=st.sampled_from([1, 16, 64]),
)
def test_blocks_are_equal_exactly_where_the_tokens_before_them_are(
    seed: int, requests: list[tuple[int, int, int]], system: tuple[int, int], block_size: int
) -> None:
    """The oracle writes every token of every session down and compares blocks by their content."""
    prefixes = _prefixes(system_prompts=system[0], system_tokens=system[1])
    times = np.cumsum([gap for gap, _, _ in requests]).tolist()
    brings, answers = [p for _, p, _ in requests], [o for _, _, o in requests]
    turns = converse(prefixes, [t * NS_PER_S for t in times], brings, answers, block_size, random.Random(seed))
    again = random.Random(seed)  # who got which system prompt is read off the first block of the path
    assert turns == converse(prefixes, [t * NS_PER_S for t in times], brings, answers, block_size, again)
    said: dict[int, list[tuple[int, int]]] = {}
    blocks: dict[int, tuple[tuple[int, int], ...]] = {}
    shared = system[1] // block_size
    for number, (session, path) in enumerate(zip(turns.sessions, turns.paths, strict=True)):
        names = numbers(path)
        prompt = names[0] if shared else 0
        tokens = [(-1 - prompt, i) for i in range(system[1])] + said.setdefault(session, [])
        assert turns.prompt[number] == len(tokens) + brings[number]
        new = [(session, len(said[session]) + i) for i in range(brings[number] + answers[number])]
        said[session] += new
        tokens = (tokens + new)[:-1]  # the last token is never cached
        assert len(names) == len(tokens) // block_size
        for i, name in enumerate(names):
            content = tuple(tokens[: (i + 1) * block_size])
            assert blocks.setdefault(name, content) == content
    assert len(set(blocks.values())) == len(blocks), "equal content has one number"


def test_turns_are_at_least_a_pause_apart_and_a_session_has_no_more_than_it_drew() -> None:
    times = [i * NS_PER_S for i in range(300)]
    turns = converse(_prefixes(turns=(2, 4)), times, [10] * 300, [10] * 300, 16, random.Random(1))
    last: dict[int, int] = {}
    for at, session in zip(times, turns.sessions, strict=True):
        assert at - last.get(session, -(10**18)) >= 2 * NS_PER_S
        last[session] = at
    counts = Counter(turns.sessions)
    assert max(counts.values()) <= 4 and len(counts) < 300


def test_a_session_does_not_outgrow_its_limit() -> None:
    times = [i * 100 * NS_PER_S for i in range(50)]
    turns = converse(_prefixes(turns=(1000, 1000), longest=1000), times, [100] * 50, [100] * 50, 16, random.Random(1))
    assert max(turns.prompt) + 100 <= 1000
    assert len(set(turns.sessions)) > 5


def test_popular_system_prompts_are_drawn_more_often() -> None:
    count = 3000
    prefixes = _prefixes(turns=(1, 1), skew=1.0)
    turns = converse(prefixes, list(range(count)), [10] * count, [10] * count, 16, random.Random(2))
    first, second, third = (share for _, share in sorted(Counter(path[0] for path in turns.paths).items()))
    assert first > second > third and first == pytest.approx(count * 6 / 11, rel=0.1)


def test_a_longer_run_begins_with_the_same_sessions() -> None:
    short = build(PROFILE, service="a/b", seed=3, duration_ns=30 * NS_PER_S, prefixes=_prefixes())
    long = build(PROFILE, service="a/b", seed=3, duration_ns=60 * NS_PER_S, prefixes=_prefixes())
    assert short.content is not None and long.content is not None
    count = len(short)
    assert list(long.content.sessions[:count]) == list(short.content.sessions)
    assert long.prompt[:count].tolist() == short.prompt.tolist()


def test_prefixes_leave_arrivals_and_answers_as_they_are() -> None:
    plain = build(PROFILE, service="a/b", seed=3, duration_ns=30 * NS_PER_S)
    shared = build(PROFILE, service="a/b", seed=3, duration_ns=30 * NS_PER_S, prefixes=_prefixes())
    assert plain.content is None
    assert plain.arrival_ns.tolist() == shared.arrival_ns.tolist() and plain.output.tolist() == shared.output.tolist()
    assert all(shared.prompt >= plain.prompt + 100)


@pytest.mark.parametrize(
    "wrong",
    [
        {"turns": (0, 1)},
        {"turns": (3, 2)},
        {"system_prompts": 0},
        {"system_tokens": 2000},
        {"skew": -1.0},
        {"skew": float("nan")},
    ],
    ids=str,
)
def test_numbers_out_of_range_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="expected"):
        _prefixes(**wrong)


TRACE = Trace(
    "test",
    np.array([0, 1, 2], np.int64) * NS_PER_S,
    np.array([1024, 1024, 700], np.int32),
    np.array([10, 10, 10], np.int32),
    ((1, 2), (1, 3), (4, 5)),
)


def test_a_traces_hashes_say_what_its_prompts_share() -> None:
    arrivals = build(TRACE, service="a/b", seed=1, duration_ns=3 * NS_PER_S)
    assert arrivals.content is not None
    first, second, third = (numbers(path) for path in arrivals.content.paths)
    assert [len(first), len(second), len(third)] == [64, 64, 43]
    assert first[:32] == second[:32] and not set(first[32:]) & set(second[32:])
    assert not set(third) & (set(first) | set(second))


def test_copies_of_a_traces_requests_share_among_themselves_and_nothing_with_the_originals() -> None:
    arrivals = build(TRACE, service="a/b", seed=1, duration_ns=9 * NS_PER_S, rate=3.0)
    assert arrivals.content is not None
    paths = [tuple(numbers(path)) for path in arrivals.content.paths]
    assert len(set(paths)) == len(paths) >= 20, "a copy that found all of its prompt in a cache would be too good"
    beginnings = Counter(path[:32] for path in paths if len(path) == 64)
    assert max(beginnings.values()) == 2, "two requests of each copy of the trace begin alike"


def test_a_hash_must_stand_for_whole_blocks() -> None:
    with pytest.raises(InputError, match="512 tokens"):
        build(TRACE, service="a/b", seed=1, duration_ns=9 * NS_PER_S, block_size=48)
