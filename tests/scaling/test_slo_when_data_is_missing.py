"""Steady traffic, and what measures it fails now and then: the slo policy neither gives up what serves nor orders more."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slo_builders import TICK_S, A, Cluster, Loop, target

from deep_seeds import examples
from tonnage.units import NS_PER_S

TICKS = st.lists(st.sampled_from(["well", "well", "well", "dead", "restarted", "unready"]), min_size=10, max_size=120)

QUIET_TICKS = 8
"""At least from one restart of the gateway to the next: a count that is not smaller than before hides a restart."""


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
    restarted = -QUIET_TICKS
    for number, one in enumerate(happens):
        if one == "restarted" and number - restarted >= QUIET_TICKS:
            loop.received[A], restarted = 0.0, number
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
