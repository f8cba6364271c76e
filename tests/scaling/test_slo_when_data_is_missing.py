"""Steady traffic, and what measures it fails now and then: the slo policy neither gives up what serves nor orders more."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slo_builders import TICK_S, A, Cluster, Loop, target

from deep_seeds import examples
from tonnage.units import NS_PER_S

APART = 8
"""This many ticks, two minutes, are at least between two restarts of a gateway: one that restarts whenever it is not scraped
counts nothing that anybody sees."""
TICKS = st.lists(st.sampled_from(["well", "well", "well", "dead", "restarted", "unready"]), min_size=10, max_size=120)


def _cluster(ready: int) -> Cluster:
    """Six pods of A on nodes that were launched for them, of which so many are ready."""
    return (
        Cluster(kept=0, bought=1, gpus=6)
        .pods(A, *["bought-1"] * ready)
        .pods(A, *["bought-1"] * (6 - ready), ready=False)
    )


@pytest.mark.parametrize("new_node_s", [0, 700], ids=["near", "far"])
@settings(max_examples=examples(25), deadline=None)
@given(happens=TICKS)
def test_hardly_anything_changes_while_the_traffic_is_what_it_was(new_node_s: int, happens: list[str]) -> None:
    """An exporter that is dead for some ticks, counters that begin again, pods that are not ready for a tick."""
    loop = Loop(_cluster(6), target(new_node_ns=new_node_s * NS_PER_S))
    assert loop.tick(5.4, 30, ticks=12) == {}
    restarted = -APART
    for at, one in enumerate(happens):
        if one == "restarted" and at - restarted >= APART:
            loop.received[A], restarted = 0.0, at
        if one == "dead":
            loop.received[A] += 5.4 * TICK_S  # they are counted all the same
        loop.cluster = _cluster(5 if one == "unready" else 6)
        decided = loop.tick(None if one == "dead" else 5.4, 30)
        assert not decided or 6 <= decided[A].replicas < 10, "some more, of what a short history leaves uncertain"
        assert not (decided and one == "dead")


@pytest.mark.parametrize("new_node_s", [0, 700], ids=["near", "far"])
def test_after_an_hour_without_data_what_there_is_stays(new_node_s: int) -> None:
    loop = Loop(_cluster(6), target(new_node_ns=new_node_s * NS_PER_S))
    loop.tick(5.4, 30, ticks=100)
    assert loop.tick(None, ticks=240) == {}
    assert loop.tick(5.4, 30, ticks=20) == {}


FLAPS = st.lists(st.sampled_from(["both", "both", "both", "first", "second", "none"]), min_size=10, max_size=80)


@pytest.mark.parametrize("new_node_s", [0, 700], ids=["near", "far"])
@settings(max_examples=examples(25), deadline=None)
@given(happens=FLAPS)
def test_a_gateway_that_comes_back_with_its_old_count_is_no_surge(new_node_s: int, happens: list[str]) -> None:
    """Two gateways are counted together; one or both are not scraped for some ticks. While one is away for long, what the
    other counts, half of it, is all the traffic that is known."""
    loop = Loop(_cluster(6), target(new_node_ns=new_node_s * NS_PER_S))
    gateways = [50_000.0, 30_000.0]
    for _ in range(12):
        gateways = [one + 2.7 * TICK_S for one in gateways]
        loop.read(sum(gateways), 30)
    for one in happens:
        gateways = [one + 2.7 * TICK_S for one in gateways]
        seen = {"first": gateways[:1], "second": gateways[1:], "none": []}.get(one, gateways)
        decided = loop.read(sum(seen) if seen else None, 30)
        assert not decided or 3 <= decided[A].replicas < 10


def test_a_surge_after_a_restart_is_still_answered() -> None:
    loop = Loop(_cluster(6), target())
    loop.tick(5.4, 30, ticks=12)
    loop.received[A] = 0.0
    loop.tick(5.4, 30, ticks=3)
    decided = loop.tick(9.0, 90, ticks=8)
    assert decided[A].replicas == 10


def test_traffic_that_ends_after_a_restart_is_believed_in_the_end() -> None:
    loop = Loop(_cluster(6), target())
    loop.tick(5.4, 30, ticks=12)
    loop.received[A] = 0.0
    assert loop.tick(0.0, 0, ticks=40)[A].replicas == 2
