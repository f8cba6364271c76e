"""Nodes that are not there yet, for pods with ResourceClaims: which devices they would have, and who launches them."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from provisioning_builders import ZONE, node_pool

from builders import node, pod
from claim_builders import NAMESPACE, add, claiming, slices_of
from device_allocations import claim
from tonnage.control.nodes import (
    NO_TEMPLATE,
    SHARED,
    coming_of,
    existing_nodes,
    not_planned,
    pending_pods,
    without_claims,
)
from tonnage.control.nodes import Pools as AllPools
from tonnage.control.running import IGNORED
from tonnage.dra import nvidia
from tonnage.dra.pools import NodeView
from tonnage.facts import instances, prices
from tonnage.facts.labels import DRA_PLUGIN, GPU, INSTANCE_TYPE, MIG_RELAYOUT
from tonnage.fleet import claimed_gpus
from tonnage.fleet.state import Fleet
from tonnage.objects import karpenter
from tonnage.provisioning import karpenter as planner
from tonnage.provisioning.catalogue import Catalogue
from tonnage.provisioning.cluster_autoscaler import scale_up
from tonnage.provisioning.cluster_autoscaler.options import AutoscalingOptions
from tonnage.provisioning.cluster_autoscaler.scale_up import UNSEEN
from tonnage.provisioning.group_pools import group_pools
from tonnage.provisioning.node_groups import NodeGroup
from tonnage.provisioning.optimal.plan import OptimalPlan
from tonnage.provisioning.optimal.plan import plan as optimal
from tonnage.provisioning.plans import Plan, PlanSettings

ONE_H100, EIGHT_H100, L40S = "p5.4xlarge", "p5.48xlarge", "g6e.12xlarge"
CATALOGUE = Catalogue([instances.get(name) for name in (ONE_H100, EIGHT_H100, L40S)], prices.load())
DRIVER, ON_DEMAND = {DRA_PLUGIN: "true"}, {DRA_PLUGIN: "true", MIG_RELAYOUT: "true"}
OF_PROFILE = "device.attributes['gpu.nvidia.com'].profile == '{}'"


def pool(*types: str, labels: dict[str, str] = ON_DEMAND, name: str = "gpu") -> karpenter.NodePool:
    wanted = ((INSTANCE_TYPE, "In", types), ("karpenter.sh/capacity-type", "In", ["on-demand"]))
    return node_pool(name, *wanted, labels=labels)


def waiting(*profiles: str, whole: int = 0) -> Fleet:
    """A pod for each of these MIG profiles, and some for a whole GPU."""
    made = Fleet()
    for one in nvidia.device_classes():
        made.device_claims.see(one)
    for number, profile in enumerate(profiles):
        selector = OF_PROFILE.format(profile)
        add(made, claiming(made.device_claims, selector, name=f"m{number:02d}", of=nvidia.MIG_CLASS))
    for number in range(whole):
        add(made, claiming(made.device_claims, name=f"w{number:02d}"))
    return made


def planned(made: Fleet, *pools: karpenter.NodePool) -> OptimalPlan:
    pods = pending_pods(made, coming=coming_of(made, AllPools(pools), CATALOGUE))
    return optimal(pods, existing_nodes(made, CATALOGUE), pools, CATALOGUE, PlanSettings())


def types_of(found: Plan) -> list[str]:
    return sorted(one.instance_type for one in found.launches)


def check(found: Plan, made: Fleet) -> None:
    """Each new node's claims can be allocated on what its driver would publish, one after the other in some order."""
    for launch in found.launches:
        itype = instances.get(launch.instance_type)
        again = Fleet()
        again.add_node(node("n", cpu=200, labels=launch.labels, gpu=itype.gpu))
        for one in (
            *slices_of(itype, "n", on_demand=launch.labels.get(MIG_RELAYOUT) == "true"),
            *nvidia.device_classes(),
        ):
            again.device_claims.see(one)
        claims = [made.device_claims.claims[NAMESPACE, f"{ref.name}-claim"] for ref in launch.pods]
        said = again.device_claims.allocator.allocate(claims, NodeView("n", launch.labels), again.device_claims.state)
        assert said.feasibility == "allocated", launch


