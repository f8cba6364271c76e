"""The cheapest patterns beside trying everything: the program in numbers alone."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest

from deep_seeds import deep
from tonnage.provisioning.optimal import knapsack
from tonnage.provisioning.optimal.knapsack import Item
from tonnage.provisioning.optimal.program import Bin, Effort, NodePattern, Program
from tonnage.provisioning.optimal.solve import Solution, solve

LITTLE = Effort(steps=50, rounds=2, columns=3, nodes=0)


def patterns(program: Program, at: int) -> Iterator[NodePattern]:
    """Every pattern that fits on a node of this kind."""
    of = program.bins[at]
    ranges = [range(n + 1) if c in of.admits else range(1) for c, n in enumerate(program.demand)]
    return (one for counts in itertools.product(*ranges) if program.fits(one := NodePattern(at, counts)))


def cheapest(program: Program) -> float:
    """The least cost of covering all classes, by trying all sets of nodes: a search over what is still to be placed."""
    choices = [one for at in range(len(program.bins)) for one in patterns(program, at) if any(program.covers(one))]
    best: dict[tuple[tuple[int, ...], tuple[int, ...], tuple[float, ...]], float] = {}

    def go(left: tuple[int, ...], taken: tuple[int, ...], limits: tuple[float, ...]) -> float:
        key = left, taken, limits
        if key not in best:
            gang_out = {c for gang in program.gangs for c in gang}
            best[key] = sum(n * program.missing for c, n in enumerate(left) if c not in gang_out)
            for gang in program.gangs:
                if any(left[c] for c in gang):
                    best[key] += sum(program.demand[c] * program.missing for c in gang)
            for one in choices:
                covers = program.covers(one)
                if not any(a and b for a, b in zip(covers, left, strict=True)):
                    continue
                of = program.bins[one.bin]
                if of.supply is not None and taken[one.bin] >= of.supply:
                    continue
                after = list(limits)
                for row, amount in of.charges:
                    after[row] -= amount
                if min(after, default=0.0) < 0:
                    continue
                rest = tuple(max(0, a - b) for a, b in zip(left, covers, strict=True))
                more = tuple(n + (at == one.bin) for at, n in enumerate(taken)) if of.supply is not None else taken
                best[key] = min(best[key], program.cost(one) + go(rest, more, tuple(after)))
        return best[key]

    return go(program.demand, (0,) * len(program.bins), program.limits)


def a_program(rng: random.Random) -> Program:
    classes = rng.randint(1, 3)
    demand = tuple(rng.randint(1, 4) for _ in range(classes))
    weights = tuple((rng.randint(0, 3), rng.randint(1, 4)) for _ in range(classes))
    bins = []
    limits = (float(rng.randint(2, 8)),) if rng.random() < 0.3 else ()
    for _ in range(rng.randint(1, 4)):
        admits = tuple(c for c in range(classes) if rng.random() < 0.8)
        supply = rng.choice((None, None, 1, 2))
        bins.append(
            Bin(
                price=0.0 if supply and rng.random() < 0.5 else rng.randint(1, 9) + rng.choice((0.0, 0.5)),
                room=(rng.randint(1, 8), rng.randint(2, 9)),
                admits=admits,
                supply=supply,
                charges=((0, float(rng.randint(1, 3))),) if limits and rng.random() < 0.7 else (),
            )
        )
    gangs = ((0, classes - 1),) if classes > 1 and rng.random() < 0.3 else ()
    return Program(demand, weights, tuple(bins), limits=limits, gangs=gangs, missing=100.0)


def holds(program: Program, solution: Solution) -> None:
    """The solution is a plan, its cost is what it says, and its bound is not above it."""
    covered = list(solution.left_out)
    for column, count in solution.chosen:
        assert program.fits(column)
        for c, n in enumerate(program.covers(column)):
            covered[c] += n * count
    assert all(a >= b for a, b in zip(covered, program.demand, strict=True))
    for at, of in enumerate(program.bins):
        taken = sum(count for column, count in solution.chosen if column.bin == at)
        assert of.supply is None or taken <= of.supply
    for row, limit in enumerate(program.limits):
        charges = [(dict(program.bins[column.bin].charges).get(row, 0.0), count) for column, count in solution.chosen]
        assert sum(amount * count for amount, count in charges) <= limit + 1e-9
    for gang in program.gangs:
        assert len({bool(solution.left_out[c]) for c in gang}) == 1
    price = sum(program.cost(column) * count for column, count in solution.chosen)
    assert solution.cost == pytest.approx(price + program.missing * sum(solution.left_out))
    assert solution.bound <= solution.cost


@pytest.mark.parametrize("seed", [*range(25), *deep(range(25, 600))])
def test_the_optimum_is_that_of_trying_everything_and_the_bound_is_not_above_it(seed: int) -> None:
    program = a_program(random.Random(seed))
    solution = solve(program)
    holds(program, solution)
    best = cheapest(program)
    assert solution.bound <= best + 1e-6
    assert solution.cost == pytest.approx(best, abs=1e-6)
    assert solution.bound == pytest.approx(best, abs=1e-4), "small programs are proved to the end"


@pytest.mark.parametrize("seed", [*range(10), *deep(range(10, 200))])
def test_little_effort_gives_a_plan_with_a_bound_that_holds(seed: int) -> None:
    program = a_program(random.Random(1_000 + seed))
    solution = solve(program, effort=LITTLE)
    holds(program, solution)
    assert solution.bound <= cheapest(program) + 1e-6


def test_moving_pods_costs_their_fare_and_nodes_that_hold_pods_may_stay() -> None:
    """Two nodes at $3 hold two pods each; one at $4 holds all four: it pays while four moves cost less than $2."""
    for fare, wanted in ((0.4, 4.0 + 4 * 0.4), (0.6, 6.0)):
        held = [Bin(3.0, (0,), (0,), supply=1, holds=(2,)), Bin(3.0, (0,), (0,), supply=1, holds=(2,))]
        program = Program((4,), ((1,),), (*held, Bin(4.0, (4,), (0,))), fares=(fare,), missing=100.0)
        solution = solve(program)
        assert solution.cost == pytest.approx(wanted)
        assert solution.bound == pytest.approx(wanted)


def test_a_start_is_kept_where_the_effort_finds_nothing_better() -> None:
    program = Program((3,), ((2,),), (Bin(5.0, (6,), (0,)), Bin(2.0, (2,), (0,))))
    start = [(NodePattern(0, (3,)), 1)]
    assert solve(program, start, LITTLE).cost == pytest.approx(5.0)
    assert solve(program, [(NodePattern(1, (1,)), 3)], LITTLE).cost == pytest.approx(5.0)


@pytest.mark.parametrize("seed", [*range(20), *deep(range(20, 400))])
def test_the_best_pattern_is_that_of_trying_all_and_those_above_a_value_are_all_of_them(seed: int) -> None:
    rng = random.Random(seed)
    items = [
        Item(key, rng.randint(0, 9) / 2, (rng.randint(0, 3), rng.randint(1, 3)), rng.randint(1, 4), rng.random() < 0.7)
        for key in range(rng.randint(1, 4))
    ]
    room = (rng.randint(1, 9), rng.randint(1, 9))
    every = []
    for counts in itertools.product(*(range(one.most + 1) for one in items)):
        used = [sum(n * one.weight[d] for n, one in zip(counts, items, strict=True)) for d in range(2)]
        if all(a <= b for a, b in zip(used, room, strict=True)):
            every.append((sum(n * one.value for n, one in zip(counts, items, strict=True)), counts, used))
    found = knapsack.best(items, room, 10_000)
    most = max(value for value, _, _ in every)
    assert found.value == found.bound == pytest.approx(most)
    floor = most / 2
    full = {
        counts
        for value, counts, used in every
        if value >= floor - 1e-9
        and not any(
            one.filling and n < one.most and all(u + w <= r for u, w, r in zip(used, one.weight, room, strict=True))
            for n, one in zip(counts, items, strict=True)
        )
    }
    patterns_, _, complete = knapsack.above(items, room, floor, 10_000)
    assert complete
    assert {tuple(counts.get(one.key, 0) for one in items) for _, counts in patterns_} == full
    assert len(patterns_) == len(full)


def test_a_search_cut_short_says_what_no_pattern_exceeds() -> None:
    items = [Item(key, 1.0 + key / 7, (3 + key, 5 + (key * 3) % 4), 9) for key in range(8)]
    full = knapsack.best(items, (40, 50), 100_000)
    short = knapsack.best(items, (40, 50), 3)
    assert short.value <= full.value == full.bound <= short.bound
    assert not knapsack.above(items, (40, 50), 0.0, 3)[2]
