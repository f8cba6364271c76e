"""Disruption budgets and the return of empty nodes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from provisioning_builders import node_pool

from tonnage.decisions import Ref
from tonnage.errors import InputError
from tonnage.objects import karpenter
from tonnage.provisioning.budgets import allowance, is_active
from tonnage.provisioning.disruption import Emptiness, NodeState, empty_nodes
from tonnage.units import NS_PER_S


def at(text: str) -> int:
    """Nanoseconds since the epoch of a UTC time such as 2026-03-02 09:00:00 (a Monday)."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * NS_PER_S


NOON = at("2026-03-02 12:00:00")


def budgets(*written: dict[str, Any]) -> list[karpenter.Budget]:
    return msgspec.convert(list(written), list[karpenter.Budget])


@pytest.mark.parametrize(
    ("written", "nodes", "allowed"),
    [
        ([{"nodes": "10%"}], 0, 0),
        ([{"nodes": "10%"}], 1, 1),
        ([{"nodes": "5%"}], 10, 1),
        ([{"nodes": "10%"}], 20, 2),
        ([{"nodes": "10%"}], 21, 3),
        ([{"nodes": "100%"}], 7, 7),
        ([{"nodes": "0%"}], 50, 0),
        ([{"nodes": "0"}], 50, 0),
        ([{"nodes": "3"}], 50, 3),
        ([{"nodes": "50%"}, {"nodes": "4"}], 50, 4),
        ([{"nodes": "50%"}, {"nodes": "4"}], 4, 2),
        ([], 50, None),
        ([{"nodes": "1", "reasons": ["Drifted"]}], 50, None),
        ([{"nodes": "1", "reasons": ["Drifted", "Empty"]}], 50, 1),
        ([{"nodes": "1", "reasons": ["Drifted"]}, {"nodes": "9"}], 50, 9),
        ([{"nodes": "ten"}], 50, 0),
        ([{"nodes": "101%"}], 50, 0),
        ([{"nodes": "9"}, {"nodes": "-1", "reasons": ["Drifted"]}], 50, 0),
        ([{"nodes": "9", "schedule": "bad", "duration": "1h"}], 50, 0),
        ([{"nodes": "9", "schedule": "@daily"}], 50, 0),
        ([{"nodes": "9", "duration": "1h"}], 50, 0),
        ([{"nodes": "9", "schedule": "0 0 30 2 *", "duration": "1h"}], 50, 0),
        ([{"nodes": "9", "schedule": "@daily", "duration": "90s"}], 50, 0),
    ],
)
def test_budgets_allow_what_karpenter_allows(written: list[dict[str, Any]], nodes: int, allowed: int | None) -> None:
    assert allowance(budgets(*written), nodes, NOON).nodes == allowed


@pytest.mark.parametrize(
    ("schedule", "duration", "now", "open_"),
    [
        ("0 9 * * mon-fri", "8h", "2026-03-02 08:59:59", False),
        ("0 9 * * mon-fri", "8h", "2026-03-02 09:00:00", True),
        ("0 9 * * mon-fri", "8h", "2026-03-02 16:59:59", True),
        ("0 9 * * mon-fri", "8h", "2026-03-02 17:00:00", False),
        ("0 9 * * mon-fri", "8h", "2026-03-01 10:00:00", False),
        ("@daily", "30m", "2026-03-02 00:29:00", True),
        ("@daily", "30m", "2026-03-02 00:31:00", False),
        ("0 22 * * *", "10h30m", "2026-03-02 08:15:00", True),
        ("@hourly", "2h", "2026-03-02 12:59:00", True),
        ("0 0 1 * *", "48h0s", "2026-03-02 23:00:00", True),
    ],
)
def test_a_budget_is_active_for_its_duration_after_each_hit(
    schedule: str, duration: str, now: str, open_: bool
) -> None:
    (budget,) = budgets({"nodes": "0", "schedule": schedule, "duration": duration})
    assert is_active(budget, at(now)) is open_


def test_an_always_active_budget_wins_over_a_larger_one_at_night() -> None:
    both = budgets({"nodes": "10%"}, {"nodes": "50%", "schedule": "0 22 * * *", "duration": "8h"})
    assert allowance(both, 20, at("2026-03-02 23:00:00")).nodes == 2


def state(name: str, **other: Any) -> NodeState:
    fields: dict[str, Any] = {
        "node": Ref("Node", name),
        "node_pool": "gpu",
        "price_micro_usd_per_hour": 1_000_000,
        "initialized_ns": NOON - 3600 * NS_PER_S,
    }
    return NodeState(**(fields | other))


def decide(nodes: list[NodeState], now: int = NOON, **disruption: Any) -> Emptiness:
    settings = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "300s", "budgets": [{"nodes": "100%"}]}
    return empty_nodes(nodes, [node_pool("gpu", disruption=settings | disruption)], now)


