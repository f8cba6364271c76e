"""What tiers give back, in what time, and what they lose; ranges against single blocks."""

from __future__ import annotations

from math import inf

import pytest
from block_tiers import BlockTier, BlockTiers
from hypothesis import given
from hypothesis import strategies as st

from tonnage.errors import InputError
from tonnage.inference import tiers as kv
from tonnage.inference.routing.overlap import overlap_of
from tonnage.inference.routing.types import Overlap
from tonnage.inference.tiers import Tier, Tiers, TierSpec
from tonnage.inference.timing import LinearTiming, PolynomialTiming

BLOCK = 1_000  # bytes, so that 1e9 bytes/s is 1 us a block
US = 1_000_000  # ps
SLOW = 100 * US


def linear(block_ps: int) -> kv.stack.RecomputeTime:
    return lambda first, last: (last - first) * block_ps


def stack(*specs: TierSpec, recompute_ps: int = SLOW, decay_ns: int = 1_000) -> Tiers:
    return Tiers([Tier(spec, BLOCK) for spec in specs], linear(recompute_ps), decay_ns=decay_ns)


def speed(blocks_per_us: float) -> float:
    return blocks_per_us * 1e9


SPECS = st.builds(
    TierSpec,
    name=st.just("tier"),
    blocks=st.sampled_from([3, 8, 20, None]),
    read_bytes_per_s=st.sampled_from([inf, speed(1), speed(0.1)]),
    write_bytes_per_s=st.sampled_from([inf, speed(1), speed(0.01)]),
    latency_ns=st.sampled_from([0, 7_000]),
    min_frequency=st.sampled_from([1, 2, 3]),
    fill=st.sampled_from(["through", "spill"]),
)
SPANS = st.tuples(st.integers(0, 20), st.integers(1, 9)).map(lambda pair: (pair[0], pair[0] + pair[1]))
CALLS = st.tuples(
    st.sampled_from(["load", "load", "stored", "stored", "evicted"]),
    st.lists(SPANS, min_size=1, max_size=3),
    st.integers(0, 12),
    st.sampled_from([0, 1_000, 30_000, 700_000]),
)


@given(st.lists(SPECS, min_size=1, max_size=3), st.sampled_from([5, 50]), st.lists(CALLS, max_size=30))
def test_ranges_give_load_and_lose_what_single_blocks_would(
    specs: list[TierSpec], recompute_us: int, calls: list[tuple[str, list[tuple[int, int]], int, int]]
) -> None:
    mine = stack(*specs, recompute_ps=recompute_us * US, decay_ns=100_000)
    plain = BlockTiers(
        [BlockTier(tier.spec, tier.write_ps) for tier in mine.tiers],
        [tier.read_ps for tier in mine.tiers],
        recompute_us * US,
        100_000 * 1_000,
    )
    now = 0
    for kind, spans, have, later in calls:
        now += later
        if kind == "load":
            path = [block for low, high in disjoint(spans) for block in range(low, high)]
            have = min(have, len(path))
            before = snapshot(mine)
            assert sum(mine.held(disjoint(spans), have, now)) == plain.held(path, have, now)
            assert snapshot(mine) == before
            assert mine.load(disjoint(spans), have, now) == plain.load(path, have, now)
        else:
            for side in (mine, plain):
                (side.stored if kind == "stored" else side.evicted)(*spans[0])
        for tier, other in zip(mine.tiers, plain.tiers, strict=True):
            seen = (tier.written, tier.evicted, tier.lost, tier.read, tier.held.blocks)
            assert seen == (other.written, other.evicted, other.lost, other.read, len(other.ready))


def snapshot(tiers: Tiers) -> list[object]:
    """Everything that a query must leave alone."""
    pieces = [[(p.low, p.high, p.value, p.time) for p in tier.held._pieces] for tier in tiers.tiers]
    counts = [(tier.read, tier.written, tier.evicted, tier.lost) for tier in tiers.tiers]
    return [pieces, counts, tiers.loaded_blocks, tiers.loaded_ps, tiers.refused_blocks, tiers._run, tiers._now]


def test_a_query_tells_host_memory_from_all_tiers_below_it_and_from_what_comes_after_a_gap() -> None:
    specs = [TierSpec("host", 4, speed(1), inf), TierSpec("disk", 8, speed(0.5), inf), TierSpec("remote")]
    tiers = stack(*specs)
    tiers.stored(0, 10, 0)
    assert tiers.held(((0, 10), (30, 35)), 0, 0) == (4, 6)
    assert tiers.held(((0, 10), (30, 35)), 3, 0) == (1, 6)
    assert tiers.held(((30, 35), (0, 10)), 0, 0) == (0, 0)
    assert tiers.held((), 0) == (0, 0)
    host_s, disk_s = tiers.block_s()
    assert (host_s, disk_s) == pytest.approx((1e-6, 2e-6))
    assert stack(TierSpec("host", 4)).block_s() == (0.0, None)
    assert [stack(*some).most_blocks for some in ((), specs[:2])] == [0, 8]
    assert tiers.most_blocks > 10**15


