"""Which pods go first. Cases follow the rules in kubernetes/kubernetes pkg/controller/controller_utils.go."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tonnage.scaling.removal import RemovalCandidate, removal_order

NOW = 1_000_000.0


def pod(uid: str, **changes: Any) -> RemovalCandidate:
    values: dict[str, Any] = {
        "node": "n1",
        "phase": "Running",
        "ready_since": NOW - 1000,
        "created": NOW - 2000,
        **changes,
    }
    return RemovalCandidate(uid=uid, **values)


CASES: list[tuple[str, RemovalCandidate, RemovalCandidate, dict[str, int]]] = [
    ("without a node before bound", pod("z", node=""), pod("a"), {}),
    ("pending before running", pod("z", phase="Pending"), pod("a"), {}),
    ("pending before unknown", pod("z", phase="Pending"), pod("a", phase="Unknown"), {}),
    ("unknown before running", pod("z", phase="Unknown"), pod("a"), {}),
    ("not ready before ready", pod("z", ready_since=None), pod("a"), {}),
    ("cheap before dear", pod("z", deletion_cost=-5), pod("a"), {}),
    ("crowded node before lonely node", pod("z", node="n2"), pod("a"), {"n1": 1, "n2": 2}),
    ("recently ready before long ready", pod("z", ready_since=NOW - 10), pod("a"), {}),
    ("restarted before never restarted", pod("z", restarts=3), pod("a"), {}),
    ("restarted sidecar before none", pod("z", sidecar_restarts=1), pod("a"), {}),
    ("young before old", pod("z", created=NOW - 10), pod("a"), {}),
    ("unbound wins over dear", pod("z", node="", deletion_cost=100), pod("a", deletion_cost=-100), {}),
    ("deletion cost wins over crowding", pod("z", deletion_cost=-1), pod("a", node="n2"), {"n1": 1, "n2": 9}),
    (
        "ready times within one power of two: by uid",
        pod("a", ready_since=NOW - 1000),
        pod("b", ready_since=NOW - 900),
        {},
    ),
    ("ages within one power of two: by uid", pod("a", created=NOW - 1900), pod("b", created=NOW - 1800), {}),
]


@pytest.mark.parametrize(
    ("first", "second", "neighbours"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_the_first_of_two_goes_first_whatever_order_they_come_in(
    first: RemovalCandidate, second: RemovalCandidate, neighbours: dict[str, int]
) -> None:
    assert removal_order([first, second], neighbours, NOW) == [first, second]
    assert removal_order([second, first], neighbours, NOW) == [first, second]


def test_the_order_does_not_depend_on_the_order_given() -> None:
    rng = random.Random(3)
    pods = [
        pod(
            f"{number:03d}",
            node=rng.choice(["", "n1", "n2"]),
            phase=rng.choice(["Pending", "Running"]),
            ready_since=rng.choice([None, NOW - 10, NOW - 1000]),
            deletion_cost=rng.choice([0, 0, 5]),
        )
        for number in range(60)
    ]
    expected = removal_order(pods, {"n1": 3, "n2": 9}, NOW)
    for _ in range(5):
        rng.shuffle(pods)
        assert removal_order(pods, {"n1": 3, "n2": 9}, NOW) == expected
