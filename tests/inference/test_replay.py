"""Replaying a log behind a router: everything ends once, what the router knows is as old as asked for."""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tonnage.errors import InputError
from tonnage.inference.engine import EngineConfig
from tonnage.inference.engine.prefix_cache import PrefixCache
from tonnage.inference.replay.run import Log, Replay, ReplayWorkers, _Held, _LateView, log_of, replay
from tonnage.inference.replay.tuning import NothingServed, halves, tune
from tonnage.inference.routing.book import Book
from tonnage.inference.routing.catalog import NAMES, make_policy
from tonnage.inference.routing.costs import EngineCosts
from tonnage.inference.routing.policies import RouteChoice, RoutingPolicy
from tonnage.inference.routing.seconds import TonnageSettings
from tonnage.inference.routing.types import Overlap, RouteRequest, Worker
from tonnage.inference.tiers import Tier, Tiers, TierSpec, recompute_time
from tonnage.inference.timing import LinearTiming, PolynomialTiming
from tonnage.traffic.traces import Trace, load_trace

CONFIG = EngineConfig(512, 16, 8_192, 400, 16, reserve_full_prompt=True)
TIMING = PolynomialTiming(400 * 16)


def make_log(seed: int, requests: int = 150, gap_ms: int = 40) -> Log:
    """Sessions whose prompts grow, and prompts of their own."""
    rng = random.Random(seed)
    at, arrivals, prompts, outputs, hashes = 0, [], [], [], []
    sessions: list[list[int]] = [[1000 + n, 2000 + n] for n in range(6)]
    for number in range(requests):
        at += rng.randrange(gap_ms * 2) * 1_000_000
        known = rng.choice(sessions)
        if rng.random() < 0.3:
            known = [10_000 + number]
        else:
            known.append(20_000 + number)
            if len(known) > 20:
                del known[2:]
        arrivals.append(at)
        hashes.append(tuple(known))
        prompts.append(len(known) * 64 - rng.randrange(64))
        outputs.append(rng.randrange(1, 40))
    trace = Trace("made up", np.array(arrivals), np.array(prompts), np.array(outputs), tuple(hashes), 64)
    return log_of(trace, 16)


def policy(name: str) -> RoutingPolicy:
    return make_policy(name, EngineCosts(TIMING, CONFIG.max_num_batched_tokens))


def play(log: Log, name: str, **options: int) -> Replay:
    return replay(log, ReplayWorkers(options.pop("workers", 3), CONFIG, TIMING), policy(name), **options)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("lag_ns", [0, 50_000_000])
def test_every_request_ends_once_under_every_policy(name: str, lag_ns: int) -> None:
    log = make_log(1)
    result = play(log, name, event_lag_ns=lag_ns)
    assert [one.request_id for one in result.served] == list(range(len(log)))
    assert result.refused == 0
    for number, one in enumerate(result.served):
        assert one.arrival_ns <= one.admitted_ns <= one.first_token_ns <= one.finish_ns
        assert (one.prompt_tokens, one.output_tokens) == (log.prompt[number], log.output[number])
    assert 1 <= result.imbalance <= 3


def test_the_same_seed_gives_the_same_replay() -> None:
    log = make_log(2)
    for name in NAMES:
        first, second = play(log, name, seed=5), play(log, name, seed=5)
        assert (first.worker, first.finished) == (second.worker, second.finished)


@pytest.mark.parametrize("name", ["round-robin", "random", "least-loaded", "power-of-two"])
@pytest.mark.parametrize("kind", ["crowded", "quiet", "without content", "by priority", "too long", "without caches"])
def test_what_a_policy_does_not_look_at_changes_nothing_though_engines_are_not_brought_along(
    name: str, kind: str
) -> None:
    log = make_log(21, requests=120, gap_ms=200 if kind == "quiet" else 15)
    config, caching = CONFIG, kind != "without caches"
    if kind == "without content":
        log = Log(log.arrival_ns, log.prompt, log.output)
    if kind == "by priority":
        config = EngineConfig(512, 16, 8_192, 400, 16, policy="priority")
        log = Log(log.arrival_ns, log.prompt, log.output, log.paths, priorities=[n % 3 for n in range(len(log))])
    if kind == "too long":
        longer = [8_192 if number % 10 == 3 else tokens for number, tokens in enumerate(log.prompt)]
        log = Log(log.arrival_ns, longer, log.output, log.paths)
    cluster = ReplayWorkers(3, config, TIMING, caching)
    plain, looking, receipts = policy(name), policy(name), policy(name)
    assert plain.looks != "caches"
    looking.looks = "caches"
    expected = replay(log, cluster, looking, seed=3, keep_receipts=True)
    for made in (replay(log, cluster, plain, seed=3), replay(log, cluster, receipts, seed=3, keep_receipts=True)):
        assert (made.worker, made.busy_ns) == (expected.worker, expected.busy_ns)
        assert made.finished == expected.finished
        assert made.receipts in ([], expected.receipts)
    assert expected.refused == (12 if kind == "too long" else 0)


