"""From planned nodes to sizes of node groups: which group takes a node, and why the others do not."""

from __future__ import annotations

from typing import Any

import pytest
from provisioning_builders import GPU

from tonnage.decisions import Launch, Reason, Ref
from tonnage.facts import instances
from tonnage.objects import core
from tonnage.provisioning.node_groups import MIXED, NodeGroup, Sizes, sizes
from tonnage.provisioning.pods import PodShape
from tonnage.units import GIB

TAINT = core.Taint(key=GPU, value="true", effect="NoSchedule")
SOFT = core.Taint(key="slow", effect="PreferNoSchedule")


def launch(number: int = 1, instance_type: str = "g5.xlarge", **changes: Any) -> Launch:
    """A node for one pod with one GPU; ``labels`` are added to those of the machine."""
    zone, capacity_type = changes.get("zone", "us-east-1a"), changes.get("capacity_type", "on-demand")
    own = instances.get(instance_type).labels(zone, capacity_type)
    fields: dict[str, Any] = {
        "claim": Ref("NodeClaim", f"gpu-{number:05d}"),
        "node_pool": "gpu",
        "instance_type": instance_type,
        "zone": zone,
        "capacity_type": capacity_type,
        "price_micro_usd_per_hour": 1,
        "reason": Reason("planned"),
        "pods": (Ref("Pod", f"p{number}", "llm"),),
        "requests": {"cpu": 2000, "memory": 4 * GIB, "pods": 1, GPU: 1},
        "daemons": {"cpu": 100, "pods": 2},
        **changes,
    }
    fields["labels"] = {**own, "karpenter.sh/nodepool": "gpu", **changes.get("labels", {})}
    return Launch(**fields)


def group(name: str = "a", *types: str, **changes: Any) -> NodeGroup:
    fields: dict[str, Any] = {"zones": ("us-east-1a",), "minimum": 0, "desired": 1, "maximum": 9, **changes}
    return NodeGroup(name=name, instance_types=types or ("g5.xlarge",), **fields)


def resized(result: Sizes) -> dict[str, tuple[int, int]]:
    return {resize.group: (resize.expect, resize.desired) for resize in result.resizes}


def why_not(one: Launch, *groups: NodeGroup, **other: Any) -> str:
    """The reason that the first of ``groups`` is not taken."""
    result = sizes([one], groups, **other)
    assert not result.resizes
    (refused,) = result.refused
    assert refused.launch == one
    return refused.reason.alternatives[0].why


# ---- which group ----


def test_each_launch_raises_its_group_by_one() -> None:
    result = sizes([launch(1), launch(2), launch(3, "p5.48xlarge")], [group("b", "p5.48xlarge"), group("a")])
    assert resized(result) == {"a": (1, 3), "b": (1, 2)}
    assert [resize.group for resize in result.resizes] == ["a", "b"]
    assert [claim.name for claim in result.resizes[0].claims] == ["gpu-00001", "gpu-00002"]
    assert result.refused == ()


def test_nothing_planned_asks_for_nothing() -> None:
    assert sizes([], [group()]) == Sizes()


def test_the_surest_group_goes_first_then_the_first_by_name() -> None:
    many = group("a", "g5.2xlarge", "g5.xlarge")
    zones = group("b", zones=("us-east-1a", "us-east-1b"))
    assert resized(sizes([launch()], [many, zones, group("d"), group("c")])) == {"c": (1, 2)}
    assert resized(sizes([launch()], [zones, many])) == {"a": (1, 2)}


def test_a_full_group_passes_the_rest_on() -> None:
    result = sizes([launch(n) for n in range(1, 6)], [group("a", desired=7), group("b", desired=8)])
    assert resized(result) == {"a": (7, 9), "b": (8, 9)}
    assert [one.launch.claim.name for one in result.refused] == ["gpu-00004", "gpu-00005"]
    assert [a.why for a in result.refused[0].reason.alternatives] == ["is at its maximum of 9"] * 2


