"""The order in which planned NodeClaims are tried: what moves one of them alone comes to what sorting the list does."""

from __future__ import annotations

import random

import pytest

from deep_seeds import part
from tonnage.provisioning.claim_order import ClaimOrder, sort


@pytest.mark.parametrize("seed", part(range(12)))
def test_moving_one_claim_comes_to_what_sorting_the_whole_list_does(seed: int) -> None:
    rng = random.Random(seed)
    quick = ClaimOrder()
    numbers: list[int] = []
    counts: list[int] = []
    for _ in range(400):
        order = quick.settle()
        keys = [counts[number] for number in numbers]
        sort(numbers, keys)
        assert list(order) == numbers
        assert keys == sorted(counts)
        if not numbers or rng.random() < 0.3 + seed / 20:
            numbers.append(quick.append())
            counts.append(1)
        else:
            place = rng.randrange(min(len(numbers), rng.choice([1, 3, 100])))
            quick.took(place)
            counts[numbers[place]] += 1


def test_a_short_list_keeps_the_order_of_equals() -> None:
    numbers, keys = list(range(12)), [2, 1] * 6
    sort(numbers, keys)
    assert numbers == [1, 3, 5, 7, 9, 11, 0, 2, 4, 6, 8, 10]


@pytest.mark.parametrize("length", [13, 49, 50, 51, 300, 2000])
@pytest.mark.parametrize("most", [1, 3, 1000])
def test_any_list_comes_out_in_order_with_all_that_was_in_it(length: int, most: int) -> None:
    rng = random.Random(f"{length} {most}")
    keys = [rng.randint(1, most) for _ in range(length)]
    numbers, before = list(range(length)), list(keys)
    sort(numbers, keys)
    assert keys == sorted(before)
    assert [before[number] for number in numbers] == keys
    assert sorted(numbers) == list(range(length))


def test_claims_with_pods_already_are_tried_by_how_many_they_have() -> None:
    order = ClaimOrder.of([3, 1, 2, 1])
    assert list(order.settle()) == [1, 3, 2, 0]
    assert order.append() == 4
    assert list(order.settle()) == [1, 3, 4, 2, 0]
