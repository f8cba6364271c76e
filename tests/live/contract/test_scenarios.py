"""The decisions of a scenario are the same in every world."""

from __future__ import annotations

from pathlib import Path

import pytest

from deep_seeds import deep
from live.contract.same import broken, check_same, short_night, short_surge, sold_out, surge
from live.contract.worlds import APIS, opened


@pytest.mark.parametrize("kind", [APIS[0], *deep(APIS[1:])])
def test_spot_interruptions_lost_nodes_and_daemon_sets(kind: str, tmp_path: Path) -> None:
    simulated = broken(tmp_path, None)
    reasons = {event.reason for event in simulated.cluster.events.rows.values()}
    assert {"SpotInterrupted", "NodeLost", "DisruptionTerminating"} <= reasons
    with opened(kind) as transport:
        check_same(simulated, broken(tmp_path, transport))


def test_the_manager_of_a_cluster_runs_the_loops_when_the_simulator_does(tmp_path: Path) -> None:
    with opened("embedded") as transport:
        check_same(broken(tmp_path, None), broken(tmp_path, transport, by_manager=True))


def test_an_instance_type_that_is_out_of_stock(tmp_path: Path) -> None:
    simulated = sold_out(tmp_path, None)
    assert any("InsufficientInstanceCapacity" in one.outcome for one in simulated.recorder.decisions)
    with opened("embedded") as transport:
        check_same(simulated, sold_out(tmp_path, transport), outcomes=False)


def test_underused_nodes_go_and_what_replaces_them_comes_first(tmp_path: Path) -> None:
    simulated = short_night(tmp_path, None)
    kinds = [one.kind for one in simulated.recorder.decisions]
    assert {"Disrupt", "Launch", "Evict", "Return"} <= set(kinds)
    with opened("embedded") as transport:
        check_same(simulated, short_night(tmp_path, transport))


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["slo", *deep(["corrected"])])
def test_the_traffic_surge_in_short(policy: str, tmp_path: Path) -> None:
    simulated = short_surge(tmp_path, policy, None)
    returned = {"Return"} if policy == "slo" else set[str]()  # the autoscaler still holds all nodes at the end
    assert {"Scale", "Bind", "Launch"} | returned <= {one.kind for one in simulated.recorder.decisions}
    with opened("embedded") as transport:
        check_same(simulated, short_surge(tmp_path, policy, transport))


@pytest.mark.fuzz
@pytest.mark.parametrize(("policy", "minutes"), [("slo", 90), ("corrected", 40)])
def test_the_traffic_surge(policy: str, minutes: int) -> None:
    with opened("embedded") as transport:
        check_same(surge(policy, minutes, None), surge(policy, minutes, transport))
