"""The bound of a plan holds for every plan: also for those that follow the rules about other pods in another way."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec
import pytest
from provisioning_builders import catalogue, instance, node, node_pool, pods, shape
from test_optimal_program import a_program, cheapest

from benchmarks.provisioning_check import violations
from deep_seeds import deep
from tonnage.decisions import Ref
from tonnage.facts.price_book import Reservation
from tonnage.objects import core
from tonnage.provisioning.nodeclass import NodeStorage
from tonnage.provisioning.optimal import pooled, relaxed
from tonnage.provisioning.optimal.plan import plan, price
from tonnage.provisioning.optimal.program import Bin, Effort, Program
from tonnage.provisioning.optimal.solve import solve
from tonnage.provisioning.plans import Plan, PlanSettings
from tonnage.provisioning.pods import ExistingNode, PendingPod, PodShape

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
ZONES = ("us-east-1a", "us-east-1b")
TYPES = [
    instance("c1.small", cpu=2, memory_gib=4, max_pods=4),
    instance("c1.large", cpu=8, memory_gib=16, max_pods=8),
    instance("g1.one", cpu=4, memory_gib=16, gpus=1, max_pods=6),
]
PRICES = {"c1.small": 100_000, "c1.large": 330_000, "g1.one": 500_000}
WORLD = catalogue(
    TYPES,
    {
        (one.name, zone, "on-demand"): PRICES[one.name] + (10_000 if zone == "us-east-1b" else 0)
        for one in TYPES
        for zone in ZONES
        if (one.name, zone) != ("g1.one", "us-east-1b")
    },
)


def labelled(app: str) -> core.LabelSelector:
    return core.LabelSelector(match_labels={"app": app})


def ruled(rng: random.Random, own: PodShape) -> PodShape:
    """The shape with one rule about pods of some app, or with none."""
    kind, app, key = rng.randrange(4), rng.choice("ab"), rng.choice((HOST, ZONE))
    term = core.PodAffinityTerm(topology_key=key, label_selector=labelled(app))
    if kind == 0:
        return msgspec.structs.replace(
            own, pod_anti_affinity=core.PodAntiAffinity(required_during_scheduling_ignored_during_execution=[term])
        )
    if kind == 1:
        near = msgspec.structs.replace(term, topology_key=ZONE)
        return msgspec.structs.replace(
            own, pod_affinity=core.PodAffinity(required_during_scheduling_ignored_during_execution=[near])
        )
    if kind == 2:
        rule = core.TopologySpreadConstraint(
            max_skew=1, topology_key=ZONE, when_unsatisfiable="DoNotSchedule", label_selector=labelled(app)
        )
        return msgspec.structs.replace(own, spread=(rule,))
    return own


def some_pods(rng: random.Random) -> list[PendingPod]:
    found = []
    for app in "ab":
        own = ruled(rng, shape(rng.choice((0.5, 1, 1.5, 3)), rng.choice((1, 3)), rng.choice((0, 0, 1))))
        found += [msgspec.structs.replace(one, labels={"app": app}) for one in pods(rng.randint(1, 3), own, app)]
    return found


Place = tuple[int, str]
"""The number of a node, and its zone."""


def holds(waiting: Sequence[PendingPod], places: Sequence[Place]) -> bool:
    """Whether all rules hold once the pods stand there, counted over pods one by one."""
    for at, (pod, (host, zone)) in enumerate(zip(waiting, places, strict=True)):
        others = [(o.labels["app"], p) for n, (o, p) in enumerate(zip(waiting, places, strict=True)) if n != at]
        away, near = pod.shape.pod_anti_affinity, pod.shape.pod_affinity
        for term in away.required_during_scheduling_ignored_during_execution if away else ():
            assert term.label_selector is not None
            app, own = term.label_selector.match_labels["app"], host if term.topology_key == HOST else zone
            if any(name == app and own in p for name, p in others):
                return False
        for term in near.required_during_scheduling_ignored_during_execution if near else ():
            assert term.label_selector is not None
            app = term.label_selector.match_labels["app"]
            meant = [p for name, p in others if name == app]
            if not any(p[1] == zone for p in meant) and (meant or pod.labels["app"] != app):
                return False
        for rule in pod.shape.spread:
            assert rule.label_selector is not None
            app = rule.label_selector.match_labels["app"]
            if app != pod.labels["app"]:
                continue  # the others may have come later
            counts = Counter(dict.fromkeys(ZONES, 0))
            counts.update(p[1] for o, p in zip(waiting, places, strict=True) if o.labels["app"] == app)
            if max(counts.values()) - min(counts.values()) > rule.max_skew:
                return False
    return True


def partitions(count: int) -> Iterator[list[int]]:
    """Every way to put pods on nodes that are all alike, as the number of each pod's node."""

    def go(at: int, used: int, chosen: list[int]) -> Iterator[list[int]]:
        if at == count:
            yield list(chosen)
            return
        for number in range(used + 1):
            yield from go(at + 1, max(used, number + 1), [*chosen, number])

    return go(0, 0, [])


