"""The numbers of a rollout. Expected values are worked out by hand from Kubernetes' rules (percentages of surge round
up, of unavailability down) and its documented examples."""

from __future__ import annotations

import pytest

from tonnage.apiserver.controllers.arithmetic import (
    RolloutBounds,
    Size,
    bounds,
    new_replicas,
    old_sizes,
    proportional_sizes,
)
from tonnage.objects.policy import scaled


@pytest.mark.parametrize(
    ("value", "total", "up", "expected"),
    [
        (3, 10, True, 3),
        ("25%", 10, True, 3),
        ("25%", 10, False, 2),
        ("100%", 7, False, 7),
        ("0%", 7, True, 0),
        ("1%", 1, True, 1),
        ("1%", 1, False, 0),
        ("34%", 3, True, 2),
    ],
)
def test_a_percentage_is_rounded_as_asked(value: int | str, total: int, up: bool, expected: int) -> None:
    assert scaled(value, total, up=up) == expected


def test_text_that_is_no_percentage_is_an_error() -> None:
    with pytest.raises(ValueError, match="neither a number nor a percentage"):
        scaled("ten", 10, up=True)


@pytest.mark.parametrize(
    ("surge", "unavailable", "desired", "expected"),
    [
        (0, "1%", 2, RolloutBounds(0, 1)),
        (0, "1%", 1, RolloutBounds(0, 1)),
        ("1%", "25%", 2, RolloutBounds(1, 0)),
        ("1%", "25%", 1, RolloutBounds(1, 0)),
        ("1%", 0, 2, RolloutBounds(1, 0)),
        ("25%", "25%", 10, RolloutBounds(3, 2)),
        ("25%", "25%", 3, RolloutBounds(1, 0)),
        ("25%", "25%", 4, RolloutBounds(1, 1)),
        (3, 2, 10, RolloutBounds(3, 2)),
        (0, 20, 10, RolloutBounds(0, 10)),
        ("25%", "25%", 0, RolloutBounds(0, 0)),
    ],
)
def test_surge_rounds_up_and_unavailability_down(
    surge: int | str, unavailable: int | str, desired: int, expected: RolloutBounds
) -> None:
    assert bounds(surge, unavailable, desired) == expected


@pytest.mark.parametrize(
    ("desired", "surge", "all_asked", "new_asked", "expected"),
    [
        (10, 3, 10, 0, 3),
        (10, 3, 13, 3, 3),
        (10, 0, 10, 0, 0),
        (10, 10, 10, 0, 10),
        (10, 3, 9, 5, 9),
        (10, 3, 8, 8, 10),
        (10, 0, 14, 4, 4),
    ],
)
def test_the_new_one_grows_into_the_room_of_the_surge(
    desired: int, surge: int, all_asked: int, new_asked: int, expected: int
) -> None:
    assert new_replicas(desired, surge, all_asked, new_asked) == expected


@pytest.mark.parametrize(
    ("desired", "unavailable", "new", "olds", "expected"),
    [
        (10, 2, Size("new", 3, 0), [Size("old", 10, 10)], {"old": 8}),
        (10, 0, Size("new", 3, 0), [Size("old", 10, 10)], {}),
        (10, 0, Size("new", 3, 3), [Size("old", 10, 10)], {"old": 7}),
        (10, 2, Size("new", 5, 0), [Size("old", 8, 7)], {}),
        (10, 2, Size("new", 8, 7), [Size("bad", 5, 0)], {"bad": 1}),
        (10, 2, Size("new", 0, 0), [Size("a", 8, 8, "1"), Size("b", 5, 0, "2")], {"b": 0}),
        (10, 0, Size("new", 10, 10), [Size("a", 2, 2, "2"), Size("b", 3, 3, "1")], {"b": 0, "a": 0}),
        (4, 0, Size("new", 1, 1), [Size("a", 2, 2, "1"), Size("b", 2, 2, "2")], {"a": 1}),
        (5, 1, Size("new", 2, 2), [Size("old", 3, 5)], {}),
    ],
    ids=[
        "as many as may be unavailable",
        "none while the new ones are not available",
        "one for each new one that is available",
        "new pods that do not start keep the old ones, though one of these failed",
        "after a rollback pods that never started go first",
        "unavailable pods of a younger ReplicaSet before available ones of an older",
        "all when the new one is complete",
        "the oldest ReplicaSet first",
        "none while an earlier shrinking is under way",
    ],
)
def test_old_ones_shrink_by(
    desired: int, unavailable: int, new: Size, olds: list[Size], expected: dict[str, int]
) -> None:
    assert old_sizes(desired, unavailable, new, olds) == expected


@pytest.mark.parametrize(
    ("desired", "surge", "active", "expected"),
    [
        (15, 3, [Size("new", 5, 5, "2", 13), Size("old", 8, 8, "1", 13)], {"old": 11, "new": 7}),
        (5, 2, [Size("new", 5, 5, "2", 13), Size("old", 8, 8, "1", 13)], {"old": 4, "new": 3}),
        (10, 0, [Size("a", 5, 5, "1", 5), Size("b", 0, 0, "2", 5)], {"a": 10, "b": 0}),
        (0, 2, [Size("a", 5, 5, "1", 13), Size("b", 8, 8, "2", 13)], {"b": 0, "a": 0}),
        (12, 0, [Size("a", 5, 5, "1", 10), Size("b", 5, 5, "2", 10)], {"b": 6, "a": 6}),
        (11, 0, [Size("a", 5, 5, "1", 10), Size("b", 5, 5, "2", 10)], {"b": 6, "a": 5}),
        (9, 0, [Size("a", 5, 5, "1", 10), Size("b", 5, 5, "2", 10)], {"a": 4, "b": 5}),
        (20, 0, [Size("a", 5, 5, "1", None), Size("b", 5, 5, "2", 10)], {"b": 10, "a": 10}),
    ],
    ids=[
        "grown by share",
        "shrunk by share",
        "an empty one stays empty",
        "to nothing",
        "equal shares",
        "what is left over grows the newer of equals",
        "what is left over shrinks the older of equals",
        "without its note the running pods are the base",
    ],
)
def test_scaling_in_a_rollout_is_proportional(
    desired: int, surge: int, active: list[Size], expected: dict[str, int]
) -> None:
    assert proportional_sizes(desired, surge, 10, active) == expected
