"""Nodes in another region than that of the prices: what they cost is not known, and is never that of the region."""

from __future__ import annotations

from pathlib import Path

import pytest

from tonnage.facts import instances, prices
from tonnage.machines.own_nodes import abroad, launch_of
from tonnage.objects import core, load
from tonnage.simulation.findings.prices import nodes_without_price

NODE = """\
apiVersion: v1
kind: Node
metadata:
  name: one
  labels: {{node.kubernetes.io/instance-type: {kind}{labels}}}
status: {{allocatable: {{cpu: "4", memory: 14Gi, pods: "29"}}}}
"""


def node_with(folder: Path, kind: str, **labels: str) -> load.Manifest:
    text = "".join(f", topology.kubernetes.io/{name}: {value}" for name, value in labels.items())
    (folder / "node.yaml").write_text(NODE.format(kind=kind, labels=text))
    return load.read([folder / "node.yaml"])


@pytest.mark.parametrize(
    ("labels", "dollars"),
    [
        ({"zone": "us-east-1a"}, 0.8048),
        ({"zone": "us-east-1z"}, 0.8048),
        ({}, 0.8048),
        ({"region": "us-east-1"}, 0.8048),
        ({"zone": "eu-west-1a"}, 0),
        ({"zone": "us-west-2b", "region": "us-west-2"}, 0),
        ({"region": "ap-northeast-1"}, 0),
    ],
)
def test_a_node_has_the_price_of_its_region_or_none(tmp_path: Path, labels: dict[str, str], dollars: float) -> None:
    manifest, book = node_with(tmp_path, "g6.xlarge", **labels), prices.load()
    (node,) = manifest.of(core.Node)
    made = launch_of(node, instances.get("g6.xlarge"), book)
    assert made.price_micro_usd_per_hour == round(dollars * 1e6)
    found = list(nodes_without_price(manifest, book))
    assert [(one.rule, one.object.name, one.severity) for one in found] == [("node-no-price", "one", "warning")] * (
        not dollars
    )
    assert all("what g6.xlarge costs in" in one.message and one.where.line == 5 for one in found)


@pytest.mark.parametrize("region", ["us-gov-west-1", "us-gov-east-1"])
def test_a_node_in_a_region_with_prices_has_those_where_they_are_asked_for(tmp_path: Path, region: str) -> None:
    manifest, book = node_with(tmp_path, "g6.xlarge", zone=f"{region}a"), prices.load(None, region)
    (node,) = manifest.of(core.Node)
    assert abroad(node, book) == ""
    assert launch_of(node, instances.get("g6.xlarge"), book).price_micro_usd_per_hour == book.on_demand("g6.xlarge")
    assert book.on_demand("g6.xlarge") != prices.load().on_demand("g6.xlarge")
    assert abroad(node, prices.load()) == region


def test_a_machine_that_is_not_sold_has_no_price_anywhere_and_nothing_is_said(tmp_path: Path) -> None:
    manifest = node_with(tmp_path, "dgx", zone="hall-2")
    assert list(nodes_without_price(manifest, prices.load())) == []