def test_the_same_input_in_another_order_gives_the_same_sizes() -> None:
    launches = [launch(n) for n in range(1, 5)]
    groups = [group("a", desired=8), group("b", "g5.xlarge", "g5.2xlarge"), group("c", maximum=2)]
    expected = sizes(launches, groups)
    assert sizes(launches, groups[::-1]) == expected
    assert resized(expected) == {"a": (8, 9), "b": (1, 3), "c": (1, 2)}


def test_a_reason_says_what_else_the_group_may_make_and_what_it_beat() -> None:
    (resize,) = sizes([launch()], [group("a", "g5.xlarge", "g5.2xlarge"), group("b", "p5.48xlarge")]).resizes
    assert dict(resize.reason.evidence) == {
        "nodes": 1,
        "maximum": 9,
        "may_make": "g5.2xlarge us-east-1a, g5.xlarge us-east-1a",
    }
    assert [(a.name, a.why) for a in resize.reason.alternatives] == [("b", "makes p5.48xlarge, not g5.xlarge")]
    (sure,) = sizes([launch()], [group()]).resizes
    assert "may_make" not in dict(sure.reason.evidence)


def test_without_groups_the_reason_says_so() -> None:
    assert sizes([launch()], []).refused[0].reason.verdict == "there is no node group"
    assert sizes([launch()], [group("a", "p5.48xlarge")]).refused[0].reason.verdict.startswith("a: makes p5.48xlarge")
    two = [group("a", "p5.48xlarge"), group("b", "p5.48xlarge")]
    assert sizes([launch()], two).refused[0].reason.verdict == "none of 2 node groups can make this node"


# ---- why not ----


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"held": "is being deleted"}, "is being deleted"),
        ({"zones": ("us-east-1b", "us-east-1c")}, "is in us-east-1b, us-east-1c, not us-east-1a"),
        ({"capacity_type": "spot"}, "makes spot machines, not on-demand"),
        ({"capacity_type": MIXED}, "makes spot and on-demand machines, and on-demand cannot be asked of it"),
        ({"maximum": 1}, "is at its maximum of 1"),
        ({"taints": (TAINT,)}, f"its nodes have the taint {GPU}=true:NoSchedule, which the plan does not count on"),
        ({"labels": {"kubernetes.io/arch": "arm64"}}, "its nodes have kubernetes.io/arch=arm64, the plan has amd64"),
        ({"resources": {GPU: 0}}, f"its nodes are declared with {GPU} 0, and 1 is needed"),
        ({"resources": {"cpu": 2000}}, "its nodes are declared with cpu 2, and 2100m is needed"),
    ],
)
def test_a_group_is_passed_over_with_its_reason(changes: dict[str, Any], why: str) -> None:
    assert why_not(launch(), group(**changes)) == why


def test_a_group_whose_types_are_not_known_makes_nothing_for_certain() -> None:
    unknown = NodeGroup(name="a", instance_types=(), zones=(), minimum=0, desired=0, maximum=9)
    assert why_not(launch(), unknown) == "its instance types are not known"


def test_a_group_whose_zones_are_not_known_may_be_in_any() -> None:
    assert resized(sizes([launch()], [group(zones=())])) == {"a": (1, 2)}


def test_spot_is_asked_of_a_spot_group() -> None:
    assert resized(sizes([launch(capacity_type="spot")], [group("a"), group("b", capacity_type="spot")])) == {
        "b": (1, 2)
    }


@pytest.mark.parametrize(
    ("declared", "why"),
    [
        ({}, "its nodes have no label team, the plan has team=ml"),
        ({"team": "web"}, "its nodes have team=web, the plan has ml"),
        ({"team": "ml", "more": "1"}, ""),
    ],
)
def test_the_labels_of_the_node_pool_must_be_those_of_the_group(declared: dict[str, str], why: str) -> None:
    one = launch(labels={"team": "ml"})
    if why:
        assert why_not(one, group(labels=declared)) == why
    else:
        assert resized(sizes([one], [group(labels=declared)])) == {"a": (1, 2)}


