"""A driver rolled out on a real API server: simulated nodes follow the operator's labels there, evictions are the
server's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.control_plane import UNTOUCHED
from hollow.rollouts import NEW, OLD, ON, drivers, node, roll, with_drivers, without_budgets
from live.contract.small import Small
from tonnage.cuda_fit.rollout import STAGE, RolloutSettings, retry
from tonnage.kube.http import open_cluster
from tonnage.live.driver_rollout import ClusterRollout
from tonnage.machines import gpu_faults
from tonnage.units import NS_PER_S

ONE_BY_ONE = RolloutSettings(wave=1, pending=True)


@pytest.fixture
def small(start_plane: Any, tmp_path: Path) -> Iterator[Small]:
    plane = start_plane(controllers=(), scheduler=False, admission_off=UNTOUCHED)
    client = open_cluster(str(plane.kubeconfig()))
    with with_drivers(tmp_path, client.transport) as made:
        yield made
    client.transport.close()


def test_a_rollout_stops_at_a_node_with_a_broken_gpu_and_ends_once_that_is_repaired(small: Small) -> None:
    without_budgets(small)
    cluster = small.made.cluster
    cluster.queue.push(cluster.now_ns, gpu_faults.GpuUnhealthy("base-02"))
    small.run(5)
    turn = roll(small, settings=ONE_BY_ONE)
    assert turn.state == "stopped"
    assert turn.waits[0].startswith("base-02: the GPU operator says upgrade-failed")
    assert drivers(small)["base-02"] == OLD
    assert node(small, "base-02")["spec"]["unschedulable"] is True
    gpu_faults.restore_gpu(cluster, cluster.nodes["base-02"])
    small.settle()
    again = ClusterRollout(small.client)
    again.edit(retry(again.read(), cluster.now_ns // NS_PER_S))
    turn = roll(small, settings=ONE_BY_ONE)
    assert turn.state == "done", turn
    assert drivers(small) == dict.fromkeys(ON, NEW)
    for name in ON:
        assert not [key for key in node(small, name)["metadata"]["labels"] if key.startswith(STAGE)]
        assert not node(small, name)["spec"].get("unschedulable")
