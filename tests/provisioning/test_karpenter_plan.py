"""Planning and launch choice: Karpenter's known answers, one rule at a time, and what always holds."""

from __future__ import annotations

import time
from typing import Any

import pytest
from provisioning_builders import GPU, ZONE, catalogue, instance, node, node_pool, on_demand, pods, shape

from tonnage.decisions import Ref
from tonnage.provisioning.catalogue import Catalogue, OfferingKey
from tonnage.provisioning.karpenter import plan
from tonnage.provisioning.plans import Plan, PlanSettings
from tonnage.provisioning.pods import PendingPod
from tonnage.units import GIB, MIB, NS_PER_S

NAME = "karpenter.k8s.aws/instance-gpu-name"
FAMILY = "karpenter.k8s.aws/instance-family"
TYPE = "node.kubernetes.io/instance-type"
CAPACITY = "karpenter.sh/capacity-type"
ZONES = "topology.kubernetes.io/zone"


@pytest.fixture(scope="module")
def aws() -> Catalogue:
    return Catalogue.load()


def types_of(result: Plan) -> list[str]:
    return [launch.instance_type for launch in result.launches]


def cost(result: Plan) -> float:
    return round(sum(launch.price_micro_usd_per_hour for launch in result.launches) / 1e6, 2)


def gpu_pods(count: int, gpus: int, cpu: float, memory_mib: int, *names: str, prefix: str = "pod") -> list[PendingPod]:
    wanted = {"matchExpressions": [{"key": NAME, "operator": "In", "values": list(names)}]}
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [wanted]}}
    return pods(count, shape(cpu, memory_mib * MIB / GIB, gpus, affinity=affinity), prefix)


GREEDY: list[tuple[str, list[PendingPod], float]] = [
    ("4 x 1 A10G", gpu_pods(4, 1, 3, 12288, "a10g"), 5.67),
    ("8 x 1 L4", gpu_pods(8, 1, 3, 12288, "l4"), 13.35),
    ("8 x 1 L40S", gpu_pods(8, 1, 3.5, 24576, "l40s"), 30.13),
    ("20 x 1 A10G or L4", gpu_pods(20, 1, 6, 24576, "a10g", "l4"), 31.30),
    ("10 x 1 A10G, A100 or H100", gpu_pods(10, 1, 8, 32768, "a10g", "a100", "h100"), 21.96),
    (
        "21 pods of 1, 2, 4 and 8 L40S",
        gpu_pods(11, 1, 6, 40960, "l40s", prefix="a")
        + gpu_pods(5, 2, 12, 81920, "l40s", prefix="b")
        + gpu_pods(3, 4, 24, 163840, "l40s", prefix="c")
        + gpu_pods(2, 8, 80, 600000, "l40s", prefix="d"),
        183.03,
    ),
    (
        "8 x 1 H100 and 2 x 8 H100",
        gpu_pods(8, 1, 8, 100000, "h100", prefix="a") + gpu_pods(2, 8, 60, 800000, "h100", prefix="b"),
        165.12,
    ),
]


@pytest.mark.parametrize(("pending", "dollars"), [row[1:] for row in GREEDY], ids=[row[0] for row in GREEDY])
def test_greedy_packing_costs_what_it_is_known_to_cost(
    aws: Catalogue, pending: list[PendingPod], dollars: float
) -> None:
    pool = node_pool("gpu", (CAPACITY, "In", ["on-demand"]), ("kubernetes.io/arch", "In", ["amd64"]))
    result = plan(pending, [], [pool], aws)
    assert not result.waits
    assert cost(result) == dollars


def test_four_one_gpu_pods_become_one_large_node(aws: Catalogue) -> None:
    result = plan(gpu_pods(4, 1, 3, 12288, "a10g"), [], [node_pool("gpu", (CAPACITY, "In", ["on-demand"]))], aws)
    (launch,) = result.launches
    assert (launch.instance_type, launch.price_micro_usd_per_hour) == ("g5.12xlarge", 5_672_000)
    assert len(launch.pods) == 4
    assert launch.claim == Ref("NodeClaim", "gpu-00001")
    assert dict(launch.reason.evidence)["pods"] == 4
    assert dict(launch.reason.evidence)[GPU] == 4
    dearer = [one.score for one in launch.reason.alternatives if one.score is not None]
    assert dearer
    assert all(score >= 5.672 for score in dearer)