def fitting(waiting: Sequence[PendingPod], zone: str) -> float:
    """What the cheapest node of the zone costs that holds these pods together."""
    best = math.inf
    for one in TYPES:
        offered = [o for o in WORLD.book.offerings(one.name) if o.zone == zone]
        has = {"cpu": one.allocatable_cpu_milli, "memory": one.allocatable_memory_mib << 20, "pods": one.max_pods}
        has["nvidia.com/gpu"] = one.gpu_count
        needs: Counter[str] = Counter()
        for pod in waiting:
            needs.update(pod.shape.requests)
        if offered and all(amount <= has.get(name, 0) for name, amount in needs.items()):
            best = min(best, offered[0].micro_usd_per_hour)
    return best


def cheapest_of_all(waiting: Sequence[PendingPod]) -> float:
    """The least that any nodes cost on which all pods stand and all rules hold, by trying all."""
    best = math.inf
    for numbers in partitions(len(waiting)):
        nodes = max(numbers) + 1
        for zones in itertools.product(ZONES, repeat=nodes):
            groups = [[p for p, n in zip(waiting, numbers, strict=True) if n == node] for node in range(nodes)]
            cost = sum(fitting(group, zone) for group, zone in zip(groups, zones, strict=True))
            if cost < best and holds(waiting, [(n, zones[n]) for n in numbers]):
                best = cost
    return best


@pytest.mark.parametrize("seed", [*range(30), *deep(range(30, 400))])
def test_no_plan_that_follows_the_rules_in_any_way_costs_less_than_the_bound(seed: int) -> None:
    waiting = some_pods(random.Random(seed))
    found = plan(waiting, [], [node_pool()], WORLD)
    assert 0 <= found.bound_micro_usd_per_hour <= found.held_bound_micro_usd_per_hour <= found.micro_usd_per_hour
    if len(found.plan.waits) == len(found.karpenter.waits):
        assert found.micro_usd_per_hour <= price(found.karpenter)
    if found.held == 0:  # planned by the rules, and not where Karpenter puts the pods
        assert broken_rules(found.plan, waiting) == []
    if not found.plan.waits:
        best = cheapest_of_all(waiting)
        assert best < math.inf
        assert found.bound_micro_usd_per_hour <= best + 1
        assert found.bound_micro_usd_per_hour > 0


def broken_rules(found: Plan, waiting: Sequence[PendingPod]) -> list[str]:
    """What the checker that shares no code with the planner finds against the plan."""
    return list(violations(found, waiting, [], [node_pool()], {one.name: one for one in WORLD.types}, WORLD.book))


def test_pods_that_keep_apart_share_small_nodes_with_others_where_karpenter_fills_large_ones() -> None:
    """Karpenter lets three small pods join each that keeps apart, which takes a large node; two of them fill a small
    one, and one node more holds the rest."""
    apart = msgspec.structs.replace(kept_apart("a"), requests={"pods": 1, "cpu": 1000, "memory": 2 << 30})
    waiting = [*of_app("a", pods(4, apart, "apart")), *of_app("b", pods(12, shape(0.5, 1), "small"))]
    found = plan(waiting, [], [node_pool()], WORLD)
    assert price(found.karpenter) == 4 * PRICES["c1.large"]
    assert found.micro_usd_per_hour == found.bound_micro_usd_per_hour == 5 * PRICES["c1.small"]
    assert (found.kept, found.held) == ({}, 0)
    assert broken_rules(found.plan, waiting) == []


