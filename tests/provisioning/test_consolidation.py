"""Which nodes are taken back or replaced: empty, drifted and underused ones, within budgets and what protects pods."""

from __future__ import annotations

from types import MethodType
from typing import Any

import msgspec
import pytest
from provisioning_builders import ZONE, catalogue, instance, node_pool, on_demand, shape

from tonnage.control.nodes import Pools
from tonnage.control.policy import Policy
from tonnage.decisions import Ref
from tonnage.objects import core
from tonnage.provisioning.candidates import MovablePod, RunningNode, blocker, eviction_cost, protected
from tonnage.provisioning.catalogue import Catalogue
from tonnage.provisioning.consolidation import Command, Gates, disrupt
from tonnage.provisioning.disruption import NodeState
from tonnage.provisioning.pods import ExistingNode, PendingPod
from tonnage.units import GIB, NS_PER_S

NOW = 1_772_452_800 * NS_PER_S
"""2026-03-02 12:00:00 UTC, a Monday."""
HOUR = 3600 * NS_PER_S
SMALL, LARGE, HUGE = (
    instance("a.small", cpu=2, memory_gib=8),
    instance("a.large", cpu=8, memory_gib=32),
    instance("a.huge", cpu=16, memory_gib=64),
)
PRICES = {"a.small": 100, "a.large": 400, "a.huge": 900}
ON_DEMAND = {(name, ZONE, "on-demand"): price for name, price in PRICES.items()}
MARKET: Catalogue = catalogue([SMALL, LARGE, HUGE], ON_DEMAND)
AT_ONCE = {"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]}
KIND = "karpenter.sh/capacity-type"
POOL = node_pool("default", (KIND, "In", ["on-demand"]), disruption=AT_ONCE)
ANY = node_pool("default", disruption=AT_ONCE)


def pod(name: str, cpu: float = 1, **other: Any) -> MovablePod:
    ref = Ref("Pod", name, "default", name)
    return MovablePod(pod=PendingPod(ref, shape(cpu, 1), 0, {"app": name}), **other)


def running(name: str, type_: str, *held: MovablePod, kind: str = "on-demand", **other: Any) -> RunningNode:
    one = {"a.small": SMALL, "a.large": LARGE, "a.huge": HUGE}.get(type_) or instance(type_)
    used = sum(held_pod.pod.shape.requests["cpu"] for held_pod in held)
    ref = Ref("Node", name)
    state = {"initialized_ns": NOW - HOUR, "pods": len(held)} | other.pop("state", {})
    return RunningNode(
        state=NodeState(node=ref, node_pool="default", price_micro_usd_per_hour=PRICES.get(type_, 0), **state),
        node=ExistingNode(
            ref=ref,
            labels=one.labels(ZONE, kind) | {"karpenter.sh/nodepool": "default"},
            free={
                "cpu": one.vcpu * 1000 - used,
                "memory": one.memory_mib * 2**20 - len(held) * GIB,
                "pods": one.max_pods - len(held),
            },
            node_pool="default",
        ),
        pods=held,
        **other,
    )


def decided(*nodes: RunningNode, pool: Any = POOL, market: Catalogue = MARKET, **other: Any) -> Command | None:
    return disrupt(nodes, other.pop("pending", ()), [pool], market, NOW, **other)


def names(command: Command | None) -> list[str]:
    return [] if command is None else sorted(ref.name for ref in command.nodes)


def test_all_empty_nodes_go_at_once_before_anything_else() -> None:
    command = decided(running("one", "a.large"), running("two", "a.huge"), running("busy", "a.huge", pod("p")))
    assert command is not None
    assert (command.method, names(command), command.saves_micro_usd_per_hour) == ("emptiness", ["one", "two"], 1300)


def test_a_node_goes_when_its_pods_find_room_on_another() -> None:
    command = decided(running("one", "a.small", pod("p")), running("two", "a.large", pod("q", 6)))
    assert command is not None
    assert (names(command), command.launches) == (["one"], ())
    assert command.saves_micro_usd_per_hour == 100


def test_a_node_is_replaced_by_one_that_is_cheaper() -> None:
    command = decided(running("one", "a.huge", pod("p", 1.5)))
    assert command is not None
    assert (command.method, [one.instance_type for one in command.launches]) == ("single-node", ["a.small"])
    assert command.saves_micro_usd_per_hour == 800


def test_several_nodes_are_replaced_by_one_that_costs_less_than_all_of_them() -> None:
    nodes = [running(f"n{i}", "a.large", pod(f"p{i}", 2)) for i in range(3)]
    command = decided(*nodes)
    assert command is not None
    assert (command.method, len(command.nodes)) == ("multi-node", 2)
    assert command.launches == ()


def test_a_node_is_never_replaced_by_two() -> None:
    # Two small nodes would do, for less.
    market = catalogue([SMALL, HUGE], {(n, ZONE, "on-demand"): PRICES[n] for n in ("a.small", "a.huge")})
    assert decided(running("one", "a.huge", pod("p", 2), pod("q", 2)), market=market) is None


@pytest.mark.parametrize(
    "disruption",
    [
        {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]},
        {"consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]},
        {"consolidateAfter": "2h", "budgets": [{"nodes": "100%"}]},
        {"consolidateAfter": "0s", "budgets": [{"nodes": "0"}]},
        {"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}, {"nodes": "0", "reasons": ["Underutilized"]}]},
        {"consolidateAfter": "0s", "budgets": [{"nodes": "0", "schedule": "0 9 * * mon-fri", "duration": "8h"}]},
    ],
)
def test_a_node_stays_where_its_nodepool_says_so(disruption: dict[str, Any]) -> None:
    one = running("one", "a.huge", pod("p"))
    assert decided(one, pool=node_pool("default", (KIND, "In", ["on-demand"]), disruption=disruption)) is None


@pytest.mark.parametrize(
    "disruption",
    [
        {"consolidateAfter": "30m", "budgets": [{"nodes": "1%"}]},
        {"consolidateAfter": "0s", "budgets": [{"nodes": "1"}, {"nodes": "0", "reasons": ["Empty", "Drifted"]}]},
        {"consolidateAfter": "0s", "budgets": [{"nodes": "0", "schedule": "0 18 * * mon-fri", "duration": "8h"}]},
    ],
)
def test_a_node_goes_where_its_nodepool_lets_it(disruption: dict[str, Any]) -> None:
    one = running("one", "a.huge", pod("p"))
    assert names(decided(one, pool=node_pool("default", (KIND, "In", ["on-demand"]), disruption=disruption))) == ["one"]


@pytest.mark.parametrize(
    ("node", "why"),
    [
        (running("n", "a.huge", pod("p"), state={"do_not_disrupt": True}), "annotation"),
        (running("n", "a.huge", pod("p"), state={"nominated": True}), "pending pod"),
        (running("n", "a.huge", pod("p"), state={"deleted": True}), "deleted"),
        (running("n", "a.huge", pod("p"), state={"initialized_ns": None}), "initialized"),
        (running("n", "a.huge", pod("p", do_not_disrupt="true")), "annotation"),
        (running("n", "a.huge", pod("p", do_not_disrupt="2h", started_ns=NOW - HOUR)), "annotation"),
        (running("n", "a.huge", pod("p", budgets=("pdb",), blocked=True)), "allows no eviction"),
        (running("n", "a.huge", pod("p", budgets=("one", "two"))), "several"),
    ],
)
def test_what_is_protected_stays(node: RunningNode, why: str) -> None:
    assert why in blocker(node, NOW)
    assert decided(node) is None


@pytest.mark.parametrize(
    "held",
    [
        pod("p", do_not_disrupt="30m", started_ns=NOW - HOUR),
        pod("p", do_not_disrupt="soon", started_ns=NOW),
        pod("p", budgets=("pdb",)),
        pod("p", budgets=("one", "two"), stays=True),
    ],
)
def test_what_protects_no_longer_is_in_nobodys_way(held: MovablePod) -> None:
    node = running("n", "a.huge", held)
    assert not blocker(node, NOW)
    assert names(decided(node)) == ["n"]


@pytest.mark.parametrize(
    ("written", "age_s", "holds"),
    [("true", 0, True), ("false", 0, False), ("1h", 3599, True), ("1h", 3600, False), ("0s", 0, False), ("", 0, False)],
)
def test_do_not_disrupt_holds_for_good_or_for_a_time(written: str, age_s: int, holds: bool) -> None:
    assert protected(pod("p", do_not_disrupt=written, started_ns=NOW - age_s * NS_PER_S), NOW) == holds


@pytest.mark.parametrize(
    ("priority", "deletion_cost", "cost"),
    [
        (0, 0, 1.0),
        (2**25, 0, 2.0),
        (-(2**25), 0, 0.0),
        (0, 2**27, 2.0),
        (0, -(2**28), -1.0),
        (1_000_000_000, 0, 10.0),
        (-(2**31), 0, -10.0),
    ],
)
def test_eviction_costs(priority: int, deletion_cost: int, cost: float) -> None:
    assert eviction_cost(pod("p", priority=priority, deletion_cost=deletion_cost)) == pytest.approx(cost)


def test_a_node_whose_pods_cost_nothing_to_move_counts_as_empty() -> None:
    command = decided(running("one", "a.large", pod("p", priority=-(2**25))))
    assert command is not None
    assert (command.reason, names(command)) == ("Empty", ["one"])


def test_drifted_nodes_go_first_come_first_served_those_without_pods_before_the_others() -> None:
    pool = node_pool("default", disruption={"consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]})
    nodes = [
        running("late", "a.small", pod("p"), drifted_ns=NOW - 1),
        running("early", "a.small", pod("q"), drifted_ns=NOW - HOUR),
        running("empty", "a.small", drifted_ns=NOW),
    ]
    order = []
    while (command := decided(*nodes, pool=pool)) is not None:
        assert command.reason == "Drifted"
        order += names(command)
        nodes = [one for one in nodes if one.ref.name not in order]
    assert order == ["empty", "early", "late"]


def test_drift_passes_pods_that_would_block_where_the_grace_period_ends() -> None:
    pool = node_pool("default", disruption={"consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]})
    held = pod("p", do_not_disrupt="true")
    assert decided(running("n", "a.small", held, drifted_ns=NOW), pool=pool) is None
    assert names(decided(running("n", "a.small", held, drifted_ns=NOW, grace=True), pool=pool)) == ["n"]


def test_what_is_launched_instead_of_an_on_demand_node_is_spot_where_spot_may_be_had() -> None:
    both = ON_DEMAND | {(name, ZONE, "spot"): price // 2 for name, price in PRICES.items()}
    command = decided(running("n", "a.huge", pod("p")), market=catalogue([SMALL, LARGE, HUGE], both), pool=ANY)
    assert command is not None
    assert [(one.instance_type, one.capacity_type) for one in command.launches] == [("a.small", "spot")]
    assert command.claims[0].requirements["karpenter.sh/capacity-type"].values == {"spot"}


@pytest.mark.parametrize(("cheaper", "gate", "goes"), [(15, True, True), (14, True, False), (20, False, False)])
def test_a_spot_node_gives_way_to_a_spot_node_among_the_fifteen_cheapest(cheaper: int, gate: bool, goes: bool) -> None:
    types = [instance(f"b.t{n:02d}", cpu=2, memory_gib=8) for n in range(cheaper)]
    sold = {(one.name, ZONE, "spot"): 10 + n for n, one in enumerate(types)} | {("a.huge", ZONE, "spot"): 900}
    node = running("n", "a.huge", pod("p"), kind="spot")
    gates = Gates(spot_to_spot_consolidation=gate)
    command = decided(node, market=catalogue([*types, HUGE], sold), pool=ANY, gates=gates)
    assert names(command) == (["n"] if goes else [])
    if command is not None:
        assert command.launches[0].instance_type == "b.t00"
        assert len(command.claims[0].instance_types) == 15


def test_pods_that_are_moved_do_not_go_to_a_node_that_changed_lately() -> None:
    pool = node_pool("default", disruption={"consolidateAfter": "10m", "budgets": [{"nodes": "100%"}]})
    busy = {"last_pod_event_ns": NOW - 60 * NS_PER_S}
    calm = {"last_pod_event_ns": NOW - HOUR}
    moved = running("one", "a.small", pod("p"), state=calm)
    assert decided(moved, running("two", "a.large", pod("q", 6), state=busy), pool=pool) is None
    assert names(decided(moved, running("two", "a.large", pod("q", 6), state=calm), pool=pool)) == ["one"]


def test_a_plan_that_counts_on_a_node_which_has_not_started_is_not_made() -> None:
    starting = running("two", "a.large", state={"initialized_ns": None})
    node = ExistingNode(
        ref=starting.node.ref, labels=starting.node.labels, free=starting.node.free, node_pool="default",
        initialized=False,
    )  # fmt: skip
    there = RunningNode(state=starting.state, node=node)
    assert decided(running("one", "a.small", pod("p")), there) is None


def test_pending_pods_find_room_before_nodes_are_taken_back() -> None:
    waiting = [pod(f"w{i}", 1).pod for i in range(2)]
    nodes = [running("one", "a.small", pod("p", 1)), running("two", "a.large", pod("q", 6))]
    assert names(decided(*nodes)) == ["one"]
    assert decided(*nodes, pending=waiting) is None


def _away(label: str, key: str = KIND) -> core.PodAntiAffinity:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": label}}}
    return msgspec.convert({"requiredDuringSchedulingIgnoredDuringExecution": [term]}, core.PodAntiAffinity)


def ruled(name: str, away_from: str, **other: Any) -> MovablePod:
    """A pod that insists on being where none of those is, by capacity type."""
    one = pod(name, **other)
    kept_away = msgspec.structs.replace(one.pod.shape, pod_anti_affinity=_away(away_from))
    return msgspec.structs.replace(one, pod=msgspec.structs.replace(one.pod, shape=kept_away))


def with_node(one: RunningNode, **other: Any) -> RunningNode:
    """The same node with other fields as planning takes it."""
    return msgspec.structs.replace(one, node=msgspec.structs.replace(one.node, **other))


FIXED: dict[str, Any] = {"budgets": ("pdb",), "never": True}
"""A PodDisruptionBudget of which no pod may ever go, though just now one might."""


@pytest.mark.parametrize(
    ("left", "moved", "leaving", "bought"),
    [
        (pod("left", **FIXED), ruled("moved", "left"), False, ["on-demand"]),
        (pod("left", belongs=True), ruled("moved", "left"), False, ["on-demand"]),
        (ruled("left", "moved", **FIXED), pod("moved"), False, ["on-demand"]),
        (pod("left", **FIXED), ruled("moved", "left"), True, ["on-demand"]),
        (pod("left", do_not_disrupt="true"), ruled("moved", "left"), True, ["on-demand"]),
        (pod("left", **FIXED), ruled("moved", "other"), False, []),
        (pod("left"), ruled("moved", "left"), False, []),
    ],
)
def test_pods_that_are_left_on_nodes_that_go_still_keep_others_away(
    left: MovablePod, moved: MovablePod, leaving: bool, bought: list[str]
) -> None:
    """A spot node is not replaced by a spot node: only where the pod that moves may not be on spot it goes."""
    both = ON_DEMAND | {(name, ZONE, "spot"): price - 50 for name, price in PRICES.items()}
    on = [(left, moved)] if not leaving else [(moved,), (left,)]
    nodes = [running(f"n{at}", "a.huge", *held, kind="spot", state={"deleted": at > 0}) for at, held in enumerate(on)]
    nodes[1:] = [with_node(one, deleted=True) for one in nodes[1:]]
    command = decided(*nodes, market=catalogue([SMALL, LARGE, HUGE], both), pool=ANY)
    assert [one.capacity_type for one in (command.launches if command else ())] == bought
    assert names(command) == (["n0"] if bought else [])


@pytest.mark.parametrize(
    ("dear_to_move", "budget_of_last", "goes"),
    [("alpha", "100%", "omega"), ("omega", "100%", "alpha"), ("alpha", "0", "alpha")],
)
def test_of_nodepools_the_one_whose_node_is_dearest_for_its_disruption_has_the_first_turn(
    dear_to_move: str, budget_of_last: str, goes: str
) -> None:
    """Two nodes of which either could take the other's pod, but that no single cheaper node can replace."""
    nodes, pools = [], []
    for name in ("alpha", "omega"):
        budget = budget_of_last if name == "omega" else "100%"
        pools.append(node_pool(name, disruption={"consolidateAfter": "0s", "budgets": [{"nodes": budget}]}))
        held = pod(f"p-{name}", 6, deletion_cost=2**27 if name == dear_to_move else 0)
        one = with_node(running(f"n-{name}", "a.huge", held), node_pool=name)
        nodes.append(msgspec.structs.replace(one, state=msgspec.structs.replace(one.state, node_pool=name)))
    command = disrupt(nodes, (), pools, MARKET, NOW)
    assert command is not None
    assert (command.method, names(command), command.launches) == ("single-node", [f"n-{goes}"], ())


def test_the_gate_of_spot_to_spot_comes_from_the_policy() -> None:
    pools = Pools()
    for chosen in (True, False):
        policy = Policy(spot_to_spot=chosen)
        loop = policy.node_loops(on_demand([(instance("a.one"), 10)]), lambda: pools)[1]
        assert isinstance(loop.decide, MethodType)
        assert loop.decide.__self__.gates.spot_to_spot_consolidation is chosen