def test_hard_taints_must_be_those_of_the_plan_and_soft_ones_do_not_matter() -> None:
    planned = launch(taints=(TAINT,))
    assert resized(sizes([planned], [group(taints=(TAINT, SOFT))])) == {"a": (1, 2)}
    assert why_not(planned, group()) == f"its nodes lack the taint {GPU}=true:NoSchedule of the plan"
    starting = launch(startup_taints=(TAINT,))
    assert resized(sizes([starting], [group("a", taints=(TAINT,)), group("b")])) == {"a": (1, 2)}
    assert resized(sizes([starting], [group("b")])) == {"b": (1, 2)}


def test_every_type_that_may_come_must_have_room() -> None:
    four = launch(1, "g5.12xlarge", requests={GPU: 4, "cpu": 8000, "memory": GIB})
    weak = group("a", "g5.12xlarge", "g5.xlarge")
    assert why_not(four, weak) == "may also make g5.xlarge with cpu 3920m, and 8100m is needed"
    small = launch(1, "g5.12xlarge", requests={GPU: 2, "cpu": 1000, "memory": GIB})
    assert why_not(small, weak) == f"may also make g5.xlarge with {GPU} 1, and 2 is needed"
    assert why_not(small, group("a", "g5.12xlarge", "g9.huge")) == "may also make g9.huge, whose size is not known"
    shared = group("a", "g5.12xlarge", "g5.xlarge", resources={GPU: 4})  # time-slicing, said by a tag
    assert resized(sizes([small], [shared])) == {"a": (1, 2)}


# ---- what the pods say ----

POD = Ref("Pod", "p1", "llm")


def shape(*terms: tuple[str, str, list[str]], **selector: str) -> PodShape:
    """A pod with a nodeSelector, and one required affinity term for each of ``terms``."""
    required = core.NodeSelector(
        node_selector_terms=[
            core.NodeSelectorTerm(
                match_expressions=[core.NodeSelectorRequirement(key=key, operator=operator, values=values)]
            )
            for key, operator, values in terms
        ]
    )
    affinity = core.NodeAffinity(required_during_scheduling_ignored_during_execution=required) if terms else None
    return PodShape(requests={GPU: 1}, node_selector=selector, node_affinity=affinity)


def test_a_label_that_only_karpenter_gives_is_a_trap_and_said() -> None:
    wants = shape(**{"karpenter.k8s.aws/instance-gpu-name": "a10g"})
    why = "karpenter.k8s.aws/instance-gpu-name In [a10g], a label that only Karpenter gives"
    assert (
        why_not(launch(), group(), shapes={POD: wants})
        == f"g5.xlarge in us-east-1a does not meet the requirement of Pod llm/p1: {why}"
    )
    declared = group(labels={"karpenter.k8s.aws/instance-gpu-name": "a10g"})
    assert resized(sizes([launch()], [declared], {POD: wants})) == {"a": (1, 2)}


def test_a_pod_that_is_bound_to_a_zone_needs_a_group_of_that_zone() -> None:
    wide = group("a", zones=("us-east-1a", "us-east-1b"))
    one_zone = shape(**{"topology.kubernetes.io/zone": "us-east-1a"})
    assert "g5.xlarge in us-east-1b does not meet the requirement of Pod llm/p1" in why_not(
        launch(), wide, shapes={POD: one_zone}
    )
    either = shape(("topology.kubernetes.io/zone", "In", ["us-east-1a", "us-east-1b"]))
    assert resized(sizes([launch()], [wide], {POD: either})) == {"a": (1, 2)}


def test_one_of_several_affinity_terms_is_enough() -> None:
    wants = shape(("team", "In", ["ml"]), ("node.kubernetes.io/instance-type", "In", ["g5.xlarge"]))
    assert resized(sizes([launch()], [group()], {POD: wants})) == {"a": (1, 2)}
    assert "Pod llm/p1: team In [ml]" in why_not(launch(), group(), shapes={POD: shape(("team", "In", ["ml"]))})
    assert resized(sizes([launch()], [group()], {POD: shape(("team", "NotIn", ["web"]))})) == {"a": (1, 2)}


def test_shapes_of_other_pods_do_not_matter() -> None:
    wants = shape(**{"karpenter.sh/capacity-type": "spot"})
    assert resized(sizes([launch()], [group()], {Ref("Pod", "p9", "llm"): wants})) == {"a": (1, 2)}
