"""What a short `make fuzz` leaves out: a share of the same, drawn by the seed, and never a whole test."""

from __future__ import annotations

import pytest

import deep_seeds
from deep_seeds import at_share, deep, drawn, part
from fuzz import fuzz_budget

CASES = {"one test": range(100), "another": range(4), "a single one": range(1)}


def test_a_share_of_each_tests_cases_is_drawn_and_one_at_least() -> None:
    found = drawn(CASES, 1 / 6, seed=1)
    assert [len(set(found[:17])), len(found)] == [17, 17 + 1 + 1]
    assert set(found[:17]) <= set(range(100)) and found[17] in range(4) and found[18] == 0


def test_the_seed_decides_which_and_another_one_draws_others() -> None:
    assert drawn(CASES, 1 / 6, seed=1) == drawn(CASES, 1 / 6, seed=1) != drawn(CASES, 1 / 6, seed=2)
    seen = {one for seed in range(60) for one in drawn({"one test": range(100)}, 1 / 6, seed)}
    assert seen == set(range(100)), "in the long run all have their turn"


def test_with_a_minute_a_test_nothing_is_left_out() -> None:
    assert sorted(drawn({"one test": range(100)}, 1.0, seed=1)) == list(range(100))


@pytest.mark.parametrize(
    ("count", "share", "wanted"), [(100_000, 1 / 6, 16_667), (3, 1 / 6, 1), (1, 0.001, 1), (7, 1.0, 7)]
)
def test_of_a_count_a_short_run_reaches_a_share(count: int, share: float, wanted: int) -> None:
    assert at_share(count, share) == wanted


@pytest.mark.parametrize(
    ("seconds", "share", "wanted"), [("0", 1 / 6, 5), ("0", 1.0, 30), ("599", 1.0, 30), ("600", 1.0, 40)]
)
def test_seeds_go_on_until_there_are_enough(
    monkeypatch: pytest.MonkeyPatch, seconds: str, share: float, wanted: int
) -> None:
    clock = iter(range(0, 10**9, 10**6))
    monkeypatch.setattr(fuzz_budget.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(deep_seeds, "SHARE", share)
    monkeypatch.setenv(deep_seeds.SECONDS, seconds)
    monkeypatch.setenv(deep_seeds.FIRST, "700")
    assert list(fuzz_budget.seeds(30, deep=40)) == list(range(700, 700 + wanted))


def test_examples_are_never_fewer_than_in_make_test(monkeypatch: pytest.MonkeyPatch) -> None:
    for full, share, wanted in ((False, 1.0, 60), (True, 1.0, 300), (True, 1 / 6, 60), (True, 0.5, 150)):
        monkeypatch.setattr(deep_seeds, "FULL", full)
        monkeypatch.setattr(deep_seeds, "SHARE", share)
        assert deep_seeds.examples(300) == wanted


class Item:
    """A test as pytest collects it, as far as sampling looks at it."""

    def __init__(self, nodeid: str, *marks: pytest.MarkDecorator) -> None:
        self.nodeid, self.marks = nodeid, [one.mark for one in marks]

    def iter_markers(self, name: str) -> list[pytest.Mark]:
        return [one for one in self.marks if one.name == name]


def test_what_is_left_out_is_more_of_the_same_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    many = pytest.mark.fuzz(of_many=True)
    deep_ones = [Item(f"test_a.py::test_one[{number}]", many) for number in range(12)]
    kinds = [Item(f"test_a.py::test_kind[{number}]", pytest.mark.fuzz) for number in range(12)]
    plain = [Item(f"test_a.py::test_one[first-{number}]") for number in range(12)]
    monkeypatch.setattr(deep_seeds, "SHARE", 1 / 6)
    out = deep_seeds.left_out([*deep_ones, *kinds, *plain])  # type: ignore[list-item]
    assert len(out) == 10 and out <= set(deep_ones)


def test_the_parameters_that_are_left_out_are_those_of_make_fuzz_alone() -> None:
    fuzzed = [one.marks for one in [*deep(range(2)), *part(range(4))] if hasattr(one, "marks")]
    assert len(fuzzed) == 2 + 3
    assert all(mark.kwargs == {"of_many": True} for marks in fuzzed for mark in marks)