def test_what_an_engine_holds_is_looked_up_when_asked_for_and_absent_where_it_is_nothing() -> None:
    asked: list[int] = []

    def look(index: int) -> int:
        asked.append(index)
        return (5, 0, 7)[index]

    held = _Held(3, look)
    assert (held.get(1, 0), held.get(2, 0), held.get(2), held.get(9, 0), asked) == (0, 7, 7, 0, [1, 2])
    assert (dict(held), len(held), asked) == ({0: 5, 2: 7}, 2, [1, 2, 0])
    with pytest.raises(KeyError):
        held[1]


def test_a_prompt_that_fits_no_engine_is_refused_and_holds_nothing_up() -> None:
    log = Log([0, 1_000, 2_000], [100, 400 * 16 + 1, 100], [5, 5, 5])
    result = play(log, "least-loaded", workers=1)
    assert [one is not None and one.state for one in result.finished] == ["finished", "rejected", "finished"]
    assert result.refused == 1


def test_without_content_nothing_is_reused() -> None:
    log = make_log(3)
    result = play(Log(log.arrival_ns, log.prompt, log.output), "tonnage")
    assert result.reuse == 0


def test_one_engine_reuses_the_same_under_every_policy() -> None:
    log = make_log(4)
    assert len({play(log, name, workers=1).reuse for name in NAMES}) == 1


def test_cache_aware_policies_reuse_more_than_taking_turns() -> None:
    log = make_log(5, requests=400)
    turns = play(log, "round-robin").reuse
    for name in ("dynamo", "llm-d", "sglang", "tonnage"):
        assert play(log, name).reuse > turns + 0.05


class Watched(RoutingPolicy):
    """Passes on what it was asked, and always takes the engine of least index."""

    name = "watched"

    def __init__(self) -> None:
        self.asked: list[tuple[RouteRequest, Overlap, list[Worker]]] = []

    def choose(
        self,
        request: RouteRequest,
        overlap: Overlap,
        workers: Sequence[Worker],
        book: Book,
        now_ns: int,
        rng: random.Random,
    ) -> RouteChoice:
        self.asked.append((request, overlap, list(workers)))
        return RouteChoice(workers[0].index, "turn", request.prompt_tokens)


def test_a_router_is_told_how_long_answers_will_be_only_when_asked_to() -> None:
    log = make_log(9, requests=5)
    for known in (False, True):
        watched = Watched()
        replay(log, ReplayWorkers(1, CONFIG, TIMING), watched, known_outputs=known)
        told = [request.expected_output for request, _, _ in watched.asked]
        assert told == (list(log.output) if known else [None] * 5)


def test_the_router_sees_blocks_in_the_tiers_below_the_gpu_and_how_quickly_they_come_up() -> None:
    made = {}

    def stack(index: int) -> Tiers:
        specs = [TierSpec("host", 500, read_bytes_per_s=1e9), TierSpec("remote", read_bytes_per_s=1e8)]
        made[index] = Tiers([Tier(spec, 1_000_000) for spec in specs], recompute_time(TIMING, 16))
        return made[index]

    prompt = 300 * 16 + 1
    paths = [((1_000 * number, 1_000 * number + 300),) for number in range(3)]
    log = Log([0, 10**10, 2 * 10**10, 3 * 10**10], [prompt] * 4, [1] * 4, [*paths, paths[0]])
    watched = Watched()
    replay(log, ReplayWorkers(2, CONFIG, TIMING, tiers=stack), watched)
    _, last, workers = watched.asked[-1]
    # 400 blocks on the GPU hold the third prompt and the head of the second; 500 in host memory the third and some of
    # the second; remote has all.
    assert (last.device, last.host, last.disk) == ({}, {}, {0: 300})
    _, again, _ = watched.asked[0]
    assert again == Overlap()
    assert [(one.host_block_s, one.disk_block_s) for one in workers] == [(0.001, 0.01)] * 2
    counted = [(tier.read, tier.held.blocks) for tier in made[1].tiers]
    assert counted == [(0, 0), (0, 0)]


def test_a_higher_priority_of_a_request_is_a_lower_value_for_the_engine() -> None:
    """One sequence at a time: of two that wait, the one of higher priority is first though it came later."""
    config = EngineConfig(512, 1, 8_192, 400, 16, policy="priority")
    log = Log([0, 1, 2], [400, 400, 400], [5, 5, 5], priorities=[0, 1, 7])
    result = replay(log, ReplayWorkers(1, config, TIMING), policy("least-loaded"))
    order = sorted(result.served, key=lambda one: one.finish_ns)
    assert [one.request_id for one in order] == [0, 2, 1]


def test_blocks_that_do_not_divide_a_hash_are_refused() -> None:
    one = np.array([1])
    with pytest.raises(InputError, match="use a divisor or a multiple of 512"):
        log_of(Trace("made up", one, one, one, ((1,),), 512), 48)


