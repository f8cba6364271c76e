"""What tiers are worth on a log: between nothing and the bound, in reuse, time and money."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deep_seeds import examples
from tonnage.inference.engine import EngineConfig
from tonnage.inference.prompts import BlockNames, numbers
from tonnage.inference.replay import Log, log_of
from tonnage.inference.replay.reuse import reuse_bound
from tonnage.inference.tiers import TierSpec
from tonnage.inference.timing import LinearTiming, PolynomialTiming
from tonnage.inference.worth import Setup, TierValuation, value
from tonnage.traffic.traces import Trace, load_trace
from tonnage.units import MICRO_PER_USD, NS_PER_HOUR

SIZE, HASH = 4, 8
TIMING = LinearTiming(1_000_000, token_ps=500_000, pair_ps=100)


def setup(workers: int = 1, kv_blocks: int = 16, micro_usd: int = 0) -> Setup:
    config = EngineConfig(32, 8, 1_000, kv_blocks, SIZE)
    return Setup(workers, config, TIMING, 1_000, micro_usd)


def log(prompts: Sequence[Sequence[int]], gap_ns: int = 2_000, extra: int = 0, output: int = 2) -> Log:
    """Prompts given by hashes of two blocks each, and ``extra`` tokens of their own."""
    tokens = [len(one) * HASH + extra for one in prompts]
    arrivals = np.arange(len(prompts)) * gap_ns
    outputs = np.full(len(prompts), output, np.int32)
    return log_of(Trace("made up", arrivals, np.array(tokens), outputs, tuple(map(tuple, prompts)), HASH), SIZE)


def turns(count: int, users: int) -> list[list[int]]:
    """Prompts of ``users`` in turn, each of five hashes, always the same."""
    return [[number % users * 10 + at for at in range(5)] for number in range(count)]


PROMPTS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=5), min_size=1, max_size=25)


@given(PROMPTS, st.integers(1, 3), st.integers(1, 3))
def test_the_bound_counts_blocks_whose_whole_prefix_was_seen(
    prompts: list[list[int]], workers: int, extra: int
) -> None:
    names = BlockNames(SIZE, HASH)
    paths = [names.path(one, len(one) * HASH + extra) for one in prompts]
    seen: list[set[int]] = [set() for _ in range(workers)]
    blocks = found = 0
    for number, path in enumerate(paths):
        mine = seen[number % workers]
        found += sum(block in mine for block in numbers(path))  # a number stands for a block with all before it
        blocks += len(numbers(path))
        mine.update(numbers(path))
    bound = reuse_bound(log(prompts, extra=extra), SIZE, workers)
    assert (bound.prompt_blocks, bound.seen_blocks) == (blocks, found)
    assert bound.seen_blocks == bound.reusable_blocks  # with tokens behind the last full block


def test_the_last_block_of_a_repeated_prompt_is_seen_and_not_reusable() -> None:
    bound = reuse_bound(log([[1, 2], [1, 2]]), SIZE)
    assert (bound.seen_blocks, bound.reusable_blocks, bound.reusable_tokens) == (4, 3, 12)
    assert (bound.block_share, bound.token_share) == (4 / 8, 12 / 32)


def test_the_bound_falls_with_workers_that_take_turns() -> None:
    same = log([[1, 2, 3]] * 12)
    assert [reuse_bound(same, SIZE, workers).seen_blocks for workers in (1, 2, 12)] == [66, 60, 0]


@settings(max_examples=examples(60))
@given(PROMPTS, st.integers(1, 3), st.integers(0, 3), st.sampled_from([0, 3_000, 60_000]))
def test_a_free_tier_without_end_equals_the_bound_and_a_tier_of_size_zero_equals_none(
    prompts: list[list[int]], workers: int, extra: int, gap_ns: int
) -> None:
    played = log(prompts, gap_ns, extra)
    nothing, free = TierSpec("host", 0), TierSpec("disk", None)
    found = value(played, setup(workers), [nothing, free])
    alone, zero, without_end, unbounded = found.settings
    assert zero.reuse == alone.reuse
    assert zero.ttft_ms == alone.ttft_ms
    assert (zero.saved_usd, zero.tier_usd, zero.uses[0].held) == (0.0, 0.0, 0)
    assert without_end.reuse == found.bound.own == reuse_bound(played, SIZE, workers).token_share
    assert unbounded.reuse == without_end.reuse
    assert alone.reuse <= found.bound.own


def worth_of(*specs: TierSpec, micro_usd: int = 0) -> TierValuation:
    return value(log(turns(60, 6), 30_000), setup(kv_blocks=22, micro_usd=micro_usd), specs)


def test_reuse_grows_with_each_tier_up_to_the_bound() -> None:
    rng = Random(1)
    prompts = [[user * 10 + at for at in range(5)] for user in rng.choices(range(12), range(12, 0, -1), k=200)]
    specs = [TierSpec("host", 40), TierSpec("disk", 80), TierSpec("remote", None)]
    found = value(log(prompts, 30_000), setup(kv_blocks=22), specs)
    reuse = [setting.reuse for setting in found.settings]
    assert 0 < reuse[0] < reuse[1] - 0.1 < reuse[2] - 0.2 < reuse[3] - 0.3
    assert reuse[3] == reuse[4] == found.bound.own > 0.8
    assert [setting.tiers for setting in found.settings[:3]] == [[], ["host"], ["host", "disk"]]


def test_a_host_tier_no_larger_than_the_gpu_brings_nothing_and_is_warned_of() -> None:
    small = worth_of(TierSpec("host", 22))
    assert small.settings[1].reuse == small.settings[0].reuse == 0.0
    assert "tier host holds 22 blocks, not more than the 22 of the GPU" in small.findings[0]
    large = worth_of(TierSpec("host", 70))
    assert large.settings[1].reuse == large.bound.own
    assert large.findings == []


def test_time_to_first_token_falls_when_loading_is_quick_and_stays_when_it_is_not() -> None:
    quick = worth_of(TierSpec("host", None, read_bytes_per_s=1e9))
    slow = worth_of(TierSpec("host", None, read_bytes_per_s=1e6))
    assert quick.settings[1].ttft_ms.mean < quick.settings[0].ttft_ms.mean
    assert slow.settings[1].ttft_ms == slow.settings[0].ttft_ms
    assert slow.settings[1].recomputed > 0
    assert slow.settings[1].reuse == 0.0


def test_money_is_gpu_time_saved_at_its_price_less_what_the_tier_costs() -> None:
    price = TierSpec("host", 1 << 30, micro_usd_per_gib_hour=5.0, micro_usd_per_gib_read=0.0)
    found = worth_of(price, micro_usd=10 * MICRO_PER_USD)
    alone, host, free = found.settings
    assert host.saved_usd == pytest.approx((alone.engine_hours - host.engine_hours) * 10)
    assert host.saved_usd > 0
    ended_hours = host.tier_usd * MICRO_PER_USD / (5.0 * 1_000)  # 2^30 blocks of 1,000 bytes are 1,000 GiB
    assert ended_hours * NS_PER_HOUR == pytest.approx(59 * 30_000, rel=0.2)
    assert host.net_usd == host.saved_usd - host.tier_usd
    assert free.tier_usd == 0.0


def test_a_shared_tier_is_counted_and_paid_once_and_an_own_one_for_each_worker() -> None:
    usd = {}
    for shared in (False, True):
        spec = TierSpec("remote", 1_000, shared=shared, micro_usd_per_gib_hour=1e12)
        found = value(log(turns(40, 4), 30_000), setup(4), [spec])
        usd[shared] = found.settings[1].tier_usd
    assert usd[False] == pytest.approx(4 * usd[True], rel=0.2)


def test_workers_with_a_shared_tier_reuse_what_another_computed() -> None:
    prompts = [[number // 2 * 10 + at for at in range(5)] for number in range(40)]  # each twice, on two workers
    own = value(log(prompts, 60_000), setup(2), [TierSpec("remote", None)])
    shared = value(log(prompts, 60_000), setup(2), [TierSpec("remote", None, shared=True)])
    assert own.settings[1].reuse == own.bound.own == 0.0
    assert shared.settings[1].reuse == shared.bound.shared > 0.4


def test_a_log_without_content_is_refused() -> None:
    with pytest.raises(ValueError, match="known content"):
        value(Log([0], [10], [1]), setup(), [])


def test_a_request_whose_blocks_in_a_tier_do_not_fit_the_gpu_beside_others_waits_for_room() -> None:
    prompts = [[user * 10 + at for at in range(5)] for user in (0, 1, 2, 0, 1, 2, 0, 1, 2)]
    found = value(log(prompts, 1, output=8), setup(kv_blocks=14), [TierSpec("host")])
    assert found.settings[1].refused == 0
    assert found.settings[1].reuse == found.bound.own > 0.5


@pytest.mark.trace
def test_on_the_synthetic_mooncake_trace_a_free_tier_equals_the_bound() -> None:
    folder = Path(os.environ.get("TONNAGE_DATA", Path(__file__).parents[4] / "shared" / "data")) / "traces"
    path = folder / "mooncake_synthetic_trace.jsonl.gz"
    if not path.exists():
        pytest.skip(f"no {path}; set TONNAGE_DATA")
    trace = load_trace(path)
    count, size = 800, 64
    assert trace.hashes is not None
    some = slice(count)
    columns = (trace.arrivals_ns[some], trace.prompt[some], trace.output[some], trace.hashes[some])
    played = log_of(Trace(trace.source, *columns, trace.hash_block), size)
    config = EngineConfig(8_192, 256, 1 << 20, 16_384, size)
    for workers in (1, 4):
        found = value(played, Setup(workers, config, PolynomialTiming(16_384 * size), 1 << 23), [])
        assert found.settings[-1].reuse == found.bound.own
        assert found.settings[0].reuse < found.bound.own
