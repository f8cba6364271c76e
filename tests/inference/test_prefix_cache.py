"""Extents of a prefix cache against one block at a time, and an engine's blocks under everything that can happen."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest
from engine_checks import check_blocks
from hypothesis import example, given, settings
from hypothesis import strategies as st
from reference_caching import Block, Pool

from deep_seeds import examples
from tonnage.inference.engine import Engine, EngineConfig, Finished
from tonnage.inference.engine.prefix_cache import Lease, PrefixCache
from tonnage.inference.hybrid import Layers, layout
from tonnage.inference.prompts import BlockNames, Path, between, numbers
from tonnage.inference.timing import LinearTiming

PLENTY = 10**9
TIMING = LinearTiming(base_ps=7_000_000, token_ps=60_001, cached_ps=41, pair_ps=3)

programs = st.lists(
    st.tuples(
        st.sampled_from(["begin", "go on", "go on", "end", "evict"]),
        st.lists(st.integers(0, 2), min_size=1, max_size=5),
        st.integers(0, 12),
    ),
    max_size=60,
)


@dataclass(eq=False)
class User:
    """A request, in both worlds."""

    path: Path
    lease: Lease
    blocks: list[Block]


@dataclass
class Both:
    """A prefix cache, and the same one block by block."""

    cache: PrefixCache = field(default_factory=lambda: PrefixCache(record=True))
    pool: Pool = field(default_factory=lambda: Pool(PLENTY))
    users: list[User] = field(default_factory=list)
    told: set[int] = field(default_factory=set)

    def begin(self, path: Path, most: int) -> None:
        found, _ = self.cache.match(path, most)
        blocks = self.pool.find(list(numbers(path))[:most])
        assert found == len(blocks)
        for block in blocks:
            self.pool.take(block)
        self.users.append(User(path, self.cache.acquire(path, found), blocks))

    def go_on(self, user: User, more: int) -> None:
        """The next blocks of its path are computed."""
        done = len(user.blocks)
        for low, high in between(user.path, done, done + more):
            self.cache.commit(user.lease, low, high)
            for number in range(low, high):
                user.blocks.append(self.pool.allocate())
                self.pool.cache(user.blocks[-1], number)

    def end(self, user: User, unknown: int) -> None:
        """It frees what it holds, with this many blocks that nobody can ask for behind."""
        self.users.remove(user)
        idle = len(self.pool.queue)
        blocks = list(user.blocks)
        for at in range(unknown):
            blocks.append(self.pool.allocate())
            self.pool.cache(blocks[-1], (id(user), at))
        self.pool.free(blocks)
        assert self.cache.release(user.lease, unknown) + unknown == len(self.pool.queue) - idle
        assert user.lease == []

    def evict(self, blocks: int) -> None:
        blocks = min(blocks, len(self.pool.queue))
        self.cache.evict(blocks)
        self.pool.total = len(self.pool.blocks) - blocks
        self.pool.squeeze()
        self.pool.total = PLENTY

    def check(self, paths: list[Path]) -> None:
        """The same is found, and what was told is what is found: nothing is removed while a copy of it stays."""
        assert self.cache.idle == len(self.pool.queue)
        for path in paths:
            blocks = self.pool.find(list(numbers(path)))
            assert self.cache.match(path, PLENTY) == (len(blocks), sum(block.users == 0 for block in blocks))
            for most in range(len(blocks)):
                assert self.cache.match(path, most)[0] == most
        for stored, low, high, _ in self.cache.take_events():
            told = set(range(low, high))
            assert not told & self.told if stored else told <= self.told
            self.told = self.told | told if stored else self.told - told
        assert self.told == {key for key in self.pool.copies if isinstance(key, int)}


@pytest.mark.report(12)
@settings(max_examples=examples(300), deadline=None)
@given(programs, st.sampled_from([1, 2]))
def test_extents_are_found_used_and_evicted_as_blocks_are(program: list[tuple[str, list[int], int]], step: int) -> None:
    names = BlockNames(1, step)
    both = Both()
    paths: list[Path] = []
    for what, hashes, number in program:
        if what == "begin":
            paths.append(names.path(hashes, step * len(hashes) + number // 4))
            both.begin(paths[-1], number)
        elif what == "evict":
            both.evict(number)
        elif both.users:
            user = both.users[number % len(both.users)]
            if what == "go on":
                both.go_on(user, 1 + number // 3)
            else:
                both.end(user, number // 4)
        both.check(paths)
    for user in list(both.users):
        both.end(user, 0)
    both.check(paths)
    both.evict(PLENTY)
    both.check(paths)
    assert (both.cache.idle, both.told, both.cache._starts, both.cache._hidden) == (0, set(), {}, {})


def test_more_than_is_idle_cannot_be_evicted() -> None:
    cache = PrefixCache()
    lease: Lease = []
    cache.commit(lease, 0, 4)
    with pytest.raises(RuntimeError, match="only 0 are idle"):
        cache.evict(1)
    cache.release(lease)
    with pytest.raises(RuntimeError, match="only 4 are idle"):
        cache.evict(5)
    cache.clear()
    assert (cache.idle, cache.match(((0, 4),), 4)) == (0, (0, 0))


def test_a_request_that_ends_gives_up_its_tail_first() -> None:
    cache = PrefixCache()
    lease: Lease = []
    cache.commit(lease, 0, 8)
    cache.release(lease)
    cache.evict(3)
    assert cache.match(((0, 8),), 8) == (5, 5)


LAYOUTS = {
    "full": None,
    "windows": layout([Layers("full", 2, 8), Layers("window", 4, 8, span=9)], 2),
    "unequal pages": layout([Layers("full", 2, 8), Layers("window", 2, 16, span=7), Layers("window", 2, 8, span=3)], 2),
    "windows alone": layout([Layers("window", 2, 8, span=5)], 2),
}


class Life:
    """Engines that live through the same random life; ``macro=False`` plays every step."""

    def __init__(self, config: EngineConfig, seed: int) -> None:
        self.engines = [
            Engine(config, TIMING, macro=macro, prefix_caching=True, record_events=True) for macro in (True, False)
        ]
        self.names = BlockNames(config.block_size, 8)
        self.rng = Random(seed)
        self.now = 0
        self.ended: list[Finished] = []
        self.alive: set[int] = set()

    def submit(self, number: int) -> None:
        rng = self.rng
        hashes = [rng.randrange(3) for _ in range(rng.randrange(5))]
        prompt, output = 8 * len(hashes) + rng.randrange(1, 8), rng.randrange(1, 25)
        hold, priority = rng.random() < 0.2, rng.randrange(2)
        path = self.names.path(hashes, prompt)
        sent = rng.random() < 0.2 and prompt > 1
        results = [sent and engine.reserve(number, prompt, output - 1) for engine in self.engines]
        assert results[0] == results[1]
        for engine in self.engines:
            computed = prompt - 1 if results[0] else 0
            engine.submit(number, self.now, prompt, output, priority, path, hold=hold, computed=computed)
        self.alive.add(number)

    def act(self, number: int) -> None:
        rng = self.rng
        what = rng.random()
        if what < 0.6:
            self.submit(number)
        elif what < 0.7 and self.alive:
            gone = rng.choice(sorted(self.alive))
            for engine in self.engines:
                engine.abort(gone)
        elif what < 0.8:
            for held in sorted(self.engines[0]._scheduler.held)[:1]:
                for engine in self.engines:
                    engine.release(held)
        elif what < 0.83:
            left = [engine.drain_all() for engine in self.engines]
            assert left[0] == left[1]
            assert {one.request_id for one in left[0]} == self.alive
            assert all(engine.blocks_used == 0 for engine in self.engines)
            self.alive.clear()
        self.collect()

    def collect(self) -> None:
        for engine in self.engines:
            check_blocks(engine)
        ended = [engine.take_finished() for engine in self.engines]
        assert ended[0] == ended[1]
        self.ended += ended[0]
        self.alive -= {one.request_id for one in ended[0]}

    def wait(self) -> None:
        self.now += self.rng.choice((0, self.rng.randrange(20_000), self.rng.randrange(300_000)))
        for engine in self.engines:
            engine.advance(self.now)
        self.collect()


@pytest.mark.parametrize("groups", LAYOUTS)
@settings(max_examples=examples(100), deadline=None)
@given(
    seed=st.integers(0, 2**32),
    policy=st.sampled_from(["fcfs", "priority"]),
    reserve=st.sampled_from([(False, False), (True, False), (False, True)]),
    mixed=st.booleans(),
)
@example(seed=34696792, policy="fcfs", reserve=(False, False), mixed=True)  # a hit is evicted, and less is needed
@example(seed=66460837, policy="fcfs", reserve=(False, False), mixed=False)  # preempted and back before a decode step
@example(seed=11742, policy="priority", reserve=(False, True), mixed=True)  # blocks reserved for several at once
def test_no_block_is_leaked_or_freed_twice_whatever_happens(
    groups: str, seed: int, policy: str, reserve: tuple[bool, bool], mixed: bool
) -> None:
    plan = LAYOUTS[groups]
    size = plan.block_size if plan else 2
    config = EngineConfig(
        16, 6, 400, 90 if plan else 40, size, policy, reserve[0], reserve[1], mixed, plan  # type: ignore[arg-type]
    )  # fmt: skip
    life = Life(config, seed)
    submitted = life.rng.randrange(1, 40)
    for number in range(submitted):
        life.act(number)
        life.wait()
    for engine in life.engines:
        for number in list(engine._scheduler.held):
            engine.release(number)
    for _ in range(100):
        if not life.alive:
            break
        life.now += 10**9
        for engine in life.engines:
            engine.advance(life.now)
            for number in list(engine._scheduler.held):
                engine.release(number)
        life.collect()
    assert not life.alive
    numbers_ended = [one.request_id for one in life.ended]
    assert len(numbers_ended) == len(set(numbers_ended)), "every request ends once"
    for engine in life.engines:
        assert (engine.blocks_used, engine.running, engine.waiting, engine.next_change_ns()) == (0, 0, 0, None)
        if engine.cache is not None:
            engine.cache.clear()
            assert (engine.cache.idle, engine.cache._starts, engine.cache._hidden) == (0, {}, {})
    if reserve[1]:
        assert life.engines[0].preemptions_total == 0
