"""Workloads that do not fill a GPU: every way to share one, packed, priced and compared."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deep_seeds import examples
from tonnage.errors import InputError, Where
from tonnage.facts import prices
from tonnage.partitioning import layouts
from tonnage.partitioning.share import Question, SharingWorkload, Way, able_to, question, reasons, recommended
from tonnage.partitioning.share_ways import WAYS

SOURCES = SharingWorkload("w", 10 * 1024, 0.25, count=8)
"""Eight processes, each on an A100 of its own that it uses for a quarter."""


def ask(*workloads: SharingWorkload, gpu: str = "a100-80", **options: bool | float) -> Question:
    return question(workloads, gpu, prices.load(), **options)  # type: ignore[arg-type]


def ways(asked: Question) -> dict[str, Way]:
    return {name: way(asked) for name, way in WAYS.items()}


def test_eight_gpus_at_a_quarter_need_two_or_three_and_the_whole_instance_is_paid_for() -> None:
    found = ways(ask(SOURCES))
    assert {name: way.gpus for name, way in found.items()} == {
        "whole": 8, "mig": 3, "time-slicing": 2, "leases": 2, "mps": 2, "smaller": 8,
    }  # fmt: skip
    whole = found["whole"].bought
    assert all(found[name].bought == whole for name in ("mig", "time-slicing", "leases", "mps"))
    assert found["mps"].hourly == pytest.approx(found["whole"].hourly / 4, rel=1e-6)  # type: ignore[operator]


def test_time_slicing_four_quarters_loses_what_switching_costs() -> None:
    sliced = ways(ask(SOURCES))["time-slicing"]
    assert sliced.kept == pytest.approx(2 / 2.12, abs=1e-3)
    assert sliced.slowest == pytest.approx(4 * 1.06, rel=0.02)  # while all four are at work
    assert ways(ask(SOURCES, keep=0.95))["time-slicing"].gpus == 3


def test_mig_gives_the_smallest_profile_that_keeps_the_throughput_not_only_the_memory() -> None:
    assert ways(ask(SOURCES))["mig"].cards[0].got[0].piece == "2g.20gb"  # a 1g has 14 of 108 SMs: 13%, not 25%
    light = SharingWorkload("w", 9 * 1024, 0.1, count=8)
    assert ways(ask(light))["mig"].cards[0].got[0].piece == "1g.10gb"


def test_memory_decides_how_many_share_a_card() -> None:
    large = ways(ask(SharingWorkload("w", 30_000, 0.25, count=8)))
    assert (large["time-slicing"].gpus, large["mps"].gpus) == (4, 4)


def test_a_latency_need_rules_out_leases_first() -> None:
    found = ways(ask(SharingWorkload("w", 10 * 1024, 0.25, count=8, latency_s=0.1)))
    assert found["leases"].gpus == 8
    assert found["mps"].gpus == 2
    assert found["mps"].slowest == pytest.approx(4.0)


def test_what_is_isolated_is_recommended_where_isolation_is_asked_for() -> None:
    asked = ask(SOURCES, isolated=True)
    found = list(ways(asked).values())
    best = recommended(asked, found)
    assert best is not None and best.name == "mig"
    assert not able_to(asked, ways(asked)["mps"])


def test_counted_in_whole_instances_a_smaller_gpu_is_cheapest() -> None:
    asked = ask(SOURCES, whole_instances=True)
    best = recommended(asked, list(ways(asked).values()))
    assert best is not None and best.name == "smaller"


def test_the_reasons_say_what_is_claimed_and_what_is_saved() -> None:
    asked = ask(SOURCES)
    found = list(ways(asked).values())
    best = recommended(asked, found)
    assert best is not None
    text = " ".join(reasons(asked, found, best))
    assert "By load alone 2.0 of 8 GPUs would do, 75% less" in text
    assert "does not fall" in text
    assert "mig prevents that for 3 GPUs" in text


def test_a_workload_that_fills_its_gpu_shares_with_nobody() -> None:
    found = ways(ask(SharingWorkload("w", 1024, 1.0, count=4)))
    assert (found["time-slicing"].gpus, found["leases"].gpus) == (4, 4)
    assert "keeps" in found["mps"].why


def test_mps_and_mig_are_refused_on_a_mig_instance() -> None:
    found = ways(ask(SharingWorkload("w", 5 * 1024, 0.2, count=2), gpu="a100-80:3g.40gb"))
    assert "refused on MIG" in found["mps"].why
    assert "already" in found["mig"].why
    assert found["time-slicing"].gpus == 1


def test_a_gpu_without_mig_says_so_and_one_without_a_price_is_compared_in_gpus() -> None:
    assert "no MIG" in ways(ask(SOURCES, gpu="a10g"))["mig"].why
    asked = ask(SOURCES, gpu="h200-sxm")
    unpriced = ask(SOURCES, gpu="a30")
    assert recommended(asked, list(ways(asked).values())) is not None
    found = ways(unpriced)
    assert found["smaller"].why.startswith("no price")
    assert found["time-slicing"].hourly is None
    best = recommended(unpriced, list(found.values()))
    assert best is not None and best.gpus == min(way.gpus for way in found.values() if not way.why)


@pytest.mark.parametrize(
    ("one", "key"),
    [
        (SharingWorkload("w", 1024, 0.0), "util"),
        (SharingWorkload("w", 1024, 1.01), "util"),
        (SharingWorkload("w", 0, 0.5), "memory"),
        (SharingWorkload("w", 90_000, 0.5), "memory"),
        (SharingWorkload("w", 1024, 0.5, count=0), "count"),
        (SharingWorkload("w", 1024, 0.5, gpu_s=0.0), "step"),
        (SharingWorkload("w", 1024, 0.5, latency_s=0.0), "latency"),
        (SharingWorkload("w", 1024, 0.5, sms=0.0), "sms"),
        (SharingWorkload("w", 1024, 0.5, bound="cpu"), "bound"),
    ],
)
def test_what_makes_no_sense_is_refused_with_file_line_and_field(one: SharingWorkload, key: str) -> None:
    with pytest.raises(InputError, match=rf"^pods\.yaml:3:default/w:{key}: "):
        question([one], "a100-80", prices.load(), places=[Where("pods.yaml", 3, "default/w")])


workloads = st.builds(
    SharingWorkload,
    st.just("w"),
    st.integers(512, 40_000),
    st.floats(0.02, 1.0),
    st.integers(1, 9),
    st.sampled_from([0.002, 0.02]),
    st.sampled_from([None, 0.01, 0.3]),
    st.sampled_from([0.3, 1.0]),
    st.sampled_from(["", "compute", "memory"]),
)


@settings(max_examples=examples(25), deadline=None)
@given(st.lists(workloads, min_size=1, max_size=3))
def test_every_way_holds_every_process_once_and_gives_it_what_is_asked(of: list[SharingWorkload]) -> None:
    asked = ask(*of)
    for way in ways(asked).values():
        if way.why:
            continue
        held: Counter[int] = Counter()
        for card in way.cards:
            for i, got in zip(card.holds, card.got, strict=True):
                held[i] += card.count
                assert not asked.refused(of[i], got)
            if card.gpu == asked.gpu.name:
                assert sum(of[i].memory_mib for i in card.holds) <= asked.gpu.memory_mib
            if way.name == "mig":
                assert layouts.place(layouts.card("a100-80"), [got.piece for got in card.got]) is not None
        assert held == Counter({i: one.count for i, one in enumerate(of)})
        assert 0 < way.busy <= 1 + 1e-9
        assert 0 < way.memory <= 1
