"""Nodes that selectors cannot tell apart are judged once, and all others on their own."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from builders import GPU, HOSTNAME, ZONE, expression, fleet, node, on_nodes, pod
from deep_seeds import part
from tonnage.fleet.state import Fleet
from tonnage.objects import core, selectors
from tonnage.scheduling import place
from tonnage.scheduling.seen import Seen
from tonnage.scheduling.why.bounds import Tables
from tonnage.scheduling.why.search import smallest

MACHINE = "example.com/machine"


def machines(count: int, **more: Any) -> Fleet:
    """Nodes with a label of their own each."""
    return fleet(
        *(node(f"n{i:02d}", gpus=1, zone="ab"[i % 2], labels={MACHINE: f"m{i}"}, **more) for i in range(count))
    )


@pytest.mark.parametrize(
    ("fields", "kinds"),
    [
        ({}, 1),
        ({"nodeSelector": {ZONE: "a"}}, 2),
        ({"nodeSelector": {HOSTNAME: "n03"}}, 2),
        ({"affinity": on_nodes({"matchExpressions": [expression(ZONE, "In", "a")]})}, 2),
        ({"affinity": on_nodes({"matchExpressions": [expression(MACHINE, "In", "m1", "m2")]})}, 2),
        ({"affinity": on_nodes({"matchFields": [expression("metadata.name", "In", "n01")]})}, 2),
        ({"affinity": on_nodes({"matchExpressions": [expression(HOSTNAME, "Gt", "3")]})}, 8),
    ],
)
def test_only_what_is_asked_for_tells_nodes_apart(fields: dict[str, Any], kinds: int) -> None:
    made = machines(8)
    row = made.add_pod(pod("p", gpus=1, **fields))
    view = place.Cache(made).view(made.pod_class(row), "binpack")
    assert len(set(view.opened.kinds[made.node_rows()].tolist())) == kinds


@pytest.mark.parametrize("seed", part(range(6)))
def test_nodes_that_are_judged_together_are_the_same_to_the_selectors(seed: int) -> None:
    rng, keys = Random(f"seen/{seed}"), ("a", "b", HOSTNAME)
    made = Fleet()
    for i in range(12):
        labels = {key: rng.choice(("1", "2", "x")) for key in keys[:2] if rng.random() < 0.7}
        made.add_node(node(f"{i}", labels=labels))

    def requirement(key: str) -> dict[str, Any]:
        operator = rng.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
        values = [] if "xist" in operator else [rng.choice(("1", "2", "7"))]
        return expression(key, operator, *values)

    terms = [
        msgspec.convert(
            {
                "matchExpressions": [requirement(rng.choice(keys)) for _ in range(rng.randint(0, 2))],
                "matchFields": [expression("metadata.name", "In", "5")] if rng.random() < 0.3 else [],
            },
            core.NodeSelectorTerm,
        )
        for _ in range(rng.randint(1, 3))
    ]
    seen = Seen(made, terms)
    kinds = seen.refresh()
    for row in made.node_rows():
        labels, name = seen.examples[kinds[row]]
        one = made.node(row)
        for term in terms:
            assert selectors.term_matches(term, one.labels, one.spec.name) == selectors.term_matches(term, labels, name)


def test_a_node_whose_labels_change_is_judged_anew() -> None:
    made = machines(3)
    row = made.add_pod(pod("p", gpus=1, nodeSelector={ZONE: "b"}))
    assert place.feasible(made, row) == [1]
    cache = place.Cache(made)
    place.feasible(made, row, cache)
    made.set_labels(0, {ZONE: "b"})
    made.set_labels(1, {ZONE: "c"})
    assert place.feasible(made, row, cache) == [0]


def test_nodes_that_come_are_thought_of_once_for_all_that_are_alike() -> None:
    made = machines(6)
    for i in range(6):
        made.bind(made.add_pod(pod(f"there-{i}", gpus=1)), i)
    row = made.add_pod(pod("p", gpus=1, nodeSelector={ZONE: "a"}))
    tables = Tables(made, row, place.Cache(made))
    assert [made.node(one).spec.name for one in tables.unlike] == ["n00", "n01"]
    found = smallest(made, row, tables.cache, frozenset({"add"}))
    assert found.proved
    assert found.change is not None
    assert [edit.text() for edit in found.change.edits] == ["add one node like n00"]


def test_an_answer_about_many_equal_nodes_names_the_first_and_is_proved() -> None:
    made = machines(300, resources={"example.com/disk": 2})
    for i in range(300):
        made.bind(made.add_pod(pod(f"there-{i}", gpus=1, resources={"example.com/disk": "2"})), i)
    row = made.add_pod(pod("p", gpus=1, resources={"example.com/disk": "1"}))
    found = smallest(made, row, place.Cache(made), frozenset({"leave"}), budget=10)
    assert found.proved
    assert found.change is not None
    assert [edit.text() for edit in found.change.edits] == ["evict default/there-0 from node n00"]
    assert GPU in made.resources