def names(result: Emptiness) -> list[str]:
    return [one.node.name for one in result.returns]


@pytest.mark.parametrize(
    ("changes", "returned"),
    [
        ({}, True),
        ({"pods": 1}, False),
        ({"initialized_ns": None}, False),
        ({"deleted": True}, False),
        ({"nominated": True}, False),
        ({"do_not_disrupt": True}, False),
        ({"last_pod_event_ns": NOON - 300 * NS_PER_S}, True),
        ({"last_pod_event_ns": NOON - 299 * NS_PER_S}, False),
        ({"initialized_ns": NOON - 299 * NS_PER_S}, False),
        ({"node_pool": "another"}, False),
        ({"node_pool": ""}, False),
        ({"ready": False}, True),
    ],
)
def test_a_node_is_returned_only_when_nothing_holds_it(changes: dict[str, Any], returned: bool) -> None:
    other = [state(f"busy-{i}", pods=1) for i in range(3)]
    assert names(decide([state("n", **changes), *other], budgets=[{"nodes": "2"}])) == (["n"] if returned else [])


@pytest.mark.parametrize("policy", ["WhenEmpty", "WhenEmptyOrUnderutilized"])
def test_both_policies_return_empty_nodes(policy: str) -> None:
    assert names(decide([state("n")], consolidationPolicy=policy)) == ["n"]


def test_consolidate_after_never_returns_nothing_and_says_so() -> None:
    result = decide([state("n")], consolidateAfter="Never")
    assert not result.returns
    assert result.held[0].reason.verdict == "consolidateAfter is Never"
    assert result.next_ns is None


def test_a_consolidate_after_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(InputError, match="not a duration"):
        decide([state("n")], consolidateAfter="soon")


def test_the_next_time_at_which_a_node_falls_due_is_told() -> None:
    recent = state("n", last_pod_event_ns=NOON - 100 * NS_PER_S)
    later = state("m", last_pod_event_ns=NOON - 50 * NS_PER_S)
    assert decide([later, recent]).next_ns == NOON + 200 * NS_PER_S
    assert names(decide([later, recent], now=NOON + 200 * NS_PER_S)) == ["n"]


def test_the_dearest_go_first_and_the_rest_are_held_by_the_budget() -> None:
    nodes = [
        state("cheap", price_micro_usd_per_hour=1),
        state("dear-b", price_micro_usd_per_hour=9),
        state("dear-a", price_micro_usd_per_hour=9),
    ]
    result = decide(nodes, budgets=[{"nodes": "2"}])
    assert names(result) == ["dear-a", "dear-b"]
    (held,) = result.held
    assert held.node.name == "cheap"
    assert "budget" in held.reason.verdict
    assert dict(held.reason.evidence)["budget"] == 2
    assert [one.name for one in result.returns[0].reason.alternatives] == ["cheap"]


def test_nodes_not_ready_or_leaving_use_up_the_budget() -> None:
    nodes = [state("empty-1"), state("empty-2"), state("gone", deleted=True), state("sick", pods=1, ready=False)]
    assert names(decide(nodes, budgets=[{"nodes": "3"}])) == ["empty-1"]
    assert names(decide(nodes, budgets=[{"nodes": "2"}])) == []


def test_only_initialised_nodes_count_for_a_percentage() -> None:
    nodes = [state(f"n{i}") for i in range(10)] + [state(f"new{i}", initialized_ns=None) for i in range(10)]
    assert len(decide(nodes, budgets=[{"nodes": "10%"}]).returns) == 1


def test_static_pools_are_left_alone() -> None:
    pool = node_pool("gpu", disruption={"consolidateAfter": "0s"})
    pool.spec = msgspec.structs.replace(pool.spec, replicas=3)
    assert not empty_nodes([state("n")], [pool], NOON).returns


states = st.builds(
    state,
    st.integers(0, 40).map(lambda i: f"n{i:02d}"),
    price_micro_usd_per_hour=st.integers(1, 5),
    pods=st.integers(0, 1),
    ready=st.booleans(),
    deleted=st.booleans(),
    do_not_disrupt=st.booleans(),
    initialized_ns=st.sampled_from([None, NOON - 400 * NS_PER_S, NOON - 100 * NS_PER_S]),
)


@given(st.lists(states, max_size=20, unique_by=lambda one: one.node), st.integers(0, 6), st.randoms())
def test_the_budget_is_kept_and_the_order_of_input_does_not_matter(
    nodes: list[NodeState], limit: int, shuffled: Any
) -> None:
    result = decide(nodes, budgets=[{"nodes": str(limit)}])
    counted = [one for one in nodes if one.initialized_ns is not None]
    disrupted = sum(1 for one in counted if one.deleted or not one.ready) + len(result.returns)
    assert not result.returns or disrupted <= limit
    shuffled.shuffle(nodes)
    assert decide(nodes, budgets=[{"nodes": str(limit)}]) == result
