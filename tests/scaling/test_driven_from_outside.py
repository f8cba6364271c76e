"""Policies driven from outside: what is observed of pools of replicas, and how many each is to have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from slo_builders import TICK_S, A, B, Cluster, Loop, target

from tonnage.control.outside import PoolObservation, ReplayScaling, replicas_for
from tonnage.errors import InputError
from tonnage.scaling.target import Target
from tonnage.units import NS_PER_S

SECOND_MS = 1000.0


def test_outside_and_inside_a_policy_decides_the_same() -> None:
    """Nodes that a pool launched are nobody's that could be filled; outside there are none at all."""
    rates = [3.0] * 12 + [9.0] * 12 + [2.0] * 40
    inside = Loop(Cluster(kept=0, bought=4, gpus=1).pods(A, *(f"bought-{i}" for i in range(1, 5))), target())
    memory: dict[str, Any] = {}
    received, changed = 0.0, 0
    for number, rate in enumerate(rates, 1):
        received += rate * TICK_S
        decision = inside.tick(rate, 20.0).get(A)
        seen = {A: PoolObservation(4, 4, received, 20.0)}
        wanted, memory = replicas_for(number * TICK_S * NS_PER_S, seen, [target()], memory)
        assert wanted == {A: decision.replicas if decision else 4}
        assert memory[A].reason.verdict == inside.memory[A].reason.verdict
        changed += decision is not None
    assert changed > 20


def test_every_pool_is_answered_and_without_a_target_or_data_it_stays_as_it_is() -> None:
    memory: dict[str, Any] = {}
    wanted: dict[str, int] = {}
    for tick in range(1, 13):
        seen = {
            A: PoolObservation(3, 2, None, 4.0),
            B: PoolObservation(2, 2, tick * 90.0, 10.0),
            "unplanned": PoolObservation(7, 0, 1.0, 1.0),
        }
        wanted, memory = replicas_for(tick * TICK_S * NS_PER_S, seen, [target(A), target(B)], memory)
    assert wanted == {A: 3, B: 7, "unplanned": 7}
    assert memory[A].reason.verdict.startswith("held: no data")


def test_replicas_that_do_not_serve_yet_are_ordered() -> None:
    memory: dict[str, Any] = {}
    wanted: dict[str, int] = {}
    for tick in range(1, 13):
        wanted, memory = replicas_for(
            tick * TICK_S * NS_PER_S, {A: PoolObservation(6, 2, tick * 60.0, 15.0)}, [target()], memory
        )
    assert wanted == {A: 6}


@pytest.mark.parametrize(("replicas", "ready"), [(1, 2), (1, -1), (-1, 0)])
def test_counts_that_cannot_be_are_refused(replicas: int, ready: int) -> None:
    with pytest.raises(ValueError, match="expected 0 <= ready <= replicas"):
        PoolObservation(replicas, ready, 0.0, 0.0)


def test_a_policy_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(InputError, match="no policy named 'clairvoyant'") as caught:
        replicas_for(0, {A: PoolObservation(1, 1, 0.0, 0.0)}, [target()], {}, "clairvoyant")
    assert "slo" in str(caught.value)


def a_replay(
    tick: int,
    *,
    active: list[int],
    starting: list[int] | None = None,
    arrived: int = 0,
    completed: int = 0,
    prefill: int = 0,
) -> dict[str, Any]:
    """What a replay says at a tick of 15 s, of what a policy reads."""
    starting = starting or []
    return {
        "now_ms": tick * TICK_S * SECOND_MS,
        "total_prefill_count": prefill,
        "active_decode_ids": active,
        "active_decode_count": len(active),
        "starting_decode_ids": starting,
        "starting_decode_count": len(starting),
        "traffic": {"num_req": arrived, "shape_count": completed},
    }


CHAT = Target("chat", 1.0, 10.0, 1, 10, 60 * NS_PER_S)


def test_a_replay_is_asked_every_tick_and_told_how_many_workers() -> None:
    scaling = ReplayScaling(CHAT)
    assert scaling.initial_tick_ms() == 15_000
    told: dict[str, float] = {}
    for tick in range(1, 13):
        told = scaling.on_tick(a_replay(tick, active=[0, 1], arrived=75, completed=75))
    assert told == {"target_prefill": 0, "target_decode": 6, "next_tick_ms": 13 * 15_000}, "5 requests/s, and chance"
    assert scaling.asked[-1] == (180 * NS_PER_S, 6, "demand at the horizon exceeds capacity")


def test_what_arrived_and_is_not_completed_is_in_flight() -> None:
    hasty = replace(CHAT, drain_ns=60 * NS_PER_S)
    calm, behind = ReplayScaling(hasty), ReplayScaling(hasty)
    for tick in range(1, 13):
        calm.on_tick(a_replay(tick, active=[0, 1], arrived=15, completed=15))
        behind.on_tick(a_replay(tick, active=[0, 1], arrived=15, completed=5))
    assert calm.asked[-1][1] == 2 < behind.asked[-1][1]


def test_the_starts_of_workers_are_timed_from_the_tick_that_asked_for_them() -> None:
    scaling = ReplayScaling(CHAT)
    scaling.on_tick(a_replay(1, active=[0]))
    for tick in (2, 3, 4, 5):
        scaling.on_tick(a_replay(tick, active=[0], starting=[1]))
    scaling.on_tick(a_replay(6, active=[0, 1]))
    assert scaling._cold_starts == [75 * NS_PER_S], "asked for at the first tick, active at the sixth"


def test_a_replay_with_prefill_workers_is_refused() -> None:
    with pytest.raises(InputError, match="2 prefill workers in the replay, expected none"):
        ReplayScaling(CHAT).on_tick(a_replay(1, active=[0], prefill=2))
