"""Preemption on a real API server in running time: gangs go and come whole, also when the server dies in the middle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cluster.contract import in_time, training
from cluster.contract.same import played
from e2e.control_plane import UNTOUCHED
from tonnage.cluster.client.http import open_cluster
from tonnage.hollow.up import Settings
from tonnage.units import NS_PER_S

SPEED = 200.0
"""The three hours of the scenario in less than a minute."""


def test_when_the_api_server_is_killed_in_the_middle_the_simulators_pods_finish(
    start_plane: Any, tmp_path: Path
) -> None:
    simulated = played(training.rivals(tmp_path), training.END_S * NS_PER_S, None)
    plane = start_plane(controllers=(), scheduler=False, admission_off=UNTOUCHED)
    client = open_cluster(str(plane.kubeconfig()))
    made = training.rivals(tmp_path)
    settings = Settings(speed=SPEED, client=client)
    seen = in_time.played(made, settings, 180, disturb=lambda: plane.restart("kube-apiserver"))
    assert (seen.errors, seen.over, seen.disturbed) == ([], True, True)
    assert seen.halves < 8, (
        "seconds in which pods of a gang come or go one after the other, the server's absence included"
    )
    assert seen.succeeded == {name for one in simulated.cluster.training.values() for name in one.succeeded}
    client.transport.close()
