"""The KV index: lookups beside ai-dynamo-runtime's RadixTree, events per second, memory.

*lookup*: 64 workers that hold up to 1,024 blocks of each of 8 prompts, 300,000 further blocks, prompts asked in turn of
both in this process, each answer a number for every worker; the same answers are checked first. Depths are shared by
groups of workers (1, 4, 16 or 64 distinct ones); *holes*: 14 depths, and every fourth worker lacks one of two blocks
in the middle, so 16 distinct answers. The keys asked are fresh integers, as a request's are. RadixTree takes local
hashes, the index chained ones, so *tokens* compares all from token ids on. The peer's times include the hop to its
thread that its Python binding makes.

*ingest*: messages as vLLM writes them (maps, 16 tokens per block), decoding included, from 64 workers whose prompts
grow; a fifth of the prompts begin with what another worker has already. Seconds are those of this thread on a
processor, the second time that the index is filled.
"""

from __future__ import annotations

import gc
import json
import os
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from benchmarks.common import Bar, Options, Report
from tonnage.inference.index import Batch, KvIndex
from tonnage.inference.index.events import BatchDecoder

os.environ.setdefault("DYN_LOG", "error")
COLUMNS = ("what", "amount", "ours", "peer", "ratio", "detail")
WORKERS, DEPTH, PROMPTS, BLOCK = 64, 1024, 8, 16
FILLER, FILLER_CHAIN = 300_000, 100
SEED = 7
Rows = tuple[list[dict[str, Any]], list[Bar], list[str]]


def run(options: Options) -> Report:
    """As a benchmark of its own."""
    rows, bars, notes = rows_and_bars(options.quick)
    return Report("inference index", COLUMNS, rows, bars, notes)


def rows_and_bars(quick: bool) -> Rows:
    """Rows (microseconds, or millions of blocks a second), bars and notes. ``quick``: fewer repetitions."""
    rows: list[dict[str, Any]] = []
    bars: list[Bar] = []
    notes: list[str] = []
    _lookups(quick, rows, bars, notes)
    _ingests(quick, rows, bars)
    _memory(quick, rows)
    return rows, bars, notes


# -- lookups ----------------------------------------------------------------------------------------------------------


