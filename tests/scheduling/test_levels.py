"""Topology levels: what is a domain, and in which order levels stand."""

from __future__ import annotations

import pytest

from builders import ZONE, fleet, node
from gang_builders import CLIQUE, RACK
from tonnage.fleet.gangs import TopologyRule
from tonnage.fleet.state import Fleet
from tonnage.scheduling.levels import Levels, LevelTables, UnknownLevel, order_of

HOST = "kubernetes.io/hostname"


def levels(made: Fleet, *rules: TopologyRule, **topologies: tuple[str, ...]) -> Levels:
    """The levels of which these rules speak."""
    return LevelTables(made).get(order_of(rules, topologies))


def domains(made: Fleet, found: Levels, key: str) -> dict[str, str]:
    """Node name → name of its domain; empty for none."""
    level = found.index(key)
    numbers = {name: int(found.of_node[row, level]) for name, row in made.node_by_name.items()}
    return {name: found.name(level, number) if number >= 0 else "" for name, number in numbers.items()}


def test_racks_of_the_same_name_in_two_zones_are_two_domains() -> None:
    made = fleet(node("a", zone="z1", labels={RACK: "r1"}), node("b", zone="z2", labels={RACK: "r1"}))
    found = levels(made, TopologyRule(required=RACK))
    assert domains(made, found, RACK) == {"a": "z1/r1", "b": "z2/r1"}
    assert found.count(found.index(RACK)) == 2


@pytest.mark.report(116)
def test_paths_that_read_alike_when_joined_are_not_one_domain() -> None:
    made = fleet(
        node("a", labels={"x": "a", "y": "b/c"}),
        node("b", labels={"x": "a/b", "y": "c"}),
        node("c", labels={"x": "a", "y": "b"}),
    )
    found = levels(made, TopologyRule(required="y", topology="t"), t=("x", "y"))
    assert len(set(found.of_node[[made.node_by_name[n] for n in "abc"], found.index("y")].tolist())) == 3


def test_a_node_without_the_label_is_in_no_domain_of_that_level_but_in_others() -> None:
    made = fleet(node("a", zone="z1", labels={RACK: "r1"}), node("b", zone="z1"), node("c", labels={RACK: "r1"}))
    found = levels(made, TopologyRule(required=RACK))
    assert domains(made, found, RACK) == {"a": "z1/r1", "b": "", "c": "r1"}
    assert domains(made, found, ZONE) == {"a": "z1", "b": "z1", "c": ""}


def test_without_a_topology_object_well_known_labels_stand_in_their_order() -> None:
    labels = {
        CLIQUE: "c",
        "topology.k8s.aws/network-node-layer-2": "n2",
        "topology.k8s.aws/network-node-layer-1": "n1",
        "topology.kubernetes.io/region": "r",
    }
    found = levels(fleet(node("a", zone="z", labels=labels)), TopologyRule(required=ZONE))
    assert found.keys == (
        "topology.kubernetes.io/region",
        ZONE,
        "topology.k8s.aws/network-node-layer-1",
        "topology.k8s.aws/network-node-layer-2",
        CLIQUE,
        HOST,
    )


def test_a_label_of_ones_own_stands_just_inside_the_zone() -> None:
    made = fleet(node("a", zone="z", labels={RACK: "r", CLIQUE: "c"}))
    assert levels(made, TopologyRule(required=RACK)).keys == (ZONE, RACK, CLIQUE, HOST)


def test_an_nvlink_domain_that_spans_two_racks_is_one_domain() -> None:
    made = fleet(
        node("a", zone="z", labels={RACK: "r1", CLIQUE: "uuid.1"}),
        node("b", zone="z", labels={RACK: "r2", CLIQUE: "uuid.1"}),
    )
    found = levels(made, TopologyRule(required=CLIQUE, preferred=RACK))
    assert domains(made, found, CLIQUE) == {"a": "z/uuid.1", "b": "z/uuid.1"}


def test_a_topology_object_gives_the_levels_and_the_host_comes_last() -> None:
    made = fleet(node("a", zone="z", labels={"block": "b", RACK: "r"}))
    assert levels(made, TopologyRule(required=RACK, topology="dc"), dc=("block", RACK)).keys == ("block", RACK, HOST)


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ((TopologyRule(required=RACK, topology="gone"),), "topology gone does not exist"),
        ((TopologyRule(required=ZONE, topology="dc"),), f"topology dc has no level {ZONE}"),
        ((TopologyRule(topology="dc"), TopologyRule(topology="other")), "several topologies: dc, other"),
    ],
)
def test_a_level_that_is_not_there_is_named(rules: tuple[TopologyRule, ...], says: str) -> None:
    made = fleet(node("a", labels={RACK: "r"}))
    with pytest.raises(UnknownLevel, match=says):
        levels(made, *rules, dc=("block", RACK), other=(RACK,))


def test_a_level_of_which_no_node_has_the_label_has_no_domain() -> None:
    made = fleet(node("a", labels={RACK: "r"}))
    found = levels(made, TopologyRule(required="block"))
    assert found.count(found.index("block")) == 0
    assert domains(made, found, "block") == {"a": ""}


def test_levels_follow_nodes_that_come_and_go() -> None:
    made = fleet(node("a", labels={RACK: "r1"}))
    tables, order = LevelTables(made), order_of([TopologyRule(required=RACK)], {})
    first = tables.get(order)
    assert tables.get(order) is first
    row = made.add_node(node("b", labels={RACK: "r2"}))
    assert domains(made, tables.get(order), RACK) == {"a": "r1", "b": "r2"}
    made.set_labels(row, {RACK: "r1"})
    assert domains(made, tables.get(order), RACK) == {"a": "r1", "b": "r1"}
    made.remove_node(row)
    assert domains(made, tables.get(order), RACK) == {"a": "r1"}