def test_a_query_does_not_count_blocks_that_are_still_being_written() -> None:
    tiers = stack(TierSpec("host", None, inf, speed(1)))
    tiers.stored(0, 10, 0)
    assert [tiers.held(((0, 10),), 0, at).host for at in (0, 9_999, 10_000)] == [0, 0, 10]


def test_the_overlap_of_a_prompt_has_the_tiers_behind_what_each_gpu_holds() -> None:
    one, other = stack(TierSpec("host")), stack(TierSpec("disk"))
    one.stored(0, 6, 0)
    other.stored(0, 9, 0)
    overlap = overlap_of(((0, 10),), {0: 4, 1: 0, 2: 10}, {0: one, 1: other}, 0)
    assert overlap == Overlap({0: 4, 2: 10}, {0: 2}, {1: 9})
    assert [overlap.held(index) for index in range(4)] == [6, 9, 10, 0]
    assert overlap_of((), {0: 4}, {0: one}, 0) == Overlap()


def disjoint(spans: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """A path: no block twice."""
    kept: list[tuple[int, int]] = []
    for low, high in spans:
        if all(high <= start or low >= end for start, end in kept):
            kept.append((low, high))
    return tuple(kept)


def test_blocks_that_the_gpu_lost_come_back_from_the_host_in_latency_plus_bytes_over_bandwidth() -> None:
    tiers = stack(TierSpec("host", None, speed(2), inf, latency_ns=3_000))
    tiers.stored(0, 10, 0)
    tiers.evicted(4, 10, 3_000)
    assert tiers.load(((0, 10), (30, 35)), 4, 3_000) == (6, 3 * US + 6 * US // 2)
    assert tiers.tiers[0].read == 6


def test_blocks_in_two_tiers_come_from_the_faster_and_each_tier_adds_its_latency_once() -> None:
    host = TierSpec("host", 4, speed(1), inf, latency_ns=1_000)
    tiers = stack(host, TierSpec("disk", None, speed(0.5), inf, latency_ns=2_000))
    tiers.stored(0, 10)  # the host keeps the beginning
    assert tiers.load(((0, 10),), 0, 2_000) == (10, (1 + 4) * US + (2 + 12) * US)


def test_what_is_quicker_computed_is_not_loaded() -> None:
    slow = TierSpec("disk", None, speed(0.001), inf)
    tiers = stack(slow, recompute_ps=US)
    tiers.stored(0, 10)
    assert tiers.load(((0, 10),), 0, 0) == (0, 0)
    assert tiers.refused_blocks == 10


def test_only_the_part_that_pays_is_loaded() -> None:
    tiers = stack(TierSpec("host", 4, speed(1), inf), TierSpec("disk", None, speed(0.001), inf), recompute_ps=5 * US)
    tiers.stored(0, 10)
    assert tiers.load(((0, 10),), 0, 0) == (4, 4 * US)


def test_a_short_hit_is_not_worth_the_latency_of_a_slow_tier_and_a_long_one_is() -> None:
    tiers = stack(TierSpec("remote", None, speed(1), inf, latency_ns=50_000), recompute_ps=2 * US)
    tiers.stored(0, 100)
    assert tiers.load(((0, 40),), 0, 50_000) == (0, 0)
    assert tiers.load(((0, 60),), 0, 50_000) == (60, 110 * US)


def test_the_last_block_is_left_when_its_tokens_must_be_computed() -> None:
    tiers = stack(TierSpec("host"))
    tiers.stored(0, 10)
    assert tiers.load(((0, 10),), 2, 0, 9) == (7, 0)


def test_a_request_that_asks_again_while_it_waits_counts_once() -> None:
    tiers = stack(TierSpec("host"))
    tiers.stored(0, 10)
    waiting, other = ((0, 10),), ((0, 4),)
    for _ in range(3):
        assert tiers.load(waiting, 0, 0) == (10, 0)
    assert (tiers.loaded_blocks, tiers.tiers[0].read) == (10, 10)
    tiers.load(other, 0, 0)
    tiers.load(waiting, 4, 0)
    assert (tiers.loaded_blocks, tiers.tiers[0].read) == (20, 20)


def test_prompts_with_neighbouring_numbers_are_not_taken_for_one() -> None:
    tiers = stack(TierSpec("host", 20))
    for low in (0, 10, 20):
        tiers.load(((low, low + 10),), 0, 0)
        tiers.stored(low, low + 6)
        tiers.stored(low + 6, low + 10)
    assert [tiers.tiers[0].held.reach(low, low + 10, 0) - low for low in (0, 10, 20)] == [0, 10, 10]
    tiers.load(((30, 34),), 0, 0)
    tiers.stored(30, 34)
    assert [tiers.tiers[0].held.reach(low, low + 10, 0) - low for low in (10, 20, 30)] == [6, 10, 4]


def test_disk_takes_a_block_at_its_second_use_within_a_decay_step() -> None:
    tiers = stack(TierSpec("disk", min_frequency=2), decay_ns=1_000)
    tiers.stored(0, 4, 0)
    assert tiers.tiers[0].held.blocks == 0
    tiers.stored(0, 2, 500)
    tiers.stored(2, 4, 1_500)
    assert tiers.load(((0, 4),), 0, 1_500) == (2, 0)


def test_what_the_host_evicts_moves_down_only_where_the_disk_is_filled_so() -> None:
    for fill, kept in (("spill", 6), ("through", 0)):
        disk = TierSpec("disk", fill=fill, min_frequency=1 if fill == "spill" else 2)  # type: ignore[arg-type]
        tiers = stack(TierSpec("host", 4), disk)
        tiers.stored(0, 10)
        assert [tier.held.blocks for tier in tiers.tiers] == [4, kept]


def test_blocks_that_leave_the_gpu_before_they_are_written_are_lost() -> None:
    tiers = stack(TierSpec("host", None, inf, speed(1)))
    tiers.stored(0, 10, 0)  # takes 10 us
    tiers.evicted(5, 10, 9_000)
    assert tiers.load(((0, 10),), 0, 9_999) == (0, 0)
    assert tiers.load(((0, 10),), 0, 10_000) == (5, 0)
    assert tiers.tiers[0].lost == 5


def test_a_shared_tier_gives_one_engine_what_another_stored() -> None:
    remote = Tier(TierSpec("remote", shared=True), BLOCK)
    one, other = (Tiers([Tier(TierSpec("host"), BLOCK), remote], linear(SLOW)) for _ in range(2))
    one.stored(0, 10)
    assert other.load(((0, 10),), 0, 0) == (10, 0)
    assert (remote.read, other.tiers[0].read) == (10, 0)


def test_tiers_without_room_or_without_blocks_give_nothing() -> None:
    tiers = stack(TierSpec("host", 0), TierSpec("disk", 0))
    tiers.stored(0, 10)
    tiers.evicted(0, 10)
    assert tiers.tiers == ()
    assert tiers.load(((0, 10),), 0, 0) == (0, 0)
    assert stack(TierSpec("host")).load((), 0, 0) == (0, 0)


def test_a_tier_not_larger_than_the_one_above_is_found() -> None:
    specs = [TierSpec("host", 100), TierSpec("off", 0), TierSpec("disk", 300), TierSpec("remote", 1_000, shared=True)]
    assert kv.find(99, specs) == []
    (host,) = kv.find(100, specs)
    assert (host.tier, host.blocks, host.above, host.blocks_above) == ("host", 100, "the GPU", 100)
    assert "not more than the 100 of the GPU above it" in str(host)
    assert [found.tier for found in kv.find(10, specs, engines=4)] == ["remote"]
    assert kv.find(10**9, [TierSpec("host", None)]) == []


def test_the_usual_tiers_become_slower_and_cheaper_from_one_to_the_next() -> None:
    host, disk, remote = (kv.default(name) for name in kv.names())
    assert host.read_bytes_per_s > disk.read_bytes_per_s
    assert host.latency_ns < disk.latency_ns < remote.latency_ns
    assert host.micro_usd_per_gib_hour > remote.micro_usd_per_gib_hour > disk.micro_usd_per_gib_hour > 0
    assert (host.min_frequency, disk.min_frequency, remote.min_frequency) == (1, 2, 2)
    with pytest.raises(InputError, match="dsk"):
        kv.default("dsk")


@pytest.mark.parametrize(
    "bad", [{"blocks": -1}, {"read_bytes_per_s": 0.0}, {"latency_ns": -1}, {"min_frequency": 0}], ids=str
)
def test_a_tier_that_cannot_be_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="host"):
        TierSpec("host", **bad)  # type: ignore[arg-type]


def test_recompute_time_is_what_the_blocks_add_to_a_step_that_runs_anyway() -> None:
    timing = LinearTiming(1_000, token_ps=10, cached_ps=1, pair_ps=2)
    recompute = kv.recompute_time(timing, 4)
    pairs = 8 * 4 + 8 * 9 // 2
    assert recompute(1, 3) == 8 * 10 + 4 * 1 + 2 * pairs
    assert recompute(2, 2) == 0
    polynomial = kv.recompute_time(PolynomialTiming(1_000_000), 512)
    assert polynomial(3, 3) == 0
    assert polynomial(0, 4) == pytest.approx(32.87e9, rel=0.001)  # ps: 2,048 tokens
