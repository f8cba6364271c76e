"""Why a node is not consolidated, in the words of Karpenter's events."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from provisioning_builders import ZONE, catalogue, instance, node_pool
from test_consolidation import AT_ONCE, HUGE, KIND, MARKET, NOW, POOL, pod, running

from tonnage.decisions import Ref
from tonnage.objects import karpenter
from tonnage.provisioning.candidates import RunningNode
from tonnage.provisioning.catalogue import Catalogue
from tonnage.provisioning.consolidation import Gates, Round
from tonnage.provisioning.plans import PlanSettings
from tonnage.provisioning.staying import unconsolidatable

SPOT_TYPES = [instance(f"s{number}.large", cpu=4, memory_gib=16) for number in range(14)]
SPOT: Catalogue = catalogue(
    [HUGE, *SPOT_TYPES],
    {("a.huge", ZONE, "spot"): 900} | {(one.name, ZONE, "spot"): 100 + n for n, one in enumerate(SPOT_TYPES)},
)
ANY = node_pool("default", disruption=AT_ONCE)


def why(*nodes: RunningNode, pool: karpenter.NodePool = POOL, market: Catalogue = MARKET, **gates: bool) -> list[str]:
    """Of the first node; empty where it could go."""
    one = Round(nodes, (), [pool], market, NOW, PlanSettings(), Gates(**gates))
    found = unconsolidatable(one).get(Ref("Node", nodes[0].ref.name))
    return [] if found is None else [found]


def with_disruption(**disruption: Any) -> karpenter.NodePool:
    return node_pool("default", (KIND, "In", ["on-demand"]), disruption=AT_ONCE | disruption)


def test_a_node_that_could_go_or_has_no_pods_has_no_reason_to_stay() -> None:
    assert why(running("one", "a.huge", pod("p", 1.5))) == []
    assert why(running("one", "a.huge")) == []


@pytest.mark.parametrize(
    ("disruption", "said"),
    [
        ({"consolidateAfter": "Never"}, 'NodePool "default" has consolidation disabled'),
        ({"consolidationPolicy": "WhenEmpty"}, 'NodePool "default" has non-empty consolidation disabled'),
        ({"consolidateAfter": "2h"}, "consolidateAfter of NodePool default, 2h, is not over"),
    ],
)
def test_what_its_nodepool_says_keeps_a_node(disruption: dict[str, Any], said: str) -> None:
    assert why(running("one", "a.huge", pod("p", 1.5)), pool=with_disruption(**disruption)) == [said]


@pytest.mark.parametrize(
    ("held", "said"),
    [
        ({"do_not_disrupt": "true"}, "Cannot disrupt Node: pod p has the annotation karpenter.sh/do-not-disrupt"),
        (
            {"budgets": ("b",), "blocked": True},
            "Cannot disrupt Node: pod p: its PodDisruptionBudget allows no eviction",
        ),
        ({"budgets": ("a", "b")}, "Cannot disrupt Node: pod p: several PodDisruptionBudgets select it"),
    ],
)
def test_what_protects_its_pods_keeps_a_node(held: dict[str, Any], said: str) -> None:
    assert why(running("one", "a.huge", pod("p", 1.5, **held))) == [said]


def test_a_node_stays_that_only_two_could_replace() -> None:
    limited = node_pool(
        "default",
        (KIND, "In", ["on-demand"]),
        ("node.kubernetes.io/instance-type", "In", ["a.small"]),
        disruption=AT_ONCE,
    )
    held = (pod("p", 2), pod("q", 2))
    assert why(running("one", "a.huge", *held), pool=limited) == ["Can't remove without creating 2 candidates"]


def test_a_node_stays_of_which_nothing_cheaper_holds_the_pods() -> None:
    assert why(running("one", "a.small", pod("p", 2))) == ["Can't replace with a cheaper node"]


def test_a_spot_node_stays_without_the_gate_and_without_fifteen_cheaper_types() -> None:
    spot = running("one", "a.huge", pod("p", 2), kind="spot")
    disabled = "SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node"
    few = "SpotToSpotConsolidation requires 15 cheaper instance type options than the current candidate to consolidate"
    assert why(spot, pool=ANY, market=SPOT) == [disabled]
    assert why(spot, pool=ANY, market=SPOT, spot_to_spot_consolidation=True) == [f"{few}, got 14"]


def test_a_node_stays_whose_pods_would_find_no_place() -> None:
    full = with_disruption()
    full = msgspec.structs.replace(full, spec=msgspec.structs.replace(full.spec, limits={"cpu": "0"}))
    assert why(running("one", "a.huge", pod("p"), pod("q")), pool=full) == [
        "not all pods would schedule, default/p and 1 more"
    ]


def test_a_node_stays_whose_move_is_not_worth_its_disruption_to_a_balanced_nodepool() -> None:
    balanced = with_disruption(consolidationPolicy="Balanced")
    held = [pod(f"p{n}", 0.2) for n in range(9)]
    others = [running(f"n{n}", "a.huge", pod(f"big{n}", 15)) for n in range(9)]
    (said,) = why(running("one", "a.small", *held), *others, pool=balanced)
    assert said == "what it would save of the NodePool's bill is not worth the disruption (Balanced)"


def test_pods_with_claims_for_which_no_place_is_planned_keep_their_node() -> None:
    held = pod("p", 1.5, claims="ResourceClaims are ignored")
    said = ["not all pods would schedule, default/p: ResourceClaims are ignored"]
    assert why(running("one", "a.huge", held)) == said
    leaving = running("two", "a.huge", held, state={"deleted": True})
    other = running("one", "a.huge", pod("q", 1.5))
    assert why(other, leaving) == said, "as a node that is drained waits for them"
