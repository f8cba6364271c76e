"""Capacity reservations and capacity blocks in plans: launched first, never more than there are, counted out at their
end."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from provisioning_builders import ZONE, catalogue, instance, node, node_pool, pods, shape

from tonnage.facts.price_book import Reservation
from tonnage.objects import karpenter
from tonnage.provisioning import labels
from tonnage.provisioning.karpenter import plan
from tonnage.provisioning.nodeclass import NodeStorage
from tonnage.provisioning.optimal import plan as optimal
from tonnage.provisioning.plans import Plan, PlanSettings
from tonnage.provisioning.reserving import ending, findings, left, selected
from tonnage.units import NS_PER_HOUR, NS_PER_S

OTHER = "us-east-1b"
SMALL, GPU1, GPU8 = instance("c1.small", cpu=4), instance("g1.one", gpus=1), instance("g1.eight", cpu=32, gpus=8)
PRICES = {"c1.small": 200_000, "g1.one": 1_000_000, "g1.eight": 9_000_000}
MARKET = catalogue(
    [SMALL, GPU1, GPU8],
    {(name, ZONE, "on-demand"): price for name, price in PRICES.items()} | {("g1.one", ZONE, "spot"): 300_000},
)
ON_GPU = shape(1, 1, gpus=1)


def reservation(id_: str, type_: str = "g1.one", count: int = 1, **other: Any) -> Reservation:
    return Reservation(id_, type_, other.pop("zone", ZONE), count, other.pop("ends_ns", None), "test", **other)


def planned(
    count: int, *reservations: Reservation, selected: set[str] | None = None, pool: karpenter.NodePool | None = None
) -> Plan:
    ids = {one.id for one in reservations} if selected is None else selected
    settings = PlanSettings(
        reservations=reservations, node_classes={"default": NodeStorage(reservations=frozenset(ids))}
    )
    return plan(pods(count, ON_GPU), [], [pool or node_pool()], MARKET, settings)


def launched(found: Plan) -> list[tuple[str, str, str]]:
    return [(one.instance_type, one.capacity_type, one.labels.get(labels.RESERVATION_ID, "")) for one in found.launches]


def test_what_is_reserved_is_launched_before_spot_and_costs_next_to_nothing() -> None:
    found = planned(1, reservation("cr-1"))
    assert launched(found) == [("g1.one", "reserved", "cr-1")]
    assert found.launches[0].price_micro_usd_per_hour == 100  # a ten-thousandth of the on-demand price
    assert found.launches[0].labels[labels.RESERVATION_TYPE] == "default"
    assert found.launches[0].labels[labels.CAPACITY_TYPE] == "reserved"


def test_a_reservation_that_no_node_class_selects_is_of_no_use() -> None:
    assert launched(planned(1, reservation("cr-1"), selected=set())) == [("g1.one", "spot", "")]


def test_a_nodepool_that_does_not_allow_reserved_capacity_launches_none() -> None:
    pool = node_pool("default", (labels.CAPACITY_TYPE, "In", ["on-demand"]))
    assert launched(planned(1, reservation("cr-1"), pool=pool)) == [("g1.one", "on-demand", "")]


def test_pods_beyond_the_reservation_wait_for_the_next_round_and_then_go_elsewhere() -> None:
    only = node_pool("default", ("node.kubernetes.io/instance-type", "In", ["g1.one"]))
    first = planned(3, reservation("cr-1", count=2), pool=only)
    assert launched(first) == [("g1.one", "reserved", "cr-1")] * 2
    (wait,) = first.waits
    assert wait.reason.verdict == (
        "all of capacity reservation cr-1 is held by nodes that are launched now: it is planned again once they are "
        "launched"
    )
    nodes = [claim.in_flight() for claim in first.claims]
    free = left([reservation("cr-1", count=2)], (one.labels for one in nodes), 0)
    assert free == ()
    again = plan(pods(3, ON_GPU)[2:], nodes, [only], MARKET, PlanSettings(reservations=free))
    assert launched(again) == [("g1.one", "spot", "")]


def test_while_reserved_capacity_is_held_no_lighter_nodepool_is_used() -> None:
    only = ("node.kubernetes.io/instance-type", "In", ["g1.one"])
    heavy, light = node_pool("heavy", only, weight=10), node_pool("light", only)
    settings = PlanSettings(
        reservations=(reservation("cr-1"),),
        node_classes={"default": NodeStorage(reservations=frozenset({"cr-1"}))},
    )
    found = plan(pods(2, ON_GPU), [], [heavy, light], MARKET, settings)
    assert [one.node_pool for one in found.launches] == ["heavy"]
    assert len(found.waits) == 1


def test_a_nodeclaim_holds_all_that_it_could_be_launched_in_until_it_is_settled() -> None:
    """Two types in two reservations of one instance each: the first NodeClaim holds both, the next waits."""
    found = planned(9, reservation("cr-1"), reservation("cr-8", "g1.eight"))
    assert launched(found) == [("g1.eight", "reserved", "cr-8"), ("g1.one", "reserved", "cr-1")]


def test_of_several_reservations_in_a_zone_the_one_with_most_free_is_taken() -> None:
    found = planned(1, reservation("cr-few", count=1), reservation("cr-many", count=5))
    assert launched(found) == [("g1.one", "reserved", "cr-many")]


@pytest.mark.report(518)
def test_a_launch_is_in_reservations_or_in_capacity_blocks_the_cheaper_first_and_in_one_block_alone() -> None:
    """An on-demand reservation goes before a block at the same price; of blocks the cheapest type is left."""
    block = reservation("cr-block", ends_ns=10**18)
    assert launched(planned(1, block, reservation("cr-plain"))) == [("g1.one", "reserved", "cr-plain")]
    large = reservation("cr-large", "g1.eight", ends_ns=10**18)
    found = planned(1, block, large)
    assert launched(found) == [("g1.one", "reserved", "cr-block")]
    assert found.claims[0].instance_types == ("g1.one",)
    assert found.launches[0].labels[labels.RESERVATION_TYPE] == "capacity-block"


@pytest.mark.report(518)
def test_a_capacity_block_is_not_launched_in_within_forty_minutes_of_its_end() -> None:
    ends = 10 * NS_PER_HOUR
    block = reservation("cr-1", ends_ns=ends)
    assert left([block], (), ends - 2400 * NS_PER_S - 1) == (block,)
    assert left([block], (), ends - 2400 * NS_PER_S) == ()


def test_nodes_in_a_reservation_are_counted_off() -> None:
    nodes = [node("n", labels={labels.RESERVATION_ID: "cr-1"}).labels] * 2
    assert [one.count for one in left([reservation("cr-1", count=3)], nodes, 0)] == [1]
    assert left([reservation("cr-1", count=2)], nodes, 0) == ()


def test_the_cheapest_plan_keeps_what_is_reserved_and_places_the_rest_at_its_best() -> None:
    settings = PlanSettings(
        reservations=(reservation("cr-8", "g1.eight"),),
        node_classes={"default": NodeStorage(reservations=frozenset({"cr-8"}))},
    )
    found = optimal.plan(pods(10, ON_GPU), [], [node_pool()], MARKET, settings)
    kinds = sorted((one.instance_type, one.capacity_type, len(one.pods)) for one in found.plan.launches)
    assert kinds == [("g1.eight", "reserved", 8), ("g1.one", "spot", 1), ("g1.one", "spot", 1)]
    assert found.plan.waits == ()


def node_class(*terms: dict[str, Any]) -> karpenter.EC2NodeClass:
    needed: dict[str, list[Any]] = {
        key: [] for key in ("amiSelectorTerms", "subnetSelectorTerms", "securityGroupSelectorTerms")
    }
    spec = {**needed, "capacityReservationSelectorTerms": list(terms)}
    written = {"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "gpu"}, "spec": spec}
    return msgspec.convert(written, karpenter.EC2NodeClass)


ML = reservation("cr-ml", tags=(("env", "prod"), ("team", "ml")), owner="111122223333", match="targeted")
WEB = reservation("cr-web", tags=(("env", "prod"), ("team", "web")), match="open")
BARE = reservation("cr-bare")


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ([{"id": "cr-bare"}], {"cr-bare"}),
        ([{"id": "cr-gone"}], {"cr-gone"}),
        ([{"tags": {"team": "ml"}}], {"cr-ml"}),
        ([{"tags": {"env": "prod"}}], {"cr-ml", "cr-web"}),
        ([{"tags": {"env": "prod", "team": "web"}}], {"cr-web"}),
        ([{"tags": {"team": "*"}}], {"cr-ml", "cr-web"}),
        ([{"tags": {"team": "ops"}}], set()),
        ([{"tags": {"env": "prod"}, "ownerID": "111122223333"}], {"cr-ml"}),
        ([{"tags": {"env": "prod"}, "instanceMatchCriteria": "open"}], {"cr-web"}),
        ([{"tags": {"team": "ml"}}, {"id": "cr-bare"}], {"cr-ml", "cr-bare"}),
        ([], set()),
    ],
)
def test_reservations_are_selected_by_id_or_by_all_that_a_term_says(
    terms: list[dict[str, Any]], expected: set[str]
) -> None:
    assert selected(node_class(*terms), (ML, WEB, BARE)) == expected


def test_a_term_that_selects_none_of_the_reservations_is_said() -> None:
    prices = msgspec.structs.replace(MARKET.book, reservations=(ML, WEB))
    said = findings(node_class({"tags": {"team": "ml"}}, {"tags": {"team": "ops"}}, {"id": "cr-gone"}), prices)
    assert [one.where.field for one in said if one.where] == [
        "spec.capacityReservationSelectorTerms[1]",
        "spec.capacityReservationSelectorTerms[2]",
    ]
    assert "none among the prices is one of these" in said[0].message
    assert "cr-gone is not among the prices" in said[1].message


def test_capacity_blocks_end_for_their_nodes_forty_minutes_before() -> None:
    hour = 3600 * NS_PER_S
    block = reservation("cr-1", ends_ns=10 * hour)
    assert ending([block, BARE], 10 * hour - 2400 * NS_PER_S - 1) == {}
    assert ending([block, BARE], 10 * hour - 2400 * NS_PER_S) == {"cr-1": 10 * hour - 1800 * NS_PER_S}