def _lookups(quick: bool, rows: list[dict[str, Any]], bars: list[Bar], notes: list[str]) -> None:
    try:
        from dynamo._core import RadixTree, compute_block_hash_for_seq
    except ImportError:
        notes.append("lookups beside the peer left out: ai-dynamo-runtime is not installed")
        return
    count = 400 if quick else 3000
    for depths, holes in ((1, False), (4, False), (16, False), (64, False), (14, True)):
        setup = Setup(depths, holes, compute_block_hash_for_seq, RadixTree)
        setup.check()
        ours, theirs = _alternating(setup.index_scores, setup.peer_scores, PROMPTS, count)
        bare, bare_theirs = _alternating(setup.index_groups, setup.peer_find, PROMPTS, count)
        name = f"{depths} depths{' and 2 holes' if holes else ''}"
        rows.append(
            _compared(f"scores, {name}", ours, theirs, f"p99 {ours[1]:.1f} and {theirs[1]:.1f} µs"),
        )
        rows.append(_compared(f"find only, {name}", bare, bare_theirs, "groups of workers; object before .scores"))
        limit = 1.0 if depths == 64 else 1 / 3
        bars.append(
            Bar(f"index-lookup-ratio-{depths}{'-holes' if holes else ''}", ours[0] / theirs[0], "<=", limit, "", "cost")
        )
        if depths == 16 and not holes:
            whole, whole_theirs = _alternating(setup.index_tokens, setup.peer_tokens, PROMPTS, count // 4)
            rows.append(_compared("tokens to scores, 16,384 tokens", whole, whole_theirs, "hashing included"))


def _compared(what: str, ours: tuple[float, float], theirs: tuple[float, float], detail: str) -> dict[str, Any]:
    return {
        "what": what,
        "amount": f"{WORKERS} workers, {DEPTH} blocks, µs p50",
        "ours": ours[0],
        "peer": theirs[0],
        "ratio": ours[0] / theirs[0],
        "detail": detail,
    }


class Setup:
    """The same blocks in both."""

    def __init__(self, depths: int, holes: bool, hash_blocks: Any, tree: Any) -> None:
        rng = random.Random(SEED * depths + holes)
        self.tree = tree()
        self.index = KvIndex(BLOCK, max_blocks=1 << 22)
        self._hash_blocks = hash_blocks
        self._events = 0
        self.tokens = [[rng.randrange(150_000) for _ in range(DEPTH * BLOCK)] for _ in range(PROMPTS)]
        self.chains = [_fresh(self.index.prompt_keys(one)) for one in self.tokens]
        self.locals = [_fresh(hash_blocks(one, BLOCK)) for one in self.tokens]
        for number in range(PROMPTS):
            self._store_prompt(number, depths, holes, rng)
        for at in range(0, FILLER, FILLER_CHAIN):
            self._store(at % WORKERS, [rng.getrandbits(64) for _ in range(FILLER_CHAIN)], None)
        gc.collect()

    def _store_prompt(self, number: int, depths: int, holes: bool, rng: random.Random) -> None:
        levels = rng.sample(range(1, DEPTH + 1), depths)
        held = [levels[worker % depths] for worker in range(WORKERS)]
        missing = rng.sample(range(DEPTH // 2), 2)
        rng.shuffle(held)
        for worker, depth in enumerate(held):
            self._store(worker, self.chains[number][:depth], self.locals[number])
            place = missing[worker // 4 % 2]
            if holes and worker % 4 == 0 and depth > place:
                hole = [self.chains[number][place]]
                self.index.remove(str(worker), hole)
                self._event(worker, {"removed": {"block_hashes": hole}})

    def _store(self, worker: int, keys: list[int], locals_: list[int] | None) -> None:
        self.index.store(str(worker), None, keys)
        pairs = zip(keys, locals_ or keys, strict=False)
        blocks = [{"block_hash": key, "tokens_hash": local} for key, local in pairs]
        self._event(worker, {"stored": {"parent_hash": None, "blocks": blocks}})

    def _event(self, worker: int, data: Any) -> None:
        self._events += 1
        event = {"event_id": self._events, "dp_rank": 0, "data": data}
        self.tree.apply_event(worker, json.dumps(event).encode())

    def check(self) -> None:
        """Raise AssertionError unless both give the same answers."""
        for number in range(PROMPTS):
            theirs = {str(worker): depth for (worker, _), depth in self.peer_scores(number).items()}
            if theirs != self.index_scores(number) or theirs != self.index_tokens(number):
                raise AssertionError("the index and RadixTree do not answer alike")

    def index_groups(self, number: int) -> Any:
        return self.index.groups(self.chains[number])

    def index_scores(self, number: int) -> dict[str, int]:
        return self.index.scores(self.chains[number])

    def index_tokens(self, number: int) -> dict[str, int]:
        return self.index.scores(self.index.prompt_keys(self.tokens[number]))

    def peer_find(self, number: int) -> Any:
        return self.tree.find_matches(self.locals[number])

    def peer_scores(self, number: int) -> Any:
        return self.tree.find_matches(self.locals[number]).scores

    def peer_tokens(self, number: int) -> Any:
        return self.tree.find_matches(self._hash_blocks(self.tokens[number], BLOCK)).scores


def _fresh(keys: Sequence[int]) -> list[int]:
    """Equal integers that are other objects."""
    return [int(str(key)) for key in keys]


def _alternating(
    ours: Callable[[int], Any], theirs: Callable[[int], Any], choices: int, count: int
) -> tuple[tuple[float, float], tuple[float, float]]:
    """((p50, p99), (p50, p99)) in microseconds, in blocks of 50 calls of one and of the other."""
    rng = random.Random(SEED)
    taken: tuple[list[float], list[float]] = ([], [])
    clock = time.perf_counter
    for _ in range(-(-count // 50)):
        asked = [rng.randrange(choices) for _ in range(50)]
        for call, times in zip((ours, theirs), taken, strict=True):
            for number in asked:
                begin = clock()
                call(number)
                times.append((clock() - begin) * 1e6)
    return _percentiles(taken[0]), _percentiles(taken[1])


def _percentiles(times: list[float]) -> tuple[float, float]:
    times.sort()
    return times[len(times) // 2], times[int(len(times) * 0.99)]


# -- ingest -----------------------------------------------------------------------------------------------------------


def messages(blocks: int, events: int, total: int, seed: int = SEED) -> tuple[list[tuple[str, bytes]], int]:
    """([(worker, batch)], blocks in all): prompts of 64 workers that grow by ``blocks`` blocks an event."""
    rng = random.Random(seed)
    growing: list[list[int]] = [[] for _ in range(WORKERS)]
    shared: list[dict[str, Any]] = []
    out: list[tuple[str, bytes]] = []
    made = 0
    while made < total:
        worker = rng.randrange(WORKERS)
        batch = []
        for _ in range(events):
            if len(growing[worker]) >= 512 // blocks:
                growing[worker] = []
            first = not growing[worker]
            if shared and first and rng.random() < 0.2:
                event = rng.choice(shared)
            else:
                event = _event(rng, blocks, growing[worker][-1] if growing[worker] else None)
                if first:
                    shared.append(event)
            growing[worker].append(event["block_hashes"][-1])
            batch.append(event)
            made += blocks
        out.append((str(worker), msgspec.msgpack.encode([1.0, batch, 0])))
    return out, made


def _event(rng: random.Random, blocks: int, parent: int | None) -> dict[str, Any]:
    return {
        "type": "BlockStored",
        "block_hashes": [rng.getrandbits(64) for _ in range(blocks)],
        "parent_block_hash": parent,
        "token_ids": [rng.randrange(150_000) for _ in range(blocks * BLOCK)],
        "block_size": BLOCK,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
    }


def _ingests(quick: bool, rows: list[dict[str, Any]], bars: list[Bar]) -> None:
    total = 30_000 if quick else 200_000
    cases: tuple[tuple[str, str, int, int, float | None, str], ...] = (
        ("64-block events, engine hashes", "engine", 64, 1, 1.5, "ingest-64-engine"),
        ("16-block events, rehashed", "tokens", 16, 1, 0.5, "ingest-16-rehashed"),
        ("single blocks, engine hashes", "engine", 1, 1, 0.25, "ingest-1-engine"),
        ("single blocks, rehashed", "tokens", 1, 1, None, ""),
        ("single blocks, rehashed, 32 events a message", "tokens", 1, 32, 0.25, "ingest-1-rehashed"),
    )
    for what, keys, blocks, events, limit, bar in cases:
        gc.collect()
        sent, made = messages(blocks, events, total)
        rate = max(_ingest(keys, sent, made) for _ in range(2 if quick else 4))
        rows.append(
            {"what": what, "amount": f"{made:,} blocks, M blocks/s", "ours": rate, "detail": "decoding included"}
        )
        if limit is not None:
            bars.append(Bar(f"index-{bar}", rate, ">=", limit, "M blocks/s", "cost"))


def _ingest(keys: Any, sent: list[tuple[str, bytes]], made: int) -> float:
    index = KvIndex(BLOCK, keys=keys)
    decode, apply = BatchDecoder().decode, index.apply_batch
    for worker in range(WORKERS):
        index.add_worker(str(worker))
    took = 0.0
    for _ in range(2):  # the first round fills memory for the second, as in a router that has run for a while
        for worker in range(WORKERS):
            index.clear(str(worker))
        index.counts.stored = 0
        gc.collect()
        begin = time.thread_time()
        for name, payload in sent:
            batch = decode(payload)
            if isinstance(batch, Batch):
                apply(name, batch)
        took = time.thread_time() - begin
    if index.counts.stored != made:
        raise AssertionError(f"{index.counts.stored} of {made} blocks arrived")
    return made / took / 1e6


# -- memory -----------------------------------------------------------------------------------------------------------


def _memory(quick: bool, rows: list[dict[str, Any]]) -> None:
    kinds: tuple[Literal["engine", "tokens"], ...] = ("engine", "tokens")
    for keys in kinds:
        sent, _ = messages(16, 8, 100_000 if quick else 400_000)
        index = KvIndex(BLOCK, keys=keys)
        decode = BatchDecoder().decode
        gc.collect()
        before = _resident()
        for worker, payload in sent:
            batch = decode(payload)
            if isinstance(batch, Batch):
                index.apply_batch(worker, batch)
        grown = _resident() - before
        use = index.memory()
        rows.append(
            {
                "what": f"memory, {'engine hashes' if keys == 'engine' else 'rehashed'}",
                "amount": f"{use.blocks:,} blocks, {use.held:,} held, MB per million blocks",
                "ours": use.bytes_per_million_blocks / 1e6,
                "detail": f"resident memory grew by {grown / use.blocks:.0f} bytes a block",
            }
        )


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