def test_a_claim_for_a_mig_device_gets_a_node_whose_driver_partitions_gpus_on_demand() -> None:
    made = waiting("1g.10gb")
    found = planned(made, pool(ONE_H100, L40S), pool(ONE_H100, labels=DRIVER, name="whole")).plan
    assert types_of(found) == [ONE_H100]
    assert found.launches[0].node_pool == "gpu"
    check(found, made)


@pytest.mark.parametrize(
    ("profiles", "whole", "nodes"),
    [
        (["1g.10gb"] * 7, 0, 1),
        (["1g.10gb"] * 8, 0, 2),
        (["3g.40gb"] * 2, 0, 1),
        (["4g.40gb"] * 2, 0, 2),
        (["3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"], 0, 1),
        (["1g.10gb"], 1, 2),
        ([], 2, 2),
    ],
)
def test_a_new_gpu_holds_what_a_layout_of_mig_holds(profiles: list[str], whole: int, nodes: int) -> None:
    made = waiting(*profiles, whole=whole)
    found = planned(made, pool(ONE_H100))
    assert len(found.plan.launches) == len(found.karpenter.launches) == nodes
    assert found.plan.waits == ()
    check(found.plan, made)


def test_whole_gpus_and_mig_devices_share_a_node_of_several_gpus() -> None:
    made = waiting(*["1g.10gb"] * 8, whole=6)
    found = planned(made, pool(EIGHT_H100))
    assert types_of(found.plan) == [EIGHT_H100]
    assert found.gap == 0
    check(found.plan, made)


def test_what_no_node_pool_could_have_is_not_planned() -> None:
    made = waiting("1g.10gb")
    pools = AllPools((pool(ONE_H100, labels=DRIVER),))
    pods = pending_pods(made, coming=coming_of(made, pools, CATALOGUE))
    assert pods == []
    (wait,) = not_planned(made, set(), NO_TEMPLATE)
    assert (wait.pod.name, wait.reason.verdict) == ("m00", NO_TEMPLATE)


def test_a_node_that_is_there_takes_what_its_partitions_leave() -> None:
    made = waiting(*["3g.40gb"] * 3)
    made.note(
        made.add_node(node("n", labels={**ON_DEMAND, INSTANCE_TYPE: ONE_H100}, gpu="h100", cpu=48)), initialized=True
    )
    for one in slices_of(instances.get(ONE_H100), "n", on_demand=True):
        made.device_claims.see(one)
    made.bind(made.pod_by_key[NAMESPACE, "m00"], 0)
    found = planned(made, pool(ONE_H100)).plan
    assert [one.pod.name for one in found.nominations] == ["m01"]
    assert [[ref.name for ref in one.pods] for one in found.launches] == [["m02"]]


def test_pods_that_name_one_claim_are_planned_once() -> None:
    made = waiting()
    one = claim({"name": "r", "exactly": {"deviceClassName": nvidia.GPU_CLASS}}, name="shared")
    made.device_claims.see(one)
    for name in ("a", "b"):
        bare = pod(name, namespace=NAMESPACE, resourceClaims=[{"name": "gpu", "resourceClaimName": "shared"}])
        add(made, replace(bare, claims=made.device_claims.need(NAMESPACE, name, bare.uid, bare.spec)))
    pods = pending_pods(made)
    assert [one.ref.name for one in pods] == ["a"]
    (wait,) = not_planned(made, {one.ref for one in pods}, NO_TEMPLATE)
    assert (wait.pod.name, wait.reason.verdict) == ("b", SHARED)


def test_a_pod_that_asks_a_device_plugin_for_mig_instances_gets_no_node_of_a_dra_driver() -> None:
    made = waiting()
    made.add_pod(pod("plain", resources={"nvidia.com/mig-1g.10gb": "1"}))
    found = planned(made, pool(ONE_H100)).plan
    assert found.launches == ()
    assert len(found.waits) == 1


def test_a_fraction_of_a_gpu_gets_no_node_of_a_dra_driver() -> None:
    made = waiting()
    made.add_pod(pod("part", annotations={"gpu-fraction": "0.5"}))
    for labels in (DRIVER, ON_DEMAND):
        assert planned(made, pool(ONE_H100, labels=labels)).plan.launches == ()


def test_karpenter_ignores_pods_with_claims_and_plans_the_others() -> None:
    made = waiting("1g.10gb")
    made.add_pod(pod("plain", gpus=1))
    pods = pending_pods(made)
    found = without_claims(pods, [], [pool(ONE_H100, labels={})], CATALOGUE, PlanSettings())
    assert [[ref.name for ref in one.pods] for one in found.launches] == [["plain"]]
    assert [(one.pod.name, one.reason.verdict) for one in found.waits] == [("m00", IGNORED)]


