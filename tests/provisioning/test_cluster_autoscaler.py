"""Node groups as the Cluster Autoscaler sizes them: which grows, by how many machines, and which nodes go back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from provisioning_builders import GPU, ZONE, catalogue, instance, node, node_pool, pods, shape

from tonnage.decisions import Ref
from tonnage.objects.core import Taint, Toleration
from tonnage.objects.karpenter import NodePool
from tonnage.provisioning.candidates import MovablePod, RunningNode
from tonnage.provisioning.catalogue import OfferingKey
from tonnage.provisioning.cluster_autoscaler import expanders
from tonnage.provisioning.cluster_autoscaler.eviction import keeps_local_data
from tonnage.provisioning.cluster_autoscaler.expanders import ExpansionOption
from tonnage.provisioning.cluster_autoscaler.options import AutoscalingOptions
from tonnage.provisioning.cluster_autoscaler.scale_down import (
    Unneeded,
    deletions,
    pod_keeps,
    unneeded,
    utilization,
)
from tonnage.provisioning.cluster_autoscaler.scale_up import plan
from tonnage.provisioning.disruption import NodeState
from tonnage.provisioning.group_pools import group_pools
from tonnage.provisioning.node_groups import NodeGroup
from tonnage.provisioning.plans import Plan, PlanSettings
from tonnage.provisioning.pods import ExistingNode, PendingPod
from tonnage.units import GIB, NS_PER_S

MINUTE = 60 * NS_PER_S
SMALL, LARGE, ONE_GPU, FOUR_GPUS = (
    instance("m5.xlarge", cpu=4, memory_gib=16),
    instance("m5.4xlarge", cpu=16, memory_gib=64),
    instance("g5.xlarge", cpu=4, memory_gib=16, gpus=1),
    instance("g5.12xlarge", cpu=48, memory_gib=192, gpus=4),
)
PRICES = {"m5.xlarge": 192_000, "m5.4xlarge": 768_000, "g5.xlarge": 1_006_000, "g5.12xlarge": 5_672_000}
ZONES = (ZONE, "us-east-1b")
MARKET = catalogue(
    [SMALL, LARGE, ONE_GPU, FOUR_GPUS],
    {(name, zone, "on-demand"): price for name, price in PRICES.items() for zone in ZONES},
)


def group(name: str, type_: str, **changes: object) -> NodeGroup:
    given = {"instance_types": (type_,), "zones": ZONES, "minimum": 0, "desired": 0, "maximum": 10}
    return msgspec.convert({"name": name, **given, **changes}, NodeGroup)


def groups(*given: NodeGroup, counted: Mapping[str, int] | None = None) -> list[NodePool]:
    counted = counted or {one.name: one.desired for one in given}
    return [one.pool for one in group_pools(given, MARKET, counted)]


def planned(
    waiting: list[PendingPod],
    *given: NodeGroup,
    options: AutoscalingOptions | None = None,
    nodes: list[ExistingNode] | None = None,
    settings: PlanSettings | None = None,
    loops: int | None = None,
) -> Plan:
    return plan(waiting, nodes or [], groups(*given), MARKET, settings, options or AutoscalingOptions(), loops=loops)


def launched(found: Plan) -> list[tuple[str, int]]:
    return [(one.node_pool, len(one.pods)) for one in found.launches]


# ---- growing ----


def test_pods_are_packed_on_machines_of_one_group_and_spread_over_its_zones() -> None:
    found = planned(pods(7, shape(1.5, 2)), group("m", "m5.xlarge"))
    assert launched(found) == [("m", 2), ("m", 2), ("m", 2), ("m", 1)]
    assert [one.zone for one in found.launches] == [ZONE, "us-east-1b", ZONE, "us-east-1b"]
    assert found.launches[0].labels["topology.kubernetes.io/zone"] == ZONE
    assert not any(key.startswith("karpenter") for key in found.launches[0].labels)
    assert [one.claim.name for one in found.launches] == [f"m-{number:05d}" for number in range(1, 5)]


@pytest.mark.report(520)
def test_a_group_from_zero_is_known_by_its_instance_type_two_pods_need_two_gpus() -> None:
    found = planned(pods(2, shape(1, 1, gpus=1)), group("gpu", "g5.xlarge"))
    assert launched(found) == [("gpu", 1), ("gpu", 1)]
    assert found.launches[0].allocatable[GPU] == 1


def test_least_waste_counts_cpu_and_memory_and_neither_gpus_nor_prices() -> None:
    wanted = pods(1, shape(40, 160, gpus=1))
    assert launched(planned(wanted, group("one", "g5.xlarge"), group("four", "g5.12xlarge"))) == [("four", 1)]
    cpu = pods(1, shape(3, 12))  # three quarters of the small machine, a sixteenth of the one with four GPUs
    assert launched(planned(cpu, group("four", "g5.12xlarge"), group("m", "m5.xlarge"))) == [("m", 1)]
    half = pods(8, shape(5, 20, gpus=1))  # only the dear machine holds them, however little of it they take
    assert launched(planned(half, group("one", "g5.xlarge"), group("four", "g5.12xlarge"))) == [("four", 4)] * 2


@pytest.mark.parametrize(
    ("names", "best"),
    [
        (("least-waste",), "tight"),
        (("most-pods",), "many"),
        (("least-nodes",), "few"),
        (("price",), "cheap"),
        (("priority",), "few"),
        (("most-pods", "least-nodes"), "many"),
        (("priority", "least-waste"), "few"),
    ],
)
def test_each_expander_has_its_own_best(names: tuple[str, ...], best: str) -> None:
    def option(name: str, nodes: int, count: int, cpu: int, price: int) -> ExpansionOption:
        refs = tuple(ref.ref for ref in pods(count, shape()))
        capacity = {"cpu": 4000, "memory": 16 * GIB}
        return ExpansionOption(name, nodes, refs, capacity, {"cpu": cpu, "memory": 8 * GIB}, price)

    options = [
        option("tight", 3, 5, 11_000, 500_000),
        option("many", 4, 9, 9_000, 500_000),
        option("few", 2, 5, 4_000, 500_000),
        option("cheap", 3, 5, 6_000, 50_000),
    ]
    settings = AutoscalingOptions(expanders=names, priorities=((50, ("^fe",)), (10, (".*",))))
    assert expanders.best(options, settings, 3).group == best


def test_the_price_expander_weighs_prices_against_what_pods_are_worth() -> None:
    capacity = {"cpu": 4000, "memory": 16 * GIB}
    one = ExpansionOption("m", 1, (), capacity, {"cpu": 2000, "memory": 4 * GIB}, 192_000)
    steady = 0.5 * 33_174 + 500 / 1024 * 4_446
    ratio = (192_000 + steady) / (2 * 33_174 + 4 * 4_446 + steady)
    assert expanders.score(one, 10) == pytest.approx(ratio)  # four CPUs suit a cluster of 7 to 20 nodes
    assert expanders.score(one, 2) == pytest.approx(4 * ratio)
    assert expanders.score(replace(one, gpus=True), 10) == pytest.approx(1000 * ratio)


def test_groups_that_no_priority_names_are_used_only_where_none_is() -> None:
    options = AutoscalingOptions(expanders=("priority",), priorities=((10, ("spot",)),))
    wanted = pods(1, shape(1, 1))
    assert launched(planned(wanted, group("a", "m5.xlarge"), group("spot-b", "m5.xlarge"), options=options)) == [
        ("spot-b", 1)
    ]
    assert launched(planned(wanted, group("a", "m5.xlarge"), options=options)) == [("a", 1)]


def test_equal_options_are_drawn_alike_each_time_and_not_always_the_same() -> None:
    given = [group(name, "m5.xlarge") for name in "abcd"]
    wanted = pods(1, shape(1, 1))

    def drawn(first: int) -> str:
        found = planned(
            wanted, *given, options=AutoscalingOptions(expanders=("random",)), settings=PlanSettings(first_claim=first)
        )
        return found.launches[0].node_pool

    chosen = [drawn(first) for first in range(1, 30)]
    assert chosen == [drawn(first) for first in range(1, 30)]
    assert set(chosen) == set("abcd")


def test_one_group_grows_in_a_loop_and_the_rest_waits_for_the_next() -> None:
    cpu, gpu = group("m", "m5.xlarge"), group("gpu", "g5.xlarge", taints=[{"key": GPU, "effect": "NoSchedule"}])
    tolerates = shape(1, 1, gpus=1, tolerations=[{"key": GPU, "operator": "Exists"}])
    waiting = [*pods(2, shape(3, 12)), *pods(1, tolerates, "gpu")]
    once = planned(waiting, cpu, gpu, loops=1)
    assert launched(once) == [("m", 1), ("m", 1)] and not once.waits
    assert launched(planned(waiting, cpu, gpu)) == [("m", 1), ("m", 1), ("gpu", 1)]


def test_a_machine_on_its_way_takes_the_pods_that_it_was_asked_for_though_its_gpus_are_not_there_yet() -> None:
    coming = ExistingNode(
        ref=Ref("NodeClaim", "gpu-00001"),
        labels={"node.kubernetes.io/instance-type": "g5.xlarge", "topology.kubernetes.io/zone": ZONE},
        free={"cpu": 4000, "memory": 16 * GIB, "pods": 50, GPU: 1},
        taints=(Taint(key="node.kubernetes.io/not-ready", effect="NoSchedule"),),
        initialized=False,
        node_pool="gpu",
        capacity={"nodes": 1},
    )
    found = planned(pods(1, shape(1, 1, gpus=1)), group("gpu", "g5.xlarge", desired=1), nodes=[coming])
    assert not found.launches
    assert [(one.pod.name, one.node.name) for one in found.nominations] == [("pod-00000", "gpu-00001")]
    two = planned(pods(2, shape(1, 1, gpus=1)), group("gpu", "g5.xlarge", desired=1), nodes=[coming])
    assert launched(two) == [("gpu", 1)]


def test_a_group_grows_to_its_maximum_and_the_cluster_to_its_own() -> None:
    wanted = pods(5, shape(3, 3))
    small = planned(wanted, group("m", "m5.xlarge", maximum=2))
    assert launched(small) == [("m", 1), ("m", 1)] and len(small.waits) == 3
    assert small.waits[0].reason.alternatives[0].why == "is at its maximum of 2"
    total = planned(wanted, group("m", "m5.xlarge"), options=AutoscalingOptions(max_nodes_total=3))
    assert len(total.launches) == 3 and len(total.waits) == 2
    assert "--max-nodes-total" in total.waits[0].reason.alternatives[0].why


def test_groups_that_are_alike_but_for_their_zone_share_machines_where_they_are_to_be_kept_equal() -> None:
    one = group("a", "m5.xlarge", zones=(ZONE,), labels={"eks.amazonaws.com/nodegroup": "a"})
    two = group("b", "m5.xlarge", zones=("us-east-1b",), labels={"eks.amazonaws.com/nodegroup": "b"}, maximum=2)
    other = group("c", "m5.xlarge", labels={"team": "x"})
    wanted = pods(6, shape(3, 3))
    first = AutoscalingOptions(balance_similar_node_groups=True, expanders=("priority",), priorities=((10, ("^a$",)),))
    found = planned(wanted, one, two, other, options=first)
    assert sorted(one.node_pool for one in found.launches) == ["a"] * 4 + ["b"] * 2
    alone = planned(wanted, one, two, options=AutoscalingOptions(expanders=("most-pods",)))
    assert [one.node_pool for one in alone.launches] == ["a"] * 6


def test_a_group_without_stock_does_not_grow() -> None:
    gone = frozenset(OfferingKey("m5.xlarge", zone, "on-demand") for zone in ZONES)
    found = planned(pods(1, shape(1, 1)), group("m", "m5.xlarge"), settings=PlanSettings(unavailable=gone))
    assert found.waits[0].reason.alternatives[0].why == "has just failed to make m5.xlarge (on-demand)"
    one = frozenset({OfferingKey("m5.xlarge", ZONE, "on-demand")})
    other = planned(pods(1, shape(1, 1)), group("m", "m5.xlarge"), settings=PlanSettings(unavailable=one))
    assert [launch.zone for launch in other.launches] == ["us-east-1b"]


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (shape(64, 1), "its machines are too small: cpu 64 > 4"),
        (shape(1, 1, gpus=1), "its machines are too small: nvidia.com/gpu 1 > 0"),
        (
            shape(1, 1, selector={"karpenter.k8s.aws/instance-family": "m5"}),
            "its nodes do not meet karpenter.k8s.aws/instance-family In [m5], a label that only Karpenter gives",
        ),
    ],
)
def test_pods_that_no_machine_would_take_say_why(wanted: Any, why: str) -> None:
    found = planned(pods(1, wanted), group("m", "m5.xlarge"), loops=1)
    (alternative,) = found.waits[0].reason.alternatives
    assert alternative.name == "node group m"
    assert alternative.why.startswith(why)


def test_node_pools_of_karpenter_are_no_groups() -> None:
    pool = node_pool("default", ("karpenter.sh/capacity-type", "In", ["on-demand"]))
    found = plan(pods(1, shape(1, 1)), [], [pool], MARKET)
    assert not found.launches and found.waits[0].reason.verdict == "no feasible node, and there is no node group"


# ---- shrinking ----


def running(
    name: str,
    *held: MovablePod,
    type_: str = "m5.xlarge",
    pool: str = "m",
    cpu: float = 4,
    gpus: int = 0,
    **state: Any,
) -> RunningNode:
    used = [pod.pod.shape.requests for pod in held]
    free_cpu = cpu - sum(one["cpu"] for one in used) / 1000
    free = node(
        name,
        cpu=free_cpu,
        memory_gib=16 - sum(one["memory"] for one in used) // GIB,
        gpus=gpus - sum(one.get(GPU, 0) for one in used),
        labels={"node.kubernetes.io/instance-type": type_, "topology.kubernetes.io/zone": ZONE},
        node_pool=pool,
    )
    own = NodeState(node=free.ref, node_pool=pool, price_micro_usd_per_hour=0, initialized_ns=0, pods=len(held))
    return RunningNode(
        state=msgspec.structs.replace(own, **state),
        node=free,
        pods=held,
        allocatable={"cpu": round(cpu * 1000), "memory": 16 * GIB, "pods": 50, **({GPU: gpus} if gpus else {})},
    )


def movable(name: str, cpu: float = 1, gpus: int = 0, **other: Any) -> MovablePod:
    fields: dict[str, Any] = {"controller": "deployment", **other}
    namespace = fields.pop("namespace", "default")
    return MovablePod(pod=PendingPod(Ref("Pod", name, namespace, name), shape(cpu, 1, gpus)), **fields)


def scan(
    *nodes: RunningNode, options: AutoscalingOptions | None = None, minimum: int = 0
) -> tuple[list[Unneeded], dict[str, str]]:
    pools = groups(group("m", "m5.xlarge", desired=len(nodes), minimum=minimum))
    found, kept = unneeded(nodes, pools, MARKET, 0, None, options or AutoscalingOptions())
    return found, {one.node.name: one.why for one in kept}


def test_a_node_below_the_threshold_whose_pods_find_room_is_unneeded() -> None:
    found, kept = scan(running("a", movable("p", 1)), running("b", movable("q", 2)))
    assert [(one.node.name, one.utilization) for one in found] == [("a", 0.25)]
    assert found[0].moves[0][1].name == "b"
    assert kept == {"b": "50 % of its CPU or memory is requested, 50 % or more"}


def test_of_nodes_that_need_each_other_only_one_goes() -> None:
    found, kept = scan(running("a", movable("p", 1.5)), running("b", movable("q", 1.5)))
    assert [one.node.name for one in found] == ["a"]
    assert kept == {"b": "its pods do not fit on other nodes"}


def test_of_a_node_with_gpus_only_these_count() -> None:
    idle = running("g", movable("p", 3), type_="g5.xlarge", gpus=1)
    busy = running("h", movable("p", 0.5, 1), type_="g5.xlarge", gpus=1)
    assert (utilization(idle), utilization(busy)) == (0.0, 1.0)
    starting = msgspec.structs.replace(
        running("s", movable("p", 3)),
        node=msgspec.structs.replace(node("s"), labels={"k8s.amazonaws.com/accelerator": "nvidia-a10g"}),
    )
    assert utilization(starting) == 0.0


@pytest.mark.parametrize(
    ("pod", "why"),
    [
        ({}, ""),
        ({"controller": ""}, "has no controller that would recreate it"),
        ({"controller": "pytorchjob"}, "is controlled by a pytorchjob (--skip-nodes-with-custom-controller-pods)"),
        ({"controller": "", "safe_to_evict": "true"}, ""),
        ({"safe_to_evict": "false"}, 'has the annotation cluster-autoscaler.kubernetes.io/safe-to-evict: "false"'),
        ({"local_storage": True}, "has an emptyDir or hostPath volume (--skip-nodes-with-local-storage)"),
        ({"local_storage": True, "safe_to_evict": "true"}, ""),
        (
            {"namespace": "kube-system"},
            "is in kube-system without a PodDisruptionBudget (--skip-nodes-with-system-pods)",
        ),
        ({"namespace": "kube-system", "budgets": ("b",)}, ""),
        ({"budgets": ("b",), "blocked": True}, "has a PodDisruptionBudget that allows no eviction"),
        (
            {"budgets": ("b",), "blocked": True, "safe_to_evict": "true"},
            "has a PodDisruptionBudget that allows no eviction",
        ),
        ({"do_not_disrupt": "true"}, "has the annotation karpenter.sh/do-not-disrupt"),
        ({"belongs": True, "controller": ""}, ""),
    ],
)
def test_what_keeps_a_node_with_a_pod(pod: dict[str, Any], why: str) -> None:
    assert pod_keeps(movable("p", **pod), 0) == why


def test_flags_let_pods_go_that_otherwise_keep_their_node() -> None:
    lenient = AutoscalingOptions(
        skip_nodes_with_system_pods=False,
        skip_nodes_with_local_storage=False,
        skip_nodes_with_custom_controller_pods=False,
    )
    held = movable("p", controller="rayjob", local_storage=True, namespace="kube-system")
    assert pod_keeps(held, 0) and not pod_keeps(held, 0, lenient)


@pytest.mark.parametrize(
    ("volumes", "annotations", "keeps"),
    [
        ([], {}, False),
        ([{"name": "tmp", "emptyDir": {}}], {}, True),
        ([{"name": "shm", "emptyDir": {"medium": "Memory"}}], {}, False),
        ([{"name": "host", "hostPath": {"path": "/data"}}], {}, True),
        ([{"name": "claim", "persistentVolumeClaim": {"claimName": "c"}}], {}, False),
        (
            [{"name": "tmp", "emptyDir": {}}, {"name": "host", "hostPath": {"path": "/data"}}],
            {"cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes": "tmp, host"},
            False,
        ),
        (
            [{"name": "tmp", "emptyDir": {}}],
            {"cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes": "other"},
            True,
        ),
    ],
)
def test_which_volumes_keep_a_pod_on_its_node(volumes: list[Any], annotations: dict[str, str], keeps: bool) -> None:
    assert keeps_local_data(volumes, annotations) is keeps


def test_annotated_nodes_stay() -> None:
    disabled = msgspec.structs.replace(running("a"), scale_down_disabled=True)
    found, kept = scan(disabled, running("b", do_not_disrupt=True), running("c"))
    assert [one.node.name for one in found] == ["c"]
    assert kept == {
        "a": "annotation cluster-autoscaler.kubernetes.io/scale-down-disabled is true",
        "b": "annotation karpenter.sh/do-not-disrupt is true",
    }


def gone(
    nodes: list[RunningNode], since: int, now: int, *, options: AutoscalingOptions | None = None, **more: Any
) -> tuple[list[str], list[str]]:
    pools = groups(group("m", "m5.xlarge", desired=len(nodes), minimum=more.pop("minimum", 0)))
    options = options or AutoscalingOptions()
    found, _ = unneeded(nodes, pools, MARKET, now, None, options)
    go = deletions(found, {one.ref.name: since for one in nodes}, now, nodes, pools, options, **more)
    return [one.node.name for one in go.empty], [one.node.name for one in go.drained]


def test_nodes_go_once_they_were_unneeded_for_ten_minutes_those_that_are_not_ready_after_twenty() -> None:
    nodes = [running("a"), running("b", ready=False)]
    assert gone(nodes, 0, 10 * MINUTE - 1) == ([], [])
    assert gone(nodes, 0, 10 * MINUTE) == (["a"], [])
    assert gone(nodes, 0, 20 * MINUTE) == (["a", "b"], [])


def test_empty_nodes_go_ten_at_once_others_one_at_a_time_and_none_below_the_minimum() -> None:
    empty = [running(f"e{number:02d}") for number in range(12)]
    assert len(gone(empty, 0, 10 * MINUTE)[0]) == 10
    assert len(gone(empty, 0, 10 * MINUTE, options=AutoscalingOptions(max_empty_bulk_delete=3))[0]) == 3
    assert len(gone(empty, 0, 10 * MINUTE, minimum=9)[0]) == 3
    held = [running(name, movable(f"p{name}", 0.5)) for name in "abcd"]
    assert gone(held, 0, 10 * MINUTE) == ([], ["a"])
    assert gone(held, 0, 10 * MINUTE, draining=1) == ([], [])
    assert gone(held, 0, 10 * MINUTE, options=AutoscalingOptions(max_drain_parallelism=3)) == ([], ["a", "b", "c"])


def test_spread_and_taints_keep_pods_from_finding_room() -> None:
    tainted = msgspec.structs.replace(
        running("b"), node=msgspec.structs.replace(running("b").node, taints=(Taint(key="x", effect="NoSchedule"),))
    )
    found, kept = scan(running("a", movable("p", 1)), tainted)
    assert [one.node.name for one in found] == ["b"]
    assert kept == {"a": "its pods do not fit on other nodes"}
    able = movable("p", 1)
    able = msgspec.structs.replace(
        able,
        pod=msgspec.structs.replace(
            able.pod, shape=msgspec.structs.replace(able.pod.shape, tolerations=(Toleration(operator="Exists"),))
        ),
    )
    found, _ = scan(running("a", able), tainted)
    assert [one.node.name for one in found] == ["b"]  # the empty one goes first, and takes none then