def test_pods_that_spread_over_zones_stand_evenly_in_the_cheaper_plan_too() -> None:
    spread = core.TopologySpreadConstraint(
        max_skew=1, topology_key=ZONE, when_unsatisfiable="DoNotSchedule", label_selector=labelled("a")
    )
    waiting = [
        *of_app("a", pods(6, msgspec.structs.replace(shape(1, 4), spread=(spread,)), "spread")),
        *of_app("b", pods(6, shape(1, 1), "free")),
    ]
    found = plan(waiting, [], [node_pool()], WORLD)
    assert found.micro_usd_per_hour <= price(found.karpenter)
    zones = Counter(one.labels[ZONE] for one in found.plan.claims for ref in one.pods if ref.name.startswith("spread"))
    assert set(zones.values()) == {3}
    assert broken_rules(found.plan, waiting) == []


def kept_apart(app: str) -> PodShape:
    term = core.PodAffinityTerm(topology_key=HOST, label_selector=labelled(app))
    away = core.PodAntiAffinity(required_during_scheduling_ignored_during_execution=[term])
    return msgspec.structs.replace(shape(0.5, 1), pod_anti_affinity=away)


def of_app(app: str, waiting: list[PendingPod]) -> list[PendingPod]:
    return [msgspec.structs.replace(one, labels={"app": app}) for one in waiting]


def test_pods_that_keep_apart_on_nodes_count_one_a_node_in_the_bound() -> None:
    found = plan(of_app("a", pods(5, kept_apart("a"))), [], [node_pool()], WORLD)
    assert len(found.plan.launches) == 5
    assert found.gap == pytest.approx(0.0, abs=1e-9), "five of the smallest nodes are the least"


def test_pods_that_keep_away_from_others_alone_may_share_a_node() -> None:
    """They keep away from app b, of which none is there."""
    waiting = of_app("a", pods(4, kept_apart("b")))
    assert relaxed.apart(waiting) == {}
    assert set(relaxed.apart(of_app("b", waiting)).values()) == {(0,)}
    one_namespace = [
        msgspec.structs.replace(pod, ref=Ref("Pod", pod.ref.name, f"n{n}", ""))
        for n, pod in enumerate(of_app("b", waiting))
    ]
    assert relaxed.apart(one_namespace) == {}, "in namespaces of their own they do not see each other"


def test_what_a_reservation_has_free_costs_next_to_nothing_in_the_bound() -> None:
    """Karpenter's order puts the small pod first into the reservation; the bound knows that another may have it."""
    reserved = Reservation("cr-1", "c1.large", ZONES[0], 1, None, "test")
    settings = PlanSettings(
        reservations=(reserved,), node_classes={"default": NodeStorage(reservations=frozenset({"cr-1"}))}
    )
    capacity = ("karpenter.sh/capacity-type", "In", ["reserved", "on-demand"])
    found = plan(pods(1, shape(6, 12)), [], [node_pool("p", capacity)], WORLD, settings)
    assert [one.capacity_type for one in found.plan.launches] == ["reserved"]
    assert found.bound_micro_usd_per_hour <= price(found.plan) < 1000


def test_nodes_that_are_there_cost_nothing_in_the_bound() -> None:
    there: ExistingNode = node("there", cpu=8, memory_gib=32, labels={HOST: "there", ZONE: ZONES[0]})
    found = plan(of_app("a", pods(2, kept_apart("a"))), [there], [node_pool()], WORLD)
    assert len(found.plan.launches) == 1
    assert found.bound_micro_usd_per_hour == PRICES["c1.small"]


@pytest.mark.parametrize("seed", [*range(25), *deep(range(25, 600))])
def test_prices_of_resources_bound_every_plan(seed: int) -> None:
    program = a_program(random.Random(seed))
    assert pooled.bound(program) <= cheapest(program) + 1e-6


def test_prices_of_resources_count_fares_and_pods_that_stay() -> None:
    """A node that holds two pods at 3 stays, or each of them moves for 1 to nodes at 5."""
    bins = (Bin(3.0, (0,), (), 1, (), (2,)), Bin(5.0, (2,), (0,)))
    program = Program((2,), ((1,),), bins, fares=(1.0,))
    assert solve(program).cost == 3.0
    assert 0.0 < pooled.bound(program) <= 3.0


def test_a_bound_with_little_effort_holds_and_is_that_of_resources() -> None:
    rng = random.Random(7)
    checked = 0
    for _ in range(40):
        program = a_program(rng)
        best = solve(program)
        start = [*best.chosen]
        if any(best.left_out):
            continue
        checked += 1
        least = solve(program, start, Effort(steps=1, rounds=1, columns=3, nodes=0)).bound
        assert pooled.bound(program) <= least + 1e-6
        assert least <= cheapest(program) + 1e-6
    assert checked > 10