def test_free_gpus_of_a_node_to_come_are_counted_as_whole_ones_or_parts() -> None:
    pods = pending_pods(waiting("1g.10gb"))
    found = planner.plan(pods, [], [pool(ONE_H100)], CATALOGUE, PlanSettings())
    (launch,) = found.launches
    assert launch.allocatable[GPU] == 1
    assert launch.allocatable["nvidia.com/mig-1g.10gb"] == 7


# ---- the Cluster Autoscaler ----


def grown(made: Fleet, *, seen: bool = True, release: tuple[int, int] | None = None, **more: Any) -> Plan:
    """What it asks of a group of machines with one H100 each."""
    named = NodeGroup(
        name="gpu", instance_types=(ONE_H100,), zones=(ZONE,), minimum=0, desired=0, maximum=10, labels=ON_DEMAND
    )
    pools = [one.pool for one in group_pools([named], CATALOGUE, {"gpu": 0})]
    pods = pending_pods(made, coming=coming_of(made, AllPools(tuple(pools)), CATALOGUE))
    settings = PlanSettings(seen_groups=frozenset({"gpu"} if seen else ()))
    return scale_up.plan(pods, [], pools, CATALOGUE, settings, AutoscalingOptions(release=release, **more))


def test_the_cluster_autoscaler_packs_claims_for_mig_devices_by_what_a_gpu_holds() -> None:
    made = waiting(*["3g.40gb"] * 3, whole=1)
    found = grown(made)
    assert sorted(len(one.pods) for one in found.launches) == [1, 1, 2]
    assert found.waits == ()
    check(found, made)


def test_a_group_that_has_had_no_node_does_not_grow_for_claims_but_for_other_pods() -> None:
    made = waiting(whole=1)
    made.add_pod(pod("plain", 1, 1))
    found = grown(made, seen=False)
    assert [[ref.name for ref in one.pods] for one in found.launches] == [["plain"]]
    (wait,) = found.waits
    assert [one.why for one in wait.reason.alternatives] == [UNSEEN]


@pytest.mark.parametrize(
    ("profiles", "release", "says"),
    [
        ((), (1, 34), "from 1.35.0 on, and this one is 1.34"),
        ((), (1, 35), ""),
        (("1g.10gb",), (1, 35), "from 1.36.0 on, and this one is 1.35"),
        (("1g.10gb",), (1, 36), ""),
    ],
)
def test_which_claims_it_serves_depends_on_its_version(
    profiles: tuple[str, ...], release: tuple[int, int], says: str
) -> None:
    found = grown(waiting(*profiles, whole=0 if profiles else 1), release=release)
    whys = [one.why for wait in found.waits for one in wait.reason.alternatives]
    assert (len(found.launches), len(whys)) == ((0, 1) if says else (1, 0))
    assert not says or whys[0].endswith(says)


@pytest.mark.parametrize(
    ("profiles", "whole", "used"),
    [((), 0, 0), (("1g.10gb",), 0, 1), (("1g.10gb", "3g.40gb"), 0, 1), ((), 2, 2), (("2g.20gb",), 1, 2)],
)
def test_a_gpu_that_is_partitioned_counts_as_used_as_soon_as_one_of_its_counters_is(
    profiles: tuple[str, ...], whole: int, used: int
) -> None:
    made = waiting(*profiles, whole=whole)
    made.add_node(node("n", labels=ON_DEMAND, gpu="h100", cpu=48))
    for one in slices_of(instances.get(EIGHT_H100), "n", on_demand=True):
        made.device_claims.see(one)
    for row in sorted(made.pending):
        made.bind(row, 0)
    assert claimed_gpus.utilization(made, 0) == Fraction(used, 8)


def test_the_share_of_whole_gpus_that_is_used_is_counted() -> None:
    made = waiting(whole=3)
    made.add_node(node("n", labels=DRIVER, gpu="l40s", cpu=48))
    assert claimed_gpus.utilization(made, 0) is None
    for one in slices_of(instances.get(L40S), "n"):
        made.device_claims.see(one)
    for row in sorted(made.pending):
        made.bind(row, 0)
    assert claimed_gpus.utilization(made, 0) == Fraction(3, 4)