def test_daemon_sets_take_room_on_every_node_of_the_pool() -> None:
    world = on_demand([(instance("a.small", cpu=4), 10), (instance("a.large", cpu=8), 30)])
    agent = shape(1, 1)
    assert types_of(plan(pods(1, shape(4)), [], [node_pool()], world)) == ["a.small"]
    result = plan(pods(1, shape(4)), [], [node_pool()], world, PlanSettings(daemon_sets=(agent,)))
    assert types_of(result) == ["a.large"]
    assert result.claims[0].daemons["cpu"] == 1000


def test_a_daemon_set_that_does_not_run_on_a_type_takes_no_room_there() -> None:
    world = on_demand([(instance("a.small", cpu=4), 10), (instance("g.small", cpu=4, gpus=1), 30)])
    gpu_agent = shape(3, 1, selector={NAME: "a10g"})
    tainted = shape(3, 1)
    settings = PlanSettings(daemon_sets=(gpu_agent,))
    assert types_of(plan(pods(1, shape(4)), [], [node_pool()], world, settings)) == ["a.small"]
    pool = node_pool(taints=[{"key": "t", "effect": "NoSchedule"}])
    tolerant = shape(4, tolerations=[{"operator": "Exists"}])
    result = plan(pods(1, tolerant), [], [pool], world, PlanSettings(daemon_sets=(tainted,)))
    assert types_of(result) == ["a.small"]


def test_pods_per_node_are_counted() -> None:
    world = on_demand([(instance("a.small", cpu=64, memory_gib=64, max_pods=3), 10)])
    assert len(plan(pods(7, shape(1)), [], [node_pool()], world).launches) == 3


def test_cpu_then_memory_decides_the_order_and_gpus_play_no_part() -> None:
    world = on_demand([(instance("g.only", cpu=8, memory_gib=32, gpus=4), 10)])
    pool = node_pool(limits={"nodes": "1"})
    many_gpus = PendingPod(Ref("Pod", "gpus", "default", "a"), shape(1, 1, 4), 0)
    much_cpu = PendingPod(Ref("Pod", "cpu", "default", "b"), shape(6, 1, 1), 9 * NS_PER_S)
    result = plan([many_gpus, much_cpu], [], [pool], world)
    assert [ref.name for ref in result.launches[0].pods] == ["cpu"]
    assert [wait.pod.name for wait in result.waits] == ["gpus"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((shape(2, 8), 5, "x"), (shape(2, 4), 0, "a")),  # memory before age
        ((shape(2, 4), 0, "x"), (shape(2, 4), 1, "a")),  # age before uid
        ((shape(2, 4), 1, "a"), (shape(2, 4), 1, "x")),  # uid last
    ],
)
def test_ties_are_broken_by_memory_then_creation_then_uid(first: tuple[Any, ...], second: tuple[Any, ...]) -> None:
    world = on_demand([(instance("a.one", cpu=2, memory_gib=16), 10)])
    made = [
        PendingPod(Ref("Pod", n, "d", uid), of, age * NS_PER_S) for n, (of, age, uid) in (("1", first), ("2", second))
    ]
    result = plan(made[::-1], [], [node_pool(limits={"nodes": "1"})], world)
    assert [ref.name for ref in result.launches[0].pods] == ["1"]


def test_the_planned_claim_with_the_fewest_pods_is_tried_first() -> None:
    world = on_demand([(instance("a.one", cpu=10, memory_gib=64), 10)])
    big = pods(2, shape(6), "big")
    small = pods(3, shape(1), "small")
    result = plan(big + small, [], [node_pool()], world)
    assert sorted(len(launch.pods) for launch in result.launches) == [2, 3]


def test_the_list_of_types_shrinks_as_pods_join() -> None:
    world = on_demand(
        [(instance("a.small", cpu=4), 10), (instance("a.mid", cpu=8), 25), (instance("a.big", cpu=16), 60)]
    )
    assert types_of(plan(pods(1, shape(3)), [], [node_pool()], world)) == ["a.small"]
    result = plan(pods(3, shape(3)), [], [node_pool()], world)
    assert types_of(result) == ["a.big"]
    assert dict(result.launches[0].reason.evidence)["instance_types_considered"] == 1


