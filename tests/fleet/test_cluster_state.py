"""One state makes snapshots, for every world; and rows change only where their undo log is."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

import tonnage
from tonnage.decisions import Evict, Reason, Ref, Wait
from tonnage.fleet.cluster_state import UNAVAILABLE_NS, State
from tonnage.fleet.rows import FleetNode, FleetPod, NodeFacts
from tonnage.fleet.state import Fleet
from tonnage.kube.clock import WallClock
from tonnage.live.feed import Changes
from tonnage.live.groups import Groups
from tonnage.live.observed import Observed
from tonnage.objects import core
from tonnage.units import NS_PER_S

SOURCES = Path(tonnage.__file__).parent
POD = Ref("Pod", "p", "default")
WHY = Reason("because")


@cache
def _trees(word: str) -> tuple[tuple[str, ast.AST], ...]:
    """The modules in whose text the word stands."""
    texts = ((file, file.read_text(encoding="utf-8")) for file in sorted(SOURCES.rglob("*.py")))
    return tuple((file.relative_to(SOURCES).as_posix(), ast.parse(text)) for file, text in texts if word in text)


def _makes_a_snapshot(tree: ast.AST) -> bool:
    """Whether it calls the class Snapshot: by its name, by another that it is imported under or given, or as that of a
    module."""
    names = {"Snapshot"}
    nodes = list(ast.walk(tree))
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            names |= {one.asname for one in node.names if one.name == "Snapshot" and one.asname}
    for node in nodes:
        if isinstance(node, ast.Assign) and _name(node.value) in names:
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return any(isinstance(node, ast.Call) and _name(node.func) in names for node in nodes)


def _name(node: ast.expr) -> str:
    """The last part of what an expression names; empty for one that names nothing."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def test_snapshots_are_made_by_the_state_alone() -> None:
    assert {name for name, tree in _trees("Snapshot") if _makes_a_snapshot(tree)} == {"fleet/cluster_state.py"}


@pytest.mark.parametrize(
    ("text", "makes"),
    [
        ("Snapshot(1)", True),
        ("from tonnage.fleet import snapshot\nsnapshot.Snapshot(1)", True),
        ("import tonnage.fleet.snapshot as s\nx = [s.Snapshot(1)]", True),
        ("from tonnage.fleet.snapshot import Snapshot as View\nView(1)", True),
        ("from tonnage.fleet.snapshot import Snapshot\nmake = Snapshot\nmake(1)", True),
        ("from tonnage.fleet.snapshot import Snapshot\ndef f(x: Snapshot) -> None: x.pods()", False),
        ("from tonnage.fleet.snapshot import ClaimView as View\nView(1)", False),
    ],
)
def test_a_snapshot_is_seen_under_whatever_name_it_is_made(text: str, makes: bool) -> None:
    assert _makes_a_snapshot(ast.parse(text)) is makes


def test_a_world_that_leaves_a_part_out_cannot_be_made() -> None:
    class Partial(State):
        pass

    parts = {"workloads", "claims", "gangs", "done", "topologies", "disruption_budgets", "life", "lives", "relayouts"}
    assert parts <= State.__abstractmethods__
    with pytest.raises(TypeError, match="abstract"):
        Partial(Fleet())  # type: ignore[abstract]


def test_what_nodes_go_through_is_written_in_the_fleets_room_alone() -> None:
    facts = set(NodeFacts.__annotations__) - {"leaving"}  # a name that machines of the simulator have too
    writers = {
        name
        for fact in facts
        for name, tree in _trees(f".{fact}")
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Attribute) and target.attr in facts
    }
    assert not {name for name in writers if not name.startswith("fleet/")}


def test_what_a_node_goes_through_is_undone_with_a_what_if() -> None:
    fleet = Fleet()
    row = fleet.add_node(FleetNode("n", {"cpu": 1000}, {}))
    fleet.note(row, initialized=True, last_pod_event_ns=5)
    with fleet.what_if():
        fleet.note(row, initialized=False, leaving=True)
        fleet.describe(row, node_pool="other")
        fleet.note(row, last_pod_event_ns=9, unfinished=True)
    node = fleet.node(row)
    assert (node.initialized, node.leaving, node.unfinished, node.last_pod_event_ns) == (True, False, False, 5)
    assert node.spec.node_pool == ""


@pytest.fixture
def state() -> State:
    clock, changes = WallClock(), Changes(set())
    made = Observed(clock, Groups(clock, changes), price=lambda *_: 0, changes=changes)
    made.fleet.add_pod(FleetPod("default", "p", "", {}, core.PodSpec(containers=[])))
    return made


def test_what_a_scheduler_lets_a_pod_wait_for_replaces_what_it_waited_for(state: State) -> None:
    state.let_wait(Wait(POD, WHY, nominated="a"))
    state.let_wait(Wait(POD, WHY, by="provisioner"))
    assert state.snapshot(0).nominations == {"default/p": "a"}
    state.let_wait(Wait(POD, WHY, nominated="b"))
    assert state.snapshot(0).nominations == {"default/p": "b"}
    state.let_wait(Wait(POD, WHY))
    assert state.snapshot(0).nominations == {}
    state.let_wait(Wait(Ref("Pod", "gone", "default"), WHY, nominated="a"))
    assert state.snapshot(0).nominations == {}


def test_a_pod_that_is_moved_keeps_room_until_it_is_settled(state: State) -> None:
    state.leaves(Evict(POD, WHY))
    assert state.nominations == {}
    state.leaves(Evict(POD, WHY, to="there"))
    assert state.nominations == {"default/p": "there"}
    state.settled("default/p")
    assert state.nominations == {}


def test_an_offering_that_the_cloud_did_not_have_is_out_of_stock_for_three_minutes(state: State) -> None:
    offering = ("p5.48xlarge", "us-east-1a", "spot")
    state.refused(offering, 10 * NS_PER_S)
    assert state.snapshot(10 * NS_PER_S + UNAVAILABLE_NS - 1).unavailable == {offering}
    assert state.snapshot(10 * NS_PER_S + UNAVAILABLE_NS).unavailable == frozenset()
