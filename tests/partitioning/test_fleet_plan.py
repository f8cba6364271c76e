"""Plans of a fleet beside trying everything, and what becomes of them step by step."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from itertools import product

import pytest

import deep_seeds
from tonnage.partitioning import program
from tonnage.partitioning.fleet_plan import Demand, FleetPlan, PlannedGpu, part, picks, plan
from tonnage.partitioning.layouts import Layout, Placement, card, feasible, kind_of, mask_of, profile_names
from tonnage.partitioning.patterns import Prices, patterns
from tonnage.partitioning.relayout import Change, Step, relayout
from tonnage.partitioning.steps import Journal, TurnBack, Waiting, next_step

H100, A30 = card("h100"), card("a30")
PLAIN = tuple(profile_names(H100))
FREE = Prices(destroyed=1.0, created=1.0, cut=0.0, dollar=0.0)


def cards(*running: tuple[Layout, Layout], gpu: str = "h100") -> list[PlannedGpu]:
    return [PlannedGpu(f"{gpu}/{i}", card(gpu), there, busy) for i, (there, busy) in enumerate(running)]


def random_fleet(rng: random.Random, size: int, models: tuple[str, ...] = ("h100", "a30")) -> list[PlannedGpu]:
    found = []
    for i in range(size):
        on = card(rng.choice(models))
        running = rng.choice(list(feasible(on).values())) if rng.random() < 0.7 else ()
        busy = tuple(one for one in running if rng.random() < 0.4)
        found.append(PlannedGpu(f"gpu-{i:02d}", on, running, busy, micro_usd_per_hour=rng.choice((0, 3_000_000))))
    return found


def random_demands(rng: random.Random, count: int, models: tuple[str, ...] = ("h100", "a30")) -> list[Demand]:
    names = [name for gpu in models for name in profile_names(card(gpu))]
    return [
        Demand(f"d{i}", rng.randint(1, 4), rng.choice(names), weight=rng.choice((1.0, 1.0, 2.5))) for i in range(count)
    ]


# ---- one card ----


@pytest.mark.parametrize("seed", range(6))
def test_a_pattern_costs_what_the_best_relayout_to_it_costs(seed: int) -> None:
    rng = random.Random(seed)
    running = rng.choice(list(feasible(H100).values()))
    busy = tuple(one for one in running if rng.random() < 0.3)
    found = patterns(H100, running, busy, PLAIN, FREE)
    in_use = [one.profile for one in busy]
    for one in found:
        assert set(busy) <= set(one.layout)
        mask_of(H100, one.layout)
        change = relayout(H100, running, [p.profile for p in one.layout], busy)
        assert isinstance(change, Change)
        assert one.price == len(change.destroyed) + len(change.created)
        names = [name for name, count in zip(PLAIN, one.offers, strict=True) for _ in range(count)]
        assert kind_of(H100, [*in_use, *names]) == kind_of(H100, [p.profile for p in one.layout])


@pytest.mark.parametrize("seed", range(6))
def test_whatever_a_relayout_can_reach_some_pattern_offers_for_no_more(seed: int) -> None:
    rng = random.Random(100 + seed)
    running = rng.choice(list(feasible(H100).values()))
    busy = tuple(one for one in running if rng.random() < 0.3)
    found = patterns(H100, running, busy, PLAIN, FREE)
    for kind in feasible(H100):
        wanted = [name for name, count in kind for _ in range(count)]
        change = relayout(H100, running, wanted, busy)
        if not isinstance(change, Change):
            continue
        offers = Counter(wanted) - Counter(one.profile for one in busy)
        price = len(change.destroyed) + len(change.created)
        assert any(
            one.price <= price and all(n >= offers[name] for name, n in zip(PLAIN, one.offers, strict=True))
            for one in found
        )


# ---- a fleet ----


def everything(fleet: list[PlannedGpu], demands: list[Demand], prices: Prices) -> float:
    """The worth of the best plan, found by trying every layout of every card. Demands name profiles of one model."""
    names = sorted({(gpu, d.profile) for d in demands for gpu in ("h100", "a30") if picks(card(gpu), d)})
    ways: list[dict[tuple[int, ...], float]] = []
    for one in fleet:
        best: dict[tuple[int, ...], float] = {}
        for layout in all_layouts(one):
            idle = Counter((one.on.gpu, p.profile) for p in layout if p not in one.busy)
            offers = tuple(idle[name] for name in names)
            price = prices.destroyed * len(set(one.running) - set(layout))
            price += prices.created * len(set(layout) - set(one.running))
            price += prices.cut * (bool(layout) and not one.running)
            price += prices.dollar * one.micro_usd_per_hour / 1e6 * (any(offers) and not one.busy)
            if price < best.get(offers, float("inf")):
                best[offers] = price
        best.setdefault((0,) * len(names), 0.0)
        best[(0,) * len(names)] = 0.0  # a card that stays as it is costs nothing, whatever it could offer
        ways.append(best)
    values = unit_values(demands)
    most = -float("inf")
    for chosen in product(*(way.items() for way in ways)):
        supply = Counter(dict(zip(names, map(sum, zip(*(offers for offers, _ in chosen), strict=True)), strict=True)))
        worth = -sum(price for _, price in chosen)
        for (key, value), count in sorted(values.items(), key=lambda item: -item[0][1]):
            given = min(count, supply[key])
            supply[key] -= given
            worth += given * value
        most = max(most, worth)
    return most


def unit_values(demands: list[Demand]) -> Counter[tuple[tuple[str, str], float]]:
    """(model, profile) and worth of one → how many are asked for."""
    raw: Counter[tuple[tuple[str, str], float]] = Counter()
    for d in demands:
        gpu = next(gpu for gpu in ("h100", "a30") if picks(card(gpu), d))
        raw[(gpu, d.profile), d.weight * (0.02 + part(card(gpu), d.profile))] += d.count
    least = min(value for _, value in raw)
    return Counter({(key, value * 1000.0 / least): count for (key, value), count in raw.items()})


def all_layouts(one: PlannedGpu) -> Iterator[Layout]:
    """Every layout around what is in use."""
    names = profile_names(one.on)

    def grow(layout: Layout, mask: int, least: tuple[int, str]) -> Iterator[Layout]:
        yield tuple(sorted(layout))
        for name in names:
            slot = one.on.slots[f"nvidia.com/mig-{name}"]
            for start, span in slot.spans.items():
                if not span & mask and (start, name) > least:
                    yield from grow((*layout, Placement(start, name)), mask | span, (start, name))

    yield from grow(one.busy, mask_of(one.on, one.busy), (-1, ""))


def worth(found: FleetPlan, demands: list[Demand], prices: Prices) -> float:
    least = min(
        d.weight * (0.02 + part(card(g), d.profile)) for d in demands for g in ("h100", "a30") if picks(card(g), d)
    )
    total = 0.0
    for d, served in zip(demands, found.served, strict=True):
        gpu = next(gpu for gpu in ("h100", "a30") if picks(card(gpu), d))
        total += served * d.weight * (0.02 + part(card(gpu), d.profile)) * 1000.0 / least
    for one in found.cards:
        total -= prices.destroyed * len(one.change.destroyed) + prices.created * len(one.change.created)
        total -= prices.cut * (bool(one.change.after) and not one.change.before)
        total -= prices.dollar * one.card.micro_usd_per_hour / 1e6 * (bool(one.serves) and not one.card.busy)
    return total


@pytest.mark.parametrize("seed", deep_seeds.part(range(8)))
def test_a_plan_is_as_good_as_the_best_of_all(seed: int) -> None:
    rng = random.Random(seed)
    fleet = [*random_fleet(rng, 1, ("h100",)), *random_fleet(rng, 2, ("a30",))]
    demands = random_demands(rng, 5)
    prices = Prices()
    found = plan(fleet, demands, prices)
    assert worth(found, demands, prices) == pytest.approx(everything(fleet, demands, prices), abs=0.5)


@pytest.mark.parametrize("seed", deep_seeds.part(range(5)))
def test_rounding_a_relaxed_plan_loses_next_to_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    fleet, demands, prices = random_fleet(rng, 30), random_demands(rng, 60), Prices()
    exact = worth(plan(fleet, demands, prices), demands, prices)
    monkeypatch.setattr(program, "EXACT_COLUMNS", 0)
    found = plan(fleet, demands, prices)
    assert 0.98 * exact <= worth(found, demands, prices) <= exact + 0.5
    assert 0 <= found.gap <= 0.02


def test_small_slices_do_not_stand_where_a_large_one_has_to_go() -> None:
    found = plan(cards(((), ()), ((), ())), [Demand("small", 7, "1g.10gb"), Demand("large", 1, "7g.80gb")])
    assert found.served == (7, 1)
    moved = plan(
        cards(((Placement(0, "1g.10gb"),), ())), [Demand("small", 1, "1g.10gb"), Demand("large", 1, "4g.40gb")]
    )
    assert moved.served == (1, 1)
    assert moved.destroyed == 1


def test_an_instance_that_is_there_is_used_before_one_is_made() -> None:
    there = (Placement(4, "3g.40gb"),)
    found = plan(cards(((), ()), (there, ())), [Demand("one", 1, "3g.40gb")])
    assert (found.created, found.destroyed, found.cut, found.used) == (0, 0, 0, 1)
    assert found.cards[1].serves == ((there[0], 0),)


def test_of_cards_that_can_serve_the_cheaper_is_put_to_use() -> None:
    fleet = [
        PlannedGpu("dear", H100, micro_usd_per_hour=9_000_000),
        PlannedGpu("cheap", H100, micro_usd_per_hour=2_000_000),
    ]
    found = plan(fleet, [Demand("one", 2, "1g.10gb")])
    assert [one.card.name for one in found.cards if one.serves] == ["cheap"]
    assert found.micro_usd_per_hour == 2_000_000


def test_what_weighs_more_comes_first() -> None:
    demands = [Demand("many", 7, "1g.10gb"), Demand("one", 1, "7g.80gb", weight=3.0)]
    assert plan(cards(((), ())), demands).served == (0, 1)


def test_a_need_takes_the_smallest_profile_that_has_it() -> None:
    assert picks(H100, Demand("", 1, memory_mib=9_000)) == "1g.10gb"
    assert picks(H100, Demand("", 1, memory_mib=18_000)) == "1g.20gb"
    assert picks(H100, Demand("", 1, memory_mib=9_000, compute=2)) == "2g.20gb"
    assert picks(H100, Demand("", 1, memory_mib=90_000)) == ""
    assert picks(A30, Demand("", 1, memory_mib=9_000, gpu="h100")) == ""
    mixed = [*cards(((), ()), gpu="a30"), *cards(((), ()))]
    assert plan(mixed, [Demand("any", 2, memory_mib=20_000)]).served == (2,)


@pytest.mark.parametrize(
    ("demand", "why"),
    [
        (Demand("none", 1, "1g.18gb"), "no GPU in the fleet has a profile for 1g.18gb"),
        (Demand("none", 1, "1g.10gb", gpu="h200"), "no GPU of model h200 in the fleet"),
        (Demand("many", 3, "7g.80gb"), "the whole fleet, with nothing else on it, holds 2"),
        (Demand("held", 2, "7g.80gb"), "beside what is in use there is room for 1; without it for 2"),
    ],
)
def test_what_is_not_served_comes_with_its_reason(demand: Demand, why: str) -> None:
    there = (Placement(0, "1g.10gb"),)
    found = plan(cards((there, there), ((), ())), [demand])
    assert why in found.unserved[0].why


def test_demands_that_are_crowded_out_are_told_so() -> None:
    found = plan(cards(((), ())), [Demand("first", 1, "7g.80gb", weight=2.0), Demand("second", 1, "3g.40gb")])
    assert [(one.demand, one.count) for one in found.unserved] == [(1, 1)]
    assert "other demands take it" in found.unserved[0].why


def test_a_plan_without_cards_or_demands_changes_nothing() -> None:
    assert plan([], [Demand("one", 1, "1g.10gb")]).served == (0,)
    there = (Placement(0, "1g.10gb"),)
    assert plan(cards((there, ())), []).cards[0].change.steps == ()


def test_the_same_fleet_and_demands_give_the_same_plan() -> None:
    fleet, demands = random_fleet(random.Random(5), 40), random_demands(random.Random(6), 80)
    assert plan(fleet, demands) == plan(fleet, demands)


# ---- from plan to cards ----


def carry_out(one: Change, card_: PlannedGpu, rng: random.Random) -> Layout:
    """Work through a card's change; after each step everything but the journal is forgotten, and instances that are
    to go may come into use."""
    journal, there, busy = Journal(card_.name, one.before, one.after), list(one.before), set(card_.busy)
    for _ in range(1_000):
        if there and rng.random() < 0.25:
            busy.add(rng.choice(there))
        step = next_step(card_.on, journal, tuple(sorted(there)), busy)
        if step is None:
            return tuple(sorted(there))
        if isinstance(step, TurnBack):
            journal = journal.turned()
        elif isinstance(step, Waiting):
            busy -= set(step.instances)
        else:
            assert isinstance(step, Step)
            if step.action == "destroy":
                assert step.placement not in busy
                there.remove(step.placement)
            else:
                there.append(step.placement)
            mask_of(card_.on, tuple(there))
        assert set(card_.busy) <= set(there)
    raise AssertionError("it does not end")


def test_plans_carried_out_step_by_step_lose_nothing_in_use_and_give_everyone_served_an_instance() -> None:
    rng = random.Random(3)
    turned = 0
    for _ in range(20):
        fleet, demands = random_fleet(rng, 8), random_demands(rng, 12)
        found = plan(fleet, demands)
        got: Counter[int] = Counter()
        for one in found.cards:
            best = relayout(one.card.on, one.card.running, one.change.after, one.card.busy)
            assert isinstance(best, Change)
            assert best.steps == one.change.steps
            ended = carry_out(one.change, one.card, rng)
            assert ended in (one.change.after, one.change.before)
            turned += ended != one.change.after
            assert len({place for place, _ in one.serves}) == len(one.serves)
            for place, number in one.serves:
                assert place in one.change.after
                assert place not in one.card.busy
                assert place.profile == picks(one.card.on, demands[number])
                got[number] += 1
        assert tuple(got[i] for i in range(len(demands))) == found.served
        missing = {one.demand: one.count for one in found.unserved}
        assert all(found.served[i] + missing.get(i, 0) == d.count for i, d in enumerate(demands))
    assert turned > 5
