"""NodeOverlays: what planning takes instance types to cost and to have."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from provisioning_builders import catalogue, instance, node_pool, pods, shape

from tonnage.objects.karpenter import NodeOverlay
from tonnage.provisioning import karpenter as planner
from tonnage.provisioning.catalogue import Catalogue
from tonnage.provisioning.overlays import findings, overlaid

SMALL, LARGE = instance("a.small", cpu=4), instance("b.large", cpu=16, memory_gib=64)
OFFERS = {
    (name, zone, kind): price * (1 if kind == "on-demand" else 0.5)
    for name, price in (("a.small", 100_000), ("b.large", 400_000))
    for zone in ("us-east-1a", "us-east-1b")
    for kind in ("on-demand", "spot")
}
MARKET = catalogue([SMALL, LARGE], {key: int(price) for key, price in OFFERS.items()})
FAMILY, TYPE, KIND = (
    "karpenter.k8s.aws/instance-family",
    "node.kubernetes.io/instance-type",
    "karpenter.sh/capacity-type",
)


def overlay(name: str, *requirements: tuple[str, str, list[str]], **spec: Any) -> NodeOverlay:
    listed = [{"key": key, "operator": operator, "values": values} for key, operator, values in requirements]
    written = {"apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": name}}
    return msgspec.convert({**written, "spec": {"requirements": listed, **spec}}, NodeOverlay)


def prices(found: Catalogue, name: str) -> dict[tuple[str, str], int]:
    return {pair: int(found.prices[row, found.index(name)]) for row, pair in enumerate(found.pairs)}


def on_demand(found: Catalogue, name: str) -> int:
    return prices(found, name)["us-east-1a", "on-demand"]


@pytest.mark.parametrize(
    ("spec", "price"),
    [
        ({"price": "0.25"}, 250_000),
        ({"priceAdjustment": "+10%"}, 110_000),
        ({"priceAdjustment": "-15.5%"}, 84_500),
        ({"priceAdjustment": "-100%"}, 0),
        ({"priceAdjustment": "+0.5"}, 600_000),
        ({"priceAdjustment": "-0.5"}, 0),
    ],
)
def test_prices_are_set_or_adjusted_and_never_below_zero(spec: dict[str, str], price: int) -> None:
    found = overlaid(MARKET, [overlay("o", (FAMILY, "In", ["a"]), **spec)])
    assert on_demand(found, "a.small") == price
    assert on_demand(found, "b.large") == 400_000
    assert on_demand(MARKET, "a.small") == 100_000


def test_only_offerings_that_meet_the_requirements_change() -> None:
    one = overlay("o", (KIND, "In", ["spot"]), ("topology.kubernetes.io/zone", "In", ["us-east-1b"]), price="0.01")
    found = prices(overlaid(MARKET, [one]), "a.small")
    assert found == {**prices(MARKET, "a.small"), ("us-east-1b", "spot"): 10_000}


def test_of_two_overlays_the_heavier_one_holds_and_the_other_where_it_is_alone() -> None:
    heavy = overlay("a", (TYPE, "In", ["a.small"]), price="0.3", weight=10)
    light = overlay("b", (KIND, "In", ["on-demand"]), price="0.2", weight=5)
    found = overlaid(MARKET, [light, heavy])
    assert (on_demand(found, "a.small"), on_demand(found, "b.large")) == (300_000, 200_000)


def test_of_two_of_equal_weight_that_clash_the_one_earlier_in_the_alphabet_has_no_effect() -> None:
    first, last = (
        overlay(name, (TYPE, "In", ["a.small"]), price=price) for name, price in (("a", "0.3"), ("b", "0.2"))
    )
    assert on_demand(overlaid(MARKET, [first, last]), "a.small") == 200_000
    (said,) = findings(MARKET, [first, last])
    assert said.object.name == "a" and said.message == "another overlay of weight 0 gives prices too"


def test_a_plan_takes_what_is_cheaper_under_overlays() -> None:
    pool = node_pool("default", (KIND, "In", ["on-demand"]))
    plain = planner.plan(pods(1, shape(1, 1)), [], [pool], MARKET)
    assert [one.instance_type for one in plain.launches] == ["a.small"]
    cheaper = overlaid(MARKET, [overlay("o", (FAMILY, "In", ["b"]), priceAdjustment="-90%")])
    (launch,) = planner.plan(pods(1, shape(1, 1)), [], [pool], cheaper).launches
    assert (launch.instance_type, launch.price_micro_usd_per_hour) == ("b.large", 40_000)


def test_a_resource_of_an_overlay_brings_nodes_for_pods_that_ask_for_it() -> None:
    wanted = pods(3, shape(1, 1, more={"example.com/dongle": 1}))
    assert len(planner.plan(wanted, [], [node_pool()], MARKET).waits) == 3
    found = overlaid(MARKET, [overlay("o", (FAMILY, "In", ["b"]), capacity={"example.com/dongle": "2"})])
    launches = planner.plan(wanted, [], [node_pool()], found).launches
    assert sorted((one.instance_type, len(one.pods)) for one in launches) == [("b.large", 1), ("b.large", 2)]
    assert launches[0].allocatable["example.com/dongle"] == 2


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (overlay("o", (FAMILY, "In", ["z"]), price="1"), "no instance type has an offering that meets them"),
        (overlay("o", ("karpenter.sh/nodepool", "In", ["x"]), price="1"), "karpenter.sh/nodepool are not looked at"),
        (overlay("o", ("team", "In", ["x"]), price="1"), "requirements on team are not looked at in plans"),
        (overlay("o", (FAMILY, "In", ["a"]), capacity={"nodes": "3"}), "machines have nodes themselves"),
    ],
)
def test_overlays_without_effect_are_found(one: NodeOverlay, said: str) -> None:
    found = overlaid(MARKET, [one])
    assert (found.prices == MARKET.prices).all() and found.resources == MARKET.resources
    assert said in findings(MARKET, [one])[0].message


def test_without_overlays_nothing_changes() -> None:
    assert overlaid(MARKET, []) is MARKET and findings(MARKET, []) == []