def test_a_late_view_is_the_cache_as_it_was() -> None:
    rng = random.Random(7)
    cache = PrefixCache(record=True)
    lag = 500
    view = _LateView(cache, lag)
    history: list[tuple[int, list[int]]] = [(-lag - 1, [])]
    paths = [((start, start + 30),) for start in range(0, 600, 30)]
    for now in range(0, 20_000, 50):
        cache.now_ps = now
        path = rng.choice(paths)
        held = cache.match(path, 30)[0]
        lease = cache.acquire(path, held)
        if held < 30:
            cache.commit(lease, path[0][0] + held, path[0][1])
        cache.release(lease)
        if cache.idle > 200:
            cache.evict(cache.idle - 200)
        history.append((now, [cache.match(one, 30)[0] for one in paths]))
        known = next(state for at, state in reversed(history) if at <= now - lag)
        assert [view.blocks(one, now) for one in paths] == (known or [0] * len(paths))


def test_tuning_never_ends_worse_than_the_defaults_on_what_it_fits() -> None:
    log = make_log(6, requests=120)
    found = tune(log, ReplayWorkers(3, CONFIG, TIMING), rounds=1)
    assert found.fitted_after <= found.fitted_before
    assert found.fitted_before == found.trials[0].score
    assert min(trial.score for trial in found.trials) == found.fitted_after
    first, second = halves(log)
    assert (len(first), len(second)) == (60, 60)
    assert second.paths[0] == log.paths[60]


def test_weights_that_are_worse_on_what_they_were_not_fitted_to_are_not_given() -> None:
    made = [
        tune(make_log(seed, requests=60, gap_ms=20), ReplayWorkers(3, CONFIG, TIMING), rounds=1) for seed in range(12)
    ]
    worse = [one for one in made if one.held_out_after > one.held_out_before]
    assert worse and len(worse) < len(made)
    for one in made:
        assert (one.rejected is not None) == (one in worse) == (not one.holds)
        if one.rejected is not None:
            assert one.settings == TonnageSettings() != one.rejected


@pytest.mark.parametrize(("longest_first", "half"), [(True, "first"), (False, "second")])
def test_a_half_of_which_nothing_fits_into_an_engine_is_refused(longest_first: bool, half: str) -> None:
    lengths = [64] * 10 + [6_400_000] * 10
    log = log_of(
        Trace(
            "made up", np.arange(20) * 10**9, np.array(sorted(lengths, reverse=longest_first)), np.ones(20, np.int64)
        ),
        16,
    )
    with pytest.raises(NothingServed, match=f"none of the 10 requests of the {half} half fits into an engine"):
        tune(log, ReplayWorkers(2, CONFIG, TIMING), rounds=1)


def test_a_linear_timing_serves_a_replay_too() -> None:
    timing = LinearTiming(base_ps=5_000_000_000, token_ps=50_000_000, cached_ps=40_000)
    log = make_log(8)
    costs = EngineCosts(timing, CONFIG.max_num_batched_tokens)
    result = replay(log, ReplayWorkers(3, CONFIG, timing), make_policy("tonnage", costs))
    assert len(result.served) == len(log)


DATA = Path(os.environ.get("TONNAGE_DATA", Path(__file__).parents[3] / "shared" / "data"))
TRACE = DATA / "traces" / "mooncake_synthetic_trace.jsonl.gz"

_PEER = """
import gzip, json, os, sys, tempfile
os.environ["DYN_LOG"] = "error"
from dynamo._core import run_mocker_trace_replay
with tempfile.NamedTemporaryFile(suffix=".jsonl") as plain:
    plain.write(gzip.open(sys.argv[1]).read()); plain.flush()
    runs = [run_mocker_trace_replay([plain.name], num_workers=4, trace_block_size=512, router_mode="kv_router").summary
            for _ in range(int(sys.argv[2]))]
print(json.dumps([run["prefix_cache_reused_ratio"] for run in runs]))
"""


@pytest.mark.trace
@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.parametrize(("runs", "within"), [pytest.param(8, 0.0075, marks=pytest.mark.fuzz)])
def test_the_dynamo_policy_reuses_what_dynamo_s_own_router_does(runs: int, within: float) -> None:
    """Both draw ties: a run varies by half a point, a mean of eight by a fifth."""
    pytest.importorskip("dynamo._core", reason="ai-dynamo-runtime is not installed")
    if not TRACE.exists():
        pytest.skip(f"{TRACE} is absent; set TONNAGE_DATA to the folder with traces/")
    trace = load_trace(TRACE)
    log = log_of(trace, 64)
    config = EngineConfig(8_192, 256, 1 << 20, 16_384, 64, reserve_full_prompt=True)
    cluster = ReplayWorkers(4, config, PolynomialTiming(16_384 * 64))
    ours = [replay(log, cluster, make_policy("dynamo"), seed=seed).reuse for seed in range(runs)]
    words = [sys.executable, "-c", _PEER, TRACE, str(runs)]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
    theirs = json.loads(ran.stdout)
    assert statistics.mean(ours) == pytest.approx(statistics.mean(theirs), abs=within)