def test_pools_go_by_weight_then_by_name_both_descending() -> None:
    world = on_demand([(instance("a.one"), 10)])
    pools = [node_pool("a", weight=1), node_pool("b"), node_pool("c", weight=1), node_pool("d")]
    assert plan(pods(1, shape()), [], pools, world).launches[0].node_pool == "c"
    assert plan(pods(1, shape()), [], [pools[1], pools[3]], world).launches[0].node_pool == "d"


def test_a_heavier_pool_wins_even_when_it_is_dearer() -> None:
    world = on_demand([(instance("a.cheap"), 10), (instance("b.dear"), 99)])
    pools = [node_pool("cheap", (FAMILY, "In", ["a"])), node_pool("dear", (FAMILY, "In", ["b"]), weight=10)]
    assert types_of(plan(pods(1, shape()), [], pools, world)) == ["b.dear"]


GPU_TAINT = {"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}


def test_a_pod_without_toleration_is_kept_off_a_tainted_pool() -> None:
    world = on_demand([(instance("g.one", gpus=1), 10)])
    pool = node_pool("gpu-inference-pool", taints=[GPU_TAINT])
    (wait,) = plan(pods(1, shape(1, 1, 1)), [], [pool], world).waits
    (refused,) = wait.reason.alternatives
    assert refused.name == "NodePool gpu-inference-pool"
    assert refused.why == "did not tolerate taint nvidia.com/gpu=true:NoSchedule"
    tolerant = shape(1, 1, 1, tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists"}])
    assert types_of(plan(pods(1, tolerant), [], [pool], world)) == ["g.one"]


def test_startup_taints_need_no_toleration() -> None:
    world = on_demand([(instance("a.one"), 10)])
    pool = node_pool(startup_taints=[{"key": "example.com/starting", "effect": "NoSchedule"}])
    assert types_of(plan(pods(1, shape()), [], [pool], world)) == ["a.one"]


def test_prefer_no_schedule_binds_until_nothing_else_helps() -> None:
    world = on_demand([(instance("a.one"), 10)])
    soft = node_pool("soft", taints=[{"key": "k", "effect": "PreferNoSchedule"}], weight=50)
    hard = node_pool("plain")
    assert plan(pods(1, shape()), [], [soft, hard], world).launches[0].node_pool == "plain"
    assert plan(pods(1, shape()), [], [soft], world).launches[0].node_pool == "soft"


LIMITED = [
    instance("g.four", cpu=16, memory_gib=64, gpus=4),
    instance("g.eight", cpu=32, memory_gib=128, gpus=8),
]


def test_limits_are_charged_with_the_largest_type_that_remains() -> None:
    world = on_demand([(LIMITED[0], 10), (LIMITED[1], 20)])
    pool = node_pool(limits={GPU: "12"})
    # Each pod fits either type, so the first claim is charged 8; the second may only become the small one.
    wanted = shape(10, 40, 4, selector={"karpenter.sh/nodepool": "default"})
    one_each = pods(2, wanted)
    result = plan(one_each, [], [pool], world)
    assert types_of(result) == ["g.eight"]
    three = plan(pods(4, wanted), [], [pool], world)
    assert types_of(three) == ["g.eight", "g.four"]
    (wait,) = three.waits
    assert wait.reason.alternatives[0].why == (
        "limits exceeded: nvidia.com/gpu 12 (0 left, the smallest fitting type has 4)"
    )


def test_nodes_that_are_there_count_against_the_limits_and_those_that_leave_do_not() -> None:
    world = on_demand([(LIMITED[0], 10)])
    pool = node_pool(limits={GPU: "4"})
    full = node("n", cpu=0, node_pool="default", capacity={GPU: 4})
    assert not plan(pods(1, shape(1, 1, 1)), [full], [pool], world).launches
    leaving = node("n", gpus=4, node_pool="default", capacity={GPU: 4}, deleted=True)
    result = plan(pods(1, shape(1, 1, 1)), [leaving], [pool], world)
    assert len(result.launches) == 1
    assert not result.nominations


def test_limits_compare_memory_less_the_hypervisors_share() -> None:
    world = on_demand([(instance("a.one", memory_gib=100), 10)])
    assert plan(pods(1, shape()), [], [node_pool(limits={"memory": "93Gi"})], world).launches
    assert not plan(pods(1, shape()), [], [node_pool(limits={"memory": "92Gi"})], world).launches


@pytest.mark.parametrize(
    ("pool_limits", "fits"),
    [({"nodes": "2"}, 2), ({"cpu": "9"}, 2), ({"cpu": "12", GPU: "0"}, 3), ({"nvidia.com/gpu": "1"}, 5)],
)
def test_any_limit_stops_new_nodes(pool_limits: dict[str, str], fits: int) -> None:
    world = on_demand([(instance("a.one", cpu=4), 10)])
    result = plan(pods(5, shape(3)), [], [node_pool(limits=pool_limits)], world)
    assert len(result.launches) == fits


def test_an_unknown_resource_is_named() -> None:
    world = on_demand([(instance("g.one", gpus=1), 10)])
    (wait,) = plan(pods(1, shape(1, more={"nvidia.com/mig-1g.10gb": 1})), [], [node_pool()], world).waits
    assert wait.reason.alternatives[0].why == "no instance type has nvidia.com/mig-1g.10gb"


def test_too_many_gpus_are_named_with_the_most_there_are() -> None:
    world = on_demand([(instance("g.eight", gpus=8, cpu=64, memory_gib=512), 10)])
    (wait,) = plan(pods(1, shape(1, 1, 16)), [], [node_pool()], world).waits
    assert wait.reason.alternatives[0].why == "no instance type fits: nvidia.com/gpu 16 > 8"


def test_a_requirement_that_the_pool_excludes_is_named() -> None:
    world = on_demand([(instance("g.one", gpus=1), 10)])
    pool = node_pool("spot-only", (CAPACITY, "In", ["spot"]))
    (wait,) = plan(pods(1, shape(selector={CAPACITY: "on-demand"})), [], [pool], world).waits
    assert wait.reason.alternatives[0].why == (
        "requirement karpenter.sh/capacity-type In [on-demand], but karpenter.sh/capacity-type In [spot]"
    )


def test_a_label_of_the_gpu_operator_is_not_known_before_the_node_exists() -> None:
    world = on_demand([(instance("g.one", gpus=1), 10)])
    asked = shape(1, 1, 1, selector={"nvidia.com/gpu.product": "NVIDIA-A10G"})
    (wait,) = plan(pods(1, asked), [], [node_pool()], world).waits
    assert "does not have known values" in wait.reason.alternatives[0].why
    labelled = node_pool(labels={"nvidia.com/gpu.product": "NVIDIA-A10G"})
    result = plan(pods(1, asked), [], [labelled], world)
    assert result.claims[0].labels["nvidia.com/gpu.product"] == "NVIDIA-A10G"


def test_match_fields_are_refused() -> None:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    world = on_demand([(instance("a.one"), 10)])
    (wait,) = plan(pods(1, shape(affinity=affinity)), [], [node_pool()], world).waits
    assert "matchFields" in wait.reason.verdict


def preferring(*weighted: tuple[int, str, list[str]]) -> dict[str, Any]:
    return {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {
                "weight": weight,
                "preference": {"matchExpressions": [{"key": key, "operator": "In", "values": values}]},
            }
            for weight, key, values in weighted
        ]
    }


def test_the_heaviest_preference_binds_while_it_can_be_met() -> None:
    world = on_demand([(instance("a.one"), 10), (instance("b.one"), 20), (instance("c.one"), 30)])
    wished = shape(affinity=preferring((10, FAMILY, ["b"]), (90, FAMILY, ["c"])))
    assert types_of(plan(pods(1, wished), [], [node_pool()], world)) == ["c.one"]
    without_c = node_pool("p", (FAMILY, "NotIn", ["c"]))
    assert types_of(plan(pods(1, wished), [], [without_c], world)) == ["b.one"]
    only_a = node_pool("p", (FAMILY, "In", ["a"]))
    assert types_of(plan(pods(1, wished), [], [only_a], world)) == ["a.one"]
    ignoring = PlanSettings(preferences=False)
    assert types_of(plan(pods(1, wished), [], [node_pool()], world, ignoring)) == ["a.one"]


def test_required_terms_are_alternatives_tried_in_order() -> None:
    world = on_demand([(instance("a.one"), 10), (instance("b.one"), 20)])
    terms = [{"matchExpressions": [{"key": FAMILY, "operator": "In", "values": [one]}]} for one in ("z", "b", "a")]
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    assert types_of(plan(pods(1, shape(affinity=affinity)), [], [node_pool()], world)) == ["b.one"]


def test_existing_nodes_come_first_the_initialised_ones_before_the_others() -> None:
    world = on_demand([(instance("a.one"), 10)])
    nodes = [node("a", cpu=2, initialized=False), node("b", cpu=2), node("c", cpu=2)]
    result = plan(pods(4, shape(2)), nodes, [node_pool()], world)
    assert [one.node.name for one in result.nominations] == ["b", "c", "a"]
    assert len(result.launches) == 1


def test_a_starting_nodes_own_taints_are_ignored_until_it_is_initialised() -> None:
    world = on_demand([(instance("a.one"), 10)])
    taints = [
        {"key": "example.com/agent", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
    ]
    starting = node("n", taints=taints, startup_taints=taints[:1], initialized=False)
    assert plan(pods(1, shape()), [starting], [node_pool()], world).nominations
    started = node("n", taints=taints, startup_taints=taints[:1])
    assert not plan(pods(1, shape()), [started], [node_pool()], world).nominations


def test_planning_again_with_the_nodes_on_their_way_launches_nothing() -> None:
    world = on_demand([(instance("a.small", cpu=4), 10), (instance("a.big", cpu=16, memory_gib=64), 60)])
    pool = node_pool(taints=[GPU_TAINT], labels={"team": "red"})
    tolerant = shape(3, tolerations=[{"operator": "Exists"}], selector={"team": "red"})
    first = plan(pods(9, tolerant), [], [pool], world, PlanSettings(daemon_sets=(tolerant,)))
    assert len(first.launches) > 1
    on_their_way = [claim.in_flight() for claim in first.claims]
    assert all(amount >= 0 for one in on_their_way for amount in one.free.values())
    emptied = [msg_free(one, claim.requests) for one, claim in zip(on_their_way, first.claims, strict=True)]
    again = plan(pods(9, tolerant), emptied, [pool], world)
    assert not again.launches
    assert len(again.nominations) == 9


def msg_free(one: Any, requests: dict[str, int]) -> Any:
    """The node as if its pods were still unplanned."""
    free = {name: amount + requests.get(name, 0) for name, amount in one.free.items()}
    return type(one)(**{name: getattr(one, name) for name in one.__struct_fields__ if name != "free"}, free=free)


def test_spot_is_taken_where_it_is_allowed_and_there() -> None:
    one = instance("a.one")
    world = catalogue([one], {("a.one", ZONE, "on-demand"): 100, ("a.one", ZONE, "spot"): 30})
    assert plan(pods(1, shape()), [], [node_pool()], world).launches[0].capacity_type == "spot"
    od_only = node_pool("p", (CAPACITY, "In", ["on-demand"]))
    assert plan(pods(1, shape()), [], [od_only], world).launches[0].capacity_type == "on-demand"
    out = PlanSettings(unavailable=frozenset({OfferingKey("a.one", ZONE, "spot")}))
    assert plan(pods(1, shape()), [], [node_pool()], world, out).launches[0].capacity_type == "on-demand"


def test_spot_dearer_than_the_cheapest_on_demand_is_dropped() -> None:
    types = [instance("a.one"), instance("b.one")]
    prices = {
        ("a.one", ZONE, "on-demand"): 100,
        ("b.one", ZONE, "on-demand"): 200,
        ("b.one", ZONE, "spot"): 110,
    }
    launch = plan(pods(1, shape()), [], [node_pool()], catalogue(types, prices)).launches[0]
    assert (launch.instance_type, launch.capacity_type) == ("a.one", "on-demand")


def test_min_values_keeps_dear_spot() -> None:
    types = [instance("a.one"), instance("b.one")]
    prices = {
        ("a.one", ZONE, "on-demand"): 100,
        ("b.one", ZONE, "on-demand"): 200,
        ("b.one", ZONE, "spot"): 110,
    }
    pool = node_pool("p", (FAMILY, "In", ["a", "b"], 2))
    launch = plan(pods(1, shape()), [], [pool], catalogue(types, prices)).launches[0]
    assert (launch.instance_type, launch.capacity_type) == ("b.one", "spot")


def test_min_values_that_cannot_be_met_keep_the_pod_waiting_unless_best_effort() -> None:
    world = on_demand([(instance("a.one"), 10), (instance("b.one", cpu=1), 10)])
    pool = node_pool("p", (FAMILY, "In", ["a", "b"], 2))
    (wait,) = plan(pods(1, shape(3)), [], [pool], world).waits
    assert wait.reason.alternatives[0].why == f"minValues 2 of {FAMILY}: only 1 left"
    assert plan(pods(1, shape(3)), [], [pool], world, PlanSettings(strict_min_values=False)).launches


def test_a_pod_without_gpus_does_not_get_a_gpu_node_if_a_plain_one_will_do() -> None:
    world = on_demand([(instance("a.one"), 50), (instance("g.one", gpus=1), 10)])
    assert types_of(plan(pods(1, shape()), [], [node_pool()], world)) == ["a.one"]
    gpu_only = node_pool("p", (NAME, "Exists", []))
    assert types_of(plan(pods(1, shape()), [], [gpu_only], world)) == ["g.one"]


def test_offerings_out_of_stock_are_skipped_and_named_when_nothing_is_left() -> None:
    one = instance("a.one")
    world = catalogue(
        [one],
        {("a.one", zone, "on-demand"): price for zone, price in (("us-east-1a", 10), ("us-east-1b", 11))},
    )
    first = OfferingKey("a.one", "us-east-1a", "on-demand")
    second = OfferingKey("a.one", "us-east-1b", "on-demand")
    launch = plan(pods(1, shape()), [], [node_pool()], world, PlanSettings(unavailable=frozenset({first}))).launches[0]
    assert launch.zone == "us-east-1b"
    nothing = plan(pods(1, shape()), [], [node_pool()], world, PlanSettings(unavailable=frozenset({first, second})))
    assert nothing.waits[0].reason.alternatives[0].why == "no offering is available for a.one"


def test_equal_prices_are_settled_by_type_then_zone() -> None:
    types = [instance("b.one"), instance("a.one")]
    world = catalogue(types, {(one.name, f"us-east-1{z}", "on-demand"): 10 for one in types for z in "ba"})
    launch = plan(pods(1, shape()), [], [node_pool()], world).launches[0]
    assert (launch.instance_type, launch.zone) == ("a.one", "us-east-1a")


def test_a_zone_that_the_pod_insists_on_binds_its_node() -> None:
    one = instance("a.one", cpu=16)
    world = catalogue([one], {("a.one", f"us-east-1{z}", "on-demand"): price for z, price in (("a", 10), ("b", 20))})
    mixed = pods(1, shape(2, selector={ZONES: "us-east-1b"}), "b") + pods(1, shape(1), "any")
    result = plan(mixed, [], [node_pool()], world)
    assert [(launch.zone, len(launch.pods)) for launch in result.launches] == [("us-east-1b", 2)]


def test_the_claim_says_what_the_node_will_be(aws: Catalogue) -> None:
    pool = node_pool("gpu", (CAPACITY, "In", ["on-demand"]), labels={"team": "llm"}, taints=[GPU_TAINT])
    tolerant = shape(2, 8, 1, selector={NAME: "l40s"}, tolerations=[{"operator": "Exists"}])
    (claim,) = plan(pods(1, tolerant), [], [pool], aws).claims
    assert claim.offering.instance_type == "g6e.xlarge"
    assert claim.labels["team"] == "llm"
    assert claim.labels["karpenter.sh/nodepool"] == "gpu"
    assert claim.labels[NAME] == "l40s"
    assert claim.labels[CAPACITY] == "on-demand"
    assert claim.allocatable[GPU] == 1
    assert claim.capacity["cpu"] == 4000
    assert claim.instance_types[0] == "g6e.xlarge"
    assert claim.taints[0].key == "nvidia.com/gpu"


def test_constraints_that_are_not_weighed_are_counted() -> None:
    spread = shape()
    counted = type(spread)(requests=spread.requests, unplanned=("topologySpreadConstraints",))
    result = plan(pods(2, counted), [], [node_pool()], on_demand([(instance("a.one"), 10)]))
    assert result.unplanned == {"topologySpreadConstraints": 2}


@pytest.mark.report(514)
def test_twenty_thousand_pods_plan_in_seconds(aws: Catalogue) -> None:
    """A regression bound, not a benchmark: a plan that looks at every claim for every pod takes minutes."""
    mix = [
        pods(5000, shape(cpu, memory, gpus), f"class-{i}")
        for i, (cpu, memory, gpus) in enumerate([(1, 2, 0), (4, 16, 0), (3, 12, 1), (8, 60, 2)])
    ]
    started = time.perf_counter()
    result = plan([pod for one in mix for pod in one], [], [node_pool("p", (CAPACITY, "In", ["on-demand"]))], aws)
    assert time.perf_counter() - started < 20
    assert sum(len(launch.pods) for launch in result.launches) == 20_000
