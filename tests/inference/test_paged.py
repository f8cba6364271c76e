"""Contiguous against paged KV memory: the allocators, the gate, what is weighed, and the paper's numbers."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deep_seeds import examples
from tonnage.inference.engine import Engine, EngineConfig
from tonnage.inference.engine.requests import Finished
from tonnage.inference.paged import SCHEMES, PagedEngine, PagedReport, Scheme, SchemeResult, compare
from tonnage.inference.paged.claims import claims
from tonnage.inference.paged.contiguous import (
    BuddyMemory,
    Gate,
    Region,
    Sized,
    SlotMemory,
    next_power_of_two,
    reservation,
)
from tonnage.inference.paged.setups import paper_requests, paper_setting
from tonnage.inference.timing import LinearTiming

MS = 1_000_000_000  # in ps
EVEN = LinearTiming(MS)  # every step takes 1 ms


def setting(kv_tokens: int = 64, longest: int = 16, tokens: int = 1024, seqs: int = 64) -> PagedEngine:
    return PagedEngine(kv_tokens, longest, tokens, seqs, EVEN)


def by_kind(report: PagedReport) -> dict[tuple[str, int], SchemeResult]:
    return {(one.kind, one.block_size): one for one in report.schemes}


# --- allocators -----


@given(st.integers(1, 200), st.lists(st.one_of(st.integers(1, 70), st.just(0)), max_size=60), st.randoms())
def test_the_buddy_allocator_finds_a_region_exactly_when_an_aligned_one_is_free(
    total: int, actions: list[int], order: random.Random
) -> None:
    memory = BuddyMemory(total)
    taken: list[Region] = []
    used: set[int] = set()
    for reserved in actions:
        if reserved == 0:
            if taken:
                region = taken.pop(order.randrange(len(taken)))
                memory.give(region)
                used -= set(range(region.start, region.start + region.size))
            continue
        size = next_power_of_two(reserved)
        there_is_one = any(used.isdisjoint(range(start, start + size)) for start in range(0, total - size + 1, size))
        found = memory.take(reserved)
        assert (found is not None) == there_is_one
        if found is not None:
            cells = set(range(found.start, found.start + found.size))
            assert found.size == size and found.start % size == 0 and max(cells) < total
            assert used.isdisjoint(cells)
            used |= cells
            taken.append(found)


@pytest.mark.parametrize("memory", [SlotMemory(64, 16), BuddyMemory(64)])
def test_a_region_cannot_be_freed_twice(memory: SlotMemory | BuddyMemory) -> None:
    region = memory.take(9)
    assert region is not None and region.size == 16
    memory.give(region)
    with pytest.raises(RuntimeError, match="twice"):
        memory.give(region)


def test_slots_without_number_need_no_storage_and_freed_ones_come_first() -> None:
    memory = SlotMemory(10**15, 16)
    first, second = memory.take(16), memory.take(16)
    assert first is not None and second is not None and (first.start, second.start) == (0, 16)
    memory.give(first)
    assert memory.take(1) == Region(0, 16, 1)
    assert memory.take(1) == Region(32, 16, 1)


def test_slots_lose_what_does_not_fill_one_and_refuse_what_is_larger() -> None:
    memory = SlotMemory(47, 16)
    assert [memory.take(1) is not None for _ in range(3)] == [True, True, False]
    with pytest.raises(ValueError, match="slot"):
        memory.take(17)


@given(st.integers(1, 10**6))
def test_the_next_power_of_two_is_the_smallest_that_is_not_below(tokens: int) -> None:
    power = next_power_of_two(tokens)
    assert power.bit_count() == 1 and power >= tokens > power // 2


def test_the_power_of_two_reserves_the_prompt_and_at_most_twice_the_output() -> None:
    assert reservation("pow2", Sized(0, 100, 25), 2048) == 132
    assert reservation("pow2", Sized(0, 1000, 1025), 2048) == 2048  # never more than the longest sequence


# --- the gate -----

WORKLOADS = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=25)
WHOLE_NS = LinearTiming(3_000_000, 7_000, 2_000, 1_000)  # steps of whole nanoseconds


@given(WORKLOADS, st.integers(1, 4), st.integers(1, 30), st.integers(1, 6))
def test_one_slot_a_sequence_is_an_engine_whose_block_is_the_longest_sequence(
    rows: list[tuple[int, int, int]], slots: int, tokens: int, seqs: int
) -> None:
    requests, now = [], 0
    for gap, prompt, output in rows:
        now += gap * 500
        requests.append(Sized(now, prompt, output))
    longest = 24
    engine = Engine(EngineConfig(tokens, seqs, longest, slots, longest), WHOLE_NS)
    for number, one in enumerate(requests):
        engine.submit(number, one.arrival, one.prompt, one.output)
    engine.advance(1 << 60)
    gated: list[Finished] = []
    behind = Engine(EngineConfig(tokens, seqs, longest, slots * longest, 1), WHOLE_NS)
    gate = Gate("max", slots * longest, longest)
    gate.play(behind, requests, gated.extend)
    assert not gate.held and gate.reserved == gate.needed == 0
    expected = [(one.request_id, one.admitted_ns, one.first_token_ns, one.finish_ns) for one in engine.take_finished()]
    assert [(one.request_id, one.admitted_ns, one.first_token_ns, one.finish_ns) for one in gated] == expected


def test_a_request_that_no_memory_can_hold_stops_the_play() -> None:
    engine = Engine(EngineConfig(64, 8, 64, 64, 1), EVEN)
    with pytest.raises(ValueError, match="never get its memory"):
        Gate("exact", 32, 64).play(engine, [Sized(0, 40, 8)], lambda ended: None)


# --- what is weighed -----


def test_the_parts_of_memory_are_those_counted_by_hand() -> None:
    """Room for one sequence of 8; each stores 2, then 3, then 4 tokens in three equal steps."""
    report = compare([Sized(0, 2, 3)] * 40, setting(8, 8), schemes=SCHEMES[:1])
    (result,) = report.schemes
    assert result.memory is not None
    shares = msgspec.structs.astuple(result.memory)
    assert shares == pytest.approx((3 / 8, 1 / 8, 4 / 8, 0.0))
    assert result.batch_mean == result.batch_max == 1
    assert result.output_tokens_per_s == pytest.approx(1000)
    assert result.memory.wasted == pytest.approx(5 / 8)


def test_an_exact_reservation_wastes_only_what_the_buddy_allocator_rounds_and_what_is_still_to_come() -> None:
    """Five tokens in the end: a region of 8 of 8, of which 3 are rounding; 3, 4, 5 tokens stored."""
    report = compare([Sized(0, 3, 3)] * 40, setting(8, 8), schemes=(Scheme("exact", "exact"),))
    memory = report.schemes[0].memory
    assert memory is not None
    assert msgspec.structs.astuple(memory) == pytest.approx((4 / 8, 1 / 8, 0.0, 3 / 8))


SIZES = st.lists(st.tuples(st.integers(1, 10), st.integers(1, 10)), min_size=30, max_size=80)


@settings(deadline=None, max_examples=examples(30))
@given(SIZES, st.integers(256, 300), st.integers(1, 60))
def test_the_parts_of_memory_add_up_and_every_request_is_served(
    sizes: list[tuple[int, int]], kv_tokens: int, budget: int
) -> None:
    requests = [Sized(number * 1000, prompt, output) for number, (prompt, output) in enumerate(sizes)]
    report = compare(requests, setting(kv_tokens, 20, max(budget, 20)))
    assert report.requests == len(requests) and report.refused == 0
    for result in report.schemes:
        assert 0 <= result.memory_bound <= 1 and 1 <= result.batch_max <= 64
        if result.memory is None:
            continue
        parts = msgspec.structs.astuple(result.memory)
        assert min(parts) >= 0 and sum(parts) == pytest.approx(1)
        if result.kind != "paged":
            assert result.preemptions == 0
        elif result.block_size == 1:
            assert result.memory.internal == 0


def test_blocks_waste_less_than_one_block_a_sequence() -> None:
    requests = [Sized(0, 20 + number % 37, 40) for number in range(400)]
    for result in compare(requests, setting(4096, 128)).schemes:
        if result.kind == "paged":
            assert result.memory is not None and result.batch_mean is not None
            assert result.memory.internal * 4096 <= result.batch_mean * (result.block_size - 1)


def test_memory_that_never_fills_gives_no_shares_and_no_verdict_on_them() -> None:
    report = compare([Sized(0, 2, 3), Sized(9, 2, 3)], setting(1024, 8))
    for result in report.schemes:
        assert result.memory is None and result.batch_mean is None and result.memory_bound == 0
    assert {one.verdict for one in report.claims} == {"not measured"}


def test_throughput_is_not_judged_where_only_contiguous_memory_was_short() -> None:
    """Two slots of 512 tokens keep the third request out; in blocks all three fit."""
    report = compare([Sized(0, 2, 3)] * 3, setting(1024, 512))
    results = by_kind(report)
    assert results["max", 0].memory is not None and results["paged", 16].memory is None
    verdicts = {one.claim: one.verdict for one in report.claims}
    assert verdicts["throughput, paged over contiguous, max length"] == "not measured"
    assert verdicts["wasted, contiguous, max length"] == "exceeded"


def test_whoever_looks_on_is_told_of_every_measurement() -> None:
    seen: list[int] = []
    compare([Sized(0, 2, 3), Sized(9, 2, 3)], setting(1024, 8), observe=seen.append)
    assert seen == [2] * 2 * len(SCHEMES)


def test_a_full_batch_is_not_counted_as_full_memory() -> None:
    report = compare([Sized(0, 2, 3)] * 40, setting(1024, 8, seqs=2), schemes=SCHEMES[3:4])
    assert report.schemes[0].memory is None and report.schemes[0].batch_max == 2


def test_the_time_to_first_token_of_a_lonely_request_is_one_step() -> None:
    requests = [Sized(second * 10**9, 2, 3) for second in range(30)]
    for result in compare(requests, setting(1024, 8), load=0.001).schemes:
        assert result.ttft_ms_mean == result.ttft_ms_p50 == result.ttft_ms_p99 == pytest.approx(1)


def test_requests_without_spacing_have_no_latency() -> None:
    report = compare([Sized(5, 2, 3)] * 4, setting(8, 8), schemes=SCHEMES[:1])
    assert report.offered_requests_per_s == 0 and report.schemes[0].ttft_ms_mean is None


def test_what_is_longer_than_the_longest_sequence_is_left_out_and_counted() -> None:
    report = compare([Sized(0, 4, 4), Sized(1, 9, 8), Sized(2, 4, 4)], setting(256, 16))
    assert (report.requests, report.refused) == (2, 1)


@pytest.mark.parametrize(
    ("requests", "changed", "load", "words"),
    [
        ([Sized(0, 4, 4)], setting(8, 16), 0.5, "longest context"),
        ([Sized(0, 99, 4)], setting(), 0.5, "no request fits"),
        ([Sized(0, 4, 4)], setting(), 0.0, "above 0"),
    ],
)
def test_a_comparison_that_makes_no_sense_is_refused(
    requests: list[Sized], changed: PagedEngine, load: float, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        compare(requests, changed, load=load)


# --- the paper -----


@pytest.fixture(scope="module")
def sharegpt() -> PagedReport:
    return compare(paper_requests("sharegpt", 1000, random.Random(1)), paper_setting(), schemes=SCHEMES[:5])


@pytest.mark.parametrize(
    ("scheme", "used", "batch"),
    [
        (("max", 0), 0.204, 7.00),
        (("pow2", 0), 0.268, 9.81),
        (("exact", 0), 0.382, 13.62),
        (("paged", 16), 0.963, 30.42),
    ],
)
def test_the_papers_setup_gives_the_papers_memory_use_and_batch(
    sharegpt: PagedReport, scheme: tuple[str, int], used: float, batch: float
) -> None:
    """Figures 2 and 13a of the paper; lengths drawn with its means."""
    result = by_kind(sharegpt)[scheme]
    assert result.memory is not None
    assert result.memory.used == pytest.approx(used, abs=0.035)
    assert result.batch_mean == pytest.approx(batch, rel=0.12)


def test_the_papers_claims_hold_in_its_setup_save_throughput_against_perfect_knowledge(sharegpt: PagedReport) -> None:
    failed = [one.claim for one in sharegpt.claims if one.verdict not in ("holds", "exceeded")]
    assert set(failed) <= {
        "throughput, paged over contiguous, exact",
        "throughput, paged over contiguous, power of two",
    }
    results = by_kind(sharegpt)
    gain = results["paged", 16].output_tokens_per_s / results["max", 0].output_tokens_per_s
    assert gain >= 2


def test_short_sequences_waste_more_than_the_claim_in_blocks_of_16() -> None:
    report = compare(paper_requests("alpaca", 1000, random.Random(1)), paper_setting(), schemes=SCHEMES[3:5])
    (claim,) = [one for one in report.claims if one.claim.startswith("wasted, paged")]
    assert claim.verdict == "does not hold"


def test_equal_input_gives_equal_bytes() -> None:
    made = [
        msgspec.json.encode(compare(paper_requests("alpaca", 60, random.Random(3)), paper_setting())) for _ in range(2)
    ]
    assert made[0] == made[1]


@pytest.mark.parametrize(
    ("wasted", "batch", "verdicts"),
    [
        (0.59, 1.99, ("does not hold", "does not hold")),
        (0.6, 2.0, ("holds", "holds")),
        (0.81, 4.01, ("exceeded", "exceeded")),
        (None, None, ("not measured", "not measured")),
    ],
)
def test_a_verdict_is_by_the_published_range(
    wasted: float | None, batch: float | None, verdicts: tuple[str, str]
) -> None:
    slots = {"wasted": wasted, "batch": 1.0, "rate": 1.0}
    pages = {"wasted": 0.05, "batch": batch, "rate": 1.0}
    found = {one.claim: one.verdict for one in claims([("max", 0, slots), ("paged", 16, pages)], 16)}
    assert found["wasted, contiguous, max length"] == verdicts[0]
    assert found["batch, paged over contiguous, max length"] == verdicts[1]
    assert found["wasted, paged, blocks of 16"] == "does not hold"
