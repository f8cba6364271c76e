"""Programs of many kinds of nodes: quick patterns are patterns, and what comes of them lies between bound and start."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from test_optimal_program import a_program, holds, patterns

from deep_seeds import deep
from tonnage.provisioning.optimal import knapsack, wide
from tonnage.provisioning.optimal.beam import Beam
from tonnage.provisioning.optimal.knapsack import Item
from tonnage.provisioning.optimal.program import Bin, Effort, Program
from tonnage.provisioning.optimal.solve import solve

EFFORT = Effort()


@pytest.mark.parametrize("seed", [*range(20), *deep(range(20, 60))])
def test_a_plan_of_quick_patterns_is_a_plan_and_its_bound_holds(seed: int) -> None:
    program = replace(a_program(random.Random(seed)), gangs=())
    found = wide.solve(program, (), EFFORT)
    holds(program, found)
    assert found.bound <= solve(program).cost + 1e-6


@pytest.mark.parametrize("seed", range(15))
def test_it_is_no_dearer_than_what_it_starts_from(seed: int) -> None:
    rng = random.Random(100 + seed)
    program = replace(a_program(rng), gangs=())
    choices = [one for at, of in enumerate(program.bins) for one in patterns(program, at) if of.supply is None]
    start = [(rng.choice(choices), 1)] if choices and not program.limits else []
    dear = sum(program.cost(one) * n for one, n in start) + program.missing * sum(program.demand)
    found = wide.solve(program, start, EFFORT)
    assert found.cost <= dear


@pytest.mark.parametrize("seed", range(15))
def test_with_room_for_all_of_them_the_most_valuable_pattern_is_found(seed: int) -> None:
    rng = random.Random(200 + seed)
    classes = rng.randint(2, 5)
    weights = tuple((rng.randint(0, 4), rng.randint(1, 5)) for _ in range(classes))
    demand = tuple(rng.randint(1, 6) for _ in range(classes))
    program = Program(demand, weights, (Bin(5.0, (rng.randint(4, 12), rng.randint(4, 12)), tuple(range(classes))),))
    values = [rng.random() for _ in range(classes)]
    items = [Item(c, values[c], weights[c], demand[c]) for c in range(classes)]
    best = knapsack.best(items, program.bins[0].room, 100_000)
    found = Beam(program).patterns(values, [5.0], 1, 5_000, 3)
    assert all(program.fits(one) for one in found)
    worth = [sum(values[c] * n for c, n in enumerate(one.counts)) for one in found]
    assert worth == sorted(worth, reverse=True)
    assert max(worth, default=0.0) == pytest.approx(best.value)


def test_few_classes_on_few_kinds_are_not_wide() -> None:
    one = Bin(1.0, (1,), (0,))
    assert not wide.is_wide(Program((1,), ((1,),), (one,)))
    many = tuple(Bin(1.0, (n,), (0, 1)) for n in range(wide.WIDE // 2 + 1))
    assert wide.is_wide(Program((1, 1), ((1,), (1,)), many))
    assert not wide.is_wide(Program((1, 1), ((1,), (1,)), many, gangs=((0, 1),))), "gangs are placed whole"
    kept = Bin(1.0, (1,), (0, 1), 1, holds=(1, 0))
    assert not wide.is_wide(Program((1, 1), ((1,), (1,)), (*many, kept))), (
        "nodes that may go back have no pattern left out"
    )
