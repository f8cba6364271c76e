"""The optimal policy: cheaper than Karpenter's order, within all that binds it, and proved."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from provisioning_builders import GPU, catalogue, instance, node, node_pool, on_demand, pods, shape

from benchmarks.provisioning_check import violations
from deep_seeds import deep
from tonnage.decisions import Ref
from tonnage.objects import core, karpenter
from tonnage.provisioning.catalogue import Catalogue, OfferingKey
from tonnage.provisioning.optimal.difference import difference
from tonnage.provisioning.optimal.plan import BESIDE, LEFT_OUT, NOT_WHOLE, OptimalPlan, plan, price
from tonnage.provisioning.plans import Plan, PlanSettings
from tonnage.provisioning.pods import BoundPod, ExistingNode, PendingPod, PodShape

SMALL = instance("g.small", cpu=4, memory_gib=16, gpus=1)
LARGE = instance("g.large", cpu=64, memory_gib=256, gpus=8)
PLAIN = instance("c.plain", cpu=8, memory_gib=32)
WORLD = on_demand({SMALL: 1_000_000, LARGE: 12_000_000, PLAIN: 300_000})
SPOT, ZONES, CAPACITY = "spot", "topology.kubernetes.io/zone", "karpenter.sh/capacity-type"


def types_of(found: Plan) -> list[str]:
    return sorted(launch.instance_type for launch in found.launches)


def checked(
    found: OptimalPlan,
    waiting: list[PendingPod],
    nodes: list[ExistingNode],
    pools: list[karpenter.NodePool],
    world: Catalogue,
    **more: Any,
) -> OptimalPlan:
    """The plan, once nothing is found against it."""
    types = {one.name: one for one in world.types}
    assert list(violations(found.plan, waiting, nodes, pools, types, world.book, **more)) == []
    assert found.bound_micro_usd_per_hour <= found.micro_usd_per_hour
    return found


def planned(
    waiting: list[PendingPod],
    pools: list[karpenter.NodePool],
    world: Catalogue = WORLD,
    nodes: list[ExistingNode] | None = None,
    settings: PlanSettings | None = None,
    gangs: dict[str, tuple[Ref, ...]] | None = None,
) -> OptimalPlan:
    found = plan(waiting, nodes or [], pools, world, settings, gangs=gangs)
    daemons = settings.daemon_sets if settings else ()
    bound = settings.bound if settings else ()
    return checked(found, waiting, nodes or [], pools, world, daemon_sets=daemons, gangs=gangs, bound=bound)


@pytest.mark.report(507)
def test_many_small_nodes_where_karpenter_fills_a_large_one() -> None:
    waiting = pods(8, shape(3, 12, 1))
    found = planned(waiting, [node_pool()])
    assert types_of(found.karpenter) == ["g.large"]
    assert types_of(found.plan) == ["g.small"] * 8
    assert found.gap == pytest.approx(0.0, abs=1e-9)
    (change,) = difference(found.karpenter, found.plan, waiting)
    assert change.text() == "1 × g.large → 8 × g.small: −4.00 $/h"


def test_a_large_node_where_it_is_the_cheaper_one() -> None:
    world = on_demand({SMALL: 1_000_000, LARGE: 6_000_000})
    found = planned(pods(8, shape(3, 12, 1)), [node_pool()], world)
    assert types_of(found.plan) == ["g.large"]
    assert difference(found.karpenter, found.plan, pods(8, shape(3, 12, 1))) == ()


def test_what_nobody_changes_is_not_told_and_the_lines_add_up() -> None:
    waiting = [*pods(8, shape(3, 12, 1), "gpu"), *pods(3, shape(7, 30), "cpu")]
    found = planned(waiting, [node_pool()])
    changes = difference(found.karpenter, found.plan, waiting)
    assert sum(one.micro_usd_per_hour for one in changes) == found.micro_usd_per_hour - price(found.karpenter)
    assert difference(found.plan, found.plan, waiting) == ()
    assert [one.text().replace("−", "+") for one in changes] != []


def test_daemonsets_make_small_nodes_dearer() -> None:
    agent = shape(0.9, 1)
    waiting = pods(8, shape(3.5, 12, 1))
    found = planned(waiting, [node_pool()], settings=PlanSettings(daemon_sets=(agent,)))
    assert types_of(found.plan) == ["g.large"], "a pod of 3.5 cores and the agent are more than 4"


@pytest.mark.parametrize(("limit", "placed"), [("8", 8), ("3", 3), ("0", 0)])
def test_limits_count_what_is_launched(limit: str, placed: int) -> None:
    waiting = pods(8, shape(3, 12, 1))
    found = planned(waiting, [node_pool(limits={GPU: limit})])
    assert types_of(found.plan) == ["g.small"] * placed
    assert len(found.plan.waits) == 8 - placed
    assert all(wait.reason.alternatives or wait.reason.verdict == LEFT_OUT for wait in found.plan.waits)


def test_a_nodepool_of_lower_weight_is_used_only_where_karpenter_has_to() -> None:
    dear = node_pool("dear", ("node.kubernetes.io/instance-type", "In", ["g.large"]), weight=10)
    found = planned(pods(2, shape(3, 12, 1)), [dear, node_pool("cheap")])
    assert types_of(found.plan) == ["g.large"]
    limited = node_pool("dear", ("node.kubernetes.io/instance-type", "In", ["g.large"]), weight=10, limits={GPU: "8"})
    found = planned(pods(12, shape(3, 12, 1)), [limited, node_pool("cheap")])
    assert len(found.plan.waits) == 0


@pytest.mark.report(509)
def test_pods_stay_in_their_zone_and_spot_is_taken_where_it_is_cheaper() -> None:
    offers = {
        (one.name, zone, kind): amount - (700_000 if kind == SPOT else 0) + (50_000 if zone.endswith("b") else 0)
        for one, amount in ((SMALL, 1_000_000), (LARGE, 12_000_000))
        for zone in ("us-east-1a", "us-east-1b")
        for kind in ("on-demand", SPOT)
        if (one.name, zone, kind) != ("g.small", "us-east-1b", SPOT)
    }
    world = catalogue([SMALL, LARGE], offers)
    waiting = [*pods(2, shape(3, 12, 1), "any"), *pods(3, shape(3, 12, 1, selector={ZONES: "us-east-1b"}), "b")]
    both = node_pool("both", (CAPACITY, "In", ["spot", "on-demand"]))
    found = planned(waiting, [both], world)
    offerings = sorted((one.offering.zone, one.offering.capacity_type) for one in found.plan.claims)
    assert offerings == [("us-east-1a", SPOT)] * 2 + [("us-east-1b", "on-demand")] * 3
    out = PlanSettings(unavailable=frozenset({OfferingKey("g.small", "us-east-1a", SPOT)}))
    found = planned(waiting, [both], world, settings=out)
    assert {one.offering.capacity_type for one in found.plan.claims} == {"on-demand"}


def test_nodes_that_are_there_are_given_the_pods_that_cost_most_elsewhere() -> None:
    """One node with a GPU is free: Karpenter gives it the pod of more cores, which a plain node would hold for less."""
    there = node("there", cpu=8, memory_gib=32, gpus=1)
    waiting = [*pods(1, shape(6, 8), "cores"), *pods(1, shape(3, 12, 1), "gpu")]
    found = planned(waiting, [node_pool()], nodes=[there])
    assert types_of(found.karpenter) == ["g.small"]
    assert types_of(found.plan) == ["c.plain"]
    assert [one.pod.name for one in found.plan.nominations] == ["gpu-00000"]


@pytest.mark.report(512)
def test_a_gang_is_planned_all_or_none() -> None:
    waiting = [*pods(4, shape(3, 12, 1), "gang"), *pods(1, shape(2, 12, 1), "alone")]
    gangs = {"default/train": tuple(pod.ref for pod in waiting[:4])}
    found = planned(waiting, [node_pool(limits={GPU: "3"})], gangs=gangs)
    assert types_of(found.plan) == ["g.small"]
    assert found.gangs == ("default/train",)
    assert {wait.pod.name[:4] for wait in found.plan.waits} == {"gang"}
    assert any(wait.reason.verdict == NOT_WHOLE or wait.reason.alternatives for wait in found.plan.waits)
    enough = planned(waiting, [node_pool(limits={GPU: "5"})], gangs=gangs)
    assert not enough.gangs
    assert len(enough.plan.launches) == 5


def test_a_preference_that_a_node_can_meet_is_not_given_up_for_money() -> None:
    large = {"matchExpressions": [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["g.large"]}]}
    affinity = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": large}]}
    waiting = pods(2, shape(3, 12, 1, affinity=affinity))
    assert types_of(planned(waiting, [node_pool()]).plan) == ["g.large"]
    ignoring = PlanSettings(preferences=False)
    assert types_of(planned(waiting, [node_pool()], settings=ignoring).plan) == ["g.small"] * 2


def test_any_of_several_required_terms_will_do() -> None:
    def term(name: str) -> dict[str, Any]:
        return {"matchExpressions": [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": [name]}]}

    terms = {"nodeSelectorTerms": [term("g.large"), term("g.small")]}
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    found = planned(pods(2, shape(3, 12, 1, affinity=affinity)), [node_pool()])
    assert types_of(found.karpenter) == ["g.large"], "it gives up the first term only where no node meets it"
    assert types_of(found.plan) == ["g.small"] * 2


def test_what_patterns_do_not_express_stays_where_karpenter_puts_it() -> None:
    spread = msgspec.structs.replace(shape(3, 12, 1), unplanned=("topologySpreadConstraints",))
    waiting = [*pods(4, spread, "spread"), *pods(8, shape(2, 12, 1), "free")]
    found = planned(waiting, [node_pool()])
    assert found.kept == {"topologySpreadConstraints": 4, BESIDE: 4}
    assert found.held == 8
    together = {claim.pods for claim in found.karpenter.claims if any("spread" in pod.name for pod in claim.pods)}
    assert together <= {claim.pods for claim in found.plan.claims}
    assert found.micro_usd_per_hour <= price(found.karpenter)


def test_labels_that_a_nodepool_leaves_open_do_not_mix() -> None:
    pool = node_pool("teams", ("example.com/team", "In", ["red", "blue"]))
    waiting = [
        *pods(4, shape(3, 12, selector={"example.com/team": "red"}), "red"),
        *pods(4, shape(3, 12, selector={"example.com/team": "blue"}), "blue"),
    ]
    found = planned(waiting, [pool])
    assert types_of(found.plan) == ["c.plain"] * 4
    assert sorted(claim.labels["example.com/team"] for claim in found.plan.claims) == ["blue", "blue", "red", "red"]


def test_a_pod_that_no_nodepool_takes_waits_with_karpenters_reason() -> None:
    waiting = [*pods(1, shape(1, 1, 16), "huge"), *pods(1, shape(1, 1, 1), "small")]
    found = planned(waiting, [node_pool()])
    assert [wait.pod.name for wait in found.plan.waits] == ["huge-00000"]
    assert "no instance type fits" in found.plan.waits[0].reason.alternatives[0].why
    assert types_of(found.plan) == ["g.small"]


def test_without_pods_there_is_nothing_to_launch() -> None:
    found = planned([], [node_pool()])
    assert (found.plan.launches, found.gap) == ((), 0.0)


NAMES = ("a10g", "l4")
TYPES = [
    instance("c1.small", cpu=2, memory_gib=4, max_pods=4),
    instance("c1.large", cpu=8, memory_gib=16, max_pods=8),
    instance("g1.one", cpu=4, memory_gib=16, gpus=1, gpu="a10g", max_pods=6),
    instance("g1.four", cpu=16, memory_gib=64, gpus=4, gpu="a10g", max_pods=6),
    instance("g2.one", cpu=8, memory_gib=32, gpus=1, gpu="l4", max_pods=6),
    instance("g2.two", cpu=12, memory_gib=48, gpus=2, gpu="l4", max_pods=6),
]
OFFERS = {
    (one.name, zone, kind): 1000 * one.vcpu + 5000 * one.gpu_count - (700 * one.vcpu if kind == SPOT else 0)
    for one in TYPES
    for zone in ("us-east-1a", "us-east-1b")
    for kind in ("on-demand", SPOT)
    if (one.name, zone, kind) != ("g1.one", "us-east-1b", SPOT)
}
RANDOM = catalogue(TYPES, OFFERS)
TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
TERMS: list[tuple[str, str, list[str]]] = [
    ("karpenter.k8s.aws/instance-gpu-name", "In", ["a10g"]),
    ("karpenter.k8s.aws/instance-gpu-name", "NotIn", ["a10g"]),
    ("karpenter.k8s.aws/instance-gpu-count", "Lt", ["4"]),
    (ZONES, "In", ["us-east-1b"]),
    (CAPACITY, "In", ["on-demand"]),
    ("example.com/team", "In", ["red"]),
    ("example.com/team", "NotIn", ["red"]),
]


def _terms(rng: random.Random) -> list[tuple[str, str, list[str]]]:
    """One or two, on different labels: what contradicts itself Karpenter takes to want no label at all."""
    return list({term[0]: term for term in rng.sample(TERMS, rng.randint(1, 2))}.values())


def a_shape(rng: random.Random) -> PodShape:
    terms = [
        {"matchExpressions": [{"key": key, "operator": op, "values": values} for key, op, values in chosen]}
        for chosen in (_terms(rng) for _ in range(rng.choice((0, 0, 1, 2))))
    ]
    key, op, values = rng.choice(TERMS)
    asked = {one["key"] for term in terms for one in term["matchExpressions"]}
    liked = [{"weight": 1, "preference": {"matchExpressions": [{"key": key, "operator": op, "values": values}]}}]
    affinity: dict[str, Any] = {}
    if terms:
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
    # What is preferred and contradicts what is required means to Karpenter that the node has no such label at all.
    if rng.random() < 0.2 and (op == "In" or key not in asked):
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = liked
    made = shape(
        rng.choice((0.5, 1, 3, 6)),
        rng.choice((1, 8, 20)),
        rng.choice((0, 0, 1, 2, 4)),
        affinity=affinity or None,
        tolerations=[{"key": "gpu", "operator": "Exists"}] if rng.random() < 0.6 else [],
    )
    return msgspec.structs.replace(made, unplanned=("podAffinity",)) if rng.random() < 0.1 else made


def a_pool(rng: random.Random, number: int) -> karpenter.NodePool:
    return node_pool(
        f"pool-{number}",
        *rng.sample(TERMS[:5], rng.choice((0, 0, 1))),
        *([("example.com/team", "In", ["red", "blue"])] if rng.random() < 0.3 else []),
        weight=rng.choice((None, None, 10)),
        limits=rng.choice((None, None, {"cpu": "40"}, {GPU: "6", "memory": "200Gi"})),
        taints=rng.choice(([], [], [TAINT])),
    )


@pytest.mark.parametrize("seed", [*range(20), *deep(range(20, 500))])
def test_random_plans_hold_and_are_never_dearer_than_karpenters(seed: int) -> None:
    rng = random.Random(seed)
    waiting = [pod for n in range(rng.randint(1, 4)) for pod in pods(rng.randint(1, 9), a_shape(rng), f"w{n}")]
    pools = [a_pool(rng, n) for n in range(rng.randint(1, 3))]
    nodes = [
        node(
            f"there-{n}",
            cpu=rng.choice((2, 8)),
            memory_gib=16,
            gpus=rng.choice((0, 2)),
            labels={"example.com/team": "red"},
        )
        for n in range(rng.choice((0, 0, 1, 3)))
    ]
    gangs = {"default/gang": tuple(pod.ref for pod in waiting[: rng.randint(2, 6)])} if rng.random() < 0.3 else None
    settings = PlanSettings(daemon_sets=(shape(0.1, 0.5),) if rng.random() < 0.5 else ())
    found = planned(waiting, pools, RANDOM, nodes, settings, gangs)
    ours, theirs = len(found.plan.waits), len(found.karpenter.waits)
    if not found.gangs:
        assert ours <= theirs
        assert ours < theirs or found.micro_usd_per_hour <= price(found.karpenter)


def test_equal_inputs_in_any_order_give_equal_plans() -> None:
    rng = random.Random(5)
    waiting = [pod for n in range(4) for pod in pods(rng.randint(2, 9), a_shape(rng), f"w{n}")]
    pools = [a_pool(rng, n) for n in range(3)]
    first = plan(waiting, [], pools, RANDOM)
    again = plan(waiting[::-1], [], pools[::-1], RANDOM)
    assert first.plan.launches == again.plan.launches
    assert first.bound_micro_usd_per_hour == again.bound_micro_usd_per_hour


def anti(app: str, key: str) -> core.PodAntiAffinity:
    selector = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}
    written = {"requiredDuringSchedulingIgnoredDuringExecution": [selector]}
    return msgspec.convert(written, core.PodAntiAffinity)


def labelled(waiting: list[PendingPod], app: str) -> list[PendingPod]:
    return [msgspec.structs.replace(pod, labels={"app": app}) for pod in waiting]


@pytest.mark.parametrize("key", ["kubernetes.io/hostname", ZONES])
def test_pods_that_others_keep_away_from_are_kept_apart_in_the_cheaper_plan(key: str) -> None:
    """Databases keep away from web pods, which say nothing themselves."""
    databases = msgspec.structs.replace(shape(3, 12, 1), pod_anti_affinity=anti("web", key))
    offers = {
        (one.name, f"us-east-1{z}", "on-demand"): p for one, p in ((SMALL, 10**6), (LARGE, 12 * 10**6)) for z in "ab"
    }
    world = catalogue([SMALL, LARGE], offers)
    waiting = [
        *labelled(pods(2, databases, "db"), "db"),
        *labelled(pods(3, shape(2, 12, 1), "web"), "web"),
        *labelled(pods(8, shape(3.5, 12, 1), "free"), "free"),
    ]
    found = planned(waiting, [node_pool()], world)
    assert found.kept == {} and found.held == 0
    assert found.micro_usd_per_hour < price(found.karpenter)


def test_pods_on_nodes_keep_others_away_too() -> None:
    there = node("there", cpu=8, memory_gib=32, gpus=2, labels={"kubernetes.io/hostname": "there"})
    bound = BoundPod("default", "there", {"app": "db"}, anti("web", "kubernetes.io/hostname"))
    settings = PlanSettings(bound=(bound,))
    found = planned(labelled(pods(1, shape(2, 12, 1)), "web"), [node_pool()], nodes=[there], settings=settings)
    assert not found.plan.nominations
    other = planned(labelled(pods(1, shape(2, 12, 1)), "other"), [node_pool()], nodes=[there], settings=settings)
    assert len(other.plan.nominations) == 1
